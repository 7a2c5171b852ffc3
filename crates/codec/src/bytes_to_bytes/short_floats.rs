//! `imagecodecs_float24` and `imagecodecs_bfloat16` {byteorder?, rounding?}: a float32 as a float
//! of three or two bytes.
//!
//! ```text
//! float24    sign 1 bit   exponent 7 bits   fraction 16 bits
//! bfloat16   sign 1 bit   exponent 8 bits   fraction  7 bits
//! ```
//!
//! Both round to the nearest, if it is a tie to the even one; `rounding` may say `TOWARDZERO`,
//! `UPWARD` or `DOWNWARD`. Float24 differs from IEEE in the conversion: a number that rounds up to
//! the next power of two gets that fraction, and not that exponent, in imagecodecs; zarrfs rounds
//! it right. Length: three quarters, or half.
//!
//! TIFF Technical Note 3; <https://github.com/cgohlke/imagecodecs>

use serde_json::Value;

use super::stream::{room, too_long};
use crate::json::Object;
use crate::kinds::BytesToBytes;
use zarrfs_base::error::{Error, Result};

/// How to round to a shorter fraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rounding {
    Nearest,
    Zero,
    Up,
    Down,
}

/// The codec.
#[derive(Debug)]
pub struct ShortFloats {
    name: &'static str,
    /// The number of bytes of a float: 2 or 3.
    len: usize,
    is_big: bool,
    rounding: Rounding,
}

/// The length of a float32.
const LONG: usize = 4;

/// The bits of the fraction of a float32, and those of a float24.
const FRACTION: u32 = 23;
const FRACTION_24: u32 = 16;

/// The difference between the biases of float32 and float24.
const BIAS: u32 = 127 - 63;

impl ShortFloats {
    /// Returns the codec `imagecodecs_float24`.
    pub fn float24(configuration: &Object) -> Result<Self> {
        Self::new("imagecodecs_float24", 3, configuration)
    }

    /// Returns the codec `imagecodecs_bfloat16`.
    pub fn bfloat16(configuration: &Object) -> Result<Self> {
        Self::new("imagecodecs_bfloat16", 2, configuration)
    }

    fn new(name: &'static str, len: usize, configuration: &Object) -> Result<Self> {
        let member = |member| configuration.get(member).unwrap_or(&Value::Null);
        let is_big = match member("byteorder") {
            Value::Null => false,
            order if order == "<" || order == "=" => false,
            order if order == ">" => true,
            other => return Err(Error::invalid(format!("{name}: byteorder {other} is not known"))),
        };
        let rounding = match member("rounding") {
            Value::Null => Rounding::Nearest,
            word if word == "TONEAREST" => Rounding::Nearest,
            word if word == "TOWARDZERO" => Rounding::Zero,
            word if word == "UPWARD" => Rounding::Up,
            word if word == "DOWNWARD" => Rounding::Down,
            other => return Err(Error::invalid(format!("{name}: rounding {other} is not known"))),
        };
        Ok(Self { name, len, is_big, rounding })
    }

    /// Removes `count` bits at the end of a magnitude, and rounds.
    fn shortened(&self, magnitude: u32, count: u32, is_negative: bool) -> u32 {
        let rest = magnitude & (1_u32 << count).wrapping_sub(1);
        let kept = magnitude >> count;
        let half = 1_u32 << count >> 1;
        let is_up = match self.rounding {
            Rounding::Nearest => rest > half || (rest == half && kept & 1 == 1),
            Rounding::Zero => false,
            Rounding::Up => rest > 0 && !is_negative,
            Rounding::Down => rest > 0 && is_negative,
        };
        kept + u32::from(is_up)
    }

    /// Returns the bits of the short float for those of a float32.
    fn encoded(&self, bits: u32) -> u32 {
        let (is_negative, magnitude) = (bits >> 31 == 1, bits & 0x7fff_ffff);
        let is_nan = magnitude > 0x7f80_0000;
        if self.len == 2 {
            let magnitude =
                if is_nan { 0x7fc0 } else { self.shortened(magnitude, 16, is_negative) };
            return bits >> 31 << 15 | magnitude;
        }
        let exponent = magnitude >> FRACTION;
        let magnitude = match exponent {
            0xff if is_nan => 0x7f_8000,
            0xff => 0x7f_0000,
            0 if magnitude == 0 => 0,
            _ if exponent > BIAS => {
                let rebased = magnitude - (BIAS << FRACTION);
                let shortened = self.shortened(rebased, FRACTION - FRACTION_24, is_negative);
                shortened.min(0x7f_0000)
            }
            _ => {
                // A number below the least normal one: the exponent moves into the fraction.
                let hidden = if exponent == 0 { 0 } else { 1 << FRACTION };
                let fraction = hidden | (magnitude & ((1 << FRACTION) - 1));
                let count = FRACTION - FRACTION_24 + 1 + BIAS - exponent.max(1);
                // With more bits to remove, less than half of the least number is left.
                self.shortened(fraction, count.min(31), is_negative)
            }
        };
        bits >> 31 << 23 | magnitude
    }

    /// Returns the bits of the float32 for those of a short float.
    fn decoded(&self, bits: u32) -> u32 {
        if self.len == 2 {
            return bits << 16;
        }
        let (sign, exponent) = (bits >> 23 << 31, bits >> FRACTION_24 & 0x7f);
        let fraction = bits & 0xffff;
        sign | match (exponent, fraction) {
            (0, 0) => 0,
            (0x7f, 0) => 0x7f80_0000,
            (0x7f, _) => 0x7fc0_0000,
            (0, _) => {
                let shift = fraction.leading_zeros().saturating_sub(31 - FRACTION_24);
                let fraction = fraction << shift & 0xffff;
                (BIAS + 1 - shift) << FRACTION | fraction << (FRACTION - FRACTION_24)
            }
            _ => (exponent + BIAS) << FRACTION | fraction << (FRACTION - FRACTION_24),
        }
    }
}

impl BytesToBytes for ShortFloats {
    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        let (floats, rest) = decoded.as_chunks::<LONG>();
        if !rest.is_empty() {
            let (name, len) = (self.name, decoded.len());
            return Err(Error::invalid(format!("{name}: {len} bytes are not of float32")));
        }
        let mut encoded = room(self.name, floats.len().saturating_mul(self.len))?;
        for float in floats {
            let bits = self.encoded(u32::from_le_bytes(*float)).to_le_bytes();
            let bytes = bits.iter().take(self.len);
            if self.is_big {
                encoded.extend(bytes.rev());
            } else {
                encoded.extend(bytes);
            }
        }
        Ok(encoded)
    }

    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>> {
        if !encoded.len().is_multiple_of(self.len) {
            let (name, len) = (self.name, encoded.len());
            return Err(Error::corrupt(format!("{name}: {len} bytes are not whole floats")));
        }
        let len = (encoded.len() / self.len).saturating_mul(LONG);
        if len > limit {
            return Err(too_long(self.name, limit));
        }
        let mut decoded = room(self.name, len)?;
        for float in encoded.chunks_exact(self.len) {
            let shift = |bits: u32, byte: &u8| bits << 8 | u32::from(*byte);
            let bits = if self.is_big {
                float.iter().fold(0, shift)
            } else {
                float.iter().rev().fold(0, shift)
            };
            decoded.extend(self.decoded(bits).to_le_bytes());
        }
        Ok(decoded)
    }

    fn encoded_len(&self, decoded_len: u64) -> Option<u64> {
        (decoded_len / 4).checked_mul(if self.len == 2 { 2 } else { 3 })
    }
}
