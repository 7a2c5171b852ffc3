//! Attributes as JSON.

use hdf5_reader::error::ByteOrder;
use hdf5_reader::{Attribute, Datatype, ReferenceType, StringSize, VarLenKind};
use serde_json::Value;

use super::values::Values;
use crate::json::{self, text_to_nul};
use zarrfs_codec::dtype::base64_encode;
use zarrfs_codec::json::Object;

/// Those that libraries keep for themselves. xarray and netCDF do not show them either.
const INTERNAL: [&str; 10] = [
    "CLASS",
    "NAME",
    "DIMENSION_LIST",
    "REFERENCE_LIST",
    "DIMENSION_LABELS",
    "_Netcdf4Dimid",
    "_Netcdf4Coordinates",
    "_nc3_strict",
    "_NCProperties",
    "_NCProperties2",
];

/// The most elements of an attribute. HDF5 keeps at most 64 KiB of one in a header.
const MAX_COUNT: usize = 1 << 20;

/// Whether a library keeps the attribute for itself, if the object is a dimension scale.
pub fn is_internal(name: &str) -> bool {
    INTERNAL.contains(&name)
}

/// Returns attributes as JSON. The name of one that cannot be shown goes to `left_out`.
pub fn shown(
    attributes: &[Attribute],
    values: &Values<'_>,
    is_hidden: impl Fn(&str) -> bool,
    left_out: &mut Vec<String>,
) -> Object {
    let mut object = Object::new();
    for attribute in attributes.iter().filter(|attribute| !is_hidden(&attribute.name)) {
        match value(attribute, values) {
            Some(value) => {
                object.insert(attribute.name.clone(), value);
            }
            None => left_out.push(attribute.name.clone()),
        }
    }
    object
}

/// Returns the value of an attribute; one with one element is that, as in netCDF.
fn value(attribute: &Attribute, values: &Values<'_>) -> Option<Value> {
    if attribute.shape.contains(&0) {
        let is_text = matches!(
            attribute.datatype,
            Datatype::String { .. } | Datatype::VarLen { kind: VarLenKind::String, .. }
        );
        return Some(if is_text { Value::from("") } else { Value::Array(Vec::new()) });
    }
    let items = items(attribute, values)?;
    match <[Value; 1]>::try_from(items) {
        Ok([single]) => Some(single),
        Err(items) => Some(nested(items, &attribute.shape)),
    }
}

/// Returns items as lists within lists.
fn nested(items: Vec<Value>, shape: &[u64]) -> Value {
    let mut level = items;
    for len in shape.iter().skip(1).rev() {
        let len = usize::try_from(*len).unwrap_or(1).max(1);
        level = level.chunks(len).map(|row| Value::Array(row.to_vec())).collect();
    }
    Value::Array(level)
}

fn items(attribute: &Attribute, values: &Values<'_>) -> Option<Vec<Value>> {
    if let Some(strings) = &attribute.decoded_strings {
        return Some(strings.iter().map(|text| Value::from(text.as_str())).collect());
    }
    let count = attribute.num_elements().ok().and_then(|count| usize::try_from(count).ok())?;
    if count == 0 || count > MAX_COUNT {
        return None;
    }
    let is_list = matches!(attribute.datatype, Datatype::VarLen { kind: VarLenKind::String, .. });
    if is_list && count == 1 {
        // The library has read the string.
        return Some(vec![Value::from(text_to_nul(&attribute.raw_data))]);
    }
    let len = attribute.raw_data.len() / count;
    if len == 0 {
        return None;
    }
    let items = attribute.raw_data.chunks_exact(len).take(count);
    items.map(|bytes| item(&attribute.datatype, bytes, values)).collect()
}

/// Returns an element as JSON.
fn item(datatype: &Datatype, bytes: &[u8], values: &Values<'_>) -> Option<Value> {
    match datatype {
        Datatype::FixedPoint { signed, byte_order, .. } => integer(bytes, *signed, *byte_order),
        Datatype::Bitfield { byte_order, .. } => integer(bytes, false, *byte_order),
        Datatype::FloatingPoint { byte_order, .. } => float(bytes, *byte_order),
        Datatype::String { size: StringSize::Fixed(_), .. } => {
            Some(Value::from(text_to_nul(bytes).trim_end_matches(' ')))
        }
        Datatype::VarLen { kind: VarLenKind::String, .. } => {
            values.text_of(bytes).ok().map(Value::from)
        }
        Datatype::VarLen { base, kind: VarLenKind::Sequence, .. } => {
            let len = fixed_len(base)?;
            let list = values.list_of(bytes, len).ok()?;
            let items = list.chunks_exact(len).map(|bytes| item(base, bytes, values));
            items.collect::<Option<Vec<_>>>().map(Value::Array)
        }
        Datatype::Enum { base, members } => {
            let is = |name: &str| members.iter().any(|member| member.name == name);
            let found = item(base, bytes, values)?;
            if members.len() == 2 && is("FALSE") && is("TRUE") {
                let name = members.iter().find(|it| it.value == bytes).map(|it| it.name.as_str());
                return Some(Value::from(name == Some("TRUE")));
            }
            Some(found)
        }
        Datatype::Array { base, dims } => {
            let len = fixed_len(base)?;
            let items = bytes.chunks_exact(len).map(|bytes| item(base, bytes, values));
            items.collect::<Option<Vec<_>>>().map(|items| nested(items, dims))
        }
        Datatype::Compound { fields, .. } => {
            let mut object = Object::new();
            for field in fields {
                let start = usize::try_from(field.byte_offset).ok()?;
                let len = fixed_len(&field.datatype)?;
                let bytes = bytes.get(start..start.checked_add(len)?)?;
                object.insert(field.name.clone(), item(&field.datatype, bytes, values)?);
            }
            Some(Value::Object(object))
        }
        Datatype::Reference { ref_type: ReferenceType::Object, .. } => {
            Some(Value::from(values.path_of(bytes)))
        }
        Datatype::Opaque { .. } => Some(Value::from(base64_encode(bytes))),
        _ => None,
    }
}

/// Returns the length of an element, if all have the same.
fn fixed_len(datatype: &Datatype) -> Option<usize> {
    Some(match datatype {
        Datatype::FixedPoint { size, .. }
        | Datatype::FloatingPoint { size, .. }
        | Datatype::Bitfield { size, .. }
        | Datatype::Reference { size, .. } => usize::from(*size),
        Datatype::String { size: StringSize::Fixed(len), .. }
        | Datatype::Opaque { size: len, .. }
        | Datatype::Compound { size: len, .. } => usize::try_from(*len).ok()?,
        Datatype::Enum { base, .. } => fixed_len(base)?,
        Datatype::Array { base, dims } => {
            dims.iter().try_fold(fixed_len(base)?, |len, count| {
                len.checked_mul(usize::try_from(*count).ok()?)
            })?
        }
        Datatype::String { .. } | Datatype::VarLen { .. } => return None,
    })
    .filter(|len| *len > 0)
}

/// Returns an integer of up to 16 bytes.
pub fn integer(bytes: &[u8], is_signed: bool, order: ByteOrder) -> Option<Value> {
    json::integer(bytes, is_signed, order == ByteOrder::BigEndian)
}

/// Returns a float.
pub fn float(bytes: &[u8], order: ByteOrder) -> Option<Value> {
    json::float(bytes, order == ByteOrder::BigEndian)
}
