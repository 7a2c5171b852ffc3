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
//! The rows of an image of Neuroglancer have any length: the pixels follow each other as the
//! elements of a chunk do. Such a codec has a member `flat_samples`, which is the number of samples
//! of a pixel and no member of imagecodecs.
//!
//! The header of an image says how large it is, so a decoder may allocate gigabytes for a few
//! bytes. Each file here parses the header first. `ImageChunk::check` compares it with the chunk.
//!
//! <https://github.com/cgohlke/imagecodecs>,
//! <https://github.com/zarr-developers/zarr-extensions/pull/66>

mod chunk;
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

use bytes::Bytes;
use serde_json::Value;

pub use self::chunk::ImageFormat;
use self::chunk::{ImageChunk, ImageCoder};
use crate::dtype::DType;
use crate::elements::ChunkType;
use crate::json::Object;
use crate::kinds::ArrayToBytes;
use zarrfs_base::buffer::Buffer;
use zarrfs_base::error::{Error, Fault, Result};

/// A codec whose encoded chunks are images, bound to a shape and a type.
#[derive(Debug)]
pub struct ImageCodec {
    chunk: ImageChunk,
    coder: Box<dyn ImageCoder>,
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
        let flat_samples = configuration.get("flat_samples").and_then(Value::as_u64);
        let chunk = ImageChunk { format, elements: elements.clone(), len, flat_samples };
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
