//! A hierarchy: nodes by path, read from their metadata files and cached for a while.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::copied::CopiedNodes;
use super::directories::KnownDirectories;
use super::documents::DocumentStore;
use super::folder::Folder;
use super::forms::Forms;
use super::node::{Content, Node};
use super::node_cache::{CachedNode, NodeCache, ReadAt};
use super::siblings::Siblings;
use super::texts::TextCache;
use super::unfinished::UnfinishedValues;
use crate::array::{Array, ArrayOptions, ShardCaches, ShardLayout, parse_index};
use crate::metadata::model::{self, KeyEncoding, Separator};
use crate::metadata::{Dialect, NodePath, Policy, detect};
use zarrfs_base::error::{Error, Result, WithSubject};
use zarrfs_base::limits;
use zarrfs_base::resources;
use zarrfs_store::{ByteRange, Key, Prefix, Store, StoreEntry};

/// The most keys below a prefix to look at when searching for a node or a chunk among them.
pub(super) const IMPLICIT_GROUP_SEARCH: usize = 10_000;

/// How to read and write a hierarchy.
#[derive(Debug, Clone)]
pub struct HierarchyOptions {
    /// How long to cache nodes.
    pub metadata_ttl: Duration,
    /// The most bytes of a decoded chunk.
    pub max_chunk_len: u64,
    /// How to write shards.
    pub layout: ShardLayout,
    /// How to store new arrays whose metadata leave it to the mount.
    pub policy: Policy,
    /// Whether a copy of an array within the mount is stored like that array instead.
    pub keeps_copied: bool,
    /// Whether encoded chunks that programs write are stored without decoding them first.
    pub trusts_encoded: bool,
    /// Whether the consolidated metadata of a group stand for the metadata files of its nodes.
    /// They may be outdated, so nothing must be stored then.
    pub reads_copies: bool,
    /// The coordinate system of OME-Zarr images that views show, if an image has it.
    pub coordinate_system: Option<String>,
}

impl Default for HierarchyOptions {
    fn default() -> Self {
        Self {
            metadata_ttl: Duration::from_secs(1),
            max_chunk_len: resources::within_memory(1 << 30, 8),
            layout: ShardLayout::default(),
            policy: Policy::default(),
            keeps_copied: false,
            trusts_encoded: false,
            reads_copies: false,
            coordinate_system: None,
        }
    }
}

/// A hierarchy in a store.
#[derive(Debug)]
pub struct Hierarchy {
    pub(super) documents: DocumentStore,
    pub(super) options: HierarchyOptions,
    nodes: NodeCache,
    shards: Arc<ShardCaches>,
    pub(super) siblings: Siblings,
    pub(super) copied: CopiedNodes,
    /// Directories that only this mount knows.
    pub directories: KnownDirectories,
    /// The hierarchy around this one, if its root is a node of a larger one.
    pub(super) above: Option<Above>,
    /// Documents that are shown with consolidated metadata.
    pub(super) shown_texts: TextCache,
    /// The nodes whose files differ from those of the mount.
    pub forms: Forms,
    /// The hierarchies below, if this is a folder of several.
    pub(super) folder: Folder,
    /// New values of arrays that could not all be stored.
    pub(super) unfinished: UnfinishedValues,
}

impl Hierarchy {
    /// Opens the hierarchy at the root of `store`, and detects the dialect if it is `None`.
    pub fn open(store: Store, dialect: Option<Dialect>, options: HierarchyOptions) -> Result<Self> {
        let dialect = dialect.map_or_else(|| detect(&store), Ok)?;
        Ok(Self {
            documents: DocumentStore { store, dialect },
            copied: CopiedNodes::new(options.reads_copies),
            forms: Forms::new(options.trusts_encoded),
            options,
            nodes: NodeCache::default(),
            shards: Arc::default(),
            siblings: Siblings::default(),
            directories: KnownDirectories::default(),
            above: None,
            shown_texts: TextCache::default(),
            folder: Folder::default(),
            unfinished: UnfinishedValues::default(),
        })
    }

    /// Opens a folder with hierarchies at these paths, which is read-only.
    pub fn open_folder(
        store: Store,
        parts: Vec<(NodePath, Dialect)>,
        options: HierarchyOptions,
    ) -> Result<Self> {
        let options = HierarchyOptions { reads_copies: false, ..options };
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
    pub fn options(&self) -> &HierarchyOptions {
        &self.options
    }

    /// Returns how its arrays are opened.
    pub fn array_options(&self) -> ArrayOptions {
        let HierarchyOptions { max_chunk_len, layout, .. } = self.options;
        ArrayOptions { max_chunk_len, layout, shards: Arc::clone(&self.shards) }
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
        let (at, generation) = (Instant::now(), self.nodes.generation());
        let node = match self.reader().read(path, kept.as_ref().map(|read| &read.node)) {
            // `.zarrfs` lies below the root, and must be readable while no server answers.
            Err(error) if path.is_root() && self.store().read().is_remote() => {
                return kept.map(|read| Some(read.node)).ok_or(error);
            }
            node => node?,
        };
        // A server is not asked again for what a listing has shown.
        let is_checked = !self.store().read().is_remote();
        self.keep(path, node.as_ref(), generation, ReadAt { at, is_checked });
        Ok(node)
    }

    /// Caches a node that was read.
    pub(super) fn keep(
        &self,
        path: &NodePath,
        node: Option<&Arc<Node>>,
        generation: u64,
        read: ReadAt,
    ) {
        self.nodes.keep(path, node, generation, read);
    }

    /// Returns what is cached of the node at `path`.
    pub(super) fn cached(&self, path: &NodePath) -> Option<CachedNode> {
        self.nodes.get(path)
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

    pub(super) fn bind(&self, path: &NodePath, node: model::NodeMetadata) -> Result<Content> {
        match node {
            model::NodeMetadata::Group(group) => Ok(Content::Group(group)),
            model::NodeMetadata::Array(mut array) => {
                let dialect = self.dialect_of(path);
                let prefix = dialect.chunk_prefix(path)?;
                if array.key_encoding == KeyEncoding::V2Undeclared {
                    array.key_encoding =
                        KeyEncoding::V2(self.separator_in_use(&prefix, array.shape.len())?);
                }
                // If another program moves or removes the array, a chunk that is stored just then
                // must not recreate its directory.
                let mut store = self.store().clone();
                if dialect.has_one_tree() {
                    store = store.in_directory(&prefix);
                }
                let array = Array::open(*array, &store, prefix, self.array_options())?;
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
                let is_level = matches!(entry, StoreEntry::Prefix(_));
                return Ok(if is_level { Separator::Slash } else { Separator::Dot });
            }
        }
        Ok(Separator::Dot)
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
