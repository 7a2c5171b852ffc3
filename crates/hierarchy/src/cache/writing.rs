//! Chunks that programs write: stored at once, or pending until the rest of their value is there.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::base::{ChunkBase, NewChunk, write_rebased};
use super::chunk::PutChunk;
use super::chunk_cache::ChunkCache;
use super::counters::add_time;
use super::pending::{Begin, ChunkAt, Destination, PendingChanged, PendingChunk, PendingState};
use crate::array::region::Cover;
use crate::array::{Array, ChunkRef, Coords, Current, FillChunks};
use crate::metadata::NodePath;
use zarrfs_base::error::Result;
use zarrfs_base::width::ToU64;
use zarrfs_store::NewFile;

/// The result of merging a change into a pending chunk.
struct Merged {
    /// Whether the changed chunk contains elements of the pending chunk.
    is_merged: bool,
    /// The chunk that was pending, if there was one.
    pending: Option<PendingChunk>,
}

impl ChunkCache {
    /// Stores a chunk, or erases it if `new` has no bytes. Keeps elements that other writers stored
    /// since the base was read. Afterwards the cache holds the stored bytes.
    pub fn write(
        &self,
        array: &Current,
        coords: &Coords,
        new: impl Into<NewChunk>,
        fill: FillChunks,
    ) -> Result<PutChunk> {
        self.settle_forms(array, coords)?;
        let key = array.key(coords)?;
        let mut new = new.into();
        let _turn = self.lock_key(&key);
        let Merged { mut is_merged, pending } =
            self.merge_pending(array, ChunkAt { key: &key, coords }, &mut new)?;
        // Use the stat of this write: a later `stat` could see the value of another writer.
        let started = Instant::now();
        let rebase = |_: &Coords, new: &mut NewChunk, now: Option<ChunkBase>| {
            if let NewChunk { bytes: Some(bytes), base: Some(base) } = new
                && let Some(now) = &now
            {
                is_merged |= base.merge(now, array, coords, bytes)?;
            }
            new.base = now;
            Ok(())
        };
        let mut chunk = [(coords.clone(), new)];
        let stored = write_rebased(
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
        self.slots.put(array, coords, bytes.clone(), stat);
        if let Some(known) = &pending {
            self.pending.written(
                ChunkAt { key: &key, coords },
                known,
                array,
                ChunkBase::of(bytes, stat),
            )?;
        }
        // A file that is opened before this line may read the old bytes, since no writer knows yet
        // that the new ones are stored.
        self.changed(array);
        self.changed_in_other_forms(array, coords);
        Ok(PutChunk { stat, is_merged })
    }

    /// Stores a file as a chunk ([`Current::set_file`]). `None`, and no change, if its bytes must
    /// be written instead ([`Self::write`]).
    pub fn write_file(
        &self,
        array: &Current,
        coords: &Coords,
        file: &NewFile,
    ) -> Result<Option<PutChunk>> {
        self.settle_forms(array, coords)?;
        let key = array.key(coords)?;
        let _turn = self.lock_key(&key);
        if self.is_pending(array, coords) {
            return Ok(None);
        }
        let started = Instant::now();
        let Some(stat) = array.set_file(coords, file)? else { return Ok(None) };
        add_time(&self.counters.storing, started);
        self.counters.count_stored_len(stat.len);
        self.note_change(array, coords);
        Ok(Some(PutChunk { stat: Some(stat), is_merged: false }))
    }

    /// Takes note that a program has changed the stored chunk in place.
    pub fn note_change(&self, array: &Arc<Array>, coords: &Coords) {
        self.slots.remove(array, coords);
        self.changed(array);
        self.changed_in_other_forms(array, coords);
    }

    /// Makes a chunk pending, to be stored with the rest of its shard. Without bytes, it is erased
    /// then. The cache now returns this chunk with the returned stat.
    pub fn defer(
        &self,
        path: &NodePath,
        chunk: &ChunkRef,
        new: impl Into<NewChunk>,
        modified: Option<SystemTime>,
    ) -> Result<PutChunk> {
        let ChunkRef { array, coords } = chunk;
        let key = array.key(coords)?;
        let new = new.into();
        let is_there = new.bytes.is_some();
        loop {
            self.settle_forms(array, coords)?;
            let mut pending = new.clone();
            let merged = self.merge_pending(array, ChunkAt { key: &key, coords }, &mut pending)?;
            let to = Destination { path, array, chunk: ChunkAt { key: &key, coords } };
            let stat = match &new {
                NewChunk { bytes: Some(_), base: Some(_) } => {
                    self.pending.defer_changed(to, pending, merged.pending, modified)
                }
                _ => self.pending.defer(to, pending, modified),
            };
            // `None` if the pending chunk was changed or stored meanwhile, or another form of it
            // became pending: merge again.
            let Some(stat) = stat else { continue };
            self.remove(array, coords);
            self.changed(array);
            self.changed_in_other_forms(array, coords);
            let stat = is_there.then_some(stat);
            return Ok(PutChunk { stat, is_merged: merged.is_merged });
        }
    }

    /// Merges the changed elements of `new` into the chunk that is already pending, if there is
    /// one.
    fn merge_pending(
        &self,
        array: &Array,
        chunk: ChunkAt<'_>,
        new: &mut NewChunk,
    ) -> Result<Merged> {
        let ChunkAt { key, coords } = chunk;
        let mut pending = self.pending.get(array, coords);
        let NewChunk { bytes: Some(bytes), base: Some(base) } = new else {
            return Ok(Merged { is_merged: false, pending });
        };
        while pending.as_ref().is_some_and(PendingChunk::is_unread) {
            self.complete(array, key, coords)?;
            pending = self.pending.get(array, coords);
        }
        let Some(chunk) = &pending else { return Ok(Merged { is_merged: false, pending }) };
        let now = match &chunk.bytes {
            Some(bytes) => ChunkBase::Stored(bytes.clone(), chunk.stat.version),
            None => ChunkBase::Absent,
        };
        let is_same = now.has_version_of(base);
        let is_merged = !is_same && base.merge(&now, array, coords, bytes)?;
        new.base.clone_from(&chunk.base);
        Ok(Merged { is_merged, pending })
    }

    /// Like [`Self::change`], but only for a pending chunk that needs no reading; `false` if it is
    /// not.
    pub fn try_change(
        &self,
        array: &Arc<Array>,
        coords: &Coords,
        cover: &Cover,
        change: &mut dyn FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<bool> {
        if self.is_pending_elsewhere(array, coords) {
            return Ok(false);
        }
        let key = array.key(coords)?;
        let whole = array_len(array, coords)?;
        let changed =
            self.pending.try_change(array, ChunkAt { key: &key, coords }, cover, whole, change)?;
        if changed == PendingChanged::Done {
            self.changed(array);
        }
        Ok(changed == PendingChanged::Done)
    }

    /// Whether the chunk is pending with bytes.
    pub fn has_pending_bytes(&self, array: &Array, coords: &Coords) -> Result<bool> {
        Ok(self.pending.state(array, &array.key(coords)?, coords) == PendingState::Bytes)
    }

    /// Changes bytes of a chunk and makes it pending; a pending chunk changes in place. If `cover`
    /// is the whole chunk, its old bytes are never read. If it is a contiguous range, they are read
    /// when needed, otherwise at once. Bytes without a stored value have the fill value. The chunk
    /// is complete once all of its bytes were changed. A chunk that is read must have matched the
    /// store at `since` or later; `None` accepts any time.
    pub fn change(
        &self,
        path: &NodePath,
        array: &Arc<Array>,
        coords: &Coords,
        (cover, since): (&Cover, Option<Instant>),
        change: &mut dyn FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let key = array.key(coords)?;
        let to = Destination { path, array, chunk: ChunkAt { key: &key, coords } };
        let whole = array_len(array, coords)?;
        let missing = whole.saturating_sub(cover.part().unwrap_or(whole));
        loop {
            self.settle_forms(array, coords)?;
            match self.pending.change(array, ChunkAt { key: &key, coords }, cover, whole, change)? {
                PendingChanged::Done => break,
                PendingChanged::Unread => {
                    self.complete(array, &key, coords)?;
                    continue;
                }
                PendingChanged::Nothing | PendingChanged::Shared => {}
            }
            // The lock excludes another thread that begins with the same chunk, and one that stores
            // it.
            let _turn = self.lock_key(&key);
            // Another thread may have begun meanwhile; then the change applies to its chunk.
            let before = self.pending.state(array, &key, coords);
            let stored = match (before, cover) {
                (PendingState::Bytes, _) => continue,
                (PendingState::Nothing, Cover::Part(_)) => {
                    self.get_fresh_in_form(array, coords, since)?
                }
                _ => None,
            };
            let base = match (before, cover, &stored) {
                (PendingState::Nothing, Cover::Part(_), Some(chunk)) => Some(chunk.base()),
                (PendingState::Nothing, Cover::Part(_), None) => Some(ChunkBase::Absent),
                _ => None,
            };
            let mut bytes = match stored {
                Some(chunk) => chunk.bytes,
                None => array.fill_chunk(coords)?,
            };
            // Drop the cached chunk, so that the bytes have one owner and change in place.
            self.remove(array, coords);
            change(bytes.to_mut())?;
            let begin = match (before, cover) {
                (PendingState::Nothing, Cover::Range(_, range)) => {
                    Begin::Range(bytes, missing, range.clone())
                }
                // The same applies to a whole chunk that was closed meanwhile.
                _ => Begin::Whole(NewChunk { bytes: Some(bytes), base }, missing),
            };
            if self.pending.defer_after(before, to, begin).is_some() {
                self.remove(array, coords);
                break;
            }
        }
        self.changed(array);
        self.changed_in_other_forms(array, coords);
        Ok(())
    }
}

/// Returns how many bytes of a decoded chunk lie inside the array.
fn array_len(array: &Array, coords: &Coords) -> Result<u64> {
    let extent = array.grid().extent(coords, &array.model().shape)?;
    let item_len = array.model().dtype.item_len().to_u64();
    Ok(extent.iter().fold(item_len, |all, len| all.saturating_mul(*len)))
}
