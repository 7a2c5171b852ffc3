//! Fill values: the element that stands where the store has no chunk.
//!
//! One reader takes every form that a dialect or a program has written, and one
//! writer gives the form of released v3 ("fill value list" of the v3 core
//! specification; the hexadecimal and binary strings of the 2020 drafts; the `nan(0x..)` of 2023).
//! Bits are kept exactly, those of a NaN too.

use std::borrow::Cow;

use serde_json::{Number, Value};

use super::number::{float_bits, float_text, integer};
use crate::dtype::DType;
use crate::error::{Error, Result};

/// The value of elements that are not stored: the bits of one element, or undefined (a null in the document).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FillValue(Option<Box<[u8]>>);

impl FillValue {
    /// No value was given: elements that are not stored read as zero bits.
    pub const UNDEFINED: Self = Self(None);

    /// Whether the document gives a value.
    pub fn is_defined(&self) -> bool {
        self.0.is_some()
    }

    /// The bytes of one element, little endian; zeros where it is undefined.
    pub fn item(&self, dtype: DType) -> Cow<'_, [u8]> {
        match &self.0 {
            Some(bits) => Cow::Borrowed(bits),
            None => Cow::Owned(vec![0; dtype.item_len()]),
        }
    }

    /// The element that `value` stands for, in any of the forms that have been written. Null is undefined.
    pub fn parse(value: &Value, dtype: DType) -> Result<Self> {
        if value.is_null() {
            return Ok(Self::UNDEFINED);
        }
        let bits = match dtype {
            DType::Bool => boolean(alone(value)).map(|value| vec![u8::from(value)]),
            DType::Int(len) => int(alone(value)).and_then(|int| int_bits(int, len, true)),
            DType::Uint(len) => int(alone(value)).and_then(|int| int_bits(int, len, false)),
            DType::Float(len) => float(alone(value), len).map(|bits| little(bits, len)),
            DType::Complex(len) => complex(value, len),
            DType::Raw(_) => raw(value, dtype.item_len()),
        };
        bits.map(|bits| Self(Some(bits.into()))).ok_or_else(|| {
            let mut text = value.to_string();
            if text.chars().count() > 60 {
                text = text.chars().take(60).chain("...".chars()).collect();
            }
            Error::corrupt(format!("fill_value {text} is none of {}", dtype.name()))
        })
    }

    /// The value as released v3 spells it; zero where it is undefined.
    pub fn to_json(&self, dtype: DType) -> Value {
        let item = self.item(dtype);
        match dtype {
            DType::Bool => Value::Bool(item.iter().any(|byte| *byte != 0)),
            DType::Int(len) => {
                let unused = 64 - 8 * u32::from(len);
                Value::from((bits_of(&item) << unused).cast_signed() >> unused)
            }
            DType::Uint(_) => Value::from(bits_of(&item)),
            DType::Float(len) => float_json(bits_of(&item), len),
            DType::Complex(len) => {
                let (real, imaginary) = item.split_at(item.len() / 2);
                [real, imaginary].map(|part| float_json(bits_of(part), len / 2)).to_vec().into()
            }
            DType::Raw(_) => item.to_vec().into(),
        }
    }
}

/// The element of a list of one, as netCDF-C writes fill values.
fn alone(value: &Value) -> &Value {
    match value.as_array().map(Vec::as_slice) {
        Some([only]) => only,
        Some(_) | None => value,
    }
}

fn boolean(value: &Value) -> Option<bool> {
    if let Some(text) = value.as_str() {
        return text.to_ascii_lowercase().parse().ok();
    }
    let number = value.as_number().and_then(|number| integer(number.as_str()));
    value.as_bool().or(match number {
        Some(0) => Some(false),
        Some(1) => Some(true),
        Some(_) | None => None,
    })
}

fn int(value: &Value) -> Option<i128> {
    if let Some(number) = value.as_number() {
        return integer(number.as_str());
    }
    let text = value.as_str()?.trim();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let size = match pattern(digits) {
        Some(bits) => i128::from(bits),
        None => integer(digits).filter(|_| !digits.starts_with('-'))?,
    };
    Some(if negative { -size } else { size })
}

fn int_bits(int: i128, len: u8, signed: bool) -> Option<Vec<u8>> {
    let bits = 8 * u32::from(len);
    let (least, most) =
        if signed { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
    let in_range = (least..=most).contains(&int);
    in_range.then(|| int.to_le_bytes().into_iter().take(usize::from(len)).collect())
}

/// The value of `0x..` or `0b..`, of 64 bits at most.
fn pattern(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let (digits, radix) = match lower.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (lower.strip_prefix("0b")?, 2),
    };
    let digits_only = digits.chars().all(|digit| digit.is_digit(radix));
    digits_only.then(|| u64::from_str_radix(digits, radix).ok()).flatten()
}

fn little(bits: u64, len: u8) -> Vec<u8> {
    bits.to_le_bytes().into_iter().take(usize::from(len)).collect()
}

fn bits_of(item: &[u8]) -> u64 {
    item.iter().rev().fold(0, |bits, byte| (bits << 8) | u64::from(*byte))
}

/// How many bits of the float of `len` bytes are its significand's.
fn fraction_bits(len: u8) -> u32 {
    match len {
        2 => 10,
        4 => 23,
        _ => 52,
    }
}

/// The bits of infinity: the exponent's are set, those of the significand not.
fn infinity_bits(len: u8) -> u64 {
    let sign = 1 << (8 * u32::from(len) - 1);
    let fraction = (1 << fraction_bits(len)) - 1;
    (sign - 1) & !fraction
}

/// The quiet NaN in which only the top bit of the significand is set.
fn nan_bits(len: u8) -> u64 {
    infinity_bits(len) | (1 << (fraction_bits(len) - 1))
}

fn float(value: &Value, len: u8) -> Option<u64> {
    if let Some(number) = value.as_number() {
        return float_bits(number.as_str(), len);
    }
    let text = value.as_str()?.trim();
    let lower = text.to_ascii_lowercase();
    if let Some(bits) = pattern(text) {
        let fits = len == 8 || bits >> (8 * u32::from(len)) == 0;
        return fits.then_some(bits);
    }
    let sign_bit = 1 << (8 * u32::from(len) - 1);
    let (sign, size) = match lower.strip_prefix('-') {
        Some(size) => (sign_bit, size),
        None => (0, lower.strip_prefix('+').unwrap_or(&lower)),
    };
    let bits = match size {
        "nan" => nan_bits(len),
        "inf" | "infinity" => infinity_bits(len),
        _ => match size.strip_prefix("nan(").and_then(|rest| rest.strip_suffix(')')) {
            Some(payload) => infinity_bits(len) | significand(pattern(payload)?, len)?,
            None => return float_bits(&lower, len),
        },
    };
    Some(sign | bits)
}

/// The significand of `nan(0x..)`, in which bit 0 is the most significant one (pull request of May 2023).
fn significand(payload: u64, len: u8) -> Option<u64> {
    let bits = fraction_bits(len);
    let fits = payload != 0 && payload >> bits == 0;
    fits.then(|| payload.reverse_bits() >> (64 - bits))
}

fn float_json(bits: u64, len: u8) -> Value {
    let sign_bit = 1 << (8 * u32::from(len) - 1);
    if let Some(text) = float_text(bits, len) {
        return Value::Number(Number::from_string_unchecked(text));
    }
    let text = if bits == nan_bits(len) {
        "NaN".to_owned()
    } else if bits == infinity_bits(len) {
        "Infinity".to_owned()
    } else if bits == infinity_bits(len) | sign_bit {
        "-Infinity".to_owned()
    } else {
        format!("{bits:#0width$x}", width = 2 + 2 * usize::from(len))
    };
    Value::String(text)
}

fn complex(value: &Value, len: u8) -> Option<Vec<u8>> {
    let part = len / 2;
    let zero = Value::from(0);
    let bytes = value.as_str().and_then(base64).filter(|bytes| bytes.len() == usize::from(len));
    if bytes.is_some() {
        return bytes;
    }
    let (real, imaginary) = match value.as_array().map(Vec::as_slice) {
        Some([real, imaginary]) => (real, imaginary),
        Some(_) => return None,
        None => (value, &zero),
    };
    let mut bytes = little(float(real, part)?, part);
    bytes.extend(little(float(imaginary, part)?, part));
    Some(bytes)
}

fn raw(value: &Value, len: usize) -> Option<Vec<u8>> {
    if let Some(items) = value.as_array() {
        let byte = |item: &Value| u8::try_from(int(item)?).ok();
        return items.iter().map(byte).collect::<Option<Vec<_>>>().filter(|list| list.len() == len);
    }
    if let Some(number) = value.as_number() {
        return (integer(number.as_str()) == Some(0)).then(|| vec![0; len]);
    }
    let text = value.as_str()?;
    let mut bytes = match wide_pattern(text, len) {
        Some(bytes) => bytes,
        None => base64(text).filter(|bytes| bytes.len() <= len)?,
    };
    bytes.resize(len, 0);
    Some(bytes)
}

/// The bytes of `0x..` or `0b..` in full width, the first digits first.
fn wide_pattern(text: &str, len: usize) -> Option<Vec<u8>> {
    let lower = text.to_ascii_lowercase();
    let (digits, radix, per_byte) = match lower.strip_prefix("0x") {
        Some(digits) => (digits, 16, 2),
        None => (lower.strip_prefix("0b")?, 2, 8),
    };
    if Some(digits.len()) != len.checked_mul(per_byte)
        || !digits.chars().all(|digit| digit.is_digit(radix))
    {
        return None;
    }
    let byte = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok();
    digits.as_bytes().chunks(per_byte).map(byte).collect()
}

/// The bytes of base64 in the standard alphabet, with or without padding.
fn base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    if text.len() - digits.len() > 2 || digits.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for group in digits.as_bytes().chunks(4) {
        let mut bits: u32 = 0;
        for digit in group {
            let digit = match digit {
                b'A'..=b'Z' => digit - b'A',
                b'a'..=b'z' => digit - b'a' + 26,
                b'0'..=b'9' => digit - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            bits = (bits << 6) | u32::from(digit);
        }
        let missing = u32::try_from(4 - group.len()).ok()?;
        bits <<= 6 * missing;
        bytes.extend(bits.to_be_bytes().into_iter().skip(1).take(group.len() - 1));
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
