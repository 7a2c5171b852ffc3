//! Lock files: one writer of a key at a time on each machine.
//!
//! This is `TensorStore`'s protocol. A writer opens `NAME.__lock` beside the key and locks the open
//! file. It writes the new value there and renames the file onto the key. If a writer was killed,
//! the next one takes over its file. A file that has the new value already becomes the lock file by
//! a link ([`KeyLock::with`]).

use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, OFlags, fstat, linkat, statat, unlinkat};
use rustix::io::Errno;

use super::circles::Root;
use super::names::{c_name, lock_name};
use super::opening::check_root;
use super::parents::{MAKE_ATTEMPTS, make_parent};
use super::recover::remove_dead;
use super::session::{Session, WriteMark};
use crate::{Key, NewFile, Prefix};
use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_base::sys::{self, Links, path_of};
use zarrfs_base::waiting;

/// How long to wait for another writer of the same key.
const LOCK_PATIENCE: Duration = Duration::from_secs(30);

/// How often to look at the writer that holds the lock.
const LOOK: Duration = Duration::from_secs(1);

/// The lock for writing one key: its lock file, locked, in the directory of the key.
#[derive(Debug)]
pub(super) struct KeyLock {
    pub dir: OwnedFd,
    pub file: File,
    pub name: CString,
    pub lock_name: CString,
    _written: WriteMark,
}

/// Where a writer takes locks.
#[derive(Debug, Clone, Copy)]
pub(super) struct LockPlace<'a> {
    pub root: &'a Root,
    /// The directory that the writer does not recreate.
    pub home: Option<&'a Prefix>,
    pub session: &'a Arc<Session>,
}

fn is_there(dir: &OwnedFd, name: &CStr) -> bool {
    statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// Fails if the writer that holds the lock of a key was stopped, or has held it for too long.
fn check_holder(session: &Session, key: &Key, since: Instant) -> Result<()> {
    let holder = session.other_writer_of(key);
    let busy = |detail: String| Err(Error::new(Kind::Os(libc::EAGAIN), detail));
    match holder {
        Some(process) if sys::is_stopped(process) => busy(format!(
            "process {process} is writing it and is stopped; kill -CONT {process} resumes it"
        )),
        _ if since.elapsed() <= LOCK_PATIENCE => Ok(()),
        Some(process) => busy(format!(
            "process {process} has held its lock file for {} seconds",
            LOCK_PATIENCE.as_secs()
        )),
        None => busy(format!(
            "another program has held its lock file for {} seconds; `fuser` names the program",
            LOCK_PATIENCE.as_secs()
        )),
    }
}

impl KeyLock {
    /// Removes the lock file after a write that stored nothing. The lock is still held, so no other
    /// writer uses the file.
    pub fn end_unused(self) {
        let removed = unlinkat(&self.dir, &self.lock_name, AtFlags::empty());
        removed.unwrap_or_else(|error| log::debug!("{:?}: {error}", self.lock_name));
    }

    /// Takes the lock for writing `key`; waits up to [`LOCK_PATIENCE`].
    pub fn take(at: LockPlace<'_>, key: &Key) -> Result<Self> {
        let LockPlace { root, home, session } = at;
        let name = c_name(key.name())?;
        let lock_name = c_name(&lock_name(key.name()))?;
        let started = Instant::now();
        let written = session.write(key);
        let mut looked = LOOK;
        loop {
            let dir = make_parent(root, home, key)?;
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NONBLOCK;
            let file = match sys::open_beneath(&dir, &lock_name, flags, Links::Refuse) {
                Ok(fd) => File::from(fd),
                // The directory was pruned between the two calls.
                Err(Errno::NOENT) if started.elapsed() <= LOCK_PATIENCE => {
                    check_root(root)?;
                    continue;
                }
                Err(Errno::ISDIR) => {
                    let name = lock_name.to_string_lossy();
                    let detail = format!("a directory has the name of its lock file, {name}");
                    return Err(Error::new(Kind::Os(libc::EISDIR), detail));
                }
                Err(Errno::ACCESS) if is_there(&dir, &lock_name) => {
                    let name = lock_name.to_string_lossy();
                    let detail = format!(
                        "another user is writing it, or has left its lock file, {name}: wait, or \
                         remove that file; let users who write to one store use umask 002"
                    );
                    return Err(Error::new(Kind::Os(libc::EACCES), detail));
                }
                Err(error) => return Err(error.into()),
            };
            let locked = sys::try_lock(&file).inspect_err(|_| {
                drop(remove_dead(&dir, &lock_name)); // Why it cannot be locked matters more.
            })?;
            if locked {
                // The previous writer may have renamed the file onto the key before we locked it.
                let named = sys::open_beneath(&dir, &lock_name, OFlags::PATH, Links::Refuse);
                let named = named.ok().map(|fd| File::from(fd).metadata()).transpose()?;
                let ours = file.metadata()?;
                if named.is_some_and(|named| (named.dev(), named.ino()) == (ours.dev(), ours.ino()))
                {
                    if ours.nlink() == 1 {
                        return Ok(Self { dir, file, name, lock_name, _written: written });
                    }
                    // The file is a hard link to another value, which must not be overwritten.
                    unlinkat(&dir, &lock_name, AtFlags::empty())?;
                }
            } else {
                waiting::check_before_change()?;
                if started.elapsed() > looked {
                    looked = looked.saturating_add(LOOK);
                    check_holder(session, key, started)?;
                }
                std::thread::park_timeout(Duration::from_micros(200));
            }
        }
    }
    /// Like [`Self::take`], with a file without a name as the lock file. `None` if it cannot become
    /// one: it had a name before, or the directory of the key is in another file system.
    pub fn with(at: LockPlace<'_>, key: &Key, file: &NewFile) -> Result<Option<Self>> {
        let LockPlace { root, home, session } = at;
        let lock_name = c_name(&lock_name(key.name()))?;
        let file = file.writable()?;
        if file.metadata()?.nlink() > 0 || !sys::try_lock(&file)? {
            return Ok(None);
        }
        let unnamed = path_of(&file);
        let written = session.write(key);
        for _ in 0..MAKE_ATTEMPTS {
            let dir = make_parent(root, home, key)?;
            match linkat(CWD, &*unnamed, &dir, &lock_name, AtFlags::SYMLINK_FOLLOW) {
                Ok(()) => {
                    let name = c_name(key.name())?;
                    return Ok(Some(Self { dir, file, name, lock_name, _written: written }));
                }
                // Wait for the writer, or remove what a killed one has left.
                Err(Errno::EXIST) => Self::take(at, key)?.end_unused(),
                // The directory was pruned between the two calls.
                Err(Errno::NOENT) if fstat(&dir)?.st_nlink == 0 => check_root(root)?,
                Err(Errno::NOENT | Errno::XDEV | Errno::PERM | Errno::OPNOTSUPP) => {
                    return Ok(None);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::new(Kind::Busy, "other programs keep taking its lock file"))
    }
}
