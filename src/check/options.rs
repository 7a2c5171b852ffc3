//! The options of a check, and its results.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::finding::Finding;
use crate::array::Coords;
use crate::metadata::NodePath;

/// Which chunks to decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhichChunks {
    /// All.
    All,
    /// None. The keys of chunks are not listed either.
    None,
    /// This many chunks in a million.
    PerMillion(u64),
    /// This many chunks.
    Count(u64),
}

/// A sample of all chunks, chosen by a digest of their paths and coordinates.
#[derive(Debug, Clone, Copy)]
pub struct ChunkSample {
    /// The greatest digest of a chunk in it.
    pub threshold: u64,
}

/// What to check.
#[derive(Debug, Clone)]
pub struct CheckOptions {
    /// The nodes to check, with everything below them.
    pub only: Vec<NodePath>,
    /// The chunks to decode.
    pub chunks: WhichChunks,
    /// Whether to report missing chunks.
    pub expects_all: bool,
    /// The number of threads.
    pub jobs: usize,
}

/// Receives the findings and the progress of a check, and may stop it.
pub trait CheckWatch: Sync {
    /// Reports a finding.
    fn find(&self, finding: Finding);
    /// Reports that this many more values will be checked.
    fn expect(&self, values: u64);
    /// Reports that a value was checked.
    fn advance(&self);
    /// Whether to stop early.
    fn is_stopped(&self) -> bool;
}

/// Counts of what a check has read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckSummary {
    /// The groups, including implicit ones.
    pub groups: u64,
    /// The arrays.
    pub arrays: u64,
    /// The stored chunks, including those in shards.
    pub chunks_stored: u64,
    /// The chunks that are not stored, and thus have the fill value.
    pub chunks_missing: u64,
    /// The chunks that were decoded.
    pub chunks_read: u64,
    /// The stored chunks that the sample left out.
    pub chunks_skipped: u64,
    /// The stored chunks or shards of arrays that zarrfs cannot decode.
    pub chunks_unknown: u64,
    /// The chunks that shards may have whose index could not be read.
    pub chunks_unread: u64,
    /// The findings about what was not checked.
    pub unchecked: Unchecked,
    /// The stored values: chunks that are not in shards, and shards.
    pub values: u64,
    /// The decoded bytes.
    pub decoded_len: u64,
}

/// Counts of findings about what was not checked, by the reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unchecked {
    /// Nodes with something that zarrfs does not know, whose chunks are counted as unknown, and
    /// directories that a server does not list.
    pub unknown: u64,
    /// Directories and archive entries that zarrfs did not see.
    pub unseen: u64,
    /// Forms of chunks that zarrfs does not read.
    pub unsupported: u64,
    /// Files that zarrfs may not read.
    pub refused: u64,
    /// Files to which references or links lead, and which do not exist.
    pub missing: u64,
    /// Files that exceed a limit.
    pub limited: u64,
}

impl CheckSummary {
    /// Returns how much was not checked, with the word for each reason.
    pub fn not_checked(&self) -> Vec<(u64, &'static str)> {
        let Unchecked { unknown, unseen, unsupported, refused, missing, limited } = self.unchecked;
        // A node that is not understood counts by its chunks, if it has some.
        let unknown = if self.chunks_unknown > 0 { self.chunks_unknown } else { unknown };
        let all = [
            (unknown.saturating_add(unsupported), "unsupported"),
            (unseen, "not seen"),
            (refused, "refused"),
            (missing, "missing"),
            (limited, "too large or too slow"),
        ];
        all.into_iter().filter(|(count, _)| *count > 0).collect()
    }

    /// Returns how many files and directories could not be read, or seen at all.
    pub fn unread(&self) -> u64 {
        let Unchecked { unseen, refused, missing, .. } = self.unchecked;
        unseen.saturating_add(refused).saturating_add(missing)
    }

    /// Whether zarrfs could not see or read something that may be good.
    pub fn is_cut_short(&self) -> bool {
        self.unread() > 0
    }
}

impl ChunkSample {
    /// Returns a sample of `part` chunks in `whole`.
    pub fn of(part: u64, whole: u64) -> Self {
        let share = u128::from(u64::MAX) * u128::from(part.min(whole)) / u128::from(whole.max(1));
        Self { threshold: u64::try_from(share).unwrap_or(u64::MAX) }
    }

    /// Whether the sample contains a chunk. The answer is the same each time.
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
