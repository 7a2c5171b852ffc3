//! `zarrfs check`: damage in metadata, keys and chunks, and its repair.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use parking_lot::Mutex;
use serde_json::json;

use super::args::Check;
use super::failure::{Failure, failed};
use super::open::Access;
use super::progress::{self, Ticker};
use super::{logger, open, print, remote, umount};
use crate::check::repair::{self, Quarantine};
use crate::check::{self, Finding, Options, Repair, Severity, Summary, Watch};
use crate::error::{Error, Kind, Result};
use crate::hierarchy::Hierarchy;
use crate::metadata::{Dialect, NodePath, states_version};
use crate::store::{ByteRange, Key, Prefix, Store};
use crate::sys;

/// The fewest threads that read from a server.
const REMOTE_THREADS: usize = 16;

/// The number of bytes to copy into quarantine at a time.
const STEP: u64 = 16 << 20;

/// The most findings to keep for a repair.
const MOST_KEPT: usize = 1_000_000;

/// Checks a hierarchy, and prints what it finds.
pub fn run(args: &Check) -> std::result::Result<(), Failure> {
    logger::start(log::LevelFilter::Warn, logger::Sink::Command)?;
    let begun = Instant::now();
    let access = if args.repair && args.yes { Access::Write } else { Access::Read };
    let (hierarchy, top) = opened(args, access)?;
    let only = args.only.iter().map(|path| top.join(path.as_str()));
    let mut only: Vec<NodePath> = only.collect::<Result<_>>()?;
    for path in &only {
        if hierarchy.node(path)?.is_none() {
            let shown = args.source.display();
            return Err(failed(format!("{shown}: there is no node {path} (--only)")));
        }
    }
    if only.is_empty() {
        only.push(top);
    }
    if args.repair {
        check_writers(args, &hierarchy)?;
    }
    if let Some(dir) = &args.quarantine {
        check_apart(dir)?;
    }
    let is_remote = remote::url(&args.source).is_some();
    let processors = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let jobs = if is_remote { processors.max(REMOTE_THREADS) } else { processors };
    let options = Options {
        only,
        chunks: match args.sample {
            _ if args.metadata_only => check::Chunks::None,
            Some(chunks) => chunks,
            None => check::Chunks::All,
        },
        expects_all: args.expect_all,
        jobs: args.jobs.unwrap_or(jobs).max(1),
    };
    let printer = Printer::new(args, hierarchy.store().clone())?;
    let summary = check::run(&hierarchy, &options, &printer);
    printer.bar.finish_and_clear();
    let summary = summary?;
    printer.lines.end()?;
    report(args, &summary, &printer, begun);
    if printer.is_stopped() {
        return Err(failed(format!("{}: interrupted", args.source.display())));
    }
    if args.repair {
        return repair(args, &hierarchy, &printer);
    }
    match printer.count(Severity::Damaged) {
        0 => Ok(()),
        _ => Err(Failure::Damaged),
    }
}

/// Opens the hierarchy, even if the metadata file of its root is damaged.
fn opened(args: &Check, access: Access) -> std::result::Result<(Hierarchy, NodePath), Failure> {
    let open_as = |from: Option<&Dialect>| open::node_for(&args.source, from, &args.remote, access);
    open_as(args.from.as_ref()).or_else(|failure| {
        let text = std::fs::read(args.source.join("zarr.json"));
        let is_damaged = text.is_ok_and(|text| !states_version(&text));
        if args.from.is_some() || !is_damaged {
            return Err(failure);
        }
        // The drafts have the metadata files of nodes in a directory of their own.
        let is_draft = args.source.join("meta/root").is_dir();
        let dialect = Dialect::parse_name(if is_draft { "d2020-10" } else { "v3" });
        open_as(dialect.as_ref())
    })
}

/// Prints findings as they come, and a progress bar on a terminal.
struct Printer {
    form: Form,
    bar: ProgressBar,
    ticker: Ticker,
    lines: print::SharedLines,
    /// The last key that was printed alone. A leaf lock.
    last_key: Mutex<String>,
    counts: [AtomicU64; 3],
    /// What can be repaired. A leaf lock.
    kept: Option<Mutex<Vec<Finding>>>,
    is_stopped: Arc<AtomicBool>,
}

#[derive(Debug, Clone, Copy)]
enum Form {
    Text,
    Json,
    Keys,
}

impl Printer {
    fn new(args: &Check, store: Store) -> std::result::Result<Self, Failure> {
        let bar =
            progress::bar("{wide_bar} {human_pos}/{human_len} chunks and shards, {eta} left")?;
        let is_stopped = Arc::new(AtomicBool::new(false));
        // Do this before any thread starts, so that only the waiting thread receives signals.
        sys::block_signals()?;
        let stop = Arc::clone(&is_stopped);
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            while sys::wait_for_signal().is_ok() {
                stop.store(true, Ordering::Relaxed);
                store.read().stop();
            }
        })?;
        let form = match (args.json, args.keys) {
            (true, _) => Form::Json,
            (false, true) => Form::Keys,
            (false, false) => Form::Text,
        };
        Ok(Self {
            form,
            bar,
            ticker: Ticker::new(),
            lines: print::SharedLines::new(Arc::clone(&is_stopped)),
            last_key: Mutex::default(),
            counts: Default::default(),
            kept: args.repair.then(Mutex::default),
            is_stopped,
        })
    }

    fn count(&self, severity: Severity) -> u64 {
        self.counter(severity).load(Ordering::Relaxed)
    }

    fn counter(&self, severity: Severity) -> &AtomicU64 {
        let [damaged, suspect, note] = &self.counts;
        match severity {
            Severity::Damaged => damaged,
            Severity::Suspect => suspect,
            Severity::Note => note,
        }
    }
}

impl Watch for Printer {
    fn find(&self, finding: Finding) {
        let severity = finding.code.severity();
        self.counter(severity).fetch_add(1, Ordering::Relaxed);
        let line = match self.form {
            Form::Text => {
                let Finding { code, key, reason, .. } = &finding;
                Some(format!(
                    "{} {code} {}: {}",
                    severity.name(),
                    print::plain(key),
                    print::plain(reason)
                ))
            }
            Form::Json => Some(
                json!({
                    "severity": severity.name(),
                    "code": finding.code.name(),
                    "key": finding.key,
                    "reason": finding.reason,
                })
                .to_string(),
            ),
            Form::Keys if severity == Severity::Damaged => {
                let last = std::mem::replace(&mut *self.last_key.lock(), finding.key.clone());
                (last != finding.key).then(|| finding.key.clone())
            }
            // The others are about files that can be read.
            Form::Keys => None,
        };
        if let Some(line) = line {
            self.lines.print(&self.bar, &line);
        }
        if let Some(kept) = self.kept.as_ref().filter(|_| finding.repair.is_some()) {
            let mut kept = kept.lock();
            if kept.len() < MOST_KEPT {
                kept.push(finding);
            }
        }
    }

    fn expect(&self, values: u64) {
        self.bar.inc_length(values);
    }

    fn advance(&self) {
        self.bar.inc(1);
        self.ticker.tick(|| {
            let (done, all) = (self.bar.position(), self.bar.length().unwrap_or_default());
            format!("{done} of {all} chunks and shards checked")
        });
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }
}

fn report(args: &Check, summary: &Summary, printer: &Printer, begun: Instant) {
    let [damaged, suspect, notes] =
        [Severity::Damaged, Severity::Suspect, Severity::Note].map(|one| printer.count(one));
    let elapsed = begun.elapsed();
    if args.json {
        let summary = json!({
            "groups": summary.groups,
            "arrays": summary.arrays,
            "chunks_stored": summary.chunks_stored,
            "chunks_missing": summary.chunks_missing,
            "chunks_checked": summary.chunks_read,
            "chunks_skipped": summary.chunks_skipped,
            "chunks_unknown": summary.chunks_unknown,
            "values": summary.values,
            "bytes_decoded": summary.decoded_len,
            "damaged": damaged,
            "suspect": suspect,
            "notes": notes,
            "milliseconds": u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        });
        return print::error(&json!({ "summary": summary }).to_string());
    }
    let mut parts = vec![format!("{} groups, {} arrays", summary.groups, summary.arrays)];
    if !args.metadata_only {
        let Summary { chunks_stored, chunks_missing, chunks_read, .. } = summary;
        let mut chunks = vec![
            format!("{chunks_stored} chunks stored"),
            format!("{chunks_missing} missing"),
            format!("{chunks_read} checked"),
        ];
        if summary.chunks_skipped > 0 {
            chunks.push(format!("{} skipped (--sample)", summary.chunks_skipped));
        }
        if summary.chunks_unknown > 0 {
            chunks.push(format!(
                "{} chunks or shards of unknown codecs not checked",
                summary.chunks_unknown
            ));
        }
        parts.push(chunks.join(", "));
        parts.push(format!("{} MB decoded", summary.decoded_len / 1_000_000));
    }
    parts.push(format!("{damaged} damaged, {suspect} suspect, {notes} notes"));
    let tenths = elapsed.as_millis() / 100;
    parts.push(format!("{}.{} s", tenths / 10, tenths % 10));
    let text = format!("{}: {}", args.source.display(), parts.join("; "));
    print::error(&text);
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
                "{}: lies in the hierarchy {}: name a directory outside of it (--quarantine)",
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

/// Prints the plan of a repair, and does it if `--yes` was given.
fn repair(
    args: &Check,
    hierarchy: &Hierarchy,
    printer: &Printer,
) -> std::result::Result<(), Failure> {
    let shown = args.source.display();
    let found = printer.kept.as_ref().map(|kept| std::mem::take(&mut *kept.lock()));
    let found = found.unwrap_or_default();
    let steps = repair::plan(&found, args.quarantine.is_some())?;
    let is_handled = |finding: &&Finding| {
        finding.code.severity() == Severity::Damaged
            && match finding.repair {
                Some(Repair::Quarantine(_)) => args.quarantine.is_some(),
                Some(_) => true,
                None => false,
            }
    };
    let handled = u64::try_from(found.iter().filter(is_handled).count()).unwrap_or(u64::MAX);
    let damaged = printer.count(Severity::Damaged);
    let left = damaged.saturating_sub(handled);
    let ended = |left: u64| if left == 0 { Ok(()) } else { Err(Failure::Damaged) };
    if steps.is_empty() {
        print::error(&format!("{shown}: nothing can be repaired without a guess"));
        return ended(damaged);
    }
    if !args.yes {
        for step in &steps {
            print::error(&format!("would {step}"));
        }
        print::error(&format!("{shown}: nothing was changed; add --yes to do this"));
        return ended(damaged);
    }
    check_writers(args, hierarchy)?;
    let quarantine = args.quarantine.as_ref().map(|dir| Folder(dir.clone()));
    let quarantine: Option<&dyn Quarantine> = match &quarantine {
        Some(folder) => Some(folder),
        None => None,
    };
    let mut failures = 0_u64;
    for step in &steps {
        if printer.is_stopped() {
            hierarchy.release_idle(Duration::ZERO);
            return Err(failed(format!("{shown}: interrupted; run the same command to go on")));
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
        print::error(&format!("{done}: {left} damaged files are left"));
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
        // Another value of the same key stays.
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

/// Reads a value part by part, until `take` returns false. Returns whether all were taken.
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
        let changed = || Error::new(Kind::Stale, "another program changed the value meanwhile");
        let value = value.ok_or_else(changed)?;
        if !take(&value.bytes)? {
            return Ok(false);
        }
        offset = offset.saturating_add(u64::try_from(value.bytes.len()).unwrap_or(u64::MAX));
    }
    Ok(true)
}
