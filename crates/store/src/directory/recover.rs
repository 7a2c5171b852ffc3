//! Cleans up after killed writers: finds their files through session files, and removes them by the
//! lock protocol.
//!
//! A live writer locks its session file and each of its lock files, so a file is removed only if it
//! can be locked. A session file only hints at where to look.

use std::collections::BTreeSet;
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, OFlags, unlinkat};
use rustix::io::Errno;

use super::circles::Root;
use super::names::{ASIDE, c_name, is_lock_of_key, lock_name, session_of};
use super::opening::open_dir;
use super::parents::{Prunes, prune};
use super::session::{self, open_private};
use crate::{Aside, Key, PRIVATE, Prefix};
use zarrfs_base::error::{Result, WithSubject};
use zarrfs_base::sys::{self, Dir, Links};
use zarrfs_base::width::ToUsize;

/// The most bytes of a session file; zarrfs writes no longer ones.
const MAX_LEN: u64 = 1 << 20;

/// The most keys to check one by one; with more keys, the whole store is checked.
const MAX_KEYS: usize = 10_000;

/// The most sessions to hold while cleaning up; each is an open file.
const MAX_HELD: usize = 256;

/// The session of a dead writer, locked so that no other mount cleans it up. Its file is removed
/// together with the last of its temporary places.
#[derive(Debug)]
struct Dead {
    root: OwnedFd,
    id: String,
    file: File,
}

/// Removes the lock files of dead writers, and returns their temporary places.
pub(super) fn recover(root: &Root, prunes: Prunes) -> Result<Vec<Aside>> {
    let Some(dir) = open_private(root).at(PRIVATE)? else { return Ok(Vec::new()) };
    let names = names_in(&dir)?;
    let ids: BTreeSet<&str> = names.iter().filter_map(|name| session_of(name)).collect();
    let mut asides = Vec::new();
    for ids in ids.into_iter().collect::<Vec<_>>().chunks(MAX_HELD) {
        let mut all_dead = Vec::new();
        for id in ids {
            match take_dead(root, &dir, id) {
                Ok(dead) => all_dead.extend(dead.map(Arc::new)),
                Err(error) => {
                    log::warn!(
                        "{PRIVATE}: files left by writer {id} cannot be removed: \
                         {error}"
                    );
                }
            }
        }
        match sweep(root, &all_dead, prunes) {
            Ok(0) => {}
            Ok(count) => {
                log::info!("removed {count} temporary files of killed writers");
            }
            Err(error) => {
                log::warn!("temporary files of killed writers may remain: {error}");
            }
        }
        for dead in all_dead {
            for name in &names {
                if name.starts_with(ASIDE) && session_of(name) == Some(&dead.id) {
                    let place = c_name(name)?;
                    let flags = OFlags::PATH | OFlags::NOFOLLOW;
                    let Ok(place) = sys::open_beneath(&dir, &place, flags, Links::Refuse) else {
                        continue;
                    };
                    if !may_act_for(File::from(place).metadata()?.uid(), root)? {
                        continue;
                    }
                    let prefix = Prefix::parse(&format!("{PRIVATE}/{name}"))?;
                    asides.push(Aside::new(prefix, Box::new(Arc::clone(&dead))));
                }
            }
        }
    }
    Ok(asides)
}

/// Locks the session of a writer, if that is dead.
fn take_dead(root: &Root, dir: &OwnedFd, id: &str) -> Result<Option<Dead>> {
    // The session file may be missing although its temporary places remain. Then a new file of the
    // same name is the lock.
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NONBLOCK;
    let name = session::file_name(id)?;
    let file = match sys::open_beneath(dir, &name, flags, Links::Refuse) {
        Ok(fd) => File::from(fd),
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let found = file.metadata()?;
    if !may_act_for(found.uid(), root)? {
        return Ok(None);
    }
    let is_ours = found.is_file() && sys::try_lock(&file)? && is_named(dir, &name, &file)?;
    Ok(if is_ours { Some(Dead { root: root.try_clone()?, id: id.to_owned(), file }) } else { None })
}

/// Whether this process may finish or undo what a writer of another user has begun: that removes
/// and moves values. In a directory with a sticky bit, users cannot remove the files of others, and
/// a change that they only declare must not do it for them.
fn may_act_for(user: u32, root: &Root) -> Result<bool> {
    let found = rustix::fs::fstat(&**root)?;
    let is_shared = found.st_mode & 0o1000 != 0;
    Ok(!is_shared || user == rustix::process::geteuid().as_raw() || user == 0)
}

/// Removes the lock files of the keys that dead writers were writing, and counts them.
fn sweep(root: &Root, dead: &[Arc<Dead>], prunes: Prunes) -> Result<usize> {
    let mut keys = BTreeSet::new();
    for dead in dead {
        let Some(written) = dead.keys()? else { return sweep_below(root, 0) };
        keys.extend(written);
        if keys.len() > MAX_KEYS {
            return sweep_below(root, 0);
        }
    }
    let mut count = 0;
    for key in keys {
        let Ok(Some(dir)) = open_dir(root, &key.parent()) else { continue };
        let removed = c_name(&lock_name(key.name())).and_then(|name| remove_dead(&dir, &name));
        if removed.at(&key)? {
            count += 1;
            prune(root, &key, prunes, None)?;
        }
    }
    Ok(count)
}

impl Dead {
    /// Returns the keys that it was writing; `None` if the file may be incomplete, because the
    /// machine was restarted and the file is never synced, or because zarrfs did not write it.
    fn keys(&self) -> Result<Option<BTreeSet<Key>>> {
        let len = self.file.metadata()?.len();
        if len > MAX_LEN {
            return Ok(None);
        }
        let mut bytes = vec![0; len.to_usize()];
        let read = self.file.read_at(&mut bytes, 0)?;
        bytes.truncate(read);
        let Some(keys) = bytes.strip_prefix(session::boot().as_bytes()) else { return Ok(None) };
        let key = |key| std::str::from_utf8(key).ok().and_then(|key| Key::parse(key).ok());
        Ok(Some(keys.split(|byte| *byte == 0).filter_map(key).collect()))
    }
}

impl Drop for Dead {
    fn drop(&mut self) {
        let left = || -> Result<bool> {
            let Some(dir) = open_private(&self.root)? else { return Ok(false) };
            let is_aside =
                |name: &String| name.starts_with(ASIDE) && session_of(name) == Some(&self.id);
            Ok(names_in(&dir)?.iter().any(is_aside))
        };
        let removed = left().and_then(|left| {
            if left { Ok(()) } else { session::remove(&self.root, &self.id, &self.file) }
        });
        if let Err(error) = removed {
            log::debug!("{PRIVATE}: {error}");
        }
    }
}

fn names_in(dir: &OwnedFd) -> Result<Vec<String>> {
    let again = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut names = Vec::new();
    for entry in Dir::new(sys::open_beneath(dir, c".", again, Links::Refuse)?)? {
        names.extend(entry?.file_name().to_str().ok().map(str::to_owned));
    }
    Ok(names)
}

/// Whether an open file still has its name.
fn is_named(dir: &OwnedFd, name: &CStr, file: &File) -> Result<bool> {
    let named = match sys::open_beneath(dir, name, OFlags::PATH, Links::Refuse) {
        Ok(fd) => File::from(fd).metadata()?,
        Err(Errno::NOENT) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let ours = file.metadata()?;
    Ok((named.dev(), named.ino()) == (ours.dev(), ours.ino()))
}

/// Removes a lock file if nothing locks it, which means that its writer is dead. Returns whether
/// there was one.
pub(super) fn remove_dead(dir: &OwnedFd, name: &CStr) -> Result<bool> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let file = match sys::open_beneath(dir, name, flags, Links::Refuse) {
        Ok(fd) => File::from(fd),
        // There is no lock file of this name.
        Err(Errno::NOENT | Errno::LOOP | Errno::ISDIR | Errno::NXIO) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    // A file with a second name may be a value, and one renamed onto its key is a value.
    let is_dead = file.metadata()?.is_file()
        && sys::try_lock(&file)?
        && file.metadata()?.nlink() == 1
        && is_named(dir, name, &file)?;
    if !is_dead {
        return Ok(false);
    }
    unlinkat(dir, name, AtFlags::empty())?;
    Ok(true)
}

/// The most nested directories to check; zarrfs writes nothing deeper.
pub(super) const MAX_LEVELS: usize = 128;

/// Removes every unlocked lock file of a chunk or a metadata file below a directory, and counts
/// them, without following links. Other files with such a suffix may belong to the user.
fn sweep_below(dir: &OwnedFd, level: usize) -> Result<usize> {
    if level > MAX_LEVELS {
        return Ok(0);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let mut count = 0;
    for entry in Dir::new(sys::open_beneath(dir, c".", flags, Links::Refuse)?)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_str().is_ok_and(is_lock_of_key) {
            let removed = remove_dead(dir, name);
            count += usize::from(removed.at(OsStr::from_bytes(name.to_bytes()).display())?);
        } else if matches!(entry.file_type(), FileType::Directory | FileType::Unknown) {
            match sys::open_beneath(dir, name, flags, Links::Refuse) {
                Ok(below) => count += sweep_below(&below, level + 1)?,
                Err(Errno::NOTDIR | Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(count)
}
