//! What a conversion says while it runs: a progress bar, and the damaged values of the source that
//! it skips, which the mark of the copy records.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::args::Convert;
use super::convert::{Dest, From, advice, interrupted};
use super::failure::Failure;
use super::interrupt::{GiveUp, Interrupted, Signals, stop_on_signals};
use super::pack::{self, Packing};
use super::progress::Bar;
use super::{print, remote, size};
use crate::convert::{Mark, Plan, Watch};
use crate::error::Error;
use crate::metadata::NodePath;

/// The progress bar on a terminal, and whether the user interrupted the copy.
pub struct Progress {
    pub bar: Arc<Bar>,
    /// How many arrays are copied.
    pub arrays: usize,
    begun: AtomicUsize,
    is_stopped: Arc<AtomicBool>,
    pub is_packing: bool,
    source: String,
    pub keeps_going: bool,
    /// The errors for damaged chunks of the source. A leaf lock.
    damaged: Mutex<BTreeSet<String>>,
}

impl Progress {
    /// Returns the progress of a copy that has not begun.
    pub fn new(args: &Convert, dest: &Dest) -> Result<Self, Failure> {
        Ok(Self {
            bar: Arc::new(Bar::new("{prefix} {wide_bar} {pos}/{len} {eta}")?),
            arrays: 0,
            begun: AtomicUsize::new(0),
            is_stopped: Arc::default(),
            is_packing: dest.packing.is_some(),
            source: remote::typed(&args.source),
            keeps_going: args.keep_going,
            damaged: Mutex::default(),
        })
    }

    /// Returns the signals. Copying into a directory may end at any time, because the same command
    /// continues it. So may one for an archive, whose temporary directory is removed. A value that
    /// is being put on a server is completed, unless the user insists.
    pub fn stop_on_signals(&self, args: &Convert, dest: &Dest) -> Result<Signals, Failure> {
        let dir = dest.packing.as_ref().map(Packing::temporary);
        let left = match dest.packing.as_ref().map(Packing::dir) {
            Some(dir) => format!("; {} is left", dir.display()),
            None => format!("; {}", advice(false)),
        };
        let (bar, failure) = (Arc::clone(&self.bar), interrupted(args, dir.is_some()));
        let give_up = move || {
            bar.end();
            if let Some(dir) = &dir {
                pack::remove(dir);
            }
            failure
        };
        let is_local = dest.location.directory().is_some();
        let give_up: Option<GiveUp> = if is_local { Some(Box::new(give_up)) } else { None };
        stop_on_signals(&self.is_stopped, Interrupted { stores: Vec::new(), give_up, left })
    }

    /// Returns how many damaged values were found.
    pub fn damaged_count(&self) -> usize {
        self.damaged.lock().len()
    }

    /// Prints the error of a damaged value, unless it was printed before.
    pub fn note_damaged(&self, error: &str) {
        if self.damaged.lock().insert(error.to_owned()) {
            self.bar.above(|| print::error(&format!("zarrfs: {}/{error}", self.source)));
        }
    }
}

/// Reports the progress, and records in the mark of the copy what it skips.
pub struct Recorded<'w> {
    pub watch: &'w Progress,
    pub mark: &'w Mark<'w>,
}

impl Watch for Recorded<'_> {
    fn begin(&self, path: &NodePath, values: u64) {
        self.watch.begin(path, values);
    }

    fn advance(&self) {
        self.watch.advance();
    }

    fn go_on_without(&self, damaged: &Error) -> bool {
        if !self.watch.go_on_without(damaged) {
            return false;
        }
        let recorded = self.mark.pass_over(&damaged.to_string());
        if let Err(error) = &recorded {
            self.watch.bar.above(|| print::error(&format!("zarrfs: {error}")));
        }
        recorded.is_ok()
    }

    fn is_stopped(&self) -> bool {
        self.watch.is_stopped()
    }
}

impl Watch for Progress {
    fn begin(&self, path: &NodePath, values: u64) {
        let number = self.begun.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        // Arrays that have changed are copied again.
        let number = number.min(self.arrays);
        self.bar.begin(&format!("{number}/{} {path}", self.arrays), values);
    }

    fn advance(&self) {
        self.bar.advance("copied");
    }

    fn go_on_without(&self, damaged: &Error) -> bool {
        self.note_damaged(&damaged.to_string());
        self.keeps_going
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }
}

/// Returns what the copy lacks of the source although nobody asked for that; `None` if it is whole.
pub fn left_behind(
    args: &Convert,
    source: From<'_>,
    plan: &Plan,
    watch: &Progress,
) -> Result<Option<String>, Failure> {
    let mut parts = Vec::new();
    let damaged = watch.damaged_count();
    if damaged > 0 {
        let damaged = size::counted(damaged, "damaged value");
        parts.push(format!("{damaged} of the source, where the copy has the fill value"));
    }
    if !plan.unread.is_empty() {
        let count = size::counted(plan.unread.len(), "node");
        parts.push(format!("{count} of the source that cannot be read"));
    }
    let only = args.only.iter().map(|only| source.path.join(only.as_str()));
    let mut tops: Vec<NodePath> = only.collect::<Result<_, Error>>()?;
    if tops.is_empty() {
        tops.push(source.path.clone());
    }
    let omissions = source.hierarchy.store().omissions();
    parts.extend(omissions.around(tops.iter().map(NodePath::as_str)).in_words());
    Ok((!parts.is_empty()).then(|| parts.join("; ")))
}
