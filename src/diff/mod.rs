//! Compares two hierarchies: their nodes, shapes, data types, dimension names, attributes and
//! values. How they are stored (dialect, chunks, shards, codecs, fill values) does not matter.
//!
//! `values` compares two arrays chunk by chunk, `json` compares attributes.

mod boxes;
mod json;
mod options;
mod values;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::array::Array;
use crate::error::Result;
use crate::hierarchy::{Bounds, Content, Hierarchy, Node, ReadExtent, TextPurpose};
use crate::json::parse_object;
use crate::metadata::{FILL, NodeKind, NodePath, masks_nothing, shown_attribute};
pub use options::{DiffOptions, DiffSummary, DiffWatch, Difference, Largest, ValueDifference};

/// A hierarchy, or a node in one.
#[derive(Debug, Clone, Copy)]
pub struct Side<'h> {
    /// The hierarchy.
    pub hierarchy: &'h Hierarchy,
    /// The node to compare.
    pub top: &'h NodePath,
}

/// Compares two hierarchies.
pub fn run(
    one: Side<'_>,
    two: Side<'_>,
    options: &DiffOptions,
    watch: &dyn DiffWatch,
) -> Result<DiffSummary> {
    let mut summary = DiffSummary::default();
    let (in_one, in_two) = (paths(one, options, watch)?, paths(two, options, watch)?);
    let mut missing: BTreeSet<&str> = BTreeSet::new();
    for path in in_one.union(&in_two) {
        if watch.is_stopped() {
            break;
        }
        let mut above = path.match_indices('/').filter_map(|(at, _)| path.get(..at));
        if above.any(|above| missing.contains(above)) {
            continue;
        }
        if !in_one.contains(path) || !in_two.contains(path) {
            watch.differ(path, Difference::OnlyIn(in_one.contains(path)));
            missing.insert(path);
            continue;
        }
        summary.nodes = summary.nodes.saturating_add(1);
        let node = |side: Side<'_>| side.hierarchy.existing(&side.top.join(path)?);
        let (node_one, node_two) = match (node(one), node(two)) {
            (Ok(one), Ok(two)) => (one, two),
            (Err(error), _) | (_, Err(error)) => {
                watch.fail(path, &error);
                continue;
            }
        };
        let nodes = [(one.hierarchy, &*node_one), (two.hierarchy, &*node_two)];
        match compare(nodes, path, options, watch) {
            Ok(Some(elements)) => {
                summary.arrays = summary.arrays.saturating_add(1);
                summary.elements = summary.elements.saturating_add(elements);
            }
            Ok(None) => {}
            Err(error) => watch.fail(path, &error),
        }
    }
    summary.not_seen = not_seen(one, options)?.or(not_seen(two, options)?);
    Ok(summary)
}

/// Returns why not all of a side was compared, if not.
fn not_seen(side: Side<'_>, options: &DiffOptions) -> Result<Option<String>> {
    let tops: Vec<NodePath> = if options.only.is_empty() {
        vec![side.top.clone()]
    } else {
        options.only.iter().map(|only| side.top.join(only.as_str())).collect::<Result<_>>()?
    };
    Ok(side.hierarchy.not_seen(&tops, ReadExtent::Values)?.in_words())
}

/// Returns the chosen paths relative to the top, whose own path is empty.
fn paths(side: Side<'_>, options: &DiffOptions, watch: &dyn DiffWatch) -> Result<BTreeSet<String>> {
    let Side { hierarchy, top } = side;
    hierarchy.existing(top)?;
    let is_chosen = |path: &str| {
        options.only.is_empty()
            || options.only.iter().any(|only| {
                let rest = path.strip_prefix(only.as_str());
                only.is_root() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
    };
    let mut found = BTreeSet::new();
    if is_chosen("") {
        found.insert(String::new());
    }
    let mut walk = hierarchy.walk_below(top, Bounds::stream());
    while let Some(node) = walk.next() {
        if watch.is_stopped() {
            break;
        }
        let path = walk.at().relative_to(top).unwrap_or_default().to_owned();
        match node {
            Ok(_) if is_chosen(&path) => drop(found.insert(path)),
            Ok(_) => {}
            Err(error) => watch.fail(&path, &error),
        }
    }
    Ok(found)
}

/// Compares two nodes. Returns the number of elements whose values were compared.
fn compare(
    nodes: [(&Hierarchy, &Node); 2],
    path: &str,
    options: &DiffOptions,
    watch: &dyn DiffWatch,
) -> Result<Option<u64>> {
    let differ = |member: &str, values: [Value; 2]| {
        let values = values.map(Some);
        watch.differ(path, Difference::Metadata { member: member.to_owned(), values });
    };
    let [(one, node_one), (two, node_two)] = nodes;
    for node in [node_one, node_two] {
        if let Content::NotUnderstood(_, error) = node.content() {
            return Err(error.clone());
        }
    }
    let kind = |node: &Node| json!(if node.kind() == NodeKind::Array { "array" } else { "group" });
    if node_one.kind() != node_two.kind() {
        differ("node_type", [kind(node_one), kind(node_two)]);
        return Ok(None);
    }
    let (shown_one, shown_two) = (shown(one, node_one)?, shown(two, node_two)?);
    let [of_one, of_two] = attributes(nodes, [&shown_one, &shown_two]);
    json::compare(
        "attributes",
        &Value::Object(of_one),
        &Value::Object(of_two),
        &mut |member, values| {
            let values = for_people(&member, values, nodes);
            watch.differ(path, Difference::Metadata { member, values });
        },
    );
    let (Some(array_one), Some(array_two)) = (node_one.array(), node_two.array()) else {
        return Ok(None);
    };
    let (model_one, model_two) = (array_one.model(), array_two.model());
    if model_one.shape != model_two.shape {
        differ("shape", [json!(model_one.shape), json!(model_two.shape)]);
    }
    if model_one.dtype != model_two.dtype {
        differ("data_type", [model_one.dtype.described(), model_two.dtype.described()]);
    }
    let names = |document: &Map<String, Value>, array: &Arc<Array>| -> Vec<Value> {
        let names = document.get("dimension_names").and_then(Value::as_array);
        let mut names = names.cloned().unwrap_or_default();
        names.resize(array.model().shape.len(), Value::Null);
        names
    };
    let (names_one, names_two) = (names(&shown_one, array_one), names(&shown_two, array_two));
    if names_one != names_two {
        differ("dimension_names", [json!(names_one), json!(names_two)]);
    }
    let are_comparable = values::are_comparable(&model_one.dtype, &model_two.dtype);
    if !options.compares_values || model_one.shape != model_two.shape || !are_comparable {
        return Ok(None);
    }
    let difference = values::compare(array_one, array_two, path, options, watch)?;
    if difference.count > 0 {
        watch.differ(path, Difference::Values(difference));
    }
    let elements = model_one.shape.iter().fold(1_u64, |all, len| all.saturating_mul(*len));
    Ok(Some(elements))
}

/// Returns the attributes of two nodes that can differ, from their metadata files.
fn attributes(
    nodes: [(&Hierarchy, &Node); 2],
    shown: [&Map<String, Value>; 2],
) -> [Map<String, Value>; 2] {
    let [(one, node_one), (two, node_two)] = nodes;
    let [mut of_one, mut of_two] = shown.map(|document| {
        document.get("attributes").and_then(Value::as_object).cloned().unwrap_or_default()
    });
    if one.dialect_of(node_one.path()) != two.dialect_of(node_two.path()) {
        drop_idle_fill(&mut of_one, &of_two, node_one);
        drop_idle_fill(&mut of_two, &of_one, node_two);
    }
    [of_one, of_two]
}

/// Removes a `_FillValue` that only one of two nodes has, if it masks nothing. In Zarr 2, an array
/// whose dimensions have names gets one if its fill value is NaN.
fn drop_idle_fill(more: &mut Map<String, Value>, less: &Map<String, Value>, node: &Node) {
    if let (Some(array), Some(value), None) = (node.array(), more.get(FILL), less.get(FILL))
        && masks_nothing(value, &array.model().dtype)
    {
        more.shift_remove(FILL);
    }
}

/// Returns the values of an attribute of two nodes as people should see them.
fn for_people(
    member: &str,
    values: [Option<Value>; 2],
    nodes: [(&Hierarchy, &Node); 2],
) -> [Option<Value>; 2] {
    let Some(name) = member.strip_prefix("attributes.") else { return values };
    let [one, two] = values;
    let shown = |value: Value, node: &Node| match node.array() {
        Some(array) => shown_attribute(name, &value, &array.model().dtype).into_owned(),
        None => value,
    };
    let [(_, node_one), (_, node_two)] = nodes;
    [one.map(|value| shown(value, node_one)), two.map(|value| shown(value, node_two))]
}

/// Returns the metadata file of a node as a mount shows it: the mount translates conventions that
/// depend on the version of Zarr.
fn shown(hierarchy: &Hierarchy, node: &Node) -> Result<Map<String, Value>> {
    let text = hierarchy.shown().text_of(node, TextPurpose::Text)?;
    parse_object(text.as_bytes())
}
