//! Values in an HDF5 file that are read when it is opened: attributes, and strings, whose places a
//! data set has.

use std::collections::HashMap;

use hdf5_reader::group::Group;
use hdf5_reader::messages::filter_pipeline::FilterPipelineMessage;
use hdf5_reader::{Hdf5File, filters};

use super::library::failed;
use super::types::{StoredKind, StoredType};
use crate::json::text_to_nul;
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToUsize;

/// The most bytes of strings that are read from a file when it is opened.
pub const MAX_TEXT_LEN: usize = 256 << 20;

/// Reads values from a file.
pub struct Values<'f> {
    file: &'f Hdf5File,
    root: Group,
    /// The paths of objects by their addresses.
    paths: HashMap<u64, String>,
    /// The bytes of strings that may still be read.
    left: usize,
}

impl<'f> Values<'f> {
    /// Returns a reader of values in a file, whose objects have these paths, and of at most `left`
    /// bytes of strings.
    pub fn new(file: &'f Hdf5File, root: Group, paths: HashMap<u64, String>, left: usize) -> Self {
        Self { file, root, paths, left }
    }

    /// Returns how many bytes of strings may still be read.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Returns where addresses count from.
    pub fn base(&self) -> u64 {
        self.file.superblock().base_address
    }

    /// Reads `len` bytes at an address.
    pub fn read(&self, address: u64, len: u64) -> Result<Vec<u8>> {
        let len = usize::try_from(len).map_err(|_| Error::too_large("a value of HDF5"))?;
        if len > MAX_TEXT_LEN {
            return Err(Error::too_large(format!("{len} bytes of strings in HDF5")));
        }
        self.file.storage().read_range(address, len).map(|bytes| bytes.to_vec()).map_err(failed)
    }

    /// Returns the bytes of elements in the form of a chunk of zarrfs.
    pub fn settled(&mut self, stored: &StoredType, bytes: Vec<u8>) -> Result<Vec<u8>> {
        if stored.is_in_file() {
            return Ok(bytes);
        }
        let item_len = stored.item_len.to_usize().max(1);
        if matches!(stored.kind, StoredKind::Terminated | StoredKind::SpacePadded) {
            self.take(bytes.len())?;
            return Ok(without_padding(stored.kind, item_len, bytes));
        }
        let count = bytes.len() / item_len;
        let count = u32::try_from(count).map_err(|_| Error::too_large("strings of one chunk"))?;
        let mut chunk = count.to_le_bytes().to_vec();
        for item in bytes.chunks_exact(item_len) {
            let text = match stored.kind {
                StoredKind::ObjectReference => self.path_of(item),
                _ => self.text_of(item)?,
            };
            let len =
                u32::try_from(text.len()).map_err(|_| Error::too_large("a string of HDF5"))?;
            self.take(text.len())?;
            chunk.extend_from_slice(&len.to_le_bytes());
            chunk.extend_from_slice(text.as_bytes());
        }
        Ok(chunk)
    }

    /// Notes that so many bytes of strings are in memory.
    fn take(&mut self, len: usize) -> Result<()> {
        self.left = self.left.checked_sub(len).ok_or_else(|| {
            let most = MAX_TEXT_LEN >> 20;
            Error::too_large(format!("the strings in the file have more than {most} MiB"))
        })?;
        Ok(())
    }

    /// Returns the string at a place that an element has.
    pub fn text_of(&self, item: &[u8]) -> Result<String> {
        let bytes = self.root.resolve_vlen_reference_bytes(item, 1).map_err(failed)?;
        Ok(text_to_nul(&bytes))
    }

    /// Returns the bytes of the list at a place that an element has.
    pub fn list_of(&self, item: &[u8], item_len: usize) -> Result<Vec<u8>> {
        self.root.resolve_vlen_reference_bytes(item, item_len).map_err(failed)
    }

    /// Returns the path of the object that a reference leads to; nothing for none.
    pub fn path_of(&self, reference: &[u8]) -> String {
        let address = address_of(reference);
        self.paths.get(&address).cloned().unwrap_or_default()
    }
}

impl std::fmt::Debug for Values<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Values").field("paths", &self.paths.len()).finish_non_exhaustive()
    }
}

/// Returns the `len` decoded bytes of a chunk.
pub fn decoded(
    pipeline: &FilterPipelineMessage,
    mask: u32,
    stored: &StoredType,
    bytes: &[u8],
    len: u64,
) -> Result<Vec<u8>> {
    let (item_len, len) = (stored.item_len.to_usize(), len.to_usize());
    let filters = &pipeline.filters;
    let decoded =
        filters::apply_pipeline_with_limit(bytes, filters, mask, item_len, None, Some(len));
    decoded.map_err(failed)
}

impl StoredType {
    /// Whether the bytes of elements lie in the file as a chunk of Zarr has them.
    pub fn is_in_file(&self) -> bool {
        !self.is_listed() && !matches!(self.kind, StoredKind::Terminated | StoredKind::SpacePadded)
    }

    /// Whether a chunk is a list of strings of any length.
    pub fn is_listed(&self) -> bool {
        matches!(self.kind, StoredKind::Text | StoredKind::ObjectReference)
    }
}

/// Returns strings with zeros after their end.
fn without_padding(kind: StoredKind, item_len: usize, mut bytes: Vec<u8>) -> Vec<u8> {
    for item in bytes.chunks_exact_mut(item_len) {
        let end = match kind {
            StoredKind::Terminated => item.iter().position(|byte| *byte == 0),
            _ => {
                item.iter().rposition(|byte| *byte != b' ').map_or(Some(0), |at| at.checked_add(1))
            }
        };
        item.iter_mut().skip(end.unwrap_or(item_len)).for_each(|byte| *byte = 0);
    }
    bytes
}

/// Returns the address in a reference.
pub fn address_of(reference: &[u8]) -> u64 {
    reference.iter().take(8).rev().fold(0, |address, byte| address << 8 | u64::from(*byte))
}
