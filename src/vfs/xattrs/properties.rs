//! The properties of nodes and chunks as extended attributes, `user.zarr.*`.

use serde_json::{Value, json};

use crate::codec::CodecSpec;
use crate::error::Result;
use crate::hierarchy::Content;
use crate::json;
use crate::vfs::contents::forms::Shown;
use crate::vfs::core::Core;
use crate::vfs::inodes::place::Place;

/// How the names of all properties begin.
pub(super) const ZARR: &str = "user.zarr.";

/// Whether the chunk files of an array show decoded or encoded (`stored`) chunks. It can be set.
pub(super) const SHOWN: &str = "user.zarr.shown";

/// Returns the names and values of the properties of what a place shows: of a node or a chunk.
pub(super) fn properties(core: &Core, place: Option<&Place>) -> Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    match place {
        Some(Place::Node(path) | Place::Document(path)) => {
            let node = core.hierarchy.existing(path)?;
            if node.is_bare() {
                return Ok(all);
            }
            all.push((format!("{ZARR}dialect"), core.hierarchy.dialect_of(path).name().to_owned()));
            if let Content::Array(array) = node.content() {
                let model = array.model();
                let mut add = |name: &str, value: Value| {
                    all.push((format!("{ZARR}{name}"), text(&value)));
                };
                add("shape", json!(model.shape));
                add("data_type", Value::String(model.dtype.name()));
                add("chunk_shape", array.chunk_shape_json());
                if let Some(shards) = array.shard_shape_json() {
                    add("shard_shape", shards);
                }
                add("codecs", Value::Array(model.codecs.iter().map(CodecSpec::to_json).collect()));
                add("fill_value", model.fill.to_json(&model.dtype));
                if !model.dimension_names.is_empty() {
                    add("dimension_names", json!(model.dimension_names));
                }
                add("lossy", json!(array.is_lossy()));
                let is_encoded = core.hierarchy.forms.encoded_chunks(path, model).is_some();
                let shown = if is_encoded { Shown::Stored } else { Shown::Decoded };
                all.push((SHOWN.to_owned(), shown.name().to_owned()));
            }
        }
        Some(Place::Chunk(path, coords)) => {
            let array = core.shown_array_at(path, coords.indices())?;
            all.push((format!("{ZARR}key"), array.key(coords)?.to_string()));
            if let Some(stat) = array.stat(coords)? {
                all.push((format!("{ZARR}stored_size"), stat.len.to_string()));
            }
            all.push((format!("{ZARR}indices"), text(&json!(coords.indices()))));
            if !array.grid().is_regular() && array.grid().contains(coords) {
                let chunk_shape = json!(array.chunk_shape_at(coords)?);
                all.push((format!("{ZARR}chunk_shape"), text(&chunk_shape)));
            }
        }
        _ => {}
    }
    Ok(all)
}

/// Returns a string as it is, and any other value as JSON.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| json::compact(value), |text| json::plain(text).into_owned())
}
