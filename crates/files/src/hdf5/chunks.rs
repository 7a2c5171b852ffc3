//! The places of the values of a data set.

use hdf5_reader::Hdf5File;
use hdf5_reader::btree_v1::{self, BTreeV1Key};
use hdf5_reader::chunk_index::{self, ChunkEntry};
use hdf5_reader::messages::filter_pipeline::FilterPipelineMessage;
use hdf5_reader::messages::layout::{ChunkIndexing, DataLayout};
use hdf5_reader::{extensible_array, fixed_array};

use super::filters;
use super::library::failed;
use super::types::StoredType;
use super::values::{Values, decoded};
use crate::described::{Described, DescribedArray};
use crate::pieces::{self, Stored};
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToUsize;

/// The longest chunk that is changed while the file is read, because it left out a filter.
const MAX_COMPLETED_LEN: u64 = 16 << 20;

/// A data set whose type and filters are known.
#[derive(Debug)]
pub struct DataSet<'d> {
    /// The path of its node.
    pub path: &'d str,
    /// The shape, without the dimensions of elements.
    pub shape: &'d [u64],
    /// The longest that the dimensions can be.
    pub max_shape: Option<&'d [u64]>,
    /// The type.
    pub stored: &'d StoredType,
    /// Where its values are.
    pub layout: &'d DataLayout,
    /// The filters.
    pub pipeline: Option<&'d FilterPipelineMessage>,
}

impl DataSet<'_> {
    /// Describes the array with its chunks.
    pub fn describe(
        &self,
        file: &Hdf5File,
        values: &mut Values<'_>,
        described: &mut Described,
        mut array: DescribedArray,
    ) -> Result<()> {
        let base = file.superblock().base_address;
        let whole: Vec<u64> = self.shape.iter().chain(&self.stored.inner_shape).copied().collect();
        match self.layout {
            DataLayout::Compact { data } => {
                array.chunk_shape = whole.iter().map(|len| (*len).max(1)).collect();
                described.array(self.path, &array)?;
                if whole.contains(&0) {
                    return Ok(());
                }
                let bytes = values.settled(self.stored, data.clone())?;
                described.inline(self.path, &vec![0; whole.len()], bytes)
            }
            DataLayout::Contiguous { address, .. } if is_undefined(file, *address) => {
                array.chunk_shape = pieces::piece_shape(&whole, self.stored.item_len);
                described.array(self.path, &array)
            }
            DataLayout::Contiguous { address, .. } if self.stored.is_in_file() => {
                let offset = base.checked_add(*address);
                let offset = offset.ok_or_else(|| Error::corrupt("an address past the end"))?;
                let item_len = self.stored.item_len;
                let place = Stored { shape: &whole, item_len, offset, is_reversed: false };
                pieces::describe(described, self.path, array, place)
            }
            DataLayout::Contiguous { address, .. } => {
                array.chunk_shape = whole.iter().map(|len| (*len).max(1)).collect();
                described.array(self.path, &array)?;
                if whole.contains(&0) {
                    return Ok(());
                }
                let stored = values.read(*address, self.len(&whole)?)?;
                let bytes = values.settled(self.stored, stored)?;
                described.inline(self.path, &vec![0; whole.len()], bytes)
            }
            DataLayout::Chunked { dims, .. } => {
                let lens = self.chunk_dims(dims)?.iter().map(|len| u64::from(*len));
                array.chunk_shape = lens.chain(self.stored.inner_shape.iter().copied()).collect();
                described.array(self.path, &array)?;
                self.for_each_chunk(file, values, &mut |coords, place| match place {
                    ChunkPlace::Part { offset, len } => {
                        described.chunk(self.path, coords, offset, len)
                    }
                    ChunkPlace::Inline(bytes) => described.inline(self.path, coords, bytes),
                })
            }
        }
    }

    /// Returns the shape of chunks. The last number that is stored may be the length of an element.
    pub fn chunk_dims<'n>(&self, dims: &'n [u32]) -> Result<&'n [u32]> {
        let dims = dims.get(..self.shape.len()).unwrap_or(dims);
        if dims.len() != self.shape.len() || dims.contains(&0) {
            return Err(Error::corrupt(format!("HDF5 chunks of shape {dims:?}")));
        }
        Ok(dims)
    }

    /// Calls `add` for each stored chunk with its coordinates, if the values are in chunks.
    pub fn for_each_chunk(
        &self,
        file: &Hdf5File,
        values: &mut Values<'_>,
        add: &mut dyn FnMut(&[u64], ChunkPlace) -> Result<()>,
    ) -> Result<()> {
        let DataLayout::Chunked { address, dims, chunk_indexing, .. } = self.layout else {
            return Ok(());
        };
        let dims = self.chunk_dims(dims)?;
        let is_empty = self.shape.contains(&0) || self.stored.inner_shape.contains(&0);
        if is_undefined(file, *address) || is_empty {
            return Ok(());
        }
        let index = ChunkIndex { file, address: *address, dims };
        let entries = index.entries(self, chunk_indexing.as_ref())?;
        let lens = dims.iter().map(|len| u64::from(*len));
        let chunk_shape: Vec<u64> = lens.chain(self.stored.inner_shape.iter().copied()).collect();
        let chunk_len = self.len(&chunk_shape)?;
        for entry in &entries {
            let is_inside = entry.offsets.iter().zip(self.shape).all(|(offset, len)| offset < len);
            if !is_inside || entry.offsets.len() < dims.len() {
                continue;
            }
            let coords = entry.offsets.iter().zip(dims).map(|(at, len)| at / u64::from(*len));
            let coords: Vec<u64> =
                coords.chain(self.stored.inner_shape.iter().map(|_| 0)).collect();
            add(&coords, self.chunk_place(entry, chunk_len, values)?)?;
        }
        Ok(())
    }

    fn len(&self, shape: &[u64]) -> Result<u64> {
        // The inner dimensions are in the shape.
        let len = shape.iter().try_fold(self.stored.item_len, |len, count| len.checked_mul(*count));
        len.ok_or_else(|| Error::corrupt(format!("{} has more than 2^64 bytes", self.path)))
    }

    fn chunk_place(
        &self,
        entry: &ChunkEntry,
        chunk_len: u64,
        values: &mut Values<'_>,
    ) -> Result<ChunkPlace> {
        let no_filters = FilterPipelineMessage { filters: Vec::new() };
        let pipeline = self.pipeline.unwrap_or(&no_filters);
        let len = if pipeline.filters.is_empty() { chunk_len } else { entry.size };
        let is_whole = filters::is_whole(pipeline, entry.filter_mask);
        if is_whole && self.stored.is_in_file() {
            let offset = values.base().checked_add(entry.address);
            let offset = offset.ok_or_else(|| Error::corrupt("an address past the end"))?;
            return Ok(ChunkPlace::Part { offset, len });
        }
        if len > MAX_COMPLETED_LEN {
            let detail = format!("a chunk of {len} bytes without one filter");
            return Err(Error::unsupported(detail));
        }
        let stored = values.read(entry.address, len)?;
        let mask = entry.filter_mask;
        let bytes = if self.stored.is_in_file() {
            filters::completed(pipeline, mask, self.stored.item_len, &stored)?
        } else {
            let bytes = decoded(pipeline, mask, self.stored, &stored, chunk_len)?;
            values.settled(self.stored, bytes)?
        };
        Ok(ChunkPlace::Inline(bytes))
    }
}

/// Where a chunk is.
#[derive(Debug)]
pub enum ChunkPlace {
    /// In the file.
    Part {
        /// Where it begins.
        offset: u64,
        /// Its bytes.
        len: u64,
    },
    /// It was read.
    Inline(Vec<u8>),
}

/// Whether nothing was stored yet.
pub fn is_undefined(file: &Hdf5File, address: u64) -> bool {
    let bits = u32::from(file.superblock().offset_size).saturating_mul(8);
    address == u64::MAX || 1_u64.checked_shl(bits).is_some_and(|end| address == end - 1)
}

/// The index of the chunks of a data set.
struct ChunkIndex<'i> {
    file: &'i Hdf5File,
    address: u64,
    dims: &'i [u32],
}

impl ChunkIndex<'_> {
    fn entries(&self, set: &DataSet<'_>, kind: Option<&ChunkIndexing>) -> Result<Vec<ChunkEntry>> {
        let storage = self.file.storage();
        let superblock = self.file.superblock();
        let (offset_len, length_len) = (superblock.offset_size, superblock.length_size);
        let rank = set.shape.len();
        let count = u32::try_from(rank).map_err(|_| Error::corrupt("too many dimensions"))?;
        let (address, dims) = (self.address, self.dims);
        // Where all dimensions have a limit, chunks are numbered as if the array were that long.
        let limits = set.max_shape.filter(|limits| !limits.contains(&u64::MAX));
        let longest = limits.unwrap_or(set.shape);
        let found = match kind {
            None => {
                let leaves = btree_v1::collect_btree_v1_leaves_storage(
                    storage,
                    address,
                    offset_len,
                    length_len,
                    Some(count),
                    dims,
                    None,
                );
                return Ok(leaves.map_err(failed)?.into_iter().filter_map(entry_of_leaf).collect());
            }
            Some(ChunkIndexing::SingleChunk { filtered_size, filters }) => {
                Ok(vec![chunk_index::single_chunk_entry(address, *filtered_size, *filters, rank)])
            }
            Some(ChunkIndexing::BTreeV2) => chunk_index::collect_v2_chunk_entries_storage(
                storage, address, offset_len, length_len, count, dims, None,
            ),
            Some(ChunkIndexing::Implicit) => {
                let item_len = set.stored.whole_len().to_usize();
                chunk_index::collect_implicit_chunk_entries(
                    address,
                    longest,
                    dims,
                    item_len,
                    None,
                    storage.len(),
                )
            }
            Some(ChunkIndexing::FixedArray { .. }) => {
                fixed_array::collect_fixed_array_chunk_entries_storage(
                    storage, address, offset_len, length_len, longest, dims, None,
                )
            }
            Some(ChunkIndexing::ExtensibleArray { .. }) => {
                extensible_array::collect_extensible_array_chunk_entries_storage(
                    storage,
                    address,
                    offset_len,
                    length_len,
                    set.shape,
                    set.max_shape,
                    dims,
                    None,
                )
            }
        };
        found.map_err(failed)
    }
}

fn entry_of_leaf((key, address): (BTreeV1Key, u64)) -> Option<ChunkEntry> {
    match key {
        BTreeV1Key::RawData { chunk_size, filter_mask, offsets } => {
            Some(ChunkEntry { address, size: u64::from(chunk_size), filter_mask, offsets })
        }
        BTreeV1Key::Group { .. } => None,
    }
}
