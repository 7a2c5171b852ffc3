//! The elements of an array as a range of a file.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use super::layout::{Layout, NumberForm};
use super::turned::{AxisOrder, Turned};
use crate::array::region::{self, Cover, ElementRun, Offset};
use crate::array::{Array, Coords};
use crate::buffer::{Buffer, reserve};
use crate::error::{Error, Kind, Result};
use crate::metadata::NodePath;
use crate::width::ToU64;

/// Gets the decoded bytes of a chunk, at least the given range of them; `None` if the chunk is not
/// stored.
pub type GetChunk<'g> =
    dyn Fn(&ElementRange, &Coords, &Range<usize>) -> Result<Option<Excerpt>> + 'g;

/// A range of the decoded bytes of a chunk.
#[derive(Debug)]
pub struct Excerpt {
    /// The bytes of the range.
    pub bytes: Buffer,
    /// The offset of the range in the chunk.
    pub start: usize,
}

impl From<Buffer> for Excerpt {
    fn from(bytes: Buffer) -> Self {
        Self { bytes, start: 0 }
    }
}

/// Changes the decoded bytes of a chunk. No other change of the chunk can run until it returns.
pub type ChangeChunk<'g> = dyn FnMut(&ElementRange, &Coords, Cover, &mut dyn FnMut(&mut [u8]) -> Result<()>) -> Result<()>
    + 'g;

/// Visits a chunk of a walk, and decides whether the walk continues.
pub type EachChunk<'f, 'v> = dyn FnMut(&'v ElementRange, &Coords, &Touch) -> KeepGoing + 'f;

/// Whether a walk over chunks continues.
pub type KeepGoing = Result<ControlFlow<()>>;

/// The overlap of a range of a file and a chunk.
#[derive(Debug, Clone)]
pub struct Touch {
    /// Whether the overlap includes the last element.
    pub reach: Reach,
    /// The bytes of the chunk from the first to the last in the overlap.
    pub bytes: Range<usize>,
}

/// Whether a range includes the last element of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The range ends before it.
    Within,
    /// The range includes it.
    End,
}

/// The elements of an array as a range of a file.
#[derive(Debug, Clone)]
pub struct ElementRange {
    /// The node of the array.
    pub path: NodePath,
    /// The array.
    pub array: Arc<Array>,
    layout: Layout,
    items: NumberForm,
    order: AxisOrder,
    item_len: u64,
    /// The number of bytes whose order is reversed together.
    component_len: usize,
    chunk_len: u64,
    /// The offset of these elements among all elements of the array, and their length, in bytes.
    start: u64,
    len: u64,
}

impl ElementRange {
    /// Returns the elements of an array. Fails if they are of variable length or cannot be decoded.
    pub fn new(
        path: &NodePath,
        array: &Arc<Array>,
        layout: Layout,
        items: NumberForm,
    ) -> Result<Self> {
        if let Some(error) = array.not_understood() {
            return Err(Error::unsupported(format!("the array cannot be decoded: {error}")));
        }
        let model = array.model();
        if model.dtype.is_variable() {
            return Err(Error::unsupported("its elements have variable length"));
        }
        let too_large = || Error::unsupported("it would exceed the maximum size of a file");
        let item_len = u64::try_from(model.dtype.item_len()).map_err(|_| too_large())?.max(1);
        let product = |lens: &[u64], first: u64| {
            if lens.contains(&0) {
                return Some(0);
            }
            lens.iter().try_fold(first, |all, len| all.checked_mul(*len))
        };
        let (chunk_len, len) = match layout {
            Layout::Linear => (0, product(&model.shape, item_len)),
            Layout::Chunks if !array.grid().is_regular() => {
                return Err(Error::unsupported("its chunks have different shapes"));
            }
            Layout::Chunks => {
                let chunk_len = product(array.chunk_shape(), item_len).ok_or_else(too_large)?;
                (chunk_len, product(array.grid().counts(), chunk_len))
            }
        };
        let len = len.filter(|len| i64::try_from(*len).is_ok()).ok_or_else(too_large)?;
        let component_len = match &model.dtype {
            crate::dtype::DType::Struct(_) if items.big_endian => {
                return Err(Error::unsupported("structures are little endian here"));
            }
            dtype => dtype.component_len(),
        };
        let (path, array) = (path.clone(), Arc::clone(array));
        let (order, start) = (AxisOrder::default(), 0);
        Ok(Self {
            path,
            array,
            layout,
            items,
            order,
            item_len,
            component_len,
            chunk_len,
            start,
            len,
        })
    }

    /// Returns the same elements with the axes in the order `order`, the slowest first. The axes
    /// that are not in it follow unchanged.
    pub fn turned(&self, order: &[usize]) -> Result<Self> {
        if self.layout != Layout::Linear {
            return Err(Error::new(Kind::Internal, "an order of axes of chunks"));
        }
        let order = AxisOrder::new(order, self.array.model().shape.len())?;
        Ok(Self { order, ..self.clone() })
    }

    /// Returns `len` bytes of the elements from `from` on.
    pub fn range(&self, from: u64, len: u64) -> Result<Self> {
        if from.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(outside());
        }
        Ok(Self { start: self.start.checked_add(from).ok_or_else(outside)?, len, ..self.clone() })
    }

    /// Returns the elements of an array of any type, to read its chunks.
    pub(crate) fn of_chunks(path: &NodePath, array: &Arc<Array>) -> Self {
        Self {
            path: path.clone(),
            array: Arc::clone(array),
            layout: Layout::Chunks,
            items: NumberForm::default(),
            order: AxisOrder::default(),
            item_len: 1,
            component_len: 1,
            chunk_len: 0,
            start: 0,
            len: 0,
        }
    }

    /// Whether they are of variable length, so that only a part that is derived from them reads
    /// them.
    pub fn is_variable(&self) -> bool {
        self.array.model().dtype.is_variable()
    }

    /// Whether both are the same elements of the same array in the same layout.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let of_array = self.path == other.path && self.array.has_elements_of(&other.array);
        of_array
            && (self.layout, self.items, &self.order, self.start, self.len)
                == (other.layout, other.items, &other.order, other.start, other.len)
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the order of the elements.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns the decoded length of the chunks that a sequential read must cache so that it
    /// decodes each chunk only once: a row of chunks, or one chunk in the layout by chunks.
    pub fn slab_len(&self) -> Option<u64> {
        let chunk_len = self.array.longest_chunk_len().longest();
        match self.layout {
            Layout::Chunks => Some(chunk_len),
            Layout::Linear => {
                // Rows do not share chunks along leading dimensions with one element, or with
                // chunks of one element.
                let counts = self.order.in_file(self.array.grid().counts());
                let shape = self.order.in_file(self.array.chunk_shape());
                let first = shape.iter().position(|len| *len > 1).unwrap_or(shape.len());
                let across = counts.iter().skip(first.saturating_add(1));
                across.copied().try_fold(chunk_len, u64::checked_mul)
            }
        }
    }

    /// Returns an offset between two offsets at which rows end: the longest rows that end in the
    /// second half.
    pub(super) fn rows_until(&self, from: u64, until: u64) -> Option<u64> {
        let least = from.saturating_add(until.saturating_sub(from) / 2);
        let until = self.start.checked_add(until)?;
        let shape = self.order.in_file(&self.array.model().shape);
        let mut row_len = shape.iter().try_fold(self.item_len, |all, len| all.checked_mul(*len))?;
        for len in shape {
            row_len = row_len.checked_div(len)?;
            let rows = until.checked_div(row_len)?.checked_mul(row_len)?;
            match rows.checked_sub(self.start) {
                Some(rows) if rows > least => return Some(rows),
                _ => {}
            }
        }
        None
    }

    /// Returns a warning about sequential reads if a cache of `limit` bytes cannot hold a row of
    /// chunks; `None` if partial chunks can be decoded. `at_once` is the number of bytes that one
    /// read covers.
    pub fn warning(&self, limit: u64, at_once: u64) -> Option<String> {
        let slab = match self.slab_len() {
            Some(slab) if slab <= limit => return None,
            _ if self.array.is_by_element() => return None,
            slab => slab.unwrap_or(u64::MAX),
        };
        let times = slab.div_ceil(at_once.max(1));
        Some(format!(
            "{}: reading the view sequentially decodes each chunk about {times} times: a row of \
             chunks has {slab} bytes, which exceeds --cache-size ({limit})",
            self.path,
        ))
    }

    /// Fills `target` with the bytes from `from` on.
    pub fn read(&self, from: u64, target: &mut [u8], get: &GetChunk<'_>) -> Result<()> {
        let from = self.start.checked_add(from).ok_or_else(outside)?;
        let (first, last) = self.items_of(from, target.len());
        let start = first.saturating_mul(self.item_len);
        let wanted = self.span(first, last)?;
        if wanted == target.len() && start == from {
            self.read_items(first, target, get)?;
            self.items.to_file(self.component_len, target);
            return Ok(());
        }
        let mut whole = reserve(wanted)?;
        whole.resize(wanted, 0);
        self.read_items(first, &mut whole, get)?;
        self.items.to_file(self.component_len, &mut whole);
        let skipped = usize::try_from(from.saturating_sub(start)).map_err(|_| outside())?;
        let end = skipped.checked_add(target.len()).ok_or_else(outside)?;
        target.copy_from_slice(whole.get(skipped..end).ok_or_else(outside)?);
        Ok(())
    }

    /// Calls `each` for each chunk that `len` bytes from `from` on need, until it breaks.
    pub(super) fn for_each_chunk<'e>(
        &'e self,
        from: u64,
        len: usize,
        each: &mut EachChunk<'_, 'e>,
    ) -> KeepGoing {
        let from = self.start.checked_add(from).ok_or_else(outside)?;
        let (first, last) = self.items_of(from, len);
        self.for_each_box(first, self.span(first, last)?, &mut |coords, here| {
            each(self, coords, &Touch { reach: here.reach, bytes: self.bytes_of(&here)? })
        })
    }

    /// Writes `data` from `from` on.
    pub(super) fn write(&self, from: u64, data: &[u8], change: &mut ChangeChunk<'_>) -> Result<()> {
        let item_size = self.item_size()?;
        let from = self.start.checked_add(from).ok_or_else(outside)?;
        let within = usize::try_from(from % self.item_len).map_err(|_| outside())?;
        let mut number = from / self.item_len;
        let mut left = data;
        if within > 0 {
            let (head, rest) = left.split_at(left.len().min(item_size.saturating_sub(within)));
            self.write_part(number, within, head, change)?;
            (number, left) = (number.saturating_add(1), rest);
        }
        let (items, tail) = left.split_at(left.len().saturating_sub(left.len() % item_size));
        if !items.is_empty() {
            let mut whole = reserve(items.len())?;
            whole.extend_from_slice(items);
            self.items.to_chunk(self.component_len, &mut whole);
            self.write_items(number, &whole, change)?;
        }
        if !tail.is_empty() {
            let count = u64::try_from(items.len() / item_size).map_err(|_| outside())?;
            self.write_part(number.saturating_add(count), 0, tail, change)?;
        }
        Ok(())
    }

    /// Writes `data` into a part of one element. It locks the chunk meanwhile, since another
    /// request may write the other bytes of the element.
    fn write_part(
        &self,
        number: u64,
        within: usize,
        data: &[u8],
        change: &mut ChangeChunk<'_>,
    ) -> Result<()> {
        let item_size = self.item_size()?;
        let end = within.checked_add(data.len()).ok_or_else(outside)?;
        self.for_each_box(number, item_size, &mut |coords, here| {
            let len = data.len().to_u64();
            change(self, coords, Cover::Part(len), &mut |chunk| {
                let mut item = vec![0; item_size];
                let extent = here.extent;
                region::copy((chunk, here.in_chunk), (&mut item, here.in_run), extent, item_size)?;
                self.items.to_file(self.component_len, &mut item);
                item.get_mut(within..end).ok_or_else(outside)?.copy_from_slice(data);
                self.items.to_chunk(self.component_len, &mut item);
                region::copy((&item, here.in_run), (chunk, here.in_chunk), extent, item_size)
            })?;
            Ok(ControlFlow::Continue(()))
        })
        .map(|_| ())
    }

    /// Returns the number of the first element that a range touches, and of the one after the last.
    fn items_of(&self, from: u64, len: usize) -> (u64, u64) {
        let end = from.saturating_add(len.to_u64());
        (from / self.item_len, end.div_ceil(self.item_len))
    }

    fn span(&self, first: u64, last: u64) -> Result<usize> {
        let len = last.saturating_sub(first).checked_mul(self.item_len).ok_or_else(outside)?;
        usize::try_from(len).map_err(|_| outside())
    }

    /// Reads elements in the byte order of chunks, from number `first` on.
    fn read_items(&self, first: u64, target: &mut [u8], get: &GetChunk<'_>) -> Result<()> {
        let model = self.array.model();
        let fill = model.fill.item(&model.dtype);
        if fill.iter().any(|byte| *byte != 0) {
            target.chunks_exact_mut(fill.len()).for_each(|item| item.copy_from_slice(&fill));
        }
        self.for_each_box(first, target.len(), &mut |coords, here| {
            if let Some(got) = get(self, coords, &self.bytes_of(&here)?)? {
                let run = target.get_mut(here.run.clone()).ok_or_else(outside)?;
                match self.order.axes() {
                    Some(order) => {
                        let turned = here.turned(order, self.item_size()?);
                        turned.to_run((&got.bytes, got.start), run)?;
                    }
                    None => region::copy_from(
                        (&got.bytes, got.start, here.in_chunk),
                        (run, here.in_run),
                        here.extent,
                        self.item_size()?,
                    )?,
                }
            }
            Ok(ControlFlow::Continue(()))
        })
        .map(|_| ())
    }

    fn write_items(&self, first: u64, data: &[u8], change: &mut ChangeChunk<'_>) -> Result<()> {
        let item_len = self.item_size()?;
        self.for_each_box(first, data.len(), &mut |coords, here| {
            let run = data.get(here.run.clone()).ok_or_else(outside)?;
            change(self, coords, here.cover.clone(), &mut |chunk| match self.order.axes() {
                Some(order) => here.turned(order, item_len).to_chunk(run, chunk),
                None => {
                    region::copy((run, here.in_run), (chunk, here.in_chunk), here.extent, item_len)
                }
            })?;
            Ok(ControlFlow::Continue(()))
        })
        .map(|_| ())
    }

    /// Returns the bytes of the chunk from the first to the last in the box.
    fn bytes_of(&self, here: &Here<'_>) -> Result<Range<usize>> {
        let byte = |item: u64| usize::try_from(item.checked_mul(self.item_len)?).ok();
        let items = region::bounds(here.in_chunk, here.extent).ok_or_else(outside)?;
        let bytes = byte(items.start).zip(byte(items.end));
        bytes.map(|(start, end)| start..end).ok_or_else(outside)
    }

    fn item_size(&self) -> Result<usize> {
        usize::try_from(self.item_len).map_err(|_| outside())
    }

    /// Calls `each` for each chunk that overlaps `len` bytes of elements from number `first` on,
    /// with the box of elements in it.
    fn for_each_box(
        &self,
        first: u64,
        len: usize,
        each: &mut dyn FnMut(&Coords, Here<'_>) -> KeepGoing,
    ) -> KeepGoing {
        let last = u64::try_from(len / self.item_size()?).map_err(|_| outside())?;
        let last = first.checked_add(last).ok_or_else(outside)?;
        match self.layout {
            Layout::Linear => self.for_each_box_of_rows(first, last, each),
            Layout::Chunks => self.for_each_range_of_chunks(first, last, each),
        }
    }

    fn for_each_box_of_rows(
        &self,
        first: u64,
        last: u64,
        each: &mut dyn FnMut(&Coords, Here<'_>) -> KeepGoing,
    ) -> KeepGoing {
        let mut at = 0_usize;
        let shape = self.order.in_file(&self.array.model().shape);
        for ElementRun { start, extent } in region::runs(&shape, first, last) {
            let (start, extent) = (self.order.in_array(start), self.order.in_array(extent));
            let count = extent.iter().try_fold(1, |all: u64, len| all.checked_mul(*len));
            let count = count.and_then(|count| count.checked_mul(self.item_len));
            let run_len = count.and_then(|len| usize::try_from(len).ok()).ok_or_else(outside)?;
            let run = at..at.checked_add(run_len).ok_or_else(outside)?;
            at = run.end;
            if self.for_each_chunk_of_box(&run, (&start, &extent), each)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Calls `each` for the part of each chunk that a box of elements touches, in C order of the
    /// chunks. The box lies in the range `run`.
    fn for_each_chunk_of_box(
        &self,
        run: &Range<usize>,
        (start, extent): (&[u64], &[u64]),
        each: &mut dyn FnMut(&Coords, Here<'_>) -> KeepGoing,
    ) -> KeepGoing {
        let grid = self.array.grid();
        let index_of =
            |(axis, element): (usize, u64)| grid.index_of(axis, element).ok_or_else(outside);
        let ends = start.iter().zip(extent);
        let ends = ends.map(|(start, len)| start.saturating_add(len.saturating_sub(1)));
        let first: Vec<u64> =
            start.iter().copied().enumerate().map(index_of).collect::<Result<_>>()?;
        let last: Vec<u64> = ends.enumerate().map(index_of).collect::<Result<_>>()?;
        let chunks = first.iter().zip(&last);
        let counts: Vec<u64> =
            chunks.map(|(first, last)| last.saturating_sub(*first).saturating_add(1)).collect();
        let mut step = vec![0; counts.len()];
        let (mut chunk_shape, mut chunk_start) = (Vec::new(), Vec::new());
        let (mut in_run, mut inside, mut within) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let indices = first.iter().zip(&step).map(|(first, step)| first.saturating_add(*step));
            let coords = Coords::new(indices.collect::<Vec<u64>>());
            for list in [&mut chunk_shape, &mut chunk_start, &mut in_run, &mut inside, &mut within]
            {
                list.clear();
            }
            let (mut is_whole, mut reach) = (true, Reach::End);
            let shape = self.array.model().shape.iter();
            let spans = grid.spans(&coords)?;
            for (((begin, len), (start, extent)), size) in
                spans.into_iter().zip(start.iter().zip(extent)).zip(shape)
            {
                let end = begin.saturating_add(len).min(*size);
                let from = begin.max(*start);
                let until = end.min(start.saturating_add(*extent));
                chunk_shape.push(len);
                chunk_start.push(from.saturating_sub(begin));
                in_run.push(from.saturating_sub(*start));
                inside.push(until.saturating_sub(from));
                within.push(end.saturating_sub(begin));
                if until < end {
                    (is_whole, reach) = (false, Reach::Within);
                } else if from > begin {
                    is_whole = false;
                }
            }
            let in_chunk = Offset { shape: &chunk_shape, start: &chunk_start };
            let cover = if is_whole {
                Cover::Whole
            } else {
                self.part(&inside, region::range_of(in_chunk, &inside, &within))
            };
            let here = Here {
                in_chunk,
                run: run.clone(),
                in_run: Offset { shape: extent, start: &in_run },
                extent: &inside,
                cover,
                reach,
            };
            let walk = each(&coords, here)?;
            if walk.is_break() || !region::step(&mut step, &counts) {
                return Ok(walk);
            }
        }
    }

    fn for_each_range_of_chunks(
        &self,
        first: u64,
        last: u64,
        each: &mut dyn FnMut(&Coords, Here<'_>) -> KeepGoing,
    ) -> KeepGoing {
        let per_chunk = (self.chunk_len / self.item_len).max(1);
        let (mut item, mut at) = (first, 0_usize);
        while item < last {
            let (chunk, within) = (item / per_chunk, item % per_chunk);
            let count = last.saturating_sub(item).min(per_chunk.saturating_sub(within));
            let len = count.checked_mul(self.item_len).and_then(|len| usize::try_from(len).ok());
            let end = len.and_then(|len| at.checked_add(len)).ok_or_else(outside)?;
            let range = within..within.saturating_add(count);
            let here = Here {
                in_chunk: Offset { shape: &[per_chunk], start: &[within] },
                run: at..end,
                in_run: Offset { shape: &[count], start: &[0] },
                extent: &[count],
                cover: if count == per_chunk {
                    Cover::Whole
                } else {
                    self.part(&[count], Some(range))
                },
                reach: match within.saturating_add(count) {
                    end if end == per_chunk => Reach::End,
                    _ => Reach::Within,
                },
            };
            if each(&self.coords_of(chunk), here)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            (item, at) = (item.saturating_add(count), end);
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Returns how much of a chunk a box of the size `extent` covers, given the range of elements
    /// that it spans.
    fn part(&self, extent: &[u64], range: Option<Range<u64>>) -> Cover {
        let len = extent.iter().fold(self.item_len, |all, len| all.saturating_mul(*len));
        let byte = |item: u64| usize::try_from(item.checked_mul(self.item_len)?).ok();
        match range.and_then(|range| Some(byte(range.start)?..byte(range.end)?)) {
            Some(range) => Cover::Range(len, range),
            None => Cover::Part(len),
        }
    }

    /// Returns the coordinates of the chunk with this number in C order of the grid.
    pub fn coords_of(&self, number: u64) -> Coords {
        let mut left = number;
        let mut indices: Vec<u64> = Vec::new();
        for count in self.array.grid().counts().iter().rev() {
            indices.push(left % (*count).max(1));
            left /= (*count).max(1);
        }
        indices.reverse();
        Coords::new(indices)
    }
}

/// A box of elements in a chunk and in the range that is read or written.
struct Here<'h> {
    in_chunk: Offset<'h>,
    /// The bytes of the range that hold the run of the box.
    run: Range<usize>,
    in_run: Offset<'h>,
    extent: &'h [u64],
    cover: Cover,
    reach: Reach,
}

impl Here<'_> {
    /// Returns the box for elements whose axes are in another order in the run.
    fn turned<'t>(&'t self, order: &'t [usize], item_len: usize) -> Turned<'t> {
        let Self { in_chunk, in_run, extent, .. } = *self;
        Turned { in_chunk, in_run, extent, order, item_len }
    }
}

fn outside() -> Error {
    Error::new(Kind::Internal, "a range outside of its elements")
}
