//! A log of reads, for users who want to know how their programs read. `cli` owns the log file.

use std::fmt::Debug;
use std::time::Duration;

/// A read that was answered.
#[derive(Debug)]
pub struct AnsweredRead {
    /// The path in the mount; `None` if the file has been removed.
    pub path: Option<String>,
    /// The offset, in bytes.
    pub offset: u64,
    /// The requested length, in bytes.
    pub len: usize,
    /// The source of the answer.
    pub answered: Answered,
    /// The time from the request to the answer.
    pub took: Duration,
}

/// The source of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    /// Bytes that were in memory.
    AtOnce,
    /// A thread of the pool, which reads from the store or decodes.
    ByPool,
    /// A thread of the pool over a remote store, which may find the bytes in memory.
    Unknown,
}

/// A log of reads.
pub trait ReadLog: Debug + Send + Sync {
    /// Adds a read.
    fn note(&self, read: &AnsweredRead);
}
