//! The elements of a hyperslab: every `stride`-th element of an array along each dimension.
//!
//! A hyperslab is itself an array, whose elements have numbers in C order. Reading a range of
//! numbers decodes only the chunks with elements in it, one at a time.

use std::collections::HashSet;
use std::ops::Range;

use crate::array::Coords;
use crate::array::region::{self, ElementRun};
use crate::buffer::reserve;
use crate::codec::vlen_items;
use crate::error::{Error, Kind, Result, WithSubject};
use crate::view::{ElementRange, GetChunk};
use crate::width::{ToU64, ToUsize};

/// The most bytes of several strings that are in memory at once, beside those of a chunk.
const MAX_STRINGS_LEN: usize = 16 << 20;

/// The most chunks that [`Hyperslab::chunks`] returns: decoding in advance is no gain where chunks
/// are smaller.
const MOST_CHUNKS: usize = 1024;

/// The elements along one dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SelectedAxis {
    /// The index of the first one.
    pub start: u64,
    /// The distance between two of them.
    pub stride: u64,
    /// The number of elements.
    pub count: u64,
}

impl SelectedAxis {
    /// Returns all elements of a dimension.
    pub fn all(len: u64) -> Self {
        Self { start: 0, stride: 1, count: len }
    }

    fn index(&self, number: u64) -> Option<u64> {
        number.checked_mul(self.stride)?.checked_add(self.start)
    }
}

/// The elements of a hyperslab.
#[derive(Debug, Clone)]
pub(super) struct Hyperslab {
    elements: ElementRange,
    axes: Vec<SelectedAxis>,
    /// The number of elements along each dimension.
    shape: Vec<u64>,
}

/// The elements along one dimension that a run shares with a chunk.
#[derive(Debug, Clone, Copy)]
struct SharedRun {
    /// The index of the chunk.
    chunk: u64,
    /// The index of the first element in the chunk.
    within: u64,
    /// The index of the first element in the run.
    to: u64,
    count: u64,
}

/// Elements at equal distances in a chunk, which follow each other in a run.
struct Strided {
    /// The number of the first one in the chunk.
    from: u64,
    stride: u64,
    /// The number of the first one in the run.
    to: u64,
    count: u64,
}

/// The elements that a run shares with a chunk.
struct Overlap<'o> {
    coords: Coords,
    chunk_shape: Vec<u64>,
    shared: Vec<SharedRun>,
    axes: &'o [SelectedAxis],
    extent: &'o [u64],
}

impl Hyperslab {
    /// Returns the selected elements of an array. `axes` has one entry for each dimension.
    pub fn new(elements: ElementRange, axes: Vec<SelectedAxis>) -> Self {
        let shape = axes.iter().map(|axis| axis.count).collect();
        Self { elements, axes, shape }
    }

    /// Returns the number of elements along each dimension.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Returns the number of elements, `None` if there are more than 2^64.
    pub fn count(&self) -> Option<u64> {
        if self.shape.contains(&0) {
            return Some(0);
        }
        self.shape.iter().try_fold(1, |all: u64, len| all.checked_mul(*len))
    }

    /// Returns the elements from number `first` on and before `last`, little endian. They are of
    /// fixed length.
    pub fn items(&self, first: u64, last: u64, get: &GetChunk<'_>) -> Result<Vec<u8>> {
        let model = self.elements.array.model();
        let item_len = model.dtype.item_len();
        let item_size = u64::try_from(item_len).map_err(|_| outside())?;
        let len = last.saturating_sub(first).checked_mul(item_size);
        let len = len.and_then(|len| usize::try_from(len).ok()).ok_or_else(outside)?;
        let mut bytes = reserve(len)?;
        bytes.resize(len, 0);
        let fill = model.fill.item(&model.dtype);
        if fill.iter().any(|byte| *byte != 0) {
            bytes.chunks_exact_mut(fill.len()).for_each(|item| item.copy_from_slice(&fill));
        }
        let place = |number: u64, skipped: usize| {
            number.checked_mul(item_size)?.to_usize().checked_sub(skipped)
        };
        self.for_each_overlap(first, last, &mut |base, overlap| {
            let wanted = overlap.bounds().ok_or_else(outside)?;
            let wanted = place(wanted.start, 0).zip(place(wanted.end, 0)).ok_or_else(outside)?;
            let range = wanted.0..wanted.1;
            let Some(got) = get(&self.elements, &overlap.coords, &range)? else { return Ok(()) };
            overlap.for_each_row(&mut |row| {
                let from = place(row.from, got.start);
                let to = base.checked_add(row.to).and_then(|to| place(to, 0));
                let source = from.and_then(|from| got.bytes.get(from..));
                let target = to.and_then(|to| bytes.get_mut(to..));
                let both = source.zip(target);
                both.and_then(|(from, to)| row.copy(from, to, item_len)).ok_or_else(outside)
            })
        })?;
        Ok(bytes)
    }

    /// Returns the elements of variable length from number `first` on and before `last`; `None` if
    /// they are several, with more than [`MAX_STRINGS_LEN`] bytes in all.
    pub fn variable_items(
        &self,
        first: u64,
        last: u64,
        get: &GetChunk<'_>,
    ) -> Result<Option<Vec<Vec<u8>>>> {
        let model = self.elements.array.model();
        let count = usize::try_from(last.saturating_sub(first)).map_err(|_| outside())?;
        let fill = model.fill.item(&model.dtype);
        let mut len = fill.len().saturating_mul(count);
        let is_long = |len: usize| len > MAX_STRINGS_LEN && count > 1;
        if is_long(len) {
            return Ok(None);
        }
        let mut items = vec![fill.into_owned(); count];
        self.for_each_overlap(first, last, &mut |base, overlap| {
            if is_long(len) {
                return Ok(());
            }
            let chunk = get(&self.elements, &overlap.coords, &(0..usize::MAX))?;
            let Some(chunk) = chunk else { return Ok(()) };
            let count = overlap.chunk_shape.iter().try_fold(1, |all: u64, n| all.checked_mul(*n));
            let count = count.and_then(|count| usize::try_from(count).ok()).ok_or_else(outside)?;
            let stored = vlen_items(&chunk.bytes, count)?;
            overlap.for_each_row(&mut |row| {
                for number in 0..row.count {
                    let from = number.checked_mul(row.stride).and_then(|n| n.checked_add(row.from));
                    let from = from.and_then(|from| stored.get(from.to_usize()));
                    let to = base.saturating_add(row.to).saturating_add(number);
                    let to = usize::try_from(to).ok().and_then(|to| items.get_mut(to));
                    let (from, to) = from.zip(to).ok_or_else(outside)?;
                    len = len.saturating_add(from.len());
                    *to = from.to_vec();
                }
                Ok(())
            })
        })?;
        Ok((!is_long(len)).then_some(items))
    }

    /// Returns the first chunks with elements from number `first` on and before `last`, each once,
    /// at most [`MOST_CHUNKS`].
    pub fn chunks(&self, first: u64, last: u64) -> Vec<(ElementRange, Coords)> {
        let (mut known, mut chunks) = (HashSet::new(), Vec::new());
        let found = self.for_each_overlap(first, last, &mut |_, overlap| {
            if known.insert(overlap.coords.clone()) {
                chunks.push((self.elements.clone(), overlap.coords.clone()));
            }
            let are_enough = chunks.len() >= MOST_CHUNKS;
            if are_enough { Err(Error::new(Kind::Busy, "enough chunks")) } else { Ok(()) }
        });
        // An error is reported when the elements are read.
        found.unwrap_or_else(|error| log::debug!("looking for chunks: {error}"));
        chunks
    }

    /// Calls `each` for each chunk with elements in a range of numbers. The first argument is the
    /// index of the first element of its run in the range.
    fn for_each_overlap(
        &self,
        first: u64,
        last: u64,
        each: &mut dyn FnMut(u64, &Overlap<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut base = 0_u64;
        for ElementRun { start, extent } in region::runs(&self.shape, first, last) {
            let along = self.axes.iter().zip(start.iter().zip(&extent)).enumerate();
            let shared =
                along.map(|(axis, (of, (start, len)))| self.shared(axis, of, *start, *len));
            let shared: Vec<Vec<SharedRun>> = shared.collect::<Result<_>>()?;
            let counts: Vec<u64> = shared.iter().map(|list| list.len().to_u64()).collect();
            let mut at = vec![0; counts.len()];
            loop {
                let here =
                    shared.iter().zip(&at).map(|(list, at)| list.get((*at).to_usize()).copied());
                let here: Vec<SharedRun> = here.collect::<Option<_>>().ok_or_else(outside)?;
                let coords = Coords::new(here.iter().map(|one| one.chunk).collect::<Vec<u64>>());
                let chunk_shape = self.elements.array.grid().chunk_shape_at(&coords)?;
                let overlap = Overlap {
                    coords,
                    chunk_shape,
                    shared: here,
                    axes: &self.axes,
                    extent: &extent,
                };
                each(base, &overlap).at(&self.elements.path)?;
                if !region::step(&mut at, &counts) {
                    break;
                }
            }
            base = extent
                .iter()
                .fold(1, |all: u64, len| all.saturating_mul(*len))
                .saturating_add(base);
        }
        Ok(())
    }

    /// Returns the chunks that share elements with `len` of the numbers along a dimension, from
    /// `start` on.
    fn shared(
        &self,
        axis: usize,
        of: &SelectedAxis,
        start: u64,
        len: u64,
    ) -> Result<Vec<SharedRun>> {
        let grid = self.elements.array.grid();
        let mut list = Vec::new();
        let mut to = 0_u64;
        while to < len {
            let element = start.checked_add(to).and_then(|number| of.index(number));
            let element = element.ok_or_else(outside)?;
            let chunk = grid.index_of(axis, element).ok_or_else(outside)?;
            let (begin, chunk_len) = grid.span(axis, chunk).ok_or_else(outside)?;
            let within = element.checked_sub(begin).filter(|at| *at < chunk_len);
            let within = within.ok_or_else(outside)?;
            let after = chunk_len.saturating_sub(within).saturating_sub(1);
            let count = (after / of.stride.max(1)).saturating_add(1).min(len.saturating_sub(to));
            list.push(SharedRun { chunk, within, to, count });
            to = to.saturating_add(count);
        }
        Ok(list)
    }
}

impl Overlap<'_> {
    /// Returns the range from the first to the last element in the chunk.
    fn bounds(&self) -> Option<Range<u64>> {
        let (mut first, mut last) = (0_u64, 0_u64);
        for ((len, shared), axis) in self.chunk_shape.iter().zip(&self.shared).zip(self.axes) {
            let steps = shared.count.saturating_sub(1).checked_mul(axis.stride)?;
            first = first.checked_mul(*len)?.checked_add(shared.within)?;
            last = last.checked_mul(*len)?.checked_add(shared.within.checked_add(steps)?)?;
        }
        Some(first..last.checked_add(1)?)
    }

    /// Calls `each` for each row along the last dimension.
    fn for_each_row(&self, each: &mut dyn FnMut(Strided) -> Result<()>) -> Result<()> {
        let counts: Vec<u64> = self.shared.iter().map(|shared| shared.count).collect();
        let outer = counts.len().saturating_sub(1);
        let mut at = vec![0; counts.len()];
        let count = counts.last().copied().unwrap_or(1);
        let stride = self.axes.last().map_or(1, |axis| axis.stride);
        loop {
            let row = self.row(&at, stride, count).ok_or_else(outside)?;
            each(row)?;
            let (at, counts) = (at.get_mut(..outer), counts.get(..outer));
            if !at.zip(counts).is_some_and(|(at, counts)| region::step(at, counts)) {
                return Ok(());
            }
        }
    }

    fn row(&self, at: &[u64], stride: u64, count: u64) -> Option<Strided> {
        let (mut from, mut to) = (0_u64, 0_u64);
        let places = self.shared.iter().zip(at).zip(self.axes);
        for (((shared, at), axis), (len, extent)) in
            places.zip(self.chunk_shape.iter().zip(self.extent))
        {
            let within = at.checked_mul(axis.stride)?.checked_add(shared.within)?;
            from = from.checked_mul(*len)?.checked_add(within)?;
            to = to.checked_mul(*extent)?.checked_add(shared.to)?.checked_add(*at)?;
        }
        Some(Strided { from, stride, to, count })
    }
}

impl Strided {
    /// Copies elements of `item_len` bytes from the start of `from` on.
    fn copy(&self, from: &[u8], to: &mut [u8], item_len: usize) -> Option<()> {
        let len = self.count.to_usize().checked_mul(item_len)?;
        let target = to.get_mut(..len)?;
        if self.stride == 1 {
            target.copy_from_slice(from.get(..len)?);
            return Some(());
        }
        let step = self.stride.to_usize().checked_mul(item_len)?;
        let mut at = 0_usize;
        for item in target.chunks_exact_mut(item_len.max(1)) {
            item.copy_from_slice(from.get(at..at.checked_add(item_len)?)?);
            at = at.saturating_add(step);
        }
        Some(())
    }
}

fn outside() -> Error {
    Error::new(Kind::Internal, "a hyperslab outside of its array")
}
