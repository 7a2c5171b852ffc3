//! System calls that the standard library does not have: the only unsafe code here.
//!
//! One call per function. Nothing here knows Zarr; callers are
//! [`store::directory`](crate::store), [`backing`](crate::backing), `vfs::authors` and [`cli`](crate::cli).
#![expect(unsafe_code, reason = "this module is where it is allowed")]

mod dir;
mod large_pages;
mod limits;
mod process;
mod stdout;

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

pub use dir::{Dir, DirEntry, EntryType, open_directories};
pub use large_pages::LargePages;
pub use limits::{
    descriptor_limit, in_use, memory_limit, raise_descriptor_limit, set_descriptor_limit,
    thread_limit,
};
pub use process::process_of;
pub use stdout::was_stdout_closed;

/// Which links [`open_beneath`] follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// Symbolic links that stay below the directory.
    Beneath,
    /// None.
    Refuse,
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// How often a path with `..` in a link is resolved again, when something was renamed meanwhile.
const RESOLVE_ATTEMPTS: u32 = 10_000;

/// Opens `path` below `dir` and nothing else: a path or a link that leads out is `EXDEV`, or `ELOOP`
/// where links are refused. `mode` counts where `flags` create.
///
/// With `RESOLVE_BENEATH`, openat2(2) gives `EAGAIN` for a `..` while anything is renamed or mounted
/// anywhere in the system, and leaves it to the caller to try again.
pub fn open_beneath(
    dir: impl AsFd,
    path: &CStr,
    flags: libc::c_int,
    mode: u32,
    links: Links,
) -> io::Result<OwnedFd> {
    let follow = match links {
        Links::Beneath => 0,
        Links::Refuse => libc::RESOLVE_NO_SYMLINKS,
    };
    // SAFETY: open_how is a plain struct of integers, for which zero is valid.
    let mut how: libc::open_how = unsafe { mem::zeroed() };
    how.flags = u64::from((flags | libc::O_CLOEXEC).cast_unsigned());
    how.mode = u64::from(mode);
    how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_MAGICLINKS | follow;
    let mut attempts = 0;
    loop {
        // SAFETY: the path is a C string and `how` outlives the call; the kernel keeps neither.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_openat2,
                dir.as_fd().as_raw_fd(),
                path.as_ptr(),
                &raw const how,
                size_of::<libc::open_how>(),
            )
        };
        if let Ok(fd @ 0..) = i32::try_from(fd) {
            // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        let error = io::Error::last_os_error();
        attempts += 1;
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) if attempts < RESOLVE_ATTEMPTS => {
                std::thread::yield_now();
            }
            _ => return Err(error),
        }
    }
}

/// Makes the directory `name` in `dir`.
pub fn make_dir(dir: impl AsFd, name: &CStr) -> io::Result<()> {
    // SAFETY: the name is a C string that outlives the call.
    check(unsafe { libc::mkdirat(dir.as_fd().as_raw_fd(), name.as_ptr(), 0o777) }).map(drop)
}

/// Removes the file (or symbolic link) `name` from `dir`.
pub fn unlink(dir: impl AsFd, name: &CStr) -> io::Result<()> {
    // SAFETY: the name is a C string that outlives the call.
    check(unsafe { libc::unlinkat(dir.as_fd().as_raw_fd(), name.as_ptr(), 0) }).map(drop)
}

/// Removes the empty directory `name` from `dir`.
pub fn remove_dir(dir: impl AsFd, name: &CStr) -> io::Result<()> {
    let fd = dir.as_fd().as_raw_fd();
    // SAFETY: the name is a C string that outlives the call.
    check(unsafe { libc::unlinkat(fd, name.as_ptr(), libc::AT_REMOVEDIR) }).map(drop)
}

/// Renames `from` in one directory to `to` in another, replacing what is there.
pub fn rename(dir: impl AsFd, from: &CStr, to_dir: impl AsFd, to: &CStr) -> io::Result<()> {
    let (dir, to_dir) = (dir.as_fd().as_raw_fd(), to_dir.as_fd().as_raw_fd());
    // SAFETY: both names are C strings that outlive the call.
    check(unsafe { libc::renameat(dir, from.as_ptr(), to_dir, to.as_ptr()) }).map(drop)
}

/// Tries to take the lock of the whole open file (`F_OFD_SETLK`, exclusive), which goes with the
/// descriptor. False where another description holds it.
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

/// A file system in memory that is mounted nowhere: files in it have large pages, of which a program reads faster than
/// of small ones. It goes with its last file.
#[derive(Debug)]
pub struct MemoryFs(OwnedFd);

impl MemoryFs {
    /// Makes one, which takes the right to mount.
    pub fn new() -> io::Result<Self> {
        let owned = |fd: libc::c_long| {
            let fd = check(libc::c_int::try_from(fd).map_err(io::Error::other)?)?;
            // SAFETY: the descriptor is new and nobody else has it.
            Ok::<_, io::Error>(unsafe { OwnedFd::from_raw_fd(fd) })
        };
        let made = |result: libc::c_long| check(libc::c_int::try_from(result).unwrap_or(-1));
        let none = std::ptr::null::<libc::c_char>();
        // SAFETY: the name is a C string that outlives the call.
        let context = owned(unsafe {
            libc::syscall(libc::SYS_fsopen, c"tmpfs".as_ptr(), libc::c_long::from(FSOPEN_CLOEXEC))
        })?;
        let configure = |command: u32, key: *const libc::c_char, value: *const libc::c_char| {
            let (fd, zero) = (context.as_raw_fd(), 0_i32);
            // SAFETY: the strings are C strings that outlive the call, or null where the command takes none.
            made(unsafe { libc::syscall(libc::SYS_fsconfig, fd, command, key, value, zero) })
        };
        // Large pages where the whole of one lies in the file: no file takes more memory than it has bytes.
        configure(FSCONFIG_SET_STRING, c"huge".as_ptr(), c"within_size".as_ptr())?;
        configure(FSCONFIG_SET_STRING, c"size".as_ptr(), c"0".as_ptr())?;
        configure(FSCONFIG_CMD_CREATE, none, none)?;
        let (flags, attributes) = (FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
        // SAFETY: the descriptor is open; the call touches no memory.
        owned(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), flags, attributes) })
            .map(Self)
    }

    /// A file in it that has no name, and is empty.
    pub fn file(&self) -> io::Result<MemoryFile> {
        let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC;
        // SAFETY: the descriptor is open and the name a C string.
        let fd = check(unsafe { libc::openat(self.0.as_raw_fd(), c".".as_ptr(), flags, 0o600) })?;
        // SAFETY: the descriptor is new and nobody else has it.
        Ok(MemoryFile(File::from(unsafe { OwnedFd::from_raw_fd(fd) })))
    }
}

// Of <linux/mount.h>, which libc does not have.
const FSOPEN_CLOEXEC: u32 = 1;
const FSMOUNT_CLOEXEC: u32 = 1;
const FSCONFIG_SET_STRING: u32 = 1;
const FSCONFIG_CMD_CREATE: u32 = 6;
const MOUNT_ATTR_NOSUID: u32 = 2;
const MOUNT_ATTR_NODEV: u32 = 4;

/// A file in memory that has no name.
#[derive(Debug)]
pub struct MemoryFile(File);

impl MemoryFile {
    /// One that is empty, for who has no right to mount.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::memfd_create(c"zarrfs".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: the descriptor is new and nobody else has it.
        Ok(Self(File::from(unsafe { OwnedFd::from_raw_fd(check(fd)?) })))
    }

    /// Gives it, while it is empty, these bytes.
    pub fn fill(&self, bytes: &[u8]) -> io::Result<()> {
        // Large pages are for files that are known to be large.
        self.0.set_len(u64::try_from(bytes.len()).map_err(io::Error::other)?)?;
        self.0.write_all_at(bytes, 0)
    }
}

impl AsFd for MemoryFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Reads from `offset` of a file; how many bytes, fewer than there is room for at its end.
pub fn read_at(file: impl AsFd, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
    let (fd, start, len) = (file.as_fd().as_raw_fd(), bytes.as_mut_ptr(), bytes.len());
    // SAFETY: the descriptor is open, and the kernel writes `len` bytes at most, which the slice has.
    let read = unsafe { libc::pread(fd, start.cast(), len, offset) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

/// What is known of `name` in the directory `dir`, of `dir` itself if the name is empty; of a link, of itself.
pub fn stat_at(dir: impl AsFd, name: &CStr) -> io::Result<libc::stat> {
    // SAFETY: stat is a plain struct of integers, for which zero is valid.
    let mut found: libc::stat = unsafe { mem::zeroed() };
    let empty = if name.is_empty() { libc::AT_EMPTY_PATH } else { 0 };
    let (fd, flags) = (dir.as_fd().as_raw_fd(), libc::AT_SYMLINK_NOFOLLOW | empty);
    // SAFETY: the descriptor is open, `name` ends in 0, and `found` outlives the call.
    check(unsafe { libc::fstatat(fd, name.as_ptr(), &raw mut found, flags) })?;
    Ok(found)
}

/// What the kernel calls a file apart from its names: inode number and generation, on most file systems.
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
    /// The bytes that tell files apart.
    pub fn bytes(&self) -> &[u8] {
        let len = usize::try_from(self.len).unwrap_or_default();
        self.bytes.get(..len).unwrap_or_default()
    }
}

/// The handle of `name` in the directory `dir`, or of `dir` itself if the name is empty; `EOPNOTSUPP` where the file
/// system has none.
pub fn file_handle(dir: impl AsFd, name: &CStr) -> io::Result<FileHandle> {
    let mut handle = FileHandle { len: 128, kind: 0, bytes: [0; MAX_HANDLE_LEN] };
    let mut mount = 0;
    let flags = if name.is_empty() { libc::AT_EMPTY_PATH } else { 0 };
    // SAFETY: `FileHandle` has the layout of `file_handle`, followed by as many bytes as its length says; all outlive the call.
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

/// The type of the file system that `fd` lies on, as `statfs` has it (`EXT4_SUPER_MAGIC` and the like).
pub fn file_system_type(fd: impl AsFd) -> io::Result<u64> {
    // SAFETY: statfs is a plain struct of integers, for which zero is valid.
    let mut figures: libc::statfs = unsafe { mem::zeroed() };
    // SAFETY: the descriptor is open and `figures` outlives the call.
    check(unsafe { libc::fstatfs(fd.as_fd().as_raw_fd(), &raw mut figures) })?;
    u64::try_from(figures.f_type).map_err(io::Error::other)
}

/// The first two numbers of the kernel's release, such as (6, 13).
pub fn kernel_release() -> io::Result<(u32, u32)> {
    // SAFETY: utsname is plain memory, for which zero is valid.
    let mut names: libc::utsname = unsafe { mem::zeroed() };
    // SAFETY: `names` outlives the call.
    check(unsafe { libc::uname(&raw mut names) })?;
    // SAFETY: the kernel has put a C string there.
    let release = unsafe { CStr::from_ptr(names.release.as_ptr()) }.to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    Ok((numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)))
}

/// The figures of the file system that `fd` lies on.
pub fn statvfs(fd: impl AsFd) -> io::Result<libc::statvfs> {
    // SAFETY: statvfs is a plain struct of integers, for which zero is valid.
    let mut figures: libc::statvfs = unsafe { mem::zeroed() };
    // SAFETY: the descriptor is open and `figures` outlives the call.
    check(unsafe { libc::fstatvfs(fd.as_fd().as_raw_fd(), &raw mut figures) })?;
    Ok(figures)
}

/// The user and group that this process acts as.
pub fn effective_ids() -> (u32, u32) {
    // SAFETY: neither call can fail or touches memory.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

/// Unmounts `mountpoint`; needs the right to do so (others go through `fusermount3`). With `lazily` one that is
/// in use goes too, and ends with its last open file.
pub fn unmount(mountpoint: &Path, lazily: bool) -> io::Result<()> {
    let path = std::ffi::CString::new(mountpoint.as_os_str().as_bytes())?;
    let flags = if lazily { libc::MNT_DETACH } else { 0 };
    // SAFETY: the path is a C string that outlives the call.
    check(unsafe { libc::umount2(path.as_ptr(), flags) }).map(drop)
}

/// Makes this process the leader of a session of its own, without a terminal.
pub fn new_session() -> io::Result<()> {
    // SAFETY: the call touches no memory.
    check(unsafe { libc::setsid() }).map(drop)
}

/// Blocks SIGINT, SIGTERM and SIGHUP in this thread and those that it starts, so that
/// [`wait_for_signal`] gets them. Call it before any thread is started.
pub fn block_signals() -> io::Result<()> {
    let set = stop_signals();
    // SAFETY: the set outlives the call; no old set is asked for.
    let code =
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

/// Waits for SIGINT, SIGTERM or SIGHUP, which must be blocked, and says which came.
pub fn wait_for_signal() -> io::Result<i32> {
    let set = stop_signals();
    let mut signal = 0;
    // SAFETY: set and signal outlive the call.
    let code = unsafe { libc::sigwait(&raw const set, &raw mut signal) };
    if code == 0 { Ok(signal) } else { Err(io::Error::from_raw_os_error(code)) }
}

fn stop_signals() -> libc::sigset_t {
    // SAFETY: sigset_t is plain memory that sigemptyset sets up; the signal numbers are valid.
    unsafe {
        let mut set: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGINT);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        libc::sigaddset(&raw mut set, libc::SIGHUP);
        set
    }
}
