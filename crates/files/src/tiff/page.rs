//! A page: one image of a TIFF, with the tags that say how it is stored.

use super::directory::{TagDirectory, TagValues, TiffBytes, tag};
use zarrfs_base::error::{Error, Result};

/// How many samples of a pixel are compared with each other.
const MAX_SAMPLES: u64 = 256;

/// What makes pages parts of one array: all of it is equal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PageForm {
    /// The rows.
    pub height: u64,
    /// The columns.
    pub width: u64,
    /// The samples of a pixel.
    pub samples: u64,
    /// Whether the samples of each kind lie together, and not those of a pixel.
    pub is_planar: bool,
    /// The bits of a sample; 0 if samples differ.
    pub bits: u64,
    /// `SampleFormat`; 0 if samples differ.
    pub format: u64,
    /// `Compression`.
    pub compression: u64,
    /// `Predictor`.
    pub predictor: u64,
    /// `PhotometricInterpretation`.
    pub photometric: u64,
    /// Whether the least significant bit of a byte is the first.
    pub is_bit_reversed: bool,
    /// How many pixels share a color.
    pub pixels_of_color: u64,
    /// The extra samples of a pixel.
    pub extra_samples: u64,
    /// The planes of a volume.
    pub depth: u64,
    /// The rows of a tile or a strip.
    pub tile_height: u64,
    /// The columns of a tile; those of the page for strips.
    pub tile_width: u64,
    /// Whether tiles at the edge are whole.
    pub is_tiled: bool,
}

/// One image of the file.
#[derive(Debug)]
pub struct TiffPage {
    /// How it is stored.
    pub form: PageForm,
    /// Where its directory begins.
    pub offset: u64,
    /// `NewSubfileType`: 1 a smaller copy, 2 a page, 4 a mask.
    pub subfile_type: u64,
    /// The places of tiles or strips.
    pub offsets: Option<TagValues>,
    /// Their lengths.
    pub lens: Option<TagValues>,
    /// `ImageDescription`.
    pub description: Option<TagValues>,
    /// `JPEGTables`.
    pub jpeg_tables: Option<TagValues>,
    /// The pages below this one, by their numbers.
    pub children: Vec<u32>,
    /// Whether it is below another one.
    pub is_child: bool,
}

impl TiffPage {
    /// Returns the page of a directory; `None` if that has no image.
    pub fn parse(bytes: &TiffBytes, directory: &TagDirectory, offset: u64) -> Result<Option<Self>> {
        let Some(form) = PageForm::parse(bytes, directory)? else { return Ok(None) };
        let (at, lens) = (directory.get(tag::TILE_OFFSETS), directory.get(tag::TILE_BYTE_COUNTS));
        Ok(Some(Self {
            form,
            offset,
            subfile_type: directory.number(bytes, tag::NEW_SUBFILE_TYPE)?.unwrap_or_default(),
            offsets: at.or_else(|| directory.get(tag::STRIP_OFFSETS)),
            lens: lens.or_else(|| directory.get(tag::STRIP_BYTE_COUNTS)),
            description: directory.get(tag::IMAGE_DESCRIPTION).filter(|values| values.is_text()),
            jpeg_tables: directory.get(tag::JPEG_TABLES),
            children: Vec::new(),
            is_child: false,
        }))
    }

    /// Whether it is a smaller copy of another page.
    pub fn is_reduced(&self) -> bool {
        self.subfile_type & 1 != 0
    }

    /// Whether it is the mask of another page.
    pub fn is_mask(&self) -> bool {
        self.subfile_type & 4 != 0
    }
}

/// Returns how many pixels share a color.
fn pixels_of_color(
    bytes: &TiffBytes,
    directory: &TagDirectory,
    compression: u64,
    photometric: u64,
) -> Result<u64> {
    // The formats of images keep to themselves how they store colors.
    if photometric != 6 || super::codecs::is_image(compression) {
        return Ok(1);
    }
    let Some(values) = directory.get(tag::Y_CB_CR_SUB_SAMPLING) else { return Ok(4) };
    let [across, down] = *bytes.numbers(values, 0, 2)?.as_slice() else { return Ok(4) };
    Ok(across.saturating_mul(down))
}

/// Returns the number that a tag has for all samples, 0 if they differ.
fn equal(bytes: &TiffBytes, directory: &TagDirectory, tag: u16, usual: u64) -> Result<u64> {
    let Some(values) = directory.get(tag) else { return Ok(usual) };
    let all = bytes.numbers(values, 0, MAX_SAMPLES)?;
    let first = all.first().copied().unwrap_or(usual);
    Ok(if all.iter().all(|one| *one == first) { first } else { 0 })
}

impl PageForm {
    fn parse(bytes: &TiffBytes, directory: &TagDirectory) -> Result<Option<Self>> {
        let number = |tag: u16| directory.number(bytes, tag);
        let or = |tag: u16, usual: u64| Ok::<_, Error>(number(tag)?.unwrap_or(usual));
        let (width, height) = (or(tag::IMAGE_WIDTH, 0)?, or(tag::IMAGE_LENGTH, 0)?);
        if width == 0 || height == 0 {
            return Ok(None);
        }
        let tile = (number(tag::TILE_WIDTH)?, number(tag::TILE_LENGTH)?);
        let (is_tiled, tile_width, tile_height) = match tile {
            (Some(width), Some(length)) => (true, width, length),
            (Some(_) | None, Some(_) | None) => {
                (false, width, or(tag::ROWS_PER_STRIP, height)?.min(height))
            }
        };
        if tile_width == 0 || tile_height == 0 {
            let detail = format!("tiles of {tile_height} x {tile_width} pixels");
            return Err(Error::corrupt(detail));
        }
        let samples = or(tag::SAMPLES_PER_PIXEL, 1)?.max(1);
        let (compression, photometric) = (or(tag::COMPRESSION, 1)?, or(tag::PHOTOMETRIC, 0)?);
        Ok(Some(Self {
            height,
            width,
            samples,
            is_planar: samples > 1 && or(tag::PLANAR_CONFIGURATION, 1)? == 2,
            bits: equal(bytes, directory, tag::BITS_PER_SAMPLE, 1)?,
            format: equal(bytes, directory, tag::SAMPLE_FORMAT, 1)?,
            compression,
            predictor: or(tag::PREDICTOR, 1)?,
            photometric,
            is_bit_reversed: or(tag::FILL_ORDER, 1)? == 2,
            pixels_of_color: pixels_of_color(bytes, directory, compression, photometric)?,
            extra_samples: directory.get(tag::EXTRA_SAMPLES).map_or(0, |values| values.count),
            depth: or(tag::IMAGE_DEPTH, 1)?.max(1),
            tile_height,
            tile_width,
            is_tiled,
        }))
    }

    /// Returns the bytes of a whole page that is not compressed; `None` if they are not whole or
    /// more than 2^64.
    pub fn len(&self) -> Option<u64> {
        let item_len = (self.bits / 8).max(1);
        self.height.checked_mul(self.width)?.checked_mul(self.samples)?.checked_mul(item_len)
    }

    /// Whether `other` is a smaller copy: about the same proportions, and all else equal.
    pub fn has_level(&self, other: &Self) -> bool {
        let is_like = self.samples == other.samples
            && (self.bits, self.format) == (other.bits, other.format)
            && other.height <= self.height
            && other.width <= self.width
            && (other.height < self.height || other.width < self.width);
        // Levels are rounded, and may be by much if they are small.
        let (long, short) = (
            u128::from(self.height) * u128::from(other.width),
            u128::from(self.width) * u128::from(other.height),
        );
        let rounding = 2 * u128::from(self.height.max(self.width));
        is_like && long.abs_diff(short) <= rounding.max(long.max(short) / 50)
    }
}
