//! Numbers and texts of files as JSON, for attributes and fill values.

use serde_json::{Number, Value};

use zarrfs_base::width::ToUsize;
use zarrfs_codec::dtype::{base64_encode, half_value};
use zarrfs_codec::json::Object;

/// Returns bytes in little-endian order.
fn little(bytes: &[u8], is_big: bool) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if is_big {
        bytes.reverse();
    }
    bytes
}

/// Returns an integer of up to 16 bytes.
pub fn integer(bytes: &[u8], is_signed: bool, is_big: bool) -> Option<Value> {
    let bytes = little(bytes, is_big);
    let is_negative = is_signed && bytes.last().is_some_and(|byte| *byte & 0x80 != 0);
    let mut whole = [if is_negative { 0xff } else { 0 }; 16];
    whole.get_mut(..bytes.len())?.copy_from_slice(&bytes);
    let number = i128::from_le_bytes(whole);
    match i64::try_from(number) {
        Ok(number) => Some(Value::from(number)),
        Err(_) => u64::try_from(number).ok().map(Value::from),
    }
}

/// Returns a float of 2, 4 or 8 bytes by the shortest decimal number that is read as the same
/// double.
pub fn float(bytes: &[u8], is_big: bool) -> Option<Value> {
    let bytes = little(bytes, is_big);
    Some(match *bytes.as_slice() {
        [a, b] => {
            let half = half_value(u16::from_le_bytes([a, b]));
            number(half, half.to_string())
        }
        [a, b, c, d] => single(f32::from_le_bytes([a, b, c, d])),
        _ => double(f64::from_le_bytes(bytes.try_into().ok()?)),
    })
}

/// Returns a single as a number: exactly this one, as xarray writes it. 0.1 would be another one,
/// by which values would be unpacked otherwise than from the file.
pub fn single(value: f32) -> Value {
    double(value.into())
}

/// Returns a double as a number.
pub fn double(value: f64) -> Value {
    number(value, format!("{value:?}"))
}

fn number(value: f64, text: String) -> Value {
    // As Python writes them into metadata.
    let text = if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
    } else {
        text
    };
    Value::Number(Number::from_string_unchecked(text))
}

/// Returns a number as a fill value: what is no number is a string there.
pub fn fill_value(value: Value) -> Value {
    let text = value.to_string();
    if text.bytes().any(|byte| byte.is_ascii_digit()) { value } else { Value::from(text) }
}

/// Returns bytes as a text. Bytes that are not UTF-8 are Latin-1.
pub fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().map(|byte| char::from(*byte)).collect(),
    }
}

/// Returns bytes up to the first NUL as a text.
pub fn text_to_nul(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    text(bytes.get(..end).unwrap_or_default())
}

/// Returns zeros in base64.
pub fn base64_of_zeros(len: u64) -> String {
    let mut text = "AAAA".repeat((len / 3).to_usize());
    text.push_str(match len % 3 {
        0 => "",
        1 => "AA==",
        _ => "AAA=",
    });
    text
}

/// Writes the value that xarray masks in an array of floats of `item_len` bytes as it expects it in
/// Zarr 3: the base64 of a double.
pub fn code_masked(attributes: &mut Object, item_len: u64) {
    let Some(Value::Number(number)) = attributes.get("_FillValue") else { return };
    let text = number.as_str().replace("Infinity", "inf");
    if let Ok(double) = text.parse::<f64>() {
        // The decimal number is that of the type.
        let double =
            if item_len == 4 { f64::from(text.parse::<f32>().unwrap_or_default()) } else { double };
        let coded = base64_encode(&double.to_le_bytes());
        attributes.insert("_FillValue".to_owned(), Value::from(coded));
    }
}
