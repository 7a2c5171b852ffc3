//! `imagecodecs_deflate` and `imagecodecs_isal` with `raw`, and `imagecodecs_zopfli` with format 2:
//! one stream of deflate without a header.
//!
//! Specification: RFC 1951. Length: as that of zlib, less 6 bytes. Bytes after the stream are an
//! error. imagecodecs writes such chunks, but reads only those of `imagecodecs_isal`.

use flate2::Decompress;

use super::deflate::{DeflateContainer, encode_whole};
use super::stream::{decode_one, room_to_decode};
use super::zlib::Inflate;
use crate::clock::Clock;
use crate::kinds::BytesToBytes;
use zarrfs_base::error::{Error, Result};

const NAME: &str = "deflate";

/// The codec.
#[derive(Debug)]
pub struct RawDeflate {
    level: i32,
}

impl RawDeflate {
    /// Returns the codec with a level of 0 to 9.
    pub fn new(level: i32) -> Self {
        Self { level }
    }
}

impl BytesToBytes for RawDeflate {
    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        encode_whole(DeflateContainer::Raw, self.level, decoded)
    }

    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>> {
        let mut output = room_to_decode(NAME, encoded.len(), limit)?;
        let mut decompress = Decompress::new(false);
        let mut inflate = Inflate { codec: NAME, decompress: &mut decompress };
        let used = decode_one(NAME, &mut inflate, encoded, &mut output, limit, Clock::start())?;
        if used != encoded.len() {
            let surplus = encoded.len().saturating_sub(used);
            return Err(Error::corrupt(format!("{NAME}: {surplus} bytes follow the stream")));
        }
        Ok(output)
    }
}
