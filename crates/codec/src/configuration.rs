//! Members of a codec's configuration, checked once when the codec is built.
//!
//! A member that is absent or null has its default. Unknown members are ignored: those that writers
//! add (`acceleration`, `nthreads`) cannot change the decoded bytes.

use std::ops::RangeInclusive;

use serde_json::Value;

use crate::dtype::{DType, MAX_ITEM_LEN, TIME_UNITS, Time};
use crate::json::Object;
use zarrfs_base::error::{Error, Result};

/// Returns the integer `member`, which must be in `range`. Errors name `codec`.
pub(crate) fn integer(
    codec: &str,
    configuration: &Object,
    member: &str,
    default: i64,
    range: RangeInclusive<i64>,
) -> Result<i64> {
    let value = match configuration.get(member) {
        None | Some(Value::Null) => return Ok(default),
        Some(value) => value,
    };
    match value.as_i64() {
        Some(number) if range.contains(&number) => Ok(number),
        None if !value.is_number() => {
            Err(Error::invalid(format!("{codec}: {member} {value} is not an integer")))
        }
        _ => Err(Error::invalid(format!(
            "{codec}: {member} {value} is not in {}..={}",
            range.start(),
            range.end()
        ))),
    }
}

/// Like [`integer`], for a number that is not negative and fits 32 bits.
pub(crate) fn count(
    codec: &str,
    configuration: &Object,
    member: &str,
    default: u32,
    range: RangeInclusive<u32>,
) -> Result<u32> {
    let range = i64::from(*range.start())..=i64::from(*range.end());
    let number = integer(codec, configuration, member, i64::from(default), range)?;
    u32::try_from(number)
        .map_err(|_| Error::invalid(format!("{codec}: {member} {number} is negative")))
}

/// Returns the boolean `member`, false if it is absent.
pub(crate) fn flag(codec: &str, configuration: &Object, member: &str) -> Result<bool> {
    match configuration.get(member) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(value)) => Ok(*value),
        Some(value) => {
            Err(Error::invalid(format!("{codec}: {member} {value} is not true or false")))
        }
    }
}

/// A type in NumPy's spelling, with its byte order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NumpyType {
    /// The type; `|O` is text of any length.
    pub dtype: DType,
    /// Whether the byte order is given and is big endian.
    pub is_big: bool,
}

impl NumpyType {
    /// Returns the type that NumPy calls `<i4`, `|u1`, `f8` or `float32`.
    pub fn parse(text: &str) -> Option<Self> {
        let code = text.trim_start_matches(['<', '>', '=', '|', '!']);
        if text.len() - code.len() > 1 {
            return None;
        }
        let is_big = text.starts_with(['>', '!']);
        numpy_dtype(code).map(|dtype| Self { dtype, is_big })
    }
}

/// Returns the type `member` in NumPy's spelling, `None` if absent.
pub(crate) fn dtype(
    codec: &str,
    configuration: &Object,
    member: &str,
) -> Result<Option<NumpyType>> {
    let value = match configuration.get(member) {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value,
    };
    let numpy_type = value.as_str().and_then(NumpyType::parse);
    let numpy_type = numpy_type.ok_or_else(|| {
        Error::unsupported(format!("{codec}: {member} {value} is not a supported type"))
    })?;
    Ok(Some(numpy_type))
}

/// Returns NumPy's name of a little-endian type; `None` if NumPy or Zarr 2 has no such type.
pub(crate) fn numpy_name(dtype: &DType) -> Option<String> {
    let order = if dtype.component_len() > 1 { '<' } else { '|' };
    Some(match dtype {
        DType::Bool => "|b1".to_owned(),
        DType::Int(len) => format!("{order}i{len}"),
        DType::Uint(len) => format!("{order}u{len}"),
        DType::Float(len) => format!("{order}f{len}"),
        DType::Utf32(len) => format!("{order}U{len}"),
        DType::String => "|O".to_owned(),
        _ => return None,
    })
}

/// Parses a type code without its byte order.
fn numpy_dtype(code: &str) -> Option<DType> {
    let (kind, len) = code.split_at_checked(1)?;
    let number = len.parse::<u8>().ok();
    let chars = len.parse::<u32>().ok().filter(|len| (1..=MAX_ITEM_LEN / 4).contains(len));
    match (kind, number) {
        ("b", Some(1)) => return Some(DType::Bool),
        ("i", Some(len @ (1 | 2 | 4 | 8))) => return Some(DType::Int(len)),
        ("u", Some(len @ (1 | 2 | 4 | 8))) => return Some(DType::Uint(len)),
        ("f", Some(len @ (2 | 4 | 8))) => return Some(DType::Float(len)),
        ("c", Some(len @ (8 | 16))) => return Some(DType::Complex(len)),
        ("U", _) => return chars.map(DType::Utf32),
        ("S", _) => return chars.map(DType::Bytes),
        ("V", _) => return chars.map(DType::Raw),
        ("M" | "m", _) => return numpy_time(kind == "m", len),
        _ => {}
    }
    Some(match code {
        "?" | "bool_" => DType::Bool,
        "b" => DType::Int(1),
        "B" => DType::Uint(1),
        "h" => DType::Int(2),
        "H" => DType::Uint(2),
        "i" => DType::Int(4),
        "I" => DType::Uint(4),
        "l" | "q" | "int" => DType::Int(8),
        "L" | "Q" | "uint" => DType::Uint(8),
        "e" | "half" => DType::Float(2),
        "f" | "single" => DType::Float(4),
        "d" | "float" | "double" => DType::Float(8),
        "F" => DType::Complex(8),
        "D" | "complex" => DType::Complex(16),
        "O" | "object" => DType::String,
        "datetime64" | "timedelta64" => numpy_time(code.starts_with('t'), "8")?,
        name => DType::parse(name).filter(|dtype| !dtype.is_variable())?,
    })
}

/// Parses the type of `8`, `8[ns]` or `8[25us]`.
fn numpy_time(is_span: bool, code: &str) -> Option<DType> {
    let units = code.strip_prefix('8')?;
    let units = match units.strip_prefix('[') {
        Some(units) => units.strip_suffix(']')?,
        None if units.is_empty() => "generic",
        None => return None,
    };
    let name = units.trim_start_matches(|c: char| c.is_ascii_digit());
    let scale = match units.strip_suffix(name)? {
        "" => 1,
        digits => digits.parse().ok().filter(|scale| *scale > 0)?,
    };
    let unit = TIME_UNITS.into_iter().find(|unit| *unit == name)?;
    Some(DType::Time(Time { is_span, unit, scale }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_of_numpy_has_a_kind_a_length_and_an_order() {
        let numpy_type = |text| {
            NumpyType::parse(text).map(|numpy_type| (numpy_type.dtype.name(), numpy_type.is_big))
        };
        for (text, name, is_big) in [
            ("<i4", "int32", false),
            (">f2", "float16", true),
            ("|u1", "uint8", false),
            ("|b1", "bool", false),
            ("u8", "uint64", false),
            ("float32", "float32", false),
            ("?", "bool", false),
            ("|O", "string", false),
            (">U3", "fixed_length_utf32", true),
            ("<M8[25us]", "numpy.datetime64", false),
            (">m8", "numpy.timedelta64", true),
        ] {
            assert_eq!(numpy_type(text), Some((name.to_owned(), is_big)), "{text}");
            let named = numpy_name(&NumpyType::parse(text).expect("a type").dtype);
            let again = named.as_deref().and_then(NumpyType::parse);
            assert!(again.is_none_or(|again| again.dtype.name() == name), "{text}: {named:?}");
        }
        for text in
            ["", "<", "<<i4", "i3", "f16", "U0", "M8[", "M8[0s]", "M8[x]", "string", "\u{e9}4"]
        {
            assert_eq!(numpy_type(text), None, "{text}");
        }
    }
}
