//! The OME-Zarr metadata of a box of an image.

use serde_json::{Value, json};

use super::ome::channel_axis;
use super::transform::Linear;
use crate::json::Object;
use crate::metadata::{image_axes, system_name};
use crate::view::region::Selected;
use crate::width::ToUsize;

/// Returns the attributes of a group that may be an OME-Zarr image with the cut array at
/// `relative`: only that level, with the axes and the position of the box.
pub fn attributes_of_box(mut attributes: Object, relative: &str, selected: &[Selected]) -> Object {
    let is_nested = attributes.contains_key("ome");
    let of = |attributes: &mut Object| {
        let Some(image) = attributes.get_mut("multiscales").and_then(|all| all.get_mut(0)) else {
            return;
        };
        let channels = channel_axis(image).and_then(|axis| selected.get(axis)).copied();
        if !cut_image(image, relative, selected) {
            return;
        }
        let listed = attributes.get_mut("omero").and_then(|omero| omero.get_mut("channels"));
        if let (Some(one), Some(Value::Array(listed))) = (channels, listed) {
            let place = |at: u64| at.to_usize();
            let range = listed.iter().skip(place(one.start)).take(place(one.len));
            *listed = range.cloned().collect();
        }
    };
    match attributes.get_mut("ome").and_then(Value::as_object_mut) {
        Some(ome) if is_nested => {
            let mut inner: Object = ome.clone();
            of(&mut inner);
            *ome = inner;
        }
        _ => of(&mut attributes),
    }
    attributes
}

/// Changes the description of an image to that of the box; `false` if the array is not in it.
fn cut_image(image: &mut Value, relative: &str, selected: &[Selected]) -> bool {
    let is_cut = |dataset: &Value| dataset.get("path").and_then(Value::as_str) == Some(relative);
    let Some(datasets) = image.get_mut("datasets").and_then(Value::as_array_mut) else {
        return false;
    };
    datasets.retain(is_cut);
    // The first transformation of an index: from the box to the whole array.
    let starts: Vec<u64> = selected.iter().map(|one| one.start).collect();
    if image.get("coordinateSystems").is_some() {
        return cut_systems(image, &starts, selected);
    }
    let Some(dataset) = first_dataset(image) else { return false };
    let start = json!({"type": "translation", "translation": starts});
    let listed = dataset.entry("coordinateTransformations").or_insert_with(|| json!([]));
    if let Value::Array(listed) = listed {
        listed.insert(0, start);
    }
    let kept = |list: &mut Vec<Value>| keep(list, selected);
    let in_transformations = |of: Option<&mut Value>| {
        for transformation in of.and_then(Value::as_array_mut).into_iter().flatten() {
            for name in ["scale", "translation"] {
                if let Some(list) = transformation.get_mut(name).and_then(Value::as_array_mut) {
                    kept(list);
                }
            }
        }
    };
    in_transformations(dataset.get_mut("coordinateTransformations"));
    in_transformations(image.get_mut("coordinateTransformations"));
    if let Some(axes) = image.get_mut("axes").and_then(Value::as_array_mut) {
        kept(axes);
    }
    true
}

fn first_dataset(image: &mut Value) -> Option<&mut Object> {
    image.get_mut("datasets")?.as_array_mut()?.first_mut()?.as_object_mut()
}

/// Keeps the items of the axes that the box has.
fn keep(list: &mut Vec<Value>, selected: &[Selected]) {
    if list.len() == selected.len() {
        let mut axes = selected.iter();
        list.retain(|_| axes.next().is_none_or(|one| one.is_kept));
    }
}

/// Does the same for an image of OME-Zarr 0.6, whose transformation is a scale and a translation. A
/// box with fewer axes has the intrinsic system alone.
fn cut_systems(image: &mut Value, starts: &[u64], selected: &[Selected]) -> bool {
    let rank = selected.len();
    let has_all = selected.iter().all(|one| one.is_kept);
    let axes = image_axes(image).map(<[Value]>::to_vec);
    let Some(dataset) = first_dataset(image) else { return false };
    let transform = dataset.get("coordinateTransformations").and_then(|all| all.get(0)).cloned();
    let Some((transform, mut axes)) = transform.zip(axes) else { return false };
    let Some(output) = transform.get("output").and_then(system_name) else { return false };
    let starts = json!({"type": "translation", "translation": starts});
    let steps = json!({"type": "sequence", "transformations": [starts, &transform]});
    let Ok(map) = Linear::parse(&steps, rank, &|_| None) else { return false };
    if map.outputs() != rank || (0..rank).any(|axis| map.factor(axis, axis) == 0.0) {
        return false;
    }
    let mut scale: Vec<Value> = (0..rank).map(|axis| json!(map.factor(axis, axis))).collect();
    let mut translation: Vec<Value> = (0..rank).map(|axis| json!(map.start(axis))).collect();
    for list in [&mut scale, &mut translation, &mut axes] {
        keep(list, selected);
    }
    let sequence = json!([{
        "type": "sequence",
        "input": transform.get("input"),
        "output": transform.get("output"),
        "transformations": [
            {"type": "scale", "scale": scale},
            {"type": "translation", "translation": translation},
        ],
    }]);
    dataset.insert("coordinateTransformations".to_owned(), sequence);
    if !has_all && let Some(image) = image.as_object_mut() {
        image.shift_remove("coordinateTransformations");
        let systems = json!([{"name": output, "axes": axes}]);
        image.insert("coordinateSystems".to_owned(), systems);
    }
    true
}
