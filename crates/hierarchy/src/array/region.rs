//! Boxes of elements in C order, and copies between arrays.

use std::ops::Range;

use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_base::width::ToUsize;

/// The position of a box in an array.
#[derive(Debug, Clone, Copy)]
pub struct Offset<'p> {
    /// The shape of the array.
    pub shape: &'p [u64],
    /// The first element of the box along each dimension.
    pub start: &'p [u64],
}

/// How much of a chunk is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cover {
    /// All of its elements that lie in the array, so it need not be read first.
    Whole,
    /// This many bytes: all elements of the array in a range of the chunk's bytes.
    Range(u64, Range<usize>),
    /// This many bytes.
    Part(u64),
}

impl Cover {
    /// Returns the number of bytes, `None` for the whole chunk.
    pub fn part(&self) -> Option<u64> {
        match self {
            Self::Whole => None,
            Self::Range(len, _) | Self::Part(len) => Some(*len),
        }
    }
}

/// Returns the range of a chunk's elements in which a box contains all those that lie in
/// the array; `None` if there is none. `within` is the number of the chunk's elements in the array
/// along each dimension.
pub fn range_of(chunk: Offset<'_>, extent: &[u64], within: &[u64]) -> Option<Range<u64>> {
    let (mut is_cut, mut carries) = (false, true);
    let (mut from, mut until, mut stride) = (0_u64, 0_u64, 1_u64);
    let starts = chunk.shape.iter().zip(chunk.start);
    for ((full, start), (len, most)) in starts.zip(extent.iter().zip(within)).rev() {
        if is_cut && *len > 1 {
            return None;
        }
        is_cut |= len < most;
        from = from.checked_add(start.checked_mul(stride)?)?;
        // The element after the last one.
        let next = start.checked_add(*len)?.checked_sub(u64::from(!carries))?;
        carries = next == *most;
        until = until.checked_add(if carries { 0 } else { next.checked_mul(stride)? })?;
        stride = stride.checked_mul(*full)?;
    }
    Some(from..if carries { stride } else { until })
}

/// Returns the range from the first to the last element of a box in an array, in C order.
pub fn bounds(array: Offset<'_>, extent: &[u64]) -> Option<Range<u64>> {
    if extent.contains(&0) {
        return Some(0..0);
    }
    let (mut first, mut last, mut stride) = (0_u64, 0_u64, 1_u64);
    for ((full, start), len) in array.shape.iter().zip(array.start).zip(extent).rev() {
        first = first.checked_add(start.checked_mul(stride)?)?;
        last = last.checked_add(start.checked_add(len.saturating_sub(1))?.checked_mul(stride)?)?;
        stride = stride.checked_mul(*full)?;
    }
    Some(first..last.checked_add(1)?)
}

/// Copies a box of `extent` elements of `item_len` bytes each.
pub fn copy(
    (from, from_place): (&[u8], Offset<'_>),
    to: (&mut [u8], Offset<'_>),
    extent: &[u64],
    item_len: usize,
) -> Result<()> {
    copy_from((from, 0, from_place), to, extent, item_len)
}

/// Like [`copy`], from an array without its first `skipped` bytes, and perhaps without its last
/// ones.
pub fn copy_from(
    (from, skipped, from_place): (&[u8], usize, Offset<'_>),
    (to, to_place): (&mut [u8], Offset<'_>),
    extent: &[u64],
    item_len: usize,
) -> Result<()> {
    if extent.contains(&0) {
        return Ok(());
    }
    let item_len = u64::try_from(item_len).map_err(|_| outside())?;
    // Dimensions that are complete in both arrays merge into one row with the previous one.
    let mut row_len = item_len;
    let mut outer = extent.len();
    while let Some(axis) = outer.checked_sub(1) {
        let len = extent.get(axis).copied().ok_or_else(outside)?;
        row_len = row_len.checked_mul(len).ok_or_else(outside)?;
        outer = axis;
        let is_whole = |place: &Offset<'_>| place.shape.get(axis) == Some(&len);
        if !is_whole(&from_place) || !is_whole(&to_place) {
            break;
        }
    }
    let row = usize::try_from(row_len).map_err(|_| outside())?;
    let outer_extent = extent.get(..outer).ok_or_else(outside)?;
    let mut at = vec![0_u64; outer];
    loop {
        let range = |place: &Offset<'_>| -> Option<Range<usize>> {
            let mut index = 0_u64;
            for (axis, (len, start)) in place.shape.iter().zip(place.start).enumerate() {
                let position = start.checked_add(at.get(axis).copied().unwrap_or(0))?;
                index = index.checked_mul(*len)?.checked_add(position)?;
            }
            let offset = index.checked_mul(item_len)?.to_usize();
            Some(offset..offset.checked_add(row)?)
        };
        let (source, target) = (range(&from_place), range(&to_place));
        let source = source
            .and_then(|range| {
                Some(range.start.checked_sub(skipped)?..range.end.checked_sub(skipped)?)
            })
            .and_then(|range| from.get(range))
            .ok_or_else(outside)?;
        let target = target.and_then(|range| to.get_mut(range)).ok_or_else(outside)?;
        target.copy_from_slice(source);
        if !step(&mut at, outer_extent) {
            return Ok(());
        }
    }
}

/// A box of consecutive elements in C order.
#[derive(Debug, PartialEq, Eq)]
pub struct ElementRun {
    /// The first element along each dimension.
    pub start: Vec<u64>,
    /// The number of elements along each dimension.
    pub extent: Vec<u64>,
}

/// Returns the elements from number `first` on and before `last` of an array of `shape` as
/// consecutive boxes.
pub fn runs(shape: &[u64], first: u64, last: u64) -> Vec<ElementRun> {
    let mut runs = Vec::new();
    split(shape, &mut Vec::new(), (first, last), &mut runs);
    runs
}

fn split(
    shape: &[u64],
    above: &mut Vec<u64>,
    (first, last): (u64, u64),
    runs: &mut Vec<ElementRun>,
) {
    if first >= last {
        return;
    }
    let Some((_, below)) = shape.split_first() else {
        let extent = vec![1; above.len()];
        return runs.push(ElementRun { start: above.clone(), extent });
    };
    let row = below.iter().fold(1, |all: u64, len| all.saturating_mul(*len)).max(1);
    let (mut from, until) = (first / row, last / row);
    let (skipped, rest) = (first % row, last % row);
    let inner =
        |above: &mut Vec<u64>, index: u64, range: (u64, u64), runs: &mut Vec<ElementRun>| {
            above.push(index);
            split(below, above, range, runs);
            above.pop();
        };
    if from == until {
        return inner(above, from, (skipped, rest), runs);
    }
    if skipped > 0 {
        inner(above, from, (skipped, row), runs);
        from = from.saturating_add(1);
    }
    if from < until {
        let mut start = above.clone();
        let mut extent = vec![1; above.len()];
        start.push(from);
        extent.push(until.saturating_sub(from));
        start.extend(below.iter().map(|_| 0));
        extent.extend(below);
        runs.push(ElementRun { start, extent });
    }
    inner(above, until, (0, rest), runs);
}

/// Steps to the next position in a box, the last dimension first; `false` after the last one.
pub fn step(at: &mut [u64], extent: &[u64]) -> bool {
    for (index, len) in at.iter_mut().zip(extent).rev() {
        *index = index.saturating_add(1);
        if *index < *len {
            return true;
        }
        *index = 0;
    }
    false
}

fn outside() -> Error {
    Error::new(Kind::Internal, "a box outside of its chunk")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_is_a_range_if_it_contains_consecutive_elements_of_the_array() {
        let (shape, within) = ([2, 3, 4], [2, 3, 3]);
        let boxes =
            |most: u64| (0..most).flat_map(move |at| (1..=most - at).map(move |len| (at, len)));
        let mut ranges = 0;
        for (a, b, c) in
            boxes(2).flat_map(|a| boxes(3).flat_map(move |b| boxes(3).map(move |c| (a, b, c))))
        {
            let (start, extent) = ([a.0, b.0, c.0], [a.1, b.1, c.1]);
            let is_in =
                |at: [u64; 3]| (0..3).all(|i| (start[i]..start[i] + extent[i]).contains(&at[i]));
            let elements = (0..24).map(|n| [n / 12, n / 4 % 3, n % 4]);
            let of_array = elements.enumerate().filter(|(_, at)| at[2] < within[2]);
            let (inside, all): (Vec<_>, Vec<_>) =
                (of_array.clone().filter(|(_, at)| is_in(*at)).collect(), of_array.collect());
            let first = all.iter().position(|at| *at == inside[0]).expect("there");
            let follow = all[first..].iter().take(inside.len()).eq(inside.iter());
            let found = range_of(Offset { shape: &shape, start: &start }, &extent, &within);
            assert_eq!(found.is_some(), follow, "{start:?} {extent:?}");
            if let Some(range) = found {
                let until = all.get(first + inside.len()).map_or(24, |(n, _)| *n as u64);
                assert_eq!(range, inside[0].0 as u64..until, "{start:?} {extent:?}");
                ranges += 1;
            }
        }
        assert!(ranges > 20);
    }

    #[test]
    fn a_box_is_copied_element_by_element() {
        let from: Vec<u8> = (0..60).collect();
        for extent in [[1, 1, 1], [2, 3, 5], [2, 2, 5], [1, 3, 2], [2, 0, 1]] {
            for start in [[0, 0, 0], [1, 1, 0], [0, 0, 3]] {
                let shape = [3, 4, 5];
                if extent.iter().zip(&start).zip(&shape).any(|((len, at), all)| len + at > *all) {
                    continue;
                }
                let (to_shape, to_start) = ([2, 3, 5], [0, 0, 0]);
                let mut to = vec![255; 30];
                let places = (
                    Offset { shape: &shape, start: &start },
                    Offset { shape: &to_shape, start: &to_start },
                );
                copy((&from, places.0), (&mut to, places.1), &extent, 1).expect("inside");
                let range = bounds(places.0, &extent).expect("few");
                let range = range.start as usize..range.end as usize;
                let mut of_range = vec![255; 30];
                let excerpt = (&from[range.clone()], range.start, places.0);
                copy_from(excerpt, (&mut of_range, places.1), &extent, 1).expect("inside");
                assert_eq!(of_range, to, "{extent:?} from {start:?}");
                for (at, found) in to.iter().enumerate() {
                    let at = [at as u64 / 15, at as u64 / 5 % 3, at as u64 % 5];
                    let is_in = at.iter().zip(&extent).all(|(at, len)| at < len);
                    let [x, y, z] = [0, 1, 2].map(|axis| start[axis] + at[axis]);
                    let expected = if is_in { (x * 20 + y * 5 + z) as u8 } else { 255 };
                    assert_eq!(*found, expected, "{extent:?} from {start:?}: {at:?}");
                }
            }
        }
        let place = Offset { shape: &[], start: &[] };
        let mut to = [0; 2];
        copy((&[1, 2], place), (&mut to, place), &[], 2).expect("a scalar");
        assert_eq!(to, [1, 2]);
        let place = Offset { shape: &[4], start: &[2] };
        assert!(copy((&[0; 4], place), (&mut [0; 4], place), &[3], 1).is_err());
    }
}
