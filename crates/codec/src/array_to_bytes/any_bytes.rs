//! No codec: the encoded form of a chunk is the chunk itself, which may be any bytes.
//!
//! No metadata names it. It stands for the codecs of an array whose chunk files show the encoded
//! chunks.

use bytes::Bytes;

use crate::kinds::ArrayToBytes;
use zarrfs_base::buffer::Buffer;
use zarrfs_base::error::Result;

/// Keeps all bytes as they are.
#[derive(Debug)]
pub struct AnyBytes;

impl ArrayToBytes for AnyBytes {
    fn encode(&self, decoded: Buffer, _extent: &[u64]) -> Result<Bytes> {
        Ok(decoded.into())
    }

    fn decode(&self, encoded: Bytes) -> Result<Buffer> {
        Ok(encoded.into())
    }

    fn encoded_len(&self) -> Option<u64> {
        None
    }

    fn is_identity(&self) -> bool {
        true
    }
}
