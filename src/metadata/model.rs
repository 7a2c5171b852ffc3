//! The one model: what every dialect lowers to, in the terms of released Zarr v3.
//!
//! Everything above `metadata` speaks this and cannot tell a dialect from another.

use crate::codec::CodecSpec;
use crate::dtype::{DType, FillValue};
use crate::error::Result;
use crate::json::Object;

/// A group or an array.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// A group.
    Group(Group),
    /// An array.
    Array(Box<Array>),
}

/// A group. One that exists only because of what lies below it has no attributes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Group {
    /// User attributes. Bare NaN and infinities are strings here.
    pub attributes: Object,
    /// Whether its document has `consolidated_metadata` of the inline kind.
    pub consolidated: bool,
}

/// An array, as its document describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    /// Elements along each dimension.
    pub shape: Vec<u64>,
    /// The type of an element.
    pub dtype: DType,
    /// The value of elements in chunks that the store does not have.
    pub fill: FillValue,
    /// Elements of a stored chunk along each dimension, each at least 1: of the shard where there
    /// are shards. On a rectilinear grid the longest along each.
    pub chunk_shape: Vec<u64>,
    /// On a rectilinear grid the lengths of the chunks along each dimension, `None` if all have the
    /// same shape.
    pub rectilinear: Option<Vec<Runs>>,
    /// How the coordinates of a stored chunk become the end of its key.
    pub key_encoding: KeyEncoding,
    /// What an element goes through on its way to the store, in order of encoding, at most one
    /// array-to-bytes codec.
    pub codecs: Vec<CodecSpec>,
    /// A name for each dimension; empty where the document has none.
    pub dimension_names: Vec<Option<String>>,
    /// User attributes. Bare NaN and infinities are strings here.
    pub attributes: Object,
}

/// The lengths of chunks along a dimension: each length, and how many chunks in a row have it. A
/// step without an end is a single run of `u64::MAX`.
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

/// How coordinates become the end of a chunk's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyEncoding {
    /// v3 `default`: `c/1/23`, `c.1.23`; `c` without dimensions.
    Default(Separator),
    /// v3 `v2`, and Zarr 2: `1/23`, `1.23`; `0` without dimensions.
    V2(Separator),
    /// Zarr 2 whose document does not say: that of `V2` which is there, else `1.23`.
    V2Unsaid,
    /// N5: `23/1`, the last dimension first; `0` without dimensions.
    N5,
    /// The drafts: `c1/23`, `c1.23`; without dimensions `c`, or `c0` as zarr-python 2, GDAL and
    /// xtensor-zarr write it.
    Draft(Separator),
}

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
    pub node: Result<Node>,
}
