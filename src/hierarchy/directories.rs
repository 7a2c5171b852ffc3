//! Directories that only this mount knows: made and not stored yet, or left by a document that was removed.
//!
//! A store has no empty directories. One that a program makes becomes a group in time; until then
//! nothing shows as its document, so that the program can create one. One whose document was removed keeps what
//! it was, so that what lies below it can still be walked and removed, in whatever order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::node::{Node, Standing};
use crate::metadata::NodePath;

/// Directories by path.
#[derive(Debug, Default)]
pub(super) struct Directories {
    /// A leaf.
    known: Mutex<BTreeMap<NodePath, Known>>,
}

#[derive(Debug)]
struct Known {
    node: Arc<Node>,
    /// When something was last done in it.
    touched: Instant,
}

impl Directories {
    /// The directory at `path`, if it is one of these.
    pub(super) fn get(&self, path: &NodePath) -> Option<Arc<Node>> {
        self.known.lock().get(path).map(|known| Arc::clone(&known.node))
    }

    /// Adds a directory, or what it is now.
    pub(super) fn insert(&self, node: Node) {
        let path = node.path().clone();
        let known = Known { node: Arc::new(node), touched: Instant::now() };
        self.known.lock().insert(path, known);
    }

    /// Takes a directory out: it has become a node, or has gone.
    pub(super) fn remove(&self, path: &NodePath) -> Option<Arc<Node>> {
        self.known.lock().remove(path).map(|known| known.node)
    }

    /// Takes out `path` and every directory below it.
    pub(super) fn take_below(&self, path: &NodePath) -> Vec<Arc<Node>> {
        let mut known = self.known.lock();
        let paths: Vec<NodePath> = known
            .range(path.clone()..)
            .map(|(path, _)| path.clone())
            .take_while(|found| found.relative_to(path).is_some())
            .collect();
        paths.iter().filter_map(|path| known.remove(path)).map(|known| known.node).collect()
    }

    /// The names of the directories directly in `path`.
    pub(super) fn below(&self, path: &NodePath) -> Vec<String> {
        let known = self.known.lock();
        let below = known.range(path.clone()..).map(|(found, _)| found);
        below
            .take_while(|found| found.relative_to(path).is_some())
            .filter(|found| found.parent().as_ref() == Some(path))
            .filter_map(|found| found.name().map(str::to_owned))
            .collect()
    }

    /// Notes that something was done at `path`: the directories that it is in are in use.
    pub(super) fn touch(&self, path: &NodePath) {
        let mut known = self.known.lock();
        if known.is_empty() {
            return;
        }
        let now = Instant::now();
        for path in std::iter::successors(Some(path.clone()), NodePath::parent) {
            if let Some(known) = known.get_mut(&path) {
                known.touched = now;
            }
        }
    }

    /// Directories that are to become groups and that nothing was done in for `delay`, those above first.
    pub(super) fn quiet(&self, delay: Duration) -> Vec<NodePath> {
        let all = self.known.lock();
        let is_quiet =
            |path: &NodePath| all.get(path).is_none_or(|known| known.touched.elapsed() >= delay);
        let quiet = all.iter().filter(|(path, known)| {
            let is_made = matches!(known.node.standing, Standing::Bare(_));
            // What begins with a dot is some program's own: a repository, a directory of scratch files.
            let is_hidden = path.components().any(|name| name.starts_with('.'));
            // While one directory is being filled its neighbours may wait for their document, too.
            let mut above = std::iter::successors(Some((*path).clone()), NodePath::parent);
            (is_made && !is_hidden && above.all(|path| is_quiet(&path)))
                // The root stays a group though its document was removed.
                || (path.is_root() && delay.is_zero())
        });
        quiet.map(|(path, _)| path.clone()).collect()
    }
}
