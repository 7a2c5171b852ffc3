//! The tree for fuser, with the two ways to answer a request: at once, or from the pool.

use std::ffi::OsStr;
use std::sync::Arc;

use fuser::{Errno, Generation, INodeNo, InitFlags, KernelConfig, ReplyEntry, Request};

use super::answer::answer;
use super::listing::OpenDirectories;
use super::read_log::ReadLog;
use super::terms::{CHECKS_LENGTHS, Owner};
use crate::error::Result;
use crate::pool::{Pool, Urgency};
use crate::vfs::{Attr, Vfs};
use crate::waiting::{self, Program};

/// A mounted tree.
#[derive(Debug)]
pub(super) struct Fs {
    pub vfs: Arc<Vfs>,
    pub pool: Arc<Pool>,
    pub dirs: Arc<OpenDirectories>,
    pub owner: Owner,
    /// Whether the kernel must not cache pages.
    pub direct_io: bool,
    /// The log of reads, if there is one.
    pub read_log: Option<Arc<dyn ReadLog>>,
    /// Whether the kernel refuses lengths that no file can have.
    pub refuses_attributes: bool,
}

/// Lets work that changes nothing be given up when the program that made the request was killed.
pub(super) fn asked<T>(
    request: &Request,
    work: impl FnOnce(&Vfs) -> Result<T> + Send + 'static,
) -> impl FnOnce(&Vfs) -> Result<T> + Send + 'static {
    let program = Program::of(request.pid());
    move |vfs| {
        let _work = waiting::work_for(program);
        work(vfs)
    }
}

/// Lets a change be given up while it waits for other writers, when the program that made the
/// request was killed.
pub(super) fn changing<T>(
    request: &Request,
    work: impl FnOnce(&Vfs) -> Result<T> + Send + 'static,
) -> impl FnOnce(&Vfs) -> Result<T> + Send + 'static {
    let program = Program::of(request.pid());
    move |vfs| {
        let _change = waiting::change_for(program);
        work(vfs)
    }
}

impl Fs {
    /// Returns the tree of `vfs`. `pool` answers slow requests.
    pub fn new(
        vfs: Arc<Vfs>,
        pool: Arc<Pool>,
        owner: Owner,
        direct_io: bool,
        read_log: Option<Arc<dyn ReadLog>>,
    ) -> Self {
        let (dirs, refuses_attributes) = (Arc::default(), false);
        Self { vfs, pool, dirs, owner, direct_io, read_log, refuses_attributes }
    }

    /// Tells the kernel which of its features are used.
    pub fn agree(&mut self, config: &mut KernelConfig) {
        self.refuses_attributes = config.kernel_abi() >= CHECKS_LENGTHS;
        // Opening with O_TRUNC is one request, so that a reader never sees an intermediate state.
        let wanted = [
            InitFlags::FUSE_ATOMIC_O_TRUNC,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_PARALLEL_DIROPS,
            // No file has privileges that a write must remove. Without the second flag, the kernel
            // asks for them at every write.
            InitFlags::FUSE_HANDLE_KILLPRIV,
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
            InitFlags::FUSE_PASSTHROUGH,
        ];
        for flag in wanted {
            if config.add_capabilities(flag).is_err() {
                log::debug!("the kernel does not offer {flag:?}");
            }
        }
        if let Err(most) = config.set_max_stack_depth(1) {
            log::debug!("the kernel stacks at most {most} file systems");
        }
        if let Err(nearest) = config.set_max_background(64) {
            log::debug!("the kernel accepts at most {nearest} background requests");
        }
    }

    /// Answers a request from the pool.
    pub fn later<T>(
        &self,
        operation: &'static str,
        request: impl FnOnce(&Vfs) -> Result<T> + Send + 'static,
        then: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) {
        let vfs = Arc::clone(&self.vfs);
        let task = move || then(answer(&vfs, operation, || request(&vfs)));
        self.pool.run(Urgency::Request, task);
    }

    /// Answers a request that makes a name, from the pool.
    pub fn entry(
        &self,
        operation: &'static str,
        request: impl FnOnce(&Vfs) -> Result<Attr> + Send + 'static,
        reply: ReplyEntry,
    ) {
        let (owner, vfs) = (self.owner, Arc::clone(&self.vfs));
        self.later(operation, request, move |made| match made {
            Ok(attr) => reply.entry(&vfs.ttl(&attr), &owner.attr(&attr), Generation(0)),
            Err(errno) => reply.error(errno),
        });
    }

    /// Answers a request about an inode at once, or from the pool if it may take time.
    pub fn soon<T>(
        &self,
        (ino, name): (INodeNo, Option<&OsStr>),
        operation: &'static str,
        request: impl FnOnce(&Vfs) -> Result<T> + Send + 'static,
        then: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) {
        let takes_time = self.vfs.may_take_time(ino.0, name.and_then(OsStr::to_str));
        self.soon_or_later(takes_time, operation, request, then);
    }

    /// Answers a request at once, or from the pool if it `takes_time`.
    pub fn soon_or_later<T>(
        &self,
        takes_time: bool,
        operation: &'static str,
        request: impl FnOnce(&Vfs) -> Result<T> + Send + 'static,
        then: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) {
        if takes_time {
            self.later(operation, request, then);
        } else {
            then(self.now(operation, request));
        }
    }

    /// Lists a directory at once, or from the pool if the store takes long.
    pub fn list(
        &self,
        request: &Request,
        list: impl FnOnce(&Vfs, &OpenDirectories) + Send + 'static,
    ) {
        let program = Program::of(request.pid());
        let list = move |vfs: &Vfs, dirs: &OpenDirectories| {
            let _work = waiting::work_for(program);
            list(vfs, dirs);
        };
        if !self.vfs.is_remote() {
            return list(&self.vfs, &self.dirs);
        }
        let (vfs, dirs) = (Arc::clone(&self.vfs), Arc::clone(&self.dirs));
        self.pool.run(Urgency::Request, move || list(&vfs, &dirs));
    }

    /// Answers a request at once.
    pub fn now<T>(
        &self,
        operation: &str,
        request: impl FnOnce(&Vfs) -> Result<T>,
    ) -> Result<T, Errno> {
        answer(&self.vfs, operation, || request(&self.vfs))
    }
}
