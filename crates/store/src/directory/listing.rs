//! Listings of one directory, and of all keys below a prefix.
//!
//! They are read lazily, with one descriptor for each level. They omit files of writers
//! ([`LOCK_SUFFIX`], sessions).

use std::fs::File;
use std::sync::Arc;

use rustix::fs::{AtFlags, DirEntry, FileType, OFlags, statat};
use rustix::io::Errno;

use super::circles::Root;
use super::names::{LOCK_SUFFIX, is_session};
use super::opening::{
    LEADS_TO_NOTHING, check_root, kind_of, leads_to_nothing, open_at, open_dir, open_or_miss,
};
use crate::{Key, PRIVATE, Prefix, StoreEntry};
use zarrfs_base::error::{Error, Result, WithSubject, Word};
use zarrfs_base::sys::Dir;

/// The most nested directories to walk; all of them are open.
const MAX_LEVELS: usize = 256;

/// The most links to directories that a walk follows.
const MAX_FOLLOWED: usize = 100_000;

/// A directory that is being listed.
pub(super) struct DirectoryListing {
    root: Arc<Root>,
    prefix: Prefix,
    dir: Dir,
    /// Whether its path contains a link, so that a directory in it may be one of its parents.
    is_linked: bool,
}

/// An entry of a directory. The store hides its own temporary files, and names that no key can
/// have.
pub(super) struct DirectoryEntry {
    shown: Option<StoreEntry>,
    /// Whether it is a link to a directory.
    is_linked_dir: bool,
    /// Whether it is one of its own parents.
    is_circle: bool,
}

/// The file or directory to which a name leads.
struct LinkTarget {
    /// Its type; unknown if it cannot be opened.
    kind: FileType,
    /// Whether it is a parent directory.
    is_circle: bool,
    /// Why it cannot be opened; `None` if it is not there.
    error: Option<Error>,
}

impl DirectoryListing {
    /// Returns `None` if there is no such directory. A program that replaces a directory removes it
    /// for a moment, and a list must not be empty for that, so it is looked for twice. All that was
    /// below a link to nothing is missing.
    pub(super) fn open(root: &Arc<Root>, prefix: &Prefix) -> Result<Option<Self>> {
        if let (Some(listing), _) = Self::open_once(root, prefix)? {
            return Ok(Some(listing));
        }
        let (listing, is_linked) = Self::open_once(root, prefix)?;
        let path = prefix.as_str().trim_end_matches('/');
        if listing.is_none() && is_linked && leads_to_nothing(root, path) {
            root.omissions.note(path, Word::Missing, LEADS_TO_NOTHING);
        }
        Ok(listing)
    }

    /// Also returns whether the path of the directory contains a link.
    fn open_once(root: &Arc<Root>, prefix: &Prefix) -> Result<(Option<Self>, bool)> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let (opened, is_linked) = open_or_miss(root, prefix.as_str(), flags).at(prefix)?;
        let Some(fd) = opened else { return Ok((None, is_linked)) };
        if prefix.is_root() {
            check_root(root)?;
        }
        let (root, prefix, dir) = (Arc::clone(root), prefix.clone(), Dir::new(fd)?);
        Ok((Some(Self { root, prefix, dir, is_linked }), is_linked))
    }

    /// Whether the directory has a directory of this name now.
    fn still_lists(&self, name: &str) -> bool {
        let is_it = |found: Result<DirectoryEntry>| {
            let shown = found.ok().and_then(|found| found.shown);
            matches!(shown, Some(StoreEntry::Prefix(listed)) if listed == name)
        };
        let again = Self::open(&self.root, &self.prefix).ok().flatten();
        again.is_some_and(|mut entries| entries.any(is_it))
    }

    /// Returns the entries that the store shows.
    pub(super) fn shown(self) -> impl Iterator<Item = Result<StoreEntry>> {
        self.filter_map(|found| match found {
            Ok(found) => found.shown.map(Ok),
            Err(error) => Some(Err(error)),
        })
    }

    fn found(&self, entry: &DirEntry) -> DirectoryEntry {
        let hidden = DirectoryEntry { shown: None, is_linked_dir: false, is_circle: false };
        let Ok(name) = entry.file_name().to_str() else {
            self.omit(entry, "its name is not UTF-8, so no key can have it");
            return hidden;
        };
        if name.ends_with(LOCK_SUFFIX) {
            self.omit(entry, "names that end in .__lock are those of lock files");
        }
        let is_private = || self.prefix.is_root() && name == PRIVATE;
        if name.ends_with(LOCK_SUFFIX)
            || is_session(&self.prefix, name)
            || is_private() && !self.holds_values(name)
        {
            return hidden;
        }
        let LinkTarget { kind, is_circle, error } = match entry.file_type() {
            FileType::Symlink | FileType::Unknown => self.target(name),
            FileType::Directory if self.is_linked => self.target(name),
            known => LinkTarget { kind: known, is_circle: false, error: None },
        };
        // A link that leads to itself is no directory. Reading it reports an error.
        let is_circle = is_circle && !self.leads_to_itself(name);
        if entry.file_type() == FileType::Symlink && kind == FileType::Unknown && !is_circle {
            self.note_link(name, error);
        }
        let name = name.to_owned();
        let is_linked_dir = entry.file_type() == FileType::Symlink && kind == FileType::Directory;
        // List sockets and similar files as keys, so that reading them reports an error.
        let shown = if kind == FileType::Directory {
            StoreEntry::Prefix(name)
        } else {
            StoreEntry::Key(name)
        };
        DirectoryEntry { shown: Some(shown), is_linked_dir, is_circle }
    }

    /// Notes a link that the store does not follow: it may lead to a node or a value. `error` is
    /// the reason, `None` if there is nothing.
    fn note_link(&self, name: &str, error: Option<Error>) {
        let place = format!("{}{name}", self.prefix);
        let Some(error) = error else {
            return self.root.omissions.note(&place, Word::Missing, LEADS_TO_NOTHING);
        };
        // If it leads to a file, reading that as a value reports the error.
        let leads_to = open_dir(&self.root, &self.prefix).ok().flatten();
        let leads_to = leads_to.and_then(|dir| statat(&dir, name, AtFlags::empty()).ok());
        let is_file = leads_to
            .is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) != FileType::Directory);
        if !is_file {
            self.root.omissions.note(&place, error.word(), error.detail());
        }
    }

    /// Notes a directory that is not shown: there may be nodes or chunks in it.
    fn omit(&self, entry: &DirEntry, why: &str) {
        if !matches!(entry.file_type(), FileType::RegularFile | FileType::Fifo | FileType::Socket) {
            let name = entry.file_name().to_string_lossy();
            let place = format!("{}{name}", self.prefix);
            self.root.omissions.note(&place, Word::Unsupported, why);
        }
    }

    /// Whether a directory holds anything that the store shows.
    fn holds_values(&self, name: &str) -> bool {
        let below = self.prefix.join(name).and_then(|prefix| Self::open(&self.root, &prefix));
        // List an unreadable directory, so that opening it reports an error.
        below.map_or(true, |below| below.is_none_or(|below| below.shown().next().is_some()))
    }

    /// Whether a name is a link that leads to itself, or to another link that does.
    fn leads_to_itself(&self, name: &str) -> bool {
        let dir = open_dir(&self.root, &self.prefix);
        dir.is_ok_and(|dir| {
            dir.is_some_and(|dir| statat(&dir, name, AtFlags::empty()).err() == Some(Errno::LOOP))
        })
    }

    /// Returns the type of the file that a name leads to, and whether it is a parent directory.
    fn target(&self, name: &str) -> LinkTarget {
        let found = || -> Result<_> {
            let key = self.prefix.key(name)?;
            let found = open_at(&self.root, key.as_str(), OFlags::PATH)?;
            Ok(found.map(|fd| File::from(fd).metadata()).transpose()?)
        };
        match found() {
            Ok(found) => {
                let kind = found.map_or(FileType::Unknown, |found| kind_of(&found));
                LinkTarget { kind, is_circle: false, error: None }
            }
            Err(error) => LinkTarget {
                kind: FileType::Unknown,
                is_circle: error.errno() == libc::ELOOP,
                error: Some(error),
            },
        }
    }
}

impl Iterator for DirectoryListing {
    type Item = Result<DirectoryEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.dir.next()?;
        Some(match entry {
            Ok(entry) => Ok(self.found(&entry)),
            Err(error) => Err(Error::from(error).at(&self.prefix)),
        })
    }
}

/// Whether a walk enters directories through links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Follow {
    /// Not: links may show the same directories under any number of names.
    None,
    /// As the look-up of a key does, at most [`MAX_FOLLOWED`] links.
    All,
}

/// Iterates over all keys below a prefix, depth first.
pub(super) struct KeyWalk {
    open: Vec<DirectoryListing>,
    follow: Follow,
    followed: usize,
}

impl KeyWalk {
    /// Begins with the entries of `listing`.
    pub(super) fn below(listing: Option<DirectoryListing>, follow: Follow) -> Self {
        Self { open: listing.into_iter().collect(), follow, followed: 0 }
    }

    /// Returns the key of an entry, or opens a directory to be walked next.
    fn enter(&mut self, found: DirectoryEntry) -> Result<Option<Key>> {
        let Some(listing) = self.open.last() else { return Ok(None) };
        match found.shown {
            Some(_) if found.is_circle => Ok(None),
            Some(_) if found.is_linked_dir && self.follow == Follow::None => Ok(None),
            Some(StoreEntry::Key(name)) => listing.prefix.key(&name).map(Some),
            Some(StoreEntry::Prefix(name)) => {
                if self.open.len() >= MAX_LEVELS {
                    let detail = format!("directories nested more than {MAX_LEVELS} deep");
                    return Err(Error::too_large(detail).at(&listing.prefix));
                }
                self.followed = self.followed.saturating_add(usize::from(found.is_linked_dir));
                if self.followed > MAX_FOLLOWED {
                    let detail = format!("symbolic links to more than {MAX_FOLLOWED} directories");
                    return Err(Error::too_large(detail).at(&listing.prefix));
                }
                let prefix = listing.prefix.join(&name)?;
                let mut below = DirectoryListing::open(&listing.root, &prefix)?;
                // A directory that a program has just removed is not listed any more.
                if below.is_none() && self.follow == Follow::All && listing.still_lists(&name) {
                    below = DirectoryListing::open(&listing.root, &prefix)?;
                    if below.is_none() {
                        let why = "it was listed, and then it was not there";
                        listing.root.omissions.note(prefix.as_str(), Word::Missing, why);
                    }
                }
                self.open.extend(below);
                Ok(None)
            }
            None => Ok(None),
        }
    }
}

impl Iterator for KeyWalk {
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
