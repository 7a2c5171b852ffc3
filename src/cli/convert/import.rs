//! `zarrfs import`: files of other formats, or hierarchies, into a hierarchy that may exist.

use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::{Value, json};

use crate::cli::args::{Convert, Import};
use crate::cli::convert;
use crate::cli::create;
use crate::cli::failure::{Failure, failed};
use crate::cli::interrupt::{Interrupted, Signals, stop_on_signals};
use crate::cli::open;
use crate::cli::open::remote;
use crate::cli::output::print;
use crate::cli::output::progress::Bar;
use crate::cli::output::size;
use crate::cli::status::mounted;
use crate::convert::CopyWatch;
use crate::error::Error;
use crate::files::FileFormat;
use crate::hierarchy::Hierarchy;
use crate::import::{
    self, ImportOptions, ImportPlan, ImportRecord, ImportSource, Imported, Placement, Started,
};
use crate::metadata::{Dialect, NodePath};
use crate::printable::escaped;
use crate::resources;

/// Imports the files, and prints a summary.
pub fn run(args: &Import) -> Result<(), Failure> {
    let placement = match (&args.append_dim, &args.region) {
        (Some(dimension), _) => Some(Placement::Append(dimension.clone())),
        (None, Some(ranges)) => Some(Placement::Region(ranges.clone())),
        (None, None) => args.into.then_some(Placement::Over),
    };
    resources::raise_descriptor_limit();
    let Some(placement) = placement else { return make_new(args) };
    let mut session =
        Session { args, placement: &placement, is_stopped: Arc::default(), is_heard: false };
    let is_append = matches!(placement, Placement::Append(_));
    let Some((first, rest)) = args.sources.split_first().filter(|_| is_append) else {
        return session.import_into(&args.sources);
    };
    if create::is_free(&args.dest, &args.remote)? {
        // All files must fit before anything is stored.
        session.check_all_fit(first, rest)?;
        session.is_heard = true;
        convert::run_until(&conversion(args, first, &args.dest)?, &session.is_stopped)?;
        return if rest.is_empty() { Ok(()) } else { session.import_into(rest) };
    }
    // The first file may have become DEST before an interruption.
    let goes_on = !rest.is_empty() && session.was_interrupted(rest)?;
    session.import_into(if goes_on { rest } else { &args.sources })
}

/// Makes new nodes: DEST, or one below it for each of several files.
fn make_new(args: &Import) -> Result<(), Failure> {
    if let [source] = args.sources.as_slice() {
        if !create::is_free(&args.dest, &args.remote)? {
            return Err(failed(format!(
                "{}: exists: add to its arrays with --append-dim, replace values with --into or \
                 --region, or name a new node in it, such as {}",
                args.dest.display(),
                args.dest.join(name_of(source)?).display()
            )));
        }
        return convert::run(&conversion(args, source, &args.dest)?);
    }
    let mut names: Vec<String> = Vec::new();
    for source in &args.sources {
        let name = name_of(source)?;
        if names.contains(&name) {
            return Err(failed(format!(
                "{}: another file would also become the group {name:?}: import this one separately, into \
                 a group of another name",
                source.display()
            )));
        }
        if !create::is_free(&args.dest.join(&name), &args.remote)? {
            return Err(failed(format!(
                "{}: exists: leave out {}, or import it separately into a group of another name",
                args.dest.join(&name).display(),
                source.display()
            )));
        }
        names.push(name);
    }
    let is_stopped = Arc::default();
    create::group_if_missing(&args.dest, format_of(args, &args.dest)?, &args.remote)?;
    for (source, name) in args.sources.iter().zip(names) {
        convert::run_until(&conversion(args, source, &args.dest.join(name))?, &is_stopped)?;
    }
    Ok(())
}

/// Returns the name of a file without its ending.
fn name_of(source: &Path) -> Result<String, Failure> {
    let text = remote::typed(source);
    let text = text
        .rsplit_once('#')
        .map_or(text.as_str(), |(file, node)| if node.is_empty() { file } else { node });
    let name = text.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let hierarchy = [".zarr", ".n5", ".zip", ".ozx"].iter().find_map(|end| name.strip_suffix(end));
    let name = FileFormat::stem(name).or(hierarchy).filter(|name| !name.is_empty()).unwrap_or(name);
    match NodePath::root().child(name) {
        Ok(_) => Ok(name.to_owned()),
        Err(error) => Err(failed(format!("{}: {}", source.display(), error.detail()))),
    }
}

/// Returns the dialect of new nodes at `dest`.
fn format_of(args: &Import, dest: &Path) -> Result<Dialect, Failure> {
    let around = create::dialect_at(dest, &args.remote)?;
    match (around, &args.format) {
        (Some(around), Some(asked)) if around.name() != asked.name() => {
            Err(Failure::Usage(format!(
                "--format {}: the hierarchy around {} has the dialect {}, and so will the new node: \
                 remove --format",
                asked.name(),
                dest.display(),
                around.name()
            )))
        }
        (Some(around), _) => Ok(around),
        (None, asked) => Ok(asked.clone().unwrap_or(Dialect::V3)),
    }
}

/// Returns the conversion of one file.
fn conversion(args: &Import, source: &Path, dest: &Path) -> Result<Convert, Failure> {
    Ok(Convert {
        source: source.to_owned(),
        dest: dest.to_owned(),
        from: None,
        format: format_of(args, dest)?,
        codecs: args.codecs.clone(),
        chunks: args.chunks.clone(),
        shards: args.shards.clone(),
        ome_zarr: None,
        only: args.only.clone(),
        skip_unsupported: args.skip_unsupported,
        skip_missing_chunks: false,
        keep_going: false,
        verify: args.verify,
        threads: args.threads,
        cache_size: args.cache_size,
        remote: args.remote.clone(),
    })
}

/// The progress bar, and whether the user interrupted the import.
struct Watch {
    bar: Arc<Bar>,
    is_stopped: Arc<AtomicBool>,
}

impl CopyWatch for Watch {
    fn begin(&self, path: &NodePath, values: u64) {
        self.bar.begin(path.as_str(), values);
    }

    fn advance(&self) {
        self.bar.advance("stored");
    }

    fn go_on_without(&self, _: &Error) -> bool {
        false
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }
}

/// An import into arrays. It may make some of them.
struct Session<'a> {
    args: &'a Import,
    placement: &'a Placement,
    is_stopped: Arc<AtomicBool>,
    /// Whether this import has made the arrays, and a thread waits for signals already.
    is_heard: bool,
}

impl Session<'_> {
    /// Opens the hierarchy that the import changes, and the node in it.
    fn dest(&self) -> Result<(Hierarchy, NodePath), Failure> {
        let Import { dest, remote, .. } = self.args;
        match create::open_around(dest, remote)? {
            Some(found) => Ok(found),
            None => open::node_for(dest, None, remote, open::Access::Write),
        }
    }

    /// Whether the record says that this import, without its first file, was interrupted.
    fn was_interrupted(&self, rest: &[PathBuf]) -> Result<bool, Failure> {
        let (dest, path) = self.dest()?;
        Ok(ImportRecord::is_of(&dest, &claim(self.args, rest, &path))?)
    }

    /// Fails if files could not be appended to what becomes of the first one.
    fn check_all_fit(&self, first: &Path, rest: &[PathBuf]) -> Result<(), Failure> {
        if rest.is_empty() {
            return Ok(());
        }
        let (hierarchy, path) = open::node(first, None, &self.args.remote)?;
        self.planned(rest, (&hierarchy, &path)).map(drop)
    }

    /// Opens the sources, and plans the import.
    fn planned(
        &self,
        sources: &[PathBuf],
        dest: (&Hierarchy, &NodePath),
    ) -> Result<(Vec<ImportSource>, ImportPlan), Failure> {
        let opened = sources.iter().map(|source| {
            let (hierarchy, path) = open::node(source, None, &self.args.remote)?;
            let (name, shown) = (name_of(source).unwrap_or_default(), remote::typed(source));
            let lacks_names = FileFormat::lacks_names(&shown);
            Ok(ImportSource { shown, name, lacks_names, hierarchy, path })
        });
        let opened = opened.collect::<Result<Vec<_>, Failure>>()?;
        let selected = (self.args.only.as_slice(), !self.args.any_order);
        let plan = import::plan(&opened, dest, self.placement, selected)?;
        Ok((opened, plan))
    }

    /// Imports values into arrays that exist.
    fn import_into(&self, sources: &[PathBuf]) -> Result<(), Failure> {
        let begun = Instant::now();
        let args = self.args;
        check_only_values(args)?;
        let shown = args.dest.display();
        check_is_not_mounted(&args.dest)?;
        if !self.is_heard {
            say_unused(args);
        }
        let (dest, path) = self.dest()?;
        dest.dialect().check_makes_nodes()?;
        dest.recovery().recover();
        let claim = claim(args, sources, &path);
        let at_dest = |error: Error| failed(format!("{shown}: {error}"));
        let (record, started) = ImportRecord::take(&dest, &claim).map_err(at_dest)?;
        if started == Started::Completed {
            record.remove()?;
            let said = format!("{shown}: an import that was interrupted is complete now\n");
            return print::output(&said);
        }
        let planned = self.planned(sources, (&dest, &path));
        let noted = planned.and_then(|planned| {
            record.note(&planned.1)?;
            Ok(planned)
        });
        let (_opened, plan) = match noted {
            Ok(planned) => planned,
            Err(failure) => {
                // Chunks that an earlier run has stored outside of the shapes still belong to it.
                if !record.continues() {
                    record.remove()?;
                }
                return Err(failure);
            }
        };
        let imported = self.store(sources, &dest, &plan, &record);
        let imported = match imported {
            Ok(imported) => imported,
            Err(failure) => {
                if !self.is_stopped.load(Ordering::Relaxed) {
                    record.give_up(&dest).unwrap_or_else(|error| {
                        print::error(&format!("zarrfs: {shown}: the chunks that this import stored cannot be removed: {error}; the next import \
                             into this hierarchy removes them"));
                    });
                }
                return Err(failure);
            }
        };
        record.remove()?;
        report(args, sources, &dest, &plan, &imported, begun)
    }

    /// Stores what was planned.
    fn store(
        &self,
        sources: &[PathBuf],
        dest: &Hierarchy,
        plan: &ImportPlan,
        record: &ImportRecord<'_>,
    ) -> Result<Imported, Failure> {
        let (args, placement) = (self.args, self.placement);
        let shown = args.dest.display();
        let watch = Watch {
            bar: Arc::new(Bar::new("{prefix} {wide_bar} {pos}/{len} {eta}")?),
            is_stopped: Arc::clone(&self.is_stopped),
        };
        let left = format!("; {}", advice(placement));
        let signals = Interrupted { stores: Vec::new(), give_up: None, left };
        let signals =
            (!self.is_heard).then(|| stop_on_signals(&self.is_stopped, signals)).transpose()?;
        let options = ImportOptions {
            threads: remote::reading_threads(args.threads, sources.iter().map(PathBuf::as_path)),
            cache_len: resources::within_memory(args.cache_size, 4),
            is_verified: args.verify,
        };
        let imported = import::run(dest, plan, record, &options, &watch);
        signals.iter().for_each(Signals::work_has_ended);
        watch.bar.end();
        imported.map_err(|error| {
            if watch.is_stopped() && !record.is_setting_shapes() {
                return failed(format!("{shown}: interrupted; {}", advice(placement)));
            }
            let left = match placement {
                _ if record.is_setting_shapes() => {
                    "; some arrays have their new shapes: run the same command again"
                }
                Placement::Append(_) => "; no array has changed",
                Placement::Over | Placement::Region(_) => {
                    "; some chunks may have been replaced: run the same command again"
                }
            };
            failed(format!("{shown}: {error}{left}"))
        })
    }
}

/// Returns an option that was typed and that only new arrays have.
fn option_of_new(args: &Import) -> Option<&'static str> {
    let given = [
        ("--format", args.format.is_some()),
        ("--codecs", args.codecs.is_some()),
        ("--chunks", args.chunks.is_some()),
        ("--shards", args.shards.is_some()),
    ];
    given.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option)
}

/// Says that an option has no effect, because the arrays exist. A loop may type it each time.
fn say_unused(args: &Import) {
    if let Some(option) = option_of_new(args) {
        let dest = args.dest.display();
        print::error(&format!(
            "zarrfs: {dest}: its arrays exist, so {option} has no effect on them"
        ));
    }
}

/// Fails for options that only new arrays have.
fn check_only_values(args: &Import) -> Result<(), Failure> {
    // The first file of --append-dim may make the arrays.
    match option_of_new(args).filter(|_| args.append_dim.is_none()) {
        Some(option) => Err(Failure::Usage(format!(
            "{option} applies only to new arrays, and the arrays of {} exist already: leave it out",
            args.dest.display()
        ))),
        None => Ok(()),
    }
}

/// Fails for a node in a mount, which shows no chunks outside of the shape of an array.
fn check_is_not_mounted(dest: &Path) -> Result<(), Failure> {
    let Ok(place) = dest.canonicalize() else { return Ok(()) };
    let Some(mounted) = mounted::find(&place)? else { return Ok(()) };
    Err(failed(format!(
        "{}: in the mount {}, and an import writes to the store itself: import into {}",
        dest.display(),
        mounted.root.display(),
        mounted.backing(&place).display()
    )))
}

fn advice(placement: &Placement) -> &'static str {
    match placement {
        Placement::Append(_) => "no array has changed yet: run the same command again to continue",
        Placement::Over | Placement::Region(_) => {
            "some chunks may have been replaced: run the same command again to continue"
        }
    }
}

/// Returns everything that determines the result, to recognize the same import. Files that changed
/// since make it another one.
fn claim(args: &Import, sources: &[PathBuf], path: &NodePath) -> Value {
    let one = |source: &PathBuf| {
        let place = source.canonicalize().unwrap_or_else(|_| source.clone());
        let found = std::fs::metadata(source).ok().filter(std::fs::Metadata::is_file);
        let changed = found
            .as_ref()
            .and_then(|found| found.modified().ok())
            .and_then(|modified| modified.duration_since(std::time::UNIX_EPOCH).ok());
        json!({
            "source": remote::shown(&place.to_string_lossy()),
            "len": found.as_ref().map(std::fs::Metadata::len),
            "modified": changed.map(|since| since.as_nanos().to_string()),
            // Chunks of a source without a version are stored again.
            "run": found.is_none().then(random),
        })
    };
    let ranges = args.region.iter().flatten();
    json!({
        "sources": sources.iter().map(one).collect::<Value>(),
        "path": path.as_str(),
        "append": args.append_dim,
        "region": ranges.map(|(name, from, until)| json!([name, from, until])).collect::<Value>(),
        "only": args.only.iter().map(NodePath::as_str).collect::<Vec<_>>(),
        // A crash may lose bytes.
        "session": convert::session(),
    })
}

/// Returns a number that no other run has.
fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

fn report(
    args: &Import,
    sources: &[PathBuf],
    dest: &Hierarchy,
    plan: &ImportPlan,
    imported: &Imported,
    begun: Instant,
) -> Result<(), Failure> {
    let mut text = String::new();
    for import in &plan.arrays {
        let (was, is) = import.shapes();
        let by = |shape: &[u64]| {
            let lens: Vec<String> = shape.iter().map(u64::to_string).collect();
            lens.join(" x ")
        };
        let path = dest.existing(&import.path)?.path().to_string();
        let line = if was == is {
            format!("{path}  {}", by(is))
        } else {
            format!("{path}  {} -> {}", by(was), by(is))
        };
        text.extend([&escaped(&line), "\n"]);
    }
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let found = match count(&imported.found) {
        0 => String::new(),
        found => format!(", {found} were there already"),
    };
    let verified = if args.verify { ", all read back and compared" } else { "" };
    let tenths = begun.elapsed().as_millis() / 100;
    let last = format!(
        "{}: {} into {}; {} chunks and shards stored{found}{verified}; {} decoded, {}.{} s\n",
        args.dest.display(),
        size::counted(sources.len(), "file"),
        size::counted(plan.arrays.len(), "array"),
        count(&imported.stored),
        size::human(count(&imported.bytes)),
        tenths / 10,
        tenths % 10
    );
    print::output(&format!("{text}{last}"))
}
