//! Where the bytes of an unstored file are.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::backing::Backing;
use crate::buffer::{Buffer, reserve};
use crate::error::{Error, Kind, Result};
use crate::store::{NewFile, Stamp};
use crate::width::{ToU64, ToUsize};

/// The bytes of an unstored file.
#[derive(Debug, Clone)]
pub enum HeldBytes {
    /// In memory.
    Memory(Buffer),
    /// In a new file of the store, which the kernel writes without asking zarrfs.
    File(Arc<Backing>),
}

impl From<Buffer> for HeldBytes {
    fn from(bytes: Buffer) -> Self {
        Self::Memory(bytes)
    }
}

impl HeldBytes {
    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Memory(bytes) => bytes.len(),
            Self::File(file) => file.len().to_usize(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how many of them are in memory.
    pub fn memory_len(&self) -> usize {
        match self {
            Self::Memory(bytes) => bytes.len(),
            Self::File(_) => 0,
        }
    }

    /// Returns how much memory a length of `len` would add.
    pub fn memory_added(&self, len: usize) -> usize {
        match self {
            Self::Memory(bytes) => len.saturating_sub(bytes.len()),
            Self::File(_) => 0,
        }
    }

    /// Returns the file that the kernel writes.
    pub fn file(&self) -> Option<&Arc<Backing>> {
        match self {
            Self::Memory(_) => None,
            Self::File(file) => Some(file),
        }
    }

    /// Returns up to `len` bytes at `offset`.
    pub fn range(&self, offset: u64, len: usize) -> Result<Bytes> {
        match self {
            Self::Memory(bytes) => {
                let start = offset.to_usize().min(bytes.len());
                let end = start.saturating_add(len).min(bytes.len());
                // Copy the bytes: sharing them would make the next write copy the whole file.
                Ok(Bytes::copy_from_slice(bytes.get(start..end).unwrap_or_default()))
            }
            Self::File(file) => Ok(file.read(offset, len)?),
        }
    }

    /// Returns all bytes; an error if a file has more than `limit`.
    pub fn to_buffer(&self, limit: u64) -> Result<Buffer> {
        match self {
            Self::Memory(bytes) => Ok(bytes.clone()),
            Self::File(file) => file.read_all(limit),
        }
    }

    /// Returns the new file of the store that the kernel writes.
    pub fn new_file(&self) -> Option<&NewFile> {
        self.file()?.new_file()
    }

    /// Whether they are in a file that has not become a value.
    pub fn is_nameless(&self) -> bool {
        self.new_file().is_some_and(|new| !new.is_value().unwrap_or_default())
    }

    /// Returns the state of the file that the kernel writes.
    pub fn stamp(&self) -> Option<Stamp> {
        self.new_file()?.stamp().ok()
    }

    /// Writes `data` to `range` and fills a gap before it with zeros. Allocates `full_len` bytes of
    /// memory at once.
    pub fn write(&mut self, range: Range<usize>, data: &[u8], full_len: usize) -> Result<()> {
        match self {
            Self::Memory(bytes) => write_to(bytes.to_mut(), range, data, full_len),
            Self::File(file) => {
                let new = file.new_file().ok_or_else(is_value)?;
                Ok(new.write(range.start.to_u64(), data)?)
            }
        }
    }

    /// Truncates them, or extends them with zeros.
    pub fn set_len(&mut self, len: usize) -> Result<()> {
        match self {
            Self::Memory(bytes) => {
                let bytes = bytes.to_mut();
                let more = len.saturating_sub(bytes.len());
                bytes.try_reserve_exact(more).map_err(|_| no_memory())?;
                bytes.resize(len, 0);
                Ok(())
            }
            Self::File(file) => {
                let new = file.new_file().ok_or_else(is_value)?;
                Ok(new.set_len(len.to_u64())?)
            }
        }
    }
}

fn is_value() -> Error {
    Error::new(Kind::Internal, "the backing file cannot be written")
}

fn write_to(
    bytes: &mut Vec<u8>,
    Range { start, end }: Range<usize>,
    data: &[u8],
    full_len: usize,
) -> Result<()> {
    if end <= bytes.len() {
        if let Some(target) = bytes.get_mut(start..end) {
            target.copy_from_slice(data);
        }
        return Ok(());
    }
    // Without a known length it doubles, so that a long file is not copied again and again.
    let least = if full_len == 0 { bytes.len() } else { 0 };
    let room = end.max(full_len).saturating_sub(bytes.len()).max(least);
    if bytes.capacity() == 0 {
        *bytes = reserve(room)?;
    }
    bytes.try_reserve_exact(room).map_err(|_| no_memory())?;
    // Do not zero bytes that `data` overwrites.
    bytes.resize(start.max(bytes.len()), 0);
    let known = bytes.len().saturating_sub(start).min(data.len());
    let (over, more) = data.split_at(known);
    bytes.extend_from_slice(more);
    if let Some(target) = start.checked_add(known).and_then(|to| bytes.get_mut(start..to)) {
        target.copy_from_slice(over);
    }
    Ok(())
}

fn no_memory() -> Error {
    Error::new(Kind::NoMemory, "not enough memory for the file")
}
