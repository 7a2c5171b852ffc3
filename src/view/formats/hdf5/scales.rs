//! Dimension scales. Each dimension is a dataset, which either has its coordinates or is empty;
//! other datasets refer to it.
//!
//! [Scales](https://support.hdfgroup.org/documentation/hdf5/latest/_h5_d_s__u_g.html) can list the
//! datasets that refer to them (`REFERENCE_LIST`). This list is omitted, because no reader uses it.

use std::collections::{HashMap, HashSet};

use super::attributes::{MAX_NAME_LEN, fixed, labels};
use super::file::{
    Attribute, AttributeElements, ElementsLocation, Hdf5Dataset, Hdf5File, Object, ObjectContent,
};
use super::message;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::view::cf::{Dimension, is_coordinate};
use crate::view::source::ViewSource;
use crate::width::ToU64;

/// Labels the named dimensions of the arrays of a group, each given with its object. An array also
/// gets scales if every one of its dimensions has a scale or can get one, under a name that no
/// other object has.
pub(super) fn name_dimensions(
    file: &mut Hdf5File,
    group: usize,
    arrays: &[(ViewSource<'_>, usize)],
) -> Result<()> {
    let mut names: HashSet<String> = file.names(group).map(ToOwned::to_owned).collect();
    let mut scales = HashMap::new();
    for (source, object) in arrays.iter().filter(|(source, _)| is_coordinate(source)) {
        make_scale(file, *object, source.name())?;
        for dimension in dimensions(source) {
            scales.insert(dimension, *object);
        }
    }
    for (source, object) in arrays {
        if let Some(labels) = labels(file, &source.array()?.model().dimension_names)? {
            file.describe(*object, labels);
        }
        if is_coordinate(source) {
            continue;
        }
        let dimensions = dimensions(source);
        // netCDF assumes that all dimensions have scales if the first one has.
        let mut new = HashMap::new();
        let mut has_one = |one: &Dimension| {
            let is_free = !one.name.is_empty() && !names.contains(&one.name);
            let mut is_same = || *new.entry(one.name.clone()).or_insert(one.len) == one.len;
            scales.contains_key(one) || is_free && is_same()
        };
        if !dimensions.iter().all(&mut has_one) {
            continue;
        }
        let mut of_array = Vec::new();
        for dimension in dimensions {
            let scale = if let Some(scale) = scales.get(&dimension) {
                *scale
            } else {
                let scale = add_scale(file, &dimension)?;
                file.link(group, &dimension.name, scale);
                names.insert(dimension.name.clone());
                scales.insert(dimension, scale);
                scale
            };
            of_array.push(scale);
        }
        refer(file, *object, &of_array)?;
    }
    Ok(())
}

/// Returns the names of an array's dimensions that no scale can have.
pub(super) fn unnamed<'s>(source: &'s ViewSource<'_>) -> impl Iterator<Item = &'s str> {
    let names = source.array().map(|array| array.model().dimension_names.as_slice());
    let names = names.unwrap_or_default().iter().flatten();
    names.map(String::as_str).filter(|name| !name.is_empty() && !is_name(name))
}

/// Whether an object may have the name: it has no slashes and no NUL, and a single dot means the
/// group itself.
fn is_name(name: &str) -> bool {
    !name.contains(['/', '\0']) && name != "." && name.len() <= MAX_NAME_LEN
}

/// Returns the dimensions of an array, without names if the array has none.
fn dimensions(source: &ViewSource<'_>) -> Vec<Dimension> {
    let Ok(array) = source.array() else { return Vec::new() };
    let mut names = array.model().dimension_names.iter().cloned();
    let lens = array.model().shape.iter();
    let name = |name: Option<String>| name.filter(|name| is_name(name)).unwrap_or_default();
    lens.map(|len| Dimension { name: name(names.next().flatten()), len: *len }).collect()
}

/// Marks a dataset as a scale.
pub(super) fn make_scale(file: &mut Hdf5File, object: usize, title: &str) -> Result<()> {
    file.describe(object, fixed("CLASS", b"DIMENSION_SCALE\0")?);
    file.describe(object, fixed("NAME", &[title.as_bytes(), &[0]].concat())?);
    Ok(())
}

/// Adds the scale of a dimension without coordinates.
pub(super) fn add_scale(file: &mut Hdf5File, dimension: &Dimension) -> Result<usize> {
    let len = dimension.len.checked_mul(4);
    let len =
        len.ok_or_else(|| Error::unsupported("it would exceed the maximum size of a file"))?;
    let content = ObjectContent::Dataset(Hdf5Dataset {
        dtype: message::datatype(&DType::Float(4))?,
        shape: Some(vec![dimension.len]),
        fill: None,
        elements: ElementsLocation::Nowhere(len),
    });
    let object = file.add(Object { attributes: Vec::new(), content });
    // This string identifies the scale for netCDF.
    let title = "This is a netCDF dimension but not a netCDF variable.";
    make_scale(file, object, &format!("{title}{:10}", dimension.len))?;
    Ok(object)
}

/// Adds references to the scales of a dataset's dimensions.
pub(super) fn refer(file: &mut Hdf5File, object: usize, scales: &[usize]) -> Result<()> {
    if scales.is_empty() {
        return Ok(());
    }
    let items = scales.iter().map(|scale| Some(file.reference(*scale))).collect();
    let space = message::dataspace(&[scales.len().to_u64()])?;
    let (name, dtype) = ("DIMENSION_LIST".to_owned(), message::references()?);
    file.describe(
        object,
        Attribute { name, dtype, space, value: AttributeElements::InHeap(items) },
    );
    Ok(())
}
