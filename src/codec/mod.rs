//! Codecs, and the pipeline that binds them to one chunk shape.
//!
//! There are three kinds, as in the specification: array to array, array to bytes, bytes to bytes.
//! A codec here works on bytes of a known length, never on metadata files: [`registry`] builds it
//! from its [`CodecSpec`].
//!
//! `sharding_indexed` is not built here: it decides where encoded chunks lie, so
//! [`array`](crate::array) builds it.

pub mod array_to_array;
pub mod array_to_bytes;
pub mod bytes_to_bytes;
mod configuration;
mod number;
mod pipeline;
pub mod registry;
mod spec;
pub mod table;
mod texts;

use std::fmt;
use std::ops::Range;

use bytes::Bytes;

use crate::buffer::Buffer;
use crate::dtype::DType;
use crate::error::{Error, Result};
pub use array_to_bytes::vlen;
pub use bytes_to_bytes::lookup3;
pub use pipeline::Pipeline;
pub use spec::CodecSpec;
pub use texts::items as vlen_items;

/// What a codec of arrays is bound to: a chunk of so many elements along each dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elements {
    /// Elements along each dimension.
    pub shape: Vec<u64>,
    /// Their type.
    pub dtype: DType,
}

impl Elements {
    /// How many elements there are.
    pub fn count(&self) -> Result<usize> {
        let count = self.shape.iter().try_fold(1_u64, |count, len| count.checked_mul(*len));
        let count = count.and_then(|count| usize::try_from(count).ok());
        count.ok_or_else(|| {
            Error::too_large(format!("a chunk of shape {:?} is too large", self.shape))
        })
    }

    /// Why `bytes` are no decoded chunk, if they are none.
    pub fn check(&self, bytes: &[u8]) -> Result<()> {
        match self.byte_len()? {
            Some(len) if bytes.len() == len => Ok(()),
            Some(len) => {
                Err(Error::invalid(format!("{} bytes written, the chunk has {len}", bytes.len())))
            }
            None => vlen::Form::new(self)?.check(bytes).map_err(Error::invalid),
        }
    }

    /// The bytes of a chunk, little endian and in C order; none where elements have lengths of their own. Then a
    /// chunk is what `vlen-utf8` and `vlen-bytes` make of it: the number of elements, then of each its length and its
    /// bytes, all numbers in four bytes, little endian.
    pub fn byte_len(&self) -> Result<Option<usize>> {
        if self.dtype.is_variable() {
            return Ok(None);
        }
        let item_len = u64::try_from(self.dtype.item_len()).unwrap_or(u64::MAX);
        let len = self.shape.iter().try_fold(item_len, |len, n| len.checked_mul(*n));
        let len = len.filter(|len| i64::try_from(*len).is_ok());
        let len = len.and_then(|len| usize::try_from(len).ok());
        len.map(Some).ok_or_else(|| {
            Error::too_large(format!(
                "a chunk of shape {:?} is too \
                 large",
                self.shape
            ))
        })
    }
}

/// A codec from elements to elements, bound to one shape.
pub trait ArrayToArray: Send + Sync + fmt::Debug {
    /// The encoded elements, little endian and in C order of the encoded shape.
    fn encode(&self, decoded: Buffer) -> Result<Buffer>;

    /// The decoded elements, little endian and in C order.
    fn decode(&self, encoded: Buffer) -> Result<Buffer>;

    /// Of the first `extent` elements along each decoded dimension: as how many along each encoded one they come out.
    fn encoded_extent(&self, extent: Vec<u64>) -> Vec<u64> {
        extent
    }

    /// Whether what is decoded may differ from what was encoded.
    fn is_lossy(&self) -> bool {
        false
    }
}

/// A codec from elements to bytes, bound to one shape.
pub trait ArrayToBytes: Send + Sync + fmt::Debug {
    /// The encoded form of elements that are little endian and in C order. The first `extent` of them along each
    /// dimension lie in the array.
    fn encode(&self, decoded: Buffer, extent: &[u64]) -> Result<Bytes>;

    /// The elements, little endian and in C order.
    fn decode(&self, encoded: Bytes) -> Result<Buffer>;

    /// The length of the encoded form in bytes, where every value has the same.
    fn encoded_len(&self) -> Option<u64>;

    /// Whether what is decoded may differ from what was encoded.
    fn is_lossy(&self) -> bool {
        false
    }

    /// Whether the encoded form is the decoded one.
    fn is_identity(&self) -> bool {
        false
    }

    /// Whether each element is encoded by itself, in as many bytes as it has decoded.
    fn is_by_element(&self) -> bool {
        false
    }

    /// Some of the elements, where each is encoded by itself.
    fn decode_elements(&self, encoded: Bytes) -> Result<Buffer> {
        Ok(encoded.into())
    }

    /// Whether what lies outside of the array is left out.
    fn crops(&self) -> bool {
        false
    }
}

/// A range of what was encoded.
#[derive(Debug, PartialEq, Eq)]
pub struct Part {
    /// The bytes of the range.
    pub bytes: Vec<u8>,
    /// How many were decoded for it.
    pub decoded: usize,
}

/// A codec from bytes to bytes: a compressor or a checksum.
pub trait BytesToBytes: Send + Sync + fmt::Debug {
    /// The encoded form of `decoded`.
    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>>;

    /// The decoded form of `encoded`, of at most `limit` bytes: more is an error,
    /// found before they are produced, since `encoded` may come from anyone. Where the
    /// decoded length is known `limit` is exactly it, so that it serves as the capacity.
    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>>;

    /// Whether a range of the decoded form takes less to decode than all of it.
    fn has_ranges(&self) -> bool {
        false
    }

    /// A range of the decoded form, which has `decoded_len` bytes; none where most of it must be decoded for that. What is wrong
    /// with the rest is not seen.
    fn decode_range(
        &self,
        encoded: &[u8],
        decoded_len: usize,
        range: Range<usize>,
    ) -> Result<Option<Part>> {
        let _ = (encoded, decoded_len, range);
        Ok(None)
    }

    /// The length of the encoded form where it follows from that of the decoded one (a checksum's does).
    fn encoded_len(&self, decoded_len: u64) -> Option<u64> {
        let _ = decoded_len;
        None
    }
}
