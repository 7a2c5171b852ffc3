//! Places in a grid of chunks.

use std::fmt;

/// The coordinates of a chunk: one index along each dimension.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Coords(Box<[u64]>);

impl Coords {
    /// One index along each dimension.
    pub fn new(indices: impl Into<Box<[u64]>>) -> Self {
        Self(indices.into())
    }

    /// The indices.
    pub fn indices(&self) -> &[u64] {
        &self.0
    }

    /// Whether the first indices are those of `prefix`.
    pub fn starts_with(&self, prefix: &[u64]) -> bool {
        self.0.starts_with(prefix)
    }
}

impl fmt::Display for Coords {
    /// As the end of the name in a mount: `c/1/23`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("c")?;
        self.0.iter().try_for_each(|index| write!(f, "/{index}"))
    }
}

impl fmt::Debug for Coords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A grid of chunks: how many there are along each dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grid(Vec<u64>);

impl Grid {
    /// The grid of chunks of `chunk_shape` over an array of `shape`; those at the edges may overhang.
    pub fn regular(shape: &[u64], chunk_shape: &[u64]) -> Self {
        Self(
            shape
                .iter()
                .zip(chunk_shape)
                .map(|(len, chunk)| len.div_ceil((*chunk).max(1)))
                .collect(),
        )
    }

    /// Chunks along each dimension.
    pub fn counts(&self) -> &[u64] {
        &self.0
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Whether there is a chunk at `coords`.
    pub fn contains(&self, coords: &Coords) -> bool {
        coords.indices().len() == self.rank() && self.contains_prefix(coords.indices())
    }

    /// Whether the indices of `prefix`, one for each of the first dimensions, are within the grid.
    pub fn contains_prefix(&self, prefix: &[u64]) -> bool {
        prefix.len() <= self.rank()
            && prefix.iter().zip(&self.0).all(|(index, count)| index < count)
            && self.0.iter().skip(prefix.len()).all(|count| *count > 0)
    }
}
