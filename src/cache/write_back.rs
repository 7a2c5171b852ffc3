//! Arrays with what waits to be stored in them: the operations of an array that see both.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::waiting::{Begin, Changed, Held, Pending};
use super::{Base, ChunkCache, Due, NewChunk, PutChunk, add_time, base};
use crate::array::region::Cover;
use crate::array::{Array, Coords, CoordsList, FillChunks, Indices};
use crate::buffer::Buffer;
use crate::error::{At, Error, Kind, Result};
use crate::metadata::NodePath;
use crate::store::{Key, Stat, Version};

/// A chunk that waited, and is stored now.
#[derive(Debug)]
pub struct Stored {
    /// Which chunk.
    pub coords: Coords,
    /// The version that it had while it waited.
    pub was: Version,
    /// The stat of the stored chunk, `None` if the chunk was erased.
    pub now: Option<Stat>,
    /// When a program said that it was modified.
    pub modified: Option<SystemTime>,
}

/// The result of merging a change with the chunk that waits.
pub(super) struct Merged {
    /// Whether elements of the waiting chunk are in the changed chunk now.
    pub(super) is_merged: bool,
    /// The chunk that waited, if there was one.
    pub(super) waits: Option<Held>,
}

/// A chunk that waits, and its bytes, `None` to erase it.
pub type Waits = (Coords, Option<Buffer>);

impl ChunkCache {
    /// Lets a chunk wait for the rest of its shard. Without bytes, it waits to be erased. From now
    /// on the cache returns this chunk, and its `stat` is the returned one until it is stored.
    pub fn hold(
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
            let mut held = new.clone();
            let merged = self.merge_waiting(array, (&key, coords), &mut held)?;
            let to = (&key, coords);
            let stat = match &new {
                NewChunk { bytes: Some(_), base: Some(_) } => {
                    self.waiting.hold_changed(path, array, to, (held, merged.waits), modified)
                }
                _ => Some(self.waiting.hold(path, array, to, held, modified)),
            };
            // `None` if the waiting chunk was changed or stored meanwhile: merge again.
            let Some(stat) = stat else { continue };
            self.remove(array, coords);
            self.changed(array);
            let stat = is_there.then_some(stat);
            return Ok(PutChunk { stat, is_merged: merged.is_merged });
        }
    }

    /// Merges the changed elements of `new` with the chunk that already waits, if there is one.
    pub(super) fn merge_waiting(
        &self,
        array: &Array,
        (key, coords): (&Key, &Coords),
        new: &mut NewChunk,
    ) -> Result<Merged> {
        let mut waits = self.waiting.get(array, coords);
        let NewChunk { bytes: Some(bytes), base: Some(base) } = new else {
            return Ok(Merged { is_merged: false, waits });
        };
        while waits.as_ref().is_some_and(Held::is_unread) {
            self.complete(array, key, coords)?;
            waits = self.waiting.get(array, coords);
        }
        let Some(held) = &waits else { return Ok(Merged { is_merged: false, waits }) };
        let now = match &held.bytes {
            Some(bytes) => Base::Stored(bytes.clone(), held.stat.version),
            None => Base::Absent,
        };
        let is_same = now.has_version_of(base);
        let is_merged = !is_same && base.merge(&now, (array, coords), bytes)?;
        new.base.clone_from(&held.base);
        Ok(Merged { is_merged, waits })
    }

    /// As [`Self::change`], of a chunk that waits; whether one does, and need not be read first.
    pub fn try_change(
        &self,
        array: &Arc<Array>,
        coords: &Coords,
        cover: &Cover,
        change: &mut dyn FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<bool> {
        let key = array.key(coords)?;
        let whole = array_len(array, coords)?;
        let changed = self.waiting.try_change(array, (&key, coords), cover, whole, change)?;
        if changed == Changed::Done {
            self.changed(array);
        }
        Ok(changed == Changed::Done)
    }

    /// Whether bytes of a chunk wait.
    pub fn has_waiting(&self, array: &Array, coords: &Coords) -> Result<bool> {
        Ok(self.waiting.what_waits(array, &array.key(coords)?, coords) == Pending::Bytes)
    }

    /// Changes bytes of a chunk, which waits then: of what waits already in place. What is there of it is read when it is
    /// wanted where all that lies in a range is changed, never where all of it is, and else at once. What is neither read
    /// nor there is made of the fill value. When all have been changed it is complete.
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
            match self.waiting.change(array, (&key, coords), cover, whole, change)? {
                Changed::Done => break,
                Changed::Unread => {
                    self.complete(array, &key, coords)?;
                    continue;
                }
                Changed::Nothing | Changed::Shared => {}
            }
            // Two who begin with the same chunk take turns, and so does who stores it.
            let _turn = self.turn(&key);
            // One that another began meanwhile is what is to be changed.
            let before = self.waiting.what_waits(array, &key, coords);
            let stored = match (before, cover) {
                (Pending::Bytes, _) => continue,
                (Pending::Nothing, Cover::Part(_)) => {
                    self.get_fresh(array, coords, Some(Instant::now()))?
                }
                _ => None,
            };
            let base = match (before, cover, &stored) {
                (Pending::Nothing, Cover::Part(_), Some(chunk)) => Some(chunk.base()),
                (Pending::Nothing, Cover::Part(_), None) => Some(Base::Absent),
                _ => None,
            };
            let mut bytes = match stored {
                Some(chunk) => chunk.bytes,
                None => array.fill_chunk(coords)?,
            };
            // Nobody else has it: it is changed in place.
            self.remove(array, coords);
            change(bytes.to_mut())?;
            let begin = match (before, cover) {
                (Pending::Nothing, Cover::Range(_, range)) => {
                    Begin::Range(bytes, missing, range.clone())
                }
                // So is a whole one that was closed meanwhile.
                _ => Begin::Whole(NewChunk { bytes: Some(bytes), base }, missing),
            };
            if self.waiting.hold_after(before, path, array, (&key, coords), begin).is_some() {
                self.remove(array, coords);
                break;
            }
        }
        self.changed(array);
        Ok(())
    }

    /// Reads what is stored of a chunk that waits, where some of its bytes were not written.
    pub(super) fn complete(&self, array: &Array, key: &Key, coords: &Coords) -> Result<()> {
        let Some(begun) = self.waiting.unread_since(key, coords) else { return Ok(()) };
        let started = Instant::now();
        let stored = Base::read(array, coords)?;
        if let Base::Stored(bytes, _) = &stored {
            self.counters.count_decoded(bytes, started);
        }
        self.waiting.complete((key, coords), begun, stored)
    }

    /// The same of all that wait for the value of `key`. All are tried; which could not be read, and why.
    pub fn complete_all(&self, array: &Array, key: &Key) -> Vec<(Coords, Error)> {
        // Those that have gone from the array are dropped when the others are stored.
        let is_there = |coords: &Coords| array.grid().contains(coords);
        let failed = |coords: Coords| {
            let error = self.complete(array, key, &coords).err()?;
            Some((coords, error))
        };
        self.waiting.unread(key).into_iter().filter(is_there).filter_map(failed).collect()
    }

    /// Length, time and version of a chunk, waiting or stored; `None` where there is none. The length of one that
    /// waits is the decoded one.
    pub fn stat(&self, array: &Array, coords: &Coords) -> Result<Option<Stat>> {
        match self.waiting.get(array, coords) {
            Some(held) => Ok(held.bytes.map(|_| held.stat)),
            None => array.stat(coords),
        }
    }

    /// The same of several chunks.
    pub fn stat_many(&self, array: &Array, coords: &[Coords]) -> Result<Vec<Option<Stat>>> {
        // In this order: what waits may be stored meanwhile, and is not found waiting then.
        let waiting: Vec<_> = coords.iter().map(|coords| self.waiting.get(array, coords)).collect();
        let stored = array.stat_many(coords)?;
        let each = waiting.into_iter().zip(stored);
        Ok(each.map(|(held, stored)| held.map_or(stored, |h| h.bytes.map(|_| h.stat))).collect())
    }

    /// Changes when a chunk that waits was modified; whether one does.
    pub fn set_modified(&self, key: &Key, coords: &Coords, modified: SystemTime) -> bool {
        self.waiting.set_modified(key, coords, modified)
    }

    /// The next index of every chunk whose first indices are `prefix`, which is shorter than the rank.
    pub fn list_dir(&self, array: &Arc<Array>, prefix: &[u64]) -> Result<Indices> {
        let stored = Arc::clone(array.chunks()).list_dir(prefix)?;
        let waiting = self.waiting.below(array, prefix);
        if waiting.is_empty() {
            return Ok(stored);
        }
        let depth = prefix.len();
        let index = |coords: &Coords| coords.indices().get(depth).copied();
        let new: BTreeSet<u64> = waiting
            .iter()
            .filter(|(_, is_there)| *is_there)
            .filter_map(|(c, _)| index(c))
            .collect();
        let erased: HashSet<Coords> = waiting
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
        if self.waiting.any_below(array, prefix) {
            return Ok(true);
        }
        Ok(self.list_prefix(array, prefix)?.next().transpose()?.is_some())
    }

    /// Every chunk whose first indices are `prefix`.
    pub fn list_prefix(&self, array: &Arc<Array>, prefix: &[u64]) -> Result<CoordsList> {
        let stored = Arc::clone(array.chunks()).list_prefix(prefix)?;
        let waiting = self.waiting.below(array, prefix);
        if waiting.is_empty() {
            return Ok(stored);
        }
        let known: HashSet<Coords> = waiting.iter().map(|(coords, _)| coords.clone()).collect();
        let new =
            waiting.into_iter().filter(|(_, is_there)| *is_there).map(|(coords, _)| Ok(coords));
        let others = stored.filter(move |found| match found {
            Ok(coords) => !known.contains(coords),
            Err(_) => true,
        });
        Ok(Box::new(new.chain(others)))
    }

    /// The keys of the values that chunks wait for and that are due, the oldest first.
    pub fn due(&self, due: Due<'_>) -> Vec<Key> {
        self.waiting.due(due)
    }

    /// The node of the array that chunks wait for in the value of `key`.
    pub fn waiting_in(&self, key: &Key) -> Option<NodePath> {
        self.waiting.path(key)
    }

    /// The node of the array that chunks wait for in the value of `key`, and the chunks: without
    /// bytes those that are to be erased. What of one is still to be read has the fill value.
    pub fn waiting_for(&self, key: &Key) -> Option<(NodePath, Vec<Waits>)> {
        let (path, chunks) = self.waiting.of(key)?;
        let bytes = chunks.into_iter().map(|(coords, held)| (coords, held.bytes));
        Some((path, bytes.collect()))
    }

    /// Takes one of the keys of the values of which every chunk waits, so that nobody else does.
    pub fn take_full(&self) -> Option<Key> {
        self.waiting.take_full()
    }

    /// Whether any chunks wait.
    pub fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Bytes of chunks that wait.
    pub fn waiting_len(&self) -> u64 {
        self.waiting.len()
    }

    /// Why what waits for the value of `key` could not be stored, if it was tried.
    pub fn failure(&self, key: &Key) -> Option<Error> {
        self.waiting.failure(key)
    }

    /// The same of anything that waits in an array.
    pub fn failure_in(&self, path: &NodePath) -> Option<Error> {
        self.waiting.failure_in(path)
    }

    /// Notes why what waits for the value of `key` could not be stored; whether that is news.
    pub fn note_failure(&self, key: &Key, error: &Error) -> bool {
        self.waiting.failed(key, error)
    }

    /// Whether a chunk waits to be stored, or erased.
    pub fn waits_at(&self, array: &Array, coords: &Coords) -> bool {
        self.held(array, coords).is_some()
    }

    /// Forgets what waits in the arrays at and below a node that is about to be removed: when this returns nobody is storing
    /// any of it either.
    pub fn forget_below(&self, path: &NodePath) {
        for key in self.waiting.due(Due::Below(path)) {
            let _turn = self.turn(&key);
            self.waiting.forget_all(&key);
        }
    }

    /// Stores what waits for the value of `key`, as one change; `array` is what it is of now. What was written again
    /// meanwhile goes on waiting, and so does everything where it cannot be stored. Chunks that an array which has
    /// become smaller does not have any more are dropped. One of which a part was written goes on waiting where the rest cannot be
    /// read: that is the second result, when the others are stored. Calls `changed` when the value has changed, before anybody
    /// is told that nothing waits for it.
    pub fn store(
        &self,
        key: &Key,
        array: &Arc<Array>,
        fill: FillChunks,
        changed: impl FnOnce(),
    ) -> Result<(Vec<Stored>, Result<()>)> {
        let _turn = self.turn(key);
        let _mark = self.waiting.being_stored(key);
        if self.waiting.is_of_another(key, array) {
            let detail = "another program replaced the array after these chunks were written";
            return Err(Error::new(Kind::Stale, detail).at(key));
        }
        let unread = match self.complete_all(array, key).into_iter().next() {
            Some((_, error)) => Err(error),
            None => Ok(()),
        };
        let Some((_, chunks)) = self.waiting.of(key) else { return Ok((Vec::new(), unread)) };
        let chunks = chunks.into_iter().filter(|(_, held)| !held.is_unread());
        let (mut chunks, outside): (Vec<_>, Vec<_>) =
            chunks.partition(|(coords, _)| array.grid().contains(coords));
        for (coords, held) in outside {
            self.waiting.done(key, &coords, (held.stat.version, held.begun), Base::Absent);
        }
        // In the order in which they came: a shard may be laid out so.
        chunks.sort_by_key(|(_, held)| held.stat.version.state());
        for (coords, held) in &chunks {
            if let Some(bytes) = &held.bytes {
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
        let stats = self.write_waiting(key, array, &mut chunks, fill)?;
        add_time(&self.counters.storing, started);
        changed();
        let mut stored = Vec::with_capacity(chunks.len());
        for ((coords, held), now) in chunks.into_iter().zip(stats) {
            self.counters.count_stored(held.bytes.as_ref());
            let was = held.stat.version;
            let base = Base::of(held.bytes.clone(), now);
            // Found stored before it is no longer found waiting.
            self.put(array, &coords, held.bytes, now);
            if !array.reads_as_written(&coords) {
                self.changed(array);
            }
            if self.waiting.done(key, &coords, (was, held.begun), base) {
                stored.push(Stored { coords, was, now, modified: held.modified });
            }
        }
        Ok((stored, unread))
    }
}

impl ChunkCache {
    /// Stores chunks that wait for the value of `key`. If another program has stored partially
    /// changed ones meanwhile, its elements are first merged into them and into the waiting chunks.
    fn write_waiting(
        &self,
        key: &Key,
        array: &Array,
        chunks: &mut [(Coords, Held)],
        fill: FillChunks,
    ) -> Result<Vec<Option<Stat>>> {
        let rebase = |coords: &Coords, held: &mut Held, now: Option<Base>| {
            self.waiting.rebase((key, coords), held, array, now)?;
            self.changed(array);
            Ok(())
        };
        base::write_rebased(
            array,
            chunks,
            fill,
            |held| (held.bytes.as_ref(), held.base.as_ref()),
            rebase,
        )
    }
}

/// How many bytes of a decoded chunk lie in the array.
fn array_len(array: &Array, coords: &Coords) -> Result<u64> {
    let extent = array.grid().extent(coords, &array.model().shape)?;
    let item_len = u64::try_from(array.model().dtype.item_len()).unwrap_or(u64::MAX);
    Ok(extent.iter().fold(item_len, |all, len| all.saturating_mul(*len)))
}

/// Whether an array has a stored chunk whose first indices are `prefix`, besides those that are erased.
fn any_but(array: &Arc<Array>, prefix: &[u64], erased: &HashSet<Coords>) -> Result<bool> {
    for coords in Arc::clone(array.chunks()).list_prefix(prefix)? {
        if !erased.contains(&coords?) {
            return Ok(true);
        }
    }
    Ok(false)
}
