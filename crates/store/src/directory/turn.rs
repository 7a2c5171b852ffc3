//! Turns: a writer that has lost to others keeps the lock of a key while it reads and writes.
//!
//! A change of a part of a value is stored only if nobody has changed the value since it was read.
//! A writer that knows the value, because it has just stored it, changes it again faster than
//! others can read it, so they would lose as long as it goes on. While a thread has a turn, every
//! other writer waits, and its own changes of that key use the lock that it has.

use std::thread::{self, ThreadId};

use parking_lot::Mutex;

use super::DirectoryStore;
use super::key_lock::KeyLock;
use crate::Key;
use zarrfs_base::error::{Error, Kind};

/// The turns of the threads of this store. The mutex is a leaf.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<Vec<HeldKey>>);

/// A key that is a thread's turn to change.
#[derive(Debug)]
struct HeldKey {
    key: Key,
    thread: ThreadId,
    /// `None` while a change uses it, and after the value was stored.
    lock: Option<KeyLock>,
}

impl HeldKey {
    fn is_mine(&self, key: &Key) -> bool {
        self.thread == thread::current().id() && self.key == *key
    }
}

impl Turns {
    /// Whether it is this thread's turn to change `key`.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.0.lock().iter().any(|held| held.is_mine(key))
    }

    /// Returns the lock of `key` if it is this thread's turn.
    pub(super) fn lock_of(&self, key: &Key) -> Option<KeyLock> {
        self.0.lock().iter_mut().find(|held| held.is_mine(key))?.lock.take()
    }

    /// Keeps the lock after a change that failed, if the thread has a turn and tries again. Returns
    /// the lock otherwise.
    pub(super) fn keep(&self, key: &Key, lock: KeyLock, failed: &Error) -> Option<KeyLock> {
        if !matches!(failed.kind(), Kind::Stale | Kind::Exists) {
            return Some(lock);
        }
        match self.0.lock().iter_mut().find(|held| held.is_mine(key)) {
            Some(held) => {
                held.lock = Some(lock);
                None
            }
            None => Some(lock),
        }
    }
}

/// The turn of the thread that has made it, until it is dropped.
#[derive(Debug)]
pub(super) struct KeyTurn {
    store: DirectoryStore,
    key: Key,
    thread: ThreadId,
}

impl KeyTurn {
    /// Begins a turn of this thread with the lock that it has taken.
    pub(super) fn begin(store: &DirectoryStore, key: &Key, lock: KeyLock) -> Self {
        let thread = thread::current().id();
        store.turns.0.lock().push(HeldKey { key: key.clone(), thread, lock: Some(lock) });
        Self { store: store.clone(), key: key.clone(), thread }
    }
}

impl Drop for KeyTurn {
    fn drop(&mut self) {
        let mut turns = self.store.turns.0.lock();
        let mine = |held: &HeldKey| held.thread == self.thread && held.key == self.key;
        let held = turns.iter().position(mine).map(|at| turns.swap_remove(at));
        drop(turns);
        if let Some(lock) = held.and_then(|held| held.lock) {
            lock.end_unused();
            let pruned = self.store.prune(&self.key);
            pruned.unwrap_or_else(|error| log::debug!("{error}"));
        }
    }
}
