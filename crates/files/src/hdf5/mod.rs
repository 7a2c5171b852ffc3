//! HDF5 and netCDF-4.
//!
//! The crate `hdf5-reader` parses the file: groups, links, object headers, and the index of chunks
//! of each data set. Here they are described: the type, the filters as codecs, the place of each
//! chunk, attributes as JSON, and dimension scales as names of dimensions, as netCDF and xarray show
//! them.
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
mod links;
mod literal_szip;
mod mappings;
mod pairing;
mod placing;
mod selection;
mod sources;
mod types;
mod unusual;
mod values;
mod virtual_set;
mod walk;

use std::sync::Arc;

use hdf5_reader::{Hdf5File, OpenOptions, Storage, StorageBuffer};

use self::sources::Sources;
use crate::described::Described;
use crate::source::SourceFile;
use zarrfs_base::error::{Error, Result};
use zarrfs_store::refs::SourceStores;

/// The most bytes of one object header.
const MAX_HEADER_LEN: usize = 16 << 20;

/// Describes what is in an HDF5 file, whose parts may be in other files of `places`.
pub fn scan(file: &SourceFile, places: &SourceStores, described: &mut Described) -> Result<()> {
    let mut sources = Sources::new(places, file);
    walk::describe(&mut sources, described)
}

/// Opens a file for the library.
fn open(file: &SourceFile) -> Result<Hdf5File> {
    let options = OpenOptions::default()
        .with_chunk_cache_bytes(0)
        .with_chunk_cache_slots(1)
        .with_max_object_header_bytes(MAX_HEADER_LEN);
    let bytes = Arc::new(FileBytes { file: file.clone() });
    Hdf5File::from_storage_with_options(bytes, options).map_err(failed)
}

/// Returns an error of the library as one of zarrfs.
fn failed(error: hdf5_reader::error::Error) -> Error {
    use hdf5_reader::error::Error as Hdf5Error;
    match error {
        Hdf5Error::Io(error) => match error.get_ref().and_then(|it| it.downcast_ref::<Error>()) {
            Some(own) => own.clone(),
            None => Error::os(&error),
        },
        other => Error::corrupt(format!("HDF5: {other}")),
    }
}

/// The bytes of a file for the library.
struct FileBytes {
    file: SourceFile,
}

impl Storage for FileBytes {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn read_range(&self, offset: u64, len: usize) -> hdf5_reader::error::Result<StorageBuffer> {
        let available = self.file.len().saturating_sub(offset);
        if u64::try_from(len).map_or(true, |needed| needed > available) {
            let needed = len.try_into().unwrap_or(u64::MAX);
            return Err(hdf5_reader::error::Error::UnexpectedEof { offset, needed, available });
        }
        match self.file.read(offset, len) {
            Ok(bytes) => Ok(StorageBuffer::from_vec(bytes.to_vec())),
            Err(error) => Err(std::io::Error::other(error).into()),
        }
    }
}
