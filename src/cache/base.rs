//! What a chunk was when a part of it was changed, so that what other programs store of it meanwhile is kept.
//!
//! Who changes a part of a chunk changes a copy of what was stored when he began. Another program may store the chunk
//! before the copy is: then the elements that are in the copy what they were are taken from what is stored by now. The
//! elements that were changed win.

use std::thread;
use std::time::Duration;

use super::Chunk;
use crate::array::{Array, Coords, FillChunks, retried};
use crate::buffer::Buffer;
use crate::error::{Error, Kind, Result};
use crate::store::{Condition, Stat, Version};

/// How often a stored chunk that cannot be decoded is read again, and after how long: a program that writes it in place
/// may be half way.
const PATIENCE: u32 = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// A chunk before a part of it was changed.
#[derive(Debug, Clone)]
pub enum Base {
    /// It was not stored: its elements were the fill value.
    Absent,
    /// Its decoded bytes, and the version of the stored value that they were read from.
    Stored(Buffer, Version),
}

impl Base {
    /// What is stored of a chunk now.
    pub(super) fn read(array: &Array, coords: &Coords) -> Result<Self> {
        let stored = array.read_chunk(coords)?;
        Ok(stored.map_or(Self::Absent, |(bytes, stat)| Self::Stored(bytes, stat.version)))
    }

    /// What is stored of a chunk after it was stored as `bytes`.
    pub(super) fn of(bytes: Option<Buffer>, stat: Option<Stat>) -> Self {
        match (bytes, stat) {
            (Some(bytes), Some(stat)) => Self::Stored(bytes, stat.version),
            _ => Self::Absent,
        }
    }

    /// What is stored of a chunk now that it was changed by somebody else; `None` if that cannot be decoded, so that there
    /// is nothing to keep of it. It is read again as often as `patience` says, which is what is left afterwards.
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

    /// Makes an error of storing a chunk that has a base one that is tried again, once: what is in its place and cannot be
    /// opened was put there by somebody else.
    fn as_stale(error: Error, was_tried: &mut bool) -> Error {
        if error.kind() == Kind::Corrupt && !std::mem::replace(was_tried, true) {
            return error.of_kind(Kind::Stale);
        }
        error
    }

    /// How many bytes it takes.
    pub fn bytes_len(&self) -> usize {
        match self {
            Self::Absent => 0,
            Self::Stored(bytes, _) => bytes.len(),
        }
    }

    /// What must be so in the store if nobody has stored the chunk since.
    fn condition(&self) -> Condition {
        match self {
            Self::Absent => Condition::Absent,
            Self::Stored(_, version) => Condition::Unchanged(*version),
        }
    }

    /// Whether both are the same state of the chunk.
    pub(super) fn has_version_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Stored(_, one), Self::Stored(_, two)) => one.is_same(*two),
            (Self::Absent, Self::Absent) => true,
            _ => false,
        }
    }

    fn bytes(&self, array: &Array, coords: &Coords) -> Result<Buffer> {
        match self {
            Self::Absent => array.fill_chunk(coords),
            Self::Stored(bytes, _) => Ok(bytes.clone()),
        }
    }

    /// Brings the elements of `bytes` that are what they were in this base to what they are in `now`. Whether any
    /// changes. Elements of no fixed length cannot be told apart: such a chunk is stored as a whole.
    pub(super) fn merge(
        &self,
        now: &Self,
        (array, coords): (&Array, &Coords),
        bytes: &mut Buffer,
    ) -> Result<bool> {
        let dtype = &array.model().dtype;
        if dtype.is_variable() {
            return Ok(false);
        }
        let (base, now) = (self.bytes(array, coords)?, now.bytes(array, coords)?);
        let is_as_long = base.len() == bytes.len() && now.len() == bytes.len();
        if !is_as_long || base == now {
            return Ok(false);
        }
        let item_len = dtype.item_len().max(1);
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

/// What is to be stored of a chunk: its bytes, or `None` to erase it, and what it was if only a part of it was changed.
type ToStore<'c> = (Option<&'c Buffer>, Option<&'c Base>);

/// Stores `chunks` of one stored value, each under the condition that nobody has stored it since its base. If somebody
/// has, `rebase` gets what is stored now (`None` if that cannot be decoded) for each chunk that has a base, and all are
/// stored again. `to_store` says what is to be stored of each.
pub(super) fn write_rebased<C>(
    array: &Array,
    chunks: &mut [(Coords, C)],
    fill: FillChunks,
    to_store: impl Fn(&C) -> ToStore<'_>,
    mut rebase: impl FnMut(&Coords, &mut C, Option<Base>) -> Result<()>,
) -> Result<Vec<Option<Stat>>> {
    let (mut is_stale, mut was_tried, mut patience) = (false, false, PATIENCE);
    retried(|| {
        if is_stale {
            for (coords, chunk) in &mut *chunks {
                if to_store(chunk).1.is_some() {
                    let now = Base::read_again(array, coords, &mut patience)?;
                    rebase(coords, chunk, now)?;
                }
            }
        }
        is_stale = true;
        let changes = chunks.iter().map(|(coords, chunk)| {
            let (bytes, base) = to_store(chunk);
            let condition = base.map_or(Condition::Always, Base::condition);
            (coords.clone(), bytes.cloned(), condition)
        });
        let stored = array.write_chunks_if(changes.collect(), fill);
        if chunks.iter().any(|(_, chunk)| to_store(chunk).1.is_some()) {
            stored.map_err(|error| Base::as_stale(error, &mut was_tried))
        } else {
            stored
        }
    })
}

impl Chunk {
    /// This chunk before a part of it is changed.
    pub fn base(&self) -> Base {
        Base::Stored(self.bytes.clone(), self.stat.version)
    }
}

/// What is to be stored of a chunk.
#[derive(Debug, Clone)]
pub struct NewChunk {
    /// All of its bytes; none where it is to be erased.
    pub bytes: Option<Buffer>,
    /// What it was, if only a part of it was changed.
    pub base: Option<Base>,
}

impl From<Option<Buffer>> for NewChunk {
    fn from(bytes: Option<Buffer>) -> Self {
        Self { bytes, base: None }
    }
}
