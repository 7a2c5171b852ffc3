//! Lists of JSON as Python writes them, with bare `NaN` and infinities.

use serde_json::Value;

use super::lists::Lists;
use super::scalar::Scalar;
use crate::json;
use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_base::width::ToU64;

/// The most bytes that JSON has for a byte of a string (`\u0007`).
const ESCAPE_LEN: u64 = 6;

/// The unread bytes of a list.
pub(super) struct List<'b> {
    text: &'b [u8],
    at: usize,
    /// Whether a list has just begun.
    is_first: bool,
}

impl<'b> List<'b> {
    /// Returns a list that has not begun.
    pub fn new(text: &'b [u8]) -> Self {
        Self { text, at: 0, is_first: false }
    }

    /// Returns the next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        self.at = self.text.len().saturating_sub(rest.trim_ascii_start().len());
        self.text.get(self.at).copied()
    }

    /// Reads this byte if it is next.
    fn eat(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at = self.at.saturating_add(usize::from(is_next));
        is_next
    }
}

fn wrong() -> Error {
    Error::corrupt("json2: expected a list")
}

impl<'b> Lists<'b> for List<'b> {
    fn begin(&mut self) -> Result<()> {
        self.is_first = true;
        if self.eat(b'[') { Ok(()) } else { Err(wrong()) }
    }

    fn has_next(&mut self) -> Result<bool> {
        let is_first = std::mem::take(&mut self.is_first);
        if self.eat(b']') {
            return Ok(false);
        }
        if is_first || self.eat(b',') { Ok(true) } else { Err(wrong()) }
    }

    fn item(&mut self) -> Result<&'b [u8]> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
        for (len, byte) in rest.iter().enumerate() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if in_text => escaped = true,
                b'"' => in_text = !in_text,
                _ if in_text => {}
                b',' | b']' if depth == 0 => {
                    self.at = self.at.saturating_add(len);
                    return Ok(rest.get(..len).unwrap_or_default());
                }
                b'[' | b'{' => depth = depth.saturating_add(1),
                b']' | b'}' => depth = depth.checked_sub(1).ok_or_else(wrong)?,
                _ => {}
            }
        }
        Err(wrong())
    }

    fn end(&self) -> Result<()> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        if rest.trim_ascii().is_empty() { Ok(()) } else { Err(wrong()) }
    }
}

/// Decodes a value whose strings have at most `limit` bytes.
pub(super) fn value(item: &[u8], limit: usize) -> Result<Value> {
    let max_len = limit.to_u64().saturating_mul(ESCAPE_LEN);
    json::parse_value(item, "json2: an object", max_len).map_err(|error| match error.kind() {
        Kind::Corrupt => Error::corrupt(format!("json2: an object is {}", error.detail())),
        _ => error,
    })
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
