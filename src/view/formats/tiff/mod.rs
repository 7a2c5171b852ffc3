//! TIFF 6 and BigTIFF: directories of entries, before the elements that they point to. `tif` and `ome.tif` are made of it.

mod hyperstack;
mod ome;
mod ome_xml;

pub(super) use hyperstack::build as tif;
pub(super) use ome::build as ome_tif;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::view::image::{Axis, Image, Kind};
use crate::view::max_prefix_len;

/// Which of the forms of TIFF a file has.
#[derive(Debug, Clone, Copy)]
struct Form {
    /// Offsets have eight bytes and not four.
    is_big: bool,
    big_endian: bool,
}

/// What an entry says.
#[derive(Debug, Clone)]
enum Value {
    Short(Vec<u16>),
    Long(Vec<u32>),
    /// Places in the file, as long as the form has them.
    Offsets(Vec<u64>),
    /// Places of directories.
    Directories(Vec<u64>),
    Rational(u32, u32),
    Text(String),
}

/// Tags by their names in the specification.
mod tag {
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
}

/// The most strips of a page.
const MAX_STRIPS: u64 = 1 << 16;

type Entry = (u16, Value);

/// Writes directories one after another.
struct Writer {
    bytes: Vec<u8>,
    form: Form,
    /// Where the place of the next directory is to be written.
    link: usize,
}

impl Writer {
    fn new(form: Form) -> Self {
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

    /// A directory that is not in the chain, and its place.
    fn directory(&mut self, mut entries: Vec<Entry>) -> Result<u64> {
        if u64::try_from(self.bytes.len()).is_ok_and(|len| len > max_prefix_len()) {
            return Err(Error::unsupported(format!(
                "its pages and tiles would need a header of more than {} bytes",
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
            self.long8(u64::try_from(entries.len()).unwrap_or(0));
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
                self.offset(u64::try_from(at).unwrap_or(0));
                rest = at.saturating_add(bytes.len());
                behind.append(&mut bytes);
            }
        }
        self.offset(0);
        self.bytes.append(&mut behind);
        Ok(place)
    }

    /// A directory that follows the last one in the chain.
    fn chained(&mut self, entries: Vec<Entry>) -> Result<()> {
        let count = entries.len();
        let place = self.directory(entries)?;
        let mut word = Self { bytes: Vec::new(), form: self.form, link: 0 };
        word.offset(place);
        super::put(&mut self.bytes, self.link, &word.bytes);
        let table = if self.form.is_big {
            count.saturating_mul(20).saturating_add(8)
        } else {
            count.saturating_mul(12).saturating_add(2)
        };
        self.link = usize::try_from(place).unwrap_or(0).saturating_add(table);
        Ok(())
    }

    /// The code of a type, how many values there are, and their bytes.
    fn encode(&self, value: &Value) -> Result<(u16, u64, Vec<u8>)> {
        let mut word = Self { bytes: Vec::new(), form: self.form, link: 0 };
        let (code, count) = match value {
            Value::Short(values) => {
                for value in values {
                    word.short(*value);
                }
                (3, values.len())
            }
            Value::Long(values) => {
                for value in values {
                    word.long(*value);
                }
                (4, values.len())
            }
            Value::Offsets(values) | Value::Directories(values) => {
                if !self.form.is_big && values.iter().any(|value| u32::try_from(*value).is_err()) {
                    return Err(Error::unsupported("it has more than 4 GiB"));
                }
                for value in values {
                    word.offset(*value);
                }
                let code = match (value, self.form.is_big) {
                    (Value::Directories(_), true) => 18,
                    (Value::Directories(_), false) => 13,
                    (_, true) => 16,
                    (_, false) => 4,
                };
                (code, values.len())
            }
            Value::Rational(one, other) => {
                word.long(*one);
                word.long(*other);
                (5, 1)
            }
            Value::Text(text) => {
                word.bytes.extend(text.bytes());
                word.bytes.push(0);
                (2, word.bytes.len())
            }
        };
        Ok((code, u64::try_from(count).unwrap_or(u64::MAX), word.bytes))
    }

    fn place(&self) -> u64 {
        u64::try_from(self.bytes.len()).unwrap_or(u64::MAX)
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

    /// A place in the file, or a count. What does not fit was refused before.
    fn offset(&mut self, value: u64) {
        if self.form.is_big {
            self.long8(value);
        } else {
            self.long(u32::try_from(value).unwrap_or(u32::MAX));
        }
    }
}

/// What a page is: all but where its elements are.
struct Page {
    width: u32,
    height: u32,
    samples: u16,
    /// Bytes of a row.
    row_len: u64,
    bits: u16,
    sample_format: u16,
    is_rgb: bool,
}

impl Page {
    /// The page that the last axes of an image are, and the axes before them.
    fn of(image: &Image) -> Result<(Self, &[Axis])> {
        let (sample_format, len) = match image.number() {
            DType::Uint(len) => (1, len),
            DType::Int(len) => (2, len),
            DType::Float(len) => (3, len),
            DType::Complex(len @ (8 | 16)) => (6, len),
            _ => return Err(image.no_type("TIFF")),
        };
        let in_pixel = usize::from(image.is_interleaved());
        let (axes, pixel) = image.axes.split_at(image.axes.len().saturating_sub(in_pixel));
        let samples = pixel.first().map_or(1, |axis| axis.len);
        let samples = u16::try_from(samples)
            .map_err(|_| Error::unsupported("TIFF has fewer than 65536 samples in a pixel"))?;
        let (outer, plane) = axes.split_at(axes.len().saturating_sub(2));
        let (height, width) = match plane {
            [height, width] => (height.len, width.len),
            [width] => (1, width.len),
            _ => return Err(Error::unsupported("it has no dimensions")),
        };
        let long = |len: u64| {
            let short = u32::try_from(len).ok().filter(|len| i32::try_from(*len).is_ok());
            short.ok_or_else(|| {
                Error::unsupported("TIFF has pages of fewer than 2^31 rows and columns")
            })
        };
        let bits = u16::from(len).saturating_mul(8);
        let row_len = width.saturating_mul(u64::from(len)).saturating_mul(u64::from(samples));
        let (width, height) = (long(width)?, long(height)?);
        let is_rgb = matches!(samples, 3 | 4) && sample_format == 1 && len <= 2;
        Ok((Self { width, height, samples, row_len, bits, sample_format, is_rgb }, outer))
    }

    /// Bytes of a page.
    fn len(&self) -> u64 {
        self.row_len.saturating_mul(u64::from(self.height))
    }

    /// Rows of a strip, if strips should have up to so many bytes.
    fn rows_of(&self, strip_len: u64) -> u32 {
        let strip_len = strip_len.max(self.len() / MAX_STRIPS);
        let rows = (strip_len / self.row_len.max(1)).clamp(1, u64::from(self.height));
        u32::try_from(rows).unwrap_or(self.height)
    }

    fn entries(&self) -> Vec<Entry> {
        let samples = usize::from(self.samples);
        let color: u16 = if self.is_rgb { 3 } else { 1 };
        let mut entries = vec![
            (tag::IMAGE_WIDTH, Value::Long(vec![self.width])),
            (tag::IMAGE_LENGTH, Value::Long(vec![self.height])),
            (tag::BITS_PER_SAMPLE, Value::Short(vec![self.bits; samples])),
            (tag::COMPRESSION, Value::Short(vec![1])),
            // RGB, or black is zero.
            (tag::PHOTOMETRIC_INTERPRETATION, Value::Short(vec![if self.is_rgb { 2 } else { 1 }])),
            (tag::SAMPLES_PER_PIXEL, Value::Short(vec![self.samples])),
            (tag::SAMPLE_FORMAT, Value::Short(vec![self.sample_format; samples])),
        ];
        if self.samples > color {
            // The fourth of four is the opacity of the pixel, which is not multiplied with the colours.
            let kind = if self.is_rgb { 2 } else { 0 };
            let extra = usize::from(self.samples.saturating_sub(color));
            entries.push((tag::EXTRA_SAMPLES, Value::Short(vec![kind; extra])));
        }
        entries
    }

    /// Strips of `rows` that follow one another from `at` on.
    fn strips(&self, at: u64, rows: u32) -> Vec<Entry> {
        let strip_len = self.row_len.saturating_mul(u64::from(rows));
        let (mut offsets, mut counts) = (Vec::new(), Vec::new());
        let mut from = 0;
        while from < self.len() {
            offsets.push(at.saturating_add(from));
            counts.push(self.len().saturating_sub(from).min(strip_len));
            from = from.saturating_add(strip_len);
        }
        vec![
            (tag::STRIP_OFFSETS, Value::Offsets(offsets)),
            (tag::ROWS_PER_STRIP, Value::Long(vec![rows])),
            (tag::STRIP_BYTE_COUNTS, lens(counts)),
        ]
    }
}

/// Lengths, as short as they can be said.
fn lens(lens: Vec<u64>) -> Value {
    let short: Option<Vec<u32>> = lens.iter().map(|len| u32::try_from(*len).ok()).collect();
    short.map_or(Value::Offsets(lens), Value::Long)
}

/// Elements to a unit along x and y.
fn resolution(x: f64, y: f64, unit: u16) -> Vec<Entry> {
    let (Some(x), Some(y)) = (rational(x.recip()), rational(y.recip())) else { return Vec::new() };
    vec![
        (tag::X_RESOLUTION, x),
        (tag::Y_RESOLUTION, y),
        (tag::RESOLUTION_UNIT, Value::Short(vec![unit])),
    ]
}

/// A fraction near a number; none for one that is not above zero, or far too large.
fn rational(value: f64) -> Option<Value> {
    let fits = |denominator: &u32| value * f64::from(*denominator) < 4e9;
    let denominator = [1_000_000_000, 1_000_000, 1000, 1].into_iter().find(fits)?;
    let numerator = format!("{:.0}", value * f64::from(denominator)).parse().ok()?;
    (numerator > 0).then_some(Value::Rational(numerator, denominator))
}

/// What each axis before those of a page is, if there are no more than one of time, of channels and of space: those that
/// are not known take what is left. None where there are more.
fn stack(outer: &[Axis], has_samples: bool) -> Option<Vec<Option<Kind>>> {
    let known = |kind| outer.iter().any(|axis| axis.kind == Some(kind));
    let mut free = match outer.iter().filter(|axis| axis.len > 1).count() {
        0..=2 => vec![Kind::Z, Kind::Time, Kind::Channel],
        _ => vec![Kind::Z, Kind::Channel, Kind::Time],
    };
    free.retain(|kind| !known(*kind));
    free.retain(|kind| !has_samples || *kind != Kind::Channel);
    let mut free = free.into_iter();
    let mut kinds = Vec::new();
    for axis in outer.iter().rev() {
        kinds.push(if is_of_stack(axis) {
            axis.kind
        } else if axis.len == 1 {
            None
        } else {
            Some(free.next()?)
        });
    }
    kinds.reverse();
    Some(kinds)
}

fn is_of_stack(axis: &Axis) -> bool {
    matches!(axis.kind, Some(Kind::Time | Kind::Channel | Kind::Z))
}
