//! `numcodecs.packbits` {}: eight booleans in a byte, the first one in its most significant bit.
//!
//! ```text
//! bits of padding  8 elements  8 elements  ..
//! u8               u8          u8
//! ```
//!
//! The result has one dimension of bytes. Length: an eighth, rounded up, and one byte. The
//! registered `packbits`, an array-to-bytes codec, has the reverse order of bits.
//!
//! <https://numcodecs.readthedocs.io/en/stable/filter/packbits.html>

use crate::dtype::DType;
use crate::elements::ChunkType;
use crate::kinds::ArrayToArray;
use zarrfs_base::buffer::{Buffer, reserve};
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToU64;

/// The codec, bound to a length.
#[derive(Debug)]
pub struct PackBits {
    /// The number of booleans.
    count: usize,
    encoded_len: u64,
}

impl PackBits {
    /// Returns the codec for chunks of `elements`, and the elements that it produces.
    pub fn new(elements: &ChunkType) -> Result<(Self, ChunkType)> {
        if elements.dtype.item_len() != 1 {
            return Err(Error::unsupported(format!(
                "packbits: {} is not bool",
                elements.dtype.name()
            )));
        }
        let count = elements.count()?;
        let encoded_len = count.div_ceil(8).saturating_add(1).to_u64();
        let encoded = ChunkType { shape: vec![encoded_len], dtype: DType::Uint(1) };
        Ok((Self { count, encoded_len }, encoded))
    }

    fn padding(&self) -> u8 {
        let used = u8::try_from(self.count % 8).unwrap_or_default();
        if used == 0 { 0 } else { 8 - used }
    }
}

impl ArrayToArray for PackBits {
    fn encode(&self, decoded: Buffer) -> Result<Buffer> {
        let mut target = reserve(decoded.len().div_ceil(8).saturating_add(1))?;
        target.push(self.padding());
        for group in decoded.chunks(8) {
            let set = group.iter().zip((0..8).rev()).filter(|(element, _)| **element != 0);
            target.push(set.fold(0, |byte, (_, bit)| byte | 1 << bit));
        }
        Ok(target.into())
    }

    fn decode(&self, encoded: Buffer) -> Result<Buffer> {
        let (padding, packed) = match encoded.split_first() {
            Some((padding, packed)) if packed.len() == self.count.div_ceil(8) => (*padding, packed),
            Some(_) | None => {
                return Err(Error::corrupt(format!(
                    "packbits: {} bytes for {} booleans",
                    encoded.len(),
                    self.count
                )));
            }
        };
        if padding != self.padding() {
            return Err(Error::corrupt(format!(
                "packbits: {padding} bits of padding, expected {}",
                self.padding()
            )));
        }
        let mut target = reserve(packed.len().saturating_mul(8))?;
        for byte in packed {
            target.extend((0..8).rev().map(|bit| byte >> bit & 1));
        }
        target.truncate(self.count);
        Ok(target.into())
    }

    fn encoded_extent(&self, _extent: Vec<u64>) -> Vec<u64> {
        vec![self.encoded_len]
    }
}
