//! The names of dimensions: dimension scales of HDF5, as netCDF-4 uses them.
//!
//! <https://docs.unidata.ucar.edu/netcdf-c/current/file_format_specifications.html#netcdf_4_spec>

use std::collections::HashMap;

use hdf5_reader::{Attribute, Datatype};

use super::values::{Values, address_of};
use crate::json::text_to_nul;

/// How netCDF-4 begins the attribute `NAME` of a dimension that has no variable.
const NO_VARIABLE: &str = "This is a netCDF dimension but not a netCDF variable.";

/// How netCDF-4 begins the name of a variable that is no coordinate of the dimension of its name.
const NON_COORDINATE: &str = "_nc4_non_coord_";

/// The dimension scales of a file.
#[derive(Debug, Default)]
pub struct Scales {
    by_address: HashMap<u64, String>,
    by_number: HashMap<i64, String>,
}

/// Returns an attribute by its name.
pub fn attribute<'a>(attributes: &'a [Attribute], name: &str) -> Option<&'a Attribute> {
    attributes.iter().find(|attribute| attribute.name == name)
}

/// Returns the text of an attribute.
fn text_of(attributes: &[Attribute], name: &str) -> Option<String> {
    let found = attribute(attributes, name)?;
    match found.decoded_strings.as_deref() {
        Some([single]) => Some(single.clone()),
        _ => Some(text_to_nul(&found.raw_data)),
    }
}

/// Returns the integers of an attribute.
fn integers(attributes: &[Attribute], name: &str) -> Option<Vec<i64>> {
    let found = attribute(attributes, name)?;
    let Datatype::FixedPoint { size, signed, byte_order } = found.datatype else { return None };
    let items = found.raw_data.chunks_exact(usize::from(size).max(1));
    items.map(|bytes| super::attributes::integer(bytes, signed, byte_order)?.as_i64()).collect()
}

/// Whether an object is a dimension scale.
pub fn is_scale(attributes: &[Attribute]) -> bool {
    text_of(attributes, "CLASS").as_deref() == Some("DIMENSION_SCALE")
}

/// Whether a dimension scale is only the length of a dimension in netCDF-4.
pub fn is_only_length(attributes: &[Attribute]) -> bool {
    is_scale(attributes)
        && text_of(attributes, "NAME").is_some_and(|name| name.starts_with(NO_VARIABLE))
}

/// Returns the name of the variable of a data set.
pub fn variable_name(name: &str) -> &str {
    name.strip_prefix(NON_COORDINATE).unwrap_or(name)
}

impl Scales {
    /// Notes a data set, if it is a scale.
    pub fn note(&mut self, address: u64, name: &str, attributes: &[Attribute]) {
        if !is_scale(attributes) {
            return;
        }
        self.by_address.insert(address, name.to_owned());
        if let Some([number]) = integers(attributes, "_Netcdf4Dimid").as_deref() {
            self.by_number.insert(*number, name.to_owned());
        }
    }

    /// Returns the names of the dimensions of a data set.
    pub fn names(
        &self,
        name: &str,
        rank: usize,
        attributes: &[Attribute],
        values: &Values<'_>,
    ) -> Option<Vec<Option<String>>> {
        if rank == 0 {
            return None;
        }
        if let Some(numbers) = integers(attributes, "_Netcdf4Coordinates")
            && numbers.len() == rank
        {
            let names: Vec<_> =
                numbers.iter().map(|number| self.by_number.get(number).cloned()).collect();
            if names.iter().all(Option::is_some) {
                return Some(names);
            }
        }
        if is_scale(attributes) {
            let own = variable_name(name).to_owned();
            let names = std::iter::once(Some(own)).chain(std::iter::repeat(None));
            return Some(names.take(rank).collect());
        }
        self.listed(rank, attributes, values)
    }

    /// Returns the names in `DIMENSION_LIST`, or the labels.
    fn listed(
        &self,
        rank: usize,
        attributes: &[Attribute],
        values: &Values<'_>,
    ) -> Option<Vec<Option<String>>> {
        let mut names = vec![None; rank];
        if let Some(list) = attribute(attributes, "DIMENSION_LIST") {
            let len = list.raw_data.len().checked_div(rank).unwrap_or_default();
            if len > 0 {
                for (name, item) in names.iter_mut().zip(list.raw_data.chunks_exact(len)) {
                    let references = values.list_of(item, 8).unwrap_or_default();
                    let first = references.get(..8).map(address_of);
                    *name = first.and_then(|address| self.by_address.get(&address).cloned());
                }
            }
        }
        if let Some(labels) = attribute(attributes, "DIMENSION_LABELS")
            .and_then(|labels| labels.decoded_strings.as_ref())
        {
            for (name, label) in names.iter_mut().zip(labels) {
                if name.is_none() && !label.is_empty() {
                    *name = Some(label.clone());
                }
            }
        }
        names.iter().any(Option::is_some).then_some(names)
    }
}
