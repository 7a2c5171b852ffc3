//! The directories of a TIFF: lists of tags with their values, linked to each other.
//!
//! ```text
//! "II" or "MM" | 42 u16 | offset u32                      BigTIFF: 43, 8 u16, 0 u16, offset u64
//! directory:     count u16 | entries of 12 bytes | offset of the next, or 0
//!                count u64 | entries of 20 bytes | offset u64                        in BigTIFF
//! entry:         tag u16 | type u16 | count u32 | value, or its offset if it has more than 4 bytes
//!                tag u16 | type u16 | count u64 | value, or its offset if it has more than 8 bytes
//! ```
//!
//! zarrfs parses them itself. The crate `tiff` returns no tags of an image whose compression or
//! samples it cannot decode, and keeps a list of places in 32 bytes for each.
//!
//! <https://www.itu.int/itudoc/itu-t/com16/tiff-fx/docs/tiff6.pdf>,
//! <https://www.awaresystems.be/imaging/tiff/bigtiff.html>

use crate::source::SourceFile;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::{ToU64, ToUsize};

/// The most entries of a directory. No program writes nearly as many.
const MAX_ENTRIES: u64 = 4096;

/// The longest text of a tag.
pub const MAX_TEXT_LEN: u64 = 16 << 20;

/// The tags that decide something here.
pub mod tag {
    pub const NEW_SUBFILE_TYPE: u16 = 254;
    pub const IMAGE_WIDTH: u16 = 256;
    pub const IMAGE_LENGTH: u16 = 257;
    pub const BITS_PER_SAMPLE: u16 = 258;
    pub const COMPRESSION: u16 = 259;
    pub const PHOTOMETRIC: u16 = 262;
    pub const FILL_ORDER: u16 = 266;
    pub const IMAGE_DESCRIPTION: u16 = 270;
    pub const STRIP_OFFSETS: u16 = 273;
    pub const SAMPLES_PER_PIXEL: u16 = 277;
    pub const ROWS_PER_STRIP: u16 = 278;
    pub const STRIP_BYTE_COUNTS: u16 = 279;
    pub const X_RESOLUTION: u16 = 282;
    pub const Y_RESOLUTION: u16 = 283;
    pub const PLANAR_CONFIGURATION: u16 = 284;
    pub const RESOLUTION_UNIT: u16 = 296;
    pub const PREDICTOR: u16 = 317;
    pub const COLOR_MAP: u16 = 320;
    pub const TILE_WIDTH: u16 = 322;
    pub const TILE_LENGTH: u16 = 323;
    pub const TILE_OFFSETS: u16 = 324;
    pub const TILE_BYTE_COUNTS: u16 = 325;
    pub const SUB_IFDS: u16 = 330;
    pub const EXTRA_SAMPLES: u16 = 338;
    pub const SAMPLE_FORMAT: u16 = 339;
    pub const JPEG_TABLES: u16 = 347;
    pub const Y_CB_CR_SUB_SAMPLING: u16 = 530;
    pub const IMAGE_DEPTH: u16 = 32_997;
    pub const MODEL_PIXEL_SCALE: u16 = 33_550;
    pub const MODEL_TIEPOINT: u16 = 33_922;
    pub const MODEL_TRANSFORMATION: u16 = 34_264;
    pub const GEO_KEY_DIRECTORY: u16 = 34_735;
    pub const GEO_DOUBLE_PARAMS: u16 = 34_736;
    pub const GEO_ASCII_PARAMS: u16 = 34_737;
    pub const GDAL_METADATA: u16 = 42_112;
    pub const GDAL_NODATA: u16 = 42_113;
}

/// The bytes of a TIFF, with the byte order and the width of offsets.
#[derive(Debug, Clone)]
pub struct TiffBytes {
    /// The file.
    pub file: SourceFile,
    /// Whether numbers are big endian.
    pub is_big_endian: bool,
    /// Whether offsets have 8 bytes.
    pub is_bigtiff: bool,
}

/// The values of a tag.
#[derive(Debug, Clone, Copy)]
pub struct TagValues {
    /// Their type.
    kind: u16,
    /// How many there are.
    pub count: u64,
    /// Where they begin in the file.
    offset: u64,
}

/// The tags of one image.
#[derive(Debug)]
pub struct TagDirectory {
    entries: Vec<(u16, TagValues)>,
    /// Where the next directory begins; 0 for none.
    pub next: u64,
    /// Its bytes.
    pub len: u64,
}

impl TiffBytes {
    /// Parses the header. Returns also the offset of the first directory.
    pub fn open(file: &SourceFile) -> Result<(Self, u64)> {
        let start = file.read(0, 8)?;
        let is_big_endian = match start.get(..2) {
            Some(b"II") => false,
            Some(b"MM") => true,
            Some(_) | None => return Err(Error::corrupt("a TIFF begins with II or MM")),
        };
        let mut bytes = Self { file: file.clone(), is_big_endian, is_bigtiff: false };
        match bytes.number(2, 2)? {
            42 => {
                let first = bytes.number(4, 4)?;
                Ok((bytes, first))
            }
            43 if bytes.number(4, 2)? == 8 => {
                bytes.is_bigtiff = true;
                let first = bytes.number(8, 8)?;
                Ok((bytes, first))
            }
            other => Err(Error::unsupported(format!("a TIFF of version {other}"))),
        }
    }

    /// Returns an unsigned number of `len` bytes.
    fn number(&self, offset: u64, len: usize) -> Result<u64> {
        Ok(self.unsigned(&self.file.read(offset, len)?))
    }

    fn unsigned(&self, bytes: &[u8]) -> u64 {
        let shift = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        if self.is_big_endian {
            bytes.iter().fold(0, shift)
        } else {
            bytes.iter().rev().fold(0, shift)
        }
    }

    /// Parses the directory at `offset`.
    pub fn directory(&self, offset: u64) -> Result<TagDirectory> {
        let (head_len, entry_len, offset_len) =
            if self.is_bigtiff { (8_usize, 20_u64, 8_usize) } else { (2, 12, 4) };
        let count = self.number(offset, head_len)?;
        if count == 0 || count > MAX_ENTRIES {
            return Err(Error::corrupt(format!("a directory of {count} tags at byte {offset}")));
        }
        let start = offset.saturating_add(head_len.to_u64());
        let entries_len = count.saturating_mul(entry_len);
        let all = self.file.read(start, entries_len.to_usize())?;
        let mut entries = Vec::with_capacity(count.to_usize());
        let mut at = start;
        for entry in all.chunks_exact(entry_len.to_usize()) {
            entries.extend(self.entry(entry, at, offset_len));
            at = at.saturating_add(entry_len);
        }
        // Some writers end the file after the last directory.
        let next = self.file.read_up_to(at, offset_len)?;
        let next = if next.len() < offset_len { 0 } else { self.unsigned(&next) };
        let len = entries_len.saturating_add((head_len + offset_len).to_u64());
        Ok(TagDirectory { entries, next, len })
    }

    /// Parses an entry at `at`; `None` if its type is not known or its values are not in the file.
    fn entry(&self, entry: &[u8], at: u64, offset_len: usize) -> Option<(u16, TagValues)> {
        let number = |from: usize, len: usize| {
            let bytes = entry.get(from..).and_then(|rest| rest.get(..len));
            self.unsigned(bytes.unwrap_or_default())
        };
        let short = |from: usize| u16::try_from(number(from, 2)).unwrap_or_default();
        let (tag, kind, count) = (short(0), short(2), number(4, offset_len));
        let item_len = item_len(kind)?;
        let len = count.checked_mul(item_len);
        let is_within = len.is_some_and(|len| len <= offset_len.to_u64());
        let place = if is_within {
            at.saturating_add(4).saturating_add(offset_len.to_u64())
        } else {
            number(4 + offset_len, offset_len)
        };
        let end = len.and_then(|len| place.checked_add(len));
        let is_there = end.is_some_and(|end| end <= self.file.len());
        is_there.then_some((tag, TagValues { kind, count, offset: place }))
    }

    /// Reads at most `most` of the values of a tag from the number `from` on, as unsigned numbers.
    pub fn numbers(&self, values: TagValues, from: u64, most: u64) -> Result<Vec<u64>> {
        let (bytes, item_len) = self.part(values, from, most)?;
        Ok(bytes.chunks_exact(item_len).map(|item| self.unsigned(item)).collect())
    }

    /// Reads at most `most` of the values of a tag as floats.
    pub fn floats(&self, values: TagValues, most: u64) -> Result<Vec<f64>> {
        let (bytes, item_len) = self.part(values, 0, most)?;
        let float = |item: &[u8]| {
            let number = self.unsigned(item);
            let low = u32::try_from(number & 0xffff_ffff).unwrap_or_default();
            match values.kind {
                5 | 10 => self.ratio(item, values.kind == 10),
                6 => f64::from(low.to_le_bytes()[0].cast_signed()),
                8 => f64::from(u16::try_from(low & 0xffff).unwrap_or_default().cast_signed()),
                9 => f64::from(low.cast_signed()),
                11 => f64::from(f32::from_bits(low)),
                12 => f64::from_bits(number),
                _ => zarrfs_codec::dtype::to_float(i128::from(number)),
            }
        };
        Ok(bytes.chunks_exact(item_len).map(float).collect())
    }

    fn ratio(&self, item: &[u8], is_signed: bool) -> f64 {
        let (above, below) = item.split_at_checked(4).unwrap_or_default();
        let part = |bytes: &[u8]| {
            let number = u32::try_from(self.unsigned(bytes)).unwrap_or_default();
            if is_signed { f64::from(number.cast_signed()) } else { f64::from(number) }
        };
        part(above) / part(below)
    }

    /// Reads a text up to the first NUL. Characters that are not UTF-8 are Latin-1.
    pub fn text(&self, values: TagValues) -> Result<String> {
        if values.count > MAX_TEXT_LEN {
            let len = values.count;
            return Err(Error::too_large(format!("a text of {len} bytes in a tag")));
        }
        let (bytes, _) = self.part(values, 0, values.count)?;
        let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => bytes.iter().copied().map(char::from).collect(),
        })
    }

    /// Reads at most `most` values that are bytes.
    pub fn bytes(&self, values: TagValues, most: u64) -> Result<Vec<u8>> {
        Ok(self.part(values, 0, most)?.0.to_vec())
    }

    fn part(&self, values: TagValues, from: u64, most: u64) -> Result<(bytes::Bytes, usize)> {
        let item_len = item_len(values.kind).unwrap_or(1);
        let count = values.count.saturating_sub(from).min(most);
        let offset = values.offset.saturating_add(from.saturating_mul(item_len));
        let bytes = self.file.read(offset, count.saturating_mul(item_len).to_usize())?;
        Ok((bytes, item_len.to_usize()))
    }
}

impl TagValues {
    /// Whether they are text.
    pub fn is_text(self) -> bool {
        self.kind == 2
    }
}

impl TagDirectory {
    /// Returns the values of a tag.
    pub fn get(&self, tag: u16) -> Option<TagValues> {
        self.entries.iter().find(|(own, _)| *own == tag).map(|(_, values)| *values)
    }

    /// Returns the first value of a tag as an unsigned number.
    pub fn number(&self, bytes: &TiffBytes, tag: u16) -> Result<Option<u64>> {
        let Some(values) = self.get(tag) else { return Ok(None) };
        Ok(bytes.numbers(values, 0, 1)?.first().copied())
    }
}

/// Returns the length of a value of a type.
fn item_len(kind: u16) -> Option<u64> {
    match kind {
        1 | 2 | 6 | 7 => Some(1),
        3 | 8 => Some(2),
        4 | 9 | 11 | 13 => Some(4),
        5 | 10 | 12 | 16 | 17 | 18 => Some(8),
        _ => None,
    }
}
