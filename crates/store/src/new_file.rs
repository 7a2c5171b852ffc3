//! A file of the store that no key has yet.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::SystemTime;

use super::file_stat::FileUse;
use super::open_file::OpenFile;
use zarrfs_base::error::Result;
use zarrfs_base::sys::{self, path_of};

/// A file without a name in the file system of the store. It is gone with its last opener, unless
/// it becomes a value first ([`set_file`](crate::WritableStore::set_file)).
///
/// Programs write to it through other descriptors. This one only reads, so that writers can be
/// detected.
#[derive(Debug)]
pub struct NewFile(File);

/// The state of a file by which later writes are detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    len: u64,
    modified: (i64, i64),
}

impl NewFile {
    /// Returns a file that was opened when it was created.
    pub(crate) fn new(created: &OwnedFd) -> io::Result<Self> {
        Ok(Self(File::open(path_of(created))?))
    }

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

    /// Returns its state, which every later write changes.
    pub fn stamp(&self) -> io::Result<Stamp> {
        let found = self.0.metadata()?;
        Ok(Stamp { len: found.len(), modified: (found.mtime(), found.mtime_nsec()) })
    }

    /// Sets the time of the last write.
    pub fn set_modified(&self, modified: SystemTime) -> io::Result<()> {
        self.writable()?.set_modified(modified)
    }

    /// Whether it has a name, as a value does.
    pub fn is_value(&self) -> io::Result<bool> {
        Ok(self.0.metadata()?.nlink() > 0)
    }

    /// Whether `other` is the same file.
    pub fn is_same(&self, other: OwnedFd) -> io::Result<bool> {
        let (own, other) = (self.0.metadata()?, File::from(other).metadata()?);
        Ok((own.dev(), own.ino()) == (other.dev(), other.ino()))
    }

    /// Whether a program has it open or mapped for writing, or may have.
    pub fn may_have_writers(&self) -> bool {
        !sys::has_no_writers(&self.0).unwrap_or_default()
    }

    /// Writes all of `data` at `offset`.
    pub fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.writable()?.write_all_at(data, offset)
    }

    /// Truncates it, or extends it with zeros.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        self.writable()?.set_len(len)
    }

    /// Forces it to disk.
    pub fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    /// Opens it again, to give it attributes.
    pub fn open_file(&self) -> Result<OpenFile> {
        Ok(OpenFile::new(self.writable()?.into(), FileUse::Write))
    }

    /// Opens it again for writing.
    pub(crate) fn writable(&self) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(path_of(&self.0))
    }
}

impl AsFd for NewFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
