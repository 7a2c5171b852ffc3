//! Documents shown, and edits of stored ones.

use std::sync::Arc;

use serde_json::Value;

use super::documents::Replaced;
use super::texts::{Of, Text, Wanted};
use super::walk::Bounds;
use super::{Content, Hierarchy, Node};
use crate::error::{At, Error, Kind, Result};
use crate::metadata::merge::Edit;
use crate::metadata::model::Group;
use crate::metadata::shown::{self, Copies};
use crate::metadata::{FILL, NodePath};
use crate::resources;

/// The most bytes of the copies that the mount shows in a document: of these there are three while they are put together.
const MAX_COPIES_LEN: u64 = 64 << 20;

/// How often an edit starts again because someone else changed the document meanwhile.
pub(super) const ATTEMPTS: usize = 100;

impl Hierarchy {
    /// The document that the mount shows for `node`; where it is wanted for its length alone, perhaps one that is a little
    /// older ([`Texts`](super::Texts)).
    pub fn shown(&self, node: &Node, wanted: Wanted) -> Result<Arc<str>> {
        Ok(match node.content() {
            Content::Array(array) => {
                as_stored(node, shown::array(array.model(), array.chunk_shape())).into()
            }
            Content::Group(group) if group.consolidated || self.has_shared_copies(node)? => {
                let version =
                    node.stored().or(node.removed()).map(|stored| stored.stat.version.state());
                let of = Of { generation: self.generation(), version };
                let made = || self.shown_with_copies(node.path(), group);
                let ttl = self.options.metadata_ttl;
                self.shown.get(node.path(), (of, ttl), wanted, made)?.text
            }
            Content::Group(group) => as_stored(node, shown::group(group, None)).into(),
            Content::NotUnderstood(kind, _) => {
                let text =
                    node.document().map(|document| document.text.clone()).unwrap_or_default();
                shown::not_understood(*kind, &text).into()
            }
        })
    }

    /// The document of a group with copies of all that is shown below it; without, where there is too much of that: then
    /// programs read document by document.
    fn shown_with_copies(&self, path: &NodePath, group: &Group) -> Result<Text> {
        match self.copies_shown(path) {
            Ok(copies) => {
                Ok(Text { text: shown::group(group, Some(&copies)).into(), left_out: None })
            }
            Err(error) if error.kind() == Kind::TooLarge => {
                let text = shown::group(group, None).into();
                Ok(Text { text, left_out: Some(error) })
            }
            Err(error) => Err(error),
        }
    }

    fn copies_shown(&self, path: &NodePath) -> Result<Copies> {
        let mut copies = Copies::new(3);
        let no_copies = Copies::new(3);
        for child in self.walk_below(path, Bounds::COPIES) {
            let child = child?;
            let relative = child.path().relative_to(path).unwrap_or_default();
            match child.content() {
                // As zarr-python has them: whoever reads the group reads no other document.
                Content::Group(group) => {
                    copies.push(relative, &shown::group(group, Some(&no_copies)));
                }
                Content::Array(_) => copies.push(relative, &self.shown(&child, Wanted::Text)?),
                Content::NotUnderstood(..) => {
                    let text = self.shown(&child, Wanted::Text)?;
                    if serde_json::from_str::<Value>(&text).is_ok() {
                        copies.push(relative, &text);
                    }
                }
            }
            check_len(copies.len(), path)?;
        }
        Ok(copies)
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
                let detail = "its metadata file was removed, so it has no attributes";
                return Err(Error::new(Kind::NotFound, detail).at(path));
            }
            if node.is_bare() {
                self.store_group(path)?;
                node = self.existing(path)?;
            }
            if let Content::NotUnderstood(_, error) = node.content() {
                return Err(error.clone());
            }
            let (key, text, replaced) = if let Some(document) = node.document() {
                let text = match self.whole_text(document) {
                    Err(error) if is_late(&error) => continue,
                    text => text?,
                };
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

/// Refuses copies that are too long to be shown in one document.
pub fn check_len(len: usize, path: &NodePath) -> Result<()> {
    let limit = resources::within_memory(MAX_COPIES_LEN, 12);
    if u64::try_from(len).is_ok_and(|len| len <= limit) {
        return Ok(());
    }
    let detail = format!("the metadata below it have more than {limit} bytes");
    Err(Error::too_large(detail).at(path))
}

/// Whether others have changed a document meanwhile, so that it must be read again.
pub(super) fn is_late(error: &Error) -> bool {
    matches!(error.kind(), Kind::Stale | Kind::Exists)
}

/// What becomes of an edit that never comes first.
pub(super) fn overtaken(path: &NodePath) -> Error {
    Error::new(
        Kind::Busy,
        "gave up after repeated conflicts: other programs keep changing the \
         metadata file",
    )
    .at(path)
}

/// The stored metadata file byte for byte if it says the same as `shown`, else `shown`.
fn as_stored(node: &Node, shown: String) -> String {
    let stored = node.document().and_then(|document| std::str::from_utf8(&document.text).ok());
    match stored {
        Some(stored) if shown::says_the_same(stored, &shown) => stored.to_owned(),
        _ => shown,
    }
}
