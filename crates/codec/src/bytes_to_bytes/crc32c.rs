//! `crc32c` {}: the payload, then its CRC-32C (Castagnoli) as u32 little endian.
//!
//! Specification: <https://zarr-specs.readthedocs.io/en/latest/v3/codecs/crc32c/>, RFC 3720.
//! Length: 4 bytes more.

use super::stream::{room, too_long};
use crate::json::Object;
use crate::kinds::BytesToBytes;
use zarrfs_base::error::{Error, Fault, Result};

/// The length of the checksum.
const CHECKSUM_LEN: u64 = 4;

/// The codec `crc32c`.
#[derive(Debug)]
pub struct Crc32c;

impl Crc32c {
    /// Returns the codec, which has no configuration.
    pub fn new(_configuration: &Object) -> Result<Self> {
        Ok(Self)
    }
}

impl BytesToBytes for Crc32c {
    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        let checksum = crc32c::crc32c(decoded).to_le_bytes();
        let mut encoded = room("crc32c", decoded.len().saturating_add(checksum.len()))?;
        encoded.extend_from_slice(decoded);
        encoded.extend_from_slice(&checksum);
        Ok(encoded)
    }

    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>> {
        let Some((payload, checksum)) = encoded.split_last_chunk() else {
            let len = encoded.len();
            return Err(Error::fault(
                Fault::Length,
                format!("crc32c: {len} bytes are too few for a checksum"),
            ));
        };
        if payload.len() > limit {
            return Err(too_long("crc32c", limit));
        }
        let (stored, actual) = (u32::from_le_bytes(*checksum), crc32c::crc32c(payload));
        if stored != actual {
            return Err(Error::fault(
                Fault::Checksum,
                format!("crc32c: checksum {stored:#010x} stored, {actual:#010x} computed"),
            ));
        }
        Ok(payload.to_vec())
    }

    fn encoded_len(&self, decoded_len: u64) -> Option<u64> {
        decoded_len.checked_add(CHECKSUM_LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_specification() {
        // RFC 3720, B.4: 32 bytes of zeros.
        let encoded = Crc32c.encode(&[0; 32]).unwrap();
        assert_eq!(encoded[32..], [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(Crc32c.encoded_len(32), Some(36));
        assert_eq!(Crc32c.decode(&encoded, 32).unwrap(), [0; 32]);
    }

    #[test]
    fn a_mismatch_names_both_checksums() {
        let mut encoded = Crc32c.encode(&[0; 32]).unwrap();
        encoded[35] = 0;
        let error = Crc32c.decode(&encoded, 32).unwrap_err();
        assert_eq!(error.detail(), "crc32c: checksum 0x009136aa stored, 0x8a9136aa computed");
    }

    #[test]
    fn a_payload_over_the_limit_is_an_error() {
        assert!(Crc32c.decode(&Crc32c.encode(&[0; 32]).unwrap(), 31).is_err());
        assert!(Crc32c.decode(&[1, 2, 3], 31).is_err());
    }
}
