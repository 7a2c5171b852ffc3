//! The formats of files, by how they begin.

use crate::source::SourceFile;
use zarrfs_base::error::{Error, Result};

/// A format of files that hold arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// HDF5, also netCDF-4 and MATLAB 7.3.
    Hdf5,
    /// An array of NumPy.
    Npy,
    /// TIFF and BigTIFF.
    Tiff,
}

/// How many bytes at the start tell the format, except that HDF5 may have a user block.
pub const FIRST_LEN: u64 = 512;

/// The signature of HDF5.
const HDF5: &[u8] = b"\x89HDF\r\n\x1a\n";

/// How TIFF and BigTIFF begin, in either byte order.
const TIFF: [&[u8]; 4] = [b"II\x2a\0", b"MM\0\x2a", b"II\x2b\0", b"MM\0\x2b"];

/// The longest user block of HDF5 that is looked behind. Its length is a power of two.
const MAX_USER_BLOCK: u64 = 1 << 20;

/// The endings of names of such files, for URLs. They are in lower case.
const ENDINGS: [&str; 12] = [
    ".nc", ".nc4", ".h5", ".hdf5", ".he5", ".npy", ".mat", ".tif", ".tiff", ".tf8", ".btf", ".svs",
];

impl FileFormat {
    /// Returns the format of a file by its first bytes.
    pub fn of_first_bytes(first: &[u8]) -> Option<Self> {
        if first.starts_with(HDF5) {
            Some(Self::Hdf5)
        } else if first.starts_with(b"\x93NUMPY") {
            Some(Self::Npy)
        } else if TIFF.iter().any(|start| first.starts_with(start)) {
            Some(Self::Tiff)
        } else {
            None
        }
    }

    /// Whether a file with this name probably has such a format.
    pub fn is_named(name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        ENDINGS.iter().any(|ending| name.ends_with(ending))
    }

    /// Returns the format of a file.
    pub(crate) fn of(file: &SourceFile) -> Result<Self> {
        let first = file.read_up_to(0, 512)?;
        if let Some(format) = Self::of_first_bytes(&first) {
            return Ok(format);
        }
        let mut offset = 512;
        while offset <= MAX_USER_BLOCK {
            if &*file.read_up_to(offset, HDF5.len())? == HDF5 {
                return Ok(Self::Hdf5);
            }
            offset *= 2;
        }
        Err(Error::invalid("a file of no format that zarrfs reads (docs/files.md lists them)"))
    }
}
