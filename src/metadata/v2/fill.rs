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

use crate::dtype::{DType, FillValue, base64_decode_as_python, base64_encode};
use crate::error::{Error, Result};
use crate::json::{self, Object};
use crate::metadata::types::{Endian, component_orders};

/// Returns the fill value of a metadata file.
pub(in crate::metadata) fn fill_value(
    document: &Object,
    dtype: &DType,
    endian: &Endian,
) -> Result<FillValue> {
    let value = document.get("fill_value").unwrap_or(&Value::Null);
    match (dtype, value) {
        (DType::Struct(_) | DType::Complex(_), Value::String(_)) => {
            let fill = FillValue::parse(value, dtype)?;
            Ok(fill.byte_swapped(&component_orders(dtype, endian)))
        }
        (DType::VariableBytes, Value::String(text)) => {
            let bytes = base64_decode_as_python(text);
            let bytes = bytes.unwrap_or_else(|| json::plain(text).as_bytes().to_vec());
            Ok(FillValue::from_item(&bytes))
        }
        // An object that is not a string means that there is no fill value.
        (DType::String, Value::Bool(_) | Value::Object(_) | Value::Array(_)) => {
            Ok(FillValue::UNDEFINED)
        }
        _ => FillValue::parse(value, dtype),
    }
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
}
