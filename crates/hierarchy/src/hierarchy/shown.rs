//! Metadata files as the mount shows them, with consolidated metadata for some groups.

use std::borrow::Cow;
use std::sync::Arc;

use super::node::{Content, Node};
use super::nodes::Hierarchy;
use super::texts::{Sources, Text, TextPurpose};
use super::walk::Bounds;
use crate::array::Array;
use crate::metadata::model::Group;
use crate::metadata::shown::{self, CopyTexts, ShownChunks};
use crate::metadata::{DIMENSIONS, Dialect, NodePath, axes_of};
use zarrfs_base::error::{Error, Kind, Result, WithSubject};
use zarrfs_base::resources;
use zarrfs_codec::json;

/// The most bytes of copies in a shown document; three copies of the text exist while it is made.
const MAX_COPIES_LEN: u64 = 64 << 20;

/// An array of an image is at most this many levels below the group with its metadata.
const MOST_LEVELS_OF_IMAGE: usize = 3;

/// Metadata files as the mount shows them.
#[derive(Debug, Clone, Copy)]
pub struct ShownMetadata<'h> {
    hierarchy: &'h Hierarchy,
}

impl Hierarchy {
    /// Returns the metadata files as the mount shows them.
    pub fn shown(&self) -> ShownMetadata<'_> {
        ShownMetadata { hierarchy: self }
    }
}

impl ShownMetadata<'_> {
    /// Returns the document that the mount shows for `node`. If only its length is wanted, it may
    /// be slightly outdated ([`TextCache`](super::TextCache)).
    pub fn text_of(self, node: &Node, wanted: TextPurpose) -> Result<Arc<str>> {
        Ok(match node.content() {
            Content::Array(array) => {
                let mut model = Cow::Borrowed(array.model());
                if let Some(names) = self.names_of_axes(node, array)? {
                    model.to_mut().dimension_names = names;
                }
                let shown = shown::array(&model, &self.chunks_of(node, array));
                let stored = node.document().map_or(&b""[..], |document| &document.text);
                as_stored(node, shown::with_stored_name(shown, &model, stored)?).into()
            }
            Content::Group(group)
                if group.consolidated || self.hierarchy.copies().has_shared_copies(node)? =>
            {
                let version =
                    node.stored().or(node.removed()).map(|stored| stored.stat.version.state());
                let of = Sources { generation: self.hierarchy.generation(), version };
                let made = || self.text_with_copies(node.path(), group);
                let ttl = self.hierarchy.options.metadata_ttl;
                self.hierarchy.shown_texts.get(node.path(), of, ttl, wanted, made)?.text
            }
            Content::Group(group) => as_stored(node, shown::group(group, None)).into(),
            Content::NotUnderstood(kind, _) => {
                let text =
                    node.document().map(|document| document.text.clone()).unwrap_or_default();
                shown::not_understood(*kind, &text).into()
            }
        })
    }

    /// Returns the names that an array of OME-Zarr 0.4 has in 0.5: those of the axes, which 0.4 has
    /// in a group above. `None` for an array with names of its own.
    fn names_of_axes(self, node: &Node, array: &Array) -> Result<Option<Vec<Option<String>>>> {
        let model = array.model();
        let has_own =
            !model.dimension_names.is_empty() || model.attributes.contains_key(DIMENSIONS);
        let is_v2 = *self.hierarchy.dialect_of(node.path()) == Dialect::V2;
        if has_own || model.shape.is_empty() || !is_v2 {
            return Ok(None);
        }
        Ok(self.axes_of(node.path())?.filter(|axes| axes.len() == model.shape.len()))
    }

    /// Returns the names of the axes that OME-Zarr metadata in a group above give the array at
    /// `path`.
    pub fn axes_of(self, path: &NodePath) -> Result<Option<Vec<Option<String>>>> {
        let mut above = path.parent();
        for _ in 0..MOST_LEVELS_OF_IMAGE {
            let Some(group) = above else { break };
            if let Some(node) = self.hierarchy.node(&group)?
                && let Content::Group(content) = node.content()
                && let Some(relative) = path.relative_to(&group)
                && let Some(axes) = axes_of(&content.attributes, relative)
            {
                return Ok(Some(axes));
            }
            above = group.parent();
        }
        Ok(None)
    }

    /// Returns the form of the chunk files that the mount shows for the array of `node`.
    pub fn chunks_of(self, node: &Node, array: &Array) -> ShownChunks {
        let files = match self.hierarchy.forms.encoded_chunks(node.path(), array.model()) {
            Some(chunks) => chunks.shown.clone(),
            None => ShownChunks::decoded(array.model(), array.chunk_shape()),
        };
        ShownChunks { keys: self.hierarchy.forms.keys(node.path()).unwrap_or_default(), ..files }
    }

    /// Returns the document of a group with copies of all documents below it. If these are too
    /// long, they are left out, and programs read the documents one by one.
    fn text_with_copies(self, path: &NodePath, group: &Group) -> Result<Text> {
        match self.copies_below(path) {
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

    fn copies_below(self, path: &NodePath) -> Result<CopyTexts> {
        let mut copies = CopyTexts::new(3);
        let no_copies = CopyTexts::new(3);
        for child in self.hierarchy.walk_below(path, Bounds::COPIES) {
            let child = child?;
            let relative = child.path().relative_to(path).unwrap_or_default();
            match child.content() {
                // zarr-python also copies the groups: it then reads no other document.
                Content::Group(group) => {
                    copies.push(relative, &shown::group(group, Some(&no_copies)));
                }
                Content::Array(_) => {
                    copies.push(relative, &self.text_of(&child, TextPurpose::Text)?);
                }
                Content::NotUnderstood(..) => {
                    let text = self.text_of(&child, TextPurpose::Text)?;
                    if json::check(text.as_bytes()).is_ok() {
                        copies.push(relative, &text);
                    }
                }
            }
            check_len(copies.len(), path)?;
        }
        Ok(copies)
    }

    /// Returns the length of the document that `path` last showed with consolidated metadata;
    /// `None` if unknown.
    pub fn last_len(self, path: &NodePath) -> Option<usize> {
        self.hierarchy.shown_texts.last_len(path)
    }

    /// Takes the reasons why shown documents lack consolidated metadata; each is reported once.
    pub fn take_notes(self) -> Vec<Error> {
        self.hierarchy.shown_texts.take_notes()
    }

    /// Whether showing the document of `path` may take long, because it includes many others.
    pub fn includes_many(self, path: &NodePath) -> bool {
        // A node that is not cached may be such a group.
        self.hierarchy.kept(path).is_none_or(|node| match node.content() {
            Content::Group(group) => {
                group.consolidated || *self.hierarchy.dialect_of(path) == Dialect::V2
            }
            Content::Array(_) | Content::NotUnderstood(..) => false,
        })
    }
}

/// Refuses copies that are too long for one document.
pub fn check_len(len: usize, path: &NodePath) -> Result<()> {
    let limit = resources::within_memory(MAX_COPIES_LEN, 12);
    if u64::try_from(len).is_ok_and(|len| len <= limit) {
        return Ok(());
    }
    let detail = format!("the metadata below it have more than {limit} bytes");
    Err(Error::too_large(detail).at(path))
}

/// Returns the stored metadata file byte for byte if it equals `shown` as JSON, else `shown`.
fn as_stored(node: &Node, shown: String) -> String {
    let stored = node.document().and_then(|document| std::str::from_utf8(&document.text).ok());
    match stored {
        Some(stored) if shown::is_equivalent(stored, &shown) => stored.to_owned(),
        _ => shown,
    }
}
