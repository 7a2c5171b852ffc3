//! Statistics of the elements of an array.
//!
//! Sums are exact until the end, and so are the limits of the bins of the histogram. Hence neither
//! the number of threads nor the order of the chunks changes a result. A missing chunk counts as
//! fill values and is not decoded. Elements of a chunk that lie outside the array do not count. The
//! caller decides how many threads read; each thread holds one chunk.

mod big;
mod histogram;
mod moments;
mod tally;
mod walk;

use std::sync::Arc;

use crate::array::{Array, Coords};
use crate::metadata::Packing;
pub use histogram::Columns;
pub use moments::Moments;
use tally::{Floats, Tally, TallyReader};
pub use tally::{number, value};
pub use walk::{Visited, chunks, sample};
use zarrfs_base::error::{Error, Result};
use zarrfs_codec::dtype::DType;

/// The most columns of a histogram.
pub const COLUMNS: usize = 40;

/// Which chunks to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chosen {
    /// All of them.
    All,
    /// This number of chunks, spread over the array.
    Sample(u64),
}

/// The smallest and the largest element.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Range {
    /// Of integers, Boolean values and times.
    Ints(i128, i128),
    /// Of floats, including infinities, or of the absolute values of complex numbers.
    Floats(f64, f64),
    /// Of the lengths of strings and bytes: in characters for strings of fixed length, otherwise in
    /// bytes.
    Lens(u64, u64),
}

/// The mean and the standard deviation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Average {
    /// Of real numbers.
    Real(Moments),
    /// Of complex numbers: the imaginary part of the mean, and the other moments.
    Complex(Moments, f64),
    /// Of times: the mean, rounded towards zero, and the standard deviation.
    Time(i128, f64),
}

/// The statistics of an array.
#[derive(Debug, Clone, PartialEq)]
pub struct Statistics {
    /// How many elements were counted.
    pub elements: u64,
    /// How many of these are in missing chunks.
    pub missing: u64,
    /// How many chunks were read.
    pub chunks_read: u64,
    /// How many equal the fill value.
    pub fill: u64,
    /// The type of the values that are described.
    pub dtype: DType,
    /// How many mean that there is no value; `None` if no element does.
    pub masked: Option<u64>,
    /// How many are NaN or not-a-time; `None` if the type has neither.
    pub nan: Option<u64>,
    /// How many are negative and positive infinity; `None` if the type has no infinity.
    pub infinite: Option<[u64; 2]>,
    /// How many are finite numbers; `None` if elements are not numbers.
    pub finite: Option<u64>,
    /// How many are empty; `None` if elements have no length.
    pub empty: Option<u64>,
    /// The range of those that are not NaN.
    pub range: Option<Range>,
    /// The average of those that are not NaN.
    pub average: Option<Average>,
    /// The histogram of the finite ones.
    pub histogram: Option<Columns>,
}

/// The counts of one thread.
struct ThreadTally {
    tally: Tally,
    elements: u64,
    missing: u64,
    chunks: u64,
}

/// Computes the statistics of the values of an array: those that `packing` gives its elements.
/// Calls `seen` after each chunk with its coordinates, and
/// with whether it has only fill values (`None` if it is not stored).
pub fn of(
    array: &Arc<Array>,
    chosen: Chosen,
    threads: usize,
    packing: &Packing,
    seen: &(dyn Fn(&Coords, Option<bool>) + Sync),
) -> Result<Statistics> {
    let model = array.model();
    let all = model.shape.iter().try_fold(1_u64, |all, len| all.checked_mul(*len));
    let all = all.ok_or_else(|| Error::too_large("more than 2^64 elements"))?;
    let reader = TallyReader::new(&model.dtype, &model.fill.item(&model.dtype), packing);
    let list = match chosen {
        Chosen::All => Arc::clone(array.chunks()).list()?,
        Chosen::Sample(_) if all == 0 => Box::new(std::iter::empty()),
        Chosen::Sample(count) => sample(array, count),
    };
    let start = || ThreadTally { tally: reader.tally(), elements: 0, missing: 0, chunks: 0 };
    let parts = chunks(array, list, threads, start, |part, chunk| {
        let is_fill = part.add(&reader, &chunk)?;
        seen(&chunk.coords, is_fill);
        Ok(())
    })?;
    let mut sum = start();
    for part in parts {
        sum.tally.merge(part.tally);
        sum.elements = sum.elements.saturating_add(part.elements);
        sum.missing = sum.missing.saturating_add(part.missing);
        sum.chunks = sum.chunks.saturating_add(part.chunks);
    }
    if chosen == Chosen::All {
        // Chunks that were removed after they were listed are missing, too.
        sum.missing = all.saturating_sub(sum.elements);
    }
    reader.add_fill(&mut sum.tally, sum.missing);
    sum.elements = sum.elements.saturating_add(sum.missing);
    Ok(summary(sum, &reader))
}

impl ThreadTally {
    /// Adds a chunk. Returns whether it has only fill values, `None` if it is not stored.
    fn add(&mut self, reader: &TallyReader, chunk: &Visited) -> Result<Option<bool>> {
        let Some(bytes) = &chunk.bytes else {
            self.missing = self.missing.saturating_add(chunk.count());
            return Ok(None);
        };
        let fill = self.tally.fill();
        reader.add_chunk(&mut self.tally, chunk, bytes)?;
        self.elements = self.elements.saturating_add(chunk.count());
        self.chunks += 1;
        Ok(Some(self.tally.fill().saturating_sub(fill) == chunk.count()))
    }
}

fn summary(sum: ThreadTally, reader: &TallyReader) -> Statistics {
    let mut summary = Statistics {
        elements: sum.elements,
        missing: sum.missing,
        chunks_read: sum.chunks,
        fill: sum.tally.fill(),
        dtype: reader.value_type().clone(),
        masked: None,
        nan: None,
        infinite: None,
        finite: None,
        empty: None,
        range: None,
        average: None,
        histogram: None,
    };
    let masked = match &sum.tally {
        Tally::Ints(ints) => ints.masked,
        Tally::Floats(floats) => floats.masked,
        Tally::Complex(_) | Tally::Others(_) => 0,
    };
    summary.masked = reader.has_masked().then_some(masked);
    match sum.tally {
        Tally::Ints(ints) => {
            summary.nan = reader.has_nan().then_some(ints.nan);
            summary.finite = Some(ints.sums.count());
            summary.range = ints.range.map(|(low, high)| Range::Ints(low, high));
            let moments = ints.sums.moments();
            // A float cannot hold all digits of a time in nanoseconds.
            summary.average = if reader.has_nan() {
                let mean = ints.sums.mean_towards_zero();
                mean.zip(moments).map(|(mean, moments)| Average::Time(mean, moments.deviation))
            } else {
                moments.map(Average::Real)
            };
            summary.histogram = ints.histogram.columns(COLUMNS, reader.offset());
        }
        Tally::Floats(floats) => summary.add_floats(*floats, None),
        Tally::Complex(complex) => {
            let [real, imaginary] = complex.parts;
            summary.add_floats(complex.sizes, Some((real, imaginary)));
        }
        Tally::Others(others) => {
            summary.range = others.lens.map(|(low, high)| Range::Lens(low, high));
            summary.empty = reader.has_len().then_some(others.empty);
        }
    }
    summary
}

impl Statistics {
    fn add_floats(&mut self, floats: Floats, parts: Option<(Floats, Floats)>) {
        self.nan = Some(floats.nan);
        self.infinite = Some(floats.infinite);
        self.finite = Some(floats.finite);
        self.range = floats.range.map(|(low, high)| Range::Floats(low, high));
        self.histogram = floats.histogram.columns(COLUMNS, 0);
        self.average = match parts {
            None => average(floats).map(Average::Real),
            Some((real, imaginary)) => {
                average(real).zip(average(imaginary)).map(|(real, other)| {
                    let deviation = real.deviation.hypot(other.deviation);
                    Average::Complex(Moments { mean: real.mean, deviation }, other.mean)
                })
            }
        };
    }
}

/// Returns the average of floats that may include infinities, by the rules of IEEE 754.
fn average(floats: Floats) -> Option<Moments> {
    let mean = match floats.infinite {
        [0, 0] => return floats.sums.moments(),
        [0, _] => f64::INFINITY,
        [_, 0] => f64::NEG_INFINITY,
        [_, _] => f64::NAN,
    };
    Some(Moments { mean, deviation: f64::NAN })
}

#[cfg(test)]
mod tests;
