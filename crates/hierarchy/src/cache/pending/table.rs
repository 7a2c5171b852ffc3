//! The pending chunks by their stored value and by array.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use super::chunk::{PendingChunk, PendingState};
use crate::array::{Array, Coords};
use crate::metadata::NodePath;
use zarrfs_base::error::Error;
use zarrfs_store::{Key, Prefix};

/// The pending chunks of one stored value.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) path: NodePath,
    /// The array that the chunks were written for. They do not belong to another array that
    /// replaced it.
    pub(super) array: Arc<Array>,
    pub(super) prefix: Prefix,
    pub(super) chunks: BTreeMap<Coords, PendingChunk>,
    /// The number of chunks in the value.
    pub(super) most: u64,
    /// The number of pending chunks that are incomplete.
    pub(super) incomplete: u64,
    /// When the first of them became pending, or when the last attempt to store them failed.
    pub(super) since: Instant,
    /// Whether a thread is storing them.
    pub(super) is_being_stored: bool,
    pub(super) failure: Option<Error>,
}

impl Shard {
    /// Returns an empty entry for a value with up to `most` chunks of `array`.
    pub(super) fn new(path: &NodePath, array: &Arc<Array>, most: u64) -> Self {
        Self {
            path: path.clone(),
            array: Arc::clone(array),
            prefix: array.prefix().clone(),
            chunks: BTreeMap::new(),
            most,
            incomplete: 0,
            since: Instant::now(),
            is_being_stored: false,
            failure: None,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.incomplete == 0
            && u64::try_from(self.chunks.len()).is_ok_and(|count| count >= self.most)
    }
}

#[derive(Debug, Default)]
pub(super) struct PendingTable {
    pub(super) shards: BTreeMap<Key, Shard>,
    /// The pending chunks of each array in order; `false` marks those to be erased.
    pub(super) by_array: HashMap<Prefix, BTreeMap<Coords, bool>>,
    /// The values with all chunks pending.
    pub(super) full: BTreeSet<Key>,
    /// The values that could not be stored so far.
    pub(super) failed: BTreeSet<Key>,
}

impl PendingTable {
    /// Returns the values with all chunks pending that no thread is storing and that have not
    /// failed.
    pub(super) fn full(&self) -> impl Iterator<Item = &Key> {
        let is_due = |key: &&Key| {
            let shard = self.shards.get(*key);
            shard.is_some_and(|shard| shard.failure.is_none() && !shard.is_being_stored)
        };
        self.full.iter().filter(is_due)
    }

    /// Returns the pending chunks in the value of `key`, if they were written for `array` and not
    /// for an array that it replaced.
    pub(super) fn shard(&self, key: &Key, array: &Array) -> Option<&Shard> {
        self.shards.get(key).filter(|shard| array.has_chunks_of(&shard.array))
    }

    pub(super) fn state(&self, array: &Array, key: &Key, coords: &Coords) -> PendingState {
        PendingState::of(self.pending(array, key, coords))
    }

    pub(super) fn pending(
        &self,
        array: &Array,
        key: &Key,
        coords: &Coords,
    ) -> Option<&PendingChunk> {
        self.shard(key, array)?.chunks.get(coords)
    }

    /// Removes a pending chunk if `is_it` accepts it.
    pub(super) fn remove(
        &mut self,
        key: &Key,
        coords: &Coords,
        is_it: impl Fn(&PendingChunk) -> bool,
    ) -> Option<PendingChunk> {
        let shard = self.shards.get_mut(key)?;
        if !shard.chunks.get(coords).is_some_and(is_it) {
            return None;
        }
        let pending = shard.chunks.remove(coords);
        shard.incomplete -= pending.as_ref().map_or(0, PendingChunk::incomplete);
        self.full.remove(key);
        if let Some(chunks) = self.by_array.get_mut(&shard.prefix) {
            chunks.remove(coords);
            if chunks.is_empty() {
                self.by_array.remove(&shard.prefix);
            }
        }
        if shard.chunks.is_empty() {
            self.shards.remove(key);
            self.failed.remove(key);
        }
        pending
    }

    /// Returns the pending chunks of an array whose first indices are `prefix`.
    pub(super) fn below<'t>(
        &'t self,
        array: &Prefix,
        prefix: &'t [u64],
    ) -> impl Iterator<Item = (&'t Coords, bool)> + use<'t> {
        let chunks = self.by_array.get(array);
        let from = chunks.map(|chunks| chunks.range(Coords::new(prefix)..));
        let below = from.into_iter().flatten().take_while(|(coords, _)| coords.starts_with(prefix));
        below.map(|(coords, is_there)| (coords, *is_there))
    }
}
