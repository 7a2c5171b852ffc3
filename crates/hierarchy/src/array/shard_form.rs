//! The form of a shard: its index, and how long it may be.
//!
//! It depends on the number of inner chunks along each dimension of the shard.

use std::ops::Range;

use bytes::Bytes;
use serde_json::Value as Json;

use zarrfs_base::error::{Error, Result, WithSubject};
use zarrfs_base::limits;
use zarrfs_base::width::{ToU64, ToUsize};
use zarrfs_codec::CodecSpec;
use zarrfs_codec::dtype::DType;
use zarrfs_codec::json::Object;
use zarrfs_codec::registry::CodecChain;
use zarrfs_codec::shard::ShardIndex;
use zarrfs_codec::{ChunkType, Pipeline};
use zarrfs_store::{ByteRange, Value};

/// A shard may be longer than its chunks by at most this many bytes.
const SLACK: u64 = 1 << 20;

/// The options of a sharding codec, not yet bound to the shape of a shard.
#[derive(Debug)]
pub struct FormOptions {
    /// The codecs of the index, `None` if the metadata do not declare them.
    index_codecs: Option<Vec<CodecSpec>>,
    location: IndexLocation,
    /// The dimensions in the order in which slots are counted.
    axes: Vec<usize>,
    /// Whether codecs encode the whole shard.
    is_whole: bool,
    inner_len: Option<u64>,
    max_len: u64,
}

/// The form of shards of one shape.
#[derive(Debug)]
pub struct ShardForm {
    slots: usize,
    index: IndexForm,
    location: IndexLocation,
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

impl FormOptions {
    /// Parses the configuration of a sharding codec with other codecs `around` it. Slots are
    /// counted along `axes`. Decoded inner chunks have `inner_len` bytes, or for `None` variable
    /// lengths of at most `max_len`.
    pub fn parse(
        configuration: &Object,
        axes: Vec<usize>,
        around: &[CodecSpec],
        inner_len: Option<u64>,
        max_len: u64,
    ) -> Result<Self> {
        let location = match configuration.get("index_location").map(|at| at.as_str()) {
            None | Some(Some("end")) => IndexLocation::End,
            Some(Some("start")) => IndexLocation::Start,
            Some(_) => return Err(Error::corrupt("index_location is neither start nor end")),
        };
        let index_codecs = nested(configuration, "index_codecs").at("index_codecs")?;
        let is_whole = !around.is_empty();
        Ok(Self { index_codecs, location, axes, is_whole, inner_len, max_len })
    }

    /// Returns the form of shards with this number of inner chunks along each dimension.
    pub fn bind(&self, counts: &[u64]) -> Result<ShardForm> {
        let Self { location, max_len, .. } = *self;
        let slots = counts.iter().try_fold(1_u64, |slots, count| slots.checked_mul(*count));
        let slots =
            slots.filter(|slots| *slots <= limits::SHARD_CHUNKS.get()).ok_or_else(|| {
                let detail = "sharding_indexed: too many inner chunks in a shard";
                Error::too_large(format!("{detail}, {}", limits::SHARD_CHUNKS))
            })?;
        let along = self.axes.iter().filter_map(|axis| counts.get(*axis).copied());
        let index = self.index(&along.chain([2]).collect::<Vec<u64>>()).at("index_codecs")?;
        let shard_len = self.inner_len.map_or(max_len, |inner_len| slots.saturating_mul(inner_len));
        if self.is_whole && shard_len > max_len {
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
        Ok(ShardForm { slots, index, location, longest, most_kept })
    }

    fn index(&self, shape: &[u64]) -> Result<IndexForm> {
        let bind = |specs: &[CodecSpec]| {
            let elements = ChunkType { shape: shape.to_vec(), dtype: DType::Uint(8) };
            let pipeline = Pipeline::bind(&CodecChain::sort(specs)?, &[], &elements, 0)?;
            match pipeline.encoded_len() {
                Some(_) => Ok(pipeline),
                None => Err(Error::corrupt("the length of the shard index is not fixed")),
            }
        };
        match &self.index_codecs {
            Some(specs) => bind(specs).map(IndexForm::Known),
            None => Ok(IndexForm::Either {
                plain: bind(&[])?,
                checked: bind(&[CodecSpec::new("crc32c", Object::new())])?,
            }),
        }
    }
}

impl ShardForm {
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
}

/// Returns the codecs in a member of a sharding codec's configuration, in canonical form; `None` if
/// it is absent.
pub fn nested(configuration: &Object, member: &str) -> Result<Option<Vec<CodecSpec>>> {
    let Some(list) = configuration.get(member) else { return Ok(None) };
    let malformed =
        || Error::corrupt(format!("sharding_indexed: {member} is not a list of codecs"));
    let codec = |value: &Json| {
        let name = value.get("name").and_then(Json::as_str).ok_or_else(malformed)?;
        let configuration = value.get("configuration").and_then(Json::as_object);
        let optional = value.get("must_understand").and_then(Json::as_bool) == Some(false);
        let mut codec = CodecSpec::new(name, configuration.cloned().unwrap_or_default());
        codec.optional = optional;
        Ok(codec)
    };
    list.as_array().ok_or_else(malformed)?.iter().map(codec).collect::<Result<_>>().map(Some)
}
