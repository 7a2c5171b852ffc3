//! What a format is told of a node.

use std::sync::Arc;

use super::{Elements, GetChunk, Items, Layout};
use crate::array::Array;
use crate::codec::reserve;
use crate::error::{Error, Kind, Result};
use crate::hierarchy::{Content, Hierarchy, Node};
use crate::metadata::model::Object;
use crate::metadata::{NodeKind, NodePath};

/// The most bytes of the values of one array that a header is made of.
const MAX_VALUES_LEN: u64 = 16 << 20;

/// A node, and what a format may ask about it.
#[derive(Clone)]
pub struct Source<'s> {
    node: Arc<Node>,
    hierarchy: &'s Hierarchy,
    get: &'s GetChunk<'s>,
}

impl std::fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("path", self.node.path()).finish_non_exhaustive()
    }
}

impl<'s> Source<'s> {
    /// The node at `path`, whose chunks `get` gets.
    pub fn new(hierarchy: &'s Hierarchy, path: &NodePath, get: &'s GetChunk<'s>) -> Result<Self> {
        let node = hierarchy.existing(path)?;
        if node.is_bare() {
            return Err(Error::not_found());
        }
        if let Content::NotUnderstood(_, error) = node.content() {
            return Err(Error::unsupported(format!("its metadata are not understood: {error}")));
        }
        Ok(Self { node, hierarchy, get })
    }

    /// Where in the hierarchy it is.
    pub fn path(&self) -> &NodePath {
        self.node.path()
    }

    /// Its name; `root` of the root.
    pub fn name(&self) -> &str {
        self.path().name().unwrap_or("root")
    }

    /// The name of the file of its elements alone, which lies beside those of other formats.
    pub fn raw_name(&self) -> String {
        format!("{}.raw", self.path().name().unwrap_or("__root__"))
    }

    /// Whether it is an array or a group.
    pub fn kind(&self) -> NodeKind {
        self.node.kind()
    }

    /// The array that it is.
    pub fn array(&self) -> Result<&Arc<Array>> {
        self.node.array().ok_or_else(|| Error::unsupported("not an array"))
    }

    /// Its attributes.
    pub fn attributes(&self) -> &Object {
        static NONE: std::sync::OnceLock<Object> = std::sync::OnceLock::new();
        match self.node.content() {
            Content::Array(array) => &array.model().attributes,
            Content::Group(group) => &group.attributes,
            Content::NotUnderstood(..) => NONE.get_or_init(Object::new),
        }
    }

    /// The nodes directly below a group that are understood, by name, and how many are not.
    pub fn children(&self) -> Result<(Vec<Self>, usize)> {
        let all = self.hierarchy.children(self.path())?;
        let count = all.len();
        let understood = |node: &Arc<Node>| {
            !node.is_bare() && !matches!(node.content(), Content::NotUnderstood(..))
        };
        let mut children: Vec<Self> = all
            .into_iter()
            .filter(understood)
            .map(|node| Self { node, hierarchy: self.hierarchy, get: self.get })
            .collect();
        children.sort_by(|one, other| one.path().cmp(other.path()));
        let others = count.saturating_sub(children.len());
        Ok((children, others))
    }

    /// The node at `path` in the same hierarchy.
    pub fn other(&self, path: &NodePath) -> Result<Self> {
        Self::new(self.hierarchy, path, self.get)
    }

    /// The groups that it is in, the innermost first.
    pub fn above(&self) -> impl Iterator<Item = Self> {
        let paths = self.path().ancestors().into_iter().rev();
        // One that is not understood says nothing about what is in it.
        paths.filter_map(|path| self.other(&path).ok())
    }

    /// The elements of the array that it is, as a part of a file.
    pub fn elements(&self, layout: Layout, items: Items) -> Result<Elements> {
        Elements::new(self.path(), self.array()?, layout, items)
    }

    /// All elements of the array that it is, little endian and in C order, where they are few enough to be part of a header.
    pub fn values(&self) -> Result<Vec<u8>> {
        let elements = self.elements(Layout::Linear, Items::default())?;
        let len = elements.len();
        if len > MAX_VALUES_LEN {
            return Err(Error::unsupported(format!(
                "{} has {len} bytes of values, and a header is made of up to {MAX_VALUES_LEN}",
                self.path()
            )));
        }
        let len = usize::try_from(len).map_err(|_| Error::new(Kind::NoMemory, "no memory"))?;
        let mut bytes = reserve(len)?;
        bytes.resize(len, 0);
        elements.read(0, &mut bytes, self.get)?;
        Ok(bytes)
    }
}
