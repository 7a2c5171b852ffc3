//! `numcodecs.astype` {`encode_dtype`, `decode_dtype`}: each element cast to another type, as NumPy
//! does it.
//!
//! Length: that of the same number of elements of `encode_dtype`.
//!
//! <https://numcodecs.readthedocs.io/en/stable/filter/astype.html>

use super::filter::Sides;
use crate::elements::ChunkType;
use crate::json::Object;
use crate::kinds::ArrayToArray;
use zarrfs_base::buffer::Buffer;
use zarrfs_base::error::Result;

/// The codec, bound to its types.
#[derive(Debug)]
pub struct AsType {
    sides: Sides,
}

impl AsType {
    /// Returns the codec with this configuration, and the elements that it produces.
    pub fn new(configuration: &Object, elements: &ChunkType) -> Result<(Self, ChunkType)> {
        let members = ["decode_dtype", "encode_dtype"];
        let sides = Sides::named("astype", configuration, elements, members)?;
        let encoded = sides.encoded_elements(elements);
        Ok((Self { sides }, encoded))
    }
}

impl ArrayToArray for AsType {
    fn encode(&self, decoded: Buffer) -> Result<Buffer> {
        if self.sides.decoded == self.sides.encoded {
            return Ok(decoded);
        }
        self.sides.decoded.map(self.sides.encoded, &decoded, |number| number)
    }

    fn decode(&self, encoded: Buffer) -> Result<Buffer> {
        if self.sides.decoded == self.sides.encoded {
            return Ok(encoded);
        }
        self.sides.encoded.map(self.sides.decoded, &encoded, |number| number)
    }

    fn is_lossy(&self) -> bool {
        !self.sides.encoded.holds(self.sides.decoded)
    }
}
