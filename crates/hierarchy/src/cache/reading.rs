//! Chunks as readers get them: from the cache, or decoded for all who wait.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::chunk::{DecodedChunk, Residency};
use super::chunk_cache::ChunkCache;
use super::slots::Slot;
use crate::array::{Array, Coords};
use zarrfs_base::error::Result;
use zarrfs_base::waiting;

/// How often a chunk is read again because a writer stored another one meanwhile.
const ATTEMPTS: usize = 16;

/// The result of reading a chunk.
struct ChunkRead {
    chunk: Result<Option<DecodedChunk>>,
    /// Whether the slot it was read into was not replaced by a writer meanwhile.
    is_current: bool,
}

impl ChunkCache {
    /// Returns the chunk if all of it is cached, without waiting.
    pub fn peek(&self, array: &Arc<Array>, coords: &Coords) -> Option<DecodedChunk> {
        if self.is_pending_elsewhere(array, coords) {
            return None;
        }
        if let Some(pending) = self.pending_chunk(array, coords) {
            return if pending.is_unread() { None } else { DecodedChunk::of_pending(pending) };
        }
        let slot = self.slots.find(array, coords)?;
        let chunk = slot.peek();
        if chunk.is_some() {
            self.counters.hits.fetch_add(1, Ordering::Relaxed);
        }
        chunk
    }

    /// Whether the chunk is cached, pending or being decoded.
    pub fn is_here(&self, array: &Arc<Array>, coords: &Coords) -> bool {
        self.slots.contains(array, coords) || self.is_pending(array, coords)
    }

    /// Returns the chunk, after reading and decoding it if necessary; `None` if it is not stored.
    pub fn get(&self, array: &Arc<Array>, coords: &Coords) -> Result<Option<DecodedChunk>> {
        self.settle_forms(array, coords)?;
        self.get_in_form(array, coords)
    }

    /// Like [`Self::get`], for a caller that has locked the key of the chunk.
    fn get_in_form(&self, array: &Arc<Array>, coords: &Coords) -> Result<Option<DecodedChunk>> {
        while let Some(pending) = self.pending_chunk(array, coords) {
            if !pending.is_unread() {
                return Ok(DecodedChunk::of_pending(pending));
            }
            drop(pending);
            self.complete(array, &array.key(coords)?, coords)?;
        }
        let mut read = self.get_stored(array, coords);
        for _ in 1..ATTEMPTS {
            if read.is_current {
                break;
            }
            read = self.get_stored(array, coords);
        }
        read.chunk
    }

    /// Returns the chunk from its slot, which it fills if necessary.
    fn get_stored(&self, array: &Arc<Array>, coords: &Coords) -> ChunkRead {
        let slot = self.slots.slot(array, coords);
        let is_current = || !slot.is_replaced.load(Ordering::Relaxed);
        let mut chunk = match waiting::lock(&slot.chunk) {
            Ok(chunk) => chunk,
            Err(error) => return ChunkRead { chunk: Err(error), is_current: true },
        };
        slot.drop_outdated(&mut chunk);
        if let Some(chunk) = &*chunk {
            self.counters.hits.fetch_add(1, Ordering::Relaxed);
            slot.is_read_again.store(true, Ordering::Relaxed);
            return ChunkRead { chunk: Ok(Some(chunk.clone())), is_current: is_current() };
        }
        let started = Instant::now();
        let read = match array.read_chunk_within(coords, |len| self.slots.draw_to_decode(len)) {
            Ok(Some((bytes, stat))) => {
                self.counters.count_decoded(&bytes, started);
                Ok(Some(DecodedChunk { bytes, stat }))
            }
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        if let Ok(Some(read)) = &read {
            *chunk = Some(read.clone());
            drop(chunk);
            self.slots.count_read(array, coords, &slot, read);
        } else {
            drop(chunk);
            self.remove(array, coords);
        }
        ChunkRead { chunk: read, is_current: is_current() }
    }

    /// Like [`Self::get`], but the cached chunk must have matched the store at `since` or later.
    /// `None` accepts any time.
    pub fn get_fresh(
        &self,
        array: &Arc<Array>,
        coords: &Coords,
        since: Option<Instant>,
    ) -> Result<Option<DecodedChunk>> {
        self.settle_forms(array, coords)?;
        self.get_fresh_in_form(array, coords, since)
    }

    /// Like [`Self::get_fresh`], for a caller that has locked the key of the chunk.
    pub(super) fn get_fresh_in_form(
        &self,
        array: &Arc<Array>,
        coords: &Coords,
        since: Option<Instant>,
    ) -> Result<Option<DecodedChunk>> {
        let Some(since) = since else { return self.get_in_form(array, coords) };
        let now = Instant::now();
        let known = self.slots.peek(array, coords);
        let is_fresh = |slot: &Arc<Slot>| {
            let checked = *slot.checked.lock();
            checked.is_some_and(|checked| checked >= since)
        };
        match known {
            Some(slot) if !is_fresh(&slot) && self.pending_chunk(array, coords).is_none() => {
                let stored = array.stat(coords)?.map(|stat| stat.version);
                self.keep_only(array, coords, stored);
                *slot.checked.lock() = Some(now);
                self.get_in_form(array, coords)
            }
            Some(_) => self.get_in_form(array, coords),
            None => {
                let found = self.get_in_form(array, coords)?;
                if let Some(slot) = self.slots.peek(array, coords) {
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
        let slots = self.slots.find_many(array, coords.clone());
        coords.zip(slots).map(|(coords, slot)| self.residency(array, coords, slot, since)).collect()
    }

    fn residency(
        &self,
        array: &Arc<Array>,
        coords: &Coords,
        slot: Option<Arc<Slot>>,
        since: Option<Instant>,
    ) -> Residency {
        if self.is_pending_elsewhere(array, coords) {
            return Residency::Pending;
        }
        if let Some(pending) = self.pending_chunk(array, coords) {
            let chunk = if pending.is_unread() { None } else { DecodedChunk::of_pending(pending) };
            return chunk.map_or(Residency::Pending, Residency::Ready);
        }
        let Some(slot) = slot else { return Residency::Absent };
        let is_fresh = |since| slot.checked.lock().is_some_and(|checked| checked >= since);
        if !since.is_none_or(is_fresh) {
            return Residency::Pending;
        }
        let Some(chunk) = slot.peek() else { return Residency::Pending };
        slot.is_read_again.store(true, Ordering::Relaxed);
        self.counters.hits.fetch_add(1, Ordering::Relaxed);
        Residency::Ready(chunk)
    }
}
