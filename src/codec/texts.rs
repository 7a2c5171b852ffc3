//! The form of a chunk with elements of variable length.
//!
//! ```text
//! u32 le  number of elements
//! u32 le  length of the first one
//! ..      its bytes, then the next length
//! ```
//!
//! `vlen-utf8` and `vlen-bytes` store this form.

use crate::error::{Error, Result};

/// Returns the elements of such a chunk. An error unless there are `count`.
pub fn items(chunk: &[u8], count: usize) -> Result<Vec<&[u8]>> {
    let short = || Error::corrupt(format!("strings: truncated after {} bytes", chunk.len()));
    let (stored, mut rest) = chunk.split_first_chunk().ok_or_else(short)?;
    let stored = u32::from_le_bytes(*stored);
    if usize::try_from(stored) != Ok(count) {
        return Err(Error::corrupt(format!("{stored} strings, the chunk needs {count}")));
    }
    // Each element has a length of four bytes in front.
    let mut items = Vec::with_capacity(count.min(rest.len() / 4));
    for _ in 0..count {
        let (len, after) = rest.split_first_chunk().ok_or_else(short)?;
        let len = usize::try_from(u32::from_le_bytes(*len)).map_err(|_| short())?;
        let (item, after) = after.split_at_checked(len).ok_or_else(short)?;
        items.push(item);
        rest = after;
    }
    if !rest.is_empty() {
        return Err(Error::corrupt(format!("{} bytes after the last string", rest.len())));
    }
    Ok(items)
}

/// Returns the chunk with these elements.
pub fn chunk<'i>(items: impl ExactSizeIterator<Item = &'i [u8]>) -> Result<Vec<u8>> {
    let mut writer = Writer::new(items.len(), usize::MAX)?;
    for item in items {
        writer.push(item)?;
    }
    Ok(writer.into_chunk())
}

/// Writes a chunk element by element.
#[derive(Debug)]
pub(in crate::codec) struct Writer {
    chunk: Vec<u8>,
    limit: usize,
}

impl Writer {
    /// Returns the writer of a chunk with `count` elements and at most `limit` bytes.
    pub fn new(count: usize, limit: usize) -> Result<Self> {
        let mut writer = Self { chunk: Vec::new(), limit };
        writer.number(count)?;
        Ok(writer)
    }

    /// Adds the next element.
    pub fn push(&mut self, item: &[u8]) -> Result<()> {
        let with_number = item.len().saturating_add(size_of::<u32>());
        if with_number > self.limit.saturating_sub(self.chunk.len()) {
            return Err(self.too_large());
        }
        self.number(item.len())?;
        self.chunk.extend_from_slice(item);
        Ok(())
    }

    /// Returns the chunk after the last element was added.
    pub fn into_chunk(self) -> Vec<u8> {
        self.chunk
    }

    fn number(&mut self, number: usize) -> Result<()> {
        let number = u32::try_from(number).map_err(|_| self.too_large())?;
        self.chunk.extend_from_slice(&number.to_le_bytes());
        Ok(())
    }

    /// Returns the error for a chunk that would be longer than the limit.
    pub fn too_large(&self) -> Error {
        Error::too_large(format!(
            "the strings of a chunk have more than {} bytes, the limit (--max-chunk-size)",
            self.limit
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_of_texts_is_that_of_vlen_utf8() {
        let bytes = [3, 0, 0, 0, 1, 0, 0, 0, 97, 2, 0, 0, 0, 0xc3, 0xa9, 0, 0, 0, 0];
        let texts = ["a", "\u{e9}", ""];
        let mut writer = Writer::new(3, 19).unwrap();
        for text in &texts {
            writer.push(text.as_bytes()).unwrap();
        }
        assert_eq!(writer.into_chunk(), bytes);
        assert!(Writer::new(1, 10).unwrap().push(b"abc").is_err());
        assert!(Writer::new(1, 7).unwrap().push(b"").is_err());
        assert!(Writer::new(1, 8).unwrap().push(b"").is_ok());
        assert_eq!(items(&bytes, 3).unwrap(), texts.map(str::as_bytes));
        assert!(items(&bytes, 2).is_err());
        for len in 0..bytes.len() {
            assert!(items(&bytes[..len], 3).is_err(), "{len}");
        }
        assert!(items(&[bytes.as_slice(), &[0]].concat(), 3).is_err());
        assert!(items(&[255, 255, 255, 255], 0xffff_ffff).is_err());
    }
}
