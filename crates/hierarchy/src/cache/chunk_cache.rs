//! The cache itself: decoded chunks, pending chunks, and the locks of writers.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

use parking_lot::{Mutex, MutexGuard};

use super::base::ChunkBase;
use super::changes::ChunkChanges;
use super::counters::Counters;
use super::forms::StoreValue;
use super::pending::{ChunkAt, PendingChunk, PendingChunks};
use super::slots::Slots;
use crate::array::{Array, Coords};
use zarrfs_base::budget::{Budget, Purpose};
use zarrfs_base::error::Result;
use zarrfs_base::width::ToUsize;
use zarrfs_store::{Key, Version};

/// Writers of different values share a lock only by chance, so a few locks are enough.
const KEY_LOCKS: usize = 64;

/// A cache of decoded chunks.
pub struct ChunkCache {
    /// The decoded chunks.
    pub(super) slots: Arc<Slots>,
    /// Locks by hash of the key: one writer of a stored value (a chunk or a shard) at a time. Held
    /// while the value is encoded and stored, and taken before the store's own lock.
    keys: Vec<Mutex<()>>,
    /// Chunks that are not stored yet; they take precedence. Its lock is a leaf.
    pub(super) pending: PendingChunks,
    pub(super) changes: ChunkChanges,
    /// Stores a value, for [`super::forms`]. Unset without a mount.
    pub(super) store_value: OnceLock<StoreValue>,
    pub(super) counters: Counters,
}

impl fmt::Debug for ChunkCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunkCache").field("slots", &self.slots).finish_non_exhaustive()
    }
}

impl ChunkCache {
    /// Returns an empty cache for at most `limit` bytes of decoded chunks.
    pub fn new(limit: u64) -> Self {
        Self::within(&Budget::new(limit, u64::MAX))
    }

    /// Returns an empty cache that gives memory to the other users of `budget`.
    pub fn within(budget: &Arc<Budget>) -> Self {
        let slots = Arc::new(Slots::new(Arc::clone(budget)));
        let to_shrink = Arc::downgrade(&slots);
        budget.evict_with(move || {
            if let Some(slots) = to_shrink.upgrade() {
                slots.give_way();
            }
        });
        Self {
            slots,
            keys: (0..KEY_LOCKS).map(|_| Mutex::new(())).collect(),
            pending: PendingChunks::new(budget.lease(Purpose::Unstored)),
            changes: ChunkChanges::default(),
            store_value: OnceLock::new(),
            counters: Counters::default(),
        }
    }

    /// Returns its counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the bytes of the cached chunks, including their overhead.
    pub fn len(&self) -> u64 {
        self.slots.len()
    }

    /// Whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until no other thread writes the value of `key`, and locks it.
    pub(super) fn lock_key(&self, key: &Key) -> Option<MutexGuard<'_, ()>> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let stripes = u64::try_from(self.keys.len()).unwrap_or(1);
        let stripe = (hasher.finish() % stripes).to_usize();
        self.keys.get(stripe).map(Mutex::lock)
    }

    pub(super) fn pending_chunk(&self, array: &Array, coords: &Coords) -> Option<PendingChunk> {
        self.pending.get(array, coords)
    }

    /// Reads the bytes of a pending chunk that were not written.
    pub(super) fn complete(&self, array: &Array, key: &Key, coords: &Coords) -> Result<()> {
        let Some(begun) = self.pending.unread_since(key, coords) else { return Ok(()) };
        let started = Instant::now();
        let stored = ChunkBase::read(array, coords)?;
        if let ChunkBase::Stored(bytes, _) = &stored {
            self.counters.count_decoded(bytes, started);
        }
        self.pending.complete(ChunkAt { key, coords }, begun, stored)
    }

    /// Whether a chunk is pending, to be stored or erased.
    pub fn is_pending(&self, array: &Array, coords: &Coords) -> bool {
        self.pending_chunk(array, coords).is_some()
    }

    /// Limits the memory of chunks that one read used a small part of: random reads rarely need a
    /// chunk twice.
    pub fn note_jump(&self, array: &Arc<Array>, coords: &Coords) {
        self.slots.note_jump(array, coords);
    }

    /// Drops a cached chunk.
    pub fn remove(&self, array: &Arc<Array>, coords: &Coords) {
        self.slots.remove(array, coords);
    }

    /// Drops the cached chunk unless it has this version.
    pub fn keep_only(&self, array: &Arc<Array>, coords: &Coords, version: Option<Version>) {
        self.slots.keep_only(array, coords, version);
    }

    /// Changes the version of the cached chunk from `before` to `after`, which has the same bytes.
    pub fn set_version(
        &self,
        array: &Arc<Array>,
        coords: &Coords,
        before: Version,
        after: Version,
    ) {
        self.slots.set_version(array, coords, before, after);
    }

    /// Returns a number that changes whenever a chunk of the array changes in this mount.
    pub fn generation(&self, array: &Array) -> u64 {
        self.changes.generation(array)
    }

    /// Returns when a chunk of the array last changed in this mount.
    pub fn modified(&self, array: &Array) -> Option<SystemTime> {
        self.changes.modified(array)
    }

    /// Counts a change of one of the array's chunks.
    pub(super) fn changed(&self, array: &Array) {
        self.changes.changed(array);
    }
}
