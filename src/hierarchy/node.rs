//! A node as it was when its document was read, and directories that are no nodes.
//!
//! `Standing` says what a directory is now: a node with a metadata file, a group because nodes lie
//! below it, a directory that may become a node, or a node whose metadata file was unlinked here.
//! The last one keeps what it described, so that `rm -r` can walk on below an array after it has
//! removed `zarr.json`.

use std::sync::Arc;

use bytes::Bytes;

use crate::array::Array;
use crate::error::Error;
use crate::metadata::model::Group;
use crate::metadata::{NodeKind, NodePath, skim};
use crate::store::{Key, Stat};

/// What a node takes in memory without its document, about; and a value of that.
const MEMORY_OF_NODE: usize = 2 << 10;
const MEMORY_OF_VALUE: usize = 96;

/// A directory of the hierarchy: a node as it was when its document was read, or what may become one.
#[derive(Debug)]
pub struct Node {
    pub(super) path: NodePath,
    pub(super) standing: Standing,
    pub(super) content: Content,
}

/// What makes a directory a node, or does not.
#[derive(Debug)]
pub(super) enum Standing {
    /// It has a document.
    Stored(Document),
    /// It has one that cannot be read, at this key.
    Unreadable(Key),
    /// It is a group because nodes lie below it.
    Implicit,
    /// It shows none: it was made in this mount, or has ordinary files alone. A document can be created in it; until
    /// then the store may have one of ours, because nodes lie below it.
    Bare(Option<Document>),
    /// It is none any more: its document was removed in this mount, and what it was is kept for what lies below it.
    Removed(Option<Document>),
}

/// A document as it is stored.
#[derive(Debug, Clone)]
pub struct Document {
    /// Where it lies.
    pub key: Key,
    /// Its text.
    pub text: Bytes,
    /// Its length, time and version.
    pub stat: Stat,
    /// Where the dialect has a file of their own for the attributes, which are in the text, too.
    pub attributes: Option<Attributes>,
    /// Whether it is all of the text: the copies in consolidated metadata are left out where they are too long.
    pub is_whole: bool,
}

/// A file of attributes as it is stored.
#[derive(Debug, Clone)]
pub struct Attributes {
    /// Where it lies, or would lie.
    pub key: Key,
    /// Its length, time and version; none where it is not stored.
    pub stat: Option<Stat>,
}

impl Document {
    /// The keys of what is stored of it.
    pub fn keys(&self) -> Vec<Key> {
        let attributes = self.attributes.as_ref().filter(|attributes| attributes.stat.is_some());
        let keys = [Some(&self.key), attributes.map(|attributes| &attributes.key)];
        keys.into_iter().flatten().cloned().collect()
    }

    /// Length and time of all that is stored of it.
    pub fn total(&self) -> Stat {
        let attributes = self.attributes.as_ref().and_then(|attributes| attributes.stat.as_ref());
        attributes.map_or(self.stat, |attributes| Stat {
            len: self.stat.len.saturating_add(attributes.len),
            modified: self.stat.modified.max(attributes.modified),
            ..self.stat
        })
    }
}

/// What a node is.
#[derive(Debug, Clone)]
pub enum Content {
    /// A group, perhaps one that only what lies below it implies.
    Group(Group),
    /// An array.
    Array(Arc<Array>),
    /// A node whose document was not understood, and why.
    NotUnderstood(NodeKind, Error),
}

impl Node {
    /// A directory without a document.
    pub(super) fn bare(path: NodePath, stored: Option<Document>) -> Self {
        let content = Content::Group(Group::default());
        Self { path, standing: Standing::Bare(stored), content }
    }

    /// Where in the hierarchy it is.
    pub fn path(&self) -> &NodePath {
        &self.path
    }

    /// Its document; none where the group is implicit, or the directory is no node.
    pub fn document(&self) -> Option<&Document> {
        match &self.standing {
            Standing::Stored(document) => Some(document),
            Standing::Unreadable(_)
            | Standing::Implicit
            | Standing::Bare(_)
            | Standing::Removed(_) => None,
        }
    }

    /// The document that the store has for it, though it may not be shown.
    pub fn stored(&self) -> Option<&Document> {
        match &self.standing {
            Standing::Stored(document) | Standing::Bare(Some(document)) => Some(document),
            _ => None,
        }
    }

    /// The document that was removed in this mount, where what it described is still kept.
    pub fn removed(&self) -> Option<&Document> {
        match &self.standing {
            Standing::Removed(document) => document.as_ref(),
            _ => None,
        }
    }

    /// Whether it is a directory and no node: it shows no document, and one can be created in it.
    pub fn is_bare(&self) -> bool {
        matches!(self.standing, Standing::Bare(_) | Standing::Removed(_))
    }

    /// Whether it is to become a group where nothing else is made of it.
    pub fn is_made(&self) -> bool {
        matches!(self.standing, Standing::Bare(_))
    }

    /// How many bytes of memory it takes, about, and rather too many: a value of a document takes far more than its text.
    pub fn memory_len(&self) -> usize {
        let text: &[u8] = self.stored().or(self.removed()).map_or(&[], |document| &document.text);
        let parsed = skim::without_copies(text);
        let values = parsed.iter().filter(|byte| matches!(byte, b',' | b':')).count();
        let of_values = values.saturating_mul(MEMORY_OF_VALUE);
        MEMORY_OF_NODE.saturating_add(2 * text.len()).saturating_add(of_values)
    }

    /// What it is.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// The array that it is, if it is one that was understood.
    pub fn array(&self) -> Option<&Arc<Array>> {
        match &self.content {
            Content::Array(array) => Some(array),
            Content::Group(_) | Content::NotUnderstood(..) => None,
        }
    }

    /// Whether it is a group or an array.
    pub fn kind(&self) -> NodeKind {
        match &self.content {
            Content::Group(_) => NodeKind::Group,
            Content::Array(_) => NodeKind::Array,
            Content::NotUnderstood(kind, _) => *kind,
        }
    }

    /// Its attributes, where they were understood.
    pub fn attributes(&self) -> Option<&crate::json::Object> {
        match &self.content {
            Content::Group(group) => Some(&group.attributes),
            Content::Array(array) => Some(&array.model().attributes),
            Content::NotUnderstood(..) => None,
        }
    }
}
