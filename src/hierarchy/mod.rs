//! Nodes by path: documents read, lowered, kept for a while, and edited.
//!
//! A node that was read stays as it is for [`Options::metadata_ttl`]; then the version
//! of its document is asked for, and the document is read again only where that changed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::RwLock;
use serde_json::{Map, Value};

use crate::array::Array;
use crate::error::{At, Error, Kind, Result};
use crate::metadata::merge::Edit;
use crate::metadata::model::{self, Group};
use crate::metadata::{Dialect, NodeKind, NodePath, Policy, detect, json, shown};
use crate::store::{Condition, Entry, Key, Prefix, Stat, Store};

/// How many keys below a prefix are looked at to find out whether a node is among them.
const IMPLICIT_GROUP_SEARCH: usize = 10_000;

/// How many nodes are kept; a walk over more of them must not fill the memory.
const MAX_NODES: usize = 10_000;

/// How often an edit starts again because someone else changed the document meanwhile.
const ATTEMPTS: usize = 100;

/// How a hierarchy is read.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long what was read of a document is taken to be so.
    pub metadata_ttl: Duration,
    /// The most bytes that a decoded chunk may have.
    pub max_chunk_len: u64,
    /// How new arrays are stored.
    pub policy: Policy,
}

impl Default for Options {
    fn default() -> Self {
        let policy = Policy::default();
        Self { metadata_ttl: Duration::from_secs(1), max_chunk_len: 1 << 30, policy }
    }
}

/// A hierarchy in a store.
#[derive(Debug)]
pub struct Hierarchy {
    store: Store,
    dialect: Dialect,
    options: Options,
    /// Nodes that were read, and when. A leaf: documents are read and lowered before it is locked.
    nodes: RwLock<HashMap<NodePath, (Instant, Arc<Node>)>>,
    /// How often something was forgotten; changed only while `nodes` is locked. What was read before may be
    /// older than what was forgotten, and is not kept.
    forgotten: AtomicU64,
}

/// A node as it was when its document was read.
#[derive(Debug)]
pub struct Node {
    path: NodePath,
    document: Option<Document>,
    content: Content,
}

/// A document as it is stored.
#[derive(Debug, Clone)]
pub struct Document {
    /// Where it lies.
    pub key: Key,
    /// Its text.
    pub text: Bytes,
    /// Its length, time and version.
    pub stat: Stat,
}

/// What a node is.
#[derive(Debug)]
pub enum Content {
    /// A group, perhaps one that only what lies below it implies.
    Group(Group),
    /// An array.
    Array(Arc<Array>),
    /// A node whose document was not understood, and why.
    NotUnderstood(NodeKind, Error),
}

impl Node {
    /// Where in the hierarchy it is.
    pub fn path(&self) -> &NodePath {
        &self.path
    }

    /// Its document; none where the group is implicit.
    pub fn document(&self) -> Option<&Document> {
        self.document.as_ref()
    }

    /// What it is.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// The array that it is, if it is one that was understood.
    pub fn array(&self) -> Option<&Arc<Array>> {
        match &self.content {
            Content::Array(array) => Some(array),
            Content::Group(_) | Content::NotUnderstood(..) => None,
        }
    }

    /// Whether it is a group or an array.
    pub fn kind(&self) -> NodeKind {
        match &self.content {
            Content::Group(_) => NodeKind::Group,
            Content::Array(_) => NodeKind::Array,
            Content::NotUnderstood(kind, _) => *kind,
        }
    }

    /// Its attributes, where they were understood.
    pub fn attributes(&self) -> Option<&model::Object> {
        match &self.content {
            Content::Group(group) => Some(&group.attributes),
            Content::Array(array) => Some(&array.model().attributes),
            Content::NotUnderstood(..) => None,
        }
    }
}

/// What is directly below a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Member {
    /// A node, or a directory of ordinary files: both are directories.
    Directory(String),
    /// An ordinary file.
    File(String),
}

/// Members as they are found, each once.
pub type Members<'a> = Box<dyn Iterator<Item = Result<Member>> + Send + 'a>;

impl Hierarchy {
    /// Opens the hierarchy at the root of `store`; its dialect is found out unless it is told.
    pub fn open(store: Store, dialect: Option<Dialect>, options: Options) -> Result<Self> {
        let dialect = dialect.map_or_else(|| detect(&store), Ok)?;
        Ok(Self { store, dialect, options, nodes: RwLock::default(), forgotten: AtomicU64::new(0) })
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The dialect.
    pub fn dialect(&self) -> &Dialect {
        &self.dialect
    }

    /// How it is read.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The node at `path`; none where there is none.
    pub fn node(&self, path: &NodePath) -> Result<Option<Arc<Node>>> {
        let kept = self.nodes.read().get(path).cloned();
        if let Some((read, node)) = &kept
            && read.elapsed() < self.options.metadata_ttl
        {
            return Ok(Some(Arc::clone(node)));
        }
        let forgotten = self.forgotten.load(Ordering::SeqCst);
        let node = self.read_node(path, kept.as_ref().map(|(_, node)| node))?;
        let mut nodes = self.nodes.write();
        if nodes.len() >= MAX_NODES {
            nodes.clear(); // Whoever uses one of them holds it.
        }
        if self.forgotten.load(Ordering::SeqCst) != forgotten {
            return Ok(node);
        }
        match &node {
            Some(node) => drop(nodes.insert(path.clone(), (Instant::now(), Arc::clone(node)))),
            None => drop(nodes.remove(path)),
        }
        Ok(node)
    }

    /// The node at `path`; its absence is an error.
    pub fn existing(&self, path: &NodePath) -> Result<Arc<Node>> {
        self.node(path)?.ok_or_else(|| Error::not_found().at(path))
    }

    /// Forgets what was read of `path`, so that it is read anew.
    pub fn invalidate(&self, path: &NodePath) {
        let mut nodes = self.nodes.write();
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        nodes.remove(path);
    }

    fn read_node(&self, path: &NodePath, kept: Option<&Arc<Node>>) -> Result<Option<Arc<Node>>> {
        for (kind, key) in self.dialect.document_keys(path)? {
            if let Some(kept) = kept
                && let Some(document) = kept.document().filter(|document| document.key == key)
                && self.store.stat(&key)?.map(|stat| stat.version) == Some(document.stat.version)
            {
                return Ok(Some(Arc::clone(kept)));
            }
            let value = match self.store.get(&key, json::MAX_DOCUMENT_LEN) {
                Ok(Some(value)) => value,
                Ok(None) => continue,
                // The node is visible all the same, with the reason why it is no more than that.
                Err(error) if matches!(error.kind(), Kind::TooLarge | Kind::Corrupt) => {
                    let kind = kind.unwrap_or(NodeKind::Group);
                    let content = Content::NotUnderstood(kind, error);
                    return Ok(Some(Arc::new(Node {
                        path: path.clone(),
                        document: None,
                        content,
                    })));
                }
                Err(error) => return Err(error),
            };
            let lowered = self.dialect.lower(kind, &value.bytes);
            let content = match lowered.node.and_then(|node| self.bind(path, node)) {
                Ok(content) => content,
                Err(error) => Content::NotUnderstood(lowered.kind, error.at(&key)),
            };
            let document = Some(Document { key, text: value.bytes, stat: value.stat });
            return Ok(Some(Arc::new(Node { path: path.clone(), document, content })));
        }
        if !self.is_implicit_group(path)? {
            return Ok(None);
        }
        let content = Content::Group(Group::default());
        Ok(Some(Arc::new(Node { path: path.clone(), document: None, content })))
    }

    fn bind(&self, path: &NodePath, node: model::Node) -> Result<Content> {
        match node {
            model::Node::Group(group) => Ok(Content::Group(group)),
            model::Node::Array(array) => {
                let prefix = self.dialect.chunk_prefix(path)?;
                let limit = self.options.max_chunk_len;
                let array = Array::open(*array, &self.store, prefix, limit)?;
                Ok(Content::Array(Arc::new(array)))
            }
        }
    }

    fn is_implicit_group(&self, path: &NodePath) -> Result<bool> {
        if path.is_root() && self.dialect.has_implicit_root() {
            return Ok(true);
        }
        if !self.dialect.has_implicit_groups() {
            return Ok(false);
        }
        let Some(list) = self.store.list() else { return Ok(path.is_root()) };
        let keys = list.list_prefix(&self.dialect.children_prefix(path)?)?;
        for key in keys.take(IMPLICIT_GROUP_SEARCH) {
            if self.dialect.is_document(&key?) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Where ordinary files beside a node lie.
    pub fn ordinary_prefix(&self, path: &NodePath) -> Result<Prefix> {
        self.dialect.chunk_prefix(path)
    }

    /// What is directly below a group, its own document left out.
    pub fn members(&self, path: &NodePath) -> Result<Members<'static>> {
        let list = self.listing()?;
        let nodes = self.dialect.children_prefix(path)?;
        let ordinary = self.ordinary_prefix(path)?;
        let (dialect, parent) = (self.dialect.clone(), path.clone());
        if nodes == ordinary {
            let entries = list.list_dir(&ordinary)?;
            return Ok(Box::new(entries.filter_map(move |entry| match entry {
                Ok(Entry::Prefix(name)) => Some(Ok(Member::Directory(name))),
                Ok(Entry::Key(name)) if dialect.is_reserved(&parent, &name) => None,
                Ok(Entry::Key(name)) => Some(Ok(Member::File(name))),
                Err(error) => Some(Err(error)),
            })));
        }
        // Two trees: the same name may come from both, and twice from one.
        let mut names = std::collections::BTreeMap::new();
        for entry in list.list_dir(&nodes)? {
            let Some(child) = dialect.child(&entry?) else { continue };
            if child.certain || self.is_implicit_group(&path.child(&child.name)?)? {
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

    /// The names of the nodes directly below a group, sorted.
    pub fn children(&self, path: &NodePath) -> Result<Vec<Arc<Node>>> {
        let mut children = Vec::new();
        for entry in self.listing()?.list_dir(&self.dialect.children_prefix(path)?)? {
            if let Some(child) = self.dialect.child(&entry?) {
                children.push(child.name);
            }
        }
        children.sort();
        children.dedup();
        let node = |name: String| self.node(&path.child(&name)?);
        children.into_iter().filter_map(|name| node(name).transpose()).collect()
    }

    fn listing(&self) -> Result<&dyn crate::store::ListableStore> {
        self.store.list().ok_or_else(|| Error::unsupported("the store cannot list its keys"))
    }

    /// The document that the mount shows for `node`.
    pub fn shown(&self, node: &Node) -> Result<String> {
        Ok(match node.content() {
            Content::Array(array) => shown::array(array.model(), array.chunk_shape()),
            Content::Group(group) if group.consolidated => {
                let mut metadata = Map::new();
                self.collect_shown(node.path(), "", &mut metadata)?;
                let consolidated = serde_json::json!({
                    "kind": "inline", "must_understand": false, "metadata": metadata,
                });
                shown::group(group, Some(consolidated))
            }
            Content::Group(group) => shown::group(group, None),
            Content::NotUnderstood(kind, _) => {
                let text =
                    node.document().map(|document| document.text.clone()).unwrap_or_default();
                shown::not_understood(*kind, &text)
            }
        })
    }

    fn collect_shown(
        &self,
        path: &NodePath,
        above: &str,
        all: &mut Map<String, Value>,
    ) -> Result<()> {
        for child in self.children(path)? {
            let name = child.path().name().unwrap_or_default();
            let relative = format!("{above}{name}");
            let text = match child.content() {
                Content::Group(group) => shown::group(group, None),
                Content::Array(_) | Content::NotUnderstood(..) => self.shown(&child)?,
            };
            if let Ok(document) = serde_json::from_str(&text) {
                all.insert(relative.clone(), document);
            }
            if child.kind() == NodeKind::Group {
                self.collect_shown(child.path(), &format!("{relative}/"), all)?;
            }
        }
        Ok(())
    }

    /// Applies an edit to the stored document of `path`. What others change in it meanwhile is kept. A new
    /// shape is stored first; then the chunks that lie wholly outside of it are erased.
    pub fn edit(&self, path: &NodePath, edit: &Edit) -> Result<()> {
        if edit.is_empty() {
            return Ok(());
        }
        for _ in 0..ATTEMPTS {
            self.invalidate(path);
            let node = self.existing(path)?;
            if let Content::NotUnderstood(_, error) = node.content() {
                return Err(error.clone());
            }
            let (key, text, condition) = if let Some(document) = node.document() {
                let text = String::from_utf8_lossy(&document.text).into_owned();
                (document.key.clone(), text, Condition::Unchanged(document.stat.version))
            } else {
                let (key, text) = self.dialect.new_group(path)?;
                (key, text, Condition::Absent)
            };
            let new = self.dialect.edit(node.kind(), &text, edit).at(&key)?;
            match self.store.write()?.set(&key, &[Bytes::from(new).into()], condition) {
                Err(error) if matches!(error.kind(), Kind::Stale | Kind::Exists) => continue,
                stored => stored?,
            };
            self.invalidate(path);
            self.edit_consolidated(path, node.kind(), edit)?;
            if let (Some(shape), Some(array)) = (&edit.shape, node.array()) {
                array.erase_outside(shape)?;
            }
            return Ok(());
        }
        Err(Error::new(Kind::Busy, "others change the document faster than it can be edited")
            .at(path))
    }

    /// Keeps consolidated metadata true: the groups above a node that was edited may have copies of its document.
    fn edit_consolidated(&self, path: &NodePath, kind: NodeKind, edit: &Edit) -> Result<()> {
        let mut above = path.parent();
        while let Some(group) = above {
            let relative = path.as_str().strip_prefix(group.as_str()).unwrap_or(path.as_str());
            self.edit_copy(&group, relative.trim_start_matches('/'), kind, edit)?;
            above = group.parent();
        }
        Ok(())
    }

    fn edit_copy(
        &self,
        group: &NodePath,
        relative: &str,
        kind: NodeKind,
        edit: &Edit,
    ) -> Result<()> {
        for _ in 0..ATTEMPTS {
            self.invalidate(group);
            let Some(node) = self.node(group)? else { return Ok(()) };
            let (Content::Group(Group { consolidated: true, .. }), Some(document)) =
                (node.content(), node.document())
            else {
                return Ok(());
            };
            let text = String::from_utf8_lossy(&document.text);
            let new =
                self.dialect.edit_consolidated(&text, relative, kind, edit).at(&document.key)?;
            let Some(new) = new else { return Ok(()) };
            let condition = Condition::Unchanged(document.stat.version);
            match self.store.write()?.set(&document.key, &[Bytes::from(new).into()], condition) {
                Err(error) if error.kind() == Kind::Stale => {}
                stored => return stored.map(drop),
            }
        }
        Err(Error::new(Kind::Busy, "others change the document faster than it can be edited")
            .at(group))
    }
}

#[cfg(test)]
mod fixtures;
