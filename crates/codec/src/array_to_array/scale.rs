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
use crate::elements::Elements;
use crate::json::Object;
use crate::kinds::ArrayToArray;
use crate::number::{Format, Number};
use zarrfs_base::buffer::Buffer;
use zarrfs_base::error::{Error, Result};

/// The codec, bound to its types.
#[derive(Debug)]
pub struct FixedScaleOffset {
    sides: Sides,
    offset: Number,
    scale: Number,
}

impl FixedScaleOffset {
    /// Returns the codec with this configuration, and the elements that it produces.
    pub fn new(configuration: &Object, elements: &Elements) -> Result<(Self, Elements)> {
        let sides = Sides::parse("fixedscaleoffset", configuration, elements)?;
        let encoded = sides.encoded_elements(elements);
        let offset = number(configuration, "offset")?;
        let scale = number(configuration, "scale")?;
        Ok((Self { sides, offset, scale }, encoded))
    }
}

fn number(configuration: &Object, member: &str) -> Result<Number> {
    let value = configuration.get(member).unwrap_or(&Value::Null);
    let text = value.as_number().map(serde_json::Number::as_str);
    let parse = |text: &str| {
        let int = text.parse::<i64>().ok().map(|int| Number::Int(int.into()));
        int.or_else(|| text.parse().ok().map(Number::Float))
    };
    text.and_then(parse).ok_or_else(|| {
        Error::invalid(format!("fixedscaleoffset: {member} {value} is not a number"))
    })
}

/// Returns the type in which NumPy computes with an array and a scalar.
fn common(array: Format, number: Number) -> Format {
    match (array, number) {
        (Format::Float(_), _) => array,
        (_, Number::Float(_)) => Format::Float(8),
        (Format::Bool, Number::Int(_)) => Format::Int(8),
        (_, Number::Int(_)) => array,
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
fn compute(format: Format, a: Number, operation: Operation, b: Number) -> Number {
    if let (Number::Int(a), Number::Int(b), false) = (a, b, format.is_float()) {
        return format.cast(Number::Int(match operation {
            Operation::Minus => a.wrapping_sub(b),
            Operation::Times => a.wrapping_mul(b),
            Operation::Plus => a.wrapping_add(b),
            Operation::Over => a.checked_div(b).unwrap_or_default(),
        }));
    }
    let (a, b) = (format.cast(a).to_float(), format.cast(b).to_float());
    // Rounding to a double and then to a single or a half equals rounding once.
    format.cast(Number::Float(match operation {
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
                Number::Float(float) => Number::Float(float.round_ties_even()),
                Number::Int(int) => Number::Int(int),
            }
        })
    }

    fn decode(&self, encoded: Buffer) -> Result<Buffer> {
        let format = match self.sides.encoded {
            float @ Format::Float(_) => float,
            Format::Bool | Format::Int(_) | Format::Uint(_) => Format::Float(8),
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
