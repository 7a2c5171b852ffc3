//! Limits the memory for unstored bytes of all files together.

use std::sync::Arc;

use crate::budget::{Lease, Purpose};
use crate::error::{Error, Kind, Result};
use crate::vfs::core::Core;
use crate::vfs::inodes::file::{BytesAt, InodeFile};
use crate::width::ToU64;

/// Counts the memory of unstored bytes.
pub(in crate::vfs) struct UnstoredMemory {
    core: Arc<Core>,
    /// The unstored bytes of files, including removed files that are still open.
    memory: Lease,
}

impl UnstoredMemory {
    pub fn new(core: Arc<Core>) -> Self {
        Self { memory: core.budget.lease(Purpose::Unstored), core }
    }

    /// Drops bytes that need not be stored, or no longer.
    pub fn forget_unstored(&self, file: &mut InodeFile) {
        file.created = None;
        file.stored_by = std::mem::take(&mut file.authors);
        match std::mem::take(&mut file.content) {
            BytesAt::Unstored(unstored) | BytesAt::Detached(unstored) => {
                self.unreserve(unstored.bytes.memory_len());
                self.unreserve(unstored.base_len());
            }
            BytesAt::Stored | BytesAt::Open(_) => {}
        }
    }

    pub fn try_reserve(&self, more: usize) -> Result<()> {
        if self.memory.try_grow(more.to_u64()) {
            return Ok(());
        }
        Err(Error::new(
            Kind::NoMemory,
            format!(
                "{} bytes are not stored yet, the limit is {} (--dirty-limit)",
                self.core.budget.drawn(Purpose::Unstored),
                self.core.options.dirty_limit
            ),
        ))
    }

    /// Counts bytes that are kept whatever the limit is.
    pub fn add(&self, len: usize) {
        self.memory.grow(len.to_u64());
    }

    pub fn unreserve(&self, len: usize) {
        self.memory.shrink(len.to_u64());
    }

    /// Returns the unstored bytes of all files.
    #[cfg(test)]
    pub fn unstored_len(&self) -> u64 {
        self.memory.len()
    }
}
