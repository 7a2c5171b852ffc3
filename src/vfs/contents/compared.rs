//! Ordinary files of a server, compared with what the programs that change them have read.
//!
//! A mount shows such a file as it was up to `--metadata-ttl` ago. Editors read it, and write all
//! of it again: into the file, or into another one that takes its name, or that gets the name after
//! the old one was removed. None of these may undo what another program has stored in between.

use std::time::Instant;

use super::files::Files;
use crate::error::{At, Error, Kind, Result};
use crate::store::{Condition, Version};
use crate::vfs::authors::Processes;
use crate::vfs::names::file::Content;
use crate::vfs::names::inode::Inode;
use crate::vfs::names::place::Place;

impl Files {
    /// Returns the condition under which programs replace the file at `place`: if they have read
    /// it, that it is still the same. [`Kind::Stale`] if it is not.
    pub fn condition_as_read(&self, place: &Place, by: &Processes) -> Result<Condition> {
        let Some(read) = self.take_read(place, by) else { return Ok(Condition::Always) };
        Ok(match self.check_is(place, read)? {
            None => Condition::Absent,
            Some(_) if !self.can_compare()? => Condition::Always,
            Some(now) => Condition::Unchanged(now),
        })
    }

    /// Has a file that programs have truncated stored under the condition that it is as they have
    /// read it.
    pub fn compare_with_read(&self, inode: &Inode, by: &Processes) {
        let Some(read) = inode.place().and_then(|place| self.take_read(&place, by)) else { return };
        if let Content::Unstored(unstored) = &mut inode.file().lock().content
            && matches!(unstored.condition, Condition::Always)
            && self.can_compare().unwrap_or(true)
        {
            unstored.condition = Condition::Unchanged(read);
        }
    }

    /// Fails if programs remove a file that has changed since they read it.
    pub fn check_removed(&self, place: &Place, by: &Processes) -> Result<()> {
        match self.take_read(place, by) {
            Some(read) => self.check_is(place, read).map(drop),
            None => Ok(()),
        }
    }

    /// Fails if a changed file that waits can no longer take the place of the one that is stored.
    pub fn check_unchanged(&self, inode: &Inode) -> Result<()> {
        let Some(place @ Place::Ordinary(..)) = inode.place().filter(|_| self.core.is_remote())
        else {
            return Ok(());
        };
        let read = match &inode.file().lock().content {
            Content::Unstored(unstored) if unstored.changed => unstored.condition,
            _ => Condition::Always,
        };
        match read {
            Condition::Unchanged(read) => self.check_is(&place, read).map(drop),
            Condition::Always | Condition::Absent => Ok(()),
        }
    }

    /// Returns the version of an ordinary file that programs have read, once.
    fn take_read(&self, place: &Place, by: &Processes) -> Option<Version> {
        let ttl = self.core.hierarchy.options().metadata_ttl;
        let is_ordinary = matches!(place, Place::Ordinary(..)) && self.core.is_remote();
        let read = is_ordinary.then(|| self.names.seen_versions.take(place, by, ttl))??;
        read.version
    }

    /// Returns the version of an ordinary file on the server, `None` if it is gone. [`Kind::Stale`]
    /// if it is another one than `read`.
    fn check_is(&self, place: &Place, read: Version) -> Result<Option<Version>> {
        let Place::Ordinary(path, relative) = place else { return Ok(None) };
        let key = self.stored.ordinary_key(path, relative)?;
        let now = self.core.hierarchy.store().stat_since(&key, Instant::now())?;
        if now.is_some_and(|now| !read.holds(now.version)) {
            let detail = "another program has stored it since this one has read it: read it again";
            return Err(Error::new(Kind::Stale, detail).at(place.shown()));
        }
        Ok(now.map(|now| now.version))
    }

    /// Whether the server compares a file when it is stored.
    fn can_compare(&self) -> Result<bool> {
        match self.core.hierarchy.store().write()?.check_conditions() {
            Err(error) if error.kind() != Kind::Unsupported => Err(error),
            checked => Ok(checked.is_ok()),
        }
    }
}
