//! Symbolic links that lead in a circle, or on and on.
//!
//! A link that stays below the root is followed. If the directory that a path leads to is one that the path went through
//! already, the same names would come again without end, so such a path leads nowhere ([`libc::ELOOP`]). A path through
//! more than [`MAX_LINKS`] links does neither: two links in each of 40 directories to the next one would make 2^40 paths.
//! Almost no path has a link in it: only for one that has is each directory on it looked at.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;

use super::c_name;
use crate::error::{Error, Kind, Result};
use crate::sys::{self, Links};

/// The most links on one path.
const MAX_LINKS: usize = 8;

/// Refuses `path`, which has a link in it, if it goes through one directory twice or has too many links. What cannot be
/// opened is left to the caller, who opens it next.
pub(super) fn check(root: &OwnedFd, path: &str) -> Result<()> {
    let mut above = File::from(root.try_clone()?);
    let metadata = above.metadata()?;
    let mut passed = vec![(metadata.dev(), metadata.ino())];
    let (mut begin, mut links) = (0, 0);
    for end in path.match_indices('/').map(|(at, _)| at).chain([path.len()]) {
        let (whole, name) = (path.get(..end), path.get(begin..end));
        begin = end.saturating_add(1);
        let is_link = |found: libc::stat| found.st_mode & libc::S_IFMT == libc::S_IFLNK;
        links += usize::from(
            sys::stat_at(&above, &c_name(name.unwrap_or_default())?).is_ok_and(is_link),
        );
        if links > MAX_LINKS {
            let detail = format!("more than {MAX_LINKS} symbolic links on its path");
            return Err(Error::new(Kind::Os(libc::ELOOP), detail));
        }
        let name = c_name(whole.unwrap_or(path))?;
        let opened = sys::open_beneath(root, &name, libc::O_PATH, 0, Links::Beneath);
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
        above = found;
    }
    Ok(())
}

/// Why a path that goes in a circle leads nowhere.
pub(super) fn error() -> Error {
    let detail =
        "a symbolic link that leads in a circle: to itself, or to a directory that it lies in";
    Error::new(Kind::Os(libc::ELOOP), detail)
}
