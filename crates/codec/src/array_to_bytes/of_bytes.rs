//! A codec from bytes to bytes as one that takes elements: imagecodecs has such codecs in Zarr 3,
//! where they follow no `bytes`.

use bytes::Bytes;

use crate::elements::ChunkType;
use crate::kinds::{ArrayToBytes, BytesToBytes};
use zarrfs_base::buffer::Buffer;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToU64;

/// The codec, bound to the length of a chunk.
#[derive(Debug)]
pub struct OfBytes<B> {
    codec: B,
    decoded_len: usize,
    is_lossy: bool,
}

impl<B: BytesToBytes> OfBytes<B> {
    /// Returns the codec for chunks of `elements`, which have a fixed length.
    pub fn new(codec: B, elements: &ChunkType) -> Result<Self> {
        let decoded_len = elements.byte_len()?;
        let decoded_len = decoded_len
            .ok_or_else(|| Error::unsupported(format!("{} elements", elements.dtype.name())))?;
        Ok(Self { codec, decoded_len, is_lossy: false })
    }

    /// Says that decoded elements may differ from those that were encoded.
    #[must_use]
    pub fn lossy(self) -> Self {
        Self { is_lossy: true, ..self }
    }
}

impl<B: BytesToBytes> ArrayToBytes for OfBytes<B> {
    fn encode(&self, decoded: Buffer, _extent: &[u64]) -> Result<Bytes> {
        Ok(self.codec.encode(&decoded)?.into())
    }

    fn decode(&self, encoded: Bytes) -> Result<Buffer> {
        let decoded = self.codec.decode(&encoded, self.decoded_len)?;
        if decoded.len() != self.decoded_len {
            let (found, needed) = (decoded.len(), self.decoded_len);
            return Err(Error::corrupt(format!("{found} bytes decoded, the chunk needs {needed}")));
        }
        Ok(decoded.into())
    }

    fn encoded_len(&self) -> Option<u64> {
        self.codec.encoded_len(self.decoded_len.to_u64())
    }

    fn is_lossy(&self) -> bool {
        self.is_lossy
    }
}
