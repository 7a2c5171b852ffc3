//! What to check, and what was checked.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::finding::Finding;
use crate::array::Coords;
use crate::metadata::NodePath;

/// Which chunks to decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chunks {
    /// All.
    All,
    /// None, and no keys of chunks are listed.
    None,
    /// This many of a million.
    PerMillion(u64),
    /// This many.
    Count(u64),
}

/// A part of all chunks, by a digest of their keys.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// The greatest digest of a chunk in it.
    pub threshold: u64,
}

/// What to check.
#[derive(Debug, Clone)]
pub struct Options {
    /// The nodes to check, with all below them.
    pub only: Vec<NodePath>,
    /// The chunks to decode.
    pub chunks: Chunks,
    /// Whether a missing chunk is reported.
    pub expects_all: bool,
    /// The number of threads.
    pub jobs: usize,
}

/// Watches a check, and may end it.
pub trait Watch: Sync {
    /// Reports a finding.
    fn find(&self, finding: Finding);
    /// Reports that this many more values will be checked.
    fn expect(&self, values: u64);
    /// Reports that a value was checked.
    fn advance(&self);
    /// Whether to end early.
    fn is_stopped(&self) -> bool;
}

/// What was checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// The groups, with implicit ones.
    pub groups: u64,
    /// The arrays.
    pub arrays: u64,
    /// The stored chunks, those in shards too.
    pub chunks_stored: u64,
    /// The chunks that are not stored, so they have the fill value.
    pub chunks_missing: u64,
    /// The chunks that were decoded.
    pub chunks_read: u64,
    /// The stored chunks that were left out of a sample.
    pub chunks_skipped: u64,
    /// The stored chunks or shards of arrays that zarrfs cannot decode.
    pub chunks_unknown: u64,
    /// The stored values: chunks that are not in shards, and shards.
    pub values: u64,
    /// The decoded bytes.
    pub decoded_len: u64,
}

impl Sample {
    /// Returns a sample of `part` in `whole`.
    pub fn of(part: u64, whole: u64) -> Self {
        let share = u128::from(u64::MAX) * u128::from(part.min(whole)) / u128::from(whole.max(1));
        Self { threshold: u64::try_from(share).unwrap_or(u64::MAX) }
    }

    /// Whether it contains a chunk: the same one each time.
    pub fn has(self, path: &NodePath, coords: &Coords) -> bool {
        digest(path, coords) <= self.threshold
    }
}

/// Returns the number by which a sample chooses a chunk.
pub fn digest(path: &NodePath, coords: &Coords) -> u64 {
    let mut hasher = DefaultHasher::new();
    (path.as_str(), coords).hash(&mut hasher);
    hasher.finish()
}
