//! Opens files below the root of a store, which is the only way from a key to a file.

use std::fs::{File, Metadata};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{AtFlags, FileType, OFlags, fstat, statat};
use rustix::io::Errno;

use super::circles::{self, Root};
use super::names::{c_name, is_lock};
use super::trust::Last;
use crate::{Key, Prefix};
use zarrfs_base::error::{Error, Fault, Kind, Result, WithSubject};
use zarrfs_base::sys::{self, Links};

/// The reason why a link to a value or a directory that is not there cannot be read.
pub(super) const LEADS_TO_NOTHING: &str =
    "a link that leads to nothing in the store, so its value is missing";

/// Opens `path` below the root; `None` if it or one of its directories does not exist.
pub(super) fn open_at(root: &Root, path: &str, flags: OFlags) -> Result<Option<OwnedFd>> {
    Ok(open_by(root, path, flags)?.map(|(fd, _)| fd))
}

/// Like [`open_at`], and returns whether the path contains a symbolic link.
pub(super) fn open_by(root: &Root, path: &str, flags: OFlags) -> Result<Option<(OwnedFd, bool)>> {
    let (opened, has_link) = open_or_miss(root, path, flags)?;
    Ok(opened.map(|fd| (fd, has_link)))
}

/// Like [`open_by`], and returns also for a path that does not exist whether it contains a link.
pub(super) fn open_or_miss(
    root: &Root,
    path: &str,
    flags: OFlags,
) -> Result<(Option<OwnedFd>, bool)> {
    let path = if path.is_empty() { "." } else { path.trim_end_matches('/') };
    let name = c_name(path)?;
    let mut opened = sys::open_beneath(root, &name, flags, Links::Refuse);
    let has_link = matches!(opened, Err(Errno::LOOP));
    if has_link {
        root.check(path)?;
        opened = root.follow(path, flags, Last::Followed)?;
    }
    match opened {
        Ok(fd) => Ok((Some(fd), has_link)),
        Err(Errno::NOENT | Errno::NOTDIR) => check_root(root).map(|()| (None, has_link)),
        Err(Errno::XDEV) => {
            Err(Error::fault(Fault::Outside, "a symbolic link that leads out of the store"))
        }
        Err(Errno::LOOP) => Err(circles::error()),
        // A socket, or a device without a driver.
        Err(Errno::NXIO) => Err(not_a_file()),
        Err(error) => Err(error.into()),
    }
}

/// Opens the directory of `prefix`; `None` if there is none.
pub(super) fn open_dir(root: &Root, prefix: &Prefix) -> Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    open_at(root, prefix.as_str(), flags).at(prefix)
}

/// Opens the regular file of `key`. `None` if there is none, if `key` is a directory, and for files
/// of writers, which are no values. A link that leads to nothing is an error, so that nobody takes
/// it for a value that is not stored.
pub(super) fn open_file(root: &Root, key: &Key, flags: OFlags) -> Result<Option<(File, Metadata)>> {
    if is_lock(key) {
        return Ok(None);
    }
    let (opened, has_link) = match open_or_miss(root, key.as_str(), flags) {
        // No file has such a path. Programs make directories that are nearly as deep as possible,
        // and the path of a metadata file in them may be too long.
        Err(error) if error.errno() == libc::ENAMETOOLONG => (None, false),
        opened => opened.at(key)?,
    };
    let Some(fd) = opened else {
        if has_link && leads_to_nothing(root, key.as_str()) {
            return Err(Error::fault(Fault::Absent, LEADS_TO_NOTHING).at(key));
        }
        return Ok(None);
    };
    let file = File::from(fd);
    let metadata = file.metadata()?;
    match kind_of(&metadata) {
        FileType::RegularFile => Ok(Some((file, metadata))),
        FileType::Directory => Ok(None),
        _ => Err(not_a_file().at(key)),
    }
}

/// Whether a path that was not found is a link that leads to nothing, or a directory above it is.
pub(super) fn leads_to_nothing(root: &Root, mut path: &str) -> bool {
    loop {
        let own = statat(root, path, AtFlags::SYMLINK_NOFOLLOW);
        if own.is_ok_and(|it| FileType::from_raw_mode(it.st_mode) == FileType::Symlink) {
            return statat(root, path, AtFlags::empty()).err() == Some(Errno::NOENT);
        }
        let Some((above, _)) = path.rsplit_once('/') else { return false };
        path = above;
    }
}

/// Fails if the root directory was removed, so that the store does not appear empty.
pub(super) fn check_root(root: &OwnedFd) -> Result<()> {
    if fstat(root)?.st_nlink == 0 {
        let detail = "the directory of the store was removed: unmount, and mount again";
        return Err(Error::new(Kind::Os(libc::ESTALE), detail));
    }
    Ok(())
}

pub(super) fn not_a_file() -> Error {
    Error::fault(Fault::File, "not a regular file (a FIFO, a socket or a device)")
}

/// Returns the type of a file.
pub(super) fn kind_of(metadata: &Metadata) -> FileType {
    FileType::from_raw_mode(metadata.mode())
}
