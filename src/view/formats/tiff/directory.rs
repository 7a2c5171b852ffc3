//! Directories of TIFF and BigTIFF, whose entries have a tag and a value each.

use crate::error::{Error, Result};
use crate::view::formats::header::put;
use crate::view::parts::max_prefix_len;
use crate::width::{ToU64, ToUsize};

/// The variant of TIFF.
#[derive(Debug, Clone, Copy)]
pub(super) struct TiffVariant {
    /// Whether offsets have eight bytes instead of four.
    pub is_big: bool,
    pub big_endian: bool,
}

/// The value of an entry.
#[derive(Debug, Clone)]
pub(super) enum TiffValue {
    Short(Vec<u16>),
    Long(Vec<u32>),
    /// Offsets in the file, of the length of the variant.
    Offsets(Vec<u64>),
    /// Offsets of directories.
    Directories(Vec<u64>),
    Rational(u32, u32),
    Double(Vec<f64>),
    Text(String),
}

/// Tags by their names in the specification.
pub(super) mod tag {
    pub const NEW_SUBFILE_TYPE: u16 = 254;
    pub const IMAGE_WIDTH: u16 = 256;
    pub const IMAGE_LENGTH: u16 = 257;
    pub const BITS_PER_SAMPLE: u16 = 258;
    pub const COMPRESSION: u16 = 259;
    pub const PHOTOMETRIC_INTERPRETATION: u16 = 262;
    pub const IMAGE_DESCRIPTION: u16 = 270;
    pub const STRIP_OFFSETS: u16 = 273;
    pub const SAMPLES_PER_PIXEL: u16 = 277;
    pub const ROWS_PER_STRIP: u16 = 278;
    pub const STRIP_BYTE_COUNTS: u16 = 279;
    pub const X_RESOLUTION: u16 = 282;
    pub const Y_RESOLUTION: u16 = 283;
    pub const RESOLUTION_UNIT: u16 = 296;
    pub const TILE_WIDTH: u16 = 322;
    pub const TILE_LENGTH: u16 = 323;
    pub const TILE_OFFSETS: u16 = 324;
    pub const TILE_BYTE_COUNTS: u16 = 325;
    pub const SUB_IFDS: u16 = 330;
    pub const EXTRA_SAMPLES: u16 = 338;
    pub const SAMPLE_FORMAT: u16 = 339;
    // GeoTIFF.
    pub const MODEL_PIXEL_SCALE: u16 = 33550;
    pub const MODEL_TIEPOINT: u16 = 33922;
    pub const MODEL_TRANSFORMATION: u16 = 34264;
    pub const GEO_KEY_DIRECTORY: u16 = 34735;
    pub const GEO_DOUBLE_PARAMS: u16 = 34736;
    pub const GEO_ASCII_PARAMS: u16 = 34737;
    // Of GDAL, which most programs for maps read.
    pub const GDAL_NODATA: u16 = 42113;
}

pub(super) type TiffEntry = (u16, TiffValue);

/// Writes directories one after another.
pub(super) struct TiffWriter {
    pub bytes: Vec<u8>,
    form: TiffVariant,
    /// The place for the offset of the next directory.
    link: usize,
}

impl TiffWriter {
    pub fn new(form: TiffVariant) -> Self {
        let mut writer = Self { bytes: Vec::new(), form, link: 0 };
        writer.bytes.extend(if form.big_endian { b"MM" } else { b"II" });
        if form.is_big {
            writer.short(43);
            writer.short(8);
            writer.short(0);
        } else {
            writer.short(42);
        }
        writer.link = writer.bytes.len();
        writer.offset(0);
        writer
    }

    /// Writes a directory outside of the chain, and returns its offset.
    pub fn directory(&mut self, mut entries: Vec<TiffEntry>) -> Result<u64> {
        if u64::try_from(self.bytes.len()).is_ok_and(|len| len > max_prefix_len()) {
            return Err(Error::unsupported(format!(
                "the header for its pages and tiles would exceed {} bytes",
                max_prefix_len()
            )));
        }
        entries.sort_by_key(|(tag, _)| *tag);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let place = self.place();
        let (count_len, entry_len, word) = if self.form.is_big { (8, 20, 8) } else { (2, 12, 4) };
        let table_len = entries.len().saturating_mul(entry_len).saturating_add(count_len);
        let mut rest = self.bytes.len().saturating_add(table_len).saturating_add(word);
        let mut behind = Vec::new();
        if self.form.is_big {
            self.long8(entries.len().to_u64());
        } else {
            self.short(u16::try_from(entries.len()).unwrap_or(0));
        }
        for (tag, value) in &entries {
            let (code, count, mut bytes) = self.encode(value)?;
            self.short(*tag);
            self.short(code);
            self.offset(count);
            if bytes.len() <= word {
                bytes.resize(word, 0);
                self.bytes.append(&mut bytes);
            } else {
                bytes.resize(bytes.len().next_multiple_of(8), 0);
                let at = rest.next_multiple_of(8);
                behind.resize(behind.len().saturating_add(at.saturating_sub(rest)), 0);
                self.offset(at.to_u64());
                rest = at.saturating_add(bytes.len());
                behind.append(&mut bytes);
            }
        }
        self.offset(0);
        self.bytes.append(&mut behind);
        Ok(place)
    }

    /// Writes a directory at the end of the chain.
    pub fn chained(&mut self, entries: Vec<TiffEntry>) -> Result<()> {
        let count = entries.len();
        let place = self.directory(entries)?;
        let mut word = Self { bytes: Vec::new(), form: self.form, link: 0 };
        word.offset(place);
        put(&mut self.bytes, self.link, &word.bytes);
        let table = if self.form.is_big {
            count.saturating_mul(20).saturating_add(8)
        } else {
            count.saturating_mul(12).saturating_add(2)
        };
        self.link = place.to_usize().saturating_add(table);
        Ok(())
    }

    /// Returns the code of a type, the number of values, and their bytes.
    fn encode(&self, value: &TiffValue) -> Result<(u16, u64, Vec<u8>)> {
        let mut word = Self { bytes: Vec::new(), form: self.form, link: 0 };
        let (code, count) = match value {
            TiffValue::Short(values) => {
                for value in values {
                    word.short(*value);
                }
                (3, values.len())
            }
            TiffValue::Long(values) => {
                for value in values {
                    word.long(*value);
                }
                (4, values.len())
            }
            TiffValue::Offsets(values) | TiffValue::Directories(values) => {
                if !self.form.is_big && values.iter().any(|value| u32::try_from(*value).is_err()) {
                    return Err(Error::unsupported("it has more than 4 GiB"));
                }
                for value in values {
                    word.offset(*value);
                }
                let code = match (value, self.form.is_big) {
                    (TiffValue::Directories(_), true) => 18,
                    (TiffValue::Directories(_), false) => 13,
                    (_, true) => 16,
                    (_, false) => 4,
                };
                (code, values.len())
            }
            TiffValue::Rational(one, other) => {
                word.long(*one);
                word.long(*other);
                (5, 1)
            }
            TiffValue::Double(values) => {
                for value in values {
                    word.put_number(value.to_le_bytes());
                }
                (12, values.len())
            }
            TiffValue::Text(text) => {
                word.bytes.extend(text.bytes());
                word.bytes.push(0);
                (2, word.bytes.len())
            }
        };
        Ok((code, count.to_u64(), word.bytes))
    }

    fn place(&self) -> u64 {
        self.bytes.len().to_u64()
    }

    fn put_number<const LEN: usize>(&mut self, mut little_endian: [u8; LEN]) {
        if self.form.big_endian {
            little_endian.reverse();
        }
        self.bytes.extend(little_endian);
    }

    fn short(&mut self, value: u16) {
        self.put_number(value.to_le_bytes());
    }

    fn long(&mut self, value: u32) {
        self.put_number(value.to_le_bytes());
    }

    fn long8(&mut self, value: u64) {
        self.put_number(value.to_le_bytes());
    }

    /// Writes an offset or a count. Earlier checks refused any that do not fit.
    fn offset(&mut self, value: u64) {
        if self.form.is_big {
            self.long8(value);
        } else {
            self.long(u32::try_from(value).unwrap_or(u32::MAX));
        }
    }
}

/// Returns lengths in the shortest type that holds them.
pub(super) fn lens(lens: Vec<u64>) -> TiffValue {
    let short: Option<Vec<u32>> = lens.iter().map(|len| u32::try_from(*len).ok()).collect();
    short.map_or(TiffValue::Offsets(lens), TiffValue::Long)
}

/// Returns the entries for the resolution along x and y.
pub(super) fn resolution(x: f64, y: f64, unit: u16) -> Vec<TiffEntry> {
    let (Some(x), Some(y)) = (rational(x.recip()), rational(y.recip())) else { return Vec::new() };
    vec![
        (tag::X_RESOLUTION, x),
        (tag::Y_RESOLUTION, y),
        (tag::RESOLUTION_UNIT, TiffValue::Short(vec![unit])),
    ]
}

/// Returns a fraction near a number; `None` if it is not positive or far too large.
fn rational(value: f64) -> Option<TiffValue> {
    let fits = |denominator: &u32| value * f64::from(*denominator) < 4e9;
    let denominator = [1_000_000_000, 1_000_000, 1000, 1].into_iter().find(fits)?;
    let numerator = format!("{:.0}", value * f64::from(denominator)).parse().ok()?;
    (numerator > 0).then_some(TiffValue::Rational(numerator, denominator))
}
