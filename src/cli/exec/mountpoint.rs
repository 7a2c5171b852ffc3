//! The directory that `exec` mounts on.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::geteuid;

use crate::cli::failure::{Failure, failed};
use crate::sys;

/// The beginning of the names of new directories.
const PREFIX: &str = "zarrfs-exec.";

/// The age at which a directory that no process has locked is left over: its process locks it soon
/// after it has made it.
const LEFT_OVER: Duration = Duration::from_secs(60);

/// The directory that `exec` mounts on.
#[derive(Debug)]
pub struct Mountpoint {
    path: PathBuf,
    /// The lock on a new directory, which ends with the last process that has it.
    lock: Option<File>,
}

impl Mountpoint {
    /// Uses an existing directory.
    pub fn existing(path: PathBuf) -> Self {
        Self { path, lock: None }
    }

    /// Makes a new directory that only this user may enter.
    pub fn new() -> Result<Self, Failure> {
        let base = private_base().unwrap_or_else(std::env::temp_dir);
        remove_left_over(&base);
        let at = |error: &io::Error| {
            failed(format!(
                "{}: no directory to mount on can be created here: {error}; name one with \
                 --mountpoint, or set TMPDIR",
                base.display()
            ))
        };
        let mut number = std::process::id();
        let path = loop {
            let path = base.join(format!("{PREFIX}{number}"));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    number = number.wrapping_add(1);
                }
                made => break made.map(|()| path).map_err(|error| at(&error))?,
            }
        };
        let lock = File::open(&path).map_err(|error| at(&error))?;
        // Keeps this and other programs that clean up from removing it.
        sys::lock_now(&lock, sys::Lock::Shared).map_err(|error| at(&error))?;
        Ok(Self { path, lock: Some(lock) })
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes a new directory. If a mount is there that is not served any more, it ends.
    pub fn remove(self) {
        if self.lock.is_none() {
            return;
        }
        // Another process may have removed both.
        if let Err(error) = unmount(&self.path, UnmountFlags::DETACH) {
            log::debug!("{}: {error}", self.path.display());
        }
        if let Err(error) = fs::remove_dir(&self.path) {
            log::debug!("{}: {error}", self.path.display());
        }
    }
}

/// Returns the directory of this user for files of running programs, if there is one
/// (`XDG_RUNTIME_DIR` of the XDG Base Directory Specification).
pub fn private_base() -> Option<PathBuf> {
    let base = PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?);
    let owner = fs::metadata(&base).ok()?.uid();
    (base.is_absolute() && owner == geteuid().as_raw()).then_some(base)
}

/// Removes directories whose processes were all killed.
fn remove_left_over(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    let names = entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX)));
    for entry in names {
        let Ok(found) = entry.metadata() else { continue };
        let age = found.modified().ok().and_then(|time| time.elapsed().ok()).unwrap_or_default();
        if !found.is_dir() || found.uid() != geteuid().as_raw() || age < LEFT_OVER {
            continue;
        }
        let Ok(lock) = File::open(entry.path()) else { continue };
        if sys::lock_now(&lock, sys::Lock::Exclusive).is_ok()
            && let Err(error) = fs::remove_dir(entry.path())
        {
            log::debug!("{}: {error}", entry.path().display());
        }
    }
}
