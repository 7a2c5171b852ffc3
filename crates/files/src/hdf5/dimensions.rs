//! The names of dimensions: dimension scales of HDF5, as netCDF-4 uses them.
//!
//! <https://docs.unidata.ucar.edu/netcdf-c/current/file_format_specifications.html#netcdf_4_spec>

use std::collections::HashMap;

use hdf5_reader::{Attribute, Datatype};

use super::data_set::StoredDataSet;
use super::values::{Values, address_of};
use crate::json::text_to_nul;

/// How netCDF-4 begins the attribute `NAME` of a dimension that has no variable.
const NO_VARIABLE: &str = "This is a netCDF dimension but not a netCDF variable.";

/// How netCDF-4 begins the name of a variable that is no coordinate of the dimension of its name.
const NON_COORDINATE: &str = "_nc4_non_coord_";

/// The dimension scales of a file.
#[derive(Debug, Default)]
pub struct Scales {
    /// The names of scales by their addresses.
    names: HashMap<u64, String>,
    /// The addresses of scales by the numbers that netCDF-4 gives dimensions.
    addresses: HashMap<i64, u64>,
}

/// The lengths of the unlimited dimensions of a netCDF-4 file, by the addresses of their scales. A
/// dimension is as long as the longest variable that has it; a variable that was written for fewer
/// records has fill values in the others.
pub type RecordCounts = HashMap<u64, u64>;

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
        self.names.insert(address, name.to_owned());
        if let Some([number]) = integers(attributes, "_Netcdf4Dimid").as_deref() {
            self.addresses.insert(*number, address);
        }
    }

    /// Returns the addresses of the scales of a data set, one for each dimension that has one.
    fn of(
        &self,
        data_set: &StoredDataSet,
        attributes: &[Attribute],
        values: &Values<'_>,
    ) -> Vec<Option<u64>> {
        let rank = data_set.shape.len();
        if let Some(numbers) = integers(attributes, "_Netcdf4Coordinates")
            && numbers.len() == rank
        {
            let all: Vec<_> =
                numbers.iter().map(|number| self.addresses.get(number).copied()).collect();
            if all.iter().all(Option::is_some) {
                return all;
            }
        }
        let mut all = vec![None; rank];
        if is_scale(attributes) {
            all.iter_mut().take(1).for_each(|own| *own = Some(data_set.address));
        } else if let Some(list) = attribute(attributes, "DIMENSION_LIST") {
            let len = list.raw_data.len().checked_div(rank).unwrap_or_default();
            for (scale, item) in all.iter_mut().zip(list.raw_data.chunks_exact(len.max(1))) {
                let references = values.list_of(item, 8).unwrap_or_default();
                let first = references.get(..8).map(address_of);
                *scale = first.filter(|address| self.names.contains_key(address));
            }
        }
        all
    }

    /// Returns the names of the dimensions of a data set: those of the scales, or the labels.
    pub fn names(
        &self,
        data_set: &StoredDataSet,
        attributes: &[Attribute],
        values: &Values<'_>,
    ) -> Option<Vec<Option<String>>> {
        let scales = self.of(data_set, attributes, values);
        let name = |scale: &Option<u64>| self.names.get(scale.as_ref()?).cloned();
        let mut names: Vec<_> = scales.iter().map(name).collect();
        if let Some(labels) = attribute(attributes, "DIMENSION_LABELS")
            .filter(|_| !is_scale(attributes))
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

    /// Notes how long a data set of a netCDF-4 file is along its unlimited dimensions.
    pub fn note_records(
        &self,
        data_set: &StoredDataSet,
        attributes: &[Attribute],
        values: &Values<'_>,
        records: &mut RecordCounts,
    ) {
        let scales = self.of(data_set, attributes, values);
        for (at, (scale, len)) in scales.iter().zip(&data_set.shape).enumerate() {
            if let Some(scale) = scale
                && data_set.is_unlimited(at)
            {
                let longest = records.entry(*scale).or_default();
                *longest = (*longest).max(*len);
            }
        }
    }

    /// Returns the shape of the variable of a data set: its unlimited dimensions have all records.
    pub fn variable_shape(
        &self,
        data_set: &StoredDataSet,
        attributes: &[Attribute],
        values: &Values<'_>,
        records: &RecordCounts,
    ) -> Vec<u64> {
        let scales = self.of(data_set, attributes, values);
        let all = scales.iter().zip(&data_set.shape).enumerate();
        all.map(|(at, (scale, len))| {
            let longest = scale.as_ref().and_then(|scale| records.get(scale));
            longest.filter(|_| data_set.is_unlimited(at)).map_or(*len, |longest| *longest)
        })
        .collect()
    }
}
