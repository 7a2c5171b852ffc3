//! What a name in the mounted tree stands for.
//!
//! A place says what the bytes of a file are when they are stored. The bytes of a chunk go through
//! the codecs, the bytes of a metadata file are merged into the stored one, and the bytes of an
//! ordinary file are kept. `Vfs::store_as(place, bytes)` is that one step, so a new kind of file is
//! a new `Place`.
//!
//! `Place::Node` is any directory that is not inside an array. The place does not change when the
//! directory becomes a group. Only when a directory becomes an array do the places below it change
//! (`Place::in_array`), as they do when a node moves (`Place::moved`).

use std::hash::BuildHasher;

use foldhash::quality::FixedState;

use super::Form;
use super::views::view_name;
use crate::array::Coords;
use crate::metadata::{NodeKind, NodePath};
use crate::store::{Key, Stat};
use crate::view::Format;

/// The name of a node's document in the mount, in every dialect.
pub const DOCUMENT: &str = "zarr.json";
/// The document of an array in a mount that shows Zarr 2.
pub const ZARRAY: &str = ".zarray";
/// That of a group.
pub const ZGROUP: &str = ".zgroup";
/// The attributes of a node there.
pub const ZATTRS: &str = ".zattrs";
/// The copies of documents there.
pub const ZMETADATA: &str = ".zmetadata";
/// The directory of chunks in an array; also the chunk of an array without dimensions.
pub const CHUNKS: &str = "c";
/// The directory, at the root and never listed, of what is not part of the hierarchy.
pub const CONTROL: &str = ".zarrfs";
/// In it: the documents as the store has them.
pub const STORED: &str = "stored";
/// In it: which views nodes have.
pub const VIEWS: &str = "views";
/// There, the file of a group, beside those of what lies in it.
pub const GROUP: &str = "__group__";

/// A file in it that is made anew for each reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Report {
    /// The last errors in words.
    Errors,
    /// Counters.
    Stats,
    /// What is not stored yet, and why if it was tried.
    Unstored,
    /// The same with its bytes.
    UnstoredBytes,
}

impl Report {
    /// All there are.
    pub const ALL: [Self; 4] = [Self::Errors, Self::Stats, Self::Unstored, Self::UnstoredBytes];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Errors => "errors",
            Self::Stats => "stats",
            Self::Unstored => "unstored",
            Self::UnstoredBytes => "unstored-bytes",
        }
    }

    /// The one of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|report| report.name() == name)
    }
}

/// A place in the mounted tree. It says what a file or directory means, not whether it is there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Place {
    /// The directory of a group or an array.
    Node(NodePath),
    /// A directory of chunks: those of an array whose first indices are these.
    ChunkDir(NodePath, Vec<u64>),
    /// A directory of ordinary files, by its path below a node.
    OrdinaryDir(NodePath, String),
    /// The document of a node.
    Document(NodePath),
    /// Its attributes, in a mount that shows Zarr 2.
    Attributes(NodePath),
    /// Copies of the documents below it, in a mount that shows Zarr 2.
    Copies(NodePath),
    /// A chunk.
    Chunk(NodePath, Coords),
    /// An ordinary file, by its path below a node.
    Ordinary(NodePath, String),
    /// `.zarrfs`.
    Control,
    /// `.zarrfs/stored/NODE`.
    StoredDir(NodePath),
    /// A document as the store has it, in the directory of its node.
    StoredDocument(NodePath, Key),
    /// A file in `.zarrfs` that is made anew for each reader.
    Report(Report),
    /// A node as a file of another format, in the directory of the group that it is in.
    View(NodePath, &'static Format),
    /// `.zarrfs/views/GROUP`.
    ViewsDir(NodePath),
    /// `.zarrfs/views/ARRAY`, `.zarrfs/views/GROUP/__group__`: which views the node has, made anew
    /// for each reader.
    ViewsOf(NodePath, NodeKind),
}

/// The place that a name stands for.
#[derive(Debug, Clone)]
pub struct Found {
    pub place: Place,
    /// The attributes of the stored value, if they were read to find the name.
    pub stored: Option<Stat>,
}

impl Found {
    /// A chunk or an ordinary file whose value is stored.
    pub fn stored(place: Place, stat: Stat) -> Self {
        Self { place, stored: Some(stat) }
    }
}

impl From<Place> for Found {
    fn from(place: Place) -> Self {
        Self { place, stored: None }
    }
}

impl Place {
    /// The root of the mount.
    pub fn root() -> Self {
        Self::Node(NodePath::root())
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        match self {
            Self::Node(_)
            | Self::ChunkDir(..)
            | Self::OrdinaryDir(..)
            | Self::Control
            | Self::StoredDir(_)
            | Self::ViewsDir(_) => true,
            Self::Document(_)
            | Self::Attributes(_)
            | Self::Copies(_)
            | Self::Chunk(..)
            | Self::Ordinary(..)
            | Self::StoredDocument(..)
            | Self::Report(_)
            | Self::View(..)
            | Self::ViewsOf(..) => false,
        }
    }

    /// Whether it is a document, or a part of one: what is read of it is not what was written.
    pub fn is_document(&self) -> bool {
        matches!(
            self,
            Self::Document(_) | Self::Attributes(_) | Self::Copies(_) | Self::StoredDocument(..)
        )
    }

    /// The directory that it is in; the root is in itself.
    pub fn parent(&self) -> Self {
        match self {
            Self::Node(path) | Self::View(path, _) => {
                Self::Node(path.parent().unwrap_or_else(NodePath::root))
            }
            Self::ChunkDir(path, prefix) => Self::chunk_dir_above(path, prefix),
            Self::Chunk(path, coords) => Self::chunk_dir_above(path, coords.indices()),
            Self::OrdinaryDir(path, relative) | Self::Ordinary(path, relative) => {
                Self::directory_of(path, relative)
            }
            Self::Document(path) | Self::Attributes(path) | Self::Copies(path) => {
                Self::Node(path.clone())
            }
            Self::Control => Self::root(),
            Self::StoredDir(path) => path.parent().map_or(Self::Control, Self::StoredDir),
            Self::StoredDocument(path, _) => Self::StoredDir(path.clone()),
            Self::Report(_) => Self::Control,
            Self::ViewsDir(path) => path.parent().map_or(Self::Control, Self::ViewsDir),
            Self::ViewsOf(path, NodeKind::Group) => Self::ViewsDir(path.clone()),
            Self::ViewsOf(path, NodeKind::Array) => {
                Self::ViewsDir(path.parent().unwrap_or_else(NodePath::root))
            }
        }
    }

    /// Its name in the directory that it is in; none for the root.
    pub fn name(&self) -> Option<String> {
        let last = |relative: &str| relative.rsplit('/').next().unwrap_or(relative).to_owned();
        match self {
            Self::Node(path) | Self::StoredDir(path) if path.is_root() => {
                matches!(self, Self::StoredDir(_)).then(|| STORED.to_owned())
            }
            Self::Node(path) | Self::StoredDir(path) => path.name().map(str::to_owned),
            Self::ChunkDir(..)
            | Self::Chunk(..)
            | Self::OrdinaryDir(..)
            | Self::Ordinary(..)
            | Self::Document(_)
            | Self::Attributes(_)
            | Self::Copies(_) => Some(last(&self.relative())),
            Self::Control => Some(CONTROL.to_owned()),
            Self::StoredDocument(_, key) => Some(key.name().to_owned()),
            Self::Report(report) => Some(report.name().to_owned()),
            Self::View(path, format) => Some(view_name(path, format)),
            Self::ViewsDir(path) => Some(path.name().unwrap_or(VIEWS).to_owned()),
            Self::ViewsOf(path, NodeKind::Array) => Some(path.name().unwrap_or(GROUP).to_owned()),
            Self::ViewsOf(_, NodeKind::Group) => Some(GROUP.to_owned()),
        }
    }

    fn chunk_dir_above(path: &NodePath, indices: &[u64]) -> Self {
        match indices.split_last() {
            Some((_, above)) => Self::ChunkDir(path.clone(), above.to_vec()),
            None => Self::Node(path.clone()),
        }
    }

    /// The directory that the ordinary file `relative` below a node is in.
    fn directory_of(path: &NodePath, relative: &str) -> Self {
        let Some((above, _)) = relative.rsplit_once('/') else { return Self::Node(path.clone()) };
        Self::below_node(path, above, Form::Zarr3)
    }

    /// The directory `relative` below an array or a group that is no node: of chunks if its name is
    /// that of one.
    fn below_node(path: &NodePath, relative: &str, form: Form) -> Self {
        if form == Form::Zarr2 {
            return Self::OrdinaryDir(path.clone(), relative.to_owned());
        }
        let mut names = relative.split('/');
        if names.next() == Some(CHUNKS) {
            let indices: Option<Vec<u64>> = names.map(crate::array::parse_index).collect();
            if let Some(indices) = indices {
                return Self::ChunkDir(path.clone(), indices);
            }
        }
        Self::OrdinaryDir(path.clone(), relative.to_owned())
    }

    /// Its path below its node in the mount, where ordinary files beside it lie in the store.
    pub fn relative(&self) -> String {
        match self {
            Self::ChunkDir(_, prefix) => Coords::new(prefix.as_slice()).to_string(),
            Self::Chunk(_, coords) => coords.to_string(),
            Self::OrdinaryDir(_, relative) | Self::Ordinary(_, relative) => relative.clone(),
            Self::Document(_) => DOCUMENT.to_owned(),
            Self::Attributes(_) => ZATTRS.to_owned(),
            Self::Copies(_) => ZMETADATA.to_owned(),
            Self::Node(_)
            | Self::Control
            | Self::StoredDir(_)
            | Self::StoredDocument(..)
            | Self::Report(_)
            | Self::View(..)
            | Self::ViewsDir(_)
            | Self::ViewsOf(..) => String::new(),
        }
    }

    /// Its path in the mount, for people.
    pub fn shown(&self) -> String {
        let node = |path: &NodePath, relative: &str| match (path.is_root(), relative) {
            (true, relative) => relative.to_owned(),
            (false, "") => path.as_str().to_owned(),
            (false, relative) => format!("{}/{relative}", path.as_str()),
        };
        match self {
            Self::Node(path)
            | Self::ChunkDir(path, _)
            | Self::OrdinaryDir(path, _)
            | Self::Document(path)
            | Self::Attributes(path)
            | Self::Copies(path)
            | Self::Chunk(path, _)
            | Self::Ordinary(path, _) => {
                let shown = node(path, &self.relative());
                if shown.is_empty() { ".".to_owned() } else { shown }
            }
            Self::Control => CONTROL.to_owned(),
            Self::StoredDir(path) => node(path, "").replacen("", ".zarrfs/stored/", 1),
            Self::StoredDocument(path, key) => {
                node(path, key.name()).replacen("", ".zarrfs/stored/", 1)
            }
            Self::Report(report) => format!("{CONTROL}/{}", report.name()),
            Self::View(path, format) => {
                let above = path.parent().unwrap_or_else(NodePath::root);
                node(&above, &view_name(path, format))
            }
            Self::ViewsDir(path) => node(path, "").replacen("", ".zarrfs/views/", 1),
            Self::ViewsOf(path, _) => {
                let name = self.name().unwrap_or_default();
                let above = match self.parent() {
                    Self::ViewsDir(above) => above,
                    _ => path.clone(),
                };
                node(&above, &name).replacen("", ".zarrfs/views/", 1)
            }
        }
    }

    /// The node that it belongs to; none for what is not part of the hierarchy.
    pub fn node(&self) -> Option<&NodePath> {
        match self {
            Self::Node(path)
            | Self::ChunkDir(path, _)
            | Self::OrdinaryDir(path, _)
            | Self::Document(path)
            | Self::Attributes(path)
            | Self::Copies(path)
            | Self::Chunk(path, _)
            | Self::Ordinary(path, _)
            | Self::StoredDir(path)
            | Self::StoredDocument(path, _)
            | Self::View(path, _)
            | Self::ViewsDir(path)
            | Self::ViewsOf(path, _) => Some(path),
            Self::Control | Self::Report(_) => None,
        }
    }

    /// Where it is once the node `from` has become `to`; none where it is not in or below it, or
    /// has no place there.
    pub fn moved(&self, from: &NodePath, to: &NodePath) -> Option<Self> {
        let path = self.node()?.moved(from, to)?;
        Some(match self {
            Self::Node(_) => Self::Node(path),
            Self::ChunkDir(_, prefix) => Self::ChunkDir(path, prefix.clone()),
            Self::OrdinaryDir(_, relative) => Self::OrdinaryDir(path, relative.clone()),
            Self::Document(_) => Self::Document(path),
            Self::Attributes(_) => Self::Attributes(path),
            Self::Copies(_) => Self::Copies(path),
            Self::Chunk(_, coords) => Self::Chunk(path, coords.clone()),
            Self::Ordinary(_, relative) => Self::Ordinary(path, relative.clone()),
            Self::StoredDir(_) => Self::StoredDir(path),
            Self::View(_, format) => Self::View(path, format),
            Self::ViewsDir(_) => Self::ViewsDir(path),
            Self::ViewsOf(_, kind) => Self::ViewsOf(path, *kind),
            // Its key does not go with the path alone.
            Self::StoredDocument(..) | Self::Control | Self::Report(_) => return None,
        })
    }

    /// What a directory or an ordinary file below `array` is once that is an array: by its name a
    /// chunk, a directory of chunks, or as before. None for what is not below it.
    pub fn in_array(&self, array: &NodePath, form: Form) -> Option<Self> {
        let above = self.node()?.relative_to(array)?;
        let relative = match (above, self.relative()) {
            (above, relative) if relative.is_empty() => above.to_owned(),
            ("", relative) => relative,
            (above, relative) => format!("{above}/{relative}"),
        };
        match self {
            Self::Node(_) if relative.is_empty() => None,
            Self::Node(_) => Some(Self::below_node(array, &relative, form)),
            Self::Ordinary(..) if form == Form::Zarr2 => {
                // Of an array without dimensions it is `0`, which its grid tells.
                let indices: Option<Vec<u64>> =
                    relative.split('.').map(crate::array::parse_index).collect();
                Some(match indices {
                    Some(indices) => Self::Chunk(array.clone(), Coords::new(indices)),
                    None => Self::Ordinary(array.clone(), relative),
                })
            }
            Self::Ordinary(..) => Some(match Self::below_node(array, &relative, form) {
                Self::ChunkDir(path, indices) => Self::Chunk(path, Coords::new(indices)),
                _ => Self::Ordinary(array.clone(), relative),
            }),
            _ => None,
        }
    }

    /// A number for it: the same each time that it is asked for.
    pub fn number(&self) -> u64 {
        // 0 and 1 are taken, and some programs keep inode numbers as signed.
        (FixedState::default().hash_one(self) >> 1).max(2)
    }
}
