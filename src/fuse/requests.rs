//! The requests of the kernel, each answered by the tree at once or from the pool.

use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request, TimeOrNow, WriteFlags,
};

use super::answer::{answer, gone};
use super::attributes;
use super::fs::{Fs, asked, changing};
use super::listing::{ListingLine, OpenDirectories, ReplySpace, attr_of, list};
use super::passthrough;
use super::read_log::{Answered, AnsweredRead};
use super::terms::{
    access_of, attribute, caller, creator, is_past_pages, new_time, nul_separated, open_flags,
    permissions, refused, replace_of, reply_xattr, special_kind, utf8,
};
use crate::error::{Error, Result};
use crate::vfs::{DirHandle, FileChanges, HandleUse, NewLen, NewNode, Presence, Vfs};
use crate::width::ToUsize;

/// Answers with the `$ok` of a reply, or its error.
macro_rules! reply {
    ($reply:expr, $result:expr, $ok:ident ( $value:pat => $($argument:expr),* )) => {
        match $result {
            Ok($value) => $reply.$ok($($argument),*),
            Err(errno) => $reply.error(errno),
        }
    };
}

impl Filesystem for Fs {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        self.agree(config);
        Ok(())
    }

    fn destroy(&mut self) {
        self.vfs.stop_waiting();
        self.pool.close();
        if let Err(error) = self.vfs.sync() {
            self.vfs.note("unmount", &error);
            log::error!("not everything is stored: {error}");
        }
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (owner, vfs, own) = (self.owner, Arc::clone(&self.vfs), name.to_owned());
        let lookup = move |vfs: &Vfs| match own.to_str() {
            Some(name) => vfs.lookup(parent.0, name),
            None => Err(Error::not_found()),
        };
        self.soon((parent, Some(name)), "lookup", asked(request, lookup), move |found| {
            reply!(reply, found, entry(attr => &vfs.ttl(&attr), &owner.attr(&attr), Generation(0)));
        });
    }

    fn forget(&self, _: &Request, ino: INodeNo, nlookup: u64) {
        self.vfs.forget(ino.0, nlookup);
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let (owner, vfs) = (self.owner, Arc::clone(&self.vfs));
        let get = asked(request, move |vfs| vfs.getattr(ino.0));
        self.soon((ino, None), "getattr", get, move |found| {
            reply!(reply, found.map_err(gone), attr(attr => &vfs.ttl(&attr), &owner.attr(&attr)));
        });
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (owner, vfs, user) = (self.owner, Arc::clone(&self.vfs), caller(request));
        let changes = FileChanges {
            mode: mode.map(permissions),
            uid,
            gid,
            accessed: atime.map(new_time),
            modified: mtime.map(new_time),
        };
        let len = size.map(|len| NewLen { len, handle: fh.map(|fh| fh.0) });
        let is_by_name = fh.is_none() && size.is_some();
        let change = move |vfs: &Vfs| {
            if is_by_name {
                vfs.check_all_names(ino.0)?;
            }
            attributes::change(vfs, user, owner, ino.0, len, &changes)
        };
        self.later("setattr", changing(request, change), move |changed| {
            reply!(reply, changed.map_err(gone), attr(attr => &vfs.ttl(&attr), &owner.attr(&attr)));
        });
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let (name, by) = (name.to_owned(), creator(request, mode));
        let mkdir = move |vfs: &Vfs| vfs.mkdir(parent.0, utf8(&name)?, by);
        self.entry("mkdir", changing(request, mkdir), reply);
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let (name, by) = (name.to_owned(), creator(request, mode));
        let make = move |vfs: &Vfs| {
            let unknown = || Error::invalid("mknod cannot make this kind of file");
            let node = NewNode::Special(special_kind(mode).ok_or_else(unknown)?, rdev);
            vfs.make_node(parent.0, utf8(&name)?, node, by)
        };
        self.entry("mknod", changing(request, make), reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let (name, target) = (name.to_owned(), target.as_os_str().to_owned());
        let by = creator(request, 0o777);
        let make = move |vfs: &Vfs| {
            vfs.make_node(parent.0, utf8(&name)?, NewNode::Link(target.as_bytes()), by)
        };
        self.entry("symlink", changing(request, make), reply);
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        let then = move |text: Result<Vec<u8>, Errno>| reply!(reply, text, data(text => &text));
        self.soon((ino, None), "readlink", asked(request, move |vfs| vfs.link_text(ino.0)), then);
    }

    fn link(
        &self,
        request: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let (name, user) = (newname.to_owned(), caller(request));
        let link = move |vfs: &Vfs| vfs.link_for(user, ino.0, newparent.0, utf8(&name)?);
        self.entry("link", changing(request, link), reply);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (name, by) = (name.to_owned(), Some(request.pid()).filter(|thread| *thread != 0));
        let unlink = move |vfs: &Vfs| vfs.unlink_by(by, parent.0, utf8(&name)?);
        self.later("unlink", changing(request, unlink), move |done| reply!(reply, done, ok(() =>)));
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        let rmdir = move |vfs: &Vfs| vfs.rmdir(parent.0, utf8(&name)?);
        self.later("rmdir", changing(request, rmdir), move |done| reply!(reply, done, ok(() =>)));
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (name, newname, user) = (name.to_owned(), newname.to_owned(), caller(request));
        let rename = move |vfs: &Vfs| {
            let (from, to) = ((parent.0, utf8(&name)?), (newparent.0, utf8(&newname)?));
            vfs.rename_for(user, from, to, replace_of(flags)?)
        };
        self.later("rename", changing(request, rename), move |done| reply!(reply, done, ok(() =>)));
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let (access, thread, user) = (access_of(flags), request.pid(), caller(request));
        let is_direct = self.direct_io || is_past_pages(flags);
        let open = move |vfs: &Vfs| {
            attributes::before_open(vfs, user, ino.0, access);
            let opened = vfs.open(ino.0, access);
            opened.inspect(|opened| vfs.note_opener(HandleUse::by(opened.handle, thread)))
        };
        let vfs = Arc::clone(&self.vfs);
        let takes_time =
            self.vfs.is_remote() || !self.vfs.passthrough().opens_stored(ino.0, access);
        self.soon_or_later(takes_time, "open", asked(request, open), move |opened| {
            let opened = match opened.map_err(gone) {
                Ok(opened) => opened,
                Err(errno) => return reply.error(errno),
            };
            let register = |file: BorrowedFd<'_>| reply.open_backing(file);
            let id = passthrough::register(&vfs, &opened, flags, register);
            let handle = FileHandle(opened.handle);
            match id {
                Some(id) => reply.opened_passthrough(handle, passthrough::flags(access), &id),
                None => reply.opened(handle, open_flags(&opened, access, is_direct)),
            }
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (thread, by) = (request.pid(), creator(request, mode));
        let (owner, vfs, name) = (self.owner, Arc::clone(&self.vfs), name.to_owned());
        let access = access_of(OpenFlags(flags));
        let is_direct = self.direct_io || is_past_pages(OpenFlags(flags));
        let create = move |vfs: &Vfs| {
            let exclusive = flags & libc::O_EXCL != 0;
            let created = vfs.create(parent.0, utf8(&name)?, by, access, exclusive);
            created.inspect(|(_, opened)| vfs.note_opener(HandleUse::by(opened.handle, thread)))
        };
        self.later("create", changing(request, create), move |created| match created {
            Ok((attr, opened)) => {
                let register = |file: BorrowedFd<'_>| reply.open_backing(file);
                let id = passthrough::register(&vfs, &opened, OpenFlags(flags), register);
                let (ttl, handle) = (vfs.ttl(&attr), FileHandle(opened.handle));
                let (attr, generation) = (owner.attr(&attr), Generation(0));
                if let Some(id) = id {
                    let (ttl, flags) = (passthrough::NEW_FILE_TTL, passthrough::flags(access));
                    reply.created_passthrough(&ttl, &attr, generation, handle, flags, &id);
                } else {
                    let flags = open_flags(&opened, access, is_direct);
                    reply.created(&ttl, &attr, generation, handle, flags);
                }
            }
            Err(errno) => reply.error(errno),
        });
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let len = size.to_usize();
        let log = self.read_log.as_ref().map(|log| (Arc::clone(log), Instant::now()));
        let note = move |vfs: &Vfs, answered| {
            if let Some((log, began)) = &log {
                let path = vfs.path_of(ino.0);
                log.note(&AnsweredRead { path, offset, len, answered, took: began.elapsed() });
            }
        };
        // After a panic here the pool tries again and answers.
        let try_read = || self.vfs.try_read(fh.0, offset, len);
        if !self.vfs.is_remote()
            && let Ok(Some(bytes)) = catch_unwind(AssertUnwindSafe(try_read))
        {
            reply.data(&bytes);
            return note(&self.vfs, Answered::AtOnce);
        }
        let answered = if self.vfs.is_remote() { Answered::Unknown } else { Answered::ByPool };
        let read = asked(request, move |vfs| {
            let read = vfs.read(fh.0, offset, len);
            note(vfs, answered);
            read
        });
        self.later("read", read, move |read| reply!(reply, read, data(bytes => &bytes)));
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let by = HandleUse::by(fh.0, request.pid());
        if write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
            self.vfs.attr_writer().clear_privileges(ino.0);
        }
        let is_append = flags.0 & libc::O_APPEND != 0;
        let is_mapped = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let tried = if is_append {
            Ok(false)
        } else {
            self.now("write", |vfs| vfs.try_write(by, offset, data))
        };
        // A write that fails again is noted, since no program may look at the error.
        let tried = if is_mapped { tried.or(Ok(false)) } else { tried };
        match tried {
            Ok(true) => reply.written(written),
            Err(errno) => reply.error(errno),
            Ok(false) => {
                let data = data.to_vec();
                let write = changing(request, move |vfs: &Vfs| {
                    if is_mapped {
                        vfs.write_mapped(by, offset, &data)
                    } else if is_append {
                        vfs.append(by, offset, &data)
                    } else {
                        vfs.write(by, offset, &data)
                    }
                });
                self.later("write", write, move |done| reply!(reply, done, written(() => written)));
            }
        }
    }

    fn flush(
        &self,
        request: &Request,
        _: INodeNo,
        fh: FileHandle,
        _: LockOwner,
        reply: ReplyEmpty,
    ) {
        let by = HandleUse::by(fh.0, request.pid());
        let flush = move |vfs: &Vfs| vfs.flush(by);
        self.later("close", changing(request, flush), move |done| reply!(reply, done, ok(() =>)));
    }

    fn release(
        &self,
        _: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let release = move |vfs: &Vfs| {
            vfs.release(fh.0);
            vfs.store_full();
            Ok(())
        };
        self.later("release", release, move |done| reply!(reply, done, ok(() =>)));
    }

    fn fsync(&self, request: &Request, _: INodeNo, fh: FileHandle, _: bool, reply: ReplyEmpty) {
        let fsync = move |vfs: &Vfs| vfs.fsync(fh.0);
        self.later("fsync", changing(request, fsync), move |done| reply!(reply, done, ok(() =>)));
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let dirs = Arc::clone(&self.dirs);
        let open = asked(request, move |vfs| vfs.listings().opendir(ino.0));
        let then = move |opened: Result<DirHandle, Errno>| {
            let handle = opened.map_err(gone).map(|dir| dirs.insert(dir));
            reply!(reply, handle, opened(handle => handle, FopenFlags::empty()));
        };
        if self.vfs.lists_views() {
            self.later("opendir", open, then);
        } else {
            self.soon((ino, None), "opendir", open, then);
        }
    }

    fn readdir(
        &self,
        request: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let list = move |vfs: &Vfs, dirs: &OpenDirectories| {
            let mut add = |next: u64, entry: ListingLine<'_>| {
                let (name, number, is_dir) = match entry {
                    ListingLine::Dot(name, number) => (name, number, true),
                    ListingLine::Listed(_, listed) => {
                        let number = vfs.listings().number_listed(listed);
                        (listed.name.as_str(), number, listed.is_dir)
                    }
                };
                let kind = if is_dir { FileType::Directory } else { FileType::RegularFile };
                let full = reply.add(INodeNo(number), next, kind, name);
                Ok(if full { ReplySpace::None } else { ReplySpace::Some })
            };
            let listed = answer(vfs, "readdir", || list(vfs, &dirs.get(fh)?, offset, &mut add));
            reply!(reply, listed, ok(() =>));
        };
        self.list(request, list);
    }

    fn readdirplus(
        &self,
        request: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let (owner, may_refuse) = (self.owner, self.refuses_attributes);
        let list = move |vfs: &Vfs, dirs: &OpenDirectories| {
            let mut add = |next: u64, entry: ListingLine<'_>| {
                let is_kept = !(may_refuse && vfs.knows_many_names());
                let found = attr_of(vfs, &entry, is_kept);
                let Some((name, attr)) = found else { return Ok(ReplySpace::Some) };
                let (ttl, shown) = (vfs.ttl(&attr), owner.attr(&attr));
                let shown = if is_kept { shown } else { refused(shown) };
                let number = INodeNo(attr.number);
                let full = reply.add(number, next, name, &ttl, &shown, Generation(0));
                if full && matches!(entry, ListingLine::Listed(..)) {
                    vfs.forget(attr.number, 1);
                }
                Ok(if full { ReplySpace::None } else { ReplySpace::Some })
            };
            let listed = answer(vfs, "readdir", || list(vfs, &dirs.get(fh)?, offset, &mut add));
            reply!(reply, listed, ok(() =>));
        };
        self.list(request, list);
    }

    fn releasedir(&self, _: &Request, _: INodeNo, fh: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.dirs.remove(fh);
        reply.ok();
    }

    fn fsyncdir(&self, request: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let sync = move |vfs: &Vfs| vfs.sync_directory(ino.0);
        self.later("fsync", changing(request, sync), move |done| reply!(reply, done, ok(() =>)));
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.now("statfs", Vfs::room) {
            Ok(Some(room)) => reply.statfs(
                room.total,
                room.free,
                room.available,
                room.values,
                room.values_free,
                room.unit_len,
                room.name_max.min(255),
                room.unit_len,
            ),
            Ok(None) => reply.statfs(0, 0, 0, 0, 0, 4096, 255, 4096),
            Err(errno) => reply.error(errno),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let (name, value) = (name.to_owned(), value.to_vec());
        let presence = match flags {
            libc::XATTR_CREATE => Presence::Absent,
            libc::XATTR_REPLACE => Presence::Present,
            _ => Presence::Any,
        };
        let set = move |vfs: &Vfs| vfs.xattrs().set(ino.0, utf8(&name)?, &value, presence);
        self.later("setxattr", changing(request, set), move |done| reply!(reply, done, ok(() =>)));
    }

    fn getxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let (own, user) = (name.to_owned(), caller(request));
        let get = asked(request, move |vfs| vfs.xattrs().get_for(user, ino.0, attribute(&own)?));
        self.soon((ino, None), "getxattr", get, move |value| reply_xattr(reply, value, size));
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let user = caller(request);
        let names = move |vfs: &Vfs| Ok(nul_separated(&vfs.xattrs().list_for(user, ino.0)?));
        let names = asked(request, names);
        self.soon((ino, None), "listxattr", names, move |names| reply_xattr(reply, names, size));
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        let remove = move |vfs: &Vfs| vfs.xattrs().remove(ino.0, utf8(&name)?);
        self.later(
            "removexattr",
            changing(request, remove),
            move |done| reply!(reply, done, ok(() =>)),
        );
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let (user, range) = (caller(request), (offset, length));
        let allocate = move |vfs: &Vfs| attributes::allocate(vfs, user, ino.0, range, mode);
        self.later(
            "fallocate",
            changing(request, allocate),
            move |done| reply!(reply, done, ok(() =>)),
        );
    }

    fn lseek(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        from: i64,
        part: i32,
        reply: ReplyLseek,
    ) {
        let seek = move |vfs: &Vfs| attributes::seek(vfs, ino.0, from, part);
        self.later("lseek", seek, move |done| reply!(reply, done, offset(found => found)));
    }

    // The kernel handles these itself if zarrfs does not implement them.
    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: fuser::CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn poll(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: PollNotifier,
        _: PollEvents,
        _: PollFlags,
        reply: ReplyPoll,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }
}
