//! Compares a node of the target with the planned one.

use std::fmt::Debug;

use super::options::Target;
use crate::array::Array;
use crate::dtype::DType;
use crate::hierarchy::{Content, Node};
use crate::json::Object;
use crate::metadata::{DIMENSIONS, FILL, masked_value};

/// Describes the difference between `planned` and `found`, `None` if there is none. A mount shows a
/// node decoded, and within the limits of its store's dialect.
pub fn difference(planned: &Content, found: Option<&Node>, target: Target) -> Option<String> {
    let Some(found) = found.filter(|node| node.document().is_some()) else {
        return Some("it has no metadata".to_owned());
    };
    match (planned, found.content()) {
        (Content::Group(planned), Content::Group(found)) => {
            other("attributes", &planned.attributes, &found.attributes)
        }
        (Content::Array(planned), Content::Array(found)) => array(planned, found, target),
        (_, Content::NotUnderstood(_, error)) => Some(error.detail().to_owned()),
        (Content::Group(_), Content::Array(_)) => Some("an array, not a group".to_owned()),
        (Content::Array(_) | Content::NotUnderstood(..), _) => {
            Some("a group, not an array".to_owned())
        }
    }
}

fn array(planned: &Array, found: &Array, target: Target) -> Option<String> {
    if let Some(error) = found.not_understood() {
        return Some(error.detail().to_owned());
    }
    let (old, new) = (planned.model(), found.model());
    let fill = || {
        let is_same = old.fill.item(&old.dtype) == new.fill.item(&new.dtype);
        let (old, new) = (old.fill.to_json(&old.dtype), new.fill.to_json(&new.dtype));
        (!is_same).then(|| format!("fill_value {new}, not {old}"))
    };
    let layout = || match target {
        Target::Mount => None,
        Target::Directory => other("shard shape", &old.chunk_shape, &new.chunk_shape)
            .or_else(|| other("codecs", &old.codecs, &new.codecs))
            .or_else(|| other("chunk keys", &old.key_encoding, &new.key_encoding)),
    };
    other("shape", &old.shape, &new.shape)
        .or_else(|| other("data type", &old.dtype, &new.dtype))
        .or_else(|| other("chunk shape", planned.chunk_shape(), found.chunk_shape()))
        .or_else(|| other("chunks", &old.rectilinear, &new.rectilinear))
        .or_else(|| other("dimension names", &old.dimension_names, &new.dimension_names))
        .or_else(fill)
        .or_else(layout)
        .or_else(|| attributes(&old.attributes, &new.attributes, &new.dtype))
}

/// Describes the difference between the attributes of two arrays. Zarr 2 stores the masked value of
/// xarray as the fill value, so a mount of a Zarr 2 store shows every fill value as masked.
fn attributes(planned: &Object, found: &Object, dtype: &DType) -> Option<String> {
    let masked = |attributes: &Object| {
        attributes.get(FILL).map(|value| masked_value(value, dtype).ok_or_else(|| value.clone()))
    };
    if let Some(planned) = masked(planned)
        && Some(&planned) != masked(found).as_ref()
    {
        return Some(format!("attribute {FILL} differs"));
    }
    let others = |attributes: &Object| {
        let mut attributes = attributes.clone();
        attributes.retain(|name, _| name != FILL && name != DIMENSIONS);
        attributes
    };
    other("attributes", &others(planned), &others(found))
}

fn other<T: PartialEq + Debug + ?Sized>(what: &str, planned: &T, found: &T) -> Option<String> {
    (planned != found).then(|| format!("{what} {found:?}, not {planned:?}"))
}
