//! The coordinate systems of OME-Zarr 0.6 (RFC-5): the place of an array in the system that the
//! mount shows (<https://ngff.openmicroscopy.org/0.6/#coordinatesystems-metadata>).
//!
//! Each array of an image has a transformation to the intrinsic system of the image. Further
//! transformations lead from there to other systems: those of the image, and those in the `scene`
//! of a group above, where several images have a place.

use serde_json::Value;

use super::ome::{member, multiscale};
use super::transform::Linear;
use crate::dtype::{Element, to_float};
use crate::metadata::{NodePath, image_axes, system_name};
use crate::view::source::ViewSource;

/// The most transformations and systems of a group to look at.
const MOST: usize = 256;

/// The most numbers of a transformation that are in an array.
const MOST_NUMBERS: u64 = 1024;

/// The place of an array in a coordinate system.
#[derive(Debug)]
pub(super) struct Placed {
    /// The axes of the system.
    pub axes: Vec<Value>,
    /// From the indices of the array to the system.
    pub map: Linear,
    /// The parts that the place leaves out, in words.
    pub left_out: Vec<String>,
}

/// A coordinate system: the group whose metadata has it, and its name.
#[derive(Debug, Clone, PartialEq)]
struct SystemId {
    group: NodePath,
    name: String,
}

/// A transformation between two systems.
#[derive(Debug)]
struct Edge {
    from: SystemId,
    to: SystemId,
    /// The group to which paths in it are relative.
    group: NodePath,
    transform: Value,
}

/// Returns the place of an array of `rank` dimensions in the system that the mount shows if the
/// image has it, else in the intrinsic one; `None` if its metadata are not those of OME-Zarr 0.6.
pub(super) fn place(
    group: &ViewSource<'_>,
    image: &Value,
    dataset: &Value,
    rank: usize,
) -> Option<Placed> {
    let transform = dataset.get("coordinateTransformations")?.get(0)?;
    let intrinsic =
        SystemId { group: group.path().clone(), name: system_name(transform.get("output")?)? };
    let map = Linear::parse(transform, rank, &|path| numbers(group, group.path(), path)).ok()?;
    let axes = image_axes(image)?.to_vec();
    if axes.len() != map.outputs() {
        return None;
    }
    let edges = edges(group, image);
    let mut placed = Placed { axes, map, left_out: Vec::new() };
    let shown = group.coordinate_system();
    if let Some(wanted) = shown.filter(|wanted| *wanted != intrinsic.name) {
        match lead_to(wanted, &intrinsic, &edges, group, rank) {
            Ok(Some((id, further))) => {
                let map = placed.map.then(&further);
                let axes = axes_of(group, &id).filter(|axes| axes.len() == further.outputs());
                if let (Some(map), Some(axes)) = (map, axes) {
                    (placed.map, placed.axes) = (map, axes);
                }
            }
            Ok(None) => {}
            Err(why) => placed.left_out.push(format!("the coordinate system {wanted:?} ({why})")),
        }
    }
    let others: Vec<String> = systems_of(&edges)
        .filter(|id| **id != intrinsic && Some(id.name.as_str()) != shown)
        .map(|id| format!("{:?}", id.name))
        .collect();
    if !others.is_empty() {
        let list = others.join(", ");
        placed.left_out.push(format!("other coordinate systems: {list} (--coordinate-system)"));
    }
    Some(placed)
}

/// Returns the systems that transformations lead to or from, each once.
fn systems_of(edges: &[Edge]) -> impl Iterator<Item = &SystemId> {
    let all: Vec<&SystemId> = edges.iter().flat_map(|edge| [&edge.from, &edge.to]).collect();
    (0..all.len()).filter_map(move |at| {
        let id = *all.get(at)?;
        let before = all.get(..at)?;
        (!before.contains(&id)).then_some(id)
    })
}

/// Follows transformations to a system with the name `wanted`; `None` if there is none. The error
/// says which transformation on the way has no linear form.
fn lead_to(
    wanted: &str,
    intrinsic: &SystemId,
    edges: &[Edge],
    source: &ViewSource<'_>,
    rank: usize,
) -> Result<Option<(SystemId, Linear)>, String> {
    let mut reached = vec![(intrinsic.clone(), Linear::identity(rank))];
    let mut refused = None;
    let mut at = 0;
    while let Some((from, map)) = reached.get(at).cloned() {
        at = at.saturating_add(1);
        for edge in edges {
            let (to, forward) = match (edge.from == from, edge.to == from) {
                (true, _) => (&edge.to, true),
                (_, true) => (&edge.from, false),
                _ => continue,
            };
            if reached.iter().any(|(known, _)| known == to) {
                continue;
            }
            match step(edge, forward, &map, source) {
                Ok(map) => reached.push((to.clone(), map)),
                Err(why) => refused = refused.or(Some(why)),
            }
            if let Some(found) = reached.last().filter(|(id, _)| id.name == wanted) {
                return Ok(Some(found.clone()));
            }
        }
    }
    match refused {
        Some(why) if systems_of(edges).any(|id| id.name == wanted) => Err(why),
        _ => Ok(None),
    }
}

/// Returns the map to the other end of a transformation.
fn step(
    edge: &Edge,
    forward: bool,
    before: &Linear,
    source: &ViewSource<'_>,
) -> Result<Linear, String> {
    let numbers = |path: &str| numbers(source, &edge.group, path);
    // Only a map with as many inputs as outputs has an inverse.
    let map = Linear::parse(&edge.transform, before.outputs(), &numbers)?;
    let map = if forward { Some(map) } else { map.inverse() };
    map.and_then(|map| before.then(&map))
        .ok_or_else(|| "a transformation has no inverse".to_owned())
}

/// Returns the transformations of an image, and of the scenes in groups above.
fn edges(group: &ViewSource<'_>, image: &Value) -> Vec<Edge> {
    let mut edges = Vec::new();
    add_edges(&mut edges, group.path(), image);
    for above in group.above() {
        if let Some(scene) = member(&above, "scene") {
            add_edges(&mut edges, above.path(), scene);
        }
    }
    edges
}

fn add_edges(edges: &mut Vec<Edge>, group: &NodePath, of: &Value) {
    let listed = of.get("coordinateTransformations").and_then(Value::as_array);
    for transform in listed.into_iter().flatten().take(MOST) {
        let end = |member: &str| {
            let end = transform.get(member)?;
            let path = end.get("path").and_then(Value::as_str).unwrap_or_default();
            let path = path.trim_matches('/');
            let at = if path.is_empty() { group.clone() } else { group.join(path).ok()? };
            Some(SystemId { group: at, name: system_name(end)? })
        };
        if let (Some(from), Some(to)) = (end("input"), end("output")) {
            edges.push(Edge { from, to, group: group.clone(), transform: transform.clone() });
        }
    }
}

/// Returns the axes of a system.
fn axes_of(source: &ViewSource<'_>, id: &SystemId) -> Option<Vec<Value>> {
    let group = source.other(&id.group).ok()?;
    let of = [multiscale(&group), member(&group, "scene")];
    let lists = of.into_iter().flatten().filter_map(|of| of.get("coordinateSystems")?.as_array());
    let is_this = |system: &&Value| system.get("name").and_then(Value::as_str) == Some(&id.name);
    let found = lists.flatten().take(MOST).find(is_this)?;
    found.get("axes")?.as_array().cloned()
}

/// Reads the numbers of a transformation that are in an array.
fn numbers(source: &ViewSource<'_>, group: &NodePath, path: &str) -> Option<(Vec<u64>, Vec<f64>)> {
    let array = source.other(&group.join(path.trim_matches('/')).ok()?).ok()?;
    let model = array.array().ok()?.model();
    let count = model.shape.iter().try_fold(1_u64, |all, len| all.checked_mul(*len))?;
    if count > MOST_NUMBERS || model.shape.len() > 2 {
        return None;
    }
    let values = array.values().ok()?;
    let float = |item: &[u8]| match Element::of(&model.dtype, item) {
        Element::Int(integer) => Some(to_float(integer)),
        Element::Float(float) => Some(float),
        Element::Complex(..) | Element::Bytes => None,
    };
    let items = values.chunks_exact(model.dtype.item_len().max(1));
    Some((model.shape.clone(), items.map(float).collect::<Option<_>>()?))
}
