//! The formats of files, by how they begin.

use crate::packed::{self, Compressor};
use crate::source::SourceFile;
use crate::{mrc, npz};
use zarrfs_base::error::{Error, Result};

/// A format of files that hold arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// HDF5, also netCDF-4 and MATLAB 7.3.
    Hdf5,
    /// netCDF-3.
    NetCdf3,
    /// NIfTI-1 or NIfTI-2.
    Nifti,
    /// NRRD.
    Nrrd,
    /// MetaImage.
    MetaImage,
    /// MRC and CCP4.
    Mrc,
    /// FITS.
    Fits,
    /// An array of NumPy.
    Npy,
    /// Several of them in an archive.
    Npz,
    /// TIFF and BigTIFF.
    Tiff,
    /// CSV and TSV.
    TextTable,
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
const ENDINGS: [&str; 26] = [
    ".nc", ".nc3", ".cdf", ".nc4", ".h5", ".hdf5", ".he5", ".mat", ".npy", ".npz", ".nii", ".nrrd",
    ".nhdr", ".mha", ".mhd", ".fits", ".fit", ".fts", ".mrc", ".mrcs", ".ccp4", ".tif", ".tiff",
    ".tf8", ".btf", ".svs",
];

/// The endings of names of tables, which have no signature.
const TABLE_ENDINGS: [&str; 2] = [".csv", ".tsv"];

/// The endings of names of MRC files, which may have no signature.
const MRC_ENDINGS: [&str; 6] = [".mrc", ".mrcs", ".map", ".ccp4", ".rec", ".st"];

impl FileFormat {
    /// Returns the format of a file by its first bytes.
    pub fn of_first_bytes(first: &[u8]) -> Option<Self> {
        if first.starts_with(HDF5) {
            Some(Self::Hdf5)
        } else if matches!(first, [b'C', b'D', b'F', 1 | 2 | 5, ..]) {
            Some(Self::NetCdf3)
        } else if is_nifti(first) {
            Some(Self::Nifti)
        } else if first.starts_with(b"NRRD000") {
            Some(Self::Nrrd)
        } else if is_metaimage(first) {
            Some(Self::MetaImage)
        } else if first.get(208..212) == Some(b"MAP ") {
            Some(Self::Mrc)
        } else if first.starts_with(b"SIMPLE  =") {
            Some(Self::Fits)
        } else if first.starts_with(b"\x93NUMPY") {
            Some(Self::Npy)
        } else if TIFF.iter().any(|start| first.starts_with(start)) {
            Some(Self::Tiff)
        } else if npz::is_first(first) {
            Some(Self::Npz)
        } else if let Some(packing) = Compressor::of(first) {
            // A packed file in a packed file is not opened.
            let inner = packing.unpacked(first);
            if Compressor::of(&inner).is_some() { None } else { Self::of_first_bytes(&inner) }
        } else {
            None
        }
    }

    /// Whether a file with this name probably has such a format.
    pub fn is_named(name: &str) -> bool {
        let name = packed::unpacked_name(name).unwrap_or(name).to_ascii_lowercase();
        Self::is_of_arrays(&name) || TABLE_ENDINGS.iter().any(|ending| name.ends_with(ending))
    }

    /// Whether a file with this name probably has such a format, and is no text: those in a folder
    /// are mostly for people.
    pub fn is_of_arrays(name: &str) -> bool {
        let name = packed::unpacked_name(name).unwrap_or(name).to_ascii_lowercase();
        ENDINGS.iter().any(|ending| name.ends_with(ending))
    }

    /// Returns the name of such a file without its ending; `None` for another name.
    pub fn stem(name: &str) -> Option<&str> {
        let unpacked = packed::unpacked_name(name).unwrap_or(name);
        let lower = unpacked.to_ascii_lowercase();
        let all = ENDINGS.iter().chain(&TABLE_ENDINGS);
        let ending = all.filter(|ending| lower.ends_with(*ending));
        let longest = ending.map(|ending| ending.len()).max()?;
        unpacked.get(..unpacked.len().checked_sub(longest)?)
    }

    /// Whether the arrays of such a file have no names of their own. They get that of the file.
    pub fn lacks_names(name: &str) -> bool {
        let name = packed::unpacked_name(name).unwrap_or(name).to_ascii_lowercase();
        let has = [
            ".nc", ".nc3", ".nc4", ".cdf", ".h5", ".hdf5", ".he5", ".mat", ".npz", ".fits", ".fit",
            ".fts", ".csv", ".tsv",
        ];
        Self::is_named(&name) && !has.iter().any(|ending| name.ends_with(ending))
    }

    /// Returns the format of a file.
    pub(crate) fn of(file: &SourceFile) -> Result<Self> {
        let first = file.read_up_to(0, 512)?;
        if let Some(format) = Self::of_first_bytes(&first) {
            return Ok(format);
        }
        let name = file.name().to_ascii_lowercase();
        if MRC_ENDINGS.iter().any(|ending| name.ends_with(ending)) && mrc::may_be(&first) {
            return Ok(Self::Mrc);
        }
        if TABLE_ENDINGS.iter().any(|ending| name.ends_with(ending)) {
            return Ok(Self::TextTable);
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

/// Whether a file begins with a header of NIfTI.
fn is_nifti(first: &[u8]) -> bool {
    let has = |at: usize, what: &[u8]| first.get(at..).is_some_and(|rest| rest.starts_with(what));
    match first.get(..4) {
        Some([0, 0, 1, 92] | [92, 1, 0, 0]) => has(344, b"n+1\0") || has(344, b"ni1\0"),
        Some([0, 0, 2, 28] | [28, 2, 0, 0]) => has(4, b"n+2\0") || has(4, b"ni2\0"),
        _ => false,
    }
}

/// Whether a file begins like a header of MetaImage: with one of the fields that come first.
fn is_metaimage(first: &[u8]) -> bool {
    let line = first.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let name = line.split(|byte| *byte == b'=').next().unwrap_or_default();
    let has_value = name.len() < line.len();
    let fields: [&[u8]; 4] = [b"ObjectType", b"NDims", b"Comment", b"ObjectSubType"];
    let is_image = first.windows(5).any(|part| part == b"NDims");
    has_value && is_image && fields.contains(&name.trim_ascii())
}
