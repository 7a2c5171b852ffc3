//! The bytes of a range of a view, made from its chunks as a plan says.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::decode::{DecodeTo, Decoder};
use super::expect;
use super::jobs::{self, Done, Job, Jobs};
use super::open_view::OpenView;
use super::pattern::Ticket;
use super::plan::{Fetch, PlannedChunk, Ranges};
use super::request::{ChunkRange, Request};
use crate::array::{ChunkRef, Coords};
use crate::buffer::Buffer;
use crate::cache::Residency;
use crate::error::{Error, Kind, Result, WithSubject};
use crate::pool::Urgency;
use crate::store::{Expected, Stat, Version};
use crate::vfs::kernel::view_pages::{ChunkVersions, ReadVersions};
use crate::view::{ElementRange, Excerpt, GetChunk};
use crate::waiting;
use crate::width::ToU64;

/// So many small chunks take less time to read than a thread takes to wake up.
const FEW: usize = 4;

/// Up to `1/SMALL_PART` of a chunk is a small part of it.
const SMALL_PART: u64 = 2;

/// How to get the chunks of a request.
pub(super) struct Execution<'e> {
    pub fetches: &'e [Fetch],
    /// How many chunks of a long part other threads decode at a time. Otherwise they share all
    /// chunks, and none if this is 0.
    pub beside: usize,
    /// For as long as it is wanted.
    pub ticket: &'e Ticket,
    /// Whether the chunks are for this read alone, which ends with its sequence.
    pub is_long_part: bool,
}

impl Execution<'_> {
    /// Fails if the program was killed, and for a long part whose sequence of reads has ended.
    fn check_goes_on(&self) -> Result<()> {
        waiting::check()?;
        if self.is_long_part && self.ticket.has_ended() {
            return Err(Error::new(Kind::Stale, "the sequence of reads has ended"));
        }
        Ok(())
    }
}

/// Makes ranges of views from their chunks.
pub(super) struct Assembler {
    pub decoder: Decoder,
    /// The number of partial chunk reads.
    pub partial_reads: AtomicU64,
}

impl Assembler {
    /// Returns an assembler that has other threads decode with `decoder`.
    pub fn new(decoder: Decoder) -> Self {
        Self { decoder, partial_reads: AtomicU64::new(0) }
    }

    /// Makes the bytes of a request from its chunks, and notes in `seen` which versions of them
    /// were read. They count only if [`Self::check_unchanged`] then finds that no array has
    /// changed.
    pub fn assemble(
        &self,
        open: &OpenView,
        seen: &ReadVersions,
        request: &Request<'_>,
        how: &Execution<'_>,
    ) -> Result<Vec<u8>> {
        let since = self.decoder.core.fresh_since(Some(open.opened));
        let _expected = self.expect(request, how);
        let jobs = self.decode_together(request, how, since);
        let (next, read) = (Cell::new(0_usize), RefCell::new(ChunkVersions::default()));
        // Of a long part, few chunks are in memory at a time. The first one is for this thread.
        let beside = absent(request, how).filter(|_| how.is_long_part).skip(1);
        let beside = RefCell::new(beside);
        let decode_next = |count: usize| {
            for chunk in beside.borrow_mut().by_ref().take(count) {
                let (ticket, to) = (how.ticket.clone(), DecodeTo::Cache(since));
                self.decoder.decode(Urgency::Soon, ticket, chunk.clone(), to);
            }
        };
        decode_next(how.beside);
        let get: &GetChunk<'_> = &|elements, coords, range| {
            // Strings that an HDF5 file keeps in a heap are in no plan.
            if elements.is_variable() || range.end == usize::MAX {
                let (found, version) = self.get_apart(open, elements, coords, since)?;
                read.borrow_mut().note(&elements.path, coords, version);
                return Ok(found);
            }
            let at = next.replace(next.get().saturating_add(1));
            let part = request.parts.get(at);
            debug_assert!(part.is_none_or(|part| part.chunk.coords == *coords));
            let note = |version| read.borrow_mut().note(&elements.path, coords, version);
            if let Some(ChunkRange { residency: Residency::Ready(chunk), .. }) = part {
                note(Some(chunk.stat.version));
                return Ok(Some(chunk.bytes.clone().into()));
            }
            how.check_goes_on()?;
            decode_next(how.beside.min(1));
            let chunk = match part {
                Some(part) => part.chunk.clone(),
                None => ChunkRef::new(&self.decoder.core.array_of(elements, open.moves)?, coords),
            };
            let is_range = how.fetches.get(at) == Some(&Fetch::Range);
            let done = jobs.take(at).or_else(|| {
                let read = is_range.then(|| jobs::read_range(&chunk, range)).flatten();
                read.map(Done::Range)
            });
            let whole = match done {
                Some(Done::Range(read)) => {
                    let (excerpt, version) = self.excerpt(open, &chunk, range, read);
                    note(Some(version));
                    return Ok(Some(excerpt));
                }
                Some(Done::Whole(whole)) => whole,
                None => self.decoder.core.cache.get_fresh(&chunk.array, coords, since),
            };
            if is_range {
                // It is not tried again.
                open.reads.note_decoded(&chunk, u64::MAX);
            }
            let found = whole.at(&elements.path)?;
            note(found.as_ref().map(|found| found.stat.version));
            if how.is_long_part {
                self.decoder.core.cache.remove(&chunk.array, coords);
            }
            Ok(found.map(|found| found.bytes.into()))
        };
        let bytes = open.view.read(request.offset, request.len(), get);
        seen.note_all(read.into_inner());
        bytes
    }

    /// Announces the chunks that are read as a whole to a store that takes long.
    fn expect(&self, request: &Request<'_>, how: &Execution<'_>) -> Vec<Expected> {
        if !self.decoder.core.is_remote() {
            return Vec::new();
        }
        let chunks: Vec<ChunkRef> = absent(request, how).cloned().collect();
        expect::expect(&self.decoder.core.cache, &chunks)
    }

    /// Returns a whole chunk that no plan knows, with its version: one that bytes are derived from,
    /// such as the strings that a file of HDF5 keeps in a heap.
    fn get_apart(
        &self,
        open: &OpenView,
        elements: &ElementRange,
        coords: &Coords,
        since: Option<Instant>,
    ) -> Result<(Option<Excerpt>, Option<Version>)> {
        let array = self.decoder.core.array_of(elements, open.moves)?;
        let found = self.decoder.core.cache.get_fresh(&array, coords, since).at(&elements.path)?;
        let version = found.as_ref().map(|found| found.stat.version);
        Ok((found.map(|found| found.bytes.into()), version))
    }

    /// Decodes the absent chunks of a request into the cache, or ranges of them, with the threads
    /// of the pool. Does nothing for a long part, which has few chunks in memory at a time.
    fn decode_together(
        &self,
        request: &Request<'_>,
        how: &Execution<'_>,
        since: Option<Instant>,
    ) -> Arc<Jobs> {
        let is_remote = self.decoder.core.is_remote();
        let is_short = request.parts.len() <= FEW;
        let parts = request.parts.iter().zip(how.fetches).enumerate();
        let jobs = parts.filter(|(_, (part, _))| matches!(part.residency, Residency::Absent));
        let jobs = jobs.filter_map(|(at, (part, fetch))| {
            if is_short && self.decoder.is_read_at_once(&part.chunk) {
                return None;
            }
            let range = match fetch {
                Fetch::Whole => None,
                // Others take less time than waking a thread, if the store answers at once.
                Fetch::Range if part.chunk.ranges() != Ranges::Blocks && !is_remote => return None,
                Fetch::Range => Some(part.range.clone()),
            };
            Some(Job { at, chunk: part.chunk.clone(), range })
        });
        let are_shared = !how.is_long_part && how.beside > 0;
        let jobs: VecDeque<_> = jobs.filter(|_| are_shared).collect();
        let others = jobs.len().saturating_sub(1);
        let jobs = Arc::new(Jobs::new(jobs));
        self.decoder.help_with(&jobs, others, since);
        jobs.run(&self.decoder.core.cache, since);
        jobs
    }

    /// Makes the bytes of a request like [`Self::assemble`]. [`Kind::Stale`] if an array was moved,
    /// removed or changed meanwhile.
    pub fn assemble_unchanged(
        &self,
        open: &OpenView,
        request: &Request<'_>,
        how: &Execution<'_>,
    ) -> Result<Vec<u8>> {
        let bytes = self.assemble(open, &open.seen, request, how);
        if !request.is_ready() {
            // A later change of a node does not matter to this read.
            let _shared = self.decoder.core.shared()?;
            self.check_unchanged(open, request)?;
        }
        bytes
    }

    /// Fails with [`Kind::Stale`] if an array of a request was moved, removed or changed. The
    /// caller holds `tree_lock`.
    pub fn check_unchanged(&self, open: &OpenView, request: &Request<'_>) -> Result<()> {
        let others = open.view.elements().filter(|_| !request.is_complete);
        for elements in request.elements.iter().copied().chain(others) {
            self.decoder.core.array_of(elements, open.moves)?;
        }
        Ok(())
    }

    /// Counts a partial read, and returns the range of the chunk with the stored version.
    fn excerpt(
        &self,
        open: &OpenView,
        chunk: &ChunkRef,
        range: &Range<usize>,
        (bytes, stat, decoded_len): (Buffer, Stat, usize),
    ) -> (Excerpt, Version) {
        let more = decoded_len.saturating_sub(bytes.len());
        if more > 0 {
            open.reads.note_decoded(chunk, more.to_u64());
        }
        self.partial_reads.fetch_add(1, Ordering::Relaxed);
        (Excerpt { bytes, start: range.start }, stat.version)
    }

    /// Records the chunks that were decoded as a whole for a small part.
    pub fn note_jumps(&self, request: &Request<'_>) {
        for ChunkRange { chunk, range, residency, .. } in &request.parts {
            let len = chunk.len().unwrap_or_default();
            let is_small =
                u64::try_from(range.len()).is_ok_and(|wanted| wanted <= len / SMALL_PART);
            if is_small && matches!(residency, Residency::Absent) {
                self.decoder.core.cache.note_jump(&chunk.array, &chunk.coords);
            }
        }
    }
}

/// The chunks of a request that must be decoded as a whole.
fn absent<'r>(
    request: &'r Request<'_>,
    how: &'r Execution<'_>,
) -> impl Iterator<Item = &'r ChunkRef> {
    let parts = request.parts.iter().zip(how.fetches);
    let absent = parts.filter(|(part, fetch)| {
        **fetch == Fetch::Whole && matches!(part.residency, Residency::Absent)
    });
    absent.map(|(part, _)| &part.chunk)
}
