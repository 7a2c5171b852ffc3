//! The variables that a constraint selects, and the hyperslab of each.

use super::constraint::{ConstraintNames, Projection, Slice, parse};
use super::dataset::{DataSet, Variable};
use super::error::DapError;
use super::hyperslab::SelectedAxis;

/// A variable with the selected elements along each dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SelectedVariable {
    /// The number of the variable.
    pub variable: usize,
    pub axes: Vec<SelectedAxis>,
}

/// A selected variable of the data set.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Selected {
    /// A scalar or an array.
    Base(SelectedVariable),
    /// An array and its coordinates.
    Grid(usize, Vec<SelectedVariable>),
    /// Some members of a Grid.
    Structure(usize, Vec<SelectedVariable>),
}

/// The meaning of a name in a constraint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NameMeaning {
    variable: usize,
    /// The member of a Grid: 0 for the array, then the maps; `None` for the whole variable.
    member: Option<usize>,
}

/// Returns what a constraint selects, in the order of the data set.
pub(super) fn select(dataset: &DataSet<'_>, text: &str) -> Result<Vec<Selected>, DapError> {
    let projections = parse(text, &names(dataset))?;
    if projections.is_empty() {
        let all = 0..dataset.variables.len();
        let all = all.map(|variable| Projection {
            target: NameMeaning { variable, member: None },
            slices: Vec::new(),
        });
        return selected(dataset, &all.collect::<Vec<_>>());
    }
    selected(dataset, &projections)
}

/// Returns all names that a constraint may have: identifiers, and the names that they encode.
fn names(dataset: &DataSet<'_>) -> ConstraintNames<NameMeaning> {
    let mut names = ConstraintNames::default();
    for (number, variable) in dataset.variables.iter().enumerate() {
        let mut add = |name: String, identifier: String, member| {
            let target = NameMeaning { variable: number, member };
            names.identifiers.push((identifier, target));
            names.decoded.push((name, target));
        };
        let (name, identifier) = (&variable.name, &variable.identifier);
        add(name.clone(), identifier.clone(), None);
        for (member, part) in members(variable, number).into_iter().enumerate() {
            let Some(part) = dataset.variables.get(part) else { continue };
            let decoded = format!("{name}.{}", part.name);
            add(decoded, format!("{identifier}.{}", part.identifier), Some(member));
        }
    }
    names
}

/// Returns the numbers of the members of a Grid; none if the variable is not a Grid.
fn members(variable: &Variable<'_>, number: usize) -> Vec<usize> {
    if variable.maps.is_empty() {
        return Vec::new();
    }
    [&[number][..], &variable.maps].concat()
}

fn selected(
    dataset: &DataSet<'_>,
    projections: &[Projection<NameMeaning>],
) -> Result<Vec<Selected>, DapError> {
    // For each variable, each member that is selected. A variable that is no Grid is its member 0.
    let mut found: Vec<Vec<Option<SelectedVariable>>> = Vec::new();
    let all = dataset.variables.iter().enumerate();
    found.extend(all.map(|(number, variable)| vec![None; members(variable, number).len().max(1)]));
    for Projection { target: NameMeaning { variable: number, member }, slices } in projections {
        let Some(variable) = dataset.variables.get(*number) else { continue };
        let axes = axes(dataset, variable, *member, slices)?;
        for (at, axes) in axes {
            let part = at.checked_sub(1).and_then(|map| variable.maps.get(map));
            let base = SelectedVariable { variable: part.copied().unwrap_or(*number), axes };
            let place = found.get_mut(*number).and_then(|members| members.get_mut(at));
            let Some(place) = place else { continue };
            if place.as_ref().is_some_and(|other| *other != base) {
                return Err(DapError::malformed(format!(
                    "the constraint has two different hyperslabs of {}",
                    variable.name
                )));
            }
            *place = Some(base);
        }
    }
    let mut selected = Vec::new();
    for (number, members) in found.into_iter().enumerate() {
        let is_grid = members.len() > 1;
        let is_whole = members.iter().all(Option::is_some) && fits(&members);
        let mut bases: Vec<SelectedVariable> = members.into_iter().flatten().collect();
        match bases.pop() {
            None => {}
            Some(base) if !is_grid => selected.push(Selected::Base(base)),
            Some(last) => {
                bases.push(last);
                let kind = if is_whole { Selected::Grid } else { Selected::Structure };
                selected.push(kind(number, bases));
            }
        }
    }
    Ok(selected)
}

/// Whether the maps of a Grid have the same elements along each dimension as the array.
fn fits(members: &[Option<SelectedVariable>]) -> bool {
    let Some((Some(array), maps)) = members.split_first() else { return false };
    let maps = maps.iter().flatten().map(|map| map.axes.first());
    maps.eq(array.axes.iter().map(Some))
}

/// Returns the selected elements of the members that a projection names.
fn axes(
    dataset: &DataSet<'_>,
    variable: &Variable<'_>,
    member: Option<usize>,
    slices: &[Slice],
) -> Result<Vec<(usize, Vec<SelectedAxis>)>, DapError> {
    let dimensions: &[usize] = match member.and_then(|member| member.checked_sub(1)) {
        Some(map) => variable.dimensions.get(map..=map).unwrap_or_default(),
        None => &variable.dimensions,
    };
    if !slices.is_empty() && slices.len() != dimensions.len() {
        return Err(DapError::malformed(format!(
            "{} has {} dimensions, but the constraint has {} hyperslabs for it",
            variable.name,
            dimensions.len(),
            slices.len()
        )));
    }
    let mut slices = slices.iter();
    let mut axes = Vec::new();
    for number in dimensions {
        let Some(dimension) = dataset.dimensions.get(*number) else { continue };
        axes.push(match slices.next() {
            Some(slice) => slice.of(&dimension.name, dimension.len)?,
            None => SelectedAxis::all(dimension.len),
        });
    }
    let Some(member) = member else {
        // The maps of a Grid have the slices of its array.
        let count = if variable.maps.is_empty() { 0 } else { axes.len() };
        let maps = axes.iter().take(count).enumerate();
        let maps: Vec<_> = maps.map(|(map, axis)| (map.saturating_add(1), vec![*axis])).collect();
        return Ok([(0, axes)].into_iter().chain(maps).collect());
    };
    Ok(vec![(member, axes)])
}
