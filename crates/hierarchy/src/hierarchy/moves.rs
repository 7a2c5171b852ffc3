//! Records which nodes were moved or removed, because callers may still use an old path.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::metadata::NodePath;

/// The nodes that were moved or removed in this mount; a subtree counts once.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// A leaf lock.
    noted: Mutex<Noted>,
    /// A copy of `Moves::count` that can be read without the lock.
    count: AtomicU64,
}

impl Moves {
    /// Records that the node at `path` was moved or removed.
    pub fn note(&self, path: &NodePath) {
        let mut noted = self.noted.lock();
        noted.note(path);
        self.count.store(noted.count, Ordering::Release);
    }

    /// The number of moves and removals so far.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Whether a node at `path` or above it was moved or removed after the first `count` moves.
    pub fn any_since(&self, count: u64, path: &NodePath) -> bool {
        self.count() != count && self.noted.lock().any_since(count, path)
    }
}

/// Moves and removals of nodes.
#[derive(Debug, Default)]
struct Noted {
    /// The number of moves and removals so far.
    count: u64,
    /// The number of the last move or removal of each path.
    last: HashMap<NodePath, u64>,
    /// Entries of moves before this number were dropped, so any path may have moved before it.
    known_since: u64,
}

/// The most paths to remember.
const MAX_MOVES: usize = 1 << 16;

impl Noted {
    fn note(&mut self, path: &NodePath) {
        self.count = self.count.saturating_add(1);
        if self.last.len() >= MAX_MOVES {
            (self.last, self.known_since) = (HashMap::new(), self.count);
        }
        self.last.insert(path.clone(), self.count);
    }

    /// Whether a node at `path` or above it was moved after the first `count` moves.
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
