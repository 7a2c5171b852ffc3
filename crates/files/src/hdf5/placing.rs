//! The chunks of sources on the grid of a virtual data set.

use super::overlaps::{PartChunk, TargetGrid};
use super::pairing::{PairedPart, Part, RunPair};
use super::placed::{ChunkCount, PlacedChunk, SourcePlaces, SourceSet, coords_of, grid, number_of};
use crate::pieces::{self, PIECE_LEN};
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::{ToU64, ToUsize};

/// Returns where the values of a data set that is put together from parts are.
pub fn places(parts: &[Part], found: &SourceSet, count: &mut ChunkCount) -> Result<SourcePlaces> {
    Ok(match chunk_shape(parts, found, count)? {
        Some(shape) => {
            let stored = placed(parts, found, &shape, count)?;
            SourcePlaces::Chunks { shape, stored }
        }
        None => SourcePlaces::Nowhere,
    })
}

/// Returns the shape of chunks that all parts can have; `None` if there are no parts with values.
fn chunk_shape(
    parts: &[Part],
    found: &SourceSet,
    count: &mut ChunkCount,
) -> Result<Option<Vec<u64>>> {
    let mut has_values = false;
    for part in parts {
        if part.is_empty()? {
            continue;
        }
        match &part.source.places {
            SourcePlaces::Chunks { shape, .. } => {
                let paired = part.paired(count)?;
                let chunk = |dimension: &Option<usize>| match dimension {
                    Some(at) => shape.get(*at).copied().unwrap_or(1),
                    None => 1,
                };
                return Ok(Some(paired.dimensions.iter().map(chunk).collect()));
            }
            SourcePlaces::Contiguous { .. } => has_values = true,
            SourcePlaces::Nowhere => {}
        }
    }
    if has_values { free_shape(parts, found, count).map(Some) } else { Ok(None) }
}

/// How chunks of sources whose elements are one after the other can divide a dimension.
#[derive(Clone, Copy)]
struct FreeAxis {
    /// Whether all parts have all of its indices.
    is_whole: bool,
    /// The greatest number that divides the places where parts begin and end; 0 for any.
    common: u64,
}

/// Returns how the parts divide each dimension. The pairs of one part are in memory at a time.
fn free_axes(parts: &[Part], found: &SourceSet, count: &mut ChunkCount) -> Result<Vec<FreeAxis>> {
    let mut axes = vec![FreeAxis { is_whole: true, common: 0 }; found.shape.len()];
    let mut has_values = false;
    for part in parts {
        has_values |= !matches!(part.source.places, SourcePlaces::Nowhere);
        // A part without values may hide some of an earlier one.
        if !has_values || part.is_empty()? {
            continue;
        }
        let paired = part.paired(count)?;
        let pairs = paired.pairs.iter().zip(&found.shape);
        for (at, (axis, (pairs, len))) in axes.iter_mut().zip(pairs).enumerate() {
            axis.is_whole &= paired.is_whole(at, *len);
            axis.common = pairs.iter().fold(axis.common, |common, pair| {
                let is_last = pair.target.saturating_add(pair.count) == *len;
                let common = divisor(common, pair.target);
                if is_last { common } else { divisor(common, pair.count) }
            });
        }
    }
    Ok(axes)
}

/// Returns the shape of chunks for sources whose elements are one after the other: as many rows as
/// begin and end where the parts do, and about as long as other pieces.
fn free_shape(parts: &[Part], found: &SourceSet, count: &mut ChunkCount) -> Result<Vec<u64>> {
    let mut chunk: Vec<u64> = vec![1; found.shape.len()];
    let mut row_len = found.stored.item_len.max(1);
    let axes = free_axes(parts, found, count)?;
    let all = chunk.iter_mut().zip(&axes).zip(&found.shape);
    for ((place, FreeAxis { is_whole, common }), len) in all.rev() {
        let whole_len = row_len.saturating_mul(*len);
        if *is_whole && whole_len <= PIECE_LEN {
            *place = (*len).max(1);
            row_len = whole_len;
            continue;
        }
        let most = (PIECE_LEN / row_len.max(1)).max(1);
        let common = if *is_whole { most } else { *common };
        let common = if common == 0 { *len } else { common };
        *place = (1..=most.min(common))
            .rev()
            .find(|rows| *is_whole || common.is_multiple_of(*rows))
            .unwrap_or(1);
        break;
    }
    Ok(chunk)
}

fn divisor(one: u64, other: u64) -> u64 {
    let (mut one, mut other) = (one, other);
    while other != 0 {
        (one, other) = (other, one.checked_rem(other).unwrap_or_default());
    }
    one
}

/// Returns the chunks of all parts on the grid of a virtual data set.
fn placed(
    parts: &[Part],
    found: &SourceSet,
    chunk_shape: &[u64],
    count: &mut ChunkCount,
) -> Result<Vec<PlacedChunk>> {
    let counts = grid(&found.shape, chunk_shape)?;
    let grid = TargetGrid { shape: &found.shape, chunk_shape, counts: &counts };
    let (mut all, mut incomplete) = (Vec::new(), Vec::new());
    let mut chunks = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        if part.is_empty()? {
            continue;
        }
        let paired = part.paired(count)?;
        let has_all = match &part.source.places {
            SourcePlaces::Chunks { shape, stored } => {
                let expected = grid.place_chunks(&paired, shape, stored, &mut chunks, count)?;
                chunks.len().to_u64() >= expected
            }
            SourcePlaces::Contiguous { file, offset } => {
                grid.place_pieces(&paired, *file, *offset, &mut chunks, count)?;
                true
            }
            SourcePlaces::Nowhere => false,
        };
        check_fill(&part.source, found, has_all)?;
        if !has_all {
            incomplete.push(at);
        }
        all.extend(chunks.drain(..).map(|chunk| PartChunk { part: at, chunk }));
    }
    grid.seen(all, parts, &incomplete, count)
}

/// Fails if chunks that are missing would be seen as other elements.
fn check_fill(source: &SourceSet, found: &SourceSet, has_all: bool) -> Result<()> {
    if has_all || source.fill == found.fill {
        return Ok(());
    }
    let (theirs, own) = (&source.fill, &found.fill);
    Err(Error::unsupported(format!(
        "a virtual data set with fill value {own} has an incomplete source with fill value {theirs}"
    )))
}

impl TargetGrid<'_> {
    /// Fails unless indices begin and end with chunks of the virtual data set.
    fn check(&self, at: usize, pair: &RunPair) -> Result<u64> {
        let chunk = self.chunk_shape.get(at).copied().unwrap_or(1).max(1);
        let end = pair.target.saturating_add(pair.count);
        let ends = pair.count.is_multiple_of(chunk) || self.shape.get(at) == Some(&end);
        if !pair.target.is_multiple_of(chunk) || !ends {
            return Err(self.not_on_grid());
        }
        Ok(chunk)
    }

    /// Places the chunks of a source, and returns how many there are with those that are missing.
    /// `stored` is in the order of the numbers.
    fn place_chunks(
        &self,
        part: &PairedPart<'_>,
        source_chunk: &[u64],
        stored: &[PlacedChunk],
        chunks: &mut Vec<PlacedChunk>,
        count: &mut ChunkCount,
    ) -> Result<u64> {
        let expected = self.check_chunks(part, source_chunk)?;
        let source_counts = grid(&part.source.shape, source_chunk)?;
        let (first, last) = part.source_numbers(source_chunk, &source_counts)?;
        let start = stored.partition_point(|chunk| chunk.number < first);
        let end = stored.partition_point(|chunk| chunk.number <= last);
        let stored = stored.get(start..end).unwrap_or_default();
        if expected < stored.len().to_u64() {
            count.step(expected)?;
            self.place_cells(part, stored, &source_counts, chunks, count)?;
            return Ok(expected);
        }
        count.step(stored.len().to_u64())?;
        for chunk in stored {
            let coords = coords_of(chunk.number, &source_counts);
            let Some(target) = self.target_of(part, &coords) else { continue };
            count.add(1)?;
            chunks.push(PlacedChunk { number: number_of(&target, self.counts)?, ..*chunk });
        }
        Ok(expected)
    }

    /// Fails unless a part has whole chunks of its source, and returns how many.
    fn check_chunks(&self, part: &PairedPart<'_>, source_chunk: &[u64]) -> Result<u64> {
        let mut expected = 1_u64;
        for (at, (pairs, dimension)) in part.pairs.iter().zip(&part.dimensions).enumerate() {
            let mut chunk_count = 0_u64;
            for pair in pairs {
                let chunk = self.check(at, pair)?;
                let source_len = dimension.and_then(|at| source_chunk.get(at)).copied();
                let fits = source_len.is_none_or(|len| len == chunk);
                if !fits
                    || (source_len.is_none() && chunk != 1)
                    || !pair.source.is_multiple_of(chunk)
                {
                    return Err(self.not_on_grid());
                }
                chunk_count = chunk_count.saturating_add(pair.count.div_ceil(chunk));
            }
            expected = expected.saturating_mul(chunk_count);
        }
        let lens = part.single.iter().zip(source_chunk);
        if lens.clone().any(|(single, len)| single.is_some() && *len != 1) {
            return Err(self.not_on_grid());
        }
        Ok(expected)
    }

    /// Places the chunks of a part that has fewer than its source.
    fn place_cells(
        &self,
        part: &PairedPart<'_>,
        stored: &[PlacedChunk],
        source_counts: &[u64],
        chunks: &mut Vec<PlacedChunk>,
        count: &mut ChunkCount,
    ) -> Result<()> {
        let cells = |(pairs, chunk): (&Vec<RunPair>, &u64)| -> Vec<(u64, u64)> {
            let chunk = (*chunk).max(1);
            let cells = pairs.iter().flat_map(|pair| {
                let first = (pair.source / chunk, pair.target / chunk);
                let after =
                    move |step| (first.0.saturating_add(step), first.1.saturating_add(step));
                (0..pair.count.div_ceil(chunk)).map(after)
            });
            cells.collect()
        };
        let cells: Vec<_> = part.pairs.iter().zip(self.chunk_shape).map(cells).collect();
        let counts: Vec<u64> = cells.iter().map(|cells| cells.len().to_u64()).collect();
        let mut source: Vec<u64> = part.single.iter().map(|single| single.unwrap_or(0)).collect();
        let mut target = vec![0_u64; counts.len()];
        let mut at = target.clone();
        loop {
            let places = cells.iter().zip(&at).zip(&part.dimensions).zip(&mut target);
            for (((cells, at), dimension), target) in places {
                let cell = cells.get(at.to_usize()).ok_or_else(|| self.not_on_grid())?;
                if let Some(source) = dimension.and_then(|at| source.get_mut(at)) {
                    *source = cell.0;
                }
                *target = cell.1;
            }
            let number = number_of(&source, source_counts)?;
            let found = stored.binary_search_by_key(&number, |chunk| chunk.number);
            if let Some(chunk) = found.ok().and_then(|at| stored.get(at)) {
                count.add(1)?;
                chunks.push(PlacedChunk { number: number_of(&target, self.counts)?, ..*chunk });
            }
            if !pieces::advance(&mut at, &counts) {
                return Ok(());
            }
        }
    }

    /// Returns where a chunk of the source is in the virtual data set; `None` if it is not mapped.
    fn target_of(&self, part: &PairedPart<'_>, coords: &[u64]) -> Option<Vec<u64>> {
        let mut singles = part.single.iter().zip(coords);
        if singles.any(|(single, coord)| single.is_some_and(|single| single != *coord)) {
            return None;
        }
        let mut target = Vec::with_capacity(part.pairs.len());
        let all = part.pairs.iter().zip(&part.dimensions).zip(self.chunk_shape);
        for ((pairs, dimension), chunk) in all {
            let chunk = (*chunk).max(1);
            let Some(dimension) = dimension else {
                target.push(pairs.first()?.target);
                continue;
            };
            let start = coords.get(*dimension)?.checked_mul(chunk)?;
            let after = pairs.partition_point(|pair| pair.source <= start);
            let pair = pairs.get(after.checked_sub(1)?)?;
            let within = start.checked_sub(pair.source).filter(|within| *within < pair.count)?;
            target.push(pair.target.checked_add(within)?.checked_div(chunk)?);
        }
        Some(target)
    }

    /// Places pieces of a source whose elements are one after the other.
    fn place_pieces(
        &self,
        part: &PairedPart<'_>,
        file: u32,
        offset: u64,
        chunks: &mut Vec<PlacedChunk>,
        count: &mut ChunkCount,
    ) -> Result<()> {
        let mut steps: Vec<Vec<RunPair>> = Vec::new();
        for (at, pairs) in part.pairs.iter().enumerate() {
            let mut found = Vec::new();
            for pair in pairs {
                let chunk = self.check(at, pair)?;
                let step_count = pair.count.div_ceil(chunk);
                count.add(usize::try_from(step_count).unwrap_or(usize::MAX))?;
                for step in 0..step_count {
                    let before = step.saturating_mul(chunk);
                    found.push(RunPair {
                        source: pair.source.saturating_add(before),
                        target: pair.target.saturating_add(before),
                        count: chunk.min(pair.count.saturating_sub(before)),
                    });
                }
            }
            steps.push(found);
        }
        let counts: Vec<u64> =
            steps.iter().map(|steps| u64::try_from(steps.len()).unwrap_or(u64::MAX)).collect();
        let mut at = vec![0_u64; counts.len()];
        loop {
            count.add(1)?;
            let step = |(steps, at): (&Vec<RunPair>, &u64)| {
                usize::try_from(*at).ok().and_then(|at| steps.get(at)).copied()
            };
            let piece: Option<Vec<RunPair>> = steps.iter().zip(&at).map(step).collect();
            let piece = piece.ok_or_else(|| self.not_on_grid())?;
            chunks.push(self.piece(part, file, offset, &piece)?);
            if !pieces::advance(&mut at, &counts) {
                return Ok(());
            }
        }
    }

    /// Returns the place of one piece.
    fn piece(
        &self,
        part: &PairedPart<'_>,
        file: u32,
        offset: u64,
        piece: &[RunPair],
    ) -> Result<PlacedChunk> {
        let shape = &part.source.shape;
        let mut first = part.single.iter().map(|single| single.unwrap_or(0)).collect::<Vec<_>>();
        let mut lens = vec![1; shape.len()];
        for (pair, dimension) in piece.iter().zip(&part.dimensions) {
            let Some(at) = dimension else { continue };
            if let (Some(first), Some(len)) = (first.get_mut(*at), lens.get_mut(*at)) {
                (*first, *len) = (pair.source, pair.count);
            }
        }
        // After the first dimension with more than one index, all must be whole.
        let divided = lens.iter().position(|len| *len > 1).unwrap_or(lens.len());
        let inner = lens.iter().zip(shape).skip(divided.saturating_add(1));
        let outer = self.chunk_shape.iter().position(|len| *len > 1);
        let outer = outer.unwrap_or(self.chunk_shape.len()).saturating_add(1);
        let clipped = piece.iter().zip(self.chunk_shape).skip(outer);
        if inner.clone().any(|(len, whole)| len != whole)
            || clipped.clone().any(|(pair, len)| pair.count != *len)
        {
            return Err(Error::unsupported(
                "a virtual data set with a part whose elements are not one after the other",
            ));
        }
        let too_long = || Error::corrupt("HDF5: elements past 2^64 bytes");
        let index = first
            .iter()
            .zip(shape)
            .try_fold(0_u64, |index, (first, len)| index.checked_mul(*len)?.checked_add(*first));
        let item_len = part.source.stored.item_len;
        let start = index.and_then(|index| index.checked_mul(item_len));
        let start = start.and_then(|start| start.checked_add(offset)).ok_or_else(too_long)?;
        let bytes = |mut lens: Box<dyn Iterator<Item = u64> + '_>| {
            lens.try_fold(item_len, u64::checked_mul).ok_or_else(too_long)
        };
        let len = bytes(Box::new(self.chunk_shape.iter().copied()))?;
        let needed = bytes(Box::new(piece.iter().map(|pair| pair.count)))?;
        let target: Vec<u64> = piece
            .iter()
            .zip(self.chunk_shape)
            .map(|(pair, chunk)| pair.target / (*chunk).max(1))
            .collect();
        let number = number_of(&target, self.counts)?;
        Ok(PlacedChunk { number, file, offset: start, len, needed })
    }
}
