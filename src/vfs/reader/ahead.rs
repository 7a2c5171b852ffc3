//! Prefetching for sequential reads, of one view or of one chunk file after another.
//!
//! This module sees each read of a view and each opening of a chunk file before it is done. It asks
//! the pool for the chunks of a request that needs several. After two reads or names in sequence it
//! also asks for the next row of chunks, or for the next chunk files. Names may follow one another
//! as numbers or as strings.
//!
//! It uses only `ChunkCache::get`: a reader finds a prefetched chunk in the cache, or waits there
//! for its decoding. Chunks that the reader has passed leave the cache, since the kernel has their
//! bytes. So a sequential read of an array of any size keeps a few chunks, and their memory is used
//! again. A jump ends the prefetching, and tasks that the pool has not begun are dropped.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use super::request::{Request, Wanted};
use crate::array::{Array, ChunkLen, Coords};
use crate::cache::Residency;
use crate::error::Error;
use crate::metadata::NodePath;
use crate::pool::{Pool, Urgency};
use crate::vfs::views::OpenView;
use crate::vfs::{Crew, Vfs};
use crate::view::{Reach, Slab, Touch, View};

/// Reads that follow one another are a sweep from this one on.
const STEPS: u64 = 2;

/// The kernel asks for the next ranges of a file before it has the last one, in any order: this far they are one sweep.
pub(in crate::vfs) const DISORDER: u64 = 4 << 20;

/// Bytes of a file that are decoded ahead at the least.
const LEAST_AHEAD: u64 = 8 << 20;

/// A sweep may leave out so many chunk files: those that the store does not have.
const MOST_SKIPPED: usize = 16;

/// Arrays whose chunk files are followed.
const MOST_FOLLOWED: usize = 64;

/// Chunk files that are decoded ahead for each thread that does: while one is read, another must be ready.
const FILES_PER_THREAD: u64 = 3;

/// Chunks of one request that others decode.
const MOST_HELPED: usize = 64;

/// Chunks that are looked at before a request is answered.
const MOST_LOOKED_AT: usize = 1024;

/// Chunks of a sweep that are known to have been asked for.
const MOST_ASKED: usize = 4096;

pub(in crate::vfs) type Id = crate::array::ChunkId;
type Chunk = (Arc<Array>, Coords);

/// What a chunk is decoded for.
#[derive(Debug, Clone, Copy)]
pub(in crate::vfs) struct Goal {
    /// When it must have been what is stored.
    pub since: Option<Instant>,
    /// Whether the kernel is to read it by itself.
    pub is_passing: bool,
}

/// How a range of a view is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::vfs) enum Way {
    /// It follows no other read.
    Jump,
    /// It follows other reads.
    Sweep,
    /// It follows other reads, and a row of chunks is larger than the cache: a long part of the view is made at once.
    Window,
}

/// How a view is being read.
#[derive(Debug, Default)]
pub(in crate::vfs) struct Sweep {
    /// A leaf.
    state: Mutex<State>,
    progress: Arc<Progress>,
}

/// How far a sweep has come. What was to be decoded for it is not wanted any more when it has ended, or is past it.
#[derive(Debug, Default)]
pub(in crate::vfs) struct Progress {
    /// Another one for each sweep.
    turn: AtomicU64,
    /// Where the next read is expected.
    position: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Where it began.
    start: u64,
    /// Where the next read is expected.
    next: u64,
    steps: u64,
    /// How far chunks have been asked for.
    until: u64,
    asked: HashSet<Id>,
    /// Chunks whose last element was read, and where in the file.
    passed: VecDeque<(u64, Chunk)>,
}

pub(in crate::vfs) fn id(array: &Arc<Array>, coords: &Coords) -> Id {
    (array.id(), coords.clone())
}

impl Sweep {
    /// Ends it: what was to be decoded for it is not wanted any more.
    pub fn end(&self) {
        self.progress.turn.fetch_add(1, Ordering::Relaxed);
    }

    /// How far it has come.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Another number for each sweep.
    pub fn turn(&self) -> u64 {
        self.progress.turn.load(Ordering::Relaxed)
    }

    /// How many bytes it has passed.
    pub fn len(&self) -> u64 {
        let state = self.state.lock();
        state.next.saturating_sub(state.start)
    }

    /// Notes a read; whether it goes on with a sweep.
    fn step(&self, state: &mut State, offset: u64, end: u64) -> bool {
        let is_next = offset <= state.next.saturating_add(DISORDER)
            && offset.saturating_add(DISORDER) >= state.next;
        if is_next {
            state.steps = state.steps.saturating_add(1);
            state.next = state.next.max(end);
        } else {
            self.end();
            *state = State { start: offset, next: end, until: end, ..State::default() };
        }
        self.progress.position.store(state.next, Ordering::Relaxed);
        state.steps >= STEPS
    }
}

impl State {
    /// Notes that the last elements of some chunks are read, which end before `end`; returns those that lie far behind.
    fn pass(&mut self, end: u64, ended: Vec<Chunk>) -> Vec<Chunk> {
        // Those of a range that was read before are known.
        if self.passed.back().is_none_or(|(last, _)| *last < end) {
            self.passed.extend(ended.into_iter().map(|chunk| (end, chunk)));
        }
        let (next, many) = (self.next, self.passed.len().saturating_sub(MOST_ASKED));
        let is_past = |one: &(u64, Chunk)| one.0.saturating_add(DISORDER) < next;
        let mut past = Vec::new();
        while past.len() < many || self.passed.front().is_some_and(is_past) {
            past.extend(self.passed.pop_front().map(|(_, chunk)| chunk));
        }
        past
    }

    /// Leaves those that were not asked for yet, and notes that they are now.
    fn keep_unasked(&mut self, chunks: &mut Vec<Chunk>) {
        if self.asked.len() > MOST_ASKED {
            self.asked.clear();
        }
        chunks.retain(|(array, coords)| self.asked.insert(id(array, coords)));
    }
}

/// How the chunk files of arrays are being read. A leaf.
#[derive(Debug, Default)]
pub(in crate::vfs) struct Followed(Mutex<HashMap<NodePath, Files>>);

#[derive(Debug)]
struct Files {
    last: Coords,
    order: Order,
    steps: u64,
    progress: Arc<Progress>,
    asked: VecDeque<Coords>,
    passed: VecDeque<Coords>,
    /// Whether the kernel reads them by itself.
    is_passing: bool,
}

impl Files {
    fn new(last: &Coords) -> Self {
        let (progress, asked, passed) = (Arc::default(), VecDeque::new(), VecDeque::new());
        Self {
            last: last.clone(),
            order: Order::Numbers,
            steps: 0,
            progress,
            asked,
            passed,
            is_passing: false,
        }
    }

    /// The next `count` chunks, as far as they were not asked for before, and the step from which on they are not wanted.
    fn upcoming(&mut self, coords: &Coords, counts: &[u64], count: u64) -> Vec<(u64, Coords)> {
        let mut at = coords.clone();
        let mut ahead = Vec::new();
        for step in 1..=count {
            let Some(next) = self.order.after(&at, counts) else { break };
            if !self.asked.contains(&next) {
                self.asked.push_back(next.clone());
                // Not when the one after it is opened.
                ahead.push((self.steps.saturating_add(step).saturating_add(1), next.clone()));
            }
            at = next;
        }
        while self.asked.len() > ahead.len().saturating_add(MOST_SKIPPED) {
            self.asked.pop_front();
        }
        ahead
    }
}

impl Followed {
    /// Notes whether the kernel reads the chunk file that was last opened by itself.
    pub fn note_passed(&self, path: &NodePath, is_passing: bool) {
        if let Some(files) = self.0.lock().get_mut(path) {
            files.is_passing = is_passing;
        }
    }
}

/// In which order names are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// As numbers, in which they are listed.
    Numbers,
    /// As texts, in which a shell has them.
    Texts,
}

impl Order {
    /// The next of `count` numbers.
    fn next(self, number: u64, count: u64) -> Option<u64> {
        let below = |number: Option<u64>| number.filter(|number| *number < count);
        match self {
            Self::Numbers => below(number.checked_add(1)),
            Self::Texts if number > 0 && below(number.checked_mul(10)).is_some() => {
                number.checked_mul(10)
            }
            Self::Texts => {
                let mut number = number;
                loop {
                    if let Some(next) = below(number.checked_add(1)).filter(|next| next % 10 != 0) {
                        return Some(next);
                    }
                    // The next one of those that have a digit less.
                    number /= 10;
                    if number == 0 {
                        return None;
                    }
                }
            }
        }
    }

    /// The chunk whose name comes after that of another, in a grid of so many.
    fn after(self, coords: &Coords, counts: &[u64]) -> Option<Coords> {
        let mut indices = coords.indices().to_vec();
        for (index, count) in indices.iter_mut().zip(counts).rev() {
            if let Some(next) = self.next(*index, *count) {
                *index = next;
                return Some(Coords::new(indices));
            }
            *index = 0;
        }
        None
    }

    /// Whether a chunk comes not long after another.
    fn is_soon(self, coords: &Coords, after: &Coords, counts: &[u64]) -> bool {
        let mut at = after.clone();
        for _ in 0..=MOST_SKIPPED {
            match self.after(&at, counts) {
                Some(next) if next == *coords => return true,
                Some(next) => at = next,
                None => return false,
            }
        }
        false
    }
}

impl Vfs {
    /// Notes a read of a view, and returns how it is to be read.
    pub(in crate::vfs) fn before_view(&self, open: &OpenView, offset: u64, end: u64) -> Way {
        let is_sweep = open.sweep.step(&mut open.sweep.state.lock(), offset, end);
        match is_sweep {
            true if self.is_for_window(open, offset) => Way::Window,
            true => Way::Sweep,
            false => Way::Jump,
        }
    }

    /// Before a request is read from its chunks: decides of which a range is read, and has others decode the rest of
    /// them. In a sweep also has those decoded that come next, and lets go of those that the sweep has passed.
    pub(in crate::vfs) fn before_chunks(
        &self,
        open: &OpenView,
        request: &mut Request,
        is_sweep: bool,
    ) {
        let goal = Goal { since: self.fresh_since(Some(open.opened)), is_passing: false };
        let (mut wanted, mut wanted_len, mut ended) = (Vec::new(), 0_u64, Vec::new());
        let (offset, end) = (request.offset, request.end);
        for chunk in &mut request.chunks {
            let Wanted { array, coords, range, reach, residency, is_partial } = chunk;
            let is_absent = matches!(residency, Residency::Absent);
            *is_partial =
                is_absent && !is_sweep && Self::is_for_excerpt(open, array, coords, range);
            if is_absent && !*is_partial {
                let len = array.chunk_len(coords).map_or(u64::MAX, ChunkLen::longest);
                wanted_len = wanted_len.saturating_add(len);
                wanted.push((Arc::clone(array), coords.clone()));
            }
            if *reach == Reach::End {
                ended.push((Arc::clone(array), coords.clone()));
            }
        }
        let Some(Crew { pool, .. }) = self.crew.get() else { return };
        if wanted_len <= self.options.cache_len / 2 {
            // The first one is for who reads.
            for chunk in wanted.into_iter().skip(1).take(MOST_HELPED) {
                let until = (&open.sweep.progress, end.saturating_add(DISORDER));
                self.decode((pool, Urgency::Next), until, chunk, goal);
            }
        }
        if !is_sweep {
            return;
        }
        let mut state = open.sweep.state.lock();
        let from = state.until.max(state.next);
        let ahead = self.ahead_len(&open.view, end, pool.most_ahead());
        let most = end.saturating_sub(offset).saturating_mul(4).max(LEAST_AHEAD);
        let until = state.next.saturating_add(ahead).min(from.saturating_add(most));
        let until = until.min(open.view.len());
        state.until = state.until.max(until);
        let passed = state.pass(end, ended);
        let len = state.next.saturating_sub(state.start);
        drop(state);
        self.let_go(passed, len);
        // In pieces that are passed before anything of them is let go.
        let mut at = from;
        while at < until {
            let end = at.saturating_add(DISORDER).min(until);
            let mut next = Vec::new();
            self.look_at(open, (at, end), |array, coords, _| next.push((array, coords)));
            open.sweep.state.lock().keep_unasked(&mut next);
            for chunk in
                next.into_iter().filter(|(array, coords)| !self.cache.is_here(array, coords))
            {
                self.decode((pool, Urgency::Ahead), (&open.sweep.progress, end), chunk, goal);
            }
            at = end;
        }
    }

    /// The chunks of a range, as far as they can be told, and not too many: of small chunks none has to be decoded ahead.
    fn look_at(
        &self,
        open: &OpenView,
        range: (u64, u64),
        mut each: impl FnMut(Arc<Array>, Coords, &Touch),
    ) {
        let mut left = MOST_LOOKED_AT;
        let looked = open.view.for_each_chunk(range, &mut |elements, coords, touch| {
            left = left.checked_sub(1).ok_or_else(|| Error::too_large("enough chunks"))?;
            each(self.array_of(elements, open.moves)?, coords.clone(), touch);
            Ok(())
        });
        // Who reads is told why, when he comes to it.
        looked.unwrap_or_else(|error| log::debug!("ahead: {error}"));
    }

    /// How many bytes of a view are decoded ahead of a sweep that is at `offset`: the next row of chunks, or some chunks;
    /// nothing where the cache would not hold them.
    fn ahead_len(&self, view: &View, offset: u64, at_once: usize) -> u64 {
        let at_once = u64::try_from(at_once).unwrap_or(u64::MAX);
        let slab = view.slab_at(offset).map_or(u64::MAX, |slab| match slab {
            Slab::Row(len) => len,
            Slab::Chunk(len) => len.saturating_mul(at_once),
        });
        let window = slab.max(LEAST_AHEAD);
        if window <= self.options.cache_len / 3 { window } else { 0 }
    }

    /// A chunk file is opened to be read: in a sweep the next ones are decoded, and those before the last are let go.
    pub(in crate::vfs) fn before_chunk(
        &self,
        path: &NodePath,
        array: &Arc<Array>,
        coords: &Coords,
    ) {
        let Some(Crew { pool, .. }) = self.crew.get() else { return };
        let counts = array.grid().counts();
        let mut all = self.followed.0.lock();
        let Some(files) = all.get_mut(path) else {
            if all.len() >= MOST_FOLLOWED {
                all.clear();
            }
            all.insert(path.clone(), Files::new(coords));
            return;
        };
        let orders = match files.order {
            Order::Numbers => [Order::Numbers, Order::Texts],
            Order::Texts => [Order::Texts, Order::Numbers],
        };
        match orders.into_iter().find(|order| order.is_soon(coords, &files.last, counts)) {
            _ if files.last == *coords => return,
            Some(order) => {
                (files.order, files.steps) = (order, files.steps.saturating_add(1));
                let before = std::mem::replace(&mut files.last, coords.clone());
                files.passed.push_back(before);
            }
            None => {
                files.progress.turn.fetch_add(1, Ordering::Relaxed);
                *files = Files { progress: Arc::clone(&files.progress), ..Files::new(coords) };
            }
        }
        files.progress.position.store(files.steps, Ordering::Relaxed);
        let chunk_len = array.longest_chunk_len().longest();
        let count =
            u64::try_from(pool.most_ahead()).unwrap_or(u64::MAX).saturating_mul(FILES_PER_THREAD);
        if files.steps < STEPS || chunk_len.saturating_mul(count) > self.options.cache_len / 3 {
            return;
        }
        if files.is_passing && array.is_stored_decoded(coords) {
            return; // The kernel reads ahead.
        }
        let (progress, is_passing) = (Arc::clone(&files.progress), files.is_passing);
        let ahead = files.upcoming(coords, counts, count);
        let len = files.steps.saturating_mul(chunk_len);
        let mut passed = Vec::new();
        while files.passed.len() > 1 {
            passed.extend(files.passed.pop_front());
        }
        drop(all);
        for coords in &passed {
            self.passed.let_go(array, coords);
        }
        self.let_go(passed.into_iter().map(|coords| (Arc::clone(array), coords)), len);
        for (until, coords) in ahead {
            if !self.cache.is_here(array, &coords)
                && !self.passed.is_here(&self.cache, array, &coords)
            {
                let (chunk, goal) = ((Arc::clone(array), coords), Goal { since: None, is_passing });
                self.decode((pool, Urgency::Ahead), (&progress, until), chunk, goal);
            }
        }
    }

    /// What a sweep has passed the kernel has. What does not, because it keeps no pages, is had here while all that a sweep has
    /// read, so many bytes, can be.
    fn let_go(&self, passed: impl IntoIterator<Item = Chunk>, len: u64) {
        if self.options.kernel_keeps || len > self.options.cache_len {
            for (array, coords) in passed {
                self.cache.remove(&array, &coords);
            }
        }
    }

    /// Has a chunk decoded before a sweep is where `until` says, so that it is found decoded. An error is for who asks for it.
    pub(in crate::vfs) fn decode(
        &self,
        (pool, urgency): (&Pool, Urgency),
        (progress, until): (&Arc<Progress>, u64),
        (array, coords): Chunk,
        Goal { since, is_passing }: Goal,
    ) {
        let (cache, progress) = (Arc::clone(&self.cache), Arc::clone(progress));
        let passed = is_passing.then(|| Arc::clone(&self.passed));
        let turn = progress.turn.load(Ordering::Relaxed);
        pool.run(urgency, move || {
            let is_wanted = progress.turn.load(Ordering::Relaxed) == turn
                && progress.position.load(Ordering::Relaxed) < until;
            if !is_wanted || cache.is_here(&array, &coords) {
                return;
            }
            if urgency == Urgency::Ahead {
                cache.counters().ahead.fetch_add(1, Ordering::Relaxed);
            }
            let in_file =
                passed.and_then(|passed| passed.chunk(&cache, &array, &coords, None)).is_some();
            if !in_file && let Err(error) = cache.get_fresh(&array, &coords, since) {
                log::debug!("prefetch: {error}");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_one_another_as_numbers_and_as_texts() {
        for count in [1, 9, 10, 11, 25, 100, 123, 1050] {
            let mut numbers: Vec<u64> = (0..count).collect();
            for order in [Order::Numbers, Order::Texts] {
                if order == Order::Texts {
                    numbers.sort_by_key(ToString::to_string);
                }
                for pair in numbers.windows(2) {
                    assert_eq!(order.next(pair[0], count), Some(pair[1]), "{count}");
                }
                assert_eq!(order.next(numbers[numbers.len() - 1], count), None);
            }
        }
    }

    #[test]
    fn chunks_follow_one_another_along_the_last_dimension_first() {
        let at = |a, b| Coords::new([a, b]);
        assert_eq!(Order::Numbers.after(&at(0, 1), &[2, 3]), Some(at(0, 2)));
        assert_eq!(Order::Numbers.after(&at(0, 2), &[2, 3]), Some(at(1, 0)));
        assert_eq!(Order::Numbers.after(&at(1, 2), &[2, 3]), None);
        assert!(Order::Numbers.is_soon(&at(1, 1), &at(0, 1), &[2, 3]));
        assert!(!Order::Numbers.is_soon(&at(0, 0), &at(0, 1), &[2, 3]));
        assert_eq!(Order::Numbers.after(&Coords::new([]), &[]), None);
    }

    #[test]
    fn a_sweep_may_come_a_little_out_of_order_and_ends_with_a_jump() {
        let (sweep, mib) = (Sweep::default(), 1 << 20);
        let mut step =
            |offset: u64| sweep.step(&mut sweep.state.lock(), offset * mib, (offset + 1) * mib);
        assert_eq!([0, 1, 2, 4, 3, 5].map(&mut step), [false, true, true, true, true, true]);
        assert_eq!([100, 101, 102].map(&mut step), [false, false, true]);
    }
}
