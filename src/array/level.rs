//! One level of sharding: which inner chunk is where in which shard.
//!
//! All that the 2022 transformer and the `sharding_indexed` codec differ in is data
//! here: index codecs, index position, codecs around the shard. A `transpose` in front
//! of the sharding codec means that slots are counted in the transposed shard.
//!
//! <https://zarr-specs.readthedocs.io/en/latest/v3/codecs/sharding-indexed/index.html>

use std::ops::Range;

use bytes::Bytes;

use super::coords::{Coords, Grid};
use crate::codec::CodecSpec;
use crate::codec::array_to_array::Order;
use crate::codec::registry::{self, Chain};
use crate::codec::{BytesToBytes, Elements, Pipeline};
use crate::dtype::DType;
use crate::error::{At, Error, Result};
use crate::json::Object;
use crate::resources;
use crate::shard::Index;
use crate::store::{ByteRange, Value};

/// The most inner chunks that a shard may have: their index takes 64 MiB. Where there is little
/// memory there may be one for each KiB: several threads may read an index, encoded and decoded.
const MAX_SLOTS: u64 = 1 << 22;
const MEMORY_OF_SLOT: u64 = 1 << 10;

/// What a shard may have beyond what follows from its chunks, in bytes.
const SLACK: u64 = 1 << 20;

/// A level of sharding, bound to a shard shape.
#[derive(Debug)]
pub struct Level {
    /// Inner chunks along each dimension of a shard.
    counts: Vec<u64>,
    /// The order of dimensions that slots are counted in.
    order: Order,
    slots: usize,
    index: IndexForm,
    location: IndexLocation,
    /// Codecs around the whole shard, in order of encoding: they leave no way to read a part.
    pub(super) around: Vec<Box<dyn BytesToBytes>>,
    /// The most bytes that a shard may have, stored or decoded, where codecs lie around it.
    longest: u64,
    most_kept: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IndexLocation {
    Start,
    End,
}

/// How the index is encoded.
#[derive(Debug)]
enum IndexForm {
    /// As `index_codecs` says.
    Known(Pipeline),
    /// The document does not say, as those of April to July 2023: with or without a checksum, which
    /// is tried.
    Either { plain: Pipeline, checked: Pipeline },
}

impl Level {
    /// Binds the configuration of a sharding codec. `shard_shape` and `inner_shape` are in the
    /// array's own order of dimensions, `order` is what comes before the codec. Inner chunks have
    /// `inner_len` bytes decoded; none where each has a length of its own, of at most `max_len`.
    #[expect(clippy::too_many_arguments, reason = "what a codec in a chain depends on")]
    pub fn bind(
        configuration: &Object,
        shard_shape: &[u64],
        inner_shape: &[u64],
        order: Order,
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
        let most = MAX_SLOTS.min(resources::memory_limit() / MEMORY_OF_SLOT);
        let slots = slots.filter(|slots| *slots <= most).ok_or_else(|| {
            Error::too_large(format!("sharding_indexed: more than {most} inner chunks in a shard"))
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
        // Nested indexes and checksums may make much more of a few bytes, but never of many.
        let longest = shard_len.saturating_mul(128).saturating_add(overhead);
        let longest = longest.min(max_len.saturating_mul(2).saturating_add(SLACK));
        let slots = usize::try_from(slots).unwrap_or(usize::MAX);
        Ok(Self { counts, order, slots, index, location, around, longest, most_kept })
    }

    /// Inner chunks in a shard, those outside of the array too.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// The most bytes that a shard may have, stored or decoded, where codecs lie around it.
    pub fn longest(&self) -> u64 {
        self.longest
    }

    /// The most bytes that a change need copy out of a shard of `shard_len` bytes. Entries of a
    /// damaged or crafted index that overlap could ask for any number of times its length.
    pub fn most_kept(&self, shard_len: u64) -> u64 {
        self.most_kept.max(shard_len)
    }

    /// The shard that an inner chunk is in.
    pub fn shard_of(&self, coords: &Coords) -> Coords {
        Coords::new(self.shard_prefix(coords.indices()))
    }

    /// The first indices of the shards that inner chunks with these first indices are in.
    pub fn shard_prefix(&self, prefix: &[u64]) -> Vec<u64> {
        prefix.iter().zip(&self.counts).map(|(index, count)| index / count).collect()
    }

    /// The place of an inner chunk in the index of its shard.
    pub fn slot_of(&self, coords: &Coords) -> usize {
        let within: Vec<u64> =
            coords.indices().iter().zip(&self.counts).map(|(index, count)| index % count).collect();
        let counts = self.order.apply(&self.counts);
        let slot = self.order.apply(&within).iter().zip(&counts).fold(0, |sum, (i, n)| sum * n + i);
        usize::try_from(slot).unwrap_or(usize::MAX)
    }

    /// The inner chunk that `slot` of `shard` is for.
    pub fn coords_of(&self, shard: &Coords, slot: usize) -> Coords {
        let counts = self.order.apply(&self.counts);
        let mut rest = u64::try_from(slot).unwrap_or(u64::MAX);
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

    /// Inner chunks of `shard` that are in the array.
    pub fn chunks_of(&self, shard: &Coords, grid: &Grid) -> u64 {
        let along = shard.indices().iter().zip(&self.counts).zip(grid.counts());
        along.map(|((s, n), all)| all.saturating_sub(s.saturating_mul(*n)).min(*n)).product()
    }

    /// Inner chunks along dimension `axis` of a shard.
    pub fn count_along(&self, axis: usize) -> u64 {
        self.counts.get(axis).copied().unwrap_or(1)
    }

    /// Whether fixing the first `depth` indices of inner chunks never cuts a shard.
    pub fn covers_whole_shards(&self, depth: usize) -> bool {
        self.counts.iter().take(depth).all(|count| *count == 1)
    }

    /// Where in a shard its index is.
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

    /// The index in `value`, which was read from [`Self::index_range`], and where in the shard it
    /// is.
    pub fn parse_index(&self, value: &Value) -> Result<(Index, Range<u64>)> {
        match &self.index {
            IndexForm::Known(pipeline) => self.parse_as(pipeline, value),
            IndexForm::Either { plain, checked } => {
                self.parse_as(checked, value).or_else(|_| self.parse_as(plain, value))
            }
        }
    }

    fn parse_as(&self, pipeline: &Pipeline, value: &Value) -> Result<(Index, Range<u64>)> {
        let len = pipeline.encoded_len().unwrap_or_default();
        let shard_len = value.stat.len;
        let read = u64::try_from(value.bytes.len()).unwrap_or(u64::MAX);
        if read < len {
            return Err(Error::corrupt(format!(
                "{shard_len} bytes long, its shard index alone needs {len}"
            )));
        }
        let skip = usize::try_from(read - len).unwrap_or_default();
        let bytes = match self.location {
            IndexLocation::Start => value.bytes.slice(..value.bytes.len() - skip),
            IndexLocation::End => value.bytes.slice(skip..),
        };
        let decoded = pipeline
            .decode(bytes)
            .map_err(|error| Error::corrupt(format!("shard index: {error}")))?;
        Ok((Index::parse(&decoded)?, self.index_at(len, shard_len)))
    }

    /// The length of the index where it comes first, else 0.
    pub fn index_first_len(&self) -> u64 {
        match (self.location, self.index_range()) {
            (IndexLocation::Start, ByteRange::Span { len, .. }) => len,
            _ => 0,
        }
    }

    /// Where the index of `index_len` bytes is in a shard of `shard_len`.
    pub fn index_at(&self, index_len: u64, shard_len: u64) -> Range<u64> {
        match self.location {
            IndexLocation::Start => 0..index_len,
            IndexLocation::End => shard_len.saturating_sub(index_len)..shard_len,
        }
    }

    /// The encoded index; `old` is where the shard had its index before, whose form is kept.
    pub fn encode_index(&self, index: &Index, old: Option<&Range<u64>>) -> Result<Bytes> {
        let pipeline = match &self.index {
            IndexForm::Known(pipeline) => pipeline,
            IndexForm::Either { plain, checked } => match old {
                Some(old) if Some(old.end - old.start) == plain.encoded_len() => plain,
                _ => checked,
            },
        };
        pipeline.encode(index.to_bytes().into(), &[])
    }

    /// Puts the encoded index where it belongs among the pieces of a shard.
    pub fn place_index<T>(&self, pieces: &mut Vec<T>, index: T) {
        match self.location {
            IndexLocation::Start => pieces.insert(0, index),
            IndexLocation::End => pieces.push(index),
        }
    }

    /// Undoes the codecs around a shard.
    pub fn decode_around(&self, encoded: Bytes) -> Result<Bytes> {
        let limit = usize::try_from(self.longest).unwrap_or(usize::MAX);
        let mut bytes = encoded;
        for codec in self.around.iter().rev() {
            bytes = codec.decode(&bytes, limit)?.into();
        }
        Ok(bytes)
    }

    /// Does the codecs around a shard.
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
        let elements = Elements { shape: shape.to_vec(), dtype: DType::Uint(8) };
        let pipeline = Pipeline::bind(&Chain::sort(specs)?, &[], &elements, 0)?;
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
