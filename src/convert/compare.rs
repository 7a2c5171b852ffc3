//! Compares a node of the target with the planned one.

use std::fmt::Debug;

use serde_json::{Value, json};

use super::options::CopyTarget;
use crate::array::Array;
use crate::codec::CodecSpec;
use crate::dtype::DType;
use crate::hierarchy::{Content, Node};
use crate::json::{self, Object};
use crate::metadata::{DIMENSIONS, FILL, masked_value};

/// How closely two nodes are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// As a mount shows them: decoded, and within the limits of its store's dialect.
    Shown,
    /// As they are stored.
    Stored,
    /// By what a reader makes of them: options of codecs may be left out if they have no effect.
    Meaning,
}

/// Describes the difference between `planned` and `found`, `None` if there is none.
pub fn difference(planned: &Content, found: Option<&Node>, target: CopyTarget) -> Option<String> {
    let rule = match target {
        CopyTarget::Mount => Rule::Shown,
        CopyTarget::Directory => Rule::Stored,
    };
    compare(planned, found, rule)
}

/// Describes the difference between a copy in consolidated metadata and the node itself, `None` if
/// readers make the same of both.
pub fn difference_of_copy(copy: &Content, found: Option<&Node>) -> Option<String> {
    compare(copy, found, Rule::Meaning)
}

fn compare(planned: &Content, found: Option<&Node>, rule: Rule) -> Option<String> {
    let Some(found) = found.filter(|node| node.document().is_some()) else {
        return Some("it has no metadata".to_owned());
    };
    match (planned, found.content()) {
        (Content::Group(planned), Content::Group(found)) => {
            member("attributes", &planned.attributes, &found.attributes)
        }
        (Content::Array(planned), Content::Array(found)) => array(planned, found, rule),
        (_, Content::NotUnderstood(_, error)) => Some(error.detail().to_owned()),
        (Content::Group(_), Content::Array(_)) => Some("an array, not a group".to_owned()),
        (Content::Array(_) | Content::NotUnderstood(..), _) => {
            Some("a group, not an array".to_owned())
        }
    }
}

fn array(planned: &Array, found: &Array, rule: Rule) -> Option<String> {
    if let Some(error) = found.not_understood() {
        return Some(error.detail().to_owned());
    }
    let (old, new) = (planned.model(), found.model());
    let fill = || {
        let is_same = old.fill.item(&old.dtype) == new.fill.item(&new.dtype);
        let (old, new) = (old.fill.to_json(&old.dtype), new.fill.to_json(&new.dtype));
        // zarr-python 3 copies the 0 of strings of zarr-python 2 as a string.
        let is_zero = |value: &Value| matches!(value.as_str(), Some("" | "0"));
        let is_same = is_same || (rule == Rule::Meaning && is_zero(&old) && is_zero(&new));
        (!is_same).then(|| format!("fill_value {new}, not {old}"))
    };
    let codecs = || match rule {
        Rule::Meaning => are_equivalent(&old.codecs, &new.codecs),
        Rule::Shown | Rule::Stored => old.codecs == new.codecs,
    };
    let spelled =
        |codecs: &[CodecSpec]| Value::Array(codecs.iter().map(CodecSpec::to_json).collect());
    let layout = || match rule {
        Rule::Shown => None,
        Rule::Stored | Rule::Meaning => other("shard shape", &old.chunk_shape, &new.chunk_shape)
            .or_else(|| {
                let (old, new) = (spelled(&old.codecs), spelled(&new.codecs));
                (!codecs()).then(|| format!("codecs {new}, not {old}"))
            })
            .or_else(|| other("chunk keys", &old.key_encoding, &new.key_encoding)),
    };
    let types = || {
        let [old, new] = [&old.dtype, &new.dtype].map(DType::name);
        let named = || format!("data type {new}, not {old}");
        (planned.model().dtype != found.model().dtype).then(named)
    };
    let names = || {
        let (old, new) = (json!(old.dimension_names), json!(new.dimension_names));
        (old != new).then(|| format!("dimension names {new}, not {old}"))
    };
    other("shape", &old.shape, &new.shape)
        .or_else(types)
        .or_else(|| other("chunk shape", planned.chunk_shape(), found.chunk_shape()))
        .or_else(|| other("chunks", &old.rectilinear, &new.rectilinear))
        .or_else(names)
        .or_else(fill)
        .or_else(layout)
        .or_else(|| attributes(&old.attributes, &new.attributes, &new.dtype))
}

/// Whether two lists of codecs are equal, if options that one of them leaves out are off: false, 0
/// or null.
fn are_equivalent(one: &[CodecSpec], other: &[CodecSpec]) -> bool {
    let is_off = |value: &Value| {
        matches!(value, Value::Null | Value::Bool(false)) || value.as_u64() == Some(0)
    };
    let has_all = |one: &CodecSpec, other: &CodecSpec| {
        let mut options = one.configuration.iter();
        options.all(|(name, value)| match other.configuration.get(name) {
            Some(found) => json::same(found, value),
            None => is_off(value),
        })
    };
    one.len() == other.len()
        && one.iter().zip(other).all(|(one, other)| {
            one.name == other.name && has_all(one, other) && has_all(other, one)
        })
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
    member("attributes", &others(planned), &others(found))
}

/// Describes the first member that differs.
fn member(what: &str, planned: &Object, found: &Object) -> Option<String> {
    let names = planned.keys().chain(found.keys());
    let mut pairs = names.map(|name| (name, planned.get(name), found.get(name)));
    let is_same = |old: Option<&Value>, new: Option<&Value>| match (old, new) {
        (Some(old), Some(new)) => json::same(old, new),
        (old, new) => old == new,
    };
    let (name, old, new) = pairs.find(|(_, old, new)| !is_same(*old, *new))?;
    let shown = |value: Option<&Value>| match value {
        Some(value) => json::describe(value),
        None => "missing".to_owned(),
    };
    Some(format!("{what}: {name:?} is {}, not {}", shown(new), shown(old)))
}

fn other<T: PartialEq + Debug + ?Sized>(what: &str, planned: &T, found: &T) -> Option<String> {
    (planned != found).then(|| format!("{what} {found:?}, not {planned:?}"))
}
