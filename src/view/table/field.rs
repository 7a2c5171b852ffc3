//! A value of a table, as text.

use serde_json::Value;

/// A value of a table.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::view) enum TableField {
    /// There is none.
    Missing,
    /// A number, as text.
    Number(String),
    /// A Boolean value.
    Bool(bool),
    /// A text, or a time.
    Text(String),
}

impl TableField {
    pub fn in_csv(&self) -> String {
        match self {
            Self::Missing => String::new(),
            Self::Number(text) => text.clone(),
            // R takes only these for logical values; pandas, polars and DuckDB read them, too.
            Self::Bool(true) => "TRUE".to_owned(),
            Self::Bool(false) => "FALSE".to_owned(),
            Self::Text(text) => csv_text(text),
        }
    }

    pub fn in_json(&self) -> String {
        match self {
            Self::Missing => "null".to_owned(),
            // JSON has no infinite numbers.
            Self::Number(text) if text.ends_with("inf") => format!("\"{text}\""),
            Self::Number(text) => text.clone(),
            Self::Bool(value) => value.to_string(),
            Self::Text(text) => Value::from(text.as_str()).to_string(),
        }
    }
}

/// Returns a text as a field of CSV.
pub(super) fn csv_text(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) || text.trim() != text || text.is_empty() {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.to_owned()
}
