//! Codecs, and the pipeline that binds them to one chunk shape.
//!
//! Three kinds, as the specification has them: array to array, array to bytes,
//! bytes to bytes. A codec here works on bytes whose length it is told, never on
//! documents: [`registry`] builds it from its [`CodecSpec`](crate::metadata::model::CodecSpec).

pub mod bytes_to_bytes;

use std::fmt;

use crate::error::Result;

/// A codec from bytes to bytes: a compressor or a checksum.
pub trait BytesToBytes: Send + Sync + fmt::Debug {
    /// The encoded form of `decoded`.
    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>>;

    /// The decoded form of `encoded`, of at most `limit` bytes: more is an error,
    /// found before they are produced, since `encoded` may come from anyone. Where the
    /// decoded length is known `limit` is exactly it, so that it serves as the capacity.
    fn decode(&self, encoded: &[u8], limit: usize) -> Result<Vec<u8>>;

    /// The length of the encoded form where it follows from that of the decoded one (a checksum's does).
    fn encoded_len(&self, decoded_len: u64) -> Option<u64> {
        let _ = decoded_len;
        None
    }
}
