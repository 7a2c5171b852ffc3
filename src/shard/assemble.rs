//! Assembling a shard: the bytes of its inner chunks, back to back, and their index.
//!
//! The pieces are never copied into one buffer: an unchanged inner chunk stays the
//! slice of the old shard that it was.

use bytes::Bytes;

use super::index::{Index, Span};
use crate::error::{Error, Result};

/// An inner chunk for a new shard.
#[derive(Debug, Clone)]
pub struct Part {
    /// Its slot in the index.
    pub slot: usize,
    /// Its encoded bytes.
    pub bytes: Bytes,
}

/// A new shard without its encoded index.
#[derive(Debug)]
pub struct Assembled {
    /// Where everything lies.
    pub index: Index,
    /// The inner chunks, to be written one after another.
    pub pieces: Vec<Bytes>,
}

/// Lays `parts` out in the order given, from `start` bytes into the shard (the length of an
/// encoded index that comes first, else 0).
pub fn assemble(slots: usize, parts: Vec<Part>, start: u64) -> Result<Assembled> {
    let mut index = Index::empty(slots);
    let mut pieces = Vec::with_capacity(parts.len());
    let mut offset = start;
    for Part { slot, bytes } in parts {
        let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        index.put(slot, Some(Span { offset, len }));
        offset = offset
            .checked_add(len)
            .ok_or_else(|| Error::too_large("a shard of more than 2^64 bytes"))?;
        pieces.push(bytes);
    }
    Ok(Assembled { index, pieces })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_one_another_after_an_index_that_comes_first() {
        let parts = vec![
            Part { slot: 2, bytes: Bytes::from_static(b"abc") },
            Part { slot: 0, bytes: Bytes::from_static(b"de") },
        ];
        let shard = assemble(4, parts, 68).expect("small");
        let end = 68 + 5;
        assert_eq!(shard.index.span(2, end, &(0..68)), Ok(Some(Span { offset: 68, len: 3 })));
        assert_eq!(shard.index.span(0, end, &(0..68)), Ok(Some(Span { offset: 71, len: 2 })));
        assert!(!shard.index.is_present(1) && !shard.index.is_present(3));
        assert_eq!(shard.pieces.concat(), b"abcde");
    }
}
