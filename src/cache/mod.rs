//! Decoded chunks, bounded in bytes, one decode per chunk however many ask.
//!
//! A chunk that is asked for while it is being decoded is waited for, not decoded
//! twice. Writes go through here too, so that a chunk that was just stored is found
//! decoded, and one that waits for the others of its shard ([`ChunkCache::hold`]) as it was written.
//! Order of locks: `keys`, then a slot, then the tables.

mod base;
mod waiting;
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
pub use waiting::Due;
use waiting::{Held, Waiting};
use write_back::Merged;
pub use write_back::Stored;

/// Writers of stored values that share a lock by chance wait for one another: a few are enough.
const KEY_LOCKS: usize = 64;

/// Written chunks may use at most `1/WRITTEN_PART` of the cache.
const WRITTEN_PART: u64 = 16;

/// Chunks of which one read took a small part, and that were not read again, may use at most `1/JUMP_PART` of the cache,
/// and at most so many bytes.
const JUMP_PART: u64 = 8;
const MOST_JUMPED_TO: u64 = 48 << 20;

/// What a chunk takes besides its bytes: chunks may have a byte each.
const SLOT_LEN: u64 = 512;

/// This part of the cache is left to memory that is waiting to be used again.
const SPARE: u64 = 16;

/// A decoded chunk and the version of the stored value that it came from.
#[derive(Debug, Clone)]
pub struct Chunk {
    /// Its elements, little endian and in C order.
    pub bytes: Buffer,
    /// What was stored when it was read or written.
    pub stat: Stat,
}

impl Chunk {
    /// One that waits; none where it waits to be erased.
    fn held(held: Held) -> Option<Self> {
        debug_assert!(!held.is_unread());
        held.bytes.map(|bytes| Self { bytes, stat: held.stat })
    }
}

/// What of decoded chunks is kept elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elsewhere {
    /// Chunks, and views, that the kernel reads by itself.
    MemoryFiles,
    /// Parts of views.
    Windows,
}

/// What the cache has of a chunk.
#[derive(Debug)]
pub enum Residency {
    /// All of it, and it is what is stored.
    Ready(Chunk),
    /// It is being decoded or waits to be stored, or must be compared with what is stored first.
    Pending,
    /// Nothing.
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
    /// Bytes that are kept elsewhere, within the same limit: as [`Elsewhere`] says.
    elsewhere: [AtomicU64; 2],
    /// Which chunks are here, in order of use. A leaf: held for look-ups only, never while decoding.
    table: Mutex<Table>,
    /// Writers of one stored value (a chunk, or a shard) take turns here before they take them in the
    /// store. Held over the encoding and storing of the value; nothing else may be held when one is taken.
    keys: Vec<Mutex<()>>,
    /// What is here and not in the store yet: it counts before all else. Its lock is a leaf.
    waiting: Waiting,
    /// How often chunks of an array were changed here. A leaf.
    generations: Mutex<HashMap<Prefix, (u64, SystemTime)>>,
    counters: Counters,
    /// A leaf.
    written: Mutex<Trial>,
    /// Chunks of which one read took a small part. A leaf.
    jumped_to: Mutex<Trial>,
}

/// Chunks that stay only while there are few of them, the oldest first, and their length in all. Each new one takes memory
/// that the kernel has to clear, which costs as much as decoding, unless one before it goes.
#[derive(Debug, Default)]
struct Trial {
    chunks: VecDeque<(Weak<Slot>, Coords, u64)>,
    len: u64,
}

impl Trial {
    /// Adds a chunk, and returns those that are more than `most` bytes.
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

/// A chunk that is here or being decoded.
#[derive(Debug)]
struct Slot {
    array: Arc<Array>,
    /// Held while the chunk is read and decoded: whoever wants the same chunk waits here.
    chunk: Mutex<Option<Chunk>>,
    /// Bytes that the table counts for it.
    counted: AtomicU64,
    /// When it was last known to be what is stored. A leaf.
    checked: Mutex<Option<Instant>>,
    /// Whether it was found here since it was put on trial.
    is_read_again: AtomicBool,
}

/// What the cache has done, for `.zarrfs/stats`.
#[derive(Debug, Default)]
pub struct Counters {
    /// Chunks found decoded.
    pub hits: AtomicU64,
    /// Chunks read and decoded.
    pub decoded: AtomicU64,
    /// Those of them that nobody had asked for.
    pub ahead: AtomicU64,
    /// Chunks encoded and stored.
    pub stored: AtomicU64,
    /// Chunks erased.
    pub erased: AtomicU64,
    /// Bytes that chunks had when they were decoded.
    pub decoded_len: AtomicU64,
    /// Bytes that chunks had before they were encoded and stored.
    pub stored_len: AtomicU64,
    /// Nanoseconds that threads were busy with reading and decoding.
    pub decoding: AtomicU64,
    /// Nanoseconds that threads were busy with encoding and storing.
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
    /// Counts a chunk whose reading and decoding began then.
    fn count_decoded(&self, bytes: &[u8], started: Instant) {
        self.decoded.fetch_add(1, Ordering::Relaxed);
        add_len(&self.decoded_len, bytes);
        add_time(&self.decoding, started);
    }

    /// Counts a chunk that was stored, or erased where it is none.
    fn count_stored(&self, bytes: Option<&Buffer>) {
        let counter = if bytes.is_some() { &self.stored } else { &self.erased };
        counter.fetch_add(1, Ordering::Relaxed);
        if let Some(bytes) = bytes {
            add_len(&self.stored_len, bytes);
        }
    }
}

impl ChunkCache {
    /// An empty cache that holds at most `limit` bytes of decoded chunks.
    pub fn new(limit: u64) -> Self {
        let table = Mutex::new(Table { slots: LruCache::unbounded(), len: 0 });
        let keys = (0..KEY_LOCKS).map(|_| Mutex::new(())).collect();
        Self {
            limit,
            elsewhere: Default::default(),
            table,
            keys,
            waiting: Waiting::default(),
            generations: Mutex::default(),
            counters: Counters::default(),
            written: Mutex::default(),
            jumped_to: Mutex::default(),
        }
    }

    /// What it has done so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Bytes of decoded chunks that are here, with what it takes to keep them.
    pub fn len(&self) -> u64 {
        self.table.lock().len
    }

    /// Notes how many bytes are kept elsewhere: there is so much less room here.
    pub fn set_elsewhere(&self, whose: Elsewhere, len: u64) {
        let [files, windows] = &self.elsewhere;
        match whose {
            Elsewhere::MemoryFiles => files.store(len, Ordering::Relaxed),
            Elsewhere::Windows => windows.store(len, Ordering::Relaxed),
        }
        self.make_room(self.table.lock());
    }

    /// Whether nothing is here.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The chunk if all of it is here, without waiting for anything.
    pub fn peek(&self, array: &Arc<Array>, coords: &Coords) -> Option<Chunk> {
        if let Some(held) = self.held(array, coords) {
            return if held.is_unread() { None } else { Chunk::held(held) };
        }
        let slot = Arc::clone(self.table.lock().slots.get(&id(array, coords))?);
        let chunk = slot.chunk.try_lock()?.clone();
        if chunk.is_some() {
            self.counters.hits.fetch_add(1, Ordering::Relaxed);
        }
        chunk
    }

    /// Whether the chunk is here, or on its way.
    pub fn is_here(&self, array: &Arc<Array>, coords: &Coords) -> bool {
        self.table.lock().slots.contains(&id(array, coords)) || self.waits_at(array, coords)
    }

    /// The chunk, read and decoded if need be; `None` where it is not stored.
    pub fn get(&self, array: &Arc<Array>, coords: &Coords) -> Result<Option<Chunk>> {
        while let Some(held) = self.held(array, coords) {
            if !held.is_unread() {
                return Ok(Chunk::held(held));
            }
            drop(held);
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

    /// As [`Self::get`], where what is here must have been what is stored at `since`, or later; where that is not given,
    /// at any time.
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
            Some(slot) if !is_fresh(&slot) && self.held(array, coords).is_none() => {
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

    /// What is here of some chunks of an array, without waiting for anything. A chunk is ready only if it was what is
    /// stored at `since` or later.
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
        if let Some(held) = self.held(array, coords) {
            let chunk = if held.is_unread() { None } else { Chunk::held(held) };
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

    /// A number that is another one whenever a chunk of an array was changed here.
    pub fn generation(&self, array: &Array) -> u64 {
        self.generations
            .lock()
            .get(array.prefix())
            .map(|(generation, _)| *generation)
            .unwrap_or_default()
    }

    /// When a chunk of an array was changed here last.
    pub fn modified(&self, array: &Array) -> Option<SystemTime> {
        self.generations.lock().get(array.prefix()).map(|(_, modified)| *modified)
    }

    /// Notes that a chunk of an array is another one.
    fn changed(&self, array: &Array) {
        let now = SystemTime::now();
        let mut generations = self.generations.lock();
        if let Some((generation, modified)) = generations.get_mut(array.prefix()) {
            (*generation, *modified) = (generation.wrapping_add(1), now);
        } else {
            generations.insert(array.prefix().clone(), (1, now));
        }
    }

    /// Forgets the chunk unless it is of this version.
    pub fn keep_only(&self, array: &Arc<Array>, coords: &Coords, version: Option<Version>) {
        if let Some(chunk) = self.peek_quietly(array, coords)
            && !Version::holds_of(Some(chunk.stat.version), version)
        {
            self.remove(array, coords);
        }
    }

    /// Notes that the chunk, if it is here as the version `before`, is stored as another one now, with the
    /// same bytes.
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

    /// Stores a chunk, or erases it if `new` has no bytes. Elements that other writers stored since
    /// the base was read are kept. Afterwards the cache holds the stored bytes.
    pub fn write(
        &self,
        array: &Arc<Array>,
        coords: &Coords,
        new: impl Into<NewChunk>,
        fill: FillChunks,
    ) -> Result<PutChunk> {
        let key = array.key(coords)?;
        let mut new = new.into();
        let _turn = self.turn(&key);
        let Merged { mut is_merged, waits } =
            self.merge_waiting(array, (&key, coords), &mut new)?;
        // The stat comes from this write: a later `stat` could see the value of another writer.
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
        if let Some(known) = &waits {
            self.waiting.written((&key, coords), known, array, Base::of(bytes, stat))?;
        }
        // A file that is opened before this line may read the old bytes: no writer knows yet that the
        // new ones are stored.
        self.changed(array);
        Ok(PutChunk { stat, is_merged })
    }

    /// The turn of those who write the value of `key`.
    fn turn(&self, key: &Key) -> Option<MutexGuard<'_, ()>> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let stripes = u64::try_from(self.keys.len()).unwrap_or(1);
        let stripe = usize::try_from(hasher.finish() % stripes).unwrap_or_default();
        self.keys.get(stripe).map(Mutex::lock)
    }

    fn held(&self, array: &Array, coords: &Coords) -> Option<Held> {
        self.waiting.get(array, coords)
    }

    /// Keeps what was just stored, in the place of what was here; nothing where the store gives other bytes.
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

    /// Notes that a chunk is kept because it was written, and lets go of older ones, since a program that writes an array
    /// from end to end reads none of them.
    fn note_written(&self, slot: &Arc<Slot>, coords: &Coords, len: u64) {
        let gone = self.written.lock().add(slot, coords, len, self.limit / WRITTEN_PART);
        self.remove_slots(gone);
    }

    /// Notes that one read took a small part of a chunk, and lets go of older ones that were not read again, since a
    /// program that reads at random places needs few of them twice.
    pub fn note_jump(&self, array: &Arc<Array>, coords: &Coords) {
        let slot = self.table.lock().slots.peek(&id(array, coords)).map(Arc::clone);
        let Some(slot) = slot else { return };
        slot.is_read_again.store(false, Ordering::Relaxed);
        let len = slot.counted.load(Ordering::Relaxed);
        let most = (self.limit / JUMP_PART).min(MOST_JUMPED_TO);
        let gone = self.jumped_to.lock().add(&slot, coords, len, most);
        let is_unread =
            |(slot, _): &(Arc<Slot>, Coords)| !slot.is_read_again.load(Ordering::Relaxed);
        self.remove_slots(gone.into_iter().filter(is_unread));
    }

    fn remove_slots(&self, gone: impl IntoIterator<Item = (Arc<Slot>, Coords)>) {
        for (slot, coords) in gone {
            // A chunk that was written or read again since has another slot.
            self.remove_where(&slot.array, &coords, |here| Arc::ptr_eq(here, &slot));
        }
    }

    fn peek_quietly(&self, array: &Arc<Array>, coords: &Coords) -> Option<Chunk> {
        let slot = Arc::clone(self.table.lock().slots.peek(&id(array, coords))?);
        slot.chunk.lock().clone()
    }

    /// The slot of a chunk, made if need be.
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

    /// Counts the bytes of a slot that has been filled, and lets go of the chunks that were not used for longest.
    fn count(&self, id: &ChunkId, slot: &Arc<Slot>, len: u64) {
        let mut table = self.table.lock();
        // Between filling the slot and here it may have been removed: then nobody will find it.
        if !table.slots.peek(id).is_some_and(|here| Arc::ptr_eq(here, slot)) {
            return;
        }
        let before = slot.counted.swap(len, Ordering::Relaxed);
        table.len = table.len.saturating_sub(before).saturating_add(len);
        self.make_room(table);
    }

    /// Lets go of what was used longest ago until the rest is within the limit.
    fn make_room(&self, mut table: MutexGuard<'_, Table>) {
        let mut gone = Vec::new();
        let elsewhere = self.elsewhere.iter().map(|len| len.load(Ordering::Relaxed));
        let limit = elsewhere.fold(self.limit, u64::saturating_sub);
        // Memory that nobody uses goes first, but for what the next chunks will want.
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

    /// Lets go of a decoded chunk.
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
