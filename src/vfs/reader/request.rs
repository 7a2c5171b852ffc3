//! The chunks that a range of a view is made of, found in one walk.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use super::open_view::OpenView;
use super::plan::{ChunkNeed, PlannedChunk, Ranges};
use crate::array::{ChunkLen, ChunkRef};
use crate::cache::Residency;
use crate::error::Result;
use crate::vfs::core::Core;
use crate::view::{ElementRange, Reach};
use crate::width::{ToU64, ToUsize};

/// A read of a view, from `offset` to `end` in bytes.
#[derive(Debug)]
pub(super) struct Request<'v> {
    pub offset: u64,
    /// At most the end of the view.
    pub end: u64,
    /// The chunks in the order in which the view copies them; only the first if there are many.
    pub parts: Vec<ChunkRange>,
    /// Whether `parts` are all of them.
    pub is_complete: bool,
    /// The elements of the view that they are chunks of.
    pub elements: Vec<&'v ElementRange>,
}

/// A chunk of a read.
#[derive(Debug)]
pub(super) struct ChunkRange {
    pub chunk: ChunkRef,
    /// From the first of its bytes that are read to the last.
    pub range: Range<usize>,
    pub reach: Reach,
    pub residency: Residency,
}

impl PlannedChunk for ChunkRef {
    fn len(&self) -> Option<u64> {
        self.array.chunk_len(&self.coords).ok().and_then(ChunkLen::exactly)
    }

    fn longest(&self) -> u64 {
        self.array.chunk_len(&self.coords).map_or(u64::MAX, ChunkLen::longest)
    }

    fn ranges(&self) -> Ranges {
        match self.array.has_ranges(&self.coords) {
            _ if self.array.is_by_element() => Ranges::Exact,
            true => Ranges::Blocks,
            false => Ranges::None,
        }
    }
}

impl ChunkRange {
    /// Returns the input of the planner.
    pub fn wanted(&self) -> ChunkNeed<ChunkRef> {
        ChunkNeed {
            chunk: self.chunk.clone(),
            len: self.range.len().to_u64(),
            reach: self.reach,
            is_absent: matches!(self.residency, Residency::Absent),
        }
    }
}

impl Request<'_> {
    /// Whether every chunk is in the cache.
    pub fn is_ready(&self) -> bool {
        let is_ready = |part: &ChunkRange| matches!(part.residency, Residency::Ready(_));
        self.is_complete && self.parts.iter().all(is_ready)
    }

    /// The number of bytes that are read.
    pub fn len(&self) -> usize {
        self.end.saturating_sub(self.offset).to_usize()
    }
}

/// Finds the chunks of a read from `offset` to `end`, at most `most` of them. Does not look
/// into the cache. [`Kind::Stale`](crate::error::Kind::Stale) if an array has gone.
pub(super) fn find<'v>(
    core: &Core,
    open: &'v OpenView,
    (offset, end): (u64, u64),
    most: usize,
) -> Result<Request<'v>> {
    let end = end.min(open.view.len());
    let (mut parts, mut elements): (Vec<ChunkRange>, Vec<&ElementRange>) = (Vec::new(), Vec::new());
    let walk = open.view.for_each_chunk((offset, end), &mut |of, coords, touch| {
        if parts.len() >= most {
            return Ok(ControlFlow::Break(()));
        }
        let array = match (elements.last(), parts.last()) {
            (Some(last), Some(part)) if std::ptr::eq(*last, of) => Arc::clone(&part.chunk.array),
            _ => {
                elements.push(of);
                core.array_of(of, open.moves)?
            }
        };
        parts.push(ChunkRange {
            chunk: ChunkRef { array, coords: coords.clone() },
            range: touch.bytes.clone(),
            reach: touch.reach,
            residency: Residency::Absent,
        });
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(Request { offset, end, parts, is_complete: walk.is_continue(), elements })
}

/// Looks which chunks of a request are in the cache, as what is stored now. Waits for nothing.
pub(super) fn look_in_cache(core: &Core, open: &OpenView, request: &mut Request<'_>) {
    let since = core.fresh_since(Some(open.opened));
    let is_of_one =
        |one: &ChunkRange, next: &ChunkRange| one.chunk.array.id() == next.chunk.array.id();
    for parts in request.parts.chunk_by_mut(is_of_one) {
        let Some(array) = parts.first().map(|first| Arc::clone(&first.chunk.array)) else {
            continue;
        };
        let coords = parts.iter().map(|part| &part.chunk.coords);
        let found = core.cache.peek_many(&array, coords, since);
        for (part, residency) in parts.iter_mut().zip(found) {
            part.residency = residency;
        }
    }
}
