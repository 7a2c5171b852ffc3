//! Files that the kernel reads directly instead of one in the mount (FUSE passthrough), and a
//! bounded number of memory files among them.
//!
//! A program that has such a file open, mapped, or in a pipe (`splice`, `sendfile`) reads it
//! without zarrfs, and may do so after the last `close` that the kernel reports. So a memory file
//! is filled once and never changes: when zarrfs no longer needs it, it closes the file, and the
//! kernel frees the memory after its last user.
//!
//! zarrfs cannot detect when such a memory file could be reused: map counts miss an untouched
//! mapping, and a write lease misses a pipe. Creating a file takes a few microseconds.
//!
//! Memory files are on a tmpfs that is not mounted (`sys::MemoryFs`) and has large pages. Filling
//! and reading them is three to four times as fast as with `memfd_create`.

use std::any::Any;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use rustix::io::pread;

use crate::NewFile;
use zarrfs_base::budget::{Budget, Lease, Purpose};
use zarrfs_base::buffer::{Buffer, unset};
use zarrfs_base::error::{Error, Result};
use zarrfs_base::resources::{FilePermit, FileShare};
use zarrfs_base::sys::{MemoryFile, MemoryFs};
use zarrfs_base::width::{ToU64, ToUsize};

/// The identifier of a file in the kernel's protocol, or why the kernel rejects it.
pub type Registration = Result<Arc<dyn Any + Send + Sync>, Arc<str>>;

/// A file that the kernel reads instead of one in the mount.
pub struct Backing {
    file: BackingKind,
    /// The length in bytes when it was opened; a new file grows.
    len: u64,
    modified: SystemTime,
    /// The result of the first registration, even if it failed: all programs that have an inode
    /// open must use the same mode.
    registration: OnceLock<Registration>,
}

enum BackingKind {
    /// A file of the store.
    Stored { file: OwnedFd, _taken: FilePermit },
    /// A new file of the store that a program writes, and that is no value yet.
    New { file: NewFile, _taken: FilePermit },
    /// A memory file with decoded bytes.
    Memory { file: MemoryFile, _taken: FilePermit, _memory: Lease },
}

impl Backing {
    /// Returns a file of the store of `len` bytes. It counts as one of the open files.
    pub fn stored(file: OwnedFd, len: u64, modified: SystemTime, taken: FilePermit) -> Self {
        Self::new(BackingKind::Stored { file, _taken: taken }, len, modified)
    }

    /// Returns a new and empty file of the store. It counts as one of the open files.
    pub fn of_new_file(file: NewFile, taken: FilePermit) -> Self {
        Self::new(BackingKind::New { file, _taken: taken }, 0, SystemTime::now())
    }

    fn new(file: BackingKind, len: u64, modified: SystemTime) -> Self {
        Self { file, len, modified, registration: OnceLock::new() }
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        self.new_file().and_then(|file| file.len().ok()).unwrap_or(self.len)
    }

    /// Whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the file if it is a new one of the store.
    pub fn new_file(&self) -> Option<&NewFile> {
        match &self.file {
            BackingKind::New { file, .. } => Some(file),
            BackingKind::Stored { .. } | BackingKind::Memory { .. } => None,
        }
    }

    /// Whether it is a memory file.
    pub fn is_in_memory(&self) -> bool {
        matches!(self.file, BackingKind::Memory { .. })
    }

    /// Returns the time of the stored bytes, or of the last write to a new file.
    pub fn modified(&self) -> SystemTime {
        self.new_file().and_then(|file| file.modified().ok()).unwrap_or(self.modified)
    }

    /// Reads up to `len` bytes from `offset`, fewer only at the end, if the kernel cannot read
    /// directly.
    pub fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let left = self.len().saturating_sub(offset).to_usize();
        let mut bytes = BytesMut::zeroed(len.min(left));
        let read = pread(self.file(), &mut *bytes, offset)?;
        bytes.truncate(read);
        Ok(bytes.freeze())
    }

    /// Returns all bytes; an error if there are more than `limit`.
    pub fn read_all(&self, limit: u64) -> Result<Buffer> {
        let len = usize::try_from(self.len()).ok().filter(|_| self.len() <= limit);
        let too_large = || Error::too_large(format!("{} bytes: the limit is {limit}", self.len()));
        let mut bytes = unset(len.ok_or_else(too_large)?)?;
        let mut read = 0;
        while let Some(rest) = bytes.get_mut(read..).filter(|rest| !rest.is_empty()) {
            match pread(self.file(), rest, read.to_u64())? {
                0 => break, // It has become shorter.
                more => read = read.saturating_add(more),
            }
        }
        bytes.truncate(read);
        Ok(bytes.into())
    }

    /// Returns the registration, which `register` creates on first use.
    pub fn registered(
        &self,
        register: impl FnOnce(BorrowedFd<'_>) -> Registration,
    ) -> &Registration {
        self.registration.get_or_init(|| register(self.file()))
    }

    fn file(&self) -> BorrowedFd<'_> {
        match &self.file {
            BackingKind::Stored { file, .. } => file.as_fd(),
            BackingKind::New { file, .. } => file.as_fd(),
            BackingKind::Memory { file, .. } => file.as_fd(),
        }
    }
}

impl fmt::Debug for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backing").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Memory files, bounded in number and total length.
#[derive(Debug)]
pub struct MemoryFiles {
    budget: Arc<Budget>,
    files: FileShare,
    /// The file system for them, `None` if it cannot be created.
    fs: OnceLock<Option<MemoryFs>>,
}

impl MemoryFiles {
    /// Returns an empty set for at most `most` files, which draw their memory from `budget`.
    pub fn new(budget: Arc<Budget>, most: usize) -> Self {
        Self { budget, files: FileShare::new(most), fs: OnceLock::new() }
    }

    /// Returns the number of files.
    pub fn count(&self) -> usize {
        self.files.taken()
    }

    /// Returns a memory file with `bytes`, `None` if that would exceed a limit.
    pub fn with(&self, bytes: &[u8], modified: SystemTime) -> Result<Option<Backing>> {
        let len = bytes.len().to_u64();
        let Some(taken) = self.files.take() else { return Ok(None) };
        let memory = self.budget.try_draw(Purpose::MemoryFiles, len);
        let Some(memory) = memory else { return Ok(None) };
        let file = self.made()?;
        file.fill(bytes)?;
        let file = BackingKind::Memory { file, _taken: taken, _memory: memory };
        Ok(Some(Backing::new(file, len, modified)))
    }

    fn made(&self) -> io::Result<MemoryFile> {
        let fs = self.fs.get_or_init(|| {
            let made = MemoryFs::new();
            made.inspect_err(|error| log::debug!("no memory file system: {error}")).ok()
        });
        fs.as_ref().map_or_else(MemoryFile::new, MemoryFs::file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_files_stay_within_their_limits() {
        let budget = Budget::new(20, 0);
        let files = MemoryFiles::new(Arc::clone(&budget), 2);
        let with = |bytes: &[u8]| files.with(bytes, SystemTime::UNIX_EPOCH).expect("made");
        let four = with(b"four").expect("room");
        let five = with(b"fives").expect("room");
        assert!(with(b"").is_none(), "a third file");
        drop(five);
        assert!(with(b"sevenss").is_none(), "too many bytes");
        let six = with(b"sixsix").expect("room");
        assert_eq!((budget.drawn(Purpose::MemoryFiles), files.count()), (10, 2));
        drop((four, six));
        drop(with(b"0123456789").expect("room of both"));
        assert_eq!((budget.drawn(Purpose::MemoryFiles), files.count()), (0, 0));
    }
}
