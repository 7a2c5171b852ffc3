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

/// Whether all formats have a name as it is.
fn is_plain(name: &str) -> bool {
    let is_usual = |letter: char| letter.is_ascii_alphanumeric() || "_.-".contains(letter);
    name.chars().all(is_usual) && name.starts_with(|first: char| is_usual(first) && first != '.')
}

impl fmt::Debug for RewrittenView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RewrittenView({}, {})", self.path, self.format.extension)
    }
}

impl RewrittenView<'_> {
    /// Returns the node that a name in the view stands for. Fails if the format may have changed
    /// names: then another node may have this one.
    pub(super) fn node_named(&self, name: &str) -> Result<NodePath> {
        let is_array = self.hierarchy.existing(self.path)?.array().is_some();
        if is_array && name.is_empty() {
            return Ok(self.path.clone());
        }
        let above = self.path.parent().filter(|_| is_array);
        let group = above.unwrap_or_else(|| self.path.clone());
        if name.is_empty() {
            return Ok(group);
        }
        let path = group.join(name)?;
        for child in self.hierarchy.children(&path.parent().unwrap_or(group))? {
            let child = child?;
            if let Some(name) = child.path().name().filter(|name| !is_plain(name)) {
                return Err(Error::invalid(format!(
                    "the format changes the name of {name:?}, so it does not say which array this is: \
                     use `zarrfs import`"
                )));
            }
        }
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
