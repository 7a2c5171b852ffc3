//! Selections of elements, as HDF5 stores them: `H5S_SELECT_ALL`, and hyperslabs, whose indices are
//! a product of those along each dimension.
//!
//! ```text
//! all        3 u32 | 1 u32 | 0 u32 | 0 u32
//! hyperslab  2 u32 | 1 u32 | 0 u32 | length u32 | rank u32 | count u32 | boxes: firsts, lasts
//!            2 u32 | 2 u32 | flags u8 | length u32 | rank u32 | dimensions of u64
//!            2 u32 | 3 u32 | flags u8 | width u8 | rank u32 | dimensions, or count and boxes
//! dimension  start | stride | count | block
//! ```

use hdf5_reader::io::Cursor;

use super::library::failed;
use zarrfs_base::error::{Error, Result};

/// The kinds of selections.
const HYPERSLAB: u32 = 2;
const ALL: u32 = 3;

/// The flag of a hyperslab that is a product of regular dimensions.
const IS_REGULAR: u8 = 1;

/// The most dimensions of a data set of HDF5.
const MAX_RANK: u32 = 32;

/// The most boxes, and the most runs along a dimension.
const MAX_RUNS: usize = 1 << 20;

/// Indices one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The first one.
    pub start: u64,
    /// How many there are.
    pub count: u64,
}

/// The indices along one dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SelectedAxis {
    /// `count` times `block` indices, each `stride` after the one before.
    Regular {
        /// The first index.
        start: u64,
        /// From one block to the next.
        stride: u64,
        /// How many blocks there are; `None` for any number.
        count: Option<u64>,
        /// The indices of a block; `None` for any number.
        block: Option<u64>,
    },
    /// These.
    Runs(Vec<Run>),
}

/// The elements that a mapping has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// All elements of a data set.
    All,
    /// A product of indices.
    Axes(Vec<SelectedAxis>),
}

/// How many indices of a range an axis has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cover {
    /// None of them.
    Nothing,
    /// Some of them.
    Some,
    /// All of them.
    All,
}

impl SelectedAxis {
    /// Returns all indices of a dimension.
    pub fn whole(len: u64) -> Self {
        Self::Regular { start: 0, stride: 1, count: Some(1), block: Some(len) }
    }

    /// Whether it has any number of indices.
    pub fn is_unlimited(&self) -> bool {
        matches!(self, Self::Regular { count: None, .. } | Self::Regular { block: None, .. })
    }

    /// Returns the indices of one of the blocks of an unlimited axis.
    pub fn of_block(&self, number: u64) -> Option<Self> {
        let Self::Regular { start, stride, count: None, block: Some(block) } = *self else {
            return None;
        };
        let start = number.checked_mul(stride)?.checked_add(start)?;
        Some(Self::Regular { start, stride: 1, count: Some(1), block: Some(block) })
    }

    /// Returns as many of the indices as are below `len`, if there is any number of them.
    pub fn within(&self, len: u64) -> Result<Self> {
        let Self::Regular { start, stride, count, block } = *self else {
            return Ok(self.clone());
        };
        let left = len.saturating_sub(start);
        match (count, block) {
            (_, None) => self.first(left),
            (None, Some(block)) => {
                let whole = left / stride.max(1);
                let rest = (left % stride.max(1)).min(block);
                let taken = whole.saturating_mul(block).saturating_add(rest);
                self.first(taken)
            }
            _ => Ok(self.clone()),
        }
    }

    /// Returns the first `taken` of any number of indices.
    pub fn first(&self, taken: u64) -> Result<Self> {
        let Self::Regular { start, stride, count, block } = *self else {
            return Ok(self.clone());
        };
        match (count, block) {
            (_, None) => Ok(Self::Regular { start, stride: 1, count: Some(1), block: Some(taken) }),
            (None, Some(block)) => {
                let (whole, rest) = (taken / block.max(1), taken % block.max(1));
                let blocks =
                    Self::Regular { start, stride, count: Some(whole), block: Some(block) };
                if rest == 0 {
                    return Ok(blocks);
                }
                let mut runs = blocks.runs()?;
                let last = whole.checked_mul(stride).and_then(|at| at.checked_add(start));
                runs.push(Run { start: last.ok_or_else(too_many)?, count: rest });
                Ok(Self::Runs(merged(runs)))
            }
            _ => Ok(self.clone()),
        }
    }

    /// Returns how many indices there are.
    pub fn len(&self) -> Result<u64> {
        let total = match self {
            Self::Regular { count: Some(count), block: Some(block), .. } => {
                count.checked_mul(*block)
            }
            Self::Regular { .. } => None,
            Self::Runs(runs) => {
                runs.iter().try_fold(0_u64, |total, run| total.checked_add(run.count))
            }
        };
        total.ok_or_else(|| Error::corrupt("HDF5: a selection of more than 2^64 elements"))
    }

    /// Returns the first index, if there are any.
    pub fn start(&self) -> u64 {
        match self {
            Self::Regular { start, .. } => *start,
            Self::Runs(runs) => runs.first().map_or(0, |run| run.start),
        }
    }

    /// Returns how many indices from `start` to `end` there are.
    pub fn cover(&self, start: u64, end: u64) -> Cover {
        let Some(run) = self.first_run_after(start).filter(|run| run.start < end) else {
            return Cover::Nothing;
        };
        let is_all = run.start <= start && end <= run.start.saturating_add(run.count);
        if is_all { Cover::All } else { Cover::Some }
    }

    /// Returns the first run that does not end before an index.
    fn first_run_after(&self, index: u64) -> Option<Run> {
        let is_after = |run: &Run| index < run.start.saturating_add(run.count);
        match self {
            Self::Runs(runs) => {
                let before = runs.partition_point(|run| !is_after(run));
                runs.get(before).copied()
            }
            Self::Regular { start, stride, count, block } => {
                let (count, block) = (count.unwrap_or(u64::MAX), block.unwrap_or(u64::MAX));
                if *stride == block || count == 1 {
                    let run = Run { start: *start, count: count.saturating_mul(block) };
                    return Some(run).filter(is_after);
                }
                let passed = index.checked_sub(start.saturating_add(block));
                let passed = passed.map_or(0, |len| (len / (*stride).max(1)).saturating_add(1));
                let start = passed.saturating_mul(*stride).saturating_add(*start);
                (passed < count && block > 0).then_some(Run { start, count: block })
            }
        }
    }

    /// Returns a number that is at least that of the cells of `len` indices with some of these.
    pub fn most_cells(&self, len: u64) -> u64 {
        let most = |count: u64| (count / len.max(1)).saturating_add(2);
        match self {
            Self::Runs(runs) => runs.iter().fold(0, |sum, run| most(run.count).saturating_add(sum)),
            Self::Regular { stride, count, block, .. } => {
                let (count, block) = (count.unwrap_or(u64::MAX), block.unwrap_or(u64::MAX));
                if *stride == block || count == 1 {
                    most(count.saturating_mul(block))
                } else {
                    most(block).saturating_mul(count)
                }
            }
        }
    }

    /// Returns the cells of `len` indices that have some of these.
    pub fn cells(&self, len: u64) -> Result<Vec<u64>> {
        let len = len.max(1);
        let mut cells = Vec::new();
        for run in self.runs()? {
            let last = run.start.saturating_add(run.count.saturating_sub(1)) / len;
            cells.extend(run.start / len..=last);
        }
        cells.dedup();
        Ok(cells)
    }

    /// Returns how many runs are in memory.
    pub fn kept_runs(&self) -> usize {
        match self {
            Self::Regular { .. } => 0,
            Self::Runs(runs) => runs.len(),
        }
    }

    /// Returns the index after the last one.
    pub fn end(&self) -> Result<u64> {
        let end = match self {
            Self::Regular { start, stride, count: Some(count), block: Some(block) } => {
                let last = count.saturating_sub(1);
                let begin = last.checked_mul(*stride).and_then(|at| at.checked_add(*start));
                let block = if *count == 0 { 0 } else { *block };
                begin.and_then(|begin| begin.checked_add(block))
            }
            Self::Regular { .. } => None,
            Self::Runs(runs) => runs.last().map_or(Some(0), |run| run.start.checked_add(run.count)),
        };
        end.ok_or_else(|| Error::corrupt("HDF5: a selection past 2^64 elements"))
    }

    /// Returns the indices as runs that do not touch.
    pub fn runs(&self) -> Result<Vec<Run>> {
        match self {
            Self::Runs(runs) => Ok(runs.clone()),
            Self::Regular { start, stride, count: Some(count), block: Some(block) } => {
                self.end()?;
                if *count == 0 || *block == 0 {
                    return Ok(Vec::new());
                }
                if stride == block || *count == 1 {
                    return Ok(vec![Run { start: *start, count: self.len()? }]);
                }
                let count = usize::try_from(*count).ok().filter(|count| *count <= MAX_RUNS);
                let count = count.ok_or_else(too_many)?;
                let starts = std::iter::successors(Some(*start), |at| at.checked_add(*stride));
                Ok(starts.take(count).map(|start| Run { start, count: *block }).collect())
            }
            Self::Regular { .. } => Err(Error::corrupt("HDF5: a selection without an end")),
        }
    }
}

fn too_many() -> Error {
    Error::unsupported(format!("a selection of HDF5 in more than {MAX_RUNS} pieces"))
}

impl Selection {
    /// Reads a selection.
    pub fn read(cursor: &mut Cursor<'_>) -> Result<Self> {
        let kind = cursor.read_u32_le().map_err(failed)?;
        let version = cursor.read_u32_le().map_err(failed)?;
        match (kind, version) {
            (ALL, 1) => {
                cursor.skip(8).map_err(failed)?;
                Ok(Self::All)
            }
            (HYPERSLAB, 1) => {
                cursor.skip(8).map_err(failed)?;
                let rank = rank(cursor)?;
                boxes(cursor, rank, 4)
            }
            (HYPERSLAB, 2) => {
                let flags = cursor.read_u8().map_err(failed)?;
                cursor.skip(4).map_err(failed)?;
                let rank = rank(cursor)?;
                if flags & IS_REGULAR == 0 { boxes(cursor, rank, 8) } else { axes(cursor, rank, 8) }
            }
            (HYPERSLAB, 3) => {
                let flags = cursor.read_u8().map_err(failed)?;
                let width = usize::from(cursor.read_u8().map_err(failed)?);
                if !matches!(width, 2 | 4 | 8) {
                    return Err(Error::corrupt(format!("HDF5: numbers of {width} bytes")));
                }
                let rank = rank(cursor)?;
                if flags & IS_REGULAR == 0 {
                    boxes(cursor, rank, width)
                } else {
                    axes(cursor, rank, width)
                }
            }
            _ => Err(Error::unsupported(format!(
                "a selection of HDF5 of the kind {kind} in version {version}"
            ))),
        }
    }

    /// Returns the indices along each dimension of a data set of this shape.
    pub fn axes(&self, shape: &[u64]) -> Result<Vec<SelectedAxis>> {
        match self {
            Self::All => Ok(shape.iter().map(|len| SelectedAxis::whole(*len)).collect()),
            Self::Axes(axes) if axes.len() == shape.len() => Ok(axes.clone()),
            Self::Axes(axes) => Err(Error::corrupt(format!(
                "HDF5: a selection in {} dimensions of a data set of {}",
                axes.len(),
                shape.len()
            ))),
        }
    }

    /// Returns the dimension that has any number of indices.
    pub fn unlimited(&self) -> Option<usize> {
        match self {
            Self::All => None,
            Self::Axes(axes) => axes.iter().position(SelectedAxis::is_unlimited),
        }
    }
}

fn rank(cursor: &mut Cursor<'_>) -> Result<usize> {
    let rank = cursor.read_u32_le().map_err(failed)?;
    let valid = usize::try_from(rank).ok().filter(|_| (1..=MAX_RANK).contains(&rank));
    valid.ok_or_else(|| Error::corrupt(format!("HDF5: a selection in {rank} dimensions")))
}

/// Reads regular dimensions of numbers of `width` bytes.
fn axes(cursor: &mut Cursor<'_>, rank: usize, width: usize) -> Result<Selection> {
    let most = if width == 8 { u64::MAX } else { (1_u64 << (width * 8)) - 1 };
    let mut axes = Vec::with_capacity(rank);
    for _ in 0..rank {
        let mut number = || cursor.read_uvar(width).map_err(failed);
        let (start, stride) = (number()?, number()?);
        let (count, block) = (number()?, number()?);
        let limited = |number: u64| (number != most).then_some(number);
        let (count, block) = (limited(count), limited(block));
        let overlap = count != Some(1) && block.is_none_or(|block| block > stride);
        if stride == 0 || overlap {
            return Err(Error::corrupt("HDF5: a selection whose blocks overlap"));
        }
        axes.push(SelectedAxis::Regular { start, stride, count, block });
    }
    Ok(Selection::Axes(axes))
}

/// Reads boxes of numbers of `width` bytes, which must be a product of runs.
fn boxes(cursor: &mut Cursor<'_>, rank: usize, width: usize) -> Result<Selection> {
    let count = cursor.read_uvar(width).map_err(failed)?;
    let count = usize::try_from(count).ok().filter(|count| *count <= MAX_RUNS);
    let count = count.ok_or_else(too_many)?;
    let len = count.saturating_mul(rank).saturating_mul(width.saturating_mul(2));
    let mut boxes = Cursor::new(cursor.read_bytes(len).map_err(failed)?);
    let mut found: Vec<Run> = Vec::with_capacity(count.saturating_mul(rank));
    for _ in 0..count {
        let firsts: Vec<u64> =
            (0..rank).map(|_| boxes.read_uvar(width).map_err(failed)).collect::<Result<_>>()?;
        for first in firsts {
            let last = boxes.read_uvar(width).map_err(failed)?;
            let count = last.checked_sub(first).and_then(|count| count.checked_add(1));
            let count =
                count.ok_or_else(|| Error::corrupt("HDF5: a box that ends before it begins"))?;
            found.push(Run { start: first, count });
        }
    }
    product(&found, rank)
}

/// Returns boxes in C order as a product of runs.
fn product(boxes: &[Run], rank: usize) -> Result<Selection> {
    let irregular = || Error::unsupported("a selection of HDF5 that is not a product of indices");
    let mut axes: Vec<Vec<Run>> = Vec::with_capacity(rank);
    for dimension in 0..rank {
        let mut runs: Vec<Run> = boxes.iter().skip(dimension).step_by(rank).copied().collect();
        runs.sort_unstable_by_key(|run| (run.start, run.count));
        runs.dedup();
        let overlap = runs.windows(2).any(
            |pair| matches!(pair, [one, two] if one.start.saturating_add(one.count) > two.start),
        );
        if overlap {
            return Err(irregular());
        }
        axes.push(runs);
    }
    let counts: Vec<u64> = axes.iter().map(|runs| u64::try_from(runs.len()).unwrap_or(0)).collect();
    let total = counts.iter().try_fold(1_u64, |total, count| total.checked_mul(*count));
    let box_count = boxes.len().checked_div(rank).and_then(|count| u64::try_from(count).ok());
    if total != box_count {
        return Err(irregular());
    }
    // No two boxes are the same, so all of the product are there.
    let mut sorted: Vec<&[Run]> = boxes.chunks_exact(rank).collect();
    sorted.sort_unstable_by(|one, two| {
        one.iter().map(|run| run.start).cmp(two.iter().map(|run| run.start))
    });
    if sorted.windows(2).any(|pair| matches!(pair, [one, two] if one == two)) {
        return Err(irregular());
    }
    Ok(Selection::Axes(axes.into_iter().map(|runs| SelectedAxis::Runs(merged(runs))).collect()))
}

/// Joins runs that touch.
fn merged(runs: Vec<Run>) -> Vec<Run> {
    let mut joined: Vec<Run> = Vec::with_capacity(runs.len());
    for run in runs {
        match joined.last_mut() {
            Some(last) if last.start.checked_add(last.count) == Some(run.start) => {
                last.count = last.count.saturating_add(run.count);
            }
            _ => joined.push(run),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use zarrfs_base::width::ToU64;

    fn regular(start: u64, stride: u64, count: Option<u64>, block: Option<u64>) -> SelectedAxis {
        SelectedAxis::Regular { start, stride, count, block }
    }

    #[test]
    fn any_number_of_blocks_is_cut_at_the_end_of_the_source() {
        let axis = regular(1, 4, None, Some(2));
        assert_eq!(
            axis.within(9).unwrap().runs().unwrap(),
            regular(1, 4, Some(2), Some(2)).runs().unwrap()
        );
        let cut = axis.within(6).unwrap().runs().unwrap();
        assert_eq!(cut, vec![Run { start: 1, count: 2 }, Run { start: 5, count: 1 }]);
        assert_eq!(axis.within(1).unwrap().len().unwrap(), 0);
    }

    #[test]
    fn the_cover_of_a_range_is_that_of_the_runs() {
        let runs = |axis: &SelectedAxis| SelectedAxis::Runs(axis.runs().unwrap());
        let axes = [
            regular(3, 4, Some(3), Some(2)),
            regular(2, 3, Some(4), Some(3)),
            regular(5, 1, Some(1), Some(4)),
            regular(0, 5, Some(3), Some(1)),
        ];
        for axis in axes.iter().flat_map(|axis| [axis.clone(), runs(axis)]) {
            let indices: Vec<u64> = axis
                .runs()
                .unwrap()
                .iter()
                .flat_map(|run| run.start..run.start + run.count)
                .collect();
            assert_eq!(axis.start(), indices[0]);
            for (start, end) in
                (0..20).flat_map(|start| (start + 1..21).map(move |end| (start, end)))
            {
                let cover = match indices.iter().filter(|at| (start..end).contains(*at)).count() {
                    0 => Cover::Nothing,
                    count if count.to_u64() == end - start => Cover::All,
                    _ => Cover::Some,
                };
                assert_eq!(axis.cover(start, end), cover, "{axis:?}: {start} to {end}");
            }
            for len in 1..6 {
                let mut cells: Vec<u64> = indices.iter().map(|at| at / len).collect();
                cells.dedup();
                assert_eq!(axis.cells(len).unwrap(), cells, "{axis:?} in cells of {len}");
                assert!(axis.most_cells(len) >= cells.len().to_u64());
            }
        }
    }

    #[test]
    fn boxes_are_joined_to_a_product_or_refused() {
        let run = |start, count| Run { start, count };
        let boxes = [run(0, 2), run(3, 1), run(0, 2), run(5, 1), run(4, 2), run(3, 1)];
        assert!(product(&boxes, 2).is_err());
        let whole = [&boxes[..], &[run(4, 2), run(5, 1)]].concat();
        let Selection::Axes(axes) = product(&whole, 2).unwrap() else { panic!() };
        assert_eq!(axes[0].runs().unwrap(), vec![run(0, 2), run(4, 2)]);
        assert_eq!(axes[1].runs().unwrap(), vec![run(3, 1), run(5, 1)]);
        let twice = [&boxes[..], &[run(0, 2), run(3, 1)]].concat();
        assert!(product(&twice, 2).is_err());
    }
}
