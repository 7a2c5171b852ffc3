//! `numcodecs.base64` {}: the payload as text in the standard alphabet, padded.
//!
//! Decoding skips line breaks and blanks. Length: four bytes for each three, rounded up.
//!
//! <https://numcodecs.readthedocs.io/en/stable/other/base64.html>, RFC 4648, section 4.

use super::stream::too_long;
use crate::dtype::{base64_decode, base64_encode};
use crate::kinds::BytesToBytes;
use zarrfs_base::error::{Error, Result};

/// The codec `numcodecs.base64`.
#[derive(Debug)]
pub struct Base64;

impl BytesToBytes for Base64 {
    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        Ok(base64_encode(decoded).into_bytes())
    }

    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>> {
        let wrong = || Error::corrupt("base64: invalid character");
        let text = str::from_utf8(encoded).map_err(|_| wrong())?;
        let has_blanks = text.bytes().any(|byte| byte.is_ascii_whitespace());
        let decoded = if has_blanks {
            base64_decode(&text.replace(|c: char| c.is_ascii_whitespace(), ""))
        } else {
            base64_decode(text)
        };
        let decoded = decoded.ok_or_else(wrong)?;
        if decoded.len() > limit {
            return Err(too_long("base64", limit));
        }
        Ok(decoded)
    }

    fn encoded_len(&self, decoded_len: u64) -> Option<u64> {
        decoded_len.div_ceil(3).checked_mul(4)
    }
}
