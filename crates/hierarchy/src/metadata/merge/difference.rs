//! The changes that a program has made in a metadata file: the text that it has written, compared
//! with the text that it was shown.

use serde_json::{Map, Value};

use super::Edit;
use crate::metadata::codecs::{self, EncodedElements};
use crate::metadata::members::{dimension_names, lengths, may_be_ignored, named};
use crate::metadata::model::{ArrayMetadata, NodeMetadata};
use crate::metadata::shown::ShownChunks;
use crate::metadata::types::{Endian, data_type};
use crate::metadata::{policy, rectilinear, v3};
use zarrfs_base::error::{Error, Result};
use zarrfs_codec::CodecSpec;
use zarrfs_codec::dtype::{FillValue, integer};
use zarrfs_codec::json::Object;
use zarrfs_codec::json::{self, describe, same, same_and_of_one_type};

/// Members of shown metadata files that are compared separately, or that have no meaning.
const COMPARED: [&str; 13] = [
    "zarr_format",
    "node_type",
    "shape",
    "data_type",
    "chunk_grid",
    "chunk_key_encoding",
    "fill_value",
    "codecs",
    "attributes",
    "dimension_names",
    "storage_transformers",
    "consolidated_metadata",
    v3::NUMPY_DTYPE,
];

/// Returns the changes in `new`, which a program wrote, against `base`, the metadata file last
/// shown for `node`, which has these chunk `files` if it is an array.
///
/// Compares the meaning of members, because a library omits defaults, adds empty members and spells
/// numbers its own way. Consolidated metadata only request that zarrfs generates them; their
/// contents are ignored.
pub fn diff(base: &str, new: &[u8], node: &NodeMetadata, files: &ShownChunks) -> Result<Edit> {
    let base = json::parse_object(base.as_bytes()).map_err(|error| as_invalid(&error))?;
    let new = json::parse_object(new).map_err(|error| as_invalid(&error))?;
    let mut edit = Edit { attributes: attributes(&base, &new)?, ..Edit::default() };
    let format = new.get("zarr_format").and_then(Value::as_number);
    if format.and_then(|number| integer(number.as_str())) != Some(3) {
        return refused("zarr_format", new.get("zarr_format"), "it must be 3 in this mount");
    }
    let kind = match node {
        NodeMetadata::Group(_) => "group",
        NodeMetadata::Array(_) => "array",
    };
    if new.get("node_type").is_some_and(|found| found != kind) {
        let advice = "remove the node and create it again";
        return refused("node_type", new.get("node_type"), advice);
    }
    if let NodeMetadata::Group(group) = node {
        let member = "consolidated_metadata";
        let kept = match (base.get(member), new.get(member)) {
            (Some(base), Some(new)) => same(base, new),
            (None, None) => true,
            (None, Some(_)) | (Some(_), None) => false,
        };
        let wanted = v3::is_consolidated(&new);
        let had = group.consolidated || v3::is_consolidated(&base);
        edit.consolidated = (!kept && (wanted || had)).then_some(wanted);
    }
    if let NodeMetadata::Array(array) = node {
        check_unchanged(&base, &new, array, files)?;
        if let Some((before, now)) = shape(&base, &new, array)? {
            (edit.shape_before, edit.shape) = (before, Some(now));
        }
        edit.dimension_names = names(&base, &new, array)?;
    }
    edit.members = members(&base, &new)?;
    Ok(edit)
}

/// Whether chunks of the array that one metadata file describes are chunks of that in the other:
/// they have the same elements, lengths and number of dimensions. True if one of the two is not
/// understood.
pub fn have_like_chunks(one: &[u8], other: &[u8]) -> bool {
    let (Ok(NodeMetadata::Array(one)), Ok(NodeMetadata::Array(other))) =
        (v3::lower(one).node, v3::lower(other).node)
    else {
        return true;
    };
    let of =
        |array: &ArrayMetadata| (array.dtype.clone(), array.chunk_shape.clone(), array.shape.len());
    of(&one) == of(&other) && one.rectilinear.is_some() == other.rectilinear.is_some()
}

/// Whether two metadata files, as the mount shows them, may describe one node at two times: its
/// kind, and of an array all that gives its chunks their meaning, and the number of dimensions, are
/// the same.
pub fn describe_one_node(one: &[u8], other: &[u8]) -> bool {
    // A program spells values in its own way: `""` for bytes of zeros.
    let array = |text| match v3::lower(text).node {
        Ok(NodeMetadata::Array(array)) => Some(array),
        Ok(NodeMetadata::Group(_)) | Err(_) => None,
    };
    if let (Some(one), Some(other)) = (array(one), array(other)) {
        return one.means_same(&other);
    }
    let (Ok(one), Ok(other)) = (json::parse_object(one), json::parse_object(other)) else {
        return false;
    };
    let are_same = |member: &str| match (one.get(member), other.get(member)) {
        (Some(one), Some(other)) => same(one, other),
        (None, None) => true,
        (None, Some(_)) | (Some(_), None) => false,
    };
    let rank = |document: &Object| document.get("shape").and_then(Value::as_array).map(Vec::len);
    let members = [
        "node_type",
        "data_type",
        "fill_value",
        "chunk_grid",
        "chunk_key_encoding",
        "codecs",
        "storage_transformers",
    ];
    members.into_iter().all(are_same) && rank(&one) == rank(&other)
}

pub(super) fn as_invalid(error: &Error) -> Error {
    Error::invalid(error.detail().to_owned())
}

fn refused<T>(member: &str, value: Option<&Value>, advice: &str) -> Result<T> {
    let Some(value) = value else {
        return Err(Error::invalid(format!("{member} cannot be left out: {advice}")));
    };
    let text = value.to_string();
    // A short object is printed completely, so that the user sees which number is wrong.
    let value = if value.is_object() && text.len() <= 200 { text } else { describe(value) };
    Err(Error::invalid(format!("{member} cannot become {value}: {advice}")))
}

/// Fails for changes that would give the stored chunks another meaning.
fn check_unchanged(
    base: &Object,
    new: &Object,
    array: &ArrayMetadata,
    files: &ShownChunks,
) -> Result<()> {
    let unless = |member: &str, means_same: bool, advice: &str| {
        let kept = match (base.get(member), new.get(member)) {
            (Some(base), Some(new)) => same(base, new),
            (None, None) => true,
            (None, Some(_)) | (Some(_), None) => false,
        };
        if kept || means_same { Ok(()) } else { refused(member, new.get(member), advice) }
    };
    let convert = "chunks that are stored would be misread; remove the array and create it again, or make a \
                   changed copy with `zarrfs convert`";
    let dtype = new.get("data_type").and_then(|value| data_type(value).ok());
    unless("data_type", dtype.is_some_and(|(dtype, _)| dtype == array.dtype), convert)?;
    unless("chunk_grid", is_grid(new.get("chunk_grid"), array, files), convert)?;
    unless(
        "chunk_key_encoding",
        v3::key_encoding(new.get("chunk_key_encoding"), &Value::Null)
            .is_ok_and(|keys| keys == files.keys),
        "names of chunks stay as they are; remove the array and create it again",
    )?;
    unless(
        "codecs",
        new.get("codecs").is_some_and(|codecs| are_codecs(codecs, array, files)),
        &format!(
            "the chunk files have the codecs {}; remove the array and create it again, or make a \
             changed copy with `zarrfs convert`",
            described_beside(&files.codecs, new.get("codecs"))
        ),
    )?;
    unless(
        "fill_value",
        new.get("fill_value").is_some_and(|fill| is_fill(fill, array)),
        "missing chunks would change their values; create a new array",
    )?;
    let transformers = new.get("storage_transformers").unwrap_or(&Value::Null);
    let none = transformers.is_null() || transformers.as_array().is_some_and(Vec::is_empty);
    unless("storage_transformers", none, "no storage transformer is supported")
}

/// Describes codecs by their names, or completely if `other` has the same names.
fn described_beside(list: &[CodecSpec], other: Option<&Value>) -> String {
    let list: Value = list.iter().map(CodecSpec::to_json).collect();
    let names = describe(&list);
    if other.is_some_and(|other| describe(other) == names) { list.to_string() } else { names }
}

/// Whether `grid` is that of the shown chunk files.
fn is_grid(grid: Option<&Value>, array: &ArrayMetadata, files: &ShownChunks) -> bool {
    match (grid.and_then(named), files.rectilinear(array)) {
        (Some(("regular", found)), None) => {
            let chunk_shape = found.get("chunk_shape").and_then(|lens| lengths(lens, "").ok());
            chunk_shape.is_some_and(|lens| lens == files.chunk_shape)
        }
        (Some((rectilinear::NAME, found)), Some(runs)) => {
            rectilinear::parse(found, array.shape.len()).is_ok_and(|found| found == runs)
        }
        _ => false,
    }
}

/// Whether `codecs` are those of the shown chunk files.
fn are_codecs(codecs: &Value, array: &ArrayMetadata, files: &ShownChunks) -> bool {
    let elements = EncodedElements {
        rank: array.shape.len(),
        dtype: array.dtype.clone(),
        endian: Endian::Little,
    };
    let canonical = |list| {
        let list = codecs::canonical(codecs::named(list), &elements)?;
        Ok(list.into_iter().map(policy::completed).collect::<Vec<_>>())
    };
    let new = codecs::list(Some(codecs)).and_then(canonical);
    let shown = canonical(files.codecs.clone());
    let is_plain = |list: &[CodecSpec]| codecs::is_plain(list, &array.dtype);
    codecs.is_array()
        && new.is_ok_and(|new| {
            shown.is_ok_and(|shown| new == shown || (is_plain(&new) && is_plain(&shown)))
        })
}

fn is_fill(value: &Value, array: &ArrayMetadata) -> bool {
    let fill = FillValue::parse(value, &array.dtype);
    fill.is_ok_and(|fill| fill.item(&array.dtype) == array.fill.item(&array.dtype))
}

/// Returns the shape that a writer saw and its new one, if they differ.
fn shape(
    base: &Object,
    new: &Object,
    array: &ArrayMetadata,
) -> Result<Option<(Vec<u64>, Vec<u64>)>> {
    let of = |document: &Object| {
        lengths(document.get("shape").unwrap_or(&Value::Null), "shape")
            .map_err(|error| as_invalid(&error))
    };
    let found = of(new)?;
    if found.len() != array.shape.len() {
        return refused("shape", new.get("shape"), "the number of dimensions cannot change");
    }
    let before = of(base)?;
    Ok((found != before).then_some((before, found)))
}

/// Returns the new names of dimensions if they change. A list of nulls counts as no list.
fn names(
    base: &Object,
    new: &Object,
    array: &ArrayMetadata,
) -> Result<Option<Vec<Option<String>>>> {
    let of = |document: &Object| -> Result<Vec<Option<String>>> {
        let value = document.get("dimension_names").unwrap_or(&Value::Null);
        let names =
            dimension_names(value, array.shape.len()).map_err(|error| as_invalid(&error))?;
        Ok(if names.iter().all(Option::is_none) { Vec::new() } else { names })
    };
    let found = of(new)?;
    // An array without dimensions may have an empty list of names or none.
    let says = |document: &Object| document.get("dimension_names").is_some_and(Value::is_array);
    let says_none = array.shape.is_empty() && says(new) && !says(base);
    Ok((says_none || found != of(base)?).then_some(found))
}

fn attributes(base: &Object, new: &Object) -> Result<Vec<(String, Option<Value>)>> {
    let none = Map::new();
    let members = |document: &Object| match document.get("attributes") {
        None | Some(Value::Null) => Ok(none.clone()),
        Some(Value::Object(members)) => Ok(members.clone()),
        Some(other) => refused("attributes", Some(other), "an object is needed"),
    };
    Ok(changes(&members(base)?, &members(new)?))
}

/// Returns changes of members that neither Zarr nor the mount knows. They must be ignorable.
fn members(base: &Object, new: &Object) -> Result<Vec<(String, Option<Value>)>> {
    let other = |document: &Object| -> Object {
        let unknown = |(name, _): &(&String, &Value)| !COMPARED.contains(&name.as_str());
        document.iter().filter(unknown).map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    let changes = changes(&other(base), &other(new));
    let strange = changes.iter().find(|(_, value)| !value.as_ref().is_none_or(may_be_ignored));
    match strange {
        Some((name, _)) => Err(Error::invalid(format!(
            "member {name:?} is not known: it needs \"must_understand\": false"
        ))),
        None => Ok(changes),
    }
}

/// Returns the members to set and to remove to change `base` to `new`.
fn changes(base: &Object, new: &Object) -> Vec<(String, Option<Value>)> {
    let set = new
        .iter()
        .filter(|(name, value)| {
            !base.get(*name).is_some_and(|base| same_and_of_one_type(base, value))
        })
        .map(|(name, value)| (name.clone(), Some(value.clone())));
    let removed = base.keys().filter(|name| !new.contains_key(*name));
    set.chain(removed.map(|name| (name.clone(), None))).collect()
}
