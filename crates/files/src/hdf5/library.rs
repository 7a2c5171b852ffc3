//! How the library of HDF5 reads files, and its errors.

use std::sync::Arc;

use hdf5_reader::{Hdf5File, OpenOptions, Storage, StorageBuffer};

use crate::source::SourceFile;
use zarrfs_base::error::{Error, Result};

/// The most bytes of one object header.
const MAX_HEADER_LEN: usize = 16 << 20;

/// Opens a file for the library.
pub fn open(file: &SourceFile) -> Result<Hdf5File> {
    let options = OpenOptions::default()
        .with_chunk_cache_bytes(0)
        .with_chunk_cache_slots(1)
        .with_max_object_header_bytes(MAX_HEADER_LEN);
    let bytes = Arc::new(FileBytes { file: file.clone() });
    Hdf5File::from_storage_with_options(bytes, options).map_err(failed)
}

/// Returns the lengths of an address and of a length in a file.
pub fn lens(file: &Hdf5File) -> (u8, u8) {
    (file.superblock().offset_size, file.superblock().length_size)
}

/// Returns an error of the library as one of zarrfs.
pub fn failed(error: hdf5_reader::error::Error) -> Error {
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
