//! Places: what the names in the mounted tree mean.
//!
//! A place says what the bytes of a file are when they are stored. The bytes of a chunk go through
//! the codecs, the bytes of a metadata file are merged into the stored one, and the bytes of an
//! ordinary file are kept. `Files::store_as(place, bytes)` is that one step, so a new kind of file
//! is a new `Place`.
//!
//! `Place::Node` is any directory that is not inside an array. The place does not change when the
//! directory becomes a group. Only when a directory becomes an array do the places below it change
//! (`Place::in_array`), as they do when a node moves (`Place::moved`).

use std::hash::{BuildHasher, Hash};

use foldhash::quality::FixedState;

use super::chunk_names::ChunkNames;
use crate::array::{Array, Coords, parse_index};
use crate::error::{Error, Kind, Result, WithSubject};
use crate::metadata::{NodeKind, NodePath};
use crate::store::{Key, Stat};
use crate::view::{Format, ROOT_NAME};

/// The name of a node's metadata file in the mount, in every dialect.
pub const DOCUMENT: &str = "zarr.json";
/// With Zarr 2, the metadata file of an array.
pub const ZARRAY: &str = ".zarray";
/// With Zarr 2, the metadata file of a group.
pub const ZGROUP: &str = ".zgroup";
/// With Zarr 2, the attributes of a node.
pub const ZATTRS: &str = ".zattrs";
/// With Zarr 2, the consolidated metadata of a group.
pub const ZMETADATA: &str = ".zmetadata";
/// The directory of chunks in an array, or the chunk of an array without dimensions.
pub const CHUNKS: &str = "c";
/// The unlisted directory at the root for everything outside the hierarchy.
pub const CONTROL: &str = ".zarrfs";
/// The directory in it with the metadata files in the stored dialect.
pub const STORED: &str = "stored";
/// The directory in it that says which views the nodes have.
pub const VIEWS: &str = "views";
/// The file of a group in the previous directory, beside those of its children.
pub const GROUP: &str = "__group__";

/// A file in `.zarrfs` that is generated for each open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Report {
    /// The latest errors as text.
    Errors,
    /// Counters.
    Stats,
    /// The files that were refused when a program closed them.
    Refused,
    /// The unstored files, each with the error of the last attempt.
    Unstored,
    /// The unstored files with their bytes.
    UnstoredBytes,
}

impl Report {
    /// All reports.
    pub const ALL: [Self; 5] =
        [Self::Errors, Self::Stats, Self::Refused, Self::Unstored, Self::UnstoredBytes];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Errors => "errors",
            Self::Stats => "stats",
            Self::Refused => "refused",
            Self::Unstored => "unstored",
            Self::UnstoredBytes => "unstored-bytes",
        }
    }

    /// Returns the report of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|report| report.name() == name)
    }
}

/// A place in the mounted tree: what a file or directory means, whether it exists or not.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Place {
    /// The directory of a group or an array.
    Node(NodePath),
    /// A directory of chunks, by their first indices.
    ChunkDir(NodePath, Vec<u64>),
    /// A directory of ordinary files, by its path below a node.
    OrdinaryDir(NodePath, String),
    /// The metadata file of a node.
    Document(NodePath),
    /// With Zarr 2, the attributes of a node.
    Attributes(NodePath),
    /// With Zarr 2, the consolidated metadata of a group.
    Copies(NodePath),
    /// A chunk.
    Chunk(NodePath, Coords),
    /// An ordinary file, by its path below a node.
    Ordinary(NodePath, String),
    /// `.zarrfs`.
    Control,
    /// `.zarrfs/stored/NODE`.
    StoredDir(NodePath),
    /// A metadata file in the stored dialect, in the directory of its node.
    StoredDocument(NodePath, Key),
    /// A file in `.zarrfs` that is generated for each open.
    Report(Report),
    /// A view: a node as a file of another format, in the directory of its group.
    View(NodePath, &'static Format),
    /// `.zarrfs/views/GROUP`.
    ViewsDir(NodePath),
    /// `.zarrfs/views/ARRAY`, `.zarrfs/views/GROUP/__group__`: the list of the node's views,
    /// generated for each open.
    ViewsOf(NodePath, NodeKind),
}

/// The place of a name.
#[derive(Debug, Clone)]
pub struct FoundPlace {
    pub place: Place,
    /// The stat of the stored value, if it was needed to find the name.
    pub stored: Option<Stat>,
}

impl FoundPlace {
    /// Returns the place of a stored chunk or ordinary file.
    pub fn stored(place: Place, stat: Stat) -> Self {
        Self { place, stored: Some(stat) }
    }
}

impl From<Place> for FoundPlace {
    fn from(place: Place) -> Self {
        Self { place, stored: None }
    }
}

/// A name in a directory, with its place.
pub(in crate::vfs) type DirEntry = (String, Place);

/// The names in a directory, with an error for each that cannot be read.
pub(in crate::vfs) type DirEntries = Box<dyn Iterator<Item = Result<DirEntry>> + Send>;

impl Place {
    /// Returns the root of the mount.
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

    /// Whether it is a metadata file or a part of one, which reads back differently than it was
    /// written.
    pub fn is_document(&self) -> bool {
        matches!(
            self,
            Self::Document(_) | Self::Attributes(_) | Self::Copies(_) | Self::StoredDocument(..)
        )
    }

    /// Returns its directory; the root is its own.
    pub fn parent(&self) -> Self {
        match self {
            Self::Node(path) | Self::View(path, _) => {
                let above = path.parent().unwrap_or_else(NodePath::root);
                if above.as_str() == CONTROL { Self::Control } else { Self::Node(above) }
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

    /// Returns its name in its directory; `None` for the root.
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

    /// Returns the directory of the ordinary file `relative` below a node.
    fn directory_of(path: &NodePath, relative: &str) -> Self {
        let Some((above, _)) = relative.rsplit_once('/') else { return Self::Node(path.clone()) };
        match indices_below(above) {
            Some(indices) => Self::ChunkDir(path.clone(), indices),
            None => Self::OrdinaryDir(path.clone(), above.to_owned()),
        }
    }

    /// Returns its path relative to its node, which is also its path in the store for ordinary
    /// files.
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

    /// Returns its path in the mount, for messages.
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

    /// Returns its node; `None` outside the hierarchy.
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

    /// Returns the place after the node `from` has moved to `to`; `None` if it is not in or below
    /// `from`, or has no place at `to`.
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
            // Its key depends on more than the path.
            Self::StoredDocument(..) | Self::Control | Self::Report(_) => return None,
        })
    }

    /// Returns the place after `array` has become an array: by its name a chunk, a directory of
    /// chunks, or unchanged. `None` if it is not below `array`.
    pub(in crate::vfs) fn in_array(&self, array: &NodePath, names: ChunkNames) -> Option<Self> {
        let above = self.node()?.relative_to(array)?;
        let relative = match (above, self.relative()) {
            (above, relative) if relative.is_empty() => above.to_owned(),
            ("", relative) => relative,
            (above, relative) => format!("{above}/{relative}"),
        };
        match self {
            Self::Node(_) if relative.is_empty() => None,
            Self::Node(_) => Some(names.directory_at(array, &relative)),
            Self::Ordinary(..) => Some(names.file_at(array, &relative)),
            _ => None,
        }
    }

    /// Returns a number that is always the same for this place.
    pub fn number(&self) -> u64 {
        number_of(self)
    }
}

/// Returns an inode number that is always the same for this value.
pub(super) fn number_of(value: &impl Hash) -> u64 {
    // 0 and 1 are reserved, and some programs store inode numbers as signed.
    (FixedState::default().hash_one(value) >> 1).max(2)
}

/// Returns the directory of other states of the hierarchy in `.zarrfs`, which is a group.
pub fn state_directory(name: &str) -> Result<Place> {
    NodePath::root().child(CONTROL)?.child(name).map(Place::Node)
}

/// Returns the indices of a directory of chunks, by its path below an array.
fn indices_below(relative: &str) -> Option<Vec<u64>> {
    let mut names = relative.split('/');
    (names.next() == Some(CHUNKS)).then(|| names.map(parse_index).collect()).flatten()
}

/// Returns the place of the chunk at `indices`, or the reason why it cannot exist. A chunk that the
/// grid does not have yet waits for the metadata file that makes it one (`contents/waiting.rs`).
pub fn new_chunk(path: &NodePath, array: &Array, indices: Vec<u64>) -> Result<Place> {
    let coords = Coords::new(indices);
    let place = Place::Chunk(path.clone(), coords.clone());
    if array.grid().contains(&coords) {
        array.check_readable(&coords).at(place.shown())?;
    }
    Ok(place)
}

/// Returns the path of `name` in `directory` in the mount, for messages.
pub fn below_shown(directory: &Place, name: &str) -> String {
    match directory.shown() {
        shown if shown == "." => name.to_owned(),
        shown => format!("{shown}/{name}"),
    }
}

/// Returns the path of `name` in `directory` relative to its node.
pub fn below(directory: &Place, name: &str) -> String {
    match directory.relative() {
        relative if relative.is_empty() => name.to_owned(),
        relative => format!("{relative}/{name}"),
    }
}

/// Returns the file name of a view in the directory of its group.
pub fn view_name(path: &NodePath, format: &Format) -> String {
    format!("{}.{}", path.name().unwrap_or(ROOT_NAME), format.extension)
}

/// Refuses writing to files that are read-only by their kind.
pub fn check_writable(place: Option<&Place>) -> Result<()> {
    match place {
        Some(Place::Report(_) | Place::ViewsOf(..)) => {
            let shown = place.map(Place::shown).unwrap_or_default();
            Err(Error::new(Kind::NotPermitted, "read-only").at(shown))
        }
        _ => Ok(()),
    }
}
