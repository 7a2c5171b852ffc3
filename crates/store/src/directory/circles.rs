//! Symbolic links that form a circle or grow without end.
//!
//! The store follows links that stay below the root. If a link leads to a directory that the path
//! already goes through, the same names would repeat without end, so such a path fails with
//! [`libc::ELOOP`]. So does a path through more than [`MAX_LINKS`] links: if each of 40 directories
//! had two links to the next one, there would be 2^40 paths. Only paths with links are checked, and
//! few paths have any. [`Root`] remembers the results, so a walk below a link checks each directory
//! once, however deep it lies.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, FileType, OFlags, Stat, statat};
use rustix::io::Errno;

use super::names::c_name;
use super::trust::{self, Last};
use crate::Omissions;
use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_base::sys::{self, Links};

/// The most links on one path.
pub(super) const MAX_LINKS: usize = 8;

/// How long a result is trusted if its directory is still the same, and how many results are
/// remembered.
const MAX_AGE: Duration = Duration::from_secs(1);
const MAX_KNOWN: usize = 256;

/// The root of a store, and checked paths with links.
#[derive(Debug)]
pub(super) struct Root {
    fd: OwnedFd,
    /// The results by path. A leaf lock for look-ups.
    known: Mutex<HashMap<Box<str>, TimedResult>>,
    /// Whether only some links are followed (`trust`).
    has_others: AtomicBool,
    /// What listings leave out.
    pub(super) omissions: Omissions,
}

/// The directories that a path goes through.
#[derive(Debug, Clone, Default)]
struct PathTaken {
    /// The device and inode of each directory, beginning with the root.
    directories: Vec<(u64, u64)>,
    links: usize,
}

/// A result, and its time.
#[derive(Debug)]
struct TimedResult {
    since: Instant,
    path_taken: Arc<PathTaken>,
}

impl Root {
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self {
            fd,
            known: Mutex::default(),
            has_others: AtomicBool::new(false),
            omissions: Omissions::default(),
        }
    }

    /// Follows from now on only links that do not give one user the rights of another.
    pub(super) fn expect_others(&self) {
        self.has_others.store(true, Ordering::Relaxed);
    }

    /// Opens a path in which there is a link.
    pub(super) fn follow(
        &self,
        path: &str,
        flags: OFlags,
        last: Last,
    ) -> Result<std::result::Result<OwnedFd, Errno>> {
        if self.has_others.load(Ordering::Relaxed) {
            return trust::open(self, path, flags, last);
        }
        Ok(sys::open_beneath(&self.fd, &c_name(path)?, flags, Links::Beneath))
    }

    /// Fails for a `path` with a link that goes through a directory twice or has too many links.
    /// Ignores directories that cannot be opened, because the caller opens them next.
    pub(super) fn check(&self, path: &str) -> Result<()> {
        let (mut at, mut path_taken, mut begin) = if let Some(known) = self.known_above(path)? {
            known
        } else {
            let at = File::from(self.fd.try_clone()?);
            let directories = vec![id_of(&at.metadata()?)];
            (at, Arc::new(PathTaken { directories, links: 0 }), 0)
        };
        loop {
            let rest = path.get(begin..).unwrap_or_default();
            let name = rest.split('/').next().unwrap_or_default();
            let end = begin.saturating_add(name.len());
            let whole = path.get(..end).unwrap_or(path);
            let Some((found, through)) = self.step(&at, &path_taken, whole, name)? else {
                return Ok(());
            };
            (at, path_taken) = (found, Arc::new(through));
            self.remember(whole, &path_taken);
            if end == path.len() {
                return Ok(());
            }
            begin = end.saturating_add(1);
        }
    }

    /// Returns the directory above `path`, the directories that its path goes through, and where
    /// the last name begins; `None` if that directory was not checked recently or is no longer the
    /// same.
    fn known_above(&self, path: &str) -> Result<Option<(File, Arc<PathTaken>, usize)>> {
        let Some((above, _)) = path.rsplit_once('/') else { return Ok(None) };
        let Some(path_taken) = self.known(above) else { return Ok(None) };
        let Some(at) = self.open(above)? else { return Ok(None) };
        let is_same = path_taken.directories.last() == Some(&id_of(&at.metadata()?));
        Ok(is_same.then_some((at, path_taken, above.len().saturating_add(1))))
    }

    /// Steps from the directory `at` to `whole`, which ends with `name`. Returns `None` if that is
    /// no directory.
    fn step(
        &self,
        at: &File,
        path_taken: &PathTaken,
        whole: &str,
        name: &str,
    ) -> Result<Option<(File, PathTaken)>> {
        let mut path_taken = path_taken.clone();
        let found = statat(at, c_name(name)?, AtFlags::SYMLINK_NOFOLLOW);
        let is_link = |found: Stat| FileType::from_raw_mode(found.st_mode).is_symlink();
        path_taken.links += usize::from(found.is_ok_and(is_link));
        if path_taken.links > MAX_LINKS {
            let detail = format!("more than {MAX_LINKS} symbolic links on its path");
            return Err(Error::new(Kind::Os(libc::ELOOP), detail));
        }
        let Some(found) = self.open(whole)? else { return Ok(None) };
        let metadata = found.metadata()?;
        if !metadata.is_dir() {
            return Ok(None);
        }
        let id = id_of(&metadata);
        if path_taken.directories.contains(&id) {
            return Err(error());
        }
        path_taken.directories.push(id);
        Ok(Some((found, path_taken)))
    }

    /// Opens `path`, whatever it is; `None` if that fails.
    fn open(&self, path: &str) -> Result<Option<File>> {
        let opened = sys::open_beneath(&self.fd, &c_name(path)?, OFlags::PATH, Links::Beneath);
        Ok(opened.map(File::from).ok())
    }

    fn known(&self, path: &str) -> Option<Arc<PathTaken>> {
        let known = self.known.lock();
        let TimedResult { since, path_taken } = known.get(path)?;
        (since.elapsed() < MAX_AGE).then(|| Arc::clone(path_taken))
    }

    fn remember(&self, path: &str, path_taken: &Arc<PathTaken>) {
        let mut known = self.known.lock();
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        let path_taken = Arc::clone(path_taken);
        known.insert(path.into(), TimedResult { since: Instant::now(), path_taken });
    }
}

fn id_of(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

impl Deref for Root {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        &self.fd
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns the error for a path in a circle.
pub(super) fn error() -> Error {
    let detail = "a circular symbolic link: it leads to itself or to a directory that contains it";
    Error::new(Kind::Os(libc::ELOOP), detail)
}
