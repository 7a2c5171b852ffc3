//! An image of a TIFF: planes with names for their dimensions, at one or several resolutions.

use serde_json::{Value, json};

use super::attributes;
use super::page::PageForm;
use super::pages::TiffPages;
use super::planes::{Plane, PlaneArray};
use crate::described::Described;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToUsize;
use zarrfs_codec::dtype::to_float;
use zarrfs_codec::json::Object;

/// The version of OME-Zarr that groups are described in.
pub const OME_ZARR: &str = "0.5";

/// A dimension of an image.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ImageAxis {
    /// Its name: `t`, `c`, `z`, or another one.
    pub name: String,
    /// Its length.
    pub len: u64,
    /// The distance of two elements along it.
    pub step: Option<f64>,
    /// The unit of the distance.
    pub unit: Option<String>,
}

/// A channel of an image.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ImageChannel {
    /// Its name.
    pub label: Option<String>,
    /// Red, green and blue in hexadecimal.
    pub color: Option<String>,
}

/// An image.
#[derive(Debug, Clone, Default)]
pub struct TiffImage {
    /// Its name, empty if it has none.
    pub name: String,
    /// The dimensions before those of a page.
    pub outer: Vec<ImageAxis>,
    /// The planes of each resolution, the largest first.
    pub levels: Vec<Vec<Option<Plane>>>,
    /// The distances of rows and of columns.
    pub rows: ImageAxis,
    /// See `rows`.
    pub columns: ImageAxis,
    /// The channels, if they are described.
    pub channels: Vec<ImageChannel>,
    /// The name of the dimension of samples, if it is not that of channels.
    pub samples: Option<String>,
    /// Whether it is described as OME-Zarr also if it has one resolution.
    pub is_ome: bool,
    /// Why it cannot be read as a whole: planes that are missing would read as zero.
    pub unread: Option<&'static str>,
}

impl TiffImage {
    /// Returns an image of these pages, one after another.
    pub fn of_pages(numbers: &[u32]) -> Self {
        let planes = numbers.iter().map(|page| Some(Plane { page: *page, skip: 0 })).collect();
        let len = numbers.len().try_into().unwrap_or(u64::MAX);
        let outer = ImageAxis { name: "page".to_owned(), len, ..ImageAxis::default() };
        let outer = if len > 1 { vec![outer] } else { Vec::new() };
        Self { outer, levels: vec![planes], ..Self::default() }
    }

    /// Returns the page of a resolution that says how all of them are stored.
    pub fn key(&self, level: usize) -> Result<usize> {
        let planes = self.levels.get(level).map(Vec::as_slice).unwrap_or_default();
        let first = planes.iter().flatten().next();
        first
            .map(|plane| plane.page.to_usize())
            .ok_or_else(|| Error::corrupt("an image without pages"))
    }

    /// Whether a group describes it.
    pub fn is_multiscale(&self) -> bool {
        self.is_ome || self.levels.len() > 1
    }

    /// Whether the samples of a pixel come before its rows, as OME-Zarr wants it.
    fn has_samples_first(&self, form: &PageForm) -> bool {
        let has_channels = self.outer.iter().any(|axis| axis.name == "c");
        form.is_planar || (self.is_multiscale() && form.samples > 1 && !has_channels)
    }

    /// Returns the names of the dimensions of an array.
    pub fn names(&self, form: &PageForm, samples_first: bool) -> Vec<String> {
        let mut names: Vec<String> = self.outer.iter().map(|axis| axis.name.clone()).collect();
        let usual = if names.iter().any(|name| name == "c") { "sample" } else { "c" };
        let samples = self.samples.as_deref().unwrap_or(usual);
        match (form.samples, samples_first) {
            (1, _) => names.extend(["y", "x"].map(str::to_owned)),
            (_, true) => names.extend([samples, "y", "x"].map(str::to_owned)),
            (_, false) => names.extend(["y", "x", samples].map(str::to_owned)),
        }
        names
    }

    /// Returns the array of a resolution.
    pub fn array(&self, pages: &TiffPages, level: usize) -> Result<PlaneArray> {
        let key = pages.get(self.key(level)?)?;
        let samples_first = self.has_samples_first(&key.form);
        Ok(PlaneArray {
            outer: self.outer.iter().map(|axis| axis.len).collect(),
            planes: self.levels.get(level).cloned().unwrap_or_default(),
            samples_first,
            names: self.names(&key.form, samples_first),
            attributes: attributes::of(pages, key)?,
            fill_value: None,
            unread: self.unread,
        })
    }

    /// Describes its arrays below `group`, with the names `names`.
    pub fn describe(
        &self,
        described: &mut Described,
        pages: &TiffPages,
        group: &str,
        names: &[String],
    ) -> Result<()> {
        for (level, name) in names.iter().enumerate().take(self.levels.len()) {
            let path = if group.is_empty() { name.clone() } else { format!("{group}/{name}") };
            self.array(pages, level)?.describe(described, pages, &path)?;
        }
        Ok(())
    }

    /// Returns the attributes of a group with its arrays, as OME-Zarr has them.
    pub fn multiscales(&self, pages: &TiffPages, names: &[String]) -> Result<Object> {
        let form = &pages.get(self.key(0)?)?.form;
        let names_of_axes = self.names(form, self.has_samples_first(form));
        let axes: Vec<Value> = names_of_axes.iter().map(|name| self.axis(name)).collect();
        let mut datasets = Vec::new();
        for (level, path) in names.iter().enumerate().take(self.levels.len()) {
            let own = &pages.get(self.key(level)?)?.form;
            let scale: Vec<f64> =
                names_of_axes.iter().map(|name| self.scale(name, form, own)).collect();
            let scale = json!([{"type": "scale", "scale": scale}]);
            datasets.push(json!({"path": path, "coordinateTransformations": scale}));
        }
        let mut image = json!({"axes": axes, "datasets": datasets});
        if !self.name.is_empty()
            && let Some(members) = image.as_object_mut()
        {
            members.insert("name".to_owned(), json!(self.name));
        }
        let mut ome = json!({"version": OME_ZARR, "multiscales": [image]});
        if !self.channels.is_empty()
            && let Some(members) = ome.as_object_mut()
        {
            members.insert("omero".to_owned(), self.omero(form));
        }
        Ok(Object::from_iter([("ome".to_owned(), ome)]))
    }

    fn axis_of(&self, name: &str) -> Option<&ImageAxis> {
        match name {
            "y" => Some(&self.rows),
            "x" => Some(&self.columns),
            _ => self.outer.iter().find(|axis| axis.name == name),
        }
    }

    fn axis(&self, name: &str) -> Value {
        let kind = match name {
            "x" | "y" | "z" => "space",
            "t" => "time",
            "c" | "sample" => "channel",
            _ => return json!({"name": name}),
        };
        match self.axis_of(name).and_then(|axis| axis.unit.as_ref()) {
            Some(unit) => json!({"name": name, "type": kind, "unit": unit}),
            None => json!({"name": name, "type": kind}),
        }
    }

    /// Returns the distance of elements in a resolution of the form `own`.
    fn scale(&self, name: &str, form: &PageForm, own: &PageForm) -> f64 {
        let step = self.axis_of(name).and_then(|axis| axis.step).unwrap_or(1.0);
        let ratio = |whole: u64, part: u64| to_float(whole.into()) / to_float(part.max(1).into());
        match name {
            "y" => step * ratio(form.height, own.height),
            "x" => step * ratio(form.width, own.width),
            _ => step,
        }
    }

    fn omero(&self, form: &PageForm) -> Value {
        let most = match (form.format, form.bits) {
            (1 | 4, bits @ 1..=32) => to_float((1_i128 << bits) - 1),
            (2, bits @ 1..=32) => to_float((1_i128 << (bits - 1)) - 1),
            _ => 1.0,
        };
        let window = json!({"min": 0.0, "max": most, "start": 0.0, "end": most});
        let channel = |channel: &ImageChannel| {
            let mut shown = json!({
                "color": channel.color.as_deref().unwrap_or("FFFFFF"),
                "window": window, "active": true,
            });
            if let (Some(members), Some(label)) = (shown.as_object_mut(), &channel.label) {
                members.insert("label".to_owned(), json!(label));
            }
            shown
        };
        json!({"channels": self.channels.iter().map(channel).collect::<Vec<_>>()})
    }
}

/// Returns a unit as OME-Zarr spells it; `None` for pixels and for what is no unit.
pub fn unit(text: &str) -> Option<String> {
    let name = match text.trim() {
        "" | "pixel" | "pixels" | "reference frame" => return None,
        "\u{b5}m" | "\u{3bc}m" | "um" | "micron" | "microns" | "micrometer" | "\\u00B5m" => {
            "micrometer"
        }
        "nm" | "nanometer" => "nanometer",
        "pm" => "picometer",
        "mm" | "millimeter" => "millimeter",
        "cm" | "centimeter" => "centimeter",
        "dm" => "decimeter",
        "m" | "meter" => "meter",
        "km" => "kilometer",
        "\u{c5}" | "\u{212b}" | "angstrom" => "angstrom",
        "in" | "inch" | "inches" => "inch",
        "ft" => "foot",
        "s" | "sec" | "second" | "seconds" => "second",
        "ms" | "msec" => "millisecond",
        "\u{b5}s" | "\u{3bc}s" | "us" | "usec" => "microsecond",
        "ns" => "nanosecond",
        "min" => "minute",
        "h" | "hr" => "hour",
        "d" => "day",
        other => other,
    };
    Some(name.to_owned())
}
