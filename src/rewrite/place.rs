//! A view that a new file replaces, and where its variables are in the hierarchy.

use std::fmt;
use std::sync::Arc;

use crate::array::Array;
use crate::error::{Error, Result, WithSubject};
use crate::hierarchy::{Content, Hierarchy};
use crate::metadata::NodePath;
use crate::view::{ElementRange, Format, GetChunk, View};

/// Returns the array of elements as it is now, if it is still the same.
type ArrayOf<'v> = dyn Fn(&ElementRange) -> Result<Arc<Array>> + 'v;

/// A view that a new file replaces.
#[derive(Clone, Copy)]
pub struct RewrittenView<'v> {
    /// The hierarchy of its node.
    pub hierarchy: &'v Hierarchy,
    /// The view.
    pub view: &'v View,
    /// Its node.
    pub path: &'v NodePath,
    /// Its format.
    pub format: &'static Format,
    /// Returns the array of elements as it is now.
    pub array_of: &'v ArrayOf<'v>,
    /// Reads chunks of the view.
    pub get: &'v GetChunk<'v>,
}

impl fmt::Debug for RewrittenView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RewrittenView({}, {})", self.path, self.format.extension)
    }
}

impl RewrittenView<'_> {
    /// Returns the node that a name in the view stands for.
    pub(super) fn node_named(&self, name: &str) -> Result<NodePath> {
        let is_array = self.hierarchy.existing(self.path)?.array().is_some();
        if is_array && name.is_empty() {
            return Ok(self.path.clone());
        }
        let above = self.path.parent().filter(|_| is_array);
        let group = above.unwrap_or_else(|| self.path.clone());
        let path = if name.is_empty() { group } else { group.join(name)? };
        self.hierarchy.existing(&path).map(|_| path)
    }

    /// Returns the array at a path as it is now.
    pub(super) fn array_at(&self, path: &NodePath) -> Result<Arc<Array>> {
        match self.hierarchy.existing(path)?.content() {
            Content::Array(array) => Ok(Arc::clone(array)),
            Content::NotUnderstood(_, error) => Err(error.clone()),
            Content::Group(_) => Err(Error::invalid("it is a group in the store")).at(path),
        }
    }
}
