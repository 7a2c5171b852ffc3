//! The decoded form of a chunk whose elements differ in length.
//!
//! ```text
//! u32 number of elements | u32 length, bytes | u32 length, bytes | ...      all little endian
//! ```
//!
//! A chunk has this form in memory and as a file. `vlen-utf8` and `vlen-bytes` store it unchanged.

use super::elements::ChunkType;
use crate::dtype::DType;
use zarrfs_base::buffer::reserve;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToUsize;

/// The length of a number.
const NUMBER_LEN: usize = 4;

/// The decoded form of a chunk with this number of elements.
#[derive(Debug, Clone, Copy)]
pub struct DecodedVlen {
    count: u32,
    /// Whether each element is a string in UTF-8.
    is_text: bool,
}

impl DecodedVlen {
    /// Returns the form of chunks of `elements`.
    pub fn new(elements: &ChunkType) -> Result<Self> {
        let is_text = match &elements.dtype {
            DType::String => true,
            DType::VariableBytes => false,
            other => {
                let detail = format!("elements of {} have a fixed length", other.name());
                return Err(Error::unsupported(detail));
            }
        };
        let count = u32::try_from(elements.count()?).map_err(|_| {
            Error::unsupported(format!(
                "a chunk of shape {:?} has too many elements",
                elements.shape
            ))
        })?;
        Ok(Self { count, is_text })
    }

    /// Returns the number of elements.
    pub(crate) fn count(self) -> usize {
        self.count.to_usize()
    }

    /// Returns the name of the codec with this form.
    pub(crate) fn name(self) -> &'static str {
        if self.is_text { "vlen-utf8" } else { "vlen-bytes" }
    }

    /// Returns an error with a reason if `bytes` are not a valid chunk.
    pub fn check(self, bytes: &[u8]) -> Result<(), String> {
        let wrong = |detail: String| Err(format!("{}: {detail}", self.name()));
        let Some((declared, mut rest)) = number(bytes) else {
            return wrong(format!("{} bytes, the element count needs {NUMBER_LEN}", bytes.len()));
        };
        if declared != self.count {
            return wrong(format!("{declared} elements declared, the chunk has {}", self.count));
        }
        for index in 0..self.count {
            let element =
                number(rest).and_then(|(len, rest)| rest.split_at_checked(len.to_usize()));
            let Some((element, behind)) = element else {
                return wrong(format!(
                    "truncated in element {index} of {}: only {} bytes left",
                    self.count,
                    rest.len()
                ));
            };
            if self.is_text && std::str::from_utf8(element).is_err() {
                return wrong(format!("element {index} is not UTF-8"));
            }
            rest = behind;
        }
        if rest.is_empty() {
            return Ok(());
        }
        wrong(format!("{} bytes follow the last of {} elements", rest.len(), self.count))
    }

    /// Returns a chunk in which every element holds `item`, of at most `limit` bytes.
    pub fn filled(self, item: &[u8], limit: u64) -> Result<Vec<u8>> {
        let element = element(item)?;
        let count = self.count.to_usize();
        let len = element.len().checked_mul(count).and_then(|len| len.checked_add(NUMBER_LEN));
        let len = len.filter(|len| u64::try_from(*len).is_ok_and(|len| len <= limit));
        let len = len.ok_or_else(|| {
            let detail = format!("{count} elements of {} bytes: the limit is {limit}", item.len());
            Error::too_large(detail)
        })?;
        let mut bytes = reserve(len)?;
        bytes.extend_from_slice(&self.count.to_le_bytes());
        for _ in 0..count {
            bytes.extend_from_slice(&element);
        }
        Ok(bytes)
    }

    /// Whether `bytes` are a chunk in which every element holds `item`.
    pub fn is_filled(self, bytes: &[u8], item: &[u8]) -> bool {
        let Ok(element) = element(item) else { return false };
        let count = self.count.to_usize();
        number(bytes).is_some_and(|(declared, rest)| {
            declared == self.count
                && element.len().checked_mul(count) == Some(rest.len())
                && rest.chunks_exact(element.len()).all(|found| found == element)
        })
    }
}

/// Returns the elements of a chunk in order, each with its length in front.
pub fn elements(chunk: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = number(chunk).map_or(&[][..], |(_, rest)| rest);
    std::iter::from_fn(move || {
        let (len, _) = number(rest)?;
        let len = len.to_usize().checked_add(NUMBER_LEN)?;
        let (element, behind) = rest.split_at_checked(len)?;
        rest = behind;
        Some(element)
    })
}

/// Splits off the number at the start of `bytes`.
fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<NUMBER_LEN>()?;
    Some((u32::from_le_bytes(*number), rest))
}

/// Returns the bytes of an element with its length in front.
fn element(item: &[u8]) -> Result<Vec<u8>> {
    let len = u32::try_from(item.len())
        .map_err(|_| Error::too_large(format!("an element of {} bytes", item.len())))?;
    Ok([&len.to_le_bytes(), item].concat())
}
