//! `numcodecs.fixedscaleoffset` {offset, scale, dtype, astype?}: `(x - offset) * scale`, rounded to
//! an integer.
//!
//! Each operation is in the type that NumPy uses for it: the type of a float array; the type of an
//! integer array if the other operand is an integer too, else double. So `offset: 10` and `offset:
//! 10.0` may give different bits. The decoded value is `y / scale + offset`. Length: that of the
//! same number of elements of `astype`.
//!
//! <https://numcodecs.readthedocs.io/en/stable/filter/fixedscaleoffset.html>

use serde_json::Value;

use super::filter::Sides;
use crate::elements::ChunkType;
use crate::json::Object;
use crate::kinds::ArrayToArray;
use crate::number::{ExactNumber, NumberFormat};
use zarrfs_base::buffer::Buffer;
use zarrfs_base::error::{Error, Result};

/// The codec, bound to its types.
#[derive(Debug)]
pub struct FixedScaleOffset {
    sides: Sides,
    offset: ExactNumber,
    scale: ExactNumber,
}

impl FixedScaleOffset {
    /// Returns the codec with this configuration, and the elements that it produces.
    pub fn new(configuration: &Object, elements: &ChunkType) -> Result<(Self, ChunkType)> {
        let sides = Sides::parse("fixedscaleoffset", configuration, elements)?;
        let encoded = sides.encoded_elements(elements);
        let offset = number(configuration, "offset")?;
        let scale = number(configuration, "scale")?;
        Ok((Self { sides, offset, scale }, encoded))
    }
}

fn number(configuration: &Object, member: &str) -> Result<ExactNumber> {
    let value = configuration.get(member).unwrap_or(&Value::Null);
    let text = value.as_number().map(serde_json::Number::as_str);
    let parse = |text: &str| {
        let int = text.parse::<i64>().ok().map(|int| ExactNumber::Int(int.into()));
        int.or_else(|| text.parse().ok().map(ExactNumber::Float))
    };
    text.and_then(parse).ok_or_else(|| {
        Error::invalid(format!("fixedscaleoffset: {member} {value} is not a number"))
    })
}

/// Returns the type in which NumPy computes with an array and a scalar.
fn common(array: NumberFormat, number: ExactNumber) -> NumberFormat {
    match (array, number) {
        (NumberFormat::Float(_), _) => array,
        (_, ExactNumber::Float(_)) => NumberFormat::Float(8),
        (NumberFormat::Bool, ExactNumber::Int(_)) => NumberFormat::Int(8),
        (_, ExactNumber::Int(_)) => array,
    }
}

#[derive(Debug, Clone, Copy)]
enum Operation {
    Minus,
    Times,
    Plus,
    Over,
}

/// Computes in the arithmetic of `format`, which `a` is a number of.
fn compute(
    format: NumberFormat,
    a: ExactNumber,
    operation: Operation,
    b: ExactNumber,
) -> ExactNumber {
    if let (ExactNumber::Int(a), ExactNumber::Int(b), false) = (a, b, format.is_float()) {
        return format.cast(ExactNumber::Int(match operation {
            Operation::Minus => a.wrapping_sub(b),
            Operation::Times => a.wrapping_mul(b),
            Operation::Plus => a.wrapping_add(b),
            Operation::Over => a.checked_div(b).unwrap_or_default(),
        }));
    }
    let (a, b) = (format.cast(a).to_float(), format.cast(b).to_float());
    // Rounding to a double and then to a single or a half equals rounding once.
    format.cast(ExactNumber::Float(match operation {
        Operation::Minus => a - b,
        Operation::Times => a * b,
        Operation::Plus => a + b,
        Operation::Over => a / b,
    }))
}

impl ArrayToArray for FixedScaleOffset {
    fn encode(&self, decoded: Buffer) -> Result<Buffer> {
        let shifted = common(self.sides.decoded, self.offset);
        let scaled = common(shifted, self.scale);
        self.sides.decoded.map(self.sides.encoded, &decoded, |number| {
            let number = compute(shifted, number, Operation::Minus, self.offset);
            match compute(scaled, number, Operation::Times, self.scale) {
                ExactNumber::Float(float) => ExactNumber::Float(float.round_ties_even()),
                ExactNumber::Int(int) => ExactNumber::Int(int),
            }
        })
    }

    fn decode(&self, encoded: Buffer) -> Result<Buffer> {
        let format = match self.sides.encoded {
            float @ NumberFormat::Float(_) => float,
            NumberFormat::Bool | NumberFormat::Int(_) | NumberFormat::Uint(_) => {
                NumberFormat::Float(8)
            }
        };
        self.sides.encoded.map(self.sides.decoded, &encoded, |number| {
            let number = compute(format, number, Operation::Over, self.scale);
            compute(format, number, Operation::Plus, self.offset)
        })
    }

    fn is_lossy(&self) -> bool {
        true
    }
}
