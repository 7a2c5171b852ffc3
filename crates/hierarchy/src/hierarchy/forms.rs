//! The nodes whose files differ from those of the mount: nodes that a program of this mount created
//! as Zarr 2, or with codecs or chunk keys of its own, and those for which a program asked.
//!
//! This is not stored: the next mount shows these nodes like all others.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use super::node::Node;
use crate::array::{Array, Encoded};
use crate::metadata::NodePath;
use crate::metadata::model::{self, KeyEncoding, Levels, Separator};
use crate::metadata::shown::EncodedChunks;

/// The form of a node's files. The default is that of the mount.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeForm {
    /// How chunk files are encoded, `None` if they are decoded.
    pub encoded: Option<Arc<EncodedChunks>>,
    /// The form of their names.
    pub keys: KeyEncoding,
    /// Whether the node has the metadata files of Zarr 2.
    pub is_zarr2: bool,
}

/// The nodes whose files differ from those of the mount.
#[derive(Debug)]
pub struct Forms {
    /// A leaf lock.
    nodes: RwLock<HashMap<NodePath, NodeForm>>,
    /// Whether encoded chunks are stored without decoding them first.
    trusts_encoded: bool,
}

impl Forms {
    /// Returns none. Encoded chunks that programs write are stored without decoding them first if
    /// `trusts_encoded` is true.
    pub(super) fn new(trusts_encoded: bool) -> Self {
        Self { nodes: RwLock::default(), trusts_encoded }
    }

    /// Gives the arrays at and below `from` their new paths.
    pub(super) fn move_below(&self, from: &NodePath, to: &NodePath) {
        let mut known = self.nodes.write();
        let moved: Vec<_> = known
            .extract_if(|path, _| path.relative_to(from).is_some())
            .filter_map(|(path, form)| Some((path.moved(from, to)?, form)))
            .collect();
        known.extend(moved);
    }

    /// Forgets the arrays at and below `path`.
    pub(super) fn forget_below(&self, path: &NodePath) {
        self.nodes.write().retain(|known, _| known.relative_to(path).is_none());
    }

    /// Gives the files of the node at `path` this form from now on. Returns the form before.
    pub fn change(&self, path: &NodePath, change: impl FnOnce(&mut NodeForm)) -> NodeForm {
        let mut nodes = self.nodes.write();
        let before = nodes.get(path).cloned().unwrap_or_default();
        let mut form = before.clone();
        change(&mut form);
        if form == NodeForm::default() {
            nodes.remove(path);
        } else {
            nodes.insert(path.clone(), form);
        }
        before
    }

    /// Whether the node at `path` has the metadata files of Zarr 2 in a mount that shows Zarr 3.
    pub fn is_zarr2(&self, path: &NodePath) -> bool {
        self.nodes.read().get(path).is_some_and(|form| form.is_zarr2)
    }

    /// Returns the form of the names of chunk files in the array at `path`, `None` if they have the
    /// names of the mount.
    pub fn keys(&self, path: &NodePath) -> Option<KeyEncoding> {
        let nodes = self.nodes.read();
        let form = nodes.get(path)?;
        match form.keys {
            keys if keys != KeyEncoding::default() => Some(keys),
            _ => form.is_zarr2.then_some(KeyEncoding::V2(Separator::Dot)),
        }
    }

    /// Returns how the chunk files of the array at `path` are encoded, `None` if they are decoded.
    /// The form of an array that another program has replaced by one with other chunks does not
    /// count.
    pub fn encoded_chunks(
        &self,
        path: &NodePath,
        array: &model::ArrayMetadata,
    ) -> Option<Arc<EncodedChunks>> {
        let encoded = self.nodes.read().get(path)?.encoded.clone()?;
        encoded.are_of(array).then_some(encoded)
    }

    /// Returns an array at `path` in the form that its chunk files show.
    pub fn shown_array(&self, path: &NodePath, array: &Arc<Array>) -> Arc<Array> {
        self.array_in(array, self.encoded_chunks(path, array.model()).map(|chunks| chunks.levels))
    }

    /// Returns an array with decoded chunks, or with encoded ones.
    pub fn array_in(&self, array: &Arc<Array>, encoded: Option<Levels>) -> Arc<Array> {
        match encoded {
            Some(levels) => array.encoded(Encoded { levels, is_trusted: self.trusts_encoded }),
            None => Arc::clone(array),
        }
    }

    /// Returns the array of a node in the form that its chunk files show; `None` if it is no array
    /// that was understood.
    pub fn shown_array_of(&self, node: &Node) -> Option<Arc<Array>> {
        node.array().map(|array| self.shown_array(node.path(), array))
    }
}
