//! The facts about a node, as `zarrfs info --json` prints them.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use super::dialect_name;
use super::image;
use super::stored::{self, StoredChunks};
use crate::array::Array;
use crate::cache::ChunkCache;
use crate::cli::failure::Failure;
use crate::cli::open::remote;
use crate::codec::CodecSpec;
use crate::dtype::to_float;
use crate::hierarchy::{Content, Hierarchy, Node, ReadExtent};
use crate::json::Object;
use crate::view::{ElementRange, FORMATS, GetChunk, Glance, View, ViewSource};

/// The most names in a group to check for nodes.
const MAX_LOOKED_AT: usize = 10_000;

/// The cache size in bytes for values in headers.
const CACHE_LEN: u64 = 64 << 20;

/// The default `--cache-size` of a mount.
const MOUNT_CACHE_LEN: u64 = 256 << 20;

/// Chunks of fewer decoded bytes get a remark.
const SMALL_CHUNK: u64 = 64 << 10;

/// Chunks of more decoded bytes get a remark.
const LARGE_CHUNK: u64 = 256 << 20;

/// Returns the facts about a node. `typed` is the path that the user typed.
pub fn facts(hierarchy: &Hierarchy, node: &Node, typed: &Path) -> Result<Object, Failure> {
    let mut facts = Object::new();
    let mut add = |name: &str, value: Value| drop(facts.insert(name.to_owned(), value));
    add("source", json!(remote::typed(typed)));
    add("path", json!(node.path().to_string()));
    add("dialect", json!(dialect_name(hierarchy, node.path())));
    if let Some(document) = node.document() {
        add("metadata_file", json!(document.key.as_str()));
    }
    match node.content() {
        Content::Group(group) => {
            add("node_type", json!("group"));
            add("children", json!(names(hierarchy, node)?));
            add("attributes", Value::Object(group.attributes.clone()));
        }
        Content::NotUnderstood(_, error) => add("not_understood", json!(error.to_string())),
        Content::Array(array) => array_facts(array, &mut add)?,
    }
    view_facts(hierarchy, node, &mut add);
    let not_seen = hierarchy.not_seen(std::slice::from_ref(node.path()), ReadExtent::Metadata)?;
    if !not_seen.is_nothing() {
        let lines: Vec<String> = not_seen.omissions.iter().map(ToString::to_string).collect();
        add("not_seen", json!(lines));
    }
    Ok(facts)
}

/// Adds what the node is as an image, the formats that it has, the memory that reading one needs,
/// and why it lacks the other formats.
fn view_facts(hierarchy: &Hierarchy, node: &Node, add: &mut dyn FnMut(&str, Value)) {
    let cache = ChunkCache::new(CACHE_LEN);
    let glance = RefCell::new(Glance::default());
    let get: &GetChunk<'_> = &|elements, coords, _| {
        let chunk = cache.get(&elements.array, coords)?;
        glance.borrow().count(chunk.as_ref().map(|chunk| chunk.bytes.len()))?;
        Ok(chunk.map(|chunk| chunk.bytes.into()))
    };
    let Ok(source) = ViewSource::new(hierarchy, node.path(), get) else { return };
    image::facts(&source, add);
    let (mut views, mut others) = (Object::new(), Object::new());
    let (mut left_out, mut without) = (Object::new(), Object::new());
    let (mut slab, mut amplification) = (None, Object::new());
    for format in FORMATS.iter().filter(|format| format.is_for(node.kind())) {
        glance.take();
        match format.view(&source) {
            Ok(view) => {
                views.insert(format.extension.to_owned(), json!(view.len()));
                if let Some(times) = read_amplification(&view) {
                    amplification.insert(format.extension.to_owned(), json!(times));
                }
                slab = slab.max(view.elements().filter_map(ElementRange::slab_len).max());
                let lines: Vec<String> = view.left_out().lines().collect();
                if !lines.is_empty() {
                    left_out.insert(format.extension.to_owned(), json!(lines.join("; ")));
                }
                let lines: Vec<String> = view.left_out().properties().collect();
                if !lines.is_empty() {
                    without.insert(format.extension.to_owned(), json!(lines.join("; ")));
                }
            }
            Err(_) if glance.borrow().is_over() => {
                views.insert(format.extension.to_owned(), Value::Null);
            }
            Err(error) => {
                others.insert(format.extension.to_owned(), json!(error.detail()));
            }
        }
    }
    add("views", Value::Object(views));
    if !amplification.is_empty() {
        add("read_amplification", Value::Object(amplification));
    }
    if let Some(slab) = slab {
        add("chunk_row_size", json!(slab));
    }
    if !others.is_empty() {
        add("no_views", Value::Object(others));
    }
    if !left_out.is_empty() {
        add("left_out", Value::Object(left_out));
    }
    if !without.is_empty() {
        add("without", Value::Object(without));
    }
}

fn names(hierarchy: &Hierarchy, node: &Node) -> Result<Vec<String>, Failure> {
    let mut names = hierarchy.child_names(node.path())?;
    // Checking the kind of each member takes too long if there are many.
    if names.len() <= MAX_LOOKED_AT {
        let is_node = |name: &String| {
            let node = node.path().child(name).and_then(|path| hierarchy.child_node(&path));
            node.map_or(true, |node| node.is_some())
        };
        names.retain(is_node);
    }
    Ok(names)
}

fn array_facts(array: &Arc<Array>, add: &mut dyn FnMut(&str, Value)) -> Result<(), Failure> {
    let model = array.model();
    add("node_type", json!("array"));
    add("shape", json!(model.shape));
    add("data_type", json!(model.dtype.name()));
    add("chunk_shape", array.chunk_shape_json());
    if let Some(shards) = array.shard_shape_json() {
        add("shard_shape", shards);
    }
    add("codecs", Value::Array(model.codecs.iter().map(CodecSpec::to_json).collect()));
    add(
        "fill_value",
        if model.fill.is_defined() { model.fill.to_json(&model.dtype) } else { Value::Null },
    );
    if !model.dimension_names.is_empty() {
        add("dimension_names", json!(model.dimension_names));
    }
    if let Some(error) = array.not_understood() {
        add("not_understood", json!(error.to_string()));
    }
    // The size of an array with elements of variable length is unknown until all of them are read.
    if let Some(longest) = array.longest_chunk_len().exactly() {
        add("size", json!(stored::len_of(array)));
        if array.grid().is_regular() {
            add("chunk_size", json!(longest));
        }
    }
    add("chunks", json!(stored::chunks_of(array)));
    let stored = StoredChunks::of(array)?;
    add("chunks_stored", json!(stored.chunks));
    if array.is_sharded() {
        add("shards_stored", json!(stored.shards));
    }
    add("size_stored", json!(stored.len));
    if let Some(decoded) = stored::len_of(array).filter(|_| stored.len > 0) {
        add("ratio", json!(to_float(decoded.into()) / to_float(stored.len.into())));
    }
    let refused = (stored.refused > 0)
        .then(|| format!("{} stored chunks cannot be read: zarrfs check says why", stored.refused));
    let remarks: Vec<String> = remark(array).into_iter().chain(refused).collect();
    if !remarks.is_empty() {
        add("remarks", json!(remarks));
    }
    add("attributes", Value::Object(model.attributes.clone()));
    Ok(())
}

/// Returns how many bytes a sequential read of a view decodes for each byte of the view, with the
/// default cache of a mount; `None` for an empty view.
fn read_amplification(view: &View) -> Option<f64> {
    if view.is_empty() {
        return None;
    }
    let mut decoded = 0.0;
    for elements in view.elements() {
        let array = &elements.array;
        let chunks = stored::chunks_of(array)?;
        let all = chunks.checked_mul(array.longest_chunk_len().exactly()?)?;
        // Chunks at the edges have more elements than the array.
        let each = to_float(all.into()) / to_float(stored::len_of(array)?.max(1).into());
        // If the cache cannot hold a row of chunks, each row of elements decodes these chunks
        // again.
        let is_cached = elements.slab_len().is_some_and(|slab| slab <= MOUNT_CACHE_LEN);
        let rows = array.chunk_shape().iter().find(|len| **len > 1).copied().unwrap_or(1);
        let times = match is_cached {
            true => each,
            false if array.is_by_element() => 1.0,
            false => each * to_float(rows.into()),
        };
        decoded += to_float(elements.len().into()) * times;
    }
    Some(decoded / to_float(view.len().into()))
}

/// Returns a remark on chunks that are unusually small or large.
fn remark(array: &Array) -> Option<String> {
    let longest = array.longest_chunk_len().exactly()?;
    if longest > LARGE_CHUNK {
        return Some(
            "chunks of more than 256 MiB: reading any element decodes a whole chunk".to_owned(),
        );
    }
    let is_split = stored::len_of(array).is_none_or(|len| len > SMALL_CHUNK);
    (longest < SMALL_CHUNK && is_split).then(|| {
        "chunks of less than 64 KiB: programs spend more time per byte on them than on larger ones"
            .to_owned()
    })
}
