//! The documents that the mount shows: strict Zarr 3.0, of the files beside them.
//!
//! Chunks are shown decoded, so there is one codec, `bytes`, and the chunk shape is that
//! of the smallest unit that can be read by itself. Numbers keep the text they are stored with.

use serde_json::{Value, json};

use super::codecs::plain;
use super::json::parse;
use super::model::{Array, Group, Object};
use super::{NodeKind, rectilinear};

/// The document of an array whose chunk files have `chunk_shape`.
pub fn array(array: &Array, chunk_shape: &[u64]) -> String {
    let mut document = Object::new();
    let mut member = |name: &str, value: Value| document.insert(name.to_owned(), value);
    member("zarr_format", json!(3));
    member("node_type", json!("array"));
    member("shape", json!(array.shape));
    member("data_type", array.dtype.to_json());
    let regular = || json!({"name": "regular", "configuration": {"chunk_shape": chunk_shape}});
    member(
        "chunk_grid",
        array.rectilinear.as_ref().map_or_else(regular, |runs| rectilinear::to_json(runs)),
    );
    member("chunk_key_encoding", json!({"name": "default", "configuration": {"separator": "/"}}));
    member("fill_value", array.fill.to_json(&array.dtype));
    member("codecs", json!([plain(&array.dtype).to_json()]));
    member("attributes", Value::Object(array.attributes.clone()));
    if !array.dimension_names.is_empty() {
        member("dimension_names", json!(array.dimension_names));
    }
    member("storage_transformers", json!([]));
    print(&Value::Object(document))
}

/// The document of a group; `consolidated` is made of documents that are shown, where the store has such metadata.
pub fn group(group: &Group, consolidated: Option<Value>) -> String {
    let mut document = Object::new();
    document.insert("zarr_format".to_owned(), json!(3));
    document.insert("node_type".to_owned(), json!("group"));
    document.insert("attributes".to_owned(), Value::Object(group.attributes.clone()));
    if let Some(consolidated) = consolidated {
        document.insert("consolidated_metadata".to_owned(), consolidated);
    }
    print(&Value::Object(document))
}

/// The document of a node that was not understood: the stored one, as strict JSON if it can be had.
///
/// Whatever the node is, nothing is made up for it.
pub fn not_understood(_kind: NodeKind, stored: &[u8]) -> String {
    match parse(stored) {
        Ok(document) => print(&document),
        Err(_) => String::from_utf8_lossy(stored).into_owned(),
    }
}

fn print(document: &Value) -> String {
    format!("{document:#}\n")
}
