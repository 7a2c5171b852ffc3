//! Attributes, flags and names, converted to the kernel's types and back.

use std::ffi::OsStr;
use std::time::{Duration, SystemTime};

use fuser::{
    Errno, FileAttr, FileType, FopenFlags, INodeNo, OpenAccMode, OpenFlags, RenameFlags,
    ReplyXattr, Request, TimeOrNow, Version,
};

use crate::error::{Error, Kind, Result};
use crate::vfs::{Access, Attr, Caller, FileKind, NewTime, OpenedFile, Ownership, Pages, Replace};

/// The owner and the mode bits of all files.
#[derive(Debug, Clone, Copy)]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The permissions that no file has. If it is `None`, only the owner can write.
    pub umask: Option<u16>,
    /// Whether the user gave an owner or a umask, which then applies to the directories of nodes,
    /// too.
    pub is_given: bool,
    /// Whether the mount is read-only.
    pub read_only: bool,
    /// The answer to changes of modes and owners.
    pub changes: ModeChanges,
}

/// The answer to a change of a mode or an owner that a store cannot keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModeChanges {
    /// An error.
    Refuse,
    /// Success, but nothing changes.
    Ignore,
}

impl Owner {
    /// Returns the owner and mode that a file has of its own; `None` if it has those of the mount.
    pub fn own(self, attr: &Attr) -> Option<Ownership> {
        attr.owner.filter(|_| !(self.is_given && attr.is_of_node))
    }

    /// Returns the owner and mode of a generated file that some users may not read. The store keeps
    /// it from them.
    fn private(self, attr: &Attr) -> Option<Ownership> {
        let private = attr.private?;
        let is_writable = attr.is_writable && !self.read_only;
        let mode = if is_writable { private.mode } else { private.mode & !0o222 };
        Some(Ownership { mode, ..private })
    }

    fn perm(self, attr: &Attr) -> u16 {
        let allowed = !self.umask.unwrap_or_default();
        if let Some(mode) = attr.mode {
            return mode & allowed;
        }
        let mode = match (attr.is_dir(), self.umask) {
            (true, None) => 0o755,
            (false, None) => 0o644,
            (true, Some(_)) => 0o777 & allowed,
            (false, Some(_)) => 0o666 & allowed,
        };
        if attr.is_writable && !self.read_only { mode } else { mode & !0o222 }
    }

    /// Fails for a mode or owner other than the shown one: a store has neither for single chunks,
    /// and a program that restricts access must not believe that it succeeded. Clearing only the
    /// executable bits is allowed, since `install` does it.
    pub fn check(
        self,
        attr: &Attr,
        mode: Option<u16>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<()> {
        if self.changes == ModeChanges::Ignore {
            return Ok(());
        }
        let private = self.private(attr);
        let perm = private.map_or_else(|| self.perm(attr), |private| private.mode);
        let ignored = if attr.is_dir() { 0 } else { 0o111 };
        if let Some(mode) = mode
            && mode & !ignored != perm
        {
            return Err(Error::new(
                Kind::NotPermitted,
                format!("mode {mode:04o}: the mode of a file cannot change, it stays {perm:04o}"),
            ));
        }
        let is_other = |wanted: Option<u32>, own: u32| wanted.is_some_and(|wanted| wanted != own);
        let own = private.map_or((self.uid, self.gid), |private| (private.uid, private.gid));
        if is_other(uid, own.0) || is_other(gid, own.1) {
            let (uid, gid) = own;
            return Err(Error::new(
                Kind::NotPermitted,
                format!("owners cannot change: the file belongs to {uid}:{gid}"),
            ));
        }
        Ok(())
    }

    /// Returns the attributes for the kernel.
    pub fn attr(self, attr: &Attr) -> FileAttr {
        let own = self.own(attr).or_else(|| self.private(attr));
        FileAttr {
            ino: INodeNo(attr.number),
            size: attr.len,
            blocks: attr.blocks,
            atime: attr.accessed,
            mtime: attr.modified,
            ctime: attr.changed,
            crtime: attr.changed,
            kind: file_type(attr.kind),
            perm: own.map_or_else(|| self.perm(attr), |own| own.mode),
            nlink: attr.links,
            uid: own.map_or(self.uid, |own| own.uid),
            gid: own.map_or(self.gid, |own| own.gid),
            rdev: attr.device,
            blksize: 4096,
            flags: 0,
        }
    }
}

/// Returns the type for the kernel.
fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Link => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::CharDevice => FileType::CharDevice,
    }
}

/// Returns the type of file that `mknod` wants; `None` for one that it cannot make.
pub fn special_kind(mode: u32) -> Option<FileKind> {
    Some(match mode & libc::S_IFMT {
        libc::S_IFREG | 0 => FileKind::Regular,
        libc::S_IFIFO => FileKind::Fifo,
        libc::S_IFSOCK => FileKind::Socket,
        libc::S_IFBLK => FileKind::BlockDevice,
        libc::S_IFCHR => FileKind::CharDevice,
        _ => return None,
    })
}

/// Returns the permissions in a mode, with the set-user-ID, set-group-ID and sticky bits.
pub fn permissions(mode: u32) -> u16 {
    u16::try_from(mode & 0o7777).unwrap_or_default()
}

/// Returns the owner of a file that a request creates.
pub fn creator(request: &Request, mode: u32) -> Ownership {
    Ownership { mode: permissions(mode), uid: request.uid(), gid: request.gid() }
}

/// Returns what becomes of an existing file with the new name.
pub fn replace_of(flags: RenameFlags) -> Result<Replace> {
    if flags.is_empty() {
        Ok(Replace::Yes)
    } else if flags == RenameFlags::RENAME_NOREPLACE {
        Ok(Replace::No)
    } else if flags == RenameFlags::RENAME_EXCHANGE {
        Ok(Replace::Exchange)
    } else {
        Err(Error::invalid("RENAME_WHITEOUT is not supported"))
    }
}

/// The first version of the protocol whose kernels check lengths (Linux 5.10; some check before).
pub const CHECKS_LENGTHS: Version = Version(7, 32);

/// Returns attributes that the kernel refuses, since no file has this length. Of such an entry of a
/// listing it shows the name, and forgets the inode at once. fuser 0.18 cannot send an entry
/// without an inode.
pub fn refused(attr: FileAttr) -> FileAttr {
    FileAttr { size: u64::MAX, ..attr }
}

/// Returns the user of a request.
pub fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid() }
}

/// Returns a time that a program sets.
pub fn new_time(time: TimeOrNow) -> NewTime {
    match time {
        TimeOrNow::SpecificTime(time) => NewTime::At(as_sent(time)),
        TimeOrNow::Now => NewTime::Now,
    }
}

/// Returns the time that the kernel sent: fuser 0.18 subtracts the nanoseconds of a time before
/// 1970 where it should add them.
fn as_sent(time: SystemTime) -> SystemTime {
    let Err(before) = time.duration_since(SystemTime::UNIX_EPOCH) else { return time };
    let nanos = u64::from(before.duration().subsec_nanos());
    time.checked_add(Duration::from_nanos(nanos.saturating_mul(2))).unwrap_or(time)
}

/// Returns the access that the flags of an opened file allow.
pub fn access_of(flags: OpenFlags) -> Access {
    let truncates = flags.0 & libc::O_TRUNC != 0;
    match flags.acc_mode() {
        OpenAccMode::O_RDONLY => Access::Read,
        OpenAccMode::O_WRONLY | OpenAccMode::O_RDWR if truncates => Access::Truncate,
        OpenAccMode::O_WRONLY | OpenAccMode::O_RDWR => Access::Write,
    }
}

/// Whether an open file bypasses the page cache even without `direct_io`. A file that is only
/// written does not need cached pages, and filling them takes longer than all other work.
pub fn is_past_pages(flags: OpenFlags) -> bool {
    flags.acc_mode() == OpenAccMode::O_WRONLY
}

/// Returns whether the kernel keeps or drops pages. It need not report the close of a read-only
/// file.
pub fn open_flags(opened: &OpenedFile, access: Access, is_direct: bool) -> FopenFlags {
    let pages = match opened.pages {
        // Without this flag, the kernel would drop pages that another program is writing.
        Pages::Keep if is_direct => FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_KEEP_CACHE,
        Pages::Drop if is_direct => FopenFlags::FOPEN_DIRECT_IO,
        Pages::Keep => FopenFlags::FOPEN_KEEP_CACHE,
        Pages::Drop => FopenFlags::empty(),
        Pages::None => FopenFlags::FOPEN_DIRECT_IO,
    };
    match access {
        Access::Read => pages | FopenFlags::FOPEN_NOFLUSH,
        Access::Write | Access::Truncate => pages,
    }
}

/// Returns the name as UTF-8. No hierarchy has other names.
pub fn utf8(name: &OsStr) -> Result<&str> {
    name.to_str().ok_or_else(|| Error::new(Kind::Os(libc::EILSEQ), "the name is not UTF-8"))
}

/// Returns the attributes of `.` or `..`; the kernel only uses the number.
pub fn dot(number: u64) -> Attr {
    Attr { number, ..Attr::directory(SystemTime::UNIX_EPOCH) }
}

/// Returns the name of an extended attribute as UTF-8. No file has another one.
pub fn attribute(name: &OsStr) -> Result<&str> {
    name.to_str().ok_or_else(|| Error::new(Kind::NoAttribute, "no such attribute"))
}

/// Returns names in the form for the kernel. Names that do not fit its largest list can still be
/// read.
pub fn nul_separated(names: &[String]) -> Vec<u8> {
    let mut list = Vec::new();
    for name in names {
        if list.len() + name.len() < 65_536 {
            list.extend_from_slice(name.as_bytes());
            list.push(0);
        }
    }
    list
}

/// Answers with a value, or with its length if the caller requests that.
pub fn reply_xattr(reply: ReplyXattr, value: Result<Vec<u8>, Errno>, size: u32) {
    match value {
        Err(errno) => reply.error(errno),
        Ok(value) => match u32::try_from(value.len()) {
            Ok(len) if size == 0 => reply.size(len),
            Ok(len) if len <= size => reply.data(&value),
            _ => reply.error(Errno::ERANGE),
        },
    }
}
