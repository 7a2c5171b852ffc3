//! A hierarchy: nodes by path, read from their metadata files and cached for a while.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::copied::CopiedNodes;
use super::directories::Directories;
use super::documents::DocumentStore;
use super::folder::Folder;
use super::forms::Forms;
use super::node::{Content, Node, NodeState};
use super::node_cache::NodeCache;
use super::siblings::Siblings;
use super::texts::TextCache;
use crate::array::{Array, ShardLayout, parse_index};
use crate::error::{At, Error, Kind, Result};
use crate::limits;
use crate::metadata::model::{self, Group, KeyEncoding, Separator};
use crate::metadata::{Dialect, NodeKind, NodePath, Policy, detect};
use crate::resources;
use crate::store::{ByteRange, Entry, Expected, FileKind, Key, Prefix, Store};

/// The most keys below a prefix to look at when searching for a node among them.
const IMPLICIT_GROUP_SEARCH: usize = 10_000;

/// How to read and write a hierarchy.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long to cache nodes.
    pub metadata_ttl: Duration,
    /// The most bytes of a decoded chunk.
    pub max_chunk_len: u64,
    /// How to write shards.
    pub layout: ShardLayout,
    /// How to store new arrays whose metadata leave it to the mount.
    pub policy: Policy,
    /// Whether encoded chunks that programs write are stored without decoding them first.
    pub trusts_encoded: bool,
    /// Whether the consolidated metadata of a group stand for the metadata files of its nodes.
    /// They may be outdated, so nothing must be stored then.
    pub reads_copies: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            metadata_ttl: Duration::from_secs(1),
            max_chunk_len: resources::within_memory(1 << 30, 8),
            layout: ShardLayout::default(),
            policy: Policy::default(),
            trusts_encoded: false,
            reads_copies: false,
        }
    }
}

/// A hierarchy in a store.
#[derive(Debug)]
pub struct Hierarchy {
    pub(super) documents: DocumentStore,
    pub(super) options: Options,
    nodes: NodeCache,
    siblings: Siblings,
    pub(super) copied: CopiedNodes,
    /// Whether the log has said that the store cannot list.
    pub(super) is_said: AtomicBool,
    /// Directories that only this mount knows.
    pub directories: Directories,
    /// The hierarchy around this one, if its root is a node of a larger one.
    pub(super) above: Option<Above>,
    /// Documents that are shown with consolidated metadata.
    pub(super) shown: TextCache,
    /// The nodes whose files differ from those of the mount.
    pub forms: Forms,
    /// The hierarchies below, if this is a folder of several.
    pub(super) folder: Folder,
}

/// What lies below a path that has no document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Below {
    Node,
    Files,
    Nothing,
}

impl Hierarchy {
    /// Opens the hierarchy at the root of `store`, and detects the dialect if it is `None`.
    pub fn open(store: Store, dialect: Option<Dialect>, options: Options) -> Result<Self> {
        let dialect = dialect.map_or_else(|| detect(&store), Ok)?;
        Ok(Self {
            documents: DocumentStore { store, dialect },
            copied: CopiedNodes::new(options.reads_copies),
            forms: Forms::new(options.trusts_encoded),
            options,
            nodes: NodeCache::default(),
            siblings: Siblings::default(),
            is_said: AtomicBool::new(false),
            directories: Directories::default(),
            above: None,
            shown: TextCache::default(),
            folder: Folder::default(),
        })
    }

    /// Opens a folder with hierarchies at these paths, which is read-only.
    pub fn open_folder(
        store: Store,
        parts: Vec<(NodePath, Dialect)>,
        options: Options,
    ) -> Result<Self> {
        let options = Options { reads_copies: false, ..options };
        let mut hierarchy = Self::open(store.read_only(), Some(Dialect::V3), options)?;
        hierarchy.folder = Folder::new(parts);
        Ok(hierarchy)
    }

    /// Whether the node at `path` is a directory above the hierarchies of a folder.
    pub fn is_in_folder(&self, path: &NodePath) -> bool {
        self.folder.is_above(path)
    }

    /// Returns the dialect of the node at `path`.
    pub fn dialect_of(&self, path: &NodePath) -> &Dialect {
        self.folder.dialect_of(path).unwrap_or(self.dialect())
    }

    /// Returns the store.
    pub fn store(&self) -> &Store {
        &self.documents.store
    }

    /// Returns the dialect.
    pub fn dialect(&self) -> &Dialect {
        &self.documents.dialect
    }

    /// Returns the options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the node at `path`, or the directory that may become one; `None` if there is
    /// nothing.
    pub fn node(&self, path: &NodePath) -> Result<Option<Arc<Node>>> {
        let kept = self.nodes.get(path);
        if let Some(read) = &kept
            && read.at.elapsed() < self.options.metadata_ttl
        {
            return Ok(Some(Arc::clone(&read.node)));
        }
        let generation = self.nodes.generation();
        let node = match self.read_node(path, kept.as_ref().map(|read| &read.node)) {
            // `.zarrfs` lies below the root, and must be readable while no server answers.
            Err(error) if path.is_root() && self.store().read().is_remote() => {
                return kept.map(|read| Some(read.node)).ok_or(error);
            }
            node => node?,
        };
        self.nodes.keep(path, node.as_ref(), generation);
        Ok(node)
    }

    /// Whether the node at `path` was read recently.
    pub fn is_read(&self, path: &NodePath) -> bool {
        self.nodes.get(path).is_some_and(|read| read.at.elapsed() < self.options.metadata_ttl)
    }

    /// Whether only this mount knows the directory at `path`, or one directly below it.
    pub fn is_own(&self, path: &NodePath) -> bool {
        self.directories.get(path).is_some() || !self.directories.below(path).is_empty()
    }

    /// Returns the node at `path`; its absence is an error.
    pub fn existing(&self, path: &NodePath) -> Result<Arc<Node>> {
        self.node(path)?.ok_or_else(|| Error::not_found().at(path))
    }

    /// Returns a number that changes with every change in this hierarchy.
    pub fn generation(&self) -> u64 {
        self.nodes.generation()
    }

    /// Returns how many nodes were moved or removed here so far; a subtree counts once.
    pub fn moves(&self) -> u64 {
        self.nodes.moves().count()
    }

    /// Whether the node at `path` was moved or removed after the first `moves` moves, so that
    /// another one may be there now.
    pub fn has_moved_since(&self, path: &NodePath, moves: u64) -> bool {
        self.nodes.moves().any_since(moves, path)
    }

    /// Drops the cached node at `path`.
    pub fn invalidate(&self, path: &NodePath) {
        self.nodes.forget(path);
    }

    /// Drops the cached nodes at and below `path`, and counts a move.
    pub(super) fn invalidate_below(&self, path: &NodePath) {
        self.nodes.forget_below(path);
    }

    /// Returns the cached node at `path`, however old it is.
    pub(super) fn kept(&self, path: &NodePath) -> Option<Arc<Node>> {
        self.nodes.get(path).map(|read| read.node)
    }

    fn read_node(&self, path: &NodePath, kept: Option<&Arc<Node>>) -> Result<Option<Arc<Node>>> {
        let known = self.directories.get(path);
        if known.is_none()
            && let Some(node) = self.copied_node(path, kept)?
        {
            return Ok(Some(node));
        }
        let _expected = self.expect_document(path)?;
        for (kind, key) in self.dialect_of(path).document_keys(path)? {
            if let Some(document) = known.as_ref().and_then(|known| known.stored())
                && document.key == key
            {
                if self.documents.is_current(document)? {
                    return Ok(known);
                }
                // Another program created a node here.
                self.directories.remove(path);
            }
            if let Some(kept) = kept
                && let Some(document) = kept.document().filter(|document| document.key == key)
                && self.documents.is_current(document)?
            {
                return Ok(Some(Arc::clone(kept)));
            }
            let document = match self.documents.get(self.dialect_of(path), path, &key) {
                Ok(Some(document)) => document,
                Ok(None) => continue,
                // The node stays visible; its content is the error.
                Err(error) if matches!(error.kind(), Kind::TooLarge | Kind::Corrupt) => {
                    let kind = kind.unwrap_or(NodeKind::Group);
                    let content = Content::NotUnderstood(kind, error);
                    let state = NodeState::Unreadable(key);
                    return Ok(Some(Arc::new(Node { path: path.clone(), state, content })));
                }
                Err(error) => return Err(error),
            };
            let lowered = self.dialect_of(path).lower(kind, &document.text);
            let content = match lowered.node.and_then(|node| self.bind(path, node)) {
                Ok(content) => content,
                Err(error) => Content::NotUnderstood(lowered.kind, error.at(&key)),
            };
            if known.as_ref().is_some_and(|known| known.is_made()) {
                // Another program created a node here.
                self.directories.remove(path);
            }
            let state = NodeState::Stored(document);
            return Ok(Some(Arc::new(Node { path: path.clone(), state, content })));
        }
        if let Some(known) = known.filter(|known| known.stored().is_none()) {
            return Ok(Some(known));
        }
        Ok(match self.find_below(path)? {
            Below::Node => {
                let content = Content::Group(Group::default());
                let state = NodeState::Implicit;
                Some(Arc::new(Node { path: path.clone(), state, content }))
            }
            Below::Files => Some(Arc::new(Node::bare(path.clone(), None))),
            Below::Nothing => None,
        })
    }

    /// Returns the node at `path` from the copy of its metadata file in a group above, if there is
    /// one. `kept` is the node that was read there before.
    fn copied_node(&self, path: &NodePath, kept: Option<&Arc<Node>>) -> Result<Option<Arc<Node>>> {
        let (ttl, node) = (self.options.metadata_ttl, |group: &NodePath| self.node(group));
        let Some((kind, document)) = self.copied.document(&self.documents, path, ttl, &node)?
        else {
            return Ok(None);
        };
        let known = kept.and_then(|node| node.document());
        if known.is_some_and(|known| {
            known.text == document.text && known.stat.version.is_same(document.stat.version)
        }) {
            return Ok(kept.map(Arc::clone));
        }
        let lowered = self.dialect_of(path).lower(Some(kind), &document.text);
        // If it cannot be read, the metadata file itself may be another.
        let Ok(content @ (Content::Array(_) | Content::Group(_))) =
            lowered.node.and_then(|node| self.bind(path, node))
        else {
            return Ok(None);
        };
        let state = NodeState::Stored(document);
        Ok(Some(Arc::new(Node { path: path.clone(), state, content })))
    }

    /// Announces the metadata files that a node may have to a store that takes long, and those of
    /// the nodes that a program will probably read after it.
    fn expect_document(&self, path: &NodePath) -> Result<Expected> {
        if !self.store().read().is_remote() {
            return Ok(Expected::default());
        }
        let expected = self.store().read().expect(&self.document_ranges(path)?);
        if let (Some(group), Some(name)) = (path.parent(), path.name()) {
            self.expect_siblings(&group, name)?;
        }
        Ok(expected)
    }

    fn expect_siblings(&self, group: &NodePath, name: &str) -> Result<()> {
        // An error is reported when the group is listed.
        let list = || self.known_child_names(group).ok().flatten();
        let next = self.siblings.next(group, name, self.options.metadata_ttl, list);
        if next.is_empty() {
            return Ok(());
        }
        let mut ranges = Vec::new();
        for name in next {
            let path = group.child(&name)?;
            if self.directories.get(&path).is_none() && !self.is_read(&path) {
                ranges.extend(self.document_ranges(&path)?);
            }
        }
        self.siblings.keep(group, self.store().read().expect(&ranges));
        Ok(())
    }

    /// Returns the sorted names directly below a group that may be nodes, if the store lists them
    /// without a request.
    fn known_child_names(&self, group: &NodePath) -> Result<Option<Vec<String>>> {
        let prefix = self.dialect_of(group).children_prefix(group)?;
        let is_known = self.store().list().is_some_and(|list| list.is_listed(&prefix));
        if is_known { self.child_names(group).map(Some) } else { Ok(None) }
    }

    /// Returns the ranges that are read of the metadata files that a node may have.
    pub(super) fn document_ranges(&self, path: &NodePath) -> Result<Vec<(Key, ByteRange)>> {
        let dialect = self.dialect_of(path);
        let documents = dialect.document_keys(path)?.into_iter().map(|(_, key)| key);
        let keys = documents.chain(dialect.attributes_key(path)?);
        Ok(keys.map(|key| (key, ByteRange::first(limits::METADATA.get()))).collect())
    }

    /// Reads an array from its metadata file alone, without its attributes file (Zarr 2); `None` if
    /// the node is not an array.
    pub fn without_attributes(&self, path: &NodePath) -> Result<Option<Arc<Array>>> {
        let dialect = self.dialect_of(path);
        for (kind, key) in dialect.document_keys(path)? {
            let Some(found) = self.store().get(&key, limits::METADATA.get())? else { continue };
            let lowered = dialect.lower(kind, &found.bytes);
            let content = lowered.node.and_then(|node| self.bind(path, node)).at(&key)?;
            return Ok(match content {
                Content::Array(array) => Some(array),
                Content::Group(_) | Content::NotUnderstood(..) => None,
            });
        }
        Ok(None)
    }

    pub(super) fn bind(&self, path: &NodePath, node: model::Node) -> Result<Content> {
        match node {
            model::Node::Group(group) => Ok(Content::Group(group)),
            model::Node::Array(mut array) => {
                let prefix = self.dialect_of(path).chunk_prefix(path)?;
                if array.key_encoding == KeyEncoding::V2Undeclared {
                    array.key_encoding =
                        KeyEncoding::V2(self.separator_in_use(&prefix, array.shape.len())?);
                }
                let limit = self.options.max_chunk_len;
                let array = Array::open(*array, self.store(), prefix, limit, self.options.layout)?;
                Ok(Content::Array(Arc::new(array)))
            }
        }
    }

    /// Returns the separator of the chunk keys below `prefix` if the document does not name it: `/`
    /// if there is a directory of chunks, or the first chunk in a store that cannot list.
    fn separator_in_use(&self, prefix: &Prefix, rank: usize) -> Result<Separator> {
        let Some(list) = self.store().list() else {
            let first = prefix.key(&vec!["0"; rank.max(1)].join("/"))?;
            let wanted = [(first, ByteRange::first(1))];
            let is_there = rank > 1
                && self.store().read().get_partial_values(&wanted)?.iter().any(Option::is_some);
            return Ok(if is_there { Separator::Slash } else { Separator::Dot });
        };
        for entry in list.list_dir(prefix)?.take(IMPLICIT_GROUP_SEARCH) {
            let entry = entry?;
            let mut indices = entry.name().split('.');
            if indices.all(|part| parse_index(part).is_some()) {
                let is_level = matches!(entry, Entry::Prefix(_));
                return Ok(if is_level { Separator::Slash } else { Separator::Dot });
            }
        }
        Ok(Separator::Dot)
    }

    pub(super) fn is_implicit_group(&self, path: &NodePath) -> Result<bool> {
        Ok(self.find_below(path)? == Below::Node)
    }

    /// Finds what lies below `path`, which has no document.
    fn find_below(&self, path: &NodePath) -> Result<Below> {
        let dialect = self.dialect_of(path);
        let is_folder = self.folder.is_above(path);
        if is_folder || (path.is_root() && dialect.has_implicit_root()) {
            return Ok(Below::Node);
        }
        let Some(list) = self.store().list() else {
            let is_group =
                path.is_root() || dialect.has_implicit_groups() && self.hinted().is_group(path)?;
            return Ok(if is_group { Below::Node } else { Below::Nothing });
        };
        self.expect_names_beside(path)?;
        let mut found = if path.is_root() { Below::Files } else { Below::Nothing };
        let nodes = self.dialect_of(path).children_prefix(path)?;
        if dialect.has_implicit_groups() {
            for key in list.list_prefix(&nodes)?.take(IMPLICIT_GROUP_SEARCH) {
                if dialect.is_document(&key?) {
                    return Ok(Below::Node);
                }
                found = Below::Files;
            }
            if !list.lists_dotted_names() && self.any_below(path)? {
                return Ok(Below::Node);
            }
        }
        let ordinary = self.ordinary_prefix(path)?;
        if ordinary != nodes {
            // In a dialect with a separate tree of documents, only that tree has nodes.
            let any = list.list_dir(&ordinary)?.next().transpose()?.is_some();
            found = if any { Below::Files } else { Below::Nothing };
        }
        if found == Below::Nothing && self.has_directory(&ordinary)? {
            found = Below::Files;
        }
        Ok(found)
    }

    /// Whether a store of files has this directory, which may be empty.
    fn has_directory(&self, prefix: &Prefix) -> Result<bool> {
        let Some(files) = self.store().files() else { return Ok(false) };
        let found = files.file_stat(prefix.as_str())?;
        Ok(found.is_some_and(|found| found.kind == FileKind::Directory))
    }

    /// Whether a directory below `path` is a node, whose metadata file the store does not list.
    fn any_below(&self, path: &NodePath) -> Result<bool> {
        let Some(list) = self.store().list() else { return Ok(false) };
        let (mut open, mut seen) = (VecDeque::from([path.clone()]), 0_usize);
        while let Some(group) = open.pop_front() {
            let nodes = self.dialect_of(&group).children_prefix(&group)?;
            let mut keys = Vec::new();
            for entry in list.list_dir(&nodes)? {
                if let Entry::Prefix(name) = entry? {
                    let child = group.child(&name)?;
                    let documents = self.dialect_of(&child).document_keys(&child)?;
                    keys.extend(documents.into_iter().map(|(_, key)| key));
                    open.push_back(child);
                }
                seen = seen.saturating_add(1);
                if seen > IMPLICIT_GROUP_SEARCH {
                    return Ok(false);
                }
            }
            if self.store().read().stat(&keys)?.iter().any(Option::is_some) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Has the store bring the names in the group of `path`: if this one is not there, programs ask
    /// for others, too.
    fn expect_names_beside(&self, path: &NodePath) -> Result<()> {
        let (Some(list), Some(parent)) = (self.store().list(), path.parent()) else {
            return Ok(());
        };
        let nodes = self.dialect_of(path).children_prefix(&parent)?;
        list.expect_names(&nodes);
        let ordinary = self.ordinary_prefix(&parent)?;
        if ordinary != nodes {
            list.expect_names(&ordinary);
        }
        Ok(())
    }

    /// Returns the prefix of the ordinary files beside a node's document.
    pub fn ordinary_prefix(&self, path: &NodePath) -> Result<Prefix> {
        self.dialect_of(path).chunk_prefix(path)
    }

    pub(super) fn forget_unstored(&self, path: &NodePath) {
        self.directories.remove(path);
        self.invalidate(path);
    }
}

/// The position of a hierarchy inside a larger one.
#[derive(Debug, Clone)]
pub(super) struct Above {
    pub(super) hierarchy: Arc<Hierarchy>,
    /// The path of this hierarchy's root in the larger one.
    pub(super) base: NodePath,
}

impl Above {
    /// Returns the full path of a node in the larger hierarchy.
    pub(super) fn path_of(&self, path: &NodePath) -> Result<NodePath> {
        self.base.join(path.as_str())
    }
}
