//! Files that the mount shows and the store keeps from some users.
//!
//! In a mount for several users, chunk files, metadata files and views belong to the user who
//! mounted. zarrfs reads them with the rights of that user, who may be root, so it must not show to
//! all users what the store shows to some. Such a file has the owner, the group and the mode that
//! the store's own files and directories have in common, and the kernel checks these.

use std::sync::Arc;

use rustix::process::geteuid;

use super::ordinary::OrdinaryFiles;
use crate::error::Result;
use crate::hierarchy::{Content, Document, Node};
use crate::metadata::{NodeKind, NodePath};
use crate::store::{FileKind, FileStat, FileStore, Key, Ownership};
use crate::vfs::core::Core;
use crate::vfs::inodes::place::{Place, Report};

/// The bits that a file or directory has if every user may read it.
const ALL_READ: u16 = 0o044;
/// The bits of one class of users.
const READ_AND_SEARCH: u16 = 0o5;

/// Knows which files of the mount show what the store keeps from some users.
pub(in crate::vfs) struct PrivateFiles {
    core: Arc<Core>,
    ordinary: Arc<OrdinaryFiles>,
}

impl PrivateFiles {
    /// Returns those of the hierarchy in `core`.
    pub fn new(core: Arc<Core>, ordinary: Arc<OrdinaryFiles>) -> Self {
        Self { core, ordinary }
    }

    /// Returns the owner and the mode that a generated file has because the store keeps what it
    /// shows from some users; `None` if every user may read that.
    pub fn ownership_of(&self, place: &Place) -> Result<Option<Ownership>> {
        if !self.core.options.has_others {
            return Ok(None);
        }
        if let Place::Report(
            Report::Errors | Report::Refused | Report::Unstored | Report::UnstoredBytes,
        ) = place
        {
            // They name files in directories of all users, and have their bytes.
            return Ok(Some(Ownership::of_process(0o400)));
        }
        let Some(files) = self.ordinary.store() else { return Ok(None) };
        let mut rights = Rights { files, found: None };
        match place {
            Place::Chunk(path, coords) => {
                let array = self.core.shown_array(path)?;
                if array.grid().contains(coords) {
                    let own = self.core.hierarchy.ordinary_prefix(path)?;
                    let key = array.key(coords)?;
                    if own.key(&coords.to_string())? != key {
                        rights.take_directories(own.as_str(), &key)?;
                    }
                    rights.take_file(&key)?;
                }
            }
            Place::Document(path) | Place::Attributes(path) => {
                let node = self.core.hierarchy.existing(path)?;
                if has_copies(&node) {
                    self.take_tree(&mut rights, path)?;
                } else {
                    self.take_documents(&mut rights, &node)?;
                }
            }
            Place::Copies(path) | Place::View(path, _) | Place::ViewsOf(path, _) => {
                self.take_tree(&mut rights, path)?;
            }
            Place::StoredDocument(path, key) => {
                let own = self.core.hierarchy.ordinary_prefix(path)?;
                if !key.as_str().starts_with(own.as_str()) {
                    rights.take_directories("", key)?;
                }
                rights.take_file(key)?;
            }
            Place::Node(_)
            | Place::ChunkDir(..)
            | Place::OrdinaryDir(..)
            | Place::Ordinary(..)
            | Place::Control
            | Place::StoredDir(_)
            | Place::Report(_)
            | Place::ViewsDir(_) => {}
        }
        Ok(rights.found)
    }

    /// Returns the owner and the mode of what a directory of a node shows of the node by extended
    /// attributes; `None` if every user may read that.
    pub fn ownership_of_node(&self, path: &NodePath) -> Result<Option<Ownership>> {
        let Some(files) = self.ordinary.store() else { return Ok(None) };
        let mut rights = Rights { files, found: None };
        if let Some(stat) = self.ordinary.stat(&Place::Node(path.clone()))? {
            rights.take_directory(&stat);
        }
        let node = self.core.hierarchy.existing(path)?;
        self.take_documents(&mut rights, &node)?;
        Ok(rights.found)
    }

    /// Returns the stat of the store's directory of a directory below `.zarrfs`, so that only those
    /// users can look into it who can look into the directory of the node.
    pub fn stat_of_control(&self, place: &Place) -> Result<Option<FileStat>> {
        match place {
            Place::StoredDir(path) | Place::ViewsDir(path) if self.core.options.has_others => {
                let found = self.ordinary.stat(&Place::Node(path.clone()))?;
                Ok(found.filter(|stat| stat.kind == FileKind::Directory))
            }
            _ => Ok(None),
        }
    }

    /// Takes the rights of a node and of all nodes below it.
    fn take_tree(&self, rights: &mut Rights<'_>, path: &NodePath) -> Result<()> {
        let mut rest = vec![self.core.hierarchy.existing(path)?];
        while let Some(node) = rest.pop() {
            if let Some(stat) = self.ordinary.stat(&Place::Node(node.path().clone()))? {
                rights.take_directory(&stat);
            }
            if node.kind() == NodeKind::Array {
                let chunks = Place::ChunkDir(node.path().clone(), Vec::new());
                if let Some(stat) = self.ordinary.stat(&chunks)? {
                    rights.take_directory(&stat);
                }
            }
            self.take_documents(rights, &node)?;
            if rights.is_least() {
                return Ok(());
            }
            if node.kind() == NodeKind::Group {
                // A node that cannot be read is not shown.
                rest.extend(self.core.hierarchy.children(node.path())?.filter_map(Result::ok));
            }
        }
        Ok(())
    }

    /// Takes the rights of the metadata files of a node.
    fn take_documents(&self, rights: &mut Rights<'_>, node: &Node) -> Result<()> {
        let own = self.core.hierarchy.ordinary_prefix(node.path())?;
        for key in node.stored().into_iter().flat_map(Document::keys) {
            if !key.as_str().starts_with(own.as_str()) {
                rights.take_directories("", &key)?;
            }
            rights.take_file(&key)?;
        }
        Ok(())
    }
}

/// Whether the metadata file of a group shows those of the nodes below it.
fn has_copies(node: &Node) -> bool {
    matches!(node.content(), Content::Group(group) if group.consolidated)
}

/// The rights that several files of a store have in common.
struct Rights<'f> {
    files: &'f dyn FileStore,
    /// `None` as long as every user may read all of them.
    found: Option<Ownership>,
}

impl Rights<'_> {
    /// Takes the rights to read a file; to read what it leads to, if it is a link.
    fn take_file(&mut self, key: &Key) -> Result<()> {
        match self.files.file_stat(key.as_str())? {
            // zarrfs follows a link only to files of its owner, or for the user who mounted.
            Some(stat) if stat.kind == FileKind::Link => {
                if let Some(target) = self.files.target_stat(key.as_str())? {
                    self.take(target.owner);
                }
            }
            Some(stat) => self.take(stat.owner),
            None => {}
        }
        Ok(())
    }

    /// Takes the rights to search the directories of `key` below `above`.
    fn take_directories(&mut self, above: &str, key: &Key) -> Result<()> {
        let mut parent = key.parent();
        while let Some(dir) = parent.as_key().filter(|dir| dir.as_str().len() > above.len()) {
            if let Some(stat) = self.files.file_stat(dir.as_str())? {
                self.take_directory(&stat);
            }
            parent = dir.parent();
        }
        Ok(())
    }

    /// Takes the rights to list and search a directory.
    fn take_directory(&mut self, stat: &FileStat) {
        let of_class = |shift: u16| {
            let bits = stat.owner.mode >> shift & 0o7;
            let read = if bits & READ_AND_SEARCH == READ_AND_SEARCH { 0o4 } else { 0 };
            let write = if bits == 0o7 { 0o2 } else { 0 };
            (read | write) << shift
        };
        let mode = of_class(6) | of_class(3) | of_class(0);
        self.take(Ownership { mode, ..stat.owner });
    }

    fn take(&mut self, owner: Ownership) {
        if owner.mode & ALL_READ == ALL_READ {
            return;
        }
        let mode = owner.mode & 0o666;
        self.found = Some(match self.found {
            None => Ownership { mode, ..owner },
            Some(found) if (found.uid, found.gid) == (owner.uid, owner.gid) => {
                Ownership { mode: found.mode & mode, ..found }
            }
            // What belongs to several users together can only be read by the one who mounted.
            Some(_) => Ownership::of_process(0o600),
        });
    }

    /// Whether no more rights can be lost.
    fn is_least(&self) -> bool {
        self.found
            .is_some_and(|found| found.uid == geteuid().as_raw() && found.mode | 0o700 == 0o700)
    }
}
