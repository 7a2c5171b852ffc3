//! `zarrfs check --repair`: prints the repairs, and makes them.

use std::fs::{File, Metadata};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::check::repair::{self, Leftovers, Quarantine, RepairStep};
use crate::check::{Finding, Repair, Severity};
use crate::cli::args::Check;
use crate::cli::failure::{Failure, failed};
use crate::cli::open;
use crate::cli::open::remote;
use crate::cli::output::print;
use crate::cli::umount;
use crate::error::{Error, Kind, Result};
use crate::hierarchy::Hierarchy;
use crate::store::{ByteRange, Key, Prefix, Store};
use crate::sys::{self, IfTaken, OwnDirectory};
use crate::width::ToU64;

/// The modes of new files and directories in quarantine, without the bits of the umask.
const FILE_MODE: u32 = 0o666;
const DIRECTORY_MODE: u32 = 0o777;

/// The number of bytes to copy into quarantine at a time.
const STEP: u64 = 16 << 20;

/// Fails if the hierarchy cannot be repaired now. Runs before anything is read.
pub fn check(args: &Check, hierarchy: &Hierarchy) -> std::result::Result<(), Failure> {
    check_writers(args, hierarchy)?;
    args.quarantine.as_deref().map_or(Ok(()), |dir| check_apart(args, dir))
}

/// Fails if a directory for damaged chunks lies in the hierarchy, by whatever path: a chunk would
/// move onto itself, or become a file of another node. Also fails if it lies in another hierarchy.
fn check_apart(args: &Check, dir: &Path) -> std::result::Result<(), Failure> {
    let absolute = std::path::absolute(dir)?;
    let found = absolute.ancestors().find_map(|above| above.canonicalize().ok());
    let inside = |above: &Path| {
        failed(format!(
            "{}: lies in the hierarchy {}: name a directory outside it (--quarantine)",
            dir.display(),
            above.display()
        ))
    };
    let source = open::Source::parse(&args.source).ok();
    let roots = [Some(args.source.as_path()), source.as_ref().and_then(|it| it.root.directory())];
    let roots: Vec<Metadata> =
        roots.into_iter().flatten().filter_map(|it| it.metadata().ok()).collect();
    let names = ["zarr.json", ".zgroup", ".zarray", ".zmetadata", "attributes.json", "meta"];
    for above in found.iter().flat_map(|found| found.ancestors()) {
        let is_root =
            above.metadata().is_ok_and(|found| roots.iter().any(|root| sys::is_same(root, &found)));
        if is_root || names.iter().any(|name| above.join(name).exists()) {
            return Err(inside(above));
        }
    }
    Ok(())
}

/// Fails if a program writes to the store.
fn check_writers(args: &Check, hierarchy: &Hierarchy) -> std::result::Result<(), Failure> {
    let shown = remote::typed(&args.source);
    let in_use = |by: &str| {
        failed(format!(
            "{shown}: {by} is writing to it: unmount it or wait for it, then run --repair again"
        ))
    };
    if let Some(list) = hierarchy.store().list() {
        let files = list.writer_files(&Prefix::root())?;
        if files.iter().any(|file| file.is_held) {
            return Err(in_use("a mount or another program"));
        }
    }
    let place = match remote::url(&args.source) {
        Some(url) => Some(PathBuf::from(url.split_once('#').map_or(url, |(url, _)| url))),
        None => args.source.canonicalize().ok(),
    };
    let Some(place) = place else { return Ok(()) };
    for mount in umount::mounts()?.iter().filter(|mount| mount.is_fuse()) {
        let source = mount.source.to_str().unwrap_or_default();
        let root = source.rsplit_once('#').map_or(source, |(root, _)| root);
        let is_same = place.starts_with(root) || Path::new(root).starts_with(&place);
        if !root.is_empty() && is_same && !mount.is_read_only() {
            return Err(in_use(&format!("the mount {}", mount.path.display())));
        }
    }
    Ok(())
}

/// The results of a check.
pub struct CheckResults<'f> {
    /// The findings that can be repaired.
    pub repairable: &'f [Finding],
    /// The number of damaged files.
    pub damaged: u64,
    /// Whether the user has interrupted the command.
    pub is_stopped: &'f dyn Fn() -> bool,
}

/// Prints the plan of a repair, and carries it out if the user gave `--yes`.
pub fn run(
    args: &Check,
    hierarchy: &Hierarchy,
    found: &CheckResults<'_>,
) -> std::result::Result<(), Failure> {
    let shown = remote::typed(&args.source);
    let CheckResults { repairable, damaged, is_stopped } = found;
    let leftovers = if args.remove_leftovers { Leftovers::All } else { Leftovers::Own };
    let steps = repair::plan(repairable, args.quarantine.is_some(), leftovers)?;
    let is_handled = |finding: &&Finding| {
        finding.code.severity() == Severity::Damaged
            && match finding.repair {
                Some(Repair::Quarantine(_)) => args.quarantine.is_some(),
                Some(_) => true,
                None => false,
            }
    };
    let handled = repairable.iter().filter(is_handled).count().to_u64();
    let left = damaged.saturating_sub(handled);
    let ended = |left: u64| if left == 0 { Ok(()) } else { Err(Failure::Damaged) };
    say_what_stays(args, repairable);
    if steps.is_empty() {
        print::error(&format!("{shown}: nothing can be repaired without guessing"));
        return ended(*damaged);
    }
    if !args.yes {
        for step in &steps {
            print::error(&format!("would {step}"));
        }
        print::error(&format!("{shown}: nothing was changed; add --yes to make these repairs"));
        return ended(*damaged);
    }
    check_writers(args, hierarchy)?;
    let folder = |dir: &Path| {
        let opened = OwnDirectory::named(dir);
        opened.map_err(|error| failed(format!("{}: {error} (--quarantine)", dir.display())))
    };
    let quarantine = args.quarantine.as_deref().map(folder).transpose()?.map(Folder);
    let quarantine: Option<&dyn Quarantine> = match &quarantine {
        Some(folder) => Some(folder),
        None => None,
    };
    let failures = take(hierarchy, &steps, quarantine, is_stopped);
    hierarchy.release_idle(Duration::ZERO);
    let failures = failures.ok_or_else(|| {
        failed(format!("{shown}: interrupted; run the same command again to continue"))
    })?;
    if failures > 0 {
        return Err(failed(format!("{shown}: {failures} of {} repairs failed", steps.len())));
    }
    let done = format!("{shown}: {} repairs done; check it again", steps.len());
    if left > 0 {
        print::error(&format!("{done}: {left} damaged files remain"));
    } else {
        print::error(&done);
    }
    ended(left)
}

/// Says which files of other programs are not removed.
fn say_what_stays(args: &Check, repairable: &[Finding]) {
    let is_left = |finding: &&Finding| matches!(finding.repair, Some(Repair::Remove(_)));
    let others = repairable.iter().filter(is_left).count();
    if others > 0 && !args.remove_leftovers {
        print::error(&format!(
            "{}: {others} files with names of temporary files of other programs stay; if none is \
             yours, --remove-leftovers removes them",
            remote::typed(&args.source)
        ));
    }
}

/// Takes the steps, and counts those that fail. `None` if the user has interrupted the command.
fn take(
    hierarchy: &Hierarchy,
    steps: &[RepairStep],
    quarantine: Option<&dyn Quarantine>,
    is_stopped: &dyn Fn() -> bool,
) -> Option<u64> {
    let mut failures = 0_u64;
    for step in steps {
        if is_stopped() {
            return None;
        }
        match repair::take(hierarchy, step, quarantine) {
            Ok(()) => print::error(&format!("done: {step}")),
            Err(error) => {
                failures = failures.saturating_add(1);
                print::error(&format!("not done: {step}: {error}"));
            }
        }
    }
    Some(failures)
}

/// A directory for damaged values, each at the path of its key. No link in it is followed.
struct Folder(OwnDirectory);

impl Quarantine for Folder {
    fn keep(&self, key: &Key, store: &Store) -> Result<()> {
        let above = self.0.make_directories(Path::new(key.parent().as_str()), DIRECTORY_MODE)?;
        let Some(stat) = store.stat(key)? else { return Ok(()) };
        // Keep earlier values of the same key.
        let mut number = 0_u32;
        let mut name = key.name().to_owned();
        let part = loop {
            match above.open_to_read(&name) {
                Ok(file) => {
                    if same(&file, key, store, stat.len)? {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    let part = format!("{name}.{:016x}.part", number_of_part());
                    match above.create_with_mode(&part, FILE_MODE) {
                        Ok(mut file) => {
                            let copied = each_part(key, store, stat.len, &mut |bytes| {
                                file.write_all(bytes)?;
                                Ok(true)
                            });
                            if let Err(error) = copied.and_then(|_| Ok(file.sync_all()?)) {
                                above.remove_if(&part, &file)?;
                                return Err(error);
                            }
                            break part;
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
                // It is in the way.
                Err(_) => {}
            }
            number = number.saturating_add(1);
            name = format!("{}.{number}", key.name());
        };
        above.rename(&part, &name, IfTaken::Stays)?;
        above.sync()?;
        Ok(())
    }
}

/// Whether a file is another one than a value, and has its bytes.
fn same(file: &File, key: &Key, store: &Store, len: u64) -> Result<bool> {
    use std::os::unix::fs::FileExt as _;

    let found = file.metadata()?;
    if let Some((value, _)) = store.read().open(key)?
        && sys::is_same(&File::from(value).metadata()?, &found)
    {
        let detail = "the directory for damaged chunks is the hierarchy itself, by another path";
        return Err(Error::new(Kind::Exists, detail));
    }
    if !found.is_file() || found.len() != len {
        return Ok(false);
    }
    let (mut kept, mut offset) = (Vec::new(), 0_u64);
    each_part(key, store, len, &mut |bytes| {
        kept.resize(bytes.len(), 0);
        file.read_exact_at(&mut kept, offset)?;
        offset = offset.saturating_add(bytes.len().to_u64());
        Ok(kept == bytes)
    })
}

/// Returns a number for the name of a temporary file.
fn number_of_part() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Reads a value part by part, until `take` returns false. Returns whether `take` took all parts.
fn each_part(
    key: &Key,
    store: &Store,
    len: u64,
    take: &mut dyn FnMut(&[u8]) -> Result<bool>,
) -> Result<bool> {
    let mut offset = 0;
    while offset < len {
        let range = ByteRange::Span { offset, len: STEP };
        let mut found = store.read().get_partial_values(&[(key.clone(), range)])?;
        let value = found.pop().flatten().filter(|value| !value.bytes.is_empty());
        let changed =
            || Error::new(Kind::Stale, "another program changed the value during the copy");
        let value = value.ok_or_else(changed)?;
        if !take(&value.bytes)? {
            return Ok(false);
        }
        offset = offset.saturating_add(value.bytes.len().to_u64());
    }
    Ok(true)
}
