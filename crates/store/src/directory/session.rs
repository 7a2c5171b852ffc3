//! The session of a writer: a file in the store that shows its writes to other mounts.
//!
//! While values are written, `.zarrfs/writing-ID` exists and is locked. If its writer is killed,
//! the kernel releases the lock. The next writable mount then finds in the file which keys may need
//! cleaning up:
//!
//! ```text
//! 0b2c..-..-..\n            the boot of the machine: after a reboot the keys may be incomplete
//! t2m/c/0/0\0t2m/c/0/1\0    keys whose lock file may be there
//! ```
//!
//! The file is never synced. It is created with the first write, and removed after a moment without
//! writes, because unknown names may disturb other programs. The temporary values of a change lie
//! beside it, below `.zarrfs/aside-ID-N/`.
//!
//! If a program can lock a session file (`WritableStore::abandoned`), the writer is dead, and the
//! program keeps the lock while it finishes the writer's changes. Lock files have a protocol of
//! their own, so a damaged session file does no harm. The session exists as long as one of its
//! `Aside`s; `release_idle` removes the file when nothing was written for a second.

use std::ffi::{CStr, CString};
use std::fs::{File, Permissions};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, fchown};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, unlinkat};
use rustix::io::Errno;

use super::names::{ASIDE, WRITING, c_name};
use super::parents::MAKE_ATTEMPTS;
use crate::{Aside, Key, PRIVATE, Prefix};
use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_base::sys::{self, Dir, Links};
use zarrfs_base::width::ToU64;

/// The length above which a session file is truncated to the keys being written.
const CUT_LEN: u64 = 64 << 10;

/// The most bytes of the session file of another writer that are read.
const MOST_READ: u64 = 2 * CUT_LEN;

/// The session of this writer.
#[derive(Debug)]
pub(super) struct Session {
    root: OwnedFd,
    /// A leaf lock, held during one write to the session file.
    state: Mutex<SessionState>,
}

#[derive(Debug, Default)]
struct SessionState {
    log: Option<Log>,
    /// The keys being written.
    active: Vec<Key>,
    /// The number of temporary places in use.
    aside_count: usize,
    last_write: Option<Instant>,
    asides: u64,
}

/// A locked session file.
#[derive(Debug)]
struct Log {
    id: String,
    file: File,
    /// The length in bytes of the first line.
    head_len: u64,
    len: u64,
}

/// Marks a key as being written until it is dropped.
#[derive(Debug)]
pub(super) struct WriteMark {
    session: Arc<Session>,
    key: Key,
}

/// Marks a temporary place as in use until it is dropped.
#[derive(Debug)]
struct AsideGuard(Arc<Session>);

impl Session {
    /// Returns the session of a writer that has written nothing yet.
    pub(super) fn new(root: OwnedFd) -> Self {
        Self { root, state: Mutex::default() }
    }

    /// Marks `key` as being written. Call this before its lock file is created. If the store has no
    /// room for the session file, the write continues without it, so that erasing still works.
    pub(super) fn write(self: &Arc<Self>, key: &Key) -> WriteMark {
        let mut state = self.state.lock();
        state.active.push(key.clone());
        state.last_write = Some(Instant::now());
        if let Err(error) = state.note(&self.root, key) {
            log::debug!("{PRIVATE}: {error}");
        }
        WriteMark { session: Arc::clone(self), key: key.clone() }
    }

    /// Returns the process of another session that writes `key`, or has written it just now; a
    /// stopped one rather than others. `None` if there is none on this machine since its boot.
    pub(super) fn other_writer_of(&self, key: &Key) -> Option<u32> {
        let dir = open_private(&self.root).ok()??;
        let (boot, own) = (boot(), std::process::id());
        let of_entry = |name: &CStr| {
            let id = name.to_str().ok()?.strip_prefix(WRITING)?;
            let process = id.split('-').next()?.parse().ok().filter(|process| *process != own)?;
            let flags = OFlags::RDONLY | OFlags::NONBLOCK;
            let file = File::from(sys::open_beneath(&dir, name, flags, Links::Refuse).ok()?);
            let mut text = Vec::new();
            file.take(MOST_READ).read_to_end(&mut text).ok()?;
            let mut keys = text.strip_prefix(boot.as_bytes())?.split(|byte| *byte == 0);
            keys.any(|written| written == key.as_str().as_bytes()).then_some(process)
        };
        let entries = Dir::new(dir.try_clone().ok()?).ok()?;
        let mut writers: Vec<u32> =
            entries.filter_map(|entry| of_entry(entry.ok()?.file_name())).collect();
        writers.sort_by_key(|process| !sys::is_stopped(*process));
        writers.first().copied()
    }

    /// Returns a place for the temporary values of one change.
    pub(super) fn aside(self: &Arc<Self>) -> Result<Aside> {
        let mut state = self.state.lock();
        state.last_write = Some(Instant::now());
        state.asides += 1;
        let number = state.asides;
        let id = &state.log(&self.root)?.id;
        let prefix = Prefix::parse(&format!("{PRIVATE}/{ASIDE}{id}-{number}"))?;
        state.aside_count += 1;
        Ok(Aside::new(prefix, Box::new(AsideGuard(Arc::clone(self)))))
    }

    /// Removes the session file if nothing is being written and nothing was written for `quiet`.
    pub(super) fn release_idle(&self, quiet: Duration) -> Result<()> {
        let mut state = self.state.lock();
        let is_quiet = state.last_write.is_none_or(|last| last.elapsed() >= quiet);
        if !is_quiet || state.aside_count > 0 || !state.active.is_empty() {
            return Ok(());
        }
        match state.log.take() {
            Some(log) => remove(&self.root, &log.id, &log.file),
            None => Ok(()),
        }
    }
}

impl SessionState {
    /// Returns the session file, after creating it if it is missing.
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
        // Write these keys before truncating, so that the file names them at every instant.
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
                // Another session removed the directory, or created it at the same moment.
                Err(Errno::NOENT | Errno::EXIST) => continue,
                Err(error) => return Err(error.into()),
            };
            // A recovering mount may have removed it before it was locked.
            let begun = || -> std::io::Result<bool> {
                let is_ours = sys::try_lock(&file)? && file.metadata()?.nlink() > 0;
                if is_ours {
                    file.write_all_at(head.as_bytes(), 0)?;
                }
                Ok(is_ours)
            };
            let is_ours = begun().inspect_err(|_| {
                // Remove a file that is no session; its error matters more than that of the
                // removal.
                drop(unlink_if_there(&dir, &file_name(&id).unwrap_or_default()));
                drop(remove_empty(root));
            })?;
            if is_ours {
                let head_len = head.len().to_u64();
                return Ok(Self { id, file, head_len, len: head_len });
            }
        }
        Err(Error::new(
            Kind::Busy,
            "gave up after repeated conflicts: other programs keep \
             removing its directory",
        ))
    }

    /// Writes the names of `keys` at `at`, and returns where they end.
    fn put(&self, at: u64, keys: &[Key]) -> Result<u64> {
        let mut bytes = Vec::new();
        for key in keys {
            bytes.extend_from_slice(key.as_str().as_bytes());
            bytes.push(0);
        }
        self.file.write_all_at(&bytes, at)?;
        Ok(at.saturating_add(bytes.len().to_u64()))
    }
}

impl Drop for WriteMark {
    fn drop(&mut self) {
        let mut state = self.session.state.lock();
        if let Some(at) = state.active.iter().position(|key| *key == self.key) {
            state.active.swap_remove(at);
        }
    }
}

impl Drop for AsideGuard {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.aside_count = state.aside_count.saturating_sub(1);
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

/// Returns the line that identifies this boot of the machine.
pub(super) fn boot() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    format!("{}\n", id.trim())
}

/// Gives the private directory the permissions of the root, so that mounts of other users can begin
/// changes, too.
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

/// Opens the private directory, if it exists.
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

/// Removes a session file that the caller has locked, and the directory if it is empty then.
pub(super) fn remove(root: &OwnedFd, id: &str, _locked: &File) -> Result<()> {
    let Some(dir) = open_private(root)? else { return Ok(()) };
    unlink_if_there(&dir, &file_name(id)?)?;
    remove_empty(root)
}

/// Removes the directory if it is empty.
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
