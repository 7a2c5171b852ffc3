//! Directories of keys: created with the first value below them, removed with the last one.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, chownat, fstat, mkdirat, unlinkat};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};

use super::circles::Root;
use super::names::c_name;
use super::opening::{open_dir, open_file};
use crate::{Key, PRIVATE, Prefix};
use zarrfs_base::error::{Error, Kind, Result, WithSubject};

/// How often to create a directory again because other writers remove it while it is empty.
pub(super) const MAKE_ATTEMPTS: usize = 1000;

/// Opens the directory of `key`, after creating it and its ancestors if they are missing. Does not
/// create `home`, in which the key lies, or a directory above it: if they are missing, another
/// program has moved or removed them.
pub(super) fn make_parent(root: &Root, home: Option<&Prefix>, key: &Key) -> Result<OwnedFd> {
    let parent = key.parent();
    for _ in 0..MAKE_ATTEMPTS {
        if let Some(dir) = open_dir(root, &parent)? {
            return Ok(dir);
        }
        let above = check_home(root, home, key.as_str())?;
        make_dirs(root, above, &parent).at(key)?;
    }
    Err(Error::new(
        Kind::Busy,
        "gave up after repeated conflicts: other programs keep removing its directory",
    )
    .at(key))
}

/// Returns `home`, or the root if that is not given and neither is nor contains `path`. It is
/// `ESTALE` if another program has moved or removed it.
pub(super) fn check_home(root: &Root, home: Option<&Prefix>, path: &str) -> Result<Prefix> {
    let is_in = |home: &&Prefix| {
        let home = home.as_str();
        path.starts_with(home) || home.strip_suffix('/') == Some(path)
    };
    let home = home.filter(is_in);
    let home = home.cloned().unwrap_or_else(Prefix::root);
    if open_dir(root, &home)?.is_none() {
        let detail = "another program has moved or removed its directory";
        return Err(Error::new(Kind::Os(libc::ESTALE), detail).at(path));
    }
    Ok(home)
}

/// Creates `prefix` and the directories above it, up to `above`, which is there. Another writer may
/// remove one of them concurrently ([`prune`]), so the caller checks whether `prefix` exists.
fn make_dirs(root: &Root, mut above: Prefix, prefix: &Prefix) -> Result<()> {
    let below = prefix.as_str().strip_prefix(above.as_str()).unwrap_or_default().to_owned();
    for component in below.split_terminator('/') {
        let Some(dir) = open_dir(root, &above)? else { return Ok(()) };
        match mkdirat(&dir, &c_name(component)?, Mode::from(0o777)) {
            Err(Errno::NOENT) => return Ok(()),
            Err(Errno::EXIST) => {
                let key = above.key(component)?;
                if open_file(root, &key, OFlags::PATH)?.is_some() {
                    let detail = "a component of its path is not a directory";
                    return Err(Error::new(Kind::NotDirectory, detail));
                }
            }
            made => {
                made?;
                inherit_owner(&dir, component)?;
            }
        }
        above = above.join(component)?;
    }
    Ok(())
}

/// Gives a new directory the owner of the one that contains it, if this process may do that: then a
/// user can write all chunks of an array that belongs to this user.
fn inherit_owner(above: &OwnedFd, name: &str) -> Result<()> {
    let (uid, gid) = (geteuid(), getegid());
    let owner = fstat(above)?;
    let of_above = (Uid::from_raw(owner.st_uid), Gid::from_raw(owner.st_gid));
    if uid.is_root() && of_above != (uid, gid) {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        chownat(above, c_name(name)?, Some(of_above.0), Some(of_above.1), flags)?;
    }
    Ok(())
}

/// Which empty directories are removed with their last value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prunes {
    /// All of them.
    All,
    /// Those of chunks, and our own. Others stay until a program removes them, because they have an
    /// owner and a mode of their own.
    Chunks,
}

/// Removes the empty directories above `key`, except the root. With `home`, a mount keeps that one:
/// a program removes it.
pub(super) fn prune(root: &Root, key: &Key, prunes: Prunes, home: Option<&Prefix>) -> Result<()> {
    let is_private = key.as_str().split('/').any(|name| name == PRIVATE);
    let is_pruned = |dir: &Key| {
        let is_home = home.is_some_and(|home| home.as_str().trim_end_matches('/') == dir.as_str());
        let is_ours = is_private && (dir.name() == PRIVATE || is_private_place(dir));
        prunes == Prunes::All || !is_home && is_of_chunks(dir.name()) || is_ours
    };
    let mut parent = key.parent();
    while let Some(dir) = parent.as_key().filter(is_pruned) {
        let Some(above) = open_dir(root, &dir.parent())? else { break };
        if unlinkat(&above, &c_name(dir.name())?, AtFlags::REMOVEDIR).is_err() {
            break;
        }
        parent = dir.parent();
    }
    Ok(())
}

/// Whether a directory lies in a private one.
fn is_private_place(dir: &Key) -> bool {
    dir.parent().as_str().split('/').any(|name| name == PRIVATE)
}

/// Whether a directory of chunks may have this name: `c`, `0`, `c0`.
pub fn is_of_chunks(name: &str) -> bool {
    let index = name.strip_prefix('c').unwrap_or(name);
    index.bytes().all(|byte| byte.is_ascii_digit())
}
