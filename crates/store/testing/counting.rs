//! A store in memory that counts its calls, for tests that limit them.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use parking_lot::Mutex;

use zarrfs_base::error::Result;
use zarrfs_store::memory::MemoryStore;
use zarrfs_store::{
    Aside, ByteRange, Capacity, Condition, Entries, Key, Keys, ListableStore, Prefix,
    ReadableStore, Stat, Store, Value, ValuePiece, Version, WritableStore,
};

/// The number of calls of each operation, and of the bytes.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Calls {
    pub(crate) gets: usize,
    /// The ranges in all `gets`.
    pub(crate) ranges: usize,
    /// The bytes that `gets` returned.
    pub(crate) read_len: u64,
    pub(crate) stats: usize,
    pub(crate) sets: usize,
    /// The bytes of new pieces.
    pub(crate) new_len: u64,
    /// The bytes of kept pieces.
    pub(crate) kept_len: u64,
    pub(crate) parts: usize,
    pub(crate) erases: usize,
    pub(crate) erases_unchanged: usize,
    pub(crate) erased_prefixes: usize,
    pub(crate) lists: usize,
}

type Interruption = (usize, Box<dyn FnOnce() + Send>);

/// A [`MemoryStore`] that counts.
#[derive(Default)]
pub(crate) struct CountingStore {
    store: MemoryStore,
    calls: Mutex<Calls>,
    interruption: Mutex<Option<Interruption>>,
    after_set: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl CountingStore {
    pub(crate) fn new() -> (Store, Arc<Self>) {
        let counting = Arc::new(Self::default());
        (Store::new(Arc::clone(&counting)), counting)
    }

    /// Returns the calls since the last `take`.
    pub(crate) fn take(&self) -> Calls {
        std::mem::take(&mut self.calls.lock())
    }

    /// Runs `what` right before the `nth` get from now.
    pub(crate) fn interrupt_get(&self, nth: usize, what: impl FnOnce() + Send + 'static) {
        *self.interruption.lock() = Some((nth, Box::new(what)));
    }

    /// Runs `what` right after the next set.
    pub(crate) fn after_set(&self, what: impl FnOnce() + Send + 'static) {
        *self.after_set.lock() = Some(Box::new(what));
    }

    fn interrupt(&self) {
        let mut interruption = self.interruption.lock();
        if let Some((countdown, what)) = interruption.take() {
            if countdown > 1 {
                *interruption = Some((countdown - 1, what));
            } else {
                drop(interruption);
                what();
            }
        }
    }
}

impl fmt::Debug for CountingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CountingStore({:?})", self.calls)
    }
}

impl ReadableStore for CountingStore {
    fn get_partial_values(&self, ranges: &[(Key, ByteRange)]) -> Result<Vec<Option<Value>>> {
        self.interrupt();
        let values = self.store.get_partial_values(ranges)?;
        let mut calls = self.calls.lock();
        calls.gets += 1;
        calls.ranges += ranges.len();
        calls.read_len +=
            values.iter().flatten().map(|value| value.bytes.len() as u64).sum::<u64>();
        Ok(values)
    }

    fn stat(&self, keys: &[Key]) -> Result<Vec<Option<Stat>>> {
        self.calls.lock().stats += 1;
        self.store.stat(keys)
    }

    fn room(&self) -> Result<Option<Capacity>> {
        self.store.room()
    }
}

impl WritableStore for CountingStore {
    fn set(&self, key: &Key, pieces: &[ValuePiece], condition: Condition) -> Result<Stat> {
        let mut calls = self.calls.lock();
        calls.sets += 1;
        for piece in pieces {
            match piece {
                ValuePiece::New(bytes) => calls.new_len += bytes.len() as u64,
                ValuePiece::Kept { len, .. } => calls.kept_len += len,
            }
        }
        drop(calls);
        let stored = self.store.set(key, pieces, condition);
        let after = self.after_set.lock().take();
        if let Some(after) = after {
            after();
        }
        stored
    }

    fn set_partial_values(&self, parts: &[(Key, u64, Bytes)]) -> Result<()> {
        self.calls.lock().parts += 1;
        self.store.set_partial_values(parts)
    }

    fn erase_values(&self, keys: &[Key]) -> Result<()> {
        self.calls.lock().erases += 1;
        self.store.erase_values(keys)
    }

    fn erase_unchanged(&self, key: &Key, version: Version) -> Result<()> {
        self.calls.lock().erases_unchanged += 1;
        self.store.erase_unchanged(key, version)
    }

    fn erase_empty(&self, prefix: &Prefix) -> Result<()> {
        self.store.erase_empty(prefix)
    }

    fn move_to_free(&self, from: &Prefix, to: &Prefix) -> Result<()> {
        self.store.move_to_free(from, to)
    }

    fn move_prefix(&self, from: &Prefix, to: &Prefix) -> Result<()> {
        self.store.move_prefix(from, to)
    }

    fn erase_prefix(&self, prefix: &Prefix) -> Result<()> {
        self.calls.lock().erased_prefixes += 1;
        self.store.erase_prefix(prefix)
    }

    fn set_modified(&self, key: &Key, modified: SystemTime) -> Result<(Version, Version)> {
        self.store.set_modified(key, modified)
    }

    fn sync(&self, keys: &[Key]) -> Result<()> {
        self.store.sync(keys)
    }

    fn move_value(&self, from: &Key, to: &Key) -> Result<()> {
        self.store.move_value(from, to)
    }

    fn aside(&self) -> Result<Aside> {
        self.store.aside()
    }

    fn declare(&self, aside: &Aside, text: Bytes) -> Result<()> {
        self.store.declare(aside, text)
    }

    fn abandoned(&self) -> Result<Vec<Aside>> {
        self.store.abandoned()
    }

    fn release_idle(&self, quiet: Duration) -> Result<()> {
        self.store.release_idle(quiet)
    }
}

impl ListableStore for CountingStore {
    fn list_dir(&self, prefix: &Prefix) -> Result<Entries> {
        self.calls.lock().lists += 1;
        self.store.list_dir(prefix)
    }

    fn list_prefix(&self, prefix: &Prefix) -> Result<Keys> {
        self.calls.lock().lists += 1;
        self.store.list_prefix(prefix)
    }
}
