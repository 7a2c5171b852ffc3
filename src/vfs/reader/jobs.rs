//! The chunks of one read, decoded by several threads.
//!
//! The thread that answers the read and threads of the pool each take the next chunk, so that all
//! are done at about the same time.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::array::ChunkRef;
use crate::buffer::Buffer;
use crate::cache::ChunkCache;
use crate::store::Stat;

/// A chunk that is decoded into the cache, or read in part.
pub(super) struct Job {
    /// Its number among the chunks of the read.
    pub at: usize,
    pub chunk: ChunkRef,
    /// The part to read; `None` to decode all of it into the cache.
    pub range: Option<Range<usize>>,
}

/// A range of a chunk, the stat of the chunk, and how many bytes were decoded. `None` if the chunk
/// must be decoded as a whole, perhaps to detect what is wrong with it.
pub(super) type RangeRead = Option<(Buffer, Stat, usize)>;

/// The jobs of a read.
pub(super) struct Jobs {
    /// A leaf lock.
    state: Mutex<State>,
    /// Notified when a range is done.
    done: Condvar,
}

struct State {
    rest: VecDeque<Job>,
    /// The ranges; `None` until they are done.
    ranges: HashMap<usize, Option<RangeRead>>,
}

/// A range that a thread decodes. Dropping it ends the wait for it, even after a panic.
struct Begun<'j> {
    jobs: &'j Jobs,
    at: usize,
    read: RangeRead,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let read = self.read.take();
        self.jobs.state.lock().ranges.insert(self.at, Some(read));
        self.jobs.done.notify_all();
    }
}

impl Jobs {
    /// Returns these jobs.
    pub fn new(jobs: VecDeque<Job>) -> Self {
        let ranges = jobs.iter().filter(|job| job.range.is_some());
        let ranges = ranges.map(|job| (job.at, None)).collect();
        Self { state: Mutex::new(State { rest: jobs, ranges }), done: Condvar::new() }
    }

    /// Does the next job; `false` if there is none left. An error is reported when the chunk is
    /// needed.
    pub fn run_next(&self, cache: &ChunkCache, since: Option<Instant>) -> bool {
        let next = self.state.lock().rest.pop_front();
        let Some(Job { at, chunk, range }) = next else { return false };
        let mut begun = range.is_some().then(|| Begun { jobs: self, at, read: None });
        if let (Some(begun), Some(range)) = (&mut begun, &range) {
            begun.read = read_range(&chunk, range);
        }
        if begun.as_ref().is_none_or(|begun| begun.read.is_none())
            && let Err(error) = cache.get_fresh(&chunk.array, &chunk.coords, since)
        {
            log::debug!("decoding for a read: {error}");
        }
        true
    }

    /// Waits for a range, and takes it; `None` if it is none of these jobs.
    pub fn take_range(&self, at: usize) -> Option<RangeRead> {
        let mut state = self.state.lock();
        while state.ranges.get(&at)?.is_none() {
            self.done.wait(&mut state);
        }
        state.ranges.remove(&at).flatten()
    }
}

/// Reads a range of a chunk without the rest.
pub(super) fn read_range(chunk: &ChunkRef, range: &Range<usize>) -> RangeRead {
    chunk.array.read_range(&chunk.coords, range).unwrap_or_else(|error| {
        log::debug!("partial read: {error}");
        None
    })
}
