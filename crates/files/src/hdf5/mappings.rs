//! The mappings of a virtual data set: elements of other data sets, and where it shows them. They
//! are an object of a global heap.
//!
//! ```text
//! collection  GCOL | 1 u8 | 0 u24 | length | objects
//! object      index u16 | u16 | u32 | length | bytes, up to a multiple of 8
//! mappings    version u8 | count | entries | checksum u32
//! entry       flags u8 in version 1 | file | data set | selection there | selection here
//! ```
//!
//! In version 1, the flags say that the file is this one, or that the name of the file or of the
//! data set is that of another entry, whose number comes instead.

use std::rc::Rc;

use hdf5_reader::Hdf5File;
use hdf5_reader::checksum::jenkins_lookup3;
use hdf5_reader::io::Cursor;

use super::header::HeapPlace;
use super::library::{self, failed};
use super::selection::Selection;
use zarrfs_base::error::{Error, Result};

/// The most bytes of all mappings of a data set, and the most of them.
const MAX_LEN: u64 = 16 << 20;
pub const MAX_COUNT: usize = 1 << 17;

/// The most bytes of the name of a file, or of the path of a data set.
const MAX_NAME_LEN: usize = 1 << 16;

/// The bytes of an object of a heap, and of a collection, beside its length.
const HEAD_LEN: u64 = 8;

const IS_SAME_FILE: u8 = 4;
const HAS_KNOWN_FILE: u8 = 1;
const HAS_KNOWN_DATA_SET: u8 = 2;

/// A part of a virtual data set.
#[derive(Debug, Clone)]
pub struct Mapping {
    /// The file as the virtual data set names it; `.` is the same one.
    pub file: Rc<str>,
    /// The path of the data set in it.
    pub data_set: Rc<str>,
    /// The elements there.
    pub source: Selection,
    /// The elements of the virtual data set.
    pub target: Selection,
}

/// Reads the mappings at a place of a heap.
pub fn read(file: &Hdf5File, place: HeapPlace) -> Result<Vec<Mapping>> {
    let (offset_len, length_len) = library::lens(file);
    if Cursor::is_undefined_offset(place.address, offset_len) || place.index == 0 {
        return Ok(Vec::new());
    }
    let bytes = object(file, place, length_len)?;
    let (bytes, sum) = bytes.split_last_chunk::<4>().ok_or_else(cut)?;
    if jenkins_lookup3(bytes) != u32::from_le_bytes(*sum) {
        return Err(Error::corrupt(
            "HDF5: the mappings of a virtual data set do not match their checksum",
        ));
    }
    let mut cursor = Cursor::new(bytes);
    let version = cursor.read_u8().map_err(failed)?;
    if version > 1 {
        return Err(Error::unsupported(format!("HDF5 mappings of version {version}")));
    }
    let count = cursor.read_length(length_len).map_err(failed)?;
    let count = usize::try_from(count).ok().filter(|count| *count <= MAX_COUNT);
    let count = count.ok_or_else(|| {
        Error::unsupported(format!("a virtual data set of more than {MAX_COUNT} mappings"))
    })?;
    let mut mappings: Vec<Mapping> = Vec::new();
    for _ in 0..count {
        let flags = if version == 0 { 0 } else { cursor.read_u8().map_err(failed)? };
        let known = |cursor: &mut Cursor<'_>| {
            let index = cursor.read_length(length_len).map_err(failed)?;
            let found = usize::try_from(index).ok().and_then(|index| mappings.get(index));
            found.ok_or_else(|| Error::corrupt(format!("HDF5: no mapping has the number {index}")))
        };
        let own = |cursor: &mut Cursor<'_>| {
            let name = cursor.read_null_terminated_string().map_err(failed)?;
            if name.len() > MAX_NAME_LEN {
                let detail = format!("a source name of more than {MAX_NAME_LEN} bytes");
                return Err(Error::unsupported(detail));
            }
            Ok(Rc::from(name))
        };
        let name = if flags & IS_SAME_FILE != 0 {
            Rc::from(".")
        } else if flags & HAS_KNOWN_FILE != 0 {
            Rc::clone(&known(&mut cursor)?.file)
        } else {
            own(&mut cursor)?
        };
        let data_set = if flags & HAS_KNOWN_DATA_SET != 0 {
            Rc::clone(&known(&mut cursor)?.data_set)
        } else {
            own(&mut cursor)?
        };
        let source = Selection::read(&mut cursor)?;
        let target = Selection::read(&mut cursor)?;
        mappings.push(Mapping { file: name, data_set, source, target });
    }
    Ok(mappings)
}

fn cut() -> Error {
    Error::corrupt("HDF5: the mappings of a virtual data set are cut short")
}

/// Returns the bytes of an object of a heap.
fn object(file: &Hdf5File, place: HeapPlace, length_len: u8) -> Result<Vec<u8>> {
    let storage = file.storage();
    let head_len = HEAD_LEN.saturating_add(u64::from(length_len));
    let head = |address: u64| -> Result<(Vec<u8>, u64)> {
        let len = usize::try_from(head_len).unwrap_or_default();
        let bytes = storage.read_range(address, len).map_err(failed)?.to_vec();
        let mut cursor = Cursor::new(&bytes);
        cursor.set_position(HEAD_LEN);
        let len = cursor.read_length(length_len).map_err(failed)?;
        Ok((bytes, len))
    };
    let (signature, len) = head(place.address)?;
    if !signature.starts_with(b"GCOL\x01") {
        return Err(Error::corrupt(
            "HDF5: no heap where the mappings of a virtual data set should be",
        ));
    }
    let end = place.address.checked_add(len).ok_or_else(cut)?;
    let mut at = place.address.saturating_add(head_len);
    while at.saturating_add(head_len) <= end {
        let (bytes, len) = head(at)?;
        let index = bytes.first_chunk::<2>().map_or(0, |index| u16::from_le_bytes(*index));
        if index == 0 {
            break;
        }
        let start = at.saturating_add(head_len);
        let after = len.checked_next_multiple_of(8).and_then(|len| start.checked_add(len));
        let after = after.ok_or_else(cut)?;
        if u32::from(index) == place.index {
            if len > MAX_LEN || start.saturating_add(len) > end {
                return Err(Error::corrupt(format!(
                    "HDF5: {len} bytes of mappings, past their heap or more than {MAX_LEN}"
                )));
            }
            let len = usize::try_from(len).map_err(|_| cut())?;
            return storage.read_range(start, len).map(|it| it.to_vec()).map_err(failed);
        }
        at = after;
    }
    Err(Error::corrupt("HDF5: a virtual data set without its mappings"))
}
