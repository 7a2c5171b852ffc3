//! Consolidated metadata: copies of all documents below a group, kept current in its own document.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::documents::{ATTEMPTS, Replaced, is_conflict, too_many_conflicts};
use super::node::{Content, Node};
use super::nodes::Hierarchy;
use super::walk::Bounds;
use crate::metadata::consolidated::Copied;
use crate::metadata::model::Group;
use crate::metadata::{NodeKind, NodePath};
use zarrfs_base::error::{Kind, Result, WithSubject};
use zarrfs_codec::json::{self, foreign};
use zarrfs_store::{Condition, Key};

/// The copies of metadata files in the groups above them.
#[derive(Debug, Clone, Copy)]
pub struct CopiesAbove<'h> {
    pub(super) hierarchy: &'h Hierarchy,
    /// When the change began. Nothing that is copied was read before.
    since: Instant,
}

impl Hierarchy {
    /// Returns the copies of metadata files in the groups above them.
    pub fn copies(&self) -> CopiesAbove<'_> {
        self.copies_since(Instant::now())
    }

    /// Like [`Self::copies`], for a change that began at `since`.
    pub(super) fn copies_since(&self, since: Instant) -> CopiesAbove<'_> {
        CopiesAbove { hierarchy: self, since }
    }
}

/// Whether a node is a group with consolidated metadata in its own metadata file.
fn has_copies(node: &Node) -> bool {
    matches!(node.content(), Content::Group(Group { consolidated: true, .. }))
        && node.document().is_some()
}

impl CopiesAbove<'_> {
    /// Returns a node as the store has it now.
    fn node(self, path: &NodePath) -> Result<Option<Arc<Node>>> {
        self.hierarchy.node_since(path, self.since)
    }

    /// Whether copies are stored under a key of their own now.
    fn are_stored(self, copies: &Key) -> Result<bool> {
        Ok(self.hierarchy.store().stat_since(copies, self.since)?.is_some())
    }

    /// Returns the stored documents below a group with their relative paths. A group without a
    /// document has an empty one.
    pub(super) fn documents_below(self, group: &NodePath) -> Result<Vec<(String, String)>> {
        let mut documents = Vec::new();
        let bounds = Bounds { text_len: json::max_text_len(), ..Bounds::COPIES };
        for child in self.hierarchy.walk_below_since(group, bounds, self.since)? {
            let child = child?;
            let relative = child.path().relative_to(group).unwrap_or_default().to_owned();
            documents.push((relative, self.text_of(&child)?));
        }
        Ok(documents)
    }

    /// Updates the copies of the document of `path` in the groups above it. `None` removes the
    /// copies of `path` and of all nodes below it.
    pub(super) fn update_consolidated(self, path: &NodePath, document: Option<&str>) -> Result<()> {
        if let Some(above) = &self.hierarchy.above {
            return self.hierarchy.change_above(above, path, |whole, path| {
                whole.copies().update_consolidated(path, document)
            });
        }
        // Copies are UTF-8 in any case.
        let document = document.map(foreign::shown);
        let document = document.as_deref();
        path.ancestors().iter().try_for_each(|group| self.update_copy(group, path, document))?;
        for group in path.ancestors().iter().chain([path]) {
            if let Some(copies) = self.hierarchy.dialect_of(group).shared_copies(group)? {
                self.update_shared_copy(&copies, group, path, document)?;
            }
        }
        match document.map(|_| self.gone_since(path)).transpose()?.flatten() {
            Some(gone) => self.update_consolidated(&gone, None),
            None => Ok(()),
        }
    }

    /// Returns the outermost of the nodes at and above `path` that are gone, if the one at `path`,
    /// which was stored just now, is: another program has moved or removed it, and changed the
    /// copies before they got the new node. Only a store of files is asked.
    fn gone_since(self, path: &NodePath) -> Result<Option<NodePath>> {
        if self.hierarchy.store().files().is_none() || !self.has_copies_above(path)? {
            return Ok(None);
        }
        let now = self.hierarchy.copies();
        let is_gone = |path: &NodePath| -> Result<bool> {
            Ok(now.node(path)?.is_none_or(|node| node.is_bare() && node.stored().is_none()))
        };
        if !is_gone(path)? {
            return Ok(None);
        }
        for above in path.ancestors() {
            if !above.is_root() && is_gone(&above)? {
                return Ok(Some(above));
            }
        }
        Ok(Some(path.clone()))
    }

    /// Updates copies that a library stored under a key of their own.
    fn update_shared_copy(
        self,
        copies: &Key,
        group: &NodePath,
        path: &NodePath,
        document: Option<&str>,
    ) -> Result<()> {
        if !self.are_stored(copies)? {
            return Ok(());
        }
        let kind = self.node(path)?.map_or(NodeKind::Group, |node| node.kind());
        let key = self.hierarchy.documents.key_of(path, kind)?;
        self.change_shared_copies(copies, path, &|text| {
            self.hierarchy.dialect().set_shared_copy(text, group, path, &key, document)
        })
    }

    /// Changes the copies that are stored under a key of their own, if it exists.
    fn change_shared_copies(
        self,
        copies: &Key,
        path: &NodePath,
        change: &dyn Fn(&str) -> Result<String>,
    ) -> Result<()> {
        for attempt in 0..ATTEMPTS {
            if attempt == 0 && !self.are_stored(copies)? {
                return Ok(());
            }
            let Some(value) = self.hierarchy.store().get(copies, json::max_text_len())? else {
                return Ok(());
            };
            let text = String::from_utf8_lossy(&value.bytes);
            let new = match change(&text) {
                Ok(new) => new,
                // No library reads corrupt copies, so there is nothing to keep current.
                Err(error) if error.kind() == Kind::Corrupt => return Ok(()),
                Err(error) => return Err(error.at(copies)),
            };
            let condition = Condition::Unchanged(value.stat.version);
            match self.hierarchy.store().write()?.set(copies, &[Bytes::from(new).into()], condition)
            {
                Err(error) if is_conflict(&error) => {}
                stored => return stored.map(drop),
            }
        }
        Err(too_many_conflicts(path))
    }

    /// Rebuilds the copies of `path` and the nodes below it in the groups above, from the stored
    /// documents.
    pub(super) fn rebuild_copies(self, path: &NodePath) -> Result<()> {
        if let Some(above) = &self.hierarchy.above {
            return self
                .hierarchy
                .change_above(above, path, |whole, path| whole.copies().rebuild_copies(path));
        }
        if !self.has_copies_above(path)? {
            return Ok(());
        }
        let mut documents = Vec::new();
        let is_node = |node: &Arc<Node>| !node.is_bare() || node.stored().is_some();
        if let Some(node) = self.node(path)?.filter(is_node) {
            let key = self.hierarchy.documents.key_of(path, node.kind())?;
            documents.push(Copied { path: path.clone(), key, document: self.text_of(&node)? });
            if node.kind() == NodeKind::Group {
                self.add_copied_below(path, &mut documents)?;
            }
        }
        for group in path.ancestors() {
            let relative =
                |path: &NodePath| path.relative_to(&group).unwrap_or_default().to_owned();
            self.change_copies(&group, &|text| {
                let copy = |copied: &Copied| (relative(&copied.path), copied.document.clone());
                let copies: Vec<_> = documents.iter().map(copy).collect();
                self.hierarchy.dialect().replace_consolidated(text, &relative(path), &copies)
            })?;
        }
        for group in path.ancestors().iter().chain([path]) {
            let Some(copies) = self.hierarchy.dialect_of(group).shared_copies(group)? else {
                continue;
            };
            self.change_shared_copies(&copies, path, &|text| {
                self.hierarchy.dialect().replace_shared_copies(text, group, path, &documents)
            })?;
        }
        Ok(())
    }

    /// Returns the stored document of a node, an empty one for a group that has none.
    pub(super) fn text_of(self, node: &Node) -> Result<String> {
        match node.stored() {
            Some(document) => {
                Ok(foreign::shown(&String::from_utf8_lossy(&document.text)).into_owned())
            }
            None => Ok(self.hierarchy.dialect().new_group(node.path())?.1),
        }
    }

    /// Whether the group is shown with consolidated metadata.
    pub fn shows_consolidated(self, node: &Node) -> Result<bool> {
        let in_document = matches!(node.content(), Content::Group(group) if group.consolidated);
        Ok(in_document || self.has_shared_copies(node)?)
    }

    /// Whether the store keeps the copies of a group under a key of their own, which are shown as
    /// consolidated metadata.
    pub(super) fn has_shared_copies(self, node: &Node) -> Result<bool> {
        match self.hierarchy.dialect_of(node.path()).own_copies(node.path())? {
            Some(copies) if node.document().or(node.removed()).is_some() => {
                Ok(self.hierarchy.store().stat(&copies)?.is_some())
            }
            Some(_) | None => Ok(false),
        }
    }

    /// Rebuilds or erases the copies under a key of their own, if the dialect has them.
    pub(super) fn set_shared_copies(self, group: &NodePath, wanted: bool) -> Result<()> {
        let Some(copies) = self.hierarchy.dialect().own_copies(group)? else {
            return Ok(());
        };
        let write = self.hierarchy.store().write()?;
        if !wanted {
            return write.erase_values(std::slice::from_ref(&copies));
        }
        for attempt in 0..ATTEMPTS {
            // After a conflict, what was read before it is too old.
            let now = if attempt == 0 { self } else { self.hierarchy.copies() };
            let before = self.hierarchy.store().stat_since(&copies, now.since)?;
            let text = now.all_shared_copies(group)?;
            let condition =
                before.map_or(Condition::Absent, |stat| Condition::Unchanged(stat.version));
            match write.set(&copies, &[Bytes::from(text).into()], condition) {
                Err(error) if is_conflict(&error) => {}
                stored => return stored.map(drop),
            }
        }
        Err(too_many_conflicts(group))
    }

    /// Returns new copies, as they are stored under a key of their own, of a group and all nodes
    /// below it.
    fn all_shared_copies(self, group: &NodePath) -> Result<String> {
        let mut documents = Vec::new();
        if let Some(document) = self.node(group)?.and_then(|node| node.stored().cloned()) {
            let text = foreign::shown(&String::from_utf8_lossy(&document.text)).into_owned();
            documents.push(Copied { path: group.clone(), key: document.key, document: text });
        }
        self.add_copied_below(group, &mut documents)?;
        let none = self.hierarchy.dialect().no_shared_copies();
        self.hierarchy.dialect().replace_shared_copies(&none, group, group, &documents)
    }

    /// Adds the documents of all nodes below a group.
    fn add_copied_below(self, group: &NodePath, documents: &mut Vec<Copied>) -> Result<()> {
        for (relative, document) in self.documents_below(group)? {
            let path = group.join(&relative)?;
            let kind = self.node(&path)?.map_or(NodeKind::Group, |node| node.kind());
            let key = self.hierarchy.documents.key_of(&path, kind)?;
            documents.push(Copied { path, key, document });
        }
        Ok(())
    }

    /// Whether any group above `path` may hold a copy of its document.
    pub(super) fn has_copies_above(self, path: &NodePath) -> Result<bool> {
        if let Some(above) = &self.hierarchy.above {
            return above.hierarchy.copies().has_copies_above(&above.path_of(path)?);
        }
        for group in path.ancestors() {
            if self.is_consolidated(&group)? {
                return Ok(true);
            }
        }
        for group in path.ancestors().iter().chain([path]) {
            if let Some(copies) = self.hierarchy.dialect_of(group).shared_copies(group)?
                && self.are_stored(&copies)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the document of a group holds copies.
    pub(super) fn is_consolidated(self, group: &NodePath) -> Result<bool> {
        Ok(self.node(group)?.is_some_and(|node| has_copies(&node)))
    }

    fn update_copy(self, group: &NodePath, path: &NodePath, document: Option<&str>) -> Result<()> {
        let relative = path.relative_to(group).unwrap_or_default();
        self.change_copies(group, &|text| {
            self.hierarchy.dialect().set_consolidated(text, relative, document)
        })
    }

    /// Changes the document of a group that holds copies, unless `change` returns `None`.
    fn change_copies(
        self,
        group: &NodePath,
        change: &dyn Fn(&str) -> Result<Option<String>>,
    ) -> Result<()> {
        if !self.is_consolidated(group)? {
            return Ok(());
        }
        for attempt in 0..ATTEMPTS {
            // After a conflict, what was read before it is too old.
            let now = if attempt == 0 { self } else { self.hierarchy.copies() };
            let Some(node) = now.node(group)? else { return Ok(()) };
            let Some(stored) = node.document() else { return Ok(()) };
            let text = match self.hierarchy.documents.whole_text(stored) {
                Err(error) if is_conflict(&error) => continue,
                text => text?,
            };
            let Some(new) = change(&text).at(&stored.key)? else { return Ok(()) };
            let set = self.hierarchy.documents.set(
                (group, &stored.key.parent()),
                &stored.key,
                &new,
                Replaced::Unchanged(stored),
            );
            self.hierarchy.invalidate(group);
            match set {
                Err(error) if is_conflict(&error) => {}
                stored => return stored.map(drop),
            }
        }
        Err(too_many_conflicts(group))
    }
}

/// The consolidated metadata of a group.
#[derive(Debug)]
pub struct GroupCopies {
    /// The key of the value that holds them.
    pub key: Key,
    /// The copy of each node.
    pub nodes: Vec<NodeCopy>,
}

/// A copy of the metadata file of a node.
#[derive(Debug)]
pub struct NodeCopy {
    /// The path of the node.
    pub path: NodePath,
    /// The copy, with the attributes of the node.
    pub text: String,
    /// The parsed copy.
    pub content: Result<Content>,
}

impl CopiesAbove<'_> {
    /// Returns the consolidated metadata that a group has in the store, `None` if it has none.
    pub fn in_group(self, group: &NodePath) -> Result<Option<GroupCopies>> {
        let dialect = self.hierarchy.dialect_of(group);
        let (key, text) = if let Some(key) = dialect.shared_copies(group)? {
            let Some(value) = self.hierarchy.store().get(&key, json::max_text_len())? else {
                return Ok(None);
            };
            (key, value.bytes)
        } else {
            let node = self.hierarchy.node(group)?;
            let Some(document) = node.as_ref().and_then(|node| node.document()) else {
                return Ok(None);
            };
            // For a reader, the node as it was read is new enough.
            if !node.as_ref().is_some_and(|node| has_copies(node)) {
                return Ok(None);
            }
            let text = self.hierarchy.documents.whole_text(document)?;
            (document.key.clone(), Bytes::from(text))
        };
        let mut nodes = Vec::new();
        for (relative, kind, copy) in dialect.copied_nodes(&text).at(&key)? {
            let path = group.join(&relative).at(&key)?;
            let lowered = dialect.lower(Some(kind), copy.as_bytes());
            let content = lowered.node.and_then(|node| self.hierarchy.bind(&path, node));
            nodes.push(NodeCopy { path, text: copy, content });
        }
        nodes.sort_by(|one, other| one.path.as_str().cmp(other.path.as_str()));
        Ok(Some(GroupCopies { key, nodes }))
    }

    /// Rebuilds the consolidated metadata of a group from the metadata files below it.
    pub fn rebuild(self, group: &NodePath) -> Result<()> {
        // After the text that the change is based on, so that no node that another mount adds
        // meanwhile is lost.
        let forget = || -> Result<()> {
            if let Some(list) = self.hierarchy.store().list() {
                list.forget_below(&self.hierarchy.ordinary_prefix(group)?);
            }
            self.hierarchy.invalidate_below(group);
            Ok(())
        };
        if let Some(copies) = self.hierarchy.dialect_of(group).shared_copies(group)? {
            return self.change_shared_copies(&copies, group, &|_| {
                forget()?;
                self.all_shared_copies(group)
            });
        }
        self.change_copies(group, &|text| {
            forget()?;
            let documents = self.documents_below(group)?;
            self.hierarchy.dialect_of(group).consolidate(text, &documents).map(Some)
        })
    }
}
