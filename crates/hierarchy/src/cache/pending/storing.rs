//! Pending chunks while they are stored: which values are due, and what becomes of a chunk when its
//! value was stored or could not be.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::table::Shard;
use super::{ChunkAt, Due, PendingChunk, PendingChunks};
use crate::array::Array;
use crate::cache::base::ChunkBase;
use crate::metadata::NodePath;
use zarrfs_base::buffer::Buffer;
use zarrfs_base::error::{Error, Result};
use zarrfs_store::{Key, Version};

impl PendingChunks {
    /// Returns the keys of the values that are due, the oldest first.
    pub(in crate::cache) fn due(&self, due: Due<'_>) -> Vec<Key> {
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

    /// Takes the key of a value with all chunks pending.
    pub(in crate::cache) fn take_full(&self) -> Option<Key> {
        if self.is_empty() {
            return None;
        }
        let mut table = self.table.lock();
        let key = table.full().next().cloned()?;
        table.full.remove(&key);
        Some(key)
    }

    /// Marks the value of `key` as being stored until the result is dropped.
    pub(in crate::cache) fn being_stored<'w>(&'w self, key: &'w Key) -> BeingStored<'w> {
        self.mark(key, true);
        BeingStored(self, key)
    }

    fn mark(&self, key: &Key, is_being_stored: bool) {
        if let Some(shard) = self.table.lock().shards.get_mut(key) {
            shard.is_being_stored = is_being_stored;
        }
    }

    /// Makes `bytes` those of the pending chunk `known`, and `base` what they are based on. A chunk
    /// that was written again since stays as it is, and is stored after this one.
    pub(in crate::cache) fn complete_from(
        &self,
        chunk: ChunkAt<'_>,
        known: &mut PendingChunk,
        bytes: Buffer,
        base: ChunkBase,
    ) {
        let version = known.stat.version;
        (known.bytes, known.base) = (Some(bytes), Some(base));
        let mut table = self.table.lock();
        let shard = table.shards.get_mut(chunk.key);
        let pending = shard.and_then(|shard| shard.chunks.get_mut(chunk.coords));
        if let Some(pending) = pending.filter(|pending| pending.stat.version.is_same(version)) {
            let cost = pending.cost();
            (pending.bytes, pending.base) = (known.bytes.clone(), known.base.clone());
            self.recost(cost, pending);
        }
    }

    /// Records that the chunk `known` was stored as `base`. If its bytes have not changed since, it
    /// is no longer pending, and this returns it with the time that programs have set until now.
    pub(in crate::cache) fn done(
        &self,
        chunk: ChunkAt<'_>,
        known: &PendingChunk,
        base: ChunkBase,
    ) -> Option<PendingChunk> {
        let ChunkAt { key, coords } = chunk;
        let (version, begun) = (known.stat.version, known.begun);
        // The store works again, so an earlier failure is obsolete.
        let mut table = self.table.lock();
        if let Some(shard) = table.shards.get_mut(key) {
            shard.failure = None;
            let pending = shard.chunks.get_mut(coords).filter(|pending| pending.begun == begun);
            if let Some(pending) = pending.filter(|pending| !pending.stat.version.is_same(version))
            {
                let cost = pending.cost();
                pending.base = Some(base);
                self.recost(cost, pending);
            }
            table.failed.remove(key);
        }
        drop(table);
        self.remove(key, coords, |pending| pending.stat.version.is_same(version))
    }

    /// Merges `now`, the chunk that another program stored, into the pending chunk if it is still
    /// the one of `known`, and sets `known` to the result.
    pub(in crate::cache) fn rebase(
        &self,
        chunk: ChunkAt<'_>,
        known: &mut PendingChunk,
        array: &Array,
        now: Option<ChunkBase>,
    ) -> Result<()> {
        let ChunkAt { key, coords } = chunk;
        let mut table = self.table.lock();
        let pending = table.shards.get_mut(key).and_then(|shard| shard.chunks.get_mut(coords));
        let Some(pending) = pending.filter(|pending| pending.begun == known.begun) else {
            drop(table);
            // The pending chunk was written completely since, and is stored after this one.
            return known.rebase(array, coords, now).map(drop);
        };
        let cost = pending.cost();
        if pending.rebase(array, coords, now)? {
            let number = self.versions.fetch_add(1, Ordering::Relaxed);
            pending.stat.version = Version::unstored(number);
        }
        self.recost(cost, pending);
        *known = pending.clone();
        Ok(())
    }

    /// Records that `known` was stored as `now`. If the pending chunk has changed since `known`,
    /// these changes stay pending and the other elements are taken from `now`. A chunk that was
    /// written completely since stays pending as it is. Otherwise the chunk is no longer pending.
    pub(in crate::cache) fn written(
        &self,
        chunk: ChunkAt<'_>,
        known: &PendingChunk,
        array: &Array,
        now: ChunkBase,
    ) -> Result<()> {
        let ChunkAt { key, coords } = chunk;
        let mut guard = self.table.lock();
        let table = &mut *guard;
        let Some(shard) = table.shards.get_mut(key) else { return Ok(()) };
        let pending = shard.chunks.get_mut(coords).filter(|pending| pending.begun == known.begun);
        // The pending chunk was written completely since, and is stored after this one.
        let Some(pending) = pending else { return Ok(()) };
        if pending.stat.version.is_same(known.stat.version) {
            let gone = table.remove(key, coords, |_| true);
            self.memory.shrink(gone.as_ref().map_or(0, PendingChunk::cost));
            self.recount(table);
            drop(guard);
            drop(gone); // Freeing memory takes time: not under the lock.
            return Ok(());
        }
        let (before, cost) = (pending.incomplete(), pending.cost());
        let number = self.versions.fetch_add(1, Ordering::Relaxed);
        pending.base =
            known.bytes.clone().map(|bytes| ChunkBase::Stored(bytes, known.stat.version));
        pending.rebase(array, coords, Some(now))?;
        pending.stat.version = Version::unstored(number);
        // The unwritten bytes are those of `now`, so none has to be read.
        pending.unread = None;
        shard.incomplete -= before.saturating_sub(pending.incomplete());
        self.recost(cost, pending);
        Ok(())
    }

    /// Records why the pending chunks in the value of `key` could not be stored; `false` if the
    /// reason is known already.
    pub(in crate::cache) fn failed(&self, key: &Key, error: &Error) -> bool {
        let mut table = self.table.lock();
        let Some(shard) = table.shards.get_mut(key) else { return true };
        shard.since = Instant::now();
        let before = shard.failure.replace(error.clone());
        table.failed.insert(key.clone());
        before.as_ref() != Some(error)
    }

    /// Returns why the pending chunks in the value of `key` could not be stored, if that was tried.
    pub(in crate::cache) fn failure(&self, key: &Key) -> Option<Error> {
        if self.is_empty() {
            return None;
        }
        self.table.lock().shards.get(key)?.failure.clone()
    }

    /// Returns why any pending chunk of an array could not be stored.
    pub(in crate::cache) fn failure_in(&self, path: &NodePath) -> Option<Error> {
        if self.is_empty() {
            return None;
        }
        let table = self.table.lock();
        let mut failed = table.failed.iter().filter_map(|key| table.shards.get(key));
        failed.find(|shard| shard.path == *path)?.failure.clone()
    }
}

/// Marks a value as being stored until it is dropped.
pub(in crate::cache) struct BeingStored<'w>(&'w PendingChunks, &'w Key);

impl Drop for BeingStored<'_> {
    fn drop(&mut self) {
        self.0.mark(self.1, false);
    }
}
