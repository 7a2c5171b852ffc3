//! A histogram that grows with the numbers, so that one pass is enough.
//!
//! A bin is 2^`exponent` wide and begins at a multiple of its width. If the numbers need more than
//! [`MOST`] bins, each pair of bins becomes one. Hence the bins depend only on the smallest and the
//! largest number, and not on their order.

use serde_json::Value;

use super::moments::times_power;
use zarrfs_codec::dtype::to_float;

/// The most bins.
const MOST: i64 = 4096;

/// Counts of finite numbers in bins of the same width.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    exponent: i32,
    /// The index of the first bin.
    first: i64,
    counts: Vec<u64>,
}

/// A histogram with few enough bins for people to read.
#[derive(Debug, Clone, PartialEq)]
pub struct Columns {
    /// The start of each column, and the end of the last one.
    pub edges: Vec<Value>,
    /// How many numbers each column has. A number at its end belongs to the next column.
    pub counts: Vec<u64>,
}

/// Returns `mantissa` divided by 2^`bits`, rounded down.
fn floored(mantissa: i64, bits: i32) -> i64 {
    mantissa >> bits.clamp(0, 63)
}

impl Histogram {
    /// Adds the number `mantissa` times 2^`unit`, `count` times.
    pub fn add(&mut self, mantissa: i64, unit: i32, count: u64) {
        if unit <= self.exponent {
            let at = floored(mantissa, self.exponent - unit).wrapping_sub(self.first);
            let bin = usize::try_from(at).ok().and_then(|at| self.counts.get_mut(at));
            if let Some(bin) = bin {
                *bin = bin.saturating_add(count);
                return;
            }
        }
        self.grow(mantissa, unit, count);
    }

    /// Makes room for a number outside of all bins, and adds it.
    fn grow(&mut self, mantissa: i64, unit: i32, count: u64) {
        if self.counts.is_empty() {
            *self = Self { exponent: unit, first: mantissa, counts: vec![count] };
            return;
        }
        self.widen(unit.saturating_sub(self.exponent));
        loop {
            let at = floored(mantissa, self.exponent - unit);
            let last = self.first.saturating_add(self.len() - 1);
            let (low, high) = (at.min(self.first), at.max(last));
            if high.checked_sub(low).is_none_or(|span| span >= MOST) {
                self.widen(1);
                continue;
            }
            let before = usize::try_from(self.first - low).unwrap_or_default();
            self.counts.splice(0..0, std::iter::repeat_n(0, before));
            let len = usize::try_from(high - low).unwrap_or_default().saturating_add(1);
            self.counts.resize(len, 0);
            self.first = low;
            if let Some(bin) = usize::try_from(at - low).ok().and_then(|at| self.counts.get_mut(at))
            {
                *bin = bin.saturating_add(count);
            }
            return;
        }
    }

    fn len(&self) -> i64 {
        i64::try_from(self.counts.len()).unwrap_or(i64::MAX)
    }

    /// Makes the bins wider by a factor of 2^`bits`.
    fn widen(&mut self, bits: i32) {
        if bits <= 0 {
            return;
        }
        self.exponent = self.exponent.saturating_add(bits);
        let first = floored(self.first, bits);
        let mut counts: Vec<u64> = Vec::new();
        for (old, count) in (self.first..=i64::MAX).zip(&self.counts) {
            let at = usize::try_from(floored(old, bits) - first).unwrap_or_default();
            counts.resize(counts.len().max(at.saturating_add(1)), 0);
            if let Some(bin) = counts.get_mut(at) {
                *bin = bin.saturating_add(*count);
            }
        }
        self.first = first;
        self.counts = counts;
    }

    /// Adds the numbers of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (at, count) in
            (other.first..=i64::MAX).zip(&other.counts).filter(|(_, count)| **count > 0)
        {
            self.add(at, other.exponent, *count);
        }
    }

    /// Groups the bins into at most `most` columns; `None` without numbers. Adds `offset` to each
    /// edge.
    pub fn columns(&self, most: usize, offset: i128) -> Option<Columns> {
        let per = self.counts.len().div_ceil(most.max(1)).max(1);
        let counts: Vec<u64> = self.counts.chunks(per).map(|bins| bins.iter().sum()).collect();
        if counts.is_empty() {
            return None;
        }
        let step = i128::try_from(per).unwrap_or(1);
        let edge = |column: i128| {
            let at = i128::from(self.first) + column * step;
            match u32::try_from(self.exponent) {
                Ok(bits) if bits < 64 && self.exponent >= 0 => exact((at << bits) + offset),
                _ => Value::from(times_power(to_float(at), self.exponent)),
            }
        };
        let columns = i128::try_from(counts.len()).unwrap_or_default();
        Some(Columns { edges: (0..=columns).map(edge).collect(), counts })
    }
}

fn exact(number: i128) -> Value {
    Value::Number(serde_json::Number::from_string_unchecked(number.to_string()))
}

#[cfg(test)]
mod tests {
    use super::super::moments::FloatParts;
    use super::*;
    use proptest::prelude::*;

    fn of(numbers: &[f64]) -> Histogram {
        let mut all = Histogram::default();
        for parts in numbers.iter().map(|number| FloatParts::of(*number)) {
            all.add(parts.mantissa, parts.unit(), 1);
        }
        all
    }

    #[test]
    fn every_number_is_in_the_column_between_its_edges() {
        let numbers: Vec<f64> = (0..1000).map(|n| 270.0 + f64::from(n * n % 997) * 0.05).collect();
        let columns = of(&numbers).columns(40, 0).expect("numbers");
        let edges: Vec<f64> = columns.edges.iter().filter_map(Value::as_f64).collect();
        assert!(columns.counts.len() >= 35, "{}", columns.counts.len());
        for (at, count) in columns.counts.iter().enumerate() {
            let is_in = |number: &&f64| (edges[at]..edges[at + 1]).contains(*number);
            assert_eq!(numbers.iter().filter(is_in).count() as u64, *count);
        }
    }

    #[test]
    fn integers_have_exact_edges() {
        let mut all = Histogram::default();
        all.add(i64::MIN, 0, 3);
        all.add(i64::MAX, 0, 4);
        let columns = all.columns(40, 1 << 63).expect("numbers");
        assert_eq!(columns.edges[0].to_string(), "0");
        assert_eq!(columns.counts.iter().sum::<u64>(), 7);
        assert_eq!((columns.counts[0], columns.counts.last()), (3, Some(&4)));
    }

    proptest! {
        #[test]
        fn neither_the_order_of_numbers_nor_merging_changes_it(
            numbers in prop::collection::vec(prop::num::f64::NORMAL | prop::num::f64::ZERO, 1..40),
            at in 0_usize..40,
        ) {
            let whole = of(&numbers);
            let mut reversed = numbers.clone();
            reversed.reverse();
            prop_assert_eq!(&of(&reversed), &whole);
            let (some, others) = numbers.split_at(at.min(numbers.len()));
            let mut merged = of(others);
            merged.merge(&of(some));
            prop_assert_eq!(merged, whole);
        }
    }
}
