//! A node as it was when its document was read, and directories that are no nodes.
//!
//! `NodeState` is the state of a directory: a node with a metadata file, a group because nodes lie
//! below it, a directory that may become a node, or a node whose metadata file was removed in this
//! mount. The last one remembers its content, so that `rm -r` can walk on below an array after it
//! removed `zarr.json`.

use std::sync::Arc;

use bytes::Bytes;

use crate::array::Array;
use crate::metadata::model::Group;
use crate::metadata::{NodeKind, NodePath, skim};
use zarrfs_base::error::Error;
use zarrfs_store::{Key, Stat};

/// The approximate memory of a node without its document, and of one JSON value.
const MEMORY_OF_NODE: usize = 2 << 10;
const MEMORY_OF_VALUE: usize = 96;

/// A directory of the hierarchy: a node as of the time when its document was read, or a directory
/// that may become a node.
#[derive(Debug)]
pub struct Node {
    pub(super) path: NodePath,
    pub(super) state: NodeState,
    pub(super) content: Content,
}

/// The reason why a directory is a node, or is not.
#[derive(Debug)]
pub(super) enum NodeState {
    /// It has a document.
    Stored(Document),
    /// It has a document at this key that cannot be read.
    Unreadable(Key),
    /// It is a group because nodes lie below it.
    Implicit,
    /// It shows no document, because it was made in this mount or holds only ordinary files. A
    /// program can create a document in it. zarrfs may already have stored one, because nodes lie
    /// below it.
    Bare(Option<Document>),
    /// Its document was removed in this mount; the content is remembered for the files below it.
    Removed(Option<Document>),
}

/// A stored document.
#[derive(Debug, Clone)]
pub struct Document {
    /// The key of its metadata file.
    pub key: Key,
    /// Its text.
    pub text: Bytes,
    /// Its length, time and version.
    pub stat: Stat,
    /// The separate attributes file, if the dialect has one. Its members are in `text`, too.
    pub attributes: Option<Attributes>,
    /// Whether `text` is complete: consolidated metadata are left out if they are too long.
    pub is_whole: bool,
}

/// A stored attributes file.
#[derive(Debug, Clone)]
pub struct Attributes {
    /// The key where it is stored or would be.
    pub key: Key,
    /// Its length, time and version; `None` if it is not stored.
    pub stat: Option<Stat>,
}

impl Document {
    /// Returns the keys of its stored files.
    pub fn keys(&self) -> Vec<Key> {
        let attributes = self.attributes.as_ref().filter(|attributes| attributes.stat.is_some());
        let keys = [Some(&self.key), attributes.map(|attributes| &attributes.key)];
        keys.into_iter().flatten().cloned().collect()
    }

    /// Returns the total length and the newest time of its stored files.
    pub fn total(&self) -> Stat {
        let attributes = self.attributes.as_ref().and_then(|attributes| attributes.stat.as_ref());
        attributes.map_or(self.stat, |attributes| Stat {
            len: self.stat.len.saturating_add(attributes.len),
            modified: self.stat.modified.max(attributes.modified),
            ..self.stat
        })
    }
}

/// The content of a node.
#[derive(Debug, Clone)]
pub enum Content {
    /// A group, possibly an implicit one.
    Group(Group),
    /// An array.
    Array(Arc<Array>),
    /// A node whose document was not understood, and the reason.
    NotUnderstood(NodeKind, Error),
}

impl Content {
    /// Returns the array, if it is one that was understood.
    pub fn array(&self) -> Option<&Arc<Array>> {
        match self {
            Self::Array(array) => Some(array),
            Self::Group(_) | Self::NotUnderstood(..) => None,
        }
    }
}

impl Node {
    /// Returns a directory without a visible document.
    pub(super) fn bare(path: NodePath, stored: Option<Document>) -> Self {
        let content = Content::Group(Group::default());
        Self { path, state: NodeState::Bare(stored), content }
    }

    /// Returns a directory that this process may not search, and the reason.
    pub(super) fn closed(path: NodePath, error: Error) -> Self {
        let content = Content::NotUnderstood(NodeKind::Group, error);
        Self { path, state: NodeState::Bare(None), content }
    }

    /// Whether this process may not search the directory, so that it may be any node.
    pub fn is_closed(&self) -> bool {
        self.is_bare() && matches!(self.content, Content::NotUnderstood(..))
    }

    /// Returns the content to remember of a directory that stays one without a document.
    pub(super) fn remembered(&self) -> Content {
        if self.is_closed() { Content::Group(Group::default()) } else { self.content.clone() }
    }

    /// Returns its path in the hierarchy.
    pub fn path(&self) -> &NodePath {
        &self.path
    }

    /// Returns its document; `None` for an implicit group or a directory that is no node.
    pub fn document(&self) -> Option<&Document> {
        match &self.state {
            NodeState::Stored(document) => Some(document),
            NodeState::Unreadable(_)
            | NodeState::Implicit
            | NodeState::Bare(_)
            | NodeState::Removed(_) => None,
        }
    }

    /// Returns its stored document, even if the mount does not show it.
    pub fn stored(&self) -> Option<&Document> {
        match &self.state {
            NodeState::Stored(document) | NodeState::Bare(Some(document)) => Some(document),
            _ => None,
        }
    }

    /// Returns the document that was removed in this mount, if its content is remembered.
    pub fn removed(&self) -> Option<&Document> {
        match &self.state {
            NodeState::Removed(document) => document.as_ref(),
            _ => None,
        }
    }

    /// Whether it is a directory and no node: it shows no document, and one can be created in it.
    pub fn is_bare(&self) -> bool {
        matches!(self.state, NodeState::Bare(_) | NodeState::Removed(_))
    }

    /// Whether it becomes a group unless a program creates another node in it.
    pub fn is_made(&self) -> bool {
        matches!(self.state, NodeState::Bare(_))
    }

    /// Returns a generous estimate of its memory in bytes: a JSON value takes far more than its
    /// text.
    pub fn memory_len(&self) -> usize {
        let text: &[u8] = self.stored().or(self.removed()).map_or(&[], |document| &document.text);
        let parsed = skim::without_copies(text);
        let values = parsed.iter().filter(|byte| matches!(byte, b',' | b':')).count();
        let of_values = values.saturating_mul(MEMORY_OF_VALUE);
        MEMORY_OF_NODE.saturating_add(2 * text.len()).saturating_add(of_values)
    }

    /// Whether it may be the node that was read at the same path before: a group still, or an array
    /// whose chunks mean the same.
    pub fn is_like(&self, before: &Self) -> bool {
        match (&self.content, &before.content) {
            (Content::Array(now), Content::Array(before)) => now.model().means_same(before.model()),
            (Content::Group(_), Content::Group(_)) => true,
            (Content::NotUnderstood(now, _), _) => *now == before.kind(),
            (_, Content::NotUnderstood(before, _)) => self.kind() == *before,
            (Content::Array(_), Content::Group(_)) | (Content::Group(_), Content::Array(_)) => {
                false
            }
        }
    }

    /// Returns its content.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Returns its array, if it is one that was understood.
    pub fn array(&self) -> Option<&Arc<Array>> {
        self.content.array()
    }

    /// Whether it is a group or an array.
    pub fn kind(&self) -> NodeKind {
        match &self.content {
            Content::Group(_) => NodeKind::Group,
            Content::Array(_) => NodeKind::Array,
            Content::NotUnderstood(kind, _) => *kind,
        }
    }

    /// Returns its attributes, if they were understood.
    pub fn attributes(&self) -> Option<&zarrfs_codec::json::Object> {
        match &self.content {
            Content::Group(group) => Some(&group.attributes),
            Content::Array(array) => Some(&array.model().attributes),
            Content::NotUnderstood(..) => None,
        }
    }
}
