//! A group as a data set of netCDF: dimensions, variables and attributes, as xarray maps Zarr to
//! it.
//!
//! The netCDF formats write only this data set. Arrays of types that netCDF does not have are left
//! out, and a global attribute lists them with the reasons.
//!
//! - [CF conventions](https://cfconventions.org/cf-conventions/cf-conventions.html): the meaning
//!   of attributes.
//! - [netCDF data
//!   models](https://docs.unidata.ucar.edu/nug/current/netcdf_data_set_components.html): valid
//!   names.

mod attributes;
mod coordinates;
mod dimensions;
mod exact;
mod names;
mod variable;

use std::collections::HashSet;

use super::left_out::LeftOutOfView;
use super::source::ViewSource;
use crate::error::{Error, Kind, Result};
use crate::metadata::{NodeKind, NodePath};
pub(crate) use attributes::{
    Attribute, AttributeValues, Many, UNSIGNED, attributes, cleaned, decimal, joined, renamed,
};
pub(crate) use coordinates::{is_coordinate, with_coordinates};
pub(crate) use dimensions::{Dimension, Dimensions};
pub(crate) use exact::exactly;
pub(crate) use names::{clean, distinct, unused};
pub(crate) use variable::{ConversionBudget, Data, FileElements, FormOf, Variable, set_aside};
// Only OPeNDAP needs these.
#[cfg(feature = "serve")]
pub(crate) use variable::{ENCODING, characters};

/// The attribute that says which arrays are not in a file of a group, and why.
const LEFT_OUT: &str = "zarrfs_left_out";

/// The most reasons that the attribute [`LEFT_OUT`] lists.
const MAX_REASONS: usize = 100;

/// Returns the form of an attribute in a format, `None` if it is that of the hierarchy.
pub(crate) type ChangeOf<'f> = dyn Fn(&AttributeValues) -> Option<&'static str> + 'f;

/// A group, or an array with its coordinates, as a netCDF data set.
#[derive(Debug)]
pub(crate) struct CfDataset<'s> {
    /// The dimensions of the variables.
    pub dimensions: Vec<Dimension>,
    /// The arrays, by name.
    pub variables: Vec<Variable<'s>>,
    /// The attributes of the group.
    pub attributes: Vec<Attribute>,
    /// The names of the arrays that are left out, with the reasons.
    pub left_out: Vec<(String, Error)>,
    /// The array to show, `None` for a group.
    array: Option<NodePath>,
}

impl<'s> CfDataset<'s> {
    /// Returns the data set of the arrays directly in a group, or of one array with its
    /// coordinates, in types of netCDF.
    pub fn of(source: &ViewSource<'s>, room: &mut ConversionBudget) -> Result<Self> {
        Self::with_forms(source, &mut |array| FileElements::of(array, room))
    }

    /// Like [`Self::of`], in the types that `form_of` returns.
    pub fn with_forms(source: &ViewSource<'s>, form_of: &mut FormOf<'_, 's>) -> Result<Self> {
        let mut left_out = Vec::new();
        let (arrays, attributes_of) = match source.kind() {
            NodeKind::Array => with_coordinates(source)?,
            NodeKind::Group => {
                let children = source.children()?;
                left_out = children.left_out;
                let is_array = |child: &ViewSource<'s>| child.kind() == NodeKind::Array;
                (children.nodes.into_iter().filter(is_array).collect(), Some(source.clone()))
            }
        };
        let mut dimensions = Dimensions::default();
        let mut variables: Vec<Variable<'s>> = Vec::new();
        // Coordinates claim their dimensions first.
        for array in arrays.iter().filter(|array| is_coordinate(array)) {
            dimensions.claim(array)?;
        }
        for array in &arrays {
            match Variable::of(array, &mut dimensions, form_of) {
                Ok(variable) => variables.push(variable),
                Err(error)
                    if error.kind() == Kind::Unsupported && array.path() != source.path() =>
                {
                    left_out.push((array.name().to_owned(), error));
                }
                Err(error) => return Err(error),
            }
        }
        let names = variables.iter().map(|variable| variable.source.name());
        let names = distinct(names, &mut HashSet::new(), &HashSet::new(), clean);
        for (variable, name) in variables.iter_mut().zip(names) {
            variable.name = name;
        }
        let attributes = attributes_of.map(|group| cleaned(attributes(group.attributes(), None)));
        let dimensions = dimensions.into_list();
        let attributes = attributes.unwrap_or_default();
        let array = (source.kind() == NodeKind::Array).then(|| source.path().clone());
        let mut dataset = Self { dimensions, variables, attributes, left_out, array };
        dataset.drop_unused();
        Ok(dataset)
    }

    /// Removes variables for which `reason` returns an error.
    pub fn leave_out(&mut self, reason: impl Fn(&Variable<'s>) -> Option<Error>) {
        let left_out = &mut self.left_out;
        self.variables.retain(|variable| match reason(variable) {
            Some(error) => {
                left_out.push((variable.name.clone(), error));
                false
            }
            None => true,
        });
        self.drop_unused();
    }

    /// Returns the attributes of the group, and the list of arrays that are left out.
    pub fn global_attributes(&self) -> Vec<Attribute> {
        let mut attributes = self.attributes.clone();
        attributes.extend(left_out(&self.left_out));
        cleaned(attributes)
    }

    /// Lists what the file of `root` has in another form than the nodes. `form` returns the form of
    /// an attribute in the format, if it has another one there. Attributes are not listed without
    /// it.
    pub fn list_changes(
        &self,
        root: &NodePath,
        group: &NodePath,
        form: Option<&ChangeOf<'_>>,
        left_out: &mut LeftOutOfView,
    ) {
        for variable in &self.variables {
            let path = variable.source.path();
            let mut add = |what: &str| left_out.add_property(root, path, what);
            if variable.name != variable.source.name() {
                add(&format!("name {} (as {})", variable.source.name(), variable.name));
            }
            variable.changes.iter().for_each(|what| add(what));
            for (name, dimension) in self.renamed_dimensions(variable) {
                add(&format!("dimension {name} (as {dimension})"));
            }
            let Some(form) = form else { continue };
            let changed = |one: &Attribute| one.changed(form(&one.values));
            variable.attributes.iter().filter_map(changed).for_each(|what| add(&what));
        }
        let Some(form) = form else { return };
        for attribute in &self.attributes {
            if let Some(what) = attribute.changed(form(&attribute.values)) {
                left_out.add_property(root, group, what);
            }
        }
    }

    /// Returns the dimensions of a variable with names that have changed.
    fn renamed_dimensions<'v>(
        &'v self,
        variable: &'v Variable<'s>,
    ) -> impl Iterator<Item = (&'v str, &'v str)> {
        let names = variable.source.array().map(|array| array.model().dimension_names.as_slice());
        let names = names.unwrap_or_default().iter().map(Option::as_deref);
        let found = variable.dimensions.iter().map(|number| self.dimensions.get(*number));
        let both = names.zip(found).filter_map(|(name, found)| Some((name?, found?.name.as_str())));
        both.filter(|(name, found)| name != found)
    }

    /// Fails if all arrays are left out, or if the array to show is.
    pub fn check_not_empty(&self) -> Result<()> {
        let Some(AttributeValues::Text(reasons)) =
            left_out(&self.left_out).map(|attribute| attribute.values)
        else {
            return Ok(());
        };
        let is_there = match &self.array {
            Some(array) => self.variables.iter().any(|one| one.source.path() == array),
            None => !self.variables.is_empty(),
        };
        if is_there { Ok(()) } else { Err(Error::unsupported(reasons)) }
    }

    /// Removes dimensions that no variable has.
    fn drop_unused(&mut self) {
        let used: HashSet<usize> = self
            .variables
            .iter()
            .flat_map(|variable| variable.dimensions.iter().copied())
            .collect();
        let mut number = 0_usize;
        let numbers: Vec<usize> = (0..self.dimensions.len())
            .map(|old| {
                let new = number;
                number = number.saturating_add(usize::from(used.contains(&old)));
                new
            })
            .collect();
        let mut at = 0..;
        self.dimensions.retain(|_| at.next().is_some_and(|at: usize| used.contains(&at)));
        for variable in &mut self.variables {
            for dimension in &mut variable.dimensions {
                *dimension = numbers.get(*dimension).copied().unwrap_or_default();
            }
        }
    }
}

/// Returns the attribute that lists the arrays left out of a file; `None` if there are none.
pub(crate) fn left_out(reasons: &[(String, Error)]) -> Option<Attribute> {
    let count = reasons.len().saturating_sub(MAX_REASONS);
    let reasons = reasons.iter().take(MAX_REASONS);
    let mut list: Vec<String> =
        reasons.map(|(name, error)| format!("{name}: {}", error.detail())).collect();
    if count > 0 {
        list.push(format!("and {count} more"));
    }
    // Readers stop at a NUL.
    (!list.is_empty()).then(|| Attribute::text(LEFT_OUT, list.join("; ").replace('\0', "\\0")))
}
