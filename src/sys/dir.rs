//! Reading a directory by descriptor, entry by entry.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What an entry is, as far as the directory itself says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryType {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Link,
    /// The file system does not say: ask the entry.
    Unknown,
    /// A FIFO, a socket or a device.
    Other,
}

/// An entry of a directory; `.` and `..` are left out.
#[derive(Debug)]
pub struct DirEntry {
    /// Its name.
    pub name: CString,
    /// What it is.
    pub kind: EntryType,
}

/// An open directory, read lazily.
#[derive(Debug)]
pub struct Dir(NonNull<libc::DIR>);

/// Directories that are being read.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// How many directories are being read, each with a descriptor.
pub fn open_directories() -> usize {
    OPEN.load(Ordering::Relaxed)
}

// SAFETY: a DIR may move between threads as long as one uses it at a time, which `&mut` sees to.
unsafe impl Send for Dir {}

impl Dir {
    /// Reads the directory that `fd` is open on.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        // SAFETY: the descriptor is open; on success the stream owns it.
        let dir = unsafe { libc::fdopendir(fd.as_raw_fd()) };
        let dir = NonNull::new(dir).ok_or_else(io::Error::last_os_error)?;
        std::mem::forget(fd);
        OPEN.fetch_add(1, Ordering::Relaxed);
        Ok(Self(dir))
    }
}

impl Iterator for Dir {
    type Item = io::Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            // SAFETY: errno is this thread's own.
            unsafe { *libc::__errno_location() = 0 };
            // SAFETY: the stream is open and `&mut self` makes this its only use.
            let entry = unsafe { libc::readdir64(self.0.as_ptr()) };
            let Some(entry) = NonNull::new(entry) else {
                let error = io::Error::last_os_error();
                return (error.raw_os_error() != Some(0)).then_some(Err(error));
            };
            // SAFETY: the entry is valid until the next readdir of this stream; its name ends with NUL.
            let (name, d_type) = unsafe {
                (
                    CStr::from_ptr((&raw const (*entry.as_ptr()).d_name).cast()),
                    entry.as_ref().d_type,
                )
            };
            if name == c"." || name == c".." {
                continue;
            }
            let kind = match d_type {
                libc::DT_REG => EntryType::File,
                libc::DT_DIR => EntryType::Dir,
                libc::DT_LNK => EntryType::Link,
                libc::DT_UNKNOWN => EntryType::Unknown,
                _ => EntryType::Other,
            };
            return Some(Ok(DirEntry { name: name.to_owned(), kind }));
        }
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // SAFETY: the stream is open and this is its last use.
        unsafe { libc::closedir(self.0.as_ptr()) };
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}
