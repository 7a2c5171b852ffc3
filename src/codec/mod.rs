//! Codecs, and the pipeline that binds them to one chunk shape.
//!
//! Three kinds, as the specification has them: array to array, array to bytes,
//! bytes to bytes. A codec here works on bytes whose length it is told, never on
//! documents: [`registry`] builds it from its [`CodecSpec`](crate::metadata::model::CodecSpec).
//!
//! `sharding_indexed` is not here: it says where encoded chunks lie, which is the
//! business of [`array`](crate::array).

pub mod array_to_array;
pub mod array_to_bytes;
mod buffer;
pub mod bytes_to_bytes;
mod pipeline;
pub mod registry;

use std::fmt;

use bytes::Bytes;

use crate::error::Result;
pub use buffer::{Buffer, reserve};
pub use pipeline::Pipeline;

/// A codec from elements to elements, bound to one shape.
pub trait ArrayToArray: Send + Sync + fmt::Debug {
    /// The encoded elements, little endian and in C order of the encoded shape.
    fn encode(&self, decoded: Buffer) -> Result<Buffer>;

    /// The decoded elements, little endian and in C order.
    fn decode(&self, encoded: Buffer) -> Result<Buffer>;
}

/// A codec from elements to bytes, bound to one shape.
pub trait ArrayToBytes: Send + Sync + fmt::Debug {
    /// The encoded form of elements that are little endian and in C order.
    fn encode(&self, decoded: Buffer) -> Result<Bytes>;

    /// The elements, little endian and in C order.
    fn decode(&self, encoded: Bytes) -> Result<Buffer>;

    /// The length of the encoded form in bytes, where every value has the same.
    fn encoded_len(&self) -> Option<u64>;
}

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
