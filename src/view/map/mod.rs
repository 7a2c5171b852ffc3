//! The place of an array on a map: where its pixels lie, and in which coordinate reference system.
//!
//! It comes from one of these conventions:
//!
//! - GeoZarr: `spatial:transform` and `proj:code` or `proj:wkt2`, of the array or of the groups
//!   above it (<https://github.com/zarr-conventions/spatial>, <https://github.com/zarr-conventions/proj>);
//! - CF: coordinates with regular steps, and the array that `grid_mapping` names
//!   (<https://cfconventions.org/cf-conventions/cf-conventions.html#appendix-grid-mappings>);
//! - the attributes `GeoTransform` and `spatial_ref` of GDAL, in that array;
//! - GDAL's driver of Zarr: the attribute `_CRS`, and coordinates with regular steps.
//!
//! The last two axes may be x and y in either order. If one is something else, the array has no
//! place.

mod crs;
mod projection;
mod wkt;

use serde_json::Value;

use super::image::{AxisKind, Image};
use super::source::ViewSource;
use crate::dtype::{Element, to_float};
use crate::json::Object;
use crate::metadata::{FILL, NodePath, masked_value};
pub use crs::{Crs, CrsKind, Ellipsoid};

/// The property that a file lacks if x and y are not the rows and columns of the array.
pub const OF_OTHER_AXES: &str = "the place on a map, whose x and y are not its last two axes";

/// The most resolutions of a multiscale layout to look at.
const MOST_LEVELS: usize = 64;

/// The place of the last two axes of an array on a map.
#[derive(Debug, Clone, PartialEq)]
pub struct MapPlace {
    /// The position of the corner of a pixel: `x = a*column + b*row + c`, `y = d*column + e*row +
    /// f`, as `[a, b, c, d, e, f]`.
    pub transform: [f64; 6],
    /// The coordinate reference system, if one is known.
    pub crs: Option<Crs>,
}

/// The columns or the rows of the map.
#[derive(Debug)]
struct MapAxis<'s> {
    /// The name of the dimension.
    name: String,
    len: u64,
    /// The coordinates of its elements, an array with its name.
    coordinates: Option<ViewSource<'s>>,
}

impl MapPlace {
    /// Returns the place of an array whose rows and columns are its last two axes, before that of
    /// the samples of a pixel; `None` if its metadata name none.
    pub fn of(source: &ViewSource<'_>, image: &Image) -> Option<Self> {
        let count = image.axes.len().saturating_sub(usize::from(image.is_interleaved()));
        let at = count.checked_sub(2)?;
        Self::of_axes(source, image, at, at.checked_add(1)?)
    }

    /// Whether the array has a place, but its rows and columns are other axes than in `of`.
    pub fn is_of_other_axes(source: &ViewSource<'_>, image: &Image) -> bool {
        let at = |kind| image.axis(kind).map(|(at, _)| at);
        let by_kind = at(AxisKind::Y).zip(at(AxisKind::X));
        Self::of(source, image).is_none()
            && by_kind.is_some_and(|(y, x)| Self::of_axes(source, image, y, x).is_some())
    }

    /// Returns the place of an array with these axes as rows and columns.
    pub fn of_axes(
        source: &ViewSource<'_>,
        image: &Image,
        rows_at: usize,
        columns_at: usize,
    ) -> Option<Self> {
        let kinds = [rows_at, columns_at].map(|at| image.axes.get(at)?.kind);
        let is_turned = match kinds {
            [Some(AxisKind::Y) | None, Some(AxisKind::X) | None] => false,
            [Some(AxisKind::X), Some(AxisKind::Y)] => true,
            _ => return None,
        };
        let rows = MapAxis::of(source, image, rows_at)?;
        let columns = MapAxis::of(source, image, columns_at)?;
        let (y, x) = if is_turned { (&columns, &rows) } else { (&rows, &columns) };
        let mapping = grid_mapping(source);
        let by_convention = geozarr_transform(source, y, x);
        let is_geozarr = by_convention.is_some();
        let transform = by_convention
            .or_else(|| regular_transform(y, x))
            .or_else(|| geo_transform(mapping.as_ref()?.attributes()))?;
        let crs = geozarr_crs(source, x)
            .or_else(|| crs_of_gdal(source, x))
            .or_else(|| crs_of_mapping(mapping.as_ref()?, x))
            .or_else(|| (!is_geozarr && x.is_in_degrees() && y.is_in_degrees()).then(Crs::wgs84));
        let [a, b, c, d, e, f] = transform;
        // Everywhere, x comes from the axis x.
        let transform = if is_turned { [b, a, c, e, d, f] } else { transform };
        // An image of a microscope has coordinates, too.
        let is_map = is_geozarr || crs.is_some();
        (is_map && transform.iter().all(|part| part.is_finite())).then_some(Self { transform, crs })
    }

    /// Returns the size of a pixel and the corner of the first one if rows run along x, and columns
    /// down along y.
    pub fn north_up(&self) -> Option<[f64; 4]> {
        let [a, b, c, d, e, f] = self.transform;
        (b == 0.0 && d == 0.0 && a > 0.0 && e < 0.0).then_some([a, -e, c, f])
    }
}

/// Returns the number that stands for no value in an array, as GDAL writes it.
pub fn no_data(source: &ViewSource<'_>) -> Option<String> {
    let dtype = &source.array().ok()?.model().dtype;
    let coded = source.attributes().get(FILL).and_then(|value| masked_value(value, dtype))?;
    match Element::of(dtype, &coded.item(dtype)) {
        Element::Int(integer) => Some(integer.to_string()),
        Element::Float(float) if float.is_nan() => Some("nan".to_owned()),
        Element::Float(float) => Some(float.to_string()),
        Element::Complex(..) | Element::Bytes => None,
    }
}

/// The attributes of the convention `spatial` that are those of all elements.
pub const OF_ALL_ELEMENTS: [&str; 3] = ["spatial:transform", "spatial:bbox", "spatial:shape"];

/// Returns the attribute `spatial:transform` of a part of an array. `start` returns the index at
/// which the part begins along an axis, and what is added to positions along it; `None` if the part
/// lacks the axis. `None` if the array, or the part, has no place by that convention.
pub fn transform_of_part(
    source: &ViewSource<'_>,
    image: &Image,
    start: &dyn Fn(usize) -> Option<(u64, f64)>,
) -> Option<[f64; 6]> {
    let at = |kind| image.axis(kind).map(|(at, _)| at);
    let count = image.axes.len();
    let last = || Some((count.checked_sub(2)?, count.checked_sub(1)?));
    let (y, x) = at(AxisKind::Y).zip(at(AxisKind::X)).or_else(last)?;
    let (rows, columns) = (MapAxis::of(source, image, y)?, MapAxis::of(source, image, x)?);
    let [a, b, c, d, e, f] = described_transform(source, &rows, &columns)?;
    let ((column, turned), (row, _)) = (start(x)?, start(y)?);
    let (column, row) = (to_float(column.into()), to_float(row.into()));
    Some([a, b, c + a * column + b * row + turned, d, e, f + d * column + e * row])
}

impl<'s> MapAxis<'s> {
    fn of(source: &ViewSource<'s>, image: &Image, at: usize) -> Option<Self> {
        let names = &source.array().ok()?.model().dimension_names;
        let name = names.get(at).cloned().flatten().or_else(|| image.axes.get(at)?.name.clone());
        let coordinates = name.as_deref().and_then(|name| beside(source, name));
        let len = image.axes.get(at)?.len;
        Some(Self { name: name.unwrap_or_default(), len, coordinates })
    }

    fn units(&self) -> Option<&str> {
        self.coordinates.as_ref()?.attributes().get("units")?.as_str()
    }

    fn is_in_degrees(&self) -> bool {
        self.units().is_some_and(|units| units.trim().starts_with("degree"))
    }

    /// Returns the position of the first element and the step to the next if all steps are equal.
    fn steps(&self) -> Option<(f64, f64)> {
        let source = self.coordinates.as_ref()?;
        let dtype = &source.array().ok()?.model().dtype;
        let values = source.values().ok()?;
        let float = |item: &[u8]| match Element::of(dtype, item) {
            Element::Int(integer) => Some(to_float(integer)),
            Element::Float(float) => Some(float),
            Element::Complex(..) | Element::Bytes => None,
        };
        let all: Vec<f64> =
            values.chunks_exact(dtype.item_len().max(1)).map(float).collect::<Option<_>>()?;
        let (first, last) = (*all.first()?, *all.last()?);
        let count = to_float(all.len().checked_sub(1).filter(|count| *count > 0)?.try_into().ok()?);
        let step = (last - first) / count;
        // Coordinates of 32 bits are rounded.
        let most = (step.abs() / 100.0).max(first.abs().max(last.abs()) * f64::from(f32::EPSILON));
        let most = most.min(step.abs() / 10.0);
        let mut at = 0.0;
        let is_regular = all.iter().all(|value| {
            let expected = first + step * at;
            at += 1.0;
            (value - expected).abs() <= most
        });
        (is_regular && step.is_normal()).then_some((first, step))
    }
}

/// Returns an array of one dimension with its own name beside another array.
fn beside<'s>(source: &ViewSource<'s>, name: &str) -> Option<ViewSource<'s>> {
    let other = source.other(&source.path().parent()?.child(name).ok()?).ok()?;
    (other.array().ok()?.model().shape.len() == 1).then_some(other)
}

/// Returns the array that describes the grid: the first that `grid_mapping` names, or the one that
/// rioxarray adds.
fn grid_mapping<'s>(source: &ViewSource<'s>) -> Option<ViewSource<'s>> {
    let named = source.attributes().get("grid_mapping").and_then(Value::as_str);
    let named = named.and_then(|text| text.split([' ', ':']).find(|name| !name.is_empty()));
    let group: NodePath = source.path().parent()?;
    source.other(&group.child(named.unwrap_or("spatial_ref")).ok()?).ok()
}

/// Returns the system in `_CRS`, which GDAL's driver of Zarr writes.
fn crs_of_gdal(source: &ViewSource<'_>, x: &MapAxis<'_>) -> Option<Crs> {
    let crs = source.attributes().get("_CRS")?;
    let text = |name: &str| crs.get(name).and_then(Value::as_str);
    let by_url = || {
        let (above, code) = text("url")?.rsplit_once('/')?;
        above
            .contains("/EPSG/")
            .then(|| Crs::of_code(&format!("EPSG:{code}"), x.is_in_degrees()))?
    };
    let by_wkt = text("wkt").and_then(Crs::of_wkt);
    by_url().or(by_wkt).or_else(|| Crs::of_projjson(crs.get("projjson")?))
}

fn crs_of_mapping(mapping: &ViewSource<'_>, columns: &MapAxis<'_>) -> Option<Crs> {
    let attributes = mapping.attributes();
    let text = |name: &str| attributes.get(name).and_then(Value::as_str);
    let by_wkt = text("crs_wkt").or_else(|| text("spatial_ref")).and_then(Crs::of_wkt);
    let by_cf = Crs::of_cf(attributes, columns.units());
    // The text may have a projection that is not known here, and the parameters no code.
    let is_enough = |crs: &Crs| crs.code.is_some() || crs.wkt().is_some();
    by_wkt.filter(is_enough).or(by_cf)
}

/// Returns the transform of coordinates with equal steps, which are the centres of pixels.
fn regular_transform(rows: &MapAxis<'_>, columns: &MapAxis<'_>) -> Option<[f64; 6]> {
    let ((x, dx), (y, dy)) = (columns.steps()?, rows.steps()?);
    Some([dx, 0.0, x - dx / 2.0, 0.0, dy, y - dy / 2.0])
}

/// Returns the transform in the order of GDAL.
fn geo_transform(attributes: &Object) -> Option<[f64; 6]> {
    let numbers: Vec<f64> = match attributes.get("GeoTransform")? {
        Value::String(text) => {
            text.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?
        }
        other => floats(other)?,
    };
    let [c, a, b, f, d, e] = numbers.try_into().ok()?;
    Some([a, b, c, d, e, f])
}

fn floats(value: &Value) -> Option<Vec<f64>> {
    value.as_array()?.iter().map(Value::as_f64).collect()
}

/// Returns the transform of the convention `spatial` between corners of pixels.
fn geozarr_transform(
    source: &ViewSource<'_>,
    rows: &MapAxis<'_>,
    columns: &MapAxis<'_>,
) -> Option<[f64; 6]> {
    let [a, b, c, d, e, f] = described_transform(source, rows, columns)?;
    let own = source.attributes();
    let registration = |of: &Object| of.get("spatial:registration").cloned();
    let of_groups = || source.above().find_map(|group| registration(group.attributes()));
    let is_of_nodes = registration(own).or_else(of_groups).is_some_and(|found| found == "node");
    let half = if is_of_nodes { 0.5 } else { 0.0 };
    Some([a, b, c - half * (a + b), d, e, f - half * (d + e)])
}

/// Returns the transform of the convention `spatial` in the array, in the layout of a multiscale
/// group above it, or in its group.
fn described_transform(
    source: &ViewSource<'_>,
    rows: &MapAxis<'_>,
    columns: &MapAxis<'_>,
) -> Option<[f64; 6]> {
    let own = source.attributes();
    let groups: Vec<ViewSource<'_>> = source.above().collect();
    let all = || std::iter::once(own).chain(groups.iter().map(ViewSource::attributes));
    let dimensions = all().find_map(|of| of.get("spatial:dimensions"));
    if let Some(listed) = dimensions.and_then(Value::as_array) {
        let names: Vec<&str> = listed.iter().filter_map(Value::as_str).collect();
        if names != [rows.name.as_str(), columns.name.as_str()] {
            return None;
        }
    }
    let level = groups.iter().find_map(|group| level_of(group, source));
    let parent =
        groups.first().map(ViewSource::attributes).filter(|of| !of.contains_key("multiscales"));
    let holders = [Some(own), level.as_ref(), parent];
    let found = holders.into_iter().flatten().find_map(|of| {
        let is_affine = of.get("spatial:transform_type").is_none_or(|kind| kind == "affine");
        let numbers = of.get("spatial:transform").filter(|_| is_affine).and_then(floats);
        numbers.and_then(|numbers| numbers.try_into().ok())
    });
    let of_box = || {
        let holders = [Some(own), parent];
        let found = holders.into_iter().flatten().find_map(|of| floats(of.get("spatial:bbox")?))?;
        let [west, south, east, north] = found.try_into().ok()?;
        let (width, height) = (to_float(columns.len.into()), to_float(rows.len.into()));
        Some([(east - west) / width, 0.0, west, 0.0, (south - north) / height, north])
    };
    found.or_else(of_box)
}

/// Returns the item of a multiscale layout that has the array.
fn level_of(group: &ViewSource<'_>, source: &ViewSource<'_>) -> Option<Object> {
    let relative = source.path().relative_to(group.path())?;
    let layout = group.attributes().get("multiscales")?.get("layout")?.as_array()?;
    let has_array = |level: &&Value| {
        let asset = level.get("asset").and_then(Value::as_str);
        asset
            .and_then(|asset| relative.strip_prefix(asset))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    layout.iter().take(MOST_LEVELS).find(has_array)?.as_object().cloned()
}

/// Returns the arrays that follow this one in the layout of a multiscale group above it.
pub fn levels_below<'s>(source: &ViewSource<'s>) -> Vec<ViewSource<'s>> {
    let found = source.above().find_map(|group| {
        let relative = source.path().relative_to(group.path())?.to_owned();
        let layout = group.attributes().get("multiscales")?.get("layout")?.as_array()?;
        let assets = layout.iter().filter_map(|level| level.get("asset")?.as_str());
        let assets: Vec<String> = assets.take(MOST_LEVELS).map(str::to_owned).collect();
        let rest = |asset: &String| {
            let rest = relative.strip_prefix(asset.as_str())?;
            (rest.is_empty() || rest.starts_with('/')).then(|| rest.to_owned())
        };
        let (own, rest) = assets.iter().enumerate().find_map(|(at, it)| Some((at, rest(it)?)))?;
        let level = |asset: &String| {
            let path = group.path().join(&format!("{asset}{rest}")).ok()?;
            group.other(&path).ok().filter(|level| level.array().is_ok())
        };
        Some(assets.iter().skip(own.saturating_add(1)).filter_map(level).collect())
    });
    found.unwrap_or_default()
}

/// Returns the system that the convention `proj` names in the array or in a group above it.
fn geozarr_crs(source: &ViewSource<'_>, columns: &MapAxis<'_>) -> Option<Crs> {
    let groups: Vec<ViewSource<'_>> = source.above().collect();
    let all = std::iter::once(source).chain(&groups).map(ViewSource::attributes);
    all.into_iter().find_map(|of| {
        let code = of.get("proj:code").and_then(Value::as_str);
        let wkt = of.get("proj:wkt2").and_then(Value::as_str).and_then(Crs::of_wkt);
        let by_code = || Crs::of_code(code?, columns.is_in_degrees());
        wkt.or_else(by_code).or_else(|| Crs::of_projjson(of.get("proj:projjson")?))
    })
}
