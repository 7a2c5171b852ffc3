//! OME-TIFF: XML in the description of the first page, which says what each page shows.
//!
//! ```text
//! <OME><Image Name=".."><Pixels DimensionOrder="XYCZT" SizeX=".." PhysicalSizeX=".." ..>
//!   <Channel Name=".." Color=".." SamplesPerPixel="1"/>
//!   <TiffData IFD="0" PlaneCount="1" FirstC="0" FirstZ="0"><UUID FileName=".."/></TiffData>
//! </Pixels></Image></OME>
//! ```
//!
//! Arrays have the order of dimensions that OME-Zarr wants: time, channel, z, y, x. Smaller copies
//! are below the pages.
//!
//! <https://ome-model.readthedocs.io/en/stable/ome-tiff/>

mod parse;

use super::image::{ImageAxis, ImageChannel, TiffImage, unit};
use super::imagej::ordered;
use super::pages::TiffPages;
use super::planes::{MAX_PLANES, Plane};
use super::shaped::{MAX_MISSING, levels_below};
use crate::described::Described;
use parse::{OmeImage, TiffData};
use zarrfs_base::error::Result;
use zarrfs_base::width::{ToU64, ToUsize};

/// Returns the images of an OME-TIFF; `None` if the description is no such XML, or does not fit.
pub fn images(
    pages: &TiffPages,
    description: &str,
    described: &mut Described,
) -> Result<Option<Vec<TiffImage>>> {
    let start = description.get(..description.len().min(4096)).unwrap_or(description);
    if !start.contains("<OME") && !start.contains(":OME") {
        return Ok(None);
    }
    let Some(ome) = parse::parse(description) else {
        described.omit("", "the OME-XML, which is damaged");
        return Ok(None);
    };
    if ome.images.is_empty() {
        described.omit("", "the OME-XML, which is in another file");
        return Ok(None);
    }
    let mut found = Vec::new();
    // Planes are pages of the file, or missing.
    let mut left = pages.chain_len.saturating_mul(64).saturating_add(MAX_MISSING).to_u64();
    left = left.min(MAX_PLANES);
    for image in &ome.images {
        match of(pages, image, ome.uuid.as_deref(), &mut left)? {
            Some(image) => found.push(image),
            None => described.omit(&image.name, "an OME image whose planes are not in this file"),
        }
    }
    Ok((!found.is_empty()).then_some(found))
}

/// Returns an image of the XML; `None` if it has no page here.
fn of(
    pages: &TiffPages,
    ome: &OmeImage,
    uuid: Option<&str>,
    left: &mut u64,
) -> Result<Option<TiffImage>> {
    let samples = ome.channels.first().map_or(1, |channel| channel.samples.max(1));
    let size = |name: &str| ome.sizes.get(name).copied().unwrap_or(1).max(1);
    let channels = (size("C") / samples).max(1);
    let lens = [("t", size("T")), ("c", channels), ("z", size("Z"))];
    let order = ome.order.get(2..).unwrap_or("ZCT").to_lowercase();
    let count = lens.iter().try_fold(1_u64, |count, (_, len)| count.checked_mul(*len));
    let Some((count, rest)) = count.and_then(|count| Some((count, left.checked_sub(count)?)))
    else {
        return Ok(None);
    };
    *left = rest;
    let mut stored: Vec<Option<Plane>> = vec![None; count.to_usize()];
    let is_all_here = place(pages, ome, uuid, Steps { lens, order: &order }, &mut stored);
    let mut unread = (!is_all_here).then_some("an OME image with planes in other files");
    let Some(key) = stored.iter().flatten().next().copied() else { return Ok(None) };
    let form = &pages.get(key.page.to_usize())?.form;
    if (form.width, form.height) != (size("X"), size("Y")) || form.samples != samples {
        return Ok(None);
    }
    for at in stored.iter().flatten() {
        if pages.get(at.page.to_usize())?.form != *form {
            unread = Some("an OME image with planes that are stored in several ways");
        }
    }
    let planes = ordered(&stored, lens, &order);
    let levels = levels_below(pages, &planes)?;
    let outer = lens.iter().map(|(name, len)| axis(ome, name, *len));
    Ok(Some(TiffImage {
        name: ome.name.clone(),
        outer: outer.filter(|axis| axis.len > 1).collect(),
        levels: std::iter::once(planes).chain(levels).collect(),
        rows: axis(ome, "y", size("Y")),
        columns: axis(ome, "x", size("X")),
        channels: shown(ome, samples),
        samples: None,
        is_ome: true,
        unread,
    }))
}

/// The dimensions of planes, and their order in the file, the fastest first.
#[derive(Clone, Copy)]
struct Steps<'s> {
    lens: [(&'static str, u64); 3],
    order: &'s str,
}

impl Steps<'_> {
    /// Returns the number of the first plane of a place.
    fn first(self, place: &TiffData) -> u64 {
        let (mut step, mut first) = (1_u64, 0_u64);
        for name in self.order.chars() {
            let at = place.first.get(&name).copied().unwrap_or_default();
            first = first.saturating_add(at.saturating_mul(step));
            let len = self.lens.iter().find(|(own, _)| own.starts_with(name)).map_or(1, |it| it.1);
            step = step.saturating_mul(len);
        }
        first
    }
}

/// Puts pages into `stored`, which has the order of the file. Returns whether all are in this file.
fn place(
    pages: &TiffPages,
    ome: &OmeImage,
    uuid: Option<&str>,
    steps: Steps<'_>,
    stored: &mut [Option<Plane>],
) -> bool {
    let chain_len = u64::try_from(pages.chain_len).unwrap_or(u64::MAX);
    let whole = [TiffData::default()];
    let listed = if ome.places.is_empty() { whole.as_slice() } else { &ome.places };
    let mut is_all_here = true;
    let mut left = MAX_PLANES.saturating_mul(4);
    for place in listed {
        if !place.is_in(pages.bytes.file.key().name(), uuid) {
            is_all_here = false;
            continue;
        }
        let page = place.ifd.unwrap_or(0);
        let usual = if place.ifd.is_some() { 1 } else { chain_len };
        let most = place.count.filter(|count| *count > 0).unwrap_or(usual);
        let most = most.min(chain_len.saturating_sub(page)).min(left);
        left = left.saturating_sub(most);
        let rest = stored.iter_mut().skip(steps.first(place).to_usize());
        for (stored, page) in rest.zip(page..page.saturating_add(most)) {
            *stored = Some(Plane { page: u32::try_from(page).unwrap_or(u32::MAX), skip: 0 });
        }
    }
    is_all_here
}

/// Returns a dimension with its distance and unit.
fn axis(ome: &OmeImage, name: &str, len: u64) -> ImageAxis {
    let upper = name.to_uppercase();
    let step = ome.steps.get(&upper).copied();
    let usual = if name == "t" { "s" } else { "\u{b5}m" };
    let text = ome.units.get(&upper).map_or(usual, String::as_str);
    let unit = step.and_then(|_| unit(text));
    ImageAxis { name: name.to_owned(), len, step, unit }
}

/// Returns the channels; the samples of a pixel are channels, too, but have no names of their own.
fn shown(ome: &OmeImage, samples: u64) -> Vec<ImageChannel> {
    let has_any = ome.channels.iter().any(|it| it.label.is_some() || it.color.is_some());
    if !has_any || samples > 1 {
        return Vec::new();
    }
    let channel = |channel: &parse::OmeChannel| ImageChannel {
        label: channel.label.clone(),
        color: channel.color.clone(),
    };
    ome.channels.iter().map(channel).collect()
}
