//! The model to which every dialect is lowered, in the terms of released Zarr v3.
//!
//! Modules above `metadata` use only this model and cannot tell one dialect from another.

use zarrfs_base::error::Result;
use zarrfs_codec::CodecSpec;
use zarrfs_codec::dtype::{DType, FillValue};
use zarrfs_codec::json::Object;

/// A group or an array.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeMetadata {
    /// A group.
    Group(Group),
    /// An array.
    Array(Box<ArrayMetadata>),
}

/// A group. An implicit one, without a metadata file, has no attributes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Group {
    /// User attributes. Bare NaN and infinities are strings here.
    pub attributes: Object,
    /// Whether its metadata file has inline `consolidated_metadata`.
    pub consolidated: bool,
}

/// An array, as its metadata file describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct ArrayMetadata {
    /// The number of elements along each dimension.
    pub shape: Vec<u64>,
    /// The type of an element.
    pub dtype: DType,
    /// The value of elements in chunks that are not stored.
    pub fill: FillValue,
    /// The number of elements of a stored chunk along each dimension, at least 1. In a sharded
    /// array this is the shape of a shard, and on a rectilinear grid the longest chunk along each
    /// dimension.
    pub chunk_shape: Vec<u64>,
    /// The lengths of the chunks along each dimension of a rectilinear grid, `None` if all have the
    /// same shape.
    pub rectilinear: Option<Vec<Runs>>,
    /// The form of the coordinates in the key of a stored chunk.
    pub key_encoding: KeyEncoding,
    /// The codecs in order of encoding, with at most one from array to bytes.
    pub codecs: Vec<CodecSpec>,
    /// A name for each dimension; empty if the metadata file has none.
    pub dimension_names: Vec<Option<String>>,
    /// User attributes. Bare NaN and infinities are strings here.
    pub attributes: Object,
}

impl ArrayMetadata {
    /// Whether chunks of one array are valid for the other. The shape, the names of dimensions and
    /// the attributes may differ.
    pub fn means_same(&self, other: &Self) -> bool {
        self.shape.len() == other.shape.len()
            && self.dtype == other.dtype
            && self.fill.item(&self.dtype) == other.fill.item(&other.dtype)
            && self.chunk_shape == other.chunk_shape
            && self.rectilinear == other.rectilinear
            && self.key_encoding == other.key_encoding
            && self.codecs == other.codecs
    }
}

/// The levels of sharding that a mount added to those in the metadata that a program wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Levels {
    /// None: all are of the array's maker.
    Maker,
    /// The outermost one.
    Mount,
}

/// The lengths of chunks along a dimension, each with the number of consecutive chunks that have
/// it. If all chunks have one length, without a limit, there is a single run of `u64::MAX` chunks.
pub type Runs = Vec<(u64, u64)>;

/// The separator of the coordinates in a chunk key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Separator {
    /// `/`: each dimension is a level of prefixes.
    Slash,
    /// `.`: all chunks are directly below the array.
    Dot,
}

impl Separator {
    /// Returns the character.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Slash => "/",
            Self::Dot => ".",
        }
    }
}

/// The form of coordinates in a chunk's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyEncoding {
    /// v3 `default`: `c/1/23`, `c.1.23`; `c` without dimensions.
    Default(Separator),
    /// v3 `v2`, and Zarr 2: `1/23`, `1.23`; `0` without dimensions.
    V2(Separator),
    /// Zarr 2 without a separator in the metadata file: the form of the existing chunks, or `1.23`
    /// if there are none.
    V2Undeclared,
    /// N5: `23/1`, the last dimension first; `0` without dimensions.
    N5,
    /// The drafts: `c1/23`, `c1.23`; without dimensions `c`, or `c0` as zarr-python 2, GDAL and
    /// xtensor-zarr write it.
    Draft(Separator),
}

impl Default for KeyEncoding {
    /// Returns the encoding of the names in a mount.
    fn default() -> Self {
        Self::Default(Separator::Slash)
    }
}

impl KeyEncoding {
    /// All spellings of keys that a metadata file can name.
    pub const ALL: [Self; 7] = [
        Self::Default(Separator::Slash),
        Self::Default(Separator::Dot),
        Self::V2(Separator::Slash),
        Self::V2(Separator::Dot),
        Self::Draft(Separator::Slash),
        Self::Draft(Separator::Dot),
        Self::N5,
    ];

    /// Returns the separator of coordinates.
    pub fn separator(self) -> Separator {
        match self {
            Self::Default(separator) | Self::V2(separator) | Self::Draft(separator) => separator,
            Self::V2Undeclared => Separator::Dot,
            Self::N5 => Separator::Slash,
        }
    }
}

/// The kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// A group, which has children.
    Group,
    /// An array, which has chunks.
    Array,
}

/// The contents of a metadata file.
#[derive(Debug, Clone)]
pub struct Lowered {
    /// The kind of the node; a guess if the metadata file is unsupported.
    pub kind: NodeKind,
    /// The node, or why the metadata file is unsupported, in one sentence.
    pub node: Result<NodeMetadata>,
}
