//! The directory that `exec` mounts on.

use std::fmt::Display;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::geteuid;

use crate::cli::failure::{Failure, failed};
use crate::sys::{self, OwnDirectory};

/// The beginning of the names of new directories.
const PREFIX: &str = "zarrfs-exec.";

/// The age at which a directory that no process has locked is left over: its process locks it soon
/// after it has made it.
const LEFT_OVER: Duration = Duration::from_secs(60);

/// The directory that `exec` mounts on.
#[derive(Debug)]
pub struct Mountpoint {
    path: PathBuf,
    new: Option<New>,
}

/// A new directory.
#[derive(Debug)]
struct New {
    above: OwnDirectory,
    name: String,
    /// The directory and the lock on it, which ends with the last process that has it.
    lock: File,
}

impl Mountpoint {
    /// Uses an existing directory.
    pub fn existing(path: PathBuf) -> Self {
        Self { path, new: None }
    }

    /// Makes a new directory that only this user may enter.
    pub fn new() -> Result<Self, Failure> {
        let (base, above) = safe_base();
        let at = |error: &dyn Display| {
            failed(format!(
                "{}: no directory to mount on can be created here: {error}; name one with \
                 --mountpoint, or set TMPDIR",
                base.display()
            ))
        };
        let above = above.map_err(|error| at(&error.detail()))?;
        if let Err(error) = remove_left_over(&above) {
            log::debug!("{}: {error}", base.display());
        }
        let mut number = std::process::id();
        let (name, made) = loop {
            let name = format!("{PREFIX}{number}");
            match above.create_directory(&name) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    number = number.wrapping_add(1);
                }
                made => break (name, made.map_err(|error| at(&error))?),
            }
        };
        let lock = made.open_to_read(".").map_err(|error| at(&error))?;
        // Keeps this and other programs that clean up from removing it.
        sys::lock_now(&lock, sys::Lock::Shared).map_err(|error| at(&error))?;
        Ok(Self { path: base.join(&name), new: Some(New { above, name, lock }) })
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes a new directory. If a mount is there that is not served any more, it ends.
    pub fn remove(self) {
        let Some(New { above, name, lock }) = self.new else { return };
        // Another process may have removed both.
        if let Err(error) = unmount(&self.path, UnmountFlags::DETACH) {
            log::debug!("{}: {error}", self.path.display());
        }
        if let Err(error) = above.remove_directory_if(&name, &lock) {
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

/// Returns the first directory for temporary files in which no other user can replace what this one
/// makes. If there is none, the error is that of the first one.
pub fn safe_base() -> (PathBuf, crate::error::Result<OwnDirectory>) {
    let first = private_base().unwrap_or_else(std::env::temp_dir);
    let opened = OwnDirectory::existing(&first);
    if opened.is_err() {
        for other in [std::env::temp_dir(), PathBuf::from("/tmp")] {
            if let Ok(opened) = OwnDirectory::existing(&other) {
                return (other, Ok(opened));
            }
        }
    }
    (first, opened)
}

/// Removes directories whose processes were all killed: empty ones of this user, with the names
/// that `exec` gives them.
fn remove_left_over(base: &OwnDirectory) -> crate::error::Result<()> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    for name in base.names()? {
        let name = name?;
        let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let Some(name) = name.to_str().filter(|_| number.is_some_and(is_number)) else { continue };
        let Ok(lock) = base.directory(name).and_then(|found| found.open_to_read(".")) else {
            continue;
        };
        let Ok(found) = lock.metadata() else { continue };
        let age = found.modified().ok().and_then(|time| time.elapsed().ok()).unwrap_or_default();
        if !sys::is_own(&found) || age < LEFT_OVER {
            continue;
        }
        if sys::lock_now(&lock, sys::Lock::Exclusive).is_ok()
            && let Err(error) = base.remove_directory_if(name, &lock)
        {
            log::debug!("{name}: {error}");
        }
    }
    Ok(())
}
