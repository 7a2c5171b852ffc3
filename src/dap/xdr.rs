//! Types of DAP2, and elements in XDR: big endian, each in a multiple of four bytes.
//!
//! ```text
//! number              4 bytes (a Byte and the integers of 16 bits, too), or 8
//! array of numbers    u32 count, u32 count, numbers (a Byte has one byte here), padding
//! string              u32 length, bytes, padding
//! array of strings    u32 count, strings
//! ```

use crate::dtype::{DType, Element, half_value};
use crate::error::{Error, Result};

/// The largest integer without a gap below it among doubles.
const MAX_EXACT: u128 = 1 << 53;

/// The most bytes of an array in XDR. Clients count elements and bytes in signed 32-bit numbers.
pub(super) const MAX_LEN: u64 = (1 << 31) - 1;

/// A type of DAP2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    Byte,
    Int16,
    UInt16,
    Int32,
    UInt32,
    Float32,
    Float64,
    String,
}

impl Wire {
    /// Returns the type for elements; `None` if there is none.
    pub fn of(dtype: &DType) -> Option<Self> {
        Some(match dtype {
            DType::Bool | DType::Uint(1) => Self::Byte,
            DType::Int(1 | 2) => Self::Int16,
            DType::Uint(2) => Self::UInt16,
            DType::Int(4) => Self::Int32,
            DType::Uint(4) => Self::UInt32,
            DType::Float(2 | 4) => Self::Float32,
            DType::Float(8) | DType::Int(8) | DType::Uint(8) | DType::Time(_) => Self::Float64,
            DType::Bytes(_) | DType::Utf32(_) | DType::String => Self::String,
            _ => return None,
        })
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Byte => "Byte",
            Self::Int16 => "Int16",
            Self::UInt16 => "UInt16",
            Self::Int32 => "Int32",
            Self::UInt32 => "UInt32",
            Self::Float32 => "Float32",
            Self::Float64 => "Float64",
            Self::String => "String",
        }
    }

    /// Returns the length of an element of an array; for strings the least length.
    pub fn item_len(self) -> u64 {
        match self {
            Self::Byte => 1,
            Self::Float64 => 8,
            _ => 4,
        }
    }
}

/// Returns numbers of an array in XDR. Fails if a double cannot hold an integer.
pub(super) fn numbers(dtype: &DType, items: &[u8]) -> Result<Vec<u8>> {
    let swapped = |len: usize| {
        let mut bytes = items.to_vec();
        bytes.chunks_exact_mut(len).for_each(<[u8]>::reverse);
        bytes
    };
    Ok(match dtype {
        DType::Bool | DType::Uint(1) => items.to_vec(),
        DType::Int(4) | DType::Uint(4) | DType::Float(4) => swapped(4),
        DType::Float(8) => swapped(8),
        DType::Int(1) => {
            items.iter().flat_map(|byte| i32::from(byte.cast_signed()).to_be_bytes()).collect()
        }
        DType::Int(2) => {
            let (pairs, _) = items.as_chunks::<2>();
            pairs
                .iter()
                .flat_map(|pair| i32::from(i16::from_le_bytes(*pair)).to_be_bytes())
                .collect()
        }
        DType::Uint(2) => {
            let (pairs, _) = items.as_chunks::<2>();
            pairs
                .iter()
                .flat_map(|pair| u32::from(u16::from_le_bytes(*pair)).to_be_bytes())
                .collect()
        }
        DType::Float(2) => {
            let (pairs, _) = items.as_chunks::<2>();
            pairs.iter().flat_map(|pair| single(u16::from_le_bytes(*pair)).to_be_bytes()).collect()
        }
        _ => {
            let (integers, _) = items.as_chunks::<8>();
            let mut bytes = Vec::with_capacity(items.len());
            for integer in integers {
                bytes.extend(double(dtype, integer)?.to_be_bytes());
            }
            bytes
        }
    })
}

/// Returns a number that is not in an array. Java clients and pydap take a Byte from the first of
/// its four bytes, C and C++ clients from the last one, so all four have its value.
pub(super) fn scalar(dtype: &DType, item: &[u8]) -> Result<Vec<u8>> {
    let number = numbers(dtype, item)?;
    Ok(match number.as_slice() {
        [byte] => vec![*byte; 4],
        _ => number,
    })
}

/// Appends a string.
pub(super) fn put_string(target: &mut Vec<u8>, string: &[u8]) -> Result<()> {
    let len = u32::try_from(string.len()).ok().filter(|len| u64::from(*len) <= MAX_LEN);
    let len = len.ok_or_else(|| Error::unsupported("a string is too long for DAP2"))?;
    target.extend(len.to_be_bytes());
    target.extend(string);
    target.resize(target.len().saturating_add(padding(string.len())), 0);
    Ok(())
}

/// Returns the number of bytes up to a multiple of four.
pub(super) fn padding(len: usize) -> usize {
    len.wrapping_neg() % 4
}

/// Returns a half as a single.
#[expect(
    clippy::cast_possible_truncation,
    clippy::as_conversions,
    reason = "every half is exactly a single"
)]
pub(super) fn single(half: u16) -> f32 {
    half_value(half) as f32
}

/// Returns an integer of 64 bits, or a time, as a double. Fails if it is beyond 2^53, or if a
/// double does not hold the time exactly.
pub(super) fn double(dtype: &DType, item: &[u8]) -> Result<f64> {
    let Element::Int(integer) = Element::of(dtype, item) else {
        return Err(Error::unsupported(format!("DAP2 has no type for {}", dtype.name())));
    };
    let is_time = matches!(dtype, DType::Time(_));
    let exact = if is_time { is_exact(integer) } else { integer.unsigned_abs() <= MAX_EXACT };
    if exact {
        return Ok(crate::dtype::to_float(integer));
    }
    Err(Error::unsupported(format!(
        "the element {integer} is beyond 2^53: DAP2 has no integers of 64 bits, and a Float64 would \
         round it"
    )))
}

/// Whether a double holds an integer exactly.
pub(super) fn is_exact(integer: i128) -> bool {
    let size = integer.unsigned_abs();
    let bits = u128::BITS.saturating_sub(size.leading_zeros());
    bits.saturating_sub(size.trailing_zeros()) <= f64::MANTISSA_DIGITS
}

/// Returns the bytes of a string without the NULs that pad it, in UTF-8 if it has code points.
pub(super) fn string(dtype: &DType, item: &[u8]) -> Vec<u8> {
    match dtype {
        DType::Utf32(_) => {
            let points = item.as_chunks::<4>().0.iter().map(|point| u32::from_le_bytes(*point));
            let text: String = points
                .map(|point| char::from_u32(point).unwrap_or(char::REPLACEMENT_CHARACTER))
                .collect();
            text.trim_end_matches('\0').as_bytes().to_vec()
        }
        DType::Bytes(_) => {
            let end = item.iter().rposition(|byte| *byte != 0);
            let end = end.map_or(0, |last| last.saturating_add(1));
            item.get(..end).unwrap_or_default().to_vec()
        }
        _ => item.to_vec(),
    }
}
