//! Lists the nodes, directories and ordinary files directly below a group.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::node::Node;
use super::nodes::Hierarchy;
use crate::error::{At, Error, Result};
use crate::limits;
use crate::metadata::NodePath;
use crate::store::Entry;

/// An entry directly below a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Member {
    /// A node, or a directory of ordinary files.
    Directory(String),
    /// An ordinary file.
    File(String),
}

/// An iterator over members, each of them once.
pub type Members<'a> = Box<dyn Iterator<Item = Result<Member>> + Send + 'a>;

impl Hierarchy {
    /// Returns the members of a group, without its own document.
    pub fn members(&self, path: &NodePath) -> Result<Members<'static>> {
        let known = self.directories.below(path);
        let stored = self.stored_members(path)?;
        let names: HashSet<String> = known.iter().cloned().collect();
        let stored = stored.filter(move |member| match member {
            Ok(Member::Directory(name)) => !names.contains(name),
            Ok(Member::File(_)) | Err(_) => true,
        });
        Ok(Box::new(known.into_iter().map(|name| Ok(Member::Directory(name))).chain(stored)))
    }

    fn stored_members(&self, path: &NodePath) -> Result<Members<'static>> {
        let Some(list) = self.store().list() else {
            let names = self.hinted().names(path)?.into_iter();
            return Ok(Box::new(names.map(|name| Ok(Member::Directory(name)))));
        };
        let nodes = self.dialect_of(path).children_prefix(path)?;
        let ordinary = self.ordinary_prefix(path)?;
        let (dialect, parent) = (self.dialect_of(path).clone(), path.clone());
        if nodes == ordinary {
            let entries = list.list_dir(&ordinary)?;
            return Ok(Box::new(entries.filter_map(move |entry| match entry {
                Ok(Entry::Prefix(name)) => Some(Ok(Member::Directory(name))),
                Ok(Entry::Key(name)) if dialect.is_reserved(&parent, &name) => None,
                Ok(Entry::Key(name)) => Some(Ok(Member::File(name))),
                Err(error) => Some(Err(error)),
            })));
        }
        // With two trees, a name may occur in both, or twice in one.
        let mut names = BTreeMap::new();
        for entry in list.list_dir(&nodes)? {
            let Some(child) = dialect.child(&entry?) else { continue };
            if child.certain || self.reader().is_implicit_group(&path.child(&child.name)?)? {
                names.insert(child.name.clone(), Member::Directory(child.name));
            }
        }
        for entry in list.list_dir(&ordinary)? {
            match entry? {
                Entry::Prefix(name) => {
                    names.entry(name.clone()).or_insert(Member::Directory(name));
                }
                Entry::Key(name) if !dialect.is_reserved(&parent, &name) => {
                    names.entry(name.clone()).or_insert(Member::File(name));
                }
                Entry::Key(_) => {}
            }
        }
        Ok(Box::new(names.into_values().map(Ok)))
    }

    /// Returns the sorted names directly below a group that may be nodes.
    pub fn child_names(&self, path: &NodePath) -> Result<Vec<String>> {
        let Some(list) = self.store().list() else { return self.hinted().names(path) };
        let (mut names, mut len) = (Vec::new(), 0_usize);
        for entry in list.list_dir(&self.dialect_of(path).children_prefix(path)?)? {
            let Some(child) = self.dialect_of(path).child(&entry?) else { continue };
            len = len.saturating_add(child.name.capacity()).saturating_add(size_of::<String>());
            if limits::GROUP_NAMES.is_exceeded_by(len) {
                let detail =
                    format!("the names in it take too much memory, {}", limits::GROUP_NAMES);
                return Err(Error::too_large(detail).at(path));
            }
            names.push(child.name);
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// Returns the node at `path`, one of the child names; `None` if it is no node. A directory
    /// that this process may not search may be one.
    pub fn child_node(&self, path: &NodePath) -> Result<Option<Arc<Node>>> {
        let is_node =
            |node: &Arc<Node>| !node.is_bare() || node.stored().is_some() || node.is_closed();
        Ok(self.node(path)?.filter(is_node))
    }

    /// Returns the nodes directly below a group, sorted by name. Each is read when the iterator
    /// reaches it.
    pub fn children(
        &self,
        path: &NodePath,
    ) -> Result<impl Iterator<Item = Result<Arc<Node>>> + use<'_>> {
        let (names, path) = (self.child_names(path)?, path.clone());
        Ok(names.into_iter().filter_map(move |name| {
            let path = path.child(&name);
            path.and_then(|path| self.child_node(&path)).transpose()
        }))
    }

    /// Whether the store holds a hierarchy: its root has a document, or nodes below it.
    pub fn exists(&self) -> Result<bool> {
        let root = NodePath::root();
        Ok(self.existing(&root)?.document().is_some()
            || self.children(&root)?.next().transpose()?.is_some())
    }
}
