//! Directories that only this mount knows: those that are not stored yet, and those whose document
//! was removed.
//!
//! Most stores have no empty directories. A directory that a program makes becomes a group after a
//! while; until then it shows no document, so that the program can create one. A directory whose
//! document was removed remembers its content, so that programs can still walk and remove what lies
//! below it, in any order.
//!
//! A store of files has the directory, too. If another program removes or moves it there, it is
//! gone here.
//!
//! A directory that became a group by itself is still empty to the program that made it, and
//! `rmdir` removes it. So its path is remembered, until a program writes a document there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;

use super::node::{Content, Node, NodeState};
use crate::metadata::NodePath;
use crate::metadata::merge::Edit;
use zarrfs_base::bounded::{Bounded, MapLimits};
use zarrfs_base::error::Error;
use zarrfs_store::directory::is_of_chunks;

/// The most groups that are known to have been directories.
const MOST_GROUPS: usize = 1 << 16;

/// The directories by path.
#[derive(Debug)]
pub struct KnownDirectories {
    /// A leaf lock.
    known: Mutex<BTreeMap<NodePath, KnownDirectory>>,
    /// The directories that became groups by themselves. A leaf lock.
    groups: Mutex<Bounded<NodePath, ()>>,
    /// The attributes that programs gave directories before another program made these nodes. A
    /// leaf lock.
    late_attributes: Mutex<BTreeMap<NodePath, Edit>>,
}

impl Default for KnownDirectories {
    fn default() -> Self {
        let groups = Mutex::new(Bounded::new(MapLimits::entries(MOST_GROUPS)));
        Self { known: Mutex::default(), groups, late_attributes: Mutex::default() }
    }
}

#[derive(Debug)]
pub(super) struct KnownDirectory {
    pub node: Arc<Node>,
    /// The time of the last activity in it.
    touched: Instant,
    /// The error of the last attempt to store it as a group.
    failure: Option<Error>,
    /// Whether the store has it, unless another program removed it.
    is_in_store: bool,
}

impl KnownDirectory {
    fn new(node: Node, is_in_store: bool) -> Self {
        Self { node: Arc::new(node), touched: Instant::now(), failure: None, is_in_store }
    }

    /// Returns it with another path and state.
    pub fn moved_as(&self, node: Node) -> Self {
        Self::new(node, self.is_in_store)
    }
}

impl KnownDirectories {
    /// Returns the directory at `path`, if only this mount knows it.
    pub fn get(&self, path: &NodePath) -> Option<Arc<Node>> {
        self.known.lock().get(path).map(|known| Arc::clone(&known.node))
    }

    /// Adds a directory, or replaces its state.
    pub(super) fn insert(&self, node: Node) {
        let path = node.path().clone();
        let mut all = self.known.lock();
        let is_in_store = all.get(&path).is_some_and(|known| known.is_in_store);
        all.insert(path, KnownDirectory::new(node, is_in_store));
    }

    /// Adds directories that were taken.
    pub(super) fn put_back(&self, taken: impl IntoIterator<Item = KnownDirectory>) {
        let taken = taken.into_iter().map(|known| (known.node.path().clone(), known));
        self.known.lock().extend(taken);
    }

    /// Keeps changes of attributes of the directory at `path` until it becomes a node. `false` if
    /// it is none that only this mount knows, or has a document in the store already.
    pub(super) fn keep_attributes(&self, path: &NodePath, edit: &Edit) -> bool {
        let mut all = self.known.lock();
        let Some(known) = all.get_mut(path) else { return false };
        let NodeState::Bare(None) = known.node.state else { return false };
        let Content::Group(group) = &known.node.content else { return false };
        let of_attributes = Edit { attributes: edit.attributes.clone(), ..Edit::default() };
        if *edit != of_attributes {
            return false;
        }
        let mut group = group.clone();
        for (name, value) in &edit.attributes {
            match value {
                Some(value) => drop(group.attributes.insert(name.clone(), value.clone())),
                None => drop(group.attributes.remove(name)),
            }
        }
        let mut node = Node::bare(path.clone(), None);
        node.content = Content::Group(group);
        known.node = Arc::new(node);
        known.touched = Instant::now();
        true
    }

    /// Returns the attributes that programs gave the directory at `path`.
    pub(super) fn attributes(&self, path: &NodePath) -> Edit {
        self.known.lock().get(path).map(|known| attributes_of(&known.node)).unwrap_or_default()
    }

    /// Removes the directory at `path`, because another program has made it a node. Attributes that
    /// programs gave it are kept for [`Self::take_late_attributes`].
    pub(super) fn remove_for_other(&self, path: &NodePath) {
        let edit = self.attributes(path);
        if !edit.is_empty() {
            drop(self.late_attributes.lock().insert(path.clone(), edit));
        }
        self.remove(path);
    }

    /// Removes `path` and every directory below it, because another program has removed or moved
    /// it. Attributes are kept for [`Self::take_late_attributes`].
    pub(super) fn remove_gone(&self, path: &NodePath) {
        for known in self.take_below(path) {
            let edit = attributes_of(&known.node);
            if !edit.is_empty() {
                drop(self.late_attributes.lock().insert(known.node.path().clone(), edit));
            }
        }
    }

    /// Returns the attributes that programs gave directories before others made these nodes,
    /// removed or moved them, and forgets them.
    pub fn take_late_attributes(&self) -> BTreeMap<NodePath, Edit> {
        std::mem::take(&mut *self.late_attributes.lock())
    }

    /// Notes that the store has the directory at `path`.
    pub fn note_in_store(&self, path: &NodePath) {
        if let Some(known) = self.known.lock().get_mut(path) {
            known.is_in_store = true;
        }
    }

    /// Notes that something in the directory at `path` is about to be erased. If it then is empty
    /// and has a name of directories of chunks, the store removes it.
    pub(super) fn note_erased_in(&self, path: &NodePath) {
        if path.name().is_some_and(is_of_chunks)
            && let Some(known) = self.known.lock().get_mut(path)
        {
            known.is_in_store = false;
        }
    }

    /// Whether the store has the directory at `path`, unless another program removed it.
    pub(super) fn is_in_store(&self, path: &NodePath) -> bool {
        self.known.lock().get(path).is_some_and(|known| known.is_in_store)
    }

    /// Notes that the directory at `path` became a group by itself.
    pub(super) fn note_became_group(&self, path: &NodePath) {
        drop(self.groups.lock().put(path.clone(), (), 0));
    }

    /// Whether the node at `path` was a directory that became a group by itself.
    pub(super) fn became_group(&self, path: &NodePath) -> bool {
        self.groups.lock().contains(path)
    }

    /// Notes that a program writes the metadata file of the node at `path`.
    pub fn forget_became_group(&self, path: &NodePath) {
        self.groups.lock().remove(path);
    }

    /// Notes that the nodes at and below `path` are gone.
    pub(super) fn forget_groups_below(&self, path: &NodePath) {
        self.groups.lock().retain(|group, ()| group.relative_to(path).is_none());
    }

    /// Notes that the node at `from` is at `to` now, with all below it.
    pub(super) fn move_groups(&self, from: &NodePath, to: &NodePath) {
        let mut groups = self.groups.lock();
        let moved: Vec<_> = groups.iter().filter_map(|(group, ())| group.moved(from, to)).collect();
        groups.retain(|group, ()| group.relative_to(from).is_none());
        for group in moved {
            drop(groups.put(group, (), 0));
        }
    }

    /// Removes a directory that became a node or was removed.
    pub(super) fn remove(&self, path: &NodePath) -> Option<Arc<Node>> {
        self.known.lock().remove(path).map(|known| known.node)
    }

    /// Removes `path` and every directory below it.
    pub(super) fn take_below(&self, path: &NodePath) -> Vec<KnownDirectory> {
        let mut known = self.known.lock();
        let paths: Vec<NodePath> = known
            .range(path.clone()..)
            .map(|(path, _)| path.clone())
            .take_while(|found| found.relative_to(path).is_some())
            .collect();
        paths.iter().filter_map(|path| known.remove(path)).collect()
    }

    /// Returns the names of the directories directly below `path` that the store may not have.
    pub(super) fn below(&self, path: &NodePath) -> Vec<String> {
        let known = self.known.lock();
        let below = known.range(path.clone()..);
        below
            .take_while(|(found, _)| found.relative_to(path).is_some())
            .filter(|(found, known)| !known.is_in_store && found.parent().as_ref() == Some(path))
            .filter_map(|(found, _)| found.name().map(str::to_owned))
            .collect()
    }

    /// Records activity at `path`, so that directories above it do not become groups yet.
    pub fn touch(&self, path: &NodePath) {
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

    /// Returns the directories that are to become groups and were idle for `delay`, parents first.
    pub fn quiet(&self, delay: Duration) -> Vec<NodePath> {
        let all = self.known.lock();
        let is_quiet =
            |path: &NodePath| all.get(path).is_none_or(|known| known.touched.elapsed() >= delay);
        let quiet = all.iter().filter(|(path, known)| {
            // While a program fills one directory, it may still write documents into the siblings.
            let mut above = std::iter::successors(Some((*path).clone()), NodePath::parent);
            (becomes_group(path, known) && above.all(|path| is_quiet(&path)))
                // The root stays a group after its document was removed.
                || (path.is_root() && delay.is_zero())
        });
        quiet.map(|(path, _)| path.clone()).collect()
    }

    /// Records why the directory at `path` could not be stored as a group, and restarts its delay.
    pub fn note_failure(&self, path: &NodePath, error: &Error) {
        self.touch(path);
        if let Some(known) = self.known.lock().get_mut(path) {
            known.failure = Some(error.clone());
        }
    }

    /// Returns the directories that are to become groups and have no document in the store yet,
    /// each with the error of the last attempt to store it. Parents come first.
    pub fn unstored(&self) -> Vec<(NodePath, Option<Error>)> {
        let all = self.known.lock();
        let unstored = all.iter().filter(|(path, known)| {
            becomes_group(path, known) && matches!(known.node.state, NodeState::Bare(None))
        });
        unstored.map(|(path, known)| (path.clone(), known.failure.clone())).collect()
    }
}

/// Whether a directory becomes a group by itself. Hidden ones do not, because they belong to other
/// programs: repositories, scratch files.
fn becomes_group(path: &NodePath, known: &KnownDirectory) -> bool {
    let is_hidden = path.components().any(|name| name.starts_with('.'));
    matches!(known.node.state, NodeState::Bare(_)) && !is_hidden
}

/// The attributes that programs gave a directory.
fn attributes_of(node: &Node) -> Edit {
    let attributes = if node.is_made() { node.attributes() } else { None };
    let set = |(name, value): (&String, &Value)| (name.clone(), Some(value.clone()));
    Edit { attributes: attributes.into_iter().flatten().map(set).collect(), ..Edit::default() }
}
