//! `zarrfs info`: describes one node.

use std::fmt::Write;
use std::sync::Arc;

use serde_json::{Value, json};

use super::args::Info;
use super::describe::shape;
use super::failure::Failure;
use super::{open, print};
use crate::array::Array;
use crate::cache::ChunkCache;
use crate::codec::CodecSpec;
use crate::hierarchy::{Content, Hierarchy, Node};
use crate::json::Object;
use crate::metadata::NodePath;
use crate::view::{Elements, FORMATS, GetChunk, Source};

/// The most names in a group to check for nodes.
const MAX_LOOKED_AT: usize = 10_000;

/// The cache size in bytes for values in headers.
const CACHE_LEN: u64 = 64 << 20;

/// Prints the properties of a node.
pub fn run(args: &Info) -> Result<(), Failure> {
    let (hierarchy, path) = open::node_with_groups(&args.source, args.from.as_ref(), &args.remote)?;
    let node = hierarchy.existing(&path)?;
    let facts = facts(&hierarchy, &node)?;
    if args.json {
        return print::output(&format!("{:#}\n", Value::Object(facts)));
    }
    let width = facts.keys().map(|name| name.chars().count()).max().unwrap_or_default();
    let mut text = String::new();
    for (name, value) in &facts {
        let label = name.replace('_', " ");
        // Writing to a string does not fail.
        let _never = writeln!(text, "{label:<width$}  {}", for_people(name, value));
    }
    print::output(&text)
}

/// Returns the name of the dialect of a node.
pub fn dialect_name(hierarchy: &Hierarchy, path: &NodePath) -> &'static str {
    if hierarchy.is_in_folder(path) {
        return "several";
    }
    hierarchy.dialect_of(path).name()
}

fn facts(hierarchy: &Hierarchy, node: &Node) -> Result<Object, Failure> {
    let mut facts = Object::new();
    let mut add = |name: &str, value: Value| drop(facts.insert(name.to_owned(), value));
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
    Ok(facts)
}

/// Adds the formats that the node has, the memory that reading one needs, and why it lacks the
/// others.
fn view_facts(hierarchy: &Hierarchy, node: &Node, add: &mut dyn FnMut(&str, Value)) {
    let cache = ChunkCache::new(CACHE_LEN);
    let get: &GetChunk<'_> = &|elements, coords, _| {
        Ok(cache.get(&elements.array, coords)?.map(|chunk| chunk.bytes.into()))
    };
    let Ok(source) = Source::new(hierarchy, node.path(), get) else { return };
    let (mut views, mut others, mut left_out) = (Object::new(), Object::new(), Object::new());
    let mut slab = None;
    for format in FORMATS.iter().filter(|format| format.is_for(node.kind())) {
        match format.view(&source) {
            Ok(view) => {
                views.insert(format.extension.to_owned(), json!(view.len()));
                slab = slab.max(view.elements().filter_map(Elements::slab_len).max());
                let lines: Vec<String> = view.left_out().lines().collect();
                if !lines.is_empty() {
                    left_out.insert(format.extension.to_owned(), json!(lines.join("; ")));
                }
            }
            Err(error) => {
                others.insert(format.extension.to_owned(), json!(error.detail()));
            }
        }
    }
    add("views", Value::Object(views));
    if let Some(slab) = slab {
        add("chunk_row_size", json!(slab));
    }
    if !others.is_empty() {
        add("no_views", Value::Object(others));
    }
    if !left_out.is_empty() {
        add("left_out", Value::Object(left_out));
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
    if array.chunk_shape() != model.chunk_shape {
        add("shard_shape", json!(model.chunk_shape));
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
    // The length of elements of variable length is unknown without reading all of them.
    if let Some(longest) = array.longest_chunk_len().exactly() {
        let item_len = u64::try_from(model.dtype.item_len()).unwrap_or(u64::MAX);
        let array_len = model.shape.iter().try_fold(item_len, |len, n| len.checked_mul(*n));
        add("size", json!(array_len));
        if array.grid().is_regular() {
            add("chunk_size", json!(longest));
        }
    }
    add(
        "chunks",
        json!(array.grid().counts().iter().try_fold(1_u64, |all, n| all.checked_mul(*n))),
    );
    let stored = stored(array)?;
    add("chunks_stored", json!(stored.chunks));
    if array.chunk_shape() != model.chunk_shape {
        add("shards_stored", json!(stored.shards));
    }
    add("size_stored", json!(stored.len));
    add("attributes", Value::Object(model.attributes.clone()));
    Ok(())
}

#[derive(Default)]
struct Stored {
    chunks: u64,
    shards: u64,
    /// The length of all stored values in bytes.
    len: u64,
}

fn stored(array: &Arc<Array>) -> Result<Stored, Failure> {
    let mut stored = Stored::default();
    // The inner chunks of a shard are listed one after another.
    let mut last = None;
    for coords in Arc::clone(array.chunks()).list()? {
        let coords = coords?;
        stored.chunks += 1;
        if array.is_sharded() {
            let shard = Some(array.key(&coords)?);
            if shard == last {
                continue;
            }
            last = shard;
            stored.shards += 1;
        }
        stored.len = stored.len.saturating_add(array.stored_len(&coords)?.unwrap_or_default());
    }
    Ok(stored)
}

fn for_people(name: &str, value: &Value) -> String {
    match (name, value) {
        ("shape" | "chunk_shape" | "shard_shape", Value::Array(lens)) => shape(lens),
        ("chunk_row_size", value) => {
            format!("{value} bytes (--cache-size that a sequential read of a view needs)")
        }
        ("size" | "chunk_size" | "size_stored", value) => match value.as_u64() {
            Some(len) => format!("{len} bytes"),
            None => "more than 2^64 bytes".to_owned(),
        },
        ("views", Value::Object(views)) => {
            views.keys().map(String::as_str).collect::<Vec<_>>().join(" ")
        }
        ("no_views" | "left_out", Value::Object(others)) => {
            let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
            for (format, why) in others {
                let why = why.as_str().unwrap_or_default();
                match reasons.iter_mut().find(|(reason, _)| *reason == why) {
                    Some((_, formats)) => formats.push(format),
                    None => reasons.push((why, vec![format])),
                }
            }
            let line = |(why, formats): &(&str, Vec<&str>)| format!("{}: {why}", formats.join(" "));
            reasons.iter().map(line).collect::<Vec<_>>().join("; ")
        }
        ("children", Value::Array(names)) => {
            names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
        }
        (_, Value::String(text)) => text.clone(),
        (_, value) => value.to_string(),
    }
}
