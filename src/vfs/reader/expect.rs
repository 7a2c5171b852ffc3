//! Readers announce chunks to a store that takes long: those that they need now, or will soon.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use super::plan::hash_of;
use crate::array::{Array, ChunkRef, Coords};
use crate::cache::ChunkCache;
use crate::pool::{Pool, Urgency};
use crate::store::Expected;

/// Expectations of a sequence that are kept: the sequence has passed the first of more.
const MOST_KEPT: usize = 128;

/// The chunks of a sequence that are remembered.
const MOST_REMEMBERED: usize = 1 << 16;

/// The chunks that a sequence of reads has announced to the store. Dropped with the sequence, so
/// that nothing more is requested for it.
#[derive(Default)]
pub(super) struct Expectations {
    /// A leaf lock.
    state: Mutex<Announced>,
}

#[derive(Default)]
struct Announced {
    /// The hashes of the chunks that were announced.
    expected: HashSet<u64>,
    kept: VecDeque<Expected>,
    /// How many announcements wait for a thread.
    queued: usize,
    /// What to do after them.
    deferred: Vec<Box<dyn FnOnce() + Send>>,
}

impl fmt::Debug for Expectations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expectations").field("queued", &self.state.lock().queued).finish()
    }
}

/// Does what was deferred after an announcement, also after a panic.
struct Queued(Arc<Expectations>);

impl Drop for Queued {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.queued = state.queued.saturating_sub(1);
        let deferred =
            if state.queued == 0 { std::mem::take(&mut state.deferred) } else { Vec::new() };
        drop(state);
        for task in deferred {
            task();
        }
    }
}

impl Expectations {
    /// Announces, on a thread of the pool, that the sequence will read these chunks.
    pub fn announce(self: &Arc<Self>, pool: &Pool, cache: &Arc<ChunkCache>, chunks: Vec<ChunkRef>) {
        self.state.lock().queued += 1;
        let (queued, cache) = (Queued(Arc::clone(self)), Arc::clone(cache));
        pool.run(Urgency::Request, move || {
            // Only this task has it if the sequence has ended.
            if Arc::strong_count(&queued.0) > 1 {
                let chunks = queued.0.new_ones(&chunks);
                let expected = expect(&cache, &chunks);
                queued.0.keep(expected);
            }
        });
    }

    /// Runs `task` after the announcements so far: a request for one chunk must not overtake that
    /// for many.
    pub fn after(&self, task: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock();
        if state.queued > 0 {
            state.deferred.push(Box::new(task));
            return;
        }
        drop(state);
        task();
    }

    /// Returns the chunks that were not announced yet, with those that the sequence will read later
    /// in the same shards.
    fn new_ones(&self, chunks: &[ChunkRef]) -> Vec<ChunkRef> {
        let mut new = Vec::new();
        for (array, coords) in by_array(chunks.iter()) {
            let all = array.with_others(&coords);
            let mut state = self.state.lock();
            if state.expected.len() > MOST_REMEMBERED {
                state.expected.clear();
            }
            let chunks = all.into_iter().map(|coords| ChunkRef::new(array, &coords));
            new.extend(chunks.filter(|chunk| state.expected.insert(hash_of(chunk))));
        }
        new
    }

    fn keep(&self, expected: Vec<Expected>) {
        let mut state = self.state.lock();
        state.kept.extend(expected);
        let many = state.kept.len().saturating_sub(MOST_KEPT);
        let passed: Vec<Expected> = state.kept.drain(..many).collect();
        drop(state);
        drop(passed);
    }
}

/// Announces that these chunks will be read as a whole, unless they are in the cache.
pub(super) fn expect(cache: &ChunkCache, chunks: &[ChunkRef]) -> Vec<Expected> {
    let absent = chunks.iter().filter(|chunk| !cache.is_here(&chunk.array, &chunk.coords));
    by_array(absent).into_iter().map(|(array, coords)| array.expect(&coords)).collect()
}

fn by_array<'c>(chunks: impl Iterator<Item = &'c ChunkRef>) -> Vec<(&'c Arc<Array>, Vec<Coords>)> {
    let mut by_array: Vec<(&Arc<Array>, Vec<Coords>)> = Vec::new();
    for ChunkRef { array, coords } in chunks {
        match by_array.iter_mut().find(|(known, _)| Arc::ptr_eq(known, array)) {
            Some((_, all)) => all.push(coords.clone()),
            None => by_array.push((array, vec![coords.clone()])),
        }
    }
    by_array
}
