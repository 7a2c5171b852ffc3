//! An array to check, with its counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::array::{Array, Coords};
use crate::metadata::NodePath;
use crate::store::Key;

/// An array to check.
#[derive(Debug)]
pub struct CheckedArray {
    pub path: NodePath,
    pub array: Arc<Array>,
    /// The key of its metadata file if that names no codecs, so that a chunk with another length
    /// speaks against the metadata, not the chunk.
    pub lacks_codecs: Option<Key>,
    /// Whether such a chunk was found.
    pub is_misread: AtomicBool,
    /// Whether some of its chunks could not be listed, so that it is not known which are missing.
    pub is_unlisted: AtomicBool,
    /// The stored values: chunks or shards.
    pub value_count: AtomicU64,
    /// The stored chunks inside the array, including those in shards.
    pub chunk_count: AtomicU64,
    /// The chunks in shards whose index could not be read: it is not known which are stored.
    pub unread_count: AtomicU64,
}

impl CheckedArray {
    pub fn new(path: NodePath, array: Arc<Array>, lacks_codecs: Option<Key>) -> Self {
        Self {
            path,
            array,
            lacks_codecs,
            is_misread: AtomicBool::default(),
            is_unlisted: AtomicBool::default(),
            value_count: AtomicU64::default(),
            chunk_count: AtomicU64::default(),
            unread_count: AtomicU64::default(),
        }
    }

    /// Notes that some of its chunks could not be listed.
    pub fn note_unlisted(&self) {
        self.is_unlisted.store(true, Ordering::Relaxed);
    }

    /// Notes that a shard of this level could not be read, so that nobody knows which of its chunks
    /// are stored.
    pub fn note_unread(&self, level: usize, shard: &Coords) {
        self.unread_count.fetch_add(self.possible_in(level, shard), Ordering::Relaxed);
    }

    /// Returns the number of chunks inside the array that a shard of this level can have.
    fn possible_in(&self, level: usize, shard: &Coords) -> u64 {
        let (mut first, mut last) = (shard.clone(), shard.clone());
        for chunks in self.array.levels().iter().skip(level.saturating_add(1)) {
            first = chunks.in_slot(&first, 0);
            last = chunks.in_slot(&last, chunks.slots_in_shard(&last).saturating_sub(1));
        }
        let ends = last.indices().iter().zip(self.array.grid().counts());
        let ends = ends.map(|(last, count)| last.saturating_add(1).min(*count));
        let lens = ends.zip(first.indices()).map(|(end, first)| end.saturating_sub(*first));
        lens.fold(1, u64::saturating_mul)
    }

    /// Returns the number of chunks that the array can have.
    pub fn possible(&self) -> u64 {
        self.array.grid().counts().iter().fold(1, |all, count| all.saturating_mul(*count))
    }
}
