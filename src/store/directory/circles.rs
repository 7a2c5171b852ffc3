//! Symbolic links that lead in a circle.
//!
//! A link that stays below the root is followed. If the directory that a path leads to is one that the path went through
//! already, the same names would come again without end, so such a path leads nowhere ([`libc::ELOOP`]). Almost no path
//! has a link in it: only for one that has is each directory on it looked at.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;

use super::c_name;
use crate::error::{Error, Kind, Result};
use crate::sys::{self, Links};

/// Refuses `path`, which has a link in it, if it goes through one directory twice. What cannot be opened is left to the
/// caller, who opens it next.
pub(super) fn check(root: &OwnedFd, path: &str) -> Result<()> {
    let metadata = File::from(root.try_clone()?).metadata()?;
    let mut passed = vec![(metadata.dev(), metadata.ino())];
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    for end in ends {
        let above = path.get(..end).unwrap_or(path);
        let opened = sys::open_beneath(root, &c_name(above)?, libc::O_PATH, 0, Links::Beneath);
        let Ok(found) = opened.map(File::from) else { return Ok(()) };
        let metadata = found.metadata()?;
        if !metadata.is_dir() {
            return Ok(());
        }
        let id = (metadata.dev(), metadata.ino());
        if passed.contains(&id) {
            return Err(error());
        }
        passed.push(id);
    }
    Ok(())
}

/// Why a path that goes in a circle leads nowhere.
pub(super) fn error() -> Error {
    let detail =
        "a symbolic link that leads in a circle: to itself, or to a directory that it lies in";
    Error::new(Kind::Os(libc::ELOOP), detail)
}
