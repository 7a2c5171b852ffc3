//! How views and chunk files are read: what was read so far and what the cache has go in, a plan
//! comes out (`plan`), and this module does what the plan says.
//!
//! A reader finds a chunk that was decoded in advance in the cache, or waits there for its
//! decoding. `tree_lock` is not held while chunks are read and decoded: a read whose arrays were
//! moved, removed or changed meanwhile fails with `ESTALE`, so a chunk that has gone with its array
//! never reads as the fill value.

mod assemble;
mod chunk_reader;
mod decode;
mod expect;
mod files;
mod jobs;
mod long_parts;
pub(super) mod open_view;
mod pattern;
mod plan;
mod request;
mod span;
mod state;
pub(super) mod stored_versions;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::array::{Array, ChunkRef, Coords};
use crate::buffer::Buffer;
use crate::error::Result;
use crate::metadata::NodePath;
use crate::pool::Urgency;
use crate::vfs::core::Core;
use crate::vfs::kernel::backing_files::BackingFiles;
use crate::vfs::kernel::view_pages::ReadVersions;
use crate::view::View;
use crate::width::ToU64;
use assemble::{Assembler, Execution};
pub use chunk_reader::ChunkReader;
use decode::{DecodeTo, Decoder};
use files::{ChunkFiles, Followed};
use long_parts::LongParts;
pub(super) use long_parts::drop_old_spans;
use open_view::{MOST_AT_HAND, OpenView};
use pattern::Ticket;
use plan::{Fetch, Outlook, ReadLimits, ReadPlan};
use request::{ChunkRange, Request};
pub(super) use state::ReadState;

/// Chunks of one request that are looked for in the cache together; the others are when they are
/// copied.
const MOST_CHUNKS: usize = 1024;

/// Chunks of a range that are decoded in advance: there is no gain where chunks are smaller.
const MOST_CHUNKS_AHEAD: usize = 1024;

/// A request of the kernel has at most so many bytes.
const REQUEST: u64 = 1 << 20;

/// Reads views and chunk files from their chunks.
pub(super) struct Reader {
    core: Arc<Core>,
    decoder: Decoder,
    assembler: Arc<Assembler>,
    long_parts: LongParts,
    files: ChunkFiles,
}

impl Reader {
    /// Returns the reader of the data in `core`.
    pub fn new(core: Arc<Core>, backing_files: Arc<BackingFiles>) -> Self {
        let decoder = Decoder { core: Arc::clone(&core), backing_files };
        let assembler = Arc::new(Assembler::new(decoder.clone()));
        let long_parts = LongParts { assembler: Arc::clone(&assembler), made: AtomicU64::new(0) };
        let files = ChunkFiles { decoder: decoder.clone(), followed: Followed::default() };
        Self { core, decoder, assembler, long_parts, files }
    }

    /// Returns the number of partial chunk reads.
    pub fn partial_reads(&self) -> u64 {
        self.assembler.partial_reads.load(Ordering::Relaxed)
    }

    /// Returns the number of long parts that were assembled.
    pub fn long_parts(&self) -> u64 {
        self.long_parts.made.load(Ordering::Relaxed)
    }

    /// Has the next chunk files decoded, if the one that is opened to be read now continues a
    /// sequence.
    pub fn before_chunk(&self, path: &NodePath, array: &Arc<Array>, coords: &Coords) {
        self.files.before_chunk(path, array, coords);
    }

    /// Records whether the chunk file of an array that was opened last is read with passthrough.
    pub fn note_passthrough(&self, path: &NodePath, is_used: bool) {
        self.files.note_passthrough(path, is_used);
    }

    /// How many bytes of a view are assembled at once, where the cache does not hold a row of its
    /// chunks.
    pub(super) fn assembled_at_once(&self, view: &View) -> u64 {
        plan::longest_part(view, self.limits(true)).max(REQUEST)
    }

    /// Reads all bytes of a view, and notes in `seen` what they were made of. Returns `None` if
    /// something of it cannot be read, or nodes are about to move.
    pub(super) fn whole_view(&self, open: &OpenView, seen: &ReadVersions) -> Option<Buffer> {
        let mut request =
            request::find(&self.core, open, (0, open.view.len()), MOST_CHUNKS).ok()?;
        request::look_in_cache(&self.core, open, &mut request);
        let fetches = vec![Fetch::Whole; request.parts.len()];
        let ticket = Ticket::default();
        let how = Execution { fetches: &fetches, beside: 0, ticket: &ticket, is_long_part: false };
        let bytes = self.assembler.assemble(open, seen, &request, &how).ok()?;
        // A thread that opens the view may hold it already.
        let _shared = self.core.tree_lock.try_read_recursive()?;
        self.assembler.check_unchanged(open, &request).ok()?;
        Some(Buffer::from(bytes))
    }

    /// Like [`Self::read_view`], if all chunks are in the cache: nothing is read, decoded or waited
    /// for.
    pub(super) fn try_read_view(&self, open: &OpenView, offset: u64, len: usize) -> Option<Bytes> {
        let range = range_of(open, offset, len);
        if let Some(bytes) = self.long_parts.bytes_of_span(open, range) {
            open.reads.state.lock().reads.note(range, &*open.view, self.limits_of(open));
            return Some(bytes);
        }
        // Making bytes from elements takes longer than copying them.
        if open.view.is_derived(offset, len) {
            return None;
        }
        let mut request = request::find(&self.core, open, range, MOST_AT_HAND).ok()?;
        request::look_in_cache(&self.core, open, &mut request);
        if !request.is_ready() {
            return None;
        }
        let (outlook, plan) = self.note_and_plan(open, &request);
        self.answer(open, &request, &outlook, plan).ok()
    }

    /// Reads up to `len` bytes from `offset` of a view.
    pub(super) fn read_view(&self, open: &OpenView, offset: u64, len: usize) -> Result<Bytes> {
        let range = range_of(open, offset, len);
        let outlook = open.reads.state.lock().reads.note(range, &*open.view, self.limits_of(open));
        if outlook.is_for_long_part
            && let Some(bytes) = self.long_parts.read_span(open, range, self.limits_of(open))
        {
            return Ok(bytes);
        }
        let mut request = request::find(&self.core, open, range, MOST_CHUNKS)?;
        request::look_in_cache(&self.core, open, &mut request);
        let plan = self.plan(open, &request, &outlook);
        let bytes = self.answer(open, &request, &outlook, plan)?;
        if !outlook.is_sequential {
            self.assembler.note_jumps(&request);
        }
        Ok(bytes)
    }

    fn limits(&self, may_be_old: bool) -> ReadLimits {
        let at_once = self.core.pool.get().map_or(1, |pool| pool.most_ahead());
        ReadLimits {
            cache_len: self.core.options.cache_len,
            fetched_ahead: self.core.hierarchy.store().read().most_expected(),
            at_once: at_once.to_u64(),
            has_long_parts: may_be_old && !self.core.hierarchy.options().metadata_ttl.is_zero(),
        }
    }

    fn limits_of(&self, open: &OpenView) -> ReadLimits {
        self.limits(open.writing.is_none())
    }

    /// Plans a read that was noted with this outlook.
    fn plan(
        &self,
        open: &OpenView,
        request: &Request<'_>,
        outlook: &Outlook,
    ) -> ReadPlan<ChunkRef> {
        let soon = self.chunks_ahead(open, &outlook.soon);
        let later = self.chunks_ahead(open, &outlook.later);
        let later = later.into_iter().map(|(chunk, _)| chunk).collect();
        let wanted: Vec<_> = request.parts.iter().map(ChunkRange::wanted).collect();
        let read = (request.end, outlook.is_sequential);
        open.reads.state.lock().reads.plan(read, &wanted, (soon, later), self.limits_of(open))
    }

    /// Notes a read and plans it, with one look at the state where nothing is decoded in advance.
    fn note_and_plan(
        &self,
        open: &OpenView,
        request: &Request<'_>,
    ) -> (Outlook, ReadPlan<ChunkRef>) {
        let limits = self.limits_of(open);
        let wanted: Vec<_> = request.parts.iter().map(ChunkRange::wanted).collect();
        let mut state = open.reads.state.lock();
        let range = (request.offset, request.end);
        let outlook = state.reads.note(range, &*open.view, limits);
        if outlook.soon.is_empty() && outlook.later.is_empty() {
            let read = (request.end, outlook.is_sequential);
            let plan = state.reads.plan(read, &wanted, (Vec::new(), Vec::new()), limits);
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
            let ahead = request::find(&self.core, open, (*from, *until), MOST_CHUNKS_AHEAD);
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
        plan: ReadPlan<ChunkRef>,
    ) -> Result<Bytes> {
        self.decoder.drop_passed(plan.passed, plan.run_len);
        let how = Execution {
            fetches: &plan.fetches,
            beside: plan.beside,
            ticket: &outlook.now,
            is_long_part: false,
        };
        if !plan.later.is_empty()
            && let Some(pool) = self.core.pool.get()
        {
            plan.expectations.announce(pool, &self.core.cache, plan.later);
        }
        let soon = plan.soon.into_iter();
        let soon = soon.filter(|(it, _)| !self.core.cache.is_here(&it.array, &it.coords));
        let soon: Vec<(ChunkRef, Ticket)> = soon.collect();
        if !soon.is_empty() {
            let to = DecodeTo::Cache(self.core.fresh_since(Some(open.opened)));
            let decoder = self.decoder.clone();
            plan.expectations.after(move || {
                for (chunk, ticket) in soon {
                    decoder.decode(Urgency::Prefetch, ticket, chunk, to);
                }
            });
        }
        let bytes = self.assembler.assemble_unchanged(open, request, &how)?;
        Ok(Buffer::from(bytes).into())
    }
}

/// The range of a view that up to `len` bytes from `offset` are.
fn range_of(open: &OpenView, offset: u64, len: usize) -> (u64, u64) {
    let end = offset.saturating_add(len.to_u64());
    (offset, end.min(open.view.len()))
}
