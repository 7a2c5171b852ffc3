//! The options of a copy.

use crate::array::FillChunks;

/// The place of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyTarget {
    /// A directory, which stores the copy directly.
    Directory,
    /// A mount, which shows arrays decoded and has its own storage.
    Mount,
}

/// Whether to read chunks back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// Every chunk is read back and compared with the source.
    All,
    /// No chunk is read back.
    None,
}

/// The reliability of existing values in a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetState {
    /// The target is new.
    Fresh,
    /// The copy was interrupted, and the source has not changed: existing values are complete and
    /// correct.
    Resumed,
    /// The source has changed since, or the machine may have crashed and lost bytes: existing
    /// values must be compared with the source.
    Doubtful,
}

/// The options of a copy.
#[derive(Debug, Clone)]
pub struct CopyOptions {
    /// The number of chunks to work on at a time.
    pub threads: usize,
    /// Whether to read chunks back.
    pub verify: Verify,
    /// The reliability of existing values in the target.
    pub state: TargetState,
    /// Whether to store chunks that the source does not have if the target has no fill value.
    pub fill_chunks: FillChunks,
    /// The place of the copy.
    pub target: CopyTarget,
    /// The cache size in bytes for decoded chunks of the source that are needed more than once.
    pub cache_len: u64,
}
