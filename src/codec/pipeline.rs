//! A chain of codecs, bound to one chunk shape and data type.
//!
//! Everything that follows from the shape (lengths, permutations, limits) is settled
//! when it is bound, so that a chunk that is read looks nothing up.

use bytes::Bytes;

use super::array_to_array::{Order, Transpose};
use super::array_to_bytes::BytesCodec;
use super::registry::{self, Chain};
use super::{ArrayToArray, ArrayToBytes, Buffer, BytesToBytes};
use crate::dtype::DType;
use crate::error::{Error, Result};

/// How much longer than the decoded chunk an intermediate form may be, besides twice its length.
const SLACK: u64 = 1 << 20;

/// What one chunk goes through on its way to the store and back.
#[derive(Debug)]
pub struct Pipeline {
    array_to_array: Vec<Box<dyn ArrayToArray>>,
    array_to_bytes: Box<dyn ArrayToBytes>,
    bytes_to_bytes: Vec<Stage>,
    decoded_len: usize,
}

/// A bytes-to-bytes codec and the length that it decodes to: exactly known, or at most.
#[derive(Debug)]
struct Stage {
    codec: Box<dyn BytesToBytes>,
    decoded_len: Option<usize>,
    limit: usize,
}

impl Pipeline {
    /// Binds `chain` (whose array-to-bytes codec is not sharding) to chunks of `shape`; `order` is a
    /// permutation that comes before the chain's own, that of codecs around a shard.
    pub fn bind(chain: &Chain, order: &Order, shape: &[u64], dtype: DType) -> Result<Self> {
        let decoded_len = byte_len(shape, dtype)?;
        let order = order.then(&chain.order);
        let mut array_to_array: Vec<Box<dyn ArrayToArray>> = Vec::new();
        if let Some(transpose) = Transpose::new(&order, shape, dtype.item_len())? {
            array_to_array.push(Box::new(transpose));
        }
        let array_to_bytes = match &chain.array_to_bytes {
            None => BytesCodec::little(decoded_len),
            Some(spec) if spec.name == "bytes" => {
                BytesCodec::new(&spec.configuration, dtype, decoded_len)?
            }
            Some(spec) => {
                return Err(Error::unsupported(format!("codec {:?} has no place here", spec.name)));
            }
        };
        let mut pipeline = Self {
            array_to_array,
            array_to_bytes: Box::new(array_to_bytes),
            bytes_to_bytes: Vec::new(),
            decoded_len,
        };
        for codec in registry::bytes_to_bytes(&chain.bytes_to_bytes)? {
            let known = pipeline.encoded_len();
            let decoded_len = known.map(to_usize).transpose()?;
            let limit = decoded_len.map_or_else(|| to_usize(pipeline.longest()), Ok)?;
            pipeline.bytes_to_bytes.push(Stage { codec, decoded_len, limit });
        }
        Ok(pipeline)
    }

    /// The length of a decoded chunk in bytes.
    pub fn decoded_len(&self) -> usize {
        self.decoded_len
    }

    /// The length of every encoded chunk in bytes, where all have the same.
    pub fn encoded_len(&self) -> Option<u64> {
        let stages = self.bytes_to_bytes.iter();
        let first = self.array_to_bytes.encoded_len();
        stages.fold(first, |len, stage| len.and_then(|len| stage.codec.encoded_len(len)))
    }

    /// The most bytes that an encoded chunk can sensibly have; more is not worth reading.
    pub fn longest(&self) -> u64 {
        let decoded_len = u64::try_from(self.decoded_len).unwrap_or(u64::MAX);
        decoded_len.saturating_mul(2).saturating_add(SLACK)
    }

    /// The decoded chunk: little endian, C order, exactly [`Self::decoded_len`] bytes.
    pub fn decode(&self, encoded: Bytes) -> Result<Buffer> {
        let mut bytes = encoded;
        for stage in self.bytes_to_bytes.iter().rev() {
            let decoded = stage.codec.decode(&bytes, stage.limit)?;
            if let Some(expected) = stage.decoded_len.filter(|expected| *expected != decoded.len())
            {
                return Err(wrong_len(decoded.len(), expected));
            }
            bytes = decoded.into();
        }
        let mut elements = self.array_to_bytes.decode(bytes)?;
        for codec in self.array_to_array.iter().rev() {
            elements = codec.decode(elements)?;
        }
        if elements.len() == self.decoded_len {
            Ok(elements)
        } else {
            Err(wrong_len(elements.len(), self.decoded_len))
        }
    }

    /// Whether `bytes` are an encoded chunk, and not by the chance that any bytes are one: only where the length of
    /// what is encoded depends on what it is.
    pub fn is_encoded(&self, bytes: &[u8]) -> bool {
        let Some(last) = self.bytes_to_bytes.last() else { return false };
        self.encoded_len().is_none()
            && last.codec.decode(bytes, last.limit).is_ok()
            && self.decode(Bytes::copy_from_slice(bytes)).is_ok()
    }

    /// The encoded form of a chunk of [`Self::decoded_len`] bytes.
    pub fn encode(&self, decoded: Buffer) -> Result<Bytes> {
        if decoded.len() != self.decoded_len {
            return Err(Error::invalid(format!(
                "{} bytes written, the chunk has {}",
                decoded.len(),
                self.decoded_len
            )));
        }
        let mut elements = decoded;
        for codec in &self.array_to_array {
            elements = codec.encode(elements)?;
        }
        let mut bytes = self.array_to_bytes.encode(elements)?;
        for stage in &self.bytes_to_bytes {
            bytes = stage.codec.encode(&bytes)?.into();
        }
        Ok(bytes)
    }
}

fn wrong_len(found: usize, expected: usize) -> Error {
    Error::corrupt(format!("{found} bytes decoded, the chunk needs {expected}"))
}

fn to_usize(len: u64) -> Result<usize> {
    usize::try_from(len)
        .map_err(|_| Error::too_large(format!("{len} bytes do not fit into memory")))
}

/// The bytes of a chunk of `shape`.
pub(super) fn byte_len(shape: &[u64], dtype: DType) -> Result<usize> {
    let item_len = u64::try_from(dtype.item_len()).unwrap_or(u64::MAX);
    let len = shape.iter().try_fold(item_len, |len, n| len.checked_mul(*n));
    let len = len.filter(|len| i64::try_from(*len).is_ok());
    to_usize(len.ok_or_else(|| Error::too_large(format!("a chunk of shape {shape:?}")))?)
}

#[cfg(test)]
mod tests;
