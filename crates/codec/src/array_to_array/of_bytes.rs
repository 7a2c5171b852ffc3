//! A codec from bytes to bytes of the same length as one from elements to elements: imagecodecs has
//! such codecs in Zarr 3.

use crate::elements::ChunkType;
use crate::kinds::{ArrayToArray, BytesToBytes};
use zarrfs_base::buffer::Buffer;
use zarrfs_base::error::Result;

/// The codec.
#[derive(Debug)]
pub struct OfBytes<B>(B);

impl<B: BytesToBytes> OfBytes<B> {
    /// Returns the codec for chunks of `elements`, and the elements that it produces.
    pub fn new(codec: B, elements: &ChunkType) -> (Self, ChunkType) {
        (Self(codec), elements.clone())
    }
}

impl<B: BytesToBytes> ArrayToArray for OfBytes<B> {
    fn encode(&self, decoded: Buffer) -> Result<Buffer> {
        Ok(self.0.encode(&decoded)?.into())
    }

    fn decode(&self, encoded: Buffer) -> Result<Buffer> {
        let len = encoded.len();
        Ok(self.0.decode(&encoded, len)?.into())
    }
}
