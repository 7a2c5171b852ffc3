//! The part of an array that is stored.

use std::sync::Arc;

use crate::array::Array;
use crate::cli::failure::Failure;
use crate::cli::output::size::{self, Sizes};
use crate::width::ToU64;

/// The stored chunks of an array.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct StoredChunks {
    /// The number of chunks, including those in shards.
    pub chunks: u64,
    /// The number of shards.
    pub shards: u64,
    /// The size of all stored values in bytes.
    pub len: u64,
    /// The number of chunks whose size is not known, because they may not be read.
    pub refused: u64,
}

impl StoredChunks {
    /// Lists the stored chunks.
    pub fn of(array: &Arc<Array>) -> Result<Self, Failure> {
        let mut stored = Self::default();
        // The inner chunks of a shard are listed one after another.
        let mut last = None;
        for coords in Arc::clone(array.chunks()).list()? {
            let coords = coords?;
            stored.chunks += 1;
            if array.is_sharded() {
                let shard = Some(array.key(&coords)?);
                if shard == last {
                    continue;
                }
                last = shard;
                stored.shards += 1;
            }
            match array.stored_len(&coords) {
                Ok(len) => stored.len = stored.len.saturating_add(len.unwrap_or_default()),
                Err(error) if error.is_lasting() => stored.refused += 1,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(stored)
    }
}

/// Returns the number of chunks in the grid of an array, `None` if it exceeds 64 bits.
pub fn chunks_of(array: &Array) -> Option<u64> {
    array.grid().counts().iter().try_fold(1_u64, |all, n| all.checked_mul(*n))
}

/// Returns the decoded size of an array in bytes; `None` if it depends on the elements, or exceeds
/// 64 bits.
pub fn len_of(array: &Array) -> Option<u64> {
    array.longest_chunk_len().exactly()?;
    let model = array.model();
    let item_len = model.dtype.item_len().to_u64();
    model.shape.iter().try_fold(item_len, |len, n| len.checked_mul(*n))
}

/// Describes the stored chunks in a line: `4 MiB stored in 1.2 MiB (3.3x), chunks 12 of 16 (75%)`.
pub fn line(array: &Array, stored: &StoredChunks, sizes: Sizes) -> String {
    let mut text = in_words(len_of(array), stored.len, sizes);
    if let Some(all) = chunks_of(array) {
        text.extend([", chunks ", &size::part(stored.chunks, all)]);
    }
    text
}

/// Describes a decoded and a stored size: `4 MiB stored in 1.2 MiB (3.3x)`.
pub fn in_words(decoded: Option<u64>, stored: u64, sizes: Sizes) -> String {
    let Some(decoded) = decoded else { return format!("stored in {}", sizes.text(stored)) };
    let ratio = size::ratio(decoded, stored).map_or(String::new(), |ratio| format!(" ({ratio})"));
    format!("{} stored in {}{ratio}", sizes.text(decoded), sizes.text(stored))
}
