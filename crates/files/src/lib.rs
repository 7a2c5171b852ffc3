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
//! | `json` | numbers and texts as JSON |
//! | `cursor` | numbers at places of a header |
//! | `hdf5` | HDF5 and netCDF-4 |
//! | `netcdf3` | netCDF-3 |
//! | `image` | images of OME-Zarr |
//! | `nifti` | NIfTI |
//! | `nrrd`, `metaimage`, `mrc`, `fits` | NRRD, MetaImage, MRC, FITS |
//! | `lines` | the lines of a header |
//! | `npy`, `npz` | NumPy's files |
//! | `tiff` | TIFF and BigTIFF |
//! | `text_table` | CSV and TSV |
//! | `precomputed` | volumes of Neuroglancer, which are no files: a store of its own |
//! | `packed` | files that are compressed as a whole |

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

mod cursor;
mod described;
mod fits;
mod format;
#[cfg(feature = "hdf5")]
mod hdf5;
mod image;
mod json;
mod lines;
mod metaimage;
mod mrc;
mod netcdf3;
mod nifti;
mod npy;
mod npz;
mod nrrd;
mod packed;
mod pieces;
pub mod precomputed;
mod source;
#[cfg(test)]
mod tests;
mod text_table;
mod tiff;

pub use format::{FIRST_LEN, FileFormat};

use described::Described;
use packed::Compressor;
use source::SourceFile;
use zarrfs_base::error::{Result, WithSubject};
use zarrfs_store::refs::SourceStores;
use zarrfs_store::{Key, Omission, Prefix, Store};

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
    mut places: SourceStores,
    most: u64,
) -> Result<Store> {
    let file = SourceFile::open(own, key)?;
    let mut described = Described::new(&file, most);
    let packing = Compressor::of(&file.read_up_to(0, 4)?);
    let file = match packing {
        Some(packing) => {
            packed::unpack(packing, &file, 0, packed::MAX_LEN, &mut described).at(key)?
        }
        None => file,
    };
    let format = FileFormat::of(&file).at(key)?;
    scan(format, &file, &places, &mut described).at(key)?;
    for (prefix, store) in described.take_places() {
        places.allow([prefix.as_str()], store);
    }
    let (table, omitted) = described.build()?;
    let store = table.open(places, base);
    for Omission { place, word, why } in omitted {
        store.omissions().note(&place, word, &why);
    }
    Ok(store)
}

fn scan(
    format: FileFormat,
    file: &SourceFile,
    places: &SourceStores,
    described: &mut Described,
) -> Result<()> {
    match format {
        FileFormat::NetCdf3 => netcdf3::scan(file, described),
        FileFormat::Nifti => nifti::scan(file, described),
        FileFormat::Nrrd => nrrd::scan(file, described),
        FileFormat::MetaImage => metaimage::scan(file, described),
        FileFormat::Mrc => mrc::scan(file, described),
        FileFormat::Fits => fits::scan(file, described),
        FileFormat::Npz => npz::scan(file, described),
        FileFormat::Npy => npy::scan(file, described),
        FileFormat::Tiff => tiff::scan(file, described),
        FileFormat::TextTable => text_table::scan(file, described),
        #[cfg(feature = "hdf5")]
        FileFormat::Hdf5 => hdf5::scan(file, places, described),
        #[cfg(not(feature = "hdf5"))]
        FileFormat::Hdf5 => Err(zarrfs_base::error::Error::unsupported(
            "an HDF5 file, and this zarrfs was built without the feature `hdf5`",
        )),
    }
}
