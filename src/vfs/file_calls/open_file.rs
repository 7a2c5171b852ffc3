//! The calls on an open file that each kind of file answers in its own way.

use bytes::Bytes;

use crate::error::Result;
use crate::vfs::authors::Thread;
use crate::vfs::inodes::file::Write;

/// The requests of the kernel for an open file, which its kind of file answers.
pub(super) trait OpenFileCalls {
    /// Records who opened it.
    fn note_opener(&self, by: Thread);

    fn read(&self, offset: u64, len: usize) -> Result<Bytes>;

    /// Like [`Self::read`]; `None` if anything must be read from the store, decoded or waited for.
    fn try_read(&self, offset: u64, len: usize) -> Option<Bytes>;

    fn write(&self, write: Write<'_>, by: Thread) -> Result<()>;

    /// Like [`Self::write`]; `false` if anything must be read, decoded or waited for.
    fn try_write(&self, write: Write<'_>, by: Thread) -> Result<bool>;

    /// Whether all that is not stored was written by other programs than that of this thread.
    fn is_of_others(&self, by: Thread) -> bool;

    /// Stores its bytes at the close of a descriptor by a thread.
    fn flush(&self, by: Thread) -> Result<()>;

    /// Stores its bytes and syncs them to disk.
    fn fsync(&self) -> Result<()>;

    /// Does what the last close leaves to do, before the handle goes.
    fn release(&self) {}
}
