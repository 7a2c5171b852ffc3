//! Nodes as the consolidated metadata of a group above has them, so that a store that takes long is
//! asked once for all of them.
//!
//! Only where nothing can be changed: a copy may be outdated, and what a program writes by it would
//! undo what others have stored. A group that is read from a copy shows no consolidated metadata.
//!
//! Nodes of a directory are never read from copies, since each metadata file is quickly read.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;

use super::documents::DocumentStore;
use super::node::{Attributes, Document, Node};
use crate::metadata::{NodeKind, NodePath};
use zarrfs_base::bounded::{Bounded, MapLimits};
use zarrfs_base::error::Result;
use zarrfs_base::limits;
use zarrfs_base::resources;
use zarrfs_base::width::ToU64;
use zarrfs_store::{Key, Stat};

/// The most bytes of all kept copies.
const MAX_KEPT_LEN: u64 = 64 << 20;

/// The bytes of a copy besides its text.
const COPY_LEN: u64 = 256;

/// The copies in several groups.
#[derive(Debug)]
pub(super) struct CopiedNodes {
    is_used: bool,
    /// A leaf lock.
    groups: Mutex<Bounded<NodePath, Arc<ConsolidatedCopies>>>,
}

/// The copies in the consolidated metadata of a group.
#[derive(Debug)]
pub(super) struct ConsolidatedCopies {
    /// When the store was asked last whether these are current.
    checked: Instant,
    /// The stat of the value that has them; `None` if there is none.
    stat: Option<Stat>,
    /// The metadata files by their path from the group.
    texts: Arc<Texts>,
}

/// Metadata files by path.
type Texts = HashMap<String, (NodeKind, Bytes)>;

impl ConsolidatedCopies {
    /// Returns the names directly below a path from the group of nodes that have copies, and of
    /// those above such nodes.
    pub fn names_below(&self, path: &str) -> BTreeSet<String> {
        let name = |text: &String| {
            let rest = if path.is_empty() {
                text.as_str()
            } else {
                text.strip_prefix(path)?.strip_prefix('/')?
            };
            rest.split('/').next().filter(|name| !name.is_empty()).map(str::to_owned)
        };
        self.texts.keys().filter_map(name).collect()
    }

    /// Whether there is a copy of the metadata file at a path from the group, which is empty for
    /// that of the group.
    pub fn has(&self, path: &str) -> bool {
        self.texts.contains_key(path)
    }
}

impl CopiedNodes {
    /// Returns none, which will be read if `is_used` is true.
    pub fn new(is_used: bool) -> Self {
        let limits = MapLimits::bytes(resources::within_memory(MAX_KEPT_LEN, 12));
        Self { is_used, groups: Mutex::new(Bounded::new(limits)) }
    }

    fn get(&self, group: &NodePath) -> Option<Arc<ConsolidatedCopies>> {
        self.groups.lock().peek(group).cloned()
    }

    fn put(&self, group: &NodePath, copies: ConsolidatedCopies) -> Arc<ConsolidatedCopies> {
        let copies = Arc::new(copies);
        let len = copies.texts.iter().map(|(path, (_, text))| {
            let len = path.len().saturating_add(text.len());
            len.to_u64().saturating_add(COPY_LEN)
        });
        let len = len.fold(COPY_LEN, u64::saturating_add);
        let gone = self.groups.lock().put(group.clone(), Arc::clone(&copies), len);
        drop(gone); // Freeing memory takes time: not under the lock.
        copies
    }

    /// Returns the kind of the node at `path` and the copy of its metadata file, at most `ttl` old,
    /// if a group above has one. `node` returns the node at a path.
    pub fn document(
        &self,
        documents: &DocumentStore,
        path: &NodePath,
        ttl: Duration,
        node: &dyn Fn(&NodePath) -> Result<Option<Arc<Node>>>,
    ) -> Result<Option<(NodeKind, Document)>> {
        if !self.is_used {
            return Ok(None);
        }
        // The next one is as new as those further up, or newer.
        for group in path.ancestors().into_iter().rev() {
            let copies = self.current(documents, &group, ttl, node)?;
            let text = path.relative_to(&group).and_then(|path| copies.texts.get(path));
            if let (Some((kind, text)), Some(stat)) = (text, copies.stat) {
                let attributes = documents.dialect.attributes_key(path)?;
                let document = Document {
                    key: documents.key_of(path, *kind)?,
                    text: text.clone(),
                    stat: Stat { len: text.len().to_u64(), ..stat },
                    attributes: attributes.map(|key| Attributes { key, stat: None }),
                    is_whole: true,
                };
                return Ok(Some((*kind, document)));
            }
        }
        Ok(None)
    }

    /// Returns the copies that a group has, at most `ttl` old.
    pub fn current(
        &self,
        documents: &DocumentStore,
        group: &NodePath,
        ttl: Duration,
        node: &dyn Fn(&NodePath) -> Result<Option<Arc<Node>>>,
    ) -> Result<Arc<ConsolidatedCopies>> {
        match self.get(group).filter(|known| known.checked.elapsed() < ttl) {
            Some(copies) => Ok(copies),
            None => self.read(documents, group, node),
        }
    }

    /// Reads the copies that a group has, unless those that are known are current.
    fn read(
        &self,
        documents: &DocumentStore,
        group: &NodePath,
        node: &dyn Fn(&NodePath) -> Result<Option<Arc<Node>>>,
    ) -> Result<Arc<ConsolidatedCopies>> {
        let checked = Instant::now();
        // Of values with copies only that of the root: each other one would take a request.
        let key = documents.dialect.own_copies(group)?.filter(|_| group.is_root());
        let source = match key {
            Some(key) => documents.store.stat(&key)?.map(|stat| (stat, CopiesAt::Value(key))),
            None => match node(group)?.as_ref().and_then(|node| node.document()) {
                Some(document) if document.is_whole => {
                    Some((document.stat, CopiesAt::Text(document.text.clone())))
                }
                Some(_) | None => None,
            },
        };
        let Some((stat, source)) = source else {
            return Ok(
                self.put(group, ConsolidatedCopies { checked, stat: None, texts: Arc::default() })
            );
        };
        let is_current = |known: &ConsolidatedCopies| {
            known.stat.is_some_and(|known| known.version.is_same(stat.version))
        };
        let texts = match self.get(group).filter(|known| is_current(known)) {
            Some(known) => Arc::clone(&known.texts),
            // Each node has its own metadata file.
            None if stat.len > limits::METADATA.get() => Arc::default(),
            None => Arc::new(source.texts(documents)),
        };
        Ok(self.put(group, ConsolidatedCopies { checked, stat: Some(stat), texts }))
    }
}

/// Where copies are.
enum CopiesAt {
    /// A value with this key.
    Value(Key),
    /// The metadata file of the group.
    Text(Bytes),
}

impl CopiesAt {
    /// Returns the metadata files; none if they cannot be read, since each node has its own.
    fn texts(self, documents: &DocumentStore) -> Texts {
        let text = match self {
            Self::Text(text) => Ok(Some(text)),
            Self::Value(key) => {
                let value = documents.store.get(&key, limits::METADATA.get());
                value.map(|value| value.map(|value| value.bytes))
            }
        };
        let copied = text.and_then(|text| match text {
            Some(text) => documents.dialect.copied_nodes(&text),
            None => Ok(Vec::new()),
        });
        let copied = copied.inspect_err(|error| log::debug!("consolidated metadata: {error}"));
        let copied = copied.unwrap_or_default().into_iter();
        copied.map(|(path, kind, text)| (path, (kind, Bytes::from(text)))).collect()
    }
}
