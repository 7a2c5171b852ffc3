//! The spellings of data types, and the byte order that some of them carry.

use serde_json::Value;

use super::json::describe;
use crate::dtype::{DType, MAX_ITEM_LEN, integer};
use crate::error::{Error, Result};

/// In which order the bytes of a component are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Endian {
    Little,
    Big,
}

impl Endian {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Little => "little",
            Self::Big => "big",
        }
    }
}

/// The type that `value` names, and the byte order where the name says it (`>i4`).
///
/// Takes the names of v3, the type strings of Zarr 2 and the drafts, and extension
/// objects: the type itself where it is known, otherwise its first known `fallback`
/// (2020 draft, "extension data types"; gone from v3 since July 2023).
pub(super) fn data_type(value: &Value) -> Result<(DType, Option<Endian>)> {
    let known = match value {
        Value::Object(members) => {
            let length = members.get("configuration").and_then(|found| found.get("length_bytes"));
            let named = members.get("type").or_else(|| members.get("name"));
            let raw = || match (named.and_then(Value::as_str), length) {
                (Some("raw_bytes"), Some(length)) => raw_of(length).map(|dtype| (dtype, None)),
                _ => None,
            };
            named.and_then(simple).or_else(raw).or_else(|| members.get("fallback").and_then(first))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            simple(value)
        }
    };
    known.ok_or_else(|| Error::unsupported(format!("data type {} is not known", named(value))))
}

/// The first known type of a fallback or of a list of them.
fn first(fallback: &Value) -> Option<(DType, Option<Endian>)> {
    match fallback.as_array() {
        Some(list) => list.iter().find_map(simple),
        None => simple(fallback),
    }
}

/// What a message calls the type.
fn named(value: &Value) -> String {
    let inner = value.get("type").or_else(|| value.get("name")).unwrap_or(value);
    match inner.as_array() {
        Some(_) => format!("{inner:.80}").chars().take(80).collect(),
        None => describe(inner),
    }
}

fn simple(value: &Value) -> Option<(DType, Option<Endian>)> {
    // zarr-python 2 writes a plain `|V3` as a structure with one nameless field.
    if let Some([Value::Array(field)]) = value.as_array().map(Vec::as_slice)
        && let [Value::String(name), inner @ Value::String(_)] = field.as_slice()
    {
        return if name.is_empty() { simple(inner) } else { None };
    }
    let name = value.as_str()?;
    DType::parse(name).map(|dtype| (dtype, None)).or_else(|| type_string(name))
}

/// A type string of `NumPy`: `<i4`, `|u1`, `|V3`. Bytes without a number's meaning (`|S5`, `|V5`) are raw.
fn type_string(text: &str) -> Option<(DType, Option<Endian>)> {
    let (endian, rest) = match text.chars().next()? {
        '<' => (Some(Endian::Little), text.get(1..)?),
        '>' => (Some(Endian::Big), text.get(1..)?),
        '|' => (None, text.get(1..)?),
        _ => (None, text),
    };
    let len: u32 = rest.get(1..).filter(|digits| !digits.starts_with('+'))?.parse().ok()?;
    let small = u8::try_from(len).ok();
    let dtype = match (rest.chars().next()?, small) {
        ('b', Some(1)) => DType::Bool,
        ('i', Some(len @ (1 | 2 | 4 | 8))) => DType::Int(len),
        ('u', Some(len @ (1 | 2 | 4 | 8))) => DType::Uint(len),
        ('f', Some(len @ (2 | 4 | 8))) => DType::Float(len),
        ('c', Some(len @ (8 | 16))) => DType::Complex(len),
        ('V' | 'S', _) if (1..=MAX_ITEM_LEN).contains(&len) => DType::Raw(len),
        _ => return None,
    };
    match (dtype.component_len(), endian) {
        (1, _) => Some((dtype, None)),
        (_, Some(_)) => Some((dtype, endian)),
        // A number of several bytes without a byte order is that of a machine long gone.
        (_, None) => None,
    }
}

fn raw_of(length: &Value) -> Option<DType> {
    let len = u32::try_from(integer(length.as_number()?.as_str())?).ok()?;
    (1..=MAX_ITEM_LEN).contains(&len).then_some(DType::Raw(len))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_spelling_names_its_type() {
        use Endian::{Big, Little};
        for (value, expected) in [
            (json!("int32"), (DType::Int(4), None)),
            (json!("<i4"), (DType::Int(4), Some(Little))),
            (json!(">f8"), (DType::Float(8), Some(Big))),
            (json!("|u1"), (DType::Uint(1), None)),
            (json!("<u1"), (DType::Uint(1), None)),
            (json!("i1"), (DType::Int(1), None)),
            (json!("b1"), (DType::Bool, None)),
            (json!("r24"), (DType::Raw(3), None)),
            (json!({"name": "float64"}), (DType::Float(8), None)),
            (
                json!({"name": "raw_bytes", "configuration": {"length_bytes": 3}}),
                (DType::Raw(3), None),
            ),
            (
                json!({"extension": "TODO", "type": ">c16", "fallback": null}),
                (DType::Complex(16), Some(Big)),
            ),
            (json!({"extension": "TODO", "type": [["", "|V3"]]}), (DType::Raw(3), None)),
            (json!({"name": "date", "fallback": ["nope", "int32"]}), (DType::Int(4), None)),
            (json!({"type": "<M8[ns]", "fallback": "<i8"}), (DType::Int(8), Some(Little))),
        ] {
            assert_eq!(data_type(&value).expect("understood"), expected, "{value}");
        }
    }

    #[test]
    fn an_unknown_type_is_named() {
        for (value, named) in [
            (json!("int33"), "\"int33\""),
            (json!("i4"), "\"i4\""),
            (json!("=i4"), "\"=i4\""),
            (json!("|i4"), "\"|i4\""),
            (json!("r7"), "\"r7\""),
            (json!({"type": "<M8[ns]", "fallback": null}), "\"<M8[ns]\""),
            (json!({"type": [["x", "<i2"], ["y", "<i2"]]}), "[[\"x\",\"<i2\"],[\"y\",\"<i2\"]]"),
        ] {
            let error = data_type(&value).expect_err("unknown");
            assert_eq!(error.to_string(), format!("data type {named} is not known"));
        }
    }
}
