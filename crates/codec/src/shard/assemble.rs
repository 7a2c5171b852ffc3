//! Lays out a shard: decides where each inner chunk lies.
//!
//! Only lengths are needed: the bytes of an unchanged inner chunk stay where they are until the
//! store copies them.

use super::index::{ByteSpan, ShardIndex};
use zarrfs_base::error::{Error, Result};

/// An inner chunk for a new shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InnerChunk {
    /// Its slot in the index.
    pub slot: usize,
    /// The length of its encoded form in bytes.
    pub len: u64,
}

/// Returns the index of a shard of `slots` in which `parts` follow one another in the given order.
/// They begin at the byte `start`: the length of an index at the beginning, 0 without one, or the
/// end of the bytes that stay in place. `placed` are inner chunks that stay in place.
pub fn assemble(
    slots: usize,
    placed: impl IntoIterator<Item = (usize, ByteSpan)>,
    parts: impl IntoIterator<Item = InnerChunk>,
    start: u64,
) -> Result<ShardIndex> {
    let mut index = ShardIndex::empty(slots);
    for (slot, span) in placed {
        index.put(slot, Some(span));
    }
    let mut offset = start;
    for InnerChunk { slot, len } in parts {
        index.put(slot, Some(ByteSpan { offset, len }));
        offset = offset
            .checked_add(len)
            .ok_or_else(|| Error::too_large("a shard of more than 2^64 bytes"))?;
    }
    Ok(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_one_another_after_an_index_that_comes_first() {
        let parts = [InnerChunk { slot: 2, len: 3 }, InnerChunk { slot: 0, len: 2 }];
        let index = assemble(4, [], parts, 68).expect("small");
        assert_eq!(index.span(2, 73, &(0..68)), Ok(Some(ByteSpan { offset: 68, len: 3 })));
        assert_eq!(index.span(0, 73, &(0..68)), Ok(Some(ByteSpan { offset: 71, len: 2 })));
        assert!(!index.is_present(1) && !index.is_present(3));
    }
}
