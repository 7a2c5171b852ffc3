//! TIFF and BigTIFF.
//!
//! A page is one image, and nothing in the format says how pages belong together. Programs do, in
//! several ways, and the first that fits is taken:
//!
//! | module | pages |
//! | ------ | ----- |
//! | `shaped` | images of tifffile, whose description has a shape |
//! | `ome` | OME-TIFF: XML in the first description |
//! | `imagej` | hyperstacks of ImageJ |
//! | `series` | pages of one form, and their smaller copies |
//!
//! One image is an array with the name of the file. Several are numbered. An image with several
//! resolutions, and one with distances, is described as OME-Zarr describes it. A GeoTIFF gets the
//! coordinates and attributes of `geo`.

mod attributes;
mod codecs;
mod directory;
mod geo;
mod image;
mod imagej;
mod ome;
mod page;
mod pages;
mod planes;
mod series;
mod shaped;
#[cfg(test)]
mod tests;
mod xml;

use std::collections::HashSet;

use serde_json::json;

use crate::described::{Described, is_node_name, no_attributes};
use crate::source::SourceFile;
use directory::TiffBytes;
use image::{OME_ZARR, TiffImage};
use pages::TiffPages;
use zarrfs_base::error::Result;

/// Describes what is in a TIFF.
pub fn scan(file: &SourceFile, described: &mut Described) -> Result<()> {
    let (bytes, first) = TiffBytes::open(file)?;
    let pages = TiffPages::read(bytes, first, described)?;
    let stem = if is_node_name(file.stem()) { file.stem() } else { "data" };
    let description = pages.description(pages.get(0)?).unwrap_or_default();
    if let Some(images) = shaped::images(&pages)? {
        return describe(described, &pages, &images, stem);
    }
    if let Some(found) = ome::images(&pages, &description, described)? {
        return describe_ome(described, &pages, &found);
    }
    if let Some(image) = imagej::image(&pages, &description)? {
        return describe(described, &pages, &[image], stem);
    }
    let (mut images, masks) = series::images(&pages);
    if geo::is_map(&pages)? {
        return geo::describe(described, &pages, &images, &masks, stem);
    }
    images.extend(masks);
    if description.starts_with("Aperio") {
        if let Some(tissue) = images.first_mut() {
            measure(tissue, &description);
        }
        return describe_slide(described, &pages, &images);
    }
    describe(described, &pages, &images, stem)
}

/// Returns the names of the arrays of an image of several resolutions.
fn numbered(image: &TiffImage) -> Vec<String> {
    (0..image.levels.len()).map(|level| level.to_string()).collect()
}

/// Describes images: one by the name of the file, several by numbers.
fn describe(
    described: &mut Described,
    pages: &TiffPages,
    images: &[TiffImage],
    stem: &str,
) -> Result<()> {
    if let [image] = images {
        let one = vec![stem.to_owned()];
        let names = if image.levels.len() > 1 { numbered(image) } else { one };
        let attributes =
            if image.is_multiscale() { image.multiscales(pages, &names)? } else { no_attributes() };
        described.group("", attributes)?;
        return image.describe(described, pages, "", &names);
    }
    described.group("", no_attributes())?;
    for (number, image) in images.iter().enumerate() {
        let name = number.to_string();
        if image.levels.len() > 1 {
            describe_multiscale(described, pages, image, &name)?;
        } else {
            image.describe(described, pages, "", &[name])?;
        }
    }
    Ok(())
}

/// Describes an image as a group with its resolutions.
fn describe_multiscale(
    described: &mut Described,
    pages: &TiffPages,
    image: &TiffImage,
    group: &str,
) -> Result<()> {
    let names = numbered(image);
    described.group(group, image.multiscales(pages, &names)?)?;
    image.describe(described, pages, group, &names)
}

/// Describes the images of an OME-TIFF: one is the root, and several are the groups of a layout
/// that OME-Zarr takes from bioformats2raw.
fn describe_ome(described: &mut Described, pages: &TiffPages, images: &[TiffImage]) -> Result<()> {
    if let [image] = images {
        return describe_multiscale(described, pages, image, "");
    }
    let ome = json!({"version": OME_ZARR, "bioformats2raw.layout": 3});
    described.group("", zarrfs_codec::json::Object::from_iter([("ome".to_owned(), ome)]))?;
    for (number, image) in images.iter().enumerate() {
        describe_multiscale(described, pages, image, &number.to_string())?;
    }
    Ok(())
}

/// Notes the size of a pixel in micrometres, which the description of a slide has: `MPP = 0.5`.
fn measure(tissue: &mut TiffImage, description: &str) {
    let fields = description.split('|').filter_map(|field| field.split_once('='));
    let mut sizes = fields.filter(|(name, _)| name.trim() == "MPP");
    let size = sizes.next().and_then(|(_, text)| text.trim().parse::<f64>().ok());
    if let Some(size) = size.filter(|size| size.is_normal() && *size > 0.0) {
        for axis in [&mut tissue.rows, &mut tissue.columns] {
            (axis.step, axis.unit) = (Some(size), Some("micrometer".to_owned()));
        }
    }
}

/// Describes a slide of Aperio: the tissue is the root, and other images are beside its
/// resolutions.
fn describe_slide(
    described: &mut Described,
    pages: &TiffPages,
    images: &[TiffImage],
) -> Result<()> {
    let Some((tissue, others)) = images.split_first() else { return Ok(()) };
    describe_multiscale(described, pages, tissue, "")?;
    let mut taken = HashSet::new();
    for (number, image) in others.iter().enumerate() {
        let known = match pages.get(image.key(0)?)?.subfile_type {
            1 => "label",
            9 => "macro",
            _ if number == 0 => "thumbnail",
            _ => "image",
        };
        let is_new = known != "image" && taken.insert(known);
        let name = if is_new { known.to_owned() } else { format!("image{number}") };
        image.describe(described, pages, "", &[name])?;
    }
    Ok(())
}
