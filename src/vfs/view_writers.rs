//! What those share that have a view open for writing.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::authors::Processes;
use crate::error::Result;

/// Tells opens of a view apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OpenId(pub usize);

/// The state that all writers of a view share.
///
/// Truncating a view at `open` keeps its length, but the bytes that the writer then skips become
/// zero, as in any file: `cp` skips holes. Other writers only change what they write.
#[derive(Debug, Default)]
pub(super) struct ViewWriters {
    /// Held while skipped bytes are zeroed.
    filling: Mutex<()>,
    /// The end of the bytes that any writer has written since the last truncation. A leaf lock.
    end: Mutex<u64>,
    /// The length of the new file that a program writes in the place of the view, and the open that
    /// it belongs to. A leaf lock.
    new_len: Mutex<Option<(OpenId, u64)>>,
    /// Whether a write was refused since the last truncation, and will always be.
    pub has_refused: AtomicBool,
    /// The processes that have written. A leaf lock.
    pub authors: Mutex<Processes>,
    /// The processes that opened it for writing or wrote to it. A leaf lock.
    pub users: Mutex<Processes>,
}

impl ViewWriters {
    /// Records a truncation.
    pub fn cut(&self) {
        *self.end.lock() = 0;
        *self.new_len.lock() = None;
        self.has_refused.store(false, Ordering::Relaxed);
    }

    /// Records a write from `offset` to `end`, after zeroing the bytes that it skips with `fill`.
    pub fn begin(
        &self,
        offset: u64,
        end: u64,
        fill: impl FnOnce(u64, u64) -> Result<()>,
    ) -> Result<()> {
        let _filling = self.filling.lock();
        let before = self.end();
        if offset > before {
            fill(before, offset)?;
        }
        self.note(end);
        Ok(())
    }

    /// Like [`Self::begin`], but returns `false` if the write skips bytes, or another thread is
    /// zeroing some.
    pub fn try_begin(&self, offset: u64, end: u64, is_cut: bool) -> bool {
        let Some(_filling) = self.filling.try_lock() else { return false };
        if is_cut && offset > self.end() {
            return false;
        }
        self.note(end);
        true
    }

    fn note(&self, end: u64) {
        let mut known = self.end.lock();
        *known = end.max(*known);
    }

    pub fn end(&self) -> u64 {
        *self.end.lock()
    }

    /// Notes the length of the new file in the place of the view that was opened as `open`, or that
    /// there is none any more. The kernel tells late of the last close of an earlier one.
    pub fn set_new_len(&self, open: OpenId, len: Option<u64>) {
        let mut known = self.new_len.lock();
        match len {
            Some(len) => *known = Some((open, len)),
            None => drop(known.take_if(|(of, _)| *of == open)),
        }
    }

    /// Returns the length of the new file in the place of the view.
    pub fn new_len(&self) -> Option<u64> {
        self.new_len.lock().map(|(_, len)| len)
    }
}
