//! NIfTI-1 and NIfTI-2, in one file, or as a header with the elements in an `.img` beside it.
//!
//! The array has the axes of the file in C order: time, z, y, x. Channels follow time, as in
//! OME-Zarr. The group is an image of OME-Zarr with the distances between elements, and has the
//! header as the array `nifti`, as NIfTI-Zarr does (<https://github.com/neuroscales/nifti-zarr>): the
//! view `nii` takes it from there.
//!
//! <https://nifti.nimh.nih.gov>

mod extensions;
mod header;

use serde_json::json;

use crate::described::{Described, DescribedArray, bytes_codec, codec, no_attributes, zero_of};
use crate::image::{self, ImageAxis};
use crate::json::double;
use crate::packed::{self, Compressor};
use crate::pieces::{self, Stored};
use crate::source::SourceFile;
use header::NiftiHeader;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToU64;

/// The name of the array with the header.
const HEADER: &str = "nifti";

/// The number of axes of an array with time and channels, which the file has in the other order.
const WITH_CHANNELS: usize = 5;

/// The names of axes, the fastest first.
const NAMES: [&str; 7] = ["x", "y", "z", "t", "c", "u", "v"];

/// Describes the image of a file.
pub fn scan(file: &SourceFile, described: &mut Described) -> Result<()> {
    let header = NiftiHeader::read(file)?;
    let path = if file.stem() == HEADER { "image" } else { file.stem() };
    let element = NiftiType::of(header.datatype());
    let mut shape = header.shape()?;
    let mut axes = axes(&header, shape.len());
    shape.reverse();
    axes.reverse();
    if let Ok(NiftiType { samples: Some(samples), .. }) = element {
        shape.push(samples);
        let kind = Some("channel");
        let name = if axes.iter().any(|axis| axis.kind == kind) { "sample" } else { "c" };
        axes.push(ImageAxis { name: name.to_owned(), kind, ..ImageAxis::default() });
    }
    if shape.len() == WITH_CHANNELS && matches!(element, Ok(NiftiType { samples: None, .. })) {
        // OME-Zarr has time before channels.
        shape.swap(0, 1);
        axes.swap(0, 1);
    }
    described.group("", image::attributes(path, &axes))?;
    describe_header(&header, described)?;
    let mut attributes = header.shown();
    let extensions = extensions::read(file, &header)?;
    if !extensions.is_empty() {
        attributes.insert("extensions".to_owned(), extensions.into());
    }
    let is_scaled = !matches!(element, Ok(NiftiType { samples: Some(_), .. }));
    if let Some((slope, intercept)) = header.scaling().filter(|_| is_scaled) {
        attributes.insert("scale_factor".to_owned(), double(slope));
        attributes.insert("add_offset".to_owned(), double(intercept));
    }
    let array = DescribedArray {
        chunk_shape: shape.iter().map(|len| (*len).max(1)).collect(),
        shape,
        data_type: json!("uint8"),
        fill_value: json!(0),
        dimension_names: Some(image::names(&axes)),
        attributes,
        ..DescribedArray::default()
    };
    let result = element.and_then(|it| describe(file, &header, path, array.clone(), it, described));
    described.or_unread(path, array, result)
}

fn describe(
    file: &SourceFile,
    header: &NiftiHeader,
    path: &str,
    array: DescribedArray,
    element: NiftiType,
    described: &mut Described,
) -> Result<()> {
    let other = if header.is_single { None } else { Some(beside(file, described)?) };
    let values = other.as_ref().unwrap_or(file);
    let (item_len, offset) = (element.item_len, header.offset());
    let mut shape = array.shape.clone();
    let is_swapped = shape.len() == WITH_CHANNELS && element.samples.is_none();
    if is_swapped {
        shape.swap(0, 1);
    }
    let place = Stored { shape: &shape, item_len, offset, is_reversed: false };
    pieces::check_end(place, values)?;
    described.lead_to(values)?;
    let mut array = DescribedArray {
        data_type: json!(element.name),
        fill_value: zero_of(element.name),
        codecs: vec![bytes_codec(header.is_big())],
        ..array
    };
    if !is_swapped {
        return pieces::describe(described, path, array, place);
    }
    array.codecs.insert(0, codec("transpose", json!({"order": [1, 0, 2, 3, 4]})));
    array.chunk_shape = pieces::piece_shape(&shape, item_len);
    array.chunk_shape.swap(0, 1);
    described.array(path, &array)?;
    if shape.contains(&0) {
        return Ok(());
    }
    pieces::chunks(place, |coords, piece| {
        let mut coords = coords.to_vec();
        coords.swap(0, 1);
        described.part(path, &coords, piece.offset, piece.len, piece.needed)
    })
}

/// Returns the file with the elements.
fn beside(file: &SourceFile, described: &mut Described) -> Result<SourceFile> {
    let name = file.name();
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    for ending in ["img", "IMG"] {
        if let Some(found) = file.beside(&format!("{stem}.{ending}"))? {
            return Ok(found);
        }
    }
    if let Some(found) = file.beside(&format!("{stem}.img.gz"))? {
        return packed::unpack(Compressor::Gzip, &found, 0, packed::MAX_LEN, described);
    }
    Err(Error::corrupt(format!("the elements are in the file {stem}.img, which does not exist")))
}

/// Describes the bytes of the header.
fn describe_header(header: &NiftiHeader, described: &mut Described) -> Result<()> {
    let len = header.len().to_u64();
    let array = DescribedArray {
        shape: vec![len],
        data_type: json!("uint8"),
        chunk_shape: vec![len],
        codecs: vec![bytes_codec(false)],
        fill_value: json!(0),
        attributes: no_attributes(),
        // xarray opens no group with an array whose dimensions have no names.
        dimension_names: Some(vec![Some("nifti_byte".to_owned())]),
    };
    described.array(HEADER, &array)?;
    described.chunk(HEADER, &[0], 0, len)
}

/// Returns the axes, the fastest first.
fn axes(header: &NiftiHeader, rank: usize) -> Vec<ImageAxis> {
    let (space, time) = header.units();
    let matrix = header.matrix();
    // A translation has no meaning for axes that are turned.
    let is_aligned = (0..3).all(|row| {
        (0..3).all(|column| {
            let part = matrix.get(row).and_then(|row: &[f64; 4]| row.get(column)).copied();
            part.is_some_and(|part| if row == column { part > 0.0 } else { part == 0.0 })
        })
    });
    let named = NAMES.iter().enumerate().take(rank);
    named
        .map(|(index, name)| {
            let (kind, unit, start) = match index {
                0..=2 => {
                    let start = matrix.get(index).filter(|_| is_aligned).map_or(0.0, |row| row[3]);
                    (Some("space"), space, start)
                }
                3 => (Some("time"), time, header.time_start()),
                4 => (Some("channel"), None, 0.0),
                _ => (None, None, 0.0),
            };
            let step = (index < 4).then(|| header.step(index));
            let unit = unit.map(str::to_owned);
            ImageAxis { name: (*name).to_owned(), kind, unit, step, start }
        })
        .collect()
}

/// A type of elements.
#[derive(Debug, Clone, Copy)]
struct NiftiType {
    name: &'static str,
    item_len: u64,
    /// The samples of a pixel, if it has several.
    samples: Option<u64>,
}

impl NiftiType {
    fn of(code: i16) -> Result<Self> {
        let (name, item_len, samples) = match code {
            2 => ("uint8", 1, None),
            4 => ("int16", 2, None),
            8 => ("int32", 4, None),
            16 => ("float32", 4, None),
            32 => ("complex64", 8, None),
            64 => ("float64", 8, None),
            128 => ("uint8", 1, Some(3)),
            256 => ("int8", 1, None),
            512 => ("uint16", 2, None),
            768 => ("uint32", 4, None),
            1024 => ("int64", 8, None),
            1280 => ("uint64", 8, None),
            1792 => ("complex128", 16, None),
            2304 => ("uint8", 1, Some(4)),
            1536 => return Err(Error::unsupported("NIfTI floats of 16 bytes")),
            2048 => return Err(Error::unsupported("NIfTI complex numbers of 32 bytes")),
            other => return Err(Error::unsupported(format!("elements of the NIfTI type {other}"))),
        };
        Ok(Self { name, item_len, samples })
    }
}
