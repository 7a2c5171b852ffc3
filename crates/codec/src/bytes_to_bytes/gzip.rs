//! `gzip` {level 0..=9, default 1}, also `numcodecs.gzip`: one or more consecutive gzip members.
//!
//! Specification: <https://zarr-specs.readthedocs.io/en/latest/v3/codecs/gzip/>, RFC 1952. Length:
//! at most 0.1 % and 29 bytes more than decoded, at least a thousandth of it.
//!
//! As in Python's gzip, zeros between and after members are skipped, and any other bytes are an
//! error. The encoder writes one member without a time, so that equal chunks have equal bytes.

use flate2::Decompress;

use super::deflate::{DeflateContainer, decode_whole, encode_whole};
use super::stream::{decode_one, room_to_decode};
use super::zlib::Inflate;
use crate::clock::Clock;
use crate::configuration::count;
use crate::json::Object;
use crate::kinds::BytesToBytes;
use zarrfs_base::error::{Error, Result};

/// The largest window of the format, as a power of two.
const WINDOW_BITS: u8 = 15;

/// The first bytes of a member.
const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The codec `gzip`.
#[derive(Debug)]
pub struct Gzip {
    level: i32,
}

impl Gzip {
    /// Returns the codec with this configuration.
    pub fn new(configuration: &Object) -> Result<Self> {
        let level = count("gzip", configuration, "level", 1, 0..=9)?;
        Ok(Self { level: i32::try_from(level).unwrap_or(1) })
    }
}

impl BytesToBytes for Gzip {
    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        encode_whole(DeflateContainer::Gzip, self.level, decoded)
    }

    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>> {
        if let Some(decoded) = decode_whole(DeflateContainer::Gzip, encoded, limit) {
            return Ok(decoded);
        }
        let mut output = room_to_decode("gzip", encoded.len(), limit)?;
        let mut rest = encoded;
        let clock = Clock::start();
        loop {
            if !rest.starts_with(&MAGIC) {
                let at = encoded.len().saturating_sub(rest.len());
                return Err(Error::corrupt(format!("gzip: no member at offset {at}")));
            }
            let mut decompress = Decompress::new_gzip(WINDOW_BITS);
            let mut inflate = Inflate { codec: "gzip", decompress: &mut decompress };
            let used = decode_one("gzip", &mut inflate, rest, &mut output, limit, clock)?;
            rest = rest.get(used..).unwrap_or_default();
            match rest.iter().position(|byte| *byte != 0) {
                Some(padding_len) => rest = rest.get(padding_len..).unwrap_or_default(),
                None => return Ok(output),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codec() -> Gzip {
        Gzip::new(&Object::new()).unwrap()
    }

    #[test]
    fn members_in_a_row_are_joined_and_zeros_between_and_after_them_skipped() {
        let mut encoded = codec().encode(b"abc").unwrap();
        encoded.extend([0; 3]);
        encoded.extend(codec().encode(b"").unwrap());
        encoded.extend(codec().encode(b"def").unwrap());
        encoded.extend([0; 512]);
        assert_eq!(codec().decode(&encoded, 6).unwrap(), b"abcdef");
        assert!(codec().decode(&encoded, 5).is_err());
    }

    #[test]
    fn bytes_that_are_no_member_are_an_error() {
        let mut encoded = codec().encode(b"abc").unwrap();
        let len = encoded.len();
        encoded.extend(b"\0\0more");
        let error = codec().decode(&encoded, 100).unwrap_err();
        assert_eq!(error.detail(), format!("gzip: no member at offset {}", len + 2));
        assert!(codec().decode(b"\0\0", 100).is_err());
    }

    #[test]
    fn the_checksum_and_the_length_in_the_trailer_are_checked() {
        let encoded = codec().encode(b"abc").unwrap();
        for back in [1, 8] {
            let mut encoded = encoded.clone();
            let at = encoded.len() - back;
            encoded[at] ^= 1;
            assert!(codec().decode(&encoded, 3).is_err(), "byte {back} from the end");
        }
    }

    #[test]
    fn the_header_has_no_time() {
        assert_eq!(codec().encode(b"abc").unwrap()[4..8], [0; 4]);
    }
}
