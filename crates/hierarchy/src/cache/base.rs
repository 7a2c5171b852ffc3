//! The state of a chunk before a part of it was changed, and the merge with newer stored bytes.
//!
//! A program that changes a part of a chunk changes a copy of the stored chunk. Another program may
//! store the chunk before this copy is stored. The elements of the copy that did not change then
//! take their values from the newer stored chunk, and the changed elements keep their new values.
//!
//! `ChunkBase` holds the decoded bytes from before the change and the version that they were read
//! from. The chunk is stored on the condition that the store still has this version. If it does
//! not, the merged chunk is stored on the condition of the newer version, and so on. A chunk that a
//! program wrote completely has no base and is stored unconditionally.

use std::thread;
use std::time::Duration;

use crate::array::{Array, Coords, Current, FillChunks, retried};
use zarrfs_base::buffer::Buffer;
use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_store::{Condition, Stat, Version};

/// How often a stored chunk that cannot be decoded is read again, with a pause of [`PAUSE`] before
/// each attempt: another program may be writing it in place.
const PATIENCE: u32 = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// A chunk before a part of it was changed.
#[derive(Debug, Clone)]
pub enum ChunkBase {
    /// The chunk was not stored: its elements had the fill value.
    Absent,
    /// The decoded bytes, and the version of the stored value that they were read from.
    Stored(Buffer, Version),
}

impl ChunkBase {
    /// Reads the stored state of a chunk.
    pub(super) fn read(array: &Array, coords: &Coords) -> Result<Self> {
        let stored = array.read_chunk(coords)?;
        Ok(stored.map_or(Self::Absent, |(bytes, stat)| Self::Stored(bytes, stat.version)))
    }

    /// Returns the state of a chunk after `bytes` were stored, or after it was erased.
    pub(super) fn of(bytes: Option<Buffer>, stat: Option<Stat>) -> Self {
        match (bytes, stat) {
            (Some(bytes), Some(stat)) => Self::Stored(bytes, stat.version),
            _ => Self::Absent,
        }
    }

    /// Reads a chunk that another program has stored meanwhile, and returns `None` if it cannot be
    /// decoded, so that none of it can be kept. Retries at most `patience` times, and subtracts the
    /// retries from `patience`.
    fn read_again(array: &Array, coords: &Coords, patience: &mut u32) -> Result<Option<Self>> {
        loop {
            match Self::read(array, coords) {
                Err(error) if error.kind() == Kind::Corrupt && *patience > 0 => {
                    *patience = patience.saturating_sub(1);
                    thread::sleep(PAUSE);
                }
                Err(error) if error.kind() == Kind::Corrupt => return Ok(None),
                read => return read.map(Some),
            }
        }
    }

    /// Turns the first error about an unreadable stored value into `Stale`, so that the chunk is
    /// stored again: another program has put a file there that cannot be opened.
    fn as_stale(error: Error, was_tried: &mut bool) -> Error {
        if error.kind() == Kind::Corrupt && !std::mem::replace(was_tried, true) {
            return error.of_kind(Kind::Stale);
        }
        error
    }

    /// Returns its memory in bytes.
    pub fn bytes_len(&self) -> usize {
        match self {
            Self::Absent => 0,
            Self::Stored(bytes, _) => bytes.len(),
        }
    }

    /// Returns the condition that fails if another program stored the chunk.
    fn condition(&self) -> Condition {
        match self {
            Self::Absent => Condition::Absent,
            Self::Stored(_, version) => Condition::Unchanged(*version),
        }
    }

    /// Whether both are the same version of the chunk.
    pub(super) fn has_version_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Stored(_, one), Self::Stored(_, two)) => one.is_same(*two),
            (Self::Absent, Self::Absent) => true,
            _ => false,
        }
    }

    pub(super) fn bytes(&self, array: &Array, coords: &Coords) -> Result<Buffer> {
        match self {
            Self::Absent => array.fill_chunk(coords),
            Self::Stored(bytes, _) => Ok(bytes.clone()),
        }
    }

    /// Replaces the elements of `bytes` that are equal to this base by those of `now`, and returns
    /// whether `now` differs from this base. Elements of variable length cannot be compared one by
    /// one: such a chunk stays as it is, and is stored as a whole.
    pub(super) fn merge(
        &self,
        now: &Self,
        array: &Array,
        coords: &Coords,
        bytes: &mut Buffer,
    ) -> Result<bool> {
        if array.has_variable_len() {
            return Ok(false);
        }
        let (base, now) = (self.bytes(array, coords)?, now.bytes(array, coords)?);
        let is_as_long = base.len() == bytes.len() && now.len() == bytes.len();
        if !is_as_long || base == now {
            return Ok(false);
        }
        let item_len = array.model().dtype.item_len().max(1);
        let elements = bytes.to_mut().chunks_exact_mut(item_len);
        let stored = base.chunks_exact(item_len).zip(now.chunks_exact(item_len));
        for (element, (base, now)) in elements.zip(stored) {
            if element == base {
                element.copy_from_slice(now);
            }
        }
        Ok(true)
    }
}

/// The bytes of a chunk, `None` to erase it, and its base if only a part of it was changed.
type ToStore<'c> = (Option<&'c Buffer>, Option<&'c ChunkBase>);

/// Stores `chunks` of one stored value. A chunk with a base is stored under the condition that no
/// other program has stored it since. If one has, `rebase` is called for each chunk that has a
/// base, with its stored state (`None` if that cannot be decoded), and all chunks are stored again.
/// `to_store` returns the bytes and the base of a chunk.
pub(super) fn write_rebased<C>(
    array: &Current,
    chunks: &mut [(Coords, C)],
    fill: FillChunks,
    to_store: impl Fn(&C) -> ToStore<'_>,
    mut rebase: impl FnMut(&Coords, &mut C, Option<ChunkBase>) -> Result<()>,
) -> Result<Vec<Option<Stat>>> {
    let (mut is_stale, mut was_tried, mut patience) = (false, false, PATIENCE);
    let first = chunks.first().map(|(coords, _)| coords.clone());
    let take_turn = || first.map_or(Ok(None), |coords| array.chunks().take_turn(&coords));
    retried(take_turn, || {
        if is_stale {
            for (coords, chunk) in &mut *chunks {
                if to_store(chunk).1.is_some() {
                    let now = ChunkBase::read_again(array, coords, &mut patience)?;
                    rebase(coords, chunk, now)?;
                }
            }
        }
        is_stale = true;
        let changes = chunks.iter().map(|(coords, chunk)| {
            let (bytes, base) = to_store(chunk);
            let condition = base.map_or(Condition::Always, ChunkBase::condition);
            (coords.clone(), bytes.cloned(), condition)
        });
        let stored = array.write_chunks_if(changes.collect(), fill);
        if chunks.iter().any(|(_, chunk)| to_store(chunk).1.is_some()) {
            stored.map_err(|error| ChunkBase::as_stale(error, &mut was_tried))
        } else {
            stored
        }
    })
}

/// A chunk to be stored, or to be erased.
#[derive(Debug, Clone)]
pub struct NewChunk {
    /// All decoded bytes of the chunk, `None` to erase it.
    pub bytes: Option<Buffer>,
    /// The chunk before the change, if only a part of it was changed.
    pub base: Option<ChunkBase>,
}

impl From<Option<Buffer>> for NewChunk {
    fn from(bytes: Option<Buffer>) -> Self {
        Self { bytes, base: None }
    }
}
