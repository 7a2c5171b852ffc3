use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::hierarchy::{Hierarchy, HierarchyOptions};
use crate::metadata::NodePath;
use crate::store::memory::MemoryStore;
use crate::store::{Condition, Key, Store};
use crate::view::GetChunk;

fn put(store: &Store, key: &str, document: &Value) {
    let (key, text) = (Key::parse(key).expect("a key"), Bytes::from(document.to_string()));
    store.write().expect("writable").set(&key, &[text.into()], Condition::Always).expect("set");
}

fn group(attributes: &Value) -> Value {
    json!({"zarr_format": 3, "node_type": "group", "attributes": attributes})
}

/// Returns the array `image/s0` of an image with this metadata, in a group with `above`, as the
/// mount shows it in a coordinate system.
fn image(multiscale: &Value, above: &Value, shown: Option<&str>) -> Image {
    let store = Store::new(Arc::new(MemoryStore::new()));
    put(&store, "zarr.json", &group(above));
    let ome = json!({"ome": {"version": "0.6", "multiscales": [multiscale]}});
    put(&store, "image/zarr.json", &group(&ome));
    let array = json!({
        "zarr_format": 3, "node_type": "array", "shape": [4, 5, 6], "data_type": "uint16",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 5, 6]}},
        "chunk_key_encoding": {"name": "default"}, "fill_value": 0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}], "attributes": {},
    });
    put(&store, "image/s0/zarr.json", &array);
    let coordinate_system = shown.map(str::to_owned);
    let options = HierarchyOptions { coordinate_system, ..HierarchyOptions::default() };
    let hierarchy = Hierarchy::open(store, None, options).expect("opens");
    let none: &GetChunk<'_> = &|_, _, _| Ok(None);
    let path = NodePath::parse("image/s0").expect("a path");
    Image::of(&ViewSource::new(&hierarchy, &path, none).expect("a source")).expect("an image")
}

fn axes(units: [&str; 3]) -> Value {
    let axis = |(name, unit): (&str, &str)| json!({"name": name, "type": "space", "unit": unit});
    ["z", "y", "x"].into_iter().zip(units).map(axis).collect()
}

/// The metadata of an image with voxels of 2, 0.5 and 0.25 in the system `own`, and more systems.
fn multiscale(units: [&str; 3], systems: &[(&str, Value)], transforms: &Value) -> Value {
    let own = json!({"name": "own", "axes": axes(units)});
    let others = systems.iter().map(|(name, axes)| json!({"name": name, "axes": axes}));
    json!({
        "coordinateSystems": std::iter::once(own).chain(others).collect::<Value>(),
        "coordinateTransformations": transforms,
        "datasets": [{"path": "s0", "coordinateTransformations": [{
            "type": "sequence", "input": {"path": "s0"}, "output": {"name": "own"},
            "transformations": [
                {"type": "scale", "scale": [2, 0.5, 0.25]},
                {"type": "translation", "translation": [10, 20, 30]},
            ],
        }]}],
    })
}

/// The kind, step, start and unit of each axis.
fn scales(image: &Image) -> Vec<(String, f64, f64, String)> {
    let of = |axis: &Axis| {
        let scale = axis.scale.clone().expect("a scale");
        let unit = scale.unit.map(|unit| unit.name).unwrap_or_default();
        (axis.label().to_owned(), scale.step, scale.start, unit)
    };
    image.axes.iter().map(of).collect()
}

const MICRO: [&str; 3] = ["micrometer"; 3];

fn micro(name: &str, step: f64, start: f64) -> (String, f64, f64, String) {
    (name.to_owned(), step, start, "micrometer".to_owned())
}

#[test]
fn an_image_of_0_6_has_the_voxel_size_of_its_intrinsic_system() {
    let found = image(&multiscale(MICRO, &[], &json!([])), &json!({}), None);
    let expected = [micro("z", 2.0, 10.0), micro("y", 0.5, 20.0), micro("x", 0.25, 30.0)];
    assert_eq!(scales(&found), expected);
    assert_eq!((found.directions, found.left_out.len()), (None, 0));
}

#[test]
fn an_image_is_shown_in_the_system_that_the_mount_asks_for() {
    let turned = json!([
        {"type": "sequence", "input": {"name": "own"}, "output": {"name": "turned"},
         "transformations": [
             {"type": "rotation", "rotation": [[1, 0, 0], [0, 0, -1], [0, 1, 0]]},
             {"type": "translation", "translation": [1, 2, 3]},
         ]},
        // From the other system: its inverse leads there.
        {"type": "scale", "scale": [2, 2, 2], "input": {"name": "half"}, "output": {"name": "own"}},
        {"type": "rotation", "rotation": [[1, 0, 0], [0, 0.6, -0.8], [0, 0.8, 0.6]],
         "input": {"name": "own"}, "output": {"name": "oblique"}},
        {"type": "displacements", "path": "field",
         "input": {"name": "own"}, "output": {"name": "warped"}},
    ]);
    let systems: Vec<(&str, Value)> = ["turned", "half", "oblique", "warped"]
        .into_iter()
        .map(|name| (name, axes(MICRO)))
        .collect();
    let image = |shown| image(&multiscale(MICRO, &systems, &turned), &json!({}), Some(shown));
    // A quarter turn leads along the other axis.
    let quarter = image("turned");
    let expected = [micro("z", 2.0, 11.0), micro("x", 0.5, 23.0), micro("y", -0.25, -28.0)];
    assert_eq!((scales(&quarter), &quarter.directions), (expected.to_vec(), &None));
    let half = image("half");
    let expected = [micro("z", 1.0, 5.0), micro("y", 0.25, 10.0), micro("x", 0.125, 15.0)];
    assert_eq!(scales(&half), expected);
    let oblique = image("oblique");
    let directions = oblique.directions.as_ref().expect("turned");
    let near = |found: [f64; 3], expected: [f64; 3]| {
        found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-12)
    };
    assert!(near(directions.step(0), [0.0, 0.0, 2.0]), "{directions:?}");
    assert!(near(directions.step(1), [0.4, 0.3, 0.0]), "{directions:?}");
    assert!(near(directions.step(2), [0.15, -0.2, 0.0]), "{directions:?}");
    assert!(near(directions.origin(), [34.0, -12.0, 10.0]), "{directions:?}");
    let lens: Vec<f64> = scales(&oblique).iter().map(|(_, step, ..)| *step).collect();
    assert!(near([lens[0], lens[1], lens[2]], [2.0, 0.5, 0.25]), "{lens:?}");
    // A system that no linear map leads to: the own one, and a line that says so.
    let warped = image("warped");
    assert_eq!(scales(&warped)[0], micro("z", 2.0, 10.0));
    let said = warped.left_out.join("; ");
    assert!(said.contains("\"warped\" (a transformation of type \"displacements\")"), "{said}");
    assert_eq!(scales(&image("nowhere"))[0], micro("z", 2.0, 10.0));
}

#[test]
fn an_image_has_its_place_in_the_scene_of_a_group_above() {
    let scene = json!({"ome": {"version": "0.6", "scene": {
        "coordinateSystems": [{"name": "world", "axes": axes(MICRO)}],
        "coordinateTransformations": [{
            "type": "translation", "translation": [0, 100, 200],
            "input": {"path": "image", "name": "own"}, "output": {"name": "world"},
        }],
    }}});
    let own = multiscale(MICRO, &[], &json!([]));
    let found = image(&own, &scene, Some("world"));
    let expected = [micro("z", 2.0, 10.0), micro("y", 0.5, 120.0), micro("x", 0.25, 230.0)];
    assert_eq!(scales(&found), expected);
    let found = image(&own, &scene, None);
    assert!(found.left_out[0].contains("\"world\""), "{:?}", found.left_out);
}

#[test]
fn axes_of_space_without_usual_names_are_x_y_and_z_from_the_last_on() {
    let space = |names: &str| -> Value {
        names.chars().map(|name| json!({"name": name.to_string(), "type": "space"})).collect()
    };
    let sheared = json!({
        "coordinateSystems": [
            {"name": "own", "axes": space("kji")}, {"name": "sheared", "axes": space("zyx")},
        ],
        "datasets": [{"path": "s0", "coordinateTransformations": [
            {"type": "identity", "input": {"path": "s0"}, "output": {"name": "own"}},
        ]}],
        "coordinateTransformations": [{
            "type": "affine", "affine": [[1, 0, 0, 0], [0, 1, 2, 3], [0, 4, 5, 6]],
            "input": {"name": "own"}, "output": {"name": "sheared"},
        }],
    });
    let found = image(&sheared, &json!({}), Some("sheared"));
    let kinds: Vec<_> = found.axes.iter().filter_map(|axis| axis.kind).collect();
    assert_eq!(kinds, [AxisKind::Z, AxisKind::Y, AxisKind::X]);
    let directions = found.directions.expect("sheared");
    assert_eq!(format!("{:?}", directions.step(2)), "[5.0, 2.0, 0.0]");
    assert_eq!(format!("{:?}", directions.origin()), "[6.0, 3.0, 0.0]");
    assert!(found.axes.iter().all(|axis| axis.scale.is_some()));
}

#[test]
fn axes_in_different_units_get_that_of_x_where_a_format_has_one_unit() {
    let own = multiscale(["millimeter", "micrometer", "nanometer"], &[], &json!([]));
    let found = image(&own, &json!({}), None).in_one_unit();
    let nano = |name: &str, step, start| (name.to_owned(), step, start, "nanometer".to_owned());
    let expected = [nano("z", 2e6, 1e7), nano("y", 500.0, 20_000.0), nano("x", 0.25, 30.0)];
    assert_eq!(scales(&found), expected);
    // Units that cannot be converted stay.
    let own = multiscale(["pixel", "micrometer", "nanometer"], &[], &json!([]));
    let found = image(&own, &json!({}), None).in_one_unit();
    assert_eq!(scales(&found)[0], ("z".to_owned(), 2.0, 10.0, "pixel".to_owned()));
}

#[test]
fn metadata_of_0_6_that_do_not_fit_say_nothing_and_fail_nothing() {
    for wrong in [
        json!({"coordinateSystems": 5}),
        json!({"coordinateSystems": [], "datasets": [{"path": "s0"}]}),
        json!({"coordinateSystems": [{"name": "own", "axes": [{"name": "x"}]}], "datasets": [
            {"path": "s0", "coordinateTransformations": [
                {"type": "scale", "scale": [1, 2, 3], "output": {"name": "own"}},
            ]},
        ]}),
        json!({"coordinateSystems": [{"name": "own", "axes": axes(MICRO)}], "datasets": [
            {"path": "s0", "coordinateTransformations": [
                {"type": "scale", "scale": ["many", 2, 3], "output": {"name": "own"}},
            ]},
        ]}),
    ] {
        let found = image(&wrong, &json!({}), Some("world"));
        assert!(found.axes.iter().all(|axis| axis.scale.is_none()));
    }
}
