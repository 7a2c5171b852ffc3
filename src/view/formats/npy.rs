//! `npy`: the format of NumPy's `np.save` (NEP 1), versions 1, 2 and 3.

use std::fmt::Write;

use crate::dtype::{DType, Field};
use crate::error::{Error, Result};
use crate::view::layout::{Layout, NumberForm};
use crate::view::parts::{Part, View};
use crate::view::source::ViewSource;

/// The offset of the elements is a multiple of this, for `np.memmap`.
const ALIGNMENT: usize = 64;

/// NumPy leaves space for this many digits of the first dimension.
const MAX_DIGITS: usize = 21;

pub(super) fn build(source: &ViewSource<'_>) -> Result<View> {
    let model = source.array()?.model();
    let elements = source.elements(Layout::Linear, NumberForm::default())?;
    let mut dict =
        format!("{{'descr': {}, 'fortran_order': False, 'shape': (", descr(&model.dtype)?);
    for len in &model.shape {
        // Writing to a string does not fail.
        let _never = write!(dict, "{len}, ");
    }
    let trimmed = if model.shape.len() > 1 { dict.trim_end_matches(", ") } else { dict.trim_end() };
    let mut dict = format!("{trimmed}), }}");
    if let Some(first) = model.shape.first() {
        let room = MAX_DIGITS.saturating_sub(first.to_string().len());
        dict.extend(std::iter::repeat_n(' ', room));
    }
    View::new([Part::from(header(&dict)?), Part::from(elements)])
}

/// Returns magic, version, length and dictionary, padded with spaces to align the elements. The
/// bytes equal those of `np.save`, so that a file from NumPy can be copied onto the view.
fn header(dict: &str) -> Result<Vec<u8>> {
    // The name of a field may not fit Latin 1. Then it is UTF-8, which needs version 3.
    let latin1: Option<Vec<u8>> = dict.chars().map(|char| u8::try_from(char).ok()).collect();
    let (version, width, text) = match latin1 {
        None => (3_u8, 4_usize, dict.as_bytes().to_vec()),
        Some(text) if text.len() > 65_400 => (2, 4, text),
        Some(text) => (1, 2, text),
    };
    let start = 8_usize.saturating_add(width);
    let len = start.saturating_add(text.len()).saturating_add(1);
    // At least one space of padding.
    let len = len.saturating_add(1).next_multiple_of(ALIGNMENT);
    let text_len = len.saturating_sub(start);
    let mut bytes = b"\x93NUMPY".to_vec();
    bytes.extend([version, 0]);
    let field =
        u32::try_from(text_len).map_err(|_| Error::unsupported("its header is too long"))?;
    bytes.extend(field.to_le_bytes().into_iter().take(width));
    bytes.extend(text);
    bytes.resize(len.saturating_sub(1), b' ');
    bytes.push(b'\n');
    Ok(bytes)
}

/// Returns a type as a Python literal that `np.dtype` takes.
fn descr(dtype: &DType) -> Result<String> {
    Ok(match dtype {
        DType::Struct(fields) => {
            let fields: Result<Vec<String>> = fields.iter().map(field).collect();
            format!("[{}]", fields?.join(", "))
        }
        other => format!("'{}'", simple(other)?),
    })
}

fn field(field: &Field) -> Result<String> {
    let (name, dtype) = (literal(&field.name), descr(&field.dtype)?);
    if field.shape.is_empty() {
        return Ok(format!("({name}, {dtype})"));
    }
    let shape: String =
        field.shape.iter().fold(String::new(), |shape, len| format!("{shape}{len}, "));
    Ok(format!("({name}, {dtype}, ({}))", shape.trim_end()))
}

/// Returns a string as Python's `repr` does.
fn literal(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut literal = String::from(quote);
    for char in text.chars() {
        match char {
            '\\' => literal.push_str(r"\\"),
            '\n' => literal.push_str(r"\n"),
            '\r' => literal.push_str(r"\r"),
            '\t' => literal.push_str(r"\t"),
            char if char == quote => literal.extend(['\\', char]),
            char if char.is_control() => {
                let _never = write!(literal, "\\x{:02x}", u32::from(char));
            }
            char => literal.push(char),
        }
    }
    literal.push(quote);
    literal
}

fn simple(dtype: &DType) -> Result<String> {
    let of_len = |letter: char, len: usize| match len {
        0 | 1 => format!("|{letter}{len}"),
        _ => format!("<{letter}{len}"),
    };
    let len = dtype.item_len();
    Ok(match dtype {
        DType::Bool => "|b1".to_owned(),
        DType::Int(_) => of_len('i', len),
        DType::Uint(_) => of_len('u', len),
        DType::Float(_) => of_len('f', len),
        DType::Complex(8 | 16) => of_len('c', len),
        DType::Raw(_) => format!("|V{len}"),
        DType::Bytes(_) => format!("|S{len}"),
        DType::Utf32(count) => format!("<U{count}"),
        DType::Time(time) => {
            let letter = if time.is_span { 'm' } else { 'M' };
            match (time.unit, time.scale) {
                ("generic", _) => format!("<{letter}8"),
                (unit, 1) => format!("<{letter}8[{unit}]"),
                (unit, scale) => format!("<{letter}8[{scale}{unit}]"),
            }
        }
        DType::Complex(_)
        | DType::Narrow(_)
        | DType::ComplexNarrow(_)
        | DType::Struct(_)
        | DType::String
        | DType::VariableBytes => {
            return Err(Error::unsupported(format!("NumPy has no type for {}", dtype.name())));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_readable_by_numpy_and_aligned() {
        for (dict, version) in [("{}", 1), (&" ".repeat(70_000), 2), ("{'é'}", 1), ("{'ψ'}", 3)] {
            let bytes = header(dict).expect("short");
            assert_eq!((bytes.len() % 64, bytes[6], bytes.last()), (0, version, Some(&b'\n')));
            let len = match version {
                1 => 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]])),
                _ => 12 + u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) as usize,
            };
            assert_eq!(len, bytes.len());
        }
    }

    #[test]
    fn names_of_fields_are_python_literals() {
        assert_eq!(literal("it's\\\n"), r#""it's\\\n""#);
        assert_eq!(literal("'\"\x01"), r#"'\'"\x01'"#);
    }
}
