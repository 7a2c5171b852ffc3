//! Zarr v3: core 3.0 and 3.1 as released, and the provisional 3.0 of February 2023 to August 2024.
//!
//! Provisional metadata files have the same `zarr_format` as released ones, so one reader accepts
//! both. In provisional ones the separator may be inside the chunk grid, `type` may replace `name`,
//! the array-to-bytes codec may be absent, and the fill value may be null. Anything that the
//! released specification forbids is an error.

use serde_json::{Value, json};

use super::codecs::{self, EncodedElements};
use super::members::{
    attributes, check_extensions, check_size, chunk_lengths, dimension_names, lengths,
    may_be_ignored, named, required, separator,
};
use super::model::{ArrayMetadata, Group, KeyEncoding, Lowered, NodeKind, NodeMetadata, Separator};
use super::types::{Endian, data_type, numpy_type};
use super::{rectilinear, skim};
use zarrfs_base::error::{Error, Result};
use zarrfs_codec::dtype::{DType, FillValue, integer};
use zarrfs_codec::json::Object;
use zarrfs_codec::json::{self, describe};

/// The name of the metadata file in every directory of a node.
pub(super) const DOCUMENT: &str = "zarr.json";

/// The members of an array's metadata file ("array metadata" of the v3 core specification).
const ARRAY_MEMBERS: [&str; 11] = [
    "zarr_format",
    "node_type",
    "shape",
    "data_type",
    "chunk_grid",
    "chunk_key_encoding",
    "fill_value",
    "codecs",
    "attributes",
    "storage_transformers",
    "dimension_names",
];

/// An ignorable member of zarrfs with the type as NumPy writes it, for structures whose fields are
/// arrays: `data_type` of Zarr 3 has raw bytes for these.
///
/// ```text
/// "numpy_dtype": {"must_understand": false, "dtype": [["x", "<i4"], ["y", "<f8", [2]]]}
/// ```
pub(super) const NUMPY_DTYPE: &str = "numpy_dtype";

/// The members of a group's metadata file.
const GROUP_MEMBERS: [&str; 3] = ["zarr_format", "node_type", "attributes"];

/// Members that any metadata file may have: a cache that only libraries read, and two names of
/// early 2023.
const IGNORED_MEMBERS: [&str; 3] =
    ["consolidated_metadata", "extensions", "descenents_may_have_group_extensions"];

/// Returns the node that a metadata file describes.
pub(super) fn lower(text: &[u8]) -> Lowered {
    let document = match json::parse_object(&skim::without_copies(text)) {
        Ok(document) => document,
        Err(error) => {
            let seems_array = text.windows(7).any(|window| window == b"\"shape\"");
            let kind = if seems_array { NodeKind::Array } else { NodeKind::Group };
            return Lowered { kind, node: Err(error) };
        }
    };
    let kind = match document.get("node_type").and_then(Value::as_str) {
        Some("array") => NodeKind::Array,
        Some("group") => NodeKind::Group,
        Some(_) | None if document.contains_key("shape") => NodeKind::Array,
        Some(_) | None => NodeKind::Group,
    };
    let node = check_document(&document).and_then(|()| match kind {
        NodeKind::Array => array(&document).map(|array| NodeMetadata::Array(Box::new(array))),
        NodeKind::Group => group(&document).map(NodeMetadata::Group),
    });
    Lowered { kind, node }
}

fn check_document(document: &Object) -> Result<()> {
    let format = required(document, "zarr_format")?;
    let number = format.as_number().and_then(|number| integer(number.as_str()));
    if number != Some(3) {
        let detail = format!("zarr_format is {}, not 3", describe(format));
        // A later version is not an error in the metadata.
        let is_later = number.is_some_and(|number| number > 3);
        return Err(if is_later { Error::unsupported(detail) } else { Error::invalid(detail) });
    }
    match document.get("node_type") {
        None => Ok(()),
        Some(kind) if kind == "array" || kind == "group" => Ok(()),
        Some(other) => {
            Err(Error::corrupt(format!("node_type is {}, not array or group", describe(other))))
        }
    }
}

/// The members of an array that Zarr 3 requires, but that drafts of the year before its release and
/// GDAL before 3.13 leave out.
const LATER_MEMBERS: [&str; 2] = ["codecs", "chunk_key_encoding"];

/// Where a metadata file departs from the specification, although it can be read.
#[derive(Debug, PartialEq, Eq)]
pub enum Departure {
    /// It is of a draft: these members are missing or empty.
    Draft(Vec<&'static str>),
    /// A member is missing or wrong.
    Wrong(String),
}

/// Returns where the metadata file of a node departs from v3 core 3.0 ("Array metadata", "Group
/// metadata").
pub(super) fn departure(document: &Object) -> Option<Departure> {
    let wrong = |what: String| Some(Departure::Wrong(what));
    if !document.contains_key("shape") {
        let copies = document.get("consolidated_metadata").unwrap_or(&Value::Null);
        return if !document.contains_key("node_type") {
            wrong("node_type is missing".to_owned())
        } else if copies.is_null() || copies.is_object() {
            None
        } else {
            wrong(format!("consolidated_metadata is {}, not an object", describe(copies)))
        };
    }
    let is_empty = |name: &str| match document.get(name) {
        Some(Value::Array(items)) => items.is_empty(),
        found => found.is_none_or(Value::is_null),
    };
    let later: Vec<&str> = LATER_MEMBERS.into_iter().filter(|name| is_empty(name)).collect();
    if !later.is_empty() {
        return Some(Departure::Draft(later));
    }
    let missing =
        ["node_type", "fill_value"].into_iter().find(|name| !document.contains_key(*name));
    match (missing, document.get("fill_value")) {
        (Some(name), _) => wrong(format!("{name} is missing")),
        (None, Some(Value::Null)) => wrong("fill_value is null".to_owned()),
        _ => None,
    }
}

/// Fails for unknown members, unless they are marked as ignorable ("extension points", v3 core).
fn check_members(document: &Object, known: &[&str]) -> Result<()> {
    check_extensions(document)?;
    for (name, value) in document {
        let named = |known: &[&str]| known.contains(&name.as_str());
        if !named(known) && !named(&IGNORED_MEMBERS) && !may_be_ignored(value) {
            return Err(Error::unsupported(format!(
                "unknown member {name:?} without \"must_understand\": false"
            )));
        }
    }
    Ok(())
}

pub(super) fn group(document: &Object) -> Result<Group> {
    check_members(document, &GROUP_MEMBERS)?;
    Ok(Group { attributes: attributes(document)?, consolidated: is_consolidated(document) })
}

/// Whether the metadata file of a group has inline consolidated metadata.
pub(super) fn is_consolidated(document: &Object) -> bool {
    let consolidated = document.get("consolidated_metadata");
    let kind = consolidated.and_then(|found| found.get("kind")).and_then(Value::as_str);
    kind == Some("inline")
}

pub(super) fn array(document: &Object) -> Result<ArrayMetadata> {
    check_members(document, &ARRAY_MEMBERS)?;
    let shape = lengths(required(document, "shape")?, "shape")?;
    let (dtype, endian) = data_type(required(document, "data_type")?)?;
    let dtype = with_shapes(document, dtype);
    let grid = required(document, "chunk_grid")?;
    let (chunk_shape, rectilinear) = match named(grid) {
        Some((rectilinear::NAME, configuration)) => {
            let runs = rectilinear::parse(configuration, shape.len())?;
            rectilinear::check(&runs, &shape)?;
            (rectilinear::longest(&runs), Some(runs))
        }
        _ => (chunk_shape(grid, &shape)?, None),
    };
    check_size(&shape, &dtype, "the array")?;
    check_size(&chunk_shape, &dtype, "a chunk")?;
    let elements = EncodedElements {
        rank: shape.len(),
        dtype: dtype.clone(),
        endian: endian.unwrap_or(Endian::Little),
    };
    let codecs = codecs::named(codecs::list(document.get("codecs"))?);
    check_transformers(document)?;
    let names = document.get("dimension_names").unwrap_or(&Value::Null);
    Ok(ArrayMetadata {
        fill: FillValue::parse(document.get("fill_value").unwrap_or(&Value::Null), &dtype)?,
        dtype,
        chunk_shape,
        rectilinear,
        key_encoding: key_encoding(document.get("chunk_key_encoding"), grid)?,
        codecs: codecs::canonical(codecs, &elements)?,
        dimension_names: dimension_names(names, shape.len())?,
        attributes: attributes(document)?,
        shape,
    })
}

/// Returns the type with the shapes of its fields, if the metadata file has them in
/// [`NUMPY_DTYPE`]. That type counts only if it is the same without these shapes: programs that do
/// not know the member may have changed the type.
fn with_shapes(document: &Object, dtype: DType) -> DType {
    let found = document.get(NUMPY_DTYPE).and_then(|member| member.get("dtype"));
    match found.and_then(|found| data_type(found).ok()) {
        Some((numpy, _)) if numpy.to_json() == dtype.to_json() => numpy,
        _ => dtype,
    }
}

/// Returns [`NUMPY_DTYPE`] for a type that needs it.
pub(super) fn numpy_dtype(dtype: &DType) -> Option<Value> {
    let numpy = || numpy_type(dtype, &Endian::Little);
    let needs = dtype.has_field_shapes();
    needs.then(|| json!({"must_understand": false, "dtype": numpy()}))
}

pub(super) fn chunk_shape(grid: &Value, shape: &[u64]) -> Result<Vec<u64>> {
    match named(grid) {
        Some(("regular", configuration)) => {
            let found = configuration.get("chunk_shape").or_else(|| grid.get("chunk_shape"));
            let found = found.ok_or_else(|| Error::corrupt("chunk_grid has no chunk_shape"))?;
            chunk_lengths(found, shape)
        }
        Some((other, _)) => Err(Error::unsupported(format!("chunk grid {other:?} is not known"))),
        None => Err(Error::corrupt("chunk_grid has no name")),
    }
}

/// Returns a key encoding of Zarr 3 as JSON; those of other dialects as `default`.
pub(super) fn key_encoding_to_json(encoding: KeyEncoding) -> Value {
    let (name, separator) = match encoding {
        KeyEncoding::Default(separator) => ("default", separator),
        KeyEncoding::V2(separator) => ("v2", separator),
        KeyEncoding::V2Undeclared | KeyEncoding::N5 | KeyEncoding::Draft(_) => {
            ("default", Separator::Slash)
        }
    };
    json!({"name": name, "configuration": {"separator": separator.as_str()}})
}

/// Returns the encoding of keys. The separator may be in any of several places.
pub(super) fn key_encoding(encoding: Option<&Value>, grid: &Value) -> Result<KeyEncoding> {
    let in_grid = || grid.get("separator").or_else(|| grid.get("configuration")?.get("separator"));
    let found = |configuration: Option<&Value>, default| {
        let value = configuration.and_then(|found| found.get("separator").cloned());
        match value.or_else(|| in_grid().cloned()).filter(|value| !value.is_null()) {
            Some(value) => separator(&value),
            None => Ok(default),
        }
    };
    let Some(encoding) = encoding.filter(|encoding| !encoding.is_null()) else {
        return found(None, Separator::Slash).map(KeyEncoding::Default);
    };
    match named(encoding) {
        Some(("default", configuration)) => {
            found(Some(configuration), Separator::Slash).map(KeyEncoding::Default)
        }
        Some(("v2", configuration)) => {
            found(Some(configuration), Separator::Dot).map(KeyEncoding::V2)
        }
        Some((other, _)) => {
            Err(Error::unsupported(format!("chunk key encoding {other:?} is not known")))
        }
        None => Err(Error::corrupt("chunk_key_encoding has no name")),
    }
}

/// Fails for storage transformers: released v3 defines none, and ignoring one misreads the chunks.
fn check_transformers(document: &Object) -> Result<()> {
    match document.get("storage_transformers") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Array(list)) if list.is_empty() => Ok(()),
        Some(other) => {
            let first = other
                .get(0)
                .and_then(named)
                .map_or_else(|| describe(other), |(name, _)| name.to_owned());
            Err(Error::unsupported(format!("storage transformer {first} is not known")))
        }
    }
}
