//! Which values of an array are stored, to report those that are missing.

use crate::array::Coords;
use crate::error::{Error, Result};
use crate::width::ToUsize;

/// The stored values of an array: a bit for each position in its grid, in C order.
pub struct StoredBits {
    bits: Vec<u64>,
    possible: u64,
}

impl StoredBits {
    /// Returns none of the `possible` values.
    pub fn new(possible: u64) -> Result<Self> {
        let len = possible.div_ceil(64).to_usize();
        let mut bits = Vec::new();
        bits.try_reserve_exact(len)
            .map_err(|_| Error::too_large("the chunks do not fit into memory"))?;
        bits.resize(len, 0);
        Ok(Self { bits, possible })
    }

    /// Adds the value at a position in a grid of `counts` values.
    pub fn add(&mut self, coords: &Coords, counts: &[u64]) {
        let number = coords.indices().iter().zip(counts).fold(0_u64, |number, (index, count)| {
            number.saturating_mul(*count).saturating_add(*index)
        });
        let word = usize::try_from(number / 64).ok().and_then(|at| self.bits.get_mut(at));
        if let Some(word) = word {
            *word |= 1 << (number % 64);
        }
    }

    /// Returns the positions, in C order, of the values that were not added.
    pub fn missing(&self) -> impl Iterator<Item = u64> {
        let is_missing = |number: &u64| {
            let word = usize::try_from(number / 64).ok().and_then(|at| self.bits.get(at));
            word.is_some_and(|word| word >> (number % 64) & 1 == 0)
        };
        (0..self.possible).filter(is_missing)
    }
}

/// Returns the coordinates of a position in C order.
pub fn coords_of(number: u64, counts: &[u64]) -> Coords {
    let mut rest = number;
    let mut indices: Vec<u64> = counts
        .iter()
        .rev()
        .map(|count| {
            let index = rest % (*count).max(1);
            rest /= (*count).max(1);
            index
        })
        .collect();
    indices.reverse();
    Coords::new(indices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_seen_is_missing() {
        let counts = [3, 50];
        let mut seen = StoredBits::new(150).expect("small");
        for number in (0..150).filter(|number| number % 7 != 0) {
            seen.add(&coords_of(number, &counts), &counts);
        }
        assert_eq!(seen.missing().collect::<Vec<_>>(), (0..150).step_by(7).collect::<Vec<_>>());
    }
}
