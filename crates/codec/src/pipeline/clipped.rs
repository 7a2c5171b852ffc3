//! `precomputed_chunk` {codecs}: chunks of Neuroglancer, which are shorter at the end of an array.
//!
//! ```text
//! u8         how the payload is packed: 0 not or with gzip, 1 with gzip, 2 with Brotli
//! u8         number of dimensions
//! u32 le ×   the number of elements along each of them, the slowest first
//! ..         the payload
//! ```
//!
//! The precomputed format has no header. Its chunks have the elements that lie in the array and no
//! others, and their places say how many these are. The store of such a volume puts the header in
//! front, since a codec does not know the place of a chunk. `codecs` are those of a chunk of any
//! shape. Zeros fill the rest of a whole chunk. Not a name of Zarr.
//!
//! A server may send an object with gzip, and no `Content-Encoding`. A payload of kind 0 that
//! begins as gzip is unpacked if that succeeds: gzip has a checksum.

use std::fmt;

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::bytes_to_bytes::{Brotli, Gzip};
use crate::elements::ChunkType;
use crate::json::Object;
use crate::kinds::{ArrayToBytes, BytesToBytes};
use crate::registry::{CodecChain, holds_chunks};
use crate::spec::CodecSpec;
use zarrfs_base::buffer::{Buffer, reserve};
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::{ToU64, ToUsize};

/// The name of the codec.
pub(super) const NAME: &str = "precomputed_chunk";

/// The first bytes of gzip.
const GZIP: [u8; 3] = [0x1f, 0x8b, 8];

/// The codecs of a chunk, bound to its shape.
pub trait BoundCodecs: Send + Sync + fmt::Debug {
    /// Decodes a chunk.
    fn decode(&self, encoded: Bytes) -> Result<Buffer>;

    /// Returns the length of an encoded chunk in bytes if all chunks have the same.
    fn encoded_len(&self) -> Option<u64>;

    /// Returns the most bytes of an encoded chunk.
    fn longest(&self) -> u64;

    /// Whether decoded elements may differ from the ones that were encoded.
    fn is_lossy(&self) -> bool;
}

/// The function that binds codecs to a shape; the last argument is the most bytes of a chunk.
pub type Bind = fn(&CodecChain, &ChunkType, u64) -> Result<Box<dyn BoundCodecs>>;

/// The codec, bound to a shape.
#[derive(Debug)]
pub struct ClippedChunk {
    chain: CodecChain,
    bind: Bind,
    whole: Box<dyn BoundCodecs>,
    elements: ChunkType,
    /// The bytes of all elements.
    len: usize,
}

/// How a payload is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PayloadPacking {
    Unknown,
    Gzip,
    Brotli,
}

impl ClippedChunk {
    /// Returns the codec with this configuration, for chunks of `elements`.
    pub fn new(
        configuration: &Object,
        elements: &ChunkType,
        limit: usize,
        bind: Bind,
    ) -> Result<Self> {
        let list = configuration.get("codecs").and_then(Value::as_array);
        let list = list.ok_or_else(|| wrong("codecs is not a list"))?;
        let specs: Vec<_> = list.iter().map(CodecSpec::from_json).collect::<Result<_>>()?;
        if specs.iter().any(holds_chunks) {
            return Err(wrong("a codec in its list holds chunks itself"));
        }
        let len = elements.byte_len()?.ok_or_else(|| wrong("elements of variable length"))?;
        let chain = CodecChain::sort(&specs)?;
        let whole = bind(&chain, elements, limit.to_u64())?;
        Ok(Self { chain, bind, whole, elements: elements.clone(), len })
    }

    /// Parses the header of a chunk. Returns how its payload is packed, its shape and the payload.
    fn header(&self, encoded: &Bytes) -> Result<(PayloadPacking, Vec<u64>, Bytes)> {
        let cut = || wrong("the header is cut off");
        let ([packing, rank], rest) = encoded.split_first_chunk::<2>().ok_or_else(cut)?;
        let packing = match packing {
            0 => PayloadPacking::Unknown,
            1 => PayloadPacking::Gzip,
            2 => PayloadPacking::Brotli,
            other => return Err(wrong(&format!("a payload of kind {other}"))),
        };
        let len = usize::from(*rank) * 4;
        let (lens, payload) = rest.split_at_checked(len).ok_or_else(cut)?;
        let lens = lens.as_chunks::<4>().0.iter().map(|len| u64::from(u32::from_le_bytes(*len)));
        let shape: Vec<u64> = lens.collect();
        let whole = &self.elements.shape;
        let fits = |(len, whole): (&u64, &u64)| (1..=*whole).contains(len);
        if shape.len() != whole.len() || !shape.iter().zip(whole).all(fits) {
            return Err(wrong(&format!("a chunk of shape {shape:?}, the largest is {whole:?}")));
        }
        Ok((packing, shape, encoded.slice_ref(payload)))
    }

    /// Returns the elements of a chunk of this shape, with zeros after them along each dimension.
    fn padded(&self, shape: &[u64], part: &[u8]) -> Result<Buffer> {
        let mut whole = reserve(self.len)?;
        whole.resize(self.len, 0);
        let row_len = shape.last().unwrap_or(&1).to_usize().saturating_mul(self.item_len());
        for (row, bytes) in part.chunks_exact(row_len.max(1)).enumerate() {
            // The place of the row along each dimension, the last of them the fastest.
            let (mut rest, mut step, mut start) = (row.to_u64(), self.item_len().to_u64(), 0_u64);
            for (axis, (len, all)) in shape.iter().zip(&self.elements.shape).rev().enumerate() {
                if axis > 0 {
                    start = start.saturating_add((rest % (*len).max(1)).saturating_mul(step));
                    rest /= (*len).max(1);
                }
                step = step.saturating_mul(*all);
            }
            let start = start.to_usize();
            let place = whole.get_mut(start..start.saturating_add(row_len));
            place.ok_or_else(|| wrong("a row lies outside"))?.copy_from_slice(bytes);
        }
        Ok(whole.into())
    }

    fn item_len(&self) -> usize {
        self.elements.dtype.item_len()
    }
}

/// Unpacks a payload that `codecs` decode.
fn unpacked(packing: PayloadPacking, payload: Bytes, codecs: &dyn BoundCodecs) -> Result<Bytes> {
    let known = codecs.encoded_len();
    let limit = known.unwrap_or_else(|| codecs.longest()).to_usize();
    let gunzipped = || Gzip::new(&Map::new())?.decode(&payload, limit).map(Bytes::from);
    match packing {
        PayloadPacking::Gzip => gunzipped(),
        PayloadPacking::Brotli => Brotli.decode(&payload, limit).map(Bytes::from),
        PayloadPacking::Unknown if payload.starts_with(&GZIP) => match gunzipped() {
            Ok(unpacked) if known.is_none_or(|len| len == unpacked.len().to_u64()) => Ok(unpacked),
            // These may be the elements.
            Ok(_) | Err(_) if known == Some(payload.len().to_u64()) => Ok(payload),
            other => other,
        },
        PayloadPacking::Unknown => Ok(payload),
    }
}

fn wrong(why: &str) -> Error {
    Error::corrupt(format!("{NAME}: {why}"))
}

impl ArrayToBytes for ClippedChunk {
    fn encode(&self, _decoded: Buffer, _extent: &[u64]) -> Result<Bytes> {
        Err(Error::unsupported(format!("{NAME}: zarrfs reads such chunks and writes none")))
    }

    fn decode(&self, encoded: Bytes) -> Result<Buffer> {
        let (packing, shape, payload) = self.header(&encoded)?;
        drop(encoded);
        if shape == self.elements.shape {
            return self.whole.decode(unpacked(packing, payload, &*self.whole)?);
        }
        let elements = ChunkType { shape, dtype: self.elements.dtype.clone() };
        let clipped = (self.bind)(&self.chain, &elements, self.len.to_u64())?;
        let part = clipped.decode(unpacked(packing, payload, &*clipped)?)?;
        self.padded(&elements.shape, &part)
    }

    fn encoded_len(&self) -> Option<u64> {
        None
    }

    fn is_lossy(&self) -> bool {
        self.whole.is_lossy()
    }

    fn crops(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::dtype::DType;
    use zarrfs_base::error::Kind;

    fn bound(shape: &[u64], codecs: Value) -> Result<ClippedChunk> {
        let configuration = Object::from_iter([("codecs".to_owned(), codecs)]);
        let elements = ChunkType { shape: shape.to_vec(), dtype: DType::Uint(1) };
        ClippedChunk::new(&configuration, &elements, 1 << 20, crate::pipeline::bound)
    }

    fn chunk(packing: u8, shape: &[u32], payload: &[u8]) -> Bytes {
        let mut encoded = vec![packing, u8::try_from(shape.len()).expect("few")];
        encoded.extend(shape.iter().flat_map(|len| len.to_le_bytes()));
        encoded.extend_from_slice(payload);
        encoded.into()
    }

    #[test]
    fn a_chunk_at_the_end_is_followed_by_zeros_along_each_dimension() {
        let codec = bound(&[2, 3, 4], json!(["bytes"])).expect("bound");
        let whole: Vec<u8> = (1..=24).collect();
        assert_eq!(*codec.decode(chunk(0, &[2, 3, 4], &whole)).expect("whole"), whole);
        let clipped = codec.decode(chunk(0, &[2, 2, 3], &whole[..12])).expect("clipped");
        let expected: [u8; 24] =
            [1, 2, 3, 0, 4, 5, 6, 0, 0, 0, 0, 0, 7, 8, 9, 0, 10, 11, 12, 0, 0, 0, 0, 0];
        assert_eq!(*clipped, expected);
    }

    #[test]
    fn a_chunk_may_be_packed_with_gzip_without_a_word_of_it() {
        let codec = bound(&[2, 40], json!(["bytes"])).expect("bound");
        let gzip = Gzip::new(&Map::new()).expect("gzip");
        let packed = gzip.encode(&[7; 80]).expect("packed");
        for packing in [0, 1] {
            let decoded = codec.decode(chunk(packing, &[2, 40], &packed)).expect("unpacked");
            assert_eq!(*decoded, [7; 80]);
        }
        // Elements that only begin like gzip.
        let mut elements = [5; 80];
        elements[..3].copy_from_slice(&GZIP);
        assert_eq!(*codec.decode(chunk(0, &[2, 40], &elements)).expect("elements"), elements);
        codec.decode(chunk(1, &[2, 40], &elements)).expect_err("no gzip");
    }

    #[test]
    fn a_payload_that_unpacks_to_more_is_refused() {
        let codec = bound(&[2, 40], json!(["bytes"])).expect("bound");
        let gzip = Gzip::new(&Map::new()).expect("gzip");
        let bomb = gzip.encode(&vec![0; 1 << 22]).expect("packed");
        for packing in [0, 1] {
            codec.decode(chunk(packing, &[2, 40], &bomb)).expect_err("a bomb");
        }
    }

    #[test]
    fn a_chunk_of_another_shape_is_refused() {
        let codec = bound(&[2, 3], json!(["bytes"])).expect("bound");
        for shape in [&[2][..], &[3, 3], &[2, 0], &[2, 3, 1], &[]] {
            let error = codec.decode(chunk(0, shape, &[0; 6])).expect_err("another shape");
            assert_eq!(error.kind(), Kind::Corrupt, "{shape:?}");
        }
        codec.decode(chunk(3, &[2, 3], &[0; 6])).expect_err("another kind");
        codec.decode(chunk(0, &[2, 3], &[0; 5])).expect_err("too short");
        codec.decode(Bytes::from_static(&[0, 2, 1])).expect_err("cut off");
        bound(&[2, 3], json!([{"name": NAME}])).expect_err("itself");
    }
}
