//! The tokens of a JSON file that is read in blocks.
//!
//! A string lies in the block, or is put together in a buffer if it has escapes. Tokens are
//! bounded; the file is not. `serde_json` can read a stream, too, but it does not bound a string,
//! and refuses the `NaN` that Python writes into inline metadata.

use bytes::Bytes;
use serde_json::value::RawValue;

use zarrfs_base::error::{Error, Result};

/// The longest token, in bytes: inline values are short, but some files have consolidated metadata.
const MAX_TOKEN_LEN: usize = 64 << 20;

/// The deepest nesting of a value that is kept as it is.
const MAX_DEPTH: usize = 64;

/// The blocks of a file.
pub(super) trait FileBlocks {
    /// Returns the next bytes; none at the end.
    fn next(&mut self) -> Result<Bytes>;
}

/// Reads tokens.
#[derive(Debug)]
pub(super) struct Lexer<B> {
    blocks: B,
    /// The bytes that were read.
    buffer: Vec<u8>,
    /// The position of the next byte in it.
    at: usize,
    /// The bytes of the file before the buffer.
    before: u64,
    is_at_end: bool,
    /// A string with escapes.
    unescaped: String,
}

impl<B: FileBlocks> Lexer<B> {
    /// Returns the tokens of a file.
    pub fn new(blocks: B) -> Self {
        let (buffer, unescaped) = (Vec::new(), String::new());
        Self { blocks, buffer, at: 0, before: 0, is_at_end: false, unescaped }
    }

    /// Returns an error at the next byte.
    fn expected(&self, what: &str) -> Error {
        let at = u64::try_from(self.at).map_or(u64::MAX, |at| self.before.saturating_add(at));
        match self.buffer.get(self.at) {
            None if self.is_at_end => {
                Error::corrupt(format!("the JSON ends early: expected {what}"))
            }
            _ => Error::corrupt(format!("invalid JSON at byte {at}: expected {what}")),
        }
    }

    /// Reads one more block, and keeps what was not read so far. Whether there was one.
    fn read_more(&mut self) -> Result<bool> {
        if self.is_at_end {
            return Ok(false);
        }
        if self.buffer.len().saturating_sub(self.at) > MAX_TOKEN_LEN {
            return Err(Error::too_large(format!(
                "a value in the JSON has more than {MAX_TOKEN_LEN} bytes"
            )));
        }
        let block = self.blocks.next()?;
        if block.is_empty() {
            self.is_at_end = true;
            return Ok(false);
        }
        self.before = u64::try_from(self.at).map_or(u64::MAX, |at| self.before.saturating_add(at));
        self.buffer.drain(..self.at);
        self.at = 0;
        self.buffer.extend_from_slice(&block);
        Ok(true)
    }

    /// Returns the first byte of the next token; `None` at the end of the file.
    pub fn peek(&mut self) -> Result<Option<u8>> {
        loop {
            let rest = self.buffer.get(self.at..).unwrap_or_default();
            let is_space = |byte: &u8| matches!(byte, b' ' | b'\n' | b'\r' | b'\t');
            let spaces = rest.iter().take_while(|byte| is_space(byte)).count();
            self.at = self.at.saturating_add(spaces);
            match self.buffer.get(self.at).copied() {
                Some(byte) => return Ok(Some(byte)),
                None if !self.read_more()? => return Ok(None),
                None => {}
            }
        }
    }

    fn take(&mut self, byte: u8, what: &str) -> Result<()> {
        if self.peek()? != Some(byte) {
            return Err(self.expected(what));
        }
        self.at = self.at.saturating_add(1);
        Ok(())
    }

    /// Reads the bracket that begins an object or a list.
    pub fn begin(&mut self, bracket: u8) -> Result<()> {
        self.take(bracket, if bracket == b'{' { "an object" } else { "a list" })
    }

    /// Whether an object or a list has another element: reads the comma before it, or the bracket
    /// at the end.
    pub fn has_next(&mut self, bracket: u8, is_first: &mut bool) -> Result<bool> {
        if self.peek()? == Some(bracket) {
            self.at = self.at.saturating_add(1);
            return Ok(false);
        }
        if !std::mem::take(is_first) {
            self.take(b',', "a comma")?;
        }
        Ok(true)
    }

    /// Reads the end of the file.
    pub fn end(&mut self) -> Result<()> {
        match self.peek()? {
            None => Ok(()),
            Some(_) => Err(self.expected("the end of the file")),
        }
    }

    /// Reads a name and the colon after it.
    pub fn key(&mut self) -> Result<&str> {
        let span = self.string_span()?;
        // The colon may be in the next block, which moves what is in the buffer.
        if self.buffer.get(self.at) == Some(&b':') {
            self.at = self.at.saturating_add(1);
            return self.text(span);
        }
        let text = self.text(span)?.to_owned();
        self.take(b':', "a colon")?;
        self.unescaped = text;
        Ok(&self.unescaped)
    }

    /// Reads a string.
    pub fn string(&mut self) -> Result<&str> {
        let span = self.string_span()?;
        self.text(span)
    }

    /// Reads a string, and returns where it lies, without its quotes, and whether it has escapes.
    fn string_span(&mut self) -> Result<StringSpan> {
        if self.peek()? != Some(b'"') {
            return Err(self.expected("a string"));
        }
        let (mut searched, mut has_escapes) = (1_usize, false);
        loop {
            let start = self.at.saturating_add(searched);
            let rest = self.buffer.get(start..).unwrap_or_default();
            let found = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'));
            let Some(at) = found.map(|at| start.saturating_add(at)) else {
                searched = self.buffer.len().saturating_sub(self.at);
                self.need_more()?;
                continue;
            };
            if self.buffer.get(at) == Some(&b'"') {
                let span = StringSpan { start: self.at.saturating_add(1), end: at, has_escapes };
                self.at = at.saturating_add(1);
                return Ok(span);
            }
            has_escapes = true;
            searched = at.saturating_sub(self.at).saturating_add(2);
            while self.buffer.len() < self.at.saturating_add(searched) {
                self.need_more()?;
            }
        }
    }

    fn need_more(&mut self) -> Result<()> {
        if self.read_more()? { Ok(()) } else { Err(self.expected("the end of a string")) }
    }

    fn text(&mut self, span: StringSpan) -> Result<&str> {
        let bytes = self.buffer.get(span.start..span.end).unwrap_or_default();
        if span.has_escapes {
            let quoted = self.buffer.get(span.start.saturating_sub(1)..span.end.saturating_add(1));
            let unescaped = serde_json::from_slice(quoted.unwrap_or_default());
            self.unescaped = unescaped.map_err(|_| self.expected("a valid string before it"))?;
            return Ok(&self.unescaped);
        }
        std::str::from_utf8(bytes).map_err(|_| self.expected("a string of UTF-8 before it"))
    }

    /// Reads an integer that is not negative.
    pub fn number(&mut self) -> Result<u64> {
        self.peek()?;
        let mut len = 0_usize;
        loop {
            let rest = self.buffer.get(self.at.saturating_add(len)..).unwrap_or_default();
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            len = len.saturating_add(digits);
            if digits < rest.len() || !self.read_more()? {
                break;
            }
        }
        let end = self.at.saturating_add(len);
        let digits = std::str::from_utf8(self.buffer.get(self.at..end).unwrap_or_default());
        let number = digits.ok().and_then(|digits| digits.parse().ok());
        let is_integer = !matches!(self.buffer.get(end), Some(b'.' | b'e' | b'E'));
        let what = "an integer from 0 to 2^64 - 1";
        let number = number.filter(|_| is_integer).ok_or_else(|| self.expected(what))?;
        self.at = end;
        Ok(number)
    }

    /// Reads an object or a list, and returns its JSON as it is.
    pub fn raw(&mut self) -> Result<&str> {
        let value: Result<&RawValue, _> = serde_json::from_slice(self.bracketed()?);
        value.map(RawValue::get).map_err(|error| Error::corrupt(format!("invalid JSON: {error}")))
    }

    /// Reads a value of any kind, and does not check that it is valid: Python writes `NaN`.
    #[cfg(feature = "parquet")]
    pub fn skip(&mut self) -> Result<()> {
        match self.peek()? {
            Some(b'"') => drop(self.string_span()?),
            Some(b'{' | b'[') => drop(self.bracketed()?),
            _ => loop {
                let rest = self.buffer.get(self.at..).unwrap_or_default();
                let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
                let len = rest.iter().take_while(|byte| is_word(byte)).count();
                let is_end = len < rest.len();
                self.at = self.at.saturating_add(len);
                if is_end || !self.read_more()? {
                    break;
                }
            },
        }
        Ok(())
    }

    /// Reads an object or a list up to its last bracket, and returns its bytes as they are.
    pub fn bracketed(&mut self) -> Result<&[u8]> {
        if !matches!(self.peek()?, Some(b'{' | b'[')) {
            return Err(self.expected("an object or a list"));
        }
        let (mut depth, mut searched, mut is_in_string, mut is_escaped) =
            (0_usize, 0, false, false);
        loop {
            let rest = self.buffer.get(self.at.saturating_add(searched)..).unwrap_or_default();
            let mut end = None;
            for byte in rest {
                searched = searched.saturating_add(1);
                match byte {
                    _ if is_escaped => is_escaped = false,
                    b'\\' if is_in_string => is_escaped = true,
                    b'"' => is_in_string = !is_in_string,
                    b'{' | b'[' if !is_in_string => depth = depth.saturating_add(1),
                    b'}' | b']' if !is_in_string => {
                        depth = depth.saturating_sub(1);
                        if depth == 0 {
                            end = Some(self.at.saturating_add(searched));
                            break;
                        }
                    }
                    _ => {}
                }
                if depth > MAX_DEPTH {
                    return Err(Error::corrupt(format!("a value is nested over {MAX_DEPTH} deep")));
                }
            }
            if let Some(end) = end {
                let start = std::mem::replace(&mut self.at, end);
                return Ok(self.buffer.get(start..end).unwrap_or_default());
            }
            if !self.read_more()? {
                return Err(self.expected("the end of a value"));
            }
        }
    }
}

/// Where a string lies in the buffer, without its quotes.
#[derive(Debug, Clone, Copy)]
struct StringSpan {
    start: usize,
    end: usize,
    has_escapes: bool,
}
