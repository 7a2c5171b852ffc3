//! Nodes by path: documents read, lowered, kept for a while, edited; nodes made, moved and removed, each as a whole.
//!
//! A node that was read stays as it is for [`Options::metadata_ttl`]; then the version
//! of its document is asked for, and the document is read again only where that changed.

mod above;
mod change;
mod consolidated;
mod directories;
mod documents;
mod edit;
mod intent;
mod moving;
mod node;
mod recover;
mod texts;
mod walk;
mod whole;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

use crate::array::{Array, ShardLayout, parse_index};
use crate::error::{At, Error, Kind, Result};
use crate::metadata::model::{self, Group, KeyEncoding, Separator};
use crate::metadata::{Dialect, NodeKind, NodePath, Policy, detect};
use crate::resources;
use crate::store::{Entry, Prefix, Store};
use above::Above;
pub use above::{Holds, holds_node};
pub use change::Raised;
use directories::Directories;
pub use edit::check_len;
pub use moving::Moved;
use node::Standing;
pub use node::{Content, Document, Node};
pub use texts::{Of, Text, Texts, Wanted};
pub use walk::{Bounds, Met, Walk};

/// How many keys below a prefix are looked at to find out whether a node is among them.
const IMPLICIT_GROUP_SEARCH: usize = 10_000;

/// How many bytes the nodes that are kept take, about; a walk over more of them must not fill the memory.
const MAX_KEPT_LEN: u64 = 64 << 20;

/// How many bytes the names in one group may take.
const MAX_NAMES_LEN: usize = 64 << 20;

/// How a hierarchy is read.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long what was read of a document is taken to be so.
    pub metadata_ttl: Duration,
    /// The most bytes that a decoded chunk may have.
    pub max_chunk_len: u64,
    /// How shards are written.
    pub layout: ShardLayout,
    /// How new arrays are stored that leave it to the mount.
    pub policy: Policy,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            metadata_ttl: Duration::from_secs(1),
            max_chunk_len: resources::within_memory(1 << 30, 8),
            layout: ShardLayout::default(),
            policy: Policy::default(),
        }
    }
}

/// A hierarchy in a store.
#[derive(Debug)]
pub struct Hierarchy {
    store: Store,
    dialect: Dialect,
    options: Options,
    /// Nodes that were read, and when. A leaf: documents are read and lowered before it is locked.
    nodes: RwLock<Kept>,
    /// How often something was forgotten; changed only while `nodes` is locked. What was read before may be
    /// older than what was forgotten, and is not kept.
    forgotten: AtomicU64,
    /// The paths of nodes that were moved or removed here. A leaf.
    moves: Mutex<Moves>,
    /// How many there were, for those who need not lock to learn that nothing moved.
    move_count: AtomicU64,
    /// Directories that only this mount knows.
    directories: Directories,
    /// The hierarchy that this one is a part of, if its root is a node of another one.
    above: Option<Above>,
    /// Documents that are shown with copies of others.
    shown: Texts,
}

/// Nodes that were read: those that came last, and those that came before them, which go when there are too many of the
/// others.
#[derive(Debug, Default)]
struct Kept {
    young: HashMap<NodePath, Read>,
    old: HashMap<NodePath, Read>,
    /// The memory that the young take, about.
    len: usize,
}

/// A node, and when it was read.
#[derive(Debug, Clone)]
struct Read {
    at: Instant,
    node: Arc<Node>,
    /// The memory that it takes, about.
    len: usize,
}

impl Kept {
    fn get(&self, path: &NodePath) -> Option<&Read> {
        self.young.get(path).or_else(|| self.old.get(path))
    }

    /// Keeps a node; whoever uses one that goes for it holds it.
    fn insert(&mut self, path: &NodePath, node: &Arc<Node>) {
        let known = self.get(path).filter(|known| Arc::ptr_eq(&known.node, node));
        let len = known.map_or_else(|| node.memory_len(), |known| known.len);
        self.remove(path);
        let limit = resources::within_memory(MAX_KEPT_LEN, 8) / 2;
        if u64::try_from(self.len.saturating_add(len)).is_ok_and(|len| len > limit) {
            (self.old, self.len) = (std::mem::take(&mut self.young), 0);
        }
        self.len = self.len.saturating_add(len);
        self.young.insert(path.clone(), Read { at: Instant::now(), node: Arc::clone(node), len });
    }

    fn remove(&mut self, path: &NodePath) {
        self.old.remove(path);
        if let Some(read) = self.young.remove(path) {
            self.len = self.len.saturating_sub(read.len);
        }
    }

    fn remove_below(&mut self, path: &NodePath) {
        let is_other = |known: &NodePath, _: &mut Read| known.relative_to(path).is_none();
        self.old.retain(is_other);
        self.young.retain(is_other);
        self.len = self.young.values().fold(0, |len, read| len.saturating_add(read.len));
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

/// Moves and removals.
#[derive(Debug, Default)]
struct Moves {
    /// How many there were.
    count: u64,
    /// Which was the last one of each path.
    last: HashMap<NodePath, u64>,
    /// What was before this one is not known any more: it may have been of any path.
    known_since: u64,
}

/// Paths that are remembered.
const MAX_MOVES: usize = 1 << 16;

impl Moves {
    fn note(&mut self, path: &NodePath) {
        self.count = self.count.saturating_add(1);
        if self.last.len() >= MAX_MOVES {
            (self.last, self.known_since) = (HashMap::new(), self.count);
        }
        self.last.insert(path.clone(), self.count);
    }

    /// Whether a node at `path` or above it was moved after so many others.
    fn any_since(&self, count: u64, path: &NodePath) -> bool {
        let is_later = |path: &NodePath| self.last.get(path).is_some_and(|last| *last > count);
        let mut at = Some(path.clone());
        while let Some(path) = at {
            if is_later(&path) {
                return true;
            }
            at = path.parent();
        }
        count < self.known_since
    }
}

/// What lies below a path that has no document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Below {
    Node,
    Files,
    Nothing,
}

/// Members as they are found, each once.
pub type Members<'a> = Box<dyn Iterator<Item = Result<Member>> + Send + 'a>;

impl Hierarchy {
    /// Opens the hierarchy at the root of `store`; its dialect is found out unless it is told.
    pub fn open(store: Store, dialect: Option<Dialect>, options: Options) -> Result<Self> {
        let dialect = dialect.map_or_else(|| detect(&store), Ok)?;
        Ok(Self {
            store,
            dialect,
            options,
            nodes: RwLock::default(),
            forgotten: AtomicU64::new(0),
            moves: Mutex::default(),
            move_count: AtomicU64::new(0),
            directories: Directories::default(),
            above: None,
            shown: Texts::default(),
        })
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

    /// The node at `path`, or the directory that may become one; none where there is nothing.
    pub fn node(&self, path: &NodePath) -> Result<Option<Arc<Node>>> {
        let kept = self.nodes.read().get(path).cloned();
        if let Some(read) = &kept
            && read.at.elapsed() < self.options.metadata_ttl
        {
            return Ok(Some(Arc::clone(&read.node)));
        }
        let forgotten = self.forgotten.load(Ordering::SeqCst);
        let node = self.read_node(path, kept.as_ref().map(|read| &read.node))?;
        let mut nodes = self.nodes.write();
        if self.forgotten.load(Ordering::SeqCst) != forgotten {
            return Ok(node);
        }
        match &node {
            Some(node) => nodes.insert(path, node),
            None => nodes.remove(path),
        }
        Ok(node)
    }

    /// The node at `path`; its absence is an error.
    pub fn existing(&self, path: &NodePath) -> Result<Arc<Node>> {
        self.node(path)?.ok_or_else(|| Error::not_found().at(path))
    }

    /// Whether the root is more than the dialect says of any root: it has a document, or nodes are below it.
    pub fn is_there(&self) -> Result<bool> {
        let root = NodePath::root();
        Ok(self.existing(&root)?.document().is_some()
            || self.children(&root)?.next().transpose()?.is_some())
    }

    /// How long the document of `path` was that is shown with copies of others, when it was made last; none where that is
    /// not known.
    pub fn last_len_shown(&self, path: &NodePath) -> Option<usize> {
        self.shown.last_len(path)
    }

    /// Why documents that were shown lack the copies of others that they should have, once for each.
    pub fn take_notes(&self) -> Vec<Error> {
        self.shown.take_notes()
    }

    /// Whether it may take long to show the document of `path`, because others are copied into it.
    pub fn shows_many(&self, path: &NodePath) -> bool {
        // Of what is not known here nobody knows.
        self.nodes.read().get(path).is_none_or(|read| match read.node.content() {
            Content::Group(group) => group.consolidated || self.dialect == Dialect::V2,
            Content::Array(_) | Content::NotUnderstood(..) => false,
        })
    }

    /// A number that is another one whenever something was changed here.
    pub fn generation(&self) -> u64 {
        self.forgotten.load(Ordering::SeqCst)
    }

    /// How many nodes were moved or removed here so far, with all below them.
    pub fn moves(&self) -> u64 {
        self.move_count.load(Ordering::Acquire)
    }

    /// Whether the node at `path` was moved or removed here after so many others were: another one may be there now.
    pub fn has_moved_since(&self, path: &NodePath, moves: u64) -> bool {
        self.moves() != moves && self.moves.lock().any_since(moves, path)
    }

    /// Forgets what was read of `path`, so that it is read anew.
    pub fn invalidate(&self, path: &NodePath) {
        let mut nodes = self.nodes.write();
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        nodes.remove(path);
    }

    /// Forgets what was read of `path` and of all that is below it.
    fn invalidate_below(&self, path: &NodePath) {
        let mut nodes = self.nodes.write();
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        let mut noted = self.moves.lock();
        noted.note(path);
        self.move_count.store(noted.count, Ordering::Release);
        nodes.remove_below(path);
    }

    fn read_node(&self, path: &NodePath, kept: Option<&Arc<Node>>) -> Result<Option<Arc<Node>>> {
        let known = self.directories.get(path);
        for (kind, key) in self.dialect.document_keys(path)? {
            if let Some(document) = known.as_ref().and_then(|known| known.stored())
                && document.key == key
            {
                if self.is_current(document)? {
                    return Ok(known);
                }
                // Another program has made a node of it.
                self.directories.remove(path);
            }
            if let Some(kept) = kept
                && let Some(document) = kept.document().filter(|document| document.key == key)
                && self.is_current(document)?
            {
                return Ok(Some(Arc::clone(kept)));
            }
            let document = match self.get_document(path, &key) {
                Ok(Some(document)) => document,
                Ok(None) => continue,
                // The node is visible all the same, with the reason why it is no more than that.
                Err(error) if matches!(error.kind(), Kind::TooLarge | Kind::Corrupt) => {
                    let kind = kind.unwrap_or(NodeKind::Group);
                    let content = Content::NotUnderstood(kind, error);
                    let standing = Standing::Unreadable(key);
                    return Ok(Some(Arc::new(Node { path: path.clone(), standing, content })));
                }
                Err(error) => return Err(error),
            };
            let lowered = self.dialect.lower(kind, &document.text);
            let content = match lowered.node.and_then(|node| self.bind(path, node)) {
                Ok(content) => content,
                Err(error) => Content::NotUnderstood(lowered.kind, error.at(&key)),
            };
            if known.as_ref().is_some_and(|known| known.is_made()) {
                // Another program has made a node of it.
                self.directories.remove(path);
            }
            let standing = Standing::Stored(document);
            return Ok(Some(Arc::new(Node { path: path.clone(), standing, content })));
        }
        if let Some(known) = known.filter(|known| known.stored().is_none()) {
            return Ok(Some(known));
        }
        Ok(match self.find_below(path)? {
            Below::Node => {
                let content = Content::Group(Group::default());
                let standing = Standing::Implicit;
                Some(Arc::new(Node { path: path.clone(), standing, content }))
            }
            Below::Files => Some(Arc::new(Node::bare(path.clone(), None))),
            Below::Nothing => None,
        })
    }

    fn bind(&self, path: &NodePath, node: model::Node) -> Result<Content> {
        match node {
            model::Node::Group(group) => Ok(Content::Group(group)),
            model::Node::Array(mut array) => {
                let prefix = self.dialect.chunk_prefix(path)?;
                if array.key_encoding == KeyEncoding::V2Unsaid {
                    array.key_encoding = KeyEncoding::V2(self.separator_in_use(&prefix)?);
                }
                let limit = self.options.max_chunk_len;
                let array = Array::open(*array, &self.store, prefix, limit, self.options.layout)?;
                Ok(Content::Array(Arc::new(array)))
            }
        }
    }

    /// What stands between the indices in keys below `prefix`, where the document does not say: `/` where there is a
    /// directory of chunks.
    fn separator_in_use(&self, prefix: &Prefix) -> Result<Separator> {
        let Some(list) = self.store.list() else { return Ok(Separator::Dot) };
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

    fn is_implicit_group(&self, path: &NodePath) -> Result<bool> {
        Ok(self.find_below(path)? == Below::Node)
    }

    /// What lies below `path`, which has no document.
    fn find_below(&self, path: &NodePath) -> Result<Below> {
        if path.is_root() && self.dialect.has_implicit_root() {
            return Ok(Below::Node);
        }
        let Some(list) = self.store.list() else {
            return Ok(if path.is_root() { Below::Node } else { Below::Nothing });
        };
        let mut found = if path.is_root() { Below::Files } else { Below::Nothing };
        let nodes = self.dialect.children_prefix(path)?;
        if self.dialect.has_implicit_groups() {
            for key in list.list_prefix(&nodes)?.take(IMPLICIT_GROUP_SEARCH) {
                if self.dialect.is_document(&key?) {
                    return Ok(Below::Node);
                }
                found = Below::Files;
            }
        }
        let ordinary = self.ordinary_prefix(path)?;
        if ordinary != nodes {
            // In a tree of documents other keys mean nothing.
            let any = list.list_dir(&ordinary)?.next().transpose()?.is_some();
            found = if any { Below::Files } else { Below::Nothing };
        }
        Ok(found)
    }

    /// Where ordinary files beside a node lie.
    pub fn ordinary_prefix(&self, path: &NodePath) -> Result<Prefix> {
        self.dialect.chunk_prefix(path)
    }

    /// What is directly below a group, its own document left out.
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

    /// The names of what may be nodes directly below a group, sorted.
    pub fn child_names(&self, path: &NodePath) -> Result<Vec<String>> {
        let (mut names, mut len) = (Vec::new(), 0_usize);
        for entry in self.listing()?.list_dir(&self.dialect.children_prefix(path)?)? {
            let Some(child) = self.dialect.child(&entry?) else { continue };
            len = len.saturating_add(child.name.capacity()).saturating_add(size_of::<String>());
            if len > MAX_NAMES_LEN {
                let detail = format!("the names in it take more than {MAX_NAMES_LEN} bytes");
                return Err(Error::too_large(detail).at(path));
            }
            names.push(child.name);
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// The node at `path`, which is one of those names; none where it is no node.
    pub fn child_node(&self, path: &NodePath) -> Result<Option<Arc<Node>>> {
        let is_node = |node: &Arc<Node>| !node.is_bare() || node.stored().is_some();
        Ok(self.node(path)?.filter(is_node))
    }

    /// The nodes directly below a group, sorted by name. Each is read when its turn comes.
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

    fn listing(&self) -> Result<&dyn crate::store::ListableStore> {
        self.store.list().ok_or_else(|| Error::unsupported("the store cannot list its keys"))
    }
}

#[cfg(test)]
mod fixtures;
