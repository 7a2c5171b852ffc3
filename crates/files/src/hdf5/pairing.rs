//! A part of a virtual data set, whose dimensions are paired with those of its source.

use std::rc::Rc;

use super::placed::{ChunkCount, SourceSet, number_of};
use super::selection::{Run, SelectedAxis};
use zarrfs_base::error::{Error, Result};

/// Some elements of a source, and where they are in a virtual data set.
pub struct Part {
    /// The source.
    pub source: Rc<SourceSet>,
    /// The indices there.
    pub source_axes: Vec<SelectedAxis>,
    /// The indices in the virtual data set.
    pub target_axes: Vec<SelectedAxis>,
}

/// Indices that are one after the other in both data sets.
#[derive(Debug, Clone, Copy)]
pub struct RunPair {
    /// The first index in the source.
    pub source: u64,
    /// The first index in the virtual data set.
    pub target: u64,
    /// How many there are.
    pub count: u64,
}

/// A part whose dimensions are paired.
pub struct PairedPart<'p> {
    /// The source.
    pub source: &'p SourceSet,
    /// For each dimension of the virtual data set, that of the source; `None` if it has one index.
    pub dimensions: Vec<Option<usize>>,
    /// For each dimension of the virtual data set.
    pub pairs: Vec<Vec<RunPair>>,
    /// The index in each dimension of the source that has only one.
    pub single: Vec<Option<u64>>,
}

impl Part {
    /// Returns a part; both sides must have as many elements.
    pub fn new(
        source: Rc<SourceSet>,
        source_axes: Vec<SelectedAxis>,
        target_axes: Vec<SelectedAxis>,
    ) -> Self {
        Self { source, source_axes, target_axes }
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.target_axes.iter().map(SelectedAxis::len).collect::<Result<Vec<_>>>()?.contains(&0))
    }

    /// Pairs the dimensions. `count` counts the pieces that this takes.
    pub fn paired(&self, count: &mut ChunkCount) -> Result<PairedPart<'_>> {
        let lens =
            |axes: &[SelectedAxis]| axes.iter().map(SelectedAxis::len).collect::<Result<Vec<_>>>();
        let (source_lens, target_lens) = (lens(&self.source_axes)?, lens(&self.target_axes)?);
        let dimensions = dimensions(&source_lens, &target_lens)?;
        let mut pairs = Vec::new();
        for (axis, dimension) in self.target_axes.iter().zip(&dimensions) {
            let target = axis.runs()?;
            let found = match dimension.and_then(|dimension| self.source_axes.get(dimension)) {
                Some(source) => paired_runs(&source.runs()?, &target),
                None => target
                    .iter()
                    .map(|run| RunPair { source: 0, target: run.start, count: run.count })
                    .collect(),
            };
            count.add(found.len())?;
            pairs.push(found);
        }
        let mut single = Vec::new();
        for (at, axis) in self.source_axes.iter().enumerate() {
            let first = axis.runs()?.first().map(|run| run.start);
            single.push(first.filter(|_| !dimensions.contains(&Some(at))));
        }
        let ends = self.source_axes.iter().zip(&self.source.shape);
        for (axis, len) in ends {
            if axis.end()? > *len {
                return Err(Error::corrupt(format!(
                    "HDF5: a mapping of elements up to {} of a source of {len}",
                    axis.end()?
                )));
            }
        }
        Ok(PairedPart { source: &self.source, dimensions, pairs, single })
    }
}

/// Returns the dimension of the source for each of the virtual data set. Those with one index need
/// none.
fn dimensions(source: &[u64], target: &[u64]) -> Result<Vec<Option<usize>>> {
    if source == target {
        return Ok((0..target.len()).map(Some).collect());
    }
    let mut long = source.iter().enumerate().filter(|(_, len)| **len != 1);
    let mut found = Vec::new();
    for len in target {
        found.push(match len {
            1 => None,
            len => match long.next() {
                Some((at, other)) if other == len => Some(at),
                _ => return Err(other_shape(source, target)),
            },
        });
    }
    match long.next() {
        None => Ok(found),
        Some(_) => Err(other_shape(source, target)),
    }
}

fn other_shape(source: &[u64], target: &[u64]) -> Error {
    Error::unsupported(format!(
        "a mapping of source elements of shape {source:?} to shape {target:?}"
    ))
}

/// Returns runs that go on in both.
fn paired_runs(source: &[Run], target: &[Run]) -> Vec<RunPair> {
    let mut pairs: Vec<RunPair> = Vec::new();
    let (mut sources, mut targets) = (source.iter().copied(), target.iter().copied());
    let (mut one, mut other) = (sources.next(), targets.next());
    while let (Some(from), Some(to)) = (one, other) {
        let count = from.count.min(to.count);
        let pair = RunPair { source: from.start, target: to.start, count };
        let rest = |run: Run| Run {
            start: run.start.saturating_add(count),
            count: run.count.saturating_sub(count),
        };
        match pairs.last_mut() {
            Some(last)
                if last.source.saturating_add(last.count) == pair.source
                    && last.target.saturating_add(last.count) == pair.target =>
            {
                last.count = last.count.saturating_add(count);
            }
            _ => pairs.push(pair),
        }
        one = if rest(from).count == 0 { sources.next() } else { Some(rest(from)) };
        other = if rest(to).count == 0 { targets.next() } else { Some(rest(to)) };
    }
    pairs
}

impl PairedPart<'_> {
    /// Returns the numbers of the first and of the last chunk that it needs of a source whose
    /// chunks have this shape, in its grid.
    pub fn source_numbers(&self, chunk_shape: &[u64], counts: &[u64]) -> Result<(u64, u64)> {
        let mut first: Vec<u64> = self.single.iter().map(|at| at.unwrap_or(0)).collect();
        let mut last = first.clone();
        for (pairs, dimension) in self.pairs.iter().zip(&self.dimensions) {
            let (Some(at), Some(from), Some(to)) = (*dimension, pairs.first(), pairs.last()) else {
                continue;
            };
            let chunk = chunk_shape.get(at).copied().unwrap_or(1).max(1);
            let end = to.source.saturating_add(to.count.saturating_sub(1));
            if let (Some(first), Some(last)) = (first.get_mut(at), last.get_mut(at)) {
                (*first, *last) = (from.source / chunk, end / chunk);
            }
        }
        Ok((number_of(&first, counts)?, number_of(&last, counts)?))
    }

    /// Whether all indices along a dimension are those of the source.
    pub fn is_whole(&self, at: usize, len: u64) -> bool {
        let dimension = self.dimensions.get(at).copied().flatten();
        let source_len = dimension.and_then(|at| self.source.shape.get(at));
        let pairs = self.pairs.get(at).map(Vec::as_slice);
        matches!(pairs, Some([RunPair { source: 0, target: 0, count }]) if *count == len)
            && source_len == Some(&len)
    }
}
