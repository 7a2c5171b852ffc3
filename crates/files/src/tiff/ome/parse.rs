//! The parts of OME-XML that say how pages belong together.

use std::collections::HashMap;

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use crate::tiff::xml::{attributes, local};

/// The most elements within each other.
const DEEPEST: usize = 64;

/// The most images, and the most channels of one.
const MAX_COUNT: usize = 4096;

/// The parts of the XML.
#[derive(Debug, Default)]
pub struct Ome {
    /// The identifier of the file.
    pub uuid: Option<String>,
    /// The images.
    pub images: Vec<OmeImage>,
}

/// An image, with its `Pixels`.
#[derive(Debug, Default)]
pub struct OmeImage {
    /// Its name.
    pub name: String,
    /// `DimensionOrder`, the fastest first.
    pub order: String,
    /// The lengths of `X`, `Y`, `Z`, `C` and `T`.
    pub sizes: HashMap<String, u64>,
    /// The distances along `X`, `Y`, `Z` and `T`.
    pub steps: HashMap<String, f64>,
    /// Their units.
    pub units: HashMap<String, String>,
    /// The channels.
    pub channels: Vec<OmeChannel>,
    /// The places of planes.
    pub places: Vec<TiffData>,
}

/// A channel.
#[derive(Debug, Default)]
pub struct OmeChannel {
    /// Its name.
    pub label: Option<String>,
    /// Red, green and blue in hexadecimal.
    pub color: Option<String>,
    /// The samples of a pixel.
    pub samples: u64,
}

/// The place of some planes.
#[derive(Debug, Default)]
pub struct TiffData {
    /// The number of the first page.
    pub ifd: Option<u64>,
    /// The number of pages.
    pub count: Option<u64>,
    /// The first index along `t`, `c` and `z`.
    pub first: HashMap<char, u64>,
    /// The name and the identifier of another file.
    file: Option<String>,
    uuid: Option<String>,
}

impl TiffData {
    /// Whether the planes are in the file with this name and identifier.
    pub fn is_in(&self, name: &str, uuid: Option<&str>) -> bool {
        let is_named = |file: &String| file.eq_ignore_ascii_case(name);
        match (&self.uuid, uuid) {
            (Some(own), Some(uuid)) => own == uuid || self.file.as_ref().is_some_and(is_named),
            _ => self.file.as_ref().is_none_or(is_named),
        }
    }
}

/// Parses the XML; `None` if it is damaged or has too much.
pub fn parse(text: &str) -> Option<Ome> {
    let mut reader = Reader::from_str(text);
    let mut ome = Ome::default();
    let mut path: Vec<String> = Vec::new();
    loop {
        match reader.read_event().ok()? {
            Event::Start(_) if path.len() >= DEEPEST => return None,
            Event::Start(tag) => {
                let name = local(tag.local_name().as_ref());
                ome.element(&path, &name, &tag)?;
                path.push(name);
            }
            Event::Empty(tag) => ome.element(&path, &local(tag.local_name().as_ref()), &tag)?,
            Event::Text(text) if path.last().is_some_and(|name| name == "UUID") => {
                let text = text.decode().ok()?;
                if let Some(place) = ome.images.last_mut().and_then(|it| it.places.last_mut()) {
                    place.uuid = Some(text.trim().to_owned());
                }
            }
            Event::End(_) => {
                path.pop();
            }
            Event::Eof => return path.is_empty().then_some(ome),
            Event::Text(_)
            | Event::CData(_)
            | Event::GeneralRef(_)
            | Event::Comment(_)
            | Event::Decl(_)
            | Event::PI(_)
            | Event::DocType(_) => {}
        }
    }
}

impl Ome {
    /// Notes an element; `None` if there are too many.
    fn element(&mut self, path: &[String], name: &str, tag: &BytesStart<'_>) -> Option<()> {
        let parent = path.last().map_or("", String::as_str);
        let image = self.images.last_mut();
        match (parent, name, image) {
            ("", "OME", _) => self.uuid = attributes(tag)?.remove("UUID"),
            ("OME", "Image", _) => {
                let name = attributes(tag)?.remove("Name").unwrap_or_default();
                self.images.push(OmeImage { name, ..OmeImage::default() });
                return (self.images.len() <= MAX_COUNT).then_some(());
            }
            ("Image", "Pixels", Some(image)) => image.pixels(&attributes(tag)?),
            ("Pixels", "Channel", Some(image)) => {
                image.channels.push(channel(&attributes(tag)?));
                return (image.channels.len() <= MAX_COUNT).then_some(());
            }
            ("Pixels", "TiffData", Some(image)) => image.places.push(tiff_data(&attributes(tag)?)),
            ("TiffData", "UUID", Some(image)) => {
                let file = attributes(tag)?.remove("FileName");
                if let Some(place) = image.places.last_mut() {
                    place.file = file;
                }
            }
            _ => {}
        }
        Some(())
    }
}

impl OmeImage {
    fn pixels(&mut self, values: &HashMap<String, String>) {
        for (name, value) in values {
            if let Some(axis) = name.strip_prefix("Size") {
                self.sizes.extend(value.parse().ok().map(|len| (axis.to_owned(), len)));
            } else if let Some(unit) = name.strip_suffix("Unit") {
                self.units.extend(axis_of(unit).map(|axis| (axis, value.clone())));
            } else if let Some(axis) = axis_of(name) {
                let step = value.parse().ok().filter(|step: &f64| *step > 0.0 && step.is_finite());
                self.steps.extend(step.map(|step| (axis, step)));
            } else if name == "DimensionOrder" {
                self.order.clone_from(value);
            }
        }
        let mut letters: Vec<char> = self.order.chars().collect();
        letters.sort_unstable();
        if !self.order.starts_with("XY") || letters != ['C', 'T', 'X', 'Y', 'Z'] {
            "XYZCT".clone_into(&mut self.order);
        }
    }
}

/// Returns the axis that an attribute has the distance of.
fn axis_of(name: &str) -> Option<String> {
    match name {
        "TimeIncrement" => Some("T".to_owned()),
        _ => name.strip_prefix("PhysicalSize").map(str::to_owned),
    }
}

fn channel(values: &HashMap<String, String>) -> OmeChannel {
    let color = values.get("Color").and_then(|text| text.parse::<i32>().ok());
    let [red, green, blue, _] = color.unwrap_or_default().to_be_bytes();
    OmeChannel {
        label: values.get("Name").cloned(),
        color: color.map(|_| format!("{red:02X}{green:02X}{blue:02X}")),
        samples: values.get("SamplesPerPixel").and_then(|it| it.parse().ok()).unwrap_or(1),
    }
}

fn tiff_data(values: &HashMap<String, String>) -> TiffData {
    let number = |name: &str| values.get(name).and_then(|text| text.parse().ok());
    let first = ["C", "Z", "T"].into_iter().filter_map(|axis| {
        let name = axis.to_lowercase().chars().next()?;
        Some((name, number(&format!("First{axis}"))?))
    });
    TiffData {
        ifd: number("IFD"),
        count: number("PlaneCount").or_else(|| number("NumPlanes")),
        first: first.collect(),
        ..TiffData::default()
    }
}
