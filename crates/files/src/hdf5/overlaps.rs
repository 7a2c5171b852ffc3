//! Mappings of a virtual data set that cover the same elements. As in the library of HDF5, the last
//! one whose source exists gives the elements, also those that its source has not stored.

use super::pairing::Part;
use super::placed::{ChunkCount, PlacedChunk, coords_of, number_of};
use super::selection::{Cover, SelectedAxis};
use crate::pieces;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::{ToU64, ToUsize};

/// The chunks of a virtual data set.
pub struct TargetGrid<'g> {
    /// The shape of the data set.
    pub shape: &'g [u64],
    /// The shape of a chunk.
    pub chunk_shape: &'g [u64],
    /// How many chunks there are along each dimension.
    pub counts: &'g [u64],
}

/// A chunk of one of the parts.
pub struct PartChunk {
    /// The index of the part.
    pub part: usize,
    /// The chunk.
    pub chunk: PlacedChunk,
}

impl TargetGrid<'_> {
    /// Returns an error about the parts.
    pub fn not_on_grid(&self) -> Error {
        let shape = self.chunk_shape;
        Error::unsupported(format!(
            "a virtual data set whose parts do not begin and end with chunks of {shape:?}"
        ))
    }

    /// Returns the chunks that are seen, by their numbers. `incomplete` has the indices of parts
    /// that lack chunks.
    pub fn seen(
        &self,
        mut chunks: Vec<PartChunk>,
        parts: &[Part],
        incomplete: &[usize],
        count: &mut ChunkCount,
    ) -> Result<Vec<PlacedChunk>> {
        chunks.sort_unstable_by_key(|one| (one.chunk.number, one.part));
        chunks.dedup_by(|next, kept| {
            let is_same = next.chunk.number == kept.chunk.number;
            if is_same {
                std::mem::swap(kept, next);
            }
            is_same
        });
        let mut is_hidden = vec![false; chunks.len()];
        for at in incomplete.iter().filter(|at| **at > 0) {
            if let Some(part) = parts.get(*at) {
                let cover = PartCover { grid: self, part: *at, axes: &part.target_axes };
                cover.hide(&chunks, &mut is_hidden, count)?;
            }
        }
        let seen = chunks.into_iter().zip(is_hidden).filter(|(_, is_hidden)| !is_hidden);
        Ok(seen.map(|(one, _)| one.chunk).collect())
    }
}

/// The elements of a virtual data set that a part covers.
struct PartCover<'c> {
    grid: &'c TargetGrid<'c>,
    part: usize,
    axes: &'c [SelectedAxis],
}

impl PartCover<'_> {
    /// Notes which chunks of earlier parts this one hides.
    fn hide(
        &self,
        chunks: &[PartChunk],
        is_hidden: &mut [bool],
        count: &mut ChunkCount,
    ) -> Result<()> {
        let lens = || self.grid.chunk_shape.iter().map(|len| (*len).max(1));
        let (mut first, mut last, mut most) = (Vec::new(), Vec::new(), 1_u64);
        for (axis, len) in self.axes.iter().zip(lens()) {
            first.push(axis.start() / len);
            last.push(axis.end()?.saturating_sub(1) / len);
            most = most.saturating_mul(axis.most_cells(len));
        }
        let (first, last) =
            (number_of(&first, self.grid.counts)?, number_of(&last, self.grid.counts)?);
        let start = chunks.partition_point(|one| one.chunk.number < first);
        let end = chunks.partition_point(|one| one.chunk.number <= last);
        let found = chunks.get(start..end).unwrap_or_default();
        let is_hidden = is_hidden.get_mut(start..end).unwrap_or_default();
        if most >= found.len().to_u64() {
            count.step(found.len().to_u64())?;
            for (one, is_hidden) in found.iter().zip(is_hidden) {
                *is_hidden |= self.hides(one)?;
            }
            return Ok(());
        }
        count.step(most)?;
        let cells = self.axes.iter().zip(lens()).map(|(axis, len)| axis.cells(len));
        let cells: Vec<Vec<u64>> = cells.collect::<Result<_>>()?;
        let counts: Vec<u64> = cells.iter().map(|cells| cells.len().to_u64()).collect();
        let mut at = vec![0_u64; counts.len()];
        loop {
            let coords = cells.iter().zip(&at).filter_map(|(cells, at)| cells.get(at.to_usize()));
            let coords: Vec<u64> = coords.copied().collect();
            let number = number_of(&coords, self.grid.counts)?;
            let place = found.binary_search_by_key(&number, |one| one.chunk.number).ok();
            let place = place.and_then(|at| Some((found.get(at)?, is_hidden.get_mut(at)?)));
            if let Some((one, is_hidden)) = place {
                *is_hidden |= self.hides(one)?;
            }
            if !pieces::advance(&mut at, &counts) {
                return Ok(());
            }
        }
    }

    /// Whether the part hides a chunk of an earlier one.
    fn hides(&self, one: &PartChunk) -> Result<bool> {
        if one.part >= self.part {
            return Ok(false);
        }
        let coords = coords_of(one.chunk.number, self.grid.counts);
        let mut is_whole = true;
        let shapes = self.grid.chunk_shape.iter().zip(self.grid.shape);
        for ((axis, coord), (chunk, len)) in self.axes.iter().zip(coords).zip(shapes) {
            let start = coord.saturating_mul(*chunk);
            match axis.cover(start, start.saturating_add(*chunk).min(*len)) {
                Cover::Nothing => return Ok(false),
                Cover::Some => is_whole = false,
                Cover::All => {}
            }
        }
        if is_whole { Ok(true) } else { Err(self.grid.not_on_grid()) }
    }
}
