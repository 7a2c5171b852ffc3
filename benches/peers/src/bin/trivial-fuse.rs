//! `trivial-fuse FILE MOUNTPOINT`: one file, `file`, whose bytes are in memory already. The most that a FUSE file system
//! written with fuser can deliver to a reader through the page cache.

use std::ffi::OsStr;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEntry, ReplyOpen, Request,
};

struct Trivial(Vec<u8>);

const TTL: Duration = Duration::from_secs(3600);

impl Trivial {
    fn attr(&self, number: u64) -> FileAttr {
        let (kind, perm) = if number == 1 { (FileType::Directory, 0o755) } else { (FileType::RegularFile, 0o444) };
        FileAttr {
            ino: INodeNo(number),
            size: self.0.len() as u64,
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for Trivial {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == "file" {
            reply.entry(&TTL, &self.attr(2), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attr(number.0));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let start = (offset as usize).min(self.0.len());
        let end = start.saturating_add(size as usize).min(self.0.len());
        reply.data(&self.0[start..end]);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let file = Trivial(std::fs::read(&arguments[1])?);
    let mut config = Config::default();
    config.mount_options = vec![MountOption::RO, MountOption::FSName("trivial".to_owned())];
    config.n_threads = Some(2);
    config.clone_fd = true;
    fuser::mount(file, &arguments[2], &config)?;
    Ok(())
}
