//! How one open view is being read.

use std::sync::atomic::AtomicBool;

use parking_lot::{Condvar, Mutex};

use super::plan::Reads;
use super::span::AssembledSpan;
use crate::array::ChunkRef;

/// How one open view is being read.
#[derive(Debug, Default)]
pub(in crate::vfs) struct ReadState {
    /// A leaf: never held while something is read, decoded or looked up.
    pub(super) state: Mutex<ReadProgress>,
    /// Signals that a span was assembled, or could not be.
    pub(super) assembled: Condvar,
    /// Whether there may be a span.
    pub(super) has_span: AtomicBool,
}

#[derive(Debug, Default)]
pub(super) struct ReadProgress {
    pub reads: Reads<ChunkRef>,
    pub span: AssembledSpan,
}

impl ReadState {
    /// Notes that a partial read of a chunk has decoded so many bytes more than those of the range.
    pub(super) fn note_decoded(&self, chunk: &ChunkRef, more: u64) {
        self.state.lock().reads.note_decoded(chunk, more);
    }

    /// Ends all sequences, as the view is closed: nothing is decoded for them any more.
    pub fn end(&self) {
        self.state.lock().reads.end();
    }
}
