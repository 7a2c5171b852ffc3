//! `imagecodecs_png`, `jpeg`, `jpegxl`, ..: the elements as the pixels of an image.
//!
//! The names are those of imagecodecs, a library for Python, and of the registry of extensions. All
//! formats have the same layout. imagecodecs removes the dimensions of length 1 of a chunk, and the
//! rest are the rows, the columns and, if there is a third, the samples of each pixel. JPEG XL may
//! have frames before them. A decoder returns the samples in this order, and the shape of the chunk
//! divides them:
//!
//! ```text
//! chunk (1, 64, 64, 3):   frames 1 · rows 64 · columns 64 · samples 3
//! ```
//!
//! The header of an image says how large it is, so a decoder may allocate gigabytes for a few
//! bytes. Each file here parses the header first. [`ImageChunk::check`] compares it with the chunk.
//!
//! <https://github.com/cgohlke/imagecodecs>,
//! <https://github.com/zarr-developers/zarr-extensions/pull/66>

mod jpeg;
#[cfg(feature = "jpeg2000")]
mod jpeg2000;
#[cfg(feature = "jpegxl")]
mod jpegxl;
mod png;
mod qoi;
#[cfg(test)]
mod tests;
mod webp;

use std::fmt;

use bytes::Bytes;

use crate::dtype::DType;
use crate::elements::ChunkType;
use crate::json::Object;
use crate::kinds::ArrayToBytes;
use zarrfs_base::buffer::Buffer;
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
    fn name(self) -> &'static str {
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

/// A codec whose encoded chunks are images, bound to a shape and a type.
#[derive(Debug)]
pub struct ImageCodec {
    chunk: ImageChunk,
    coder: Box<dyn ImageCoder>,
}

/// The decoder and the encoder of one format, with their configuration.
trait ImageCoder: Send + Sync + fmt::Debug {
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
struct ImageChunk {
    format: ImageFormat,
    elements: ChunkType,
    /// The length of all elements in bytes.
    len: usize,
}

/// The size of an image.
#[derive(Debug, Clone, Copy)]
struct ImageSize {
    frames: u64,
    rows: u64,
    columns: u64,
    samples: u64,
    /// Whether the samples of each kind are together, and not those of each pixel.
    is_planar: bool,
}

impl ImageSize {
    /// Returns the size of an image of one frame whose pixels are together.
    fn new(columns: u32, rows: u32, samples: usize) -> Self {
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

impl ImageCodec {
    /// Returns the codec of `format` with this configuration, for chunks of `elements`.
    pub fn build(
        format: ImageFormat,
        configuration: &Object,
        elements: &ChunkType,
    ) -> Result<Box<dyn ArrayToBytes>> {
        let name = format.name();
        let is_held = match &elements.dtype {
            DType::Uint(1 | 2) => true,
            DType::Int(1 | 2) => format == ImageFormat::Jpeg2000,
            DType::Float(2 | 4) => format == ImageFormat::JpegXl,
            _ => false,
        };
        let is_bytes = matches!(format, ImageFormat::Jpeg | ImageFormat::Qoi | ImageFormat::WebP);
        if !is_held || (is_bytes && elements.dtype != DType::Uint(1)) {
            let dtype = elements.dtype.name();
            return Err(Error::unsupported(format!("{name}: images have no samples of {dtype}")));
        }
        let len = elements.byte_len()?.unwrap_or_default();
        let coder = coder(format, configuration)?;
        let chunk = ImageChunk { format, elements: elements.clone(), len };
        Ok(Box::new(Self { chunk, coder }))
    }
}

fn coder(format: ImageFormat, configuration: &Object) -> Result<Box<dyn ImageCoder>> {
    Ok(match format {
        ImageFormat::Jpeg => Box::new(jpeg::Jpeg::new(configuration)?),
        #[cfg(feature = "jpeg2000")]
        ImageFormat::Jpeg2000 => Box::new(jpeg2000::Jpeg2000::new(configuration)?),
        #[cfg(feature = "jpegxl")]
        ImageFormat::JpegXl => Box::new(jpegxl::JpegXl::new(configuration)?),
        ImageFormat::Png => Box::new(png::Png::new(configuration)?),
        ImageFormat::Qoi => Box::new(qoi::Qoi),
        ImageFormat::WebP => Box::new(webp::WebP::new(configuration)?),
        #[cfg(not(feature = "jpeg2000"))]
        ImageFormat::Jpeg2000 => return Err(without(format, "jpeg2000")),
        #[cfg(not(feature = "jpegxl"))]
        ImageFormat::JpegXl => return Err(without(format, "jpegxl")),
    })
}

#[cfg(not(all(feature = "jpeg2000", feature = "jpegxl")))]
fn without(format: ImageFormat, feature: &str) -> Error {
    let name = format.name();
    Error::unsupported(format!("{name}: this zarrfs was built without the feature {feature}"))
}

impl ImageChunk {
    /// Returns an error unless an image of this size and type is a chunk: each dimension of the
    /// image is one dimension of the chunk, or several in a row. Those of length 1 do not count.
    fn check(&self, size: ImageSize, dtype: &DType) -> Result<()> {
        let format = self.format.name();
        let shape = size.shape();
        if *dtype != self.elements.dtype {
            return Err(Error::corrupt(format!(
                "{format}: an image of {}, the chunk needs {}",
                dtype.name(),
                self.elements.dtype.name()
            )));
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

    /// Returns the size of the image that imagecodecs writes for a chunk, with at most `most`
    /// samples in a pixel. It takes a third dimension for the samples.
    fn size(&self, most: u64) -> Result<ImageSize> {
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
    fn damaged(&self, reason: impl fmt::Display) -> Error {
        Error::corrupt(format!("{}: {reason}", self.format.name()))
    }
}

impl ArrayToBytes for ImageCodec {
    fn encode(&self, decoded: Buffer, _extent: &[u64]) -> Result<Bytes> {
        self.coder.encode(&decoded, &self.chunk).map(Bytes::from)
    }

    fn decode(&self, encoded: Bytes) -> Result<Buffer> {
        let decoded = self.coder.decode(&encoded, &self.chunk)?;
        if decoded.len() != self.chunk.len {
            let (len, needed) = (decoded.len(), self.chunk.len);
            let detail = format!("{len} bytes decoded, the chunk needs {needed}");
            return Err(Error::fault(Fault::Length, detail));
        }
        Ok(decoded.into())
    }

    fn encoded_len(&self) -> Option<u64> {
        None
    }
}
