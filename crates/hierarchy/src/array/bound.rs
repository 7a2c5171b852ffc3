//! The codecs of an array, bound to the shapes of its chunks.
//!
//! On a regular grid there is one shape, bound when the array is opened. On a rectilinear grid each
//! shape is bound for the first chunk that has it, and the most recent ones are cached. The indexes
//! of shards are bound to the shapes of shards in the same way.
//!
//! `Grid` computes where each chunk begins and ends: by a step, or by a search in the runs of a
//! rectilinear grid. There is never a table of chunks, since a few bytes of metadata can describe
//! any number of them. `Array::chunk_len` is the length of a chunk in bytes: an exact number or,
//! for elements of variable length, an upper limit. `st_size` and the checks of a write use it. A
//! chunk with elements of variable length is decoded to the form of `vlen-utf8`, whichever codec
//! stores it.

use std::sync::Arc;

use super::by_shape::{Bound, ShapeCache};
use super::layers::{Stack, chunk_len};
use zarrfs_base::error::{Error, Result};
use zarrfs_codec::dtype::DType;
use zarrfs_codec::{ChunkType, Pipeline};

/// The length of a decoded chunk in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkLen {
    /// Exactly this many.
    Exactly(u64),
    /// Depends on the elements, and is at most this.
    UpTo(u64),
}

impl ChunkLen {
    /// Returns the length of chunks of `shape`; `limit` is the most bytes for elements of variable
    /// length.
    pub fn of(shape: &[u64], dtype: &DType, limit: u64) -> Result<Self> {
        Ok(chunk_len(shape, dtype)?.map_or(Self::UpTo(limit), Self::Exactly))
    }

    /// Returns the most bytes that the chunk can have.
    pub fn longest(self) -> u64 {
        match self {
            Self::Exactly(len) | Self::UpTo(len) => len,
        }
    }

    /// Returns its length if that is known without reading it.
    pub fn exactly(self) -> Option<u64> {
        match self {
            Self::Exactly(len) => Some(len),
            Self::UpTo(_) => None,
        }
    }
}

/// The pipelines of an array.
#[derive(Debug)]
pub enum Pipelines {
    /// All chunks have the same shape.
    One(Pipeline),
    /// Chunks have different shapes.
    ByShape(Box<ByShape>),
}

/// Pipelines by chunk shape.
#[derive(Debug)]
pub struct ByShape {
    stack: Stack,
    dtype: DType,
    limit: u64,
    /// The pipeline of the first chunk, for properties that all shapes share.
    first: Pipeline,
    cached: ShapeCache<Pipeline>,
}

impl Pipelines {
    /// Returns the pipelines of a grid with chunks of one `shape`, of at most `limit` bytes.
    pub fn one(stack: &Stack, shape: Vec<u64>, dtype: &DType, limit: u64) -> Result<Self> {
        let elements = ChunkType { shape, dtype: dtype.clone() };
        let pipeline = stack.bind(&elements, limit)?;
        check_len(&elements, limit)?;
        Ok(Self::One(pipeline))
    }

    /// Returns the pipelines of a grid with different chunks; the first chunk has the shape
    /// `first`.
    pub fn by_shape(stack: Stack, first: Vec<u64>, dtype: &DType, limit: u64) -> Result<Self> {
        let first = stack.bind(&ChunkType { shape: first, dtype: dtype.clone() }, limit)?;
        let (dtype, cached) = (dtype.clone(), ShapeCache::new());
        Ok(Self::ByShape(Box::new(ByShape { stack, dtype, limit, first, cached })))
    }

    /// Returns the pipeline of a chunk with the shape `shape()`.
    pub fn of(&self, shape: impl FnOnce() -> Result<Vec<u64>>) -> Result<Bound<'_>> {
        match self {
            Self::One(pipeline) => Ok(Bound::Only(pipeline)),
            Self::ByShape(by_shape) => by_shape.of(shape()?).map(Bound::Cached),
        }
    }

    /// Whether a range of a decoded chunk can be read without the rest.
    pub fn is_by_element(&self) -> bool {
        match self {
            Self::One(pipeline) => pipeline.is_by_element(),
            Self::ByShape(by_shape) => by_shape.first.is_by_element(),
        }
    }

    /// Returns the most bytes that an encoded chunk can have.
    pub fn longest(&self) -> u64 {
        match self {
            Self::One(pipeline) => pipeline.longest(),
            Self::ByShape(by_shape) => {
                by_shape.limit.saturating_mul(2).max(by_shape.first.longest())
            }
        }
    }

    /// Whether decoding may return other elements than were encoded.
    pub fn is_lossy(&self) -> bool {
        match self {
            Self::One(pipeline) => pipeline.is_lossy(),
            Self::ByShape(by_shape) => by_shape.first.is_lossy(),
        }
    }
}

impl ByShape {
    fn of(&self, shape: Vec<u64>) -> Result<Arc<Pipeline>> {
        self.cached.get(shape, |shape| {
            let elements = ChunkType { shape: shape.to_vec(), dtype: self.dtype.clone() };
            check_len(&elements, self.limit)?;
            self.stack.bind(&elements, self.limit)
        })
    }
}

fn check_len(elements: &ChunkType, limit: u64) -> Result<()> {
    let len = ChunkLen::of(&elements.shape, &elements.dtype, limit)?.longest();
    if len <= limit {
        return Ok(());
    }
    Err(Error::too_large(format!(
        "a chunk has {len} bytes, the limit is {limit} (--max-chunk-size)"
    )))
}
