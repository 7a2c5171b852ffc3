//! Reverses the byte order of elements whose last filter names big endian, as `astype: ">i2"` does.
//!
//! No metadata file names this codec. Between codecs elements are little endian, and `bytes` is
//! little endian after a filter that names its type. Length: the same.

use crate::array_to_bytes::ByteSwap;
use crate::dtype::DType;
use crate::kinds::ArrayToArray;
use zarrfs_base::buffer::Buffer;
use zarrfs_base::error::Result;

/// Turns elements into big endian order, and back.
#[derive(Debug)]
pub struct BigEndian(ByteSwap);

impl BigEndian {
    /// Returns the codec for elements of a type.
    pub fn new(dtype: &DType) -> Result<Self> {
        ByteSwap::parse(Some(&"big".into()), dtype).map(Self)
    }

    fn swap(&self, mut elements: Buffer) -> Buffer {
        if self.0 != ByteSwap::Nothing {
            self.0.apply(elements.to_mut());
        }
        elements
    }
}

impl ArrayToArray for BigEndian {
    fn encode(&self, decoded: Buffer) -> Result<Buffer> {
        Ok(self.swap(decoded))
    }

    fn decode(&self, encoded: Buffer) -> Result<Buffer> {
        Ok(self.swap(encoded))
    }
}
