//! Which chunks an array has, stored or pending, and their stats.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::chunk_cache::ChunkCache;
use crate::array::{Array, Coords, CoordsList, Indices};
use zarrfs_base::error::Result;
use zarrfs_store::Stat;

impl ChunkCache {
    /// Returns the stat of a chunk, pending or stored; `None` if there is none. The length of a
    /// pending chunk is the decoded one.
    pub fn stat(&self, array: &Array, coords: &Coords) -> Result<Option<Stat>> {
        self.settle_forms(array, coords)?;
        match self.pending.get(array, coords) {
            Some(pending) => Ok(pending.bytes.map(|_| pending.stat)),
            None => array.stat(coords),
        }
    }

    /// Returns the stats of several chunks.
    pub fn stat_many(&self, array: &Array, coords: &[Coords]) -> Result<Vec<Option<Stat>>> {
        self.settle_array(array)?;
        // In this order, because a chunk may be stored in between and is then no longer pending.
        let pending: Vec<_> = coords.iter().map(|coords| self.pending.get(array, coords)).collect();
        let stored = array.stat_many(coords)?;
        let each = pending.into_iter().zip(stored);
        Ok(each
            .map(|(chunk, stored)| chunk.map_or(stored, |chunk| chunk.bytes.map(|_| chunk.stat)))
            .collect())
    }

    /// Returns the next index of every chunk whose first indices are `prefix`, which is shorter
    /// than the rank.
    pub fn list_dir(&self, array: &Arc<Array>, prefix: &[u64]) -> Result<Indices> {
        self.settle_array(array)?;
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
        self.settle_array(array)?;
        if self.pending.any_below(array, prefix) {
            return Ok(true);
        }
        Ok(self.list_prefix(array, prefix)?.next().transpose()?.is_some())
    }

    /// Like [`Self::has_chunks`], as far as that is known without asking a server.
    pub fn may_have_chunks(&self, array: &Arc<Array>, prefix: &[u64]) -> bool {
        self.pending.any_below(array, prefix) || array.chunks().may_have(prefix)
    }

    /// Returns every chunk whose first indices are `prefix`.
    pub fn list_prefix(&self, array: &Arc<Array>, prefix: &[u64]) -> Result<CoordsList> {
        self.settle_array(array)?;
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
