//! GeoTIFF, as rioxarray shows it: `y` and `x` as coordinates, and `spatial_ref` as the grid
//! mapping.
//!
//! An image with overviews is a group with a group for each resolution, because coordinates differ;
//! `multiscales` lists them. The arrays have the attributes `spatial:transform` and `proj:code`,
//! too, because a transform may be rotated, and zarrfs has no text for most codes of EPSG.
//!
//! <https://docs.ogc.org/is/19-008r4/19-008r4.html>,
//! <https://gdal.org/en/stable/drivers/raster/gtiff.html>

mod crs;
mod keys;
mod metadata;
mod place;

use serde_json::{Value, json};

use super::codecs::SampleType;
use super::directory::tag;
use super::image::TiffImage;
use super::page::PageForm;
use super::pages::TiffPages;
use crate::described::{Described, DescribedArray, bytes_codec, no_attributes};
use metadata::GdalMetadata;
use place::GeoPlace;
use zarrfs_base::error::Result;
use zarrfs_base::width::ToUsize;
use zarrfs_codec::dtype::{base64_encode, to_float};
use zarrfs_codec::json::Object;

/// The most coordinates that are computed. They take 2 MB.
const MAX_COORDINATES: u64 = 1 << 18;

/// The most masks that are compared with a resolution.
const MAX_MASKS: usize = 64;

/// The names of arrays beside that of the image.
const OTHERS: [&str; 5] = ["x", "y", "band", "spatial_ref", "mask"];

/// Whether the first page is placed on a map, or GDAL wrote its values.
pub fn is_map(pages: &TiffPages) -> Result<bool> {
    let directory = pages.bytes.directory(pages.get(0)?.offset)?;
    let tags = [
        tag::GEO_KEY_DIRECTORY,
        tag::MODEL_PIXEL_SCALE,
        tag::MODEL_TRANSFORMATION,
        tag::MODEL_TIEPOINT,
        tag::GDAL_METADATA,
        tag::GDAL_NODATA,
    ];
    Ok(tags.into_iter().any(|tag| directory.get(tag).is_some()))
}

/// Describes the images of a GeoTIFF.
pub fn describe(
    described: &mut Described,
    pages: &TiffPages,
    images: &[TiffImage],
    masks: &[TiffImage],
    stem: &str,
) -> Result<()> {
    let stem = if OTHERS.contains(&stem) { "data" } else { stem };
    if images.len() > 1 {
        described.group("", no_attributes())?;
    }
    let beside = Beside { stem, masks };
    for (number, image) in images.iter().enumerate() {
        let group = if images.len() > 1 { number.to_string() } else { String::new() };
        let map = Map::read(pages, image, described, &group)?;
        if image.levels.len() == 1 {
            described.group(&group, no_attributes())?;
            map.level(described, pages, 0, &group, beside)?;
            continue;
        }
        described.group(&group, map.layout(pages)?)?;
        for level in 0..image.levels.len() {
            let own = if group.is_empty() { level.to_string() } else { format!("{group}/{level}") };
            described.group(&own, no_attributes())?;
            map.level(described, pages, level, &own, beside)?;
        }
    }
    Ok(())
}

/// The name of the array of an image, and the masks of all images.
#[derive(Clone, Copy)]
struct Beside<'b> {
    stem: &'b str,
    masks: &'b [TiffImage],
}

/// An image on a map.
struct Map<'i> {
    image: &'i TiffImage,
    form: PageForm,
    place: GeoPlace,
    metadata: GdalMetadata,
    /// The text of the value that means nothing.
    nodata: Option<String>,
}

impl<'i> Map<'i> {
    fn read(
        pages: &TiffPages,
        image: &'i TiffImage,
        described: &mut Described,
        group: &str,
    ) -> Result<Self> {
        let key = pages.get(image.key(0)?)?;
        let directory = pages.bytes.directory(key.offset)?;
        let text = |tag: u16| {
            let values = directory.get(tag).filter(|values| values.is_text());
            values.map(|values| pages.bytes.text(values)).transpose()
        };
        let metadata = text(tag::GDAL_METADATA)?.unwrap_or_default();
        let place = GeoPlace::read(&pages.bytes, &directory)?;
        if place.has_control_points {
            described.omit(group, "ground control points");
        }
        Ok(Self {
            image,
            form: key.form.clone(),
            place,
            metadata: GdalMetadata::parse(&metadata),
            nodata: text(tag::GDAL_NODATA)?,
        })
    }

    /// Returns the attributes of a group with a group for each resolution.
    fn layout(&self, pages: &TiffPages) -> Result<Object> {
        let mut layout = Vec::new();
        for level in 0..self.image.levels.len() {
            let own = &pages.get(self.image.key(level)?)?.form;
            let [x, y] = self.ratio(own);
            let mut item = json!({"asset": level.to_string(), "transform": {"scale": [y, x]}});
            if let (Some(before), Some(members)) = (level.checked_sub(1), item.as_object_mut()) {
                members.insert("derived_from".to_owned(), json!(before.to_string()));
            }
            layout.push(item);
        }
        let multiscales = json!({"layout": layout});
        Ok(Object::from_iter([("multiscales".to_owned(), multiscales)]))
    }

    /// Returns how many columns and rows of the whole image one of a resolution has.
    fn ratio(&self, own: &PageForm) -> [f64; 2] {
        let ratio = |whole: u64, part: u64| to_float(whole.into()) / to_float(part.max(1).into());
        [ratio(self.form.width, own.width), ratio(self.form.height, own.height)]
    }

    /// Describes a resolution in its group.
    fn level(
        &self,
        described: &mut Described,
        pages: &TiffPages,
        level: usize,
        group: &str,
        Beside { stem, masks }: Beside<'_>,
    ) -> Result<()> {
        let form = &pages.get(self.image.key(level)?)?.form;
        let path =
            |name: &str| if group.is_empty() { name.to_owned() } else { format!("{group}/{name}") };
        let place = self.place.scaled(self.ratio(form));
        let mut array = self.image.array(pages, level)?;
        array.samples_first = true;
        array.names = self.image.names(form, true);
        for name in array.names.iter_mut().filter(|name| *name == "c") {
            "band".clone_into(name);
        }
        array.attributes.remove("GDAL_METADATA");
        array.attributes.extend(self.metadata.attributes(form.samples));
        array.attributes.extend(place.attributes());
        if let Ok(sample) = SampleType::of(form)
            && let Some(text) = &self.nodata
        {
            match nodata(text, &sample) {
                Some((fill, masked)) => {
                    array.fill_value = Some(fill);
                    array.attributes.insert("_FillValue".to_owned(), masked);
                }
                None => {
                    array.attributes.insert("GDAL_NODATA".to_owned(), json!(text.trim()));
                }
            }
        }
        array.describe(described, pages, &path(stem))?;
        place.describe(described, &path("spatial_ref"))?;
        let [x, y] = [(form.width, "x"), (form.height, "y")];
        for (len, name) in [x, y] {
            if let Some((values, attributes)) = place.coordinates(name, len) {
                coordinates(described, &path(name), name, &values, attributes)?;
            }
        }
        if form.samples > 1 && form.samples <= MAX_COORDINATES {
            bands(described, &path("band"), form.samples)?;
        }
        for mask in masks.iter().take(MAX_MASKS) {
            let own = &pages.get(mask.key(0)?)?.form;
            if (own.width, own.height) == (form.width, form.height) {
                let mut array = mask.array(pages, 0)?;
                array.attributes.extend(place.attributes());
                array.describe(described, pages, &path("mask"))?;
                break;
            }
        }
        Ok(())
    }
}

/// Describes the coordinates along a dimension.
fn coordinates(
    described: &mut Described,
    path: &str,
    name: &str,
    values: &[f64],
    attributes: Object,
) -> Result<()> {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let array =
        DescribedArray { data_type: json!("float64"), attributes, ..one_chunk(name, values.len()) };
    described.array(path, &array)?;
    described.inline(path, &[0], bytes)
}

/// Describes the numbers of bands, from 1 on.
fn bands(described: &mut Described, path: &str, count: u64) -> Result<()> {
    let bytes = (1..=count).flat_map(u64::to_le_bytes).collect();
    let array = DescribedArray { data_type: json!("int64"), ..one_chunk("band", count.to_usize()) };
    described.array(path, &array)?;
    described.inline(path, &[0], bytes)
}

fn one_chunk(name: &str, len: usize) -> DescribedArray {
    let len = u64::try_from(len).unwrap_or(u64::MAX);
    DescribedArray {
        shape: vec![len],
        chunk_shape: vec![len],
        codecs: vec![bytes_codec(false)],
        fill_value: json!(0),
        dimension_names: Some(vec![Some(name.to_owned())]),
        ..DescribedArray::default()
    }
}

/// Returns the value that means nothing as a fill value, and as xarray spells it in Zarr 3; `None`
/// if the type does not have it.
fn nodata(text: &str, sample: &SampleType) -> Option<(Value, Value)> {
    let text = text.trim();
    if sample.is_float {
        let double: f64 = text.parse().ok()?;
        #[expect(
            clippy::as_conversions,
            clippy::cast_possible_truncation,
            reason = "it is rounded"
        )]
        let single = f64::from(double as f32);
        let double = if sample.item_len == 8 { double } else { single };
        let is_held = sample.item_len > 2 || !double.is_finite() || double.abs() <= 65_504.0;
        let fill = match (double.is_nan(), double.is_infinite()) {
            (true, _) => json!("NaN"),
            (_, true) => json!(if double > 0.0 { "Infinity" } else { "-Infinity" }),
            (false, false) => json!(double),
        };
        let masked = json!(base64_encode(&double.to_le_bytes()));
        return is_held.then_some((fill, masked));
    }
    if sample.zero.is_array() {
        return None;
    }
    let integer = text.parse::<i128>().ok().or_else(|| {
        let double: f64 = text.parse().ok()?;
        format!("{double}").parse().ok()
    })?;
    let bits = sample.item_len.saturating_mul(8);
    let span = 1_i128.checked_shl(u32::try_from(bits).ok()?)?;
    let range = if sample.is_signed { -(span / 2)..span / 2 } else { 0..span };
    let value = match u64::try_from(integer) {
        Ok(integer) => json!(integer),
        Err(_) => json!(i64::try_from(integer).ok()?),
    };
    range.contains(&integer).then(|| (value.clone(), value))
}
