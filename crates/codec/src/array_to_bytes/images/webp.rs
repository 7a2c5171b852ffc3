//! `imagecodecs_webp`, `webp` {level?, lossless?, method?, index?, hasalpha?}: a WebP image of RGB
//! or RGBA.
//!
//! Our decoder returns the bytes of libwebp. Encoding is lossless, so it is refused unless the
//! configuration says so. Animations are refused.
//!
//! ```text
//! RIFF size WEBP | VP8X size canvas | ALPH size alpha | VP8_ size tag, 9d 01 2a, width, height ..
//! ```
//!
//! <https://developers.google.com/speed/webp/docs/riff_container>

use std::io::Cursor;

use image_webp::{ColorType, WebPDecoder, WebPEncoder};

use super::chunk::{ImageChunk, ImageCoder, ImageSize};
use crate::configuration::{flag, integer};
use crate::dtype::DType;
use crate::json::Object;
use zarrfs_base::buffer::{reserve, unset};
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToUsize;

/// The most bits of a side: 14.
const MAX_SIDE: u64 = 1 << 14;

/// The format, with the members of the configuration that matter.
#[derive(Debug)]
pub(super) struct WebP {
    /// The number of samples that decoding returns, `None` for those of the image.
    samples: Option<usize>,
    is_lossless: bool,
}

impl WebP {
    pub(super) fn new(configuration: &Object) -> Result<Self> {
        if integer("webp", configuration, "index", 0, i64::MIN..=i64::MAX)? != 0 {
            return Err(Error::unsupported("webp: index selects a frame of an animation"));
        }
        let has_alpha = configuration.get("hasalpha").is_some_and(|value| !value.is_null());
        let samples = if flag("webp", configuration, "hasalpha")? { 4 } else { 3 };
        let is_lossless = flag("webp", configuration, "lossless")?;
        Ok(Self { samples: has_alpha.then_some(samples), is_lossless })
    }
}

impl ImageCoder for WebP {
    fn decode(&self, encoded: &[u8], chunk: &ImageChunk) -> Result<Vec<u8>> {
        // The decoder takes missing bytes of a lossy image for zeros.
        let declared = encoded.get(4..).and_then(|rest| rest.first_chunk().copied());
        let declared = declared.map(u32::from_le_bytes).unwrap_or_default().to_usize();
        if encoded.len() < declared.saturating_add(8) {
            return Err(chunk.damaged("the image is truncated"));
        }
        let mut decoder =
            WebPDecoder::new(Cursor::new(encoded)).map_err(|error| chunk.damaged(error))?;
        if decoder.is_animated() {
            return Err(Error::unsupported("webp: zarrfs reads no animations"));
        }
        let (columns, rows) = decoder.dimensions();
        let samples = if decoder.has_alpha() { 4 } else { 3 };
        let wanted = self.samples.unwrap_or(samples);
        chunk.check(ImageSize::new(columns, rows, wanted), &DType::Uint(1))?;
        // The decoder allocates by the size of the part with the pixels.
        if lossy_size(encoded).is_some_and(|size| size != (columns, rows)) {
            return Err(chunk.damaged("the image is not as large as its canvas"));
        }
        let stored_len = (chunk.len / wanted).checked_mul(samples);
        let len = decoder.output_buffer_size().filter(|len| Some(*len) == stored_len);
        let len = len.ok_or_else(|| chunk.damaged("the rows have another length"))?;
        let mut pixels = unset(len)?;
        decoder.read_image(&mut pixels).map_err(|error| chunk.damaged(error))?;
        if wanted == samples {
            return Ok(pixels);
        }
        // As libwebp does: pixels without alpha are opaque.
        let mut changed = reserve(chunk.len)?;
        for pixel in pixels.chunks_exact(samples) {
            changed.extend(pixel.iter().copied().chain([u8::MAX]).take(wanted));
        }
        Ok(changed)
    }

    fn encode(&self, decoded: &[u8], chunk: &ImageChunk) -> Result<Vec<u8>> {
        if !self.is_lossless {
            return Err(Error::unsupported(
                "webp: zarrfs writes only images without loss, for which `lossless` is true",
            ));
        }
        let size = chunk.size(4)?;
        let color = match size.samples {
            3 => ColorType::Rgb8,
            4 => ColorType::Rgba8,
            _ => return Err(Error::unsupported("webp: an image has 3 or 4 samples")),
        };
        if size.columns > MAX_SIDE || size.rows > MAX_SIDE {
            return Err(Error::too_large(format!("webp: a side of more than {MAX_SIDE} pixels")));
        }
        let [columns, rows] = [size.columns, size.rows].map(|len| u32::try_from(len).unwrap_or(0));
        let mut encoded = Vec::new();
        WebPEncoder::new(&mut encoded)
            .encode(decoded, columns, rows, color)
            .map_err(|error| Error::invalid(format!("webp: {error}")))?;
        Ok(encoded)
    }
}

/// Returns the width and the height of the first lossy part, `None` if there is none.
fn lossy_size(encoded: &[u8]) -> Option<(u32, u32)> {
    let mut rest = encoded.get(12..)?;
    loop {
        let (name, after) = rest.split_first_chunk::<4>()?;
        let (len, body) = after.split_first_chunk::<4>()?;
        if name == b"VP8 " {
            let side = |at| {
                let side = body.get(at..)?.first_chunk().copied().map(u16::from_le_bytes)?;
                Some(u32::from(side & 0x3fff))
            };
            return Some((side(6)?, side(8)?));
        }
        let len = u32::from_le_bytes(*len).to_usize();
        rest = body.get(len.checked_add(len % 2)?..)?;
    }
}
