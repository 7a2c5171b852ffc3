//! The members that metadata files of all dialects have, and limits of their values.

use serde_json::Value;

use super::model::Separator;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::limits;
use zarrfs_base::width::ToU64;
use zarrfs_codec::dtype::{DType, integer};
use zarrfs_codec::json::Object;
use zarrfs_codec::json::describe;

/// Returns the member `name`. Fails if it is absent.
pub(super) fn required<'d>(document: &'d Object, name: &str) -> Result<&'d Value> {
    document.get(name).ok_or_else(|| Error::corrupt(format!("{name} is missing")))
}

/// Parses a list of lengths. Accepts integral floats, as some libraries write them.
pub(super) fn lengths(value: &Value, name: &str) -> Result<Vec<u64>> {
    let wrong = || {
        Error::corrupt(format!(
            "{name} {} is not a list of integers of at least 0",
            describe(value)
        ))
    };
    let items = value.as_array().ok_or_else(wrong)?;
    if limits::DIMENSIONS.is_exceeded_by(items.len()) {
        return Err(Error::unsupported(format!(
            "{name} has {} dimensions, {}",
            items.len(),
            limits::DIMENSIONS
        )));
    }
    items
        .iter()
        .map(|item| u64::try_from(integer(item.as_number()?.as_str())?).ok())
        .collect::<Option<_>>()
        .ok_or_else(wrong)
}

/// Parses chunk lengths for a `shape`. A chunk length of 0 along a dimension of length 0, which the
/// 2020 draft allows, becomes 1.
pub(super) fn chunk_lengths(value: &Value, shape: &[u64]) -> Result<Vec<u64>> {
    let mut chunk_shape = lengths(value, "chunk_shape")?;
    if chunk_shape.len() != shape.len() {
        return Err(Error::corrupt(format!(
            "chunk_shape has {} dimensions, shape has {}",
            chunk_shape.len(),
            shape.len()
        )));
    }
    for (chunk_len, len) in chunk_shape.iter_mut().zip(shape) {
        match (*chunk_len, *len) {
            (0, 0) => *chunk_len = 1,
            (0, _) => return Err(Error::corrupt("chunk_shape contains 0")),
            (_, _) => {}
        }
    }
    Ok(chunk_shape)
}

/// Fails if the size in bytes does not fit 64 bits.
pub(super) fn check_size(shape: &[u64], dtype: &DType, what: &str) -> Result<()> {
    let item_len = dtype.item_len().to_u64();
    // Even if one factor is zero, the others must fit: the array may grow later.
    shape
        .iter()
        .filter(|len| **len != 0)
        .try_fold(item_len, |product, len| product.checked_mul(*len))
        .map(|_| ())
        .ok_or_else(|| Error::unsupported(format!("{what} has more than 2^64 bytes")))
}

/// Returns the user attributes. Null, as zarrita writes it, means there are none.
pub(super) fn attributes(document: &Object) -> Result<Object> {
    match document.get("attributes") {
        None | Some(Value::Null) => Ok(Object::new()),
        Some(Value::Object(attributes)) => Ok(attributes.clone()),
        Some(other) => {
            Err(Error::corrupt(format!("attributes are {}, not an object", describe(other))))
        }
    }
}

/// Returns the names of dimensions. A null is a dimension without a name.
pub(super) fn dimension_names(value: &Value, rank: usize) -> Result<Vec<Option<String>>> {
    if value.is_null() {
        return Ok(Vec::new());
    }
    let name = |item: &Value| match item {
        Value::Null => Some(None),
        Value::String(name) => Some(Some(name.clone())),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
    };
    let names: Option<Vec<_>> = value.as_array().and_then(|items| items.iter().map(name).collect());
    names.filter(|names| names.len() == rank).ok_or_else(|| {
        Error::corrupt(format!(
            "dimension_names {} are not names for {rank} dimensions",
            describe(value)
        ))
    })
}

/// Fails for unknown extensions, unless they are marked as ignorable ("extensions" of the drafts).
pub(super) fn check_extensions(document: &Object) -> Result<()> {
    let list = match document.get("extensions") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Array(list)) => list,
        Some(other) => {
            return Err(Error::unsupported(format!(
                "extensions are {}, not a list",
                describe(other)
            )));
        }
    };
    match list.iter().find(|extension| !may_be_ignored(extension)) {
        None => Ok(()),
        Some(extension) => {
            let name = extension.get("extension").or_else(|| extension.get("name"));
            Err(Error::unsupported(format!(
                "extension {} is not supported",
                describe(name.unwrap_or(extension))
            )))
        }
    }
}

/// Whether an extension is marked as ignorable.
pub(super) fn may_be_ignored(extension: &Value) -> bool {
    extension.get("must_understand") == Some(&Value::Bool(false))
}

/// Parses the separator of the indices in a chunk key.
pub(super) fn separator(value: &Value) -> Result<Separator> {
    match value.as_str() {
        Some("/") => Ok(Separator::Slash),
        Some(".") => Ok(Separator::Dot),
        Some(_) | None => Err(Error::unsupported(format!(
            "chunk key separator {} is not supported",
            describe(value)
        ))),
    }
}

/// Returns the name and the configuration of an extension point of v3: an object with `name` (or
/// `type`, of spring 2023), or since 3.1 a plain string. If the object has no configuration, it is
/// itself one.
pub(super) fn named(value: &Value) -> Option<(&str, &Value)> {
    if let Some(name) = value.as_str() {
        return Some((name, &Value::Null));
    }
    let name = value.get("name").or_else(|| value.get("type"))?.as_str()?;
    Some((name, value.get("configuration").filter(|found| !found.is_null()).unwrap_or(value)))
}
