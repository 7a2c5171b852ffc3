//! The elements of a chunk: how many there are, and how many bytes they take.

use super::vlen;
use crate::dtype::DType;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToU64;

/// The shape and data type of a chunk. A codec for arrays is bound to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkType {
    /// The number of elements along each dimension.
    pub shape: Vec<u64>,
    /// The data type of each element.
    pub dtype: DType,
}

impl ChunkType {
    /// Returns the number of elements.
    pub fn count(&self) -> Result<usize> {
        let count = self.shape.iter().try_fold(1_u64, |count, len| count.checked_mul(*len));
        let count = count.and_then(|count| usize::try_from(count).ok());
        count.ok_or_else(|| {
            Error::too_large(format!("a chunk of shape {:?} is too large", self.shape))
        })
    }

    /// Returns an error unless `bytes` are a decoded chunk.
    pub fn check(&self, bytes: &[u8]) -> Result<()> {
        match self.byte_len()? {
            Some(len) if bytes.len() == len => Ok(()),
            Some(len) => {
                Err(Error::invalid(format!("{} bytes written, the chunk has {len}", bytes.len())))
            }
            None => vlen::DecodedVlen::new(self)?.check(bytes).map_err(Error::invalid),
        }
    }

    /// Returns the length of a decoded chunk in bytes, `None` if elements differ in length. Then a
    /// chunk has the form that [`vlen`] describes.
    pub fn byte_len(&self) -> Result<Option<usize>> {
        if self.dtype.is_variable() {
            return Ok(None);
        }
        let item_len = self.dtype.item_len().to_u64();
        let len = self.shape.iter().try_fold(item_len, |len, n| len.checked_mul(*n));
        let len = len.filter(|len| i64::try_from(*len).is_ok());
        let len = len.and_then(|len| usize::try_from(len).ok());
        len.map(Some).ok_or_else(|| {
            Error::too_large(format!("a chunk of shape {:?} is too large", self.shape))
        })
    }
}
