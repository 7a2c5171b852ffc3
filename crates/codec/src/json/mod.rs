//! Parses metadata files as they are stored, which are not always strict JSON.
//!
//! Python writes the bare words `NaN`, `Infinity` and `-Infinity`, for which JSON has no number,
//! and also integers of any length and halves of surrogate pairs; some editors add a byte order
//! mark. This parser accepts all of these, while `serde_json` rejects such a file. A bare word
//! becomes a string, so that every value can be shown as strict JSON; the stored file keeps the
//! word, since [`Text`] changes only the members that an edit names.
//!
//! If there are duplicate members, the last one counts, as in Python, which wrote most of them.

pub mod foreign;
mod halves;
mod print;
mod same;
mod text;

use serde_json::{Map, Number, Value};

pub use halves::plain;
pub use print::{compact, pretty, pretty_object, quoted};
pub use same::{same, same_and_of_one_type};
pub use text::{MemberEdit, NewValue, Text};
use zarrfs_base::error::{Error, Result};
use zarrfs_base::limits;
use zarrfs_base::resources;
use zarrfs_base::width::ToU64;

/// A JSON object that keeps the order of its members.
pub type Object = Map<String, Value>;

/// The name of a metadata file in messages.
const METADATA_FILE: &str = "a metadata file";

/// In memory, an object takes as much as this many other values, without its members.
const VALUES_OF_OBJECT: usize = 10;

/// In memory, a member of an object, which has a name, takes as much as this many items of a list.
const VALUES_OF_MEMBER: usize = 4;

/// Parses a metadata file.
///
/// If a name occurs several times in an object, the last member counts. Numbers keep their
/// spelling.
pub fn parse(text: &[u8]) -> Result<Value> {
    let (text, start) = decode(text, limits::METADATA.get())?;
    Scanner::new(text, start).document()
}

/// Returns the most bytes of a metadata file to edit. This can be more than `limits::METADATA`,
/// because consolidated metadata are edited as a string without being parsed.
pub fn max_text_len() -> u64 {
    let least = limits::METADATA.get();
    (resources::memory_limit() / 16).clamp(least, least.max(256 << 20))
}

/// Fails if `text` is not valid. Builds no values, since there may be any number of them.
pub fn check(text: &[u8]) -> Result<()> {
    let (text, start) = decode(text, max_text_len())?;
    let mut scanner = Scanner::new(text, start);
    scanner.check()?;
    scanner.end()
}

/// Parses a string that is not the metadata file of a node, with limits of its own.
pub fn parse_within(text: &[u8], max_len: u64, max_values: usize) -> Result<Value> {
    let (text, start) = decode(text, max_len)?;
    let mut scanner = Scanner { max_values, object: 1, member: 1, ..Scanner::new(text, start) };
    scanner.document()
}

/// Parses a value of at most `max_len` bytes that is not a metadata file, with the limits of one
/// for its values. `what` names it in messages.
pub fn parse_value(text: &[u8], what: &'static str, max_len: u64) -> Result<Value> {
    let (text, start) = decode_as(what, text, max_len)?;
    Scanner { what, keeps_halves: false, ..Scanner::new(text, start) }.document()
}

/// Parses a metadata file, which must be an object, and returns its members.
pub fn parse_object(text: &[u8]) -> Result<Object> {
    match parse(text)? {
        Value::Object(members) => Ok(members),
        other @ (Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)) => {
            Err(Error::corrupt(format!("{}, expected an object", describe(&other))))
        }
    }
}

/// Describes a value for messages; prints short values in full.
pub fn describe(value: &Value) -> String {
    match value {
        Value::Object(members) if members.is_empty() => "{}".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::Array(items) if items.len() <= 8 => {
            let item = |item: &Value| match (item.as_array(), item.get("name")) {
                (Some(inner), _) => format!("a list of {}", inner.len()),
                (None, Some(Value::String(name))) => name.chars().take(80).collect(),
                (None, _) => describe(item),
            };
            format!("[{}]", items.iter().map(item).collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::String(text) if text.chars().count() > 80 => "a long string".to_owned(),
        Value::Number(number) if number.as_str().len() > 40 => "a long number".to_owned(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => compact(value),
    }
}

/// Describes a limit for the length of a metadata file.
fn described(max_len: u64) -> String {
    if max_len == limits::METADATA.get() {
        return limits::METADATA.to_string();
    }
    format!("the limit is {max_len} bytes")
}

/// Decodes UTF-8, and returns where the JSON begins: after a byte order mark, if there is one.
fn decode(text: &[u8], max_len: u64) -> Result<(&str, usize)> {
    decode_as(METADATA_FILE, text, max_len)
}

fn decode_as<'t>(what: &str, text: &'t [u8], max_len: u64) -> Result<(&'t str, usize)> {
    if text.len().to_u64() > max_len {
        return Err(Error::too_large(format!(
            "{what} of {} bytes, {}",
            text.len(),
            described(max_len)
        )));
    }
    let text = std::str::from_utf8(text).map_err(|error| {
        Error::corrupt(format!("not JSON: invalid UTF-8 at byte {}", error.valid_up_to()))
    })?;
    let start = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    Ok((text, start))
}

/// A reader of lenient JSON that keeps its position.
struct Scanner<'t> {
    /// The kind of string, for messages.
    what: &'static str,
    text: &'t str,
    at: usize,
    depth: usize,
    values: usize,
    max_values: usize,
    /// The number of values that an object counts as.
    object: usize,
    /// The number of values that a member of an object counts as.
    member: usize,
    /// Whether half of a surrogate pair stays what it is. If not, it becomes U+FFFD.
    keeps_halves: bool,
}

impl<'t> Scanner<'t> {
    fn new(text: &'t str, at: usize) -> Self {
        Self {
            what: METADATA_FILE,
            text,
            at,
            depth: 0,
            values: 0,
            max_values: limits::VALUES.get_usize(),
            object: VALUES_OF_OBJECT,
            member: VALUES_OF_MEMBER,
            keeps_halves: true,
        }
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Consumes `byte` if it is next.
    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<()> {
        if self.eat(byte) {
            Ok(())
        } else {
            Err(self.error(&format!("`{}` is missing", char::from(byte))))
        }
    }

    /// Consumes the end of an object or array, where a comma would have been another member.
    fn expect_end(&mut self, end: u8) -> Result<()> {
        if self.eat(end) {
            Ok(())
        } else {
            Err(self.error(&format!("`,` or `{}` is missing", char::from(end))))
        }
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn error(&self, wrong: &str) -> Error {
        let before = self.text.get(..self.at).unwrap_or(self.text);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Error::corrupt(format!("not JSON: {wrong} at line {line}, column {column}"))
    }

    fn document(&mut self) -> Result<Value> {
        let value = self.value()?;
        self.end()?;
        Ok(value)
    }

    fn end(&mut self) -> Result<()> {
        self.space();
        if self.at == self.text.len() {
            Ok(())
        } else {
            Err(self.error("unexpected characters after the end"))
        }
    }

    /// Checks the next value of a string that may be invalid, and skips it.
    fn check(&mut self) -> Result<()> {
        self.space();
        match self.peek() {
            Some(b'{') => self.members(|scanner, _, _| scanner.check()),
            Some(b'[') => self.items(Self::check),
            Some(b'"') => self.string().map(drop),
            Some(_) => self.scalar().map(drop),
            None => Err(self.error("a value is missing")),
        }
    }

    /// Skips white space and returns the next value.
    fn value(&mut self) -> Result<Value> {
        self.space();
        self.count(if self.peek() == Some(b'{') { self.object } else { 1 })?;
        match self.peek() {
            Some(b'{') => self.object(),
            Some(b'[') => self.list(),
            Some(b'"') => self.string().map(Value::String),
            Some(_) => self.scalar(),
            None => Err(self.error("a value is missing")),
        }
    }

    /// Counts values that will take memory.
    fn count(&mut self, values: usize) -> Result<()> {
        self.values += values;
        if self.values <= self.max_values {
            return Ok(());
        }
        let (most, name) = (self.max_values, limits::VALUES.name);
        let detail = format!("{} of more than {most} values (--limit {name}=N)", self.what);
        Err(Error::too_large(detail))
    }

    /// Skips the next value of a string that is known to be valid, and returns where it begins.
    fn skip(&mut self) -> usize {
        self.space();
        let start = self.at;
        let mut depth = 0_usize;
        while let Some(byte) = self.peek() {
            match byte {
                b'"' => self.skip_string(),
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                    continue;
                }
                b'}' | b']' if depth > 0 => {
                    depth -= 1;
                    self.at += 1;
                }
                b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r' if depth == 0 => break,
                _ => {
                    self.at += 1;
                    continue;
                }
            }
            if depth == 0 {
                break;
            }
        }
        start
    }

    /// Skips the rest of a number or a word, and returns where it ends.
    fn skip_scalar(&mut self) -> usize {
        let ends = |byte: u8| b" \t\n\r,:[]{}\"".contains(&byte);
        self.at += self.rest().bytes().position(ends).unwrap_or(self.rest().len()).max(1);
        self.at
    }

    fn skip_string(&mut self) {
        self.at += 1;
        while let Some(byte) = self.peek() {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                break;
            }
        }
    }

    fn object(&mut self) -> Result<Value> {
        let mut members = Map::new();
        self.members(|scanner, key, _| {
            // The value counts itself.
            scanner.count(scanner.member - 1)?;
            members.insert(key, scanner.value()?);
            Ok(())
        })?;
        Ok(Value::Object(members))
    }

    /// Calls `member` with the name of each member and its start; it must read the value.
    fn members(
        &mut self,
        mut member: impl FnMut(&mut Self, String, usize) -> Result<()>,
    ) -> Result<()> {
        self.enter()?;
        self.space();
        if !self.eat(b'}') {
            loop {
                self.space();
                let start = self.at;
                if self.peek() != Some(b'"') {
                    return Err(self.error("the name of a member is missing"));
                }
                let key = self.string()?;
                self.space();
                self.expect(b':')?;
                member(self, key, start)?;
                self.space();
                if !self.eat(b',') {
                    self.expect_end(b'}')?;
                    break;
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn list(&mut self) -> Result<Value> {
        let mut items = Vec::new();
        self.items(|scanner| {
            items.push(scanner.value()?);
            Ok(())
        })?;
        Ok(Value::Array(items))
    }

    /// Calls `item` for each item, which it must read.
    fn items(&mut self, mut item: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.enter()?;
        self.space();
        if !self.eat(b']') {
            loop {
                item(self)?;
                self.space();
                if !self.eat(b',') {
                    self.expect_end(b']')?;
                    break;
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Consumes the bracket.
    fn enter(&mut self) -> Result<()> {
        self.depth += 1;
        if limits::DEPTH.is_exceeded_by(self.depth) {
            return Err(
                self.error(&format!("objects or lists nested too deeply, {}", limits::DEPTH))
            );
        }
        self.at += 1;
        Ok(())
    }

    /// Returns a number or a word, bare words included.
    fn scalar(&mut self) -> Result<Value> {
        let words = [
            ("null", Value::Null),
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
            ("NaN", Value::String("NaN".to_owned())),
            ("Infinity", Value::String("Infinity".to_owned())),
            ("-Infinity", Value::String("-Infinity".to_owned())),
        ];
        for (word, value) in words {
            if self.rest().starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        let len = number_len(self.rest()).ok_or_else(|| self.error("expected a value"))?;
        let text = self.rest().get(..len).unwrap_or_default().to_owned();
        self.at += len;
        Ok(Value::Number(Number::from_string_unchecked(text)))
    }

    fn string(&mut self) -> Result<String> {
        self.at += 1;
        let mut string = String::new();
        loop {
            let rest = self.rest();
            let plain = rest
                .bytes()
                .position(|byte| byte == b'"' || byte == b'\\' || byte < 0x20)
                .unwrap_or(rest.len());
            string.push_str(rest.get(..plain).unwrap_or_default());
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    if foreign::has_foreign(&string) {
                        return Ok(foreign::shown(&string).into_owned());
                    }
                    return Ok(string);
                }
                Some(b'\\') => self.escape(&mut string)?,
                Some(_) => return Err(self.error("a control character inside a string")),
                None => return Err(self.error("a string does not end")),
            }
        }
    }

    /// Appends the character of an escape, or the half of a surrogate pair.
    fn escape(&mut self, string: &mut String) -> Result<()> {
        self.at += 1;
        let kind = self.peek();
        self.at += usize::from(kind.is_some());
        string.push(match kind {
            Some(plain @ (b'"' | b'\\' | b'/')) => char::from(plain),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let unit = self.unit()?;
                match char::from_u32(unit).or_else(|| self.low_surrogate(unit)) {
                    Some(whole) => whole,
                    None if self.keeps_halves => {
                        halves::push(string, unit);
                        return Ok(());
                    }
                    None => char::REPLACEMENT_CHARACTER,
                }
            }
            Some(_) | None => {
                self.at = self.at.saturating_sub(usize::from(kind.is_some()));
                return Err(self.error("an unknown escape"));
            }
        });
        Ok(())
    }

    /// Returns the character of the pair that `high` begins, if its second half is next.
    fn low_surrogate(&mut self, high: u32) -> Option<char> {
        let high = high.checked_sub(0xd800).filter(|high| *high < 0x400)?;
        let start = self.at;
        let low = self.rest().starts_with("\\u").then(|| {
            self.at += 2;
            self.unit().ok()
        });
        let low = low.flatten().and_then(|low| low.checked_sub(0xdc00)).filter(|low| *low < 0x400);
        if low.is_none() {
            self.at = start;
        }
        char::from_u32(0x1_0000 + high * 0x400 + low?)
    }

    fn unit(&mut self) -> Result<u32> {
        let digits =
            self.rest().get(..4).filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()));
        let unit = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let unit = unit.ok_or_else(|| self.error("four hexadecimal digits are missing"))?;
        self.at += 4;
        Ok(unit)
    }
}

/// Returns the length of the JSON number at the start of `text`.
fn number_len(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let digits =
        |from: usize| bytes.iter().skip(from).take_while(|byte| byte.is_ascii_digit()).count();
    let is = |at: usize, any: &[u8]| bytes.get(at).is_some_and(|byte| any.contains(byte));
    let mut len = usize::from(is(0, b"-"));
    let whole = digits(len);
    if whole == 0 || (whole > 1 && is(len, b"0")) {
        return None;
    }
    len += whole;
    if is(len, b".") {
        let fraction = digits(len + 1);
        if fraction == 0 {
            return None;
        }
        len += 1 + fraction;
    }
    if is(len, b"eE") {
        let sign = usize::from(is(len + 1, b"+-"));
        let exponent = digits(len + 1 + sign);
        if exponent == 0 {
            return None;
        }
        len += 1 + sign + exponent;
    }
    Some(len)
}

#[cfg(test)]
mod tests;
