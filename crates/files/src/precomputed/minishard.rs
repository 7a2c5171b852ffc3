//! The index of a minishard: the chunks in it.
//!
//! ```text
//! u64 × n numbers of chunks | u64 × n gaps before chunks | u64 × n lengths
//! ```
//!
//! All is little endian. The numbers are differences to the one before. A gap begins at the end of
//! the chunk before, and the first one at the end of the index of the shard.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Map;

use super::sharding::Encoding;
use zarrfs_base::error::{Error, Fault, Kind, Result};
use zarrfs_base::width::ToUsize;
use zarrfs_codec::{CodecSpec, registry};

/// The bytes of a chunk in the index.
pub const ROW_LEN: usize = 24;

/// The most bytes of the index, stored and decoded: of 700,000 chunks.
pub const MAX_INDEX_LEN: u64 = 16 << 20;

/// The place of a chunk by the index of its minishard.
#[derive(Debug, Clone, Copy)]
pub struct ChunkRow {
    id: u64,
    /// The place in the shard.
    pub offset: u64,
    /// The length in bytes.
    pub len: u64,
}

/// Chunks of a minishard by number, in order.
pub type Rows = Arc<[ChunkRow]>;

/// Returns the error for an index that is too long.
pub fn too_long(number: u64) -> Error {
    let detail = format!(
        "the index of minishard {number} has more than {MAX_INDEX_LEN} bytes, the limit of zarrfs"
    );
    Error::limit(Kind::TooLarge, detail)
}

fn decode(encoding: Encoding, stored: Bytes) -> Result<Bytes> {
    if encoding == Encoding::Raw {
        return Ok(stored);
    }
    let spec = CodecSpec::new("gzip", Map::new());
    let mut bytes = stored;
    for codec in registry::bytes_to_bytes(&[spec])? {
        bytes = codec.decode(&bytes, MAX_INDEX_LEN.to_usize())?.into();
    }
    Ok(bytes)
}

/// Parses the stored index of a minishard in a shard of `shard_len` bytes, whose own index has
/// `index_len`.
pub fn parse(encoding: Encoding, stored: Bytes, index_len: u64, shard_len: u64) -> Result<Rows> {
    let index = decode(encoding, stored)?;
    let count = index.len() / ROW_LEN;
    if !index.len().is_multiple_of(ROW_LEN) {
        let len = index.len();
        let detail = format!("the index of a minishard has {len} bytes, and {ROW_LEN} for a chunk");
        return Err(Error::fault(Fault::Length, detail));
    }
    let words = index.as_chunks::<8>().0;
    let (ids, rest) = words.split_at(count.min(words.len()));
    let (gaps, lens) = rest.split_at(count.min(rest.len()));
    let mut rows = Vec::with_capacity(count);
    let (mut id, mut end) = (0_u64, index_len);
    for ((step, gap), len) in ids.iter().zip(gaps).zip(lens) {
        let (gap, len) = (u64::from_le_bytes(*gap), u64::from_le_bytes(*len));
        // Numbers may be in any order, so a difference may be negative.
        id = id.wrapping_add(u64::from_le_bytes(*step));
        // So may a gap.
        let offset = end.wrapping_add(gap);
        end = offset
            .checked_add(len)
            .filter(|end| *end <= shard_len && offset >= index_len)
            .ok_or_else(|| {
                Error::corrupt(format!(
                    "chunk {id} of the shard has {len} bytes from byte {offset}, and the shard \
                     {shard_len}"
                ))
            })?;
        rows.push(ChunkRow { id, offset, len });
    }
    rows.sort_unstable_by_key(|row| row.id);
    let mut pairs = rows.iter().zip(rows.iter().skip(1));
    if let Some((twice, _)) = pairs.find(|(one, two)| one.id == two.id) {
        return Err(Error::corrupt(format!("chunk {} is twice in a shard", twice.id)));
    }
    Ok(rows.into())
}

/// Returns the chunk with this number.
pub fn find(rows: &[ChunkRow], id: u64) -> Option<ChunkRow> {
    let at = rows.binary_search_by_key(&id, |row| row.id).ok()?;
    rows.get(at).copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn index(words: &[u64]) -> Bytes {
        words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>().into()
    }

    #[test]
    fn numbers_and_gaps_are_differences() {
        let words = [7, 3, 1, 0, 5, 0, 10, 20, 30];
        let rows = parse(Encoding::Raw, index(&words), 16, 1000).expect("valid");
        for (id, offset, len) in [(7, 16, 10), (10, 31, 20), (11, 51, 30)] {
            let row = find(&rows, id).expect("there");
            assert_eq!((row.offset, row.len), (offset, len));
        }
        assert!(find(&rows, 8).is_none() && find(&rows, 0).is_none());
        assert!(parse(Encoding::Raw, Bytes::new(), 16, 16).expect("empty").is_empty());
    }

    #[test]
    fn chunks_may_be_in_any_order() {
        // The second has the lower number and lies before the first.
        let words = [9, 4_u64.wrapping_sub(9), 100, 0_u64.wrapping_sub(60), 20, 30];
        let rows = parse(Encoding::Raw, index(&words), 16, 1000).expect("valid");
        assert_eq!(find(&rows, 9).expect("there").offset, 116);
        assert_eq!(find(&rows, 4).expect("there").offset, 76);
    }

    #[test]
    fn a_chunk_outside_of_the_shard_is_an_error() {
        for words in [
            &[1, 0, 985][..],
            &[1, 985, 0],
            &[1, u64::MAX, 1],
            &[1, 0, u64::MAX],
            &[1, 0, 0, 0, 1, 1],
            &[1, 0, 1, 1],
        ] {
            parse(Encoding::Raw, index(words), 16, 1000).expect_err("outside, or twice");
        }
        parse(Encoding::Gzip, index(&[1, 0, 1]), 16, 1000).expect_err("no gzip");
    }

    proptest! {
        #[test]
        fn all_chunks_lie_in_the_shard(
            words in prop::collection::vec(prop_oneof![0..40_u64, any::<u64>()], 0..12),
        ) {
            if let Ok(rows) = parse(Encoding::Raw, index(&words), 16, 100) {
                for row in rows.iter() {
                    prop_assert!(row.offset >= 16 && row.offset + row.len <= 100);
                }
            }
        }
    }
}
