//! Dialects: the documents of a hierarchy to one model, and back.
//!
//! A dialect says where documents and chunks lie ([`Dialect::document_keys`],
//! [`Dialect::chunk_prefix`]), what its documents mean ([`Dialect::lower`]), how they are
//! made ([`Dialect::new_document`]) and changed in their own spelling ([`Dialect::edit`]). Nothing above this module can
//! tell one dialect from another. Nothing here reads a store, but [`detect`].

pub mod json;
pub mod merge;
pub mod model;
pub mod path;
pub mod policy;
pub mod shown;

mod codecs;
mod consolidated;
mod create;
mod detect;
mod draft;
mod members;
mod types;
mod v3;

use serde_json::json;

use crate::error::{Error, Kind, Result};
use crate::store::{Entry, Key, Prefix};
pub use create::NewDocument;
pub use detect::{detect, draft_root_marker};
pub use path::NodePath;
pub use policy::{Policy, Shards};

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// It has children.
    Group,
    /// It has chunks.
    Array,
}

/// What a document says.
#[derive(Debug, Clone)]
pub struct Lowered {
    /// What the node is; a guess where the document was not understood.
    pub kind: NodeKind,
    /// The node, or in one sentence what of its document was not understood.
    pub node: Result<model::Node>,
}

/// What an entry of a listing says about a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    /// Its name.
    pub name: String,
    /// Whether the entry is a document; a prefix is a node only if a document lies somewhere below it.
    pub certain: bool,
}

/// An on-disk form of Zarr.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dialect {
    /// Core 3.0 and 3.1, and the provisional 3.0 of 2023 and 2024.
    V3,
    /// The draft of October 2020, with the sharding of 2022.
    D2020_10 {
        /// What ends the key of every document: `.json`.
        suffix: String,
    },
}

impl Dialect {
    /// The name, as `--from` takes it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::V3 => "v3",
            Self::D2020_10 { .. } => "d2020-10",
        }
    }

    /// The dialect of this name, in its usual form; none where there is no such dialect.
    pub fn parse_name(name: &str) -> Option<Self> {
        match name {
            "v3" => Some(Self::V3),
            "d2020-10" => Some(Self::D2020_10 { suffix: ".json".to_owned() }),
            _ => None,
        }
    }

    /// Where the document of `path` may lie, in order of preference: an array hides a group of its name.
    /// Where the document itself tells what the node is the kind is absent.
    pub fn document_keys(&self, path: &NodePath) -> Result<Vec<(Option<NodeKind>, Key)>> {
        let Self::D2020_10 { suffix } = self else {
            return Ok(vec![(None, prefix_of("", path)?.key(v3::DOCUMENT)?)]);
        };
        // xtensor-zarr gives the root's document the key of a child without a name.
        let stems: &[&str] =
            if path.is_root() { &["meta/root", "meta/root/"] } else { &["meta/root/"] };
        let mut keys = Vec::with_capacity(2 * stems.len());
        for stem in stems {
            for (kind, ending) in [(NodeKind::Array, "array"), (NodeKind::Group, "group")] {
                let key = Key::parse(&format!("{stem}{}.{ending}{suffix}", path.as_str()))?;
                keys.push((Some(kind), key));
            }
        }
        Ok(keys)
    }

    /// What the document `text` says, which lies at a key of that kind.
    pub fn lower(&self, kind: Option<NodeKind>, text: &[u8]) -> Lowered {
        match self {
            Self::V3 => v3::lower(text),
            Self::D2020_10 { .. } => draft::lower(kind.unwrap_or(NodeKind::Array), text),
        }
    }

    /// Where the keys of an array's chunks begin, and those of ordinary files beside a node.
    pub fn chunk_prefix(&self, path: &NodePath) -> Result<Prefix> {
        match self {
            Self::V3 => prefix_of("", path),
            Self::D2020_10 { .. } => prefix_of("data/root/", path),
        }
    }

    /// What to list for the children of a group; see [`Dialect::child`].
    pub fn children_prefix(&self, path: &NodePath) -> Result<Prefix> {
        match self {
            Self::V3 => prefix_of("", path),
            Self::D2020_10 { .. } => prefix_of("meta/root/", path),
        }
    }

    /// What an entry of that listing says about a child; none where it is not one.
    ///
    /// The same child may come twice: as a document and as a prefix of what lies below it.
    pub fn child(&self, entry: &Entry) -> Option<Child> {
        let (name, certain) = match (self, entry) {
            // Names with two underscores are reserved ("node names", v3 core).
            (Self::V3, Entry::Prefix(name)) if name.starts_with("__") => return None,
            (Self::V3, Entry::Key(_)) => return None,
            (_, Entry::Prefix(name)) => (name.as_str(), false),
            (Self::D2020_10 { suffix }, Entry::Key(name)) => {
                let stem = name.strip_suffix(suffix.as_str())?;
                (stem.strip_suffix(".array").or_else(|| stem.strip_suffix(".group"))?, true)
            }
        };
        crate::store::is_component(name).then(|| Child { name: name.to_owned(), certain })
    }

    /// Whether `key`, below the prefix of some group's children, is that of a document.
    pub fn is_document(&self, key: &Key) -> bool {
        match self {
            Self::V3 => key.name() == v3::DOCUMENT,
            Self::D2020_10 { .. } => {
                self.child(&Entry::Key(key.name().to_owned())).is_some_and(|child| child.certain)
            }
        }
    }

    /// Whether what is above a node is a group without having a document. The drafts say so; in v3
    /// `TensorStore` writes no documents for groups.
    pub fn has_implicit_groups(&self) -> bool {
        match self {
            Self::V3 | Self::D2020_10 { .. } => true,
        }
    }

    /// Whether every group above a new node is to have a document ("group metadata", v3 core). In the drafts
    /// creating a node does not need those above.
    pub fn wants_group_documents(&self) -> bool {
        match self {
            Self::V3 => true,
            Self::D2020_10 { .. } => false,
        }
    }

    /// Whether the root is a group though nothing is below it and it has no document.
    pub fn has_implicit_root(&self) -> bool {
        match self {
            Self::V3 => false,
            Self::D2020_10 { .. } => true,
        }
    }

    /// Whether the key `relative` below the prefix of a node's chunks is a document's in this dialect,
    /// so that no ordinary file can have it.
    pub fn is_reserved(&self, node: &NodePath, relative: &str) -> bool {
        match self {
            Self::V3 => {
                let _ = node;
                relative.rsplit('/').next() == Some(v3::DOCUMENT)
            }
            // Documents lie in a tree of their own.
            Self::D2020_10 { .. } => false,
        }
    }

    /// Refuses what the dialect does not allow as the name of a new node. Any name that is stored is read.
    pub fn check_name(&self, name: &str) -> Result<()> {
        let wrong = |rule: &str| Err(Error::invalid(format!("{name:?}: {rule}")));
        if !crate::store::is_component(name) || name.bytes().all(|byte| byte == b'.') {
            return wrong("not a name for a node");
        }
        match self {
            Self::V3 if name.starts_with("__") => {
                wrong("names that begin with two underscores are reserved in Zarr")
            }
            Self::V3 if name == v3::DOCUMENT => wrong("this is the name of a document"),
            Self::V3 => Ok(()),
            Self::D2020_10 { .. } => {
                let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
                if name.bytes().all(plain) {
                    Ok(())
                } else {
                    wrong("the 2020 draft allows a-z, A-Z, 0-9, -, _ and . in names")
                }
            }
        }
    }

    /// The documents of an empty hierarchy.
    pub fn new_root(&self) -> Vec<(Key, String)> {
        let group = self.new_group(&NodePath::root());
        let entry = match self {
            Self::V3 => None,
            Self::D2020_10 { suffix } => {
                Key::parse(v3::DOCUMENT).ok().map(|key| (key, draft::entry_point(suffix)))
            }
        };
        entry.into_iter().chain(group).collect()
    }

    /// The document of a group without attributes, and where it lies.
    pub fn new_group(&self, path: &NodePath) -> Result<(Key, String)> {
        let keys = self.document_keys(path)?;
        let key = keys.into_iter().find(|(kind, _)| *kind != Some(NodeKind::Array));
        let (_, key) = key.ok_or_else(|| Error::new(Kind::Internal, "a group has no key"))?;
        let text = match self {
            Self::V3 => {
                let document = json!({"zarr_format": 3, "node_type": "group", "attributes": {}});
                format!("{document:#}\n")
            }
            Self::D2020_10 { .. } => draft::group_document(),
        };
        Ok((key, text))
    }
}

/// The type of a typestring of numpy, or of a list of fields, and its byte order as the codec `bytes` has it.
#[cfg(test)]
pub(crate) fn numpy_type(value: &serde_json::Value) -> (crate::dtype::DType, serde_json::Value) {
    let (dtype, endian) = types::data_type(value).expect("a type of numpy");
    (dtype, endian.unwrap_or(types::Endian::Little).to_json())
}

/// `head` followed by the names of `path`.
fn prefix_of(head: &str, path: &NodePath) -> Result<Prefix> {
    Prefix::parse(&format!("{head}{}", path.as_str()))
}

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod tests;
