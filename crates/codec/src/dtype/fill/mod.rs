//! Fill values: the elements of chunks that are not stored.
//!
//! There is one parser for all forms that dialects and programs have written ("fill value list" of
//! the v3 core specification; the hexadecimal and binary strings of the 2020 drafts; the
//! `nan(0x..)` of 2023), and one printer for the form of released v3. Both preserve every bit,
//! including those of a NaN.

use std::borrow::Cow;

use serde_json::{Number, Value};

use super::base64::{base64_decode as base64, base64_encode};
use super::narrow::Narrow;
use super::number::{float_bits, float_text, integer};
use super::types::{DType, Field};
use crate::json;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToUsize;

/// The value of elements that are not stored: the bits of one element, or undefined (null in the
/// metadata file).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FillValue(Option<Box<[u8]>>);

impl FillValue {
    /// No fill value: elements that are not stored read as zero bits.
    pub const UNDEFINED: Self = Self(None);

    /// Returns the value of these bytes, little endian.
    pub fn from_item(item: &[u8]) -> Self {
        Self(Some(item.into()))
    }

    /// Whether the metadata file has a value.
    pub fn is_defined(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the bytes of one element, little endian; zeros if the value is undefined. For a type
    /// of variable length these are only the contents, without a length.
    pub fn item(&self, dtype: &DType) -> Cow<'_, [u8]> {
        match &self.0 {
            Some(bits) => Cow::Borrowed(bits),
            None => Cow::Owned(vec![0; dtype.item_len()]),
        }
    }

    /// Parses `value`, a fill value in any form that dialects and programs have written. Null means
    /// undefined.
    pub fn parse(value: &Value, dtype: &DType) -> Result<Self> {
        if value.is_null() {
            return Ok(Self::UNDEFINED);
        }
        let bits = item(value, dtype);
        bits.map(|bits| Self(Some(bits.into()))).ok_or_else(|| {
            let mut text = value.to_string();
            if text.chars().count() > 60 {
                text = text.chars().take(60).chain("...".chars()).collect();
            }
            Error::corrupt(format!("fill_value {text} is not a valid {}", dtype.name()))
        })
    }

    /// Converts the bytes of a stored element to little endian, or back: `components` has the
    /// length of each component in order, and whether it is big endian.
    #[must_use]
    pub fn byte_swapped(self, components: &[(usize, bool)]) -> Self {
        Self(self.0.map(|mut bits| {
            let mut rest: &mut [u8] = &mut bits;
            for (len, is_big) in components {
                let Some((component, after)) = rest.split_at_mut_checked(*len) else { break };
                if *is_big {
                    component.reverse();
                }
                rest = after;
            }
            bits
        }))
    }

    /// Returns the bytes of the value in base64: the form of structures in zarr-python 3.1.
    pub fn to_base64(&self, dtype: &DType) -> Value {
        Value::from(base64_encode(&self.item(dtype)))
    }

    /// Returns the value in the form of released v3; zero if it is undefined.
    pub fn to_json(&self, dtype: &DType) -> Value {
        let item = self.item(dtype);
        match dtype {
            DType::Bool => Value::Bool(item.iter().any(|byte| *byte != 0)),
            DType::Int(len) => Value::from(signed(&item, *len)),
            DType::Uint(_) => Value::from(bits_of(&item)),
            DType::Float(len) => float_json(bits_of(&item), *len),
            DType::Complex(len) => {
                halves(&item).map(|part| float_json(bits_of(part), len / 2)).to_vec().into()
            }
            DType::Narrow(number) => narrow_json(bits_of(&item), number),
            DType::ComplexNarrow(number) => {
                halves(&item).map(|part| narrow_json(bits_of(part), number)).to_vec().into()
            }
            DType::Time(_) => match signed(&item, 8) {
                i64::MIN => Value::from("NaT"),
                count => Value::from(count),
            },
            DType::Struct(fields) => {
                let mut rest: &[u8] = &item;
                let value = |field: &Field| {
                    let (own, after) = rest.split_at_checked(field.len()).unwrap_or_default();
                    rest = after;
                    (field.name.clone(), Self::from_item(own).to_json(&field.whole()))
                };
                Value::Object(fields.iter().map(value).collect())
            }
            DType::Raw(_) | DType::Bytes(_) | DType::VariableBytes => self.to_base64(dtype),
            DType::Utf32(_) => Value::from(text_of(&item)),
            DType::String => Value::from(String::from_utf8_lossy(&item)),
        }
    }
}

/// Parses an element of this type.
fn item(value: &Value, dtype: &DType) -> Option<Vec<u8>> {
    match dtype {
        DType::Bool => boolean(alone(value)).map(|value| vec![u8::from(value)]),
        DType::Int(len) => int(alone(value)).and_then(|int| int_bits(int, *len, true)),
        DType::Uint(len) => int(alone(value)).and_then(|int| int_bits(int, *len, false)),
        DType::Float(len) => float(alone(value), *len).map(|bits| little(bits, *len)),
        DType::Complex(len) => {
            complex(value, usize::from(*len), |part| Some(little(float(part, len / 2)?, len / 2)))
        }
        DType::Raw(_) | DType::Bytes(_) => raw(value, dtype.item_len()),
        DType::Narrow(number) => narrow(alone(value), number),
        DType::ComplexNarrow(number) => {
            complex(value, dtype.item_len(), |part| narrow(part, number))
        }
        DType::Time(_) if value.as_str() == Some("NaT") => int_bits(i128::from(i64::MIN), 8, true),
        DType::Time(_) => int(alone(value)).and_then(|int| int_bits(int, 8, true)),
        DType::Utf32(len) => utf32(value, *len),
        DType::Struct(fields) => structure(value, dtype, fields),
        DType::String | DType::VariableBytes if is_zero(value) => Some(Vec::new()),
        DType::String => value.as_str().map(|text| json::plain(text).as_bytes().to_vec()),
        DType::VariableBytes => match value {
            Value::String(text) => base64(text),
            Value::Array(items) => bytes_of_list(items),
            _ => None,
        },
    }
}

fn signed(item: &[u8], len: u8) -> i64 {
    let unused = 64 - 8 * u32::from(len);
    (bits_of(item) << unused).cast_signed() >> unused
}

fn halves(item: &[u8]) -> [&[u8]; 2] {
    let (real, imaginary) = item.split_at(item.len() / 2);
    [real, imaginary]
}

/// Whether the value is the number 0, which means an empty value if the type is not a number.
fn is_zero(value: &Value) -> bool {
    value.as_number().is_some_and(|number| integer(number.as_str()) == Some(0))
}

fn bytes_of_list(items: &[Value]) -> Option<Vec<u8>> {
    items.iter().map(|item| u8::try_from(int(item)?).ok()).collect()
}

fn narrow(value: &Value, number: &Narrow) -> Option<Vec<u8>> {
    let pattern = value.as_str().and_then(|text| pattern(text.trim()));
    let bits = if let Some(bits) = pattern {
        u16::try_from(bits).ok()?
    } else if number.is_float() {
        number.float_bits(f64::from_bits(float(value, 8)?))?
    } else {
        number.int_bits(int(value)?)?
    };
    let fits = number.len > 1 || bits <= 0xff;
    fits.then(|| bits.to_le_bytes().into_iter().take(number.len).collect())
}

fn narrow_json(bits: u64, number: &Narrow) -> Value {
    let bits = u16::try_from(bits).unwrap_or_default();
    if let Some(int) = number.int_value(bits) {
        return Value::from(int);
    }
    if let Some(value) = number.float_value(bits) {
        return float_json(value.to_bits(), 8);
    }
    Value::String(if number.nan() == Some(bits) {
        "NaN".to_owned()
    } else if number.infinity(false) == Some(bits) {
        "Infinity".to_owned()
    } else if number.infinity(true) == Some(bits) {
        "-Infinity".to_owned()
    } else {
        format!("{bits:#0width$x}", width = 2 + 2 * number.len)
    })
}

/// Returns the code points of a string, in four bytes each, padded with NUL.
fn utf32(value: &Value, len: u32) -> Option<Vec<u8>> {
    let text = json::plain(if is_zero(value) { "" } else { value.as_str()? });
    let len = len.to_usize();
    if text.chars().count() > len {
        return None;
    }
    let mut bytes: Vec<u8> = text.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect();
    bytes.resize(len.checked_mul(4)?, 0);
    Some(bytes)
}

/// Returns the string of padded code points. Replaces invalid ones.
fn text_of(item: &[u8]) -> String {
    let points = item.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
    let text: String =
        points.map(|point| char::from_u32(point).unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    text.trim_end_matches('\0').to_owned()
}

/// Parses a structure: an object or a list with the values of its fields, or all of its bytes.
fn structure(value: &Value, dtype: &DType, fields: &[Field]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(dtype.item_len());
    match value {
        Value::Object(members) => {
            if members.keys().any(|name| fields.iter().all(|field| field.name != *name)) {
                return None;
            }
            for field in fields {
                bytes.extend(match members.get(&field.name) {
                    Some(value) => field_item(value, field)?,
                    None => vec![0; field.len()],
                });
            }
            Some(bytes)
        }
        Value::Array(items) if items.len() == fields.len() => {
            for (value, field) in items.iter().zip(fields) {
                bytes.extend(field_item(value, field)?);
            }
            Some(bytes)
        }
        other => raw(other, dtype.item_len()),
    }
}

fn field_item(value: &Value, field: &Field) -> Option<Vec<u8>> {
    if field.shape.is_empty() {
        return item(value, &field.dtype);
    }
    // Either an array in nested lists, or one value for all elements.
    let mut elements = vec![value];
    for _ in &field.shape {
        if elements.iter().all(|element| element.is_array()) {
            elements = elements.iter().filter_map(|list| list.as_array()).flatten().collect();
        }
    }
    let elements = match elements.as_slice() {
        [one] => vec![*one; field.count()],
        all => all.to_vec(),
    };
    let items: Option<Vec<_>> = elements.iter().map(|one| item(one, &field.dtype)).collect();
    let items = items.map(|items| items.concat()).filter(|bytes| bytes.len() == field.len());
    // Zarr 3 has no arrays in fields, so their bytes are shown.
    items.or_else(|| raw(value, field.len()))
}

/// Returns the only item of a list, because netCDF-C writes fill values as lists of one item.
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

/// Parses `0x..` or `0b..` with at most 64 bits.
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

/// Returns the number of bits in the significand of a float of `len` bytes.
fn fraction_bits(len: u8) -> u32 {
    match len {
        2 => 10,
        4 => 23,
        _ => 52,
    }
}

/// Returns the bits of infinity: all bits of the exponent are set, and none of the significand.
fn infinity_bits(len: u8) -> u64 {
    let sign = 1 << (8 * u32::from(len) - 1);
    let fraction = (1 << fraction_bits(len)) - 1;
    (sign - 1) & !fraction
}

/// Returns the quiet NaN in which only the top bit of the significand is set.
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

/// Returns the significand for the payload of `nan(0x..)`, whose bit 0 is the most significant one
/// (pull request of May 2023).
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

/// Parses a pair of numbers, a single real number, or the bytes of both parts.
fn complex(value: &Value, len: usize, part: impl Fn(&Value) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    let zero = Value::from(0);
    let bytes = value.as_str().and_then(base64).filter(|bytes| bytes.len() == len);
    if bytes.is_some() {
        return bytes;
    }
    let (real, imaginary) = match value.as_array().map(Vec::as_slice) {
        Some([real, imaginary]) => (real, imaginary),
        Some(_) => return None,
        None => (value, &zero),
    };
    Some([part(real)?, part(imaginary)?].concat())
}

fn raw(value: &Value, len: usize) -> Option<Vec<u8>> {
    if let Some(items) = value.as_array() {
        return bytes_of_list(items).filter(|list| list.len() == len);
    }
    if is_zero(value) {
        return Some(vec![0; len]);
    }
    let text = value.as_str()?;
    let mut bytes = match wide_pattern(text, len) {
        Some(bytes) => bytes,
        None => base64(text).filter(|bytes| bytes.len() <= len)?,
    };
    bytes.resize(len, 0);
    Some(bytes)
}

/// Parses `0x..` or `0b..` with exactly the digits of `len` bytes; the first digits are the first
/// byte.
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

#[cfg(test)]
mod tests;
