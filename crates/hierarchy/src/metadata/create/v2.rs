//! New metadata files in Zarr 2, in forms that every reader accepts, with the attributes as a
//! member.

use serde_json::{Value, json};

use super::splice::{New, put};
use crate::metadata::codecs::{self, EncodedElements};
use crate::metadata::conventions::{self, DIMENSIONS, FILL, names_of};
use crate::metadata::model::{ArrayMetadata, Group, KeyEncoding, Separator};
use crate::metadata::ome::{self, OME};
use crate::metadata::types::{Endian, numpy_type};
use crate::metadata::v2::{SEPARATOR, fill_to_json, shown_attributes};
use crate::metadata::v3::NUMPY_DTYPE;
use zarrfs_base::error::{Error, Result};
use zarrfs_codec::CodecSpec;
use zarrfs_codec::dtype::{DType, FillValue};
use zarrfs_codec::json::Object;
use zarrfs_codec::json::{self, Text};
use zarrfs_codec::table::{self, CodecKind, CodecRow};

/// Members of released v3 and of the drafts.
const DROPPED: [&str; 13] = [
    "node_type",
    "data_type",
    "chunk_grid",
    "chunk_key_encoding",
    "codecs",
    "dimension_names",
    "storage_transformers",
    "consolidated_metadata",
    "descenents_may_have_group_extensions",
    "extensions",
    "chunk_memory_layout",
    "separator",
    NUMPY_DTYPE,
];

/// Changes `text`, which a program wrote, to the stored metadata file of a group, and returns the
/// group that it must describe.
pub(super) fn group(text: &mut Text, document: &Object) -> Result<Group> {
    node(text, document)?;
    let attributes = attributes_in(text)?;
    if let Some(members) = attributes.get(OME).and_then(ome::ome_to_v2)
        && members.keys().all(|name| !attributes.contains_key(name))
    {
        let mut old = attributes.clone();
        old.shift_remove(OME);
        old.extend(members.clone());
        // Otherwise a reader would not know what it is.
        if ome::ome_to_v3(old).contains_key(OME) {
            text.remove(&["attributes", OME])?;
            for (name, value) in &members {
                text.set(&["attributes", name], value)?;
            }
        }
    }
    let attributes = ome::ome_to_v3(attributes_in(text)?);
    Ok(Group { attributes, consolidated: false })
}

fn node(text: &mut Text, document: &Object) -> Result<()> {
    put(text, document, "zarr_format", &json!(2))?;
    DROPPED.iter().try_for_each(|name| text.remove(&[name]))?;
    Ok(())
}

/// Returns the attributes in the string of a metadata file.
fn attributes_in(text: &Text) -> Result<Object> {
    match text.member(&["attributes"])? {
        None | Some("null") => Ok(Object::new()),
        Some(attributes) => json::parse_object(attributes.as_bytes()),
    }
}

/// Changes `text`, which a program wrote, to the stored metadata file of an array, and returns the
/// array that it must describe.
pub(super) fn array(
    text: &mut Text,
    document: &Object,
    array: ArrayMetadata,
    new: New,
) -> Result<ArrayMetadata> {
    let (rank, dtype) = (array.shape.len(), array.dtype.clone());
    if new.shards.is_some() {
        return Err(Error::invalid("Zarr 2 has no shards: use --shards none"));
    }
    if matches!(dtype, DType::Complex(4) | DType::ComplexNarrow(_)) {
        return Err(Error::invalid(format!(
            "data type {} cannot be expressed in Zarr 2: use complex64 or complex128",
            dtype.name()
        )));
    }
    let V2Codecs { reversed, endian, filters, compressor } = V2Codecs::new(new.chain, rank)?;
    node(text, document)?;
    put(text, document, "shape", &json!(array.shape))?;
    text.set(&["chunks"], &json!(new.chunk_shape))?;
    text.set(&["dtype"], &numpy_type(&dtype, &endian))?;
    text.set(
        &["compressor"],
        &compressor.as_ref().map_or(Value::Null, |(_, value)| value.clone()),
    )?;
    text.set(&["order"], &json!(if reversed { "F" } else { "C" }))?;
    let values: Vec<&Value> = filters.iter().map(|(_, value)| value).collect();
    text.set(&["filters"], &if values.is_empty() { Value::Null } else { json!(values) })?;
    let separator = match array.key_encoding {
        KeyEncoding::Default(Separator::Slash) => SEPARATOR,
        written => written.separator(),
    };
    text.set(&["dimension_separator"], &json!(separator.as_str()))?;
    name(text, document, &array)?;
    let fill = mask(text, &array)?;
    text.set(&["fill_value"], &fill_to_json(&fill, &dtype, &endian)?)?;
    let order = reversed && rank > 1;
    let order = order.then(|| {
        let order = json!(codecs::reversed(rank));
        CodecSpec::new("transpose", Object::from_iter([("order".to_owned(), order)]))
    });
    let specs = filters.into_iter().chain(compressor).map(|(spec, _)| spec);
    let chain: Vec<CodecSpec> = order.into_iter().chain(specs).collect();
    let changes_type =
        |codec: &CodecSpec| table::find(&codec.name).is_some_and(|row| row.names_type);
    let endian = if chain.iter().any(changes_type) { Endian::Little } else { endian };
    let elements = EncodedElements { rank, dtype: dtype.clone(), endian };
    let (dimension_names, attributes) = shown_attributes(attributes_in(text)?, &fill, &dtype, rank);
    Ok(ArrayMetadata {
        chunk_shape: new.chunk_shape,
        key_encoding: KeyEncoding::V2(separator),
        codecs: codecs::canonical(chain, &elements)?,
        fill,
        dimension_names,
        attributes,
        ..array
    })
}

/// Stores the names of dimensions in xarray's attribute.
fn name(text: &mut Text, document: &Object, array: &ArrayMetadata) -> Result<()> {
    let names = &array.dimension_names;
    if array.shape.is_empty() {
        // xarray cannot open an array without this attribute, even if the array has no dimensions.
        let is_set = array.attributes.contains_key(DIMENSIONS)
            || document.get("dimension_names").is_some_and(Value::is_null);
        return if is_set { Ok(()) } else { text.set(&["attributes", DIMENSIONS], &json!([])) };
    }
    if names.iter().all(Option::is_none) {
        return Ok(());
    }
    let attribute = array.attributes.get(DIMENSIONS);
    if attribute.and_then(|value| names_of(value, array.shape.len())).as_ref() == Some(names) {
        return Ok(());
    }
    let all: Option<Vec<&str>> = names.iter().map(Option::as_deref).collect();
    match all {
        Some(all) if attribute.is_none() => text.set(&["attributes", DIMENSIONS], &json!(all)),
        Some(_) => Err(Error::invalid(
            "dimension_names and the attribute _ARRAY_DIMENSIONS differ, and Zarr 2 has one place for both",
        )),
        None => Err(Error::invalid("dimension_names need a name for every dimension in Zarr 2")),
    }
}

/// Returns the fill value to store, and sets the attribute `_FillValue`, both as xarray uses them
/// in Zarr 2: if dimensions have names, the stored fill value is the masked value, and undefined if
/// there is none.
fn mask(text: &mut Text, array: &ArrayMetadata) -> Result<FillValue> {
    let names_none = text.member(&["attributes", DIMENSIONS])?.is_some();
    let rank = array.shape.len();
    let are_names = |value| names_of(value, rank).is_some();
    let is_named = (array.shape.is_empty() && names_none)
        || array.dimension_names.iter().any(Option::is_some)
        || array.attributes.get(DIMENSIONS).is_some_and(are_names);
    let masked = array.attributes.get(FILL).map(|value| {
        conventions::decoded_fill(value, &array.dtype).ok_or_else(|| {
            Error::invalid(format!("_FillValue {value} is not a valid {}", array.dtype.name()))
        })
    });
    let fill = array.fill.clone();
    if !is_named {
        return Ok(fill);
    }
    let is_zero = fill.item(&array.dtype).iter().all(|byte| *byte == 0);
    let is_nan = |fill: &FillValue| fill.to_json(&array.dtype) == "NaN";
    match masked.transpose()? {
        // Masking it changes nothing: no element equals it, and a masked element reads as it.
        None if conventions::is_masked_by_itself(&fill, &array.dtype) => Ok(fill),
        // Otherwise elements that equal the fill value would be masked. Missing chunks then read
        // as zero, so `convert` also stores them if that is another value, and a mount refuses.
        None => Ok(FillValue::UNDEFINED),
        Some(masked) if masked == fill || is_nan(&fill) => {
            text.remove(&["attributes", FILL])?;
            Ok(masked)
        }
        // xarray takes a list for several values, so it must be the fill value. Missing chunks then
        // read as it.
        Some(masked) if is_zero && matches!(array.dtype, DType::Complex(_)) => {
            text.remove(&["attributes", FILL])?;
            Ok(masked)
        }
        Some(masked) if is_zero => {
            let value = fill_to_json(&masked, &array.dtype, &Endian::Little)?;
            text.set(&["attributes", FILL], &value)?;
            Ok(FillValue::UNDEFINED)
        }
        Some(_) => Err(Error::invalid(
            "fill_value and _FillValue differ, and Zarr 2 has one value for both: use the same, or fill_value 0",
        )),
    }
}

/// Returns the byte order of a filter's decoded elements, which is that of the array, if the filter
/// specifies one.
fn decoded_order(filter: &CodecSpec) -> Option<Endian> {
    if table::kind(&filter.name) != CodecKind::ArrayToArray {
        return None;
    }
    let member = |name| filter.configuration.get(name).and_then(Value::as_str);
    let dtype = member("decode_dtype").or_else(|| member("dtype"))?;
    match dtype.chars().next()? {
        '<' => Some(Endian::Little),
        '>' => Some(Endian::Big),
        _ => None,
    }
}

/// A codec, and its form in Zarr 2.
pub(in crate::metadata) type Numcodec = (CodecSpec, Value);

/// The codecs in the form of Zarr 2.
pub(in crate::metadata) struct V2Codecs {
    /// Whether the first dimension is the fastest.
    pub(in crate::metadata) reversed: bool,
    pub(in crate::metadata) endian: Endian,
    pub(in crate::metadata) filters: Vec<Numcodec>,
    pub(in crate::metadata) compressor: Option<Numcodec>,
}

impl V2Codecs {
    pub(super) fn new(codecs: Vec<CodecSpec>, rank: usize) -> Result<Self> {
        let (mut reversed, mut endian) = (false, Endian::Little);
        let mut filters = Vec::new();
        for codec in codecs {
            match codec.name.as_str() {
                "transpose" => {
                    let order = codec.configuration.get("order").unwrap_or(&Value::Null);
                    if *order != json!(codecs::reversed(rank)) || reversed || !filters.is_empty() {
                        return Err(Error::invalid(format!(
                            "transpose {order} cannot be expressed in Zarr 2, which reverses all \
                             dimensions (\"F\") or none: \
                             use other --codecs"
                        )));
                    }
                    reversed = true;
                }
                "bytes" => {
                    let big = codec.configuration.get("endian").is_some_and(|found| found == "big");
                    endian = if big { Endian::Big } else { Endian::Little };
                }
                _ => filters.push(numcodec(codec)?),
            }
        }
        let is_last_of_bytes = filters
            .last()
            .is_some_and(|(spec, _): &Numcodec| table::kind(&spec.name) == CodecKind::BytesToBytes);
        let compressor = if is_last_of_bytes { filters.pop() } else { None };
        let endian = filters.first().and_then(|(spec, _)| decoded_order(spec)).unwrap_or(endian);
        Ok(Self { reversed, endian, filters, compressor })
    }
}

/// Returns the codec in the form of Zarr 2, together with the codec that readers parse from it.
fn numcodec(codec: CodecSpec) -> Result<Numcodec> {
    let id = codec.name.strip_prefix("numcodecs.").unwrap_or(&codec.name).to_owned();
    let is_known = table::find(&codec.name).is_some_and(|row| row.in_zarr2);
    if !is_known && !codec.name.starts_with("numcodecs.") {
        let remedy = if codec.name == "sharding_indexed" {
            "make the array without shards, or mount a store of Zarr 3".to_owned()
        } else {
            let is_usual = |row: &CodecRow| row.in_zarr2 && !row.name.contains("imagecodecs");
            format!("use one of {}", table::ids(is_usual).join(", "))
        };
        return Err(Error::invalid(format!(
            "codec {:?} cannot be expressed in Zarr 2: {remedy}",
            codec.name
        )));
    }
    let parameters = codecs::numcodecs_parameters(&id, codec.configuration);
    let mut value = Object::from_iter([("id".to_owned(), json!(id))]);
    value.extend(parameters.clone());
    Ok((CodecSpec::new(&codecs::draft_name(&id)?, parameters), Value::Object(value)))
}
