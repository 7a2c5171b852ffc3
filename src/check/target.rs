//! An array, and what was counted of it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::array::Array;
use crate::metadata::NodePath;

/// An array to check.
#[derive(Debug)]
pub struct Target {
    pub path: NodePath,
    pub array: Arc<Array>,
    /// The stored values: chunks or shards.
    pub value_count: AtomicU64,
    /// The stored chunks inside of the array, those in shards too.
    pub chunk_count: AtomicU64,
}

impl Target {
    pub fn new(path: NodePath, array: Arc<Array>) -> Self {
        Self { path, array, value_count: AtomicU64::default(), chunk_count: AtomicU64::default() }
    }

    /// Returns the number of chunks that the array can have.
    pub fn possible(&self) -> u64 {
        self.array.grid().counts().iter().fold(1, |all, count| all.saturating_mul(*count))
    }
}
