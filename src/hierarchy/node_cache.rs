//! A cache of nodes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::RwLock;

use super::moves::Moves;
use super::node::Node;
use crate::metadata::NodePath;
use crate::resources;

/// The approximate limit of cached nodes in bytes.
const MAX_KEPT_LEN: u64 = 64 << 20;

/// Cached nodes by path.
#[derive(Debug, Default)]
pub(super) struct NodeCache {
    /// A leaf lock: metadata files are read and lowered before it is taken.
    nodes: RwLock<Generations>,
    /// Counts invalidations; changes only while `nodes` is locked.
    forgotten: AtomicU64,
    /// The paths of nodes that were moved or removed.
    moves: Moves,
}

impl NodeCache {
    /// Returns the cached node at `path`.
    pub fn get(&self, path: &NodePath) -> Option<CachedNode> {
        self.nodes.read().get(path).cloned()
    }

    /// Caches the node that was read at `path`, or removes it if there is none. Does nothing after
    /// an invalidation since `generation`, because the node may be outdated.
    pub fn keep(&self, path: &NodePath, node: Option<&Arc<Node>>, generation: u64) {
        let mut nodes = self.nodes.write();
        if self.generation() != generation {
            return;
        }
        match node {
            Some(node) => nodes.insert(path, node),
            None => nodes.remove(path),
        }
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
        nodes.remove_below(path);
    }

    /// Returns the moves and removals so far.
    pub fn moves(&self) -> &Moves {
        &self.moves
    }
}

/// A cache of nodes in two generations: when the young one is full, it becomes the old one.
#[derive(Debug, Default)]
struct Generations {
    young: HashMap<NodePath, CachedNode>,
    old: HashMap<NodePath, CachedNode>,
    /// The approximate memory of the young nodes, in bytes.
    len: usize,
}

/// A cached node, and when it was read.
#[derive(Debug, Clone)]
pub(super) struct CachedNode {
    pub at: Instant,
    pub node: Arc<Node>,
    /// Its approximate memory, in bytes.
    len: usize,
}

impl Generations {
    fn get(&self, path: &NodePath) -> Option<&CachedNode> {
        self.young.get(path).or_else(|| self.old.get(path))
    }

    /// Caches a node. Callers keep their own reference, so eviction does not disturb them.
    fn insert(&mut self, path: &NodePath, node: &Arc<Node>) {
        let known = self.get(path).filter(|known| Arc::ptr_eq(&known.node, node));
        let len = known.map_or_else(|| node.memory_len(), |known| known.len);
        self.remove(path);
        let limit = resources::within_memory(MAX_KEPT_LEN, 8) / 2;
        if u64::try_from(self.len.saturating_add(len)).is_ok_and(|len| len > limit) {
            (self.old, self.len) = (std::mem::take(&mut self.young), 0);
        }
        self.len = self.len.saturating_add(len);
        self.young
            .insert(path.clone(), CachedNode { at: Instant::now(), node: Arc::clone(node), len });
    }

    fn remove(&mut self, path: &NodePath) {
        self.old.remove(path);
        if let Some(read) = self.young.remove(path) {
            self.len = self.len.saturating_sub(read.len);
        }
    }

    fn remove_below(&mut self, path: &NodePath) {
        let is_other = |known: &NodePath, _: &mut CachedNode| known.relative_to(path).is_none();
        self.old.retain(is_other);
        self.young.retain(is_other);
        self.len = self.young.values().fold(0, |len, read| len.saturating_add(read.len));
    }
}
