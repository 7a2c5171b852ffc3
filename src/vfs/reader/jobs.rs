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
use crate::cache::{ChunkCache, DecodedChunk};
use crate::error::Result;
use crate::store::Stat;
use crate::waiting;

/// A chunk that is decoded into the cache, or read in part.
pub(super) struct Job {
    /// Its number among the chunks of the read.
    pub at: usize,
    pub chunk: ChunkRef,
    /// The part to read; `None` to decode all of it into the cache.
    pub range: Option<Range<usize>>,
}

/// The result of a job.
pub(super) enum Done {
    /// A range of the chunk, the stat of the chunk, and how many bytes were decoded.
    Range((Buffer, Stat, usize)),
    /// The whole chunk, also where a range was wanted that is no gain.
    Whole(Result<Option<DecodedChunk>>),
}

/// The jobs of a read.
pub(super) struct Jobs {
    /// A leaf lock.
    state: Mutex<JobState>,
    /// Notified when a job is done.
    changed: Condvar,
}

struct JobState {
    rest: VecDeque<Job>,
    /// The results by the number of the chunk.
    done: HashMap<usize, JobProgress>,
}

enum JobProgress {
    Begun,
    Done(Done),
}

/// A job that a thread does. If it panics, the wait for the job ends.
struct Begun<'j> {
    jobs: &'j Jobs,
    at: usize,
    result: Option<Done>,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let mut state = self.jobs.state.lock();
        match self.result.take() {
            Some(result) => state.done.insert(self.at, JobProgress::Done(result)),
            None => state.done.remove(&self.at),
        };
        drop(state);
        self.jobs.changed.notify_all();
    }
}

impl Jobs {
    /// Returns these jobs.
    pub fn new(jobs: VecDeque<Job>) -> Self {
        let state = JobState { rest: jobs, done: HashMap::new() };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Does jobs until none is left, or nobody waits for them any more.
    pub fn run(&self, cache: &ChunkCache, since: Option<Instant>) {
        loop {
            let mut state = self.state.lock();
            if waiting::check().is_err() {
                state.rest.clear();
            }
            let Some(Job { at, chunk, range }) = state.rest.pop_front() else { return };
            state.done.insert(at, JobProgress::Begun);
            drop(state);
            let mut begun = Begun { jobs: self, at, result: None };
            let read = range.and_then(|range| read_range(&chunk, &range));
            begun.result = Some(read.map_or_else(
                || Done::Whole(cache.get_fresh(&chunk.array, &chunk.coords, since)),
                Done::Range,
            ));
        }
    }

    /// Waits for the result of a job, and takes it; `None` if there is no such job.
    pub fn take(&self, at: usize) -> Option<Done> {
        let mut state = self.state.lock();
        while matches!(state.done.get(&at)?, JobProgress::Begun) {
            if let Err(killed) = waiting::wait(&self.changed, &mut state) {
                return Some(Done::Whole(Err(killed)));
            }
        }
        match state.done.remove(&at) {
            Some(JobProgress::Done(done)) => Some(done),
            Some(JobProgress::Begun) | None => None,
        }
    }
}

/// Reads a range of a chunk without the rest. `None` if the chunk must be decoded as a whole,
/// perhaps to detect what is wrong with it.
pub(super) fn read_range(chunk: &ChunkRef, range: &Range<usize>) -> Option<(Buffer, Stat, usize)> {
    chunk.array.read_range(&chunk.coords, range).unwrap_or_else(|error| {
        log::debug!("partial read: {error}");
        None
    })
}
