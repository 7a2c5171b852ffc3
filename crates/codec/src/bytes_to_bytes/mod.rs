//! Codecs from bytes to bytes, one file each.
//!
//! The rows of [`table`](super::table) build them. A decoder here keeps three rules: it never
//! produces more than its limit, it never allocates a length only because the encoded bytes declare
//! it, and no input makes it panic.

mod base64;
mod bit_order;
mod bit_planes;
mod blosc;
mod brotli;
mod byte_planes;
mod bz2;
mod checksum;
mod conditional;
mod crc32c;
mod deflate;
mod gzip;
mod hdf5_bitshuffle;
#[cfg(feature = "hdf5")]
mod hdf5_filter;
pub mod imagecodecs;
mod items;
mod lookup3;
mod lz4;
mod lz4_block_stream;
mod lz4_frame;
mod lz4_hdf5;
mod lz4_raw;
mod lzf;
mod lzma;
mod lzw;
mod neighbours;
mod raw_deflate;
mod run_lengths;
mod short_floats;
mod shuffle;
mod snappy;
mod stream;
mod zlib;
mod zstd;

pub use base64::Base64;
pub use bit_order::BitOrder;
pub use bit_planes::BitPlanes;
pub use blosc::Blosc;
pub use brotli::Brotli;
pub use byte_planes::BytePlanes;
pub use bz2::Bz2;
pub use checksum::Checksum;
pub use conditional::Conditional;
pub use crc32c::Crc32c;
pub use gzip::Gzip;
pub use hdf5_bitshuffle::Hdf5Bitshuffle;
#[cfg(feature = "hdf5")]
pub use hdf5_filter::Hdf5Filter;
pub use items::Items;
pub use lookup3::lookup3;
pub use lz4::Lz4;
pub use lz4_block_stream::Lz4BlockStream;
pub use lz4_frame::Lz4Frame;
pub use lz4_hdf5::Lz4Hdf5;
pub use lz4_raw::Lz4Raw;
pub use lzf::Lzf;
pub use lzma::Lzma;
pub use lzw::Lzw;
pub use neighbours::Neighbours;
pub use run_lengths::RunLengths;
pub use short_floats::ShortFloats;
pub use shuffle::Shuffle;
pub use snappy::Snappy;
pub use zlib::Zlib;
pub use zstd::Zstd;

#[cfg(test)]
mod tests;
