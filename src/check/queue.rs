//! The work that several threads share: the stored values of arrays, and the chunks of the shards
//! among them.
//!
//! A thread takes chunks of an open shard before it takes the next stored value. So all processors
//! work on one large shard, and few shards are open at a time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};

use super::target::CheckedArray;
use crate::array::Coords;

/// The most values to list in advance.
const LISTED: usize = 4096;

/// The number of chunks of a shard that a thread takes at a time.
const BATCH: usize = 8;

/// The most values to add to the queue, or to take from it, at a time.
const MOST_AT_ONCE: usize = 64;

/// A thread takes 1/SHARE of the listed values, so that the others have work until the end.
const SHARE: usize = 16;

/// A stored value, or a shard in one: the chunk at `coords` of a level of an array.
#[derive(Debug, Clone)]
pub struct CheckUnit {
    pub target: Arc<CheckedArray>,
    pub level: usize,
    pub coords: Coords,
}

/// The chunks of a shard.
#[derive(Debug)]
pub struct ShardChunks {
    pub shard: CheckUnit,
    /// The slots of the chunks to read.
    slots: Vec<usize>,
    next: AtomicUsize,
    /// The number of chunks to take at a time: one if they are shards themselves.
    batch: usize,
}

impl ShardChunks {
    pub fn new(shard: CheckUnit, slots: Vec<usize>) -> Self {
        let is_innermost = shard.level.saturating_add(2) >= shard.target.array.levels().len();
        let batch = if is_innermost { BATCH } else { 1 };
        Self { shard, slots, next: AtomicUsize::new(0), batch }
    }

    /// Takes the next slots; the slice is empty if all are taken.
    pub fn take(&self) -> &[usize] {
        let start = self.next.fetch_add(self.batch, Ordering::Relaxed);
        let end = start.saturating_add(self.batch).min(self.slots.len());
        self.slots.get(start..end).unwrap_or_default()
    }

    fn is_taken(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.slots.len()
    }
}

/// The next work of a thread.
#[derive(Debug)]
pub enum NextWork {
    /// Check some values.
    Units(Vec<CheckUnit>),
    /// Check some chunks of a shard.
    Part(Arc<ShardChunks>),
}

/// A queue of work for several threads.
#[derive(Debug, Default)]
pub struct Queue {
    /// A leaf lock.
    state: Mutex<QueueState>,
    changed: Condvar,
}

/// Adds the values of an array to the queue in batches.
#[derive(Debug)]
pub struct Lister<'q> {
    queue: &'q Queue,
    units: Vec<CheckUnit>,
}

impl Lister<'_> {
    /// Adds a value. Waits while the queue is full.
    pub fn add(&mut self, unit: CheckUnit) {
        self.units.push(unit);
        if self.units.len() >= MOST_AT_ONCE {
            self.queue.list(&mut self.units);
        }
    }
}

impl Drop for Lister<'_> {
    fn drop(&mut self) {
        self.queue.list(&mut self.units);
    }
}

#[derive(Debug, Default)]
struct QueueState {
    listed: VecDeque<CheckUnit>,
    opened: Vec<Arc<ShardChunks>>,
    active_count: usize,
    is_complete: bool,
}

impl Queue {
    /// Returns a lister, which adds values.
    pub fn lister(&self) -> Lister<'_> {
        Lister { queue: self, units: Vec::with_capacity(MOST_AT_ONCE) }
    }

    fn list(&self, units: &mut Vec<CheckUnit>) {
        let mut state = self.state.lock();
        while state.listed.len() >= LISTED {
            self.changed.wait(&mut state);
        }
        state.listed.extend(units.drain(..));
        self.changed.notify_all();
    }

    /// Notes that all values are listed.
    pub fn complete(&self) {
        self.state.lock().is_complete = true;
        self.changed.notify_all();
    }

    /// Adds the chunks of a shard.
    pub fn open(&self, opened: ShardChunks) {
        self.state.lock().opened.push(Arc::new(opened));
        self.changed.notify_all();
    }

    /// Waits for the next work, and returns it; `None` if there will be no more. Call
    /// [`Self::done`] when it is done.
    pub fn next(&self) -> Option<NextWork> {
        let mut state = self.state.lock();
        loop {
            while state.opened.last().is_some_and(|opened| opened.is_taken()) {
                state.opened.pop();
            }
            let work = match state.opened.last() {
                Some(opened) => Some(NextWork::Part(Arc::clone(opened))),
                None if state.listed.is_empty() => None,
                None => {
                    let was_full = state.listed.len() >= LISTED;
                    let count = (state.listed.len() / SHARE).clamp(1, MOST_AT_ONCE);
                    let units = state.listed.drain(..count).collect();
                    if was_full && state.listed.len() < LISTED {
                        self.changed.notify_all();
                    }
                    Some(NextWork::Units(units))
                }
            };
            if work.is_some() {
                state.active_count = state.active_count.saturating_add(1);
                return work;
            }
            // A thread that is still working may open a shard.
            if state.is_complete && state.active_count == 0 {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Notes that a thread has finished its work.
    pub fn done(&self) {
        let mut state = self.state.lock();
        state.active_count = state.active_count.saturating_sub(1);
        if state.active_count == 0 {
            self.changed.notify_all();
        }
    }
}
