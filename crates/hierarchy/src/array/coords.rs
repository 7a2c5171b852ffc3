//! Coordinates of chunks, and the grid of an array.

use std::fmt;
use std::sync::Arc;

use super::assembled::ElementBox;
use crate::metadata::model;
use zarrfs_base::error::{Error, Result, WithSubject};

/// The coordinates of a chunk: one index along each dimension.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Coords(Box<[u64]>);

impl Coords {
    /// Returns coordinates from an index along each dimension.
    pub fn new(indices: impl Into<Box<[u64]>>) -> Self {
        Self(indices.into())
    }

    /// Returns the indices.
    pub fn indices(&self) -> &[u64] {
        &self.0
    }

    /// Whether the first indices are those of `prefix`.
    pub fn starts_with(&self, prefix: &[u64]) -> bool {
        self.0.starts_with(prefix)
    }
}

impl fmt::Display for Coords {
    /// Formats them as in the names of a mount: `c/1/23`.
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

/// The grid of an array: the number of chunks along each dimension, and where each begins and ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grid {
    counts: Vec<u64>,
    axes: Arc<[GridAxis]>,
}

/// The chunks along a dimension, as far as the metadata list them, including those outside of the
/// array.
#[derive(Debug, Clone, PartialEq, Eq)]
enum GridAxis {
    /// Chunks of this length, without an end.
    Regular(u64),
    /// Runs of chunks of the same length.
    Irregular(Box<[EqualChunks]>),
}

/// Chunks of the same length, one after another.
#[derive(Debug, Clone, PartialEq, Eq)]
struct EqualChunks {
    /// The index of the first chunk.
    index: u64,
    /// The first element of the first chunk.
    start: u64,
    /// The elements of each chunk.
    len: u64,
    /// The number of chunks.
    count: u64,
}

/// A chunk along one dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkAlong {
    /// The index of the chunk.
    pub index: u64,
    /// Its first element.
    pub start: u64,
    /// The number of its elements.
    pub len: u64,
}

impl Grid {
    /// Returns the grid with chunks of `chunk_shape` over an array of `shape`; chunks at the edges
    /// may overhang.
    pub fn regular(shape: &[u64], chunk_shape: &[u64]) -> Self {
        Self::over(shape, chunk_shape.iter().map(|len| GridAxis::Regular((*len).max(1))).collect())
    }

    /// Returns the grid of the stored chunks of `array`.
    pub fn of(array: &model::ArrayMetadata) -> Self {
        match &array.rectilinear {
            Some(runs) => {
                Self::over(&array.shape, runs.iter().map(|runs| GridAxis::of(runs)).collect())
            }
            None => Self::regular(&array.shape, &array.chunk_shape),
        }
    }

    /// Returns the grid with the same chunks over an array of another shape.
    #[must_use]
    pub fn resized(&self, shape: &[u64]) -> Self {
        Self::over(shape, Arc::clone(&self.axes))
    }

    /// Returns the same grid over elements that are boxes of `inner` of the old ones: a grid of
    /// shards over inner chunks. Fails unless `inner` divides every chunk.
    pub fn divided(&self, inner: &[u64]) -> Result<Self> {
        let divided = |((axis, along), inner): ((usize, &GridAxis), &u64)| {
            along.divided(*inner).ok_or_else(|| {
                Error::corrupt(format!(
                    "sharding_indexed: inner chunks of {inner} elements do not divide the shards \
                     along dimension {axis}"
                ))
            })
        };
        let axes = self.axes.iter().enumerate().zip(inner).map(divided).collect::<Result<_>>()?;
        Ok(Self { counts: self.counts.clone(), axes })
    }

    fn over(shape: &[u64], axes: Arc<[GridAxis]>) -> Self {
        let counts = shape.iter().zip(&*axes).map(|(len, axis)| axis.count_in(*len)).collect();
        Self { counts, axes }
    }

    /// Returns the number of chunks along each dimension.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Returns every chunk, in C order.
    pub fn all(&self) -> impl Iterator<Item = Coords> + use<> {
        let counts = self.counts().to_vec();
        let total = counts.iter().fold(1_u64, |total, count| total.saturating_mul(*count));
        (0..total).map(move |index| {
            let mut rest = index;
            let mut indices = vec![0; counts.len()];
            for (at, count) in indices.iter_mut().zip(&counts).rev() {
                *at = rest.checked_rem(*count).unwrap_or_default();
                rest = rest.checked_div(*count).unwrap_or_default();
            }
            Coords::new(indices)
        })
    }

    /// Returns the number of dimensions.
    pub fn rank(&self) -> usize {
        self.counts.len()
    }

    /// Whether all chunks have the same shape.
    pub fn is_regular(&self) -> bool {
        self.axes.iter().all(|axis| matches!(axis, GridAxis::Regular(_)))
    }

    /// Whether there is a chunk at `coords`.
    pub fn contains(&self, coords: &Coords) -> bool {
        coords.indices().len() == self.rank() && self.contains_prefix(coords.indices())
    }

    /// Whether the indices of `prefix`, one for each of the first dimensions, are within the grid.
    pub fn contains_prefix(&self, prefix: &[u64]) -> bool {
        prefix.len() <= self.rank()
            && prefix.iter().zip(&self.counts).all(|(index, count)| index < count)
            && self.counts.iter().skip(prefix.len()).all(|count| *count > 0)
    }

    /// Returns the shape of the chunk at `coords`, including elements outside of the array.
    pub fn chunk_shape_at(&self, coords: &Coords) -> Result<Vec<u64>> {
        let spans = self.spans(coords)?;
        Ok(spans.into_iter().map(|(_, len)| len).collect())
    }

    /// Returns how many elements of the chunk at `coords` lie in an array of `shape`, along each
    /// dimension.
    pub fn extent(&self, coords: &Coords, shape: &[u64]) -> Result<Vec<u64>> {
        let along = self.spans(coords)?.into_iter().zip(shape);
        Ok(along.map(|((start, len), all)| all.saturating_sub(start).min(len)).collect())
    }

    /// Returns the index along dimension `axis` of the chunk that contains `element`.
    pub fn index_of(&self, axis: usize, element: u64) -> Option<u64> {
        self.axes.get(axis)?.count_in(element.checked_add(1)?).checked_sub(1)
    }

    /// Returns the chunk along dimension `axis` that contains `element`, which may lie outside of
    /// the array; `None` if no chunk reaches there.
    pub fn find(&self, axis: usize, element: u64) -> Option<ChunkAlong> {
        self.axes.get(axis)?.find(element)
    }

    /// Returns the first element of the chunks with an index along dimension `axis`, and the number
    /// of their elements along it.
    pub fn span(&self, axis: usize, index: u64) -> Option<(u64, u64)> {
        self.axes.get(axis)?.span(index)
    }

    /// Returns the first element of the chunk at `coords` and the number of its elements, along
    /// each dimension.
    pub fn spans(&self, coords: &Coords) -> Result<Vec<(u64, u64)>> {
        let found = coords.indices().iter().zip(&*self.axes).map(|(index, axis)| axis.span(*index));
        let found = if coords.indices().len() == self.rank() { found.collect() } else { None };
        found.ok_or_else(|| self.outside(coords))
    }

    /// Returns the coordinates of the chunks that a box of elements overlaps, in order. None if a
    /// part of the box lies outside.
    pub fn overlapping(&self, elements: &ElementBox) -> impl Iterator<Item = Coords> + use<> {
        let along = elements.start.iter().zip(&elements.extent).enumerate();
        let ranges = along.map(|(axis, (start, len))| {
            let last = start.checked_add(*len)?.checked_sub(1).filter(|_| *len > 0)?;
            Some((self.index_of(axis, *start)?, self.index_of(axis, last)?.checked_add(1)?))
        });
        let ranges = ranges.collect::<Option<Vec<(u64, u64)>>>();
        let is_inside = ranges.is_some();
        let chunks = ranges.unwrap_or_default().into_iter();
        let (start, extent) =
            chunks.map(|(from, until)| (from, until.saturating_sub(from))).unzip();
        ElementBox { start, extent }.places().filter(move |_| is_inside)
    }

    /// Returns the error for coordinates outside the grid.
    pub fn outside(&self, coords: &Coords) -> Error {
        let detail = format!("outside the grid, which has {:?} chunks", self.counts);
        Error::invalid(detail).at(coords)
    }
}

impl GridAxis {
    fn of(runs: &[(u64, u64)]) -> Self {
        let (mut index, mut start) = (0_u64, 0_u64);
        let run = |(len, count): &(u64, u64)| {
            let run = EqualChunks { index, start, len: (*len).max(1), count: *count };
            index = index.saturating_add(*count);
            start = start.saturating_add(len.saturating_mul(*count));
            run
        };
        Self::Irregular(runs.iter().map(run).collect())
    }

    /// Returns the number of chunks that begin before element `len`.
    fn count_in(&self, len: u64) -> u64 {
        let runs = match self {
            Self::Regular(chunk) => return len.div_ceil(*chunk),
            Self::Irregular(runs) => runs,
        };
        let begun = runs.partition_point(|run| run.start < len);
        begun.checked_sub(1).and_then(|last| runs.get(last)).map_or(0, |run| {
            let within = len.saturating_sub(run.start).div_ceil(run.len).min(run.count);
            run.index.saturating_add(within)
        })
    }

    /// Returns this axis over elements that are `inner` of the old ones, `None` unless `inner`
    /// divides every chunk.
    fn divided(&self, inner: u64) -> Option<Self> {
        let divide = |len: u64| (len.checked_rem(inner)? == 0).then_some(len / inner);
        let run = |run: &EqualChunks| {
            let (len, start) = (divide(run.len)?, run.start / inner);
            Some(EqualChunks { start, len, ..run.clone() })
        };
        Some(match self {
            Self::Regular(len) => Self::Regular(divide(*len)?),
            Self::Irregular(runs) => Self::Irregular(runs.iter().map(run).collect::<Option<_>>()?),
        })
    }

    /// Returns the chunk that contains an element.
    fn find(&self, element: u64) -> Option<ChunkAlong> {
        let runs = match self {
            Self::Regular(len) => {
                let index = element / len;
                return Some(ChunkAlong { index, start: index.saturating_mul(*len), len: *len });
            }
            Self::Irregular(runs) => runs,
        };
        let begun = runs.partition_point(|run| run.start <= element);
        let run = runs.get(begun.checked_sub(1)?)?;
        let within = element.checked_sub(run.start)? / run.len;
        (within < run.count).then(|| ChunkAlong {
            index: run.index.saturating_add(within),
            start: run.start.saturating_add(within.saturating_mul(run.len)),
            len: run.len,
        })
    }

    /// Returns the first element of a chunk, and the number of its elements.
    fn span(&self, index: u64) -> Option<(u64, u64)> {
        let runs = match self {
            Self::Regular(chunk) => return Some((index.saturating_mul(*chunk), *chunk)),
            Self::Irregular(runs) => runs,
        };
        let begun = runs.partition_point(|run| run.index <= index);
        let run = runs.get(begun.checked_sub(1)?)?;
        let within = index.checked_sub(run.index).filter(|within| *within < run.count)?;
        Some((run.start.saturating_add(within.saturating_mul(run.len)), run.len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(shape: &[u64], runs: &[&[(u64, u64)]]) -> Grid {
        Grid::over(shape, runs.iter().map(|runs| GridAxis::of(runs)).collect())
    }

    #[test]
    fn chunks_of_a_rectilinear_grid_are_those_that_begin_in_the_array() {
        let runs: &[(u64, u64)] = &[(2, 2), (3, 1), (1, 4)];
        let starts = [0, 2, 4, 7, 8, 9, 10];
        for len in 0..=11 {
            let grid = grid(&[len], &[runs]);
            let count = starts.iter().filter(|start| **start < len).count() as u64;
            assert_eq!(grid.counts(), [count], "{len} elements");
            assert!(!grid.contains(&Coords::new([count])));
            for (index, start) in (0..count).zip(starts) {
                let coords = Coords::new([index]);
                assert!(grid.contains(&coords));
                let chunk = [2, 2, 3, 1, 1, 1, 1][index as usize];
                assert_eq!(grid.chunk_shape_at(&coords).expect("inside"), [chunk]);
                let extent = grid.extent(&coords, &[len]).expect("inside");
                assert_eq!(extent, [chunk.min(len - start)], "{len} elements, chunk {index}");
            }
        }
        let grid = grid(&[11], &[runs]);
        assert_eq!(grid.chunk_shape_at(&Coords::new([7])).expect_err("none").errno(), libc::EINVAL);
        assert_eq!(grid.resized(&[5]).counts(), [3]);
        assert!(grid.chunk_shape_at(&Coords::new([0, 0])).is_err());
    }

    #[test]
    fn shards_have_whole_inner_chunks_wherever_they_begin() {
        let shards = grid(&[23, 9], &[&[(6, 2), (2, 1), (10, 2)], &[(4, u64::MAX)]]);
        let divided = shards.divided(&[2, 4]).expect("divided");
        assert_eq!(divided.counts(), shards.counts());
        for (index, start, len) in [(0, 0, 3), (1, 3, 3), (2, 6, 1), (3, 7, 5), (4, 12, 5)] {
            assert_eq!(divided.span(0, index), Some((start, len)));
            for at in start..start + len {
                assert_eq!(divided.find(0, at), Some(ChunkAlong { index, start, len }));
            }
        }
        assert_eq!(divided.find(0, 17), None, "no shard reaches there");
        assert_eq!(divided.find(1, 5), Some(ChunkAlong { index: 5, start: 5, len: 1 }));
        assert_eq!(divided.find(2, 0), None, "no such dimension");
        for inner in [[4, 4], [2, 3], [0, 4]] {
            assert!(shards.divided(&inner).is_err(), "{inner:?}");
        }
    }

    #[test]
    fn a_step_without_end_and_runs_longer_than_any_array_do_not_overflow() {
        let grid = grid(&[10, u64::MAX], &[&[(4, u64::MAX)], &[(u64::MAX / 2, 3), (7, u64::MAX)]]);
        assert_eq!(grid.counts(), [3, 3]);
        assert_eq!(grid.extent(&Coords::new([2, 0]), &[10, u64::MAX]).expect("inside")[0], 2);
        assert!(grid.chunk_shape_at(&Coords::new([u64::MAX - 1, 1])).is_ok());
        assert_eq!(Grid::regular(&[0, 5], &[3, 2]).counts(), [0, 3]);
    }
}
