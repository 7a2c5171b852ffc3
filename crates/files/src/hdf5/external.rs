//! Data sets whose values lie in files that are not HDF5, one part after the other.

use std::rc::Rc;

use hdf5_reader::Hdf5File;
use hdf5_reader::local_heap::LocalHeap;
use hdf5_reader::messages::external_files::ExternalFilesMessage;

use super::data_set::StoredDataSet;
use super::library::{self, failed};
use super::pairing::Part;
use super::placed::{SourcePlaces, SourceSet};
use super::selection::{Run, SelectedAxis};
use super::types;
use zarrfs_base::error::{Error, Result};

/// The most files of one data set, and the most bytes of their names, which are read for each.
const MAX_FILES: usize = 1 << 16;
const MAX_NAMES_LEN: u64 = 1 << 20;

/// Returns a data set of a file with values in other files, and its parts. All files must have
/// whole rows. `number_of` returns the number of a file by its name; `None` if there is none.
pub fn parts(
    file: &Hdf5File,
    set: &StoredDataSet,
    listed: &ExternalFilesMessage,
    number_of: &mut dyn FnMut(&str) -> Result<Option<u32>>,
) -> Result<(SourceSet, Vec<Part>)> {
    let stored = set.element_type(file)?;
    let fill = types::fill_value(set.fill.as_deref(), &stored);
    let shape: Vec<u64> = set.shape.iter().chain(&stored.inner_shape).copied().collect();
    let too_long = || Error::corrupt("HDF5: elements past 2^64 bytes");
    let row = shape.get(1..).unwrap_or_default().iter();
    let row_len = row.copied().try_fold(stored.item_len, u64::checked_mul).ok_or_else(too_long)?;
    let row_count = shape.first().copied().unwrap_or(1);
    let (offset_len, length_len) = library::lens(file);
    let storage = file.storage();
    let heap = LocalHeap::parse_at_storage(storage, listed.heap_address, offset_len, length_len);
    let heap = heap.map_err(failed)?;
    if heap.data_segment_size > MAX_NAMES_LEN {
        return Err(Error::corrupt("HDF5: names of files of more than 1 MiB"));
    }
    let mut parts = Vec::new();
    let mut first = 0_u64;
    for slot in listed.slots.iter().take(MAX_FILES) {
        let left = row_count.saturating_sub(first);
        if left == 0 || row_len == 0 {
            break;
        }
        let name = heap.get_string_storage(slot.name_offset, storage).map_err(failed)?;
        let rows = (slot.size / row_len).min(left);
        if rows < left && !slot.size.is_multiple_of(row_len) {
            return Err(Error::unsupported(format!(
                "values in other files, and {name} has a part of a row"
            )));
        }
        if rows == 0 {
            continue;
        }
        let file = number_of(&name)?.ok_or_else(|| {
            Error::unsupported(format!("values in the file {name}, which does not exist"))
        })?;
        let part_shape = part_shape(&shape, rows);
        let source = SourceSet {
            shape: part_shape.clone(),
            stored: stored.clone(),
            filters: Vec::new(),
            fill: fill.clone(),
            places: SourcePlaces::Contiguous { file, offset: slot.offset },
        };
        let source_axes: Vec<SelectedAxis> =
            part_shape.iter().map(|len| SelectedAxis::whole(*len)).collect();
        let mut target_axes = source_axes.clone();
        if let Some(axis) = target_axes.first_mut() {
            *axis = SelectedAxis::Runs(vec![Run { start: first, count: rows }]);
        }
        parts.push(Part::new(Rc::new(source), source_axes, target_axes));
        first = first.saturating_add(rows);
    }
    if first < row_count && !shape.contains(&0) {
        return Err(Error::corrupt("HDF5: the files with the values are too short"));
    }
    let found =
        SourceSet { shape, stored, filters: Vec::new(), fill, places: SourcePlaces::Nowhere };
    Ok((found, parts))
}

/// Returns a shape with other rows. A data set without dimensions has one.
fn part_shape(shape: &[u64], rows: u64) -> Vec<u64> {
    let first = shape.first().map(|_| rows);
    first.into_iter().chain(shape.iter().skip(1).copied()).collect()
}
