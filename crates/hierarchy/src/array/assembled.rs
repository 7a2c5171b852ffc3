//! A box of elements that is put together from parts of chunks, of any shapes and grids.

use super::coords::Coords;
use super::region::{self, Offset};
use zarrfs_base::buffer::{Buffer, reserve};
use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_base::width::ToUsize;
use zarrfs_codec::dtype::{DType, FillValue};
use zarrfs_codec::{vlen_chunk, vlen_items};

/// A box of elements of an array.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ElementBox {
    /// The first element along each dimension.
    pub start: Vec<u64>,
    /// The number of elements along each dimension.
    pub extent: Vec<u64>,
}

impl ElementBox {
    /// Returns the box of a whole array of this shape.
    pub fn whole(shape: &[u64]) -> Self {
        Self { start: vec![0; shape.len()], extent: shape.to_vec() }
    }

    /// Returns the box of these spans: the first element and the length along each dimension.
    pub fn of_spans(spans: &[(u64, u64)]) -> Self {
        let (start, extent) = spans.iter().copied().unzip();
        Self { start, extent }
    }

    /// Returns the element after the last one along each dimension.
    pub fn ends(&self) -> impl Iterator<Item = u64> {
        self.start.iter().zip(&self.extent).map(|(start, len)| start.saturating_add(*len))
    }

    /// Returns the elements that are in both boxes; `None` if there are none.
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        let mut both = Self::default();
        let starts = self.start.iter().zip(&other.start).map(|(one, two)| *one.max(two));
        for (start, (one, two)) in starts.zip(self.ends().zip(other.ends())) {
            both.start.push(start);
            both.extent.push(one.min(two).checked_sub(start).filter(|len| *len > 0)?);
        }
        Some(both)
    }

    /// Whether all elements of the other box are in this one.
    pub fn contains(&self, other: &Self) -> bool {
        let is_first = self.start.iter().zip(&other.start).all(|(one, two)| one <= two);
        is_first && self.ends().zip(other.ends()).all(|(one, two)| one >= two)
    }

    /// Returns the box at another place: `by` elements further along each dimension.
    #[must_use]
    pub fn moved(&self, by: &[u64]) -> Self {
        let start = self.start.iter().zip(by).map(|(start, by)| start.saturating_add(*by));
        Self { start: start.collect(), extent: self.extent.clone() }
    }

    /// Returns every place in the box, in C order.
    pub fn places(&self) -> impl Iterator<Item = Coords> + use<> {
        let (first, counts) = (self.start.clone(), self.extent.clone());
        let mut at = (!counts.contains(&0)).then(|| vec![0; counts.len()]);
        std::iter::from_fn(move || {
            let now = at.as_mut()?;
            let place = first.iter().zip(now.iter()).map(|(first, at)| first.saturating_add(*at));
            let place: Vec<u64> = place.collect();
            if !region::step(now, &counts) {
                at = None;
            }
            Some(Coords::new(place))
        })
    }

    /// Returns the spans of the box: the first element and the length along each dimension.
    pub fn spans(&self) -> Vec<(u64, u64)> {
        self.start.iter().copied().zip(self.extent.iter().copied()).collect()
    }
}

/// A box of elements while it is put together. Elements that are not put are the fill value.
#[derive(Debug)]
pub struct Assembled {
    dtype: DType,
    fill: Vec<u8>,
    place: ElementBox,
    /// The elements; those of variable length with their length in front, the fill value first.
    bytes: Vec<u8>,
    /// The place in `bytes` of each element of variable length.
    places: Vec<u32>,
}

impl Assembled {
    /// Returns a box of fill values. It lies at `place` of an array.
    pub fn new(dtype: &DType, fill: &FillValue, place: ElementBox) -> Result<Self> {
        let fill = fill.item(dtype).into_owned();
        let count = place.extent.iter().try_fold(1, |all: u64, len| all.checked_mul(*len));
        let count = count.and_then(|count| usize::try_from(count).ok());
        let count = count.ok_or_else(|| Error::too_large("a box of elements"))?;
        let (mut bytes, mut places) = (Vec::new(), Vec::new());
        if dtype.is_variable() {
            places.try_reserve_exact(count).map_err(|_| Error::new(Kind::NoMemory, "no memory"))?;
            places.resize(count, 0);
            put_item(&fill, &mut bytes)?;
        } else {
            let len = count.saturating_mul(dtype.item_len());
            let mut filled = reserve(len)?;
            filled.resize(len, 0);
            if fill.iter().any(|byte| *byte != 0) {
                filled.chunks_exact_mut(fill.len()).for_each(|item| item.copy_from_slice(&fill));
            }
            bytes = filled;
        }
        Ok(Self { dtype: dtype.clone(), fill, place, bytes, places })
    }

    /// Copies the elements of `wanted` that are in a chunk and in this box. `spans` are the first
    /// element and the length of the chunk along each dimension, in the array of this box.
    pub fn put(&mut self, chunk: &[u8], spans: &[(u64, u64)], wanted: &ElementBox) -> Result<()> {
        let of_chunk = ElementBox::of_spans(spans);
        let both = of_chunk.intersection(wanted).and_then(|both| both.intersection(&self.place));
        let Some(both) = both else { return Ok(()) };
        let within = |place: &ElementBox| -> Vec<u64> {
            let starts = both.start.iter().zip(&place.start);
            starts.map(|(at, start)| at.saturating_sub(*start)).collect()
        };
        let (from, to) = (within(&of_chunk), within(&self.place));
        let from = Offset { shape: &of_chunk.extent, start: &from };
        let to = Offset { shape: &self.place.extent, start: &to };
        if !self.dtype.is_variable() {
            let item_len = self.dtype.item_len();
            return region::copy((chunk, from), (&mut self.bytes, to), &both.extent, item_len);
        }
        let count = of_chunk.extent.iter().try_fold(1, |all: u64, len| all.checked_mul(*len));
        let count = count.and_then(|count| usize::try_from(count).ok());
        let found = vlen_items(chunk, count.ok_or_else(|| Error::too_large("a chunk"))?)?;
        let mut at = vec![0; both.extent.len()];
        loop {
            let number = |place: &Offset<'_>| -> Option<usize> {
                let starts = place.start.iter().zip(&at).zip(place.shape);
                let number = starts.fold(0_u64, |all, ((start, at), len)| {
                    all.saturating_mul(*len).saturating_add(start.saturating_add(*at))
                });
                usize::try_from(number).ok()
            };
            let item = number(&from).and_then(|number| found.get(number));
            let target = number(&to).and_then(|number| self.places.get_mut(number));
            if let (Some(item), Some(target)) = (item, target) {
                let is_fill = item == self.fill;
                *target = if is_fill { 0 } else { put_item(item, &mut self.bytes)? };
            }
            if !region::step(&mut at, &both.extent) {
                return Ok(());
            }
        }
    }

    /// Returns the elements in C order, as a chunk has them.
    pub fn finish(self) -> Result<Buffer> {
        if !self.dtype.is_variable() {
            return Ok(Buffer::from(self.bytes));
        }
        let items = self.places.iter().map(|place| item_at(*place, &self.bytes));
        Ok(Buffer::from(vlen_chunk(items)?))
    }
}

/// Appends an element with its length in front, and returns its place.
fn put_item(item: &[u8], bytes: &mut Vec<u8>) -> Result<u32> {
    let number = |len: usize| {
        u32::try_from(len).map_err(|_| Error::too_large("a chunk has more than 4 GiB"))
    };
    let place = number(bytes.len())?;
    bytes.extend_from_slice(&number(item.len())?.to_le_bytes());
    bytes.extend_from_slice(item);
    Ok(place)
}

/// Returns the element at a place.
fn item_at(place: u32, bytes: &[u8]) -> &[u8] {
    let item = || {
        let (len, rest) = bytes.get(place.to_usize()..)?.split_first_chunk()?;
        rest.get(..u32::from_le_bytes(*len).to_usize())
    };
    item().unwrap_or_default()
}
