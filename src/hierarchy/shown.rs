//! Metadata files as the mount shows them, perhaps with copies of all below a group.

use std::sync::Arc;

use serde_json::Value;

use super::node::{Content, Node};
use super::nodes::Hierarchy;
use super::texts::{Of, Text, Wanted};
use super::walk::Bounds;
use crate::error::{At, Error, Kind, Result};
use crate::metadata::model::Group;
use crate::metadata::shown::{self, Copies};
use crate::metadata::{Dialect, NodePath};
use crate::resources;

/// The most bytes of the copies that the mount shows in a document: of these there are three while they are put together.
const MAX_COPIES_LEN: u64 = 64 << 20;

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

    /// How long the document of `path` was that is shown with copies of others, when it was made last; none where that is
    /// not known.
    pub fn last_len_shown(&self, path: &NodePath) -> Option<usize> {
        self.shown.last_len(path)
    }

    /// Why documents that were shown lack the copies of others that they should have, once for each.
    pub fn take_notes(&self) -> Vec<Error> {
        self.shown.take_notes()
    }

    /// Whether it may take long to show the document of `path`, because others are copied into it.
    pub fn shows_many(&self, path: &NodePath) -> bool {
        // Of what is not known here nobody knows.
        self.kept(path).is_none_or(|node| match node.content() {
            Content::Group(group) => group.consolidated || *self.dialect() == Dialect::V2,
            Content::Array(_) | Content::NotUnderstood(..) => false,
        })
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

/// The stored metadata file byte for byte if it says the same as `shown`, else `shown`.
fn as_stored(node: &Node, shown: String) -> String {
    let stored = node.document().and_then(|document| std::str::from_utf8(&document.text).ok());
    match stored {
        Some(stored) if shown::says_the_same(stored, &shown) => stored.to_owned(),
        _ => shown,
    }
}
