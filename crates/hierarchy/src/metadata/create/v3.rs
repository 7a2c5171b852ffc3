//! New metadata files in released v3, in forms of 3.0 that every reader knows.

use serde_json::{Value, json};

use super::splice::{New, put, put_attributes, put_fill};
use crate::metadata::codecs;
use crate::metadata::model::{ArrayMetadata, KeyEncoding};
use crate::metadata::policy::ShardGrid;
use crate::metadata::shown::{grid_to_json, has_old_name};
use crate::metadata::types;
use crate::metadata::v3::key_encoding_to_json;
use zarrfs_base::error::Result;
use zarrfs_codec::CodecSpec;
use zarrfs_codec::dtype::DType;
use zarrfs_codec::json::Object;
use zarrfs_codec::json::Text;

/// Members of early 2023, and copies of other metadata files.
const DROPPED: [&str; 3] =
    ["consolidated_metadata", "extensions", "descenents_may_have_group_extensions"];

/// Changes `text`, which a program wrote, to the stored metadata file of a group.
pub(super) fn group(text: &mut Text, document: &Object) -> Result<()> {
    node(text, document, "group")
}

/// Changes `text`, which a program wrote, to the stored metadata file of an array, and returns the
/// array that it must describe.
pub(super) fn array(
    text: &mut Text,
    document: &Object,
    array: ArrayMetadata,
    new: New,
) -> Result<ArrayMetadata> {
    let mut new = new;
    if let (DType::Struct(_), None) = (&array.dtype, new.encoded) {
        // zarr-python does not reverse the fields of such structures as it declares.
        for codec in new.chain.iter_mut().filter(|codec| codec.name == "bytes") {
            codec.configuration.insert("endian".to_owned(), json!("little"));
        }
    }
    let (grid, codecs) = if let Some(shards) = new.shards.take() {
        let endian = Object::from_iter([("endian".to_owned(), json!("little"))]);
        let index = [CodecSpec::new("bytes", endian), CodecSpec::new("crc32c", Object::new())];
        (shards, vec![codecs::sharded_with(&new.chain, &new.chunk_shape, &index)])
    } else {
        let rectilinear = array.rectilinear.clone();
        (ShardGrid { shape: new.chunk_shape, rectilinear }, new.chain)
    };
    let (written_grid, ShardGrid { shape: chunk_shape, rectilinear }) = (array.rectilinear, grid);
    let array = ArrayMetadata { chunk_shape, rectilinear, codecs, ..array };
    node(text, document, "array")?;
    put(text, document, "shape", &json!(array.shape))?;
    put(text, document, "data_type", &data_type(document, &array))?;
    // A program may spell a rectilinear grid in many ways.
    if array.rectilinear.is_none() || array.rectilinear != written_grid {
        let grid = grid_to_json(&array.chunk_shape, array.rectilinear.as_deref());
        put(text, document, "chunk_grid", &grid)?;
    }
    let written = document.get("chunk_key_encoding");
    if written.is_none_or(|written| !written.is_object())
        || array.key_encoding == KeyEncoding::default()
    {
        let encoding = key_encoding_to_json(array.key_encoding);
        put(text, document, "chunk_key_encoding", &encoding)?;
    }
    let fill = match (&array.dtype, document.get("fill_value")) {
        // Libraries with such types write and read base64; the core specification has a list.
        (DType::Raw(_), Some(written @ Value::String(text))) if is_base64(text) => written.clone(),
        (DType::Raw(_), Some(written @ Value::Array(_))) => written.clone(),
        // A program that writes the old name of structures reads only this form.
        (DType::Struct(_), _) if has_old_name(document) => array.fill.to_base64(&array.dtype),
        _ => array.fill.to_json(&array.dtype),
    };
    put_fill(text, document, &array.dtype, &fill)?;
    if !new.is_as_written {
        let codecs = array.codecs.iter().map(|codec| codecs::configured(codec.to_json())).collect();
        put(text, document, "codecs", &codecs)?;
    }
    for name in ["storage_transformers", "dimension_names"] {
        if document.get(name).is_some_and(Value::is_null) {
            text.remove(&[name])?;
        }
    }
    Ok(array)
}

fn node(text: &mut Text, document: &Object, kind: &str) -> Result<()> {
    put(text, document, "zarr_format", &json!(3))?;
    put(text, document, "node_type", &json!(kind))?;
    put_attributes(text, document)?;
    DROPPED.iter().try_for_each(|name| text.remove(&[name]))
}

/// Returns the name of the type. Keeps zarr-python's name of raw bytes, the only one that it reads.
fn data_type(document: &Object, array: &ArrayMetadata) -> Value {
    let written = document.get("data_type").unwrap_or(&Value::Null);
    let name = written.get("name").or_else(|| written.get("type"));
    if name.is_some_and(|name| name == "raw_bytes") {
        let length = array.dtype.item_len();
        return json!({"name": "raw_bytes", "configuration": {"length_bytes": length}});
    }
    if matches!(array.dtype, DType::Raw(_)) {
        return json!(array.dtype.name());
    }
    // More libraries may know the spelling that the program wrote.
    let released = array.dtype.to_json();
    let is_same = || types::data_type(written).is_ok_and(|(dtype, _)| dtype == array.dtype);
    if released.is_object() && written.is_object() && is_same() {
        written.clone()
    } else {
        released
    }
}

/// Whether the fill value of raw bytes is base64 and not a pattern of digits as in the drafts.
fn is_base64(text: &str) -> bool {
    !["0x", "0X", "0b", "0B"].iter().any(|head| text.starts_with(head))
}
