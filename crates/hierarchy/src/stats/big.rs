//! Natural numbers of any length, for sums that must not be rounded.

use std::cmp::Ordering;

/// A natural number: digits of 32 bits, the lowest first, without trailing zeros.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Big(Vec<u32>);

/// Returns the low 32 bits.
fn low(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).unwrap_or(u32::MAX)
}

impl From<u128> for Big {
    fn from(number: u128) -> Self {
        let digit = |at: u32| low(u64::try_from((number >> (32 * at)) & 0xffff_ffff).unwrap_or(0));
        Self((0..4).map(digit).collect()).trimmed()
    }
}

impl Big {
    /// Whether the number is 0.
    pub fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    fn trimmed(mut self) -> Self {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        self
    }

    /// Adds `other`.
    pub fn add(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        let mut carry = 0_u64;
        let others = other.0.iter().copied().chain(std::iter::repeat(0));
        for (digit, more) in self.0.iter_mut().zip(others) {
            let sum = u64::from(*digit) + u64::from(more) + carry;
            *digit = low(sum);
            carry = sum >> 32;
        }
        if carry > 0 {
            self.0.push(low(carry));
        }
    }

    /// Returns the number minus a smaller one.
    pub fn minus(mut self, smaller: &Self) -> Self {
        let mut borrow = 0_u64;
        let others = smaller.0.iter().copied().chain(std::iter::repeat(0));
        for (digit, less) in self.0.iter_mut().zip(others) {
            let less = u64::from(less) + borrow;
            borrow = u64::from(u64::from(*digit) < less);
            *digit = low((u64::from(*digit) + (borrow << 32)) - less);
        }
        self.trimmed()
    }

    /// Returns the product.
    pub fn times(&self, other: &Self) -> Self {
        let mut product = vec![0_u32; self.0.len().saturating_add(other.0.len())];
        for (at, one) in self.0.iter().enumerate() {
            let mut carry = 0_u64;
            let others = other.0.iter().copied().chain(std::iter::repeat(0));
            for (digit, more) in product.iter_mut().skip(at).zip(others) {
                let sum = u64::from(*digit) + u64::from(*one) * u64::from(more) + carry;
                *digit = low(sum);
                carry = sum >> 32;
            }
        }
        Self(product).trimmed()
    }

    /// Returns the number times two to the power of `bits`.
    pub fn shifted(&self, bits: usize) -> Self {
        let by = 1_u128 << (bits % 32);
        let mut shifted = self.times(&Self::from(by));
        if !shifted.is_zero() {
            shifted.0.splice(0..0, std::iter::repeat_n(0, bits / 32));
        }
        shifted
    }

    /// Compares two numbers.
    pub fn compare(&self, other: &Self) -> Ordering {
        let by_len = self.0.len().cmp(&other.0.len());
        by_len.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }

    /// Returns the leading bits, and the number of bits that follow them. A number of more than 96
    /// bits has 65 to 96 leading bits.
    pub fn leading(&self) -> (i128, i32) {
        let skipped = self.0.len().saturating_sub(3);
        let digits = self.0.iter().skip(skipped).rev();
        let leading = digits.fold(0_i128, |number, digit| (number << 32) | i128::from(*digit));
        (leading, i32::try_from(skipped).unwrap_or(i32::MAX).saturating_mul(32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sums_products_and_differences_are_those_of_integers(a: u64, b: u64, bits in 0_usize..60) {
            let big = |number: u128| Big::from(number);
            let (wide_a, wide_b) = (u128::from(a), u128::from(b));
            let mut sum = big(wide_a);
            sum.add(&big(wide_b));
            prop_assert_eq!(&sum, &big(wide_a + wide_b));
            prop_assert_eq!(sum.minus(&big(wide_a)), big(wide_b));
            prop_assert_eq!(big(wide_a).times(&big(wide_b)), big(wide_a * wide_b));
            prop_assert_eq!(big(wide_a).shifted(bits), big(wide_a << bits));
            prop_assert_eq!(big(wide_a).compare(&big(wide_b)), a.cmp(&b));
        }
    }
}
