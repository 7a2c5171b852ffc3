//! Which reads continue one another.
//!
//! The window of a sweep over a remote store is four times as long as what was read so far, at most
//! what the reader takes in five seconds, and up to half of `--fetch-memory`. A window that grows
//! when the reader has to wait would need the store to report waits, and grow no faster. It counts
//! decoded bytes; a compressed array needs less memory than that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The kernel asks for the next ranges of a file in any order, before it has the last one. Reads
/// that are at most this many bytes apart belong to one sequence.
pub(super) const DISORDER: u64 = 4 << 20;

/// How close a read must be to a sequence that was left for another one, to continue it. In bytes.
const CLOSE: u64 = 256 << 10;

/// A sequence is recognised after this many reads.
const STEPS: u64 = 2;

/// Sequences that one file may have at the same time: threads may share a handle.
const MOST_RUNS: usize = 4;

/// If a sequence of fewer reads is left, the work that was begun for it is dropped.
const STEPS_TO_TRUST: u64 = 8;

/// How far a sequence has come. The tasks that read ahead for it look here before they begin.
#[derive(Debug, Default)]
struct SequenceProgress {
    has_ended: AtomicBool,
    /// Where the next read is expected.
    position: AtomicU64,
}

/// A claim on work for a sequence, for as long as that has not come to `until`.
#[derive(Debug, Clone, Default)]
pub(super) struct Ticket {
    progress: Arc<SequenceProgress>,
    until: u64,
}

impl Ticket {
    /// Whether the sequence still needs the work.
    pub fn is_wanted(&self) -> bool {
        !self.has_ended() && self.progress.position.load(Ordering::Relaxed) < self.until
    }

    /// Whether the sequence has ended: its reader is elsewhere, or has closed the file.
    pub fn has_ended(&self) -> bool {
        self.progress.has_ended.load(Ordering::Relaxed)
    }
}

/// Reads that continue one another, in any unit: bytes of a view, or chunk files that were opened.
/// It ends when it is dropped.
#[derive(Debug, Default)]
pub(super) struct ReadSequence {
    start: u64,
    next: u64,
    steps: u64,
    progress: Arc<SequenceProgress>,
}

impl ReadSequence {
    /// Returns a run that begins with a read from `start` to `end`.
    pub fn new(start: u64, end: u64) -> Self {
        let progress =
            SequenceProgress { position: AtomicU64::new(end), ..SequenceProgress::default() };
        Self { start, next: end, steps: 0, progress: Arc::new(progress) }
    }

    /// How far a read at `offset` is from where the next read is expected.
    fn distance(&self, offset: u64) -> u64 {
        offset.abs_diff(self.next)
    }

    /// Notes that a read up to `end` continues the run. Only what goes further counts as a step, so
    /// reading backwards is no sequence.
    pub fn advance(&mut self, end: u64) {
        if end > self.next {
            self.steps = self.steps.saturating_add(1);
            self.next = end;
            self.progress.position.store(end, Ordering::Relaxed);
        }
    }

    /// Whether enough reads have continued one another.
    pub fn is_sequential(&self) -> bool {
        self.steps >= STEPS
    }

    /// Where the next read is expected.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The distance from the first read to the next.
    pub fn len(&self) -> u64 {
        self.next.saturating_sub(self.start)
    }

    /// Returns a claim on work that this run needs before it comes to `until`.
    pub fn ticket(&self, until: u64) -> Ticket {
        Ticket { progress: Arc::clone(&self.progress), until }
    }

    /// Drops the claims that were made so far, but goes on.
    fn drop_claims(&mut self) {
        self.end();
        self.progress = Arc::default();
        self.progress.position.store(self.next, Ordering::Relaxed);
    }

    fn end(&self) {
        self.progress.has_ended.store(true, Ordering::Relaxed);
    }
}

impl Drop for ReadSequence {
    fn drop(&mut self) {
        self.end();
    }
}

/// The runs of one file, each with something that belongs to it.
#[derive(Debug, Default)]
pub(super) struct Runs<T> {
    current: (ReadSequence, T),
    /// Those that may go on, the last used last.
    others: Vec<(ReadSequence, T)>,
}

impl<T: Default> Runs<T> {
    /// Notes a read, and returns the run that it continues or begins.
    pub fn note(&mut self, offset: u64, end: u64) -> &mut (ReadSequence, T) {
        if self.current.0.distance(offset) > DISORDER {
            let is_close = |(run, _): &(ReadSequence, T)| run.distance(offset) <= CLOSE;
            let known = self.others.iter().rposition(is_close);
            let next = match known {
                Some(at) => self.others.remove(at),
                None => (ReadSequence::new(offset, end), T::default()),
            };
            let mut before = std::mem::replace(&mut self.current, next);
            if before.0.steps < STEPS_TO_TRUST {
                before.0.drop_claims();
                before.1 = T::default();
            }
            self.others.push(before);
            if self.others.len() >= MOST_RUNS {
                self.others.remove(0);
            }
        }
        self.current.0.advance(end);
        &mut self.current
    }

    /// The run that was read last.
    pub fn current(&mut self) -> &mut (ReadSequence, T) {
        &mut self.current
    }

    /// Ends all runs, as their reader closes the file.
    pub fn end(&self) {
        self.current.0.end();
        self.others.iter().for_each(|(run, _)| run.end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Whether each read of 1 MiB, at so many MiB, belongs to a sequence.
    fn sequential(reads: impl IntoIterator<Item = u64>) -> Vec<bool> {
        let mut runs = Runs::<()>::default();
        let mut note = |at| runs.note(at * MIB, (at + 1) * MIB).0.is_sequential();
        reads.into_iter().map(&mut note).collect()
    }

    #[test]
    fn a_sequence_may_come_a_little_out_of_order_and_a_jump_begins_another() {
        assert_eq!(sequential([0, 1, 2, 4, 3, 5]), [false, true, true, true, true, true]);
        assert_eq!(sequential([0, 1, 100, 101, 102]), [false, true, false, false, true]);
    }

    #[test]
    fn strides_are_a_sequence_while_they_are_short() {
        assert_eq!(sequential([0, 3, 6, 9]), [false, true, true, true]);
        assert_eq!(sequential([0, 30, 60, 90]), [false; 4]);
    }

    #[test]
    fn backward_and_random_reads_are_not_sequential() {
        assert_eq!(sequential((20..80).rev()), [false; 60]);
        assert_eq!(sequential([7, 91, 33, 60, 12, 77]), [false; 6]);
    }

    #[test]
    fn two_sequences_of_one_handle_go_on_beside_each_other() {
        let turns = (0..10).flat_map(|step| [step, 500 + step, 300 - step]);
        let found = sequential(turns);
        for (step, found) in found.chunks(3).enumerate() {
            assert_eq!(found, [step >= 1, step >= 2, false], "step {step}");
        }
    }

    #[test]
    fn work_is_wanted_until_its_sequence_is_past_it_or_ends() {
        let mut runs = Runs::<()>::default();
        let ticket = runs.note(0, MIB).0.ticket(3 * MIB);
        assert!(ticket.is_wanted());
        runs.note(MIB, 3 * MIB);
        assert!(!ticket.is_wanted() && !ticket.has_ended());
        let ticket = runs.current().0.ticket(9 * MIB);
        runs.note(500 * MIB, 501 * MIB);
        assert!(ticket.has_ended(), "a short sequence ends with a jump");
    }
}
