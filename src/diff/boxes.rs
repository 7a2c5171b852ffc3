//! Boxes of elements: which chunks of an array overlap them, and how to read them.

use std::sync::Arc;

use crate::array::region::{self, Offset};
use crate::array::{Array, Coords, Grid};
use crate::buffer::{Buffer, reserve};
use crate::cache::ChunkCache;
use crate::codec::VlenPlaces;
use crate::error::{Error, Result};
use crate::width::ToUsize;

/// A box of elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElementBox {
    /// The first element along each dimension.
    pub start: Vec<u64>,
    /// The number of elements along each dimension.
    pub extent: Vec<u64>,
}

impl ElementBox {
    /// Returns the elements of a chunk that lie in the array.
    pub fn of_chunk(array: &Array, coords: &Coords) -> Result<Self> {
        let start = array.grid().spans(coords)?.into_iter().map(|(start, _)| start).collect();
        Ok(Self { start, extent: array.grid().extent(coords, &array.model().shape)? })
    }

    /// Returns the number of elements.
    pub fn count(&self) -> u64 {
        self.extent.iter().fold(1, |all, len| all.saturating_mul(*len))
    }

    /// Returns the chunks of a grid that overlap the box, in order.
    pub fn chunks(&self, grid: &Grid) -> impl Iterator<Item = Coords> + use<> {
        let index = |axis: usize, element: u64| grid.index_of(axis, element).unwrap_or_default();
        let (mut first, mut counts) = (Vec::new(), Vec::new());
        for (axis, (start, len)) in self.start.iter().zip(&self.extent).enumerate() {
            let from = index(axis, *start);
            let last = index(axis, start.saturating_add(len.saturating_sub(1)));
            first.push(from);
            counts.push(if *len == 0 { 0 } else { last.saturating_sub(from).saturating_add(1) });
        }
        let mut at = (!counts.contains(&0)).then(|| vec![0; counts.len()]);
        std::iter::from_fn(move || {
            let now = at.as_mut()?;
            let found: Vec<u64> =
                first.iter().zip(&*now).map(|(first, at)| first.saturating_add(*at)).collect();
            if !region::step(now, &counts) {
                at = None;
            }
            Some(Coords::new(found))
        })
    }

    /// Returns the elements that both boxes contain.
    fn intersection(&self, other: &Self) -> Self {
        let ends = |span: &Self| -> Vec<u64> {
            span.start.iter().zip(&span.extent).map(|(s, n)| s.saturating_add(*n)).collect()
        };
        let start: Vec<u64> = self.start.iter().zip(&other.start).map(|(a, b)| *a.max(b)).collect();
        let until = ends(self).into_iter().zip(ends(other)).map(|(a, b)| a.min(b));
        let extent = until.zip(&start).map(|(until, start)| until.saturating_sub(*start)).collect();
        Self { start, extent }
    }

    /// Returns the start of the box, relative to the start of `other`.
    fn within(&self, other: &Self) -> Vec<u64> {
        self.start.iter().zip(&other.start).map(|(a, b)| a.saturating_sub(*b)).collect()
    }
}

/// The elements of a box in C order.
#[derive(Debug)]
pub enum BoxElements {
    /// Elements of the same length, one after another.
    Fixed(Buffer),
    /// Elements of any length.
    Variable(Strings),
}

impl BoxElements {
    /// Returns the element with this index, each of `item_len` bytes if their length is fixed.
    pub fn item(&self, index: usize, item_len: usize) -> Option<&[u8]> {
        match self {
            Self::Fixed(bytes) => {
                let start = index.checked_mul(item_len)?;
                bytes.get(start..start.checked_add(item_len)?)
            }
            Self::Variable(strings) => strings.get(index),
        }
    }
}

/// Elements of any length, in the chunks that hold them: there may be many millions.
#[derive(Debug)]
pub struct Strings {
    fill: Vec<u8>,
    /// The chunks, each with the number of its first element. Number 0 is the fill value.
    chunks: Vec<(u32, Buffer, VlenPlaces)>,
    /// The number of each element in the box, in four bytes; `None` if the box is the first chunk.
    numbers: Option<Buffer>,
}

impl Strings {
    /// Adds a chunk of `count` elements, and returns the number of the first.
    fn add(&mut self, bytes: Buffer, count: usize) -> Result<u32> {
        let first = match self.chunks.last() {
            Some((first, _, places)) => u32::try_from(places.count())
                .ok()
                .and_then(|count| first.checked_add(count))
                .ok_or_else(too_large)?,
            None => 1,
        };
        u32::try_from(count)
            .ok()
            .and_then(|count| first.checked_add(count))
            .ok_or_else(too_large)?;
        let places = VlenPlaces::of(&bytes, count)?;
        self.chunks.push((first, bytes, places));
        Ok(first)
    }

    fn get(&self, index: usize) -> Option<&[u8]> {
        let number = match &self.numbers {
            Some(numbers) => u32::from_le_bytes(*numbers.as_chunks().0.get(index)?),
            None => u32::try_from(index).ok()?.checked_add(1)?,
        };
        if number == 0 {
            return Some(&self.fill);
        }
        let after = self.chunks.partition_point(|(first, ..)| *first <= number);
        let (first, bytes, places) = self.chunks.get(after.checked_sub(1)?)?;
        places.get(bytes, number.checked_sub(*first)?.to_usize())
    }
}

/// The length in bytes of an element's number.
const NUMBER_LEN: usize = size_of::<u32>();

/// Reads the elements of a box; `None` if no chunk in it is stored.
pub fn read(
    array: &Arc<Array>,
    span: &ElementBox,
    cache: &ChunkCache,
) -> Result<Option<BoxElements>> {
    let item_len = array.model().dtype.item_len();
    let is_variable = array.model().dtype.is_variable();
    let count = usize::try_from(span.count()).map_err(|_| too_large())?;
    let fill = array.model().fill.item(&array.model().dtype);
    // Elements of variable length are copied as their numbers.
    let mut strings = Strings { fill: fill.to_vec(), chunks: Vec::new(), numbers: None };
    let len = if is_variable { NUMBER_LEN } else { item_len };
    let len = count.checked_mul(len).ok_or_else(too_large)?;
    let mut target: Option<Buffer> = None;
    for coords in span.chunks(array.grid()) {
        let bytes = match cache.get(array, &coords)? {
            Some(chunk) => chunk.bytes,
            None => match array.read_again(&coords)? {
                Some((bytes, _)) => bytes,
                None => continue,
            },
        };
        let whole = ElementBox::of_chunk(array, &coords)?;
        let shape = array.chunk_shape_at(&coords)?;
        if whole == *span && shape == span.extent {
            if !is_variable {
                return Ok(Some(BoxElements::Fixed(bytes)));
            }
            strings.add(bytes, count)?;
            return Ok(Some(BoxElements::Variable(strings)));
        }
        let target = if let Some(target) = &mut target {
            target
        } else {
            let mut new = Buffer::zeroed(len)?;
            if !is_variable && fill.iter().any(|byte| *byte != 0) {
                for item in new.to_mut().chunks_exact_mut(item_len.max(1)) {
                    item.copy_from_slice(&fill);
                }
            }
            target.insert(new)
        };
        let shared = span.intersection(&whole);
        let (from, to) = (shared.within(&whole), shared.within(span));
        let from = Offset { shape: &shape, start: &from };
        let to = Offset { shape: &span.extent, start: &to };
        if is_variable {
            let all = shape.iter().try_fold(1_u64, |all, len| all.checked_mul(*len));
            let all = all.and_then(|all| usize::try_from(all).ok()).ok_or_else(too_large)?;
            let first = strings.add(bytes, all)?;
            let mut numbers = reserve(all.checked_mul(NUMBER_LEN).ok_or_else(too_large)?)?;
            numbers.extend((first..).take(all).flat_map(u32::to_le_bytes));
            let target = (target.to_mut().as_mut_slice(), to);
            region::copy((&numbers, from), target, &shared.extent, NUMBER_LEN)?;
        } else {
            region::copy((&bytes, from), (target.to_mut(), to), &shared.extent, item_len)?;
        }
    }
    let Some(target) = target else { return Ok(None) };
    if !is_variable {
        return Ok(Some(BoxElements::Fixed(target)));
    }
    strings.numbers = Some(target);
    Ok(Some(BoxElements::Variable(strings)))
}

fn too_large() -> Error {
    Error::too_large("a chunk does not fit into memory")
}
