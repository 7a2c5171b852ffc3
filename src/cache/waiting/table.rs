//! The chunks that wait, by the stored value that they will lie in and by array.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use super::held::{Held, Pending};
use crate::array::{Array, Coords};
use crate::error::Error;
use crate::metadata::NodePath;
use crate::store::{Key, Prefix};

/// The chunks that wait for one stored value.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) path: NodePath,
    /// The array that the chunks were written for. Of another one that has its place now they are no chunks.
    pub(super) array: Arc<Array>,
    pub(super) prefix: Prefix,
    pub(super) chunks: BTreeMap<Coords, Held>,
    /// How many chunks there are in all.
    pub(super) most: u64,
    /// How many of those that wait are not complete.
    pub(super) incomplete: u64,
    /// Since when the first of them has waited, or since when the last attempt to store them has failed.
    pub(super) since: Instant,
    /// Whether somebody is storing them.
    pub(super) is_being_stored: bool,
    pub(super) failure: Option<Error>,
}

impl Shard {
    /// The value at which a chunk of `array` is to be stored, with up to `most` chunks; none waits yet.
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
pub(super) struct Table {
    pub(super) shards: BTreeMap<Key, Shard>,
    /// The chunks of each array in order, and whether each is to be there.
    pub(super) by_array: HashMap<Prefix, BTreeMap<Coords, bool>>,
    /// The values of which every chunk waits.
    pub(super) full: BTreeSet<Key>,
    /// Those that could not be stored so far.
    pub(super) failed: BTreeSet<Key>,
}

impl Table {
    /// The values of which every chunk waits, and that could be stored so far and that nobody is storing.
    pub(super) fn full(&self) -> impl Iterator<Item = &Key> {
        let is_due = |key: &&Key| {
            let shard = self.shards.get(*key);
            shard.is_some_and(|shard| shard.failure.is_none() && !shard.is_being_stored)
        };
        self.full.iter().filter(is_due)
    }

    /// What waits for the value of `key` in `array`; not what waits for another array that was there before.
    pub(super) fn shard(&self, key: &Key, array: &Array) -> Option<&Shard> {
        self.shards.get(key).filter(|shard| array.has_chunks_of(&shard.array))
    }

    pub(super) fn what_waits(&self, array: &Array, key: &Key, coords: &Coords) -> Pending {
        Pending::of(self.held(array, key, coords))
    }

    pub(super) fn held(&self, array: &Array, key: &Key, coords: &Coords) -> Option<&Held> {
        self.shard(key, array)?.chunks.get(coords)
    }

    /// Takes out what waits at `coords`, if `is_it`.
    pub(super) fn remove(
        &mut self,
        key: &Key,
        coords: &Coords,
        is_it: impl Fn(&Held) -> bool,
    ) -> Option<Held> {
        let shard = self.shards.get_mut(key)?;
        if !shard.chunks.get(coords).is_some_and(is_it) {
            return None;
        }
        let held = shard.chunks.remove(coords);
        shard.incomplete -= held.as_ref().map_or(0, Held::incomplete);
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
        held
    }

    /// Every chunk of an array that waits, of those whose first indices are `prefix`.
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
