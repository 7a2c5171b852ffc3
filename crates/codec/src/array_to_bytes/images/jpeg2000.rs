//! `imagecodecs_jpeg2k`, `jpeg2k` {planar?, skipres?, ..}: a JPEG 2000 image, bare or in the boxes
//! of JP2.
//!
//! ```text
//! box: length u32 be | name | body
//! codestream, the body of jp2c: ff4f | ff51, size | .. | ff90 ..
//! size: length | profile | 8 numbers, u32 be | count of samples, u16 be | bits, steps x and y ..
//! ```
//!
//! Integers of up to 16 bits, signed or not, with 1, 3 or 4 samples, without a palette. Images
//! without loss decode to the same bytes as in `OpenJPEG`; others may differ by 1. If `planar` is
//! true, the samples come before the rows. Other members say how to encode.
//!
//! Nothing here writes JPEG 2000.
//!
//! <https://www.itu.int/rec/T-REC-T.800>

use hayro_jpeg2000::{ComponentData, DecodeSettings, DecoderContext, Image};

use super::chunk::{ImageChunk, ImageCoder, ImageSize};
use crate::configuration::{count, flag};
use crate::dtype::DType;
use crate::json::Object;
use crate::number::push;
use zarrfs_base::buffer::reserve;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToUsize;

/// The format.
#[derive(Debug)]
pub(super) struct Jpeg2000 {
    is_planar: bool,
}

impl Jpeg2000 {
    pub(super) fn new(configuration: &Object) -> Result<Self> {
        if count("jpeg2k", configuration, "skipres", 0, 0..=u32::MAX)? > 0 {
            return Err(Error::unsupported("jpeg2k: skipres selects a smaller image"));
        }
        Ok(Self { is_planar: flag("jpeg2k", configuration, "planar")? })
    }
}

impl ImageCoder for Jpeg2000 {
    fn decode(&self, encoded: &[u8], chunk: &ImageChunk) -> Result<Vec<u8>> {
        let codestream = codestream(encoded)?.ok_or_else(|| chunk.damaged("no codestream"))?;
        let header = Header::parse(codestream).ok_or_else(|| chunk.damaged("no header"))?;
        header.check()?;
        let sample_len = if header.bits > 8 { 2 } else { 1 };
        let dtype = if header.is_signed { DType::Int(sample_len) } else { DType::Uint(sample_len) };
        let size = ImageSize::new(header.columns, header.rows, header.samples);
        chunk.check(ImageSize { is_planar: self.is_planar, ..size }, &dtype)?;
        let settings = DecodeSettings { strict: true, ..DecodeSettings::default() };
        let image = Image::new(codestream, &settings).map_err(|error| chunk.damaged(error))?;
        let mut context = DecoderContext::default();
        let decoded = image.decode(&mut context).map_err(|error| chunk.damaged(error))?;
        let planes: Vec<&[f32]> = decoded.components().iter().map(ComponentData::samples).collect();
        let count = chunk.elements.count()?.checked_div(header.samples).unwrap_or_default();
        if planes.len() != header.samples || planes.iter().any(|plane| plane.len() != count) {
            return Err(chunk.damaged("other samples than the header says"));
        }
        let mut bytes = reserve(chunk.len)?;
        let mut store = |sample: f32| {
            push(&mut bytes, &header.integer(sample), sample_len);
        };
        if self.is_planar {
            planes.iter().flat_map(|plane| plane.iter()).for_each(|sample| store(*sample));
        } else {
            for index in 0..count {
                planes.iter().filter_map(|plane| plane.get(index)).for_each(|s| store(*s));
            }
        }
        Ok(bytes)
    }
}

/// Returns the codestream, which is all bytes or a box. `None` if there is none.
fn codestream(encoded: &[u8]) -> Result<Option<&[u8]>> {
    if encoded.starts_with(&[0xff, 0x4f]) {
        return Ok(Some(encoded));
    }
    let mut rest = encoded;
    while let Some(([l0, l1, l2, l3, name @ ..], after)) = rest.split_first_chunk::<8>() {
        let len = u32::from_be_bytes([*l0, *l1, *l2, *l3]).to_usize();
        let body = match len {
            0 => Some(after),    // Up to the end.
            1 => after.get(8..), // 64 bits of length follow, of a box that is the last one.
            _ => len.checked_sub(8).and_then(|len| after.get(..len)),
        };
        let Some(body) = body else { return Ok(None) };
        match name {
            b"jp2c" => return Ok(Some(body)),
            b"jp2h" => check_colors(body)?,
            _ => {}
        }
        rest = after.get(body.len()..).unwrap_or_default();
    }
    Ok(None)
}

/// Returns an error if readers convert the colours of an image with this header.
fn check_colors(boxes: &[u8]) -> Result<()> {
    /// The number of the color space that is YCbCr.
    const YCC: [u8; 4] = [0, 0, 0, 18];

    let mut rest = boxes;
    while let Some(([l0, l1, l2, l3, name @ ..], after)) = rest.split_first_chunk::<8>() {
        let len = u32::from_be_bytes([*l0, *l1, *l2, *l3]).to_usize();
        let body = len.checked_sub(8).and_then(|len| after.get(..len)).unwrap_or(after);
        let is_ycc = name == b"colr" && body.first() == Some(&1) && body.get(3..7) == Some(&YCC);
        if name == b"pclr" || is_ycc {
            return Err(Error::unsupported("jpeg2k: an image with a palette or of YCbCr"));
        }
        rest = after.get(body.len()..).unwrap_or_default();
    }
    Ok(())
}

/// The header of a codestream.
#[derive(Debug)]
struct Header {
    columns: u32,
    rows: u32,
    samples: usize,
    bits: u8,
    is_signed: bool,
    /// Whether all samples have one size and type, and one tile of large parts holds them.
    is_plain: bool,
}

impl Header {
    /// Parses the size of the image and the coding style. `None` if there is none of them.
    fn parse(codestream: &[u8]) -> Option<Self> {
        let rest = codestream.strip_prefix(&[0xff, 0x4f, 0xff, 0x51])?;
        let (numbers, _) = rest.get(4..)?.as_chunks::<4>();
        let numbers = numbers.first_chunk::<8>()?.map(u32::from_be_bytes);
        let [columns, rows, x, y, tile_columns, tile_rows, tile_x, tile_y] = numbers;
        let (count, components) = rest.get(36..)?.split_first_chunk::<2>()?;
        let samples = usize::from(u16::from_be_bytes(*count));
        let components = components.as_chunks::<3>().0.get(..samples)?;
        let first @ [kind, ..] = *components.first()?;
        let has_large_precincts = has_large_precincts(codestream)?;
        let has_one_tile = tile_columns >= columns && tile_rows >= rows;
        let has_no_offset = [x, y, tile_x, tile_y] == [0; 4];
        let is_even = components.iter().all(|component| *component == first);
        let is_plain =
            has_one_tile && has_no_offset && is_even && first[1..] == [1, 1] && has_large_precincts;
        let (bits, is_signed) = ((kind & 0x7f).saturating_add(1), kind & 0x80 != 0);
        Some(Self { columns, rows, samples, bits, is_signed, is_plain })
    }

    /// Returns an error if the decoder does not return the samples, or takes much more memory than
    /// they do.
    fn check(&self) -> Result<()> {
        if self.is_plain && self.bits <= 16 && matches!(self.samples, 1 | 3 | 4) {
            return Ok(());
        }
        let (samples, bits) = (self.samples, self.bits);
        Err(Error::unsupported(format!(
            "jpeg2k: an image of {samples} samples of {bits} bits; zarrfs reads 1, 3 or 4 samples \
             of at most 16 bits, all of one size, in one tile without small precincts"
        )))
    }

    /// Returns a sample as the low bytes of an integer.
    fn integer(&self, sample: f32) -> [u8; 2] {
        // Adding 2^52 moves the integer part to the lowest bits of the float.
        const ONE: f64 = 4_503_599_627_370_496.0;

        // The decoder moves signed samples to where 0 is the least.
        let most = u16::MAX >> 16_u8.saturating_sub(self.bits).min(15);
        let rounded = sample.round().clamp(0.0, f32::from(most));
        let [low, high, ..] = (f64::from(rounded) + ONE).to_bits().to_le_bytes();
        let number = u16::from_le_bytes([low, high]);
        let middle = (most >> 1).wrapping_add(1);
        if self.is_signed { number.wrapping_sub(middle) } else { number }.to_le_bytes()
    }
}

/// Whether the parts of the image that are coded by themselves have at least 32 pixels along each
/// side. There can be one for each pixel. `None` if there is no coding style, or if a component has
/// its own.
fn has_large_precincts(codestream: &[u8]) -> Option<bool> {
    let mut rest = codestream.get(2..)?;
    let mut is_large = None;
    loop {
        let [0xff, marker, a, b] = rest.first_chunk::<4>()? else { return None };
        let len = usize::from(u16::from_be_bytes([*a, *b])).checked_add(2)?;
        let segment = rest.get(..len).filter(|_| len >= 4)?;
        match marker {
            0x90 => return is_large,
            0x52 => {
                // Powers of two, in four bits each, if a flag says so.
                let is_given = segment.get(4)? & 1 != 0;
                let powers = segment.get(14..)?;
                is_large = Some(
                    !is_given || powers.iter().all(|power| power & 15 >= 5 && power >> 4 >= 5),
                );
            }
            0x53 => return None,
            _ => {}
        }
        rest = rest.get(len..)?;
    }
}
