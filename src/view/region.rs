//! A box of an array, as `--region` selects it.

use crate::error::{Error, Result};

/// The elements of a box along one dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AxisSelection {
    /// One element; the box lacks the dimension.
    One(i64),
    /// The elements from the first on and before the second; by default all. Negative numbers
    /// count from the end, as in NumPy.
    Range(Option<i64>, Option<i64>),
}

/// A box: an index for each dimension, or for the first ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region(pub Vec<AxisSelection>);

impl Region {
    /// Parses a list such as `0:10,:,5`.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = || {
            Error::invalid(format!(
                "{text:?} is no region: write an index for each dimension, such as 0:10,:,5"
            ))
        };
        let number = |text: &str| -> Result<Option<i64>> {
            let text = text.trim();
            if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(|_| wrong()) }
        };
        let index = |text: &str| match text.split(':').collect::<Vec<_>>().as_slice() {
            [one] => number(one)?.map(AxisSelection::One).ok_or_else(wrong),
            [from, until] => Ok(AxisSelection::Range(number(from)?, number(until)?)),
            _ => Err(Error::invalid(format!("{text:?}: a region has no steps"))),
        };
        let text = text.trim().trim_start_matches('[').trim_end_matches(']');
        text.split(',').map(index).collect::<Result<_>>().map(Self)
    }

    /// Returns the selected elements of each dimension of an array.
    pub fn of(&self, shape: &[u64]) -> Result<Vec<Selected>> {
        if self.0.len() > shape.len() {
            return Err(Error::invalid(format!(
                "{} indices, but the array has {} dimensions",
                self.0.len(),
                shape.len()
            )));
        }
        let all = std::iter::repeat(&AxisSelection::Range(None, None));
        let indices = self.0.iter().chain(all);
        shape
            .iter()
            .zip(indices)
            .enumerate()
            .map(|(axis, (len, index))| {
                select(*index, *len).ok_or_else(|| {
                    let shown = match index {
                        AxisSelection::One(at) => at.to_string(),
                        AxisSelection::Range(from, until) => {
                            let text =
                                |end: &Option<i64>| end.map_or(String::new(), |n| n.to_string());
                            format!("{}:{}", text(from), text(until))
                        }
                    };
                    let detail = "selects no element, or goes past the end";
                    Error::invalid(format!("{shown} {detail}: dimension {axis} has {len} elements"))
                })
            })
            .collect()
    }
}

/// The elements of one dimension in a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selected {
    /// The first one.
    pub start: u64,
    /// The number of elements.
    pub len: u64,
    /// Whether the box has the dimension.
    pub is_kept: bool,
}

impl Selected {
    /// Returns all elements of a dimension of this length.
    pub fn all(len: u64) -> Self {
        Self { start: 0, len, is_kept: true }
    }
}

fn select(index: AxisSelection, len: u64) -> Option<Selected> {
    let place = |at: i64| match u64::try_from(at) {
        Ok(at) => Some(at),
        Err(_) => len.checked_sub(at.unsigned_abs()),
    };
    let (start, end, is_kept) = match index {
        AxisSelection::One(at) => (place(at)?, place(at)?.checked_add(1)?, false),
        AxisSelection::Range(from, until) => {
            let from = from.map_or(Some(0), place)?;
            (from, until.map_or(Some(len), place)?, true)
        }
    };
    // Only a dimension without elements has an empty range.
    let is_selected = |count: &u64| (*count > 0 || len == 0) && end <= len;
    let count = end.checked_sub(start).filter(is_selected)?;
    Some(Selected { start, len: count, is_kept })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_a_dimension_without_elements_is_empty() {
        let selected = |text: &str, shape: &[u64]| -> Result<Vec<(u64, u64)>> {
            let selected = Region::parse(text)?.of(shape)?;
            Ok(selected.iter().map(|one| (one.start, one.len)).collect())
        };
        for text in [":", "0:", ":0", "0:0", ":,1:3"] {
            let found = selected(text, &[0, 4]).expect("a region");
            assert_eq!(found.first(), Some(&(0, 0)), "{text}");
        }
        assert_eq!(selected("2,:", &[4, 0]).expect("a region"), [(2, 1), (0, 0)]);
        for text in ["0", "-1", "0:1", "1:", "-1:", ":,2:2"] {
            assert!(selected(text, &[0, 4]).is_err(), "{text}");
        }
    }
}
