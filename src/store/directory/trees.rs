//! Directories with all that is in them: moved, and emptied.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use crate::error::{Error, Result};
use crate::sys::{self, Dir, Links};

/// Renames `name`, a directory as a whole where that can be; where the new name is a directory that holds
/// something what is in it is moved one by one.
pub(super) fn move_tree(dir: &OwnedFd, name: &CStr, to_dir: &OwnedFd, to: &CStr) -> Result<()> {
    match sys::rename(dir, name, to_dir, to) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTEMPTY | libc::EEXIST)) => {}
        renamed => return renamed.map_err(|error| Error::os(&error)),
    }
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let below = sys::open_beneath(dir, name, flags, 0, Links::Refuse)?;
    let to_below = sys::open_beneath(to_dir, to, flags, 0, Links::Refuse)?;
    let mut names = Vec::new();
    for entry in Dir::new(below.try_clone()?)? {
        names.push(entry?.name);
    }
    for entry in names {
        move_tree(&below, &entry, &to_below, &entry)?;
    }
    Ok(sys::remove_dir(dir, name)?)
}

/// Removes everything in a directory.
pub(super) fn empty(fd: OwnedFd) -> Result<()> {
    let anchor = fd.try_clone()?;
    for entry in Dir::new(fd)? {
        let entry = entry?;
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        match sys::open_beneath(&anchor, &entry.name, flags, 0, Links::Refuse) {
            Ok(below) => {
                empty(below)?;
                sys::remove_dir(&anchor, &entry.name)?;
            }
            Err(_) => sys::unlink(&anchor, &entry.name)?,
        }
    }
    Ok(())
}
