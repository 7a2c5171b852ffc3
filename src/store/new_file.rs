//! A file of the store that no key has yet.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::SystemTime;

/// A file without a name in the file system of the store. It is gone with its last opener, unless
/// it becomes a value first ([`set_file`](crate::store::WritableStore::set_file)).
///
/// Programs may write to it through other descriptors at any time, even after it has become a
/// value.
#[derive(Debug)]
pub struct NewFile(File);

impl From<OwnedFd> for NewFile {
    fn from(file: OwnedFd) -> Self {
        Self(file.into())
    }
}

impl NewFile {
    /// Returns its length in bytes.
    pub fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Returns the time of the last write.
    pub fn modified(&self) -> io::Result<SystemTime> {
        self.0.metadata()?.modified()
    }

    /// Sets the time of the last write.
    pub fn set_modified(&self, modified: SystemTime) -> io::Result<()> {
        self.0.set_modified(modified)
    }

    /// Whether it has become a value.
    pub fn is_value(&self) -> io::Result<bool> {
        Ok(self.0.metadata()?.nlink() > 0)
    }

    /// Writes all of `data` at `offset`.
    pub fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }

    /// Truncates it, or extends it with zeros.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    /// Returns another handle of the same open file.
    pub(crate) fn shared(&self) -> io::Result<File> {
        self.0.try_clone()
    }
}

impl AsFd for NewFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
