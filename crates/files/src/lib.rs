//! Files of other formats as read-only Zarr hierarchies.
//!
//! A scanner reads the parts of a file that say what is in it, and describes groups and arrays in
//! the words of Zarr 3: a metadata file for each node, and for each chunk the place of its bytes in
//! the file. Nothing is copied. The result is a store of references, so all that zarrfs does with a
//! hierarchy works with such a file.
//!
//! | module | contents |
//! | ------ | -------- |
//! | `source` | the bytes of a file, in blocks that are read once |
//! | `described` | nodes and chunks, as a scanner describes them |
//! | `pieces` | an array without chunks, in pieces |
//! | `text` | attributes as JSON |
//! | `hdf5` | HDF5 and netCDF-4 |
//! | `npy` | NumPy's files |
//! | `tiff` | TIFF and BigTIFF |

#![deny(missing_docs)]
#![cfg_attr(
    test,
    allow(
        clippy::as_conversions,
        clippy::cast_possible_truncation,
        clippy::let_underscore_must_use,
        clippy::needless_pass_by_value,
        clippy::unnecessary_wraps,
        clippy::too_many_lines,
        reason = "tests compute with small numbers, and may throw results away"
    )
)]

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

mod described;
mod format;
#[cfg(feature = "hdf5")]
mod hdf5;
mod npy;
mod pieces;
mod source;
mod tiff;

pub use format::{FIRST_LEN, FileFormat};

use described::Described;
use source::SourceFile;
use zarrfs_base::error::{Result, WithSubject, Word};
use zarrfs_store::refs::{self, SourceStores};
use zarrfs_store::{Key, Prefix, Store};

/// Returns the store of what is in the file at `key` of `own`, below `base`. Its values may lead to
/// `places`, and their places take about `most` bytes of memory.
///
/// # Errors
///
/// - The file is of no format that zarrfs reads, or damaged.
/// - It does not exist, or cannot be read.
pub fn open(
    own: &Store,
    key: &Key,
    base: Prefix,
    places: SourceStores,
    most: u64,
) -> Result<Store> {
    let file = SourceFile::open(own, key)?;
    let format = FileFormat::of(&file).at(key)?;
    let mut described = Described::new(&file, most);
    scan(format, &file, &mut described).at(key)?;
    let (table, omitted) = described.build()?;
    let store = refs::open(table, places, base);
    for (path, why) in omitted {
        store.omissions().note(&path, Word::Unsupported, &why);
    }
    Ok(store)
}

fn scan(format: FileFormat, file: &SourceFile, described: &mut Described) -> Result<()> {
    match format {
        FileFormat::Npy => npy::scan(file, described),
        FileFormat::Tiff => tiff::scan(file, described),
        #[cfg(feature = "hdf5")]
        FileFormat::Hdf5 => hdf5::scan(file, described),
        #[cfg(not(feature = "hdf5"))]
        FileFormat::Hdf5 => Err(zarrfs_base::error::Error::unsupported(
            "an HDF5 file, and this zarrfs was built without the feature `hdf5`",
        )),
    }
}
