//! A folder of hierarchies, each in its own dialect.
//!
//! Its root and the directories above the hierarchies are groups without metadata files. Writing is
//! not supported, since no dialect says where a new node would belong.

use std::collections::BTreeMap;

use crate::metadata::{Dialect, NodePath};

/// The hierarchies in a folder, by their paths.
#[derive(Debug, Default)]
pub(super) struct Folder {
    parts: BTreeMap<NodePath, Dialect>,
}

impl Folder {
    /// Returns a folder with hierarchies at these paths.
    pub fn new(parts: Vec<(NodePath, Dialect)>) -> Self {
        let parts = parts.into_iter().map(|(path, dialect)| {
            let dialect = dialect.in_folder(&path);
            (path, dialect)
        });
        Self { parts: parts.collect() }
    }

    /// Returns the dialect of the hierarchy that contains a node.
    pub fn dialect_of(&self, path: &NodePath) -> Option<&Dialect> {
        if self.parts.is_empty() {
            return None;
        }
        let above = path.ancestors();
        std::iter::once(path).chain(&above).find_map(|path| self.parts.get(path))
    }

    /// Whether a path leads to a hierarchy of the folder.
    pub fn is_above(&self, path: &NodePath) -> bool {
        self.parts.keys().any(|part| part != path && part.relative_to(path).is_some())
    }
}
