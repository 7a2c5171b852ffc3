//! Which chunks a read of a view needs now, which soon, and which no longer.
//!
//! Nothing here reads, waits or knows the kernel: the reads so far, the layout of the file and the
//! chunks in the cache go in, and what to get comes out. An entry of a plan names a chunk and how
//! much of it to get, so a slow store can be told in advance, too.
//!
//! - A read that continues no other (random) reads only the needed range of a chunk where the
//!   codecs   allow it: uncompressed elements (by themselves or in a shard), or blocks of blosc.
//!   When a quarter   of a chunk was read this way, the whole chunk is read and cached.
//! - A sequence of reads has the next row of chunks decoded in advance. Chunks that it has passed
//!   leave the cache, because the kernel has their bytes. So a sequential read of an array of any
//!   size keeps a few chunks, and their memory is used again.
//! - A sequence through a view whose row of chunks does not fit into the cache assembles a long
//!   part   of the view at once, so each chunk is decoded once for that part and not for each
//!   request. The   part is twice as long as what was read so far, up to an eighth of the cache. An
//!   array of 1000 by   180 by 180 numbers in chunks of 1000 by 10 by 10 is read at 50 MB/s this
//!   way with a cache of half   its size, and was read at 1.6 MB/s before.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::quality::FixedState;

use super::expect::Expectations;
use super::pattern::{DISORDER, Runs, Ticket};
use crate::bounded::{self, Bounded};
use crate::view::{Reach, Slab, View};

/// The least number of bytes of a file that are decoded in advance.
const LEAST_AHEAD: u64 = 8 << 20;

/// A store that takes long is asked for up to this many times the bytes that a sequence has read.
const AHEAD_OF_RUN: u64 = 4;

/// It is asked for no more than the reader takes in this time, because it drops bytes that wait for
/// longer.
const AHEAD_TIME: Duration = Duration::from_secs(5);

/// Other threads share the chunks of a request.
const MOST_BESIDE: usize = 64;

/// Chunks that other threads decode at a time while a long part is assembled.
const BESIDE_LONG_PART: usize = 4;

/// Chunks of a sequence that are remembered, as asked for or as passed.
const MOST_REMEMBERED: usize = 4096;

/// Up to `1/PARTIAL` of a chunk is read without the rest.
const PARTIAL: u64 = 4;

/// Shorter chunks are read as fast as a whole, in bytes.
const LEAST_PARTIAL: u64 = 64 << 10;

/// A partial read counts as at least `1/LEAST_COUNTED` of its chunk: however short, it takes a
/// while.
const LEAST_COUNTED: u64 = 64;

/// A long part has at most `1/LONG_PART` of the cache.
const LONG_PART: u64 = 8;

/// Shorter long parts save little, in bytes.
const LEAST_LONG_PART: u64 = 4 << 20;

/// A view of more parts has no long ones: to check one means to look at every part.
const MOST_PARTS: usize = 64;

/// The properties of a chunk that the planner needs.
pub(super) trait PlannedChunk: Clone + Eq + Hash + fmt::Debug {
    /// The number of bytes of the decoded chunk, if that is fixed.
    fn len(&self) -> Option<u64>;
    /// The most bytes that the decoded chunk may have.
    fn longest(&self) -> u64;
    /// How a range of it can be read.
    fn ranges(&self) -> Ranges;
}

/// How a range of a chunk can be read without the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ranges {
    /// Not at all.
    None,
    /// By decoding the blocks that it lies in.
    Blocks,
    /// By reading it and nothing else.
    Exact,
}

/// The properties of a file that the planner needs.
pub(super) trait PlannedFile {
    /// The number of bytes of the file.
    fn len(&self) -> u64;
    /// What has to be decoded at `offset` to go on with a sequence.
    fn slab_at(&self, offset: u64) -> Option<Slab>;
    /// Where the last whole rows of elements before `until` end.
    fn rows_until(&self, from: u64, until: u64) -> u64;
    /// Whether the file has at most so many parts.
    fn has_parts(&self, most: usize) -> bool;
}

impl PlannedFile for View {
    fn len(&self) -> u64 {
        self.len()
    }

    fn slab_at(&self, offset: u64) -> Option<Slab> {
        self.slab_at(offset)
    }

    fn rows_until(&self, from: u64, until: u64) -> u64 {
        self.rows_until(from, until)
    }

    fn has_parts(&self, most: usize) -> bool {
        self.elements().nth(most).is_none()
    }
}

/// What reading may use.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadLimits {
    /// Bytes of the cache.
    pub cache_len: u64,
    /// Chunks that are decoded in advance at a time.
    pub at_once: u64,
    /// Bytes that may be requested in advance from a store that takes long; 0 for others.
    pub fetched_ahead: u64,
    /// Whether long parts may be assembled: not of a view that is written, nor where nothing may be
    /// older than the request.
    pub has_long_parts: bool,
}

/// A chunk of a read.
#[derive(Debug, Clone)]
pub(super) struct ChunkNeed<C> {
    pub chunk: C,
    /// The number of bytes from the first that is read to the last.
    pub len: u64,
    /// Whether its last element is read.
    pub reach: Reach,
    /// Whether nothing of it is in the cache.
    pub is_absent: bool,
}

/// How much of a chunk to get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fetch {
    /// The whole chunk, which stays in the cache.
    Whole,
    /// Only the range that is read.
    Range,
}

/// What to do for a read before its chunks are known.
#[derive(Debug)]
pub(super) struct Outlook {
    /// Whether the read continues others.
    pub is_sequential: bool,
    /// Whether a long part of the file is to be assembled at once: see [`Reads::long_part`].
    pub is_for_long_part: bool,
    /// The ranges of the file whose chunks will be read soon. Each is passed before anything of it
    /// leaves the cache.
    pub soon: Vec<(u64, u64)>,
    /// The ranges of the file whose chunks are to be requested in advance.
    pub later: Vec<(u64, u64)>,
    /// A claim on work for this read.
    pub now: Ticket,
}

/// A part of a file to assemble at once.
#[derive(Debug)]
pub(super) struct LongPart {
    /// Its first byte in the file.
    pub start: u64,
    /// The first byte after it.
    pub end: u64,
    /// Ends with the sequence.
    pub ticket: Ticket,
}

/// What to get for a read.
#[derive(Debug)]
pub(super) struct ReadPlan<C> {
    /// How much of each chunk to get, in the order of the request.
    pub fetches: Vec<Fetch>,
    /// How many chunks of a long part other threads decode at a time. Otherwise they share all
    /// chunks, and none if this is 0, because the cache cannot hold them.
    pub beside: usize,
    /// Chunks to decode in advance, and as long as which claim holds.
    pub soon: Vec<(C, Ticket)>,
    /// Chunks to request in advance.
    pub later: Vec<C>,
    /// The chunks that the sequence has announced to the store.
    pub expectations: Arc<Expectations>,
    /// Chunks that the sequence has passed.
    pub passed: Vec<C>,
    /// How many bytes the sequence has read so far.
    pub run_len: u64,
}

/// The reads of one file so far.
#[derive(Debug)]
pub(super) struct Reads<C: Hash + Eq> {
    runs: Runs<SequenceState<C>>,
    /// How many bytes of chunks were read in ranges.
    in_ranges: Bounded<C, u64>,
}

/// The state of one sequence of reads.
#[derive(Debug)]
struct SequenceState<C> {
    /// When the first read was made.
    began: Instant,
    /// How far chunks were asked for.
    asked_until: u64,
    /// The hashes of chunks that were asked for: their coordinates may be long.
    asked: HashSet<u64>,
    /// How far chunks are expected from the store.
    expected_until: u64,
    expectations: Arc<Expectations>,
    /// Chunks whose last element was read, and where in the file that read ended.
    passed: VecDeque<(u64, C)>,
}

impl<C> Default for SequenceState<C> {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            asked_until: 0,
            asked: HashSet::new(),
            expected_until: 0,
            expectations: Arc::default(),
            passed: VecDeque::new(),
        }
    }
}

impl<C: PlannedChunk> Default for Reads<C> {
    fn default() -> Self {
        let limits = bounded::MapLimits::entries(MOST_REMEMBERED);
        Self { runs: Runs::default(), in_ranges: Bounded::new(limits) }
    }
}

impl<C: PlannedChunk> Reads<C> {
    /// Notes a read from `offset` to `end`, and says what it is part of.
    pub fn note(
        &mut self,
        (offset, end): (u64, u64),
        file: &dyn PlannedFile,
        limits: ReadLimits,
    ) -> Outlook {
        let (run, state) = self.runs.note(offset, end);
        let now = run.ticket(end.saturating_add(DISORDER));
        let is_sequential = run.is_sequential();
        let is_for_long_part = is_sequential && is_for_long_part(offset, run.len(), file, limits);
        let mut soon = Vec::new();
        if is_sequential && !is_for_long_part {
            let from = state.asked_until.max(run.next());
            let ahead = ahead_len(end, file, limits);
            let most = end.saturating_sub(offset).saturating_mul(4).max(LEAST_AHEAD);
            let until = run.next().saturating_add(ahead).min(from.saturating_add(most));
            let until = until.min(file.len());
            state.asked_until = state.asked_until.max(until);
            soon = in_pieces(from, until);
        }
        let mut later = Vec::new();
        if is_sequential && !is_for_long_part && limits.fetched_ahead > 0 {
            let row = ahead_len(end, file, limits);
            let window = run.len().saturating_mul(AHEAD_OF_RUN);
            let window = window.min(taken_in(AHEAD_TIME, run.len(), state.began.elapsed()));
            let window = window.max(LEAST_AHEAD).min(limits.fetched_ahead);
            let window = window.max(row);
            let until = run.next().saturating_add(window).min(file.len());
            let from = state.expected_until.max(run.next());
            // Requests of long ranges are fewer.
            if until.saturating_sub(from) >= window / 2 || (until == file.len() && from < until) {
                state.expected_until = until;
                later = in_pieces(from, until);
            }
        }
        Outlook { is_sequential, is_for_long_part, soon, later, now }
    }

    /// Returns the part to assemble for the read from `offset` to `end`, which was noted last: what
    /// follows the part that is there, if the read goes on from that, else what begins with the
    /// read. It ends with a row of elements, if a row ends in its second half.
    pub fn long_part(
        &mut self,
        (offset, end): (u64, u64),
        assembled: Option<(u64, u64)>,
        file: &dyn PlannedFile,
        limits: ReadLimits,
    ) -> LongPart {
        let (run, _) = self.runs.current();
        let follows = |(first, last): &(u64, u64)| {
            *first <= offset && *last <= end && offset <= last.saturating_add(DISORDER)
        };
        let start = assembled.filter(follows).map_or(offset, |(_, last)| last);
        let until = start.saturating_add(long_part_len(run.len(), file, limits)).min(file.len());
        let until = file.rows_until(start, until);
        LongPart { start, end: until, ticket: run.ticket(until.saturating_add(DISORDER)) }
    }

    /// Plans the read that was noted last: `wanted` are its chunks, `soon` those of the ranges that
    /// will be read, with where these end, and `later` those to request in advance.
    pub fn plan(
        &mut self,
        (end, is_sequential): (u64, bool),
        wanted: &[ChunkNeed<C>],
        (soon, later): (Vec<(C, u64)>, Vec<C>),
        limits: ReadLimits,
    ) -> ReadPlan<C> {
        let mut absent_len = 0_u64;
        let fetches = wanted.iter().map(|wanted| {
            if !wanted.is_absent {
                return Fetch::Whole;
            }
            if !is_sequential && self.is_for_range(wanted) {
                return Fetch::Range;
            }
            absent_len = absent_len.saturating_add(wanted.chunk.longest());
            Fetch::Whole
        });
        let fetches = fetches.collect();
        let beside = if absent_len <= limits.cache_len / 2 { MOST_BESIDE } else { 0 };
        let (run, state) = self.runs.current();
        let run_len = run.len();
        let expectations = Arc::clone(&state.expectations);
        if !is_sequential {
            return ReadPlan {
                fetches,
                beside,
                soon: Vec::new(),
                later: Vec::new(),
                expectations,
                passed: Vec::new(),
                run_len,
            };
        }
        let ended = wanted.iter().filter(|wanted| wanted.reach == Reach::End);
        let passed = state.pass((end, run.next()), ended.map(|wanted| wanted.chunk.clone()));
        if state.asked.len() > MOST_REMEMBERED {
            state.asked.clear();
        }
        let soon = soon.into_iter().filter(|(chunk, _)| state.asked.insert(hash_of(chunk)));
        let soon = soon.map(|(chunk, until)| (chunk, run.ticket(until))).collect();
        ReadPlan { fetches, beside, soon, later, expectations, passed, run_len }
    }

    /// Notes that a partial read of a chunk has decoded so many bytes more than those of the range;
    /// all of it where ranges of this chunk are no gain.
    pub fn note_decoded(&mut self, chunk: &C, more: u64) {
        self.add(chunk, more);
    }

    /// Ends all sequences, as the reader closes the file.
    pub fn end(&self) {
        self.runs.end();
    }

    /// Whether only a range of a chunk is read. Notes that it is.
    fn is_for_range(&mut self, wanted: &ChunkNeed<C>) -> bool {
        let Some(len) = wanted.chunk.len() else { return false };
        if len < LEAST_PARTIAL
            || wanted.len > len / PARTIAL
            || wanted.chunk.ranges() == Ranges::None
        {
            return false;
        }
        self.add(&wanted.chunk, wanted.len.max(len / LEAST_COUNTED)) <= len / PARTIAL
    }

    fn add(&mut self, chunk: &C, more: u64) -> u64 {
        let read = self.in_ranges.get(chunk).map_or(more, |read| read.saturating_add(more));
        drop(self.in_ranges.put(chunk.clone(), read, 0));
        read
    }
}

impl<C> SequenceState<C> {
    /// Notes that the last elements of some chunks are read, by a read that ends at `end`; returns
    /// the chunks that lie far behind `next`.
    fn pass(&mut self, (end, next): (u64, u64), ended: impl Iterator<Item = C>) -> Vec<C> {
        // The chunks of a range that was read before are known.
        if self.passed.back().is_none_or(|(last, _)| *last < end) {
            self.passed.extend(ended.map(|chunk| (end, chunk)));
        }
        let too_many = self.passed.len().saturating_sub(MOST_REMEMBERED);
        let is_past = |one: &(u64, C)| one.0.saturating_add(DISORDER) < next;
        let mut past = Vec::new();
        while past.len() < too_many || self.passed.front().is_some_and(is_past) {
            past.extend(self.passed.pop_front().map(|(_, chunk)| chunk));
        }
        past
    }
}

/// The plan for the chunks of a long part: each is needed once, for this part alone.
pub(super) fn plan_long_part<C: PlannedChunk>(wanted: &[ChunkNeed<C>]) -> (Vec<Fetch>, usize) {
    let fetch = |wanted: &ChunkNeed<C>| {
        let is_short = wanted.chunk.len().is_some_and(|len| wanted.len <= len / PARTIAL);
        let is_range = wanted.is_absent && is_short && wanted.chunk.ranges() == Ranges::Exact;
        if is_range { Fetch::Range } else { Fetch::Whole }
    };
    (wanted.iter().map(fetch).collect(), BESIDE_LONG_PART)
}

/// The most bytes of a long part, 0 where a file has none.
pub(super) fn longest_part(file: &dyn PlannedFile, limits: ReadLimits) -> u64 {
    let len = limits.cache_len / LONG_PART;
    let is_possible = limits.has_long_parts && len >= LEAST_LONG_PART && file.has_parts(MOST_PARTS);
    if is_possible { len } else { 0 }
}

/// The most bytes of a long part for a sequence that has read `run_len` bytes: a sequence that has
/// not come far may end soon.
fn long_part_len(run_len: u64, file: &dyn PlannedFile, limits: ReadLimits) -> u64 {
    longest_part(file, limits).min(run_len.saturating_mul(2))
}

/// Whether a sequence that has read `run_len` bytes is read in long parts at `offset`.
fn is_for_long_part(offset: u64, run_len: u64, file: &dyn PlannedFile, limits: ReadLimits) -> bool {
    let is_beyond_cache = || match file.slab_at(offset) {
        Some(Slab::Row(len)) => len > limits.cache_len,
        Some(Slab::Chunk(_)) => false,
        None => offset < file.len(),
    };
    long_part_len(run_len, file, limits) >= LEAST_LONG_PART && is_beyond_cache()
}

/// How many bytes a reader takes in a `time`, if it took `run_len` bytes in the time `elapsed`.
fn taken_in(time: Duration, run_len: u64, elapsed: Duration) -> u64 {
    let taken = u128::from(run_len).saturating_mul(time.as_micros());
    let taken = taken / elapsed.as_micros().max(1);
    u64::try_from(taken).unwrap_or(u64::MAX)
}

/// Returns the hash by which a chunk is remembered.
pub(super) fn hash_of(chunk: &impl Hash) -> u64 {
    FixedState::default().hash_one(chunk)
}

/// Returns a range in pieces of at most [`DISORDER`] bytes.
fn in_pieces(from: u64, until: u64) -> Vec<(u64, u64)> {
    let mut pieces = Vec::new();
    let mut at = from;
    while at < until {
        let end = at.saturating_add(DISORDER).min(until);
        pieces.push((at, end));
        at = end;
    }
    pieces
}

/// How many bytes after `offset` are decoded in advance: the next row of chunks, or some chunks; 0
/// where the cache would not hold them.
fn ahead_len(offset: u64, file: &dyn PlannedFile, limits: ReadLimits) -> u64 {
    let slab = file.slab_at(offset).map_or(u64::MAX, |slab| match slab {
        Slab::Row(len) => len,
        Slab::Chunk(len) => len.saturating_mul(limits.at_once),
    });
    let len = slab.max(LEAST_AHEAD);
    if len <= limits.cache_len / 3 { len } else { 0 }
}

#[cfg(test)]
mod tests;
