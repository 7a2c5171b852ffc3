//! `numcodecs.lz4` {acceleration}. Decoding does not need the configuration, and encoding ignores
//! it.
//!
//! ```text
//! +------------------------+-----------+
//! | decoded length, u32 le | LZ4 block |
//! +------------------------+-----------+
//! ```
//!
//! This is not the LZ4 frame format. Specification: numcodecs, and `lz4_Block_format.md` of LZ4.
//! Length: at most 0.4 % and 20 bytes more than decoded, at least a 255th of it; at most 0x7e000000
//! decoded bytes.

use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};

use super::stream::{too_long, unset};
use crate::json::Object;
use crate::kinds::BytesToBytes;
use zarrfs_base::error::{Error, Result};

/// The longest input that LZ4 takes.
const MAX_DECODED_LEN: u32 = 0x7e00_0000;

/// The length of the header, which is the decoded length.
const HEADER_LEN: usize = 4;

/// The codec `numcodecs.lz4`.
#[derive(Debug)]
pub struct Lz4;

impl Lz4 {
    /// Returns the codec, which has no configuration.
    pub fn new(_configuration: &Object) -> Result<Self> {
        Ok(Self)
    }
}

impl BytesToBytes for Lz4 {
    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        let len = u32::try_from(decoded.len())
            .ok()
            .filter(|len| *len <= MAX_DECODED_LEN)
            .ok_or_else(|| Error::too_large(format!("lz4: {} bytes to encode", decoded.len())))?;
        let mut encoded =
            unset("lz4", HEADER_LEN.saturating_add(get_maximum_output_size(decoded.len())))?;
        let block_len = match encoded.split_first_chunk_mut() {
            Some((header, block)) => {
                *header = len.to_le_bytes();
                compress_into(decoded, block).map_err(|e| Error::invalid(format!("lz4: {e}")))?
            }
            None => 0,
        };
        encoded.truncate(HEADER_LEN.saturating_add(block_len));
        Ok(encoded)
    }

    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>> {
        let Some((header, block)) = encoded.split_first_chunk::<HEADER_LEN>() else {
            let len = encoded.len();
            return Err(Error::corrupt(format!("lz4: {len} bytes are too few for a length")));
        };
        let declared = u32::from_le_bytes(*header);
        let len = usize::try_from(declared)
            .ok()
            .filter(|len| *len <= limit)
            .ok_or_else(|| too_long("lz4", limit))?;
        // Each byte of a block decodes to at most 255 bytes, and a token to a few more. A longer
        // declared length is an error before memory is allocated.
        if len > block.len().saturating_mul(255).saturating_add(32) {
            return Err(Error::corrupt(format!(
                "lz4: {} bytes cannot hold the {len} that are declared",
                block.len()
            )));
        }
        let mut decoded = unset("lz4", len)?;
        let actual = decompress_into(block, &mut decoded)
            .map_err(|error| Error::corrupt(format!("lz4: {error}")))?;
        if actual != len {
            return Err(Error::corrupt(format!("lz4: {actual} bytes decoded, {len} declared")));
        }
        Ok(decoded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_is_little_endian_and_the_block_bare() {
        let encoded = [8, 0, 0, 0, 0x80, b'a', b'b', b'c', b'd', b'e', b'f', b'g', b'h'];
        assert_eq!(Lz4.decode(&encoded, 8).unwrap(), b"abcdefgh");
        assert_eq!(Lz4.encode(b"abcdefgh").unwrap(), encoded);
        assert_eq!(Lz4.decode(&[0, 0, 0, 0, 0], 0).unwrap(), b"");
    }

    #[test]
    fn the_declared_length_must_be_the_actual_one_and_within_the_limit() {
        let mut encoded = Lz4.encode(&[3; 1000]).unwrap();
        assert!(Lz4.decode(&encoded, 999).is_err());
        encoded[..2].copy_from_slice(&999_u16.to_le_bytes());
        assert!(Lz4.decode(&encoded, 2000).is_err());
        encoded[..2].copy_from_slice(&1001_u16.to_le_bytes());
        let error = Lz4.decode(&encoded, 2000).unwrap_err();
        assert_eq!(error.detail(), "lz4: 1000 bytes decoded, 1001 declared");
    }

    #[test]
    fn a_length_that_no_block_of_that_size_has_is_refused_before_it_is_allocated() {
        let error = Lz4.decode(&[0xff, 0xff, 0xff, 0x7f, 0], usize::MAX).unwrap_err();
        assert_eq!(error.detail(), "lz4: 1 bytes cannot hold the 2147483647 that are declared");
    }
}
