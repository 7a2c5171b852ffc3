//! Recognises the kinds of axes: by the usual names of dimensions, by the coordinates that the CF
//! conventions describe (<https://cfconventions.org/>), and by their order.

use super::axis::{Axis, AxisKind};
use crate::dtype::{DType, Time};
use crate::json::Object;
use crate::view::source::ViewSource;

/// The usual names of axes, in lower case.
const NAMES: [(AxisKind, &[&str]); 5] = [
    (
        AxisKind::Time,
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
    (AxisKind::Channel, &["c", "ch", "channel", "channels", "band", "bands", "rgb", "rgba"]),
    (
        AxisKind::Z,
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
        AxisKind::Y,
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
        AxisKind::X,
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
pub(super) fn of_name(name: &str) -> Option<AxisKind> {
    let name = name.to_lowercase();
    // A second axis of its kind often has a number.
    let plain = name.trim_end_matches(|char: char| char.is_ascii_digit());
    let plain = if plain == name { plain } else { plain.trim_end_matches('_') };
    let known = |name: &str| NAMES.iter().find(|(_, names)| names.contains(&name));
    known(&name).or_else(|| known(plain)).map(|(kind, _)| *kind)
}

/// Finds the kinds of axes by their names, or by the coordinates in the group of the array.
pub(super) fn find(source: &ViewSource<'_>, axes: &mut [Axis]) {
    // In pictures the height is an axis of rows.
    let is_picture = axes.iter().any(|axis| axis.name.as_deref() == Some("width"));
    for axis in axes.iter_mut() {
        let Some(name) = axis.name.as_deref() else { continue };
        axis.kind = match name {
            "height" if is_picture => Some(AxisKind::Y),
            name => of_name(name).or_else(|| of_coordinates(source, name, axis.len)),
        };
    }
}

/// Returns the kind of an axis by its coordinates, an array with its name.
fn of_coordinates(source: &ViewSource<'_>, name: &str, len: u64) -> Option<AxisKind> {
    let path = source.path().parent()?.child(name).ok()?;
    let coordinates = source.other(&path).ok()?;
    let model = coordinates.array().ok()?.model();
    if model.shape != [len] {
        return None;
    }
    match model.dtype {
        DType::Time(Time { is_span: false, .. }) => Some(AxisKind::Time),
        _ => of_attributes(coordinates.attributes()),
    }
}

/// Returns the kind of an axis by the attributes of its coordinates.
fn of_attributes(attributes: &Object) -> Option<AxisKind> {
    let text = |name: &str| {
        attributes.get(name).and_then(|value| value.as_str()).map(|text| text.trim().to_lowercase())
    };
    let of_axis = text("axis").and_then(|axis| {
        Some(match axis.as_str() {
            "t" => AxisKind::Time,
            "z" => AxisKind::Z,
            "y" => AxisKind::Y,
            "x" => AxisKind::X,
            _ => return None,
        })
    });
    let of_type = || {
        Some(match text("_CoordinateAxisType")?.as_str() {
            "time" | "runtime" => AxisKind::Time,
            "height" | "pressure" | "geoz" => AxisKind::Z,
            "lat" | "geoy" => AxisKind::Y,
            "lon" | "geox" => AxisKind::X,
            _ => return None,
        })
    };
    let of_words = |name: &str| {
        let words = text(name)?.replace(' ', "_");
        of_name(&words).or_else(|| {
            let has = |part: &str| words.contains(part);
            let begins = |starts: &[&str]| starts.iter().any(|start| words.starts_with(start));
            let is_vertical = begins(&["atmosphere_", "ocean_"]) && has("_coordinate");
            let is_vertical = is_vertical || begins(&["height_"]) || has("pressure");
            match is_vertical || has("altitude") || has("depth") || has("level") {
                true => Some(AxisKind::Z),
                false if has("latitude") => Some(AxisKind::Y),
                false if has("longitude") => Some(AxisKind::X),
                false if words == "time" || words.ends_with("_time") => Some(AxisKind::Time),
                false => None,
            }
        })
    };
    let of_units = || {
        let units = text("units")?;
        if units.contains(" since ") {
            return Some(AxisKind::Time);
        }
        let direction = units.strip_prefix("degree").map(|rest| rest.trim_start_matches('s'));
        match direction.map(|rest| rest.trim_start_matches('_')) {
            Some("north" | "n") => Some(AxisKind::Y),
            Some("east" | "e") => Some(AxisKind::X),
            _ => PRESSURES.contains(&units.as_str()).then_some(AxisKind::Z),
        }
    };
    let of_direction = || {
        let positive = text("positive")?;
        ["up", "down"].contains(&positive.as_str()).then_some(AxisKind::Z)
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
    for kind in [AxisKind::Time, AxisKind::Channel, AxisKind::Z, AxisKind::Y, AxisKind::X] {
        let all: Vec<usize> = (0..axes.len())
            .filter(|at| axes.get(*at).is_some_and(|a| a.kind == Some(kind)))
            .collect();
        let kept = if kind == AxisKind::Time { all.first() } else { all.last() };
        for at in all.iter().filter(|at| Some(*at) != kept) {
            axes.get_mut(*at).into_iter().for_each(|axis| axis.kind = None);
        }
    }
    let has = |axes: &[Axis], kind| axes.iter().any(|axis| axis.kind == Some(kind));
    let missing = match (has(axes, AxisKind::X), has(axes, AxisKind::Y)) {
        (true, true) => return,
        (true, false) => vec![AxisKind::Y],
        (false, true) => vec![AxisKind::X],
        (false, false) => {
            let mut all = vec![AxisKind::X, AxisKind::Y, AxisKind::Z];
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
            (&["c_", "y", "x"], "- Y X"),
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
            (json!({"units": "degrees_north"}), Some(AxisKind::Y)),
            (json!({"units": "degreesE"}), Some(AxisKind::X)),
            (json!({"units": "days since 2000-01-01"}), Some(AxisKind::Time)),
            (json!({"units": "hPa"}), Some(AxisKind::Z)),
            (json!({"axis": "Z", "units": "1"}), Some(AxisKind::Z)),
            (json!({"standard_name": "projection_x_coordinate", "units": "m"}), Some(AxisKind::X)),
            (json!({"standard_name": "ocean_sigma_coordinate"}), Some(AxisKind::Z)),
            (json!({"standard_name": "air_pressure"}), Some(AxisKind::Z)),
            (json!({"positive": "down", "units": "m"}), Some(AxisKind::Z)),
            (json!({"long_name": "Latitude"}), Some(AxisKind::Y)),
            (json!({"_CoordinateAxisType": "GeoX"}), Some(AxisKind::X)),
            (json!({"units": "m", "axis": 3}), None),
        ] {
            let attributes = attributes.as_object().expect("an object");
            assert_eq!(of_attributes(attributes), expected, "{attributes:?}");
        }
    }
}
