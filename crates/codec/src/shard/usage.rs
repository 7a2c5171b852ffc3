//! How the index of a shard uses its bytes: entries that no reader can use, bytes that several
//! entries share, and bytes that no entry uses.

use std::ops::Range;

use super::index::{ByteSpan, ShardIndex};
use zarrfs_base::error::Error;

/// The usage of the bytes of a shard.
#[derive(Debug)]
pub struct Usage {
    /// The slots whose inner chunks lie in the shard.
    pub present: Vec<usize>,
    /// The slots whose entry lies outside the shard or inside its index.
    pub outside: Vec<(usize, Error)>,
    /// Pairs of slots that share some of their bytes, but not all.
    pub overlapping: Vec<(usize, usize)>,
    /// The number of bytes that belong neither to an inner chunk nor to the index.
    pub unused_len: u64,
}

impl Usage {
    /// Returns the usage of a shard of `shard_len` bytes with its index at `index_at`.
    pub fn of(index: &ShardIndex, shard_len: u64, index_at: &Range<u64>) -> Self {
        let mut usage = Self {
            present: Vec::new(),
            outside: Vec::new(),
            overlapping: Vec::new(),
            unused_len: 0,
        };
        let mut spans: Vec<(ByteSpan, usize)> = Vec::new();
        for slot in 0..index.slots() {
            match index.span(slot, shard_len, index_at) {
                Ok(None) => {}
                Ok(Some(span)) => {
                    usage.present.push(slot);
                    spans.push((span, slot));
                }
                Err(error) => usage.outside.push((slot, error)),
            }
        }
        spans.sort_unstable_by_key(|(span, slot)| (span.offset, span.len, *slot));
        let mut used_len = index_at.end.saturating_sub(index_at.start);
        // The end of all spans so far, and the span that ends there.
        let mut last: Option<(u64, ByteSpan, usize)> = None;
        for (span, slot) in spans {
            let end = span.offset.saturating_add(span.len);
            let Some((far, of, by)) = last else {
                used_len = used_len.saturating_add(span.len);
                last = Some((end, span, slot));
                continue;
            };
            // Equal chunks may be stored once.
            if span.offset < far && span.len > 0 && span != of {
                usage.overlapping.push((by, slot));
            }
            used_len = used_len.saturating_add(end.saturating_sub(far.max(span.offset)));
            if end >= far {
                last = Some((end, span, slot));
            }
        }
        usage.unused_len = shard_len.saturating_sub(used_len);
        usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An index of entries `(offset, len)`.
    fn index(entries: &[(u64, u64)]) -> ShardIndex {
        let bytes: Vec<u8> = entries
            .iter()
            .flat_map(|(offset, len)| [offset.to_le_bytes(), len.to_le_bytes()])
            .flatten()
            .collect();
        ShardIndex::parse(&bytes).expect("whole entries")
    }

    const NONE: (u64, u64) = (u64::MAX, u64::MAX);

    #[test]
    fn bytes_of_no_entry_are_unused_and_those_of_two_overlap() {
        let usage = |entries: &[(u64, u64)]| Usage::of(&index(entries), 100, &(90..100));
        let full = usage(&[(0, 40), NONE, (40, 50)]);
        assert_eq!((full.present.as_slice(), full.unused_len), (&[0, 2][..], 0));
        assert!(full.outside.is_empty() && full.overlapping.is_empty());
        assert_eq!(usage(&[(10, 10), (30, 60)]).unused_len, 20);
        assert_eq!(usage(&[NONE]).unused_len, 90);
        let overlapping = usage(&[(0, 50), (40, 10), (49, 41)]);
        assert_eq!(overlapping.overlapping, [(0, 1), (1, 2)]);
        assert_eq!(overlapping.unused_len, 0);
        let shared = usage(&[(0, 45), (0, 45), (45, 45)]);
        assert!(shared.overlapping.is_empty() && shared.unused_len == 0);
        let outside = usage(&[(0, 90), (95, 2), (50, 51), (u64::MAX, 1)]);
        let slots: Vec<usize> = outside.outside.iter().map(|(slot, _)| *slot).collect();
        assert_eq!((slots.as_slice(), outside.present.as_slice()), (&[1, 2, 3][..], &[0][..]));
        let empty = usage(&[(0, 0), (0, 90)]);
        assert!(empty.overlapping.is_empty());
    }
}
