//! `imagecodecs_jpeg`, `imagecodecs_jpeg8`, `imagecodecs_mozjpeg`, `jpeg` {tables?, header?,
//! `colorspace_jpeg`?, `colorspace_data`?, ..}: a JPEG image of 8 bits, with loss.
//!
//! ```text
//! ff d8 | ff, marker, length u16 be, body | .. | ff da, length, scan, coded bytes | .. | ff d9
//! ```
//!
//! `tables` in base64 is a JPEG of tables alone, which the images of a TIFF file share. `header` is
//! the start of all images. `colorspace_jpeg` replaces the color space that the markers say, and
//! `colorspace_data` is the one of the elements. By default YCbCr becomes RGB, and YCCK becomes
//! CMYK. The members of the registered codec say how to encode; its decoders ignore them.
//!
//! Decoders differ in rounding. This one differs from libjpeg-turbo, which imagecodecs uses, by 1
//! in each stored sample, and by a few more where a color is stored for several pixels.
//!
//! <https://www.w3.org/Graphics/JPEG/itu-t81.pdf>,
//! <https://github.com/zarr-developers/zarr-extensions/pull/66>

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::options::DecoderOptions;

use super::chunk::{ImageChunk, ImageCoder, ImageSize};
use crate::dtype::DType;
use crate::json::Object;
use zarrfs_base::buffer::{reserve, unset};
use zarrfs_base::error::{Error, Result};

/// The start and the end of an image.
const START: [u8; 2] = [0xff, 0xd8];
const END: [u8; 2] = [0xff, 0xd9];

/// The longest side of an image.
const MAX_SIDE: usize = 65_535;

/// The format, with the members of the configuration that matter for decoding.
#[derive(Debug)]
pub(super) struct Jpeg {
    tables: Vec<u8>,
    header: Vec<u8>,
    /// The color space of the stored samples, `None` for the one that the markers say.
    stored: Option<ColorSpace>,
    /// The color space of the elements, `None` for the default.
    wanted: Option<ColorSpace>,
}

/// The meaning of the samples of a pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ColorSpace {
    Unknown,
    Gray,
    Rgb,
    YCbCr,
    Cmyk,
    Ycck,
}

impl ColorSpace {
    /// Parses a name or a number of libjpeg.
    fn parse(configuration: &Object, member: &str) -> Result<Option<Self>> {
        let value = match configuration.get(member) {
            None | Some(Value::Null) => return Ok(None),
            Some(value) => value,
        };
        let name = value.as_str().unwrap_or_default().to_ascii_uppercase();
        let space = match (value.as_u64(), name.as_str()) {
            (Some(0), _) | (_, "UNKNOWN") => Self::Unknown,
            (Some(1), _) | (_, "GRAYSCALE" | "GRAY" | "MINISBLACK" | "MINISWHITE") => Self::Gray,
            (Some(2 | 6), _) | (_, "RGB" | "EXT_RGB") => Self::Rgb,
            (Some(3), _) | (_, "YCBCR") => Self::YCbCr,
            (Some(4), _) | (_, "CMYK" | "SEPARATED") => Self::Cmyk,
            (Some(5), _) | (_, "YCCK") => Self::Ycck,
            _ => return Err(Error::unsupported(format!("jpeg: {member} {value}"))),
        };
        Ok(Some(space))
    }

    /// Returns the color space that libjpeg decodes this one to.
    fn default_output(self) -> Self {
        match self {
            Self::YCbCr => Self::Rgb,
            Self::Ycck => Self::Cmyk,
            other => other,
        }
    }
}

impl Jpeg {
    pub(super) fn new(configuration: &Object) -> Result<Self> {
        // The members that say how to encode are ignored, but this one says how to decode.
        if configuration.get("fancyupsampling") == Some(&Value::Bool(false)) {
            return Err(Error::unsupported("jpeg: fancyupsampling false"));
        }
        Ok(Self {
            tables: bytes(configuration, "tables")?,
            header: bytes(configuration, "header")?,
            stored: ColorSpace::parse(configuration, "colorspace_jpeg")?,
            wanted: ColorSpace::parse(configuration, "colorspace_data")?,
        })
    }

    /// Returns a whole image, with the header and the tables.
    fn whole(&self, encoded: &[u8], chunk: &ImageChunk) -> Result<Vec<u8>> {
        let tables = self.tables.strip_prefix(&START).unwrap_or(&self.tables);
        let tables = tables.strip_suffix(&END).unwrap_or(tables);
        let len = self.header.len().saturating_add(encoded.len()).saturating_add(tables.len());
        let mut image = reserve(len.saturating_add(END.len()))?;
        image.extend_from_slice(&START);
        image.extend_from_slice(tables);
        let no_start = || chunk.damaged("the first bytes are not ff d8");
        if self.header.is_empty() {
            image.extend_from_slice(encoded.strip_prefix(&START).ok_or_else(no_start)?);
        } else {
            image.extend_from_slice(self.header.strip_prefix(&START).ok_or_else(no_start)?);
            image.extend_from_slice(encoded);
            image.extend_from_slice(&END);
        }
        Ok(image)
    }
}

/// Returns the bytes of a member in base64, empty if it is absent.
fn bytes(configuration: &Object, member: &str) -> Result<Vec<u8>> {
    match configuration.get(member) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(value) => value
            .as_str()
            .and_then(|text| STANDARD.decode(text).ok())
            .ok_or_else(|| Error::invalid(format!("jpeg: {member} is not in base64"))),
    }
}

impl ImageCoder for Jpeg {
    fn decode(&self, encoded: &[u8], chunk: &ImageChunk) -> Result<Vec<u8>> {
        let image = self.whole(encoded, chunk)?;
        let frame = Frame::parse(&image).ok_or_else(|| chunk.damaged("the header is damaged"))?;
        frame.check_kind()?;
        // The decoder takes missing bytes for zeros.
        if !frame.scans.windows(END.len()).any(|pair| pair == END) {
            return Err(chunk.damaged("the end is missing"));
        }
        let samples = frame.components.len();
        let (columns, rows) = (u32::from(frame.columns), u32::from(frame.rows));
        chunk.check(ImageSize::new(columns, rows, samples), &DType::Uint(1))?;
        let stored = match samples {
            3 | 4 => self.stored.unwrap_or_else(|| frame.color_space()),
            _ => frame.color_space(),
        };
        let convert = conversion(stored, self.wanted.unwrap_or(stored.default_output()))?;
        let options = DecoderOptions::default()
            .set_max_width(MAX_SIDE)
            .set_max_height(MAX_SIDE)
            .set_strict_mode(true);
        let mut decoder = JpegDecoder::new_with_options(ZCursor::new(&image), options);
        decoder.decode_headers().map_err(|error| chunk.damaged(error))?;
        // The samples as they are stored: we convert as libjpeg does.
        if let Some(space) = decoder.input_colorspace() {
            decoder.set_options(decoder.options().jpeg_set_out_colorspace(space));
        }
        let len = decoder.output_buffer_size().filter(|len| *len == chunk.len);
        let len = len.ok_or_else(|| chunk.damaged("the rows have another length"))?;
        let mut pixels = unset(len)?;
        decoder.decode_into(&mut pixels).map_err(|error| chunk.damaged(error))?;
        convert(&mut pixels);
        Ok(pixels)
    }
}

/// Returns the function that converts samples in place.
fn conversion(stored: ColorSpace, wanted: ColorSpace) -> Result<fn(&mut [u8])> {
    Ok(match (stored, wanted) {
        (a, b) if a == b => |_| (),
        (_, ColorSpace::Unknown) => |_| (),
        (ColorSpace::YCbCr, ColorSpace::Rgb) => |pixels| {
            for pixel in pixels.as_chunks_mut::<3>().0 {
                let [y, cb, cr] = *pixel;
                *pixel = rgb(y, cb, cr);
            }
        },
        (ColorSpace::Ycck, ColorSpace::Cmyk) => |pixels| {
            for pixel in pixels.as_chunks_mut::<4>().0 {
                let [y, cb, cr, k] = *pixel;
                let [c, m, y] = rgb(y, cb, cr).map(|sample| 255 - sample);
                *pixel = [c, m, y, k];
            }
        },
        _ => {
            return Err(Error::unsupported(format!(
                "jpeg: zarrfs does not convert {stored:?} to {wanted:?}"
            )));
        }
    })
}

/// Converts a pixel with the numbers of JFIF, rounded as libjpeg does.
fn rgb(y: u8, cb: u8, cr: u8) -> [u8; 3] {
    const HALF: i32 = 1 << 15;
    let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
    let red = y + ((91_881 * cr + HALF) >> 16);
    let green = y + ((HALF - 22_554 * cb - 46_802 * cr) >> 16);
    let blue = y + ((116_130 * cb + HALF) >> 16);
    [red, green, blue].map(|sample| u8::try_from(sample.clamp(0, 255)).unwrap_or_default())
}

/// The markers before the first scan.
#[derive(Debug, Default)]
struct Frame<'e> {
    /// The second byte of the marker, which says how the frame is coded.
    kind: u8,
    bits: u8,
    rows: u16,
    columns: u16,
    /// Three bytes for each, the first is its name.
    components: &'e [[u8; 3]],
    is_jfif: bool,
    /// The transform that Adobe's marker says.
    adobe: Option<u8>,
    /// All bytes after the first scan begins.
    scans: &'e [u8],
}

impl<'e> Frame<'e> {
    /// Parses the markers. `None` if there is no frame, or more than one. The decoder refuses
    /// frames after the first scan.
    fn parse(image: &'e [u8]) -> Option<Self> {
        let mut rest = image.strip_prefix(&START)?;
        let mut frame = Self::default();
        loop {
            // Any number of ff may come before a marker.
            let [0xff, after @ ..] = rest else { return None };
            rest = after;
            let Some((marker, after)) = rest.split_first().filter(|(marker, _)| **marker != 0xff)
            else {
                continue;
            };
            let len = usize::from(u16::from_be_bytes(*after.first_chunk::<2>()?));
            let (segment, next) = after.split_at_checked(len)?;
            let body = segment.get(2..)?;
            match marker {
                0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => {
                    if frame.kind != 0 {
                        return None;
                    }
                    let ([bits, rows @ .., c0, c1, count], components) =
                        body.split_first_chunk::<6>()?;
                    let (components, []) = components.as_chunks::<3>() else { return None };
                    if usize::from(*count) != components.len() {
                        return None;
                    }
                    frame.kind = *marker;
                    frame.bits = *bits;
                    frame.rows = u16::from_be_bytes(*rows);
                    frame.columns = u16::from_be_bytes([*c0, *c1]);
                    frame.components = components;
                }
                0xe0 if body.starts_with(b"JFIF\0") => frame.is_jfif = true,
                0xee if body.starts_with(b"Adobe") => frame.adobe = body.get(11).copied(),
                0xda if frame.kind != 0 => return Some(Self { scans: next, ..frame }),
                0x01 | 0xd0..=0xda => return None,
                _ => {}
            }
            rest = next;
        }
    }

    /// Returns an error if the decoder does not read such frames.
    fn check_kind(&self) -> Result<()> {
        let samples = self.components.len();
        let what = match (self.kind, self.bits, samples) {
            (0xc0..=0xc2, 8, 1 | 3 | 4) => return Ok(()),
            (0xc0..=0xc2, 8, _) => format!("images of {samples} samples"),
            (0xc0..=0xc2, bits, _) => format!("images of {bits} bits"),
            (0xc3, ..) => "images without loss".to_owned(),
            (kind, ..) => format!("frames of kind {kind:#x}"),
        };
        Err(Error::unsupported(format!("jpeg: zarrfs does not read {what}")))
    }

    /// Returns the color space, as libjpeg detects it.
    fn color_space(&self) -> ColorSpace {
        match self.components {
            [_] => ColorSpace::Gray,
            [a, b, c] => {
                let is_named = [a, b, c].map(|[name, ..]| *name) == *b"RGB";
                let is_rgb = self.adobe.map_or(is_named, |transform| transform == 0);
                if is_rgb && !self.is_jfif { ColorSpace::Rgb } else { ColorSpace::YCbCr }
            }
            [_, _, _, _] if self.adobe == Some(2) => ColorSpace::Ycck,
            [_, _, _, _] => ColorSpace::Cmyk,
            _ => ColorSpace::Unknown,
        }
    }
}
