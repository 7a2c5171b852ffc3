//! Checks attributes against the conventions that programs rely on: the dimension names of xarray,
//! and the images of OME-Zarr.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::hierarchy::{Content, Hierarchy, Node};
use crate::json::Object;
use crate::metadata::{DIMENSIONS, NodePath, image_axes};

/// The most members of a group to compare.
const MOST_MEMBERS: usize = 1000;

/// The most images of a group to check, and the most resolutions of each.
const MOST_IMAGES: usize = 100;

/// Returns a reason for each convention that the attributes of a node break.
pub fn broken(hierarchy: &Hierarchy, node: &Node) -> Vec<String> {
    match node.content() {
        Content::Array(array) => {
            let model = array.model();
            let names = model.attributes.get(DIMENSIONS).and_then(Value::as_array);
            let wrong = names.filter(|names| names.len() != model.shape.len());
            let reason = wrong.map(|names| {
                format!(
                    "{DIMENSIONS} names {} dimensions, but the array has {}",
                    names.len(),
                    model.shape.len()
                )
            });
            reason.into_iter().collect()
        }
        Content::Group(group) => {
            let mut reasons = images(hierarchy, node.path(), &group.attributes);
            reasons.extend(dimensions(hierarchy, node.path(), &levels(&group.attributes)));
            reasons
        }
        Content::NotUnderstood(..) => Vec::new(),
    }
}

/// Returns the paths of the resolutions of images, which have the same dimensions.
fn levels(attributes: &Object) -> HashSet<&str> {
    let attributes = attributes.get("ome").and_then(Value::as_object).unwrap_or(attributes);
    let images = attributes.get("multiscales").and_then(Value::as_array).into_iter().flatten();
    let levels = images.filter_map(|image| image.get("datasets")?.as_array()).flatten();
    levels.filter_map(|level| level.get("path")?.as_str()).collect()
}

/// Finds dimensions that have several lengths in a group: xarray cannot open such a group.
fn dimensions(hierarchy: &Hierarchy, group: &NodePath, levels: &HashSet<&str>) -> Vec<String> {
    let Ok(names) = hierarchy.child_names(group) else { return Vec::new() };
    let mut known: HashMap<String, (u64, String)> = HashMap::new();
    let mut reasons = Vec::new();
    let others = names.into_iter().filter(|name| !levels.contains(name.as_str()));
    for name in others.take(MOST_MEMBERS) {
        let found = group.child(&name).and_then(|path| hierarchy.child_node(&path));
        let Ok(Some(found)) = found else { continue };
        let Some(array) = found.array() else { continue };
        let model = array.model();
        for (dimension, len) in model.dimension_names.iter().zip(&model.shape) {
            let Some(dimension) = dimension else { continue };
            let (first, by) = known.entry(dimension.clone()).or_insert((*len, name.clone()));
            if first != len {
                reasons.push(format!(
                    "dimension {dimension} has length {first} in {by}, but {len} in {name}"
                ));
            }
        }
    }
    reasons
}

/// Checks that each resolution of an image is an array with as many dimensions as the image has
/// axes (<https://ngff.openmicroscopy.org/0.5/#multiscale-md>).
fn images(hierarchy: &Hierarchy, group: &NodePath, attributes: &Object) -> Vec<String> {
    let attributes = attributes.get("ome").and_then(Value::as_object).unwrap_or(attributes);
    let images = attributes.get("multiscales").and_then(Value::as_array);
    let mut reasons = Vec::new();
    for image in images.into_iter().flatten().take(MOST_IMAGES) {
        let axes = image_axes(image).map(<[Value]>::len);
        let levels = image.get("datasets").and_then(Value::as_array);
        for level in levels.into_iter().flatten().take(MOST_IMAGES) {
            let Some(name) = level.get("path").and_then(Value::as_str) else {
                reasons.push("multiscales: a dataset has no path".to_owned());
                continue;
            };
            let node = group.join(name).and_then(|path| hierarchy.node(&path));
            let Ok(node) = node else { continue };
            match node.as_ref().and_then(|node| node.array()) {
                None => reasons.push(format!("multiscales: there is no array {name}")),
                Some(array) => {
                    let rank = array.model().shape.len();
                    if let Some(axes) = axes.filter(|axes| *axes != rank) {
                        reasons.push(format!(
                            "multiscales: {axes} axes, but the array {name} has {rank} dimensions"
                        ));
                    }
                }
            }
        }
    }
    reasons
}
