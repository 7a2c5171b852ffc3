//! `imagecodecs_lz4` {header?, level?, hc?} without a header: one block of LZ4. With a header it is
//! [`Lz4`](super::Lz4).
//!
//! The length is that of the chunk: a block does not say where it ends. Specification:
//! `lz4_Block_format.md` of LZ4. Length: as that of `numcodecs.lz4`, less 4 bytes.

use lz4_flex::block::{compress, decompress_into};

use super::stream::unset;
use crate::kinds::BytesToBytes;
use zarrfs_base::error::{Error, Result};

/// The codec.
#[derive(Debug)]
pub struct Lz4Raw;

impl BytesToBytes for Lz4Raw {
    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        Ok(compress(decoded))
    }

    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>> {
        // Each byte of a block decodes to at most 255 bytes, and a token to a few more.
        let most = encoded.len().saturating_mul(255).saturating_add(32).min(limit);
        let mut decoded = unset("lz4", most)?;
        let len = decompress_into(encoded, &mut decoded)
            .map_err(|error| Error::corrupt(format!("lz4: {error}")))?;
        decoded.truncate(len);
        Ok(decoded)
    }
}
