//! The three kinds of codecs, as traits.
//!
//! Each codec implements one of them. [`Pipeline`](super::Pipeline) calls them.

use std::fmt;
use std::ops::Range;

use bytes::Bytes;

use zarrfs_base::buffer::Buffer;
use zarrfs_base::error::Result;

/// A codec from elements to elements, bound to one shape.
pub trait ArrayToArray: Send + Sync + fmt::Debug {
    /// Returns the encoded elements, little endian and in C order of the encoded shape.
    fn encode(&self, decoded: Buffer) -> Result<Buffer>;

    /// Returns the decoded elements, little endian and in C order.
    fn decode(&self, encoded: Buffer) -> Result<Buffer>;

    /// Returns the extent along each encoded dimension of the elements that are the first `extent`
    /// along each decoded dimension.
    fn encoded_extent(&self, extent: Vec<u64>) -> Vec<u64> {
        extent
    }

    /// Whether decoded elements may differ from the ones that were encoded.
    fn is_lossy(&self) -> bool {
        false
    }
}

/// A codec from elements to bytes, bound to one shape.
pub trait ArrayToBytes: Send + Sync + fmt::Debug {
    /// Returns the encoded form of elements that are little endian and in C order. The first
    /// `extent` of them along each dimension lie in the array.
    fn encode(&self, decoded: Buffer, extent: &[u64]) -> Result<Bytes>;

    /// Whether several encoded forms of an element decode to the same bytes, so that
    /// [`Self::encode_over`] needs the old ones.
    fn has_spellings(&self) -> bool {
        false
    }

    /// Like [`Self::encode`]. Elements that `old`, the encoded form of the chunk so far, decodes to
    /// the same bytes keep its form.
    fn encode_over(&self, decoded: Buffer, extent: &[u64], _old: &[u8]) -> Result<Bytes> {
        self.encode(decoded, extent)
    }

    /// Returns the elements, little endian and in C order.
    fn decode(&self, encoded: Bytes) -> Result<Buffer>;

    /// Returns the length of the encoded form in bytes, `None` if it depends on the values.
    fn encoded_len(&self) -> Option<u64>;

    /// Whether decoded elements may differ from the ones that were encoded.
    fn is_lossy(&self) -> bool {
        false
    }

    /// Whether the encoded and the decoded form are equal.
    fn is_identity(&self) -> bool {
        false
    }

    /// Whether each element is encoded by itself and keeps its length.
    fn is_by_element(&self) -> bool {
        false
    }

    /// Decodes some of the elements of a codec that encodes each element by itself.
    fn decode_elements(&self, encoded: Bytes) -> Result<Buffer> {
        Ok(encoded.into())
    }

    /// Whether the encoded form omits elements outside the array.
    fn crops(&self) -> bool {
        false
    }
}

/// A decoded range of a chunk.
#[derive(Debug, PartialEq, Eq)]
pub struct DecodedRange {
    /// The bytes of the range.
    pub bytes: Vec<u8>,
    /// The number of bytes that were decoded for it.
    pub decoded: usize,
}

/// A codec from bytes to bytes: a compressor or a checksum.
pub trait BytesToBytes: Send + Sync + fmt::Debug {
    /// Returns the encoded form of `decoded`.
    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>>;

    /// Returns the decoded form of `encoded`. More than `limit` bytes are an error, which the codec
    /// detects before it produces them, because `encoded` is not trusted. If the decoded length is
    /// known, `limit` equals it and serves as the capacity.
    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>>;

    /// Whether decoding a range takes less work than decoding everything.
    fn has_ranges(&self) -> bool {
        false
    }

    /// Whether decoding a range decodes everything before it.
    fn decodes_from_start(&self) -> bool {
        false
    }

    /// Returns a range of the decoded form, which has `decoded_len` bytes. `None` if the range
    /// needs most of the bytes. Damage outside the range goes undetected.
    fn decode_range(
        &self,
        encoded: &[u8],
        decoded_len: usize,
        range: Range<usize>,
    ) -> Result<Option<DecodedRange>> {
        let _ = (encoded, decoded_len, range);
        Ok(None)
    }

    /// Returns the most bytes that encoding `decoded_len` bytes takes besides both forms.
    fn encoder_memory(&self, decoded_len: usize) -> u64 {
        let _ = decoded_len;
        0
    }

    /// Returns the length of the encoded form if it follows from the decoded length, as that of a
    /// checksum does.
    fn encoded_len(&self, decoded_len: u64) -> Option<u64> {
        let _ = decoded_len;
        None
    }
}
