//! Metadata files that programs write: of new nodes, of existing nodes, and in the stored dialect.

use std::sync::Arc;

use super::chunks::ChunkWriter;
use super::convert;
use super::memory::UnstoredMemory;
use super::stored::StoredFiles;
use super::unsynced::Unsynced;
use crate::error::{Error, Kind, Result, WithSubject};
use crate::hierarchy::{Content, ConvertedFiles, Document, Node, NodeForm, Raised, TextPurpose};
use crate::json;
use crate::metadata::merge::Edit;
use crate::metadata::model::Group;
use crate::metadata::shown::ShownChunks;
use crate::metadata::{NodeKind, NodePath, merge, model};
use crate::store::Key;
use crate::vfs::authors::{Processes, Thread};
use crate::vfs::core::Core;
use crate::vfs::inodes::place::Place;
use crate::vfs::names::Names;
use crate::vfs::names::listing::Listings;

/// A metadata file as its writer has seen it.
#[derive(Debug, Clone, Copy, Default)]
pub struct SeenDocument<'t> {
    /// The text; `None` if that is not known.
    pub before: Option<&'t str>,
    /// The text as it is now, in the same form; `None` for that of the mount.
    pub now: Option<&'t str>,
    /// The file as it was written, if that is in another form.
    pub written: Option<&'t str>,
    /// Whether its writer has made it, where the mount had none.
    pub is_new: bool,
}

/// Stores metadata files.
pub(in crate::vfs) struct DocumentWriter {
    pub core: Arc<Core>,
    pub names: Arc<Names>,
    pub listings: Arc<Listings>,
    pub stored: Arc<StoredFiles>,
    pub chunks: Arc<ChunkWriter>,
    pub memory: Arc<UnstoredMemory>,
    pub unsynced: Arc<Unsynced>,
}

impl DocumentWriter {
    /// Stores `written`, which the programs `by` wrote, as the metadata file at `path`: a new node,
    /// or an edit of the one that they have `seen`.
    pub fn store_document(
        &self,
        path: &NodePath,
        seen: SeenDocument<'_>,
        written: &[u8],
        by: &Processes,
    ) -> Result<()> {
        self.core.hierarchy.directories.touch(path);
        // A group that the mount has made of the directory meanwhile may be replaced.
        let is_new = seen.is_new && !self.core.hierarchy.changes().is_directory_as_group(path)?;
        self.core.hierarchy.directories.forget_became_group(path);
        self.chunks.store_array(path)?;
        let node = self.node_to_write(path, is_new, seen.before.is_some())?;
        let stored = self.store_by(&node, seen, written, by);
        match &stored {
            // The chunks before it are what it says.
            Ok(()) => {
                self.chunks.latest.forget(path);
                for process in by.known().unwrap_or_default() {
                    self.chunks.latest.note_looked(path, Some(*process));
                }
            }
            Err(error) if error.kind() == Kind::Invalid && self.is_another(&node, written) => {
                self.chunks.latest.note_refused(path, by);
            }
            Err(_) => {}
        }
        stored
    }

    fn store_by(
        &self,
        node: &Node,
        seen: SeenDocument<'_>,
        written: &[u8],
        by: &Processes,
    ) -> Result<()> {
        let Some(before) = self.show_as_described(node, seen, written, by)? else {
            return self.store_in_form(node, seen, written);
        };
        let seen = SeenDocument { written: seen.written, ..SeenDocument::default() };
        let stored = self.store_in_form(node, seen, written);
        if stored.is_err() {
            self.show_in_form(node, before, by)?;
        }
        stored
    }

    /// Whether the metadata file `written` describes another array than `node`.
    fn is_another(&self, node: &Node, written: &[u8]) -> bool {
        let now = self.core.hierarchy.shown().text_of(node, TextPurpose::Text);
        let is_array = node.array().is_some() && is_array(written);
        is_array && now.is_ok_and(|now| !merge::describe_one_node(now.as_bytes(), written))
    }

    fn store_in_form(&self, node: &Node, seen: SeenDocument<'_>, written: &[u8]) -> Result<()> {
        let (path, changes) = (node.path(), self.core.hierarchy.changes());
        if node.is_bare() {
            return match self.edit_of_removed(node, seen, written)? {
                Some((removed, edit)) => changes.restore(node, removed, &edit),
                None => self.create_node(node, &self.raise(path, seen, written)?),
            };
        }
        if is_plain_group(node) && is_array(written) {
            if seen.before.is_some_and(|seen| is_array(seen.as_bytes())) {
                let detail = "another program has replaced the array since its metadata was read";
                return Err(Error::new(Kind::Stale, detail));
            }
            return self.create_node(node, &self.raise(path, seen, written)?);
        }
        match self.edit_of(node, &self.base_of(node, seen, written)?, written) {
            Ok(edit) => changes.edit_like(path, Some(node), &edit),
            Err(error) if error.kind() == Kind::Invalid && is_array(written) => {
                self.replace_array(node, seen, written, error)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the node at `path` as the store has it now, for a program that writes its metadata
    /// file. Fails if the program sees no node there, or saw none when it made the file (`is_new`),
    /// and another one has made one; or if it has seen a node there (`knew_node`) that another one
    /// has removed.
    pub fn node_to_write(
        &self,
        path: &NodePath,
        is_new: bool,
        knew_node: bool,
    ) -> Result<Arc<Node>> {
        let hierarchy = &self.core.hierarchy;
        let seen = hierarchy.existing(path)?;
        let node = hierarchy.changes().existing(path)?;
        if (seen.is_bare() || is_new) && !node.is_bare() {
            return Err(Error::new(Kind::Exists, "another program has just made a node here"));
        }
        // A program of this mount may make a directory of the same name, and then a new node.
        let was_removed_here =
            || node.removed().is_some() || hierarchy.directories.get(path).is_some();
        if knew_node && !is_new && node.is_bare() && !was_removed_here() {
            let detail = "another program has removed the node since its metadata was read";
            return Err(Error::new(Kind::Stale, detail));
        }
        Ok(node)
    }

    /// Replaces an array without chunks by the one that `written` describes. `difference` says why
    /// it is another one.
    fn replace_array(
        &self,
        node: &Node,
        seen: SeenDocument<'_>,
        written: &[u8],
        difference: Error,
    ) -> Result<()> {
        let Some(array) = node.array() else { return Err(difference) };
        if array.holds_chunks()? {
            return Err(difference);
        }
        self.create_node(node, &self.raise(node.path(), seen, written)?)
    }

    /// Returns how `written` differs from the document that was removed at the same place, if it
    /// describes the same node. Its stored form can then be kept.
    fn edit_of_removed<'n>(
        &self,
        node: &'n Node,
        seen: SeenDocument<'_>,
        written: &[u8],
    ) -> Result<Option<(&'n Document, Edit)>> {
        let Some(removed) = node.removed() else { return Ok(None) };
        let not_understood = node.array().and_then(|array| array.not_understood());
        if not_understood.is_some() && !self.holds_chunks(node)? {
            // A codec that is not known is not shown, so `written` cannot differ in it.
            return Ok(None);
        }
        match self.edit_of(node, &self.base_of(node, seen, written)?, written) {
            Ok(edit) => Ok(Some((removed, edit))),
            Err(_) if !self.holds_chunks(node)? => Ok(None),
            Err(error) => {
                let advice = "chunks of the removed array still exist";
                Err(Error::invalid(format!("{}; {advice}", error.detail())))
            }
        }
    }

    fn holds_chunks(&self, node: &Node) -> Result<bool> {
        match node.content() {
            Content::Array(array) => array.holds_chunks(),
            // An array that was not understood may have chunks under any key.
            Content::NotUnderstood(..) => {
                let prefix = self.core.hierarchy.ordinary_prefix(node.path())?;
                let list = self.core.hierarchy.store().list();
                list.map_or(Ok(true), |list| Ok(list.list_prefix(&prefix)?.next().is_some()))
            }
            Content::Group(_) => Ok(false),
        }
    }

    /// Returns the stored form of a new node. A copy of another node of this mount is stored like
    /// that node.
    fn raise(&self, path: &NodePath, seen: SeenDocument<'_>, written: &[u8]) -> Result<Raised> {
        let raised = match self.raise_copy(path, seen, written) {
            Some(raised) => raised,
            None => self.core.hierarchy.raise(path, written)?,
        };
        self.core.hierarchy.with_attributes_of_directory(path, raised)
    }

    fn raise_copy(
        &self,
        path: &NodePath,
        seen: SeenDocument<'_>,
        written: &[u8],
    ) -> Option<Raised> {
        let hierarchy = &self.core.hierarchy;
        if !hierarchy.options().keeps_copied {
            return None;
        }
        let text = seen.written.map_or(written, str::as_bytes);
        let source = self.names.seen_texts.source_of(path, text)?;
        // If it does not say how, the copy is stored like any other new node.
        let copy = || {
            let shown =
                self.names.zarr2.shown_at(&Place::Document(source.clone()), TextPurpose::Text)?;
            let is_decoded = |node: &Node| {
                let array = node.array();
                array.is_none_or(|array| {
                    hierarchy.forms.encoded_chunks(&source, array.model()).is_none()
                })
            };
            match hierarchy.node(&source)? {
                Some(node) if is_decoded(&node) && shown.as_bytes() == text => {
                    hierarchy.raise_copy(path, written, &node)
                }
                _ => Ok(None),
            }
        };
        copy().unwrap_or_else(|error: Error| {
            log::debug!("{} is not stored like {}: {error}", path.as_str(), source.as_str());
            None
        })
    }

    /// Creates a node from a directory that is none, or an array from a group without attributes.
    fn create_node(&self, node: &Node, raised: &Raised) -> Result<()> {
        let path = node.path();
        let encoded = raised.encoded().cloned().map(Arc::new);
        let before = self.core.hierarchy.forms.change(path, |form| {
            *form = NodeForm { encoded, keys: raised.keys(), ..*form };
        });
        self.create_in_form(node, raised).inspect_err(|_| {
            self.core.hierarchy.forms.change(path, |form| *form = before);
        })
    }

    fn create_in_form(&self, node: &Node, raised: &Raised) -> Result<()> {
        let path = node.path();
        let replaced = node.stored();
        let Some(array) = raised.array() else {
            if node.kind() == NodeKind::Array {
                self.check_no_directories(path)?;
            }
            self.core.hierarchy.changes().put_document(path, raised, replaced)?;
            return Ok(());
        };
        let array = &self
            .core
            .hierarchy
            .forms
            .array_in(array, raised.encoded().map(|chunks| chunks.levels));
        let mut below = self.below_new_array(node, array)?;
        let inodes = below.inodes();
        let mut files = convert::lock(&inodes);
        match self.encode_below(path, &mut below, &mut files, array)? {
            Some(aside) => {
                let plain = self.plain_keys(&below)?;
                let from = ConvertedFiles { aside: &aside, files: &plain, groups: &below.groups };
                self.core.hierarchy.changes().put_converted(path, raised, replaced, from)?;
                self.note_converted(&below, plain, array)?;
            }
            None => drop(self.core.hierarchy.changes().put_document(path, raised, replaced)?),
        }
        if node.kind() == NodeKind::Array {
            // They are those of the array before, which has no chunks left.
            self.names.overlay.forget_directories(path);
        }
        let settled = self.settle_below(path, &below, files, array.grid().rank());
        drop(below);
        for inode in inodes {
            self.names.inodes.release(inode);
        }
        settled
    }

    /// Returns the document of a node with which `written` is compared: as its writer saw it, if it
    /// still describes this node. Fails if the writer describes the node that it saw, and another
    /// program has replaced that.
    pub(super) fn base_of(
        &self,
        node: &Node,
        seen: SeenDocument<'_>,
        written: &[u8],
    ) -> Result<Arc<str>> {
        let now = match seen.now {
            Some(now) => now.into(),
            None => self.core.hierarchy.shown().text_of(node, TextPurpose::Text)?,
        };
        let Some(seen) = seen.before.filter(|seen| **seen != *now) else { return Ok(now) };
        if merge::describe_one_node(seen.as_bytes(), now.as_bytes()) {
            return Ok(seen.into());
        }
        if !merge::describe_one_node(now.as_bytes(), written)
            && merge::describe_one_node(seen.as_bytes(), written)
        {
            let detail = "another program has replaced the node since its metadata was read";
            return Err(Error::new(Kind::Stale, detail));
        }
        Ok(now)
    }

    /// Returns how `written` differs from the document of `node` that was shown as `base`.
    pub(super) fn edit_of(&self, node: &Node, base: &str, written: &[u8]) -> Result<Edit> {
        let (described, chunks) = match node.content() {
            Content::Group(group) => {
                (model::NodeMetadata::Group(group.clone()), ShownChunks::default())
            }
            Content::Array(array) => {
                let described = model::NodeMetadata::Array(Box::new(array.model().clone()));
                (described, self.core.hierarchy.shown().chunks_of(node, array))
            }
            Content::NotUnderstood(_, error) => return Err(error.clone()),
        };
        merge::diff(base, written, &described, &chunks)
    }

    /// Refuses directories below: they belong to the removed array, and cannot lie in a group.
    fn check_no_directories(&self, path: &NodePath) -> Result<()> {
        for found in self.listings.entries(&Place::Node(path.clone()))? {
            let (_, place) = found?;
            if place.is_dir() {
                let detail = "it belongs to the removed array; remove it first";
                return Err(Error::invalid(detail).at(place.shown()));
            }
        }
        Ok(())
    }

    /// Notes that a program has read a metadata file in the stored dialect.
    pub fn note_stored_reader(&self, path: &NodePath, key: &Key, by: Thread) {
        // Reading it reports an error.
        let node = self.core.hierarchy.node(path).ok().flatten();
        let document = node.as_ref().and_then(|node| node.document());
        if let Some(document) = document.filter(|document| document.key == *key) {
            let place = Place::StoredDocument(path.clone(), key.clone());
            self.names.seen_texts.note(&place, by, &text_of(document));
        }
    }

    /// Stores `written` as the document of a node in the stored dialect.
    pub fn store_stored_document(
        &self,
        path: &NodePath,
        key: &Key,
        written: &[u8],
        by: &Processes,
    ) -> Result<()> {
        let changes = self.core.hierarchy.changes();
        self.core.hierarchy.directories.touch(path);
        self.chunks.store_array(path)?;
        let node = changes.existing(path)?;
        let raised = self.core.hierarchy.raise_stored(path, key, written)?;
        if node.is_bare() {
            if node.removed().is_some() && self.holds_chunks(&node)? {
                let detail = "chunks of the removed array still exist";
                return Err(Error::invalid(detail));
            }
            return self.create_node(&node, &raised);
        }
        let Some(document) = node.document().filter(|document| document.key == *key) else {
            let detail = "the node has another metadata file";
            return Err(Error::new(Kind::Exists, detail));
        };
        let place = Place::StoredDocument(path.clone(), key.clone());
        if self.names.seen_texts.is_outdated(&place, by, &text_of(document)) {
            let detail = "another program has changed it since this one has read it: read it again";
            return Err(Error::new(Kind::Stale, detail).at(path));
        }
        match (node.content(), raised.array()) {
            (Content::Array(old), Some(new)) => {
                if !old.model().means_same(new.model()) && old.holds_chunks()? {
                    return Err(Error::invalid(
                        "stored chunks would be misread: only shape, attributes and dimension \
                         names of an array with chunks can change",
                    ));
                }
                changes.put_document(path, &raised, Some(document)).map(drop)
            }
            (Content::Group(_), Some(_)) if is_plain_group(&node) => {
                self.create_node(&node, &raised)
            }
            (Content::Group(_), None) | (Content::NotUnderstood(..), _) => {
                changes.put_document(path, &raised, Some(document)).map(drop)
            }
            (Content::Group(_), Some(_)) | (Content::Array(_), None) => {
                Err(Error::invalid("node_type cannot change: remove the node and create it again"))
            }
        }
    }

    /// Makes the kernel drop its pages of a metadata file, because it reads back differently than
    /// it was written.
    pub fn invalidate_document(&self, path: &NodePath) {
        if let Some(inode) = self.names.inodes.known_at(&Place::Document(path.clone())) {
            self.core.invalidate(inode.number());
        }
    }
}

/// Whether a node is a group without attributes, such as a directory becomes by itself.
pub fn is_plain_group(node: &Node) -> bool {
    match node.content() {
        Content::Group(Group { attributes, consolidated }) => {
            let says_nothing = attributes.is_empty() && !consolidated;
            says_nothing && !node.is_bare() && !node.path().is_root()
        }
        Content::Array(_) | Content::NotUnderstood(..) => false,
    }
}

pub(super) fn is_array(written: &[u8]) -> bool {
    json::parse_object(written)
        .is_ok_and(|document| document.get("node_type").is_some_and(|kind| kind == "array"))
}

/// Returns the text of a stored metadata file.
fn text_of(document: &Document) -> Arc<str> {
    String::from_utf8_lossy(&document.text).into()
}
