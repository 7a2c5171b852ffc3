//! The place of an image on a map, as attributes and coordinates.

use serde_json::{Value, json};

use super::MAX_COORDINATES;
use super::crs::KeyedCrs;
use super::keys::GeoKeys;
use crate::described::{Described, DescribedArray, bytes_codec};
use crate::tiff::directory::{TagDirectory, TiffBytes, tag};
use zarrfs_base::error::Result;
use zarrfs_codec::dtype::to_float;
use zarrfs_codec::json::Object;

/// The place of an image.
#[derive(Debug, Clone, Default)]
pub struct GeoPlace {
    /// The corner of a pixel: `x = a*column + b*row + c`, `y = d*column + e*row + f`.
    transform: Option<[f64; 6]>,
    crs: Option<KeyedCrs>,
    /// Whether a value is that of the middle of a pixel.
    is_point: bool,
    /// Whether points say where it lies in place of a transform.
    pub has_control_points: bool,
}

impl GeoPlace {
    /// Reads the place of a page.
    pub fn read(bytes: &TiffBytes, directory: &TagDirectory) -> Result<Self> {
        let floats = |tag: u16, most: u64| match directory.get(tag) {
            Some(values) => bytes.floats(values, most),
            None => Ok(Vec::new()),
        };
        let keys = GeoKeys::read(bytes, directory)?;
        let is_point = keys.short(1025) == Some(2);
        let points = floats(tag::MODEL_TIEPOINT, 12)?;
        let transform = match (
            floats(tag::MODEL_PIXEL_SCALE, 3)?.as_slice(),
            points.as_slice(),
            floats(tag::MODEL_TRANSFORMATION, 16)?.as_slice(),
        ) {
            ([width, height, ..], [column, row, _, x, y, ..], _) => {
                Some([*width, 0.0, x - column * width, 0.0, -height, y + row * height])
            }
            (_, _, [a, b, _, c, d, e, _, f, ..]) => Some([*a, *b, *c, *d, *e, *f]),
            _ => None,
        };
        let corner = |[a, b, c, d, e, f]: [f64; 6]| {
            let half = if is_point { 0.5 } else { 0.0 };
            [a, b, c - half * (a + b), d, e, f - half * (d + e)]
        };
        let transform = transform.map(corner).filter(|all| all.iter().all(|part| part.is_finite()));
        let has_control_points = transform.is_none() && points.len() > 6;
        Ok(Self { transform, crs: KeyedCrs::of(&keys), is_point, has_control_points })
    }

    /// Returns the place of a resolution whose pixels have this many columns and rows.
    pub fn scaled(&self, [across, down]: [f64; 2]) -> Self {
        let scaled =
            |[a, b, c, d, e, f]: [f64; 6]| [a * across, b * down, c, d * across, e * down, f];
        Self { transform: self.transform.map(scaled), ..self.clone() }
    }

    /// Returns the attributes of an array at this place.
    pub fn attributes(&self) -> Object {
        let mut attributes = Object::new();
        let mut add = |name: &str, value: Value| attributes.insert(name.to_owned(), value);
        if self.transform.is_none() && self.crs.is_none() {
            return attributes;
        }
        add("grid_mapping", json!("spatial_ref"));
        add("AREA_OR_POINT", json!(if self.is_point { "Point" } else { "Area" }));
        if let Some(transform) = self.transform {
            add("spatial:transform", json!(transform));
            add("spatial:dimensions", json!(["y", "x"]));
        }
        if let Some(code) = self.crs.as_ref().and_then(|crs| crs.code) {
            add("proj:code", json!(format!("EPSG:{code}")));
        }
        attributes
    }

    /// Describes the array that `grid_mapping` names.
    pub fn describe(&self, described: &mut Described, path: &str) -> Result<()> {
        if self.transform.is_none() && self.crs.is_none() {
            return Ok(());
        }
        let mut attributes = Object::new();
        let mut add = |name: &str, value: Value| attributes.insert(name.to_owned(), value);
        if let Some(crs) = &self.crs {
            let code = crs.code.map(|code| format!("EPSG:{code}"));
            if let Some(text) = crs.wkt.clone().or(code) {
                add("crs_wkt", json!(text));
                add("spatial_ref", json!(text));
            }
            if crs.is_geographic {
                add("grid_mapping_name", json!("latitude_longitude"));
            }
        }
        if let Some([a, b, c, d, e, f]) = self.transform {
            add("GeoTransform", json!(format!("{c} {a} {b} {f} {d} {e}")));
        }
        let array = DescribedArray {
            data_type: json!("int64"),
            codecs: vec![bytes_codec(false)],
            fill_value: json!(0),
            dimension_names: Some(Vec::new()),
            attributes,
            ..DescribedArray::default()
        };
        described.array(path, &array)?;
        described.inline(path, &[], 0_i64.to_le_bytes().to_vec())
    }

    /// Returns the coordinates along `x` or `y`, which are the middles of pixels, with attributes;
    /// `None` if the image is rotated or has too many.
    pub fn coordinates(&self, name: &str, len: u64) -> Option<(Vec<f64>, Object)> {
        let [a, b, c, d, e, f] = self.transform?;
        if len > MAX_COORDINATES || b != 0.0 || d != 0.0 {
            return None;
        }
        let (start, step) = if name == "x" { (c, a) } else { (f, e) };
        let value = |at: u64| start + step * (to_float(at.into()) + 0.5);
        let values = (0..len).map(value).collect();
        let is_x = name == "x";
        let text = |of_x: &str, of_y: &str| json!(if is_x { of_x } else { of_y });
        let mut attributes = Object::from_iter([("axis".to_owned(), text("X", "Y"))]);
        let mut add = |name: &str, value: Value| attributes.insert(name.to_owned(), value);
        match &self.crs {
            Some(crs) if crs.is_geographic => {
                add("long_name", text("longitude", "latitude"));
                add("standard_name", text("longitude", "latitude"));
                add("units", text("degrees_east", "degrees_north"));
            }
            Some(crs) => {
                add("long_name", text("x coordinate of projection", "y coordinate of projection"));
                add("standard_name", text("projection_x_coordinate", "projection_y_coordinate"));
                if let Some(unit) = crs.unit {
                    add("units", json!(unit));
                }
            }
            None => {}
        }
        Some((values, attributes))
    }
}
