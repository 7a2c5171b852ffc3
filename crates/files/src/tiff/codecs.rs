//! The type and the codecs of a page, in the words of Zarr.

use serde_json::{Value, json};

use super::page::PageForm;
use crate::described::{bytes_codec, codec};
use zarrfs_codec::dtype::base64_encode;

/// `SampleFormat` of signed integers, floats, no format, and complex numbers.
const SIGNED: u64 = 2;
const FLOAT: u64 = 3;
const UNTYPED: u64 = 4;
const COMPLEX: u64 = 6;

/// `PhotometricInterpretation` of JPEG images.
const RGB: u64 = 2;
const CMYK: u64 = 5;
const YCBCR: u64 = 6;

/// Whether a compression is a format of images, which has its own byte order.
pub fn is_image(compression: u64) -> bool {
    matches!(
        compression,
        6 | 7 | 33_003 | 33_005 | 34_712 | 34_892 | 34_933 | 50_001 | 50_002 | 52_546
    )
}

/// The type of the samples of a page.
#[derive(Debug, Clone)]
pub struct SampleType {
    /// The name in Zarr 3.
    pub name: String,
    /// The bytes of a sample.
    pub item_len: u64,
    /// The fill value zero.
    pub zero: Value,
    /// Whether samples are floats.
    pub is_float: bool,
    /// Whether they are signed integers.
    pub is_signed: bool,
}

impl SampleType {
    /// Returns the type of samples; the reason if Zarr has none.
    pub fn of(form: &PageForm) -> Result<Self, String> {
        let bits = form.bits;
        let name = match (form.format, bits) {
            (_, 0) | (0, _) => return Err("samples of different types in a pixel".to_owned()),
            (SIGNED, 8 | 16 | 32 | 64) => format!("int{bits}"),
            (FLOAT, 16 | 32 | 64) => format!("float{bits}"),
            (COMPLEX, 64 | 128) => format!("complex{bits}"),
            (1 | UNTYPED, 8 | 16 | 32 | 64) => format!("uint{bits}"),
            (5, _) => return Err(format!("complex integers of {bits} bits")),
            (format, _) => {
                let kind = match format {
                    1 | UNTYPED => "unsigned integers",
                    SIGNED => "signed integers",
                    FLOAT => "floats",
                    COMPLEX => "complex numbers",
                    _ => return Err(format!("samples of format {format}")),
                };
                return Err(format!("{kind} of {bits} bits"));
            }
        };
        Ok(Self {
            name,
            item_len: bits / 8,
            zero: if form.format == COMPLEX { json!([0, 0]) } else { json!(0) },
            is_float: form.format == FLOAT,
            is_signed: form.format == SIGNED,
        })
    }
}

/// Returns the codecs of chunks of a page, from elements in the order of the file; the reason if
/// zarrfs has none. `tables` are those that the JPEG images share.
pub fn of(
    form: &PageForm,
    sample: &SampleType,
    is_big: bool,
    tables: &[u8],
) -> Result<Vec<Value>, String> {
    if form.depth > 1 {
        return Err(format!("a volume of {} planes in one page", form.depth));
    }
    if form.pixels_of_color > 1 {
        return Err("YCbCr with colors for several pixels".to_owned());
    }
    if is_image(form.compression) {
        if form.is_bit_reversed && form.compression != 7 {
            return Err("images of bytes in reverse".to_owned());
        }
        return Ok(vec![image(form, tables)?]);
    }
    let compressor = match form.compression {
        1 => None,
        5 => Some(codec("imagecodecs_lzw", json!({}))),
        8 | 32_946 | 50_013 => Some(codec("numcodecs.zlib", json!({"level": 6}))),
        32_773 => Some(codec("imagecodecs_packbits", json!({}))),
        34_925 => Some(codec("imagecodecs_lzma", json!({}))),
        34_926 | 50_000 => Some(codec("zstd", json!({"level": 3, "checksum": false}))),
        other => return Err(unknown(other)),
    };
    let mut codecs = predicted(form, sample, is_big, compressor.is_some())?;
    codecs.extend(compressor);
    if form.is_bit_reversed {
        codecs.push(codec("numcodecs.imagecodecs_bitorder", json!({})));
    }
    Ok(codecs)
}

/// Returns the codecs that make bytes of elements.
fn predicted(
    form: &PageForm,
    sample: &SampleType,
    is_big: bool,
    is_compressed: bool,
) -> Result<Vec<Value>, String> {
    // Differences are those of samples of one kind in neighbouring pixels.
    let axis = if form.samples > 1 && !form.is_planar { -2 } else { -1 };
    match form.predictor {
        _ if !is_compressed || form.compression == 32_773 => Ok(vec![bytes_codec(is_big)]),
        1 => Ok(vec![bytes_codec(is_big)]),
        2 if form.format == COMPLEX => Err("differences of complex numbers".to_owned()),
        2 => Ok(vec![codec("imagecodecs_delta", json!({"axis": axis})), bytes_codec(is_big)]),
        // The most significant bytes come first in either byte order.
        3 if sample.is_float => Ok(vec![codec("imagecodecs_floatpred", json!({"axis": axis}))]),
        3 => Err("the predictor of floats, and samples of another type".to_owned()),
        other => Err(format!("predictor {other}")),
    }
}

/// Returns the codec of a format of images.
fn image(form: &PageForm, tables: &[u8]) -> Result<Value, String> {
    let samples = if form.is_planar { 1 } else { form.samples };
    match form.compression {
        7 => {
            let mut configuration = serde_json::Map::new();
            if !tables.is_empty() {
                configuration.insert("tables".to_owned(), base64_encode(tables).into());
            }
            let spaces = match (form.photometric, samples) {
                (_, 1) => Some(("GRAYSCALE", "GRAYSCALE")),
                (YCBCR, 3) => Some(("YCBCR", "RGB")),
                (RGB, 3) => Some(("RGB", "RGB")),
                (CMYK, 4) => None,
                _ => Some(("UNKNOWN", "UNKNOWN")),
            };
            if let Some((stored, shown)) = spaces {
                configuration.insert("colorspace_jpeg".to_owned(), stored.into());
                configuration.insert("colorspace_data".to_owned(), shown.into());
            }
            Ok(codec("imagecodecs_jpeg", configuration.into()))
        }
        33_005 | 34_712 => Ok(codec("imagecodecs_jpeg2k", json!({}))),
        34_933 => Ok(codec("imagecodecs_png", json!({}))),
        // Opaque pixels may be stored without alpha.
        50_001 => Ok(codec("imagecodecs_webp", json!({"hasalpha": samples == 4}))),
        50_002 | 52_546 => Ok(codec("imagecodecs_jpegxl", json!({}))),
        other => Err(unknown(other)),
    }
}

/// Returns the reason for a compression that is not supported.
fn unknown(compression: u64) -> String {
    let name = match compression {
        2 => "CCITT RLE",
        3 => "CCITT fax 3",
        4 => "CCITT fax 4",
        6 => "JPEG of TIFF 6.0",
        9 | 10 => "JBIG",
        32_766 => "NeXT",
        32_809 => "ThunderScan",
        33_003 => "JPEG 2000 in YCbCr",
        34_676 | 34_677 => "SGI LogLuv",
        34_887 => "LERC",
        34_892 => "lossy JPEG of DNG",
        22_610 | 34_934 => "JPEG XR",
        65_000..=65_002 => "EER",
        48_124 => "Jetraw",
        _ => return format!("compression {compression}"),
    };
    format!("compression {name}")
}
