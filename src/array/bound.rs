//! The codecs of an array, bound to the shapes that its chunks have.
//!
//! On a regular grid there is one shape, bound when the array is opened. On a rectilinear one each
//! shape is bound when a chunk of it is first asked for, and the last ones are kept.
//!
//! `Grid` says where each chunk begins and ends: by a step, or by a search in the runs that a
//! rectilinear grid lists. There is never a table of chunks, since a few bytes of metadata can
//! describe any number of them. `Array::chunk_len` says how many bytes a chunk has: an exact number
//! or, if elements have lengths of their own, an upper limit. `st_size` and the checks of a write
//! use it. The decoded form of a chunk with elements of variable length is that of `vlen-utf8`,
//! whatever codec stores it.

use std::num::NonZeroUsize;
use std::ops::Deref;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use super::layers::{Stack, chunk_len};
use crate::codec::{Elements, Pipeline};
use crate::dtype::DType;
use crate::error::{Error, Result};

/// How many shapes are kept.
const SHAPES: NonZeroUsize = NonZeroUsize::MIN.saturating_add(63);

/// How many bytes a decoded chunk has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkLen {
    /// As many.
    Exactly(u64),
    /// Each chunk as many as its elements have, and no more than that.
    UpTo(u64),
}

impl ChunkLen {
    /// Of chunks of `shape`, which may have `limit` bytes where that depends on their elements.
    pub fn of(shape: &[u64], dtype: &DType, limit: u64) -> Result<Self> {
        Ok(chunk_len(shape, dtype)?.map_or(Self::UpTo(limit), Self::Exactly))
    }

    /// The most bytes that the chunk can have.
    pub fn longest(self) -> u64 {
        match self {
            Self::Exactly(len) | Self::UpTo(len) => len,
        }
    }

    /// The bytes that it has, where that is known without reading it.
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
    /// Chunks differ.
    ByShape(Box<ByShape>),
}

/// Pipelines by chunk shape.
#[derive(Debug)]
pub struct ByShape {
    stack: Stack,
    dtype: DType,
    limit: u64,
    /// That of the first chunk: what is true of every shape is asked of it.
    first: Pipeline,
    /// A leaf: a pipeline is bound without it.
    kept: Mutex<LruCache<Vec<u64>, Arc<Pipeline>>>,
}

/// A pipeline, for as long as one chunk needs it.
pub enum Bound<'a> {
    /// That of all chunks.
    Only(&'a Pipeline),
    /// That of chunks of the same shape.
    Kept(Arc<Pipeline>),
}

impl Deref for Bound<'_> {
    type Target = Pipeline;

    fn deref(&self) -> &Pipeline {
        match self {
            Self::Only(pipeline) => pipeline,
            Self::Kept(pipeline) => pipeline,
        }
    }
}

impl Pipelines {
    /// Those of a grid in which all chunks have `shape`, and may have `limit` bytes.
    pub fn one(stack: &Stack, shape: Vec<u64>, dtype: &DType, limit: u64) -> Result<Self> {
        let elements = Elements { shape, dtype: dtype.clone() };
        let pipeline = stack.bind(&elements, limit)?;
        check_len(&elements, limit)?;
        Ok(Self::One(pipeline))
    }

    /// Returns the pipelines of a grid with different chunks; the first chunk has the shape
    /// `first`.
    pub fn by_shape(stack: Stack, first: Vec<u64>, dtype: &DType, limit: u64) -> Result<Self> {
        let first = stack.bind(&Elements { shape: first, dtype: dtype.clone() }, limit)?;
        let kept = Mutex::new(LruCache::new(SHAPES));
        Ok(Self::ByShape(Box::new(ByShape { stack, dtype: dtype.clone(), limit, first, kept })))
    }

    /// That of a chunk whose shape is `shape()`.
    pub fn of(&self, shape: impl FnOnce() -> Result<Vec<u64>>) -> Result<Bound<'_>> {
        match self {
            Self::One(pipeline) => Ok(Bound::Only(pipeline)),
            Self::ByShape(by_shape) => by_shape.of(shape()?).map(Bound::Kept),
        }
    }

    /// Whether a range of a decoded chunk takes nothing else of it.
    pub fn is_by_element(&self) -> bool {
        match self {
            Self::One(pipeline) => pipeline.is_by_element(),
            Self::ByShape(by_shape) => by_shape.first.is_by_element(),
        }
    }

    /// Whether what is decoded may differ from what was encoded.
    pub fn is_lossy(&self) -> bool {
        match self {
            Self::One(pipeline) => pipeline.is_lossy(),
            Self::ByShape(by_shape) => by_shape.first.is_lossy(),
        }
    }
}

impl ByShape {
    fn of(&self, shape: Vec<u64>) -> Result<Arc<Pipeline>> {
        let known = self.kept.lock().get(&shape).cloned();
        if let Some(pipeline) = known {
            return Ok(pipeline);
        }
        let elements = Elements { shape, dtype: self.dtype.clone() };
        check_len(&elements, self.limit)?;
        let pipeline = Arc::new(self.stack.bind(&elements, self.limit)?);
        let pushed_out = self.kept.lock().push(elements.shape, Arc::clone(&pipeline));
        drop(pushed_out); // Freeing memory takes time: not under the lock.
        Ok(pipeline)
    }
}

fn check_len(elements: &Elements, limit: u64) -> Result<()> {
    let len = ChunkLen::of(&elements.shape, &elements.dtype, limit)?.longest();
    if len <= limit {
        return Ok(());
    }
    Err(Error::too_large(format!(
        "a chunk has {len} bytes, the limit is {limit} (--max-chunk-size)"
    )))
}
