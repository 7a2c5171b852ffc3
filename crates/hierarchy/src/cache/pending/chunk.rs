//! One pending chunk, and the states that a change takes it through.

use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use crate::array::region::Cover;
use crate::array::{Array, Coords};
use crate::cache::base::{ChunkBase, NewChunk};
use crate::metadata::NodePath;
use zarrfs_base::buffer::Buffer;
use zarrfs_base::error::Result;
use zarrfs_store::{Key, Stat};

/// A chunk, with the key of the stored value that contains it.
#[derive(Debug, Clone, Copy)]
pub(in crate::cache) struct ChunkAt<'c> {
    pub key: &'c Key,
    pub coords: &'c Coords,
}

/// A chunk that is to become pending, and the array at `path` that it belongs to.
#[derive(Debug, Clone, Copy)]
pub(in crate::cache) struct Destination<'c> {
    pub path: &'c NodePath,
    pub array: &'c Arc<Array>,
    pub chunk: ChunkAt<'c>,
}

/// A pending chunk.
#[derive(Debug, Clone)]
pub(in crate::cache) struct PendingChunk {
    /// The decoded bytes, `None` to erase the chunk.
    pub(in crate::cache) bytes: Option<Buffer>,
    /// Its decoded length, the time when it was written, and a version that no stored value has.
    pub(in crate::cache) stat: Stat,
    /// The modification time that a program set.
    pub(in crate::cache) modified: Option<SystemTime>,
    /// How many bytes a sequential writer has not written yet. Bytes that are written twice count
    /// twice, so the chunk may be stored too early; it is then stored once more.
    pub(super) missing: u64,
    /// Set while some bytes of the chunk were neither written nor read from the store.
    pub(super) unread: Option<Unread>,
    /// The stored chunk before a part of it was changed, `None` if it was written completely.
    pub(in crate::cache) base: Option<ChunkBase>,
    /// The number of the version in which the chunk became pending, or was last written completely.
    pub(in crate::cache) begun: u64,
}

/// The state of a chunk whose other bytes must be read from the store unless they are written
/// first.
#[derive(Debug, Clone)]
pub(super) struct Unread {
    /// The bytes that were written.
    pub(super) written: Range<usize>,
}

impl Unread {
    /// The range that is written after a change of `cover` in a chunk of `len` bytes, `None` if the
    /// written bytes are not one range then.
    pub(super) fn written_with(&self, cover: &Cover, len: usize) -> Option<Range<usize>> {
        let Range { start, end } = self.written;
        match cover {
            Cover::Whole => Some(0..len),
            Cover::Range(_, new) if new.start <= end && start <= new.end => {
                Some(start.min(new.start)..end.max(new.end))
            }
            Cover::Range(..) | Cover::Part(_) => None,
        }
    }
}

/// The bytes with which a chunk becomes pending.
#[derive(Debug)]
pub(in crate::cache) enum Begin {
    /// All bytes, and how many more a sequential writer is expected to write.
    Whole(NewChunk, u64),
    /// A partial change of the pending chunk, and that chunk's [`PendingChunk::begun`].
    Changed(NewChunk, u64),
    /// The bytes of a range, and how many more are expected. The others are read from the store
    /// when they are needed, unless they are written first.
    Range(Buffer, u64, Range<usize>),
}

/// The result of changing a pending chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cache) enum PendingChanged {
    /// The chunk is not pending.
    Nothing,
    /// The chunk must be read first.
    Unread,
    /// Other threads use the bytes, so they must be copied first.
    Shared,
    Done,
}

/// The memory of a chunk besides its bytes, because millions of tiny chunks may be pending.
const HELD_LEN: u64 = 512;

impl PendingChunk {
    pub(super) fn incomplete(&self) -> u64 {
        u64::from(self.missing > 0 || self.is_unread())
    }

    /// Whether some bytes were neither written nor read.
    pub(in crate::cache) fn is_unread(&self) -> bool {
        self.unread.is_some()
    }

    pub(super) fn cost(&self) -> u64 {
        let base = self.base.as_ref().and_then(|base| u64::try_from(base.bytes_len()).ok());
        self.stat.len.saturating_add(HELD_LEN).saturating_add(base.unwrap_or_default())
    }

    /// Takes the unchanged elements from `now`, the chunk that another program stored meanwhile,
    /// and returns whether any differ. If `now` is `None`, the chunk will be stored as a whole.
    pub(super) fn rebase(
        &mut self,
        array: &Array,
        coords: &Coords,
        now: Option<ChunkBase>,
    ) -> Result<bool> {
        let Some(base) = &self.base else { return Ok(false) };
        let is_merged = match (&mut self.bytes, &now) {
            (Some(bytes), Some(now)) => base.merge(now, array, coords, bytes)?,
            _ => false,
        };
        self.base = now;
        Ok(is_merged)
    }
}

/// Whether and how a chunk is pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cache) enum PendingState {
    Nothing,
    Bytes,
    /// The chunk is to be erased, and has this version until then.
    Erased([u64; 4]),
}

impl PendingState {
    pub(super) fn of(pending: Option<&PendingChunk>) -> Self {
        match pending {
            None => Self::Nothing,
            Some(PendingChunk { bytes: Some(_), .. }) => Self::Bytes,
            Some(pending) => Self::Erased(pending.stat.version.state()),
        }
    }
}
