//! The bytes of a decoded chunk: shared, and copied only when one of several owners changes them.

use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, Kind, Result};

/// Decoded bytes. A type of ours, so that their memory can come from elsewhere one day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buffer(Arc<Vec<u8>>);

impl Buffer {
    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> Result<Self> {
        let mut bytes = reserve(len)?;
        bytes.resize(len, 0);
        Ok(bytes.into())
    }

    /// To be changed: in place where nobody else has it, else a copy.
    pub fn to_mut(&mut self) -> &mut Vec<u8> {
        Arc::make_mut(&mut self.0)
    }

    /// The bytes themselves, copied only where somebody else has them too.
    pub fn into_vec(self) -> Vec<u8> {
        Arc::unwrap_or_clone(self.0)
    }
}

/// An empty vector with room for exactly `len` bytes, or an error where there is no memory.
pub fn reserve(len: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(len)
        .map_err(|_| Error::new(Kind::NoMemory, format!("no memory for {len} bytes")))?;
    Ok(bytes)
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Arc::new(bytes))
    }
}

impl From<Bytes> for Buffer {
    fn from(bytes: Bytes) -> Self {
        Vec::from(bytes).into()
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Buffer> for Bytes {
    fn from(buffer: Buffer) -> Self {
        match Arc::try_unwrap(buffer.0) {
            Ok(bytes) => bytes.into(),
            Err(shared) => Self::from_owner(Buffer(shared)),
        }
    }
}
