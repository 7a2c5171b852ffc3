//! Zarr 2: `.zarray`, `.zgroup` and `.zattrs`. Here the attributes are already joined into the
//! metadata file as its member `attributes`.
//!
//! ```text
//! {"zarr_format": 2, "shape": [7, 10], "chunks": [3, 4], "dtype": "<i4", "compressor": {"id": "zlib", "level": 1},
//!  "fill_value": 0, "order": "C", "filters": null, "dimension_separator": "."}
//! ```
//!
//! `order` F becomes a transpose at the start, the byte order of the type becomes the codec
//! `bytes`, and the filters and the compressor become the codecs `numcodecs.*`. In an array of
//! objects, the codec of the objects decides their type: strings (`vlen-utf8`, `json2`) or bytes.
//!
//! <https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html>

mod fill;

use serde_json::{Value, json};

pub(super) use self::fill::{fill_to_json, fill_value};
use super::codecs::{self, EncodedElements};
use super::members::{attributes, check_size, chunk_lengths, lengths, required, separator};
use super::model::{ArrayMetadata, Group, KeyEncoding, Lowered, NodeKind, NodeMetadata, Separator};
use super::types::{Endian, data_type};
use super::{conventions, ome};
use zarrfs_base::error::{Error, Result};
use zarrfs_codec::CodecSpec;
use zarrfs_codec::dtype::{DType, FillValue, integer};
use zarrfs_codec::json::Object;
use zarrfs_codec::json::{self, describe};
use zarrfs_codec::table::{self, CodecKind};
use zarrfs_codec::{foreign, registry};

/// The metadata file of an array.
pub(super) const ZARRAY: &str = ".zarray";

/// The metadata file of a group.
pub(super) const ZGROUP: &str = ".zgroup";

/// The attributes of a node.
pub(super) const ZATTRS: &str = ".zattrs";

/// The copies of all metadata files below a group.
pub(super) const ZMETADATA: &str = ".zmetadata";

/// The members that every array has (v2, "Metadata").
const MEMBERS: [&str; 8] =
    ["zarr_format", "shape", "chunks", "dtype", "compressor", "fill_value", "order", "filters"];

/// Lowers a metadata file of a node of `kind`.
pub(super) fn lower(kind: NodeKind, text: &[u8]) -> Lowered {
    let node = json::parse_object(text).and_then(|document| {
        check_format(&document)?;
        match kind {
            NodeKind::Array => array(&document).map(|array| NodeMetadata::Array(Box::new(array))),
            NodeKind::Group => group(&document).map(NodeMetadata::Group),
        }
    });
    Lowered { kind, node }
}

/// Returns where the metadata of an array that zarrfs can read depart from v2 ("Metadata"). Other
/// programs refuse them.
pub(super) fn departure(document: &Object) -> Option<String> {
    if !document.contains_key("shape") {
        return None;
    }
    let missing = MEMBERS.into_iter().find(|name| !document.contains_key(*name));
    let order = document.get("order").and_then(Value::as_str);
    match missing {
        Some(name) => Some(format!("{name} is missing")),
        None if !matches!(order, Some("C" | "F")) => Some("order is neither C nor F".to_owned()),
        None => None,
    }
}

fn check_format(document: &Object) -> Result<()> {
    let format = required(document, "zarr_format")?;
    if format.as_number().and_then(|number| integer(number.as_str())) != Some(2) {
        return Err(Error::invalid(format!("zarr_format is {}, not 2", describe(format))));
    }
    Ok(())
}

fn group(document: &Object) -> Result<Group> {
    let attributes = ome::ome_to_v3(attributes(document)?);
    Ok(Group { attributes, consolidated: false })
}

/// Returns the metadata file of a group.
pub(super) fn group_document() -> String {
    format!("{:#}\n", json!({"zarr_format": 2}))
}

fn array(document: &Object) -> Result<ArrayMetadata> {
    let shape = lengths(required(document, "shape")?, "shape")?;
    let rank = shape.len();
    let chunk_shape = chunk_lengths(required(document, "chunks")?, &shape)?;
    let filters = filters(document)?;
    let (dtype, endian) = element_type(document, &filters)?;
    let endian = endian.unwrap_or(Endian::Little);
    check_size(&shape, &dtype, "the array")?;
    check_size(&chunk_shape, &dtype, "a chunk")?;
    let fill = fill_value(document, &dtype, &endian)?;
    let (dimension_names, attributes) =
        shown_attributes(attributes(document)?, &fill, &dtype, rank);
    let compressor = document.get("compressor").filter(|found| !found.is_null());
    let compressor = compressor.map(numcodec).transpose()?;
    let chain = chain(document, rank, filters, compressor)?;
    // The result of a filter has the byte order that the filter names.
    let changes_type =
        |codec: &CodecSpec| table::find(&codec.name).is_some_and(|row| row.names_type);
    let endian = if chain.iter().any(changes_type) { Endian::Little } else { endian };
    Ok(ArrayMetadata {
        chunk_shape,
        rectilinear: None,
        fill,
        key_encoding: key_encoding(document)?,
        codecs: codecs::canonical(chain, &EncodedElements { rank, dtype: dtype.clone(), endian })?,
        dimension_names,
        attributes,
        shape,
        dtype,
    })
}

/// Returns the names of dimensions and the attributes of an array in the form of Zarr 3.
pub(super) fn shown_attributes(
    mut attributes: Object,
    fill: &FillValue,
    dtype: &DType,
    rank: usize,
) -> (Vec<Option<String>>, Object) {
    let names = attributes.get(conventions::DIMENSIONS);
    let is_named = names.is_some_and(|names| conventions::names_of(names, rank).is_some());
    let names = conventions::take_names(&mut attributes, rank);
    if is_named {
        mask(&mut attributes, fill, dtype);
    }
    (names, attributes)
}

/// Returns the type and the fill value of an array, from its metadata file.
pub(super) fn masked_by(document: &Object) -> Result<(DType, FillValue)> {
    let array = array(document)?;
    Ok((array.dtype, array.fill))
}

/// Returns a fill value in the form of an array's metadata file.
pub(super) fn stored_fill(document: &Object, fill: &FillValue) -> Result<Value> {
    let filters = filters(document)?;
    let (dtype, endian) = element_type(document, &filters)?;
    fill_to_json(fill, &dtype, &endian.unwrap_or(Endian::Little))
}

/// Returns the codecs in the order of encoding: layout, filters, compressor.
fn chain(
    document: &Object,
    rank: usize,
    filters: Vec<CodecSpec>,
    compressor: Option<CodecSpec>,
) -> Result<Vec<CodecSpec>> {
    let mut chain = Vec::new();
    match document.get("order").filter(|order| !order.is_null()) {
        None => {}
        Some(Value::String(order)) if order == "C" => {}
        Some(Value::String(order)) if order == "F" => {
            let order = json!(codecs::reversed(rank));
            let configuration = Object::from_iter([("order".to_owned(), order)]);
            // numcodecs writes a list of objects row by row, whatever their order in memory.
            let is_list = |filter: &CodecSpec| {
                matches!(filter.name.as_str(), "numcodecs.json2" | "numcodecs.msgpack2")
            };
            let moves = rank > 1 && !filters.iter().any(is_list);
            chain.extend(moves.then(|| CodecSpec::new("transpose", configuration)));
        }
        Some(other) => {
            return Err(Error::corrupt(format!("order is {}, neither C nor F", describe(other))));
        }
    }
    chain.extend(filters);
    chain.extend(compressor);
    let mut makes_bytes = false;
    for codec in &chain {
        match table::kind(&codec.name) {
            CodecKind::ArrayToArray | CodecKind::ArrayToBytes if makes_bytes => {
                return Err(Error::unsupported(format!(
                    "filter {:?} comes after a filter that works on bytes",
                    codec.written()
                )));
            }
            CodecKind::ArrayToArray => {}
            CodecKind::ArrayToBytes | CodecKind::BytesToBytes => makes_bytes = true,
        }
    }
    Ok(chain)
}

/// Returns the type of an array, and its byte order if it has one.
fn element_type(document: &Object, filters: &[CodecSpec]) -> Result<(DType, Option<Endian>)> {
    let written = required(document, "dtype")?;
    if let Some(dtype) = object_type(written, filters) {
        return Ok((dtype, None));
    }
    data_type(written).map_err(|error| {
        // The filter alone says what such objects are.
        let unknown = filters.iter().find(|filter| foreign::find(&filter.name).is_some());
        unknown.map_or(error, registry::unknown)
    })
}

/// Returns the type of the objects of an array, from the first codec that takes objects.
pub(super) fn object_type(dtype: &Value, filters: &[CodecSpec]) -> Option<DType> {
    if dtype != "|O" && dtype != "O" {
        return None;
    }
    filters.iter().find_map(|filter| match filter.name.as_str() {
        "vlen-bytes" => Some(DType::VariableBytes),
        "vlen-utf8"
        | "numcodecs.json2"
        | "numcodecs.msgpack2"
        | "numcodecs.categorize"
        | "numcodecs.pickle" => Some(DType::String),
        _ => None,
    })
}

fn filters(document: &Object) -> Result<Vec<CodecSpec>> {
    match document.get("filters") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(filters)) => filters.iter().map(numcodec).collect(),
        Some(other) => Err(Error::corrupt(format!("filters are {}, not a list", describe(other)))),
    }
}

/// Returns a filter or a compressor. Its parameters are beside its `id`.
fn numcodec(value: &Value) -> Result<CodecSpec> {
    let id = value.get("id").and_then(Value::as_str);
    let id = id.ok_or_else(|| Error::corrupt(format!("codec {} has no id", describe(value))))?;
    let mut configuration = value.as_object().cloned().unwrap_or_default();
    configuration.shift_remove("id");
    Ok(CodecSpec::new(id, configuration).renamed(codecs::draft_name(id)?))
}

/// Sets the attribute `_FillValue` as in Zarr 3, to the masked value: the fill value, or without
/// one the attribute's value in the form of Zarr 2.
fn mask(attributes: &mut Object, fill: &FillValue, dtype: &DType) {
    let own = attributes.get(conventions::FILL);
    let own = own.and_then(|value| FillValue::parse(value, dtype).ok());
    let masked = if fill.is_defined() { Some(fill.clone()) } else { own };
    let masked = masked.filter(FillValue::is_defined);
    if let Some(value) = masked.and_then(|fill| conventions::coded_fill(&fill, dtype)) {
        attributes.insert(conventions::FILL.to_owned(), value);
    }
}

/// Returns the form of chunk keys. zarr-python before 2.8 did not store the separator, even if
/// chunks were in nested directories.
fn key_encoding(document: &Object) -> Result<KeyEncoding> {
    match document.get("dimension_separator").filter(|found| !found.is_null()) {
        Some(found) => separator(found).map(KeyEncoding::V2),
        None => Ok(KeyEncoding::V2Undeclared),
    }
}

/// The separator of new arrays, which every reader assumes by default.
pub(super) const SEPARATOR: Separator = Separator::Dot;
