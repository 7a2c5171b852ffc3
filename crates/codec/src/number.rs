//! The numbers in a chunk, and NumPy's casts between their types.
//!
//! NumPy defines the codecs that compute: integers wrap, floats are rounded to the type of an
//! operation, and a number that does not fit an integer type becomes the result of the x86-64
//! instruction.

use crate::dtype::{DType, half_bits, half_value};
use zarrfs_base::buffer::{Buffer, reserve};
use zarrfs_base::error::{Error, Result};

/// A type of real numbers, little endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NumberFormat {
    /// A byte, 0 or 1.
    Bool,
    /// A signed integer of this many bytes.
    Int(u8),
    /// An unsigned integer of this many bytes.
    Uint(u8),
    /// A float of 2, 4 or 8 bytes.
    Float(u8),
}

/// The exact value of a number of any [`NumberFormat`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ExactNumber {
    /// An integer.
    Int(i128),
    /// A float.
    Float(f64),
}

impl NumberFormat {
    /// Returns the format of a type. Times have the format of the integers that count them.
    pub fn of(dtype: &DType) -> Option<Self> {
        Some(match dtype {
            DType::Bool => Self::Bool,
            DType::Int(len) => Self::Int(*len),
            DType::Uint(len) => Self::Uint(*len),
            DType::Float(len) => Self::Float(*len),
            DType::Time(_) => Self::Int(8),
            _ => return None,
        })
    }

    /// Returns the length of a number in bytes, at least 1.
    pub fn len(self) -> usize {
        match self {
            Self::Bool => 1,
            Self::Int(len) | Self::Uint(len) | Self::Float(len) => usize::from(len.max(1)),
        }
    }

    /// Whether the numbers are floats.
    pub fn is_float(self) -> bool {
        matches!(self, Self::Float(_))
    }

    /// Whether this format can represent each number of `other`.
    pub fn holds(self, other: Self) -> bool {
        // The number of bits that hold any integer exactly.
        let exact = |len: u8| match len {
            2 => 11,
            4 => 24,
            _ => 53,
        };
        let bits = |len: u8| 8 * u32::from(len);
        match (self, other) {
            (_, Self::Bool) => true,
            (Self::Int(len), Self::Int(of))
            | (Self::Uint(len), Self::Uint(of))
            | (Self::Float(len), Self::Float(of)) => len >= of,
            (Self::Int(len), Self::Uint(of)) => len > of,
            (Self::Float(len), Self::Int(of)) => exact(len) >= bits(of) - 1,
            (Self::Float(len), Self::Uint(of)) => exact(len) >= bits(of),
            (Self::Bool | Self::Uint(_), Self::Int(_))
            | (Self::Bool, Self::Uint(_))
            | (Self::Bool | Self::Int(_) | Self::Uint(_), Self::Float(_)) => false,
        }
    }

    /// Returns the number in these [`Self::len`] bytes.
    pub fn load(self, item: &[u8]) -> ExactNumber {
        let bits = bits(item);
        match self {
            Self::Bool => ExactNumber::Int(i128::from(bits != 0)),
            Self::Int(len) => ExactNumber::Int(i128::from(sign_extended(bits, len))),
            Self::Uint(_) => ExactNumber::Int(i128::from(bits)),
            Self::Float(2) => {
                ExactNumber::Float(half_value(u16::try_from(bits).unwrap_or_default()))
            }
            Self::Float(4) => {
                let bits = u32::try_from(bits).unwrap_or_default();
                ExactNumber::Float(f64::from(f32::from_bits(bits)))
            }
            Self::Float(_) => ExactNumber::Float(f64::from_bits(bits)),
        }
    }

    /// Appends the bytes of a number after a cast as in NumPy.
    pub fn store(self, number: ExactNumber, target: &mut Vec<u8>) {
        match (self, number) {
            (Self::Bool, ExactNumber::Int(int)) => target.push(u8::from(int != 0)),
            (Self::Bool, ExactNumber::Float(float)) => target.push(u8::from(float != 0.0)),
            (Self::Int(len) | Self::Uint(len), ExactNumber::Int(int)) => {
                push(target, &int.to_le_bytes(), len);
            }
            (Self::Int(len) | Self::Uint(len), ExactNumber::Float(float)) => {
                let int = truncated(float, len, matches!(self, Self::Int(_)));
                push(target, &int.to_le_bytes(), len);
            }
            (Self::Float(2), number) => {
                // NumPy casts an integer to a half only through a single.
                let wide = match number {
                    ExactNumber::Int(int) => f64::from(single(int)),
                    ExactNumber::Float(float) => float,
                };
                target.extend_from_slice(&half_bits(wide).to_le_bytes());
            }
            (Self::Float(4), ExactNumber::Int(int)) => {
                target.extend_from_slice(&single(int).to_le_bytes());
            }
            (Self::Float(4), ExactNumber::Float(float)) => {
                target.extend_from_slice(&to_single(float).to_le_bytes());
            }
            (Self::Float(_), number) => {
                target.extend_from_slice(&number.to_float().to_le_bytes());
            }
        }
    }

    /// Returns the number after a cast to this format.
    pub fn cast(self, number: ExactNumber) -> ExactNumber {
        match (self, number) {
            (Self::Float(8), number) => ExactNumber::Float(number.to_float()),
            (Self::Float(4), ExactNumber::Float(float)) => {
                ExactNumber::Float(f64::from(to_single(float)))
            }
            (Self::Float(2), ExactNumber::Float(float)) => {
                ExactNumber::Float(half_value(half_bits(float)))
            }
            _ => {
                let mut item = Vec::with_capacity(8);
                self.store(number, &mut item);
                self.load(&item)
            }
        }
    }

    /// Applies `change` to each number of `source` and stores the results in the format `to`.
    pub fn map(
        self,
        to: Self,
        source: &[u8],
        change: impl Fn(ExactNumber) -> ExactNumber,
    ) -> Result<Buffer> {
        let count = source.len() / self.len();
        let mut target = reserve(count.saturating_mul(to.len()))?;
        for item in source.chunks_exact(self.len()) {
            to.store(change(self.load(item)), &mut target);
        }
        Ok(target.into())
    }

    /// Like [`Self::map`] with a fallible change.
    pub fn try_map(
        self,
        to: Self,
        source: &[u8],
        change: impl Fn(ExactNumber) -> Result<ExactNumber>,
    ) -> Result<Buffer> {
        let count = source.len() / self.len();
        let mut target = reserve(count.saturating_mul(to.len()))?;
        for item in source.chunks_exact(self.len()) {
            to.store(change(self.load(item))?, &mut target);
        }
        Ok(target.into())
    }

    /// Returns the least and the largest integer, `None` for floats.
    pub fn range(self) -> Option<(i128, i128)> {
        match self {
            Self::Bool => Some((0, 1)),
            Self::Int(len) => {
                let half = 1_i128 << (8 * u32::from(len)).saturating_sub(1).min(63);
                Some((-half, half - 1))
            }
            Self::Uint(len) => Some((0, (1_i128 << (8 * u32::from(len)).min(64)) - 1)),
            Self::Float(_) => None,
        }
    }

    /// Returns the next float of this format after `float`, away from zero or towards it. `float`
    /// must be of this format.
    pub fn neighbour(self, float: f64, away: bool) -> f64 {
        let mut item = Vec::with_capacity(8);
        self.store(ExactNumber::Float(float), &mut item);
        let bits = bits(&item);
        // Without the sign, the bits sort like the numbers.
        let next = if away { bits.wrapping_add(1) } else { bits.wrapping_sub(1) };
        item.clear();
        push(&mut item, &next.to_le_bytes(), u8::try_from(self.len()).unwrap_or(8));
        self.load(&item).to_float()
    }
}

/// Returns numbers of one type as those of another. Fails if one of them would change, or if the
/// elements are no numbers.
pub fn exactly(from: &DType, to: &DType, numbers: &[u8]) -> Result<Buffer> {
    if from == to {
        return Ok(numbers.to_vec().into());
    }
    // The numbers of times have units.
    let format =
        |dtype: &DType| NumberFormat::of(dtype).filter(|_| !matches!(dtype, DType::Time(_)));
    let formats = format(from).zip(format(to));
    let between = || format!("the type {} cannot become {}", from.to_json(), to.to_json());
    let Some((from, to)) = formats else { return Err(Error::invalid(between())) };
    from.try_map(to, numbers, |number| {
        let cast = to.cast(number);
        let fits = match (number, to.range()) {
            (ExactNumber::Int(int), Some((least, most))) => (least..=most).contains(&int),
            (ExactNumber::Float(float), None) if float.is_nan() => true,
            _ => from.cast(cast) == number,
        };
        if fits {
            return Ok(cast);
        }
        let shown = match number {
            ExactNumber::Int(int) => int.to_string(),
            ExactNumber::Float(float) => float.to_string(),
        };
        Err(Error::invalid(format!("{} without a change of {shown}", between())))
    })
}

impl ExactNumber {
    /// Returns the nearest double.
    pub fn to_float(self) -> f64 {
        match self {
            Self::Int(int) => double(int),
            Self::Float(float) => float,
        }
    }
}

/// Returns the bits of an element of at most 8 bytes.
pub(crate) fn bits(item: &[u8]) -> u64 {
    match item {
        [a] => u64::from(*a),
        [a, b] => u64::from(u16::from_le_bytes([*a, *b])),
        [a, b, c, d] => u64::from(u32::from_le_bytes([*a, *b, *c, *d])),
        _ => item.iter().rev().fold(0, |bits, byte| (bits << 8) | u64::from(*byte)),
    }
}

/// Returns the signed integer in the lowest `len` bytes.
pub(crate) fn sign_extended(bits: u64, len: u8) -> i64 {
    let unused = 64_u32.saturating_sub(8 * u32::from(len)).min(63);
    (bits << unused).cast_signed() >> unused
}

/// Appends the lowest `len` bytes.
pub(crate) fn push(target: &mut Vec<u8>, bytes: &[u8], len: u8) {
    target.extend_from_slice(bytes.get(..usize::from(len)).unwrap_or(bytes));
}

/// Returns the integer part of a float as the low `len` bytes of an integer. A float out of range
/// is undefined in C; this returns what the instructions of x86-64 do.
fn truncated(float: f64, len: u8, is_signed: bool) -> i64 {
    const TWO_31: f64 = 2_147_483_648.0;
    const TWO_63: f64 = 9_223_372_036_854_775_808.0;
    match (len, is_signed) {
        (8, false) if float >= TWO_63 => whole(float - TWO_63) ^ i64::MIN,
        (8, _) | (4, false) => whole(float),
        _ if (-TWO_31..TWO_31).contains(&float.trunc()) => whole(float),
        _ => i64::from(i32::MIN),
    }
}

#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    reason = "truncation is intended, and numbers out of range were handled above"
)]
fn whole(float: f64) -> i64 {
    const TWO_63: f64 = 9_223_372_036_854_775_808.0;
    if (-TWO_63..TWO_63).contains(&float) { float as i64 } else { i64::MIN }
}

#[expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "the rounding that is asked for"
)]
fn double(int: i128) -> f64 {
    int as f64
}

#[expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "the rounding that is asked for"
)]
fn single(int: i128) -> f32 {
    int as f32
}

#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    reason = "the rounding that is asked for"
)]
fn to_single(float: f64) -> f32 {
    float as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(from: &DType, to: &DType, number: f64) -> Option<f64> {
        let (mut item, mut made) = (Vec::new(), Vec::new());
        NumberFormat::of(from).expect("numbers").store(ExactNumber::Float(number), &mut item);
        made.extend_from_slice(&exactly(from, to, &item).ok()?);
        Some(NumberFormat::of(to).expect("numbers").load(&made).to_float())
    }

    #[test]
    fn a_number_of_another_type_is_the_same_number_or_refused() {
        let (float, double) = (DType::Float(4), DType::Float(8));
        for (from, to, number) in [
            (&double, &DType::Int(8), 9_007_199_254_740_992.0),
            (&double, &DType::Uint(1), 255.0),
            (&double, &float, 0.5),
            (&float, &double, 0.1_f32.into()),
            (&DType::Int(4), &DType::Int(8), -3.0),
            (&DType::Uint(1), &DType::Int(1), 127.0),
            (&double, &float, f64::INFINITY),
        ] {
            assert_eq!(converted(from, to, number), Some(number), "{from:?} {to:?}");
        }
        assert!(converted(&double, &float, f64::NAN).is_some_and(f64::is_nan));
        for (from, to, number) in [
            (&double, &DType::Int(8), 0.5),
            (&double, &DType::Int(8), 9_223_372_036_854_775_808.0),
            (&double, &DType::Int(4), f64::NAN),
            (&double, &DType::Uint(1), -1.0),
            (&double, &float, 0.1),
            (&double, &float, 1e300),
            (&DType::Int(1), &DType::Uint(1), -1.0),
            (&DType::Uint(1), &DType::Int(1), 128.0),
        ] {
            assert_eq!(converted(from, to, number), None, "{from:?} {to:?} {number}");
        }
        assert!(exactly(&DType::String, &float, &[]).is_err());
        let large = i64::MAX.to_le_bytes();
        assert!(exactly(&DType::Int(8), &double, &large).is_err());
    }
}
