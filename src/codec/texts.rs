//! Elements that have lengths of their own, as a chunk of them is shown.
//!
//! ```text
//! u32 le  number of elements
//! u32 le  length of the first one
//! ..      its bytes, then the next length
//! ```
//!
//! What `vlen-utf8` and `vlen-bytes` store is the same.

use super::reserve;
use crate::error::{Error, Result};

/// The elements of such a chunk, of which there must be `count`.
pub(in crate::codec) fn items(chunk: &[u8], count: usize) -> Result<Vec<&[u8]>> {
    let short = || Error::corrupt(format!("a chunk of texts ends after {} bytes", chunk.len()));
    let (stored, mut rest) = chunk.split_first_chunk().ok_or_else(short)?;
    let stored = u32::from_le_bytes(*stored);
    if usize::try_from(stored) != Ok(count) {
        return Err(Error::corrupt(format!("{stored} texts, the chunk needs {count}")));
    }
    // Each has a length of four bytes.
    let mut items = Vec::with_capacity(count.min(rest.len() / 4));
    for _ in 0..count {
        let (len, after) = rest.split_first_chunk().ok_or_else(short)?;
        let len = usize::try_from(u32::from_le_bytes(*len)).map_err(|_| short())?;
        let (item, after) = after.split_at_checked(len).ok_or_else(short)?;
        items.push(item);
        rest = after;
    }
    if !rest.is_empty() {
        return Err(Error::corrupt(format!("{} bytes after the last text", rest.len())));
    }
    Ok(items)
}

/// The chunk of these elements, which has at most `limit` bytes.
pub(in crate::codec) fn chunk<T: AsRef<[u8]>>(items: &[T], limit: usize) -> Result<Vec<u8>> {
    let len = items.iter().try_fold(4_usize, |len, item| {
        len.checked_add(4)?.checked_add(item.as_ref().len()).filter(|len| *len <= limit)
    });
    let too_large = || Error::too_large(format!("a chunk of texts of more than {limit} bytes"));
    let mut chunk = reserve(len.ok_or_else(too_large)?)?;
    let number = |len: usize| u32::try_from(len).map(u32::to_le_bytes).map_err(|_| too_large());
    chunk.extend_from_slice(&number(items.len())?);
    for item in items {
        chunk.extend_from_slice(&number(item.as_ref().len())?);
        chunk.extend_from_slice(item.as_ref());
    }
    Ok(chunk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_of_texts_is_that_of_vlen_utf8() {
        let bytes = [3, 0, 0, 0, 1, 0, 0, 0, 97, 2, 0, 0, 0, 0xc3, 0xa9, 0, 0, 0, 0];
        let texts = ["a", "\u{e9}", ""];
        assert_eq!(chunk(&texts, 19).unwrap(), bytes);
        assert!(chunk(&texts, 18).is_err());
        assert_eq!(items(&bytes, 3).unwrap(), texts.map(str::as_bytes));
        assert!(items(&bytes, 2).is_err());
        for len in 0..bytes.len() {
            assert!(items(&bytes[..len], 3).is_err(), "{len}");
        }
        assert!(items(&[bytes.as_slice(), &[0]].concat(), 3).is_err());
        assert!(items(&[255, 255, 255, 255], 0xffff_ffff).is_err());
    }
}
