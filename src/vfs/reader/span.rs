//! Long parts of views that were assembled at once, for sequential reads of views whose row of chunks
//! does not fit into the cache.
//!
//! A span is used if the generations of hierarchy and chunks are those from before it was assembled.
//! Readers use it for ten seconds, or for as long as it took to assemble, like pages that the kernel
//! has read ahead. They do not use it after the kernel was told to drop its pages of the view.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use super::Reader;
use super::assemble::Execution;
use super::pattern::DISORDER;
use super::plan::{self, LongPart};
use super::request::Part;
use crate::buffer::Buffer;
use crate::cache::{Elsewhere, Residency};
use crate::vfs::Vfs;
use crate::vfs::view_pages::Generations;
use crate::vfs::views::OpenView;

/// Chunks of a long part whose decoding other threads are asked for.
const MOST_CHUNKS: usize = 1 << 16;

/// How long a span is used at least, as what the kernel has read ahead is.
pub(super) const AGE: Duration = Duration::from_secs(10);

/// The assembled part of an open view.
#[derive(Debug, Default)]
pub(super) enum Span {
    #[default]
    None,
    /// A thread assembles one; the others wait for it.
    Assembling,
    Ready(Assembled),
    /// Something of it could not be read, at this time. Who reads that is told why.
    Failed(Instant),
}

/// Bytes of a view, and the last ones before them, since requests come in any order.
#[derive(Debug)]
pub(super) struct Assembled {
    before: Bytes,
    start: u64,
    bytes: Bytes,
    stamp: Stamp,
    _share: Share,
}

/// What tells whether an assembled part is still what is stored, or was so not long ago.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stamp {
    pub until: Instant,
    pub generations: Generations,
    /// How often the kernel was told to drop the pages of the view.
    pub forgotten: u64,
}

/// The memory of all spans.
#[derive(Debug, Default)]
pub(in crate::vfs) struct Spans {
    /// In bytes.
    len: Arc<AtomicU64>,
    /// How many were assembled.
    pub made: AtomicU64,
}

/// The memory of one span, in bytes. Given back when it is dropped.
#[derive(Debug)]
pub(super) struct Share(Arc<AtomicU64>, u64);

/// The right to assemble the span of a view. Those who wait for it go on when it is dropped.
struct Claim<'r>(&'r Reader);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if matches!(state.span, Span::Assembling) {
            state.span = Span::None;
        }
        drop(state);
        self.0.assembled.notify_all();
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl Spans {
    /// The bytes of all spans.
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    /// Takes `len` bytes, if all spans then have at most `limit`.
    pub(super) fn share(&self, len: u64, limit: u64) -> Option<Share> {
        let more = |used: u64| used.checked_add(len).filter(|sum| *sum <= limit);
        let taken = self.len.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| Share(Arc::clone(&self.len), len))
    }
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

impl Span {
    /// The first and the last byte that are here, if `now` says that they may be used.
    pub fn extent(&self, now: &Stamp) -> Option<(u64, u64)> {
        match self {
            Self::Ready(made) if made.stamp.holds(now) => Some((made.start, made.end())),
            _ => None,
        }
    }

    /// The bytes from `offset` to `end`, if all of them are here and `now` says that they may be used.
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
            let from = usize::try_from(from.checked_sub(start)?).ok()?;
            let until = usize::try_from(until.checked_sub(start)?).ok()?;
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
        let len = usize::try_from(DISORDER).unwrap_or(usize::MAX).min(self.bytes.len());
        Bytes::copy_from_slice(
            self.bytes.get(self.bytes.len().saturating_sub(len)..).unwrap_or(&[]),
        )
    }
}

/// The length of `bytes` as a part of a file.
pub(super) fn len_of(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

impl Vfs {
    /// What the stamp of a span would be that was assembled now.
    fn stamp(&self, open: &OpenView) -> Stamp {
        let generations = (self.hierarchy.generation(), self.generation_of(&open.view, &[]));
        let now = Instant::now();
        let until = now.checked_add(AGE).unwrap_or(now);
        Stamp { until, generations, forgotten: open.seen.forgotten() }
    }

    /// The bytes of a range of a view, if a span has them. Waits for nothing.
    pub(super) fn bytes_of_span(&self, open: &OpenView, range: (u64, u64)) -> Option<Bytes> {
        if !open.reader.has_span.load(Ordering::Relaxed) {
            return None;
        }
        let now = self.stamp(open);
        let bytes = open.reader.state.lock().span.range(range, &now)?;
        open.seen.note_answer();
        Some(bytes)
    }

    /// The bytes of a range of a view, from a span that is assembled if need be. Returns `None` where
    /// that cannot be done.
    pub(super) fn read_span(&self, open: &OpenView, range: (u64, u64)) -> Option<Bytes> {
        let limits = self.limits_of(open);
        let mut is_assembled = false;
        loop {
            let now = self.stamp(open);
            let mut state = open.reader.state.lock();
            if let Some(bytes) = state.span.range(range, &now) {
                open.seen.note_answer();
                return Some(bytes);
            }
            match &state.span {
                Span::Assembling => {
                    open.reader.assembled.wait(&mut state);
                    continue;
                }
                Span::Failed(at) if at.elapsed() < AGE => return None,
                _ if is_assembled => return None,
                Span::Failed(_) | Span::Ready(_) | Span::None => {}
            }
            let extent = state.span.extent(&now);
            let part = state.reads.long_part(range, extent, &*open.view, limits);
            let before = match std::mem::replace(&mut state.span, Span::Assembling) {
                Span::Ready(made) if extent.is_some_and(|(_, end)| end == part.start) => Some(made),
                _ => None,
            };
            drop(state);
            let claim = Claim(&open.reader);
            let made = self.assemble_span(open, &part, before);
            open.reader.has_span.store(matches!(made, Span::Ready(_)), Ordering::Relaxed);
            open.reader.state.lock().span = made;
            drop(claim);
            is_assembled = true;
        }
    }

    fn assemble_span(&self, open: &OpenView, part: &LongPart, before: Option<Assembled>) -> Span {
        let began = Instant::now();
        let stamp = self.stamp(open);
        // The memory of the span before this one is used for this one.
        let (before, oldest) = before.map(|made| (made.last(), made.stamp.until)).unzip();
        let before = before.unwrap_or_default();
        let len = part.end.saturating_sub(part.start).saturating_add(len_of(&before));
        let Some(share) = self.spans.share(len, self.options.cache_len / 2) else {
            return Span::None;
        };
        self.cache.set_elsewhere(Elsewhere::Windows, self.spans.len());
        let made =
            self.request(open, (part.start, part.end), MOST_CHUNKS).and_then(|mut request| {
                for part in &mut request.parts {
                    if self.cache.is_here(&part.chunk.array, &part.chunk.coords) {
                        part.residency = Residency::Pending;
                    }
                }
                let wanted: Vec<_> = request.parts.iter().map(Part::wanted).collect();
                let (fetches, beside) = plan::plan_long_part(&wanted);
                let ticket = &part.ticket;
                let how = Execution { fetches: &fetches, beside, ticket, is_long_part: true };
                self.assemble_unchanged(open, &request, &how)
            });
        let now = Instant::now();
        let until = now.checked_add(AGE.max(now.duration_since(began))).unwrap_or(now);
        let stamp = Stamp { until, ..stamp };
        match made {
            Ok(bytes) if stamp.holds(&self.stamp(open)) => {
                self.spans.made.fetch_add(1, Ordering::Relaxed);
                let is_old = oldest.is_some_and(|oldest| oldest < now);
                let before = if is_old { Bytes::new() } else { before };
                let bytes = Buffer::from(bytes).into();
                Span::Ready(Assembled { before, start: part.start, bytes, stamp, _share: share })
            }
            Err(error) if !part.ticket.has_ended() => {
                log::debug!("{}: {error}", open.path);
                Span::Failed(now)
            }
            Ok(_) | Err(_) => Span::None,
        }
    }

    /// Gives back the memory of spans that are too old to be used: their readers may not go on.
    pub(in crate::vfs) fn drop_old_spans(&self) {
        for open in self.all_open_views() {
            let mut state = open.reader.state.lock();
            if matches!(&state.span, Span::Ready(made) if !made.stamp.is_young()) {
                state.span = Span::None;
            }
        }
        self.cache.set_elsewhere(Elsewhere::Windows, self.spans.len());
    }
}
