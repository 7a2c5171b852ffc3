//! The pages of a TIFF file: planes of an image, stacked along the other axes.

use super::directory::{TiffEntry, TiffValue, lens, tag};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::view::image::{Axis, AxisKind, Image};

/// The most strips of a page.
const MAX_STRIPS: u64 = 1 << 16;

/// The properties of a page, without the offsets of its elements.
pub(super) struct TiffPage {
    pub width: u32,
    pub height: u32,
    pub samples: u16,
    /// The length of a row in bytes.
    pub row_len: u64,
    bits: u16,
    sample_format: u16,
    is_rgb: bool,
}

impl TiffPage {
    /// Returns the page in the last axes of an image, and the axes before them.
    pub fn of(image: &Image) -> Result<(Self, &[Axis])> {
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

    /// Returns the length of a page in bytes.
    pub fn len(&self) -> u64 {
        self.row_len.saturating_mul(u64::from(self.height))
    }

    /// Returns the number of rows in a strip of at most `strip_len` bytes.
    pub fn rows_of(&self, strip_len: u64) -> u32 {
        let strip_len = strip_len.max(self.len() / MAX_STRIPS);
        let rows = (strip_len / self.row_len.max(1)).clamp(1, u64::from(self.height));
        u32::try_from(rows).unwrap_or(self.height)
    }

    pub fn entries(&self) -> Vec<TiffEntry> {
        let samples = usize::from(self.samples);
        let color: u16 = if self.is_rgb { 3 } else { 1 };
        let mut entries = vec![
            (tag::IMAGE_WIDTH, TiffValue::Long(vec![self.width])),
            (tag::IMAGE_LENGTH, TiffValue::Long(vec![self.height])),
            (tag::BITS_PER_SAMPLE, TiffValue::Short(vec![self.bits; samples])),
            (tag::COMPRESSION, TiffValue::Short(vec![1])),
            // 2 means RGB, 1 that black is zero.
            (
                tag::PHOTOMETRIC_INTERPRETATION,
                TiffValue::Short(vec![if self.is_rgb { 2 } else { 1 }]),
            ),
            (tag::SAMPLES_PER_PIXEL, TiffValue::Short(vec![self.samples])),
            (tag::SAMPLE_FORMAT, TiffValue::Short(vec![self.sample_format; samples])),
        ];
        if self.samples > color {
            // The fourth sample is the opacity of the pixel, not multiplied with the colours.
            let kind = if self.is_rgb { 2 } else { 0 };
            let extra = usize::from(self.samples.saturating_sub(color));
            entries.push((tag::EXTRA_SAMPLES, TiffValue::Short(vec![kind; extra])));
        }
        entries
    }

    /// Returns the entries for consecutive strips of `rows` rows, from `at` on.
    pub fn strips(&self, at: u64, rows: u32) -> Vec<TiffEntry> {
        let strip_len = self.row_len.saturating_mul(u64::from(rows));
        let (mut offsets, mut counts) = (Vec::new(), Vec::new());
        let mut from = 0;
        while from < self.len() {
            offsets.push(at.saturating_add(from));
            counts.push(self.len().saturating_sub(from).min(strip_len));
            from = from.saturating_add(strip_len);
        }
        vec![
            (tag::STRIP_OFFSETS, TiffValue::Offsets(offsets)),
            (tag::ROWS_PER_STRIP, TiffValue::Long(vec![rows])),
            (tag::STRIP_BYTE_COUNTS, lens(counts)),
        ]
    }
}

/// Returns the meaning of each axis outside of a page, if there is at most one of time, one of
/// channels and one of space; unknown axes take the remaining ones. `None` if there are more.
pub(super) fn stack(outer: &[Axis], has_samples: bool) -> Option<Vec<Option<AxisKind>>> {
    let known = |kind| outer.iter().any(|axis| axis.kind == Some(kind));
    let mut free = match outer.iter().filter(|axis| axis.len > 1).count() {
        0..=2 => vec![AxisKind::Z, AxisKind::Time, AxisKind::Channel],
        _ => vec![AxisKind::Z, AxisKind::Channel, AxisKind::Time],
    };
    free.retain(|kind| !known(*kind));
    free.retain(|kind| !has_samples || *kind != AxisKind::Channel);
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
    matches!(axis.kind, Some(AxisKind::Time | AxisKind::Channel | AxisKind::Z))
}
