//! Compares the elements of two arrays of the same shape.
//!
//! The comparison goes through the chunks of the first array, and reads the chunks of the second
//! array that overlap them. If the fill values are equal, it skips chunks that neither array has
//! stored.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;

use super::boxes::{self, BoxElements, ElementBox};
use super::options::{DiffOptions, DiffWatch, Largest, ValueDifference};
use crate::array::{Array, Coords, CoordsList, region};
use crate::cache::ChunkCache;
use crate::dtype::{DType, Element, FillValue, to_float};
use crate::error::{Error, Result};
use crate::parallel;
use crate::width::ToUsize;

/// The most chunks to compare one by one if the fill values differ.
const MOST_CHUNKS: u64 = 1 << 27;

/// The most chunks found through the second array to remember, so that each is compared once.
const MOST_KNOWN: usize = 1 << 20;

/// Whether two types are the same as Zarr 3 describes them. It has no structures with an array in a
/// field: these become raw bytes.
pub fn is_same_type(one: &DType, two: &DType) -> bool {
    one == two || (one.item_len() == two.item_len() && one.to_json() == two.to_json())
}

/// Whether elements of two types can be compared.
pub fn are_comparable(one: &DType, two: &DType) -> bool {
    let is_number = |dtype: &DType| {
        matches!(
            dtype,
            DType::Bool | DType::Int(_) | DType::Uint(_) | DType::Float(_) | DType::Narrow(_)
        )
    };
    let is_complex = |dtype: &DType| matches!(dtype, DType::Complex(_) | DType::ComplexNarrow(_));
    let is_text = |dtype: &DType| matches!(dtype, DType::String | DType::Utf32(_));
    let is_bytes = |dtype: &DType| matches!(dtype, DType::VariableBytes | DType::Bytes(_));
    is_same_type(one, two)
        || (is_number(one) && is_number(two))
        || (is_complex(one) && is_complex(two))
        || (is_text(one) && is_text(two))
        || (is_bytes(one) && is_bytes(two))
}

/// Whether two elements are equal.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Compared {
    Equal,
    /// The difference, `None` if it is not a number.
    Different(Option<Largest>),
}

/// Compares two arrays of the same shape.
pub fn compare(
    one: &Arc<Array>,
    two: &Arc<Array>,
    path: &str,
    options: &DiffOptions,
    watch: &dyn DiffWatch,
) -> Result<ValueDifference> {
    for array in [one, two] {
        if let Some(error) = array.not_understood() {
            return Err(error.clone());
        }
    }
    let comparison = Comparison {
        one,
        two,
        options,
        cache: ChunkCache::new(options.cache_len),
        fill: [one, two].map(|array| array.model().fill.item(&array.model().dtype).to_vec()),
        tally: Mutex::default(),
    };
    let units = comparison.units(path, watch)?;
    let units = Mutex::new(units);
    let failure: Mutex<Option<Error>> = Mutex::default();
    let has_failed = || failure.lock().is_some();
    let work = || {
        let _busy = parallel::busy();
        while !watch.is_stopped() && !has_failed() {
            let next = units.lock().next();
            let done = match next {
                Some(Ok(coords)) => comparison.compare_chunk(&coords),
                Some(Err(error)) => Err(error),
                None => return,
            };
            watch.advance();
            if let Err(error) = done {
                failure.lock().get_or_insert(error);
            }
        }
    };
    thread::scope(|scope| {
        parallel::spawn(scope, options.jobs.saturating_sub(1), work);
        work();
    });
    if let Some(error) = failure.into_inner() {
        return Err(error);
    }
    let mut found = comparison.tally.into_inner();
    found.elements = one.model().shape.iter().fold(1, |all, len| all.saturating_mul(*len));
    Ok(found)
}

struct Comparison<'c> {
    one: &'c Arc<Array>,
    two: &'c Arc<Array>,
    options: &'c DiffOptions,
    cache: ChunkCache,
    /// The fill values, encoded as elements.
    fill: [Vec<u8>; 2],
    /// A leaf lock.
    tally: Mutex<ValueDifference>,
}

impl Comparison<'_> {
    /// Lists the chunks of the first array in which elements may differ.
    fn units(&self, path: &str, watch: &dyn DiffWatch) -> Result<CoordsList> {
        let (one, two) = (Arc::clone(self.one), Arc::clone(self.two));
        if one.model().shape.contains(&0) {
            return Ok(Box::new(std::iter::empty()));
        }
        let count = one.grid().counts().iter().fold(1_u64, |all, n| all.saturating_mul(*n));
        let [fill_one, fill_two] = &self.fill;
        if self.compare_items(fill_one, fill_two) != Compared::Equal {
            if count > MOST_CHUNKS {
                return Err(Error::too_large(format!(
                    "the fill values differ, so all {count} chunks would be compared: the limit \
                     is {MOST_CHUNKS}"
                )));
            }
            watch.expect(path, count);
            let counts = one.grid().counts().to_vec();
            let whole =
                ElementBox { start: vec![0; counts.len()], extent: one.model().shape.clone() };
            return Ok(Box::new(whole.chunks(one.grid()).map(Ok)));
        }
        let of_one = Arc::clone(one.chunks()).list()?;
        let of_two = Arc::clone(two.chunks()).list()?;
        let mut known: HashSet<Coords> = HashSet::new();
        let only_in_two = of_two.flat_map(move |coords| {
            let found = coords.and_then(|coords| {
                let mut found = Vec::new();
                for place in ElementBox::of_chunk(&two, &coords)?.chunks(one.grid()) {
                    if known.contains(&place) || one.stat(&place)?.is_some() {
                        continue;
                    }
                    if known.len() < MOST_KNOWN {
                        known.insert(place.clone());
                    } else if first_in(&two, &ElementBox::of_chunk(&one, &place)?)?
                        != Some(coords.clone())
                    {
                        continue;
                    }
                    found.push(place);
                }
                Ok(found)
            });
            match found {
                Ok(places) => places.into_iter().map(Ok).collect::<Vec<_>>(),
                Err(error) => vec![Err(error)],
            }
        });
        watch.expect(path, count);
        Ok(Box::new(of_one.chain(only_in_two)))
    }

    fn compare_chunk(&self, coords: &Coords) -> Result<()> {
        let span = ElementBox::of_chunk(self.one, coords)?;
        let found = boxes::read(self.one, &span, &self.cache)?;
        let other = boxes::read(self.two, &span, &self.cache)?;
        let [fill_one, fill_two] = &self.fill;
        if found.is_none() && other.is_none() {
            if self.compare_items(fill_one, fill_two) != Compared::Equal {
                self.add_all(&span, fill_one, fill_two);
            }
            return Ok(());
        }
        if is_same_type(&self.one.model().dtype, &self.two.model().dtype)
            && let (Some(BoxElements::Fixed(found)), Some(BoxElements::Fixed(other))) =
                (&found, &other)
            && found == other
        {
            return Ok(());
        }
        let [len_one, len_two] = [self.one, self.two].map(|array| array.model().dtype.item_len());
        let count = span.count().to_usize();
        let mut at = vec![0; span.extent.len()];
        let mut all = ValueDifference::default();
        for index in 0..count {
            let item = |elements: &Option<BoxElements>, len: usize, fill: &Vec<u8>| match elements {
                Some(elements) => elements.item(index, len).map(<[u8]>::to_vec),
                None => Some(fill.clone()),
            };
            let is_same = match (&found, &other) {
                (Some(found), Some(other))
                    if is_same_type(&self.one.model().dtype, &self.two.model().dtype) =>
                {
                    found.item(index, len_one) == other.item(index, len_two)
                }
                _ => false,
            };
            if !is_same {
                let one = item(&found, len_one, fill_one).unwrap_or_default();
                let two = item(&other, len_two, fill_two).unwrap_or_default();
                if let Compared::Different(largest) = self.compare_items(&one, &two) {
                    let place = span.start.iter().zip(&at);
                    let place: Vec<u64> =
                        place.map(|(start, at)| start.saturating_add(*at)).collect();
                    self.add(&mut all, place, 1, (&one, &two), largest);
                }
            }
            region::step(&mut at, &span.extent);
        }
        self.merge(all);
        Ok(())
    }

    /// Counts the elements of a box in which both arrays have only fill values.
    fn add_all(&self, span: &ElementBox, one: &[u8], two: &[u8]) {
        let mut all = ValueDifference::default();
        if let Compared::Different(largest) = self.compare_items(one, two) {
            self.add(&mut all, span.start.clone(), span.count(), (one, two), largest);
        }
        self.merge(all);
    }

    fn add(
        &self,
        all: &mut ValueDifference,
        place: Vec<u64>,
        count: u64,
        (one, two): (&[u8], &[u8]),
        largest: Option<Largest>,
    ) {
        all.count = all.count.saturating_add(count);
        if let Some(largest) = largest
            && all.largest.as_ref().is_none_or(|(known, _)| is_greater(largest, *known))
        {
            all.largest = Some((largest, place.clone()));
        }
        if all.first.is_none() {
            let json = |array: &Array, item: &[u8]| {
                FillValue::from_item(item).to_json(&array.model().dtype)
            };
            all.first = Some((place, [json(self.one, one), json(self.two, two)]));
        }
    }

    fn merge(&self, more: ValueDifference) {
        if more.count == 0 {
            return;
        }
        let mut all = self.tally.lock();
        all.count = all.count.saturating_add(more.count);
        if let Some((place, values)) = more.first
            && all.first.as_ref().is_none_or(|(known, _)| place < *known)
        {
            all.first = Some((place, values));
        }
        if let Some((largest, place)) = more.largest {
            // Of equal differences, keep the first in C order: threads finish in any order.
            let is_better = all.largest.as_ref().is_none_or(|(known, at)| {
                is_greater(largest, *known) || (largest == *known && place < *at)
            });
            if is_better {
                all.largest = Some((largest, place));
            }
        }
    }

    /// Compares two elements.
    fn compare_items(&self, one: &[u8], two: &[u8]) -> Compared {
        let (dtype_one, dtype_two) = (&self.one.model().dtype, &self.two.model().dtype);
        let numbers = (Element::of(dtype_one, one), Element::of(dtype_two, two));
        match numbers {
            (Element::Int(one), Element::Int(two)) if is_time(dtype_one) => {
                // Not-a-time equals only not-a-time.
                match (one == NOT_A_TIME, two == NOT_A_TIME) {
                    (true, true) => Compared::Equal,
                    (false, false) => self.ints(one, two),
                    _ => Compared::Different(None),
                }
            }
            (Element::Int(one), Element::Int(two)) => self.ints(one, two),
            (Element::Int(one), Element::Float(two)) => match as_int(two) {
                Some(two) => self.ints(one, two),
                None => self.floats(to_float(one), two),
            },
            (Element::Float(one), Element::Int(two)) => match as_int(one) {
                Some(one) => self.ints(one, two),
                None => self.floats(one, to_float(two)),
            },
            (Element::Float(one), Element::Float(two)) => self.floats(one, two),
            (Element::Complex(real, imaginary), Element::Complex(real_two, imaginary_two)) => {
                self.complex([(real, real_two), (imaginary, imaginary_two)])
            }
            _ => {
                let [one, two] =
                    [(dtype_one, one), (dtype_two, two)].map(|(dtype, item)| text(dtype, item));
                if one == two { Compared::Equal } else { Compared::Different(None) }
            }
        }
    }

    fn floats(&self, one: f64, two: f64) -> Compared {
        if self.is_close(one, two) {
            return Compared::Equal;
        }
        let distance = (one - two).abs();
        Compared::Different((!distance.is_nan()).then_some(Largest::Float(distance)))
    }

    /// Compares complex numbers by their real and their imaginary parts. NaN equals NaN in each.
    fn complex(&self, parts: [(f64, f64); 2]) -> Compared {
        if parts.into_iter().all(|(one, two)| is_equal(one, two)) {
            return Compared::Equal;
        }
        let [real, imaginary] =
            parts.map(|(one, two)| if is_equal(one, two) { 0.0 } else { one - two });
        let sizes = parts.map(|(_, two)| if two.is_finite() { two } else { 0.0 });
        let (distance, [size_real, size_imaginary]) = (real.hypot(imaginary), sizes);
        if distance.is_finite() && distance <= self.limit(size_real.hypot(size_imaginary)) {
            return Compared::Equal;
        }
        Compared::Different((!distance.is_nan()).then_some(Largest::Float(distance)))
    }

    fn ints(&self, one: i128, two: i128) -> Compared {
        let difference = one.abs_diff(two);
        let near = i128::try_from(difference).map_or(f64::INFINITY, to_float);
        if difference == 0 || near <= self.limit(to_float(two).abs()) {
            return Compared::Equal;
        }
        Compared::Different(Some(Largest::Int(difference)))
    }

    /// Returns the largest difference at which a number of this size counts as equal.
    fn limit(&self, size: f64) -> f64 {
        self.options.tolerance + self.options.relative * size
    }

    /// Whether two numbers are equal within the tolerance. NaN equals NaN.
    fn is_close(&self, one: f64, two: f64) -> bool {
        let distance = (one - two).abs();
        is_equal(one, two) || (distance.is_finite() && distance <= self.limit(two.abs()))
    }
}

/// The integer that means not-a-time.
const NOT_A_TIME: i128 = -(1 << 63);

fn is_time(dtype: &DType) -> bool {
    matches!(dtype, DType::Time(_))
}

/// Whether two floats are equal; NaN equals NaN.
fn is_equal(one: f64, two: f64) -> bool {
    one.partial_cmp(&two).is_some_and(Ordering::is_eq) || (one.is_nan() && two.is_nan())
}

/// Returns the integer that a float is equal to.
fn as_int(float: f64) -> Option<i128> {
    if !float.is_finite() || float.fract() != 0.0 || float.abs() >= 2.0_f64.powi(100) {
        return None;
    }
    format!("{float:.0}").parse().ok()
}

fn is_greater(one: Largest, other: Largest) -> bool {
    match (one, other) {
        (Largest::Int(one), Largest::Int(other)) => one > other,
        (Largest::Float(one), Largest::Float(other)) => one > other,
        _ => false,
    }
}

/// Returns an element that is not a number, without its padding.
fn text(dtype: &DType, item: &[u8]) -> Vec<u8> {
    match dtype {
        DType::Bytes(_) => {
            let end = item.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            item.get(..end).unwrap_or_default().to_vec()
        }
        DType::Utf32(_) => {
            let (points, _) = item.as_chunks::<4>();
            let points = points.iter().map(|point| u32::from_le_bytes(*point));
            let all: String = points
                .map(|point| char::from_u32(point).unwrap_or(char::REPLACEMENT_CHARACTER))
                .collect();
            all.trim_end_matches('\0').as_bytes().to_vec()
        }
        _ => item.to_vec(),
    }
}

/// Returns the first stored chunk in a box.
fn first_in(array: &Array, span: &ElementBox) -> Result<Option<Coords>> {
    for coords in span.chunks(array.grid()) {
        if array.stat(&coords)?.is_some() {
            return Ok(Some(coords));
        }
    }
    Ok(None)
}
