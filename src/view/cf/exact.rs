//! Converts numbers to another type if all of them stay exactly the same.

use crate::dtype::{DType, half_value};

/// Converts the little-endian numbers in `bytes` to another type; `None` if any would change.
pub(crate) fn exactly(bytes: &[u8], from: &DType, to: &DType) -> Option<Vec<u8>> {
    if from == to {
        return Some(bytes.to_vec());
    }
    let mut numbers = Vec::new();
    for item in bytes.chunks_exact(from.item_len().max(1)) {
        match (from, to) {
            (DType::Float(2), DType::Float(4)) => {
                let half = u16::from_le_bytes(item.try_into().ok()?);
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::as_conversions,
                    reason = "every half is exactly a single"
                )]
                numbers.extend((half_value(half) as f32).to_le_bytes());
            }
            (_, DType::Int(4)) => {
                numbers.extend(i32::try_from(integer(item, from)?).ok()?.to_le_bytes());
            }
            (_, DType::Float(8)) => numbers.extend(double(integer(item, from)?)?.to_le_bytes()),
            _ => return None,
        }
    }
    Some(numbers)
}

fn integer(item: &[u8], dtype: &DType) -> Option<i128> {
    let bits = item.iter().rev().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
    match dtype {
        DType::Uint(_) => Some(bits.into()),
        DType::Int(len) => {
            let unused = 64_u32.checked_sub(8 * u32::from(*len))?;
            Some(((bits << unused).cast_signed() >> unused).into())
        }
        _ => None,
    }
}

/// Whether the integer is exactly a double.
pub(super) fn is_double(integer: i128) -> bool {
    double(integer).is_some()
}

/// Returns the integer as a double if that is exact.
fn double(integer: i128) -> Option<f64> {
    let size = u64::try_from(integer.unsigned_abs()).ok()?;
    let bits = 64_u32.checked_sub(size.leading_zeros())?.saturating_sub(size.trailing_zeros());
    if bits > f64::MANTISSA_DIGITS {
        return None;
    }
    let half = |bits: u64| u32::try_from(bits & 0xffff_ffff).map(f64::from).ok();
    let size = half(size >> 32)? * 4_294_967_296.0 + half(size)?;
    Some(if integer < 0 { -size } else { size })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_is_a_double_where_no_digit_is_lost() {
        for (integer, expected) in [
            (0, Some(0.0)),
            (-1, Some(-1.0)),
            (1 << 53, Some(9_007_199_254_740_992.0)),
            ((1 << 53) + 1, None),
            ((1 << 53) + 2, Some(9_007_199_254_740_994.0)),
            (i128::from(i64::MIN), Some(-9_223_372_036_854_775_808.0)),
            (i128::from(i64::MAX), None),
            (i128::from(u64::MAX), None),
        ] {
            assert_eq!(double(integer), expected, "{integer}");
        }
    }
}
