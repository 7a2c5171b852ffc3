//! An array as an image of OME-Zarr 0.5: the units of its axes, and where its elements are.
//!
//! <https://ngff.openmicroscopy.org/0.5/>

use serde_json::{Map, Value, json};

use crate::json::double;
use zarrfs_codec::json::Object;

/// An axis of an image.
#[derive(Debug, Clone, Default)]
pub struct ImageAxis {
    /// Its name.
    pub name: String,
    /// `space`, `time` or `channel`, if that is known.
    pub kind: Option<&'static str>,
    /// The name of the unit of the step and the start.
    pub unit: Option<String>,
    /// The distance between elements, if it is known.
    pub step: Option<f64>,
    /// The place of the first element.
    pub start: f64,
}

impl ImageAxis {
    /// Returns an axis of space.
    pub fn space(name: &str) -> Self {
        Self { name: name.to_owned(), kind: Some("space"), ..Self::default() }
    }
}

/// Returns the attributes of a group in which `path` is an image. The slowest axis is the first.
pub fn attributes(path: &str, axes: &[ImageAxis]) -> Object {
    let listed: Vec<Value> = axes
        .iter()
        .map(|axis| {
            let mut members = Map::from_iter([("name".to_owned(), json!(axis.name))]);
            let optional = [("type", axis.kind), ("unit", axis.unit.as_deref())];
            for (name, value) in optional {
                if let Some(value) = value {
                    members.insert(name.to_owned(), json!(value));
                }
            }
            members.into()
        })
        .collect();
    let step = |axis: &ImageAxis| axis.step.filter(|step| step.is_normal()).unwrap_or(1.0);
    let start = |axis: &ImageAxis| if axis.start.is_finite() { axis.start } else { 0.0 };
    let steps: Vec<Value> = axes.iter().map(|axis| double(step(axis))).collect();
    let starts: Vec<Value> = axes.iter().map(|axis| double(start(axis))).collect();
    let mut places = vec![json!({"type": "scale", "scale": steps})];
    if axes.iter().any(|axis| start(axis) != 0.0) {
        places.push(json!({"type": "translation", "translation": starts}));
    }
    let image = json!({
        "name": path,
        "axes": listed,
        "datasets": [{"path": path, "coordinateTransformations": places}],
    });
    let ome = json!({"version": "0.5", "multiscales": [image]});
    Map::from_iter([("ome".to_owned(), ome)])
}

/// Returns the names of axes, as names of dimensions.
pub fn names(axes: &[ImageAxis]) -> Vec<Option<String>> {
    axes.iter().map(|axis| Some(axis.name.clone())).collect()
}

/// Returns the name of a unit in OME-Zarr: `millimeter` for `mm`.
pub fn unit(symbol: &str) -> String {
    let named = match symbol.trim() {
        "m" => "meter",
        "cm" => "centimeter",
        "mm" => "millimeter",
        "um" | "µm" | "μm" | "micron" | "microns" => "micrometer",
        "nm" => "nanometer",
        "pm" => "picometer",
        "A" | "Å" | "angstroms" | "Angstrom" => "angstrom",
        "s" | "sec" | "seconds" => "second",
        "ms" | "msec" => "millisecond",
        "us" | "µs" | "usec" => "microsecond",
        other => other,
    };
    named.to_owned()
}
