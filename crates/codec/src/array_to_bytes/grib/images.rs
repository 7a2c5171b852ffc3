//! Values as the pixels of an image: PNG (template 5.41) and JPEG 2000 (5.40).

use std::io::Cursor;

use png::{BitDepth, ColorType, Limits, Transformations};

use super::bits::Bits;
use super::message::Message;
use zarrfs_base::error::{Error, Result};

/// The memory that decoding takes beside the pixels: a window of deflate and two rows at most.
const SLACK: usize = 1 << 20;

/// Returns the numbers of `width` bits that the pixels of a PNG image stand for.
pub(super) fn png(message: &Message<'_>, width: u32) -> Result<Vec<u32>> {
    let count = message.value_count;
    let damaged = |error: png::DecodingError| Error::corrupt(format!("grib: PNG: {error}"));
    let width = width.next_multiple_of(8);
    let limits = Limits { bytes: count.saturating_mul(16).saturating_add(SLACK) };
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(message.data), limits);
    decoder.set_transformations(Transformations::IDENTITY);
    let mut reader = decoder.read_info().map_err(damaged)?;
    let (columns, rows) = reader.info().size();
    check_size(columns, rows, count)?;
    let (color, depth) = reader.output_color_type();
    let pixel = match (color, depth) {
        (ColorType::Grayscale, BitDepth::Eight) => 8,
        (ColorType::Grayscale, BitDepth::Sixteen) => 16,
        (ColorType::Rgb, BitDepth::Eight) => 24,
        (ColorType::Rgba, BitDepth::Eight) => 32,
        _ => 0,
    };
    if pixel != width {
        return Err(Error::unsupported(format!(
            "grib: numbers of {width} bits in a PNG image of {color:?} with {depth:?} bits"
        )));
    }
    let len = reader.output_buffer_size().filter(|len| *len <= count.saturating_mul(4));
    let len = len.ok_or_else(|| Error::corrupt("grib: PNG: too many bytes"))?;
    let mut pixels = vec![0; len];
    reader.next_frame(&mut pixels).map_err(damaged)?;
    let mut bits = Bits::new(&pixels);
    let numbers: Option<Vec<u32>> = (0..count).map(|_| bits.number(width)).collect();
    numbers.ok_or_else(|| Error::corrupt("grib: PNG: too few bytes"))
}

/// Returns an error unless an image has a pixel for each value.
fn check_size(columns: u32, rows: u32, count: usize) -> Result<()> {
    let pixels = usize::try_from(u64::from(columns).saturating_mul(u64::from(rows)));
    if pixels == Ok(count) {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "grib: an image of {columns} x {rows} pixels holds the values, the message has {count}"
    )))
}

/// Returns the numbers that the samples of a JPEG 2000 image are.
#[cfg(feature = "jpeg2000")]
pub(super) fn jpeg2000(message: &Message<'_>) -> Result<Vec<u32>> {
    use hayro_jpeg2000::{DecodeSettings, DecoderContext, Image};

    let header = codestream::ImageSize::parse(message.data)?;
    check_size(header.columns, header.rows, message.value_count)?;
    let settings = DecodeSettings { strict: true, ..DecodeSettings::default() };
    let damaged = |error| Error::corrupt(format!("grib: JPEG 2000: {error}"));
    let image = Image::new(message.data, &settings).map_err(damaged)?;
    let mut context = DecoderContext::default();
    let decoded = image.decode(&mut context).map_err(damaged)?;
    let wrong = || Error::corrupt("grib: JPEG 2000: a sample is no integer of its size");
    let [component] = decoded.components() else { return Err(wrong()) };
    component.samples().iter().map(|sample| whole(*sample).ok_or_else(wrong)).collect()
}

/// Refuses a JPEG 2000 image.
#[cfg(not(feature = "jpeg2000"))]
pub(super) fn jpeg2000(_message: &Message<'_>) -> Result<Vec<u32>> {
    Err(Error::unsupported(
        "grib: JPEG 2000 packs the values, and this zarrfs was built without the feature jpeg2000",
    ))
}

/// Returns a float as an integer of at most 24 bits.
#[cfg(feature = "jpeg2000")]
fn whole(sample: f32) -> Option<u32> {
    // Adding 2^23 moves the integer part to the lowest bits of the float.
    const ONE: f64 = 4_503_599_627_370_496.0;
    let sum = f64::from(sample) + ONE;
    let is_whole = sample.fract() == 0.0 && (0.0..=16_777_216.0).contains(&sample);
    u32::try_from(sum.to_bits() ^ ONE.to_bits()).ok().filter(|_| is_whole)
}

#[cfg(feature = "jpeg2000")]
mod codestream {
    //! The header of a JPEG 2000 codestream: what the decoder does not tell.
    //!
    //! ```text
    //! ff4f | ff51, size | other segments, one of them ff52, coding style | ff90 ..
    //! ```

    use zarrfs_base::error::{Error, Result};

    /// The most bits of a sample that the decoder, which computes in single precision, keeps.
    const MOST_BITS: u8 = 20;

    /// The size of an image.
    #[derive(Debug)]
    pub struct ImageSize {
        pub columns: u32,
        pub rows: u32,
    }

    impl ImageSize {
        /// Parses the header. It is an error if the decoder may not return the exact samples, or
        /// may take much more memory than they do.
        pub fn parse(bytes: &[u8]) -> Result<Self> {
            let damaged = || Error::corrupt("grib: JPEG 2000: the header is damaged");
            if !bytes.starts_with(&[0xff, 0x4f, 0xff, 0x51]) {
                return Err(damaged());
            }
            let number = |offset: usize| {
                let bytes = bytes.get(offset..).and_then(|rest| rest.first_chunk::<4>());
                bytes.copied().map(u32::from_be_bytes)
            };
            let size = |offset| number(offset).ok_or_else(damaged);
            let [columns, rows, x, y, tile_columns, tile_rows, tile_x, tile_y] = [
                size(8)?,
                size(12)?,
                size(16)?,
                size(20)?,
                size(24)?,
                size(28)?,
                size(32)?,
                size(36)?,
            ];
            let components = bytes.get(40..46).ok_or_else(damaged)?;
            let coding = coding_style(bytes).ok_or_else(damaged)?;
            let has_one_tile = tile_columns >= columns && tile_rows >= rows;
            let has_no_offset = [x, y, tile_x, tile_y] == [0; 4];
            // One component, unsigned, at its full size.
            let is_plain = matches!(components, [0, 1, bits, 1, 1, _] if *bits < MOST_BITS);
            // No precincts of its own, and the reversible transform.
            let is_exact = matches!(coding, [style, _, _, _, _, _, _, _, _, 1] if style & 1 == 0);
            if has_one_tile && has_no_offset && is_plain && is_exact {
                return Ok(Self { columns, rows });
            }
            Err(Error::unsupported(format!(
                "grib: JPEG 2000: the image is compressed with loss, has more than {MOST_BITS} \
                 bits, or has several tiles, components or precincts"
            )))
        }
    }

    /// Returns the coding style from its flags to the transform. `None` if there is none, or if a
    /// component has its own.
    fn coding_style(bytes: &[u8]) -> Option<[u8; 10]> {
        let mut rest = bytes.get(2..)?;
        let mut coding = None;
        loop {
            let [0xff, marker, a, b] = rest.first_chunk::<4>()? else { return None };
            let len = usize::from(u16::from_be_bytes([*a, *b]));
            match marker {
                0x90 => return coding,
                0x52 => coding = Some(*rest.get(4..)?.first_chunk::<10>()?),
                0x53 => return None,
                _ => {}
            }
            rest = rest.get(len.checked_add(2).filter(|_| len >= 2)?..)?;
        }
    }
}
