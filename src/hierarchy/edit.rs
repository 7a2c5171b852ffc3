//! Documents shown, and edits of stored ones.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::documents::Replaced;
use super::{Content, Hierarchy, Node};
use crate::error::{At, Error, Kind, Result};
use crate::metadata::merge::Edit;
use crate::metadata::{FILL, NodeKind, NodePath, shown};

/// How often an edit starts again because someone else changed the document meanwhile.
pub(super) const ATTEMPTS: usize = 100;

impl Hierarchy {
    /// The document that the mount shows for `node`.
    pub fn shown(&self, node: &Node) -> Result<String> {
        Ok(match node.content() {
            Content::Array(array) => shown::array(array.model(), array.chunk_shape()),
            Content::Group(group) if group.consolidated || self.has_shared_copies(node)? => {
                let mut metadata = Map::new();
                self.collect_shown(node.path(), "", &mut metadata)?;
                shown::group(group, Some(consolidated(&metadata)))
            }
            Content::Group(group) => shown::group(group, None),
            Content::NotUnderstood(kind, _) => {
                let text =
                    node.document().map(|document| document.text.clone()).unwrap_or_default();
                shown::not_understood(*kind, &text)
            }
        })
    }

    fn collect_shown(
        &self,
        path: &NodePath,
        above: &str,
        all: &mut Map<String, Value>,
    ) -> Result<()> {
        for child in self.children(path)? {
            let name = child.path().name().unwrap_or_default();
            let relative = format!("{above}{name}");
            let text = match child.content() {
                // As zarr-python has them: whoever reads the group reads no other document.
                Content::Group(group) => shown::group(group, Some(consolidated(&Map::new()))),
                Content::Array(_) | Content::NotUnderstood(..) => self.shown(&child)?,
            };
            if let Ok(document) = serde_json::from_str(&text) {
                all.insert(relative.clone(), document);
            }
            if child.kind() == NodeKind::Group {
                self.collect_shown(child.path(), &format!("{relative}/"), all)?;
            }
        }
        Ok(())
    }

    /// Applies an edit to the stored document of `path`. What others change in it meanwhile is kept. A new
    /// shape is stored first; then the chunks that lie wholly outside of it are erased.
    pub fn edit(&self, path: &NodePath, edit: &Edit) -> Result<()> {
        if edit.is_empty() {
            return Ok(());
        }
        let mut edit = edit.clone();
        if edit.attributes.iter().any(|(name, _)| name == FILL)
            && let Some(array) = self.existing(path)?.array()
        {
            edit.has_no_chunks = Arc::clone(array.chunks()).list()?.next().is_none();
        }
        let edit = &edit;
        for _ in 0..ATTEMPTS {
            self.invalidate(path);
            let mut node = self.existing(path)?;
            if node.is_bare() && !node.is_made() {
                return Err(Error::new(Kind::NoAttribute, "its document was removed").at(path));
            }
            if node.is_bare() {
                self.store_group(path)?;
                node = self.existing(path)?;
            }
            if let Content::NotUnderstood(_, error) = node.content() {
                return Err(error.clone());
            }
            let (key, text, replaced) = if let Some(document) = node.document() {
                let text = String::from_utf8_lossy(&document.text).into_owned();
                (document.key.clone(), text, Replaced::Unchanged(document))
            } else {
                let (key, text) = self.dialect.new_group(path)?;
                (key, text, Replaced::Absent)
            };
            let mut new = self.dialect.edit(node.kind(), &text, edit).at(&key)?;
            if edit.consolidated == Some(true) {
                new = self.dialect.consolidate(&new, &self.documents_below(path)?).at(&key)?;
            }
            let was = match (&edit.shape, node.array(), node.document()) {
                (Some(shape), Some(array), Some(document)) => {
                    Some((&**array, document, shape.as_slice()))
                }
                _ => None,
            };
            let planned = self.plan_document(path, &key, &new, replaced);
            match planned.and_then(|plan| self.set_whole(path, plan, edit.consolidated, was)) {
                Err(error) if is_late(&error) => {}
                done => return done,
            }
        }
        Err(overtaken(path))
    }
}

/// Consolidated metadata of the inline kind.
fn consolidated(metadata: &Map<String, Value>) -> Value {
    serde_json::json!({"kind": "inline", "must_understand": false, "metadata": metadata})
}

/// Whether others have changed a document meanwhile, so that it must be read again.
pub(super) fn is_late(error: &Error) -> bool {
    matches!(error.kind(), Kind::Stale | Kind::Exists)
}

/// What becomes of an edit that never comes first.
pub(super) fn overtaken(path: &NodePath) -> Error {
    Error::new(Kind::Busy, "others change the document faster than it can be edited").at(path)
}
