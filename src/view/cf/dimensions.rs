//! The dimensions of a group: each has a name and a length, and arrays share them.

use super::names::{clean, unused};
use crate::error::Result;
use crate::view::source::ViewSource;
use std::collections::{HashMap, HashSet};

/// A dimension.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Dimension {
    /// The name, which is unique.
    pub name: String,
    /// The length.
    pub len: u64,
}

/// The dimensions of arrays, collected so far.
#[derive(Debug, Default)]
pub(crate) struct Dimensions {
    list: Vec<Dimension>,
    /// The number of each dimension by name and length.
    numbers: HashMap<(String, u64), usize>,
    names: HashSet<String>,
}

impl Dimensions {
    /// Returns the numbers of the dimensions of an array. A dimension without a name is not shared.
    /// If a name occurs with a second length, as in the levels of an OME-Zarr image, that dimension
    /// has the length appended to its name.
    pub fn claim(&mut self, array: &ViewSource<'_>) -> Result<Vec<usize>> {
        let model = array.array()?.model();
        let mut names = model.dimension_names.iter();
        let of_axis = |(axis, len): (usize, &u64)| {
            let name = names.next().and_then(Option::as_deref).filter(|name| !name.is_empty());
            let name = name.map_or_else(|| format!("dim_{}_{axis}", array.name()), clean);
            self.number(name, *len)
        };
        Ok(model.shape.iter().enumerate().map(of_axis).collect())
    }

    /// Returns the number of a dimension, and adds a new one if it is unknown.
    pub fn number(&mut self, name: String, len: u64) -> usize {
        let key = (name, len);
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        let number = self.list.len();
        let name = clean(&key.0);
        let name = if self.names.contains(&name) { format!("{name}_{len}") } else { name };
        self.list.push(Dimension { name: unused(&mut self.names, name), len });
        self.numbers.insert(key, number);
        number
    }

    /// Returns all dimensions.
    pub fn into_list(self) -> Vec<Dimension> {
        self.list
    }
}
