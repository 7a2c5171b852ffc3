//! Counts the elements of an array, by data type.

use std::cmp::Ordering;
use std::ops::Range;

use super::histogram::Histogram;
use super::moments::{FloatParts, FloatSums, IntSums};
use super::walk::Visited;
use crate::metadata::Packing;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToU64;
use zarrfs_codec::dtype::{DType, Element};
use zarrfs_codec::vlen_items;

/// Subtracted from unsigned 64-bit integers for the bins, which are signed; added to the edges.
const OFFSET: i128 = 1 << 63;

/// The counts of elements so far.
#[derive(Debug, Clone)]
pub enum Tally {
    /// Integers, Boolean values and times.
    Ints(Ints),
    /// Floats.
    Floats(Box<Floats>),
    /// Complex numbers.
    Complex(Box<Complex>),
    /// Elements that are not numbers.
    Others(NotNumbers),
}

/// Counts of integers.
#[derive(Debug, Clone, Default)]
pub struct Ints {
    /// The minimum and the maximum.
    pub range: Option<(i128, i128)>,
    /// The sums.
    pub sums: IntSums,
    /// The histogram; shifted by [`OFFSET`] for unsigned 64-bit integers.
    pub histogram: Histogram,
    /// How many elements are not-a-time.
    pub nan: u64,
    /// How many equal the fill value.
    pub fill: u64,
    /// How many mean that there is no value.
    pub masked: u64,
}

/// Counts of floats.
#[derive(Debug, Clone, Default)]
pub struct Floats {
    /// The minimum and the maximum, including infinities.
    pub range: Option<(f64, f64)>,
    /// The sums of the finite ones.
    pub sums: FloatSums,
    /// The histogram of the finite ones.
    pub histogram: Histogram,
    /// How many are finite.
    pub finite: u64,
    /// How many are NaN.
    pub nan: u64,
    /// How many are negative infinity, and how many are positive infinity.
    pub infinite: [u64; 2],
    /// How many equal the fill value.
    pub fill: u64,
    /// How many mean that there is no value.
    pub masked: u64,
}

/// Counts of complex numbers.
#[derive(Debug, Clone, Default)]
pub struct Complex {
    /// The absolute values of those without NaN.
    pub sizes: Floats,
    /// The real and the imaginary parts.
    pub parts: [Floats; 2],
}

/// Counts of elements that are not numbers.
#[derive(Debug, Clone, Default)]
pub struct NotNumbers {
    /// The minimum and the maximum length in bytes, without padding, if elements have a length.
    pub lens: Option<(u64, u64)>,
    /// How many are empty.
    pub empty: u64,
    /// How many equal the fill value.
    pub fill: u64,
}

/// Reads elements of a type, and adds them to tallies.
#[derive(Debug, Clone)]
pub struct TallyReader {
    dtype: DType,
    fill: Vec<u8>,
    /// The fill value as a number.
    number: Fill,
    packing: Packing,
    /// The type of the values.
    values: DType,
}

/// The fill value, parsed as an element.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fill {
    Int(i128),
    Float(f64),
    Complex(f64, f64),
    Bytes,
}

impl TallyReader {
    /// Returns a reader of elements of a type. `fill` is the fill value as an element.
    pub fn new(dtype: &DType, fill: &[u8], packing: &Packing) -> Self {
        let (dtype, values) = (dtype.clone(), packing.value_type(dtype));
        let number = match Element::of(&dtype, fill) {
            Element::Int(int) => Fill::Int(int),
            Element::Float(float) => Fill::Float(float),
            Element::Complex(real, imaginary) => Fill::Complex(real, imaginary),
            Element::Bytes => Fill::Bytes,
        };
        Self { dtype, fill: fill.to_vec(), number, packing: packing.clone(), values }
    }

    /// Returns the type of the values.
    pub fn value_type(&self) -> &DType {
        &self.values
    }

    /// Whether some elements mean that there is no value.
    pub fn has_masked(&self) -> bool {
        self.packing.has_missing()
    }

    /// Returns a tally without elements.
    pub fn tally(&self) -> Tally {
        match self.number {
            Fill::Int(_) if self.packing.is_scaled() => Tally::Floats(Box::default()),
            Fill::Int(_) => Tally::Ints(Ints::default()),
            Fill::Float(_) => Tally::Floats(Box::default()),
            Fill::Complex(..) => Tally::Complex(Box::default()),
            Fill::Bytes => Tally::Others(NotNumbers::default()),
        }
    }

    /// Adds the fill value `count` times.
    pub fn add_fill(&self, tally: &mut Tally, count: u64) {
        if count == 0 {
            return;
        }
        if !self.packing.is_none() {
            self.add_packed(tally, &self.fill, count);
            return;
        }
        match (tally, self.number) {
            (Tally::Ints(ints), Fill::Int(int)) => ints.add_many(int, count, self),
            (Tally::Floats(floats), Fill::Float(float)) => {
                floats.add_many(float, count);
                floats.fill = floats.fill.saturating_add(count);
            }
            (Tally::Complex(complex), Fill::Complex(real, imaginary)) => {
                complex.add_many((real, imaginary), count);
                complex.sizes.fill = complex.sizes.fill.saturating_add(count);
            }
            (Tally::Others(others), _) => others.add(&self.fill, count, self),
            _ => {}
        }
    }

    /// Adds an element `count` times by its value.
    fn add_packed(&self, tally: &mut Tally, item: &[u8], count: u64) {
        let element = Element::of(&self.dtype, item);
        let is_fill = match (element, self.number) {
            (Element::Int(int), Fill::Int(fill)) => int == fill,
            (Element::Float(float), Fill::Float(fill)) => same(float, fill),
            _ => false,
        };
        let fill = if is_fill { count } else { 0 };
        match (tally, self.packing.value(element)) {
            (Tally::Ints(ints), value) => {
                ints.fill = ints.fill.saturating_add(fill);
                match value {
                    Some(Element::Int(int)) => ints.add_values(int, count, self),
                    _ => ints.masked = ints.masked.saturating_add(count),
                }
            }
            (Tally::Floats(floats), value) => {
                floats.fill = floats.fill.saturating_add(fill);
                match value {
                    Some(Element::Float(float)) => floats.add_many(float, count),
                    _ => floats.masked = floats.masked.saturating_add(count),
                }
            }
            _ => {}
        }
    }

    /// Adds contiguous elements of the same length.
    fn add(&self, tally: &mut Tally, bytes: &[u8]) {
        if !self.packing.is_none() {
            let items = bytes.chunks_exact(self.dtype.item_len().max(1));
            items.for_each(|item| self.add_packed(tally, item, 1));
            return;
        }
        match (tally, self.number) {
            (Tally::Ints(ints), Fill::Int(fill)) => self.add_ints(ints, bytes, fill),
            (Tally::Floats(floats), Fill::Float(fill)) => self.add_floats(floats, bytes, fill),
            (Tally::Complex(complex), Fill::Complex(real, imaginary)) => {
                for item in bytes.chunks_exact(self.dtype.item_len().max(1)) {
                    let Element::Complex(a, b) = Element::of(&self.dtype, item) else { continue };
                    complex.add_many((a, b), 1);
                    let is_fill = same(a, real) && same(b, imaginary);
                    complex.sizes.fill += u64::from(is_fill);
                }
            }
            (Tally::Others(others), Fill::Bytes) => {
                let items = bytes.chunks_exact(self.dtype.item_len().max(1));
                items.for_each(|item| others.add(item, 1, self));
            }
            _ => {}
        }
    }

    /// Adds the elements in these ranges of a chunk with `count` elements of variable length.
    fn add_variable(
        &self,
        tally: &mut Tally,
        chunk: &[u8],
        count: usize,
        ranges: impl Iterator<Item = Range<usize>>,
    ) -> Result<()> {
        let items = vlen_items(chunk, count)?;
        let Tally::Others(others) = tally else { return Ok(()) };
        for range in ranges {
            let items = items.range(range).ok_or_else(|| Error::corrupt("too few elements"))?;
            for item in items {
                others.add(item, 1, self);
            }
        }
        Ok(())
    }

    /// Adds the elements of a chunk that lie in the array.
    pub fn add_chunk(&self, tally: &mut Tally, chunk: &Visited, bytes: &[u8]) -> Result<()> {
        let short = || Error::corrupt("a decoded chunk is too short");
        let item_len = self.dtype.item_len();
        if item_len == 0 {
            let count = chunk.shape.iter().try_fold(1_u64, |all, len| all.checked_mul(*len));
            let count = count.and_then(|count| usize::try_from(count).ok()).ok_or_else(short)?;
            return self.add_variable(tally, bytes, count, chunk.ranges());
        }
        for Range { start, end } in chunk.ranges() {
            let range = start.saturating_mul(item_len)..end.saturating_mul(item_len);
            self.add(tally, bytes.get(range).ok_or_else(short)?);
        }
        Ok(())
    }

    /// Whether elements may be NaN or not-a-time.
    pub fn has_nan(&self) -> bool {
        matches!(self.dtype, DType::Time(_)) || !matches!(self.number, Fill::Int(_) | Fill::Bytes)
    }

    /// Whether elements have a length.
    pub fn has_len(&self) -> bool {
        matches!(
            self.dtype,
            DType::Bytes(_) | DType::Utf32(_) | DType::String | DType::VariableBytes
        )
    }

    fn add_ints(&self, ints: &mut Ints, bytes: &[u8], fill: i128) {
        let mut add = |int: i128| {
            ints.fill += u64::from(int == fill);
            ints.add(int, self);
        };
        match self.dtype {
            DType::Uint(1) => bytes.iter().for_each(|byte| add((*byte).into())),
            DType::Int(2) => {
                bytes.as_chunks().0.iter().for_each(|b| add(i16::from_le_bytes(*b).into()));
            }
            DType::Uint(2) => {
                bytes.as_chunks().0.iter().for_each(|b| add(u16::from_le_bytes(*b).into()));
            }
            DType::Int(4) => {
                bytes.as_chunks().0.iter().for_each(|b| add(i32::from_le_bytes(*b).into()));
            }
            DType::Uint(4) => {
                bytes.as_chunks().0.iter().for_each(|b| add(u32::from_le_bytes(*b).into()));
            }
            DType::Int(8) => {
                bytes.as_chunks().0.iter().for_each(|b| add(i64::from_le_bytes(*b).into()));
            }
            DType::Uint(8) => {
                bytes.as_chunks().0.iter().for_each(|b| add(u64::from_le_bytes(*b).into()));
            }
            _ => {
                for item in bytes.chunks_exact(self.dtype.item_len().max(1)) {
                    if let Element::Int(int) = Element::of(&self.dtype, item) {
                        add(int);
                    }
                }
            }
        }
    }

    fn add_floats(&self, floats: &mut Floats, bytes: &[u8], fill: f64) {
        let mut add = |float: f64| {
            floats.fill += u64::from(same(float, fill));
            floats.add(float);
        };
        match self.dtype {
            DType::Float(4) => {
                bytes.as_chunks().0.iter().for_each(|b| add(f32::from_le_bytes(*b).into()));
            }
            DType::Float(8) => {
                bytes.as_chunks().0.iter().for_each(|b| add(f64::from_le_bytes(*b)));
            }
            _ => {
                for item in bytes.chunks_exact(self.dtype.item_len().max(1)) {
                    if let Element::Float(float) = Element::of(&self.dtype, item) {
                        add(float);
                    }
                }
            }
        }
    }
}

/// Returns an element as a number for a picture: times as counts, complex numbers as their absolute
/// value; `None` if it is not a number.
pub fn number(dtype: &DType, item: &[u8]) -> Option<f64> {
    number_of(dtype, Element::of(dtype, item))
}

/// Returns the value of an element as a number for a picture, NaN if there is none.
pub fn value(dtype: &DType, packing: &Packing, item: &[u8]) -> f64 {
    let value = packing.value(Element::of(dtype, item));
    value.and_then(|value| number_of(dtype, value)).unwrap_or(f64::NAN)
}

fn number_of(dtype: &DType, element: Element) -> Option<f64> {
    match element {
        Element::Int(int) if is_no_time(dtype, int) => Some(f64::NAN),
        Element::Int(int) => Some(zarrfs_codec::dtype::to_float(int)),
        Element::Float(float) => Some(float),
        Element::Complex(real, imaginary) => Some(real.hypot(imaginary)),
        Element::Bytes => None,
    }
}

fn is_no_time(dtype: &DType, int: i128) -> bool {
    matches!(dtype, DType::Time(_)) && int == i128::from(i64::MIN)
}

/// Whether two floats are equal; NaN equals NaN.
fn same(one: f64, other: f64) -> bool {
    one.partial_cmp(&other).is_some_and(Ordering::is_eq) || (one.is_nan() && other.is_nan())
}

impl Ints {
    fn add(&mut self, int: i128, reader: &TallyReader) {
        if is_no_time(&reader.dtype, int) {
            self.nan += 1;
            return;
        }
        self.widen(int);
        self.sums.add(int);
        self.histogram.add(reader.bin(int), 0, 1);
    }

    fn add_many(&mut self, int: i128, count: u64, reader: &TallyReader) {
        self.fill = self.fill.saturating_add(count);
        self.add_values(int, count, reader);
    }

    fn add_values(&mut self, int: i128, count: u64, reader: &TallyReader) {
        if is_no_time(&reader.dtype, int) {
            self.nan = self.nan.saturating_add(count);
            return;
        }
        self.widen(int);
        self.sums.add_many(int, count);
        self.histogram.add(reader.bin(int), 0, count);
    }

    fn widen(&mut self, int: i128) {
        let (low, high) = self.range.unwrap_or((int, int));
        self.range = Some((low.min(int), high.max(int)));
    }

    fn merge(&mut self, other: &Self) {
        if let Some((low, high)) = other.range {
            self.widen(low);
            self.widen(high);
        }
        self.sums.merge(&other.sums);
        self.histogram.merge(&other.histogram);
        self.nan = self.nan.saturating_add(other.nan);
        self.fill = self.fill.saturating_add(other.fill);
        self.masked = self.masked.saturating_add(other.masked);
    }
}

impl TallyReader {
    /// Returns the number in the histogram that an integer counts as.
    fn bin(&self, int: i128) -> i64 {
        i64::try_from(int - self.offset()).unwrap_or_default()
    }

    /// Returns the offset to add to the edges of the histogram.
    pub fn offset(&self) -> i128 {
        if self.values == DType::Uint(8) { OFFSET } else { 0 }
    }
}

impl Floats {
    fn add(&mut self, float: f64) {
        if !float.is_finite() {
            self.add_many(float, 1);
            return;
        }
        self.widen(float);
        self.finite += 1;
        let parts = FloatParts::of(float);
        self.sums.add(parts);
        self.histogram.add(parts.mantissa, parts.unit(), 1);
    }

    fn add_many(&mut self, float: f64, count: u64) {
        if float.is_nan() {
            self.nan = self.nan.saturating_add(count);
            return;
        }
        self.widen(float);
        if float.is_infinite() {
            let [negative, positive] = &mut self.infinite;
            let sum = if float < 0.0 { negative } else { positive };
            *sum = sum.saturating_add(count);
            return;
        }
        self.finite = self.finite.saturating_add(count);
        let parts = FloatParts::of(float);
        self.sums.add_many(parts, count);
        self.histogram.add(parts.mantissa, parts.unit(), count);
    }

    fn widen(&mut self, float: f64) {
        // Drop the sign of zero: otherwise the order of elements would decide which zero is the
        // minimum.
        let float = float + 0.0;
        let (low, high) = self.range.unwrap_or((float, float));
        self.range = Some((low.min(float), high.max(float)));
    }

    fn merge(&mut self, other: Self) {
        if let Some((low, high)) = other.range {
            self.widen(low);
            self.widen(high);
        }
        self.sums.merge(other.sums);
        self.histogram.merge(&other.histogram);
        self.finite = self.finite.saturating_add(other.finite);
        self.nan = self.nan.saturating_add(other.nan);
        self.fill = self.fill.saturating_add(other.fill);
        self.masked = self.masked.saturating_add(other.masked);
        self.infinite.iter_mut().zip(other.infinite).for_each(|(sum, more)| *sum += more);
    }
}

impl Complex {
    fn add_many(&mut self, (real, imaginary): (f64, f64), count: u64) {
        if real.is_nan() || imaginary.is_nan() {
            self.sizes.nan = self.sizes.nan.saturating_add(count);
            return;
        }
        self.sizes.add_many(real.hypot(imaginary), count);
        let [reals, imaginaries] = &mut self.parts;
        reals.add_many(real, count);
        imaginaries.add_many(imaginary, count);
    }
}

impl NotNumbers {
    fn add(&mut self, item: &[u8], count: u64, reader: &TallyReader) {
        if item == reader.fill {
            self.fill = self.fill.saturating_add(count);
        }
        let unit = match reader.dtype {
            DType::Utf32(_) => 4,
            DType::Bytes(_) => 1,
            DType::String | DType::VariableBytes => 0,
            _ => return,
        };
        let padding = item.iter().rev().take_while(|byte| **byte == 0).count();
        let len = match unit {
            0 => item.len(),
            unit => item.len().saturating_sub(padding).div_ceil(unit),
        };
        let len = len.to_u64();
        if len == 0 {
            self.empty = self.empty.saturating_add(count);
        }
        let (low, high) = self.lens.unwrap_or((len, len));
        self.lens = Some((low.min(len), high.max(len)));
    }
}

impl Tally {
    /// Returns how many elements equal the fill value.
    pub fn fill(&self) -> u64 {
        match self {
            Self::Ints(ints) => ints.fill,
            Self::Floats(floats) => floats.fill,
            Self::Complex(complex) => complex.sizes.fill,
            Self::Others(others) => others.fill,
        }
    }

    /// Adds the elements of another tally of the same type.
    pub fn merge(&mut self, other: Self) {
        match (self, other) {
            (Self::Ints(ints), Self::Ints(more)) => ints.merge(&more),
            (Self::Floats(floats), Self::Floats(more)) => floats.merge(*more),
            (Self::Complex(complex), Self::Complex(more)) => {
                let more = *more;
                complex.sizes.merge(more.sizes);
                complex.parts.iter_mut().zip(more.parts).for_each(|(part, more)| part.merge(more));
            }
            (Self::Others(others), Self::Others(more)) => {
                let lens = [others.lens, more.lens].into_iter().flatten();
                others.lens = lens.reduce(|(a, b), (low, high)| (a.min(low), b.max(high)));
                others.empty = others.empty.saturating_add(more.empty);
                others.fill = others.fill.saturating_add(more.fill);
            }
            _ => {}
        }
    }
}
