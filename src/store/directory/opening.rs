//! Opens files below the root of a store, which is the only way from a key to a file.

use std::fs::{File, Metadata};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{FileType, OFlags, fstat};
use rustix::io::Errno;

use super::circles::{self, Root};
use super::names::{c_name, is_lock};
use super::trust::Last;
use crate::error::{At, Error, Fault, Kind, Result};
use crate::store::{Key, Prefix};
use crate::sys::{self, Links};

/// Opens `path` below the root; `None` if it or one of its directories does not exist.
pub(super) fn open_at(root: &Root, path: &str, flags: OFlags) -> Result<Option<OwnedFd>> {
    Ok(open_by(root, path, flags)?.map(|(fd, _)| fd))
}

/// Like [`open_at`], and returns whether the path contains a symbolic link.
pub(super) fn open_by(root: &Root, path: &str, flags: OFlags) -> Result<Option<(OwnedFd, bool)>> {
    let path = if path.is_empty() { "." } else { path.trim_end_matches('/') };
    let name = c_name(path)?;
    let mut opened = sys::open_beneath(root, &name, flags, Links::Refuse);
    let has_link = matches!(opened, Err(Errno::LOOP));
    if has_link {
        root.check(path)?;
        opened = root.follow(path, flags, Last::Followed)?;
    }
    match opened {
        Ok(fd) => Ok(Some((fd, has_link))),
        Err(Errno::NOENT | Errno::NOTDIR) => check_root(root).map(|()| None),
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
/// of writers, which are no values.
pub(super) fn open_file(root: &Root, key: &Key, flags: OFlags) -> Result<Option<(File, Metadata)>> {
    if is_lock(key) {
        return Ok(None);
    }
    let opened = match open_at(root, key.as_str(), flags) {
        // No file has such a path. Programs make directories that are nearly as deep as possible,
        // and the path of a metadata file in them may be too long.
        Err(error) if error.errno() == libc::ENAMETOOLONG => None,
        opened => opened.at(key)?,
    };
    let Some(fd) = opened else { return Ok(None) };
    let file = File::from(fd);
    let metadata = file.metadata()?;
    match kind_of(&metadata) {
        FileType::RegularFile => Ok(Some((file, metadata))),
        FileType::Directory => Ok(None),
        _ => Err(not_a_file().at(key)),
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
