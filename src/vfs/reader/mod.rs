//! How views and chunk files are read: what was read so far and what the cache has go in, a plan comes
//! out (`plan`), and this module does what the plan says.
//!
//! A reader finds a chunk that was decoded in advance in the cache, or waits there for its decoding.
//! `tree_lock` is not held while chunks are read and decoded: a read whose arrays were moved, removed
//! or changed meanwhile fails with `ESTALE`, so a chunk that has gone with its array never reads as
//! the fill value.

mod assemble;
mod decode;
mod files;
mod pattern;
mod plan;
mod request;
mod span;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use crate::array::{Array, ChunkRef};
use crate::buffer::Buffer;
use crate::error::{At, Error, Kind, Result};
use crate::pool::Urgency;
use crate::vfs::Vfs;
use crate::vfs::view_pages::Seen;
use crate::vfs::view_writes::MOST_AT_HAND;
use crate::vfs::views::OpenView;
use crate::view::{Elements, View};
use assemble::Execution;
use decode::Target;
pub(super) use files::Followed;
use pattern::Ticket;
use plan::{Fetch, Limits, Outlook, Plan, Reads};
use request::{Part, Request};
use span::Span;
pub(super) use span::Spans;

/// Chunks of one request that are looked for in the cache together; the others are when they are copied.
const MOST_CHUNKS: usize = 1024;

/// Chunks of a range that are decoded in advance: there is no gain where chunks are smaller.
const MOST_CHUNKS_AHEAD: usize = 1024;

/// A request of the kernel has at most so many bytes.
const REQUEST: u64 = 1 << 20;

/// How one open view is being read.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// A leaf: never held while something is read, decoded or looked up.
    state: Mutex<State>,
    /// Signals that a span was assembled, or could not be.
    assembled: Condvar,
    /// Whether there may be a span.
    has_span: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    reads: Reads<ChunkRef>,
    span: Span,
}

impl Reader {
    /// Notes that a partial read of a chunk has decoded so many bytes more than those of the range.
    fn note_decoded(&self, chunk: &ChunkRef, more: u64) {
        self.state.lock().reads.note_decoded(chunk, more);
    }

    /// Ends all sequences, as the view is closed: nothing is decoded for them any more.
    pub fn end(&self) {
        self.state.lock().reads.end();
    }
}

impl Vfs {
    /// Since when a chunk must be known to be what is stored: since the file was opened, and not for longer than
    /// `--metadata-ttl`. None where nobody else changes anything.
    pub(super) fn fresh_since(&self, opened: Option<Instant>) -> Option<Instant> {
        let aged = Instant::now().checked_sub(self.hierarchy.options().metadata_ttl)?;
        Some(opened.map_or(aged, |opened| opened.max(aged)))
    }

    /// The array of a part of a view, as it is now: it must be the same one, with the same elements. One that has gone has no
    /// chunks here, and must not read as the fill value.
    pub(super) fn array_of(&self, elements: &Elements, moves: u64) -> Result<Arc<Array>> {
        if !self.hierarchy.has_moved_since(&elements.path, moves) {
            match self.array(&elements.path) {
                Ok(current) if current.has_elements_of(&elements.array) => return Ok(current),
                Err(error) if error.kind() != Kind::NotFound => return Err(error),
                _ => {}
            }
        }
        let detail = "the array has changed since the file was opened";
        Err(Error::new(Kind::Stale, detail).at(&elements.path))
    }

    /// How many bytes of a view are assembled at once, where the cache does not hold a row of its
    /// chunks.
    pub(super) fn assembled_at_once(&self, view: &View) -> u64 {
        plan::longest_part(view, self.limits(true)).max(REQUEST)
    }

    /// Reads all bytes of a view, and notes in `seen` what they were made of. Returns `None` if something of it cannot
    /// be read, or nodes are about to move.
    pub(super) fn whole_view(&self, open: &OpenView, seen: &Seen) -> Option<Buffer> {
        let mut request = self.request(open, (0, open.view.len()), MOST_CHUNKS).ok()?;
        self.look_in_cache(open, &mut request);
        let fetches = vec![Fetch::Whole; request.parts.len()];
        let ticket = Ticket::default();
        let how = Execution { fetches: &fetches, beside: 0, ticket: &ticket, is_long_part: false };
        let bytes = self.assemble(open, seen, &request, &how).ok()?;
        // An opener holds it already.
        let _shared = self.tree_lock.try_read_recursive()?;
        self.check_unchanged(open, &request).ok()?;
        Some(Buffer::from(bytes))
    }

    /// Like [`Self::read_view`], if all chunks are in the cache: nothing is read, decoded or waited for.
    pub(super) fn try_read_view(&self, open: &OpenView, offset: u64, len: usize) -> Option<Bytes> {
        let range = range_of(open, offset, len);
        if let Some(bytes) = self.bytes_of_span(open, range) {
            self.note_pages(open);
            open.reader.state.lock().reads.note(range, &*open.view, self.limits_of(open));
            return Some(bytes);
        }
        let mut request = self.request(open, range, MOST_AT_HAND).ok()?;
        self.look_in_cache(open, &mut request);
        if !request.is_ready() {
            return None;
        }
        self.note_pages(open);
        let (outlook, plan) = self.note_and_plan(open, &request);
        self.answer(open, &request, &outlook, plan).ok()
    }

    /// Reads up to `len` bytes from `offset` of a view.
    pub(super) fn read_view(&self, open: &OpenView, offset: u64, len: usize) -> Result<Bytes> {
        self.note_pages(open);
        let range = range_of(open, offset, len);
        let outlook = open.reader.state.lock().reads.note(range, &*open.view, self.limits_of(open));
        if outlook.is_for_long_part
            && let Some(bytes) = self.read_span(open, range)
        {
            return Ok(bytes);
        }
        let mut request = self.request(open, range, MOST_CHUNKS)?;
        self.look_in_cache(open, &mut request);
        let plan = self.plan(open, &request, &outlook);
        let bytes = self.answer(open, &request, &outlook, plan)?;
        if !outlook.is_sequential {
            self.note_jumps(&request);
        }
        Ok(bytes)
    }

    fn limits(&self, may_be_old: bool) -> Limits {
        let at_once = self.background.get().map_or(1, |crew| crew.pool.most_ahead());
        Limits {
            cache_len: self.options.cache_len,
            at_once: u64::try_from(at_once).unwrap_or(u64::MAX),
            has_long_parts: may_be_old && !self.hierarchy.options().metadata_ttl.is_zero(),
        }
    }

    fn limits_of(&self, open: &OpenView) -> Limits {
        self.limits(open.writing.is_none())
    }

    /// Plans a read that was noted with this outlook.
    fn plan(&self, open: &OpenView, request: &Request<'_>, outlook: &Outlook) -> Plan<ChunkRef> {
        let soon = self.chunks_ahead(open, &outlook.soon);
        let wanted: Vec<_> = request.parts.iter().map(Part::wanted).collect();
        let read = (request.end, outlook.is_sequential);
        open.reader.state.lock().reads.plan(read, &wanted, soon, self.limits_of(open))
    }

    /// Notes a read and plans it, with one look at the state where nothing is decoded in advance.
    fn note_and_plan(&self, open: &OpenView, request: &Request<'_>) -> (Outlook, Plan<ChunkRef>) {
        let limits = self.limits_of(open);
        let wanted: Vec<_> = request.parts.iter().map(Part::wanted).collect();
        let mut state = open.reader.state.lock();
        let range = (request.offset, request.end);
        let outlook = state.reads.note(range, &*open.view, limits);
        if outlook.soon.is_empty() {
            let read = (request.end, outlook.is_sequential);
            let plan = state.reads.plan(read, &wanted, Vec::new(), limits);
            return (outlook, plan);
        }
        drop(state);
        let plan = self.plan(open, request, &outlook);
        (outlook, plan)
    }

    /// The chunks of some ranges of a view, each with the end of its range.
    fn chunks_ahead(&self, open: &OpenView, ranges: &[(u64, u64)]) -> Vec<(ChunkRef, u64)> {
        let mut chunks = Vec::new();
        for (from, until) in ranges {
            let ahead = self.request(open, (*from, *until), MOST_CHUNKS_AHEAD);
            // An error is reported when the range is read.
            let ahead = ahead.inspect_err(|error| log::debug!("ahead: {error}"));
            let parts = ahead.map(|ahead| ahead.parts).unwrap_or_default();
            chunks.extend(parts.into_iter().map(|part| (part.chunk, *until)));
        }
        chunks
    }

    /// Reads a request as it was planned.
    fn answer(
        &self,
        open: &OpenView,
        request: &Request<'_>,
        outlook: &Outlook,
        plan: Plan<ChunkRef>,
    ) -> Result<Bytes> {
        self.let_go(plan.passed, plan.run_len);
        let how = Execution {
            fetches: &plan.fetches,
            beside: plan.beside,
            ticket: &outlook.now,
            is_long_part: false,
        };
        for (chunk, ticket) in plan.soon {
            if !self.cache.is_here(&chunk.array, &chunk.coords) {
                let to = Target::Cache(self.fresh_since(Some(open.opened)));
                self.decode(Urgency::Ahead, ticket, chunk, to);
            }
        }
        let bytes = self.assemble_unchanged(open, request, &how)?;
        Ok(Buffer::from(bytes).into())
    }

    /// Removes chunks from the cache that a sequence has passed, since the kernel has their bytes.
    /// Where it keeps no pages, they stay if all that the sequence has read, `len` bytes, fits.
    fn let_go(&self, passed: impl IntoIterator<Item = ChunkRef>, len: u64) {
        if self.options.kernel_keeps || len > self.options.cache_len {
            for ChunkRef { array, coords } in passed {
                self.cache.remove(&array, &coords);
            }
        }
    }
}

/// The range of a view that up to `len` bytes from `offset` are.
fn range_of(open: &OpenView, offset: u64, len: usize) -> (u64, u64) {
    let end = offset.saturating_add(u64::try_from(len).unwrap_or(u64::MAX));
    (offset, end.min(open.view.len()))
}
