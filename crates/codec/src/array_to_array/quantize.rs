//! `numcodecs.quantize` {digits, dtype, astype?}: rounds each float to a multiple of a power of
//! two, the largest that keeps `digits` decimal digits after the point.
//!
//! Decoding only casts back to `dtype`. Length: that of the same number of elements of `astype`.
//!
//! <https://numcodecs.readthedocs.io/en/stable/filter/quantize.html>

use super::filter::Sides;
use crate::configuration::integer;
use crate::elements::ChunkType;
use crate::json::Object;
use crate::kinds::ArrayToArray;
use crate::number::ExactNumber;
use zarrfs_base::buffer::Buffer;
use zarrfs_base::error::{Error, Result};

/// The codec, bound to its types.
#[derive(Debug)]
pub struct Quantize {
    sides: Sides,
    /// A power of two.
    scale: f64,
}

impl Quantize {
    /// Returns the codec with this configuration, and the elements that it produces.
    pub fn new(configuration: &Object, elements: &ChunkType) -> Result<(Self, ChunkType)> {
        let sides = Sides::parse("quantize", configuration, elements)?;
        if !(sides.decoded.is_float() && sides.encoded.is_float()) {
            return Err(Error::unsupported("quantize: both types must be floats"));
        }
        if configuration.get("digits").is_none() {
            return Err(Error::invalid("quantize: digits is missing"));
        }
        // A double has no more digits.
        let digits = integer("quantize", configuration, "digits", 0, -300..=300)?;
        let digits = i32::try_from(digits).map(f64::from).unwrap_or_default();
        let exponent = 10_f64.powf(-digits).log10();
        let exponent = if exponent < 0.0 { exponent.floor() } else { exponent.ceil() };
        let scale = 10_f64.powf(-exponent).log2().ceil().exp2();
        let encoded = sides.encoded_elements(elements);
        Ok((Self { sides, scale }, encoded))
    }
}

impl ArrayToArray for Quantize {
    fn encode(&self, decoded: Buffer) -> Result<Buffer> {
        let format = self.sides.decoded;
        let scale = format.cast(ExactNumber::Float(self.scale)).to_float();
        format.map(self.sides.encoded, &decoded, |number| {
            let scaled = format.cast(ExactNumber::Float(number.to_float() * scale)).to_float();
            format.cast(ExactNumber::Float(scaled.round_ties_even() / scale))
        })
    }

    fn decode(&self, encoded: Buffer) -> Result<Buffer> {
        if self.sides.encoded == self.sides.decoded {
            return Ok(encoded);
        }
        self.sides.encoded.map(self.sides.decoded, &encoded, |number| number)
    }

    fn is_lossy(&self) -> bool {
        true
    }
}
