//! Assembling long parts of views, which `plan` asks for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;

use super::assemble::{Assembler, Execution};
use super::open_view::OpenView;
use super::plan::{self, LongPart, ReadLimits};
use super::request::{self, ChunkRange};
use super::span::{AGE, Assembled, AssembledSpan, Stamp, len_of};
use super::state::ReadState;
use crate::budget::Purpose;
use crate::buffer::Buffer;
use crate::cache::Residency;
use crate::waiting;

/// Chunks of a long part whose decoding other threads are asked for.
const MOST_CHUNKS: usize = 1 << 16;

/// The right to assemble the span of a view. Those who wait for it go on when it is dropped.
struct Claim<'r>(&'r ReadState);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if matches!(state.span, AssembledSpan::Assembling) {
            state.span = AssembledSpan::None;
        }
        drop(state);
        self.0.assembled.notify_all();
    }
}

/// Long parts of all open views.
pub(super) struct LongParts {
    pub assembler: Arc<Assembler>,
    /// The number of long parts that were assembled.
    pub made: AtomicU64,
}

impl LongParts {
    /// The stamp of a span that is assembled now.
    fn stamp(&self, open: &OpenView) -> Stamp {
        let generations = (
            self.assembler.decoder.core.hierarchy.generation(),
            self.assembler.decoder.core.generation_of(&open.view, &[]),
        );
        let now = Instant::now();
        let until = now.checked_add(AGE).unwrap_or(now);
        Stamp { until, generations, forgotten: open.seen.forgotten() }
    }

    /// The bytes of a range of a view, if a span has them. Waits for nothing.
    pub fn bytes_of_span(&self, open: &OpenView, range: (u64, u64)) -> Option<Bytes> {
        if !open.reads.has_span.load(Ordering::Relaxed) {
            return None;
        }
        let now = self.stamp(open);
        let bytes = open.reads.state.lock().span.range(range, &now)?;
        open.seen.note_answer();
        Some(bytes)
    }

    /// The bytes of a range of a view, from a span that is assembled if need be. Returns `None`
    /// where that cannot be done.
    pub fn read_span(
        &self,
        open: &OpenView,
        range: (u64, u64),
        limits: ReadLimits,
    ) -> Option<Bytes> {
        let mut is_assembled = false;
        loop {
            let now = self.stamp(open);
            let mut state = open.reads.state.lock();
            if let Some(bytes) = state.span.range(range, &now) {
                open.seen.note_answer();
                return Some(bytes);
            }
            match &state.span {
                AssembledSpan::Assembling => {
                    waiting::wait(&open.reads.assembled, &mut state).ok()?;
                    continue;
                }
                AssembledSpan::Failed(at) if at.elapsed() < AGE => return None,
                _ if is_assembled => return None,
                AssembledSpan::Failed(_) | AssembledSpan::Ready(_) | AssembledSpan::None => {}
            }
            let extent = state.span.extent(&now);
            let part = state.reads.long_part(range, extent, &*open.view, limits);
            let before = match std::mem::replace(&mut state.span, AssembledSpan::Assembling) {
                AssembledSpan::Ready(made) if extent.is_some_and(|(_, end)| end == part.start) => {
                    Some(made)
                }
                _ => None,
            };
            drop(state);
            let claim = Claim(&open.reads);
            let made = self.assemble_span(open, &part, before);
            open.reads.has_span.store(matches!(made, AssembledSpan::Ready(_)), Ordering::Relaxed);
            open.reads.state.lock().span = made;
            drop(claim);
            is_assembled = true;
        }
    }

    fn assemble_span(
        &self,
        open: &OpenView,
        part: &LongPart,
        before: Option<Assembled>,
    ) -> AssembledSpan {
        let began = Instant::now();
        let stamp = self.stamp(open);
        // The memory of the span before this one is used for this one.
        let (before, oldest) = before.map(|made| (made.last(), made.stamp.until)).unzip();
        let before = before.unwrap_or_default();
        let len = part.end.saturating_sub(part.start).saturating_add(len_of(&before));
        let memory = self.assembler.decoder.core.budget.try_draw(Purpose::LongParts, len);
        let Some(memory) = memory else { return AssembledSpan::None };
        let made =
            request::find(&self.assembler.decoder.core, open, (part.start, part.end), MOST_CHUNKS)
                .and_then(|mut request| {
                    for part in &mut request.parts {
                        if self
                            .assembler
                            .decoder
                            .core
                            .cache
                            .is_here(&part.chunk.array, &part.chunk.coords)
                        {
                            part.residency = Residency::Pending;
                        }
                    }
                    let wanted: Vec<_> = request.parts.iter().map(ChunkRange::wanted).collect();
                    let (fetches, beside) = plan::plan_long_part(&wanted);
                    let ticket = &part.ticket;
                    let how = Execution { fetches: &fetches, beside, ticket, is_long_part: true };
                    self.assembler.assemble_unchanged(open, &request, &how)
                });
        let now = Instant::now();
        let until = now.checked_add(AGE.max(now.duration_since(began))).unwrap_or(now);
        let stamp = Stamp { until, ..stamp };
        match made {
            Ok(bytes) if stamp.holds(&self.stamp(open)) => {
                self.made.fetch_add(1, Ordering::Relaxed);
                let is_old = oldest.is_some_and(|oldest| oldest < now);
                let before = if is_old { Bytes::new() } else { before };
                let bytes = Buffer::from(bytes).into();
                AssembledSpan::Ready(Assembled {
                    before,
                    start: part.start,
                    bytes,
                    stamp,
                    _memory: memory,
                })
            }
            // Other programs that read the view may go on.
            Err(error) if !part.ticket.has_ended() && waiting::check().is_ok() => {
                log::debug!("{}: {error}", open.path);
                AssembledSpan::Failed(now)
            }
            Ok(_) | Err(_) => AssembledSpan::None,
        }
    }
}

/// Gives back the memory of spans that are too old to be used: their readers may not go on.
pub(in crate::vfs) fn drop_old_spans(open: &[Arc<OpenView>]) {
    for open in open {
        let mut state = open.reads.state.lock();
        if matches!(&state.span, AssembledSpan::Ready(made) if !made.stamp.is_young()) {
            state.span = AssembledSpan::None;
        }
    }
}
