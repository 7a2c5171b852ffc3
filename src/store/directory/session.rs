//! What says in the store that somebody is writing to it: the session of a writer.
//!
//! While values are written `.zarrfs/writing-ID` is there and locked. When its writer is killed the lock goes, and
//! the next writable mount finds in it what that one may have left:
//!
//! ```text
//! 0b2c..-..-..\n            the boot of the machine: after another one the bytes below may have been lost
//! t2m/c/0/0\0t2m/c/0/1\0    keys whose lock file may be there
//! ```
//!
//! It is never synced, made with the first write, and gone as soon as nothing was written for a moment: other programs
//! wonder at names that they do not know. What one change has on its way lies beside it, below `.zarrfs/aside-ID-N/`.
//!
//! A program that can take the lock of a session (`WritableStore::abandoned`) knows that its writer
//! is dead, and holds the lock while it finishes the work of that writer. Lock files follow the
//! protocol of lock files alone, so a session file may say anything. An `Aside` keeps its session
//! alive, and `rest` removes the session file when nothing was written for a second.

use std::ffi::{CStr, CString};
use std::fs::{File, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, fchown};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, unlinkat};
use rustix::io::Errno;

use super::names::{ASIDE, WRITING, c_name};
use super::parents::MAKE_ATTEMPTS;
use crate::error::{Error, Kind, Result};
use crate::store::{Aside, Key, PRIVATE, Prefix};
use crate::sys::{self, Links};

/// The length from which a session file is cut back to the keys that are being written.
const CUT_LEN: u64 = 64 << 10;

/// What a writer has said of itself in the store.
#[derive(Debug)]
pub(super) struct Session {
    root: OwnedFd,
    /// A leaf, held over one write to the session file.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    log: Option<Log>,
    /// Keys that are being written.
    active: Vec<Key>,
    /// Changes that have values aside.
    held: usize,
    last_write: Option<Instant>,
    asides: u64,
}

/// A session file, which is locked.
#[derive(Debug)]
struct Log {
    id: String,
    file: File,
    /// Bytes of the line with the boot.
    head_len: u64,
    len: u64,
}

/// A key that is being written, until it is dropped.
#[derive(Debug)]
pub(super) struct Written<'s> {
    session: &'s Session,
    key: Key,
}

/// A change that has values aside, until it is dropped.
#[derive(Debug)]
struct Held(Arc<Session>);

impl Session {
    /// Of a writer that has written nothing yet.
    pub(super) fn new(root: OwnedFd) -> Self {
        Self { root, state: Mutex::default() }
    }

    /// To be called before the lock file of `key` is made. A store that has no room for this can still be
    /// written to, or at least erased from.
    pub(super) fn write(&self, key: &Key) -> Written<'_> {
        let mut state = self.state.lock();
        state.active.push(key.clone());
        state.last_write = Some(Instant::now());
        if let Err(error) = state.note(&self.root, key) {
            log::debug!("{PRIVATE}: {error}");
        }
        Written { session: self, key: key.clone() }
    }

    /// A place for the values of one change.
    pub(super) fn aside(self: &Arc<Self>) -> Result<Aside> {
        let mut state = self.state.lock();
        state.last_write = Some(Instant::now());
        state.asides += 1;
        let number = state.asides;
        let id = &state.log(&self.root)?.id;
        let prefix = Prefix::parse(&format!("{PRIVATE}/{ASIDE}{id}-{number}"))?;
        state.held += 1;
        Ok(Aside::new(prefix, Box::new(Held(Arc::clone(self)))))
    }

    /// Removes the session file where nothing is being written and nothing was for `quiet`.
    pub(super) fn rest(&self, quiet: Duration) -> Result<()> {
        let mut state = self.state.lock();
        let is_quiet = state.last_write.is_none_or(|last| last.elapsed() >= quiet);
        if !is_quiet || state.held > 0 || !state.active.is_empty() {
            return Ok(());
        }
        match state.log.take() {
            Some(log) => remove(&self.root, &log.id, &log.file),
            None => Ok(()),
        }
    }
}

impl State {
    /// The session file, made where there is none, or where somebody has removed it.
    fn log(&mut self, root: &OwnedFd) -> Result<&mut Log> {
        let is_there = match &self.log {
            Some(log) => log.file.metadata()?.nlink() > 0,
            None => false,
        };
        if !is_there || self.log.is_none() {
            self.log = Some(Log::new(root)?);
        }
        self.log.as_mut().ok_or_else(|| Error::new(Kind::Internal, "no session"))
    }

    fn note(&mut self, root: &OwnedFd, key: &Key) -> Result<()> {
        self.log(root)?;
        let Some(log) = &mut self.log else { return Ok(()) };
        if log.len < CUT_LEN {
            let len = log.put(log.len, std::slice::from_ref(key))?;
            log.len = len;
            return Ok(());
        }
        // Those that are being written come before what is cut off: they are named at every instant.
        log.len = log.put(log.head_len, &self.active)?;
        Ok(log.file.set_len(log.len)?)
    }
}

impl Log {
    fn new(root: &OwnedFd) -> Result<Self> {
        let head = boot();
        for _ in 0..MAKE_ATTEMPTS {
            let Some(dir) = open_private(root)? else {
                match mkdirat(root, &c_name(PRIVATE)?, Mode::from(0o777)) {
                    Ok(()) => share_like(root)?,
                    Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                continue;
            };
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let id = format!("{}-{}", std::process::id(), since.unwrap_or_default().as_nanos());
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
            let file = match sys::open_beneath(&dir, &file_name(&id)?, flags, Links::Refuse) {
                Ok(fd) => File::from(fd),
                // The directory went with another session, or two began at the same time.
                Err(Errno::NOENT | Errno::EXIST) => continue,
                Err(error) => return Err(error.into()),
            };
            // Somebody who recovers may have taken it for one whose writer is dead.
            let begun = || -> std::io::Result<bool> {
                let is_ours = sys::try_lock(&file)? && file.metadata()?.nlink() > 0;
                if is_ours {
                    file.write_all_at(head.as_bytes(), 0)?;
                }
                Ok(is_ours)
            };
            let is_ours = begun().inspect_err(|_| {
                // What is no session does not stay; why it is none matters more.
                drop(unlink_if_there(&dir, &file_name(&id).unwrap_or_default()));
                drop(remove_empty(root));
            })?;
            if is_ours {
                let head_len = u64::try_from(head.len()).unwrap_or_default();
                return Ok(Self { id, file, head_len, len: head_len });
            }
        }
        Err(Error::new(
            Kind::Busy,
            "gave up after repeated conflicts: other programs keep \
             removing its directory",
        ))
    }

    /// Writes the names of `keys` from `at` on; where they end.
    fn put(&self, at: u64, keys: &[Key]) -> Result<u64> {
        let mut bytes = Vec::new();
        for key in keys {
            bytes.extend_from_slice(key.as_str().as_bytes());
            bytes.push(0);
        }
        self.file.write_all_at(&bytes, at)?;
        Ok(at.saturating_add(u64::try_from(bytes.len()).unwrap_or_default()))
    }
}

impl Drop for Written<'_> {
    fn drop(&mut self) {
        let mut state = self.session.state.lock();
        if let Some(at) = state.active.iter().position(|key| *key == self.key) {
            state.active.swap_remove(at);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.held = state.held.saturating_sub(1);
        state.last_write = Some(Instant::now());
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Some(log) = self.state.get_mut().log.take() else { return };
        if let Err(error) = remove(&self.root, &log.id, &log.file) {
            log::debug!("{PRIVATE}: {error}");
        }
    }
}

/// The line by which a boot of the machine is known from others.
pub(super) fn boot() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    format!("{}\n", id.trim())
}

/// Lets whoever may write to the root of the store write to what is beside the hierarchy: another user's mount can
/// begin a change while this one is at work.
fn share_like(root: &OwnedFd) -> Result<()> {
    let Some(dir) = open_private(root)? else { return Ok(()) };
    let (dir, root) = (File::from(dir), File::from(root.try_clone()?));
    let shared = root.metadata()?;
    let changed = fchown(&dir, None, Some(shared.gid()))
        .and_then(|()| dir.set_permissions(Permissions::from_mode(shared.mode() & 0o7777 | 0o700)));
    if let Err(error) = changed {
        log::debug!("{PRIVATE}: {error}"); // It is its maker's alone.
    }
    Ok(())
}

/// The directory of what is no part of the hierarchy, where there is one.
pub(super) fn open_private(root: &OwnedFd) -> Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    match sys::open_beneath(root, &c_name(PRIVATE)?, flags, Links::Refuse) {
        Ok(dir) => Ok(Some(dir)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn file_name(id: &str) -> Result<CString> {
    c_name(&format!("{WRITING}{id}"))
}

/// Removes a session file, whose lock the caller holds, and the directory where it was the last thing in it.
pub(super) fn remove(root: &OwnedFd, id: &str, _locked: &File) -> Result<()> {
    let Some(dir) = open_private(root)? else { return Ok(()) };
    unlink_if_there(&dir, &file_name(id)?)?;
    remove_empty(root)
}

/// Removes the directory where there is nothing in it.
fn remove_empty(root: &OwnedFd) -> Result<()> {
    match unlinkat(root, &c_name(PRIVATE)?, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn unlink_if_there(dir: &OwnedFd, name: &CStr) -> Result<()> {
    match unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
