//! `imagecodecs_png`, `imagecodecs_spng`, `png` {level?, strategy?, filter?}: a PNG image, without
//! loss.
//!
//! Grey or colours, with or without alpha, of 8 or 16 bits. Decoding needs no configuration.
//! Encoding follows the level and chooses the filters by itself. Images with a palette or fewer
//! bits are refused, and so is transparency beside the pixels: imagecodecs writes none of them.
//!
//! <https://www.w3.org/TR/png-3/>

use std::io::Cursor;

use png::{BitDepth, ColorType, DeflateCompression, Limits, Transformations};

use super::chunk::{ImageChunk, ImageCoder, ImageSize};
use crate::configuration::count;
use crate::dtype::DType;
use crate::json::Object;
use zarrfs_base::buffer::{reserve, unset};
use zarrfs_base::error::{Error, Result};

/// The memory that decoding takes beside the pixels: a window of deflate and two rows at most.
const SLACK: usize = 1 << 20;

/// The level of zlib that libpng uses by default.
const LEVEL: u32 = 6;

/// The format, with the level of compression.
#[derive(Debug)]
pub(super) struct Png {
    level: u8,
}

impl Png {
    pub(super) fn new(configuration: &Object) -> Result<Self> {
        let level = count("png", configuration, "level", LEVEL, 0..=10)?;
        Ok(Self { level: u8::try_from(level).unwrap_or_default().min(9) })
    }
}

impl ImageCoder for Png {
    fn decode(&self, encoded: &[u8], chunk: &ImageChunk) -> Result<Vec<u8>> {
        let limits = Limits { bytes: chunk.len.saturating_mul(2).saturating_add(SLACK) };
        let mut decoder = png::Decoder::new_with_limits(Cursor::new(encoded), limits);
        decoder.set_transformations(Transformations::IDENTITY);
        decoder.set_ignore_text_chunk(true);
        decoder.set_ignore_iccp_chunk(true);
        let mut reader = decoder.read_info().map_err(|error| chunk.damaged(error))?;
        let (columns, rows) = reader.info().size();
        let (color, depth) = reader.output_color_type();
        let dtype = match depth {
            BitDepth::Eight => DType::Uint(1),
            BitDepth::Sixteen => DType::Uint(2),
            _ => return Err(Error::unsupported(format!("png: samples of {depth:?} bits"))),
        };
        if color == ColorType::Indexed || reader.info().trns.is_some() {
            return Err(Error::unsupported("png: an image with a palette or transparent colours"));
        }
        chunk.check(ImageSize::new(columns, rows, color.samples()), &dtype)?;
        let len = reader.output_buffer_size().filter(|len| *len == chunk.len);
        let len = len.ok_or_else(|| chunk.damaged("the rows have another length"))?;
        let mut pixels = unset(len)?;
        reader.next_frame(&mut pixels).map_err(|error| chunk.damaged(error))?;
        if depth == BitDepth::Sixteen {
            swap(&mut pixels);
        }
        Ok(pixels)
    }

    fn encode(&self, decoded: &[u8], chunk: &ImageChunk) -> Result<Vec<u8>> {
        let size = chunk.size(4)?;
        let color = match size.samples {
            1 => ColorType::Grayscale,
            2 => ColorType::GrayscaleAlpha,
            3 => ColorType::Rgb,
            _ => ColorType::Rgba,
        };
        let [columns, rows] = [size.columns, size.rows].map(|len| u32::try_from(len).unwrap_or(0));
        let mut encoded = Vec::new();
        let mut encoder = png::Encoder::new(&mut encoded, columns, rows);
        encoder.set_color(color);
        encoder.set_deflate_compression(match self.level {
            0 => DeflateCompression::NoCompression,
            level => DeflateCompression::Level(level),
        });
        let failed = |error: png::EncodingError| Error::invalid(format!("png: {error}"));
        if chunk.elements.dtype == DType::Uint(1) {
            encoder.set_depth(BitDepth::Eight);
            encoder.write_header().and_then(|mut writer| writer.write_image_data(decoded))
        } else {
            let mut swapped = reserve(decoded.len())?;
            swapped.extend_from_slice(decoded);
            swap(&mut swapped);
            encoder.set_depth(BitDepth::Sixteen);
            encoder.write_header().and_then(|mut writer| writer.write_image_data(&swapped))
        }
        .map_err(failed)?;
        Ok(encoded)
    }
}

/// Converts 16-bit samples between the byte order of PNG, which is big endian, and ours.
fn swap(pixels: &mut [u8]) {
    pixels.as_chunks_mut::<2>().0.iter_mut().for_each(|sample| sample.reverse());
}
