//! Codecs from bytes to bytes, one file each, and the one table of their names.
//!
//! The registry of codecs asks [`build`] for one. A decoder here keeps three rules:
//! it never produces more than its limit, it never allocates what the encoded bytes merely
//! declare, and there are no bytes on which it panics.

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
pub use shuffle::Shuffle;
pub use zlib::Zlib;
pub use zstd::Zstd;

use super::BytesToBytes;
use crate::error::Result;
use crate::metadata::model::Object;

/// The codec of that registered name; `None` is not an error, but a name of another kind of codec
/// or of one that zarrfs does not have.
pub fn build(name: &str, configuration: &Object) -> Result<Option<Box<dyn BytesToBytes>>> {
    let codec: Box<dyn BytesToBytes> = match name {
        "blosc" | "numcodecs.blosc" => Box::new(Blosc::new(configuration)?),
        "conditional" => Box::new(Conditional::new(configuration)?),
        // As an id of numcodecs it may have a location.
        "crc32c" if !configuration.contains_key("location") => {
            Box::new(Crc32c::new(configuration)?)
        }
        "crc32c" | "numcodecs.crc32c" => Box::new(Checksum::crc32c(configuration)?),
        "gzip" | "numcodecs.gzip" => Box::new(Gzip::new(configuration)?),
        "numcodecs.adler32" => Box::new(Checksum::adler32(configuration)?),
        "numcodecs.base64" => Box::new(Base64),
        "numcodecs.bz2" => Box::new(Bz2::new(configuration)?),
        "numcodecs.crc32" => Box::new(Checksum::crc32(configuration)?),
        "numcodecs.fletcher32" => Box::new(Checksum::fletcher32()),
        "numcodecs.jenkins_lookup3" => Box::new(Checksum::lookup3(configuration)?),
        "lz4_block_stream" => Box::new(Lz4BlockStream::new(configuration)?),
        "numcodecs.lz4" => Box::new(Lz4::new(configuration)?),
        "numcodecs.lzma" => Box::new(Lzma::new(configuration)?),
        "shuffle" | "numcodecs.shuffle" => Box::new(Shuffle::new(configuration)?),
        "numcodecs.zlib" => Box::new(Zlib::new(configuration)?),
        "zstd" | "numcodecs.zstd" => Box::new(Zstd::new(configuration)?),
        _ => return Ok(None),
    };
    Ok(Some(codec))
}

#[cfg(test)]
mod tests;
