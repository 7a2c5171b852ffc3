//! Reads a directory by descriptor, entry by entry, and checks whether it can be written.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{Access, AtFlags, CWD, DirEntry, accessat};
use rustix::io;

/// An open directory, read lazily, without `.` and `..`.
#[derive(Debug)]
pub struct Dir(rustix::fs::Dir);

/// The number of directories being read.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of directories being read, each with a descriptor.
pub fn open_directories() -> usize {
    OPEN.load(Ordering::Relaxed)
}

/// Fails if this process may not create files in a directory: with `EROFS` if the file system is
/// read-only, otherwise with `EACCES` or `EPERM`.
pub fn check_writable(directory: &Path) -> io::Result<()> {
    accessat(CWD, directory, Access::WRITE_OK, AtFlags::EACCESS)
}

impl Dir {
    /// Reads the open directory `fd`.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let dir = rustix::fs::Dir::new(fd)?;
        OPEN.fetch_add(1, Ordering::Relaxed);
        Ok(Self(dir))
    }
}

impl Iterator for Dir {
    type Item = io::Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        let is_other = |entry: &DirEntry| !matches!(entry.file_name().to_bytes(), b"." | b"..");
        self.0.find(|entry| entry.as_ref().map_or(true, is_other))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}
