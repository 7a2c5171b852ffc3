//! Chunks that a program removed where it takes a missing chunk for zeros and the store does not.
//!
//! zarr-python does not store a chunk of zeros if the fill value is null: it removes the file. If
//! null only means that `.zarray` cannot say the fill value, the store gets the zeros. A removal of
//! the whole array (`rm -r`) takes away the same files, so those chunks do not keep a directory
//! from being removed, and go with the metadata file of the array.

use std::collections::{BTreeMap, HashSet};

use parking_lot::Mutex;

use super::chunks::ChunkWriter;
use crate::array::{ChunkRef, Coords};
use crate::buffer::Buffer;
use crate::error::Result;
use crate::metadata::NodePath;

/// The chunks of each array that became zeros because a program removed them.
#[derive(Default)]
pub(in crate::vfs) struct ZeroedChunks {
    arrays: Mutex<BTreeMap<NodePath, HashSet<Coords>>>,
}

impl ZeroedChunks {
    /// Forgets the chunks of the arrays in `path` and below.
    pub fn forget_below(&self, path: &NodePath) {
        self.arrays.lock().retain(|array, _| array.relative_to(path).is_none());
    }

    fn note(&self, path: &NodePath, coords: &Coords) {
        self.arrays.lock().entry(path.clone()).or_default().insert(coords.clone());
    }

    fn of(&self, path: &NodePath) -> HashSet<Coords> {
        self.arrays.lock().get(path).cloned().unwrap_or_default()
    }
}

impl ChunkWriter {
    /// Returns the zeros that take the place of a chunk that a program removes, or `None` if its
    /// removal means what it says.
    pub(super) fn zeros_after_removal(
        &self,
        path: &NodePath,
        chunk: &ChunkRef,
    ) -> Result<Option<Buffer>> {
        let ChunkRef { array, coords } = chunk;
        if !self.names.zarr2.lists_fill(path, array) {
            return Ok(None);
        }
        let zeros = array.zero_chunk(coords)?;
        self.zeroed.note(path, coords);
        Ok(Some(zeros))
    }

    /// Whether there is a chunk with the first indices `prefix` that no program has removed.
    pub fn has_kept_chunks(&self, path: &NodePath, prefix: &[u64]) -> Result<bool> {
        let array = self.core.shown_array(path)?;
        let zeroed = self.zeroed.of(path);
        if zeroed.is_empty() {
            return self.names.places.has_chunks(&array, prefix);
        }
        for coords in self.core.cache.list_prefix(&array, prefix)? {
            let chunk = ChunkRef::new(&array, &coords?);
            if !zeroed.contains(&chunk.coords) || !self.is_zero(&chunk)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Erases the chunks that became zeros, because the metadata file of their array is removed.
    pub fn erase_zeroed(&self, path: &NodePath) -> Result<()> {
        let zeroed = self.zeroed.of(path);
        if zeroed.is_empty() {
            return Ok(());
        }
        let array = self.core.shown_array(path)?;
        for coords in zeroed.into_iter().filter(|coords| array.grid().contains(coords)) {
            let chunk = ChunkRef::new(&array, &coords);
            // A program may have stored it again.
            if self.is_zero(&chunk)? {
                self.store_removal(path, &chunk, || Ok(None))?;
            }
        }
        self.zeroed.forget_below(path);
        Ok(())
    }

    fn is_zero(&self, chunk: &ChunkRef) -> Result<bool> {
        let stored = self.core.cache.get(&chunk.array, &chunk.coords)?;
        Ok(stored.is_none_or(|chunk| chunk.bytes.iter().all(|byte| *byte == 0)))
    }
}
