//! Python's notation of strings, numbers, truth values, tuples, lists and dictionaries.

use serde_json::{Map, Value};

use zarrfs_base::error::{Error, Result};

/// The deepest nesting.
const MAX_DEPTH: usize = 32;

/// Parses a value. Tuples become lists.
pub fn parse(text: &str) -> Result<Value> {
    let mut parser = LiteralParser { rest: text };
    let value = parser.value(0)?;
    if parser.rest.trim().is_empty() { Ok(value) } else { Err(parser.wrong()) }
}

#[derive(Debug)]
struct LiteralParser<'t> {
    rest: &'t str,
}

impl LiteralParser<'_> {
    fn wrong(&self) -> Error {
        let start: String = self.rest.chars().take(20).collect();
        Error::corrupt(format!("not Python's notation of a value, from {start:?} on"))
    }

    fn take(&mut self, what: char) -> bool {
        self.rest = self.rest.trim_start();
        let after = self.rest.strip_prefix(what);
        if let Some(after) = after {
            self.rest = after;
        }
        after.is_some()
    }

    fn value(&mut self, depth: usize) -> Result<Value> {
        if depth > MAX_DEPTH {
            return Err(self.wrong());
        }
        self.rest = self.rest.trim_start();
        match self.rest.chars().next() {
            Some('{') => self.dictionary(depth),
            Some('(') => self.list('(', ')', depth),
            Some('[') => self.list('[', ']', depth),
            Some(quote @ ('\'' | '"')) => self.string(quote),
            _ => self.word(),
        }
    }

    fn dictionary(&mut self, depth: usize) -> Result<Value> {
        let mut members = Map::new();
        self.take('{');
        while !self.take('}') {
            let Value::String(key) = self.value(depth + 1)? else { return Err(self.wrong()) };
            if !self.take(':') {
                return Err(self.wrong());
            }
            let value = self.value(depth + 1)?;
            members.insert(key, value);
            if !self.take(',') && !self.rest.trim_start().starts_with('}') {
                return Err(self.wrong());
            }
        }
        Ok(Value::Object(members))
    }

    fn list(&mut self, open: char, close: char, depth: usize) -> Result<Value> {
        let mut items = Vec::new();
        self.take(open);
        while !self.take(close) {
            items.push(self.value(depth + 1)?);
            if !self.take(',') && !self.rest.trim_start().starts_with(close) {
                return Err(self.wrong());
            }
        }
        Ok(Value::Array(items))
    }

    fn string(&mut self, quote: char) -> Result<Value> {
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, char)) = chars.next() {
            if char == quote {
                self.rest = self.rest.get(at.saturating_add(1)..).unwrap_or_default();
                return Ok(Value::String(text));
            }
            // Names of fields are the only strings that may have escapes.
            text.push(if char == '\\' {
                chars.next().map_or('\\', |(_, next)| next)
            } else {
                char
            });
        }
        Err(self.wrong())
    }

    fn word(&mut self) -> Result<Value> {
        let is_word = |char: char| char.is_ascii_alphanumeric() || "_-+".contains(char);
        let len = self.rest.find(|char| !is_word(char)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at_checked(len).unwrap_or_default();
        let value = match word {
            "True" => Value::Bool(true),
            "False" => Value::Bool(false),
            "None" => Value::Null,
            // Python 2 wrote long integers.
            number => match number.trim_end_matches('L').parse::<u64>() {
                Ok(number) => Value::from(number),
                Err(_) => return Err(self.wrong()),
            },
        };
        self.rest = rest;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn headers_of_numpy_are_read() {
        for (text, value) in [
            (
                "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }  \n",
                json!({
                "descr": "<f4", "fortran_order": false, "shape": [3, 4]}),
            ),
            (
                "{'descr': [('a', '<i2'), ('b\\'', '|S3', (2,))], 'shape': (3L,)}",
                json!({
                "descr": [["a", "<i2"], ["b'", "|S3", [2]]], "shape": [3]}),
            ),
            ("()", json!([])),
        ] {
            assert_eq!(parse(text).expect("valid"), value);
        }
        for text in ["", "{", "{'a' 1}", "(1 2)", "'", "{1: 2}", "x", "1 1", "-1"] {
            parse(text).expect_err(text);
        }
        parse(&"(".repeat(100_000)).expect_err("deep");
    }

    proptest! {
        #[test]
        fn any_text_is_a_value_or_an_error(text in "[ \\[\\](){}'\",:a1TrueFalse\\\\]{0,40}") {
            drop(parse(&text));
        }
    }
}
