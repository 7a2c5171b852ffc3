//! `tif`: pages one after another. If ImageJ has the type, the file is an ImageJ hyperstack: a
//! string in the first directory describes it, and channels are fastest, then z, then time.
//! Otherwise that string has the shape in the form of tifffile.
//!
//! If the array is a plane of a multiscale map, the smaller levels of the map are its overviews.
//!
//! Below 4 GiB every page has a directory. A longer hyperstack has only one directory, as ImageJ
//! writes it, and the other pages follow the first. Any other longer file is a `BigTIFF`.

use super::directory::{TiffEntry, TiffValue, TiffVariant, TiffWriter, resolution, tag};
use super::geo;
use super::page::{TiffPage, stack};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::view::elements::ElementRange;
use crate::view::image::{Axis, AxisKind, Image};
use crate::view::layout::{Layout, NumberForm};
use crate::view::left_out::LeftOutOfView;
use crate::view::map::{self, MapPlace};
use crate::view::parts::{Part, View, max_prefix_len};
use crate::view::source::ViewSource;
use crate::width::ToU64;

/// Elements as ImageJ writes them.
const BIG_ENDIAN: NumberForm = NumberForm { big_endian: true, flip_sign: false };

/// The length of a strip in bytes. Readers read a strip as a whole.
const STRIP_LEN: u64 = 4 << 20;

/// The approximate length of the directory of a page in bytes.
const DIRECTORY_LEN: u64 = 256;

pub(in super::super) fn build(source: &ViewSource<'_>) -> Result<View> {
    let image = Image::of(source)?;
    let map = MapTags::of(source, &image);
    let image = image.in_pages();
    let (page, outer) = TiffPage::of(&image)?;
    let pages = outer.iter().try_fold(1_u64, |all, axis| all.checked_mul(axis.len));
    let pages = pages.ok_or_else(|| {
        Error::unsupported(
            "it would exceed the maximum size of a \
             file",
        )
    })?;
    let kinds = stack(outer, page.samples > 1).filter(|_| is_of_imagej(&image, &page));
    let (text, order) = match &kinds {
        Some(kinds) => hyperstack(&image, outer, kinds),
        None => (shape(&image), (0..outer.len()).collect()),
    };
    let levels = if map.is_map && pages == 1 { overviews(source, &image) } else { Vec::new() };
    let elements = source.elements(Layout::Linear, BIG_ENDIAN)?;
    let len =
        levels.iter().fold(elements.len(), |len, level| len.saturating_add(level.elements.len()));
    let headers = pages.saturating_mul(DIRECTORY_LEN.saturating_add(32 * (page.len() / STRIP_LEN)));
    let all_in_4_gib = len.saturating_add(headers) < u64::from(u32::MAX);
    let all_in_header = headers < max_prefix_len() / 2;
    // ImageJ's form of a long file has one directory.
    let alone = kinds.is_some()
        && levels.is_empty()
        && page.len().saturating_add(max_prefix_len()) < u64::from(u32::MAX)
        && !(all_in_4_gib && all_in_header);
    let form = TiffVariant { is_big: !all_in_4_gib && !alone, big_endian: true };
    let directories = if alone { 1 } else { pages };
    let mut place = place(&image, kinds.is_some());
    place.extend(map.entries.clone());
    let header = |start: u64| -> Result<Vec<u8>> {
        let mut writer = TiffWriter::new(form);
        for number in 0..directories {
            let mut entries = page.entries();
            if number == 0 {
                entries.push((tag::IMAGE_DESCRIPTION, TiffValue::Text(text.clone())));
            }
            entries.extend(place.clone());
            let at = start.saturating_add(page.len().saturating_mul(number));
            entries.extend(page.strips(at, page.rows_of(STRIP_LEN)));
            writer.chained(entries)?;
        }
        let mut at = start.saturating_add(elements.len());
        for level in &levels {
            writer.chained(level.entries(at))?;
            at = at.saturating_add(level.elements.len());
        }
        writer.bytes.resize(writer.bytes.len().next_multiple_of(64), 0);
        Ok(writer.bytes)
    };
    // The length of the header does not depend on the offsets.
    let start = header(0)?.len().to_u64();
    let left_out = map.left_out(source, &image);
    let mut parts = vec![Part::from(header(start)?), elements.clone().turned(&order)?.into()];
    parts.extend(levels.into_iter().map(|level| Part::from(level.elements)));
    Ok(View::new(parts)?.with_left_out(left_out))
}

/// Whether ImageJ has the type and the samples.
fn is_of_imagej(image: &Image, page: &TiffPage) -> bool {
    match image.number() {
        DType::Uint(1) => page.samples == 1 || page.samples == 3,
        // ImageJ shows 32-bit integers, such as labels, as floats.
        DType::Uint(2 | 4) | DType::Int(2 | 4) | DType::Float(4) => page.samples == 1,
        _ => false,
    }
}

/// The entries of a map in each directory.
struct MapTags {
    entries: Vec<TiffEntry>,
    is_map: bool,
    /// Whether the array has a place that they do not say.
    is_of_other_axes: bool,
}

impl MapTags {
    fn of(source: &ViewSource<'_>, image: &Image) -> Self {
        let place = MapPlace::of(source, image);
        let mut entries = place.as_ref().map(geo::entries).unwrap_or_default();
        let no_data = map::no_data(source);
        entries.extend(no_data.map(|text| (tag::GDAL_NODATA, TiffValue::Text(text))));
        let is_of_other_axes = MapPlace::is_of_other_axes(source, image);
        Self { entries, is_map: place.is_some(), is_of_other_axes }
    }

    fn left_out(&self, source: &ViewSource<'_>, image: &Image) -> LeftOutOfView {
        let mut left_out = LeftOutOfView::of_image(source.path(), image, false);
        if self.is_of_other_axes {
            left_out.add_property(source.path(), source.path(), map::OF_OTHER_AXES);
        }
        left_out
    }
}

/// A smaller level of a map.
struct Overview {
    page: TiffPage,
    elements: ElementRange,
}

impl Overview {
    /// Returns the entries of its directory if its elements are at `at`.
    fn entries(&self, at: u64) -> Vec<TiffEntry> {
        let mut entries = self.page.entries();
        entries.push((tag::NEW_SUBFILE_TYPE, TiffValue::Long(vec![1])));
        entries.extend(self.page.strips(at, self.page.rows_of(STRIP_LEN)));
        entries
    }
}

/// Returns the smaller levels of a plane of a map, those that are like it otherwise.
fn overviews(source: &ViewSource<'_>, image: &Image) -> Vec<Overview> {
    let level = |level: &ViewSource<'_>| {
        let smaller = Image::of(level).ok()?;
        let is_alike = smaller.dtype == image.dtype && smaller.axes.len() == image.axes.len();
        let (page, outer) = TiffPage::of(&smaller).ok().filter(|_| is_alike)?;
        let is_plane = outer.iter().all(|axis| axis.len == 1);
        let elements = level.elements(Layout::Linear, BIG_ENDIAN).ok().filter(|_| is_plane)?;
        Some(Overview { page, elements })
    };
    let all = map::levels_below(source);
    let mut last = TiffPage::of(image).map_or((0, 0), |(page, _)| (page.width, page.height));
    let mut levels: Vec<Overview> = all.iter().filter_map(level).collect();
    levels.retain(|level| {
        let own = (level.page.width, level.page.height);
        let is_smaller = own.0 < last.0 && own.1 <= last.1 || own.0 <= last.0 && own.1 < last.1;
        if is_smaller {
            last = own;
        }
        is_smaller
    });
    levels
}

/// Returns the description of a hyperstack, and the order of the axes before those of a page.
fn hyperstack(image: &Image, outer: &[Axis], kinds: &[Option<AxisKind>]) -> (String, Vec<usize>) {
    let mut order: Vec<usize> = (0..outer.len()).collect();
    order.sort_by_key(|axis| match kinds.get(*axis).copied().flatten() {
        Some(AxisKind::Time) => 1,
        Some(AxisKind::Z) => 2,
        Some(AxisKind::Channel) => 3,
        _ => 0,
    });
    let axis = |kind: AxisKind| {
        outer.iter().zip(kinds).find(|(_, found)| **found == Some(kind)).map(|(axis, _)| axis)
    };
    let len = |kind: AxisKind| axis(kind).map_or(1, |axis| axis.len);
    let (channels, slices, frames) =
        (len(AxisKind::Channel), len(AxisKind::Z), len(AxisKind::Time));
    let images = channels.saturating_mul(slices).saturating_mul(frames);
    let mut text = format!(
        "ImageJ=1.54\nimages={images}\nchannels={channels}\nslices={slices}\nframes={frames}\n"
    );
    if [channels, slices, frames].iter().filter(|len| **len > 1).count() > 1 {
        text.push_str("hyperstack=true\n");
    }
    text.push_str("mode=grayscale\nloop=false\n");
    if let Some((unit, exponent)) = unit(image) {
        text.extend([format!("unit={unit}\n")]);
        if let Some(step) = axis(AxisKind::Z).and_then(|axis| axis.step_in(exponent)) {
            text.extend([format!("spacing={}\n", step.abs())]);
        }
    }
    if let Some(step) = axis(AxisKind::Time).and_then(|axis| axis.step_in(0)) {
        text.extend([format!("finterval={}\n", step.abs())]);
    }
    (text, order)
}

/// Returns ImageJ's name for the unit of x, with its power of ten of a metre.
fn unit(image: &Image) -> Option<(&'static str, i32)> {
    let (_, x) = image.axis(AxisKind::X)?;
    let exponent = x.scale.as_ref()?.unit.as_ref()?.exponent()?;
    let name = match exponent {
        0 => "m",
        -2 => "cm",
        -3 => "mm",
        -9 => "nm",
        _ => return Some(("micron", -6)),
    };
    Some((name, exponent))
}

/// Returns the resolution of a page: in the unit of the description, or in centimetres.
fn place(image: &Image, is_of_imagej: bool) -> Vec<(u16, TiffValue)> {
    let exponent = if is_of_imagej { unit(image).map(|(_, exponent)| exponent) } else { Some(-2) };
    let step = |kind| image.axis(kind)?.1.step_in(exponent?).map(f64::abs);
    let (Some(x), Some(y)) = (step(AxisKind::X), step(AxisKind::Y)) else { return Vec::new() };
    resolution(x, y, if is_of_imagej { 1 } else { 3 })
}

/// Returns the string by which tifffile restores a shape.
fn shape(image: &Image) -> String {
    serde_json::json!({ "shape": image.shape() }).to_string()
}
