//! The tags of GeoTIFF (OGC 19-008r4), which place a page on a map.

use super::directory::{TiffEntry, TiffValue, tag};
use crate::view::map::{Crs, CrsKind, Ellipsoid, MapPlace};
use crate::width::ToU64;

/// The keys, by their names in the specification.
mod key {
    pub const MODEL_TYPE: u16 = 1024;
    pub const RASTER_TYPE: u16 = 1025;
    pub const GEODETIC_CRS: u16 = 2048;
    pub const GEODETIC_CITATION: u16 = 2049;
    pub const GEODETIC_DATUM: u16 = 2050;
    pub const ANGULAR_UNITS: u16 = 2054;
    pub const ELLIPSOID: u16 = 2056;
    pub const ELLIPSOID_SEMI_MAJOR_AXIS: u16 = 2057;
    pub const ELLIPSOID_INVERSE_FLATTENING: u16 = 2059;
    pub const PROJECTED_CRS: u16 = 3072;
    pub const PROJECTION: u16 = 3074;
    pub const PROJECTION_METHOD: u16 = 3075;
    pub const LINEAR_UNITS: u16 = 3076;
}

/// The value of a key that has no code.
const USER_DEFINED: u16 = 32767;

/// The codes of units.
const DEGREE: u16 = 9102;
const METRE: u16 = 9001;
const KILOMETRE: u16 = 9036;

/// The value of a key.
enum KeyValue {
    Short(u16),
    Double(f64),
    Text(String),
}

/// Returns the entries that place a page on a map.
pub(super) fn entries(place: &MapPlace) -> Vec<TiffEntry> {
    let [a, b, c, d, e, f] = place.transform;
    let mut entries = if let Some([width, height, x, y]) = place.north_up() {
        vec![
            (tag::MODEL_PIXEL_SCALE, TiffValue::Double(vec![width, height, 0.0])),
            (tag::MODEL_TIEPOINT, TiffValue::Double(vec![0.0, 0.0, 0.0, x, y, 0.0])),
        ]
    } else {
        let rows = [[a, b, 0.0, c], [d, e, 0.0, f], [0.0; 4], [0.0, 0.0, 0.0, 1.0]];
        vec![(tag::MODEL_TRANSFORMATION, TiffValue::Double(rows.concat()))]
    };
    entries.extend(directory(place.crs.as_ref()));
    entries
}

/// Returns the directory of keys, with the tags that hold their values.
fn directory(crs: Option<&Crs>) -> Vec<TiffEntry> {
    let mut keys = vec![(key::RASTER_TYPE, KeyValue::Short(1))];
    keys.extend(crs.map(keys_of).unwrap_or_default());
    keys.sort_by_key(|(key, _)| *key);
    let (mut directory, mut doubles, mut texts) = (Vec::new(), Vec::new(), String::new());
    let short = |len: usize| u16::try_from(len.to_u64()).unwrap_or(u16::MAX);
    for (key, value) in keys {
        match value {
            KeyValue::Short(value) => directory.extend([key, 0, 1, value]),
            KeyValue::Double(value) => {
                directory.extend([key, tag::GEO_DOUBLE_PARAMS, 1, short(doubles.len())]);
                doubles.push(value);
            }
            KeyValue::Text(text) => {
                let text = text.replace('|', "_");
                let len = short(text.len().saturating_add(1));
                directory.extend([key, tag::GEO_ASCII_PARAMS, len, short(texts.len())]);
                texts.push_str(&text);
                texts.push('|');
            }
        }
    }
    let head = [1, 1, 0, short(directory.len() / 4)];
    let all = head.into_iter().chain(directory).collect();
    let mut entries = vec![(tag::GEO_KEY_DIRECTORY, TiffValue::Short(all))];
    if !doubles.is_empty() {
        entries.push((tag::GEO_DOUBLE_PARAMS, TiffValue::Double(doubles)));
    }
    if !texts.is_empty() {
        entries.push((tag::GEO_ASCII_PARAMS, TiffValue::Text(texts)));
    }
    entries
}

/// Returns the keys of a coordinate reference system.
fn keys_of(crs: &Crs) -> Vec<(u16, KeyValue)> {
    let model = |kind: u16| (key::MODEL_TYPE, KeyValue::Short(kind));
    match (crs.kind, crs.code) {
        (CrsKind::Projected, Some(code)) => {
            vec![model(1), (key::PROJECTED_CRS, KeyValue::Short(code))]
        }
        (CrsKind::Geographic, Some(code)) => {
            let degrees = (key::ANGULAR_UNITS, KeyValue::Short(DEGREE));
            vec![model(2), (key::GEODETIC_CRS, KeyValue::Short(code)), degrees]
        }
        (CrsKind::Geographic, None) => {
            let Some(ellipsoid) = &crs.ellipsoid else { return Vec::new() };
            std::iter::once(model(2)).chain(keys_of_ellipsoid(ellipsoid)).collect()
        }
        (CrsKind::Projected, None) => {
            let Some((ellipsoid, projection)) = crs.ellipsoid.as_ref().zip(crs.projection.as_ref())
            else {
                return Vec::new();
            };
            let unit = if projection.unit > 1.0 { KILOMETRE } else { METRE };
            let mut keys = vec![
                model(1),
                (key::PROJECTED_CRS, KeyValue::Short(USER_DEFINED)),
                (key::PROJECTION, KeyValue::Short(USER_DEFINED)),
                (key::PROJECTION_METHOD, KeyValue::Short(projection.method.code)),
                (key::LINEAR_UNITS, KeyValue::Short(unit)),
            ];
            keys.extend(keys_of_ellipsoid(ellipsoid));
            keys.extend(projection.keys().map(|(key, value)| (key, KeyValue::Double(value))));
            keys
        }
    }
}

/// Returns the keys of longitudes and latitudes on an ellipsoid.
fn keys_of_ellipsoid(ellipsoid: &Ellipsoid) -> Vec<(u16, KeyValue)> {
    let degrees = (key::ANGULAR_UNITS, KeyValue::Short(DEGREE));
    if let Some(code) = ellipsoid.code {
        return vec![(key::GEODETIC_CRS, KeyValue::Short(code)), degrees];
    }
    vec![
        (key::GEODETIC_CRS, KeyValue::Short(USER_DEFINED)),
        (key::GEODETIC_CITATION, KeyValue::Text(ellipsoid.name.clone())),
        (key::GEODETIC_DATUM, KeyValue::Short(USER_DEFINED)),
        degrees,
        (key::ELLIPSOID, KeyValue::Short(USER_DEFINED)),
        (key::ELLIPSOID_SEMI_MAJOR_AXIS, KeyValue::Double(ellipsoid.major)),
        (key::ELLIPSOID_INVERSE_FLATTENING, KeyValue::Double(ellipsoid.inverse_flattening)),
    ]
}
