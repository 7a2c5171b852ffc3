//! `zarrfs check`: finds damage in metadata, keys and chunks, and repairs it.

pub mod repair;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use serde_json::json;

use crate::check::{self, CheckOptions, CheckSummary, CheckWatch, Finding, Severity};
use crate::cli::args::Check;
use crate::cli::failure::{Failure, failed};
use crate::cli::interrupt::{GiveUp, Interrupted, stop_on_signals};
use crate::cli::open;
use crate::cli::open::Access;
use crate::cli::open::remote;
use crate::cli::output::print;
use crate::cli::output::progress::{Bar, SharedLines};
use crate::cli::output::size;
use crate::error::Result;
use crate::hierarchy::Hierarchy;
use crate::metadata::{Dialect, NodePath, states_version};
use crate::printable::{escaped, escaped_json};
use crate::store::Store;

/// The most findings to keep for a repair.
const MOST_KEPT: usize = 1_000_000;

/// Checks a hierarchy, and prints the findings.
pub fn run(args: &Check) -> std::result::Result<(), Failure> {
    let begun = Instant::now();
    let access = if args.repair && args.yes { Access::Write } else { Access::Read };
    let (hierarchy, top) = opened(args, access)?;
    let only = args.only.iter().map(|path| top.join(path.as_str()));
    let mut only: Vec<NodePath> = only.collect::<Result<_>>()?;
    for path in &only {
        if hierarchy.node(path)?.is_none() {
            let shown = remote::typed(&args.source);
            return Err(failed(format!("{shown}: there is no node {path} (--only)")));
        }
    }
    if only.is_empty() {
        only.push(top);
    }
    if args.repair {
        repair::check(args, &hierarchy)?;
    }
    let jobs = remote::reading_threads(args.jobs, [args.source.as_path()]);
    let options = CheckOptions {
        only,
        chunks: match args.sample {
            _ if args.metadata_only => check::WhichChunks::None,
            Some(chunks) => chunks,
            None => check::WhichChunks::All,
        },
        expects_all: args.expect_all,
        jobs,
    };
    let printer = Arc::new(Printer::new(args)?);
    let interrupted = interrupted(args, &printer, hierarchy.store().clone());
    let signals = stop_on_signals(&printer.is_stopped, interrupted)?;
    let summary = check::run(&hierarchy, &options, &*printer);
    signals.work_has_ended();
    printer.bar.end();
    let summary = summary?;
    printer.lines.end()?;
    let damaged = printer.count(Severity::Damaged);
    if printer.is_stopped() {
        let shown = remote::typed(&args.source);
        return match printer.lines.is_closed() {
            // The reader of the output wants no more of it.
            true if damaged > 0 => Err(Failure::Damaged),
            true => Ok(()),
            false => Err(failed(format!(
                "{shown}: interrupted; {} chunks were checked, {damaged} files are damaged so far",
                summary.chunks_read
            ))),
        };
    }
    report(args, &summary, &printer, begun);
    if let Some(kept) = &printer.kept {
        let repairable = std::mem::take(&mut *kept.lock());
        let is_stopped = || printer.is_stopped();
        let found =
            repair::CheckResults { repairable: &repairable, damaged, is_stopped: &is_stopped };
        repair::run(args, &hierarchy, &found)?;
        return ended(args, &summary, 0);
    }
    ended(args, &summary, damaged)
}

/// Returns how the command ends, with so many damaged files. What may be good, but could not be
/// read, keeps it from success.
fn ended(args: &Check, summary: &CheckSummary, damaged: u64) -> std::result::Result<(), Failure> {
    if damaged > 0 || args.strict && !summary.not_checked().is_empty() {
        return Err(Failure::Damaged);
    }
    if !summary.is_cut_short() {
        return Ok(());
    }
    let shown = remote::typed(&args.source);
    let files = match summary.unread() {
        1 => "1 file or directory".to_owned(),
        count => format!("{count} files or directories"),
    };
    Err(failed(format!("{shown}: {files} could not be checked (see above)")))
}

/// Opens the hierarchy, even if the metadata file of its root is damaged.
fn opened(args: &Check, access: Access) -> std::result::Result<(Hierarchy, NodePath), Failure> {
    let open_as = |from: Option<&Dialect>| open::node_for(&args.source, from, &args.remote, access);
    open_as(args.from.as_ref()).or_else(|failure| {
        let document = args.source.join("zarr.json");
        // Opening a FIFO would block.
        let is_file = std::fs::metadata(&document).is_ok_and(|found| found.is_file());
        let is_damaged =
            is_file && std::fs::read(document).is_ok_and(|text| !states_version(&text));
        if args.from.is_some() || !is_damaged {
            return Err(failure);
        }
        // The drafts keep the metadata files of nodes in a directory of their own.
        let is_draft = args.source.join("meta/root").is_dir();
        let dialect = Dialect::parse_name(if is_draft { "d2020-10" } else { "v3" });
        open_as(dialect.as_ref())
    })
}

/// Returns what the check does if it is interrupted. A repair follows it, and ends between two
/// steps, unless the user insists.
fn interrupted(args: &Check, printer: &Arc<Printer>, store: Store) -> Interrupted {
    let shown = remote::typed(&args.source);
    let left = if args.repair && args.yes {
        format!("; `zarrfs check {shown} --repair --yes` continues a repair")
    } else {
        String::new()
    };
    let printer = Arc::clone(printer);
    let give_up: GiveUp = Box::new(move || {
        printer.bar.end();
        if let Err(failure) = printer.lines.end() {
            return failure;
        }
        let damaged = printer.count(Severity::Damaged);
        failed(format!(
            "{shown}: interrupted, while a chunk was being read or decoded; {damaged} files are \
             damaged so far"
        ))
    });
    Interrupted { stores: vec![store], give_up: Some(give_up), left }
}

/// Prints findings as they come, and a progress bar on a terminal.
struct Printer {
    form: CheckOutput,
    bar: Bar,
    lines: SharedLines,
    /// The last key that was printed in the form `Keys`. A leaf lock.
    last_key: Mutex<String>,
    counts: [AtomicU64; 4],
    /// The findings that can be repaired. A leaf lock.
    kept: Option<Mutex<Vec<Finding>>>,
    is_stopped: Arc<AtomicBool>,
}

#[derive(Debug, Clone, Copy)]
enum CheckOutput {
    Text,
    Json,
    Keys,
}

impl Printer {
    fn new(args: &Check) -> std::result::Result<Self, Failure> {
        let bar = Bar::new("{wide_bar} {human_pos}/{human_len} chunks and shards, {eta} left")?;
        let is_stopped = Arc::default();
        let form = match (args.json, args.keys) {
            (true, _) => CheckOutput::Json,
            (false, true) => CheckOutput::Keys,
            (false, false) => CheckOutput::Text,
        };
        Ok(Self {
            form,
            bar,
            lines: SharedLines::new(Arc::clone(&is_stopped)),
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
        let [damaged, unchecked, suspect, note] = &self.counts;
        match severity {
            Severity::Damaged => damaged,
            Severity::Unchecked => unchecked,
            Severity::Suspect => suspect,
            Severity::Note => note,
        }
    }
}

impl CheckWatch for Printer {
    fn find(&self, finding: Finding) {
        let severity = finding.code.severity();
        self.counter(severity).fetch_add(1, Ordering::Relaxed);
        let line = match self.form {
            CheckOutput::Text => {
                let Finding { code, key, reason, .. } = &finding;
                Some(format!("{} {code} {}: {}", severity.name(), escaped(key), escaped(reason)))
            }
            CheckOutput::Json => {
                let line = json!({
                    "severity": severity.name(),
                    "code": finding.code.name(),
                    "key": finding.key,
                    "reason": finding.reason,
                });
                Some(escaped_json(&line.to_string()).into_owned())
            }
            CheckOutput::Keys if severity == Severity::Damaged => {
                let last = std::mem::replace(&mut *self.last_key.lock(), finding.key.clone());
                (last != finding.key).then(|| finding.key.clone())
            }
            // Other findings are about files that can be read.
            CheckOutput::Keys => None,
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
        self.bar.expect(values);
    }

    fn advance(&self) {
        self.bar.advance("checked");
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }
}

/// Returns what was not checked, by its words.
fn not_checked(summary: &CheckSummary) -> Option<String> {
    let counts = summary.not_checked();
    let all = counts.iter().fold(0_u64, |all, (count, _)| all.saturating_add(*count));
    let words: Vec<String> = counts.iter().map(|(count, word)| format!("{count} {word}")).collect();
    (!words.is_empty()).then(|| format!("{all} not checked: {}", words.join(", ")))
}

fn report(args: &Check, summary: &CheckSummary, printer: &Printer, begun: Instant) {
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
            "chunks_in_unread_shards": summary.chunks_unread,
            "unseen": summary.unchecked.unseen,
            "unsupported": summary.unchecked.unsupported,
            "refused": summary.unchecked.refused,
            "missing_targets": summary.unchecked.missing,
            "too_large": summary.unchecked.limited,
            "values": summary.values,
            "bytes_decoded": summary.decoded_len,
            "damaged": damaged,
            "suspect": suspect,
            "notes": notes,
            "milliseconds": u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        });
        return print::error(&json!({ "summary": summary }).to_string());
    }
    let mut parts = vec![format!(
        "{}, {}",
        size::counted(summary.groups, "group"),
        size::counted(summary.arrays, "array")
    )];
    if !args.metadata_only {
        let CheckSummary { chunks_stored, chunks_missing, chunks_read, .. } = summary;
        let mut chunks = vec![
            format!("{} stored", size::counted(*chunks_stored, "chunk")),
            format!("{chunks_missing} missing"),
            format!("{chunks_read} checked"),
        ];
        if summary.chunks_unread > 0 {
            chunks.push(format!("{} in shards that cannot be read", summary.chunks_unread));
        }
        if summary.chunks_skipped > 0 {
            chunks.push(format!("{} skipped (--sample)", summary.chunks_skipped));
        }
        parts.push(chunks.join(", "));
        parts.push(format!("{} decoded", size::human(summary.decoded_len)));
    }
    parts.extend(not_checked(summary));
    let notes = size::counted(notes, "note");
    parts.push(format!("{damaged} damaged, {suspect} suspect, {notes}"));
    let tenths = elapsed.as_millis() / 100;
    parts.push(format!("{}.{} s", tenths / 10, tenths % 10));
    let text = format!("{}: {}", remote::typed(&args.source), parts.join("; "));
    print::error(&text);
}
