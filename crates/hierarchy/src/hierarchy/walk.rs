//! Walks over the nodes below a group, one node at a time: parents before children, siblings by
//! name.
//!
//! A hierarchy may be too large to walk, and links to directories may show the same nodes under any
//! number of names. So every walk has [`Bounds`], and ends with an error that names the limit it
//! reached.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Instant;
use std::vec::IntoIter;

use foldhash::quality::FixedState;

use super::node::Node;
use super::nodes::Hierarchy;
use crate::metadata::{NodeKind, NodePath};
use zarrfs_base::error::{Error, Result, WithSubject};
use zarrfs_base::limits;
use zarrfs_base::width::ToU64;

/// The most nested groups.
const MAX_DEPTH: usize = 256;

/// The most nodes that links repeat under another name.
const MAX_REPEATED: usize = 10_000;

/// The most nodes to remember for detecting repetitions.
const MAX_REMEMBERED: usize = 1_000_000;

/// The limits of a walk.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// The most nodes.
    pub nodes: usize,
    /// The most bytes of all metadata files together.
    pub text_len: u64,
}

impl Bounds {
    /// For consolidated metadata, which become a single text.
    pub const COPIES: Self = Self { nodes: 200_000, text_len: 256 << 20 };

    /// For callers that do not keep the nodes in memory.
    pub fn stream() -> Self {
        Self { nodes: limits::NODES.get_usize(), text_len: u64::MAX }
    }
}

/// The nodes that a walk has visited, because links may repeat nodes.
#[derive(Debug, Default)]
pub struct Visited {
    /// The versions of their documents, which include the identity of the file, with a hash of the
    /// path at which each was visited first.
    documents: HashMap<[u64; 4], u64>,
    repeated: usize,
}

impl Visited {
    /// Records a node; an error after too many repetitions under other paths.
    pub fn visit(&mut self, node: &Node) -> Result<()> {
        let Some(document) = node.stored() else { return Ok(()) };
        if self.documents.len() < MAX_REMEMBERED {
            let path = FixedState::default().hash_one(node.path().as_str());
            let first = self.documents.entry(document.stat.version.state()).or_insert(path);
            if *first != path {
                self.repeated = self.repeated.saturating_add(1);
            }
        }
        if self.repeated <= MAX_REPEATED {
            return Ok(());
        }
        Err(Error::too_large(format!(
            "symbolic links repeat more than {MAX_REPEATED} nodes below it under other names"
        )))
    }
}

/// An iterator over the nodes below a group. It continues with the next node after an error, unless
/// it reached a limit.
#[derive(Debug)]
pub struct Walk<'h> {
    hierarchy: &'h Hierarchy,
    bounds: Bounds,
    top: NodePath,
    /// The current node.
    last: NodePath,
    /// The group to enter next.
    next: Option<NodePath>,
    /// The groups around the current node, each with its remaining names.
    open: Vec<(NodePath, IntoIter<String>)>,
    nodes: usize,
    text_len: u64,
    visited: Visited,
    is_over: bool,
    /// No node may have been read before, if this is set.
    since: Option<Instant>,
}

impl Hierarchy {
    /// Walks over all nodes below `path`.
    pub fn walk_below(&self, path: &NodePath, bounds: Bounds) -> Walk<'_> {
        self.walk(path, bounds, None)
    }

    /// Walks over all nodes below `path` as the store has them at `since` or later.
    pub(super) fn walk_below_since(
        &self,
        path: &NodePath,
        bounds: Bounds,
        since: Instant,
    ) -> Result<Walk<'_>> {
        if let Some(list) = self.store().list() {
            list.forget_below(&self.dialect_of(path).children_prefix(path)?);
        }
        Ok(self.walk(path, bounds, Some(since)))
    }

    fn walk(&self, path: &NodePath, bounds: Bounds, since: Option<Instant>) -> Walk<'_> {
        Walk {
            since,
            hierarchy: self,
            bounds,
            top: path.clone(),
            last: path.clone(),
            next: Some(path.clone()),
            open: Vec::new(),
            nodes: 0,
            text_len: 0,
            visited: Visited::default(),
            is_over: false,
        }
    }
}

impl Walk<'_> {
    /// Returns the path of the current node, even if the node could not be read.
    pub fn at(&self) -> &NodePath {
        &self.last
    }

    /// Skips everything below the current node.
    pub fn skip_below(&mut self) {
        self.next = None;
    }

    fn over<T>(&mut self, what: &str) -> Result<T> {
        self.is_over = true;
        Err(Error::too_large(what.to_owned())).at(&self.top)
    }

    /// Enters the next group.
    fn enter(&mut self) -> Result<()> {
        let Some(path) = self.next.take() else { return Ok(()) };
        self.last = path.clone();
        if self.open.len() >= MAX_DEPTH {
            return Err(Error::too_large(format!("groups nested more than {MAX_DEPTH} deep")))
                .at(&path);
        }
        // An array may have arrays in it, but names that a server hides are not asked for there.
        let is_array = |node: Arc<Node>| node.kind() == NodeKind::Array && !node.is_bare();
        let hides_names = self.hierarchy.store().list().is_none_or(|list| !list.proves_absence());
        if hides_names && self.open.is_empty() && self.hierarchy.node(&path)?.is_some_and(is_array)
        {
            return Ok(());
        }
        let names = self.hierarchy.child_names(&path)?;
        self.open.push((path, names.into_iter()));
        Ok(())
    }

    fn count(&mut self, node: &Node) -> Result<()> {
        let Bounds { nodes, text_len } = self.bounds;
        self.nodes = self.nodes.saturating_add(1);
        if self.nodes > nodes {
            return self.over(&format!("more than {nodes} nodes below it"));
        }
        let Some(document) = node.stored() else { return Ok(()) };
        let len = document.text.len().to_u64();
        self.text_len = self.text_len.saturating_add(len);
        if self.text_len > text_len {
            return self.over(&format!("the metadata below it have more than {text_len} bytes"));
        }
        let visited = self.visited.visit(node);
        self.is_over |= visited.is_err();
        visited.at(&self.top)
    }
}

impl Iterator for Walk<'_> {
    type Item = Result<Arc<Node>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.is_over {
                return None;
            }
            if let Err(error) = self.enter() {
                return Some(Err(error));
            }
            let (group, names) = self.open.last_mut()?;
            let Some(name) = names.next() else {
                self.open.pop();
                continue;
            };
            let found = group.child(&name).and_then(|path| {
                self.last = path.clone();
                match self.since {
                    Some(since) => self.hierarchy.child_node_since(&path, since),
                    None => self.hierarchy.child_node(&path),
                }
            });
            let node = match found {
                Ok(Some(node)) => node,
                Ok(None) => continue,
                Err(error) => return Some(Err(error)),
            };
            if let Err(error) = self.count(&node) {
                return Some(Err(error));
            }
            if node.kind() == NodeKind::Group && !node.is_closed() {
                self.next = Some(node.path().clone());
            }
            return Some(Ok(node));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::hierarchy::HierarchyOptions;
    use zarrfs_store::Store;
    use zarrfs_store::directory::{DirectoryStore, Durability};

    const GROUP: &str = r#"{"zarr_format": 3, "node_type": "group", "attributes": {}}"#;

    fn hierarchy(groups: &[&str], links: &[(&str, &str)]) -> (tempfile::TempDir, Hierarchy) {
        let dir = tempfile::tempdir().expect("a directory");
        for group in groups {
            let at = dir.path().join(group);
            std::fs::create_dir_all(&at).expect("made");
            std::fs::write(at.join("zarr.json"), GROUP).expect("written");
        }
        for (target, link) in links {
            symlink(target, dir.path().join(link)).expect("linked");
        }
        let store = DirectoryStore::open(dir.path(), Durability::Buffered).expect("opens");
        let store = Store::new(Arc::new(store));
        (dir, Hierarchy::open(store, None, HierarchyOptions::default()).expect("opens"))
    }

    fn paths(walk: Walk<'_>) -> Vec<String> {
        walk.map(|node| node.map_or_else(|error| error.to_string(), |node| node.path().to_string()))
            .collect()
    }

    #[test]
    fn a_walk_meets_parents_first_and_siblings_by_name() {
        let (_dir, hierarchy) = hierarchy(&["", "b", "a-b", "a/c", "a", "a/c/d"], &[(".", "z")]);
        let root = NodePath::root();
        let all = paths(hierarchy.walk_below(&root, Bounds::stream()));
        assert_eq!(all, ["/a", "/a/c", "/a/c/d", "/a-b", "/b"]);
        let mut walk = hierarchy.walk_below(&root, Bounds::stream());
        assert!(walk.next().is_some_and(|node| node.is_ok()));
        walk.skip_below();
        assert_eq!(paths(walk), ["/a-b", "/b"]);
    }

    #[test]
    fn a_walk_ends_with_the_name_of_the_bound_that_it_has_reached() {
        let deep: Vec<String> = (0..=MAX_DEPTH).map(|depth| "d/".repeat(depth)).collect();
        let deep: Vec<&str> = deep.iter().map(String::as_str).collect();
        let (_dir, hierarchy) = hierarchy(&deep, &[]);
        let root = NodePath::root();
        let all = paths(hierarchy.walk_below(&root, Bounds::stream()));
        assert!(all.len() == MAX_DEPTH + 1 && all[MAX_DEPTH].contains("nested more than 256 deep"));
        let few = Bounds { nodes: 3, ..Bounds::stream() };
        let all = paths(hierarchy.walk_below(&root, few));
        assert_eq!(all[3..], ["/: more than 3 nodes below it"]);
        let short = Bounds { text_len: 100, ..Bounds::stream() };
        let all = paths(hierarchy.walk_below(&root, short));
        assert_eq!(all[1..], ["/: the metadata below it have more than 100 bytes"]);
    }

    #[test]
    fn nodes_that_links_show_again_and_again_end_a_walk() {
        let names: Vec<String> = (0..300).map(|n| format!("g/{n}")).collect();
        let mut groups: Vec<&str> = names.iter().map(String::as_str).collect();
        groups.extend(["", "g"]);
        let links: Vec<String> = (0..100).map(|n| format!("link{n}")).collect();
        let links: Vec<(&str, &str)> = links.iter().map(|link| ("g", link.as_str())).collect();
        let (_dir, few) = hierarchy(&groups, &links[..20]);
        assert_eq!(paths(few.walk_below(&NodePath::root(), Bounds::COPIES)).len(), 301 * 21);
        let (_dir, many) = hierarchy(&groups, &links);
        let all = paths(many.walk_below(&NodePath::root(), Bounds::COPIES));
        assert_eq!(all.len(), 301 + MAX_REPEATED + 1);
        assert!(all[all.len() - 1].contains("symbolic links repeat more than"), "{all:?}");
    }
}
