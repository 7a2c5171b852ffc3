//! The links of a group, by name. The library lists the members of a group only if it can read the
//! headers of all of them, and here one that cannot be read does not hide the others.

use std::collections::HashMap;
use std::sync::Arc;

use hdf5_reader::Hdf5File;
use hdf5_reader::btree_v1;
use hdf5_reader::io::Cursor;
use hdf5_reader::local_heap::LocalHeap;
use hdf5_reader::messages::HdfMessage;
use hdf5_reader::messages::link::{self, LinkTarget};
use hdf5_reader::messages::link_info::LinkInfoMessage;
use hdf5_reader::messages::symbol_table_msg::SymbolTableMessage;
use hdf5_reader::symbol_table::SymbolTableNode;

use super::header::ObjectHeader;
use super::indexed_heap;
use super::library::{self, failed};
use zarrfs_base::bounded::{Bounded, MapLimits};
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToU64;

/// A link, and where it leads.
pub type NamedLink = (String, LinkTarget);

/// The kind of an entry of an old group that is a soft link.
const SOFT: u32 = 2;

/// The bytes of a table of symbols before its entries.
const TABLE_HEAD_LEN: usize = 8;

/// The most links in the way of a soft link.
const MAX_STEPS: usize = 64;

/// The most links that are read to follow all soft links of a file.
const MAX_FOLLOWED: usize = 1 << 24;

/// The most bytes of the links that are kept, and about how many a link has beside its name.
const KEPT_LEN: u64 = 64 << 20;
const LINK_LEN: usize = 128;

/// Returns the links of the group with this header.
pub fn of_group(file: &Hdf5File, header: &ObjectHeader) -> Result<Vec<NamedLink>> {
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
    let (offset_len, length_len) = library::lens(file);
    let mut links = Vec::new();
    if Cursor::is_undefined_offset(info.fractal_heap_address, offset_len) {
        return Ok(links);
    }
    let (heap, index) = (info.fractal_heap_address, info.btree_name_index_address);
    indexed_heap::for_each(file, heap, index, usize::MAX, &mut |bytes| {
        let parsed = link::parse(&mut Cursor::new(bytes), offset_len, length_len, bytes.len());
        let link = parsed.map_err(failed)?;
        links.push((link.name, link.target));
        Ok(())
    })?;
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

/// Finds objects of a file by paths.
pub struct Follower {
    /// The links of groups by their addresses.
    groups: Bounded<u64, Arc<HashMap<String, LinkTarget>>>,
    /// How many links were read.
    read: usize,
}

impl Default for Follower {
    fn default() -> Self {
        Self { groups: Bounded::new(MapLimits::bytes(KEPT_LEN)), read: 0 }
    }
}

impl Follower {
    /// Returns what a path leads to that begins at the group at `start`, or at that at `root`:
    /// the address of an object, or a link to another file with the rest of the path.
    pub fn follow(
        &mut self,
        file: &Hdf5File,
        root: u64,
        start: u64,
        path: &str,
    ) -> Result<LinkTarget> {
        self.find(file, root, start, path)?.ok_or_else(|| {
            Error::unsupported(format!("a link to {path}, which is not a group or a data set"))
        })
    }

    /// Like [`Self::follow`]; `None` if there is nothing at the path.
    pub fn find(
        &mut self,
        file: &Hdf5File,
        root: u64,
        start: u64,
        path: &str,
    ) -> Result<Option<LinkTarget>> {
        let mut at = if path.starts_with('/') { root } else { start };
        let mut names: Vec<String> = names_of(path).rev().map(str::to_owned).collect();
        let mut steps = 0_usize;
        while let Some(name) = names.pop() {
            steps = steps.saturating_add(1);
            if steps > MAX_STEPS {
                let detail = format!("a link to {path}, which leads on {MAX_STEPS} times");
                return Err(Error::unsupported(detail));
            }
            let links = self.links(file, at)?;
            match links.get(&name) {
                Some(LinkTarget::Hard { address }) => at = *address,
                Some(LinkTarget::Soft { path }) => {
                    if path.starts_with('/') {
                        at = root;
                    }
                    names.extend(names_of(path).rev().map(str::to_owned));
                }
                Some(LinkTarget::External { filename, path }) => {
                    let rest = std::iter::once(path.clone()).chain(names.into_iter().rev());
                    let path = rest.collect::<Vec<_>>().join("/");
                    return Ok(Some(LinkTarget::External { filename: filename.clone(), path }));
                }
                None => return Ok(None),
            }
        }
        Ok(Some(LinkTarget::Hard { address: at }))
    }

    fn links(&mut self, file: &Hdf5File, group: u64) -> Result<Arc<HashMap<String, LinkTarget>>> {
        if let Some(links) = self.groups.get(&group) {
            return Ok(Arc::clone(links));
        }
        let links = of_group(file, &ObjectHeader::read(file, group)?)?;
        self.read = self.read.saturating_add(links.len()).saturating_add(1);
        if self.read > MAX_FOLLOWED {
            return Err(Error::unsupported("more soft links than zarrfs follows in one file"));
        }
        let lens = links.iter().map(|(name, _)| name.len().saturating_add(LINK_LEN));
        let len = lens.fold(0, usize::saturating_add).to_u64();
        let links = Arc::new(links.into_iter().collect());
        drop(self.groups.put(group, Arc::clone(&links), len));
        Ok(links)
    }
}

/// Returns the names in a path.
fn names_of(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty() && *name != ".")
}
