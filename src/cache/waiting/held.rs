//! One chunk that waits, and the states that changing it leads to.

use std::ops::Range;
use std::time::SystemTime;

use crate::array::region::Cover;
use crate::array::{Array, Coords};
use crate::buffer::Buffer;
use crate::cache::{Base, NewChunk};
use crate::error::Result;
use crate::store::Stat;

/// A chunk that waits.
#[derive(Debug, Clone)]
pub(in crate::cache) struct Held {
    /// None where it is to be erased.
    pub(in crate::cache) bytes: Option<Buffer>,
    /// Its decoded length, when it was written, and a version that no stored value has.
    pub(in crate::cache) stat: Stat,
    /// When a program said that it was modified.
    pub(in crate::cache) modified: Option<SystemTime>,
    /// How many bytes somebody who writes them one after another has not written yet. Who writes some twice is taken to have
    /// written others: then it is stored once more.
    pub(super) missing: u64,
    /// Of one that was not read before it was written, as long as not all of it is here.
    pub(super) unread: Option<Unread>,
    /// What is stored, or was when a part was changed; none where all of it was written.
    pub(in crate::cache) base: Option<Base>,
    /// The number of the version that was written as a whole last, or that began to wait.
    pub(in crate::cache) begun: u64,
}

/// A chunk of which bytes are still to be read from the store, if they are not written before.
#[derive(Debug, Clone)]
pub(super) struct Unread {
    /// Those that were written.
    pub(super) written: Range<usize>,
}

impl Unread {
    /// What is written with `cover` of a chunk of `len` bytes; none where that does not follow.
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

/// How bytes of a chunk begin to wait.
#[derive(Debug)]
pub(in crate::cache) enum Begin {
    /// All are here; of so many it is expected that they will be written too.
    Whole(NewChunk, u64),
    /// A part was changed of what waits and was begun with this number.
    Changed(NewChunk, u64),
    /// Those of a range are; the others are read when somebody wants them, if they are not written before.
    Range(Buffer, u64, Range<usize>),
}

/// What changing a chunk that waits came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cache) enum Changed {
    /// None waits.
    Nothing,
    /// It must be read first.
    Unread,
    /// Others have a share of its bytes, so that all of them must be copied first.
    Shared,
    Done,
}

/// What a chunk takes besides its bytes: there may be millions of a byte each, or of none.
const HELD_LEN: u64 = 512;

impl Held {
    pub(super) fn incomplete(&self) -> u64 {
        u64::from(self.missing > 0 || self.is_unread())
    }

    /// Whether some of its bytes are neither written nor read.
    pub(in crate::cache) fn is_unread(&self) -> bool {
        self.unread.is_some()
    }

    pub(super) fn cost(&self) -> u64 {
        let base = self.base.as_ref().and_then(|base| u64::try_from(base.bytes_len()).ok());
        self.stat.len.saturating_add(HELD_LEN).saturating_add(base.unwrap_or_default())
    }

    /// Puts what others have stored, which is `now`, into the elements that were not changed. Whether any changes. Where
    /// there is nothing to be kept of it, the chunk is stored as a whole.
    pub(super) fn rebase(
        &mut self,
        array: &Array,
        coords: &Coords,
        now: Option<Base>,
    ) -> Result<bool> {
        let Some(base) = &self.base else { return Ok(false) };
        let is_merged = match (&mut self.bytes, &now) {
            (Some(bytes), Some(now)) => base.merge(now, (array, coords), bytes)?,
            _ => false,
        };
        self.base = now;
        Ok(is_merged)
    }
}

/// What waits of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cache) enum Pending {
    Nothing,
    Bytes,
    /// It is to be erased; the version that it has until then.
    Erased([u64; 4]),
}

impl Pending {
    pub(super) fn of(held: Option<&Held>) -> Self {
        match held {
            None => Self::Nothing,
            Some(Held { bytes: Some(_), .. }) => Self::Bytes,
            Some(held) => Self::Erased(held.stat.version.state()),
        }
    }
}
