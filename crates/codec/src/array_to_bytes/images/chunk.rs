//! The chunk that an image holds, and the trait that each format implements.

use std::fmt;

use crate::dtype::DType;
use crate::elements::ChunkType;
use zarrfs_base::error::{Error, Fault, Result};

/// A format of images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageFormat {
    /// JPEG: 8 bits, with loss.
    Jpeg,
    /// JPEG 2000.
    Jpeg2000,
    /// JPEG XL.
    JpegXl,
    /// PNG.
    Png,
    /// QOI.
    Qoi,
    /// WebP.
    WebP,
}

impl ImageFormat {
    /// Returns its name in messages, which is that of its codec without the name of the library.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Jpeg => "jpeg",
            Self::Jpeg2000 => "jpeg2k",
            Self::JpegXl => "jpegxl",
            Self::Png => "png",
            Self::Qoi => "qoi",
            Self::WebP => "webp",
        }
    }
}

/// The decoder and the encoder of one format, with their configuration.
pub(super) trait ImageCoder: Send + Sync + fmt::Debug {
    /// Returns the samples of an image that has the shape and the type of `chunk`.
    fn decode(&self, encoded: &[u8], chunk: &ImageChunk) -> Result<Vec<u8>>;

    /// Returns the image of the elements of `chunk`.
    fn encode(&self, decoded: &[u8], chunk: &ImageChunk) -> Result<Vec<u8>> {
        let _ = decoded;
        let format = chunk.format.name();
        Err(Error::unsupported(format!("{format}: zarrfs reads these images and writes none")))
    }
}

/// The elements that an image holds.
#[derive(Debug)]
pub(super) struct ImageChunk {
    pub(super) format: ImageFormat,
    pub(super) elements: ChunkType,
    /// The length of all elements in bytes.
    pub(super) len: usize,
    /// The samples of a pixel, if the rows and columns of the image mean nothing.
    pub(super) flat_samples: Option<u64>,
}

/// The size of an image.
#[derive(Debug, Clone, Copy)]
pub(super) struct ImageSize {
    pub(super) frames: u64,
    pub(super) rows: u64,
    pub(super) columns: u64,
    pub(super) samples: u64,
    /// Whether the samples of each kind are together, and not those of each pixel.
    pub(super) is_planar: bool,
}

impl ImageSize {
    /// Returns the size of an image of one frame whose pixels are together.
    pub(super) fn new(columns: u32, rows: u32, samples: usize) -> Self {
        let samples = u64::try_from(samples).unwrap_or(u64::MAX);
        Self { frames: 1, rows: rows.into(), columns: columns.into(), samples, is_planar: false }
    }

    /// Returns the extents of the samples in the order that a decoder returns them.
    fn shape(&self) -> [u64; 4] {
        if self.is_planar {
            return [self.frames, self.samples, self.rows, self.columns];
        }
        [self.frames, self.rows, self.columns, self.samples]
    }
}

impl ImageChunk {
    /// Returns an error unless an image of this size and type is a chunk: each dimension of the
    /// image is one dimension of the chunk, or several in a row. Those of length 1 do not count.
    pub(super) fn check(&self, size: ImageSize, dtype: &DType) -> Result<()> {
        let format = self.format.name();
        let shape = size.shape();
        if *dtype != self.elements.dtype {
            return Err(Error::corrupt(format!(
                "{format}: an image of {}, the chunk needs {}",
                dtype.name(),
                self.elements.dtype.name()
            )));
        }
        if let Some(samples) = self.flat_samples {
            return self.check_flat(size, samples);
        }
        let mut rest = self.elements.shape.iter().filter(|len| **len != 1);
        let is_run = |image: u64| {
            let mut len = 1_u64;
            while len < image {
                len = match rest.next() {
                    Some(next) => len.saturating_mul(*next),
                    None => return false,
                };
            }
            len == image
        };
        let is_same = shape.into_iter().all(is_run) && rest.next().is_none();
        if is_same && !self.elements.shape.contains(&0) {
            return Ok(());
        }
        let shape: Vec<u64> = shape.into_iter().filter(|len| *len != 1).collect();
        let detail = format!(
            "{format}: an image of shape {shape:?}, the chunk needs {:?}",
            self.elements.shape
        );
        Err(Error::fault(Fault::Length, detail))
    }

    /// Returns an error unless an image has these samples and the pixels of a chunk, in rows of any
    /// length.
    fn check_flat(&self, size: ImageSize, samples: u64) -> Result<()> {
        let count = |lens: &[u64]| lens.iter().try_fold(1_u64, |all, len| all.checked_mul(*len));
        let is_chunk = count(&size.shape()) == count(&self.elements.shape) && !size.is_planar;
        if is_chunk && size.samples == samples && size.frames == 1 {
            return Ok(());
        }
        let detail = format!(
            "{}: an image of {} rows and {} columns with {} samples, the chunk needs {:?} with \
             {samples}",
            self.format.name(),
            size.rows,
            size.columns,
            size.samples,
            self.elements.shape
        );
        Err(Error::fault(Fault::Length, detail))
    }

    /// Returns the size of the image that imagecodecs writes for a chunk, with at most `most`
    /// samples in a pixel. It takes a third dimension for the samples.
    pub(super) fn size(&self, most: u64) -> Result<ImageSize> {
        let long: Vec<u64> = self.elements.shape.iter().copied().filter(|len| *len != 1).collect();
        let (rows, columns, samples) = match *long.as_slice() {
            [] => (1, 1, 1),
            [columns] => (1, columns, 1),
            [rows, columns] => (rows, columns, 1),
            [rows, columns, samples] if samples <= most => (rows, columns, samples),
            _ => (0, 0, 0),
        };
        let fits = |len: u64| len > 0 && u32::try_from(len).is_ok();
        if fits(rows) && fits(columns) {
            return Ok(ImageSize { frames: 1, rows, columns, samples, is_planar: false });
        }
        Err(Error::unsupported(format!(
            "{}: a chunk of shape {:?} is no image of at most {most} samples",
            self.format.name(),
            self.elements.shape
        )))
    }

    /// Returns an error about damaged bytes.
    pub(super) fn damaged(&self, reason: impl fmt::Display) -> Error {
        Error::corrupt(format!("{}: {reason}", self.format.name()))
    }
}
