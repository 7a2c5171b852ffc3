//! A decoded chunk, as the cache returns it.

use super::base::ChunkBase;
use super::pending::PendingChunk;
use zarrfs_base::buffer::Buffer;
use zarrfs_store::Stat;

/// A decoded chunk and the version of the stored value that it came from.
#[derive(Debug, Clone)]
pub struct DecodedChunk {
    /// The elements, little endian and in C order.
    pub bytes: Buffer,
    /// The stat of the stored value when it was read or written.
    pub stat: Stat,
}

impl DecodedChunk {
    /// Returns a pending chunk; `None` if it is to be erased.
    pub(super) fn of_pending(pending: PendingChunk) -> Option<Self> {
        debug_assert!(!pending.is_unread());
        pending.bytes.map(|bytes| Self { bytes, stat: pending.stat })
    }

    /// Returns this chunk as the base of a change.
    pub fn base(&self) -> ChunkBase {
        ChunkBase::Stored(self.bytes.clone(), self.stat.version)
    }
}

/// The state of a chunk in the cache.
#[derive(Debug)]
pub enum Residency {
    /// The cache has the whole chunk, and it matches the store.
    Ready(DecodedChunk),
    /// The chunk is being decoded, is pending, or must first be compared with the store.
    Pending,
    /// The cache does not have the chunk.
    Absent,
}

/// The result of storing a chunk.
#[derive(Debug, Clone, Copy)]
pub struct PutChunk {
    /// The stat of the stored chunk, `None` if the chunk was erased.
    pub stat: Option<Stat>,
    /// Whether the stored chunk contains elements that other writers stored meanwhile.
    pub is_merged: bool,
}
