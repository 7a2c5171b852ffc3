//! The lines of a header that is a text.

use crate::json;
use crate::source::SourceFile;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToU64;

/// The longest header, and the longest line in it.
const MAX_HEADER_LEN: u64 = 16 << 20;
const MAX_LINE_LEN: usize = 1 << 20;

/// How many bytes are read at a time.
const STEP: usize = 4096;

/// Reads the lines of a file.
#[derive(Debug)]
pub struct TextLines<'f> {
    file: &'f SourceFile,
    /// Where the next line begins.
    pub at: u64,
}

impl<'f> TextLines<'f> {
    /// Begins at the first line.
    pub fn new(file: &'f SourceFile) -> Self {
        Self { file, at: 0 }
    }

    /// Returns the next line without its end; `None` at the end of the file.
    pub fn next(&mut self) -> Result<Option<String>> {
        if self.at >= self.file.len() {
            return Ok(None);
        }
        if self.at > MAX_HEADER_LEN {
            return Err(Error::too_large(format!("a header of more than {MAX_HEADER_LEN} bytes")));
        }
        let mut line = Vec::new();
        loop {
            let found = self.file.read_up_to(self.at, STEP)?;
            let end = found.iter().position(|byte| *byte == b'\n');
            line.extend_from_slice(found.get(..end.unwrap_or(found.len())).unwrap_or_default());
            let taken = end.map_or(found.len(), |end| end.saturating_add(1));
            self.at = self.at.saturating_add(taken.to_u64());
            if line.len() > MAX_LINE_LEN {
                return Err(Error::corrupt(format!("a header line of over {MAX_LINE_LEN} bytes")));
            }
            if end.is_some() || found.is_empty() {
                let text = json::text(&line);
                return Ok(Some(text.trim_end_matches('\r').to_owned()));
            }
        }
    }

    /// Goes on after `count` more lines, whatever is in them.
    pub fn skip(&mut self, count: u64) -> Result<()> {
        for _ in 0..count {
            let before = self.at;
            self.next()?;
            if self.at == before {
                return Err(Error::corrupt(format!("the file has fewer than {count} lines")));
            }
        }
        Ok(())
    }
}

/// Returns the numbers in a text, with white space between them.
pub fn numbers<T: std::str::FromStr>(text: &str) -> Option<Vec<T>> {
    text.split_whitespace().map(|word| word.parse().ok()).collect()
}
