//! Codecs from array to bytes, one file each. The rows of [`table`](super::table) build them.

mod any_bytes;
mod bytes;
mod compressed_segmentation;
mod flac;
#[cfg(feature = "grib")]
mod grib;
#[cfg(feature = "images")]
mod images;
mod n5;
mod objects;
mod of_bytes;
mod packbits;
mod pcodec;
#[cfg(test)]
mod tests;
mod vlen;
mod wavpack;
pub mod zfp;

pub use any_bytes::AnyBytes;
pub use bytes::{ByteSwap, BytesCodec};
pub use compressed_segmentation::CompressedSegmentation;
pub use flac::Flac;
#[cfg(feature = "grib")]
pub use grib::Grib;
#[cfg(feature = "images")]
pub use images::{ImageCodec, ImageFormat};
pub use n5::N5Default;
pub use objects::Objects;
pub use of_bytes::OfBytes;
pub use packbits::PackBits;
pub use pcodec::Pcodec;
pub use vlen::Vlen;
pub use wavpack::WavPack;
