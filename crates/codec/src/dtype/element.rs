//! The number that an element holds.

use super::narrow::Narrow;
use super::number::half_value;
use super::types::DType;

/// An element as a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Element {
    /// An integer, a Boolean value, or a time in its units.
    Int(i128),
    /// A real number, which may be infinite or NaN.
    Float(f64),
    /// A complex number: its real and its imaginary part.
    Complex(f64, f64),
    /// Bytes that are not a number.
    Bytes,
}

impl Element {
    /// Returns the element of type `dtype` in `item`, little endian.
    pub fn of(dtype: &DType, item: &[u8]) -> Self {
        let bits = bits_of(item);
        match dtype {
            DType::Bool => Self::Int((bits != 0).into()),
            DType::Uint(_) => Self::Int(bits.into()),
            DType::Int(len) => {
                let unused = 64_u32.saturating_sub(8 * u32::from(*len));
                Self::Int((bits.wrapping_shl(unused).cast_signed() >> unused.min(63)).into())
            }
            DType::Time(_) => Self::Int(bits.cast_signed().into()),
            DType::Float(len) => Self::Float(float(item, *len)),
            DType::Complex(len) => {
                let (real, imaginary) = item.split_at(item.len() / 2);
                Self::Complex(float(real, len / 2), float(imaginary, len / 2))
            }
            DType::Narrow(number) if number.is_float() => Self::Float(narrow(bits, number)),
            DType::Narrow(number) => {
                let bits = u16::try_from(bits).unwrap_or_default();
                Self::Int(number.int(bits).unwrap_or_default().into())
            }
            DType::ComplexNarrow(number) => {
                let (real, imaginary) = item.split_at(item.len() / 2);
                Self::Complex(narrow(bits_of(real), number), narrow(bits_of(imaginary), number))
            }
            DType::Raw(_)
            | DType::Bytes(_)
            | DType::Utf32(_)
            | DType::Struct(_)
            | DType::String
            | DType::VariableBytes => Self::Bytes,
        }
    }
}

fn bits_of(item: &[u8]) -> u64 {
    item.iter().take(8).rev().fold(0, |bits, byte| (bits << 8) | u64::from(*byte))
}

fn float(item: &[u8], len: u8) -> f64 {
    let bits = bits_of(item);
    match len {
        2 => half_value(u16::try_from(bits).unwrap_or_default()),
        4 => f32::from_bits(u32::try_from(bits).unwrap_or_default()).into(),
        _ => f64::from_bits(bits),
    }
}

fn narrow(bits: u64, number: &Narrow) -> f64 {
    number.float(u16::try_from(bits).unwrap_or_default()).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_is_the_number_that_its_bytes_spell() {
        let of = Element::of;
        assert_eq!(of(&DType::Int(1), &[0xff]), Element::Int(-1));
        assert_eq!(of(&DType::Uint(2), &[1, 1]), Element::Int(257));
        assert_eq!(of(&DType::Int(8), &i64::MIN.to_le_bytes()), Element::Int(i64::MIN.into()));
        assert_eq!(of(&DType::Uint(8), &[0xff; 8]), Element::Int(u64::MAX.into()));
        assert_eq!(of(&DType::Bool, &[2]), Element::Int(1));
        assert_eq!(of(&DType::Float(2), &[0, 0x3c]), Element::Float(1.0));
        assert_eq!(of(&DType::Float(4), &1.5_f32.to_le_bytes()), Element::Float(1.5));
        let complex = [2.0_f32.to_le_bytes(), (-3.0_f32).to_le_bytes()].concat();
        assert_eq!(of(&DType::Complex(8), &complex), Element::Complex(2.0, -3.0));
        assert_eq!(of(&DType::Raw(3), &[1, 2, 3]), Element::Bytes);
    }
}
