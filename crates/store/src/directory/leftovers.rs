//! Finds the private files of writers: lock files and sessions, of live and of dead writers. The
//! other listings of the store leave them out.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use super::circles::Root;
use super::names::{LOCK_SUFFIX, WRITING, c_name};
use super::opening::open_dir;
use super::recover::{MAX_LEVELS, remove_dead};
use crate::{PRIVATE, Prefix, WriterFile};
use zarrfs_base::error::{Error, Result, WithSubject};
use zarrfs_base::sys::{self, Dir, Links};

/// The most files to return.
const MOST: usize = 100_000;

/// Returns the files of writers below a prefix.
pub(super) fn writer_files(root: &Root, prefix: &Prefix) -> Result<Vec<WriterFile>> {
    let mut found = Vec::new();
    let Some(dir) = open_dir(root, prefix).at(prefix)? else { return Ok(found) };
    add_below(&dir, prefix.as_str(), 0, &mut found)?;
    Ok(found)
}

fn add_below(dir: &OwnedFd, at: &str, level: usize, found: &mut Vec<WriterFile>) -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let list = match sys::open_beneath(dir, c".", flags, Links::Refuse) {
        // The listing of keys reports a directory that cannot be read or searched.
        Err(Errno::ACCESS) => return Ok(()),
        list => list.map_err(Error::from).at(at)?,
    };
    for entry in Dir::new(list)? {
        if found.len() >= MOST {
            return Ok(());
        }
        let entry = entry?;
        let name = entry.file_name();
        let Ok(text) = name.to_str() else { continue };
        let is_session = at.strip_suffix('/') == Some(PRIVATE) && text.starts_with(WRITING);
        if text.ends_with(LOCK_SUFFIX) || is_session {
            let Some(is_held) = is_held(dir, name)? else { continue };
            found.push(WriterFile { path: format!("{at}{text}"), is_session, is_held });
        } else if level < MAX_LEVELS
            && matches!(entry.file_type(), FileType::Directory | FileType::Unknown)
        {
            match sys::open_beneath(dir, name, flags, Links::Refuse) {
                Ok(below) => add_below(&below, &format!("{at}{text}/"), level + 1, found)?,
                Err(Errno::NOTDIR | Errno::NOENT | Errno::ACCESS | Errno::LOOP) => {}
                Err(error) => return Err(Error::from(error).at(format!("{at}{text}"))),
            }
        }
    }
    Ok(())
}

/// Whether a writer holds the lock of a file; `None` if it is gone, or is not a file.
fn is_held(dir: &OwnedFd, name: &CStr) -> Result<Option<bool>> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let read_only = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let opened = match sys::open_beneath(dir, name, flags, Links::Refuse) {
        Err(Errno::ACCESS | Errno::ROFS) => sys::open_beneath(dir, name, read_only, Links::Refuse),
        opened => opened,
    };
    let file = match opened {
        Ok(fd) => File::from(fd),
        Err(Errno::NOENT | Errno::LOOP | Errno::ISDIR | Errno::NXIO) => return Ok(None),
        // The file of another user may be in use.
        Err(Errno::ACCESS) => return Ok(Some(true)),
        Err(error) => return Err(error.into()),
    };
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    // zarrfs can lock only a file that it can write to.
    Ok(Some(!sys::try_lock(&file).unwrap_or(false)))
}

/// Removes the lock file at `path` if its writer is dead.
pub(super) fn remove(root: &Root, path: &str) -> Result<bool> {
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    let Some(dir) = open_dir(root, &Prefix::parse(above)?)? else { return Ok(false) };
    remove_dead(&dir, &c_name(name)?).at(path)
}
