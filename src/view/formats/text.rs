//! `txt`: the values of a short array as text, one per line. Every number can be parsed back
//! exactly.

use serde_json::Value;

use crate::dtype::{DType, FillValue};
use crate::error::{Error, Result};
use crate::view::left_out::LeftOutOfView;
use crate::view::parts::{Part, View};
use crate::view::source::ViewSource;

/// The most values in a file.
const MAX_COUNT: u64 = 1 << 20;

pub(super) fn build(source: &ViewSource<'_>) -> Result<View> {
    let model = source.array()?.model();
    let (dtype, rank) = (&model.dtype, model.shape.len());
    let count = model.shape.iter().fold(1_u64, |all, len| all.saturating_mul(*len));
    if rank > 1 {
        return Err(Error::unsupported("the array has more than one dimension"));
    }
    if count > MAX_COUNT {
        return Err(Error::unsupported(format!(
            "it has {count} values, the limit of txt is {MAX_COUNT}"
        )));
    }
    let (mut text, mut left_out) = (String::new(), LeftOutOfView::default());
    for item in source.values()?.chunks_exact(dtype.item_len().max(1)) {
        if is_other_nan(item, dtype) {
            left_out.add_property(source.path(), source.path(), "the bits of NaN (as nan)");
        }
        text.push_str(&value(item, dtype)?);
        text.push('\n');
    }
    Ok(View::new([Part::from(text)])?.with_left_out(left_out))
}

/// Whether an element is a NaN with other bits than the usual one.
fn is_other_nan(item: &[u8], dtype: &DType) -> bool {
    let is_float = matches!(dtype, DType::Float(_) | DType::Narrow(_));
    let text = is_float.then(|| FillValue::from_item(item).to_json(dtype));
    let text = text.as_ref().and_then(Value::as_str);
    text.is_some_and(|text| !matches!(text, "NaN" | "Infinity" | "-Infinity"))
}

fn value(item: &[u8], dtype: &DType) -> Result<String> {
    match dtype {
        DType::Bool | DType::Int(_) | DType::Uint(_) | DType::Float(_) | DType::Narrow(_) => {
            Ok(number(&FillValue::from_item(item).to_json(dtype)))
        }
        DType::Complex(_) => match FillValue::from_item(item).to_json(dtype) {
            Value::Array(parts) => Ok(parts.iter().map(number).collect::<Vec<_>>().join(" ")),
            other => Ok(number(&other)),
        },
        DType::Bytes(_) => {
            let end =
                item.iter().rposition(|byte| *byte != 0).map_or(0, |last| last.saturating_add(1));
            let bytes = item.get(..end).unwrap_or_default();
            line(
                std::str::from_utf8(bytes)
                    .map_err(|_| Error::unsupported("it has a value that is not valid Unicode"))?,
            )
        }
        DType::Utf32(_) => {
            let (chars, _) = item.as_chunks::<4>();
            let chars = chars.iter().map(|bytes| char::from_u32(u32::from_le_bytes(*bytes)));
            let text: Option<String> = chars.collect();
            let text = text.ok_or_else(|| {
                Error::unsupported(
                    "it has a value that is not valid \
                     Unicode",
                )
            })?;
            line(text.trim_end_matches('\0'))
        }
        _ => Err(Error::unsupported(format!("txt cannot show {}", dtype.name()))),
    }
}

fn line(text: &str) -> Result<String> {
    if text.contains(['\n', '\r']) {
        return Err(Error::unsupported("some of its strings have several lines"));
    }
    Ok(text.to_owned())
}

fn number(value: &Value) -> String {
    match value {
        Value::Bool(truth) => u8::from(*truth).to_string(),
        Value::String(text) => match text.as_str() {
            "Infinity" => "inf".to_owned(),
            "-Infinity" => "-inf".to_owned(),
            // Only the default NaN is `nan`; others are printed as bits.
            _ => "nan".to_owned(),
        },
        other => other.to_string(),
    }
}
