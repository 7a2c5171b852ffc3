//! The decoded chunks of the cache in order of use, within a limit in bytes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};

use super::chunk::DecodedChunk;
use crate::array::{Array, ChunkId, Coords};
use zarrfs_base::bounded::{Bounded, MapLimits};
use zarrfs_base::budget::{Budget, Lease, Purpose};
use zarrfs_base::buffer::{self, Buffer};
use zarrfs_base::width::{ToU64, ToUsize};
use zarrfs_store::{Stat, Version};

/// Written chunks may use at most `1/WRITTEN_PART` of the cache.
const WRITTEN_PART: u64 = 16;

/// Chunks that one read used a small part of, and that were not read again, may use at most
/// `1/RANDOM_READ_PART` of the cache, and at most `MAX_RANDOM_READ_LEN` bytes.
const RANDOM_READ_PART: u64 = 8;

const MAX_RANDOM_READ_LEN: u64 = 48 << 20;

/// The memory of an entry besides its bytes and coordinates, which matters for chunks of a few
/// bytes.
const SLOT_LEN: u64 = 512;

/// The memory of an index: one in the table, and one in a [`Probation`].
const INDEX_LEN: u64 = 16;

/// At most `1/SPARE` of the cache is memory that was freed and can be reused.
const SPARE: u64 = 16;

/// Chunks that may use little of the cache, the oldest first, and their total length. Without this
/// limit each of them takes memory that the kernel has to clear, which costs as much as decoding.
#[derive(Debug, Default)]
struct Probation {
    chunks: VecDeque<(Weak<Slot>, Coords, u64)>,
    len: u64,
}

impl Probation {
    /// Adds a chunk, and returns the oldest ones that exceed `most` bytes.
    fn add(
        &mut self,
        slot: &Arc<Slot>,
        coords: &Coords,
        len: u64,
        most: u64,
    ) -> Vec<(Arc<Slot>, Coords)> {
        self.len = self.len.saturating_add(len);
        self.chunks.push_back((Arc::downgrade(slot), coords.clone(), len));
        let mut gone = Vec::new();
        while self.len > most && self.chunks.len() > 1 {
            if let Some((slot, coords, len)) = self.chunks.pop_front() {
                self.len = self.len.saturating_sub(len);
                gone.extend(slot.upgrade().map(|slot| (slot, coords)));
            }
        }
        gone
    }
}

/// Slots by chunk, each with the bytes of its chunk once it is filled.
type SlotTable = Bounded<ChunkId, Arc<Slot>>;

/// A chunk that is cached or being decoded.
#[derive(Debug)]
pub(super) struct Slot {
    array: Arc<Array>,
    /// Held while the chunk is read and decoded; other readers of the chunk wait for it.
    pub chunk: Mutex<Option<DecodedChunk>>,
    /// When the chunk was last known to match the store. A leaf lock.
    pub checked: Mutex<Option<Instant>>,
    /// The version that an opener saw in the store, until it is compared with that of `chunk`. With
    /// this an opener need not wait for a reader that has locked `chunk`. A leaf lock.
    stored: Mutex<Option<StoredVersion>>,
    /// Whether the chunk was read again after it was added to a [`Probation`].
    pub is_read_again: AtomicBool,
    /// Whether a writer has put another slot in its place. A reader that still fills this one may
    /// read a newer value than the one in its place, and others would then go back to that.
    pub is_replaced: AtomicBool,
}

/// The version of a chunk in the store; `None` if it is not stored.
#[derive(Debug)]
struct StoredVersion(Option<Version>);

impl Slot {
    /// Empties the slot if it has another version than an opener saw in the store, and returns
    /// whether it did. A reader calls this after it locked `chunk`.
    pub fn drop_outdated(&self, chunk: &mut Option<DecodedChunk>) -> bool {
        let seen = self.stored.lock().take();
        let gone = chunk.take_if(|chunk| {
            seen.is_some_and(|StoredVersion(version)| {
                !Version::holds_of(Some(chunk.stat.version), version)
            })
        });
        gone.is_some()
    }

    /// Returns the chunk if it is here and nobody has locked it.
    pub fn peek(&self) -> Option<DecodedChunk> {
        let mut chunk = self.chunk.try_lock()?;
        self.drop_outdated(&mut chunk);
        chunk.clone()
    }
}

fn id(array: &Array, coords: &Coords) -> ChunkId {
    (array.id(), coords.clone())
}

fn len_of(chunk: &DecodedChunk, coords: &Coords) -> u64 {
    let rank = coords.indices().len().to_u64();
    let beside = rank.saturating_mul(INDEX_LEN).saturating_add(SLOT_LEN);
    chunk.bytes.len().to_u64().saturating_add(beside)
}

/// Decoded chunks, each in a slot.
#[derive(Debug)]
pub(super) struct Slots {
    budget: Arc<Budget>,
    /// The bytes of `table`, set while it is locked.
    memory: Lease,
    /// The cached chunks in order of use. A leaf lock for look-ups, never held while decoding.
    table: Mutex<SlotTable>,
    /// Chunks that are cached because they were written. A leaf lock.
    written: Mutex<Probation>,
    /// Chunks that one read used a small part of. A leaf lock.
    random_reads: Mutex<Probation>,
}

impl Slots {
    /// Returns an empty table, which may use what the other users of `budget` leave.
    pub fn new(budget: Arc<Budget>) -> Self {
        Self {
            memory: budget.lease(Purpose::Chunks),
            budget,
            table: Mutex::new(SlotTable::new(MapLimits::NONE)),
            written: Mutex::default(),
            random_reads: Mutex::default(),
        }
    }

    /// Returns how many slots there are.
    #[cfg(test)]
    pub fn slot_count(&self) -> usize {
        self.table.lock().count()
    }

    /// Returns the slot of a chunk if there is one, as the most recently used.
    pub fn find(&self, array: &Array, coords: &Coords) -> Option<Arc<Slot>> {
        self.table.lock().get(&id(array, coords)).map(Arc::clone)
    }

    /// Returns the slots of several chunks, as [`Self::find`] does.
    pub fn find_many<'c>(
        &self,
        array: &Array,
        coords: impl Iterator<Item = &'c Coords>,
    ) -> Vec<Option<Arc<Slot>>> {
        let mut table = self.table.lock();
        coords.map(|coords| table.get(&id(array, coords)).map(Arc::clone)).collect()
    }

    /// Returns the slot of a chunk if there is one, without using it.
    pub fn peek(&self, array: &Array, coords: &Coords) -> Option<Arc<Slot>> {
        self.table.lock().peek(&id(array, coords)).map(Arc::clone)
    }

    /// Whether a chunk has a slot.
    pub fn contains(&self, array: &Array, coords: &Coords) -> bool {
        self.table.lock().contains(&id(array, coords))
    }

    /// Returns the bytes of the cached chunks, including their overhead.
    pub fn len(&self) -> u64 {
        self.memory.len()
    }

    /// Returns the most bytes of all users of the cache.
    fn limit(&self) -> u64 {
        self.budget.limit(Purpose::Chunks)
    }

    /// Draws the memory of a chunk that is about to be decoded.
    pub fn draw_to_decode(&self, len: u64) -> Lease {
        self.budget.draw(Purpose::Decoding, len)
    }

    /// Evicts chunks that exceed what the other users of the budget leave.
    pub fn give_way(&self) {
        self.make_room(self.table.lock());
    }

    /// Drops the cached chunk unless it has this version. If it is being read, the next reader
    /// compares.
    pub fn keep_only(&self, array: &Arc<Array>, coords: &Coords, version: Option<Version>) {
        let Some(slot) = self.peek(array, coords) else { return };
        *slot.stored.lock() = Some(StoredVersion(version));
        let Some(mut chunk) = slot.chunk.try_lock() else { return };
        let is_outdated = slot.drop_outdated(&mut chunk);
        drop(chunk);
        if is_outdated {
            self.remove_where(array, coords, |here| Arc::ptr_eq(here, &slot));
        }
    }

    /// Changes the version of the cached chunk from `before` to `after`, which has the same bytes.
    pub fn set_version(
        &self,
        array: &Arc<Array>,
        coords: &Coords,
        before: Version,
        after: Version,
    ) {
        let slot = self.peek(array, coords);
        if let Some(slot) = slot
            && let Some(chunk) = &mut *slot.chunk.lock()
            && chunk.stat.version.holds(before)
        {
            chunk.stat.version = after;
        }
    }

    /// Caches what was just stored, and drops what was cached, unless the store returns other bytes
    /// than it was given.
    pub fn put(
        &self,
        array: &Arc<Array>,
        coords: &Coords,
        bytes: Option<Buffer>,
        stat: Option<Stat>,
    ) {
        self.remove_where(array, coords, |slot| {
            slot.is_replaced.store(true, Ordering::Relaxed);
            true
        });
        if let (Some(bytes), Some(stat)) = (bytes.filter(|_| array.reads_as_written(coords)), stat)
        {
            let slot = self.slot(array, coords);
            let chunk = DecodedChunk { bytes, stat };
            let len = len_of(&chunk, coords);
            *slot.chunk.lock() = Some(chunk);
            self.count(&id(array, coords), &slot, len);
            self.note_written(&slot, coords, len);
        }
    }

    /// Limits the memory of written chunks: a program that writes an array from end to end reads
    /// none of them.
    fn note_written(&self, slot: &Arc<Slot>, coords: &Coords, len: u64) {
        let gone = self.written.lock().add(slot, coords, len, self.limit() / WRITTEN_PART);
        self.remove_slots(gone);
    }

    /// Limits the memory of chunks that one read used a small part of: random reads rarely need a
    /// chunk twice.
    pub fn note_jump(&self, array: &Arc<Array>, coords: &Coords) {
        let id = id(array, coords);
        let table = self.table.lock();
        let found = table.peek(&id).map(Arc::clone).zip(table.len_of(&id));
        drop(table);
        let Some((slot, len)) = found else { return };
        slot.is_read_again.store(false, Ordering::Relaxed);
        let most = (self.limit() / RANDOM_READ_PART).min(MAX_RANDOM_READ_LEN);
        let gone = self.random_reads.lock().add(&slot, coords, len, most);
        let is_unread =
            |(slot, _): &(Arc<Slot>, Coords)| !slot.is_read_again.load(Ordering::Relaxed);
        self.remove_slots(gone.into_iter().filter(is_unread));
    }

    fn remove_slots(&self, gone: impl IntoIterator<Item = (Arc<Slot>, Coords)>) {
        for (slot, coords) in gone {
            // A chunk that was written or read again since is in another slot.
            self.remove_where(&slot.array, &coords, |here| Arc::ptr_eq(here, &slot));
        }
    }

    /// Returns the slot of a chunk, an empty one if the chunk is not cached.
    pub fn slot(&self, array: &Arc<Array>, coords: &Coords) -> Arc<Slot> {
        let new = || {
            Arc::new(Slot {
                array: Arc::clone(array),
                chunk: Mutex::new(None),
                // Its chunk will be read from the store after this.
                checked: Mutex::new(Some(Instant::now())),
                stored: Mutex::new(None),
                is_read_again: AtomicBool::new(false),
                is_replaced: AtomicBool::new(false),
            })
        };
        Arc::clone(self.table.lock().get_or_insert(id(array, coords), new))
    }

    /// Counts the bytes of a slot that was filled, and evicts the least recently used chunks.
    fn count(&self, id: &ChunkId, slot: &Arc<Slot>, len: u64) {
        let mut table = self.table.lock();
        // A slot that was removed since it was filled is unreachable and must not be counted.
        if !table.peek(id).is_some_and(|here| Arc::ptr_eq(here, slot)) {
            return;
        }
        let evicted = table.set_len(id, len);
        debug_assert!(evicted.is_empty(), "`make_room` does that");
        self.make_room(table);
    }

    /// Evicts the least recently used chunks until the rest is within the limit.
    fn make_room(&self, mut table: MutexGuard<'_, SlotTable>) {
        let limit = self.budget.room_for_chunks();
        let unused = buffer::cached_len().to_u64();
        let gone = table.shrink_to(limit.saturating_sub(unused.min(limit / SPARE)));
        let memory = self.count_table(&table);
        drop(table);
        drop((gone, memory)); // Freeing memory takes time: not under the lock.
    }

    /// Counts the bytes of the table, and leaves what nobody has drawn to unused memory: at least a
    /// reserve for the next chunks, and what is drawn for chunks that are being decoded. Returns
    /// the unused memory that exceeds this.
    fn count_table(&self, table: &SlotTable) -> Vec<Vec<u8>> {
        self.memory.set_len(table.len());
        let limit = self.budget.room_for_chunks();
        let left = limit.saturating_sub(table.len()).max(limit / SPARE);
        let left = left.saturating_add(self.budget.drawn(Purpose::Decoding));
        buffer::leave(left.to_usize())
    }

    /// Counts a chunk that was read into its slot.
    pub fn count_read(
        &self,
        array: &Array,
        coords: &Coords,
        slot: &Arc<Slot>,
        chunk: &DecodedChunk,
    ) {
        self.count(&id(array, coords), slot, len_of(chunk, coords));
    }

    /// Drops a cached chunk.
    pub fn remove(&self, array: &Arc<Array>, coords: &Coords) {
        self.remove_where(array, coords, |_| true);
    }

    /// Drops all chunks of an array.
    pub fn remove_all(&self, array: &Array) {
        let mut table = self.table.lock();
        table.retain(|(id, _), _| *id != array.id());
        let memory = self.count_table(&table);
        drop(table);
        drop(memory);
    }

    fn remove_where(
        &self,
        array: &Arc<Array>,
        coords: &Coords,
        is_it: impl FnOnce(&Arc<Slot>) -> bool,
    ) {
        let mut table = self.table.lock();
        if !table.peek(&id(array, coords)).is_some_and(is_it) {
            return;
        }
        let gone = table.remove(&id(array, coords));
        debug_assert!(gone.as_ref().is_none_or(|slot| Arc::ptr_eq(&slot.array, array)));
        let memory = self.count_table(&table);
        drop(table);
        drop((gone, memory));
    }
}
