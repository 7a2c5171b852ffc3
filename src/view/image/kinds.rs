//! Recognises the kinds of axes: by the usual names of dimensions, by the coordinates that the CF
//! conventions describe (<https://cfconventions.org/>), and by their order.

use super::axis::{Axis, Kind};
use crate::dtype::{DType, Time};
use crate::json::Object;
use crate::view::source::Source;

/// The usual names of axes, in lower case.
const NAMES: [(Kind, &[&str]); 5] = [
    (
        Kind::Time,
        &[
            "t",
            "time",
            "times",
            "date",
            "dates",
            "datetime",
            "timestamp",
            "year",
            "month",
            "day",
            "hour",
            "frame",
            "frames",
            "step",
            "valid_time",
            "forecast_time",
            "forecast_period",
            "forecast_reference_time",
            "reftime",
            "lead_time",
            "leadtime",
            "ocean_time",
            "xtime",
            "time_counter",
        ],
    ),
    (Kind::Channel, &["c", "ch", "channel", "channels", "band", "bands", "rgb", "rgba"]),
    (
        Kind::Z,
        &[
            "z",
            "depth",
            "depths",
            "deptht",
            "depthu",
            "depthv",
            "depthw",
            "lev",
            "levs",
            "level",
            "levels",
            "nav_lev",
            "plev",
            "pressure",
            "isobaric",
            "isobaricinhpa",
            "hybrid",
            "sigma",
            "height",
            "heights",
            "alt",
            "altitude",
            "elevation",
            "layer",
            "layers",
            "soil_layers",
            "soil_layers_stag",
            "bottom_top",
            "bottom_top_stag",
            "s_rho",
            "s_w",
            "slice",
            "slices",
            "section",
            "sections",
            "nz",
            "nlev",
            "zc",
            "zf",
        ],
    ),
    (
        Kind::Y,
        &[
            "y",
            "lat",
            "lats",
            "latitude",
            "latitudes",
            "nav_lat",
            "rlat",
            "grid_latitude",
            "projection_y_coordinate",
            "northing",
            "northings",
            "row",
            "rows",
            "line",
            "lines",
            "south_north",
            "south_north_stag",
            "eta_rho",
            "eta_u",
            "eta_v",
            "eta_psi",
            "ny",
            "nj",
            "nlat",
            "yc",
            "yh",
            "yq",
        ],
    ),
    (
        Kind::X,
        &[
            "x",
            "lon",
            "lons",
            "long",
            "longitude",
            "longitudes",
            "nav_lon",
            "rlon",
            "grid_longitude",
            "projection_x_coordinate",
            "easting",
            "eastings",
            "col",
            "cols",
            "column",
            "columns",
            "west_east",
            "west_east_stag",
            "xi_rho",
            "xi_u",
            "xi_v",
            "xi_psi",
            "nx",
            "ni",
            "nlon",
            "xc",
            "xh",
            "xq",
            "width",
        ],
    ),
];

/// Units of pressure, which measure height.
const PRESSURES: [&str; 9] =
    ["pa", "hpa", "kpa", "mbar", "mb", "millibar", "bar", "dbar", "decibar"];

/// Returns the kind of an axis with this name.
pub(super) fn of_name(name: &str) -> Option<Kind> {
    let name = name.to_lowercase();
    // A second axis of its kind often has a number.
    let plain = name.trim_end_matches(|char: char| char.is_ascii_digit()).trim_end_matches('_');
    let known = |name: &str| NAMES.iter().find(|(_, names)| names.contains(&name));
    known(&name).or_else(|| known(plain)).map(|(kind, _)| *kind)
}

/// Finds the kinds of axes by their names, or by the coordinates in the group of the array.
pub(super) fn find(source: &Source<'_>, axes: &mut [Axis]) {
    // In pictures the height is an axis of rows.
    let is_picture = axes.iter().any(|axis| axis.name.as_deref() == Some("width"));
    for axis in axes.iter_mut() {
        let Some(name) = axis.name.as_deref() else { continue };
        axis.kind = match name {
            "height" if is_picture => Some(Kind::Y),
            name => of_name(name).or_else(|| of_coordinates(source, name, axis.len)),
        };
    }
}

/// Returns the kind of an axis by its coordinates, an array with its name.
fn of_coordinates(source: &Source<'_>, name: &str, len: u64) -> Option<Kind> {
    let path = source.path().parent()?.child(name).ok()?;
    let coordinates = source.other(&path).ok()?;
    let model = coordinates.array().ok()?.model();
    if model.shape != [len] {
        return None;
    }
    match model.dtype {
        DType::Time(Time { is_span: false, .. }) => Some(Kind::Time),
        _ => of_attributes(coordinates.attributes()),
    }
}

/// Returns the kind of an axis by the attributes of its coordinates.
fn of_attributes(attributes: &Object) -> Option<Kind> {
    let text = |name: &str| {
        attributes.get(name).and_then(|value| value.as_str()).map(|text| text.trim().to_lowercase())
    };
    let of_axis = text("axis").and_then(|axis| {
        Some(match axis.as_str() {
            "t" => Kind::Time,
            "z" => Kind::Z,
            "y" => Kind::Y,
            "x" => Kind::X,
            _ => return None,
        })
    });
    let of_type = || {
        Some(match text("_CoordinateAxisType")?.as_str() {
            "time" | "runtime" => Kind::Time,
            "height" | "pressure" | "geoz" => Kind::Z,
            "lat" | "geoy" => Kind::Y,
            "lon" | "geox" => Kind::X,
            _ => return None,
        })
    };
    let of_words = |name: &str| {
        let words = text(name)?.replace(' ', "_");
        of_name(&words).or_else(|| {
            let has = |part: &str| words.contains(part);
            let is_vertical =
                ["atmosphere_", "ocean_"].iter().any(|start| words.starts_with(start))
                    && has("_coordinate");
            let is_vertical = is_vertical || words.starts_with("height_") || has("pressure");
            match is_vertical || has("altitude") || has("depth") || has("level") {
                true => Some(Kind::Z),
                false if has("latitude") => Some(Kind::Y),
                false if has("longitude") => Some(Kind::X),
                false if words == "time" || words.ends_with("_time") => Some(Kind::Time),
                false => None,
            }
        })
    };
    let of_units = || {
        let units = text("units")?;
        if units.contains(" since ") {
            return Some(Kind::Time);
        }
        let direction = units.strip_prefix("degree").map(|rest| rest.trim_start_matches('s'));
        match direction.map(|rest| rest.trim_start_matches('_')) {
            Some("north" | "n") => Some(Kind::Y),
            Some("east" | "e") => Some(Kind::X),
            _ => PRESSURES.contains(&units.as_str()).then_some(Kind::Z),
        }
    };
    let of_direction = || {
        text("positive").filter(|positive| positive == "up" || positive == "down").map(|_| Kind::Z)
    };
    of_axis
        .or_else(of_type)
        .or_else(|| of_words("standard_name"))
        .or_else(of_units)
        .or_else(of_direction)
        .or_else(|| of_words("long_name"))
}

/// Decides about axes of a kind that several have, and about those of none: without a name for rows
/// and columns, the last axes are x, y and z.
pub(super) fn complete(axes: &mut [Axis]) {
    for kind in [Kind::Time, Kind::Channel, Kind::Z, Kind::Y, Kind::X] {
        let all: Vec<usize> = (0..axes.len())
            .filter(|at| axes.get(*at).is_some_and(|a| a.kind == Some(kind)))
            .collect();
        let kept = if kind == Kind::Time { all.first() } else { all.last() };
        for at in all.iter().filter(|at| Some(*at) != kept) {
            axes.get_mut(*at).into_iter().for_each(|axis| axis.kind = None);
        }
    }
    let has = |axes: &[Axis], kind| axes.iter().any(|axis| axis.kind == Some(kind));
    let missing = match (has(axes, Kind::X), has(axes, Kind::Y)) {
        (true, true) => return,
        (true, false) => vec![Kind::Y],
        (false, true) => vec![Kind::X],
        (false, false) => {
            let mut all = vec![Kind::X, Kind::Y, Kind::Z];
            all.retain(|kind| !has(axes, *kind));
            all
        }
    };
    let unknown = axes.iter_mut().rev().filter(|axis| axis.kind.is_none());
    for (axis, kind) in unknown.zip(missing) {
        axis.kind = Some(kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn kinds(names: &[&str]) -> String {
        let axis = |name: &&str| Axis {
            name: Some((*name).to_owned()).filter(|name| !name.is_empty()),
            kind: of_name(name),
            ..Axis::default()
        };
        let mut axes: Vec<Axis> = names.iter().map(axis).collect();
        complete(&mut axes);
        let letter = |axis: &Axis| axis.kind.map_or("-".to_owned(), |kind| format!("{kind:?}"));
        axes.iter().map(letter).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn axes_are_known_by_usual_names_and_else_by_their_order() {
        for (names, expected) in [
            (&["time", "lat", "lon"][..], "Time Y X"),
            (&["Longitude", "Latitude", "Time"], "X Y Time"),
            (&["time", "plev", "nav_lat", "rlon"], "Time Z Y X"),
            (&["ocean_time", "s_rho", "eta_rho", "xi_rho"], "Time Z Y X"),
            (&["a", "b", "channel", "d"], "Z Y Channel X"),
            (&["", "", "", ""], "- Z Y X"),
            (&["time", "one", "two"], "Time Y X"),
            (&["time", "lat_0", "lon_0"], "Time Y X"),
            (&["x", "x"], "Y X"),
            (&["t", "t"], "Time X"),
            (&["sample", "y", "x"], "- Y X"),
            (&["lat"], "Y"),
        ] {
            assert_eq!(kinds(names), expected, "{names:?}");
        }
    }

    #[test]
    fn axes_are_known_by_what_cf_says_of_their_coordinates() {
        for (attributes, expected) in [
            (json!({"units": "degrees_north"}), Some(Kind::Y)),
            (json!({"units": "degreesE"}), Some(Kind::X)),
            (json!({"units": "days since 2000-01-01"}), Some(Kind::Time)),
            (json!({"units": "hPa"}), Some(Kind::Z)),
            (json!({"axis": "Z", "units": "1"}), Some(Kind::Z)),
            (json!({"standard_name": "projection_x_coordinate", "units": "m"}), Some(Kind::X)),
            (json!({"standard_name": "ocean_sigma_coordinate"}), Some(Kind::Z)),
            (json!({"standard_name": "air_pressure"}), Some(Kind::Z)),
            (json!({"positive": "down", "units": "m"}), Some(Kind::Z)),
            (json!({"long_name": "Latitude"}), Some(Kind::Y)),
            (json!({"_CoordinateAxisType": "GeoX"}), Some(Kind::X)),
            (json!({"units": "m", "axis": 3}), None),
        ] {
            let attributes = attributes.as_object().expect("an object");
            assert_eq!(of_attributes(attributes), expected, "{attributes:?}");
        }
    }
}
