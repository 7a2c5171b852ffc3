//! The links of a group, by name. The library lists the members of a group only if it can read the
//! headers of all of them, and here one that cannot be read does not hide the others.

use hdf5_reader::Hdf5File;
use hdf5_reader::btree_v1;
use hdf5_reader::btree_v2::{self, BTreeV2Header, BTreeV2Record};
use hdf5_reader::fractal_heap::{FractalHeap, FractalHeapDirectBlockCache};
use hdf5_reader::io::Cursor;
use hdf5_reader::local_heap::LocalHeap;
use hdf5_reader::messages::HdfMessage;
use hdf5_reader::messages::link::{self, LinkTarget};
use hdf5_reader::messages::link_info::LinkInfoMessage;
use hdf5_reader::messages::symbol_table_msg::SymbolTableMessage;
use hdf5_reader::symbol_table::SymbolTableNode;

use super::failed;
use zarrfs_base::error::{Error, Result};

/// A link, and where it leads.
pub type NamedLink = (String, LinkTarget);

/// The kind of an entry of an old group that is a soft link.
const SOFT: u32 = 2;

/// The bytes of a table of symbols before its entries.
const TABLE_HEAD_LEN: usize = 8;

/// Returns the links of the group whose header is at an address.
pub fn of_group(file: &Hdf5File, address: u64) -> Result<Vec<NamedLink>> {
    let header = file.get_or_parse_header(address).map_err(failed)?;
    let mut links = Vec::new();
    for message in &header.messages {
        match message {
            HdfMessage::SymbolTable(table) => links.extend(of_symbols(file, table)?),
            HdfMessage::Link(link) => links.push((link.name.clone(), link.target.clone())),
            HdfMessage::LinkInfo(info) => links.extend(of_heap(file, info)?),
            _ => {}
        }
    }
    Ok(links)
}

/// Returns the links of a group with many of them.
fn of_heap(file: &Hdf5File, info: &LinkInfoMessage) -> Result<Vec<NamedLink>> {
    let superblock = file.superblock();
    let (offset_len, length_len) = (superblock.offset_size, superblock.length_size);
    let storage = file.storage();
    if Cursor::is_undefined_offset(info.fractal_heap_address, offset_len) {
        return Ok(Vec::new());
    }
    let address = info.fractal_heap_address;
    let heap = FractalHeap::parse_at_storage(storage, address, offset_len, length_len);
    let heap = heap.map_err(failed)?;
    let address = info.btree_name_index_address;
    let index = BTreeV2Header::parse_at_storage(storage, address, offset_len, length_len);
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
    let mut links = Vec::new();
    for record in records.map_err(failed)? {
        let BTreeV2Record::LinkNameHash { heap_id, .. } = record else { continue };
        let bytes = heap
            .get_object_storage_cached(&heap_id, storage, offset_len, length_len, &mut blocks)
            .map_err(failed)?;
        let parsed = link::parse(&mut Cursor::new(&bytes), offset_len, length_len, bytes.len());
        let link = parsed.map_err(failed)?;
        links.push((link.name, link.target));
    }
    Ok(links)
}

/// Returns the links of a group as HDF5 wrote it before version 1.8.
fn of_symbols(file: &Hdf5File, table: &SymbolTableMessage) -> Result<Vec<NamedLink>> {
    let superblock = file.superblock();
    let (offset_len, length_len) = (superblock.offset_size, superblock.length_size);
    let storage = file.storage();
    let heap = LocalHeap::parse_at_storage(storage, table.heap_address, offset_len, length_len);
    let heap = heap.map_err(failed)?;
    let address = table.btree_address;
    let leaves = btree_v1::collect_btree_v1_leaves_storage(
        storage,
        address,
        offset_len,
        length_len,
        None,
        &[],
        None,
    );
    let name = |offset: u64| heap.get_string_storage(offset, storage).map_err(failed);
    let mut links = Vec::new();
    for (_, address) in leaves.map_err(failed)? {
        let head = storage.read_range(address, TABLE_HEAD_LEN).map_err(failed)?;
        let count = match head.get(6..8) {
            Some(&[low, high]) => usize::from(u16::from_le_bytes([low, high])),
            _ => return Err(Error::corrupt("HDF5: a table of symbols without its head")),
        };
        // A name, an address, a kind, four bytes, and a scratch pad.
        let entry_len = usize::from(offset_len).saturating_mul(2).saturating_add(24);
        let len = count.saturating_mul(entry_len).saturating_add(TABLE_HEAD_LEN);
        let bytes = storage.read_range(address, len).map_err(failed)?;
        let node = SymbolTableNode::parse(&mut Cursor::new(&bytes), offset_len, length_len);
        for entry in node.map_err(failed)?.entries {
            let target = if entry.cache_type == SOFT {
                let offset = entry.scratch.iter().take(4).rev();
                let offset = offset.fold(0, |offset, byte| offset << 8 | u64::from(*byte));
                LinkTarget::Soft { path: name(offset)? }
            } else {
                LinkTarget::Hard { address: entry.object_header_address }
            };
            links.push((name(entry.link_name_offset)?, target));
        }
    }
    Ok(links)
}
