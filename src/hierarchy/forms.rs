//! The arrays whose chunk files show encoded chunks: those that a program of this mount created
//! with codecs of its own, and those for which a program asked.
//!
//! This is not stored: the next mount shows their chunks decoded, as those of any other array.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use super::node::Node;
use super::nodes::Hierarchy;
use crate::array::{Array, Encoded};
use crate::metadata::NodePath;
use crate::metadata::model::Levels;
use crate::metadata::shown::EncodedChunks;

/// The arrays with encoded chunk files.
#[derive(Debug, Default)]
pub(super) struct Forms {
    /// How the chunk files of each array are encoded. A leaf lock.
    encoded: RwLock<HashMap<NodePath, Arc<EncodedChunks>>>,
}

impl Forms {
    /// Gives the arrays at and below `from` their new paths.
    pub fn move_below(&self, from: &NodePath, to: &NodePath) {
        let mut encoded = self.encoded.write();
        let moved: Vec<_> = encoded
            .extract_if(|path, _| path.relative_to(from).is_some())
            .filter_map(|(path, chunks)| Some((path.moved(from, to)?, chunks)))
            .collect();
        encoded.extend(moved);
    }

    /// Forgets the arrays at and below `path`.
    pub fn forget_below(&self, path: &NodePath) {
        self.encoded.write().retain(|known, _| known.relative_to(path).is_none());
    }
}

impl Hierarchy {
    /// Returns how the chunk files of the array at `path` are encoded, `None` if they are decoded.
    pub fn encoded_chunks(&self, path: &NodePath) -> Option<Arc<EncodedChunks>> {
        self.forms.encoded.read().get(path).cloned()
    }

    /// Has the chunk files of the array at `path` show encoded chunks from now on, or decoded ones.
    /// Returns what they showed before.
    pub fn show_chunks(
        &self,
        path: &NodePath,
        encoded: Option<Arc<EncodedChunks>>,
    ) -> Option<Arc<EncodedChunks>> {
        let mut known = self.forms.encoded.write();
        match encoded {
            Some(chunks) => known.insert(path.clone(), chunks),
            None => known.remove(path),
        }
    }

    /// Returns an array at `path` in the form that its chunk files show.
    pub fn shown_array(&self, path: &NodePath, array: &Arc<Array>) -> Arc<Array> {
        self.array_in(array, self.encoded_chunks(path).map(|chunks| chunks.levels))
    }

    /// Returns an array with decoded chunks, or with encoded ones.
    pub fn array_in(&self, array: &Arc<Array>, encoded: Option<Levels>) -> Arc<Array> {
        match encoded {
            Some(levels) => {
                array.encoded(Encoded { levels, is_trusted: self.options.trusts_encoded })
            }
            None => Arc::clone(array),
        }
    }

    /// Returns the array of a node in the form that its chunk files show; `None` if it is no array
    /// that was understood.
    pub fn shown_array_of(&self, node: &Node) -> Option<Arc<Array>> {
        node.array().map(|array| self.shown_array(node.path(), array))
    }
}
