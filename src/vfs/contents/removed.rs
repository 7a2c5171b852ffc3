//! The chunk that the store gets if a program removes one of an array whose shown fill value is
//! another than the stored one.
//!
//! To that program, a missing chunk has the fill value that `.zarray` shows: zarr-python removes a
//! chunk that equals it, instead of storing it. The store would then have another value there, so
//! it gets a chunk of the shown one. A removal of the whole array (`rm -r`) takes away the same
//! files: those chunks do not keep a directory from being removed, and go with the metadata file of
//! the array.

use super::chunks::ChunkWriter;
use crate::array::ChunkRef;
use crate::buffer::Buffer;
use crate::error::Result;
use crate::metadata::NodePath;

impl ChunkWriter {
    /// Returns the bytes that take the place of a chunk that a program removes, or `None` if the
    /// store has the same fill value.
    pub(super) fn bytes_after_removal(
        &self,
        path: &NodePath,
        chunk: &ChunkRef,
    ) -> Result<Option<Buffer>> {
        let ChunkRef { array, coords } = chunk;
        let fill = self.names.zarr2.other_fill(path, array);
        let bytes = fill.map(|fill| array.file_of(coords, &fill)).transpose()?;
        if bytes.is_some() {
            self.names.tree.removed_chunks.note(path, coords, None);
        }
        Ok(bytes)
    }

    /// Whether there is a chunk with the first indices `prefix` that no program has removed.
    pub fn has_kept_chunks(&self, path: &NodePath, prefix: &[u64]) -> Result<bool> {
        let array = self.core.shown_array(path)?;
        let removed = self.names.tree.removed_chunks.of(path);
        let has_chunks = self.names.tree.has_chunks(&array, prefix)?;
        if removed.is_empty() || !has_chunks {
            return Ok(has_chunks);
        }
        for coords in self.core.cache.list_prefix(&array, prefix)? {
            let chunk = ChunkRef::new(&array, &coords?);
            if !removed.contains(&chunk.coords) || !self.is_as_removed(path, &chunk)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Erases the chunks that were removed before, because the metadata file of their array is
    /// removed.
    pub fn erase_removed(&self, path: &NodePath) -> Result<()> {
        let removed = self.names.tree.removed_chunks.of(path);
        if removed.is_empty() {
            return Ok(());
        }
        let array = self.core.shown_array(path)?;
        for coords in removed.into_iter().filter(|coords| array.grid().contains(coords)) {
            let chunk = ChunkRef::new(&array, &coords);
            if self.is_as_removed(path, &chunk)? {
                self.store_removal(path, &chunk, || Ok(None))?;
            }
        }
        self.names.tree.removed_chunks.forget_below(path);
        // Afterwards there is no array that the chunks could be erased from.
        self.store_array(path)
    }

    /// Whether a chunk that was removed is as it was then: a program may have stored it again.
    fn is_as_removed(&self, path: &NodePath, chunk: &ChunkRef) -> Result<bool> {
        let ChunkRef { array, coords } = chunk;
        let Some(stored) = self.core.cache.get(array, coords)? else { return Ok(true) };
        let Some(fill) = self.names.zarr2.other_fill(path, array) else { return Ok(false) };
        Ok(*stored.bytes == *array.file_of(coords, &fill)?)
    }
}
