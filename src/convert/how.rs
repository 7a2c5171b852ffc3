//! How a copy is made.

use crate::array::FillChunks;

/// Where a copy is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// In a directory: it is what is stored there.
    Directory,
    /// In a mount, which shows arrays decoded and stores them in its own way.
    Mount,
}

/// Whether chunks are read back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// Every chunk, and compared with the source.
    All,
    /// None.
    None,
}

/// What can be trusted of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is new.
    Fresh,
    /// The copy was interrupted, and the source is what it was then: values that are there are
    /// whole and right.
    Resumed,
    /// The source has changed since, or the machine may have gone down and lost bytes: values that
    /// are there must be compared with the source.
    Doubtful,
}

/// How a copy is made.
#[derive(Debug, Clone)]
pub struct How {
    /// How many chunks are worked on at a time.
    pub threads: usize,
    /// Whether chunks are read back.
    pub verify: Verify,
    /// What values are worth that the target has already.
    pub standing: Standing,
    /// Whether chunks that the source does not have are stored where the target has no fill value.
    pub fill_chunks: FillChunks,
    /// Where the copy is made.
    pub target: Target,
    /// Bytes for decoded chunks of the source that are needed more than once.
    pub cache_len: u64,
}
