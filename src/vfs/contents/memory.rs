//! Limits the memory for unstored bytes of all files together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Kind, Result};
use crate::vfs::authors::Authors;
use crate::vfs::core::Core;
use crate::vfs::names::file::{Content, File};

/// Counts the memory of unstored bytes.
pub(in crate::vfs) struct UnstoredMemory {
    core: Arc<Core>,
    /// The unstored bytes of files, including removed files that are still open.
    len: AtomicU64,
}

impl UnstoredMemory {
    pub fn new(core: Arc<Core>) -> Self {
        Self { core, len: AtomicU64::new(0) }
    }

    /// Drops bytes that need not be stored, or no longer.
    pub fn forget_unstored(&self, file: &mut File) {
        file.mode = None;
        file.authors = Authors::default();
        match std::mem::take(&mut file.content) {
            Content::Unstored(unstored) | Content::Detached(unstored) => {
                self.unreserve(unstored.bytes.len());
                self.unreserve(unstored.base_len());
            }
            Content::Stored => {}
        }
    }

    pub fn try_reserve(&self, more: usize) -> Result<()> {
        let more = u64::try_from(more).unwrap_or(u64::MAX);
        let limit = self.core.options.dirty_limit.saturating_sub(self.core.cache.pending_len());
        let fits = |now: u64| now.checked_add(more).filter(|after| more == 0 || *after <= limit);
        match self.len.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(()),
            Err(now) => Err(Error::new(
                Kind::NoMemory,
                format!(
                    "{} bytes are not stored yet, the limit is {} (--dirty-limit)",
                    now.saturating_add(self.core.cache.pending_len()),
                    self.core.options.dirty_limit
                ),
            )),
        }
    }

    /// Counts bytes that are kept whatever the limit is.
    pub fn add(&self, len: usize) {
        let len = u64::try_from(len).unwrap_or(u64::MAX);
        self.len.fetch_add(len, Ordering::Relaxed);
    }

    pub fn unreserve(&self, len: usize) {
        let len = u64::try_from(len).unwrap_or(u64::MAX);
        let less = |now: u64| Some(now.saturating_sub(len));
        let _always = self.len.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Returns the unstored bytes of all files.
    pub fn unstored_len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }
}
