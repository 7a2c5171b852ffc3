//! A part of an array or of a group, as `--region` selects it: by indices, as in NumPy, or by the
//! names of dimensions and the values of their coordinates.

use crate::error::{Error, Result};

/// The elements of a part along one dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AxisSelection {
    /// One element; the part lacks the dimension.
    One(i64),
    /// The elements from the first on and before the second; by default all. Negative numbers
    /// count from the end, as in NumPy.
    Range(Option<i64>, Option<i64>),
}

/// The elements of a part along a dimension with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamedSelection {
    /// By their indices: `time=@0:10`.
    Indices(AxisSelection),
    /// By their coordinates, in words that mean something only beside these: `lat=40:50`.
    Coordinates(String),
}

/// A part of an array or of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Region {
    /// An index for each dimension, or for the first ones: `0:10,:,5`.
    Indices(Vec<AxisSelection>),
    /// Some dimensions by name: `lat=40:50,time=2020-01`.
    Names(Vec<(String, NamedSelection)>),
}

impl Region {
    /// Parses a list such as `0:10,:,5`, or one such as `lat=40:50,time=@0`.
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.trim();
        let text = text.strip_prefix('[').unwrap_or(text);
        let text = text.strip_suffix(']').unwrap_or(text);
        if !text.contains('=') {
            return text
                .split(',')
                .map(AxisSelection::parse)
                .collect::<Result<_>>()
                .map(Self::Indices);
        }
        let mut names: Vec<(String, NamedSelection)> = Vec::new();
        for one in text.split(',') {
            let (name, wanted) = one.split_once('=').ok_or_else(|| {
                Error::invalid(format!(
                    "{one:?} has no name of a dimension, and others have one: write \
                     lat=40:50,time=@0"
                ))
            })?;
            let (name, wanted) = (name.trim(), wanted.trim());
            if names.iter().any(|(other, _)| other == name) {
                return Err(Error::invalid(format!("{name} is there twice")));
            }
            if wanted.is_empty() {
                return Err(Error::invalid(format!("{name}= lacks a value or a range")));
            }
            let selection = match wanted.strip_prefix('@') {
                Some(indices) => NamedSelection::Indices(AxisSelection::parse(indices)?),
                None => NamedSelection::Coordinates(wanted.to_owned()),
            };
            names.push((name.to_owned(), selection));
        }
        Ok(Self::Names(names))
    }
}

impl AxisSelection {
    /// Parses `5`, `0:10` or `:`.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = || {
            Error::invalid(format!(
                "{text:?} is no index: write one for each dimension, such as 0:10,:,5, or names and \
                 coordinates, such as lat=40:50"
            ))
        };
        let number = |text: &str| -> Result<Option<i64>> {
            let text = text.trim();
            if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(|_| wrong()) }
        };
        match text.split(':').collect::<Vec<_>>().as_slice() {
            [one] => number(one)?.map(Self::One).ok_or_else(wrong),
            [from, until] => Ok(Self::Range(number(from)?, number(until)?)),
            _ => Err(Error::invalid(format!("{text:?}: a region has no steps"))),
        }
    }

    /// Returns the selected elements of a dimension of this length.
    pub fn of(self, dimension: &str, len: u64) -> Result<Selected> {
        self.select(len).ok_or_else(|| {
            let shown = match self {
                Self::One(at) => at.to_string(),
                Self::Range(from, until) => {
                    let text = |end: Option<i64>| end.map_or(String::new(), |n| n.to_string());
                    format!("{}:{}", text(from), text(until))
                }
            };
            let detail = "selects no element, or goes past the end";
            Error::invalid(format!("{shown} {detail}: {dimension} has {len} elements"))
        })
    }

    fn select(self, len: u64) -> Option<Selected> {
        let place = |at: i64| match u64::try_from(at) {
            Ok(at) => Some(at),
            Err(_) => len.checked_sub(at.unsigned_abs()),
        };
        let (start, end, is_kept) = match self {
            Self::One(at) => (place(at)?, place(at)?.checked_add(1)?, false),
            Self::Range(from, until) => {
                let from = from.map_or(Some(0), place)?;
                (from, until.map_or(Some(len), place)?, true)
            }
        };
        // Only a dimension without elements has an empty range.
        let is_selected = |count: &u64| (*count > 0 || len == 0) && end <= len;
        let len = end.checked_sub(start).filter(is_selected)?;
        Some(Selected { start, len, is_kept, turns: Turns::default() })
    }
}

/// The elements of one dimension in a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selected {
    /// The first one.
    pub start: u64,
    /// The number of elements. After the end of the dimension they go on at its beginning.
    pub len: u64,
    /// Whether the part has the dimension.
    pub is_kept: bool,
    /// How the longitudes of the part differ from those of the array.
    pub turns: Turns,
}

/// The degrees of a turn.
pub const TURN: f64 = 360.0;

/// Whole turns that are added to longitudes, so that they go on: a part from 350 to 370 of an array
/// from 0 to 359.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Turns {
    /// The number of elements that get the first number of turns.
    pub count: u64,
    /// The turns of these.
    pub first: i32,
    /// The turns of the others.
    pub rest: i32,
}

impl Selected {
    /// Returns all elements of a dimension of this length.
    pub fn all(len: u64) -> Self {
        Self { start: 0, len, is_kept: true, turns: Turns::default() }
    }

    /// Returns one element; the part lacks the dimension.
    pub fn one(at: u64) -> Self {
        Self { start: at, len: 1, is_kept: false, turns: Turns::default() }
    }

    /// Returns the index in a dimension of this length of an element of the part.
    pub fn index(&self, at: u64, len: u64) -> u64 {
        let index = self.start.saturating_add(at);
        index.checked_rem(len).unwrap_or(index)
    }

    /// Returns the runs of elements along a dimension of this length: the first index, and the
    /// number of elements.
    pub fn runs(&self, len: u64) -> impl Iterator<Item = (u64, u64)> {
        let first = self.len.min(len.saturating_sub(self.start));
        let rest = self.len.saturating_sub(first);
        [(self.start, first), (0, rest)].into_iter().filter(|(_, count)| *count > 0)
    }
}
