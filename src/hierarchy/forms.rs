//! The chunk files of arrays that differ from those of the mount: of arrays that a program of this
//! mount created with codecs or chunk keys of its own, and of those for which a program asked.
//!
//! This is not stored: the next mount shows their chunks decoded, under the names of the mount.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use super::node::Node;
use super::nodes::Hierarchy;
use crate::array::{Array, Encoded};
use crate::metadata::NodePath;
use crate::metadata::model::{KeyEncoding, Levels};
use crate::metadata::shown::EncodedChunks;

/// What the chunk files of an array are.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChunkFiles {
    /// How they are encoded, `None` if they are decoded.
    pub encoded: Option<Arc<EncodedChunks>>,
    /// The form of their names. The default stands for the names of the mount.
    pub keys: KeyEncoding,
}

/// The arrays with chunk files that differ from those of the mount.
#[derive(Debug, Default)]
pub(super) struct Forms {
    /// A leaf lock.
    files: RwLock<HashMap<NodePath, ChunkFiles>>,
}

impl Forms {
    /// Gives the arrays at and below `from` their new paths.
    pub fn move_below(&self, from: &NodePath, to: &NodePath) {
        let mut known = self.files.write();
        let moved: Vec<_> = known
            .extract_if(|path, _| path.relative_to(from).is_some())
            .filter_map(|(path, files)| Some((path.moved(from, to)?, files)))
            .collect();
        known.extend(moved);
    }

    /// Forgets the arrays at and below `path`.
    pub fn forget_below(&self, path: &NodePath) {
        self.files.write().retain(|known, _| known.relative_to(path).is_none());
    }
}

impl Hierarchy {
    /// Returns what the chunk files of the array at `path` are.
    pub fn chunk_files(&self, path: &NodePath) -> ChunkFiles {
        self.forms.files.read().get(path).cloned().unwrap_or_default()
    }

    /// Says what the chunk files of the array at `path` are from now on.
    pub fn show_chunk_files(&self, path: &NodePath, files: ChunkFiles) {
        let mut known = self.forms.files.write();
        if files == ChunkFiles::default() {
            known.remove(path);
        } else {
            known.insert(path.clone(), files);
        }
    }

    /// Returns the form of the names of chunk files in the array at `path`, `None` if they have the
    /// names of the mount.
    pub fn shown_keys(&self, path: &NodePath) -> Option<KeyEncoding> {
        let known = self.forms.files.read();
        known.get(path).map(|files| files.keys).filter(|keys| *keys != KeyEncoding::default())
    }

    /// Returns how the chunk files of the array at `path` are encoded, `None` if they are decoded.
    pub fn encoded_chunks(&self, path: &NodePath) -> Option<Arc<EncodedChunks>> {
        self.forms.files.read().get(path).and_then(|files| files.encoded.clone())
    }

    /// Has the chunk files of the array at `path` show encoded chunks from now on, or decoded ones,
    /// under the same names.
    pub fn show_chunks(&self, path: &NodePath, encoded: Option<Arc<EncodedChunks>>) {
        let keys = self.shown_keys(path).unwrap_or_default();
        self.show_chunk_files(path, ChunkFiles { encoded, keys });
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
