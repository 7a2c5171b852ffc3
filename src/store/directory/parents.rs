//! Directories of keys: created with the first value below them, removed with the last one.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, unlinkat};
use rustix::io::Errno;

use super::circles::Root;
use super::names::c_name;
use super::opening::{open_dir, open_file};
use crate::error::{At, Error, Kind, Result};
use crate::store::{Key, Prefix};

/// How often to create a directory again because other writers remove it while it is empty.
pub(super) const MAKE_ATTEMPTS: usize = 1000;

/// Opens the directory of `key`, after creating it and its ancestors if they are missing.
pub(super) fn make_parent(root: &Root, key: &Key) -> Result<OwnedFd> {
    let parent = key.parent();
    for _ in 0..MAKE_ATTEMPTS {
        if let Some(dir) = open_dir(root, &parent)? {
            return Ok(dir);
        }
        make_dirs(root, &parent).at(key)?;
    }
    Err(Error::new(
        Kind::Busy,
        "gave up after repeated conflicts: other programs keep removing its directory",
    )
    .at(key))
}

/// Creates `prefix` and the directories above it. Another writer may remove one of them
/// concurrently ([`prune`]), so the caller checks whether `prefix` exists.
fn make_dirs(root: &Root, prefix: &Prefix) -> Result<()> {
    let mut above = Prefix::root();
    for component in prefix.as_str().split_terminator('/') {
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
            made => made?,
        }
        above = above.join(component)?;
    }
    Ok(())
}

/// Removes the empty directories above `key`, except the root.
pub(super) fn prune(root: &Root, key: &Key) -> Result<()> {
    let mut parent = key.parent();
    while let Some(dir) = parent.as_key() {
        let Some(above) = open_dir(root, &dir.parent())? else { break };
        if unlinkat(&above, &c_name(dir.name())?, AtFlags::REMOVEDIR).is_err() {
            break;
        }
        parent = dir.parent();
    }
    Ok(())
}
