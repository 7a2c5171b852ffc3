//! Codecs from bytes to bytes, one file each.
//!
//! The rows of [`table`](super::table) build them. A decoder here keeps three rules: it never
//! produces more than its limit, it never allocates a length only because the encoded bytes declare
//! it, and no input makes it panic.

mod base64;
mod blosc;
mod bz2;
mod checksum;
mod conditional;
mod crc32c;
mod deflate;
mod gzip;
mod lookup3;
mod lz4;
mod lz4_block_stream;
mod lzma;
mod lzw;
mod shuffle;
mod stream;
mod zlib;
mod zstd;

pub use base64::Base64;
pub use blosc::Blosc;
pub use bz2::Bz2;
pub use checksum::Checksum;
pub use conditional::Conditional;
pub use crc32c::Crc32c;
pub use gzip::Gzip;
pub use lookup3::lookup3;
pub use lz4::Lz4;
pub use lz4_block_stream::Lz4BlockStream;
pub use lzma::Lzma;
pub use lzw::Lzw;
pub use shuffle::Shuffle;
pub use zlib::Zlib;
pub use zstd::Zstd;

#[cfg(test)]
mod tests;
