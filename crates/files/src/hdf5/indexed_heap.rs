//! The messages of an object with many links or attributes: a fractal heap with an index.

use hdf5_reader::Hdf5File;
use hdf5_reader::btree_v2::{self, BTreeV2Header, BTreeV2Record};
use hdf5_reader::fractal_heap::{FractalHeap, FractalHeapDirectBlockCache};

use super::library::{self, failed};
use zarrfs_base::error::Result;

/// Calls `take` with each message whose record in the index has a place in the heap, at most
/// `most`, in the order of the index.
pub fn for_each(
    file: &Hdf5File,
    heap_address: u64,
    index_address: u64,
    most: usize,
    take: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let (offset_len, length_len) = library::lens(file);
    let storage = file.storage();
    let heap = FractalHeap::parse_at_storage(storage, heap_address, offset_len, length_len);
    let heap = heap.map_err(failed)?;
    let index = BTreeV2Header::parse_at_storage(storage, index_address, offset_len, length_len);
    let index = index.map_err(failed)?;
    let records = btree_v2::collect_btree_v2_records_storage(
        storage,
        &index,
        offset_len,
        length_len,
        None,
        &[],
        None,
    );
    let mut blocks = FractalHeapDirectBlockCache::default();
    for record in records.map_err(failed)?.into_iter().take(most) {
        let (BTreeV2Record::LinkNameHash { heap_id, .. }
        | BTreeV2Record::AttributeNameHash { heap_id, .. }
        | BTreeV2Record::AttributeCreationOrder { heap_id, .. }) = record
        else {
            continue;
        };
        let bytes = heap
            .get_object_storage_cached(&heap_id, storage, offset_len, length_len, &mut blocks)
            .map_err(failed)?;
        take(&bytes)?;
    }
    Ok(())
}
