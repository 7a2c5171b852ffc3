//! Operations on arrays that cover both pending and stored chunks.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::pending::{Begin, Changed, PendingChunk, PendingState};
use super::{Base, ChunkCache, Due, NewChunk, PutChunk, add_time, base};
use crate::array::region::Cover;
use crate::array::{Array, Coords, CoordsList, FillChunks, Indices};
use crate::buffer::Buffer;
use crate::error::{At, Error, Kind, Result};
use crate::metadata::NodePath;
use crate::store::{Key, Stat, Version};

/// A pending chunk that is stored now.
#[derive(Debug)]
pub struct Stored {
    /// The coordinates of the chunk.
    pub coords: Coords,
    /// The version that it had while it was pending.
    pub was: Version,
    /// The stat of the stored chunk, `None` if the chunk was erased.
    pub now: Option<Stat>,
    /// The modification time that a program set.
    pub modified: Option<SystemTime>,
}

/// The result of merging a change into a pending chunk.
pub(super) struct Merged {
    /// Whether the changed chunk contains elements of the pending chunk.
    pub(super) is_merged: bool,
    /// The chunk that was pending, if there was one.
    pub(super) pending: Option<PendingChunk>,
}

/// A pending chunk with its bytes, `None` to erase it.
pub type PendingBytes = (Coords, Option<Buffer>);

impl ChunkCache {
    /// Makes a chunk pending, to be stored with the rest of its shard. Without bytes, it is erased
    /// then. The cache now returns this chunk with the returned stat.
    pub fn defer(
        &self,
        path: &NodePath,
        array: &Arc<Array>,
        coords: &Coords,
        new: impl Into<NewChunk>,
        modified: Option<SystemTime>,
    ) -> Result<PutChunk> {
        let key = array.key(coords)?;
        let new = new.into();
        let is_there = new.bytes.is_some();
        loop {
            let mut pending = new.clone();
            let merged = self.merge_pending(array, (&key, coords), &mut pending)?;
            let to = (&key, coords);
            let stat = match &new {
                NewChunk { bytes: Some(_), base: Some(_) } => {
                    self.pending.defer_changed(path, array, to, (pending, merged.pending), modified)
                }
                _ => Some(self.pending.defer(path, array, to, pending, modified)),
            };
            // `None` if the pending chunk was changed or stored meanwhile: merge again.
            let Some(stat) = stat else { continue };
            self.remove(array, coords);
            self.changed(array);
            let stat = is_there.then_some(stat);
            return Ok(PutChunk { stat, is_merged: merged.is_merged });
        }
    }

    /// Merges the changed elements of `new` into the chunk that is already pending, if there is
    /// one.
    pub(super) fn merge_pending(
        &self,
        array: &Array,
        (key, coords): (&Key, &Coords),
        new: &mut NewChunk,
    ) -> Result<Merged> {
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
            Some(bytes) => Base::Stored(bytes.clone(), chunk.stat.version),
            None => Base::Absent,
        };
        let is_same = now.has_version_of(base);
        let is_merged = !is_same && base.merge(&now, (array, coords), bytes)?;
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
        let key = array.key(coords)?;
        let whole = array_len(array, coords)?;
        let changed = self.pending.try_change(array, (&key, coords), cover, whole, change)?;
        if changed == Changed::Done {
            self.changed(array);
        }
        Ok(changed == Changed::Done)
    }

    /// Whether the chunk is pending with bytes.
    pub fn has_pending_bytes(&self, array: &Array, coords: &Coords) -> Result<bool> {
        Ok(self.pending.state(array, &array.key(coords)?, coords) == PendingState::Bytes)
    }

    /// Changes bytes of a chunk and makes it pending; a pending chunk changes in place. If `cover`
    /// is the whole chunk, its old bytes are never read. If it is a contiguous range, they are read
    /// when needed, otherwise at once. Bytes without a stored value have the fill value. The chunk
    /// is complete once all of its bytes were changed.
    pub fn change(
        &self,
        path: &NodePath,
        array: &Arc<Array>,
        coords: &Coords,
        cover: &Cover,
        change: &mut dyn FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let key = array.key(coords)?;
        let whole = array_len(array, coords)?;
        let missing = whole.saturating_sub(cover.part().unwrap_or(whole));
        loop {
            match self.pending.change(array, (&key, coords), cover, whole, change)? {
                Changed::Done => break,
                Changed::Unread => {
                    self.complete(array, &key, coords)?;
                    continue;
                }
                Changed::Nothing | Changed::Shared => {}
            }
            // The lock excludes another thread that begins with the same chunk, and one that stores
            // it.
            let _turn = self.lock_key(&key);
            // Another thread may have begun meanwhile; then the change applies to its chunk.
            let before = self.pending.state(array, &key, coords);
            let stored = match (before, cover) {
                (PendingState::Bytes, _) => continue,
                (PendingState::Nothing, Cover::Part(_)) => {
                    self.get_fresh(array, coords, Some(Instant::now()))?
                }
                _ => None,
            };
            let base = match (before, cover, &stored) {
                (PendingState::Nothing, Cover::Part(_), Some(chunk)) => Some(chunk.base()),
                (PendingState::Nothing, Cover::Part(_), None) => Some(Base::Absent),
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
            if self.pending.defer_after(before, path, array, (&key, coords), begin).is_some() {
                self.remove(array, coords);
                break;
            }
        }
        self.changed(array);
        Ok(())
    }

    /// Reads the bytes of a pending chunk that were not written.
    pub(super) fn complete(&self, array: &Array, key: &Key, coords: &Coords) -> Result<()> {
        let Some(begun) = self.pending.unread_since(key, coords) else { return Ok(()) };
        let started = Instant::now();
        let stored = Base::read(array, coords)?;
        if let Base::Stored(bytes, _) = &stored {
            self.counters.count_decoded(bytes, started);
        }
        self.pending.complete((key, coords), begun, stored)
    }

    /// Completes all pending chunks in the value of `key`. Returns those that could not be read,
    /// with the reason.
    pub fn complete_all(&self, array: &Array, key: &Key) -> Vec<(Coords, Error)> {
        // Chunks that are now outside the array's shape are dropped when the others are stored.
        let is_there = |coords: &Coords| array.grid().contains(coords);
        let failed = |coords: Coords| {
            let error = self.complete(array, key, &coords).err()?;
            Some((coords, error))
        };
        self.pending.unread(key).into_iter().filter(is_there).filter_map(failed).collect()
    }

    /// Returns the stat of a chunk, pending or stored; `None` if there is none. The length of a
    /// pending chunk is the decoded one.
    pub fn stat(&self, array: &Array, coords: &Coords) -> Result<Option<Stat>> {
        match self.pending.get(array, coords) {
            Some(pending) => Ok(pending.bytes.map(|_| pending.stat)),
            None => array.stat(coords),
        }
    }

    /// Returns the stats of several chunks.
    pub fn stat_many(&self, array: &Array, coords: &[Coords]) -> Result<Vec<Option<Stat>>> {
        // In this order, because a chunk may be stored in between and is then no longer pending.
        let pending: Vec<_> = coords.iter().map(|coords| self.pending.get(array, coords)).collect();
        let stored = array.stat_many(coords)?;
        let each = pending.into_iter().zip(stored);
        Ok(each
            .map(|(chunk, stored)| chunk.map_or(stored, |chunk| chunk.bytes.map(|_| chunk.stat)))
            .collect())
    }

    /// Sets the modification time of a pending chunk; `false` if it is not pending.
    pub fn set_modified(&self, key: &Key, coords: &Coords, modified: SystemTime) -> bool {
        self.pending.set_modified(key, coords, modified)
    }

    /// Returns the next index of every chunk whose first indices are `prefix`, which is shorter
    /// than the rank.
    pub fn list_dir(&self, array: &Arc<Array>, prefix: &[u64]) -> Result<Indices> {
        let stored = Arc::clone(array.chunks()).list_dir(prefix)?;
        let pending = self.pending.below(array, prefix);
        if pending.is_empty() {
            return Ok(stored);
        }
        let depth = prefix.len();
        let index = |coords: &Coords| coords.indices().get(depth).copied();
        let new: BTreeSet<u64> = pending
            .iter()
            .filter(|(_, is_there)| *is_there)
            .filter_map(|(c, _)| index(c))
            .collect();
        let erased: HashSet<Coords> = pending
            .into_iter()
            .filter(|(_, is_there)| !is_there)
            .map(|(coords, _)| coords)
            .collect();
        let may_be_empty: BTreeSet<u64> = erased.iter().filter_map(index).collect();
        let (array, prefix): (_, Box<[u64]>) = (Arc::clone(array), prefix.into());
        let known = new.clone();
        let others = stored.filter_map(move |index| match index {
            Ok(index) if known.contains(&index) => None,
            Ok(index) if may_be_empty.contains(&index) => {
                let below = [&prefix[..], &[index]].concat();
                match any_but(&array, &below, &erased) {
                    Ok(true) => Some(Ok(index)),
                    Ok(false) => None,
                    Err(error) => Some(Err(error)),
                }
            }
            found => Some(found),
        });
        Ok(Box::new(new.into_iter().map(Ok).chain(others)))
    }

    /// Whether there is a chunk whose first indices are `prefix`.
    pub fn has_chunks(&self, array: &Arc<Array>, prefix: &[u64]) -> Result<bool> {
        if self.pending.any_below(array, prefix) {
            return Ok(true);
        }
        Ok(self.list_prefix(array, prefix)?.next().transpose()?.is_some())
    }

    /// Returns every chunk whose first indices are `prefix`.
    pub fn list_prefix(&self, array: &Arc<Array>, prefix: &[u64]) -> Result<CoordsList> {
        let stored = Arc::clone(array.chunks()).list_prefix(prefix)?;
        let pending = self.pending.below(array, prefix);
        if pending.is_empty() {
            return Ok(stored);
        }
        let known: HashSet<Coords> = pending.iter().map(|(coords, _)| coords.clone()).collect();
        let new =
            pending.into_iter().filter(|(_, is_there)| *is_there).map(|(coords, _)| Ok(coords));
        let others = stored.filter(move |found| match found {
            Ok(coords) => !known.contains(coords),
            Err(_) => true,
        });
        Ok(Box::new(new.chain(others)))
    }

    /// Returns the keys of the values that are due, the oldest first.
    pub fn due(&self, due: Due<'_>) -> Vec<Key> {
        self.pending.due(due)
    }

    /// Returns the path of the array with pending chunks in the value of `key`.
    pub fn pending_array(&self, key: &Key) -> Option<NodePath> {
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

    /// Whether a chunk is pending, to be stored or erased.
    pub fn is_pending(&self, array: &Array, coords: &Coords) -> bool {
        self.pending_chunk(array, coords).is_some()
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
    /// all do. Chunks outside a smaller shape are dropped. A partially written chunk stays pending
    /// if the rest of it cannot be read; the second result says so after the others are stored.
    /// Calls `changed` after the value has changed, before any chunk stops being pending.
    pub fn store(
        &self,
        key: &Key,
        array: &Arc<Array>,
        fill: FillChunks,
        changed: impl FnOnce(),
    ) -> Result<(Vec<Stored>, Result<()>)> {
        let _turn = self.lock_key(key);
        let _mark = self.pending.being_stored(key);
        if self.pending.is_of_another(key, array) {
            let detail = "another program replaced the array after these chunks were written";
            return Err(Error::new(Kind::Stale, detail).at(key));
        }
        let unread = match self.complete_all(array, key).into_iter().next() {
            Some((_, error)) => Err(error),
            None => Ok(()),
        };
        let Some((_, chunks)) = self.pending.of(key) else { return Ok((Vec::new(), unread)) };
        let chunks = chunks.into_iter().filter(|(_, pending)| !pending.is_unread());
        let (mut chunks, outside): (Vec<_>, Vec<_>) =
            chunks.partition(|(coords, _)| array.grid().contains(coords));
        for (coords, pending) in outside {
            self.pending.done(key, &coords, (pending.stat.version, pending.begun), Base::Absent);
        }
        // In the order of their writes, because a shard may be laid out in that order.
        chunks.sort_by_key(|(_, pending)| pending.stat.version.state());
        for (coords, pending) in &chunks {
            if let Some(bytes) = &pending.bytes {
                array.check_decoded(coords, bytes)?;
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
            return Ok((Vec::new(), unread));
        }
        let started = Instant::now();
        let stats = self.write_pending(key, array, &mut chunks, fill)?;
        add_time(&self.counters.storing, started);
        changed();
        let mut stored = Vec::with_capacity(chunks.len());
        for ((coords, pending), now) in chunks.into_iter().zip(stats) {
            self.counters.count_stored(pending.bytes.as_ref());
            let was = pending.stat.version;
            let base = Base::of(pending.bytes.clone(), now);
            // Cache the stored chunk before it stops being pending.
            self.put(array, &coords, pending.bytes, now);
            if !array.reads_as_written(&coords) {
                self.changed(array);
            }
            if self.pending.done(key, &coords, (was, pending.begun), base) {
                stored.push(Stored { coords, was, now, modified: pending.modified });
            }
        }
        Ok((stored, unread))
    }
}

impl ChunkCache {
    /// Stores pending chunks in the value of `key`. If another program stored newer elements of
    /// partially changed ones meanwhile, merges these into them and into the pending chunks first.
    fn write_pending(
        &self,
        key: &Key,
        array: &Array,
        chunks: &mut [(Coords, PendingChunk)],
        fill: FillChunks,
    ) -> Result<Vec<Option<Stat>>> {
        let rebase = |coords: &Coords, pending: &mut PendingChunk, now: Option<Base>| {
            self.pending.rebase((key, coords), pending, array, now)?;
            self.changed(array);
            Ok(())
        };
        base::write_rebased(
            array,
            chunks,
            fill,
            |pending| (pending.bytes.as_ref(), pending.base.as_ref()),
            rebase,
        )
    }
}

/// Returns how many bytes of a decoded chunk lie inside the array.
fn array_len(array: &Array, coords: &Coords) -> Result<u64> {
    let extent = array.grid().extent(coords, &array.model().shape)?;
    let item_len = u64::try_from(array.model().dtype.item_len()).unwrap_or(u64::MAX);
    Ok(extent.iter().fold(item_len, |all, len| all.saturating_mul(*len)))
}

/// Whether an array has a stored chunk whose first indices are `prefix` that is not in `erased`.
fn any_but(array: &Arc<Array>, prefix: &[u64], erased: &HashSet<Coords>) -> Result<bool> {
    for coords in Arc::clone(array.chunks()).list_prefix(prefix)? {
        if !erased.contains(&coords?) {
            return Ok(true);
        }
    }
    Ok(false)
}
