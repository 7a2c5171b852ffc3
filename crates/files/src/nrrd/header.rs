//! The header of NRRD: lines of `field: value` and `key:=value`, up to an empty one.

use crate::lines::TextLines;
use crate::source::SourceFile;
use zarrfs_base::error::{Error, Result};

/// The most fields and keys.
const MAX_FIELDS: usize = 65_536;

/// A header.
#[derive(Debug, Default)]
pub struct NrrdHeader {
    /// Names in lower case and values, in their order.
    pub fields: Vec<(String, String)>,
    /// Keys of users, and values.
    pub keys: Vec<(String, String)>,
    /// Where the elements begin, if they are in this file.
    pub offset: u64,
}

impl NrrdHeader {
    /// Reads the header of a file.
    pub fn read(file: &SourceFile) -> Result<Self> {
        let mut lines = TextLines::new(file);
        let mut header = Self::default();
        lines.next()?;
        while let Some(line) = lines.next()? {
            if line.is_empty() {
                break;
            }
            if header.fields.len().saturating_add(header.keys.len()) > MAX_FIELDS {
                return Err(Error::too_large(format!("more than {MAX_FIELDS} fields of NRRD")));
            }
            if line.starts_with('#') {
                continue;
            }
            if let Some((key, value)) = line.split_once(":=") {
                header.keys.push((unescaped(key), unescaped(value)));
            } else if let Some((name, value)) = line.split_once(':') {
                let name = name.trim().to_ascii_lowercase();
                let is_list = matches!(name.as_str(), "data file" | "datafile")
                    && value.trim_start().starts_with("LIST");
                header.fields.push((name, value.trim().to_owned()));
                if is_list {
                    break;
                }
            } else {
                return Err(Error::corrupt(format!("a line of the header of NRRD: {line:?}")));
            }
        }
        header.offset = lines.at;
        Ok(header)
    }

    /// Returns a field by one of its names.
    pub fn field(&self, names: &[&str]) -> Option<&str> {
        let found = self.fields.iter().find(|(name, _)| names.contains(&name.as_str()));
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the words in quotes of a field.
    pub fn quoted(&self, names: &[&str]) -> Vec<String> {
        self.field(names).map(quoted).unwrap_or_default()
    }

    /// Returns the words of a field.
    pub fn words(&self, names: &[&str]) -> Vec<&str> {
        self.field(names).map(|value| value.split_whitespace().collect()).unwrap_or_default()
    }

    /// Returns the vectors of a field, `None` for one that is missing.
    pub fn vectors(&self, names: &[&str]) -> Vec<Option<Vec<f64>>> {
        self.field(names).map(vectors).unwrap_or_default()
    }
}

fn unescaped(text: &str) -> String {
    text.replace("\\n", "\n").replace("\\\\", "\\")
}

fn quoted(text: &str) -> Vec<String> {
    let (mut words, mut word, mut is_escaped) = (Vec::new(), None::<String>, false);
    for char in text.chars() {
        match (&mut word, char) {
            (Some(open), char) if is_escaped => {
                open.push(char);
                is_escaped = false;
            }
            (Some(_), '\\') => is_escaped = true,
            (Some(_), '"') => words.extend(word.take()),
            (Some(open), char) => open.push(char),
            (None, '"') => word = Some(String::new()),
            (None, _) => {}
        }
    }
    words
}

fn vectors(text: &str) -> Vec<Option<Vec<f64>>> {
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('(') {
            let (inner, after) = inner.split_once(')').unwrap_or((inner, ""));
            found.push(inner.split(',').map(|part| part.trim().parse().ok()).collect());
            rest = after.trim_start();
        } else {
            found.push(None);
            rest = rest.split_once(char::is_whitespace).map_or("", |(_, rest)| rest).trim_start();
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_and_words_in_quotes_are_read() {
        assert_eq!(
            vectors("(1,0.5) none ( 2 , 3 )"),
            [Some(vec![1.0, 0.5]), None, Some(vec![2.0, 3.0])]
        );
        assert_eq!(vectors("(1"), [Some(vec![1.0])]);
        assert_eq!(quoted(r#""mm" "" "a \"b\"" c"#), ["mm", "", "a \"b\""]);
    }
}
