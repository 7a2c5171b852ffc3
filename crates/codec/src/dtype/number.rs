//! Converts decimal strings to numbers and back.
//!
//! Metadata files keep the spelling of a number, so that nothing is rounded before the type is
//! known: each float is rounded once, from the string, to its own width.

use std::cmp::Ordering;

use half::f16;

/// Parses a JSON number without a fraction as an integer: `3`, `3.0` or `3e2`.
pub fn integer(text: &str) -> Option<i128> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (negative, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, mantissa),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Some(0);
    }
    let fraction_len = i64::try_from(fraction.len()).ok()?;
    let shift = exponent.parse::<i64>().ok()?.checked_sub(fraction_len)?;
    let digits = if shift < 0 {
        let cut = usize::try_from(shift.checked_neg()?).ok()?;
        let (kept, zeros) = digits.split_at_checked(digits.len().checked_sub(cut)?)?;
        zeros.bytes().all(|digit| digit == b'0').then(|| kept.to_owned())?
    } else {
        // Numbers with more digits overflow anyway.
        let zeros = usize::try_from(shift).ok().filter(|zeros| *zeros < 40)?;
        format!("{digits}{}", "0".repeat(zeros))
    };
    let size: i128 = digits.parse().ok()?;
    Some(if negative { -size } else { size })
}

/// Returns the bits of the float of `len` bytes nearest to a decimal number, ties to even; `None`
/// if the string is not a number. A number beyond the largest float becomes infinity, as in IEEE
/// 754.
pub(super) fn float_bits(text: &str, len: u8) -> Option<u64> {
    let plain =
        |byte: u8| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E');
    if !text.bytes().all(plain) {
        return None;
    }
    Some(match len {
        2 => u64::from(half_bits(text.parse().ok()?)),
        4 => u64::from(text.parse::<f32>().ok()?.to_bits()),
        _ => text.parse::<f64>().ok()?.to_bits(),
    })
}

/// Returns the bits of the half that is nearest to `wide`, ties to even. A NaN keeps the bits that
/// fit.
pub fn half_bits(wide: f64) -> u16 {
    if wide.is_nan() {
        // `half` would set the quiet bit, which NumPy does not do.
        let payload = u16::try_from((wide.to_bits() >> 42) & 0x3ff).unwrap_or_default();
        let sign = u16::from(wide.is_sign_negative()) << 15;
        return sign | f16::INFINITY.to_bits() | if payload == 0 { 0x200 } else { payload };
    }
    // `f16::from_f64` rounds to a single and then again, or ignores the low 32 bits.
    f16::from_f32(rounded_to_odd(wide)).to_bits()
}

/// Returns `wide` if a single can hold it, else its neighbour whose last bit is 1. Rounding the
/// result to a shorter float gives the same as rounding `wide` directly.
fn rounded_to_odd(wide: f64) -> f32 {
    let nearest = to_single(wide);
    if nearest.to_bits() & 1 == 1 {
        return nearest;
    }
    match f64::from(nearest).partial_cmp(&wide) {
        Some(Ordering::Less) => nearest.next_up(),
        Some(Ordering::Greater) => nearest.next_down(),
        Some(Ordering::Equal) | None => nearest,
    }
}

/// Returns the float that is nearest to an integer, ties to even.
#[expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "this rounding is what the function is for"
)]
pub fn to_float(integer: i128) -> f64 {
    integer as f64
}

/// Returns the single that is nearest to a float, ties to even.
#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    reason = "this rounding is what the function is for"
)]
pub fn to_single(float: f64) -> f32 {
    float as f32
}

/// Returns the integer part of a float; the nearest limit if it is out of range, 0 for NaN.
#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the result saturates, as the comment says"
)]
pub fn to_index(float: f64) -> usize {
    float as usize
}

/// Returns the exact value of a half. A NaN keeps its sign and payload.
pub fn half_value(bits: u16) -> f64 {
    let half = f16::from_bits(bits);
    if half.is_nan() {
        let size = f64::from_bits(f64::INFINITY.to_bits() | u64::from(bits & 0x3ff) << 42);
        return if half.is_sign_negative() { -size } else { size };
    }
    half.to_f64()
}

/// Returns the shortest decimal number that is parsed to these bits again, even if the reader
/// rounds to a double first; `None` for infinities and NaN, which JSON numbers cannot express.
pub(super) fn float_text(bits: u64, len: u8) -> Option<String> {
    let text = match len {
        2 => {
            let half = half_value(u16::try_from(bits).ok()?);
            if !half.is_finite() {
                return None;
            }
            let shortest = (0..6)
                .map(|digits| format!("{half:.digits$e}"))
                .find(|text| float_bits(text, 2) == Some(bits))
                .and_then(|text| text.parse::<f64>().ok());
            format!("{:?}", shortest.unwrap_or(half))
        }
        4 => {
            let single = f32::from_bits(u32::try_from(bits).ok()?);
            let text = format!("{single:?}");
            let again: f64 = text.parse().ok()?;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::as_conversions,
                reason = "this rounding is what the function checks"
            )]
            let same = (again as f32).to_bits() == single.to_bits();
            if same { text } else { format!("{:?}", f64::from(single)) }
        }
        _ => format!("{:?}", f64::from_bits(bits)),
    };
    text.bytes().all(|byte| !byte.is_ascii_alphabetic() || byte == b'e').then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_without_a_fraction_is_an_integer_however_it_is_spelled() {
        for (text, value) in [
            ("3", Some(3)),
            ("-3.0", Some(-3)),
            ("3e2", Some(300)),
            ("300E-2", Some(3)),
            ("1.50e1", Some(15)),
            ("0.000", Some(0)),
            ("0e999999999", Some(0)),
            ("18446744073709551616", Some(1 << 64)),
            ("0.5", None),
            ("301e-2", None),
            ("1e-3", None),
            ("1e400", None),
            ("1e99999999999999999999", None),
        ] {
            assert_eq!(integer(text), value, "{text}");
        }
    }

    #[test]
    fn every_half_survives_its_text() {
        for bits in 0..=u16::MAX {
            let wide = half_value(bits);
            assert_eq!(half_bits(wide), bits, "{bits:#x} is {wide}");
            if let Some(text) = float_text(u64::from(bits), 2) {
                assert_eq!(float_bits(&text, 2), Some(u64::from(bits)), "{bits:#x} as {text}");
            }
        }
    }

    #[test]
    fn a_half_is_the_nearest_and_ties_go_to_even() {
        for (text, bits) in [
            ("1", 0x3c00),
            ("0.1", 0x2e66),
            ("65504", 0x7bff),
            ("65519.9", 0x7bff),
            ("65520", 0x7c00),
            ("1e9", 0x7c00),
            ("-65520", 0xfc00),
            ("2049", 0x6800),
            ("2051", 0x6802),
            ("5.960464477539063e-8", 0x0001),
            ("2.98e-8", 0x0000),
            ("2.9802322387695312e-8", 0x0000),
            ("2.99e-8", 0x0001),
            ("6.1035e-5", 0x0400),
            ("-0.0", 0x8000),
            ("1e-300", 0),
        ] {
            assert_eq!(float_bits(text, 2), Some(bits), "{text}");
        }
    }

    #[test]
    fn a_double_is_rounded_to_a_half_once() {
        for below in 0..f16::INFINITY.to_bits() {
            let above = below + 1;
            let end = if above == f16::INFINITY.to_bits() { 65536.0 } else { half_value(above) };
            let tie = f64::midpoint(half_value(below), end);
            let even = if below % 2 == 0 { below } else { above };
            for (wide, bits) in [(tie.next_down(), below), (tie, even), (tie.next_up(), above)] {
                assert_eq!(half_bits(wide), bits, "{wide:e}");
                assert_eq!(half_bits(-wide), bits | 0x8000, "-{wide:e}");
            }
        }
        for (wide, bits) in [(f64::NAN, 0x7e00), (f64::from_bits(0xfff0_0000_0000_0001), 0xfe00)] {
            assert_eq!(half_bits(wide), bits, "{:#x}", wide.to_bits());
        }
    }

    #[test]
    fn a_single_is_rounded_once() {
        // Halfway between two singles after rounding to a double, above it before.
        let text = "1.00000005960464477539062500000001";
        assert_eq!(float_bits(text, 4), Some(0x3f80_0001));
    }

    #[test]
    fn the_shortest_decimal_is_that_of_the_width() {
        assert_eq!(float_text(u64::from(0.1f32.to_bits()), 4).as_deref(), Some("0.1"));
        assert_eq!(float_text(0x2e66, 2).as_deref(), Some("0.1"));
        assert_eq!(float_text((-0.0f64).to_bits(), 8).as_deref(), Some("-0.0"));
        assert_eq!(float_text(1, 8).as_deref(), Some("5e-324"));
        assert_eq!(float_text(f64::NAN.to_bits(), 8), None);
    }
}
