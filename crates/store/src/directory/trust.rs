//! Whose symbolic links are followed in a mount for several users.
//!
//! zarrfs follows links with its own rights. If it runs as root, a user could link a chunk to a
//! file of another user and read it through the mount. So a link is followed only to files of its
//! own owner, or if it belongs to root or the user who mounted and lies in a directory of theirs,
//! where no other user could have put it.
//!
//! The path is resolved here, link by link, and the kernel then opens a path without links. So a
//! link that another program replaces at that moment is not followed.
//!
//! For a single user, the mount shows a link as a link, and the kernel follows it for the program.
//! zarrfs itself follows those that have the name of a metadata file or a chunk, below the source
//! and unless they lead in a circle, which is `ELOOP` (`circles`). A chunk that leads out is an I/O
//! error, since a missing chunk would read as the fill value.

use std::ffi::CString;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, OFlags, Stat, fstat, readlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::circles::{self, MAX_LINKS, Root};
use super::names::c_name;
use zarrfs_base::error::{Error, Fault, Result};
use zarrfs_base::sys::{self, Links};

/// What becomes of the last component of a path, if it is a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    /// It is followed.
    Followed,
    /// It is opened itself.
    Itself,
}

/// A link on a path.
struct LinkStep {
    link: OwnedFd,
    /// The directory that has the link.
    above: Stat,
    /// The path of that directory, and the path behind the link.
    before: String,
    behind: String,
}

/// Opens a path with links. Fails if one of them must not be followed.
pub(super) fn open(
    root: &Root,
    path: &str,
    flags: OFlags,
    last: Last,
) -> Result<std::result::Result<OwnedFd, Errno>> {
    let (mut path, mut links) = (path.to_owned(), Vec::new());
    while let Some(found) = first_link(root, &path, last)? {
        if links.len() >= MAX_LINKS {
            return Err(circles::error());
        }
        let text = readlinkat(&found.link, c"", Vec::new())?;
        path = joined(&found, &text)?;
        links.push((fstat(&found.link)?, found.above));
    }
    let name = if path.is_empty() { c_name(".")? } else { c_name(&path)? };
    let opened = match sys::open_beneath(root, &name, flags, Links::Refuse) {
        Ok(opened) => opened,
        Err(errno) => return Ok(Err(errno)),
    };
    let target = fstat(&opened)?;
    if links.iter().all(|(link, above)| may_follow(link, above, &target)) {
        return Ok(Ok(opened));
    }
    let detail = "a symbolic link to a file of another user, which is not followed in a mount for \
                  several users";
    Err(Error::fault(Fault::Outside, detail))
}

/// Whether a link in the directory `above` may lead to `target`.
fn may_follow(link: &Stat, above: &Stat, target: &Stat) -> bool {
    let is_trusted = |uid: u32| uid == 0 || uid == geteuid().as_raw();
    let is_kept = above.st_mode & 0o022 == 0 || above.st_mode & 0o1000 != 0;
    link.st_uid == target.st_uid || is_trusted(link.st_uid) && is_trusted(above.st_uid) && is_kept
}

/// Returns the first link on a path; `None` if there is none, or the path leads nowhere.
fn first_link(root: &Root, path: &str, last: Last) -> Result<Option<LinkStep>> {
    let mut above = fstat(&**root)?;
    let mut begin = 0_usize;
    for name in path.split('/') {
        let end = begin.saturating_add(name.len());
        let whole = path.get(..end).unwrap_or(path);
        if end == path.len() && last == Last::Itself || whole.is_empty() {
            return Ok(None);
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let at = match sys::open_beneath(root, &c_name(whole)?, flags, Links::Refuse) {
            Ok(at) => at,
            // It has changed, and the caller opens what there is now.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let found = fstat(&at)?;
        if FileType::from_raw_mode(found.st_mode).is_symlink() {
            let before = path.get(..begin).unwrap_or_default().trim_end_matches('/').to_owned();
            let behind = path.get(end..).unwrap_or_default().trim_start_matches('/').to_owned();
            return Ok(Some(LinkStep { link: at, above, before, behind }));
        }
        above = found;
        begin = end.saturating_add(1);
    }
    Ok(None)
}

/// Returns the path below the root to which a link with this text leads, with what is behind it.
fn joined(found: &LinkStep, text: &CString) -> Result<String> {
    let leads_out = || Error::fault(Fault::Outside, "a symbolic link that leads out of the store");
    let text = text.to_str().map_err(|_| leads_out())?;
    if text.starts_with('/') {
        return Err(leads_out());
    }
    // Its directory has no links in its path, so `..` is the directory above in the path.
    let mut names: Vec<&str> = found.before.split('/').filter(|name| !name.is_empty()).collect();
    for name in text.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop().ok_or_else(leads_out)?),
            name => names.push(name),
        }
    }
    names.extend(found.behind.split('/').filter(|name| !name.is_empty()));
    Ok(names.join("/"))
}
