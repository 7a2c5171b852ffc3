//! Shows documents, and edits stored ones.

use std::sync::Arc;

use super::change::Changes;
use super::documents::{ATTEMPTS, Replaced, is_conflict, too_many_conflicts};
use super::node::Content;
use crate::error::{At, Error, Kind, Result};
use crate::metadata::merge::Edit;
use crate::metadata::{FILL, NodePath};

impl Changes<'_> {
    /// Applies an edit to the stored document of `path` and keeps concurrent changes of other
    /// programs. A new shape is stored first; then the chunks that lie wholly outside of it are
    /// erased.
    pub fn edit(self, path: &NodePath, edit: &Edit) -> Result<()> {
        if edit.is_empty() {
            return Ok(());
        }
        let mut edit = edit.clone();
        if edit.attributes.iter().any(|(name, _)| name == FILL)
            && let Some(array) = self.hierarchy.existing(path)?.array()
        {
            edit.has_no_chunks = Arc::clone(array.chunks()).list()?.next().is_none();
        }
        let edit = &edit;
        for _ in 0..ATTEMPTS {
            self.hierarchy.invalidate(path);
            let mut node = self.hierarchy.existing(path)?;
            if node.is_bare() && !node.is_made() {
                let detail = "its metadata file was removed, so it has no attributes";
                return Err(Error::new(Kind::NotFound, detail).at(path));
            }
            if node.is_bare() {
                self.store_group(path)?;
                node = self.hierarchy.existing(path)?;
            }
            if let Content::NotUnderstood(_, error) = node.content() {
                return Err(error.clone());
            }
            let (key, text, replaced) = if let Some(document) = node.document() {
                let text = match self.hierarchy.documents.whole_text(document) {
                    Err(error) if is_conflict(&error) => continue,
                    text => text?,
                };
                (document.key.clone(), text, Replaced::Unchanged(document))
            } else {
                let (key, text) = self.hierarchy.dialect().new_group(path)?;
                (key, text, Replaced::Absent)
            };
            let mut new = self.hierarchy.dialect().edit(node.kind(), &text, edit).at(&key)?;
            if edit.consolidated == Some(true) {
                new = self
                    .hierarchy
                    .dialect()
                    .consolidate(&new, &self.hierarchy.copies().documents_below(path)?)
                    .at(&key)?;
            }
            let was = match (&edit.shape, node.array(), node.document()) {
                (Some(shape), Some(array), Some(document)) => {
                    Some((&**array, document, shape.as_slice()))
                }
                _ => None,
            };
            let planned = self.hierarchy.documents.plan(path, &key, &new, replaced);
            match planned.and_then(|plan| {
                self.hierarchy.atomic().set_atomically(path, plan, edit.consolidated, was)
            }) {
                Err(error) if is_conflict(&error) => {}
                done => return done,
            }
        }
        Err(too_many_conflicts(path))
    }
}
