//! Long parts of views that were assembled at once, for sequential reads of views whose row of
//! chunks does not fit into the cache.
//!
//! A span is used if the generations of hierarchy and chunks are those from before it was
//! assembled. Readers use it for ten seconds, or for as long as it took to assemble, like pages
//! that the kernel has read ahead. They do not use it after the kernel had to drop its pages of the
//! view.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use super::pattern::DISORDER;
use crate::budget::Lease;
use crate::vfs::kernel::view_pages::Generations;
use crate::width::{ToU64, ToUsize};

/// How long a span is used at least, as what the kernel has read ahead is.
pub(super) const AGE: Duration = Duration::from_secs(10);

/// The assembled part of an open view.
#[derive(Debug, Default)]
pub(super) enum AssembledSpan {
    #[default]
    None,
    /// A thread assembles one; the others wait for it.
    Assembling,
    Ready(Assembled),
    /// Assembling failed at this time. A read of the range reports the error.
    Failed(Instant),
}

/// Bytes of a view, and the last ones before them, since requests come in any order.
#[derive(Debug)]
pub(super) struct Assembled {
    pub before: Bytes,
    pub start: u64,
    pub bytes: Bytes,
    pub stamp: Stamp,
    pub _memory: Lease,
}

/// What tells whether an assembled part is still what is stored, or was so not long ago.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stamp {
    pub until: Instant,
    pub generations: Generations,
    /// How often the kernel had to drop the pages of the view.
    pub forgotten: u64,
}

impl Stamp {
    /// Whether something with this stamp may be used where `now` is what a new one would be.
    pub fn holds(&self, now: &Self) -> bool {
        self.is_young() && (self.generations, self.forgotten) == (now.generations, now.forgotten)
    }

    pub fn is_young(&self) -> bool {
        Instant::now() < self.until
    }
}

impl AssembledSpan {
    /// The first and the last byte that are here, if `now` says that they may be used.
    pub fn extent(&self, now: &Stamp) -> Option<(u64, u64)> {
        match self {
            Self::Ready(made) if made.stamp.holds(now) => Some((made.start, made.end())),
            _ => None,
        }
    }

    /// The bytes from `offset` to `end`, if all of them are here and `now` says that they may be
    /// used.
    pub fn range(&self, (offset, end): (u64, u64), now: &Stamp) -> Option<Bytes> {
        match self {
            Self::Ready(made) if made.stamp.holds(now) => made.range(offset, end),
            _ => None,
        }
    }
}

impl Assembled {
    fn end(&self) -> u64 {
        self.start.saturating_add(len_of(&self.bytes))
    }

    fn range(&self, offset: u64, end: u64) -> Option<Bytes> {
        let within = |bytes: &Bytes, start: u64, from: u64, until: u64| {
            let from = from.checked_sub(start)?.to_usize();
            let until = until.checked_sub(start)?.to_usize();
            (from <= until && until <= bytes.len()).then(|| bytes.slice(from..until))
        };
        if offset >= self.start {
            return within(&self.bytes, self.start, offset, end);
        }
        let first = self.start.checked_sub(len_of(&self.before))?;
        let before = within(&self.before, first, offset, end.min(self.start))?;
        if end <= self.start {
            return Some(before);
        }
        let mut joined = BytesMut::from(&*before);
        joined.extend_from_slice(&within(&self.bytes, self.start, self.start, end)?);
        Some(joined.freeze())
    }

    /// The last bytes of it, in memory of their own.
    pub fn last(&self) -> Bytes {
        let len = DISORDER.to_usize().min(self.bytes.len());
        Bytes::copy_from_slice(
            self.bytes.get(self.bytes.len().saturating_sub(len)..).unwrap_or(&[]),
        )
    }
}

/// The length of `bytes` as a part of a file.
pub(super) fn len_of(bytes: &[u8]) -> u64 {
    bytes.len().to_u64()
}
