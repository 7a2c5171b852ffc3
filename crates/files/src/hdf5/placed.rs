//! The chunks of data sets that others show parts of, as all sources give them.

use serde_json::Value;

use super::types::StoredType;
use zarrfs_base::error::{Error, Result};

/// The most chunks of one virtual data set, with the runs of elements of its mappings.
const MAX_CHUNKS: usize = 1 << 21;

/// How often chunks are looked for to put all virtual data sets of a file together.
const MAX_STEPS: u64 = 1 << 27;

/// The number of the file of a chunk that was read.
pub const INLINE: u32 = u32::MAX;

/// A chunk at its place in the grid, and where its bytes are.
#[derive(Debug, Clone, Copy)]
pub struct PlacedChunk {
    /// Its number in the grid, in C order.
    pub number: u64,
    /// The file, or [`INLINE`].
    pub file: u32,
    /// Where it begins; of a chunk that was read, its number among these.
    pub offset: u64,
    /// Its bytes.
    pub len: u64,
    /// How many of them belong to the array.
    pub needed: u64,
}

/// Where the values of a source are.
#[derive(Debug)]
pub enum SourcePlaces {
    /// One after the other.
    Contiguous {
        /// The file.
        file: u32,
        /// Where they begin.
        offset: u64,
    },
    /// In chunks.
    Chunks {
        /// The shape of each.
        shape: Vec<u64>,
        /// Those that are stored, by their numbers; no two have the same.
        stored: Vec<PlacedChunk>,
    },
    /// Nowhere: all are the fill value.
    Nowhere,
}

/// A data set with values.
#[derive(Debug)]
pub struct SourceSet {
    /// The shape, with the dimensions of elements.
    pub shape: Vec<u64>,
    /// The type.
    pub stored: StoredType,
    /// The codecs after `bytes`.
    pub filters: Vec<Value>,
    /// An element that was not stored.
    pub fill: Value,
    /// Where the values are.
    pub places: SourcePlaces,
}

/// How many chunks of a virtual data set were found, and runs of elements.
#[derive(Debug, Default)]
pub struct ChunkCount {
    count: usize,
    /// How often a chunk was looked for, for all virtual data sets of a file.
    steps: u64,
}

impl ChunkCount {
    /// Notes that there are so many more.
    pub fn add(&mut self, count: usize) -> Result<()> {
        self.count = self.count.saturating_add(count);
        if self.count > MAX_CHUNKS {
            let detail =
                format!("a virtual data set of more than {MAX_CHUNKS} chunks and runs of elements");
            return Err(Error::unsupported(detail));
        }
        Ok(())
    }

    /// Notes that chunks are looked for so many times.
    pub fn step(&mut self, count: u64) -> Result<()> {
        self.steps = self.steps.saturating_add(count);
        if self.steps > MAX_STEPS {
            let detail = format!("virtual data sets whose chunks take more than {MAX_STEPS} steps");
            return Err(Error::unsupported(detail));
        }
        Ok(())
    }

    /// Begins another virtual data set of the file.
    pub fn clear(&mut self) {
        self.count = 0;
    }
}

/// Returns chunks in the order of their numbers. Of those with one number, the last one stays.
pub fn by_number(mut chunks: Vec<PlacedChunk>) -> Vec<PlacedChunk> {
    chunks.sort_by_key(|chunk| chunk.number);
    chunks.dedup_by(|next, kept| {
        let is_same = next.number == kept.number;
        if is_same {
            *kept = *next;
        }
        is_same
    });
    chunks
}

/// Returns how many chunks there are along each dimension.
pub fn grid(shape: &[u64], chunk_shape: &[u64]) -> Result<Vec<u64>> {
    let counts: Vec<u64> =
        shape.iter().zip(chunk_shape).map(|(len, chunk)| len.div_ceil((*chunk).max(1))).collect();
    let total = counts.iter().try_fold(1_u64, |total, count| total.checked_mul(*count));
    total.map(|_| counts).ok_or_else(|| Error::corrupt("HDF5: more than 2^64 chunks"))
}

/// Returns the number of a chunk in a grid.
pub fn number_of(coords: &[u64], counts: &[u64]) -> Result<u64> {
    let number = coords
        .iter()
        .zip(counts)
        .try_fold(0_u64, |number, (coord, count)| number.checked_mul(*count)?.checked_add(*coord));
    number.ok_or_else(|| Error::corrupt("HDF5: more than 2^64 chunks"))
}

/// Returns the coordinates of a chunk by its number in a grid.
pub fn coords_of(number: u64, counts: &[u64]) -> Vec<u64> {
    let mut rest = number;
    let mut coords: Vec<u64> = counts
        .iter()
        .rev()
        .map(|count| {
            let coord = rest.checked_rem(*count).unwrap_or_default();
            rest = rest.checked_div(*count).unwrap_or_default();
            coord
        })
        .collect();
    coords.reverse();
    coords
}
