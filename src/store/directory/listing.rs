//! What a directory holds: entries of one directory, and every key below a prefix.
//!
//! Read lazily, one descriptor for each level. The files of writers
//! ([`LOCK_SUFFIX`], and those of sessions) are never shown.

use std::fs::File;
use std::os::fd::OwnedFd;

use super::{LOCK_SUFFIX, check_root, is_session, kind_of, open_at};
use crate::error::{At, Error, Result};
use crate::store::{Entry, Key, PRIVATE, Prefix};
use crate::sys::{self, Dir, EntryType};

/// One directory being listed.
pub(super) struct Listing {
    root: OwnedFd,
    prefix: Prefix,
    dir: Dir,
}

/// An entry of a directory, and what the store shows of it: nothing for our own temporaries and for
/// names that no key can have.
pub(super) struct Found {
    shown: Option<Entry>,
    is_link: bool,
}

impl Listing {
    /// None where there is no such directory.
    pub(super) fn open(root: &OwnedFd, prefix: &Prefix) -> Result<Option<Self>> {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY;
        let Some(fd) = open_at(root, prefix.as_str(), flags).at(prefix)? else { return Ok(None) };
        if prefix.is_root() {
            check_root(root)?;
        }
        Ok(Some(Self { root: root.try_clone()?, prefix: prefix.clone(), dir: Dir::new(fd)? }))
    }

    /// What the store shows of it.
    pub(super) fn shown(self) -> impl Iterator<Item = Result<Entry>> {
        self.filter_map(|found| match found {
            Ok(found) => found.shown.map(Ok),
            Err(error) => Some(Err(error)),
        })
    }

    fn found(&self, entry: &sys::DirEntry) -> Found {
        let is_link = entry.kind == EntryType::Link;
        let hidden = Found { shown: None, is_link };
        let Ok(name) = entry.name.to_str() else { return hidden };
        let is_private = || self.prefix.is_root() && name == PRIVATE;
        if name.ends_with(LOCK_SUFFIX)
            || is_session(&self.prefix, name)
            || is_private() && !self.holds_values(name)
        {
            return hidden;
        }
        let kind = match entry.kind {
            EntryType::Link | EntryType::Unknown => self.target(name).unwrap_or(EntryType::Other),
            known => known,
        };
        let name = name.to_owned();
        // What is neither a file nor a directory is a key, so that reading it says why it cannot be.
        let shown = if kind == EntryType::Dir { Entry::Prefix(name) } else { Entry::Key(name) };
        Found { shown: Some(shown), is_link }
    }

    /// Whether there is more in a directory than what is never shown.
    fn holds_values(&self, name: &str) -> bool {
        let below = self.prefix.join(name).and_then(|prefix| Self::open(&self.root, &prefix));
        // What cannot be looked at is shown, and says why when it is.
        below.map_or(true, |below| below.is_none_or(|below| below.shown().next().is_some()))
    }

    fn target(&self, name: &str) -> Option<EntryType> {
        let key = self.prefix.key(name).ok()?;
        let fd = open_at(&self.root, key.as_str(), libc::O_PATH).ok()??;
        Some(kind_of(&File::from(fd).metadata().ok()?))
    }
}

impl Iterator for Listing {
    type Item = Result<Found>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.dir.next()?;
        Some(match entry {
            Ok(entry) => Ok(self.found(&entry)),
            Err(error) => Err(Error::os(&error).at(&self.prefix)),
        })
    }
}

/// Every key below a prefix, depth first. Links to directories are not walked: they may lead in a circle.
pub(super) struct Walk {
    open: Vec<Listing>,
}

impl Walk {
    /// Begins with the entries of `listing`.
    pub(super) fn below(listing: Option<Listing>) -> Self {
        Self { open: listing.into_iter().collect() }
    }

    /// The key of the next entry, if it is one; a directory is opened, to be walked next.
    fn enter(&mut self, found: Found) -> Result<Option<Key>> {
        let Some(listing) = self.open.last() else { return Ok(None) };
        match found.shown {
            Some(Entry::Key(name)) => listing.prefix.key(&name).map(Some),
            Some(Entry::Prefix(name)) if !found.is_link => {
                let below = Listing::open(&listing.root, &listing.prefix.join(&name)?)?;
                self.open.extend(below);
                Ok(None)
            }
            _ => Ok(None),
        }
    }
}

impl Iterator for Walk {
    type Item = Result<Key>;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(listing) = self.open.last_mut() {
            match listing.next() {
                Some(found) => match found.and_then(|found| self.enter(found)) {
                    Ok(None) => {}
                    Ok(Some(key)) => return Some(Ok(key)),
                    Err(error) => return Some(Err(error)),
                },
                None => drop(self.open.pop()),
            }
        }
        None
    }
}
