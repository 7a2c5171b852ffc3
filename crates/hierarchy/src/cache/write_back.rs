//! Pending chunks: which are due, why they could not be stored, and storing them.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::base::{ChunkBase, write_rebased};
use super::chunk_cache::ChunkCache;
use super::counters::add_time;
use super::pending::{ChunkAt, Due, PendingChunk};
use crate::array::region::{self, Offset};
use crate::array::{Array, Coords, Current, FillChunks};
use crate::metadata::NodePath;
use zarrfs_base::buffer::Buffer;
use zarrfs_base::error::{Error, Kind, Result, WithSubject};
use zarrfs_store::{Key, Stat, Version};

/// A pending chunk that is stored now.
#[derive(Debug)]
pub struct WrittenBack {
    /// The coordinates of the chunk.
    pub coords: Coords,
    /// The version that it had while it was pending.
    pub was: Version,
    /// The stat of the stored chunk, `None` if the chunk was erased.
    pub now: Option<Stat>,
    /// The modification time that a program set.
    pub modified: Option<SystemTime>,
}

/// A pending chunk with its bytes, `None` to erase it.
pub type PendingBytes = (Coords, Option<Buffer>);

impl ChunkCache {
    /// Completes all pending chunks in the value of `key`. Returns those that could not be read,
    /// with the reason.
    pub fn complete_all(&self, array: &Array, key: &Key) -> Vec<(Coords, Error)> {
        // Chunks that are now outside of the array's shape cannot be stored.
        let is_there = |coords: &Coords| array.grid().contains(coords);
        let failed = |coords: Coords| {
            let error = self.complete(array, key, &coords).err()?;
            Some((coords, error))
        };
        self.pending.unread(key).into_iter().filter(is_there).filter_map(failed).collect()
    }

    /// Sets the modification time of a pending chunk; `false` if it is not pending.
    pub fn set_modified(&self, key: &Key, coords: &Coords, modified: SystemTime) -> bool {
        self.pending.set_modified(key, coords, modified)
    }

    /// Returns the keys of the values that are due, the oldest first.
    pub fn due(&self, due: Due<'_>) -> Vec<Key> {
        self.pending.due(due)
    }

    /// Returns the path of the array with pending chunks in the value of `key`, and the array that
    /// they were written for.
    pub fn pending_array(&self, key: &Key) -> Option<(NodePath, Arc<Array>)> {
        self.pending.path(key)
    }

    /// Returns the path of the array and its pending chunks in the value of `key`, without bytes
    /// for chunks to erase. Bytes that are still to be read have the fill value.
    pub fn pending_in_value(&self, key: &Key) -> Option<(NodePath, Vec<PendingBytes>)> {
        let (path, chunks) = self.pending.of(key)?;
        let bytes = chunks.into_iter().map(|(coords, pending)| (coords, pending.bytes));
        Some((path, bytes.collect()))
    }

    /// Takes the key of a value with all chunks pending, so that no other thread stores it.
    pub fn take_full(&self) -> Option<Key> {
        self.pending.take_full()
    }

    /// Whether any chunks are pending.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Returns the bytes of all pending chunks.
    pub fn pending_len(&self) -> u64 {
        self.pending.len()
    }

    /// Returns why the pending chunks in the value of `key` could not be stored, if that was tried.
    pub fn failure(&self, key: &Key) -> Option<Error> {
        self.pending.failure(key)
    }

    /// Returns why any pending chunk of an array could not be stored.
    pub fn failure_in(&self, path: &NodePath) -> Option<Error> {
        self.pending.failure_in(path)
    }

    /// Records why the pending chunks in the value of `key` could not be stored; `false` if the
    /// reason is known already.
    pub fn record_failure(&self, key: &Key, error: &Error) -> bool {
        self.pending.failed(key, error)
    }

    /// Drops all pending chunks of the arrays at and below a node that is about to be removed. No
    /// thread is storing any of them when this returns.
    pub fn forget_below(&self, path: &NodePath) {
        for key in self.pending.due(Due::Below(path)) {
            let _turn = self.lock_key(&key);
            self.pending.forget_all(&key);
        }
    }

    /// Stores the pending chunks in the value of `key` as one change; `array` is the array that the
    /// key belongs to now. Chunks that were written again meanwhile stay pending, and on failure
    /// all do. So does a chunk outside of a smaller shape, and a partially written one if the rest
    /// of it cannot be read; the second result says so after the others are stored. Calls `changed`
    /// after the value has changed, before any chunk stops being pending.
    pub fn store(
        &self,
        key: &Key,
        array: &Current,
        fill: FillChunks,
        changed: impl FnOnce(),
    ) -> Result<(Vec<WrittenBack>, Result<()>)> {
        let _turn = self.lock_key(key);
        let _mark = self.pending.being_stored(key);
        if self.pending.is_of_another(key, array) {
            let detail = "another program replaced the array after these chunks were written";
            return Err(Error::new(Kind::Stale, detail).at(key));
        }
        let mut left = match self.complete_all(array, key).into_iter().next() {
            Some((_, error)) => Err(error),
            None => Ok(()),
        };
        let Some((_, written)) = self.pending.path(key) else { return Ok((Vec::new(), left)) };
        let Some((_, chunks)) = self.pending.of(key) else { return Ok((Vec::new(), left)) };
        let chunks = chunks.into_iter().filter(|(_, pending)| !pending.is_unread());
        let (mut chunks, outside): (Vec<_>, Vec<_>) =
            chunks.partition(|(coords, _)| array.grid().contains(coords));
        for (coords, pending) in outside {
            if pending.bytes.is_some() {
                left = left.and(Err(outside_now(array, &coords)));
            } else {
                // Readers do not see a chunk there.
                self.pending.done(ChunkAt { key, coords: &coords }, &pending, ChunkBase::Absent);
            }
        }
        // In the order of their writes, because a shard may be laid out in that order.
        chunks.sort_by_key(|(_, pending)| pending.stat.version.state());
        for (coords, pending) in &mut chunks {
            self.keep_grown((array, &written), ChunkAt { key, coords }, pending)?;
            if let Some(bytes) = &pending.bytes {
                array.check_chunk(coords, bytes)?;
            }
            if array.key(coords)? != *key {
                return Err(Error::new(
                    Kind::Stale,
                    "the array now stores its chunks under other \
                     keys",
                ));
            }
        }
        if chunks.is_empty() {
            return Ok((Vec::new(), left));
        }
        let started = Instant::now();
        let stats = self.write_pending(key, array, &mut chunks, fill)?;
        add_time(&self.counters.storing, started);
        changed();
        let mut stored = Vec::with_capacity(chunks.len());
        for ((coords, pending), now) in chunks.into_iter().zip(stats) {
            self.counters.count_stored(pending.bytes.as_ref());
            let was = pending.stat.version;
            let base = ChunkBase::of(pending.bytes.clone(), now);
            // Cache the stored chunk before it stops being pending.
            self.slots.put(array, &coords, pending.bytes.clone(), now);
            if !array.reads_as_written(&coords) {
                self.changed(array);
            }
            self.changed_in_other_forms(array, &coords);
            let done = self.pending.done(ChunkAt { key, coords: &coords }, &pending, base);
            if let Some(PendingChunk { modified, .. }) = done {
                stored.push(WrittenBack { coords, was, now, modified });
            }
        }
        Ok((stored, left))
    }

    /// Takes elements that have become part of the array from the store, if a program wrote all
    /// those of a chunk that were part of it before: it did not know of the others.
    fn keep_grown(
        &self,
        (array, written): (&Array, &Array),
        chunk: ChunkAt<'_>,
        pending: &mut PendingChunk,
    ) -> Result<()> {
        let coords = chunk.coords;
        let within = |array: &Array| array.grid().extent(coords, &array.model().shape);
        let before = within(written)?;
        let has_grown = before.iter().zip(within(array)?).any(|(before, now)| now > *before);
        let PendingChunk { bytes: Some(bytes), base: None, .. } = &*pending else { return Ok(()) };
        if !has_grown || array.has_variable_len() {
            return Ok(());
        }
        let base = ChunkBase::read(array, coords)?;
        let mut whole = base.bytes(array, coords)?;
        let (shape, start) = (array.chunk_shape_at(coords)?, vec![0; before.len()]);
        let place = Offset { shape: &shape, start: &start };
        let item_len = array.model().dtype.item_len();
        region::copy((bytes, place), (whole.to_mut(), place), &before, item_len)?;
        self.pending.complete_from(chunk, pending, whole, base);
        Ok(())
    }

    /// Stores pending chunks in the value of `key`. If another program stored newer elements of
    /// partially changed ones meanwhile, merges these into them and into the pending chunks first.
    fn write_pending(
        &self,
        key: &Key,
        array: &Current,
        chunks: &mut [(Coords, PendingChunk)],
        fill: FillChunks,
    ) -> Result<Vec<Option<Stat>>> {
        let rebase = |coords: &Coords, pending: &mut PendingChunk, now: Option<ChunkBase>| {
            self.pending.rebase(ChunkAt { key, coords }, pending, array, now)?;
            self.changed(array);
            Ok(())
        };
        write_rebased(
            array,
            chunks,
            fill,
            |pending| (pending.bytes.as_ref(), pending.base.as_ref()),
            rebase,
        )
    }
}

/// Returns the error of a pending chunk that lies outside of the shape that another program gave
/// the array.
fn outside_now(array: &Array, coords: &Coords) -> Error {
    let shape = &array.model().shape;
    let detail = format!(
        "another program made the array smaller after this chunk was written: it lies outside of \
         the shape {shape:?}"
    );
    Error::new(Kind::Stale, detail).at(coords)
}
