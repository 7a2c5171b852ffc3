//! Edits stored documents.
//!
//! If two programs make an array longer, the second gets `ESTALE`. If the longer shape simply
//! stayed, a program that appends by an old `zarr.json` would store its chunks over those that the
//! other one has appended, and the mount cannot tell these from chunks that it means to replace.

use super::change::Changes;
use super::documents::{ATTEMPTS, Replaced, is_conflict, too_many_conflicts};
use super::node::{Content, Node};
use crate::metadata::merge::Edit;
use crate::metadata::{FILL, NodePath};
use zarrfs_base::error::{Error, Kind, Result, WithSubject};

impl Changes<'_> {
    /// Applies an edit to the stored document of `path` and keeps concurrent changes of other
    /// programs. Chunks outside of a smaller shape stay.
    pub fn edit(self, path: &NodePath, edit: &Edit) -> Result<()> {
        self.edit_like(path, None, edit)
    }

    /// Like [`Self::edit`], but fails if the node is not like `seen`, for which the edit was made.
    pub fn edit_like(self, path: &NodePath, seen: Option<&Node>, edit: &Edit) -> Result<()> {
        if edit.is_empty() {
            return Ok(());
        }
        let mut edit = edit.clone();
        for attempt in 0..ATTEMPTS {
            // After a conflict, what was read before it is too old.
            let now = if attempt == 0 { self } else { self.hierarchy.changes() };
            let mut node = now.existing(path)?;
            if node.is_bare() && !node.is_made() {
                let detail = "its metadata file was removed, so it has no attributes";
                return Err(Error::new(Kind::NotFound, detail).at(path));
            }
            if node.is_bare() && seen.is_some_and(|seen| !seen.is_bare()) {
                return Err(replaced().at(path));
            }
            if node.is_bare() && self.hierarchy.directories.keep_attributes(path, &edit) {
                // A program may still make it an array.
                self.hierarchy.invalidate(path);
                return Ok(());
            }
            if node.is_bare() {
                now.store_group(path)?;
                node = now.existing(path)?;
            }
            if let Content::NotUnderstood(_, error) = node.content() {
                return Err(error.clone());
            }
            if seen.is_some_and(|seen| !node.is_like(seen)) {
                return Err(replaced().at(path));
            }
            if edit.attributes.iter().any(|(name, _)| name == FILL)
                && let Some(array) = node.array()
            {
                edit.has_no_chunks = !array.holds_chunks()?;
            }
            match now.try_edit(path, &node, &edit) {
                Err(error) if is_conflict(&error) => {}
                done => return done,
            }
        }
        Err(too_many_conflicts(path))
    }

    /// Applies an edit to the document of a node, on the condition that it is still stored.
    fn try_edit(self, path: &NodePath, node: &Node, edit: &Edit) -> Result<()> {
        let (key, text, replaced) = if let Some(document) = node.document() {
            let text = self.hierarchy.documents.whole_text(document)?;
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
                .consolidate(&new, &self.copies().documents_below(path)?)
                .at(&key)?;
        }
        let home = self.home_of_document(path)?;
        let planned = self.hierarchy.documents.plan((path, &home), &key, &new, replaced)?;
        self.atomic().set_atomically(path, planned, edit.consolidated)
    }
}

/// Returns the error for a node that another program has put in the place of the one that was seen.
fn replaced() -> Error {
    Error::new(Kind::Stale, "another program has replaced the node since its metadata was read")
}
