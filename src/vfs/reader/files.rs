//! Chunk files that are opened one after another.
//!
//! After two names in sequence the next chunk files are decoded in advance. Names follow one
//! another as numbers (a listing) or as texts (a shell's pattern).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use super::decode::{DecodeTo, Decoder};
use super::expect::Expectations;
use super::pattern::{ReadSequence, Ticket};
use crate::array::{Array, ChunkRef, Coords};
use crate::metadata::NodePath;
use crate::pool::Urgency;
use crate::width::ToU64;

/// Chunks without a file that a sequence may leave out at a time.
const MOST_SKIPPED: usize = 16;

/// Arrays whose chunk files are followed.
const MOST_FOLLOWED: usize = 64;

/// Chunk files that are decoded in advance for each thread that does so: while one is read, another
/// must be ready.
const FILES_PER_THREAD: u64 = 3;

/// How the chunk files of arrays are being read. A leaf.
#[derive(Debug, Default)]
pub(super) struct Followed(Mutex<HashMap<NodePath, Files>>);

/// How the chunk files of one array are being read.
#[derive(Debug)]
struct Files {
    last: Coords,
    order: OpenOrder,
    /// In files that were opened.
    run: ReadSequence,
    asked: VecDeque<Coords>,
    passed: VecDeque<Coords>,
    expectations: Arc<Expectations>,
    /// Whether the kernel reads them without us.
    is_passing: bool,
}

/// What to do when a chunk file was opened.
#[derive(Debug, Default)]
struct FilesPlan {
    /// Chunks to decode in advance, and as long as which claim holds.
    soon: Vec<(Coords, Ticket)>,
    /// Chunks that the sequence has passed.
    passed: Vec<Coords>,
    /// How many files it has opened.
    run_len: u64,
}

impl Files {
    fn new(last: &Coords) -> Self {
        Self {
            last: last.clone(),
            order: OpenOrder::Numbers,
            run: ReadSequence::default(),
            asked: VecDeque::new(),
            passed: VecDeque::new(),
            expectations: Arc::default(),
            is_passing: false,
        }
    }

    /// Notes that the chunk file at `coords` was opened, and plans to decode the next `count` ones
    /// of a grid with these counts. Returns `None` where nothing is to be done.
    fn open(&mut self, coords: &Coords, counts: &[u64], count: u64) -> Option<FilesPlan> {
        if self.last == *coords {
            return None;
        }
        let orders = match self.order {
            OpenOrder::Numbers => [OpenOrder::Numbers, OpenOrder::Texts],
            OpenOrder::Texts => [OpenOrder::Texts, OpenOrder::Numbers],
        };
        let Some(order) = orders.into_iter().find(|it| it.is_soon(coords, &self.last, counts))
        else {
            *self = Self::new(coords);
            return None;
        };
        self.order = order;
        self.run.advance(self.run.next().saturating_add(1));
        self.passed.push_back(std::mem::replace(&mut self.last, coords.clone()));
        if !self.run.is_sequential() {
            return None;
        }
        let soon = if count > 0 { self.upcoming(counts, count) } else { return None };
        // The last one may still be read.
        let many = self.passed.len().saturating_sub(1);
        let passed = self.passed.drain(..many).collect();
        Some(FilesPlan { soon, passed, run_len: self.run.len() })
    }

    /// The next `count` chunks, without those that were asked for before.
    fn upcoming(&mut self, counts: &[u64], count: u64) -> Vec<(Coords, Ticket)> {
        let mut at = self.last.clone();
        let mut ahead = Vec::new();
        for step in 1..=count {
            let Some(next) = self.order.after(&at, counts) else { break };
            if !self.asked.contains(&next) {
                self.asked.push_back(next.clone());
                // It is not wanted any more when the file after it is opened.
                let until = self.run.next().saturating_add(step).saturating_add(1);
                ahead.push((next.clone(), self.run.ticket(until)));
            }
            at = next;
        }
        while self.asked.len() > ahead.len().saturating_add(MOST_SKIPPED) {
            self.asked.pop_front();
        }
        ahead
    }
}

/// The order in which chunk files are opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenOrder {
    /// The order of a listing.
    Numbers,
    /// The order in which a shell expands a pattern.
    Texts,
}

impl OpenOrder {
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
                    // All numbers with these first digits are done.
                    number /= 10;
                    if number == 0 {
                        return None;
                    }
                }
            }
        }
    }

    /// The chunk whose name follows that of `coords`, in a grid with these counts.
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

    /// Whether a chunk comes soon after another: chunks that are not stored have no file.
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

/// Decodes the chunk files that follow those that were opened.
pub(super) struct ChunkFiles {
    pub decoder: Decoder,
    pub followed: Followed,
}

impl ChunkFiles {
    /// Notes whether the kernel reads the chunk file of an array that was opened last with
    /// passthrough.
    pub fn note_passthrough(&self, path: &NodePath, is_used: bool) {
        if let Some(files) = self.followed.0.lock().get_mut(path) {
            files.is_passing = is_used;
        }
    }

    /// Has the next chunk files decoded, if the one that is opened to be read now continues a
    /// sequence.
    pub fn before_chunk(&self, path: &NodePath, array: &Arc<Array>, coords: &Coords) {
        let Some(pool) = self.decoder.core.pool.get() else { return };
        let chunk_len = array.longest_chunk_len().longest();
        let count = pool.most_ahead().to_u64().saturating_mul(FILES_PER_THREAD);
        let fits = chunk_len.saturating_mul(count) <= self.decoder.core.options.cache_len / 3;
        let mut all = self.followed.0.lock();
        let Some(files) = all.get_mut(path) else {
            if all.len() >= MOST_FOLLOWED {
                all.clear();
            }
            all.insert(path.clone(), Files::new(coords));
            return;
        };
        // The kernel reads ahead in the store's own files.
        let is_ours = !(files.is_passing && array.is_stored_decoded(coords));
        let count = if fits && is_ours { count } else { 0 };
        let is_passing = files.is_passing;
        let plan = files.open(coords, array.grid().counts(), count);
        let expectations = Arc::clone(&files.expectations);
        drop(all);
        let Some(FilesPlan { soon, passed, run_len }) = plan else { return };
        for coords in &passed {
            self.decoder.backing_files.let_go(array, coords);
        }
        let passed = passed.iter().map(|coords| ChunkRef::new(array, coords));
        self.decoder.drop_passed(passed, run_len.saturating_mul(chunk_len));
        let since = if is_passing { DecodeTo::MemoryFile } else { DecodeTo::Cache(None) };
        let is_here = |coords: &Coords| {
            self.decoder.core.cache.is_here(array, coords)
                || self.decoder.backing_files.is_here(&self.decoder.core.cache, array, coords)
        };
        let soon: Vec<(ChunkRef, Ticket)> = soon
            .into_iter()
            .filter(|(coords, _)| !is_here(coords))
            .map(|(coords, ticket)| (ChunkRef::new(array, &coords), ticket))
            .collect();
        if !soon.is_empty() && self.decoder.core.is_remote() {
            let chunks = soon.iter().map(|(chunk, _)| chunk.clone()).collect();
            expectations.announce(pool, &self.decoder.core.cache, chunks);
        }
        let decoder = self.decoder.clone();
        expectations.after(move || {
            for (chunk, ticket) in soon {
                decoder.decode(Urgency::Prefetch, ticket, chunk, since);
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
            for order in [OpenOrder::Numbers, OpenOrder::Texts] {
                if order == OpenOrder::Texts {
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
        assert_eq!(OpenOrder::Numbers.after(&at(0, 1), &[2, 3]), Some(at(0, 2)));
        assert_eq!(OpenOrder::Numbers.after(&at(0, 2), &[2, 3]), Some(at(1, 0)));
        assert_eq!(OpenOrder::Numbers.after(&at(1, 2), &[2, 3]), None);
        assert!(OpenOrder::Numbers.is_soon(&at(1, 1), &at(0, 1), &[2, 3]));
        assert!(!OpenOrder::Numbers.is_soon(&at(0, 0), &at(0, 1), &[2, 3]));
        assert_eq!(OpenOrder::Numbers.after(&Coords::new([]), &[]), None);
    }

    /// The chunks that are decoded in advance when these files are opened in turn, of a row of 100.
    fn asked(opened: &[u64]) -> Vec<u64> {
        let mut files = Files::new(&Coords::new([opened[0]]));
        let mut asked = Vec::new();
        for at in &opened[1..] {
            let plan = files.open(&Coords::new([*at]), &[100], 3).unwrap_or_default();
            asked.extend(plan.soon.iter().map(|(coords, _)| coords.indices()[0]));
        }
        asked
    }

    #[test]
    fn only_the_files_of_a_sequence_are_prefetched_each_once() {
        assert_eq!(asked(&[3, 4, 5, 6]), [6, 7, 8, 9]);
        assert_eq!(asked(&[1, 10, 11, 12]), [12, 13, 14, 15], "numbers, as both orders agree");
        assert_eq!(asked(&[8, 80, 81]), [82, 83, 84], "texts");
        assert_eq!(asked(&[3, 40, 20, 41, 7]), Vec::<u64>::new());
        assert_eq!(asked(&[5, 4, 3, 2]), Vec::<u64>::new());
        assert_eq!(asked(&[97, 98, 99]), Vec::<u64>::new());
    }
}
