//! Sums of numbers and of their squares. They are not rounded, so neither the order of the numbers
//! nor their size matters. Pairwise sums would be shorter code, and would differ between two copies
//! of an array that have other chunks.

use super::big::Big;
use zarrfs_base::width::ToUsize;
use zarrfs_codec::dtype::to_float;

/// The number of exponents: a float is an integer of 53 bits times 2 to the power of an exponent.
/// Exponents count from [`LEAST`].
const EXPONENTS: usize = 2048;

/// The smallest exponent of a float.
const LEAST: i32 = -1074;

/// The most squares that can be added before [`FloatSums::carry`]: each has 106 bits.
const MOST_SQUARES: u32 = 1 << 21;

/// A float in parts: `mantissa` times 2 to the power of `exponent` + [`LEAST`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FloatParts {
    /// The signed integer, of 53 bits.
    pub mantissa: i64,
    /// The exponent, from 0.
    pub exponent: u32,
}

impl FloatParts {
    /// Returns the parts of a finite float.
    pub fn of(float: f64) -> Self {
        let bits = float.to_bits();
        let biased = (bits >> 52) & 0x7ff;
        let fraction = bits & ((1 << 52) - 1);
        // Subnormal numbers have the exponent of the smallest normal numbers, but no implicit
        // leading bit.
        let (size, exponent) =
            if biased == 0 { (fraction, 0) } else { (fraction | 1 << 52, biased - 1) };
        let size = size.cast_signed();
        Self {
            mantissa: if float.is_sign_negative() { -size } else { size },
            exponent: u32::try_from(exponent).unwrap_or_default(),
        }
    }

    /// Returns the exponent of the unit of `mantissa`.
    pub fn unit(self) -> i32 {
        self.exponent.cast_signed().saturating_add(LEAST)
    }
}

/// The mean and the standard deviation of numbers. The divisor of the variance is their count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moments {
    /// The mean.
    pub mean: f64,
    /// The standard deviation.
    pub deviation: f64,
}

/// Sums of finite floats.
#[derive(Debug, Clone)]
pub struct FloatSums {
    count: u64,
    /// For each exponent, the sum of the mantissas.
    sums: Box<[i128]>,
    /// For each exponent, the sum of their squares since the last carry.
    squares: Box<[u128]>,
    uncarried: u32,
    /// The sum of the other squares, in units of 2 to the power of twice [`LEAST`].
    carried: Big,
}

impl Default for FloatSums {
    fn default() -> Self {
        Self {
            count: 0,
            sums: vec![0; EXPONENTS].into(),
            squares: vec![0; EXPONENTS].into(),
            uncarried: 0,
            carried: Big::default(),
        }
    }
}

impl FloatSums {
    /// Adds a number.
    pub fn add(&mut self, parts: FloatParts) {
        self.count += 1;
        let at = parts.exponent.to_usize();
        if let (Some(sum), Some(squares)) = (self.sums.get_mut(at), self.squares.get_mut(at)) {
            *sum += i128::from(parts.mantissa);
            let size = u128::from(parts.mantissa.unsigned_abs());
            *squares += size * size;
        }
        self.uncarried += 1;
        if self.uncarried >= MOST_SQUARES {
            self.carry();
        }
    }

    /// Adds a number `count` times.
    pub fn add_many(&mut self, parts: FloatParts, count: u64) {
        self.count = self.count.saturating_add(count);
        let at = parts.exponent.to_usize();
        if let Some(sum) = self.sums.get_mut(at) {
            *sum += i128::from(parts.mantissa) * i128::from(count);
        }
        let size = u128::from(parts.mantissa.unsigned_abs());
        let squares = Big::from(size * size).times(&Big::from(u128::from(count)));
        self.carried.add(&squares.shifted(at.saturating_mul(2)));
    }

    /// Adds the numbers of another sum.
    pub fn merge(&mut self, mut other: Self) {
        other.carry();
        self.count = self.count.saturating_add(other.count);
        self.sums.iter_mut().zip(&other.sums).for_each(|(sum, more)| *sum += more);
        self.carried.add(&other.carried);
    }

    /// Adds the squares to `carried`, which cannot overflow.
    fn carry(&mut self) {
        for (at, squares) in self.squares.iter_mut().enumerate().filter(|(_, sum)| **sum > 0) {
            let squares = Big::from(std::mem::take(squares));
            self.carried.add(&squares.shifted(at.saturating_mul(2)));
        }
        self.uncarried = 0;
    }

    /// Returns the moments, `None` without numbers.
    pub fn moments(mut self) -> Option<Moments> {
        self.carry();
        let (mut above, mut below) = (Big::default(), Big::default());
        for (at, sum) in self.sums.iter().enumerate().filter(|(_, sum)| **sum != 0) {
            let size = Big::from(sum.unsigned_abs()).shifted(at);
            if *sum > 0 { above.add(&size) } else { below.add(&size) }
        }
        let is_negative = above.compare(&below).is_lt();
        let sum = if is_negative { below.minus(&above) } else { above.minus(&below) };
        moments(self.count, (is_negative, &sum), &self.carried, LEAST)
    }
}

/// Sums of integers of 64 bits, or differences of two such integers.
#[derive(Debug, Clone, Default)]
pub struct IntSums {
    count: u64,
    sum: i128,
    /// The low bits of the sum of squares.
    squares: u128,
    /// How often the low bits overflowed.
    overflows: u64,
    /// The squares of numbers that were added many times.
    many: Big,
}

impl IntSums {
    /// Adds a number `count` times.
    pub fn add_many(&mut self, number: i128, count: u64) {
        self.count = self.count.saturating_add(count);
        self.sum += number * i128::from(count);
        let size = number.unsigned_abs();
        self.many.add(&Big::from(size * size).times(&Big::from(u128::from(count))));
    }

    /// Adds a number.
    pub fn add(&mut self, number: i128) {
        let size = number.unsigned_abs();
        self.count += 1;
        self.sum += number;
        self.add_squares(size * size, 0);
    }

    fn add_squares(&mut self, squares: u128, overflows: u64) {
        let (sum, is_over) = self.squares.overflowing_add(squares);
        self.squares = sum;
        self.overflows = self.overflows.saturating_add(overflows).saturating_add(is_over.into());
    }

    /// Adds the numbers of another sum.
    pub fn merge(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.sum += other.sum;
        self.add_squares(other.squares, other.overflows);
        self.many.add(&other.many);
    }

    /// Returns how many numbers were added.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the mean, rounded towards zero as `NumPy` does; `None` without numbers.
    pub fn mean_towards_zero(&self) -> Option<i128> {
        self.sum.checked_div(self.count.into())
    }

    /// Returns the moments, `None` without numbers.
    pub fn moments(&self) -> Option<Moments> {
        let mut squares = Big::from(self.squares);
        squares.add(&self.many);
        squares.add(&Big::from(u128::from(self.overflows)).shifted(128));
        moments(self.count, (self.sum < 0, &Big::from(self.sum.unsigned_abs())), &squares, 0)
    }
}

/// Returns the moments of `count` numbers with this sum, in units of 2 to the power of `exponent`,
/// and this sum of squares, in units of 2 to the power of twice that.
fn moments(
    count: u64,
    (is_negative, sum): (bool, &Big),
    squares: &Big,
    exponent: i32,
) -> Option<Moments> {
    if count == 0 {
        return None;
    }
    let number = Big::from(u128::from(count));
    let divisor = to_float(count.into());
    let mean = scaled(sum, exponent, |leading| leading / divisor);
    // The variance times the square of the count.
    let spread = squares.times(&number).minus(&sum.times(sum));
    let (leading, follow) = spread.leading();
    // The square root needs an even exponent.
    let (leading, follow) =
        if follow % 2 == 0 { (leading, follow) } else { (leading << 1, follow - 1) };
    let root = to_float(leading).sqrt() / divisor;
    let deviation = times_power(root, follow / 2 + exponent);
    Some(Moments { mean: if is_negative { -mean } else { mean }, deviation })
}

/// Applies `change` to the leading bits of a number, and returns the result in units of 2 to the
/// power of `exponent`.
fn scaled(number: &Big, exponent: i32, change: impl Fn(f64) -> f64) -> f64 {
    let (leading, follow) = number.leading();
    times_power(change(to_float(leading)), follow + exponent)
}

/// Returns `float` times 2 to the power of `exponent`, rounded once.
pub fn times_power(float: f64, exponent: i32) -> f64 {
    // A power of two beyond the range of floats is applied in steps; only the last one rounds.
    let (mut float, mut left) = (float, exponent);
    while left > 1000 {
        float *= 2_f64.powi(1000);
        left -= 1000;
    }
    // Between the steps the number must not become subnormal.
    while left < -1000 && float.abs() > 1.0 {
        float *= 2_f64.powi(-1000);
        left += 1000;
    }
    if left < -1022 {
        return float
            * 2_f64.powi(left.max(-2000) / 2)
            * 2_f64.powi(left.max(-2000) - left.max(-2000) / 2);
    }
    float * 2_f64.powi(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(numbers: &[f64]) -> Moments {
        let mut sums = FloatSums::default();
        for number in numbers {
            sums.add(FloatParts::of(*number));
        }
        sums.moments().expect("numbers")
    }

    #[test]
    fn the_sum_of_numbers_of_all_sizes_is_not_rounded() {
        assert_eq!(floats(&[1e300, 1.0, -1e300, 3.0]).mean.to_string(), "1");
        assert_eq!(floats(&[f64::MAX, f64::MAX]), Moments { mean: f64::MAX, deviation: 0.0 });
        let least = f64::from_bits(1);
        let two = floats(&[least, 3.0 * least]);
        assert_eq!(two, Moments { mean: 2.0 * least, deviation: least });
        assert_eq!(floats(&[-1.0, 1.0]), Moments { mean: 0.0, deviation: 1.0 });
        let offset = floats(&[1e15 + 1.0, 1e15 + 3.0]);
        assert_eq!(offset, Moments { mean: 1e15 + 2.0, deviation: 1.0 });
        assert_eq!(floats(&[f64::MAX, -f64::MAX]), Moments { mean: 0.0, deviation: f64::MAX });
    }

    #[test]
    fn the_last_bit_of_a_small_sum_counts() {
        let mut sums = IntSums::default();
        for number in [1, 2, 4] {
            sums.add(number);
        }
        assert_eq!(sums.moments().map(|moments| moments.mean), Some(7.0 / 3.0));
    }

    #[test]
    fn integers_at_the_limits_do_not_overflow() {
        let mut sums = IntSums::default();
        sums.add_many(i128::from(u64::MAX), 1 << 62);
        sums.add_many(i128::from(u64::MAX), 1 << 62);
        let moments = sums.moments().expect("numbers");
        assert_eq!(moments, Moments { mean: 2_f64.powi(64), deviation: 0.0 });
        let mut sums = IntSums::default();
        sums.add(i64::MIN.into());
        sums.add(i64::MAX.into());
        let moments = sums.moments().expect("numbers");
        assert_eq!(moments, Moments { mean: -0.5, deviation: 2_f64.powi(63) });
        assert!(IntSums::default().moments().is_none());
    }

    #[test]
    fn a_number_added_many_times_counts_as_often_and_the_order_does_not_matter() {
        let (one, other) = (FloatParts::of(0.1), FloatParts::of(-7.3e-5));
        let (mut many, mut all) = (FloatSums::default(), FloatSums::default());
        many.add_many(one, 1000);
        many.add_many(other, 10);
        (0..1000).for_each(|_| all.add(one));
        let mut rest = FloatSums::default();
        (0..10).for_each(|_| rest.add(other));
        rest.merge(all);
        assert_eq!(many.moments(), rest.moments());
    }
}
