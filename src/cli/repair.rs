//! `zarrfs check --repair`: prints the repairs, and makes them.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::args::Check;
use super::failure::{Failure, failed};
use super::{print, umount};
use crate::check::repair::{self, Quarantine};
use crate::check::{Finding, Repair, Severity};
use crate::error::{Error, Kind, Result};
use crate::hierarchy::Hierarchy;
use crate::store::{ByteRange, Key, Prefix, Store};

/// The number of bytes to copy into quarantine at a time.
const STEP: u64 = 16 << 20;

/// Fails if the hierarchy cannot be repaired now. Runs before anything is read.
pub fn check(args: &Check, hierarchy: &Hierarchy) -> std::result::Result<(), Failure> {
    check_writers(args, hierarchy)?;
    args.quarantine.as_deref().map_or(Ok(()), check_apart)
}

/// Fails if a directory for damaged chunks lies in a hierarchy: a chunk would move onto itself, or
/// become a file of another node.
fn check_apart(dir: &Path) -> std::result::Result<(), Failure> {
    let absolute = std::path::absolute(dir)?;
    let found = absolute.ancestors().find_map(|above| above.canonicalize().ok());
    let names = ["zarr.json", ".zgroup", ".zarray", ".zmetadata", "attributes.json", "meta"];
    for above in found.iter().flat_map(|found| found.ancestors()) {
        if names.iter().any(|name| above.join(name).exists()) {
            return Err(failed(format!(
                "{}: lies in the hierarchy {}: name a directory outside it (--quarantine)",
                dir.display(),
                above.display()
            )));
        }
    }
    Ok(())
}

/// Fails if a program writes to the store.
fn check_writers(args: &Check, hierarchy: &Hierarchy) -> std::result::Result<(), Failure> {
    let shown = args.source.display();
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
    if let Ok(path) = args.source.canonicalize() {
        for mount in umount::mounts()?.iter().filter(|mount| mount.is_fuse()) {
            let source = mount.source.to_str().unwrap_or_default();
            let root = source.rsplit_once('#').map_or(source, |(root, _)| root);
            let is_same = path.starts_with(root) || Path::new(root).starts_with(&path);
            if !root.is_empty() && is_same && !mount.is_read_only() {
                return Err(in_use(&format!("the mount {}", mount.path.display())));
            }
        }
    }
    Ok(())
}

/// The results of a check.
pub struct Found<'f> {
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
    found: &Found<'_>,
) -> std::result::Result<(), Failure> {
    let shown = args.source.display();
    let Found { repairable, damaged, is_stopped } = found;
    let steps = repair::plan(repairable, args.quarantine.is_some())?;
    let is_handled = |finding: &&Finding| {
        finding.code.severity() == Severity::Damaged
            && match finding.repair {
                Some(Repair::Quarantine(_)) => args.quarantine.is_some(),
                Some(_) => true,
                None => false,
            }
    };
    let handled = u64::try_from(repairable.iter().filter(is_handled).count()).unwrap_or(u64::MAX);
    let left = damaged.saturating_sub(handled);
    let ended = |left: u64| if left == 0 { Ok(()) } else { Err(Failure::Damaged) };
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
    let quarantine = args.quarantine.as_ref().map(|dir| Folder(dir.clone()));
    let quarantine: Option<&dyn Quarantine> = match &quarantine {
        Some(folder) => Some(folder),
        None => None,
    };
    let mut failures = 0_u64;
    for step in &steps {
        if is_stopped() {
            hierarchy.release_idle(Duration::ZERO);
            return Err(failed(format!(
                "{shown}: interrupted; run the same command again to continue"
            )));
        }
        match repair::take(hierarchy, step, quarantine) {
            Ok(()) => print::error(&format!("done: {step}")),
            Err(error) => {
                failures = failures.saturating_add(1);
                print::error(&format!("not done: {step}: {error}"));
            }
        }
    }
    hierarchy.release_idle(Duration::ZERO);
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

/// A directory for damaged values, each at the path of its key.
struct Folder(PathBuf);

impl Quarantine for Folder {
    fn keep(&self, key: &Key, store: &Store) -> Result<()> {
        let path = self.0.join(key.as_str());
        let above = path.parent().unwrap_or(&self.0);
        std::fs::create_dir_all(above)?;
        let Some(stat) = store.stat(key)? else { return Ok(()) };
        // Keep earlier values of the same key.
        let mut number = 0_u32;
        let mut place = path.clone();
        while place.exists() {
            if same(&place, key, store, stat.len)? {
                return Ok(());
            }
            number = number.saturating_add(1);
            place = with_suffix(&path, &number.to_string());
        }
        let part = with_suffix(&place, "part");
        let mut file = File::create(&part)?;
        each_part(key, store, stat.len, &mut |bytes| {
            file.write_all(bytes)?;
            Ok(true)
        })?;
        file.sync_all()?;
        std::fs::rename(&part, &place)?;
        File::open(above)?.sync_all()?;
        Ok(())
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

/// Whether a file has the bytes of a value.
fn same(path: &Path, key: &Key, store: &Store, len: u64) -> Result<bool> {
    use std::io::Read;

    let mut file = File::open(path)?;
    if file.metadata()?.len() != len {
        return Ok(false);
    }
    let mut found = Vec::new();
    each_part(key, store, len, &mut |bytes| {
        found.resize(bytes.len(), 0);
        file.read_exact(&mut found)?;
        Ok(found == bytes)
    })
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
        offset = offset.saturating_add(u64::try_from(value.bytes.len()).unwrap_or(u64::MAX));
    }
    Ok(true)
}
