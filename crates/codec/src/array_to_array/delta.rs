//! `numcodecs.delta` {dtype, astype?}: the difference of each element and the previous one.
//!
//! The chunk counts as one row in C order. Integers wrap in `dtype`. Differences of floats are
//! rounded to it and sums to the wider of both types, so floats are only restored approximately.
//! Length: that of the same number of elements of `astype`.
//!
//! <https://numcodecs.readthedocs.io/en/stable/filter/delta.html>

use super::filter::Sides;
use crate::elements::ChunkType;
use crate::json::Object;
use crate::kinds::ArrayToArray;
use crate::number::{ExactNumber, NumberFormat};
use zarrfs_base::buffer::{Buffer, reserve};
use zarrfs_base::error::{Error, Result};

/// The codec, bound to its types.
#[derive(Debug)]
pub struct Delta {
    sides: Sides,
}

impl Delta {
    /// Returns the codec with this configuration, and the elements that it produces.
    pub fn new(configuration: &Object, elements: &ChunkType) -> Result<(Self, ChunkType)> {
        let sides = Sides::parse("delta", configuration, elements)?;
        let (decoded, encoded) = (sides.decoded, sides.encoded);
        // NumPy neither subtracts booleans nor sums floats in an integer.
        let sums_up = match decoded {
            NumberFormat::Bool => false,
            NumberFormat::Int(_) | NumberFormat::Uint(_) => {
                matches!(encoded, NumberFormat::Int(_) | NumberFormat::Uint(_))
            }
            NumberFormat::Float(_) => encoded != NumberFormat::Bool,
        };
        if !sums_up {
            return Err(Error::unsupported(format!(
                "delta: {encoded:?} cannot be summed to {decoded:?}"
            )));
        }
        let encoded = sides.encoded_elements(elements);
        Ok((Self { sides }, encoded))
    }

    /// Returns the type in which NumPy sums: one that holds the numbers of both sides.
    fn summed(&self) -> NumberFormat {
        let needed = match self.sides.encoded {
            NumberFormat::Float(len) => len,
            NumberFormat::Bool => 2,
            NumberFormat::Int(len) | NumberFormat::Uint(len) => len.saturating_mul(2).min(8),
        };
        match self.sides.decoded {
            NumberFormat::Float(len) => NumberFormat::Float(len.max(needed)),
            NumberFormat::Int(_) | NumberFormat::Uint(_) | NumberFormat::Bool => {
                NumberFormat::Int(8)
            }
        }
    }
}

fn sum(a: ExactNumber, b: ExactNumber) -> ExactNumber {
    match (a, b) {
        (ExactNumber::Int(a), ExactNumber::Int(b)) => ExactNumber::Int(a.wrapping_add(b)),
        (a, b) => ExactNumber::Float(a.to_float() + b.to_float()),
    }
}

fn difference(a: ExactNumber, b: ExactNumber) -> ExactNumber {
    match (a, b) {
        (ExactNumber::Int(a), ExactNumber::Int(b)) => ExactNumber::Int(a.wrapping_sub(b)),
        (a, b) => ExactNumber::Float(a.to_float() - b.to_float()),
    }
}

impl ArrayToArray for Delta {
    fn encode(&self, decoded: Buffer) -> Result<Buffer> {
        let mut before: Option<ExactNumber> = None;
        let Sides { decoded: from, encoded: to, .. } = self.sides;
        let mut target = reserve(decoded.len() / from.len() * to.len())?;
        for item in decoded.chunks_exact(from.len()) {
            let number = from.load(item);
            let step = match before.replace(number) {
                Some(before) => from.cast(difference(number, before)),
                None => number,
            };
            to.store(step, &mut target);
        }
        Ok(target.into())
    }

    fn decode(&self, encoded: Buffer) -> Result<Buffer> {
        let mut before: Option<ExactNumber> = None;
        let Sides { decoded: to, encoded: from, .. } = self.sides;
        let summed = self.summed();
        let mut target = reserve(encoded.len() / from.len() * to.len())?;
        for item in encoded.chunks_exact(from.len()) {
            let step = from.load(item);
            let number = match before {
                Some(before) => summed.cast(sum(before, step)),
                None => step,
            };
            before = Some(number);
            to.store(number, &mut target);
        }
        Ok(target.into())
    }

    fn is_lossy(&self) -> bool {
        self.sides.decoded.is_float() || self.sides.encoded.len() < self.sides.decoded.len()
    }
}
