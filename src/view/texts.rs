//! Strings of arrays: those of a chunk, and those of a range of rows.

use std::ops::Range;

use super::elements::{ElementRange, GetChunk};
use super::layout::{Layout, NumberForm};
use super::source::{ViewSource, utf8};
use crate::array::{Coords, region};
use crate::buffer::reserve;
use crate::codec::vlen_items;
use crate::dtype::DType;
use crate::error::{Error, Kind, Result};
use crate::width::{ToU64, ToUsize};

/// Puts the strings of a chunk at their places in the array, from its element `first` on. Returns
/// the length of the decoded chunk.
pub(super) fn put_chunk(
    elements: &ElementRange,
    coords: &Coords,
    first: u64,
    texts: &mut [Option<Vec<u8>>],
    get: &GetChunk<'_>,
) -> Result<u64> {
    let array = &elements.array;
    let Some(chunk) = get(elements, coords, &(0..usize::MAX))? else { return Ok(0) };
    let spans = array.grid().spans(coords)?;
    let shape: Vec<u64> = spans.iter().map(|(_, len)| *len).collect();
    let count = shape.iter().try_fold(1, |all: u64, len| all.checked_mul(*len));
    let count = count.and_then(|count| usize::try_from(count).ok());
    let count = count.ok_or_else(|| Error::too_large("a chunk of strings"))?;
    let items = vlen_items(&chunk.bytes, count)?;
    // The elements of the chunk before the first row that is wanted, and up to the last one.
    let row_len =
        |shape: &[u64]| shape.iter().skip(1).fold(1_u64, |all, len| all.saturating_mul(*len));
    let in_array = row_len(&array.model().shape).max(1);
    let (begin, rows) = spans.first().copied().unwrap_or((0, 1));
    let end = first.saturating_add(texts.len().to_u64()).div_ceil(in_array);
    let (from, until) = ((first / in_array).saturating_sub(begin), end.saturating_sub(begin));
    let mut at = vec![0; shape.len()];
    if let Some(row) = at.first_mut() {
        *row = from;
    }
    let item = |row: u64| row.saturating_mul(row_len(&shape)).to_usize();
    for item in items.range(item(from)..item(until.min(rows)).min(count)).into_iter().flatten() {
        let mut index = Some(0_u64);
        for (((start, _), within), len) in spans.iter().zip(&at).zip(&array.model().shape) {
            let place = start.saturating_add(*within);
            index = index
                .filter(|_| place < *len)
                .map(|index| index.saturating_mul(*len).saturating_add(place));
        }
        let place = index.and_then(|index| index.checked_sub(first));
        if let Some(target) = place.and_then(|place| texts.get_mut(place.to_usize())) {
            *target = Some(item.to_vec());
        }
        region::step(&mut at, &shape);
    }
    Ok(chunk.bytes.len().to_u64())
}

/// An array of strings, which is read by rows: by indices of its first dimension.
#[derive(Debug)]
pub(super) struct TextRows {
    elements: ElementRange,
}

impl TextRows {
    /// Returns the strings of an array. Fails for other types, and without a dimension.
    pub fn new(source: &ViewSource<'_>) -> Result<Self> {
        let array = source.array()?;
        if let Some(error) = array.not_understood() {
            return Err(Error::unsupported(format!("the array cannot be decoded: {error}")));
        }
        if array.model().shape.is_empty() {
            return Err(Error::unsupported("it has no dimension"));
        }
        let elements = match &array.model().dtype {
            DType::String => ElementRange::of_chunks(source.path(), array),
            DType::Utf32(_) | DType::Bytes(_) => {
                source.elements(Layout::Linear, NumberForm::default())?
            }
            other => {
                return Err(Error::unsupported(format!("{} are no strings", other.name())));
            }
        };
        Ok(Self { elements })
    }

    /// Returns the elements, for the versions of their chunks.
    pub fn elements(&self) -> &ElementRange {
        &self.elements
    }

    /// Returns the number of strings in a row.
    pub fn width(&self) -> u64 {
        let shape = self.elements.array.model().shape.iter().skip(1);
        shape.fold(1, |all: u64, len| all.saturating_mul(*len))
    }

    /// Returns the strings of some rows in C order, in UTF-8. Bytes that are not valid are
    /// replaced.
    pub fn read(&self, rows: Range<u64>, get: &GetChunk<'_>) -> Result<Vec<String>> {
        let count = rows.end.saturating_sub(rows.start).checked_mul(self.width());
        let count = count.and_then(|count| usize::try_from(count).ok()).ok_or_else(too_many)?;
        if count == 0 {
            return Ok(Vec::new());
        }
        match &self.elements.array.model().dtype {
            DType::String => self.of_chunks(rows, count, get),
            dtype => {
                let items = self.fixed(rows, get)?;
                let items = items.chunks_exact(dtype.item_len().max(1));
                let is_wide = matches!(dtype, DType::Utf32(_));
                Ok(items.map(|item| text_of(item, is_wide)).collect())
            }
        }
    }

    /// Returns the bytes of strings of fixed length.
    fn fixed(&self, rows: Range<u64>, get: &GetChunk<'_>) -> Result<Vec<u8>> {
        let item_len = self.elements.array.model().dtype.item_len().to_u64();
        let row_len = item_len.saturating_mul(self.width());
        read_whole(&self.elements, rows, row_len, get)
    }

    fn of_chunks(&self, rows: Range<u64>, count: usize, get: &GetChunk<'_>) -> Result<Vec<String>> {
        let (array, grid) = (&self.elements.array, self.elements.array.grid());
        let mut texts = reserve_texts(count)?;
        let index = |row: u64| grid.index_of(0, row).ok_or_else(too_many);
        let (first, last) = (index(rows.start)?, index(rows.end.saturating_sub(1))?);
        let mut counts = grid.counts().to_vec();
        if let Some(count) = counts.first_mut() {
            *count = last.saturating_sub(first).saturating_add(1);
        }
        let mut at = vec![0; counts.len()];
        loop {
            let mut indices: Vec<u64> = at.clone();
            if let Some(index) = indices.first_mut() {
                *index = index.saturating_add(first);
            }
            let skipped = rows.start.saturating_mul(self.width());
            put_chunk(&self.elements, &Coords::new(indices), skipped, &mut texts, get)?;
            if !region::step(&mut at, &counts) {
                break;
            }
        }
        let model = array.model();
        let fill = model.fill.item(&model.dtype);
        let text = |bytes: Option<Vec<u8>>| match bytes {
            Some(bytes) => text_of(&bytes, false),
            None => text_of(&fill, false),
        };
        Ok(texts.into_iter().map(text).collect())
    }
}

/// Reads the elements of some rows of `row_len` bytes, from whole chunks.
pub(super) fn read_whole(
    elements: &ElementRange,
    rows: Range<u64>,
    row_len: u64,
    get: &GetChunk<'_>,
) -> Result<Vec<u8>> {
    let len = rows.end.saturating_sub(rows.start).checked_mul(row_len);
    let len = len.and_then(|len| usize::try_from(len).ok()).ok_or_else(too_many)?;
    let mut bytes = reserve(len)?;
    bytes.resize(len, 0);
    let whole: &GetChunk<'_> = &|elements, coords, _| get(elements, coords, &(0..usize::MAX));
    elements.read(rows.start.saturating_mul(row_len), &mut bytes, whole)?;
    Ok(bytes)
}

/// Returns a string of an array without the padding at its end.
pub(super) fn text_of(item: &[u8], is_wide: bool) -> String {
    let bytes = if is_wide { &utf8(item)[..] } else { item };
    String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()
}

fn reserve_texts(count: usize) -> Result<Vec<Option<Vec<u8>>>> {
    let mut texts = Vec::new();
    texts.try_reserve_exact(count).map_err(|_| Error::new(Kind::NoMemory, "no memory"))?;
    texts.resize(count, None);
    Ok(texts)
}

fn too_many() -> Error {
    Error::new(Kind::Internal, "rows outside of their array")
}
