//! The output of a conversion while it runs: a progress bar, and the values of the source that it
//! skips, because they are unsupported, refused, missing, too large or damaged. The mark of the
//! copy records them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::pack::{self, Packing};
use super::{Dest, From, advice, interrupted};
use crate::cli::args::Convert;
use crate::cli::failure::Failure;
use crate::cli::interrupt::{GiveUp, Interrupted, Signals, stop_on_signals};
use crate::cli::open::remote;
use crate::cli::output::print;
use crate::cli::output::progress::Bar;
use crate::cli::output::size;
use crate::convert::{ConversionPlan, CopyWatch, Mark};
use crate::error::{Error, Result as Done, Word};
use crate::hierarchy::ReadExtent;
use crate::metadata::NodePath;
use crate::store::{NotSeen, Omissions};

/// The progress bar on a terminal, and whether the user interrupted the copy.
pub struct CopyProgress {
    pub bar: Arc<Bar>,
    /// How many arrays are copied.
    pub arrays: usize,
    begun: AtomicUsize,
    is_stopped: Arc<AtomicBool>,
    pub is_packing: bool,
    source: String,
    pub keeps_going: bool,
    /// The errors for chunks of the source that cannot be read. A leaf lock.
    unread: Mutex<BTreeMap<String, Word>>,
}

impl CopyProgress {
    /// Returns the progress of a copy that has not begun. It ends early once `is_stopped` is set.
    pub fn new(args: &Convert, dest: &Dest, is_stopped: &Arc<AtomicBool>) -> Result<Self, Failure> {
        Ok(Self {
            bar: Arc::new(Bar::new("{prefix} {wide_bar} {pos}/{len} {eta}")?),
            arrays: 0,
            begun: AtomicUsize::new(0),
            is_stopped: Arc::clone(is_stopped),
            is_packing: dest.packing.is_some(),
            source: remote::typed(&args.source),
            keeps_going: args.keep_going,
            unread: Mutex::default(),
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

    /// Returns the word of the first value that could not be read.
    pub fn first_unread(&self) -> Option<Word> {
        self.unread.lock().values().next().copied()
    }

    /// Returns how many values could not be read, by their words.
    fn unread(&self) -> Vec<String> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for word in self.unread.lock().values() {
            let count = counts.entry(word.name()).or_default();
            *count = count.saturating_add(1);
        }
        let words = counts.into_iter();
        words.map(|(word, count)| size::counted(count, &format!("{word} value"))).collect()
    }

    /// Prints the error of a value that cannot be read, unless it was printed before.
    pub fn note_unread(&self, error: &str, word: Word) {
        if self.unread.lock().insert(error.to_owned(), word).is_none() {
            self.bar.above(|| print::error(&format!("zarrfs: {}/{error}", self.source)));
        }
    }
}

/// Reports the progress, and records in the mark of the copy what it skips.
pub struct Recorded<'w> {
    watch: &'w CopyProgress,
    mark: &'w Mark<'w>,
    omissions: &'w Omissions,
    /// The places that were not seen so far. The mark is stored under this lock.
    places: Mutex<BTreeSet<String>>,
}

impl<'w> Recorded<'w> {
    /// `omissions` are those of the source, which was listed already: the process that continues
    /// the copy lists it again, too.
    pub fn new(watch: &'w CopyProgress, mark: &'w Mark<'w>, omissions: &'w Omissions) -> Self {
        let places = omissions.all().omissions.into_iter().map(|omission| omission.place).collect();
        Self { watch, mark, omissions, places: Mutex::new(places) }
    }
}

impl CopyWatch for Recorded<'_> {
    fn begin(&self, path: &NodePath, values: u64) {
        self.watch.begin(path, values);
    }

    fn advance(&self) {
        self.watch.advance();
    }

    fn go_on_without(&self, unread: &Error) -> bool {
        if !self.watch.go_on_without(unread) {
            return false;
        }
        let recorded = self.mark.pass_over(&unread.to_string(), unread.word());
        if let Err(error) = &recorded {
            self.watch.bar.above(|| print::error(&format!("zarrfs: {error}")));
        }
        recorded.is_ok()
    }

    fn before_storing(&self) -> Done<()> {
        let mut places = self.places.lock();
        if self.omissions.kept_count() == places.len() {
            return Ok(());
        }
        for omission in self.omissions.all().omissions {
            if places.insert(omission.place.clone()) {
                self.mark.pass_over(&omission.to_string(), omission.word)?;
            }
        }
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        self.watch.is_stopped()
    }
}

impl CopyWatch for CopyProgress {
    fn begin(&self, path: &NodePath, values: u64) {
        let number = self.begun.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        // Arrays that have changed are copied again.
        let number = number.min(self.arrays);
        self.bar.begin(&format!("{number}/{} {path}", self.arrays), values);
    }

    fn advance(&self) {
        self.bar.advance("copied");
    }

    fn go_on_without(&self, unread: &Error) -> bool {
        self.note_unread(&unread.to_string(), unread.word());
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
    plan: &ConversionPlan,
    watch: &CopyProgress,
) -> Result<Option<String>, Failure> {
    let mut parts = Vec::new();
    let unread = watch.unread();
    if !unread.is_empty() {
        let unread = unread.join(", ");
        parts.push(format!("{unread} of the source, where the copy has the fill value"));
    }
    if !plan.unread.is_empty() {
        let count = size::counted(plan.unread.len(), "node");
        parts.push(format!("{count} of the source that cannot be read"));
    }
    if plan.broken > 0 {
        let count = size::counted(plan.broken, "node");
        parts.push(format!("{count} of the source whose metadata cannot be used"));
    }
    let only = args.only.iter().map(|only| source.path.join(only.as_str()));
    let mut tops: Vec<NodePath> = only.collect::<Result<_, Error>>()?;
    if tops.is_empty() {
        tops.push(source.path.clone());
    }
    let not_seen = source.hierarchy.not_seen(&tops, ReadExtent::Values)?;
    let unread = watch.unread.lock();
    // The record of an interrupted copy may have them, too.
    let others = not_seen.omissions.into_iter();
    let others = others.filter(|omission| !unread.contains_key(&omission.to_string())).collect();
    parts.extend(NotSeen { omissions: others, others: not_seen.others }.in_words());
    Ok((!parts.is_empty()).then(|| parts.join("; ")))
}
