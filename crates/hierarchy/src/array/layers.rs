//! Splits the codecs of an array into the levels of its chunk store and the pipeline of its
//! innermost chunks.
//!
//! A `sharding_indexed` codec becomes a [`ShardLevel`]. Transposes before it move into the pipeline
//! of its inner chunks, where they have the same effect. So a chunk in the mount is always the
//! smallest unit that can be read by itself.
//!
//! Inner chunks have one shape, so their grid is regular, also if that of the shards is
//! rectilinear.
//!
//! The remaining codecs are the pipeline of the innermost chunks. Slots are counted in the
//! transposed shard. Nested codecs, and stacked storage transformers, become levels over levels; in
//! the model, the storage transformer of 2022 is `sharding_indexed`, too.

use super::coords::Grid;
use super::level::ShardLevel;
use super::shard_form::nested;
use crate::metadata::model;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToU64;
use zarrfs_codec::CodecSpec;
use zarrfs_codec::array_to_array::DimensionOrder;
use zarrfs_codec::dtype::DType;
use zarrfs_codec::json::Object;
use zarrfs_codec::registry::CodecChain;
use zarrfs_codec::{ChunkType, Pipeline};

/// The result of splitting a chain of codecs.
#[derive(Debug)]
pub struct Layers {
    /// The levels of sharding, the outermost first, each with the shape of its inner chunks.
    pub levels: Vec<(ShardLevel, Vec<u64>)>,
    /// The codecs of the innermost chunks.
    pub stack: Stack,
}

/// The codecs of the innermost chunks, not yet bound to a shape.
#[derive(Debug)]
pub struct Stack {
    before: Vec<CodecSpec>,
    chain: CodecChain,
}

impl Stack {
    /// Binds the codecs to chunks of `elements`; `max_len` is the most bytes for elements of
    /// variable length.
    pub fn bind(&self, elements: &ChunkType, max_len: u64) -> Result<Pipeline> {
        Pipeline::bind(&self.chain, &self.before, elements, max_len)
    }
}

/// Splits the codecs of `array` at its sharding codecs, and binds each of these to the grid of
/// its shards. A
/// shard that must be decoded as a whole may have `max_chunk_len` bytes.
pub fn split(array: &model::ArrayMetadata, max_chunk_len: u64) -> Result<Layers> {
    let rank = array.chunk_shape.len();
    let mut levels = Vec::new();
    let mut before: Vec<CodecSpec> = Vec::new();
    let mut order = DimensionOrder::identity(rank);
    let mut shards = Grid::of(array);
    let mut specs = array.codecs.clone();
    loop {
        let chain = CodecChain::sort(&specs)?;
        let sharding = chain.array_to_bytes.as_ref().filter(|spec| spec.name == "sharding_indexed");
        let Some(configuration) = sharding.map(|spec| &spec.configuration) else {
            return Ok(Layers { levels, stack: Stack { before, chain } });
        };
        let own = chain.order(rank)?.ok_or_else(|| {
            let before = "sharding_indexed follows a codec that works on whole chunks";
            Error::unsupported(before)
        })?;
        order = order.then(&own);
        before.extend(chain.array_to_array.iter().cloned());
        let encoded = lengths(configuration, "chunk_shape").filter(|inner| inner.len() == rank);
        let encoded = encoded.ok_or_else(|| {
            Error::corrupt(format!(
                "sharding_indexed: chunk_shape needs {rank} integers of at least 1"
            ))
        })?;
        let inner = order.inverse().apply(&encoded);
        let inner_len = chunk_len(&inner, &array.dtype)?;
        let around = &chain.bytes_to_bytes;
        let level = ShardLevel::bind(
            configuration,
            &shards,
            &inner,
            &order,
            around,
            inner_len,
            max_chunk_len,
        )?;
        shards = Grid::regular(&array.shape, &inner);
        levels.push((level, inner));
        specs = nested(configuration, "codecs")?.unwrap_or_default();
    }
}

/// Returns the bytes of a decoded chunk of `shape`; `None` for elements of variable length.
pub fn chunk_len(shape: &[u64], dtype: &DType) -> Result<Option<u64>> {
    if dtype.is_variable() {
        return Ok(None);
    }
    let item_len = dtype.item_len().to_u64();
    let len = shape.iter().try_fold(item_len, |len, n| len.checked_mul(*n));
    len.filter(|len| i64::try_from(*len).is_ok()).map(Some).ok_or_else(|| {
        Error::too_large(format!("a chunk of shape {shape:?} has more than 2^63 bytes"))
    })
}

fn lengths(configuration: &Object, member: &str) -> Option<Vec<u64>> {
    let list = configuration.get(member)?.as_array()?;
    list.iter().map(|len| len.as_u64().filter(|len| *len > 0)).collect()
}
