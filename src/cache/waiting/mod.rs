//! Chunks that wait to be stored together with the others of their stored value, a shard.
//!
//! The cache shows them as part of the array: a chunk that waits is read, listed and measured as if
//! it were stored, and a chunk that waits to be erased is absent. All chunks that wait for one
//! stored value are stored as one change of it. If they cannot be stored, they keep waiting.
//!
//! Every reader asks the cache (`get`, `stat`, `list_dir`, `has_chunks`), which puts pending chunks
//! over stored ones, so no module above knows which is which. A pending chunk has a version of its
//! own (`Version::unstored`). When it is stored, the kernel's pages stay valid under the version of
//! the store.
//!
//! An inner chunk of a shard waits for the others. Any chunk waits if the store did not take it.
//! With `--writeback=all` every chunk waits until a thread is free to encode it. So there is one
//! place to retry, to report and to rescue from. Only `vfs::gather` decides when to store: `close`,
//! `fsync`, the ticker and memory pressure all call it.
//!
//! A chunk that is written through a view may be pending before all of its bytes are known.
//! `Unread` names the range that is here. The rest is read when a program reads or stores the
//! chunk, or writes elsewhere in it. If it cannot be read then, the chunk stays pending and only
//! that is reported.

mod held;
mod table;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use held::Unread;
pub(super) use held::{Begin, Changed, Held, Pending};
use table::{Shard, Table};

use super::{Base, NewChunk};
use crate::array::region::Cover;
use crate::array::{Array, Coords};
use crate::buffer::Buffer;
use crate::error::{At, Error, Result};
use crate::metadata::NodePath;
use crate::store::{Key, Stat, Version};

/// Which of them are to be stored.
#[derive(Debug, Clone, Copy)]
pub enum Due<'p> {
    /// All.
    All,
    /// Those that have waited for so long, and that nobody is storing.
    Since(Duration),
    /// Those of which every chunk waits: nothing would be gained by waiting longer. Not those that could not be stored,
    /// or that somebody is storing.
    Full,
    /// Those of the arrays at and below a node.
    Below(&'p NodePath),
}

/// All chunks that wait, by the key of the value that they will lie in.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// A leaf: held for look-ups only, never while storing.
    table: Mutex<Table>,
    /// Bytes of the chunks, and stored values that they wait for: nobody need lock to know that there are none.
    len: AtomicU64,
    count: AtomicU64,
    versions: AtomicU64,
}

impl Waiting {
    /// Decoded bytes that wait, with what it takes to keep them.
    pub(super) fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    fn recount(&self, table: &Table) {
        let count = u64::try_from(table.shards.len()).unwrap_or(u64::MAX);
        self.count.store(count, Ordering::Release);
    }

    /// Lets a chunk wait. It replaces a chunk that already waits there.
    pub(super) fn hold(
        &self,
        path: &NodePath,
        array: &Arc<Array>,
        to: (&Key, &Coords),
        new: NewChunk,
        modified: Option<SystemTime>,
    ) -> Stat {
        let begin = new.bytes.is_some().then_some(Begin::Whole(new, 0));
        self.put(|_| true, (path, array), to, begin, modified).unwrap_or_else(|stat| stat)
    }

    /// Lets a partially changed chunk wait if `known` is still what waits there. Otherwise it
    /// changes nothing and returns `None`.
    pub(super) fn hold_changed(
        &self,
        path: &NodePath,
        array: &Arc<Array>,
        to: (&Key, &Coords),
        (new, known): (NewChunk, Option<Held>),
        modified: Option<SystemTime>,
    ) -> Option<Stat> {
        let version = |held: &Held| held.stat.version.state();
        let was = known.as_ref().map(version);
        let begin = match known {
            Some(known) => Begin::Changed(new, known.begun),
            None => Begin::Whole(new, 0),
        };
        self.put(|now| now.map(version) == was, (path, array), to, Some(begin), modified).ok()
    }

    /// Lets a chunk begin to wait if `before` is still the state there. Otherwise it changes
    /// nothing and returns `None`.
    pub(super) fn hold_after(
        &self,
        before: Pending,
        path: &NodePath,
        array: &Arc<Array>,
        to: (&Key, &Coords),
        begin: Begin,
    ) -> Option<Stat> {
        self.put(|now| Pending::of(now) == before, (path, array), to, Some(begin), None).ok()
    }

    /// What waits at `coords`.
    pub(super) fn what_waits(&self, array: &Array, key: &Key, coords: &Coords) -> Pending {
        self.table.lock().what_waits(array, key, coords)
    }

    /// Whether what waits for the value of `key` was written for another array than `array`.
    pub(super) fn is_of_another(&self, key: &Key, array: &Array) -> bool {
        let table = self.table.lock();
        table.shards.get(key).is_some_and(|shard| !array.has_chunks_of(&shard.array))
    }

    fn put(
        &self,
        is_as_known: impl FnOnce(Option<&Held>) -> bool,
        (path, array): (&NodePath, &Arc<Array>),
        (key, coords): (&Key, &Coords),
        begin: Option<Begin>,
        modified: Option<SystemTime>,
    ) -> std::result::Result<Stat, Stat> {
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
        if !is_as_known(table.held(array, key, coords)) {
            return Err(stat);
        }
        let shard = table
            .shards
            .entry(key.clone())
            .or_insert_with(|| Shard::new(path, array, array.chunks_beside(coords)));
        let chunks = table.by_array.entry(shard.prefix.clone()).or_default();
        chunks.insert(coords.clone(), bytes.is_some());
        let held = Held { bytes, stat, modified, missing, unread, base, begun };
        let cost = held.cost();
        shard.incomplete += held.incomplete();
        let old = shard.chunks.insert(coords.clone(), held);
        shard.incomplete -= old.as_ref().map_or(0, Held::incomplete);
        if shard.is_full() {
            table.full.insert(key.clone());
        }
        self.len.fetch_add(cost, Ordering::Relaxed);
        self.len.fetch_sub(old.as_ref().map_or(0, Held::cost), Ordering::Relaxed);
        self.recount(table);
        drop(guard);
        drop(old); // Freeing memory takes time: not under the lock.
        Ok(stat)
    }

    /// Changes bytes of a chunk that waits, of which `whole` lie in the array. It is another version then, though not a complete
    /// one if that fails.
    pub(super) fn change(
        &self,
        array: &Array,
        (key, coords): (&Key, &Coords),
        cover: &Cover,
        whole: u64,
        change: &mut dyn FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<Changed> {
        loop {
            match self.try_change(array, (key, coords), cover, whole, change)? {
                Changed::Shared => self.unshare(key, coords)?,
                changed => return Ok(changed),
            }
        }
    }

    /// Gives a chunk that waits bytes of its own, which are copied while nobody waits for the table.
    fn unshare(&self, key: &Key, coords: &Coords) -> Result<()> {
        let table = self.table.lock();
        let held = table.shards.get(key).and_then(|shard| shard.chunks.get(coords)).cloned();
        drop(table);
        let Some(held) = held else { return Ok(()) };
        let Some(own) = held.bytes.as_ref().map(Buffer::copied).transpose()? else { return Ok(()) };
        let mut table = self.table.lock();
        let now = table.shards.get_mut(key).and_then(|shard| shard.chunks.get_mut(coords));
        let now = now.filter(|now| now.stat.version.is_same(held.stat.version));
        let shared = now.and_then(|now| now.bytes.replace(own));
        drop(table);
        drop(shared); // Freeing memory takes time: not under the lock.
        Ok(())
    }

    /// The same, if nobody else has a share of its bytes: then nothing is copied but what changes.
    pub(super) fn try_change(
        &self,
        array: &Array,
        (key, coords): (&Key, &Coords),
        cover: &Cover,
        whole: u64,
        change: &mut dyn FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<Changed> {
        if self.is_empty() {
            return Ok(Changed::Nothing);
        }
        let mut guard = self.table.lock();
        let table = &mut *guard;
        let Some(shard) =
            table.shards.get_mut(key).filter(|shard| array.has_chunks_of(&shard.array))
        else {
            return Ok(Changed::Nothing);
        };
        let Some(held) = shard.chunks.get_mut(coords) else { return Ok(Changed::Nothing) };
        let (before, cost) = (held.incomplete(), held.cost());
        let Some(bytes) = &mut held.bytes else { return Ok(Changed::Nothing) };
        let written = match &held.unread {
            Some(unread) => match unread.written_with(cover, bytes.len()) {
                None => return Ok(Changed::Unread),
                written => written,
            },
            None => None,
        };
        if bytes.is_shared() {
            return Ok(Changed::Shared);
        }
        let number = self.versions.fetch_add(1, Ordering::Relaxed);
        (held.stat.version, held.stat.modified) = (Version::unstored(number), SystemTime::now());
        held.modified = None;
        change(bytes.to_mut())?;
        if matches!(cover, Cover::Whole) {
            (held.base, held.begun) = (None, number);
        }
        held.missing = held.missing.saturating_sub(cover.part().unwrap_or(whole));
        match (&mut held.unread, written) {
            (unread, Some(all)) if all == (0..bytes.len()) => (*unread, held.missing) = (None, 0),
            (Some(unread), Some(written)) => unread.written = written,
            _ => {}
        }
        self.recost(cost, held);
        let is_complete = held.incomplete() == 0;
        if before > 0 && is_complete {
            shard.incomplete -= 1;
        }
        if is_complete && shard.is_full() && shard.failure.is_none() {
            table.full.insert(key.clone());
        }
        Ok(Changed::Done)
    }

    /// The chunks that wait for the value of `key` and of which something is still to be read.
    pub(super) fn unread(&self, key: &Key) -> Vec<Coords> {
        let table = self.table.lock();
        let chunks = table.shards.get(key).into_iter().flat_map(|shard| &shard.chunks);
        chunks.filter(|(_, held)| held.is_unread()).map(|(coords, _)| coords.clone()).collect()
    }

    /// Since which version the bytes of a chunk that waits are to be read that were not written; none where all are here.
    pub(super) fn unread_since(&self, key: &Key, coords: &Coords) -> Option<u64> {
        let table = self.table.lock();
        let held = table.shards.get(key)?.chunks.get(coords)?;
        held.is_unread().then_some(held.begun)
    }

    /// Puts what is stored of a chunk where nothing was written, if it is still the one that began to wait so.
    pub(super) fn complete(
        &self,
        (key, coords): (&Key, &Coords),
        begun: u64,
        stored: Base,
    ) -> Result<()> {
        if matches!(stored, Base::Stored(..)) {
            self.unshare(key, coords)?;
        }
        let mut table = self.table.lock();
        let Some(shard) = table.shards.get_mut(key) else { return Ok(()) };
        let Some(held) = shard.chunks.get_mut(coords) else { return Ok(()) };
        let (before, cost) = (held.incomplete(), held.cost());
        let (Some(bytes), Some(unread)) = (&mut held.bytes, &held.unread) else { return Ok(()) };
        if held.begun != begun {
            return Ok(());
        }
        if let Base::Stored(stored, _) = &stored {
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
        (held.unread, held.base) = (None, Some(stored));
        self.recost(cost, held);
        shard.incomplete -= before.saturating_sub(held.incomplete());
        Ok(())
    }

    /// Takes one of the values of which every chunk waits.
    pub(super) fn take_full(&self) -> Option<Key> {
        if self.is_empty() {
            return None;
        }
        let mut table = self.table.lock();
        let key = table.full().next().cloned()?;
        table.full.remove(&key);
        Some(key)
    }

    /// What waits at `coords` in the value of `key`.
    pub(super) fn get(&self, array: &Array, coords: &Coords) -> Option<Held> {
        if self.is_empty() {
            return None;
        }
        let key = array.key(coords).ok()?;
        self.table.lock().shard(&key, array)?.chunks.get(coords).cloned()
    }

    /// Changes when a chunk that waits was modified; whether one does.
    pub(super) fn set_modified(&self, key: &Key, coords: &Coords, modified: SystemTime) -> bool {
        let mut table = self.table.lock();
        let held = table.shards.get_mut(key).and_then(|shard| shard.chunks.get_mut(coords));
        if let Some(held) = held {
            held.modified = Some(modified);
            held.stat.modified = modified;
            return held.bytes.is_some();
        }
        false
    }

    /// What waits in an array, of the chunks whose first indices are `prefix`: whether each is to be there.
    pub(super) fn below(&self, array: &Array, prefix: &[u64]) -> Vec<(Coords, bool)> {
        if self.is_empty() {
            return Vec::new();
        }
        let table = self.table.lock();
        let below = table.below(array.prefix(), prefix);
        below.map(|(coords, is_there)| (coords.clone(), is_there)).collect()
    }

    /// Whether a chunk of an array whose first indices are `prefix` waits to be there.
    pub(super) fn any_below(&self, array: &Array, prefix: &[u64]) -> bool {
        !self.is_empty()
            && self.table.lock().below(array.prefix(), prefix).any(|(_, is_there)| is_there)
    }

    /// The keys of the values that are due, those that have waited longest first.
    pub(super) fn due(&self, due: Due<'_>) -> Vec<Key> {
        if self.is_empty() {
            return Vec::new();
        }
        let table = self.table.lock();
        if let Due::Full = due {
            return table.full().cloned().collect();
        }
        let is_due = |shard: &Shard| match due {
            Due::All | Due::Full => true,
            Due::Since(delay) => !shard.is_being_stored && shard.since.elapsed() >= delay,
            Due::Below(path) => shard.path.relative_to(path).is_some(),
        };
        let mut keys: Vec<(Instant, Key)> = table
            .shards
            .iter()
            .filter(|(_, shard)| is_due(shard))
            .map(|(key, shard)| (shard.since, key.clone()))
            .collect();
        drop(table);
        keys.sort();
        keys.into_iter().map(|(_, key)| key).collect()
    }

    /// What waits for the value of `key`, and the array that it is of.
    pub(super) fn of(&self, key: &Key) -> Option<(NodePath, Vec<(Coords, Held)>)> {
        let table = self.table.lock();
        let shard = table.shards.get(key)?;
        let chunks = shard.chunks.iter().map(|(coords, held)| (coords.clone(), held.clone()));
        Some((shard.path.clone(), chunks.collect()))
    }

    /// The array that chunks wait for in the value of `key`.
    pub(super) fn path(&self, key: &Key) -> Option<NodePath> {
        self.table.lock().shards.get(key).map(|shard| shard.path.clone())
    }

    /// Notes that somebody is storing what waits for the value of `key`, until what is returned is dropped.
    pub(super) fn being_stored<'w>(&'w self, key: &'w Key) -> BeingStored<'w> {
        self.mark(key, true);
        BeingStored(self, key)
    }

    fn mark(&self, key: &Key, is_being_stored: bool) {
        if let Some(shard) = self.table.lock().shards.get_mut(key) {
            shard.is_being_stored = is_being_stored;
        }
    }

    /// Notes that the chunk of `version` was stored, as `base`. Returns whether it has not changed
    /// since, so that it no longer waits.
    pub(super) fn done(
        &self,
        key: &Key,
        coords: &Coords,
        (version, begun): (Version, u64),
        base: Base,
    ) -> bool {
        // The store has taken something: why it did not before is no longer so.
        let mut table = self.table.lock();
        if let Some(shard) = table.shards.get_mut(key) {
            shard.failure = None;
            let held = shard.chunks.get_mut(coords).filter(|held| held.begun == begun);
            if let Some(held) = held.filter(|held| !held.stat.version.is_same(version)) {
                let cost = held.cost();
                held.base = Some(base);
                self.recost(cost, held);
            }
            table.failed.remove(key);
        }
        drop(table);
        self.remove(key, coords, |held| held.stat.version.is_same(version))
    }

    /// Merges `now`, the chunk that another program has stored, into the waiting chunk if it is
    /// still the one of `known`, and sets `known` to the result.
    pub(super) fn rebase(
        &self,
        (key, coords): (&Key, &Coords),
        known: &mut Held,
        array: &Array,
        now: Option<Base>,
    ) -> Result<()> {
        let mut table = self.table.lock();
        let held = table.shards.get_mut(key).and_then(|shard| shard.chunks.get_mut(coords));
        let Some(held) = held.filter(|held| held.begun == known.begun) else {
            drop(table);
            // What waits now was written as a whole, and is stored after this.
            return known.rebase(array, coords, now).map(drop);
        };
        let cost = held.cost();
        if held.rebase(array, coords, now)? {
            let number = self.versions.fetch_add(1, Ordering::Relaxed);
            held.stat.version = Version::unstored(number);
        }
        self.recost(cost, held);
        *known = held.clone();
        Ok(())
    }

    /// Notes that a chunk was stored as `now` while `known` was waiting. If the waiting chunk has
    /// changed since `known`, these changes keep waiting, and the other elements are taken from
    /// `now`. A chunk that was written completely since keeps waiting as it is. Otherwise the chunk
    /// no longer waits.
    pub(super) fn written(
        &self,
        (key, coords): (&Key, &Coords),
        known: &Held,
        array: &Array,
        now: Base,
    ) -> Result<()> {
        let mut guard = self.table.lock();
        let table = &mut *guard;
        let Some(shard) = table.shards.get_mut(key) else { return Ok(()) };
        let held = shard.chunks.get_mut(coords).filter(|held| held.begun == known.begun);
        // What waits now was written as a whole, and is stored after this.
        let Some(held) = held else { return Ok(()) };
        if held.stat.version.is_same(known.stat.version) {
            let gone = table.remove(key, coords, |_| true);
            self.len.fetch_sub(gone.as_ref().map_or(0, Held::cost), Ordering::Relaxed);
            self.recount(table);
            drop(guard);
            drop(gone); // Freeing memory takes time: not under the lock.
            return Ok(());
        }
        let (before, cost) = (held.incomplete(), held.cost());
        let number = self.versions.fetch_add(1, Ordering::Relaxed);
        held.base = known.bytes.clone().map(|bytes| Base::Stored(bytes, known.stat.version));
        held.rebase(array, coords, Some(now))?;
        held.stat.version = Version::unstored(number);
        // The bytes that were not written are those of `now`, so none has to be read.
        held.unread = None;
        shard.incomplete -= before.saturating_sub(held.incomplete());
        self.recost(cost, held);
        Ok(())
    }

    /// Counts what a chunk takes that took `before`.
    fn recost(&self, before: u64, held: &Held) {
        self.len.fetch_add(held.cost(), Ordering::Relaxed);
        self.len.fetch_sub(before, Ordering::Relaxed);
    }

    /// Forgets what waits at `coords`.
    pub(super) fn forget(&self, key: &Key, coords: &Coords) {
        if !self.is_empty() {
            self.remove(key, coords, |_| true);
        }
    }

    fn remove(&self, key: &Key, coords: &Coords, is_it: impl Fn(&Held) -> bool) -> bool {
        let mut table = self.table.lock();
        let gone = table.remove(key, coords, is_it);
        self.len.fetch_sub(gone.as_ref().map_or(0, Held::cost), Ordering::Relaxed);
        self.recount(&table);
        drop(table);
        gone.is_some()
    }

    /// Notes that what waits for the value of `key` could not be stored; whether that is news.
    pub(super) fn failed(&self, key: &Key, error: &Error) -> bool {
        let mut table = self.table.lock();
        let Some(shard) = table.shards.get_mut(key) else { return true };
        shard.since = Instant::now();
        let before = shard.failure.replace(error.clone());
        table.failed.insert(key.clone());
        before.as_ref() != Some(error)
    }

    /// Why what waits for the value of `key` could not be stored, if it was tried.
    pub(super) fn failure(&self, key: &Key) -> Option<Error> {
        if self.is_empty() {
            return None;
        }
        self.table.lock().shards.get(key)?.failure.clone()
    }

    /// The same of anything that waits in an array.
    pub(super) fn failure_in(&self, path: &NodePath) -> Option<Error> {
        if self.is_empty() {
            return None;
        }
        let table = self.table.lock();
        let mut failed = table.failed.iter().filter_map(|key| table.shards.get(key));
        failed.find(|shard| shard.path == *path)?.failure.clone()
    }

    /// Forgets what waits for the value of `key`.
    pub(super) fn forget_all(&self, key: &Key) {
        for (coords, _) in self.of(key).map(|(_, chunks)| chunks).unwrap_or_default() {
            self.forget(key, &coords);
        }
    }
}

/// What waits for a value is being stored.
pub(super) struct BeingStored<'w>(&'w Waiting, &'w Key);

impl Drop for BeingStored<'_> {
    fn drop(&mut self) {
        self.0.mark(self.1, false);
    }
}

fn len_of(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
