//! The coordinate reference system of GeoTIFF's keys: a code of EPSG, or well-known text.
//!
//! zarrfs has no database of codes. It writes the text of a few frequent ones, and of systems that
//! the keys describe by their parameters.

use super::keys::GeoKeys;

/// A coordinate reference system.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KeyedCrs {
    /// The code of EPSG.
    pub code: Option<u64>,
    /// Well-known text of version 1.
    pub wkt: Option<String>,
    /// Whether coordinates are longitudes and latitudes.
    pub is_geographic: bool,
    /// The unit of coordinates on a projection.
    pub unit: Option<&'static str>,
}

/// A projection: its code, its name, and the keys and names of its parameters.
type KeyedMethod = (u64, &'static str, &'static [(&'static [u64], &'static str, f64)]);

const SCALE: (&[u64], &str, f64) = (&[3092, 3093], "scale_factor", 1.0);

/// The projections, with the false origin after their own parameters.
const METHODS: [KeyedMethod; 10] = [
    (
        1,
        "Transverse_Mercator",
        &[
            (&[3081, 3089], "latitude_of_origin", 0.0),
            (&[3080, 3088], "central_meridian", 0.0),
            SCALE,
        ],
    ),
    (
        7,
        "Mercator_1SP",
        &[(&[3081], "latitude_of_origin", 0.0), (&[3080], "central_meridian", 0.0), SCALE],
    ),
    (
        8,
        "Lambert_Conformal_Conic_2SP",
        &[
            (&[3085, 3081], "latitude_of_origin", 0.0),
            (&[3084, 3080], "central_meridian", 0.0),
            (&[3078], "standard_parallel_1", 0.0),
            (&[3079], "standard_parallel_2", 0.0),
        ],
    ),
    (
        9,
        "Lambert_Conformal_Conic_1SP",
        &[(&[3081], "latitude_of_origin", 0.0), (&[3080], "central_meridian", 0.0), SCALE],
    ),
    (
        10,
        "Lambert_Azimuthal_Equal_Area",
        &[(&[3089], "latitude_of_center", 0.0), (&[3088], "longitude_of_center", 0.0)],
    ),
    (
        11,
        "Albers_Conic_Equal_Area",
        &[
            (&[3081, 3085], "latitude_of_center", 0.0),
            (&[3080, 3084], "longitude_of_center", 0.0),
            (&[3078], "standard_parallel_1", 0.0),
            (&[3079], "standard_parallel_2", 0.0),
        ],
    ),
    (
        12,
        "Azimuthal_Equidistant",
        &[(&[3089], "latitude_of_center", 0.0), (&[3088], "longitude_of_center", 0.0)],
    ),
    (
        15,
        "Polar_Stereographic",
        &[(&[3081], "latitude_of_origin", 90.0), (&[3095, 3080], "central_meridian", 0.0), SCALE],
    ),
    (
        16,
        "Oblique_Stereographic",
        &[(&[3081], "latitude_of_origin", 0.0), (&[3080], "central_meridian", 0.0), SCALE],
    ),
    (24, "Sinusoidal", &[(&[3088, 3080], "longitude_of_center", 0.0)]),
];

/// The false origin, which all projections have.
const FALSE_ORIGIN: [(&[u64], &str); 2] =
    [(&[3082, 3086, 3090], "false_easting"), (&[3083, 3087, 3091], "false_northing")];

/// Geographic systems: code, name, datum, ellipsoid, its axis and its inverse flattening.
const GEOGRAPHIC: [(u64, &str, &str, &str, f64, f64); 4] = [
    (4326, "WGS 84", "WGS_1984", "WGS 84", 6_378_137.0, 298.257_223_563),
    (4269, "NAD83", "North_American_Datum_1983", "GRS 1980", 6_378_137.0, 298.257_222_101),
    (
        4258,
        "ETRS89",
        "European_Terrestrial_Reference_System_1989",
        "GRS 1980",
        6_378_137.0,
        298.257_222_101,
    ),
    (4267, "NAD27", "North_American_Datum_1927", "Clarke 1866", 6_378_206.4, 294.978_698_213_898),
];

impl KeyedCrs {
    /// Returns the system of a page; `None` if its keys name none.
    pub fn of(keys: &GeoKeys) -> Option<Self> {
        let is_geographic = keys.short(1024) == Some(2);
        let unit = match keys.code(3076) {
            Some(9002) => Some("foot"),
            Some(9003) => Some("US_survey_foot"),
            Some(9036) => Some("km"),
            Some(9001) | None => Some("m"),
            Some(_) => None,
        };
        if is_geographic {
            let code = keys.code(2048);
            let wkt = code.map_or_else(|| own_geographic(keys), geographic);
            let unit = None;
            return (code.is_some() || wkt.is_some()).then_some(Self {
                code,
                wkt,
                is_geographic,
                unit,
            });
        }
        if keys.short(1024) != Some(1) && keys.short(3072).is_none() {
            return None;
        }
        let code = keys.code(3072);
        let wkt = code.map_or_else(|| own_projected(keys), projected);
        (code.is_some() || wkt.is_some()).then_some(Self { code, wkt, is_geographic, unit })
    }
}

/// Returns the text of a geographic system by its code.
fn geographic(code: u64) -> Option<String> {
    let (code, name, datum, ellipsoid, axis, flattening) =
        GEOGRAPHIC.iter().find(|(own, ..)| *own == code)?;
    Some(format!(
        "GEOGCS[\"{name}\",DATUM[\"{datum}\",SPHEROID[\"{ellipsoid}\",{axis},{flattening}]],\
         PRIMEM[\"Greenwich\",0],UNIT[\"degree\",0.0174532925199433],AUTHORITY[\"EPSG\",\"{code}\"]]"
    ))
}

/// Returns the text of the geographic system that keys describe.
fn own_geographic(keys: &GeoKeys) -> Option<String> {
    if let Some(known) = keys.code(2048).and_then(geographic) {
        return Some(known);
    }
    let axis = keys.double(2057);
    let of_minor = |minor: f64| {
        let difference = axis? - minor;
        Some(if difference.is_normal() { axis? / difference } else { 0.0 })
    };
    let flattening = keys.double(2059).or_else(|| keys.double(2058).and_then(of_minor));
    let (axis, flattening) = match (keys.code(2056), axis.zip(flattening)) {
        (Some(7030), _) => (6_378_137.0, 298.257_223_563),
        (Some(7019), _) => (6_378_137.0, 298.257_222_101),
        (_, Some(own)) => own,
        (_, None) => return None,
    };
    let name = keys.text(2049).unwrap_or("unknown").split('|').next().unwrap_or_default();
    let name = plain(name.strip_prefix("GCS Name = ").unwrap_or(name));
    // The codes of these datums are 2000 more than those of their systems.
    let datum = keys.code(2050).and_then(|code| code.checked_sub(2000));
    if let Some((_, known, datum, ellipsoid, axis, flattening)) =
        datum.and_then(|code| GEOGRAPHIC.iter().find(|(own, ..)| *own == code))
    {
        let name = if name.is_empty() { known } else { name.as_str() };
        return Some(format!(
            "GEOGCS[\"{name}\",DATUM[\"{datum}\",SPHEROID[\"{ellipsoid}\",{axis},{flattening}]],\
             PRIMEM[\"Greenwich\",0],UNIT[\"degree\",0.0174532925199433]]"
        ));
    }
    Some(format!(
        "GEOGCS[\"{name}\",DATUM[\"{name}\",SPHEROID[\"{name}\",{axis},{flattening}]],\
         PRIMEM[\"Greenwich\",0],UNIT[\"degree\",0.0174532925199433]]"
    ))
}

/// Returns the text of a projected system by its code: the zones of UTM, and the map of the web.
fn projected(code: u64) -> Option<String> {
    let base = geographic(4326)?;
    if code == 3857 {
        return Some(format!(
            "PROJCS[\"WGS 84 / Pseudo-Mercator\",{base},PROJECTION[\"Mercator_1SP\"],\
             PARAMETER[\"central_meridian\",0],PARAMETER[\"scale_factor\",1],\
             PARAMETER[\"false_easting\",0],PARAMETER[\"false_northing\",0],UNIT[\"metre\",1],\
             AXIS[\"Easting\",EAST],AXIS[\"Northing\",NORTH],EXTENSION[\"PROJ4\",\"+proj=merc \
             +a=6378137 +b=6378137 +lat_ts=0 +lon_0=0 +x_0=0 +y_0=0 +k=1 +units=m \
             +nadgrids=@null +wktext +no_defs\"],AUTHORITY[\"EPSG\",\"3857\"]]"
        ));
    }
    let (zone, half, northing) = match code {
        32_601..=32_660 => (code - 32_600, 'N', 0),
        32_701..=32_760 => (code - 32_700, 'S', 10_000_000),
        _ => return None,
    };
    let meridian = i64::try_from(zone).ok()? * 6 - 183;
    Some(format!(
        "PROJCS[\"WGS 84 / UTM zone {zone}{half}\",{base},PROJECTION[\"Transverse_Mercator\"],\
         PARAMETER[\"latitude_of_origin\",0],PARAMETER[\"central_meridian\",{meridian}],\
         PARAMETER[\"scale_factor\",0.9996],PARAMETER[\"false_easting\",500000],\
         PARAMETER[\"false_northing\",{northing}],UNIT[\"metre\",1],AXIS[\"Easting\",EAST],\
         AXIS[\"Northing\",NORTH],AUTHORITY[\"EPSG\",\"{code}\"]]"
    ))
}

/// Returns the text of the projected system that keys describe.
fn own_projected(keys: &GeoKeys) -> Option<String> {
    let base = own_geographic(keys)?;
    let method = keys.code(3075)?;
    let (_, name, parameters) = METHODS.iter().find(|(own, ..)| *own == method)?;
    let is_secant = method == 7 && keys.double(3078).is_some();
    let name = if is_secant { "Mercator_2SP" } else { name };
    let title = plain(keys.text(3073).or_else(|| keys.text(1026)).unwrap_or("unknown"));
    let mut text = format!("PROJCS[\"{title}\",{base},PROJECTION[\"{name}\"]");
    let value = |own: &[u64]| own.iter().find_map(|key| keys.double(*key));
    if is_secant {
        let parallel = value(&[3078]).unwrap_or_default();
        text.extend([format!(",PARAMETER[\"standard_parallel_1\",{parallel}]")]);
    }
    for (own, name, usual) in *parameters {
        if is_secant && *name != "central_meridian" {
            continue;
        }
        let value = value(own).unwrap_or(*usual);
        text.extend([format!(",PARAMETER[\"{name}\",{value}]")]);
    }
    for (own, name) in FALSE_ORIGIN {
        let value = value(own).unwrap_or_default();
        text.extend([format!(",PARAMETER[\"{name}\",{value}]")]);
    }
    let unit = match keys.code(3076) {
        Some(9002) => "UNIT[\"foot\",0.3048]",
        Some(9003) => "UNIT[\"US survey foot\",0.304800609601219]",
        Some(9036) => "UNIT[\"kilometre\",1000]",
        Some(9001) | None => "UNIT[\"metre\",1]",
        Some(_) => return None,
    };
    text.extend([",", unit, "]"]);
    Some(text)
}

/// Returns a name without the characters that have a meaning in well-known text.
fn plain(name: &str) -> String {
    name.replace(|char: char| "\"[]()|".contains(char) || char.is_control(), "_")
}
