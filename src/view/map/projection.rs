//! Map projections: by the names of the CF conventions, of well-known text in both versions, and of
//! GeoTIFF.
//!
//! <https://cfconventions.org/cf-conventions/cf-conventions.html#appendix-grid-mappings>

use serde_json::Value;

use super::wkt::Item;
use crate::json::Object;

/// A kind of projection.
#[derive(Debug, PartialEq)]
pub struct Method {
    /// The name of the grid mapping.
    cf: &'static str,
    /// The name in well-known text of version 1.
    pub wkt: &'static str,
    /// The names in version 2.
    wkt2: &'static [&'static str],
    /// The code in GeoTIFF.
    pub code: u16,
    /// The parameters, besides those of [`FALSE_ORIGIN`].
    parameters: &'static [Parameter],
}

/// A parameter of a projection.
#[derive(Debug, PartialEq)]
pub struct Parameter {
    /// The name in well-known text of version 1.
    pub wkt: &'static str,
    /// The key in GeoTIFF.
    pub key: u16,
    cf: &'static str,
    /// The names in version 2.
    wkt2: &'static [&'static str],
    /// The value if it is absent.
    default: f64,
}

const fn parameter(
    wkt: &'static str,
    key: u16,
    cf: &'static str,
    wkt2: &'static [&'static str],
) -> Parameter {
    Parameter { wkt, key, cf, wkt2, default: 0.0 }
}

const ORIGIN: &str = "latitude_of_projection_origin";
const MERIDIAN: &str = "longitude_of_central_meridian";
const LONGITUDE: &str = "longitude_of_projection_origin";
const PARALLEL: &str = "standard_parallel";
const NATURAL_LAT: &[&str] = &["Latitude of natural origin", "Latitude of projection centre"];
const NATURAL_LON: &[&str] = &["Longitude of natural origin", "Longitude of projection centre"];
const FALSE_LAT: &[&str] = &["Latitude of false origin"];
const FALSE_LON: &[&str] = &["Longitude of false origin"];
const FIRST: &[&str] = &["Latitude of 1st standard parallel"];
const SECOND: &[&str] = &["Latitude of 2nd standard parallel"];

/// The scale at the origin, 1 if it is absent.
const fn scale(cf: &'static str) -> Parameter {
    let wkt2 = &["Scale factor at natural origin"];
    Parameter { default: 1.0, ..parameter("scale_factor", 3092, cf, wkt2) }
}

/// The parameters that every projection has.
const FALSE_ORIGIN: [Parameter; 2] = [
    parameter(
        "false_easting",
        3082,
        "false_easting",
        &["False easting", "Easting at false origin"],
    ),
    parameter(
        "false_northing",
        3083,
        "false_northing",
        &["False northing", "Northing at false origin"],
    ),
];

/// The code of the conic projection whose origin has keys of its own.
const CONFORMAL_CONIC: u16 = 8;

const METHODS: &[Method] = &[
    Method {
        cf: "transverse_mercator",
        wkt: "Transverse_Mercator",
        wkt2: &["Transverse Mercator"],
        code: 1,
        parameters: &[
            parameter("latitude_of_origin", 3081, ORIGIN, NATURAL_LAT),
            parameter("central_meridian", 3080, MERIDIAN, NATURAL_LON),
            scale("scale_factor_at_central_meridian"),
        ],
    },
    Method {
        cf: "mercator",
        wkt: "Mercator_2SP",
        wkt2: &["Mercator (variant B)"],
        code: 7,
        parameters: &[
            parameter("standard_parallel_1", 3078, PARALLEL, FIRST),
            parameter("central_meridian", 3080, LONGITUDE, NATURAL_LON),
        ],
    },
    Method {
        cf: "",
        wkt: "Mercator_1SP",
        wkt2: &["Mercator (variant A)"],
        code: 7,
        parameters: &[
            parameter("latitude_of_origin", 3081, ORIGIN, NATURAL_LAT),
            parameter("central_meridian", 3080, LONGITUDE, NATURAL_LON),
            scale("scale_factor_at_projection_origin"),
        ],
    },
    Method {
        cf: "lambert_conformal_conic",
        wkt: "Lambert_Conformal_Conic_2SP",
        wkt2: &["Lambert Conic Conformal (2SP)"],
        code: CONFORMAL_CONIC,
        parameters: &[
            parameter("standard_parallel_1", 3078, PARALLEL, FIRST),
            parameter("standard_parallel_2", 3079, PARALLEL, SECOND),
            parameter("latitude_of_origin", 3085, ORIGIN, FALSE_LAT),
            parameter("central_meridian", 3084, MERIDIAN, FALSE_LON),
        ],
    },
    Method {
        cf: "",
        wkt: "Lambert_Conformal_Conic_1SP",
        wkt2: &["Lambert Conic Conformal (1SP)"],
        code: 9,
        parameters: &[
            parameter("latitude_of_origin", 3081, ORIGIN, NATURAL_LAT),
            parameter("central_meridian", 3080, MERIDIAN, NATURAL_LON),
            scale("scale_factor_at_projection_origin"),
        ],
    },
    Method {
        cf: "lambert_azimuthal_equal_area",
        wkt: "Lambert_Azimuthal_Equal_Area",
        wkt2: &["Lambert Azimuthal Equal Area", "Lambert Azimuthal Equal Area (Spherical)"],
        code: 10,
        parameters: &[
            parameter("latitude_of_center", 3089, ORIGIN, NATURAL_LAT),
            parameter("longitude_of_center", 3088, LONGITUDE, NATURAL_LON),
        ],
    },
    Method {
        cf: "albers_conical_equal_area",
        wkt: "Albers_Conic_Equal_Area",
        wkt2: &["Albers Equal Area"],
        code: 11,
        parameters: &[
            parameter("standard_parallel_1", 3078, PARALLEL, FIRST),
            parameter("standard_parallel_2", 3079, PARALLEL, SECOND),
            parameter("latitude_of_center", 3081, ORIGIN, FALSE_LAT),
            parameter("longitude_of_center", 3080, MERIDIAN, FALSE_LON),
        ],
    },
    Method {
        cf: "azimuthal_equidistant",
        wkt: "Azimuthal_Equidistant",
        wkt2: &["Azimuthal Equidistant", "Modified Azimuthal Equidistant"],
        code: 12,
        parameters: &[
            parameter("latitude_of_center", 3089, ORIGIN, NATURAL_LAT),
            parameter("longitude_of_center", 3088, LONGITUDE, NATURAL_LON),
        ],
    },
    Method {
        cf: "stereographic",
        wkt: "Stereographic",
        wkt2: &["Stereographic"],
        code: 14,
        parameters: &[
            parameter("latitude_of_origin", 3089, ORIGIN, NATURAL_LAT),
            parameter("central_meridian", 3088, LONGITUDE, NATURAL_LON),
            scale("scale_factor_at_projection_origin"),
        ],
    },
    Method {
        cf: "oblique_stereographic",
        wkt: "Oblique_Stereographic",
        wkt2: &["Oblique Stereographic"],
        code: 16,
        parameters: &[
            parameter("latitude_of_origin", 3081, ORIGIN, NATURAL_LAT),
            parameter("central_meridian", 3080, LONGITUDE, NATURAL_LON),
            scale("scale_factor_at_projection_origin"),
        ],
    },
    Method {
        cf: "polar_stereographic",
        wkt: "Polar_Stereographic",
        wkt2: &["Polar Stereographic (variant B)", "Polar Stereographic (variant A)"],
        code: 15,
        parameters: &[
            Parameter {
                default: 90.0,
                ..parameter(
                    "latitude_of_origin",
                    3081,
                    PARALLEL,
                    &["Latitude of standard parallel", "Latitude of natural origin"],
                )
            },
            parameter(
                "central_meridian",
                3095,
                "straight_vertical_longitude_from_pole",
                &["Longitude of origin", "Longitude of natural origin"],
            ),
            scale("scale_factor_at_projection_origin"),
        ],
    },
    Method {
        cf: "orthographic",
        wkt: "Orthographic",
        wkt2: &["Orthographic"],
        code: 21,
        parameters: &[
            parameter("latitude_of_origin", 3089, ORIGIN, NATURAL_LAT),
            parameter("central_meridian", 3088, LONGITUDE, NATURAL_LON),
        ],
    },
    Method {
        cf: "sinusoidal",
        wkt: "Sinusoidal",
        wkt2: &["Sinusoidal"],
        code: 24,
        parameters: &[parameter("longitude_of_center", 3088, LONGITUDE, NATURAL_LON)],
    },
    Method {
        cf: "lambert_cylindrical_equal_area",
        wkt: "Cylindrical_Equal_Area",
        wkt2: &["Lambert Cylindrical Equal Area", "Lambert Cylindrical Equal Area (Spherical)"],
        code: 28,
        parameters: &[
            parameter("standard_parallel_1", 3078, PARALLEL, FIRST),
            parameter("central_meridian", 3080, MERIDIAN, NATURAL_LON),
        ],
    },
];

/// The names of metres in the conventions.
const METRES: [&str; 5] = ["m", "meter", "metre", "meters", "metres"];
const KILOMETRES: [&str; 5] = ["km", "kilometer", "kilometre", "kilometers", "kilometres"];

/// A projection with its parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Projection {
    /// The kind.
    pub method: &'static Method,
    /// The values of the parameters, in order.
    values: Vec<f64>,
    /// The metres of a unit: 1 or 1000.
    pub unit: f64,
}

impl Projection {
    /// Returns the projection of a grid mapping whose coordinates are in `units`; `None` if it is
    /// not in the table.
    pub fn of_cf(attributes: &Object, units: Option<&str>) -> Option<Self> {
        let name = attributes.get("grid_mapping_name")?.as_str()?;
        let method = METHODS.iter().find(|method| method.cf == name && !name.is_empty())?;
        let unit = match units.map(str::trim) {
            None => 1.0,
            Some(units) if METRES.contains(&units) => 1.0,
            Some(units) if KILOMETRES.contains(&units) => 1000.0,
            Some(_) => return None,
        };
        let value = |parameter: &Parameter| {
            // Of two parallels, the second is the last one.
            let is_last = parameter.wkt == "standard_parallel_2";
            let found = number(attributes, parameter.cf, is_last);
            // The projection of a pole has either a parallel or a scale.
            let pole = || number(attributes, ORIGIN, false).filter(|_| parameter.cf == PARALLEL);
            found.or_else(pole).unwrap_or(parameter.default)
        };
        Some(Self { method, values: method.all().map(value).collect(), unit })
    }

    /// Returns the projection of a `PROJCS` or `PROJCRS`.
    pub(super) fn of_wkt(item: Item<'_>) -> Option<Self> {
        let name = item.find(&["PROJECTION", "METHOD"])?.name()?;
        let is_named = |method: &&Method| method.wkt == name || method.wkt2.contains(&name);
        let method = METHODS.iter().find(is_named)?;
        let of = item.find(&["CONVERSION"]).unwrap_or(item);
        let all: Vec<(&str, f64)> = of
            .items()
            .filter(|item| item.keyword.eq_ignore_ascii_case("PARAMETER"))
            .filter_map(|item| Some((item.name()?, item.arguments().get(1)?.parse().ok()?)))
            .collect();
        let value = |parameter: &Parameter| {
            let is_named = |name: &str| name == parameter.wkt || parameter.wkt2.contains(&name);
            let found = all.iter().find(|(name, _)| is_named(name));
            found.map_or(parameter.default, |(_, value)| *value)
        };
        let own_unit = item.items().filter(|item| item.keyword.eq_ignore_ascii_case("UNIT")).last();
        let unit = own_unit.or_else(|| {
            let axes = item.items().filter(|item| item.keyword.eq_ignore_ascii_case("AXIS"));
            axes.last()
                .and_then(|axis| axis.find(&["LENGTHUNIT"]))
                .or(item.items().find(|item| item.keyword.eq_ignore_ascii_case("LENGTHUNIT")))
        });
        let unit = unit.and_then(|unit| unit.arguments().get(1)?.parse().ok()).unwrap_or(1.0);
        let is_known = [1.0, 1000.0].iter().any(|known: &f64| (known - unit).abs() < 1e-9);
        is_known.then(|| Self { method, values: method.all().map(value).collect(), unit })
    }

    /// Returns the parameters with their values.
    pub fn parameters(&self) -> impl Iterator<Item = (&'static Parameter, f64)> {
        self.method.all().zip(self.values.iter().copied())
    }

    /// Returns the parameters with their keys in GeoTIFF.
    pub fn keys(&self) -> impl Iterator<Item = (u16, f64)> {
        let is_conic = self.method.code == CONFORMAL_CONIC;
        self.parameters().map(move |(parameter, value)| {
            // Its false origin has keys of its own.
            let shift = if is_conic && matches!(parameter.key, 3082 | 3083) { 4 } else { 0 };
            (parameter.key.saturating_add(shift), value)
        })
    }
}

impl Method {
    fn all(&'static self) -> impl Iterator<Item = &'static Parameter> {
        self.parameters.iter().chain(&FALSE_ORIGIN)
    }
}

/// Returns a number, or one of a list: the first or the last.
pub(super) fn number(attributes: &Object, name: &str, is_last: bool) -> Option<f64> {
    let value = attributes.get(name)?;
    let value: &Value = match value.as_array() {
        Some(list) if is_last => list.last()?,
        Some(list) => list.first()?,
        None => value,
    };
    value.as_f64().filter(|number| number.is_finite())
}
