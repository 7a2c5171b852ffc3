//! Conventions that depend on the version of the format, translated from Zarr 2 to Zarr 3 and back.
//!
//! - Names of dimensions: xarray's attribute `_ARRAY_DIMENSIONS`, and the member `dimension_names`.
//! - The value that xarray masks: in Zarr 2 the fill value itself, in Zarr 3 the attribute
//!   `_FillValue`, where a float is the base64 of its eight bytes (`FillValueCoder` in
//!   xarray/backends/zarr.py).

use serde_json::{Value, json};

use zarrfs_codec::dtype::{DType, FillValue, base64_decode, base64_encode, half_value};
use zarrfs_codec::json::Object;

/// The attribute in which xarray and GDAL keep the names of dimensions.
pub const DIMENSIONS: &str = "_ARRAY_DIMENSIONS";

/// The attribute of the value that xarray masks.
pub const FILL: &str = "_FillValue";

/// Returns the names in `_ARRAY_DIMENSIONS` if it is a list of `rank` strings.
pub(super) fn names_of(value: &Value, rank: usize) -> Option<Vec<Option<String>>> {
    let items = value.as_array().filter(|items| items.len() == rank)?;
    items.iter().map(|item| item.as_str().map(|name| Some(name.to_owned()))).collect()
}

/// Removes the names of dimensions from attributes, and returns them.
pub(super) fn take_names(attributes: &mut Object, rank: usize) -> Vec<Option<String>> {
    let names = attributes.get(DIMENSIONS).and_then(|value| names_of(value, rank));
    if names.is_some() {
        attributes.shift_remove(DIMENSIONS);
    }
    names.unwrap_or_default()
}

/// Returns a value as the `_FillValue` of a Zarr 3 array; `None` for types that xarray does not
/// encode.
pub fn coded_fill(fill: &FillValue, dtype: &DType) -> Option<Value> {
    let item = fill.item(dtype);
    let double = |bytes: &[u8], len| Some(base64_encode(&as_double(bytes, len)?.to_le_bytes()));
    match dtype {
        DType::Bool
        | DType::Int(_)
        | DType::Uint(_)
        | DType::Bytes(_)
        | DType::Utf32(_)
        | DType::String
        | DType::VariableBytes => {
            let value = fill.to_json(dtype);
            // Padding is not part of the value.
            let text = value.as_str().filter(|_| matches!(dtype, DType::Bytes(_)));
            let bytes = text.and_then(base64_decode).map(|mut bytes| {
                while bytes.last() == Some(&0) {
                    bytes.pop();
                }
                bytes
            });
            Some(bytes.map_or(value, |bytes| Value::from(base64_encode(&bytes))))
        }
        DType::Float(len) => double(&item, *len).map(Value::from),
        DType::Complex(len) => {
            let (real, imaginary) = item.split_at(item.len() / 2);
            Some(json!([double(real, len / 2)?, double(imaginary, len / 2)?]))
        }
        _ => None,
    }
}

/// Returns the value of a `_FillValue` attribute as a fill value.
pub fn decoded_fill(value: &Value, dtype: &DType) -> Option<FillValue> {
    let double = |value: &Value| -> Option<Value> {
        let bytes: [u8; 8] = base64_decode(value.as_str()?)?.try_into().ok()?;
        let float = f64::from_le_bytes(bytes);
        let number = serde_json::Number::from_f64(float).map(Value::Number);
        Some(number.unwrap_or_else(|| {
            Value::from(if float.is_nan() {
                "NaN"
            } else if float > 0.0 {
                "Infinity"
            } else {
                "-Infinity"
            })
        }))
    };
    let plain = match dtype {
        DType::Float(_) => double(value),
        DType::Complex(_) => match value.as_array().map(Vec::as_slice) {
            Some([real, imaginary]) => double(real)
                .zip(double(imaginary))
                .map(|(real, imaginary)| json!([real, imaginary])),
            _ => None,
        },
        _ => None,
    };
    FillValue::parse(plain.as_ref().unwrap_or(value), dtype).ok().filter(FillValue::is_defined)
}

/// Whether elements mean the same to xarray if it masks this value: no element equals NaN or
/// not-a-time, and a masked element becomes that.
pub(super) fn is_masked_by_itself(fill: &FillValue, dtype: &DType) -> bool {
    let value = fill.to_json(dtype);
    match dtype {
        DType::Float(_) => value == "NaN",
        DType::Complex(_) => value == json!(["NaN", "NaN"]),
        DType::Time(_) => value == "NaT",
        _ => false,
    }
}

/// Whether a `_FillValue` attribute means the same to xarray as none at all.
pub fn masks_nothing(value: &Value, dtype: &DType) -> bool {
    decoded_fill(value, dtype).is_some_and(|fill| is_masked_by_itself(&fill, dtype))
}

/// Returns exactly this float, with which xarray compares elements: not the double of its shortest
/// decimal number.
fn as_double(bytes: &[u8], len: u8) -> Option<f64> {
    let double = match len {
        2 => half_value(u16::from_le_bytes(bytes.try_into().ok()?)),
        4 => f32::from_le_bytes(bytes.try_into().ok()?).into(),
        8 => f64::from_le_bytes(bytes.try_into().ok()?),
        _ => return None,
    };
    Some(if double.is_nan() { f64::NAN } else { double })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_masked_value_is_coded_as_xarray_does() {
        // FillValueCoder.encode of xarray 2025.
        for (value, dtype, coded) in [
            (json!("NaN"), DType::Float(4), json!("AAAAAAAA+H8=")),
            (json!(-999.5), DType::Float(8), json!("AAAAAAA8j8A=")),
            (json!(1e20), DType::Float(4), json!("AAAAgB2vFUQ=")),
            (json!(1e20), DType::Float(8), json!("QIy1eB2vFUQ=")),
            (json!(-20832), DType::Float(2), json!("AAAAAABY1MA=")),
            (json!(-7), DType::Int(2), json!(-7)),
            (json!("x"), DType::String, json!("x")),
            (json!("YWIA"), DType::Bytes(3), json!("YWI=")),
            (json!([1, 0]), DType::Complex(8), json!(["AAAAAAAA8D8=", "AAAAAAAAAAA="])),
        ] {
            let fill = FillValue::parse(&value, &dtype).expect("a value");
            assert_eq!(coded_fill(&fill, &dtype), Some(coded.clone()), "{value}");
            assert_eq!(decoded_fill(&coded, &dtype), Some(fill), "{value}");
        }
    }
}
