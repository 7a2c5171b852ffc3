//! The index of a shard: where each inner chunk lies.
//!
//! The `sharding_indexed` codec and the sharding transformer of the 2022 draft share it. They
//! differ only in where the index is and how it is encoded.
//!
//! ```text
//! | offset u64 LE | nbytes u64 LE |  x inner chunks, C order
//! missing inner chunk: both 2^64-1
//! ```
//!
//! Entries come from untrusted files, so every range is checked against the shard's length before
//! use. Offsets count from the start of the shard, even if the index is at the start.
//!
//! <https://zarr-specs.readthedocs.io/en/latest/v3/codecs/sharding-indexed/index.html>

use std::ops::Range;

use zarrfs_base::error::{Error, Result};

/// The length of an entry in bytes.
pub const ENTRY_LEN: usize = 16;

const MISSING: u64 = u64::MAX;

/// The bytes of an inner chunk in its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteSpan {
    /// The offset from the start of the shard.
    pub offset: u64,
    /// The length of the encoded inner chunk.
    pub len: u64,
}

/// The decoded index of a shard: one entry for each slot, in C order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardIndex(Box<[(u64, u64)]>);

impl ShardIndex {
    /// Parses decoded index bytes: little endian, without the index codecs.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let (entries, rest) = bytes.as_chunks::<ENTRY_LEN>();
        if !rest.is_empty() {
            return Err(Error::corrupt(format!("shard index of {} bytes", bytes.len())));
        }
        Ok(Self(entries.iter().map(|entry| split(*entry)).collect()))
    }

    /// Returns an index of `slots` missing inner chunks.
    pub fn empty(slots: usize) -> Self {
        Self(vec![(MISSING, MISSING); slots].into_boxed_slice())
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> usize {
        self.0.len()
    }

    /// Returns where the inner chunk of `slot` lies, `None` if it is missing. The shard has
    /// `shard_len` bytes; the index is at `index`.
    pub fn span(
        &self,
        slot: usize,
        shard_len: u64,
        index: &Range<u64>,
    ) -> Result<Option<ByteSpan>> {
        let Some(&(offset, len)) = self.0.get(slot) else {
            return Err(Error::corrupt(format!("shard index has no slot {slot}")));
        };
        if (offset, len) == (MISSING, MISSING) {
            return Ok(None);
        }
        let end = offset.checked_add(len).filter(|end| *end <= shard_len).ok_or_else(|| {
            Error::corrupt(format!(
                "shard index puts inner chunk {slot} at {offset}, {len} bytes long, in a shard of {shard_len}"
            ))
        })?;
        if len > 0 && offset < index.end && end > index.start {
            return Err(Error::corrupt(format!("inner chunk {slot} reaches into the shard index")));
        }
        Ok(Some(ByteSpan { offset, len }))
    }

    /// Whether the inner chunk of `slot` exists.
    pub fn is_present(&self, slot: usize) -> bool {
        self.0.get(slot).is_some_and(|entry| *entry != (MISSING, MISSING))
    }

    /// Whether all inner chunks are missing.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|entry| *entry == (MISSING, MISSING))
    }

    /// Sets where the inner chunk of `slot` lies; `None` if it is missing.
    pub(super) fn put(&mut self, slot: usize, span: Option<ByteSpan>) {
        if let Some(entry) = self.0.get_mut(slot) {
            *entry = span.map_or((MISSING, MISSING), |span| (span.offset, span.len));
        }
    }

    /// Returns the entries as bytes, before the index codecs.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0
            .iter()
            .flat_map(|(offset, len)| [offset.to_le_bytes(), len.to_le_bytes()])
            .flatten()
            .collect()
    }
}

fn split(entry: [u8; ENTRY_LEN]) -> (u64, u64) {
    let [a, b, c, d, e, f, g, h, rest @ ..] = entry;
    (u64::from_le_bytes([a, b, c, d, e, f, g, h]), u64::from_le_bytes(rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn index(entries: &[(u64, u64)]) -> ShardIndex {
        ShardIndex(entries.into())
    }

    #[test]
    fn the_example_of_the_draft_is_read() {
        let mut bytes = vec![0; 8];
        bytes.extend(3_u64.to_le_bytes());
        bytes.extend([0xff; 16]);
        let index = ShardIndex::parse(&bytes).expect("two entries");
        assert_eq!(index.span(0, 35, &(3..35)), Ok(Some(ByteSpan { offset: 0, len: 3 })));
        assert_eq!(index.span(1, 35, &(3..35)), Ok(None));
        assert_eq!(index.to_bytes(), bytes);
    }

    #[test]
    fn an_entry_that_lies_outside_is_damage_and_not_fill() {
        let cases = [(0, 36), (u64::MAX - 1, 5), (u64::MAX, 1), (1, u64::MAX), (34, 1), (2, 2)];
        for entry in cases {
            assert!(index(&[entry]).span(0, 35, &(3..35)).is_err(), "{entry:?}");
        }
        assert_eq!(
            index(&[(20, 0)]).span(0, 35, &(3..35)),
            Ok(Some(ByteSpan { offset: 20, len: 0 }))
        );
    }

    proptest! {
        #[test]
        fn no_index_makes_a_span_outside_of_the_shard(
            entries: Vec<(u64, u64)>, shard_len: u64, start: u64, slot in 0_usize..8,
        ) {
            let index_range = start.min(shard_len)..shard_len;
            if let Ok(Some(span)) = index(&entries).span(slot, shard_len, &index_range) {
                prop_assert!(span.offset.checked_add(span.len).is_some_and(|end| end <= shard_len));
            }
        }
    }
}
