//! Codecs from elements to bytes, one file each.

mod bytes;

pub use bytes::BytesCodec;
