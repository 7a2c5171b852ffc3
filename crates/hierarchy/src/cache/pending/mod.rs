//! Chunks that were written and are not stored yet.
//!
//! Every reader sees them as part of the array: a pending chunk is read, listed and measured as if
//! it were stored, and a chunk that is to be erased is absent. All pending chunks of one stored
//! value, a shard, are stored as one change of it. If they cannot be stored, they stay pending.
//!
//! Every reader asks the cache (`get`, `stat`, `list_dir`, `has_chunks`), which puts pending chunks
//! over stored ones, so no module above knows which is which. A pending chunk has a version of its
//! own (`Version::unstored`). When it is stored, the kernel's pages stay valid under the version of
//! the store.
//!
//! An inner chunk of a shard is pending until the others arrive. Any chunk is pending if the store
//! did not take it. With `--writeback=all` every chunk is pending until a thread is free to encode
//! it. So there is one place to retry, to report and to rescue from. Only `ChunkWriter` of `vfs`
//! decides when to store: `close`, `fsync`, the ticker and memory pressure all call it.
//!
//! A chunk that is written through a view may be pending before all of its bytes are known.
//! `Unread` names the range that was written. The rest is read when a program reads or stores the
//! chunk, or writes elsewhere in it. If that read fails, the chunk stays pending and only this
//! failure is reported.

mod chunk;
mod storing;
mod table;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use chunk::Unread;
pub(super) use chunk::{Begin, ChunkAt, Destination, PendingChanged, PendingChunk, PendingState};
use table::{PendingTable, Shard};

use super::base::{ChunkBase, NewChunk};
use crate::array::region::Cover;
use crate::array::{Array, Coords};
use crate::metadata::NodePath;
use zarrfs_base::budget::Lease;
use zarrfs_base::error::{Error, Result, WithSubject};
use zarrfs_base::width::ToU64;
use zarrfs_store::{Key, Stat, Version};

/// Selects the values to be stored.
#[derive(Debug, Clone, Copy)]
pub enum Due<'p> {
    /// All values.
    All,
    /// Values that have been pending for this long, and that no thread is storing.
    Since(Duration),
    /// Values with all chunks pending, which gain nothing by waiting longer. Excludes values that
    /// could not be stored, or that a thread is storing.
    Full,
    /// The values of the arrays at and below a node.
    Below(&'p NodePath),
}

/// All pending chunks, by the key of their stored value.
#[derive(Debug)]
pub(super) struct PendingChunks {
    /// A leaf lock for look-ups, never held while storing.
    table: Mutex<PendingTable>,
    /// The memory of the chunks and of their values.
    memory: Lease,
    /// Zero shows without the lock that nothing is pending.
    count: AtomicU64,
    versions: AtomicU64,
}

impl PendingChunks {
    /// Returns an empty table. Its chunks are drawn without regard to the limit: files drew their
    /// bytes before they were closed.
    pub(super) fn new(memory: Lease) -> Self {
        let (count, versions) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { table: Mutex::default(), memory, count, versions }
    }

    /// Returns the decoded bytes that are pending, including their overhead.
    pub(super) fn len(&self) -> u64 {
        self.memory.len()
    }

    /// Whether nothing is pending.
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    fn recount(&self, table: &PendingTable) {
        let count = table.shards.len().to_u64();
        self.count.store(count, Ordering::Release);
    }

    /// Makes a chunk pending, in place of the one that already is. `None` if chunks of the same
    /// value are pending in another form.
    pub(super) fn defer(
        &self,
        to: Destination<'_>,
        new: NewChunk,
        modified: Option<SystemTime>,
    ) -> Option<Stat> {
        let begin = new.bytes.is_some().then_some(Begin::Whole(new, 0));
        self.put(|_| true, to, begin, modified).ok()
    }

    /// Makes a partially changed chunk pending if `known` is still the pending chunk. Otherwise
    /// changes nothing and returns `None`.
    pub(super) fn defer_changed(
        &self,
        to: Destination<'_>,
        new: NewChunk,
        known: Option<PendingChunk>,
        modified: Option<SystemTime>,
    ) -> Option<Stat> {
        let version = |pending: &PendingChunk| pending.stat.version.state();
        let was = known.as_ref().map(version);
        let begin = match known {
            Some(known) => Begin::Changed(new, known.begun),
            None => Begin::Whole(new, 0),
        };
        self.put(|now| now.map(version) == was, to, Some(begin), modified).ok()
    }

    /// Makes a chunk pending if its state is still `before`. Otherwise changes nothing and returns
    /// `None`.
    pub(super) fn defer_after(
        &self,
        before: PendingState,
        to: Destination<'_>,
        begin: Begin,
    ) -> Option<Stat> {
        self.put(|now| PendingState::of(now) == before, to, Some(begin), None).ok()
    }

    /// Returns whether and how a chunk is pending.
    pub(super) fn state(&self, array: &Array, key: &Key, coords: &Coords) -> PendingState {
        self.table.lock().state(array, key, coords)
    }

    /// Whether the pending chunks in the value of `key` were written for another array than
    /// `array`.
    pub(super) fn is_of_another(&self, key: &Key, array: &Array) -> bool {
        let table = self.table.lock();
        table.shards.get(key).is_some_and(|shard| {
            !array.has_chunks_of(&shard.array) && !array.is_other_form_of(&shard.array)
        })
    }

    /// Whether the pending chunks in the value of `key` are in another form of `array`.
    pub(super) fn is_of_other_form(&self, key: &Key, array: &Array) -> bool {
        let table = self.table.lock();
        table.shards.get(key).is_some_and(|shard| array.is_other_form_of(&shard.array))
    }

    /// Returns the keys of the values with chunks that are pending in another form of `array`.
    pub(super) fn keys_of_other_forms(&self, array: &Array) -> Vec<Key> {
        let table = self.table.lock();
        let is_other =
            |shard: &Shard| shard.prefix == *array.prefix() && array.is_other_form_of(&shard.array);
        let shards = table.shards.iter().filter(|(_, shard)| is_other(shard));
        shards.map(|(key, _)| key.clone()).collect()
    }

    fn put(
        &self,
        is_as_known: impl FnOnce(Option<&PendingChunk>) -> bool,
        to: Destination<'_>,
        begin: Option<Begin>,
        modified: Option<SystemTime>,
    ) -> std::result::Result<Stat, Stat> {
        let Destination { path, array, chunk: ChunkAt { key, coords } } = to;
        if self.is_of_another(key, array) {
            log::warn!("{path}: unstored chunks are discarded: another program replaced the array");
            self.forget_all(key);
        }
        let number = self.versions.fetch_add(1, Ordering::Relaxed);
        let mut begun = number;
        let (NewChunk { bytes, base }, missing, unread) = match begin {
            None => (NewChunk::from(None), 0, None),
            Some(Begin::Whole(new, missing)) => (new, missing, None),
            Some(Begin::Changed(new, since)) => {
                begun = since;
                (new, 0, None)
            }
            Some(Begin::Range(bytes, missing, range)) => {
                (Some(bytes).into(), missing, Some(Unread { written: range }))
            }
        };
        let len = bytes.as_ref().map_or(0, |bytes| len_of(bytes));
        let stat = Stat {
            len,
            modified: modified.unwrap_or_else(SystemTime::now),
            version: Version::unstored(number),
        };
        let mut guard = self.table.lock();
        let table = &mut *guard;
        let shard = table.shards.get(key);
        let is_other_form = shard.is_some_and(|shard| array.is_other_form_of(&shard.array));
        if is_other_form || !is_as_known(table.pending(array, key, coords)) {
            return Err(stat);
        }
        let shard = table
            .shards
            .entry(key.clone())
            .or_insert_with(|| Shard::new(path, array, array.chunks_beside(coords)));
        let chunks = table.by_array.entry(shard.prefix.clone()).or_default();
        chunks.insert(coords.clone(), bytes.is_some());
        let pending = PendingChunk { bytes, stat, modified, missing, unread, base, begun };
        let cost = pending.cost();
        shard.incomplete += pending.incomplete();
        let old = shard.chunks.insert(coords.clone(), pending);
        shard.incomplete -= old.as_ref().map_or(0, PendingChunk::incomplete);
        if shard.is_full() {
            table.full.insert(key.clone());
        }
        self.memory.grow(cost);
        self.memory.shrink(old.as_ref().map_or(0, PendingChunk::cost));
        self.recount(table);
        drop(guard);
        drop(old); // Freeing memory takes time: not under the lock.
        Ok(stat)
    }

    /// Changes bytes of a pending chunk with `whole` bytes inside the array. The chunk gets a new
    /// version even if `change` fails, but is not complete then.
    pub(super) fn change(
        &self,
        array: &Array,
        chunk: ChunkAt<'_>,
        cover: &Cover,
        whole: u64,
        change: &mut dyn FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<PendingChanged> {
        let ChunkAt { key, coords } = chunk;
        loop {
            match self.try_change(array, chunk, cover, whole, change)? {
                PendingChanged::Shared => self.unshare(key, coords)?,
                changed => return Ok(changed),
            }
        }
    }

    /// Copies the bytes of a pending chunk that other threads use. The table is not locked
    /// meanwhile.
    fn unshare(&self, key: &Key, coords: &Coords) -> Result<()> {
        let table = self.table.lock();
        let pending = table.shards.get(key).and_then(|shard| shard.chunks.get(coords)).cloned();
        drop(table);
        let Some(copied) = pending.and_then(|pending| pending.bytes) else { return Ok(()) };
        let own = copied.copied()?;
        let mut table = self.table.lock();
        let now = table.shards.get_mut(key).and_then(|shard| shard.chunks.get_mut(coords));
        // If the chunk has other bytes by now, it was changed, or the rest of it was read, which
        // does not change its version. The bytes that were copied cannot change: they are shared.
        let now = now.and_then(|now| now.bytes.as_mut()).filter(|now| now.shares_with(&copied));
        let shared = now.map(|now| std::mem::replace(now, own));
        drop(table);
        drop(shared); // Freeing memory takes time: not under the lock.
        Ok(())
    }

    /// Like [`Self::change`], but returns [`PendingChanged::Shared`] instead of copying shared
    /// bytes.
    pub(super) fn try_change(
        &self,
        array: &Array,
        chunk: ChunkAt<'_>,
        cover: &Cover,
        whole: u64,
        change: &mut dyn FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<PendingChanged> {
        let ChunkAt { key, coords } = chunk;
        if self.is_empty() {
            return Ok(PendingChanged::Nothing);
        }
        let mut guard = self.table.lock();
        let table = &mut *guard;
        let Some(shard) =
            table.shards.get_mut(key).filter(|shard| array.has_chunks_of(&shard.array))
        else {
            return Ok(PendingChanged::Nothing);
        };
        let Some(pending) = shard.chunks.get_mut(coords) else {
            return Ok(PendingChanged::Nothing);
        };
        let (before, cost) = (pending.incomplete(), pending.cost());
        let Some(bytes) = &mut pending.bytes else { return Ok(PendingChanged::Nothing) };
        let written = match &pending.unread {
            Some(unread) => match unread.written_with(cover, bytes.len()) {
                None => return Ok(PendingChanged::Unread),
                written => written,
            },
            None => None,
        };
        if bytes.is_shared() {
            return Ok(PendingChanged::Shared);
        }
        let number = self.versions.fetch_add(1, Ordering::Relaxed);
        (pending.stat.version, pending.stat.modified) =
            (Version::unstored(number), SystemTime::now());
        pending.modified = None;
        change(bytes.to_mut())?;
        if matches!(cover, Cover::Whole) {
            (pending.base, pending.begun) = (None, number);
        }
        pending.missing = pending.missing.saturating_sub(cover.part().unwrap_or(whole));
        match (&mut pending.unread, written) {
            (unread, Some(all)) if all == (0..bytes.len()) => {
                (*unread, pending.missing) = (None, 0);
            }
            (Some(unread), Some(written)) => unread.written = written,
            _ => {}
        }
        self.recost(cost, pending);
        let is_complete = pending.incomplete() == 0;
        if before > 0 && is_complete {
            shard.incomplete -= 1;
        }
        if is_complete && shard.is_full() && shard.failure.is_none() {
            table.full.insert(key.clone());
        }
        Ok(PendingChanged::Done)
    }

    /// Returns the chunks in the value of `key` that must still be read in part.
    pub(super) fn unread(&self, key: &Key) -> Vec<Coords> {
        let table = self.table.lock();
        let chunks = table.shards.get(key).into_iter().flat_map(|shard| &shard.chunks);
        chunks
            .filter(|(_, pending)| pending.is_unread())
            .map(|(coords, _)| coords.clone())
            .collect()
    }

    /// Returns the [`PendingChunk::begun`] of a chunk that must still be read in part, else `None`.
    pub(super) fn unread_since(&self, key: &Key, coords: &Coords) -> Option<u64> {
        let table = self.table.lock();
        let pending = table.shards.get(key)?.chunks.get(coords)?;
        pending.is_unread().then_some(pending.begun)
    }

    /// Fills the bytes that were not written from `stored`, if the pending chunk still has this
    /// `begun`.
    pub(super) fn complete(&self, chunk: ChunkAt<'_>, begun: u64, stored: ChunkBase) -> Result<()> {
        let ChunkAt { key, coords } = chunk;
        if matches!(stored, ChunkBase::Stored(..)) {
            self.unshare(key, coords)?;
        }
        let mut table = self.table.lock();
        let Some(shard) = table.shards.get_mut(key) else { return Ok(()) };
        let Some(pending) = shard.chunks.get_mut(coords) else { return Ok(()) };
        let (before, cost) = (pending.incomplete(), pending.cost());
        let (Some(bytes), Some(unread)) = (&mut pending.bytes, &pending.unread) else {
            return Ok(());
        };
        if pending.begun != begun {
            return Ok(());
        }
        if let ChunkBase::Stored(stored, _) = &stored {
            let Range { start, end } = unread.written.clone();
            let is_as_long = stored.len() == bytes.len();
            for part in [0..start, end..bytes.len()] {
                let (to, from) = (bytes.to_mut().get_mut(part.clone()), stored.get(part));
                match to.zip(from).filter(|_| is_as_long) {
                    Some((to, from)) => to.copy_from_slice(from),
                    None => return Err(Error::corrupt("the chunk has another length").at(key)),
                }
            }
        }
        (pending.unread, pending.base) = (None, Some(stored));
        self.recost(cost, pending);
        shard.incomplete -= before.saturating_sub(pending.incomplete());
        Ok(())
    }

    /// Returns a pending chunk in the value of `key`.
    pub(super) fn get(&self, array: &Array, coords: &Coords) -> Option<PendingChunk> {
        if self.is_empty() {
            return None;
        }
        let key = array.key(coords).ok()?;
        self.table.lock().shard(&key, array)?.chunks.get(coords).cloned()
    }

    /// Sets the modification time of a pending chunk; `false` if it is not pending.
    pub(super) fn set_modified(&self, key: &Key, coords: &Coords, modified: SystemTime) -> bool {
        let mut table = self.table.lock();
        let pending = table.shards.get_mut(key).and_then(|shard| shard.chunks.get_mut(coords));
        if let Some(pending) = pending {
            pending.modified = Some(modified);
            pending.stat.modified = modified;
            return pending.bytes.is_some();
        }
        false
    }

    /// Returns the pending chunks whose first indices are `prefix`; `false` marks those to be
    /// erased.
    pub(super) fn below(&self, array: &Array, prefix: &[u64]) -> Vec<(Coords, bool)> {
        if self.is_empty() {
            return Vec::new();
        }
        let table = self.table.lock();
        let below = table.below(array.prefix(), prefix);
        below.map(|(coords, is_there)| (coords.clone(), is_there)).collect()
    }

    /// Whether a pending chunk with bytes has `prefix` as its first indices.
    pub(super) fn any_below(&self, array: &Array, prefix: &[u64]) -> bool {
        !self.is_empty()
            && self.table.lock().below(array.prefix(), prefix).any(|(_, is_there)| is_there)
    }

    /// Returns the pending chunks in the value of `key`, and the path of their array.
    pub(super) fn of(&self, key: &Key) -> Option<(NodePath, Vec<(Coords, PendingChunk)>)> {
        let table = self.table.lock();
        let shard = table.shards.get(key)?;
        let chunks = shard.chunks.iter().map(|(coords, pending)| (coords.clone(), pending.clone()));
        Some((shard.path.clone(), chunks.collect()))
    }

    /// Returns the path of the array with pending chunks in the value of `key`, and the array that
    /// they were written for.
    pub(super) fn path(&self, key: &Key) -> Option<(NodePath, Arc<Array>)> {
        let table = self.table.lock();
        table.shards.get(key).map(|shard| (shard.path.clone(), Arc::clone(&shard.array)))
    }

    /// Updates the total cost after a chunk changed; `before` was its cost.
    fn recost(&self, before: u64, pending: &PendingChunk) {
        self.memory.grow(pending.cost());
        self.memory.shrink(before);
    }

    /// Drops a pending chunk.
    pub(super) fn forget(&self, key: &Key, coords: &Coords) {
        if !self.is_empty() {
            self.remove(key, coords, |_| true);
        }
    }

    fn remove(
        &self,
        key: &Key,
        coords: &Coords,
        is_it: impl Fn(&PendingChunk) -> bool,
    ) -> Option<PendingChunk> {
        let mut table = self.table.lock();
        let gone = table.remove(key, coords, is_it);
        self.memory.shrink(gone.as_ref().map_or(0, PendingChunk::cost));
        self.recount(&table);
        drop(table);
        gone
    }

    /// Drops the pending chunks in the value of `key`.
    pub(super) fn forget_all(&self, key: &Key) {
        for (coords, _) in self.of(key).map(|(_, chunks)| chunks).unwrap_or_default() {
            self.forget(key, &coords);
        }
    }
}

fn len_of(bytes: &[u8]) -> u64 {
    bytes.len().to_u64()
}
