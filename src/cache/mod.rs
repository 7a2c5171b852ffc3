//! A cache of decoded chunks, limited in bytes, in which concurrent readers share one decode.
//!
//! A reader that needs a chunk while it is being decoded waits for it. Writes go through the cache
//! too: it returns chunks that were just stored without decoding them, and pending chunks as they
//! were written ([`ChunkCache::defer`]). Lock order: `keys`, then a slot, then the tables.

mod base;
mod pending;
mod write_back;

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Instant, SystemTime};

use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};

use crate::array::{Array, ChunkId, Coords, FillChunks};
use crate::buffer::{self, Buffer};
use crate::error::Result;
use crate::store::{Key, Prefix, Stat, Version};
pub use base::{Base, NewChunk};
pub use pending::Due;
use pending::{PendingChunk, PendingChunks};
use write_back::Merged;
pub use write_back::Stored;

/// Writers of different values share a lock only by chance, so a few locks are enough.
const KEY_LOCKS: usize = 64;

/// Written chunks may use at most `1/WRITTEN_PART` of the cache.
const WRITTEN_PART: u64 = 16;

/// Chunks that one read used a small part of, and that were not read again, may use at most
/// `1/RANDOM_READ_PART` of the cache, and at most `MAX_RANDOM_READ_LEN` bytes.
const RANDOM_READ_PART: u64 = 8;
const MAX_RANDOM_READ_LEN: u64 = 48 << 20;

/// The memory of an entry besides its bytes, which matters for chunks of a few bytes.
const SLOT_LEN: u64 = 512;

/// At most `1/SPARE` of the cache is memory that was freed and can be reused.
const SPARE: u64 = 16;

/// A decoded chunk and the version of the stored value that it came from.
#[derive(Debug, Clone)]
pub struct Chunk {
    /// The elements, little endian and in C order.
    pub bytes: Buffer,
    /// The stat of the stored value when it was read or written.
    pub stat: Stat,
}

impl Chunk {
    /// Returns a pending chunk; `None` if it is to be erased.
    fn of_pending(pending: PendingChunk) -> Option<Self> {
        debug_assert!(!pending.is_unread());
        pending.bytes.map(|bytes| Self { bytes, stat: pending.stat })
    }
}

/// Memory for decoded chunks that other modules use within the limit of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elsewhere {
    /// Chunks and views in memory files that the kernel reads directly.
    MemoryFiles,
    /// Assembled ranges of views.
    Windows,
}

/// The state of a chunk in the cache.
#[derive(Debug)]
pub enum Residency {
    /// The cache has the whole chunk, and it matches the store.
    Ready(Chunk),
    /// The chunk is being decoded, is pending, or must first be compared with the store.
    Pending,
    /// The cache does not have the chunk.
    Absent,
}

/// The result of storing a chunk.
#[derive(Debug, Clone, Copy)]
pub struct PutChunk {
    /// The stat of the stored chunk, `None` if the chunk was erased.
    pub stat: Option<Stat>,
    /// Whether the stored chunk contains elements that other writers stored meanwhile.
    pub is_merged: bool,
}

/// A cache of decoded chunks.
#[derive(Debug)]
pub struct ChunkCache {
    limit: u64,
    /// Bytes that other modules use within the limit, indexed by [`Elsewhere`].
    elsewhere: [AtomicU64; 2],
    /// The cached chunks in order of use. A leaf lock for look-ups, never held while decoding.
    table: Mutex<Table>,
    /// Locks by hash of the key: one writer of a stored value (a chunk or a shard) at a time. Held
    /// while the value is encoded and stored, and taken before the store's own lock.
    keys: Vec<Mutex<()>>,
    /// Chunks that are not stored yet; they take precedence. Its lock is a leaf.
    pending: PendingChunks,
    /// The number and time of the latest change of each array's chunks. A leaf lock.
    generations: Mutex<HashMap<Prefix, (u64, SystemTime)>>,
    counters: Counters,
    /// Chunks that are cached because they were written. A leaf lock.
    written: Mutex<Probation>,
    /// Chunks that one read used a small part of. A leaf lock.
    random_reads: Mutex<Probation>,
}

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

#[derive(Debug)]
struct Table {
    slots: LruCache<ChunkId, Arc<Slot>>,
    len: u64,
}

/// A chunk that is cached or being decoded.
#[derive(Debug)]
struct Slot {
    array: Arc<Array>,
    /// Held while the chunk is read and decoded; other readers of the chunk wait for it.
    chunk: Mutex<Option<Chunk>>,
    /// The bytes that the table counts for it.
    counted: AtomicU64,
    /// When the chunk was last known to match the store. A leaf lock.
    checked: Mutex<Option<Instant>>,
    /// Whether the chunk was read again after it was added to a [`Probation`].
    is_read_again: AtomicBool,
}

/// Counters of the cache, for `.zarrfs/stats`.
#[derive(Debug, Default)]
pub struct Counters {
    /// Chunks found in the cache.
    pub hits: AtomicU64,
    /// Chunks read and decoded.
    pub decoded: AtomicU64,
    /// Chunks that were prefetched, included in `decoded`.
    pub ahead: AtomicU64,
    /// Chunks encoded and stored.
    pub stored: AtomicU64,
    /// Chunks erased.
    pub erased: AtomicU64,
    /// Bytes of chunks after decoding.
    pub decoded_len: AtomicU64,
    /// Bytes of chunks before encoding and storing.
    pub stored_len: AtomicU64,
    /// Nanoseconds that threads spent reading and decoding.
    pub decoding: AtomicU64,
    /// Nanoseconds that threads spent encoding and storing.
    pub storing: AtomicU64,
}

/// Adds the time since `started` to a counter of nanoseconds.
fn add_time(counter: &AtomicU64, started: Instant) {
    let passed = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    counter.fetch_add(passed, Ordering::Relaxed);
}

fn add_len(counter: &AtomicU64, bytes: &[u8]) {
    counter.fetch_add(u64::try_from(bytes.len()).unwrap_or_default(), Ordering::Relaxed);
}

impl Counters {
    /// Counts a chunk whose reading and decoding began at `started`.
    fn count_decoded(&self, bytes: &[u8], started: Instant) {
        self.decoded.fetch_add(1, Ordering::Relaxed);
        add_len(&self.decoded_len, bytes);
        add_time(&self.decoding, started);
    }

    /// Counts a chunk that was stored, or erased if `bytes` is `None`.
    fn count_stored(&self, bytes: Option<&Buffer>) {
        let counter = if bytes.is_some() { &self.stored } else { &self.erased };
        counter.fetch_add(1, Ordering::Relaxed);
        if let Some(bytes) = bytes {
            add_len(&self.stored_len, bytes);
        }
    }
}

impl ChunkCache {
    /// Returns an empty cache for at most `limit` bytes of decoded chunks.
    pub fn new(limit: u64) -> Self {
        let table = Mutex::new(Table { slots: LruCache::unbounded(), len: 0 });
        let keys = (0..KEY_LOCKS).map(|_| Mutex::new(())).collect();
        Self {
            limit,
            elsewhere: Default::default(),
            table,
            keys,
            pending: PendingChunks::default(),
            generations: Mutex::default(),
            counters: Counters::default(),
            written: Mutex::default(),
            random_reads: Mutex::default(),
        }
    }

    /// Returns its counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the bytes of the cached chunks, including their overhead.
    pub fn len(&self) -> u64 {
        self.table.lock().len
    }

    /// Sets how many bytes another module uses, which reduces the room for chunks.
    pub fn set_elsewhere(&self, whose: Elsewhere, len: u64) {
        let [files, windows] = &self.elsewhere;
        match whose {
            Elsewhere::MemoryFiles => files.store(len, Ordering::Relaxed),
            Elsewhere::Windows => windows.store(len, Ordering::Relaxed),
        }
        self.make_room(self.table.lock());
    }

    /// Whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the chunk if all of it is cached, without waiting.
    pub fn peek(&self, array: &Arc<Array>, coords: &Coords) -> Option<Chunk> {
        if let Some(pending) = self.pending_chunk(array, coords) {
            return if pending.is_unread() { None } else { Chunk::of_pending(pending) };
        }
        let slot = Arc::clone(self.table.lock().slots.get(&id(array, coords))?);
        let chunk = slot.chunk.try_lock()?.clone();
        if chunk.is_some() {
            self.counters.hits.fetch_add(1, Ordering::Relaxed);
        }
        chunk
    }

    /// Whether the chunk is cached, pending or being decoded.
    pub fn is_here(&self, array: &Arc<Array>, coords: &Coords) -> bool {
        self.table.lock().slots.contains(&id(array, coords)) || self.is_pending(array, coords)
    }

    /// Returns the chunk, after reading and decoding it if necessary; `None` if it is not stored.
    pub fn get(&self, array: &Arc<Array>, coords: &Coords) -> Result<Option<Chunk>> {
        while let Some(pending) = self.pending_chunk(array, coords) {
            if !pending.is_unread() {
                return Ok(Chunk::of_pending(pending));
            }
            drop(pending);
            self.complete(array, &array.key(coords)?, coords)?;
        }
        let slot = self.slot(array, coords);
        let mut chunk = slot.chunk.lock();
        if let Some(chunk) = &*chunk {
            self.counters.hits.fetch_add(1, Ordering::Relaxed);
            slot.is_read_again.store(true, Ordering::Relaxed);
            return Ok(Some(chunk.clone()));
        }
        let started = Instant::now();
        let read = match array.read_chunk(coords) {
            Ok(Some((bytes, stat))) => {
                self.counters.count_decoded(&bytes, started);
                Ok(Some(Chunk { bytes, stat }))
            }
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        if let Ok(Some(read)) = &read {
            *chunk = Some(read.clone());
            drop(chunk);
            self.count(&id(array, coords), &slot, len_of(read));
        } else {
            drop(chunk);
            self.remove(array, coords);
        }
        read
    }

    /// Like [`Self::get`], but the cached chunk must have matched the store at `since` or later.
    /// `None` accepts any time.
    pub fn get_fresh(
        &self,
        array: &Arc<Array>,
        coords: &Coords,
        since: Option<Instant>,
    ) -> Result<Option<Chunk>> {
        let Some(since) = since else { return self.get(array, coords) };
        let now = Instant::now();
        let known = self.table.lock().slots.peek(&id(array, coords)).map(Arc::clone);
        let is_fresh = |slot: &Arc<Slot>| {
            let checked = *slot.checked.lock();
            checked.is_some_and(|checked| checked >= since)
        };
        match known {
            Some(slot) if !is_fresh(&slot) && self.pending_chunk(array, coords).is_none() => {
                let stored = array.stat(coords)?.map(|stat| stat.version);
                self.keep_only(array, coords, stored);
                *slot.checked.lock() = Some(now);
                self.get(array, coords)
            }
            Some(_) => self.get(array, coords),
            None => {
                let found = self.get(array, coords)?;
                if let Some(slot) = self.table.lock().slots.peek(&id(array, coords)) {
                    *slot.checked.lock() = Some(now);
                }
                Ok(found)
            }
        }
    }

    /// Returns the state of some chunks of an array, without waiting. A chunk is ready only if it
    /// matched the store at `since` or later.
    pub fn peek_many<'c>(
        &self,
        array: &Arc<Array>,
        coords: impl Iterator<Item = &'c Coords> + Clone,
        since: Option<Instant>,
    ) -> Vec<Residency> {
        let mut table = self.table.lock();
        let slot = |coords| table.slots.get(&id(array, coords)).map(Arc::clone);
        let slots: Vec<Option<Arc<Slot>>> = coords.clone().map(slot).collect();
        drop(table);
        coords.zip(slots).map(|(coords, slot)| self.residency(array, coords, slot, since)).collect()
    }

    fn residency(
        &self,
        array: &Arc<Array>,
        coords: &Coords,
        slot: Option<Arc<Slot>>,
        since: Option<Instant>,
    ) -> Residency {
        if let Some(pending) = self.pending_chunk(array, coords) {
            let chunk = if pending.is_unread() { None } else { Chunk::of_pending(pending) };
            return chunk.map_or(Residency::Pending, Residency::Ready);
        }
        let Some(slot) = slot else { return Residency::Absent };
        let is_fresh = |since| slot.checked.lock().is_some_and(|checked| checked >= since);
        if !since.is_none_or(is_fresh) {
            return Residency::Pending;
        }
        let Some(chunk) = slot.chunk.try_lock().and_then(|chunk| chunk.clone()) else {
            return Residency::Pending;
        };
        slot.is_read_again.store(true, Ordering::Relaxed);
        self.counters.hits.fetch_add(1, Ordering::Relaxed);
        Residency::Ready(chunk)
    }

    /// Returns a number that changes whenever a chunk of the array changes in this mount.
    pub fn generation(&self, array: &Array) -> u64 {
        self.generations
            .lock()
            .get(array.prefix())
            .map(|(generation, _)| *generation)
            .unwrap_or_default()
    }

    /// Returns when a chunk of the array last changed in this mount.
    pub fn modified(&self, array: &Array) -> Option<SystemTime> {
        self.generations.lock().get(array.prefix()).map(|(_, modified)| *modified)
    }

    /// Counts a change of one of the array's chunks.
    fn changed(&self, array: &Array) {
        let now = SystemTime::now();
        let mut generations = self.generations.lock();
        if let Some((generation, modified)) = generations.get_mut(array.prefix()) {
            (*generation, *modified) = (generation.wrapping_add(1), now);
        } else {
            generations.insert(array.prefix().clone(), (1, now));
        }
    }

    /// Drops the cached chunk unless it has this version.
    pub fn keep_only(&self, array: &Arc<Array>, coords: &Coords, version: Option<Version>) {
        if let Some(chunk) = self.peek_quietly(array, coords)
            && !Version::holds_of(Some(chunk.stat.version), version)
        {
            self.remove(array, coords);
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
        let slot = self.table.lock().slots.peek(&id(array, coords)).cloned();
        if let Some(slot) = slot
            && let Some(chunk) = &mut *slot.chunk.lock()
            && chunk.stat.version.holds(before)
        {
            chunk.stat.version = after;
        }
    }

    /// Stores a chunk, or erases it if `new` has no bytes. Keeps elements that other writers stored
    /// since the base was read. Afterwards the cache holds the stored bytes.
    pub fn write(
        &self,
        array: &Arc<Array>,
        coords: &Coords,
        new: impl Into<NewChunk>,
        fill: FillChunks,
    ) -> Result<PutChunk> {
        let key = array.key(coords)?;
        let mut new = new.into();
        let _turn = self.lock_key(&key);
        let Merged { mut is_merged, pending } =
            self.merge_pending(array, (&key, coords), &mut new)?;
        // Use the stat of this write: a later `stat` could see the value of another writer.
        let started = Instant::now();
        let rebase = |_: &Coords, new: &mut NewChunk, now: Option<Base>| {
            if let NewChunk { bytes: Some(bytes), base: Some(base) } = new
                && let Some(now) = &now
            {
                is_merged |= base.merge(now, (array, coords), bytes)?;
            }
            new.base = now;
            Ok(())
        };
        let mut chunk = [(coords.clone(), new)];
        let stored = base::write_rebased(
            array,
            &mut chunk,
            fill,
            |new| (new.bytes.as_ref(), new.base.as_ref()),
            rebase,
        )?;
        let [(_, NewChunk { bytes, .. })] = chunk;
        add_time(&self.counters.storing, started);
        self.counters.count_stored(bytes.as_ref());
        let stat = stored.into_iter().next().flatten();
        self.put(array, coords, bytes.clone(), stat);
        if let Some(known) = &pending {
            self.pending.written((&key, coords), known, array, Base::of(bytes, stat))?;
        }
        // A file that is opened before this line may read the old bytes, since no writer knows yet
        // that the new ones are stored.
        self.changed(array);
        Ok(PutChunk { stat, is_merged })
    }

    /// Waits until no other thread writes the value of `key`, and locks it.
    fn lock_key(&self, key: &Key) -> Option<MutexGuard<'_, ()>> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let stripes = u64::try_from(self.keys.len()).unwrap_or(1);
        let stripe = usize::try_from(hasher.finish() % stripes).unwrap_or_default();
        self.keys.get(stripe).map(Mutex::lock)
    }

    fn pending_chunk(&self, array: &Array, coords: &Coords) -> Option<PendingChunk> {
        self.pending.get(array, coords)
    }

    /// Caches what was just stored, and drops what was cached, unless the store returns other bytes
    /// than it was given.
    fn put(&self, array: &Arc<Array>, coords: &Coords, bytes: Option<Buffer>, stat: Option<Stat>) {
        self.remove(array, coords);
        if let (Some(bytes), Some(stat)) = (bytes.filter(|_| array.reads_as_written(coords)), stat)
        {
            let slot = self.slot(array, coords);
            let chunk = Chunk { bytes, stat };
            let len = len_of(&chunk);
            *slot.chunk.lock() = Some(chunk);
            self.count(&id(array, coords), &slot, len);
            self.note_written(&slot, coords, len);
        }
    }

    /// Limits the memory of written chunks: a program that writes an array from end to end reads
    /// none of them.
    fn note_written(&self, slot: &Arc<Slot>, coords: &Coords, len: u64) {
        let gone = self.written.lock().add(slot, coords, len, self.limit / WRITTEN_PART);
        self.remove_slots(gone);
    }

    /// Limits the memory of chunks that one read used a small part of: random reads rarely need a
    /// chunk twice.
    pub fn note_jump(&self, array: &Arc<Array>, coords: &Coords) {
        let slot = self.table.lock().slots.peek(&id(array, coords)).map(Arc::clone);
        let Some(slot) = slot else { return };
        slot.is_read_again.store(false, Ordering::Relaxed);
        let len = slot.counted.load(Ordering::Relaxed);
        let most = (self.limit / RANDOM_READ_PART).min(MAX_RANDOM_READ_LEN);
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

    fn peek_quietly(&self, array: &Arc<Array>, coords: &Coords) -> Option<Chunk> {
        let slot = Arc::clone(self.table.lock().slots.peek(&id(array, coords))?);
        slot.chunk.lock().clone()
    }

    /// Returns the slot of a chunk, an empty one if the chunk is not cached.
    fn slot(&self, array: &Arc<Array>, coords: &Coords) -> Arc<Slot> {
        let new = || {
            let (array, counted) = (Arc::clone(array), AtomicU64::new(0));
            Arc::new(Slot {
                array,
                chunk: Mutex::new(None),
                counted,
                checked: Mutex::new(None),
                is_read_again: AtomicBool::new(false),
            })
        };
        Arc::clone(self.table.lock().slots.get_or_insert(id(array, coords), new))
    }

    /// Counts the bytes of a slot that was filled, and evicts the least recently used chunks.
    fn count(&self, id: &ChunkId, slot: &Arc<Slot>, len: u64) {
        let mut table = self.table.lock();
        // A slot that was removed since it was filled is unreachable and must not be counted.
        if !table.slots.peek(id).is_some_and(|here| Arc::ptr_eq(here, slot)) {
            return;
        }
        let before = slot.counted.swap(len, Ordering::Relaxed);
        table.len = table.len.saturating_sub(before).saturating_add(len);
        self.make_room(table);
    }

    /// Evicts the least recently used chunks until the rest is within the limit.
    fn make_room(&self, mut table: MutexGuard<'_, Table>) {
        let mut gone = Vec::new();
        let elsewhere = self.elsewhere.iter().map(|len| len.load(Ordering::Relaxed));
        let limit = elsewhere.fold(self.limit, u64::saturating_sub);
        // First free unused memory, except a reserve for the next chunks.
        let spare = usize::try_from(limit / SPARE).unwrap_or(usize::MAX);
        let unused = buffer::kept();
        let room = usize::try_from(limit.saturating_sub(table.len)).unwrap_or(usize::MAX);
        let memory = buffer::let_go(unused.saturating_sub(spare.max(room)));
        let limit = limit.saturating_sub(u64::try_from(spare.min(unused)).unwrap_or(u64::MAX));
        while table.len > limit
            && let Some((_, slot)) = table.slots.pop_lru()
        {
            table.len = table.len.saturating_sub(slot.counted.load(Ordering::Relaxed));
            gone.push(slot);
        }
        drop(table);
        drop((gone, memory)); // Freeing memory takes time: not under the lock.
    }

    /// Drops a cached chunk.
    pub fn remove(&self, array: &Arc<Array>, coords: &Coords) {
        self.remove_where(array, coords, |_| true);
    }

    fn remove_where(
        &self,
        array: &Arc<Array>,
        coords: &Coords,
        is_it: impl FnOnce(&Arc<Slot>) -> bool,
    ) {
        let mut table = self.table.lock();
        if !table.slots.peek(&id(array, coords)).is_some_and(is_it) {
            return;
        }
        let gone = table.slots.pop(&id(array, coords));
        if let Some(slot) = &gone {
            debug_assert!(Arc::ptr_eq(&slot.array, array));
            table.len = table.len.saturating_sub(slot.counted.load(Ordering::Relaxed));
        }
        drop(table);
        drop(gone);
    }
}

fn id(array: &Array, coords: &Coords) -> ChunkId {
    (array.id(), coords.clone())
}

fn len_of(chunk: &Chunk) -> u64 {
    u64::try_from(chunk.bytes.len()).unwrap_or(u64::MAX).saturating_add(SLOT_LEN)
}

#[cfg(test)]
mod tests;
