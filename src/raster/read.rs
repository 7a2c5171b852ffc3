//! Reads the values of cells, and no more chunks than the limit allows.

use std::sync::Arc;

use super::axes::Slice;
use crate::array::{Array, Coords};
use crate::dtype::{to_float, to_index};
use crate::error::{Error, Kind, Result, WithSubject};
use crate::metadata::Packing;
use crate::parallel;
use crate::stats;
use crate::width::{ToU64, ToUsize};

/// The cells that were read.
#[derive(Debug)]
pub struct Cells {
    /// The numbers, row by row.
    pub values: Vec<f64>,
    /// The number of chunks that were read, and the number that contain the cells.
    pub chunks: (u64, u64),
    /// The number of decoded bytes.
    pub len: u64,
}

/// The cells along a dimension that lie in one chunk: the index of each cell, and of its element.
#[derive(Debug, Clone)]
struct Along {
    /// The index of the chunk.
    index: u64,
    cells: Vec<(usize, u64)>,
}

/// A chunk to read, and its cells.
struct CellsOfChunk {
    coords: Coords,
    shape: Vec<u64>,
    /// The index in the chunk along each dimension.
    at: Vec<u64>,
    rows: Vec<(usize, u64)>,
    columns: Vec<(usize, u64)>,
}

/// Reads the cells of a slice. Decodes at most `limit` bytes, unless a single chunk has more.
pub fn cells(array: &Arc<Array>, slice: &Slice, limit: u64) -> Result<Cells> {
    let rows = match slice.down {
        Some(axis) => along(array, axis, &slice.rows)?,
        None => {
            vec![Along { index: 0, cells: (0..slice.rows.len()).map(|row| (row, 0)).collect() }]
        }
    };
    let columns = along(array, slice.across, &slice.columns)?;
    let needed = count(&rows).saturating_mul(count(&columns));
    let most = limit.checked_div(cost(array, slice)).unwrap_or(u64::MAX).max(1);
    let (rows, columns) = thinned(array, slice, (rows, columns), most)?;
    let mut wanted = Vec::new();
    for row in &rows {
        for column in &columns {
            wanted.push(CellsOfChunk::new(array, slice, row, column)?);
        }
    }
    let read = wanted.len().to_u64();
    let width = slice.columns.len();
    let found = parallel::map(wanted, || Ok(()), |(), wanted| wanted.read(array, slice, width))?;
    let mut values = vec![f64::NAN; width.saturating_mul(slice.rows.len())];
    let mut len = 0_u64;
    for (cells, bytes) in found {
        len = len.saturating_add(bytes);
        for (at, value) in cells {
            if let Some(cell) = values.get_mut(at) {
                *cell = value;
            }
        }
    }
    Ok(Cells { values, chunks: (read, needed), len })
}

fn count(all: &[Along]) -> u64 {
    all.len().to_u64()
}

fn outside() -> Error {
    Error::new(Kind::Internal, "an element outside its array")
}

/// Returns the most bytes that reading the cells of one chunk decodes.
fn cost(array: &Array, slice: &Slice) -> u64 {
    let longest = array.longest_chunk_len().longest();
    if !array.is_by_element() {
        return longest;
    }
    // The range from the first to the last cell of a chunk.
    let item_len = array.model().dtype.item_len().to_u64();
    let first = slice.down.map_or(slice.across, |down| down.min(slice.across));
    let inner = array.chunk_shape().iter().skip(first);
    inner.copied().fold(item_len, u64::saturating_mul).min(longest)
}

/// Returns the chunks of the elements along a dimension.
fn along(array: &Array, axis: usize, elements: &[u64]) -> Result<Vec<Along>> {
    let mut all: Vec<Along> = Vec::new();
    for (cell, element) in elements.iter().enumerate() {
        let index = array.grid().index_of(axis, *element).ok_or_else(outside)?;
        match all.last_mut() {
            Some(last) if last.index == index => last.cells.push((cell, *element)),
            _ => all.push(Along { index, cells: vec![(cell, *element)] }),
        }
    }
    Ok(all)
}

/// Leaves out chunks until there are at most `most`. Cells of these chunks take the nearest element
/// of a chunk that is left.
fn thinned(
    array: &Array,
    slice: &Slice,
    (rows, columns): (Vec<Along>, Vec<Along>),
    most: u64,
) -> Result<(Vec<Along>, Vec<Along>)> {
    let all = count(&rows).saturating_mul(count(&columns));
    if all <= most {
        return Ok((rows, columns));
    }
    let factor = (to_float(most.into()) / to_float(all.into())).sqrt();
    let kept = |of: &[Along]| to_index(to_float(count(of).into()) * factor).max(1);
    let most = most.to_usize();
    let kept_rows = kept(&rows).min(most);
    // A side may have fewer chunks than its share.
    let kept_columns = (most / kept_rows).clamp(1, columns.len());
    let kept_rows = (most / kept_columns).clamp(1, rows.len());
    let rows = match slice.down {
        Some(axis) => some_of(array, axis, &rows, kept_rows)?,
        None => rows,
    };
    Ok((rows, some_of(array, slice.across, &columns, kept_columns)?))
}

/// Returns `kept` of the chunks along a dimension, with the cells of all chunks.
fn some_of(array: &Array, axis: usize, all: &[Along], kept: usize) -> Result<Vec<Along>> {
    let mut some = Vec::with_capacity(kept);
    for part in 0..kept {
        let place = |part: usize| part.saturating_mul(all.len()) / kept.max(1);
        let group = all.get(place(part)..place(part + 1)).unwrap_or_default();
        let Some(middle) = group.get(group.len() / 2) else { continue };
        let mut coords = vec![0; array.grid().rank()];
        *coords.get_mut(axis).ok_or_else(outside)? = middle.index;
        let spans = array.grid().spans(&Coords::new(coords))?;
        let (start, len) = spans.get(axis).copied().ok_or_else(outside)?;
        let full = array.model().shape.get(axis).copied().unwrap_or_default();
        let last = start.saturating_add(len).min(full).saturating_sub(1).max(start);
        let cells = group.iter().flat_map(|one| &one.cells);
        let cells = cells.map(|(cell, element)| (*cell, (*element).clamp(start, last))).collect();
        some.push(Along { index: middle.index, cells });
    }
    Ok(some)
}

impl CellsOfChunk {
    fn new(array: &Array, slice: &Slice, row: &Along, column: &Along) -> Result<Self> {
        let mut coords = Vec::with_capacity(slice.at.len());
        for (axis, at) in slice.at.iter().enumerate() {
            coords.push(if axis == slice.across {
                column.index
            } else if Some(axis) == slice.down {
                row.index
            } else {
                array.grid().index_of(axis, *at).ok_or_else(outside)?
            });
        }
        let coords = Coords::new(coords);
        let spans = array.grid().spans(&coords)?;
        let start = |axis: usize| spans.get(axis).map_or(0, |(start, _)| *start);
        let within = |of: &Along, axis: Option<usize>| -> Vec<(usize, u64)> {
            let start = axis.map_or(0, start);
            of.cells.iter().map(|(cell, at)| (*cell, at.saturating_sub(start))).collect()
        };
        let at = slice.at.iter().enumerate().map(|(axis, at)| at.saturating_sub(start(axis)));
        Ok(Self {
            at: at.collect(),
            rows: within(row, slice.down),
            columns: within(column, Some(slice.across)),
            shape: spans.iter().map(|(_, len)| *len).collect(),
            coords,
        })
    }

    /// Returns the index and the value of each cell, and the number of decoded bytes.
    fn read(self, array: &Array, slice: &Slice, width: usize) -> Result<(Vec<(usize, f64)>, u64)> {
        let dtype = &array.model().dtype;
        let item_len = dtype.item_len();
        let mut cells = Vec::with_capacity(self.rows.len().saturating_mul(self.columns.len()));
        for (row, down) in &self.rows {
            for (column, across) in &self.columns {
                let offset = self.index(slice, *down, *across)?.checked_mul(item_len);
                let cell = row.saturating_mul(width).saturating_add(*column);
                cells.push((cell, offset.ok_or_else(outside)?));
            }
        }
        let offsets = cells.iter().map(|(_, offset)| *offset);
        let start = offsets.clone().min().unwrap_or_default();
        let range = start..offsets.max().unwrap_or_default().saturating_add(item_len);
        let (start, bytes, len) = self.bytes(array, start, range).at(&self.coords)?;
        let fill = array.model().fill.item(dtype);
        let packing = Packing::of(dtype, &array.model().attributes);
        let value = |(cell, offset): (usize, usize)| {
            let item = match &bytes {
                None => &*fill,
                Some(bytes) => {
                    let from = offset.saturating_sub(start);
                    bytes.get(from..from.saturating_add(item_len)).unwrap_or_default()
                }
            };
            (cell, stats::value(dtype, &packing, item))
        };
        Ok((cells.into_iter().map(value).collect(), len))
    }

    /// Returns decoded bytes of the chunk, their offset in it, and the number of decoded bytes; no
    /// bytes if the chunk is not stored.
    fn bytes(
        &self,
        array: &Array,
        start: usize,
        range: std::ops::Range<usize>,
    ) -> Result<(usize, Option<crate::buffer::Buffer>, u64)> {
        let long = |len: usize| len.to_u64();
        if array.has_ranges(&self.coords)
            && let Some((bytes, _, decoded)) = array.read_range(&self.coords, &range)?
        {
            return Ok((start, Some(bytes), long(decoded)));
        }
        let bytes = array.read_chunk(&self.coords)?.map(|(bytes, _)| bytes);
        let len = bytes.as_ref().map_or(0, |bytes| long(bytes.len()));
        Ok((0, bytes, len))
    }

    /// Returns the index of an element of the chunk in C order.
    fn index(&self, slice: &Slice, down: u64, across: u64) -> Result<usize> {
        let mut index = 0_u64;
        for (axis, (len, at)) in self.shape.iter().zip(&self.at).enumerate() {
            let at = if axis == slice.across {
                across
            } else if Some(axis) == slice.down {
                down
            } else {
                *at
            };
            index = index.checked_mul(*len).and_then(|i| i.checked_add(at)).ok_or_else(outside)?;
        }
        usize::try_from(index).map_err(|_| outside())
    }
}
