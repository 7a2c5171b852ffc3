//! Lists a node of a store that takes long before its metadata file was read.
//!
//! `ls` of a group then takes one request for its names, and `find` over many groups none for each.
//! The names in the store say enough unless one of them may belong to a chunk: then the metadata
//! file is read, since the chunks of an array have other names in the mount.
//!
//! Looking a node up by its name reads the metadata file: some servers list directories that are
//! empty by now, and `mkdir` must not find these.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use super::listing::Listings;
use super::tree::may_be_chunk;
use crate::error::Result;
use crate::hierarchy::Content;
use crate::metadata::{NodeKind, NodePath};
use crate::store::{Entries, StoreEntry};
use crate::vfs::inodes::place::{CONTROL, DOCUMENT, DirEntries, DirEntry, Place};
use crate::vfs::options::Presentation;

/// The names that are looked at before the first one is returned: a server sends that many.
const FIRST: usize = 1000;

/// The names in a node that is not read yet.
struct Unread {
    listings: Listings,
    path: NodePath,
    /// The first entries of the store, and those after them.
    first: VecDeque<Result<StoreEntry>>,
    stored: Entries,
    is_begun: bool,
    /// The names of the metadata files that the node may have.
    documents: Vec<(Option<NodeKind>, String)>,
    has_document: bool,
    is_at_end: bool,
    state: UnreadState,
}

/// Whether the metadata file was read, and the kind of the node.
enum UnreadState {
    /// Nothing. These names were returned.
    Unread(HashSet<String>),
    /// It is that of a group, which has the names of the store.
    Group,
    /// It is that of an array, or was not understood. These names were not returned yet.
    Other(DirEntries),
}

impl Listings {
    /// Returns the names in a node whose metadata file was not read, if the store takes long and
    /// has them in one place.
    pub(super) fn names_in_unread(&self, path: &NodePath) -> Result<Option<DirEntries>> {
        let hierarchy = &self.core.hierarchy;
        if !self.core.is_remote() || hierarchy.is_read(path) || hierarchy.is_own(path) {
            return Ok(None);
        }
        let prefix = hierarchy.ordinary_prefix(path)?;
        let dialect = hierarchy.dialect_of(path);
        let Some(list) = hierarchy.store().list() else { return Ok(None) };
        if dialect.children_prefix(path)? != prefix
            || hierarchy.is_in_folder(path)
            || self.core.form_of(path) != Presentation::Zarr3
        {
            return Ok(None);
        }
        let documents = dialect.document_keys(path)?.into_iter();
        Ok(Some(Box::new(Unread {
            listings: Self {
                core: Arc::clone(&self.core),
                names: Arc::clone(&self.names),
                dirs: Arc::clone(&self.dirs),
            },
            path: path.clone(),
            first: VecDeque::new(),
            stored: list.list_dir(&prefix)?,
            is_begun: false,
            documents: documents.map(|(kind, key)| (kind, key.name().to_owned())).collect(),
            has_document: false,
            is_at_end: false,
            state: UnreadState::Unread(HashSet::new()),
        })))
    }
}

impl Iterator for Unread {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Err(error) = self.begin() {
            self.end();
            return Some(Err(error));
        }
        loop {
            if let UnreadState::Other(names) = &mut self.state {
                return names.next();
            }
            let shown = match self.first.pop_front().or_else(|| self.stored.next()) {
                Some(entry) => entry.and_then(|entry| self.shown(entry)),
                None if self.is_at_end => return None,
                None => {
                    self.is_at_end = true;
                    self.made()
                }
            };
            if let Some(shown) = shown.transpose() {
                match (&shown, &mut self.state) {
                    (Ok((name, _)), UnreadState::Unread(returned)) => {
                        returned.insert(name.clone());
                    }
                    // The next name would only meet the same error, after as long a time.
                    (Err(_), _) => self.end(),
                    _ => {}
                }
                return Some(shown);
            }
        }
    }
}

impl Unread {
    /// Looks at the names that come first. If one of them may be of an array, reads the metadata
    /// file before a directory is taken for a node.
    fn begin(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_begun, true) {
            return Ok(());
        }
        self.first = self.stored.by_ref().take(FIRST).collect();
        if self.first.iter().flatten().any(|entry| self.may_be_of_array(entry)) {
            self.read()?;
        }
        Ok(())
    }

    fn may_be_of_array(&self, entry: &StoreEntry) -> bool {
        let is_document = |(kind, name): &(Option<NodeKind>, String)| {
            *kind == Some(NodeKind::Array) && name == entry.name()
        };
        may_be_chunk(entry.name()) || self.documents.iter().any(is_document)
    }

    fn end(&mut self) {
        self.is_at_end = true;
        self.first.clear();
        self.stored = Box::new(std::iter::empty());
    }

    /// Returns the name for an entry of the store; `None` for one that is not shown.
    fn shown(&mut self, entry: StoreEntry) -> Result<Option<DirEntry>> {
        if self.may_be_of_array(&entry) {
            self.read()?;
            if matches!(self.state, UnreadState::Other(_)) {
                return Ok(None);
            }
        }
        let is_document = self.documents.iter().any(|(_, name)| name == entry.name());
        if is_document && matches!(entry, StoreEntry::Key(_)) {
            let is_first = !std::mem::replace(&mut self.has_document, true);
            return Ok(is_first.then(|| self.document()));
        }
        let path = &self.path;
        Ok(match entry {
            StoreEntry::Prefix(name) if path.is_root() && name == CONTROL => None,
            StoreEntry::Prefix(name) => Some((name.clone(), Place::Node(path.child(&name)?))),
            StoreEntry::Key(name) => {
                let dialect = self.listings.core.hierarchy.dialect_of(path);
                let is_shown = !dialect.is_reserved(&name);
                is_shown.then(|| (name.clone(), Place::Ordinary(path.clone(), name)))
            }
        })
    }

    fn document(&self) -> DirEntry {
        (DOCUMENT.to_owned(), Place::Document(self.path.clone()))
    }

    /// Returns the name of the metadata file that the mount makes for a group without one.
    fn made(&self) -> Result<Option<DirEntry>> {
        if self.has_document {
            return Ok(None);
        }
        let node = self.listings.core.hierarchy.existing(&self.path)?;
        Ok((!node.is_bare()).then(|| self.document()))
    }

    /// Reads the metadata file, if that was not done, to know whether this is an array.
    fn read(&mut self) -> Result<()> {
        let UnreadState::Unread(returned) = &mut self.state else { return Ok(()) };
        let node = self.listings.core.hierarchy.existing(&self.path)?;
        if matches!(node.content(), Content::Group(_)) {
            self.state = UnreadState::Group;
            return Ok(());
        }
        let returned = std::mem::take(returned);
        let names = self.listings.names_in_read(&self.path)?;
        let names =
            names.filter(move |it| it.as_ref().map_or(true, |(name, _)| !returned.contains(name)));
        self.state = UnreadState::Other(Box::new(names));
        Ok(())
    }
}
