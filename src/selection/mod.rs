//! Which elements of each dimension of an array a region has.
//!
//! A region names elements by indices, or dimensions by name and elements by their coordinates:
//! numbers, times, names, longitudes that go on after a turn, or the positions of an image.

mod coordinates;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

use crate::error::{Error, Result, WithSubject};
use crate::metadata::NodePath;
use crate::view::region::{NamedSelection, Region, Selected};
use crate::view::{Image, ViewSource};
use coordinates::Coordinates;

/// A region, and what is known of the coordinates that it names.
#[derive(Debug)]
pub struct Selector<'r> {
    region: &'r Region,
    /// The elements of dimensions, by their arrays of coordinates.
    known: RefCell<HashMap<NodePath, Selected>>,
    /// The names that some array has.
    used: RefCell<BTreeSet<&'r str>>,
}

impl<'r> Selector<'r> {
    /// Returns the selector of a region.
    pub fn new(region: &'r Region) -> Self {
        Self { region, known: RefCell::default(), used: RefCell::default() }
    }

    /// Returns the elements of each dimension of an array, which must have all dimensions that the
    /// region names.
    pub fn of_array(&self, source: &ViewSource<'_>) -> Result<Vec<Selected>> {
        let shape = &source.array()?.model().shape;
        match self.region {
            Region::Indices(indices) if indices.len() > shape.len() => {
                let (count, rank) = (indices.len(), shape.len());
                let detail = format!("{count} indices, but the array has {rank} dimensions");
                Err(Error::invalid(detail))
            }
            Region::Indices(indices) => {
                let all = shape.iter().enumerate();
                let select = |(axis, len): (usize, &u64)| match indices.get(axis) {
                    Some(one) => one.of(&format!("dimension {axis}"), *len),
                    None => Ok(Selected::all(*len)),
                };
                all.map(select).collect()
            }
            Region::Names(names) => {
                let found = self.named(source)?;
                let dimensions = dimensions(source)?;
                let lacks = |name: &&String| !dimensions.iter().any(|known| known.name == **name);
                match names.iter().map(|(name, _)| name).find(lacks) {
                    Some(name) => Err(no_dimension(name, &dimensions)),
                    None => Ok(found),
                }
            }
        }
    }

    /// Returns the elements of each dimension of an array of a group. It need not have dimensions
    /// that the region names.
    pub fn in_group(&self, source: &ViewSource<'_>) -> Result<Vec<Selected>> {
        match self.region {
            Region::Indices(_) => Err(Error::invalid(
                "indices without names are for one array, and this is a group: write names of \
                 dimensions, as in lat=40:50,time=@0",
            )),
            Region::Names(_) => self.named(source),
        }
    }

    /// Fails if no array had a dimension that the region names.
    pub fn check_used(&self) -> Result<()> {
        let Region::Names(names) = self.region else { return Ok(()) };
        let used = self.used.borrow();
        match names.iter().find(|(name, _)| !used.contains(name.as_str())) {
            Some((name, _)) => {
                Err(Error::invalid(format!("no array of the group has a dimension {name}")))
            }
            None => Ok(()),
        }
    }

    fn named(&self, source: &ViewSource<'_>) -> Result<Vec<Selected>> {
        let Region::Names(names) = self.region else { return Ok(Vec::new()) };
        let mut all = Vec::new();
        for dimension in dimensions(source)? {
            let wanted = names.iter().find(|(name, _)| *name == dimension.name);
            all.push(match wanted {
                Some((name, wanted)) => {
                    self.used.borrow_mut().insert(name.as_str());
                    self.select(source, &dimension, wanted)?
                }
                None => Selected::all(dimension.len),
            });
        }
        Ok(all)
    }

    fn select(
        &self,
        source: &ViewSource<'_>,
        dimension: &NamedAxis,
        wanted: &NamedSelection,
    ) -> Result<Selected> {
        let NamedAxis { name, len, position } = dimension;
        let text = match wanted {
            NamedSelection::Indices(indices) => return indices.of(name, *len),
            NamedSelection::Coordinates(text) => text,
        };
        let Some(coordinates) = source.coordinates(name, *len)? else {
            let Some((start, step)) = position else {
                return Err(Error::invalid(format!(
                    "{name}={text}: no array beside it or above has the coordinates of {name}; select \
                     by indices, as in {name}=@0:10"
                )));
            };
            return Coordinates::regular(*start, *step, *len)?.find(name, text);
        };
        if let Some(known) = self.known.borrow().get(coordinates.path()) {
            return Ok(*known);
        }
        let read = Coordinates::read(&coordinates, name).map_err(|error| {
            let detail = format!("{}: select by indices, as in {name}=@0:10", error.detail());
            Error::new(error.kind(), detail).at(coordinates.path())
        })?;
        let found = read.find(name, text)?;
        self.known.borrow_mut().insert(coordinates.path().clone(), found);
        Ok(found)
    }
}

/// A dimension of an array.
struct NamedAxis {
    /// The name, empty if it has none.
    name: String,
    len: u64,
    /// The position of the first element and the step to the next, of an axis of an image.
    position: Option<(f64, f64)>,
}

/// Returns the dimensions of an array, by their own names or those of an image that it is in.
fn dimensions(source: &ViewSource<'_>) -> Result<Vec<NamedAxis>> {
    let model = source.array()?.model();
    let axes = Image::of(source).map(|image| image.axes).unwrap_or_default();
    let all = model.shape.iter().enumerate();
    Ok(all
        .map(|(at, len)| {
            let own = model.dimension_names.get(at).cloned().flatten();
            let axis = axes.get(at);
            let label = || axis.map_or(String::new(), |axis| axis.label().to_owned());
            let name = own.filter(|name| !name.is_empty()).unwrap_or_else(label);
            let scale = axis.and_then(|axis| axis.scale.as_ref());
            let position = scale.map(|scale| (scale.start, scale.step));
            NamedAxis { name, len: *len, position }
        })
        .collect())
}

fn no_dimension(name: &str, known: &[NamedAxis]) -> Error {
    let names: Vec<&str> = known.iter().map(|one| one.name.as_str()).collect();
    let known = if names.iter().all(|name| name.is_empty()) {
        "its dimensions have no names; write an index for each, as in 0:10,:,5".to_owned()
    } else {
        format!("its dimensions are {}", names.join(", "))
    };
    Error::invalid(format!("it has no dimension {name}: {known}"))
}
