//! A cache of nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::RwLock;

use super::moves::Moves;
use super::node::Node;
use crate::metadata::NodePath;
use zarrfs_base::bounded::{Bounded, MapLimits};
use zarrfs_base::resources;
use zarrfs_base::width::ToU64;

/// The approximate limit of cached nodes in bytes.
const MAX_KEPT_LEN: u64 = 64 << 20;

/// Cached nodes by path. Those that were read longest ago are evicted first: look-ups share the
/// lock, so they leave the order as it is.
#[derive(Debug)]
pub(super) struct NodeCache {
    /// A leaf lock: metadata files are read and lowered before it is taken.
    nodes: RwLock<Bounded<NodePath, CachedNode>>,
    /// Counts invalidations; changes only while `nodes` is locked.
    forgotten: AtomicU64,
    /// The paths of nodes that were moved or removed.
    moves: Moves,
}

impl Default for NodeCache {
    fn default() -> Self {
        let limits = MapLimits::bytes(resources::within_memory(MAX_KEPT_LEN, 8));
        let nodes = RwLock::new(Bounded::new(limits));
        Self { nodes, forgotten: AtomicU64::new(0), moves: Moves::default() }
    }
}

impl NodeCache {
    /// Returns the cached node at `path`.
    pub fn get(&self, path: &NodePath) -> Option<CachedNode> {
        self.nodes.read().peek(path).cloned()
    }

    /// Caches the node that was read at `path`, or removes it if there is none. Does nothing after
    /// an invalidation since `generation`, because the node may be outdated.
    pub fn keep(&self, path: &NodePath, node: Option<&Arc<Node>>, generation: u64, read: ReadAt) {
        let ReadAt { at, is_checked } = read;
        let checked = is_checked.then_some(at);
        let read = node.map(|node| (node, self.len_of(path, node)));
        let mut nodes = self.nodes.write();
        if self.generation() != generation {
            return;
        }
        let gone = match read {
            Some((node, len)) => {
                let read = CachedNode { at, checked, node: Arc::clone(node) };
                nodes.put(path.clone(), read, len)
            }
            None => nodes.remove(path).map(|node| (path.clone(), node)).into_iter().collect(),
        };
        drop(nodes);
        drop(gone); // Freeing memory takes time: not under the lock.
    }

    /// Returns the approximate memory of a node in bytes.
    fn len_of(&self, path: &NodePath, node: &Arc<Node>) -> u64 {
        let nodes = self.nodes.read();
        let is_same = nodes.peek(path).is_some_and(|known| Arc::ptr_eq(&known.node, node));
        let known = nodes.len_of(path).filter(|_| is_same);
        drop(nodes);
        known.unwrap_or_else(|| node.memory_len().to_u64())
    }

    /// Returns a number that changes with every invalidation.
    pub fn generation(&self) -> u64 {
        self.forgotten.load(Ordering::SeqCst)
    }

    /// Drops the cached node at `path`.
    pub fn forget(&self, path: &NodePath) {
        let mut nodes = self.nodes.write();
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        nodes.remove(path);
    }

    /// Drops the cached nodes at and below `path`, which was moved or removed.
    pub fn forget_below(&self, path: &NodePath) {
        let mut nodes = self.nodes.write();
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        self.moves.note(path);
        nodes.retain(|known, _| known.relative_to(path).is_none());
    }

    /// Returns the moves and removals so far.
    pub fn moves(&self) -> &Moves {
        &self.moves
    }
}

/// When reading a node began, and whether it was compared with what the store had then.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadAt {
    pub at: Instant,
    pub is_checked: bool,
}

/// A cached node, and when it was read.
#[derive(Debug, Clone)]
pub(super) struct CachedNode {
    pub at: Instant,
    /// When it was last compared with what the store had then.
    checked: Option<Instant>,
    pub node: Arc<Node>,
}

impl CachedNode {
    /// Whether it was compared with the store at `since` or later.
    pub fn is_checked_since(&self, since: Instant) -> bool {
        self.checked.is_some_and(|checked| checked >= since)
    }
}
