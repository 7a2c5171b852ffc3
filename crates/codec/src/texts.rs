//! The form of a chunk with elements of variable length.
//!
//! ```text
//! u32 le  number of elements
//! u32 le  length of the first one
//! ..      its bytes, then the next length
//! ```
//!
//! `vlen-utf8` and `vlen-bytes` store this form.

use std::ops::Range;

use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToUsize;

/// The length of a number.
const NUMBER_LEN: usize = size_of::<u32>();

/// The number of elements from one known place to the next.
const STEP: usize = 16;

/// The places of the elements in such a chunk. They take half a byte for each element: a chunk may
/// have many millions of empty ones, and a slice of each would take four times the chunk.
#[derive(Debug, Clone)]
pub struct TextOffsets {
    count: usize,
    /// The offset of each [`STEP`]th element, with its length in front.
    known: Vec<usize>,
}

impl TextOffsets {
    /// Returns the places of the elements of `chunk`. An error unless there are `count`.
    pub fn of(chunk: &[u8], count: usize) -> Result<Self> {
        let short = || Error::corrupt(format!("strings: truncated after {} bytes", chunk.len()));
        let (stored, mut rest) = chunk.split_first_chunk().ok_or_else(short)?;
        let stored = u32::from_le_bytes(*stored);
        if usize::try_from(stored) != Ok(count) {
            return Err(Error::corrupt(format!("{stored} strings, the chunk needs {count}")));
        }
        let mut known = Vec::with_capacity(count.min(rest.len() / NUMBER_LEN).div_ceil(STEP));
        for index in 0..count {
            if index.is_multiple_of(STEP) {
                known.push(chunk.len().saturating_sub(rest.len()));
            }
            (_, rest) = split(rest).ok_or_else(short)?;
        }
        if !rest.is_empty() {
            return Err(Error::corrupt(format!("{} bytes after the last string", rest.len())));
        }
        Ok(Self { count, known })
    }

    /// Returns the number of elements.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the element with this index in the same chunk.
    pub fn get<'c>(&self, chunk: &'c [u8], index: usize) -> Option<&'c [u8]> {
        self.from(chunk, index).next()
    }

    /// Returns the elements of the same chunk from this index on.
    pub fn from<'c>(
        &self,
        chunk: &'c [u8],
        index: usize,
    ) -> impl Iterator<Item = &'c [u8]> + use<'c> {
        let known = self.known.get(index / STEP).filter(|_| index < self.count);
        let mut rest = known.and_then(|at| chunk.get(*at..)).unwrap_or_default();
        for _ in 0..index % STEP {
            rest = split(rest).map_or(&[][..], |(_, rest)| rest);
        }
        std::iter::from_fn(move || {
            let (item, after) = split(rest)?;
            rest = after;
            Some(item)
        })
    }
}

/// Splits off the first element.
fn split(elements: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = elements.split_first_chunk::<NUMBER_LEN>()?;
    rest.split_at_checked(u32::from_le_bytes(*len).to_usize())
}

/// The elements of a chunk.
#[derive(Debug, Clone)]
pub struct TextItems<'c> {
    chunk: &'c [u8],
    places: TextOffsets,
}

impl<'c> TextItems<'c> {
    /// Returns the element with this index.
    pub fn get(&self, index: usize) -> Option<&'c [u8]> {
        self.places.get(self.chunk, index)
    }

    /// Returns all elements.
    pub fn all(&self) -> impl Iterator<Item = &'c [u8]> + use<'c> {
        self.places.from(self.chunk, 0)
    }

    /// Returns the elements in this range of indices, `None` if there are not as many.
    pub fn range(&self, range: Range<usize>) -> Option<impl Iterator<Item = &'c [u8]> + use<'c>> {
        let len = range.end.checked_sub(range.start).filter(|_| range.end <= self.places.count)?;
        Some(self.places.from(self.chunk, range.start).take(len))
    }
}

/// Returns the elements of such a chunk. An error unless there are `count`.
pub fn items(chunk: &[u8], count: usize) -> Result<TextItems<'_>> {
    Ok(TextItems { chunk, places: TextOffsets::of(chunk, count)? })
}

/// Returns the chunk with these elements.
pub fn chunk<'i>(items: impl ExactSizeIterator<Item = &'i [u8]>) -> Result<Vec<u8>> {
    let mut writer = TextWriter::new(items.len(), usize::MAX)?;
    for item in items {
        writer.push(item)?;
    }
    Ok(writer.into_chunk())
}

/// Writes a chunk element by element.
#[derive(Debug)]
pub(crate) struct TextWriter {
    chunk: Vec<u8>,
    limit: usize,
}

impl TextWriter {
    /// Returns the writer of a chunk with `count` elements and at most `limit` bytes. An error if
    /// even empty elements would have more.
    pub fn new(count: usize, limit: usize) -> Result<Self> {
        let mut writer = Self { chunk: Vec::new(), limit };
        if count >= (limit / NUMBER_LEN).max(1) {
            return Err(writer.too_large());
        }
        writer.number(count)?;
        Ok(writer)
    }

    /// Adds the next element.
    pub fn push(&mut self, item: &[u8]) -> Result<()> {
        let with_number = item.len().saturating_add(NUMBER_LEN);
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
        let mut writer = TextWriter::new(3, 19).unwrap();
        for text in &texts {
            writer.push(text.as_bytes()).unwrap();
        }
        assert_eq!(writer.into_chunk(), bytes);
        assert!(TextWriter::new(1, 10).unwrap().push(b"abc").is_err());
        assert!(TextWriter::new(2, 12).unwrap().push(b"abcd").is_ok());
        assert!(TextWriter::new(2, 11).is_err() && TextWriter::new(1, 7).is_err());
        assert!(TextWriter::new(1, 8).unwrap().push(b"").is_ok());
        let all: Vec<&[u8]> = items(&bytes, 3).unwrap().all().collect();
        assert_eq!(all, texts.map(str::as_bytes));
        assert!(items(&bytes, 2).is_err());
        for len in 0..bytes.len() {
            assert!(items(&bytes[..len], 3).is_err(), "{len}");
        }
        assert!(items(&[bytes.as_slice(), &[0]].concat(), 3).is_err());
        assert!(items(&[255, 255, 255, 255], 0xffff_ffff).is_err());
    }
    #[test]
    fn each_element_is_found_and_an_empty_one_takes_less_than_a_byte() {
        let texts: Vec<String> = (0..1000).map(|n: usize| "x".repeat(n * 7 % 40)).collect();
        let stored = chunk(texts.iter().map(String::as_bytes)).unwrap();
        let found = items(&stored, 1000).unwrap();
        for (index, text) in texts.iter().enumerate() {
            assert_eq!(found.get(index), Some(text.as_bytes()), "{index}");
        }
        assert!(found.get(1000).is_none() && found.get(usize::MAX).is_none());
        for range in [0..0, 0..1000, 15..17, 16..16, 999..1000, 1000..1000] {
            let part: Vec<&[u8]> = found.range(range.clone()).unwrap().collect();
            let expected: Vec<&[u8]> = texts[range].iter().map(String::as_bytes).collect();
            assert_eq!(part, expected);
        }
        assert!(found.range(999..1001).is_none());
        let count = 1_000_000;
        let empty = chunk(std::iter::repeat_n(&[][..], count)).unwrap();
        let places = TextOffsets::of(&empty, count).unwrap();
        assert!(places.known.capacity() * size_of::<usize>() < count);
        assert_eq!(places.from(&empty, 0).count(), count);
    }
}
