//! OME-XML (<https://www.openmicroscopy.org/Schemas/OME/2016-06/>), which describes the pages of a
//! file.

use crate::dtype::DType;
use crate::error::Result;
use crate::view::image::{Axis, AxisKind, Image, Unit, escape};

/// The most planes whose positions are written.
const MAX_PLANES: u64 = 4096;

/// Returns the metadata of an image. The axes before those of a page are `kinds`.
pub(super) fn text(
    name: &str,
    image: &Image,
    outer: &[Axis],
    kinds: &[Option<AxisKind>],
    samples: u16,
) -> Result<String> {
    let dtype = match image.number() {
        DType::Int(1) => "int8",
        DType::Int(2) => "int16",
        DType::Int(4) => "int32",
        DType::Uint(1) => "uint8",
        DType::Uint(2) => "uint16",
        DType::Uint(4) => "uint32",
        DType::Float(4) => "float",
        DType::Float(8) => "double",
        DType::Complex(8) => "complex",
        DType::Complex(16) => "double-complex",
        _ => return Err(image.no_type("OME")),
    };
    let len = |kind: AxisKind| {
        let found = outer.iter().zip(kinds).find(|(_, found)| **found == Some(kind));
        found.map_or(1, |(axis, _)| axis.len)
    };
    let channels = if samples > 1 { 1 } else { len(AxisKind::Channel) };
    let (slices, frames) = (len(AxisKind::Z), len(AxisKind::Time));
    let mut plane = image.axes.iter().rev().skip(usize::from(samples > 1));
    let (x, y) = (plane.next(), plane.next());
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <OME xmlns=\"http://www.openmicroscopy.org/Schemas/OME/2016-06\" \
         xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" \
         xsi:schemaLocation=\"http://www.openmicroscopy.org/Schemas/OME/2016-06 \
         http://www.openmicroscopy.org/Schemas/OME/2016-06/ome.xsd\" Creator=\"zarrfs {}\">\n\
         <Image ID=\"Image:0\" Name=\"{}\">\n\
         <Pixels ID=\"Pixels:0\" DimensionOrder=\"{}\" Type=\"{dtype}\" BigEndian=\"false\" Interleaved=\"{}\" \
         SizeX=\"{}\" SizeY=\"{}\" SizeC=\"{}\" SizeZ=\"{slices}\" SizeT=\"{frames}\"",
        env!("CARGO_PKG_VERSION"),
        escape(name),
        order(kinds, samples),
        samples > 1,
        x.map_or(1, |axis| axis.len),
        y.map_or(1, |axis| axis.len),
        channels.saturating_mul(u64::from(samples)),
    );
    for (kind, letter) in [(AxisKind::X, 'X'), (AxisKind::Y, 'Y'), (AxisKind::Z, 'Z')] {
        text.push_str(&size(image, kind, &format!("PhysicalSize{letter}")));
    }
    text.push_str(&size(image, AxisKind::Time, "TimeIncrement"));
    text.push_str(">\n");
    for index in 0..channels {
        text.push_str(&channel(image, index, samples));
    }
    let pages = channels.saturating_mul(slices).saturating_mul(frames);
    // Bio-Formats recognizes the metadata by its last characters, so there is no end of line.
    text.extend([format!("<TiffData IFD=\"0\" PlaneCount=\"{pages}\"/>\n")]);
    text.push_str(&planes(image, channels, slices, frames));
    text.push_str("</Pixels>\n</Image>\n</OME>");
    Ok(text)
}

/// Returns the elements with the position of each plane, if the image does not begin at the origin:
/// only that of the first plane if there are very many.
fn planes(image: &Image, channels: u64, slices: u64, frames: u64) -> String {
    let scale = |kind| image.axis(kind).and_then(|(_, axis)| axis.scale.as_ref());
    let all = [(AxisKind::X, 'X'), (AxisKind::Y, 'Y'), (AxisKind::Z, 'Z')]
        .map(|(kind, letter)| (scale(kind), letter));
    if all.iter().all(|(scale, _)| scale.is_none_or(|scale| scale.start == 0.0)) {
        return String::new();
    }
    let pages = channels.saturating_mul(slices).saturating_mul(frames);
    let mut text = String::new();
    let (mut z, mut c, mut t) = (0_u32, 0_u64, 0_u64);
    for _ in 0..if pages > MAX_PLANES { 1 } else { pages } {
        text.extend([format!("<Plane TheZ=\"{z}\" TheC=\"{c}\" TheT=\"{t}\"")]);
        for (scale, letter) in &all {
            let Some(scale) = scale else { continue };
            let number = if *letter == 'Z' { f64::from(z) } else { 0.0 };
            let position = scale.step.mul_add(number, scale.start);
            let unit = scale.unit.as_ref().and_then(symbol).unwrap_or("reference frame");
            text.extend([format!(
                " Position{letter}=\"{position}\" Position{letter}Unit=\"{}\"",
                escape(unit)
            )]);
        }
        text.push_str("/>\n");
        z = z.saturating_add(1);
        if u64::from(z) >= slices {
            (z, c) = (0, c.saturating_add(1));
        }
        if c >= channels {
            (c, t) = (0, t.saturating_add(1));
        }
    }
    text
}

/// Returns the element that describes a channel.
fn channel(image: &Image, index: u64, samples: u16) -> String {
    let mut text = format!("<Channel ID=\"Channel:0:{index}\" SamplesPerPixel=\"{samples}\"");
    let known = usize::try_from(index).ok().and_then(|index| image.channels.get(index));
    let known = known.filter(|_| samples == 1);
    if let Some(label) = known.and_then(|channel| channel.label.as_deref()) {
        text.extend([format!(" Name=\"{}\"", escape(label))]);
    }
    if let Some(color) = known.and_then(|channel| channel.color) {
        // Red, green, blue and opacity, as a signed number.
        let color = color.wrapping_shl(8) | 0xff;
        text.extend([format!(" Color=\"{}\"", color.cast_signed())]);
    }
    text.push_str("/>\n");
    text
}

/// Returns the order of the axes, the fastest first.
fn order(kinds: &[Option<AxisKind>], samples: u16) -> String {
    let mut order = String::from("XY");
    let in_pixel = (samples > 1).then_some(AxisKind::Channel);
    let all = [AxisKind::Z, AxisKind::Channel, AxisKind::Time];
    for kind in in_pixel.into_iter().chain(kinds.iter().rev().copied().flatten()).chain(all) {
        let letter = match kind {
            AxisKind::Z => 'Z',
            AxisKind::Channel => 'C',
            AxisKind::Time => 'T',
            AxisKind::X | AxisKind::Y => continue,
        };
        if !order.contains(letter) {
            order.push(letter);
        }
    }
    order
}

/// Returns the attributes with the step along an axis, and its unit.
fn size(image: &Image, kind: AxisKind, name: &str) -> String {
    let scale = image.axis(kind).and_then(|(_, axis)| axis.scale.as_ref());
    let Some(scale) = scale else { return String::new() };
    let step = scale.step.abs();
    match (scale.unit.as_ref().and_then(symbol), kind) {
        (Some(symbol), _) => format!(" {name}=\"{step}\" {name}Unit=\"{}\"", escape(symbol)),
        (None, AxisKind::Time) => String::new(),
        // The unit is unknown; by default it would be micrometres.
        (None, _) => format!(" {name}=\"{step}\" {name}Unit=\"reference frame\""),
    }
}

/// Returns the symbol of a unit in OME-XML.
fn symbol(unit: &Unit) -> Option<&'static str> {
    use crate::view::image::Quantity::{Length, Time};
    let Some(exponent) = unit.exponent() else {
        return match unit.name.as_str() {
            "minute" => Some("min"),
            "hour" => Some("h"),
            "day" => Some("d"),
            "inch" => Some("in"),
            "foot" => Some("ft"),
            _ => None,
        };
    };
    Some(match (unit.quantity()?, exponent) {
        (Length, -10) => "\u{c5}",
        (Length, -12) => "pm",
        (Length, -9) => "nm",
        (Length, -6) => "\u{b5}m",
        (Length, -3) => "mm",
        (Length, -2) => "cm",
        (Length, 0) => "m",
        (Length, 3) => "km",
        (Time, -12) => "ps",
        (Time, -9) => "ns",
        (Time, -6) => "\u{b5}s",
        (Time, -3) => "ms",
        (Time, 0) => "s",
        _ => return None,
    })
}
