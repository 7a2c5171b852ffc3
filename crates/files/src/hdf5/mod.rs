//! HDF5 and netCDF-4.
//!
//! The crate `hdf5-reader` parses the file: groups, links, object headers, and the index of chunks
//! of each data set. Here they are described: the type, the filters as codecs, the place of each
//! chunk, attributes as JSON, and dimension scales as names of dimensions, as netCDF and xarray
//! show them.
//!
//! <https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t4.html>

mod attribute_list;
mod attributes;
mod chunks;
mod data_set;
mod dimensions;
mod external;
mod filters;
mod header;
mod indexed_heap;
mod library;
mod links;
mod literal_szip;
mod mappings;
mod overlaps;
mod pairing;
mod placed;
mod placing;
mod selection;
mod sources;
mod types;
mod unusual;
mod values;
mod virtual_set;
mod walk;

use self::sources::Sources;
use crate::described::Described;
use crate::source::SourceFile;
use zarrfs_base::error::Result;
use zarrfs_store::refs::SourceStores;

/// Describes what is in an HDF5 file, whose parts may be in other files of `places`.
pub fn scan(file: &SourceFile, places: &SourceStores, described: &mut Described) -> Result<()> {
    let mut sources = Sources::new(places, file);
    walk::describe(&mut sources, described)
}
