//! Creates groups: from directories that programs made, and above new nodes.
//!
//! A directory that a program made is stored as a group when nothing was done in it for the delay,
//! not when something is stored below it: `cp -r` brings `zarr.json` after the children, and slow
//! chunks would turn directories of an array into groups. A store of Zarr 3 gets the metadata files
//! of groups above a new node at once, but the mount shows none until the program has had time.
//! Storing ordinary files makes no groups. A group without attributes and nodes may still become an
//! array, for programs that took longer.

use std::sync::Arc;

use bytes::Bytes;

use super::change::Changes;
use super::documents::{DocumentStep, Replaced};
use super::intent::{Documents, Intent};
use super::names::check_is_not_private;
use super::node::{Content, Document, Node, NodeState};
use crate::metadata::{NodeKind, NodePath};
use zarrfs_base::error::{Error, Kind, Result, WithSubject};
use zarrfs_store::directory::is_of_chunks;
use zarrfs_store::{Condition, Key};

impl Changes<'_> {
    /// Turns the directory `path`, which is no node, into a group.
    pub fn store_group(self, path: &NodePath) -> Result<Key> {
        // If another program has moved it, no group above it gets its name.
        let stored = self.existing(path)?.stored().cloned();
        self.store_groups_above(path)?;
        self.hierarchy.directories.note_became_group(path);
        if let Some(document) = stored {
            self.hierarchy.directories.remove_for_other(path);
            self.hierarchy.invalidate(path);
            self.copies()
                .update_consolidated(path, Some(&String::from_utf8_lossy(&document.text)))?;
            return Ok(document.key);
        }
        Ok(self.set_group_atomically(path)?.key)
    }

    /// Whether the node at `path` is a directory that a program made and that became a group by
    /// itself, with the document that it got then.
    pub fn is_directory_as_group(self, path: &NodePath) -> Result<bool> {
        if !self.hierarchy.directories.became_group(path) {
            return Ok(false);
        }
        // Another program may have changed it.
        let node = self.existing(path)?;
        let (_, text) = self.hierarchy.dialect().new_group(path)?;
        Ok(node.stored().is_some_and(|document| *document.text == *text.as_bytes()))
    }

    /// Returns the key and the text of the group that the directory `path` becomes, with the
    /// attributes that programs gave the directory.
    fn new_group(self, path: &NodePath) -> Result<(Key, String)> {
        let (key, text) = self.hierarchy.dialect().new_group(path)?;
        let edit = self.hierarchy.directories.attributes(path);
        if edit.is_empty() {
            return Ok((key, text));
        }
        let text = self.hierarchy.dialect().edit(NodeKind::Group, &text, &edit).at(&key)?;
        Ok((key, text))
    }

    /// Stores the document of the group that a directory becomes; returns the existing one if there
    /// is one.
    pub(super) fn put_group(self, path: &NodePath) -> Result<Document> {
        let (key, text) = self.new_group(path)?;
        self.check_is_new(path, &key)?;
        let home = self.home_of_stored(path)?;
        match self.hierarchy.documents.set((path, &home), &key, &text, Replaced::Absent) {
            Err(error) if error.kind() == Kind::Exists => {
                // Another program created a node here.
                self.hierarchy.directories.remove_for_other(path);
                self.hierarchy
                    .documents
                    .get(self.hierarchy.dialect(), path, &key)?
                    .ok_or_else(|| Error::not_found().at(&key))
            }
            stored => stored,
        }
    }

    /// Stores documents for the groups above a node, if the dialect needs them. Directories that
    /// programs made still show no document, so that programs can create one.
    pub(super) fn store_groups_above(self, path: &NodePath) -> Result<()> {
        check_is_not_private(path)?;
        let mut wanted = Vec::new();
        for above in path.ancestors() {
            // A stored node may lie below a node whose document was removed.
            let is_parent = path.parent().as_ref() == Some(&above);
            wanted.extend(self.group_above(&above, is_parent)?.map(|node| (above, node)));
        }
        for (above, node) in wanted {
            if !matches!(node.content, Content::Group(_)) {
                if node.is_bare() || node.kind() == NodeKind::Array {
                    return Err(Error::invalid("an array cannot contain nodes").at(above));
                }
                continue;
            }
            match &node.state {
                NodeState::Bare(None) | NodeState::Removed(_) => {
                    let document = self.put_group(&above)?;
                    self.hierarchy.directories.insert(Node::bare(above.clone(), Some(document)));
                    self.note_in_store(&above)?;
                    self.hierarchy.invalidate(&above);
                }
                NodeState::Implicit if self.hierarchy.dialect().wants_group_documents() => {
                    self.set_group_atomically(&above)?;
                }
                NodeState::Implicit
                | NodeState::Bare(Some(_))
                | NodeState::Stored(_)
                | NodeState::Unreadable(_) => {}
            }
        }
        Ok(())
    }

    /// Returns the node at `path`, which is above a new node. One that is about to get a document
    /// is compared with the store, and so is its parent, which another program may have made an
    /// array.
    fn group_above(self, path: &NodePath, is_parent: bool) -> Result<Option<Arc<Node>>> {
        if is_parent {
            return self.node(path);
        }
        let known = self.hierarchy.node(path)?;
        match known.as_ref().map(|node| &node.state) {
            Some(NodeState::Stored(_) | NodeState::Unreadable(_)) => Ok(known),
            _ => self.node(path),
        }
    }

    /// Stores the entry point that some dialects have at the root besides documents, unless it
    /// exists.
    pub fn store_entry_point(self) -> Result<Option<Key>> {
        let Some((key, text)) = self.hierarchy.dialect().new_entry_point()? else {
            return Ok(None);
        };
        match self.hierarchy.store().write()?.set(
            &key,
            &[Bytes::from(text).into()],
            Condition::Absent,
        ) {
            Err(error) if error.kind() != Kind::Exists => Err(error.at(&key)),
            _ => Ok(Some(key)),
        }
    }

    /// Keeps the directory `path` alive before something in it is removed: the store itself has no
    /// empty directories.
    pub fn keep_directory(self, path: &NodePath) -> Result<()> {
        let Some(node) = self.hierarchy.node(path)? else { return Ok(()) };
        self.hierarchy.directories.note_erased_in(path);
        match &node.state {
            NodeState::Implicit if !path.is_root() => self.set_group_atomically(path).map(drop),
            NodeState::Bare(None) if self.hierarchy.directories.get(path).is_none() => {
                let (state, content) = (NodeState::Removed(None), node.remembered());
                self.hierarchy.directories.insert(Node { path: path.clone(), state, content });
                self.note_in_store(path)?;
                self.hierarchy.invalidate(path);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Notes that the store has the directory `path`, if it does and will keep it when it is empty.
    pub(super) fn note_in_store(self, path: &NodePath) -> Result<()> {
        if !path.name().is_some_and(is_of_chunks)
            && self.hierarchy.reader().has_directory(&self.hierarchy.ordinary_prefix(path)?)?
        {
            self.hierarchy.directories.note_in_store(path);
        }
        Ok(())
    }

    /// Stores the document of a group without attributes atomically.
    pub(super) fn set_group_atomically(self, path: &NodePath) -> Result<Document> {
        let (key, text) = self.new_group(path)?;
        let step = DocumentStep { key, old: None, new: Some(text) };
        let intent = Intent::Documents(Documents {
            path: path.clone(),
            steps: vec![step],
            consolidated: None,
            stage: None,
        });
        let mut stored = None;
        self.atomic().atomically(&intent, false, |taken| {
            let document = stored.insert(self.put_group(path)?);
            taken.set(1);
            self.hierarchy.forget_unstored(path);
            self.copies().update_consolidated(path, Some(&String::from_utf8_lossy(&document.text)))
        })?;
        stored.ok_or_else(|| Error::new(Kind::Internal, "a metadata file was not stored"))
    }
}
