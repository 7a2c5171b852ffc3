//! Attributes in HDF5.

use serde_json::json;

use super::file::{Attribute, AttributeElements, Hdf5File};
use super::message;
use crate::dtype::DType;
use crate::error::Result;
use crate::view::cf::{self, AttributeValues, Many};
use crate::width::ToU64;

/// Longer values are stored in a global heap, because an attribute in a header must be shorter than
/// 64 KiB.
const MAX_VALUE_LEN: usize = 60_000;

/// The most bytes of a name. Name and value together must be shorter than 64 KiB.
pub(super) const MAX_NAME_LEN: usize = 4096;

/// Attributes that the libraries use. A node's attribute with one of these names gets an underscore
/// appended. netCDF generates the last three for every file.
const RESERVED: [&str; 12] = [
    "CLASS",
    "NAME",
    "DIMENSION_LIST",
    "REFERENCE_LIST",
    "DIMENSION_LABELS",
    "_Netcdf4Dimid",
    "_Netcdf4Coordinates",
    "_NCProperties",
    "_nc3_strict",
    "_Format",
    "_IsNetcdf4",
    "_SuperblockVersion",
];

/// The length of the address, in an attribute, of a string in a global heap.
const ADDRESS_LEN: usize = 16;

/// The type of an attribute that is a single string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Texts {
    /// A string of variable length, as in h5py.
    Any,
    /// A string of fixed length, as in netCDF.
    Fixed,
}

/// Adds the attributes of a node to an object. Renames those that HDF5 cannot have, or that the
/// libraries use. Returns the words for those that differ from the node's.
pub(super) fn describe(
    file: &mut Hdf5File,
    object: usize,
    attributes: Vec<cf::Attribute>,
    texts: Texts,
) -> Result<Vec<String>> {
    let mut changes = Vec::new();
    for one in cf::renamed(attributes, name_of) {
        changes.extend(one.changed(change_of(&one.values, texts)));
        if one.values != AttributeValues::Null || texts == Texts::Any {
            let attribute = attribute(file, &one, texts)?;
            file.describe(object, attribute);
        }
    }
    Ok(changes)
}

/// Returns the form of an attribute in a file, if it is another one than in the hierarchy.
pub(super) fn change_of(values: &AttributeValues, texts: Texts) -> Option<&'static str> {
    let is_long = |len: usize| len > MAX_VALUE_LEN;
    match values {
        AttributeValues::Texts(all) if is_long(all.len().saturating_mul(ADDRESS_LEN)) => {
            Some("many strings, as JSON")
        }
        AttributeValues::Numbers(_, bytes, _) | AttributeValues::Bools(bytes, _)
            if is_long(bytes.len()) =>
        {
            Some("many values, as JSON")
        }
        AttributeValues::Null if texts == Texts::Fixed => Some("null, which netCDF does not have"),
        AttributeValues::Nothing if texts == Texts::Fixed => {
            Some("an empty list, as the string []")
        }
        AttributeValues::Bools(..) if texts == Texts::Fixed => Some("true or false, as int8"),
        _ => None,
    }
}

fn attribute(file: &mut Hdf5File, of: &cf::Attribute, texts: Texts) -> Result<Attribute> {
    let name = &of.name;
    match &of.values {
        AttributeValues::Text(text) if texts == Texts::Any || text.len() > MAX_VALUE_LEN => {
            any_text(file, name, text)
        }
        AttributeValues::Text(text) => fixed(name, text.as_bytes()),
        AttributeValues::Texts(all) if all.len().saturating_mul(ADDRESS_LEN) > MAX_VALUE_LEN => {
            any_text(file, name, &json!(all).to_string())
        }
        AttributeValues::Texts(all) => any_texts(file, name, all.iter().map(String::as_str)),
        AttributeValues::Numbers(dtype, bytes, many) if bytes.len() > MAX_VALUE_LEN => {
            any_text(file, name, &cf::decimal(bytes, dtype, *many))
        }
        AttributeValues::Bools(bytes, many) if bytes.len() > MAX_VALUE_LEN => {
            any_text(file, name, &cf::decimal(bytes, &DType::Bool, *many))
        }
        // h5py reads and writes booleans.
        AttributeValues::Bools(bytes, many) if texts == Texts::Any => {
            numbers(name, &DType::Bool, bytes, *many)
        }
        AttributeValues::Bools(bytes, many) => numbers(name, &DType::Int(1), bytes, *many),
        // As in h5py.
        AttributeValues::Nothing if texts == Texts::Any => {
            numbers(name, &DType::Float(8), &[], Many::Yes)
        }
        AttributeValues::Nothing => fixed(name, b"[]"),
        AttributeValues::Numbers(dtype, bytes, many) => numbers(name, dtype, bytes, *many),
        // `h5py.Empty`.
        AttributeValues::Null => {
            let (dtype, space) = (message::datatype(&DType::Float(4))?, message::no_elements());
            Ok(Attribute {
                name: name.clone(),
                dtype,
                space,
                value: AttributeElements::Bytes(Vec::new()),
            })
        }
    }
}

/// Returns the name of an attribute in a file: libraries reject an empty one, and a NUL would end
/// it.
fn name_of(name: &str) -> String {
    let mut clean = without_nul(name);
    while clean.len() > MAX_NAME_LEN {
        clean.pop();
    }
    if clean.is_empty() || RESERVED.contains(&clean.as_str()) {
        clean.push('_');
    }
    clean
}

/// Returns a name or label without NUL.
pub(super) fn without_nul(text: &str) -> String {
    text.replace('\0', "_")
}

/// Returns an attribute that is one string of fixed length.
pub(super) fn fixed(name: &str, text: &[u8]) -> Result<Attribute> {
    let space = if text.is_empty() { message::no_elements() } else { message::dataspace(&[])? };
    let (dtype, value) =
        (message::terminated_string(text)?, AttributeElements::Bytes(text.to_vec()));
    Ok(Attribute { name: name.to_owned(), dtype, space, value })
}

/// Returns an attribute of numbers.
pub(super) fn numbers(name: &str, dtype: &DType, bytes: &[u8], many: Many) -> Result<Attribute> {
    let count = (bytes.len() / dtype.item_len().max(1)).to_u64();
    let space = match many {
        Many::No => message::dataspace(&[])?,
        Many::Yes => message::dataspace(&[count])?,
    };
    let value = AttributeElements::Bytes(bytes.to_vec());
    Ok(Attribute { name: name.to_owned(), dtype: message::datatype(dtype)?, space, value })
}

/// Returns the names of dimensions in the form of `H5DSset_label`, `None` if there are no names.
pub(super) fn labels(file: &mut Hdf5File, names: &[Option<String>]) -> Result<Option<Attribute>> {
    if names.iter().all(Option::is_none) {
        return Ok(None);
    }
    let names = names.iter().map(|name| without_nul(name.as_deref().unwrap_or_default()));
    let names: Vec<String> = names.collect();
    any_texts(file, "DIMENSION_LABELS", names.iter().map(String::as_str)).map(Some)
}

fn any_text(file: &mut Hdf5File, name: &str, text: &str) -> Result<Attribute> {
    let value = AttributeElements::InHeap(vec![file.text(text)]);
    let (dtype, space) = (message::any_string()?, message::dataspace(&[])?);
    Ok(Attribute { name: name.to_owned(), dtype, space, value })
}

fn any_texts<'t>(
    file: &mut Hdf5File,
    name: &str,
    texts: impl Iterator<Item = &'t str>,
) -> Result<Attribute> {
    let items: Vec<_> = texts.map(|text| file.text(text)).collect();
    let space = message::dataspace(&[items.len().to_u64()])?;
    let (dtype, value) = (message::any_string()?, AttributeElements::InHeap(items));
    Ok(Attribute { name: name.to_owned(), dtype, space, value })
}
