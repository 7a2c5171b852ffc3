//! Coordinate reference systems: as a code of EPSG, or as an ellipsoid and a projection.

use serde_json::Value;

use super::projection::{Projection, number};
use super::wkt::Item;
use crate::json::Object;

/// The longest text to read.
const MAX_WKT_LEN: usize = 1 << 16;

/// The kind of a coordinate reference system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrsKind {
    /// Longitudes and latitudes.
    Geographic,
    /// Distances on a projection.
    Projected,
}

/// A coordinate reference system.
#[derive(Debug, Clone, PartialEq)]
pub struct Crs {
    /// The kind.
    pub kind: CrsKind,
    /// The code of EPSG, if it has one.
    pub code: Option<u16>,
    /// The ellipsoid, if the metadata describe it.
    pub ellipsoid: Option<Ellipsoid>,
    /// The projection, if the metadata describe one that is known.
    pub projection: Option<Projection>,
}

/// The ellipsoid of longitudes and latitudes.
#[derive(Debug, Clone, PartialEq)]
pub struct Ellipsoid {
    /// The name of the system.
    pub name: String,
    /// The longer axis in metres.
    pub major: f64,
    /// The inverse flattening, 0 for a sphere.
    pub inverse_flattening: f64,
    /// The code of EPSG of the system, if it has one.
    pub code: Option<u16>,
}

impl Crs {
    /// Returns longitudes and latitudes in WGS 84.
    pub fn wgs84() -> Self {
        let (kind, code) = (CrsKind::Geographic, Some(4326));
        Self { kind, code, ellipsoid: Some(Ellipsoid::wgs84()), projection: None }
    }

    /// Returns the system with this well-known text; `None` if it is of another kind, or if it is
    /// no such text.
    pub fn of_wkt(text: &str) -> Option<Self> {
        if text.len() > MAX_WKT_LEN {
            return None;
        }
        let item = Item::parse(text)?;
        let (kind, own) = [
            (CrsKind::Projected, &["PROJCS", "PROJCRS", "PROJECTEDCRS"][..]),
            (
                CrsKind::Geographic,
                &["GEOGCS", "GEOGCRS", "GEOGRAPHICCRS", "GEODCRS", "GEODETICCRS"],
            ),
        ]
        .into_iter()
        .find_map(|(kind, keywords)| Some((kind, item.find(keywords)?)))?;
        let projection = Projection::of_wkt(own).filter(|_| kind == CrsKind::Projected);
        Some(Self { kind, code: own.code(), ellipsoid: Ellipsoid::of_wkt(own), projection })
    }

    /// Returns the system of a grid mapping by its parameters, for coordinates in `units`; `None`
    /// if it is not a known one.
    pub fn of_cf(attributes: &Object, units: Option<&str>) -> Option<Self> {
        let ellipsoid = Ellipsoid::of_cf(attributes);
        if attributes.get("grid_mapping_name")? == "latitude_longitude" {
            let (kind, code) = (CrsKind::Geographic, ellipsoid.code);
            return Some(Self { kind, code, ellipsoid: Some(ellipsoid), projection: None });
        }
        let projection = Some(Projection::of_cf(attributes, units)?);
        let (kind, code) = (CrsKind::Projected, None);
        Some(Self { kind, code, ellipsoid: Some(ellipsoid), projection })
    }

    /// Returns the system of a code such as `EPSG:32633`. `is_in_degrees` is whether the
    /// coordinates are.
    pub fn of_code(text: &str, is_in_degrees: bool) -> Option<Self> {
        let (authority, code) = text.split_once(':')?;
        let code: u16 = code.trim().parse().ok()?;
        if !authority.trim().eq_ignore_ascii_case("EPSG") {
            return None;
        }
        let is_geographic = is_in_degrees || is_geographic(code);
        let kind = if is_geographic { CrsKind::Geographic } else { CrsKind::Projected };
        Some(Self { kind, code: Some(code), ellipsoid: None, projection: None })
    }

    /// Returns the system of a PROJJSON object that names a code.
    pub fn of_projjson(object: &Value) -> Option<Self> {
        let kind = match object.get("type")?.as_str()? {
            "ProjectedCRS" => CrsKind::Projected,
            "GeographicCRS" | "GeodeticCRS" => CrsKind::Geographic,
            _ => return None,
        };
        let id = object.get("id")?;
        let is_epsg = id.get("authority")?.as_str()?.eq_ignore_ascii_case("EPSG");
        let code = id.get("code").filter(|_| is_epsg)?;
        let code = code.as_u64().or_else(|| code.as_str()?.parse().ok())?;
        let code = Some(code.try_into().ok()?);
        Some(Self { kind, code, ellipsoid: None, projection: None })
    }

    /// Returns well-known text of version 1; `None` if only a code is known, or less.
    pub fn wkt(&self) -> Option<String> {
        let ellipsoid = self.ellipsoid.as_ref()?;
        if self.kind == CrsKind::Geographic {
            return Some(ellipsoid.wkt());
        }
        let projection = self.projection.as_ref()?;
        let name = projection.method.wkt;
        let mut text = format!("PROJCS[\"{name}\",{},PROJECTION[\"{name}\"]", ellipsoid.wkt());
        for (parameter, value) in projection.parameters() {
            text.extend([format!(",PARAMETER[\"{}\",{value}]", parameter.wkt)]);
        }
        let unit = if projection.unit > 1.0 { "kilometre" } else { "metre" };
        text.extend([format!(",UNIT[\"{unit}\",{}]]", projection.unit)]);
        Some(text)
    }
}

impl Ellipsoid {
    fn wgs84() -> Self {
        let (major, inverse_flattening) = (6_378_137.0, 298.257_223_563);
        Self { name: "WGS 84".to_owned(), major, inverse_flattening, code: Some(4326) }
    }

    fn is_wgs84(&self) -> bool {
        let own = Self::wgs84();
        (self.major - own.major).abs() < 1e-3
            && (self.inverse_flattening - own.inverse_flattening).abs() < 1e-6
    }

    fn of_wkt(item: Item<'_>) -> Option<Self> {
        let base = item.find(&[
            "GEOGCS",
            "GEOGCRS",
            "GEOGRAPHICCRS",
            "GEODCRS",
            "GEODETICCRS",
            "BASEGEOGCRS",
            "BASEGEODCRS",
        ])?;
        let arguments = base.find(&["SPHEROID", "ELLIPSOID"])?.arguments();
        let number = |at: usize| arguments.get(at)?.parse::<f64>().ok().filter(|n| n.is_finite());
        let (major, inverse_flattening) = (number(1)?, number(2)?);
        let name = plain(base.name().unwrap_or("unknown"));
        let found = Self { name, major, inverse_flattening, code: base.code() };
        // Otherwise it is another datum on the same ellipsoid.
        let is_unnamed = found.code.is_none() && found.name.to_lowercase().starts_with("unknown");
        Some(if is_unnamed && found.is_wgs84() { Self::wgs84() } else { found })
    }

    fn of_cf(attributes: &Object) -> Self {
        let number = |name: &str| number(attributes, name, false);
        let radius = number("earth_radius");
        let major = number("semi_major_axis").or(radius);
        let inverse_flattening = number("inverse_flattening").or_else(|| {
            let (major, minor) = (major?, number("semi_minor_axis")?);
            let difference = major - minor;
            Some(if difference.is_normal() { major / difference } else { 0.0 })
        });
        let inverse_flattening = inverse_flattening.or(radius.map(|_| 0.0));
        let text = |name: &str| attributes.get(name).and_then(Value::as_str).map(plain);
        let usual = Self::wgs84();
        let found = Self {
            name: text("geographic_crs_name").unwrap_or_else(|| "unknown".to_owned()),
            major: major.unwrap_or(usual.major),
            inverse_flattening: inverse_flattening.unwrap_or(usual.inverse_flattening),
            code: None,
        };
        let is_unnamed = ["unknown", "WGS 84", "WGS84"].contains(&found.name.as_str());
        if is_unnamed && found.is_wgs84() { usual } else { found }
    }

    fn wkt(&self) -> String {
        let Self { name, major, inverse_flattening, code } = self;
        let datum = if *code == Some(4326) { "WGS_1984" } else { name };
        let code = code.map(|code| format!(",AUTHORITY[\"EPSG\",\"{code}\"]")).unwrap_or_default();
        format!(
            "GEOGCS[\"{name}\",DATUM[\"{datum}\",SPHEROID[\"{name}\",{major},{inverse_flattening}]],\
             PRIMEM[\"Greenwich\",0],UNIT[\"degree\",0.0174532925199433]{code}]"
        )
    }
}

/// Returns a name without the characters that have a meaning in well-known text and in ENVI.
fn plain(name: &str) -> String {
    name.replace(|char: char| "\"[](){}|".contains(char) || char.is_control(), "_")
}

/// Whether a code is that of a geographic system. Most of these are from 4000 to 4999, where few
/// others are; the rest is those in use.
fn is_geographic(code: u16) -> bool {
    const PROJECTED: [std::ops::RangeInclusive<u16>; 13] = [
        4026..=4038,
        4048..=4051,
        4056..=4063,
        4071..=4071,
        4082..=4099,
        4217..=4217,
        4390..=4469,
        4484..=4489,
        4491..=4554,
        4559..=4559,
        4568..=4589,
        4647..=4662,
        4839..=4880,
    ];
    const OTHERS: [u16; 12] =
        [3819, 3821, 3824, 3889, 3906, 5451, 6318, 6668, 6706, 7683, 7844, 9000];
    let is_projected = PROJECTED.iter().any(|range| range.contains(&code));
    OTHERS.contains(&code) || ((4000..5000).contains(&code) && !is_projected)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_system_is_the_same_by_its_code_its_text_and_its_grid_mapping() {
        let old = "PROJCS[\"ETRS89-extended / LAEA Europe\",GEOGCS[\"ETRS89\",DATUM[\"x\",\
            SPHEROID[\"GRS 1980\",6378137,298.257222101]],PRIMEM[\"Greenwich\",0],\
            UNIT[\"degree\",0.0174532925199433],AUTHORITY[\"EPSG\",\"4258\"]],\
            PROJECTION[\"Lambert_Azimuthal_Equal_Area\"],PARAMETER[\"latitude_of_center\",52],\
            PARAMETER[\"longitude_of_center\",10],PARAMETER[\"false_easting\",4321000],\
            PARAMETER[\"false_northing\",3210000],UNIT[\"metre\",1],AUTHORITY[\"EPSG\",\"3035\"]]";
        let new = "PROJCRS[\"ETRS89-extended / LAEA Europe\",BASEGEOGCRS[\"ETRS89\",DATUM[\"x\",\
            ELLIPSOID[\"GRS 1980\",6378137,298.257222101,LENGTHUNIT[\"metre\",1]]],\
            ID[\"EPSG\",4258]],CONVERSION[\"Europe, (1)\",METHOD[\"Lambert Azimuthal Equal Area\",\
            ID[\"EPSG\",9820]],PARAMETER[\"Latitude of natural origin\",52],\
            PARAMETER[\"Longitude of natural origin\",10],PARAMETER[\"False easting\",4321000],\
            PARAMETER[\"False northing\",3210000]],CS[Cartesian,2],AXIS[\"northing\",north,\
            LENGTHUNIT[\"metre\",1]],ID[\"EPSG\",3035]]";
        let systems = [old, new].map(|text| Crs::of_wkt(text).expect("a system"));
        assert_eq!(systems[0], systems[1]);
        assert_eq!(systems[0].code, Some(3035));
        let mapping = json!({
            "grid_mapping_name": "lambert_azimuthal_equal_area", "geographic_crs_name": "ETRS89",
            "latitude_of_projection_origin": 52, "longitude_of_projection_origin": 10,
            "false_easting": 4_321_000, "false_northing": 3_210_000,
            "semi_major_axis": 6_378_137, "inverse_flattening": 298.257_222_101,
        });
        let by_cf = Crs::of_cf(mapping.as_object().expect("an object"), Some("m")).expect("one");
        assert_eq!(by_cf.projection, systems[0].projection);
        let again = Crs::of_wkt(&by_cf.wkt().expect("a text")).expect("a system");
        assert_eq!(again, by_cf);
    }

    #[test]
    fn text_that_is_no_system_is_none() {
        for text in [
            "",
            "[",
            "]",
            "PROJCS",
            "PROJCS[",
            "LOCAL_CS[\"x\"]",
            "GEOGCS(\"x\"",
            "\u{1F30D}[\"x\"]",
            "VERT_CS[\"height\",UNIT[\"metre\",1]]",
        ] {
            assert_eq!(Crs::of_wkt(text), None, "{text}");
        }
        let deep = "PROJCS[".repeat(10_000) + &"]".repeat(10_000);
        assert!(Crs::of_wkt(&deep).is_none_or(|found| found.code.is_none()));
    }

    #[test]
    fn codes_are_of_the_kind_that_epsg_says() {
        for code in [4326, 4269, 4258, 4979, 7844, 6318] {
            assert!(is_geographic(code), "{code}");
        }
        for code in [3857, 32633, 3035, 4087, 4647, 2056, 5070, 27700, 6933, 4839] {
            assert!(!is_geographic(code), "{code}");
        }
    }
}
