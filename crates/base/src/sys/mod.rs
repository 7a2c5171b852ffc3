//! System calls that need more than one line, or that neither the standard library nor rustix has:
//! the only unsafe code here. Callers use rustix directly for the others.
//!
//! The directory store, passthrough, `vfs::authors` and the command call it.
#![expect(unsafe_code, reason = "this module is where it is allowed")]

mod append;
mod arenas;
mod beneath;
mod dir;
mod flock;
mod fuse_device;
mod large_pages;
mod limits;
mod namespace;
mod own;
mod process;
mod signals;
mod stdout;

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create, openat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount,
    fsopen,
};

pub use append::AppendedFile;
pub use arenas::use_one_arena;
pub use beneath::{Links, create_beneath, open_beneath, path_of};
pub use dir::{Dir, check_writable, open_directories};
pub use flock::{Lock, lock_now, wait_for_lock};
pub use fuse_device::{inherited, is_fuse_device, open_fuse_device};
pub use large_pages::LargePages;
pub use limits::{
    descriptor_limit, in_use, memory_limit, raise_descriptor_limit, set_descriptor_limit,
    thread_limit,
};
pub use namespace::{Forked, Namespaces, Refused, fork, make_mounts_private};
pub use own::{IfTaken, OthersMay, OwnDirectory, is_own, is_same, open_log};
pub use process::{
    Life, age_of, end_with_parent, ends_by_failure, is_stopped, is_thread_of, life_of,
    may_have_open, process_of, waits_for_give_up,
};
pub use signals::{
    Blocked, Signal, SignalToParent, block_signals, block_signals_as_parent, wait_as_parent,
    wait_for_signal,
};
pub use stdout::was_stdout_closed;

use crate::width::ToUsize;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Tries to lock the whole file (`F_OFD_SETLK`, exclusive). The lock belongs to the open file
/// description. Returns false if another description holds it.
pub fn try_lock(file: &File) -> io::Result<bool> {
    // SAFETY: flock is a plain struct of integers, for which zero is valid.
    let mut lock: libc::flock = unsafe { mem::zeroed() };
    lock.l_type = i16::try_from(libc::F_WRLCK).unwrap_or_default();
    lock.l_whence = i16::try_from(libc::SEEK_SET).unwrap_or_default();
    // SAFETY: the descriptor is open and `lock` outlives the call.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    match check(result) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Whether a program has a file open or mapped for writing. `file` must be open for reading only.
pub fn is_written(file: OwnedFd) -> io::Result<bool> {
    Ok(!has_no_writers(&File::from(file))?)
}

/// The command that sets the signal of a lease, which `libc` lacks.
const F_SETSIG: i32 = 10;

/// Whether nobody has a file open or mapped for writing, which the kernel checks when it grants a
/// read lease (`F_SETLEASE`). `file` must be open for reading only.
pub fn has_no_writers(file: &File) -> io::Result<bool> {
    let fd = file.as_raw_fd();
    // A program that opens the file for writing at this moment would end this process by SIGIO. By
    // default, SIGURG does nothing.
    // SAFETY: the descriptor is open; the calls take no pointers.
    check(unsafe { libc::fcntl(fd, F_SETSIG, libc::SIGURG) })?;
    // SAFETY: as above.
    match check(unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK) }) {
        Ok(_) => {
            // SAFETY: as above.
            check(unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK) })?;
            Ok(true)
        }
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A file system in memory that is not mounted. Its files have large pages, which programs read
/// faster than small ones. It is freed with its last file.
#[derive(Debug)]
pub struct MemoryFs(OwnedFd);

impl MemoryFs {
    /// Creates a file system. The process needs the right to mount.
    pub fn new() -> io::Result<Self> {
        let context = fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        // Large pages are used where they lie entirely within the file, so a file takes no more
        // memory than its length.
        fsconfig_set_string(&context, c"huge", c"within_size")?;
        fsconfig_set_string(&context, c"size", c"0")?;
        fsconfig_create(&context)?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        Ok(Self(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?))
    }

    /// Returns a new file without a name.
    pub fn file(&self) -> io::Result<MemoryFile> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        Ok(MemoryFile(File::from(openat(&self.0, c".", flags, Mode::from(0o600))?)))
    }
}

/// A file in memory without a name.
#[derive(Debug)]
pub struct MemoryFile(File);

impl MemoryFile {
    /// Returns an empty file, for processes that may not mount.
    pub fn new() -> io::Result<Self> {
        Ok(Self(File::from(memfd_create(c"zarrfs", MemfdFlags::CLOEXEC)?)))
    }

    /// Fills the empty file.
    pub fn fill(&self, bytes: &[u8]) -> io::Result<()> {
        // The kernel uses large pages if it knows that the file is large.
        self.0.set_len(u64::try_from(bytes.len()).map_err(io::Error::other)?)?;
        self.0.write_all_at(bytes, 0)
    }

    /// Returns the same file, for a program to write into.
    pub fn try_clone(&self) -> io::Result<File> {
        self.0.try_clone()
    }

    /// Returns its first bytes, at most `len`.
    pub fn first(&self, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let mut read = 0;
        while let Some(rest) = bytes.get_mut(read..).filter(|rest| !rest.is_empty()) {
            match self.0.read_at(rest, u64::try_from(read).map_err(io::Error::other)?)? {
                0 => break,
                more => read = read.saturating_add(more),
            }
        }
        bytes.truncate(read);
        Ok(bytes)
    }
}

impl AsFd for MemoryFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The identity of a file apart from its names: inode number and generation on most file systems.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FileHandle {
    len: u32,
    kind: i32,
    bytes: [u8; MAX_HANDLE_LEN],
}

/// `MAX_HANDLE_SZ` of <linux/exportfs.h>.
const MAX_HANDLE_LEN: usize = 128;

impl FileHandle {
    /// Returns bytes that identify the file.
    pub fn bytes(&self) -> &[u8] {
        let len = self.len.to_usize();
        self.bytes.get(..len).unwrap_or_default()
    }
}

/// Returns the handle of `name` in the directory `dir`, or of `dir` itself if the name is empty.
/// Fails with `EOPNOTSUPP` if the file system has no handles.
pub fn file_handle(dir: impl AsFd, name: &CStr) -> io::Result<FileHandle> {
    let mut handle = FileHandle { len: 128, kind: 0, bytes: [0; MAX_HANDLE_LEN] };
    let mut mount = 0;
    let flags = if name.is_empty() { libc::AT_EMPTY_PATH } else { 0 };
    // SAFETY: `FileHandle` has the layout of `file_handle`, followed by as many bytes as its length
    // says; all outlive the call.
    check(unsafe {
        libc::name_to_handle_at(
            dir.as_fd().as_raw_fd(),
            name.as_ptr(),
            (&raw mut handle).cast(),
            &raw mut mount,
            flags,
        )
    })?;
    Ok(handle)
}

/// Returns the first two numbers of the kernel's release, such as (6, 13).
pub fn kernel_release() -> (u32, u32) {
    let names = rustix::system::uname();
    let release = names.release().to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Writes the pages that programs have changed in mapped files of a file system. `path` is in it.
pub fn write_back(path: &std::path::Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(path)?)?)
}

/// Fills `bytes` with random ones that nobody can guess (getrandom(2)).
pub fn fill_random(bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()) {
            Ok(len) => filled = filled.saturating_add(len),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
