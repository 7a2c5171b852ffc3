//! `hdr`: the text header of ENVI that describes the elements in `X.raw` beside it.

use super::header::line;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::view::image::{AxisKind, Image};
use crate::view::layout::{Layout, NumberForm};
use crate::view::left_out::LeftOutOfView;
use crate::view::map::{self, Crs, CrsKind, MapPlace};
use crate::view::parts::{Part, View};
use crate::view::source::ViewSource;

pub(super) fn build(source: &ViewSource<'_>) -> Result<View> {
    let image = Image::of(source)?;
    // A node without a file of elements has no header.
    source.elements(Layout::Linear, NumberForm::default())?;
    let code = match image.number() {
        DType::Uint(1) => 1,
        DType::Int(2) => 2,
        DType::Int(4) => 3,
        DType::Float(4) => 4,
        DType::Float(8) => 5,
        DType::Complex(8) => 6,
        DType::Complex(16) => 9,
        DType::Uint(2) => 12,
        DType::Uint(4) => 13,
        DType::Int(8) => 14,
        DType::Uint(8) => 15,
        _ => return Err(image.no_type("ENVI")),
    };
    let (map_text, map_left_out) = map_lines(source, &image);
    let channels = image.channels.clone();
    let image = image.of_rank(3)?;
    let is_channel =
        |axis: usize| image.axes.get(axis).is_some_and(|axis| axis.kind == Some(AxisKind::Channel));
    let shape = image.shape();
    let (interleave, lines, samples, bands) = match *shape.as_slice() {
        [samples] => ("bsq", 1, samples, 1),
        [lines, samples] => ("bsq", lines, samples, 1),
        [lines, samples, bands] if is_channel(2) => ("bip", lines, samples, bands),
        [lines, bands, samples] if is_channel(1) => ("bil", lines, samples, bands),
        [bands, lines, samples] => ("bsq", lines, samples, bands),
        _ => return Err(Error::unsupported("ENVI images have one to three dimensions")),
    };
    let mut text = format!(
        "ENVI\ndescription = {{{}}}\nsamples = {samples}\nlines = {lines}\nbands = {bands}\nheader offset = 0\n\
         file type = ENVI Standard\ndata type = {code}\ninterleave = {interleave}\nbyte order = 0\n",
        plain(&source.path().to_string()),
    );
    let labels: Vec<String> =
        channels.iter().filter_map(|channel| channel.label.as_deref()).map(plain).collect();
    if u64::try_from(labels.len()).is_ok_and(|count| count == bands) {
        text.extend([format!("band names = {{{}}}\n", labels.join(", "))]);
    }
    let mut left_out = LeftOutOfView::of_image(source.path(), &image, false);
    for what in map_left_out {
        left_out.add_property(source.path(), source.path(), what);
    }
    text.push_str(&map_text);
    Ok(View::new([Part::from(text)])?.with_left_out(left_out))
}

/// Returns the lines that place the image on a map, and what they do not say.
fn map_lines(source: &ViewSource<'_>, image: &Image) -> (String, Vec<&'static str>) {
    let is_between = match image.axes.as_slice() {
        [_, bands, _] => bands.kind == Some(AxisKind::Channel),
        _ => false,
    };
    let place = if is_between {
        MapPlace::of_axes(source, image, 0, 2)
    } else {
        MapPlace::of(source, image)
    };
    let (mut text, mut left_out) = (String::new(), Vec::new());
    match place.as_ref().map(map_info) {
        None if !is_between && MapPlace::is_of_other_axes(source, image) => {
            left_out.push(map::OF_OTHER_AXES);
        }
        None => {}
        Some(Some(lines)) => text.push_str(&lines),
        Some(None) => left_out
            .push("the place on a map, which ENVI says only if rows run down from the north"),
    }
    text.extend(map::no_data(source).map(|number| format!("data ignore value = {number}\n")));
    (text, left_out)
}

/// Returns the lines that place the image on a map, `None` if rows run in another direction.
fn map_info(place: &MapPlace) -> Option<String> {
    let [width, height, x, y] = place.north_up()?;
    let corner = format!("1, 1, {x}, {y}, {width}, {height}");
    let crs = place.crs.as_ref();
    // WGS 84 / UTM has a code for each zone.
    let zone = crs.and_then(|crs| crs.code).and_then(|code| match code {
        32601..=32660 => Some((code - 32600, "North")),
        32701..=32760 => Some((code - 32700, "South")),
        _ => None,
    });
    let mut text = match (zone, crs.map(|crs| crs.kind)) {
        (Some((zone, half)), _) => {
            format!("map info = {{UTM, {corner}, {zone}, {half}, WGS-84, units=Meters}}\n")
        }
        (None, Some(CrsKind::Geographic)) => {
            format!("map info = {{Geographic Lat/Lon, {corner}, WGS-84, units=Degrees}}\n")
        }
        _ => format!("map info = {{Arbitrary, {corner}, 0, North}}\n"),
    };
    let wkt = crs.filter(|_| zone.is_none()).and_then(Crs::wkt);
    if let Some(wkt) = wkt {
        text.extend([format!("coordinate system string = {{{wkt}}}\n")]);
    }
    Some(text)
}

/// Returns a string without the characters that have a meaning in a header.
fn plain(text: &str) -> String {
    line(text).replace(['{', '}', ','], "_")
}
