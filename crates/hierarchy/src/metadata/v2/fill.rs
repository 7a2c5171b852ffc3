//! Fill values in the forms of Zarr 2.
//!
//! ```text
//! numbers, booleans, strings   as in Zarr 3
//! times                        an integer
//! |S |V, structures            base64 of an element as it is stored
//! bytes of variable length     base64
//! ```
//!
//! Programs older than the rule of base64 wrote the string itself, and zarr-python 2 still reads it
//! as that.

use serde_json::{Value, json};

use crate::metadata::types::{Endian, component_orders};
use zarrfs_base::error::{Error, Result};
use zarrfs_codec::dtype::{DType, FillValue, base64_decode_as_python, base64_encode};
use zarrfs_codec::json::{self, Object};

/// Returns the fill value of a metadata file.
pub(in crate::metadata) fn fill_value(
    document: &Object,
    dtype: &DType,
    endian: &Endian,
) -> Result<FillValue> {
    let value = document.get("fill_value").unwrap_or(&Value::Null);
    match (dtype, value) {
        (DType::Raw(_) | DType::Bytes(_), Value::String(text)) => {
            packed(text, dtype).map_or_else(|| FillValue::parse(value, dtype), Ok)
        }
        (DType::Struct(_), Value::String(text)) => {
            let fill = packed(text, dtype).map_or_else(|| FillValue::parse(value, dtype), Ok)?;
            Ok(fill.byte_swapped(&component_orders(dtype, endian)))
        }
        (DType::Complex(_), Value::String(text)) => match base64_decode_as_python(text) {
            Some(item) if item.len() == dtype.item_len() => {
                Ok(FillValue::from_item(&item).byte_swapped(&component_orders(dtype, endian)))
            }
            Some(_) | None => FillValue::parse(value, dtype),
        },
        (DType::VariableBytes, Value::String(text)) => Ok(FillValue::from_item(&bytes_of(text))),
        // An object that is not a string means that there is no fill value.
        (DType::String, Value::Bool(_) | Value::Object(_) | Value::Array(_)) => {
            Ok(FillValue::UNDEFINED)
        }
        _ => FillValue::parse(value, dtype),
    }
}

/// Returns an element of fixed length, cut or padded with NUL as NumPy does. `None` if the string
/// is no base64, and NumPy has no bytes for it either.
fn packed(text: &str, dtype: &DType) -> Option<FillValue> {
    if !text.is_ascii() {
        return None;
    }
    let mut item = bytes_of(text);
    item.resize(dtype.item_len(), 0);
    Some(FillValue::from_item(&item))
}

/// Returns the bytes that a string means: those of its base64, or its own if it is no base64.
fn bytes_of(text: &str) -> Vec<u8> {
    base64_decode_as_python(text).unwrap_or_else(|| json::plain(text).as_bytes().to_vec())
}

/// Returns the fill value as Zarr 2 writes it: bytes in base64, an element as it is stored.
pub(in crate::metadata) fn fill_to_json(
    fill: &FillValue,
    dtype: &DType,
    endian: &Endian,
) -> Result<Value> {
    if !fill.is_defined() {
        return Ok(Value::Null);
    }
    let value = match dtype {
        DType::Raw(_) | DType::Bytes(_) | DType::VariableBytes => {
            Value::from(base64_encode(&fill.item(dtype)))
        }
        DType::Struct(_) => {
            let stored = fill.clone().byte_swapped(&component_orders(dtype, endian));
            Value::from(base64_encode(&stored.item(dtype)))
        }
        DType::Time(_) => match fill.to_json(dtype) {
            Value::String(_) => json!(i64::MIN),
            count => count,
        },
        _ => fill.to_json(dtype),
    };
    let parts = value.as_array().map_or(std::slice::from_ref(&value), Vec::as_slice);
    let is_float = matches!(dtype, DType::Float(_) | DType::Complex(_));
    let is_bits = |part: &&Value| part.as_str().is_some_and(|text| text.starts_with("0x"));
    match parts.iter().find(is_bits).filter(|_| is_float) {
        Some(bits) => Err(Error::invalid(format!(
            "fill_value {bits} is a NaN with a payload, which readers of Zarr 2 do not accept: \
             use \"NaN\""
        ))),
        None => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::types::data_type;

    fn read(value: &Value, dtype: &DType) -> Vec<u8> {
        let document = json!({"fill_value": value});
        let document = document.as_object().expect("an object");
        let fill = fill_value(document, dtype, &Endian::Big).expect("a fill value");
        fill.item(dtype).into_owned()
    }

    #[test]
    fn bytes_of_variable_length_are_base64() {
        let dtype = DType::VariableBytes;
        // Written by zarr-python 3.1.6 for zarr_format=2.
        let written: [(&str, &[u8]); 5] = [
            ("AGY=", b"\0f"),
            ("YWJjZA==", b"abcd"),
            ("", b""),
            ("YWI=", b"ab"),
            ("//4=", b"\xff\xfe"),
        ];
        for (text, bytes) in written {
            assert_eq!(read(&json!(text), &dtype), bytes, "{text:?}");
            let fill = FillValue::from_item(bytes);
            let value = fill_to_json(&fill, &dtype, &Endian::Little).expect("a value");
            assert_eq!(value, json!(text), "{bytes:?}");
        }
        assert_eq!(read(&json!("not base64"), &dtype), b"not base64");
    }

    #[test]
    fn fixed_bytes_are_read_as_zarr_python_2_reads_them() {
        // What zarr-python 2.18.7 reads from a missing chunk of |S3.
        let read_as: [(&str, &[u8; 3]); 12] = [
            ("ab", b"ab\0"),
            ("abc", b"abc"),
            ("abcd", b"i\xb7\x1d"),
            ("abcde", b"abc"),
            ("YWI=", b"ab\0"),
            ("YWJjZGVm", b"abc"),
            ("a*bcd", b"i\xb7\x1d"),
            ("", b"\0\0\0"),
            ("YQ=", b"YQ="),
            ("YQ==YQ==", b"a\0\0"),
            ("a===", b"a=="),
            ("0x00616263", b"0x0"),
        ];
        for (text, bytes) in read_as {
            assert_eq!(read(&json!(text), &DType::Bytes(3)), bytes, "{text:?}");
        }
        let document = json!({"fill_value": "\u{e9}"});
        let document = document.as_object().expect("an object");
        fill_value(document, &DType::Bytes(3), &Endian::Little).expect_err("it refuses this, too");
    }

    #[test]
    fn structures_and_complex_numbers_are_stored_elements_or_read_as_text() {
        let fields = json!([["a", ">i2"], ["b", ">i2"]]);
        let (structure, endian) = data_type(&fields).expect("a structure");
        let big = endian.unwrap_or(Endian::Big);
        let read = |value: Value, dtype: &DType, endian: &Endian| {
            let document = json!({"fill_value": value});
            let document = document.as_object().expect("an object");
            fill_value(document, dtype, endian).expect("a fill value").item(dtype).into_owned()
        };
        assert_eq!(read(json!("AQABAA=="), &structure, &big), [0, 1, 0, 1]);
        assert_eq!(read(json!("AQ=="), &structure, &big), [0, 1, 0, 0]);
        assert_eq!(read(json!("ab"), &structure, &big), *b"ba\0\0");
        assert_eq!(read(json!("ab"), &DType::Raw(3), &big), *b"ab\0");
        let complex = DType::Complex(8);
        assert_eq!(
            read(json!("P4AAAEAAAAA="), &complex, &Endian::Big),
            read(json!([1, 2]), &complex, &big)
        );
        assert_eq!(
            read(json!("NaN"), &complex, &Endian::Big),
            read(json!(["NaN", 0]), &complex, &big)
        );
    }
}
