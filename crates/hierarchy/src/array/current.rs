//! An array that may be changed: it was compared with its metadata file in the store just now.
//!
//! Readers may use an array that was read a while ago. A writer may not: another program may have
//! replaced the array since, and its chunks would then be overwritten by those of the old one. So
//! only a [`Current`] takes chunks. `hierarchy/guard.rs` is the one place that compares an array
//! with the store ([`Current::compared`]); an array that no other program can know yet, since its
//! metadata file is still to be stored, needs no comparison ([`Current::made_here`]).
//! `tests/it/layering.rs` has the callers of both.

use std::ops::Deref;
use std::sync::Arc;

use super::coords::Coords;
use super::open::{Array, FillChunks};
use zarrfs_base::buffer::Buffer;
use zarrfs_base::error::Result;
use zarrfs_store::{Condition, NewFile, Stat};

/// An array as the store has it now.
#[derive(Debug)]
pub struct Current(Arc<Array>);

impl Current {
    /// Returns an array that was just compared with the store.
    pub fn compared(array: Arc<Array>) -> Self {
        Self(array)
    }

    /// Returns an array that this process makes, so that no other one has replaced it.
    pub fn made_here(array: &Arc<Array>) -> Self {
        Self(Arc::clone(array))
    }

    /// Stores decoded chunks, and erases those that are `None`. Changes all of the chunks in one
    /// shard or none. Keeps concurrent changes of other writers in the same shards. Returns the new
    /// stat of each chunk.
    pub fn write_chunks(
        &self,
        chunks: Vec<(Coords, Option<Buffer>)>,
        fill: FillChunks,
    ) -> Result<Vec<Option<Stat>>> {
        self.0.write_chunks(chunks, fill)
    }

    /// Like [`Self::write_chunks`], with a condition for each chunk: fails with
    /// [`Kind::Stale`](zarrfs_base::error::Kind::Stale) or
    /// [`Kind::Exists`](zarrfs_base::error::Kind::Exists).
    pub fn write_chunks_if(
        &self,
        chunks: Vec<(Coords, Option<Buffer>, Condition)>,
        fill: FillChunks,
    ) -> Result<Vec<Option<Stat>>> {
        self.0.write_chunks_if(chunks, fill)
    }

    /// Stores a file as the chunk at `coords`, and returns its stat. `None`, and no change, if its
    /// bytes must be stored instead.
    pub fn set_file(&self, coords: &Coords, file: &NewFile) -> Result<Option<Stat>> {
        self.0.set_file(coords, file)
    }
}

impl Deref for Current {
    type Target = Arc<Array>;

    fn deref(&self) -> &Arc<Array> {
        &self.0
    }
}
