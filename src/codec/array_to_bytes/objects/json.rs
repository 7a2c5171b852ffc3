//! Lists of JSON as Python writes them, with bare `NaN` and infinities.

use super::scalar::Scalar;
use crate::error::{Error, Result};

/// Calls `each` with each encoded item of a list. Does not parse nested values.
pub(super) fn for_each<'b>(
    list: &'b [u8],
    each: &mut dyn FnMut(&'b [u8]) -> Result<()>,
) -> Result<()> {
    let wrong = || Error::corrupt("json2: expected a list");
    let inside = list.trim_ascii().strip_prefix(b"[").and_then(|list| list.strip_suffix(b"]"));
    let inside = inside.ok_or_else(wrong)?;
    let mut is_empty = true;
    let (mut start, mut depth, mut in_text, mut escaped) = (0, 0_usize, false, false);
    for (at, byte) in inside.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'[' | b'{' => depth = depth.saturating_add(1),
            b']' | b'}' => depth = depth.checked_sub(1).ok_or_else(wrong)?,
            b',' if depth == 0 => {
                each(inside.get(start..at).unwrap_or_default())?;
                is_empty = false;
                start = at.saturating_add(1);
            }
            _ => {}
        }
    }
    if in_text || depth != 0 {
        return Err(wrong());
    }
    let last = inside.get(start..).unwrap_or_default();
    if is_empty && last.trim_ascii().is_empty() { Ok(()) } else { each(last) }
}

/// Writes a scalar as `json.dumps` does.
pub(super) fn write(scalar: Scalar<'_>, ascii: bool, target: &mut Vec<u8>) {
    let text = match scalar {
        Scalar::Text(text) => return write_text(text, ascii, target),
        Scalar::Bool(value) => value.to_string(),
        Scalar::Int(int) => int.to_string(),
        Scalar::Float(float) if float.is_nan() => "NaN".to_owned(),
        Scalar::Float(float) if float.is_infinite() => {
            if float > 0.0 {
                "Infinity".to_owned()
            } else {
                "-Infinity".to_owned()
            }
        }
        Scalar::Float(float) => format!("{float:?}"),
    };
    target.extend_from_slice(text.as_bytes());
}

fn write_text(text: &str, ascii: bool, target: &mut Vec<u8>) {
    target.push(b'"');
    for c in text.chars() {
        let short = match c {
            '"' => Some(b'"'),
            '\\' => Some(b'\\'),
            '\n' => Some(b'n'),
            '\r' => Some(b'r'),
            '\t' => Some(b't'),
            '\u{8}' => Some(b'b'),
            '\u{c}' => Some(b'f'),
            _ => None,
        };
        if let Some(short) = short {
            target.extend_from_slice(&[b'\\', short]);
        } else if c < ' ' || (ascii && c > '~') {
            for unit in c.encode_utf16(&mut [0; 2]) {
                target.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
            }
        } else {
            target.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    target.push(b'"');
}
