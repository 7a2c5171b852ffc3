//! Prints values as JSON, with all that a string of a metadata file can contain.

use serde_json::{Map, Value};

use super::halves::escaped;

/// Returns a value on one line.
pub fn compact(value: &Value) -> String {
    escaped(value.to_string())
}

/// Returns a value on several lines.
pub fn pretty(value: &Value) -> String {
    escaped(format!("{value:#}"))
}

/// Returns an object on several lines, without a copy of it, which may take far more memory than
/// the string.
pub fn pretty_object(object: &Map<String, Value>) -> String {
    // Writing to memory does not fail.
    escaped(serde_json::to_string_pretty(object).unwrap_or_default())
}

/// Returns a name or another string with its quotes.
pub fn quoted(text: &str) -> String {
    compact(&Value::from(text))
}
