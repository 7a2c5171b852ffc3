//! `zarrfs convert`: a hierarchy in another dialect, with other codecs, chunks or shards; and
//! `zarrfs import` ([`import`]), which makes nodes in the same way.

pub mod copying;
pub mod import;
pub mod pack;

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::{Value, json};

use crate::array::FillChunks;
use crate::cli::args::Convert;
use crate::cli::failure::{Failure, failed};
use crate::cli::info::describe::describe;
use crate::cli::open;
use crate::cli::open::StoreLocation;
use crate::cli::open::references;
use crate::cli::open::remote;
use crate::cli::output::print;
use crate::cli::output::size;
use crate::cli::status::mounted::{self, Mounted};
use crate::codec::CodecSpec;
use crate::convert::{
    self, Claim, ConversionPlan, Copied, CopyOptions, CopyTarget, CopyWatch, Mark, Passed,
    Requested, Survey, Verify,
};
use crate::error::{Error, Kind, Word};
use crate::hierarchy::{Hierarchy, HierarchyOptions};
use crate::json;
use crate::metadata::ome::OmeVersion;
use crate::metadata::{Dialect, NodePath, Shards, chunk_shapes};
use crate::printable::escaped;
use crate::resources;
use crate::store::directory::Durability;
use copying::{CopyProgress, Recorded, left_behind};
use pack::Packing;

/// The number of fill-value chunks that are always allowed.
const FILL_COUNT: u64 = 100_000;

/// The most fill-value chunks for each chunk that the source has.
const FILL_RATIO: u64 = 10;

/// Copies the hierarchy, and prints a summary.
pub fn run(args: &Convert) -> Result<(), Failure> {
    run_until(args, &Arc::default())
}

/// Like [`run`]. The first signal sets `is_stopped`, also after the copy.
pub fn run_until(args: &Convert, is_stopped: &Arc<AtomicBool>) -> Result<(), Failure> {
    let begun = Instant::now();
    check_ome_version(args)?;
    let (source, from) = open::node(&args.source, args.from.as_ref(), &args.remote)?;
    let dest = Dest::find(args)?;
    let requested = requested(args, dest.target);
    let mut watch = CopyProgress::new(args, &dest, is_stopped)?;
    // From here on there is something to remove.
    let early = dest.packing.as_ref().map(|_| watch.stop_on_signals(args, &dest)).transpose()?;
    // Planning needs a store, but stores nothing.
    dest.make_directory()?;
    let from_where = From { hierarchy: &source, path: &from };
    let prepared = prepare(args, from_where, &dest, &requested, &watch);
    let (hierarchy, plan) = prepared.inspect_err(|_| dest.remove_if_new())?;
    watch.arrays = plan.arrays().count();
    let signals = early.map_or_else(|| watch.stop_on_signals(args, &dest), Ok)?;
    let to = To { hierarchy: &hierarchy, target: dest.target };
    let copied = copy(args, from_where, to, &plan, &requested, &watch);
    // Packing ends between two values.
    signals.work_has_ended();
    let copied = copied.and_then(|copied| {
        let nodes = described(&hierarchy, &plan)?;
        dest.pack(args, &watch)?;
        Ok((copied, nodes))
    });
    watch.bar.end();
    let (copied, nodes) = copied.inspect_err(|_| dest.remove_if_new())?;
    report(args, &nodes, &plan, &copied, begun)?;
    match left_behind(args, from_where, &plan, &watch)? {
        None => Ok(()),
        Some(what) => {
            let dest = args.dest.display();
            Err(failed(format!("{dest}: complete, except for what is listed above: {what}")))
        }
    }
}

/// The source of a copy.
#[derive(Debug, Clone, Copy)]
pub struct From<'h> {
    pub hierarchy: &'h Hierarchy,
    pub path: &'h NodePath,
}

/// The hierarchy into which it is copied.
#[derive(Debug, Clone, Copy)]
struct To<'h> {
    hierarchy: &'h Hierarchy,
    target: CopyTarget,
}

/// Where the copy goes.
pub struct Dest {
    pub location: StoreLocation,
    target: CopyTarget,
    /// Whether its directory must be created.
    is_new: bool,
    /// The archive that the copy becomes.
    pub packing: Option<Packing>,
}

impl Dest {
    /// Returns the place of the copy. Fails if it has contents other than an unfinished conversion.
    fn find(args: &Convert) -> Result<Self, Failure> {
        references::refuse(&args.dest)?;
        if let Some(packing) = Packing::find(args)? {
            check_apart(&args.source, packing.dest())?;
            let location = StoreLocation::Directory(packing.tree());
            let packing = Some(packing);
            return Ok(Self { location, target: CopyTarget::Directory, is_new: true, packing });
        }
        if let Some(url) = remote::url(&args.dest) {
            remote::check_writable(url)?;
            check_apart_urls(&args.source, url)?;
            let store = args.remote.store(url, remote::TTL)?;
            let is_empty = open::is_empty(&store).and_then(|is| Ok(is || Mark::is_in(&store)?));
            let is_empty =
                is_empty.map_err(|error| failed(format!("{url}: {}", error.detail())))?;
            let location = StoreLocation::Url(url.to_owned());
            return if is_empty {
                Ok(Self { location, target: CopyTarget::Directory, is_new: false, packing: None })
            } else {
                Err(not_empty(&args.dest))
            };
        }
        let path = resolved(&args.dest)?;
        let mounted = mounted::find(&path)?;
        check_apart(&args.source, &path)?;
        let target = match &mounted {
            Some(mounted) => {
                check_mounted(args, mounted)?;
                CopyTarget::Mount
            }
            None => CopyTarget::Directory,
        };
        let is_new = check_dest(&args.dest, target)?;
        Ok(Self { location: StoreLocation::Directory(path), target, is_new, packing: None })
    }

    /// Packs the copy, if it becomes an archive.
    fn pack(&self, args: &Convert, watch: &CopyProgress) -> Result<(), Failure> {
        let Some(packing) = &self.packing else { return Ok(()) };
        let begin = |values| watch.bar.begin("packing", values);
        packing.pack(args, &|| watch.is_stopped(), &begin, &|| watch.bar.advance("packed")).map_err(
            |failure| match failure {
                Failure::Failed(why) => failed(format!("{}: {why}", args.dest.display())),
                other => other,
            },
        )
    }

    fn make_directory(&self) -> Result<(), Failure> {
        let Some(path) = self.location.directory() else { return Ok(()) };
        let made = self.packing.as_ref().map_or(Ok(()), Packing::make);
        made.and_then(|()| std::fs::create_dir_all(path))
            .map_err(|error| failed(format!("{}: {error}", path.display())))
    }

    /// Removes a new directory, if it is still empty.
    fn remove_if_new(&self) {
        if let Some(path) = self.location.directory().filter(|_| self.is_new) {
            let _kept = std::fs::remove_dir(path);
        }
    }
}

fn not_empty(dest: &Path) -> Failure {
    failed(format!(
        "{}: neither empty nor an unfinished conversion; name a directory that does not exist",
        dest.display()
    ))
}

/// Names the nodes whose OME-Zarr metadata the copy has in the version of the source.
fn name_other_ome(plan: &ConversionPlan, dest: &Hierarchy) {
    for path in plan.jobs().iter().filter_map(|job| job.other_ome(dest)) {
        print::error(&format!(
            "zarrfs: {path}: its OME-Zarr metadata are copied as they are, because zarrfs translates \
             only versions 0.4 to 0.6: programs that read the copy may not find the image"
        ));
    }
    for (job, why) in plan.jobs().iter().filter_map(|job| Some((job, job.kept_ome?))) {
        let path = &job.path;
        print::error(&format!(
            "zarrfs: {path}: its OME-Zarr metadata are copied in their version, because {why}"
        ));
    }
}

/// Makes the copy. No other process makes it at the same time.
fn copy(
    args: &Convert,
    from_where: From<'_>,
    To { hierarchy: dest, target }: To<'_>,
    plan: &ConversionPlan,
    requested: &Requested,
    watch: &CopyProgress,
) -> Result<Copied, Failure> {
    let shown = args.dest.display();
    let survey = Survey::of(plan, watch).map_err(|error| cut_short(args, watch, &error))?;
    let fill_chunks = if args.skip_missing_chunks { FillChunks::Skip } else { FillChunks::Store };
    check_fill(args, plan, &survey, fill_chunks)?;
    name_other_ome(plan, dest);
    for job in plan.jobs() {
        let Some(unused) = &job.unused_fill else { continue };
        print::error(&format!(
            "zarrfs: {}: the copy does not have its attribute _FillValue, {}: in Zarr 2, programs mask \
             the fill_value of the array and do not look at this attribute",
            job.path,
            json::compact(unused)
        ));
    }
    let claim = Claim {
        arguments: arguments(args, requested)?,
        session: session(),
        plan: plan.digest(),
        source: survey.digest(),
    };
    let (mark, state) = Mark::set(dest.store(), target, &claim)
        .map_err(|error| failed(format!("{shown}: {}", error.detail())))?;
    for Passed { error, word } in mark.passed() {
        watch.note_unread(&error, word);
    }
    dest.recovery().recover();
    let sources = [args.source.as_path(), args.dest.as_path()];
    let options = CopyOptions {
        threads: remote::reading_threads(args.threads, sources),
        verify: if args.verify { Verify::All } else { Verify::None },
        state,
        fill_chunks,
        target,
        cache_len: resources::within_memory(args.cache_size, 4),
    };
    let survey_again = || {
        // Read the source again, without any caches.
        let (source, from) = open::node(&args.source, args.from.as_ref(), &args.remote)
            .map_err(|failure| Error::new(Kind::Stale, failure.message().to_owned()))?;
        let again = convert::plan((&source, &from), (dest, &NodePath::root()), requested, &|| {
            watch.is_stopped()
        })?;
        again.check_unchanged(plan)?;
        let survey = Survey::of(&again, watch)?;
        from_where.hierarchy.store().omissions().add(source.store().omissions());
        Ok(survey)
    };
    let recorded = Recorded::new(watch, &mark, from_where.hierarchy.store().omissions());
    let copied = convert::run(dest, plan, &survey, &options, &recorded, &survey_again)
        .map_err(|error| cut_short(args, watch, &error))?;
    mark.remove()?;
    for path in &copied.changing {
        print::error(&format!(
            "zarrfs: {path}: another program kept writing to it: each chunk of the copy is \
             whole, but chunks may be from different moments"
        ));
    }
    Ok(copied)
}

/// Returns the error for an incomplete copy, with advice.
fn cut_short(args: &Convert, watch: &CopyProgress, error: &Error) -> Failure {
    let unread = watch.first_unread().filter(|_| !watch.is_stopped() && !watch.keeps_going);
    if let Some(word) = unread {
        let again = match word {
            Word::Refused | Word::Missing => "run the same command again once it can be read; ",
            _ => "",
        };
        let article = if word.name().starts_with('u') { "an" } else { "a" };
        return failed(format!(
            "{}: stopped at {article} {} chunk of the source (see above); {again}--keep-going leaves \
             out such chunks, and `zarrfs check {}` lists them all",
            args.dest.display(),
            word.name(),
            remote::typed(&args.source)
        ));
    }
    if watch.is_stopped() {
        return interrupted(args, watch.is_packing);
    }
    let dest = args.dest.display();
    let is_final = matches!(
        error.kind(),
        Kind::Unsupported
            | Kind::TooLarge
            | Kind::Invalid
            | Kind::NotPermitted
            | Kind::NotDirectory
            | Kind::ReadOnly
            | Kind::Os(libc::ENAMETOOLONG)
    );
    if is_final {
        // It would fail again.
        return failed(format!("{dest}: {error}"));
    }
    failed(format!("{dest}: {error}; {}", advice(watch.is_packing)))
}

pub fn interrupted(args: &Convert, is_packing: bool) -> Failure {
    failed(format!("{}: interrupted; {}", args.dest.display(), advice(is_packing)))
}

pub fn advice(is_packing: bool) -> &'static str {
    if is_packing { "no archive was made" } else { "run the same command again to continue" }
}

fn requested(args: &Convert, target: CopyTarget) -> Requested {
    let mut requested = Requested {
        codecs: args.codecs.clone(),
        chunk_shape: args.chunks.clone(),
        shards: args.shards.clone(),
        only: args.only.clone(),
        ome: args.ome_zarr,
    };
    if target == CopyTarget::Mount {
        // The mount applies its own codecs to plain chunks.
        requested.codecs.get_or_insert_default();
        requested.shards = Some(Shards::None);
    }
    requested
}

/// Fails if the version of OME-Zarr belongs to another version of Zarr than that of the copy.
fn check_ome_version(args: &Convert) -> Result<(), Failure> {
    let Some(version) = args.ome_zarr else { return Ok(()) };
    let fits = match version {
        OmeVersion::V0_4 => args.format == Dialect::V2,
        OmeVersion::V0_5 | OmeVersion::V0_6 => args.format == Dialect::V3,
    };
    if fits {
        return Ok(());
    }
    let version = version.name();
    let zarr = if args.format == Dialect::V3 { "v2" } else { "v3" };
    Err(failed(format!("OME-Zarr {version} is metadata of Zarr {zarr}: add --format {zarr}")))
}

/// Fails for options that a mount decides itself.
fn check_mounted(args: &Convert, mounted: &Mounted) -> Result<(), Failure> {
    let refused = |what: &str| {
        Err(failed(format!(
            "{}: inside the mount {}, {what}",
            args.dest.display(),
            mounted.root.display()
        )))
    };
    if !mounted.is_zarr3 {
        return refused("which does not show Zarr 3: mount without --as");
    }
    if args.format != Dialect::V3 {
        return refused("which chooses the dialect itself: remove --format");
    }
    if args.shards.as_ref().is_some_and(|shards| *shards != Shards::None) {
        return refused(
            "which chooses the shards itself: remove --shards, and mount with --shards",
        );
    }
    let backing = mounted.backing(&resolved(&args.dest)?);
    check_apart(&args.source, &backing)
}

/// Reports the number of chunks that are stored only because the target has no fill value, and
/// fails if there are very many.
fn check_fill(
    args: &Convert,
    plan: &ConversionPlan,
    survey: &Survey,
    fill_chunks: FillChunks,
) -> Result<(), Failure> {
    for ((path, chunks), (_, stored)) in plan.arrays().zip(survey.arrays()) {
        let (all, stored) = (chunks.count_all(), chunks.expected(stored.count));
        if !chunks.needs_fill(fill_chunks) || all <= stored {
            continue;
        }
        let format = args.format.name();
        let why = format!(
            "{format} cannot store its fill value, so all {all} chunks are stored; the source \
             has {stored}"
        );
        if all > stored.saturating_mul(FILL_RATIO).max(FILL_COUNT) {
            let skip = "leave missing chunks out with --skip-missing-chunks (zarr-python 2 then reads \
                        arbitrary values there)";
            let skip = if chunks.needs_fill(FillChunks::Skip) {
                String::new()
            } else {
                format!("{skip}, ")
            };
            return Err(failed(format!(
                "{path}: {why}: {skip}use larger --chunks, or another --format"
            )));
        }
        print::error(&format!("zarrfs: {path}: {why}"));
    }
    Ok(())
}

/// Opens the empty hierarchy and plans the copy. Reports what it cannot hold.
fn prepare(
    args: &Convert,
    From { hierarchy: source, path: from }: From<'_>,
    dest: &Dest,
    requested: &Requested,
    watch: &CopyProgress,
) -> Result<(Hierarchy, ConversionPlan), Failure> {
    args.format.check_makes_nodes()?;
    let open =
        |store| Hierarchy::open(store, Some(args.format.clone()), HierarchyOptions::default());
    let hierarchy = open(dest.location.store(&args.remote, remote::TTL, Durability::Buffered)?)?;
    let dest = match dest.location.directory() {
        Some(path) if dest.packing.is_none() => open::within_groups_above(hierarchy, path)?,
        _ => hierarchy,
    };
    let plan = convert::plan((source, from), (&dest, &NodePath::root()), requested, &|| {
        watch.is_stopped()
    });
    let plan = plan.map_err(|error| {
        if watch.is_stopped() { cut_short(args, watch, &error) } else { error.into() }
    })?;
    check_ranks(args, &plan)?;
    for (path, error) in &plan.unsupported {
        print::error(&format!("zarrfs: {path}: {}", error.detail()));
    }
    for (path, error) in &plan.unread {
        print::error(&format!("zarrfs: {path}: cannot be read: {error}"));
    }
    if plan.jobs().is_empty() {
        return Err(failed(format!("{}: no node can be converted", remote::typed(&args.source))));
    }
    match nodes_left_out(args, &plan) {
        Some(sentence) if !args.skip_unsupported => Err(failed(sentence)),
        _ => Ok((dest, plan)),
    }
}

/// Says why the copy would lack nodes, and what to do; `None` if it would have all.
fn nodes_left_out(args: &Convert, plan: &ConversionPlan) -> Option<String> {
    let unsupported = plan.unsupported.len().saturating_sub(plan.broken);
    let causes = [
        (unsupported, format!("cannot be converted to {}", args.format.name())),
        (plan.broken, "cannot be used, because of damaged metadata".to_owned()),
        (plan.unread.len(), "cannot be read".to_owned()),
    ];
    let causes = causes.into_iter().filter(|(count, _)| *count > 0);
    let causes: Vec<String> =
        causes.map(|(count, cause)| format!("{} {cause}", size::counted(count, "node"))).collect();
    if causes.is_empty() {
        return None;
    }
    let last = match (unsupported, plan.unread.len()) {
        (1.., _) => "choose another --format",
        (0, 1..) => "run the same command again once they can be read",
        (0, 0) => "mend their metadata",
    };
    Some(format!(
        "{}: {} (listed above): leave out such nodes with --skip-unsupported, select others with \
         --only, or {last}",
        remote::typed(&args.source),
        causes.join(", "),
    ))
}

/// Fails if `--chunks` or `--shards` has a shape that fits no array.
fn check_ranks(args: &Convert, plan: &ConversionPlan) -> Result<(), Failure> {
    let shards = match &args.shards {
        Some(Shards::Shape(shape)) => Some(shape),
        Some(Shards::None | Shards::Target(_) | Shards::Rectilinear(_)) | None => None,
    };
    let ranks: BTreeSet<usize> = plan.arrays().map(|(_, chunks)| chunks.rank()).collect();
    for (option, shape) in [("--chunks", args.chunks.as_ref()), ("--shards", shards)] {
        let Some(shape) = shape.filter(|shape| !ranks.is_empty() && !ranks.contains(&shape.len()))
        else {
            continue;
        };
        let known: Vec<String> = ranks.iter().map(usize::to_string).collect();
        return Err(failed(format!(
            "{}: {option} {shape:?} fits no array: the arrays have {} dimensions",
            remote::typed(&args.source),
            known.join(", ")
        )));
    }
    Ok(())
}

/// Returns whether DEST must be created. Fails if it has contents other than an unfinished
/// conversion.
fn check_dest(dest: &Path, target: CopyTarget) -> Result<bool, Failure> {
    let shown = dest.display();
    match std::fs::read_dir(dest) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotADirectory => Err(failed(format!(
            "{shown}: not a directory; zarrfs can only write hierarchies into directories"
        ))),
        Err(error) => Err(failed(format!("{shown}: {error}"))),
        Ok(mut entries) => {
            let holds = |entry: std::io::Result<std::fs::DirEntry>| {
                entry.is_ok_and(|entry| {
                    entry.file_name().to_str().is_none_or(|name| !convert::is_ignored(name, target))
                })
            };
            if entries.any(holds) && !Mark::is_in(&open::store(dest, Durability::Buffered)?)? {
                return Err(not_empty(dest));
            }
            Ok(false)
        }
    }
}

/// Returns the path of a directory that may not exist yet.
fn resolved(path: &Path) -> Result<PathBuf, Failure> {
    let absolute = std::path::absolute(path)?;
    for above in absolute.ancestors() {
        if let Ok(found) = above.canonicalize() {
            let rest = absolute.strip_prefix(above).unwrap_or(Path::new(""));
            return Ok(rest.components().fold(found, |path, name| path.join(name)));
        }
    }
    Ok(absolute)
}

/// Fails if a source that is a directory lies in the target, or around it.
fn check_apart(source: &Path, dest: &Path) -> Result<(), Failure> {
    if remote::url(source).is_some() {
        return Ok(());
    }
    let source = resolved(source)?;
    if source.starts_with(dest) || dest.starts_with(&source) {
        return Err(failed(format!(
            "{} and {}: a hierarchy cannot be converted into itself; name another directory",
            source.display(),
            dest.display()
        )));
    }
    Ok(())
}

/// Fails if the URL of the source lies in that of the target, or around it.
fn check_apart_urls(source: &Path, dest: &str) -> Result<(), Failure> {
    let Some(source) = remote::url(source) else { return Ok(()) };
    let directory = |url: &str| format!("{}/", url.trim_end_matches('/'));
    let (from, to) = (directory(source), directory(dest));
    if from.starts_with(&to) || to.starts_with(&from) {
        return Err(failed(format!(
            "{} and {dest}: a hierarchy cannot be converted into itself; name another URL",
            remote::shown(source)
        )));
    }
    Ok(())
}

/// Returns everything that determines the result, to recognize the same conversion.
fn arguments(args: &Convert, requested: &Requested) -> Result<Value, Failure> {
    let codecs = |codecs: &Vec<CodecSpec>| codecs.iter().map(CodecSpec::to_json).collect::<Value>();
    let shards = requested.shards.as_ref().map(|shards| match shards {
        Shards::None => json!("none"),
        Shards::Target(len) => json!(len),
        Shards::Shape(shape) => json!(shape),
        Shards::Rectilinear(runs) => chunk_shapes(runs),
    });
    let source = match remote::url(&args.source) {
        // It is stored beside the copy.
        Some(url) => remote::shown(url).into_owned(),
        None => resolved(&args.source)?.display().to_string(),
    };
    Ok(json!({
        "source": source,
        "from": args.from.as_ref().map(Dialect::name),
        "format": args.format.name(),
        "codecs": requested.codecs.as_ref().map(codecs),
        "chunks": requested.chunk_shape,
        "shards": shards,
        "only": requested.only.iter().map(NodePath::as_str).collect::<Vec<_>>(),
        "ome": requested.ome.map(OmeVersion::name),
        "skip_unsupported": args.skip_unsupported,
        "skip_fill_chunks": args.skip_missing_chunks,
    }))
}

/// Returns a string that changes when the machine restarts, since a crash may lose bytes.
pub fn session() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// Returns a line for each array of the copy.
fn described(dest: &Hierarchy, plan: &ConversionPlan) -> Result<String, Failure> {
    let mut text = String::new();
    for (path, chunks) in plan.arrays() {
        let line = format!("{path}  {}; {}", describe(&*dest.existing(path)?), chunks.described());
        text.extend([&escaped(&line), "\n"]);
    }
    Ok(text)
}

fn report(
    args: &Convert,
    nodes: &str,
    plan: &ConversionPlan,
    copied: &Copied,
    begun: Instant,
) -> Result<(), Failure> {
    let arrays = plan.arrays().count();
    let groups = plan.jobs().len().saturating_sub(arrays);
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let (stored, found, bytes) =
        (count(&copied.stored), count(&copied.found), count(&copied.bytes));
    let found = if found > 0 { format!(", {found} were there already") } else { String::new() };
    let verified = if args.verify { ", all read back and compared" } else { "" };
    let tenths = begun.elapsed().as_millis() / 100;
    let last = format!(
        "{}: {}, {} in {}; {stored} chunks and shards \
         stored{found}{verified}; {} decoded, \
         {}.{} s\n",
        args.dest.display(),
        size::counted(groups, "group"),
        size::counted(arrays, "array"),
        args.format.name(),
        size::human(bytes),
        tenths / 10,
        tenths % 10
    );
    print::output(&format!("{nodes}{last}"))
}
