//! Moves and empties directories of any depth.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, OFlags, renameat, unlinkat};
use rustix::io::Errno;

use super::names::is_lock_of_key;
use super::parents::is_of_chunks;
use super::recover::remove_dead;
use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_base::sys::{self, Dir, Links};

/// The most nested directories to keep open.
const MAX_LEVELS: usize = 64;

/// Opens a directory, but no link to one.
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW);

/// Renames `name`, as a whole if possible. If the new name is a directory that is not empty, moves
/// the entries one by one.
pub(super) fn move_tree(dir: &OwnedFd, name: &CStr, to_dir: &OwnedFd, to: &CStr) -> Result<()> {
    move_level(dir, name, to_dir, to, 0)
}

fn move_level(dir: &OwnedFd, name: &CStr, to_dir: &OwnedFd, to: &CStr, level: usize) -> Result<()> {
    match renameat(dir, name, to_dir, to) {
        Err(Errno::NOTEMPTY | Errno::EXIST) => {}
        renamed => return Ok(renamed?),
    }
    if level >= MAX_LEVELS {
        return Err(Error::too_large(format!(
            "directories nested more than {MAX_LEVELS} deep, in two places"
        )));
    }
    let below = sys::open_beneath(dir, name, DIRECTORY, Links::Refuse)?;
    let to_below = sys::open_beneath(to_dir, to, DIRECTORY, Links::Refuse)?;
    let mut names = Vec::new();
    for entry in Dir::new(below.try_clone()?)? {
        names.push(entry?.file_name().to_owned());
    }
    for entry in names {
        move_level(&below, &entry, &to_below, &entry, level + 1)?;
    }
    Ok(unlinkat(dir, name, AtFlags::REMOVEDIR)?)
}

/// Whether a directory, or one below it, has a name that is not UTF-8. Directories that lie too
/// deep to be looked at count as such.
pub(super) fn has_names_without_key(fd: OwnedFd) -> Result<bool> {
    let mut levels = vec![OpenLevel::new(fd, CString::default())?];
    loop {
        let count = levels.len();
        let Some(level) = levels.last_mut() else { return Ok(false) };
        let Some(entry) = level.entries.next() else {
            levels.pop();
            continue;
        };
        let name = entry?.file_name().to_owned();
        if name.to_str().is_err() {
            return Ok(true);
        }
        match sys::open_beneath(&level.dir, &name, DIRECTORY, Links::Refuse) {
            Ok(_) if count >= MAX_LEVELS => return Ok(true),
            Ok(below) => levels.push(OpenLevel::new(below, name)?),
            Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Removes the directory `name` in `above`, which is `dir`, with the directories of chunks in it,
/// all directories below those, and lock files of dead writers. Fails if there is anything else.
pub(super) fn remove_empty(dir: &OwnedFd, above: &OwnedFd, name: &CStr) -> Result<()> {
    remove_level(dir, above, name, 0)
}

fn remove_level(dir: &OwnedFd, above: &OwnedFd, name: &CStr, level: usize) -> Result<()> {
    let again = sys::open_beneath(dir, c".", DIRECTORY, Links::Refuse)?;
    let names: Vec<_> =
        Dir::new(again)?.map(|entry| Ok(entry?.file_name().to_owned())).collect::<Result<_>>()?;
    let is_lock = |name: &CString| name.to_str().is_ok_and(is_lock_of_key);
    let may_go =
        |name: &CString| level > 0 || is_lock(name) || name.to_str().is_ok_and(is_of_chunks);
    // If something stays, so does everything.
    if level >= MAX_LEVELS || !names.iter().all(may_go) {
        return Err(stays());
    }
    for entry in &names {
        if is_lock(entry) {
            remove_dead(dir, entry)?;
            continue;
        }
        match sys::open_beneath(dir, entry, DIRECTORY, Links::Refuse) {
            Ok(below) => remove_level(&below, dir, entry, level + 1)?,
            Err(Errno::NOENT) => {}
            Err(_) => return Err(stays()),
        }
    }
    match unlinkat(above, name, AtFlags::REMOVEDIR) {
        Ok(()) => Ok(()),
        Err(Errno::NOENT) if level > 0 => Ok(()),
        Err(Errno::EXIST | Errno::NOTEMPTY) => Err(stays()),
        Err(error) => Err(error.into()),
    }
}

fn stays() -> Error {
    let detail = "another program has just made something here, or the store has a lock file here \
                  (*.__lock), which no mount shows";
    Error::new(Kind::NotEmpty, detail)
}

/// Removes everything in a directory.
pub(super) fn empty(fd: OwnedFd) -> Result<()> {
    let top = fd;
    let mut number = 0_u64;
    loop {
        let before = number;
        empty_levels(&top, &mut number)?;
        if number == before {
            return Ok(());
        }
    }
}

/// A directory that is being walked or emptied.
struct OpenLevel {
    entries: Dir,
    dir: OwnedFd,
    /// Its name in its parent.
    name: CString,
}

impl OpenLevel {
    fn new(dir: OwnedFd, name: CString) -> Result<Self> {
        let again = sys::open_beneath(&dir, c".", DIRECTORY, Links::Refuse)?;
        Ok(Self { entries: Dir::new(again)?, dir, name })
    }
}

/// Removes everything in `top`. Directories that lie too deep are moved into `top` under numbered
/// names, for the next pass.
fn empty_levels(top: &OwnedFd, number: &mut u64) -> Result<()> {
    let mut levels = vec![OpenLevel::new(top.try_clone()?, CString::default())?];
    loop {
        let count = levels.len();
        let Some(level) = levels.last_mut() else { return Ok(()) };
        let Some(entry) = level.entries.next() else {
            let name = std::mem::take(&mut level.name);
            levels.pop();
            if let Some(above) = levels.last() {
                unlinkat(&above.dir, &name, AtFlags::REMOVEDIR)?;
            }
            continue;
        };
        let name = entry?.file_name().to_owned();
        match sys::open_beneath(&level.dir, &name, DIRECTORY, Links::Refuse) {
            Ok(_) if count >= MAX_LEVELS => put_up(level, &name, top, number)?,
            Ok(below) => levels.push(OpenLevel::new(below, name)?),
            Err(_) => unlinkat(&level.dir, &name, AtFlags::empty())?,
        }
    }
}

fn put_up(level: &OpenLevel, name: &CStr, top: &OwnedFd, number: &mut u64) -> Result<()> {
    loop {
        *number = number.saturating_add(1);
        let new = CString::new(format!(".zarrfs-deep-{number}"))
            .map_err(|_| Error::invalid("the name contains a NUL byte"))?;
        match renameat(&level.dir, name, top, &new) {
            // The name is taken.
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
            renamed => return Ok(renamed?),
        }
    }
}
