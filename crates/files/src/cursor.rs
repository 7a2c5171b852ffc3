//! Numbers at places of a header.

use bytes::Bytes;

use crate::json;
use crate::source::SourceFile;
use zarrfs_base::error::Result;
use zarrfs_base::width::{ToU64, ToUsize};

/// Reads a file from its beginning on, in big-endian order.
#[derive(Debug)]
pub struct Cursor<'f> {
    file: &'f SourceFile,
    at: u64,
}

impl<'f> Cursor<'f> {
    /// Begins at a byte of the file.
    pub fn new(file: &'f SourceFile, at: u64) -> Self {
        Self { file, at }
    }

    /// Reads the next `len` bytes, which must be there.
    pub fn take(&mut self, len: u64) -> Result<Bytes> {
        let found = self.file.read(self.at, len.to_usize())?;
        self.at = self.at.saturating_add(found.len().to_u64());
        Ok(found)
    }

    /// Goes on, also past the end of the file.
    pub fn skip(&mut self, len: u64) {
        self.at = self.at.saturating_add(len);
    }

    /// Reads an unsigned number of up to 8 bytes.
    pub fn number(&mut self, len: u64) -> Result<u64> {
        Ok(self.take(len)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
}

/// The bytes of a header of a fixed form. What lies past their end is zero.
#[derive(Debug, Clone)]
pub struct FixedFields {
    bytes: Bytes,
    is_big: bool,
}

impl FixedFields {
    /// Returns the fields of a header in this order of bytes.
    pub fn new(bytes: Bytes, is_big: bool) -> Self {
        Self { bytes, is_big }
    }

    /// Whether numbers are in big-endian order.
    pub fn is_big(&self) -> bool {
        self.is_big
    }

    /// Returns `len` bytes.
    pub fn bytes(&self, at: usize, len: usize) -> &[u8] {
        at.checked_add(len).and_then(|end| self.bytes.get(at..end)).unwrap_or_default()
    }

    /// Returns bytes as a text, up to the first NUL and without spaces at the end.
    pub fn text(&self, at: usize, len: usize) -> String {
        json::text_to_nul(self.bytes(at, len)).trim_end().to_owned()
    }

    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes: [u8; N] = self.bytes(at, N).try_into().unwrap_or([0; N]);
        if self.is_big {
            bytes.reverse();
        }
        bytes
    }

    /// Returns an integer of 2 bytes.
    pub fn i16(&self, at: usize) -> i16 {
        i16::from_le_bytes(self.array(at))
    }

    /// Returns an integer of 4 bytes.
    pub fn i32(&self, at: usize) -> i32 {
        i32::from_le_bytes(self.array(at))
    }

    /// Returns an integer of 8 bytes.
    pub fn i64(&self, at: usize) -> i64 {
        i64::from_le_bytes(self.array(at))
    }

    /// Returns a float of 4 bytes.
    pub fn f32(&self, at: usize) -> f32 {
        f32::from_le_bytes(self.array(at))
    }

    /// Returns a float of 8 bytes.
    pub fn f64(&self, at: usize) -> f64 {
        f64::from_le_bytes(self.array(at))
    }
}
