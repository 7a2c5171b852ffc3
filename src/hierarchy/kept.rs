//! Nodes that were read, kept for those who ask again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::RwLock;

use super::moves::Moves;
use super::node::Node;
use crate::metadata::NodePath;
use crate::resources;

/// How many bytes the nodes that are kept take, about; a walk over more of them must not fill the memory.
const MAX_KEPT_LEN: u64 = 64 << 20;

/// Nodes that were read, by path.
#[derive(Debug, Default)]
pub(super) struct KeptNodes {
    /// A leaf: metadata files are read and lowered before it is locked.
    nodes: RwLock<Kept>,
    /// How often something was forgotten; changed only while `nodes` is locked.
    forgotten: AtomicU64,
    /// The paths of nodes that were moved or removed.
    moves: Moves,
}

impl KeptNodes {
    /// The node at `path` as it was read last.
    pub fn get(&self, path: &NodePath) -> Option<Read> {
        self.nodes.read().get(path).cloned()
    }

    /// Keeps the node that was read at `path`, or notes that there is none. Does nothing if something
    /// was forgotten since `generation`: what was read may be older than that.
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

    /// A number that changes whenever something is forgotten.
    pub fn generation(&self) -> u64 {
        self.forgotten.load(Ordering::SeqCst)
    }

    /// Forgets what was read of `path`.
    pub fn forget(&self, path: &NodePath) {
        let mut nodes = self.nodes.write();
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        nodes.remove(path);
    }

    /// Forgets what was read of `path`, which was moved or removed, and of everything below it.
    pub fn forget_below(&self, path: &NodePath) {
        let mut nodes = self.nodes.write();
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        self.moves.note(path);
        nodes.remove_below(path);
    }

    /// The moves and removals so far.
    pub fn moves(&self) -> &Moves {
        &self.moves
    }
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
pub(super) struct Read {
    pub at: Instant,
    pub node: Arc<Node>,
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
