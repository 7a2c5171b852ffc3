//! The path of a node: names from the root of the hierarchy down.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use zarrfs_base::error::{Error, Result};
use zarrfs_store::is_component;

/// The path of a node. The root has no components.
///
/// Paths sort by their components, so that all nodes below one are adjacent.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct NodePath(Arc<str>);

impl NodePath {
    /// Returns the root of the hierarchy.
    pub fn root() -> Self {
        Self("".into())
    }

    /// Parses `/a/b` or `a/b`, which mean the same. `/` and the empty string are the root.
    pub fn parse(text: &str) -> Result<Self> {
        let names = text.strip_prefix('/').unwrap_or(text);
        if names.is_empty() {
            Ok(Self::root())
        } else if names.split('/').all(is_component) {
            Ok(Self(names.into()))
        } else {
            Err(Error::invalid(format!("{text:?} is not the path of a node")))
        }
    }

    /// Returns the path of the child `name`.
    pub fn child(&self, name: &str) -> Result<Self> {
        if !is_component(name) {
            return Err(Error::invalid(format!("{name:?} cannot be the name of a node")));
        }
        Ok(if self.is_root() {
            Self(name.into())
        } else {
            Self(format!("{}/{name}", self.0).into())
        })
    }

    /// Returns the path of the group that contains this node; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        if self.is_root() {
            return None;
        }
        Some(Self(self.0.rsplit_once('/').map_or("", |(parent, _)| parent).into()))
    }

    /// Returns the node at the relative path below this node, or this node if `relative` is empty.
    pub fn join(&self, relative: &str) -> Result<Self> {
        relative
            .split('/')
            .filter(|_| !relative.is_empty())
            .try_fold(self.clone(), |path, name| path.child(name))
    }

    /// Returns the relative path from `above` to this node, empty for `above` itself. `None` if
    /// this node is not below it.
    pub fn relative_to(&self, above: &Self) -> Option<&str> {
        if above.is_root() {
            return Some(&self.0);
        }
        let rest = self.0.strip_prefix(&*above.0)?;
        if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
    }

    /// Returns the path of this node after `from`, which is this node or above it, moved to `to`;
    /// `None` for other nodes.
    pub fn moved(&self, from: &Self, to: &Self) -> Option<Self> {
        to.join(self.relative_to(from)?).ok()
    }

    /// Returns the groups above this node, the root first.
    pub fn ancestors(&self) -> Vec<Self> {
        let mut above: Vec<Self> = std::iter::successors(self.parent(), Self::parent).collect();
        above.reverse();
        above
    }

    /// Returns the last component; `None` for the root.
    pub fn name(&self) -> Option<&str> {
        self.components().next_back()
    }

    /// Returns the names from the root down.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/').filter(|name| !name.is_empty())
    }

    /// Whether this is the root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the components joined by slashes, without a leading one, as in keys.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Ord for NodePath {
    fn cmp(&self, other: &Self) -> Ordering {
        self.components().cmp(other.components())
    }
}

impl PartialOrd for NodePath {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for NodePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.0)
    }
}

impl fmt::Debug for NodePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodePath(/{})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_knows_its_parent_and_its_name() {
        let path = NodePath::parse("/a/b").expect("valid");
        assert_eq!(path, NodePath::root().child("a").and_then(|a| a.child("b")).expect("valid"));
        assert_eq!((path.to_string().as_str(), path.name()), ("/a/b", Some("b")));
        assert_eq!(path.parent(), NodePath::parse("a").ok());
        assert_eq!(path.parent().and_then(|a| a.parent()), Some(NodePath::root()));
        assert_eq!((NodePath::root().parent(), NodePath::root().to_string().as_str()), (None, "/"));
    }

    #[test]
    fn no_path_leads_upwards() {
        for text in ["..", "/a/../b", "a//b", "a/", "./a", "a/.", "a\0b", "//"] {
            assert!(NodePath::parse(text).is_err(), "{text:?} was taken as a path");
        }
        assert!(NodePath::root().child("a/b").is_err());
    }

    #[test]
    fn nodes_below_a_node_sort_before_its_siblings() {
        let mut paths =
            ["a/b", "a-b", "a", "b", ""].map(|text| NodePath::parse(text).expect("valid"));
        paths.sort();
        assert_eq!(paths.map(|path| path.to_string()), ["/", "/a", "/a/b", "/a-b", "/b"]);
    }
}
