//! An open file of a store that is a directory.

use std::ffi::{CString, OsStr};
use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use rustix::fs::{
    AtFlags, FallocateFlags, FileType, Gid, Mode, OFlags, SeekFrom, Timespec, Timestamps,
    UTIME_NOW, UTIME_OMIT, Uid, XattrFlags, chownat, fallocate, getxattr, listxattr, readlinkat,
    removexattr, seek, setxattr, utimensat,
};
use rustix::io::Errno;

use super::file_stat::{
    FileChanges, FileId, FileKind, FileStat, FileUse, NewTime, Ownership, Presence,
};
use zarrfs_base::buffer::unset;
use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_base::sys::{self, path_of};
use zarrfs_base::width::ToU64;

/// An open file. Its name may change or vanish meanwhile.
#[derive(Debug)]
pub struct OpenFile {
    file: File,
    purpose: FileUse,
    is_readable: bool,
    _counted: OpenFileCount,
}

/// The two kinds of ranges in a sparse file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Bytes that were written.
    Data,
    /// A range without bytes, which reads as zeros. The end of the file counts as one.
    Hole,
}

/// The number of open files.
static OPEN: AtomicU64 = AtomicU64::new(0);

/// Counts an open file until it is dropped.
#[derive(Debug)]
struct OpenFileCount;

impl Drop for OpenFileCount {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The fraction of the descriptors of this process that open files may take. Others are for memory
/// files, directories being read, and files that are open for a single call.
const PART_OF_FILES: u64 = 4;

/// Fails if programs have so many files open that the rest of zarrfs would lack descriptors.
pub(super) fn check_count() -> Result<()> {
    let (open, limit) = (OPEN.load(Ordering::Relaxed), sys::descriptor_limit());
    if open < limit / PART_OF_FILES {
        return Ok(());
    }
    Err(Error::new(
        Kind::Os(libc::ENFILE),
        format!(
            "{open} ordinary files are open, and zarrfs may have {limit} descriptors: close some, \
             or mount again with a higher limit of open files (ulimit -n)"
        ),
    ))
}

impl OpenFile {
    /// Returns a file that was opened for this purpose.
    pub(super) fn new(fd: OwnedFd, purpose: FileUse) -> Self {
        OPEN.fetch_add(1, Ordering::Relaxed);
        let is_readable = purpose != FileUse::Attributes;
        Self { file: File::from(fd), purpose, is_readable, _counted: OpenFileCount }
    }

    /// Whether it was opened in a way that allows this use, too.
    pub fn serves(&self, purpose: FileUse) -> bool {
        match purpose {
            FileUse::Attributes => true,
            FileUse::Read => self.is_readable,
            FileUse::Write => self.purpose == FileUse::Write,
        }
    }

    /// Returns its attributes.
    pub fn stat(&self) -> Result<FileStat> {
        Ok(stat_of(&self.file.metadata()?))
    }

    /// Returns up to `len` bytes at `offset`, fewer only at the end of the file.
    pub fn read(&self, offset: u64, len: usize) -> Result<Bytes> {
        let mut bytes = unset(len)?;
        let mut read = 0_usize;
        while let Some(rest) = bytes.as_mut_slice().get_mut(read..).filter(|rest| !rest.is_empty())
        {
            let at = offset.saturating_add(read.to_u64());
            match self.file.read_at(rest, at) {
                Ok(0) => break,
                Ok(more) => read = read.saturating_add(more),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        bytes.truncate(read);
        Ok(bytes.into())
    }

    /// Writes all of `data` at `offset`.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        Ok(self.file.write_all_at(data, offset)?)
    }

    /// Truncates it, or extends it with zeros.
    pub fn set_len(&self, len: u64) -> Result<()> {
        Ok(self.file.set_len(len)?)
    }

    /// Reserves or frees space (fallocate(2), with its flags).
    pub fn allocate(&self, flags: u32, offset: u64, len: u64) -> Result<()> {
        Ok(fallocate(&self.file, FallocateFlags::from_bits_retain(flags), offset, len)?)
    }

    /// Returns the first offset from `offset` on that is of this part of the file. Fails with
    /// `ENXIO` if there is none (lseek(2)).
    pub fn find(&self, part: Extent, offset: u64) -> Result<u64> {
        let from = match part {
            Extent::Data => SeekFrom::Data(offset),
            Extent::Hole => SeekFrom::Hole(offset),
        };
        Ok(seek(&self.file, from)?)
    }

    /// Forces it to disk.
    pub fn sync(&self) -> Result<()> {
        Ok(self.file.sync_all()?)
    }

    /// Returns the text of a symbolic link.
    pub fn link_text(&self) -> Result<Vec<u8>> {
        Ok(readlinkat(&self.file, c"", Vec::new())?.into_bytes())
    }

    /// Opens the same file again. It must be a regular one. To write, it is also opened for reading
    /// if this process may read it.
    pub fn reopen(&self, purpose: FileUse) -> Result<Self> {
        let path = path_of(&self.file);
        let open = |flags| rustix::fs::open(&*path, flags | OFlags::CLOEXEC, Mode::empty());
        if purpose != FileUse::Write {
            return Ok(Self::new(open(OFlags::RDONLY)?, purpose));
        }
        Ok(match open(OFlags::RDWR) {
            Err(Errno::ACCESS) => {
                let written = Self::new(open(OFlags::WRONLY)?, purpose);
                Self { is_readable: false, ..written }
            }
            // A file with the attribute "append only" (chattr(1)).
            Err(Errno::PERM) => Self::new(open(OFlags::RDWR | OFlags::APPEND)?, purpose),
            opened => Self::new(opened?, purpose),
        })
    }

    /// Changes its attributes. The owner comes first, because a change of the owner clears bits of
    /// the mode.
    pub fn change(&self, changes: &FileChanges) -> Result<()> {
        if changes.uid.is_some() || changes.gid.is_some() {
            let (uid, gid) = (changes.uid.map(Uid::from_raw), changes.gid.map(Gid::from_raw));
            chownat(&self.file, c"", uid, gid, AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW)?;
        }
        if let Some(mode) = changes.mode {
            let mode = Permissions::from_mode(u32::from(mode));
            std::fs::set_permissions(path_of(&self.file), mode)?;
        }
        if changes.accessed.is_some() || changes.modified.is_some() {
            let times = Timestamps {
                last_access: timespec(changes.accessed),
                last_modification: timespec(changes.modified),
            };
            let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
            match utimensat(&self.file, c"", &times, flags) {
                // Linux before 5.18; no symbolic link then.
                Err(Errno::INVAL) => {
                    let path = path_of(&self.file);
                    utimensat(rustix::fs::CWD, &*path, &times, AtFlags::empty())?;
                }
                set => set?,
            }
        }
        Ok(())
    }

    /// Returns the value of an extended attribute.
    pub fn xattr(&self, name: &OsStr) -> Result<Vec<u8>> {
        let (path, name) = (path_of(&self.file), c_name(name)?);
        sized(|buffer| getxattr(&*path, &name, buffer)).map_err(xattr_error)
    }

    /// Returns the names of its extended attributes, each with a NUL byte after it.
    pub fn xattrs(&self) -> Result<Vec<u8>> {
        let path = path_of(&self.file);
        match sized(|buffer| listxattr(&*path, buffer)) {
            Err(Errno::NOTSUP | Errno::PERM | Errno::LOOP | Errno::ACCESS) => Ok(Vec::new()),
            found => Ok(found?),
        }
    }

    /// Sets an extended attribute.
    pub fn set_xattr(&self, name: &OsStr, value: &[u8], presence: Presence) -> Result<()> {
        let flags = match presence {
            Presence::Any => XattrFlags::empty(),
            Presence::Absent => XattrFlags::CREATE,
            Presence::Present => XattrFlags::REPLACE,
        };
        setxattr(path_of(&self.file), c_name(name)?, value, flags).map_err(xattr_error)
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&self, name: &OsStr) -> Result<()> {
        removexattr(path_of(&self.file), c_name(name)?).map_err(xattr_error)
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The most bytes of a value and of a list of names: xattr(7).
const MAX_XATTR_LEN: usize = 65_536;

/// Calls `get` with a buffer that is long enough for its result.
fn sized(get: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    let read = |len| {
        let mut buffer = vec![0; len];
        get(&mut buffer).map(|len| {
            buffer.truncate(len);
            buffer
        })
    };
    match read(256) {
        Err(Errno::RANGE) => read(MAX_XATTR_LEN),
        read => read,
    }
}

fn xattr_error(error: Errno) -> Error {
    match error {
        Errno::NODATA => Error::new(Kind::NoAttribute, "no such attribute"),
        // `cp -a` and `rsync -X` go on without it, so it is not recorded.
        Errno::NOTSUP => Error::new(
            Kind::NoSuchNamespace,
            "the file system of the store does not keep this attribute",
        ),
        error => error.into(),
    }
}

fn c_name(name: &OsStr) -> Result<CString> {
    CString::new(name.as_bytes()).map_err(|_| Error::invalid("the name contains a NUL byte"))
}

fn timespec(time: Option<NewTime>) -> Timespec {
    let special = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    let at = match time {
        None => return special(UTIME_OMIT),
        Some(NewTime::Now) => return special(UTIME_NOW),
        Some(NewTime::At(at)) => at,
    };
    let parts = |time: Duration| {
        (i64::try_from(time.as_secs()).unwrap_or(i64::MAX), i64::from(time.subsec_nanos()))
    };
    match at.duration_since(UNIX_EPOCH) {
        Ok(after) => {
            let (tv_sec, tv_nsec) = parts(after);
            Timespec { tv_sec, tv_nsec }
        }
        Err(before) => {
            let (seconds, nanos) = parts(before.duration());
            let borrow = i64::from(nanos > 0);
            let tv_sec = seconds.saturating_neg().saturating_sub(borrow);
            Timespec { tv_sec, tv_nsec: if nanos > 0 { 1_000_000_000 - nanos } else { 0 } }
        }
    }
}

/// Returns a time since 1970, which may be before it.
fn time_of(seconds: i64, nanos: i64) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let part = Duration::from_nanos(u64::try_from(nanos).unwrap_or_default());
    let at =
        if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    at.and_then(|at| at.checked_add(part)).unwrap_or(UNIX_EPOCH)
}

/// Returns the type that a mode says.
fn kind_of_mode(mode: u32) -> FileKind {
    match FileType::from_raw_mode(mode) {
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Link,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::CharacterDevice => FileKind::CharDevice,
        FileType::RegularFile | FileType::Unknown => FileKind::Regular,
    }
}

fn stat_of(found: &Metadata) -> FileStat {
    FileStat {
        id: FileId { device: found.dev(), number: found.ino() },
        kind: kind_of_mode(found.mode()),
        owner: Ownership {
            mode: u16::try_from(found.mode() & 0o7777).unwrap_or_default(),
            uid: found.uid(),
            gid: found.gid(),
        },
        links: u32::try_from(found.nlink()).unwrap_or(u32::MAX),
        len: found.len(),
        blocks: found.blocks(),
        accessed: time_of(found.atime(), found.atime_nsec()),
        modified: time_of(found.mtime(), found.mtime_nsec()),
        changed: time_of(found.ctime(), found.ctime_nsec()),
        device: u32::try_from(found.rdev()).unwrap_or_default(),
    }
}
