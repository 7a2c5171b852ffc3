//! One level of sharding: the positions of inner chunks in shards.
//!
//! The 2022 transformer and the `sharding_indexed` codec differ only in data of a level: index
//! codecs, index position, codecs around the shard. With a `transpose` before the sharding codec,
//! slots are counted in the transposed shard.
//!
//! <https://zarr-specs.readthedocs.io/en/latest/v3/codecs/sharding-indexed/index.html>

use std::ops::Range;

use bytes::Bytes;

use super::coords::{Coords, Grid};
use zarrfs_base::error::{Error, Result, WithSubject};
use zarrfs_base::limits;
use zarrfs_base::width::{ToU64, ToUsize};
use zarrfs_codec::CodecSpec;
use zarrfs_codec::array_to_array::DimensionOrder;
use zarrfs_codec::dtype::DType;
use zarrfs_codec::json::Object;
use zarrfs_codec::registry::{self, CodecChain};
use zarrfs_codec::shard::ShardIndex;
use zarrfs_codec::{BytesToBytes, ChunkType, Pipeline};
use zarrfs_store::{ByteRange, Value};

/// A shard may be longer than its chunks by at most this many bytes.
const SLACK: u64 = 1 << 20;

/// A level of sharding, bound to a shard shape.
#[derive(Debug)]
pub struct ShardLevel {
    /// The number of inner chunks along each dimension of a shard.
    counts: Vec<u64>,
    /// The order of dimensions for counting slots.
    order: DimensionOrder,
    slots: usize,
    index: IndexForm,
    location: IndexLocation,
    /// The codecs that encode the whole shard, in order of encoding. If there are any, no part of a
    /// shard can be read by itself.
    pub(super) around: Vec<Box<dyn BytesToBytes>>,
    /// The most bytes of a shard with codecs around it, stored or decoded.
    longest: u64,
    most_kept: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IndexLocation {
    Start,
    End,
}

/// The encoding of the index.
#[derive(Debug)]
enum IndexForm {
    /// The codecs in `index_codecs`.
    Known(Pipeline),
    /// Unknown in metadata of April to July 2023: tried both with and without a checksum.
    Either { plain: Pipeline, checked: Pipeline },
}

impl ShardLevel {
    /// Binds the configuration of a sharding codec. `shard_shape` and `inner_shape` are in the
    /// array's own order of dimensions; `order` is the transpose before the codec. Decoded inner
    /// chunks have `inner_len` bytes, or for `None` variable lengths of at most `max_len`.
    #[expect(clippy::too_many_arguments, reason = "a sharding codec depends on all of these")]
    pub fn bind(
        configuration: &Object,
        shard_shape: &[u64],
        inner_shape: &[u64],
        order: DimensionOrder,
        around: &[CodecSpec],
        inner_len: Option<u64>,
        max_len: u64,
    ) -> Result<Self> {
        let mut counts = Vec::with_capacity(shard_shape.len());
        for (shard, inner) in shard_shape.iter().zip(inner_shape) {
            if *inner == 0 || *shard == 0 || shard % inner != 0 {
                return Err(Error::corrupt(format!(
                    "sharding_indexed: inner chunks of {inner_shape:?} do not divide a shard of {shard_shape:?}"
                )));
            }
            counts.push(shard / inner);
        }
        let slots = counts.iter().try_fold(1_u64, |slots, count| slots.checked_mul(*count));
        let slots =
            slots.filter(|slots| *slots <= limits::SHARD_CHUNKS.get()).ok_or_else(|| {
                let detail = "sharding_indexed: too many inner chunks in a shard";
                Error::too_large(format!("{detail}, {}", limits::SHARD_CHUNKS))
            })?;
        let location = match configuration.get("index_location").map(|at| at.as_str()) {
            None | Some(Some("end")) => IndexLocation::End,
            Some(Some("start")) => IndexLocation::Start,
            Some(_) => return Err(Error::corrupt("index_location is neither start nor end")),
        };
        let index_shape: Vec<u64> = order.apply(&counts).into_iter().chain([2]).collect();
        let index = index_form(configuration, &index_shape).at("index_codecs")?;
        let around = registry::bytes_to_bytes(around)?;
        let shard_len = inner_len.map_or(max_len, |inner_len| slots.saturating_mul(inner_len));
        if !around.is_empty() && shard_len > max_len {
            return Err(Error::too_large(format!(
                "a shard inside other codecs is decoded as a whole: it has {shard_len} bytes, the limit is {max_len} (--max-chunk-size)"
            )));
        }
        let overhead = slots.saturating_mul(1024).saturating_add(SLACK);
        let most_kept = shard_len.saturating_mul(2).saturating_add(overhead);
        // Nested indexes and checksums may multiply a short shard, but not a long one.
        let longest = shard_len.saturating_mul(128).saturating_add(overhead);
        let longest = longest.min(max_len.saturating_mul(2).saturating_add(SLACK));
        let slots = slots.to_usize();
        Ok(Self { counts, order, slots, index, location, around, longest, most_kept })
    }

    /// Returns the number of inner chunks in a shard, including those outside of the array.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Returns the most bytes of a shard with codecs around it, stored or decoded.
    pub fn longest(&self) -> u64 {
        self.longest
    }

    /// Returns the most bytes that a change needs to copy from a shard of `shard_len` bytes.
    /// Overlapping entries of a damaged or crafted index could ask for any multiple of its length.
    pub fn most_kept(&self, shard_len: u64) -> u64 {
        self.most_kept.max(shard_len)
    }

    /// Returns the shard that contains an inner chunk.
    pub fn shard_of(&self, coords: &Coords) -> Coords {
        Coords::new(self.shard_prefix(coords.indices()))
    }

    /// Returns the first indices of the shards that contain the inner chunks with these first
    /// indices.
    pub fn shard_prefix(&self, prefix: &[u64]) -> Vec<u64> {
        prefix.iter().zip(&self.counts).map(|(index, count)| index / count).collect()
    }

    /// Returns the slot of an inner chunk in the index of its shard.
    pub fn slot_of(&self, coords: &Coords) -> usize {
        let within: Vec<u64> =
            coords.indices().iter().zip(&self.counts).map(|(index, count)| index % count).collect();
        let counts = self.order.apply(&self.counts);
        let slot = self.order.apply(&within).iter().zip(&counts).fold(0, |sum, (i, n)| sum * n + i);
        slot.to_usize()
    }

    /// Returns the inner chunk of `slot` in `shard`.
    pub fn coords_of(&self, shard: &Coords, slot: usize) -> Coords {
        let counts = self.order.apply(&self.counts);
        let mut rest = slot.to_u64();
        let mut encoded: Vec<u64> = counts
            .iter()
            .rev()
            .map(|count| {
                let index = rest % count;
                rest /= count;
                index
            })
            .collect();
        encoded.reverse();
        let within = self.order.inverse().apply(&encoded);
        let indices = shard.indices().iter().zip(&self.counts).zip(within);
        Coords::new(
            indices.map(|((s, n), i)| s.saturating_mul(*n).saturating_add(i)).collect::<Vec<_>>(),
        )
    }

    /// Returns how many inner chunks of `shard` lie in the array.
    pub fn chunks_of(&self, shard: &Coords, grid: &Grid) -> u64 {
        let along = shard.indices().iter().zip(&self.counts).zip(grid.counts());
        along.map(|((s, n), all)| all.saturating_sub(s.saturating_mul(*n)).min(*n)).product()
    }

    /// Returns the number of inner chunks along dimension `axis` of a shard.
    pub fn count_along(&self, axis: usize) -> u64 {
        self.counts.get(axis).copied().unwrap_or(1)
    }

    /// Whether the inner chunks with the same first `depth` indices always form whole shards.
    pub fn covers_whole_shards(&self, depth: usize) -> bool {
        self.counts.iter().take(depth).all(|count| *count == 1)
    }

    /// Returns the range of the index in a shard.
    pub fn index_range(&self) -> ByteRange {
        let len = match &self.index {
            IndexForm::Known(pipeline) => pipeline.encoded_len(),
            IndexForm::Either { checked, .. } => checked.encoded_len(),
        };
        let len = len.unwrap_or_default();
        match self.location {
            IndexLocation::Start => ByteRange::first(len),
            IndexLocation::End => ByteRange::Suffix(len),
        }
    }

    /// Parses the index in `value`, which was read from [`Self::index_range`], and returns where in
    /// the shard it is.
    pub fn parse_index(&self, value: &Value) -> Result<(ShardIndex, Range<u64>)> {
        match &self.index {
            IndexForm::Known(pipeline) => self.parse_as(pipeline, value),
            IndexForm::Either { plain, checked } => {
                self.parse_as(checked, value).or_else(|_| self.parse_as(plain, value))
            }
        }
    }

    fn parse_as(&self, pipeline: &Pipeline, value: &Value) -> Result<(ShardIndex, Range<u64>)> {
        let len = pipeline.encoded_len().unwrap_or_default();
        let shard_len = value.stat.len;
        let read = value.bytes.len().to_u64();
        if read < len {
            return Err(Error::corrupt(format!(
                "{shard_len} bytes long, its shard index alone needs {len}"
            )));
        }
        let skip = (read - len).to_usize();
        let bytes = match self.location {
            IndexLocation::Start => value.bytes.slice(..value.bytes.len() - skip),
            IndexLocation::End => value.bytes.slice(skip..),
        };
        let decoded = pipeline
            .decode(bytes)
            .map_err(|error| Error::corrupt(format!("shard index: {error}")))?;
        Ok((ShardIndex::parse(&decoded)?, self.index_at(len, shard_len)))
    }

    /// Returns the length of an index at the beginning of a shard, else 0.
    pub fn index_first_len(&self) -> u64 {
        match (self.location, self.index_range()) {
            (IndexLocation::Start, ByteRange::Span { len, .. }) => len,
            _ => 0,
        }
    }

    /// Returns the range of an index of `index_len` bytes in a shard of `shard_len`.
    pub fn index_at(&self, index_len: u64, shard_len: u64) -> Range<u64> {
        match self.location {
            IndexLocation::Start => 0..index_len,
            IndexLocation::End => shard_len.saturating_sub(index_len)..shard_len,
        }
    }

    /// Encodes an index; `old` is its range in the old shard, whose encoding is kept.
    pub fn encode_index(&self, index: &ShardIndex, old: Option<&Range<u64>>) -> Result<Bytes> {
        let pipeline = match &self.index {
            IndexForm::Known(pipeline) => pipeline,
            IndexForm::Either { plain, checked } => match old {
                Some(old) if Some(old.end - old.start) == plain.encoded_len() => plain,
                _ => checked,
            },
        };
        pipeline.encode(index.to_bytes().into(), &[])
    }

    /// Inserts the encoded index at its place among the pieces of a shard.
    pub fn place_index<T>(&self, pieces: &mut Vec<T>, index: T) {
        match self.location {
            IndexLocation::Start => pieces.insert(0, index),
            IndexLocation::End => pieces.push(index),
        }
    }

    /// Decodes the codecs around a shard.
    pub fn decode_around(&self, encoded: Bytes) -> Result<Bytes> {
        let limit = self.longest.to_usize();
        let mut bytes = encoded;
        for codec in self.around.iter().rev() {
            bytes = codec.decode(&bytes, limit)?.into();
        }
        Ok(bytes)
    }

    /// Encodes the codecs around a shard.
    pub fn encode_around(&self, shard: Vec<u8>) -> Result<Bytes> {
        let mut bytes = shard;
        for codec in &self.around {
            bytes = codec.encode(&bytes)?;
        }
        Ok(bytes.into())
    }
}

fn index_form(configuration: &Object, shape: &[u64]) -> Result<IndexForm> {
    let bind = |specs: &[CodecSpec]| {
        let elements = ChunkType { shape: shape.to_vec(), dtype: DType::Uint(8) };
        let pipeline = Pipeline::bind(&CodecChain::sort(specs)?, &[], &elements, 0)?;
        match pipeline.encoded_len() {
            Some(_) => Ok(pipeline),
            None => Err(Error::corrupt("the length of the shard index is not fixed")),
        }
    };
    match super::layers::nested(configuration, "index_codecs")? {
        Some(specs) => bind(&specs).map(IndexForm::Known),
        None => Ok(IndexForm::Either {
            plain: bind(&[])?,
            checked: bind(&[CodecSpec::new("crc32c", Object::new())])?,
        }),
    }
}
