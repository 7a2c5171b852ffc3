//! The modification times of the chunks in a shard, where they differ.

use std::collections::BTreeMap;
use std::time::SystemTime;

use zarrfs_base::width::ToU64;
use zarrfs_store::Version;

/// The bytes of each entry, and of each time in it.
const ENTRY_LEN: u64 = 256;
const TIME_LEN: u64 = 64;

/// The times of the chunks in a shard.
#[derive(Debug, Clone)]
pub struct Times {
    /// The version of the shard to which they belong.
    pub version: Version,
    /// The time of the chunks that are not in `slots`.
    pub others: SystemTime,
    pub slots: BTreeMap<usize, Time>,
}

/// The time of a chunk.
#[derive(Debug, Clone, Copy)]
pub struct Time {
    pub modified: SystemTime,
    /// Whether a program set it, and it is not just when the chunk was stored.
    pub is_set: bool,
}

impl Times {
    /// Returns the bytes that they take in a cache.
    pub fn len(&self) -> u64 {
        let times = self.slots.len().to_u64();
        times.saturating_mul(TIME_LEN).saturating_add(ENTRY_LEN)
    }
}
