//! The names in `.zarrfs`: reports, metadata files as they are stored, lists of views, and other
//! states of the hierarchy.

use super::tree::Tree;
use crate::error::{Error, Kind, Result};
use crate::hierarchy::{Document, Node};
use crate::metadata::{NodeKind, NodePath};
use crate::store::{Key, ListableStore, STATES};
use crate::vfs::inodes::place::{DOCUMENT, GROUP, Place, Report, STORED, VIEWS, state_directory};
use crate::view::{Format, ROOT_NAME};

impl Tree {
    /// Returns the place of `name` in `.zarrfs` or a directory below it that is not a state.
    pub(super) fn find_in_control(&self, directory: &Place, name: &str) -> Result<Option<Place>> {
        match directory {
            Place::StoredDir(path) => self.find_stored_document(path, name),
            Place::ViewsDir(path) => self.find_list_of_views(path, name),
            Place::Control => Ok(match name {
                STORED => Some(Place::StoredDir(NodePath::root())),
                VIEWS => Some(Place::ViewsDir(NodePath::root())),
                name if self.has_states() && STATES.contains(&name) => Some(state_directory(name)?),
                name => Report::of_name(name).map(Place::Report),
            }),
            _ => Err(Error::new(Kind::NotDirectory, "not a directory")),
        }
    }

    /// Whether the store has other states of the hierarchy.
    pub fn has_states(&self) -> bool {
        self.core.hierarchy.store().list().is_some_and(ListableStore::has_states)
    }

    fn find_stored_document(&self, path: &NodePath, name: &str) -> Result<Option<Place>> {
        let Some(node) = self.core.hierarchy.node(path)? else { return Ok(None) };
        if let Some(key) = self.stored_documents(&node)?.into_iter().find(|key| key.name() == name)
        {
            return Ok(Some(Place::StoredDocument(path.clone(), key)));
        }
        if node.kind() == NodeKind::Array {
            return Ok(None);
        }
        let child = path.child(name)?;
        Ok(self.core.hierarchy.node(&child)?.map(|_| Place::StoredDir(child)))
    }

    fn find_list_of_views(&self, path: &NodePath, name: &str) -> Result<Option<Place>> {
        let Some(node) = self.core.hierarchy.node(path)? else { return Ok(None) };
        if name == GROUP || (name == ROOT_NAME && path.is_root()) {
            return Ok(Some(Place::ViewsOf(path.clone(), node.kind())).filter(|_| !node.is_bare()));
        }
        let Ok(child) = path.child(name) else { return Ok(None) };
        if node.kind() == NodeKind::Array {
            return Ok(None);
        }
        if let Some(node) = self.core.hierarchy.node(&child)?.filter(|node| !node.is_bare()) {
            return Ok(Some(match node.kind() {
                NodeKind::Array => Place::ViewsOf(child, NodeKind::Array),
                NodeKind::Group => Place::ViewsDir(child),
            }));
        }
        // Name the file that a user misses, such as `t2m.txt`.
        for (stem, _) in Format::split(name) {
            let Ok(child) = path.child(stem) else { continue };
            if let Some(node) = self.core.hierarchy.node(&child)?.filter(|node| !node.is_bare()) {
                return Ok(Some(Place::ViewsOf(child, node.kind())));
            }
        }
        Ok(None)
    }

    /// Returns the keys of a node's stored metadata files; for the root, also of the entry point.
    pub fn stored_documents(&self, node: &Node) -> Result<Vec<Key>> {
        let mut keys: Vec<Key> = node.document().map(Document::keys).unwrap_or_default();
        if node.path().is_root() {
            let entry = Key::parse(DOCUMENT)?;
            if !keys.contains(&entry) && self.core.hierarchy.store().stat(&entry)?.is_some() {
                keys.push(entry);
            }
        }
        Ok(keys)
    }

    /// Returns the keys at which the dialect may store the metadata of a node.
    pub fn stored_keys(&self, path: &NodePath) -> Result<Vec<Key>> {
        let dialect = self.core.hierarchy.dialect_of(path);
        let keys = dialect.document_keys(path)?.into_iter().map(|(_, key)| key);
        Ok(keys.chain(dialect.attributes_key(path)?).collect())
    }
}
