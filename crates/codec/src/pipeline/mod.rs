//! A chain of codecs, bound to one chunk shape and data type.
//!
//! Lengths, permutations and limits follow from the shape and are computed when the chain is bound,
//! so that reading a chunk looks nothing up.

mod clipped;
mod short;

use std::mem;
use std::ops::Range;

use bytes::Bytes;

use super::array_to_array::{self, BigEndian, DimensionOrder};
use super::array_to_bytes::AnyBytes;
use super::clock::Clock;
use super::elements::ChunkType;
use super::kinds::{ArrayToArray, ArrayToBytes, BytesToBytes};
use super::registry::{self, CodecChain};
use super::spec::CodecSpec;
use crate::json::Object;
use clipped::{BoundCodecs, ClippedChunk};
use short::ShortChunk;
use zarrfs_base::admission;
use zarrfs_base::buffer::{Buffer, fitted, recycle};
use zarrfs_base::error::{Error, Fault, Result};
use zarrfs_base::parallel;
use zarrfs_base::width::{ToU64, ToUsize};

/// An intermediate form may be longer than twice the decoded chunk by at most this many bytes.
const SLACK: u64 = 1 << 20;

/// Decoding and encoding take up to this many forms of a chunk: the first, the last, one between
/// two codecs, and what a codec needs to make it.
const FORMS: u64 = 4;

/// The least length of a chunk of unknown length that is decoded at first, in bytes.
const LEAST_USUAL: u64 = 1 << 20;

/// The codecs between a decoded chunk and its stored form.
#[derive(Debug)]
pub struct Pipeline {
    array_to_array: Vec<Box<dyn ArrayToArray>>,
    array_to_bytes: Box<dyn ArrayToBytes>,
    bytes_to_bytes: Vec<Stage>,
    /// `None` for elements of variable length.
    decoded_len: Option<usize>,
    /// The most bytes of a decoded chunk.
    limit: usize,
}

/// A bytes-to-bytes codec and its decoded length: exactly known, or an upper limit.
#[derive(Debug)]
struct Stage {
    codec: Box<dyn BytesToBytes>,
    decoded_len: Option<usize>,
    limit: usize,
}

impl Pipeline {
    /// Binds `chain`, which must not contain sharding, to chunks of `elements`. The array-to-array
    /// codecs `before`, which stand before a sharding codec, are applied first. `max_len` limits
    /// the bytes of a chunk whose length does not follow from its shape.
    pub fn bind(
        chain: &CodecChain,
        before: &[CodecSpec],
        elements: &ChunkType,
        max_len: u64,
    ) -> Result<Self> {
        let decoded_len = elements.byte_len()?;
        let limit = decoded_len.map_or_else(|| to_usize(max_len), Ok)?;
        let mut array_to_array: Vec<Box<dyn ArrayToArray>> = Vec::new();
        let mut encoded = elements.clone();
        let mut is_big = false;
        for spec in merged(before.iter().chain(&chain.array_to_array), elements.shape.len())? {
            let (codec, elements) = registry::array_to_array(&spec, &encoded, limit)?;
            array_to_array.extend(codec);
            encoded = elements;
            check_form(spec.written(), &encoded, limit, max_len)?;
            is_big = array_to_array::makes_big(&spec)?.unwrap_or(is_big);
        }
        let bytes = CodecSpec::new("bytes", Object::new());
        let spec = chain.array_to_bytes.as_ref().unwrap_or(&bytes);
        // Where both name big endian, elements are reversed once, as in zarr-python.
        if is_big && spec.configuration.get("endian").is_none_or(|endian| endian != "big") {
            array_to_array.push(Box::new(BigEndian::new(&encoded.dtype)?));
        }
        let array_to_bytes: Box<dyn ArrayToBytes> = match spec.name.as_str() {
            short::NAME => Box::new(ShortChunk::new(&spec.configuration, &encoded, limit)?),
            clipped::NAME => {
                Box::new(ClippedChunk::new(&spec.configuration, &encoded, limit, bound)?)
            }
            _ => registry::array_to_bytes(spec, &encoded, limit)?,
        };
        let mut pipeline =
            Self { array_to_array, array_to_bytes, bytes_to_bytes: Vec::new(), decoded_len, limit };
        for codec in registry::bytes_to_bytes(&chain.bytes_to_bytes)? {
            let known = pipeline.encoded_len();
            let decoded_len = known.map(to_usize).transpose()?;
            let limit = decoded_len.map_or_else(|| to_usize(pipeline.longest()), Ok)?;
            pipeline.bytes_to_bytes.push(Stage { codec, decoded_len, limit });
        }
        Ok(pipeline)
    }

    /// Returns the pipeline of chunks that are any bytes, at most `max_len`, and are stored as they
    /// are.
    pub fn of_any_bytes(max_len: u64) -> Result<Self> {
        Ok(Self {
            array_to_array: Vec::new(),
            array_to_bytes: Box::new(AnyBytes),
            bytes_to_bytes: Vec::new(),
            decoded_len: None,
            limit: to_usize(max_len)?,
        })
    }

    /// Returns the length of a decoded chunk in bytes, `None` for elements of variable length.
    pub fn decoded_len(&self) -> Option<usize> {
        self.decoded_len
    }

    /// Whether decoding may return other elements than were encoded.
    pub fn is_lossy(&self) -> bool {
        self.array_to_array.iter().any(|codec| codec.is_lossy()) || self.array_to_bytes.is_lossy()
    }

    /// Whether the stored and the decoded form of a chunk are equal.
    pub fn is_identity(&self) -> bool {
        let has_bytes_alone = self.array_to_array.is_empty() && self.bytes_to_bytes.is_empty();
        has_bytes_alone && self.array_to_bytes.is_identity()
    }

    /// Whether the encoded form omits elements outside the array.
    pub fn crops(&self) -> bool {
        self.array_to_bytes.crops()
    }

    /// Returns the length of an encoded chunk in bytes if all chunks have the same.
    pub fn encoded_len(&self) -> Option<u64> {
        let stages = self.bytes_to_bytes.iter();
        let first = self.array_to_bytes.encoded_len();
        stages.fold(first, |len, stage| len.and_then(|len| stage.codec.encoded_len(len)))
    }

    /// Fails if an encoded chunk has another length than all have. Returns whether its length is
    /// known.
    pub fn check_encoded_len(&self, encoded: &[u8]) -> Result<bool> {
        let Some(expected) = self.encoded_len() else {
            self.check_encoded(encoded)?;
            return Ok(false);
        };
        let found = encoded.len().to_u64();
        if found == expected {
            return Ok(true);
        }
        let detail = format!("{found} bytes stored, and its codecs make {expected} of every chunk");
        Err(Error::fault(Fault::Length, detail))
    }

    /// Returns the most bytes that a valid encoded chunk can have. A reader reads no more.
    pub fn longest(&self) -> u64 {
        longest(self.limit)
    }

    /// Returns how long the forms of a chunk may be in the first attempt to decode it. A chunk with
    /// elements of variable length rarely has as many bytes as it may have, so it is decoded within
    /// less memory at first.
    pub fn usual_len(&self) -> u64 {
        // Two threads more than processors decode.
        let usual = admission::share_of(parallel::processors().saturating_add(2)) / FORMS;
        match self.decoded_len {
            Some(_) => self.longest(),
            None => self.longest().min(usual.max(LEAST_USUAL)),
        }
    }

    /// Returns the most bytes that decoding takes if no form of the chunk has more than `longest`.
    pub fn decoder_memory(&self, longest: u64) -> u64 {
        let len = self.decoded_len.and_then(|len| u64::try_from(len).ok());
        let forms = if self.is_identity() { 1 } else { FORMS };
        len.unwrap_or(longest).saturating_mul(forms)
    }

    /// Returns the most bytes that encoding a chunk of `decoded_len` bytes takes.
    pub fn encoder_memory(&self, decoded_len: usize) -> u64 {
        if self.is_identity() {
            return 0;
        }
        let forms = decoded_len.to_u64().saturating_mul(FORMS);
        let longest = self.longest().to_usize();
        let tables = self.bytes_to_bytes.iter().map(|stage| {
            stage.codec.encoder_memory(stage.decoded_len.unwrap_or(decoded_len).min(longest))
        });
        forms.saturating_add(tables.max().unwrap_or_default())
    }

    /// Decodes a chunk: little endian, C order, exactly [`Self::decoded_len`] bytes if that is
    /// known.
    pub fn decode(&self, encoded: Bytes) -> Result<Buffer> {
        self.decode_within(encoded, usize::MAX)
    }

    /// Like [`Self::decode`]. Fails if a compressed form of the chunk has more than `longest`
    /// bytes.
    pub fn decode_within(&self, encoded: Bytes, longest: usize) -> Result<Buffer> {
        let _busy = parallel::busy();
        let clock = Clock::start();
        let bytes = undone(&self.bytes_to_bytes, encoded, longest, clock)?;
        let mut elements = self.array_to_bytes.decode(bytes)?;
        for codec in self.array_to_array.iter().rev() {
            clock.check()?;
            elements = codec.decode(elements)?;
        }
        match self.decoded_len {
            Some(expected) if elements.len() != expected => {
                Err(wrong_len(elements.len(), expected))
            }
            Some(_) | None => Ok(elements),
        }
    }

    /// Whether decoding a range of a chunk takes less work than decoding all of it.
    pub fn has_ranges(&self) -> bool {
        let is_by_element = self.array_to_array.is_empty() && self.array_to_bytes.is_by_element();
        is_by_element && self.bytes_to_bytes.first().is_none_or(|stage| stage.codec.has_ranges())
    }

    /// Whether a range of the decoded chunk can be read without the rest.
    pub fn is_by_element(&self) -> bool {
        self.has_ranges() && self.bytes_to_bytes.is_empty()
    }

    /// Whether decoding a range of the chunk takes nearly as much work as decoding all of it.
    pub fn needs_most_for(&self, range: &Range<usize>) -> bool {
        let is_from_start = |stage: &Stage| stage.codec.decodes_from_start();
        self.bytes_to_bytes.first().is_some_and(is_from_start)
            && self.decoded_len.is_none_or(|len| range.end > len / 4 * 3)
    }

    /// Returns the bytes of the encoded chunk that hold a range of the decoded one, if the codecs
    /// support ranges.
    pub fn encoded_range(&self, range: &Range<usize>) -> Range<u64> {
        let number = |number: usize| number.to_u64();
        if self.bytes_to_bytes.is_empty() {
            return number(range.start)..number(range.end);
        }
        0..self.longest()
    }

    /// Decodes a range of whole elements from the encoded bytes that hold it, and counts the bytes
    /// that were decoded. `None` if the range needs most of the chunk. Damage outside the range
    /// goes undetected.
    pub fn decode_range(
        &self,
        encoded: Bytes,
        range: &Range<usize>,
    ) -> Result<Option<(Buffer, usize)>> {
        let (bytes, decoded_len) = match self.bytes_to_bytes.split_first() {
            Some((first, others)) => {
                let Some(len) = first.decoded_len else { return Ok(None) };
                let outer = undone(others, encoded, usize::MAX, Clock::start())?;
                let Some(part) = first.codec.decode_range(&outer, len, range.clone())? else {
                    return Ok(None);
                };
                (Bytes::from(part.bytes), part.decoded)
            }
            None => (encoded, range.len()),
        };
        if bytes.len() != range.len() {
            return Err(wrong_len(bytes.len(), range.len()));
        }
        Ok(Some((self.array_to_bytes.decode_elements(bytes)?, decoded_len)))
    }

    /// Encodes a decoded chunk. `extent` is the number of elements along each dimension that lie in
    /// the array; a codec may omit the others.
    pub fn encode(&self, decoded: Buffer, extent: &[u64]) -> Result<Bytes> {
        self.encode_over(decoded, extent, None)
    }

    /// Whether several encoded forms of an element decode to the same bytes.
    pub fn has_spellings(&self) -> bool {
        self.array_to_bytes.has_spellings()
    }

    /// Like [`Self::encode`]. Elements that are the same in `old`, the encoded chunk so far, keep
    /// their encoded form if the codec has several ([`Self::has_spellings`]).
    pub fn encode_over(
        &self,
        decoded: Buffer,
        extent: &[u64],
        old: Option<Bytes>,
    ) -> Result<Bytes> {
        if let Some(expected) = self.decoded_len.filter(|expected| *expected != decoded.len()) {
            return Err(Error::invalid(format!(
                "{} bytes written, the chunk has {expected}",
                decoded.len(),
            )));
        }
        let _busy = parallel::busy();
        let mut elements = decoded;
        let mut extent = extent.to_vec();
        for codec in &self.array_to_array {
            elements = codec.encode(elements)?;
            extent = codec.encoded_extent(extent);
        }
        // A chunk that cannot be decoded has no elements to keep.
        let old =
            old.and_then(|old| undone(&self.bytes_to_bytes, old, usize::MAX, Clock::start()).ok());
        let mut bytes = match old {
            Some(old) => self.array_to_bytes.encode_over(elements, &extent, &old)?,
            None => self.array_to_bytes.encode(elements, &extent)?,
        };
        for stage in &self.bytes_to_bytes {
            self.check_encoded(&bytes)?;
            bytes = Buffer::from(fitted(stage.codec.encode(&bytes)?)).into();
        }
        self.check_encoded(&bytes)?;
        Ok(bytes)
    }

    /// Fails if a form of a chunk is longer than a reader accepts.
    fn check_encoded(&self, bytes: &[u8]) -> Result<()> {
        let longest = self.longest();
        if u64::try_from(bytes.len()).is_ok_and(|len| len <= longest) {
            return Ok(());
        }
        Err(Error::too_large(format!(
            "the codecs make {} bytes of a chunk of at most {}, and {longest} can be read again",
            bytes.len(),
            self.limit,
        )))
    }
}

/// Returns codecs bound to a shape, for a codec that binds its own to several.
fn bound(chain: &CodecChain, elements: &ChunkType, max_len: u64) -> Result<Box<dyn BoundCodecs>> {
    Ok(Box::new(Pipeline::bind(chain, &[], elements, max_len)?))
}

impl BoundCodecs for Pipeline {
    fn decode(&self, encoded: Bytes) -> Result<Buffer> {
        self.decode(encoded)
    }

    fn encoded_len(&self) -> Option<u64> {
        self.encoded_len()
    }

    fn longest(&self) -> u64 {
        self.longest()
    }

    fn is_lossy(&self) -> bool {
        self.is_lossy()
    }
}

/// Decodes what these bytes-to-bytes codecs encoded, to at most `longest` bytes.
fn undone(stages: &[Stage], encoded: Bytes, longest: usize, clock: Clock) -> Result<Bytes> {
    let mut bytes = encoded;
    for stage in stages.iter().rev() {
        let mut decoded = stage.codec.decode(&bytes, stage.limit.min(longest))?;
        match stage.decoded_len {
            Some(expected) if expected != decoded.len() => {
                return Err(wrong_len(decoded.len(), expected));
            }
            Some(_) => {}
            // The buffer may have far more capacity than bytes, and the decoded chunk is cached.
            None => decoded = fitted(decoded),
        }
        recycle(mem::replace(&mut bytes, decoded.into()));
        clock.check()?;
    }
    Ok(bytes)
}

/// Returns the codecs, with consecutive permutations merged into one.
fn merged<'s>(specs: impl Iterator<Item = &'s CodecSpec>, rank: usize) -> Result<Vec<CodecSpec>> {
    let mut merged: Vec<CodecSpec> = Vec::new();
    for spec in specs {
        match merged.last_mut() {
            Some(last) if last.name == "transpose" && spec.name == "transpose" => {
                let first = DimensionOrder::parse(&last.configuration, rank)?;
                let order = first.then(&DimensionOrder::parse(&spec.configuration, rank)?);
                last.configuration = order.to_configuration();
            }
            _ => merged.push(spec.clone()),
        }
    }
    Ok(merged)
}

/// Returns the most bytes of any form of a chunk that has at most `decoded_len` bytes.
fn longest(decoded_len: usize) -> u64 {
    let decoded_len = decoded_len.to_u64();
    decoded_len.saturating_mul(2).saturating_add(SLACK)
}

/// Fails if a chunk of at most `decoded_len` bytes has too many after the codec `name`. `max_len`
/// is the limit of a chunk.
fn check_form(name: &str, encoded: &ChunkType, decoded_len: usize, max_len: u64) -> Result<()> {
    let len = encoded.byte_len()?.and_then(|len| u64::try_from(len).ok()).unwrap_or_default();
    let twice = longest(decoded_len);
    if len <= twice.max(max_len) {
        return Ok(());
    }
    let limit = if twice > max_len {
        format!("{twice}: twice the decoded chunk and 1 MiB (--max-chunk-size is {max_len})")
    } else {
        format!("{max_len} (--max-chunk-size)")
    };
    Err(Error::too_large(format!(
        "a chunk has {len} bytes after codec {name}, the limit is {limit}"
    )))
}

fn wrong_len(found: usize, expected: usize) -> Error {
    Error::fault(Fault::Length, format!("{found} bytes decoded, the chunk needs {expected}"))
}

fn to_usize(len: u64) -> Result<usize> {
    usize::try_from(len)
        .map_err(|_| Error::too_large(format!("{len} bytes do not fit into memory")))
}

#[cfg(test)]
mod tests;
