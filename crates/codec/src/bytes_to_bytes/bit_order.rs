//! `imagecodecs_bitorder` {}: each byte with its bits in reverse. Length: the same.

use super::stream::{room, too_long};
use crate::kinds::BytesToBytes;
use zarrfs_base::error::Result;

const NAME: &str = "imagecodecs_bitorder";

/// The codec.
#[derive(Debug)]
pub struct BitOrder;

impl BytesToBytes for BitOrder {
    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        self.decode(decoded, decoded.len())
    }

    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>> {
        if encoded.len() > limit {
            return Err(too_long(NAME, limit));
        }
        let mut decoded = room(NAME, encoded.len())?;
        decoded.extend(encoded.iter().map(|byte| byte.reverse_bits()));
        Ok(decoded)
    }

    fn encoded_len(&self, decoded_len: u64) -> Option<u64> {
        Some(decoded_len)
    }
}
