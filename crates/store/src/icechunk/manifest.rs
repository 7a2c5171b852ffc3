//! A manifest: the places of the chunks of some arrays.
//!
//! ```text
//! Manifest      id | arrays, by their IDs | a dictionary of zstd for locations | ..
//! ArrayManifest id [8] of the array | chunks, by their indices
//! ChunkRef      indices [u32] | its bytes | offset u64 | length u64 | id [12] of a file in chunks/
//!               | location | ETag | last change u32, seconds | location in zstd | ..
//! ```
//!
//! The chunks stay in the flatbuffer, and each is found by a binary search. So a manifest of
//! millions of chunks is ready as soon as it is decompressed.

use std::cmp::Ordering;
use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use bytes::Bytes;
use zstd::bulk::Decompressor;
use zstd::dict::DecoderDictionary;

use super::file::{IcechunkFile, Id};
use super::flatbuffer::{FlatTable, Vector};
use super::snapshot::NodeId;
use crate::refs::{Check, Reference, ReferenceTarget, ReferencedValue, version_of};
use crate::{Key, Version};
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToU64;

/// The fields of the tables, by their numbers in the schema.
mod field {
    pub const ID: usize = 0;
    pub const ARRAYS: usize = 1;
    pub const DICTIONARY: usize = 2;
    pub const ARRAY_ID: usize = 0;
    pub const CHUNKS: usize = 1;
    pub const INDICES: usize = 0;
    pub const INLINE: usize = 1;
    pub const OFFSET: usize = 2;
    pub const LENGTH: usize = 3;
    pub const CHUNK_ID: usize = 4;
    pub const LOCATION: usize = 5;
    pub const ETAG: usize = 6;
    pub const LAST_MODIFIED: usize = 7;
    pub const COMPRESSED_LOCATION: usize = 8;
}

/// The longest location in bytes.
const MAX_LOCATION_LEN: usize = 1 << 16;

/// The longest dictionary in bytes.
const MAX_DICTIONARY_LEN: usize = 16 << 20;

/// A manifest.
pub(super) struct Manifest {
    buffer: Bytes,
    /// The dictionary of locations, if one was read: many chunks need it.
    dictionary: OnceLock<DecoderDictionary<'static>>,
}

impl fmt::Debug for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manifest").field("len", &self.buffer.len()).finish_non_exhaustive()
    }
}

/// The chunks of an array in a manifest.
#[derive(Debug)]
pub(super) struct ManifestChunks<'m> {
    manifest: &'m Manifest,
    refs: Vector<'m>,
}

impl Manifest {
    /// Parses the flatbuffer of the manifest `id`.
    pub fn parse(buffer: Bytes, id: Id) -> Result<Self> {
        id.expect(FlatTable::root(&buffer)?.bytes(field::ID)?.map(Id), IcechunkFile::Manifest)?;
        Ok(Self { buffer, dictionary: OnceLock::new() })
    }

    /// Returns its length in memory.
    pub fn len(&self) -> u64 {
        self.buffer.len().to_u64()
    }

    /// Returns the chunks of an array; `None` if it has none here.
    pub fn chunks(&self, array: NodeId) -> Result<Option<ManifestChunks<'_>>> {
        let arrays = FlatTable::root(&self.buffer)?.tables(field::ARRAYS)?;
        let at = search(arrays.count(), |index| {
            let id: Option<NodeId> = arrays.table(index)?.bytes(field::ARRAY_ID)?;
            Ok(id.unwrap_or_default().cmp(&array))
        })?;
        let Ok(at) = at else { return Ok(None) };
        Ok(Some(ManifestChunks { manifest: self, refs: arrays.table(at)?.tables(field::CHUNKS)? }))
    }

    /// Returns what decompresses locations.
    fn decompressor(&self) -> Result<Decompressor<'_>> {
        let dictionary =
            FlatTable::root(&self.buffer)?.octets(field::DICTIONARY)?.unwrap_or_default();
        if dictionary.len() > MAX_DICTIONARY_LEN {
            let len = dictionary.len();
            let detail = format!("a dictionary of {len} bytes, the limit is {MAX_DICTIONARY_LEN}");
            return Err(Error::too_large(detail));
        }
        let prepared = self.dictionary.get_or_init(|| DecoderDictionary::copy(dictionary));
        let made = if dictionary.is_empty() {
            Decompressor::new()
        } else {
            Decompressor::with_prepared_dictionary(prepared)
        };
        made.map_err(|error| damaged(&error))
    }
}

fn damaged(error: &io::Error) -> Error {
    Error::corrupt(format!("the location of the chunk: zstd: {error}"))
}

/// Searches in a sorted list. As `slice::binary_search_by`, with elements that may be damaged.
fn search(
    count: usize,
    compare: impl Fn(usize) -> Result<Ordering>,
) -> Result<std::result::Result<usize, usize>> {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low.midpoint(high);
        match compare(middle)? {
            Ordering::Less => low = middle.saturating_add(1),
            Ordering::Greater => high = middle,
            Ordering::Equal => return Ok(Ok(middle)),
        }
    }
    Ok(Err(low))
}

/// Compares the indices of a chunk with the first ones of another: `Equal` if it has them.
fn compare(indices: Option<Vector<'_>>, first: &[u32]) -> Result<Ordering> {
    let count = indices.as_ref().map_or(0, Vector::count);
    for (dimension, wanted) in first.iter().enumerate() {
        let Some(vector) = indices.as_ref().filter(|_| dimension < count) else {
            return Ok(Ordering::Less);
        };
        match vector.u32(dimension)?.cmp(wanted) {
            Ordering::Equal => {}
            unequal => return Ok(unequal),
        }
    }
    Ok(Ordering::Equal)
}

impl ManifestChunks<'_> {
    fn indices(&self, at: usize) -> Result<Option<Vector<'_>>> {
        self.refs.table(at)?.vector(field::INDICES, 4)
    }

    /// Returns the reference of a chunk. `time` is that of the snapshot.
    pub fn find(&self, indices: &[u32], time: SystemTime) -> Result<Option<Reference>> {
        let found = search(self.refs.count(), |at| {
            let found = self.indices(at)?;
            let count = found.as_ref().map_or(0, Vector::count);
            Ok(compare(found, indices)?.then(count.cmp(&indices.len())))
        })?;
        let Ok(at) = found else { return Ok(None) };
        self.reference(&self.refs.table(at)?, time).map(Some)
    }

    fn reference(&self, chunk: &FlatTable<'_>, time: SystemTime) -> Result<Reference> {
        let (offset, len) = (chunk.u64(field::OFFSET)?, chunk.u64(field::LENGTH)?);
        if let Some(id) = chunk.bytes(field::CHUNK_ID)? {
            let [a, b, c, d, e, f, g, h, i, j, k, l] = id;
            let first = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
            let second = u64::from(u32::from_be_bytes([i, j, k, l]));
            let location = ReferencedValue::Own(Key::parse(&format!("chunks/{}", Id(id)))?);
            return Ok(Reference {
                target: ReferenceTarget::Part {
                    location,
                    offset,
                    len,
                    stored_len: len,
                    check: None,
                },
                version: Version::settled([first, second, offset, len]),
                modified: time,
            });
        }
        if let Some(location) = self.location(chunk)? {
            let tag = chunk.text(field::ETAG)?;
            let seconds = chunk.u32(field::LAST_MODIFIED)?;
            let check = match (tag, seconds) {
                (Some(tag), _) => Some(Check::Tag(tag.into())),
                (None, 0) => None,
                (None, seconds) => Some(Check::UnmodifiedSince(seconds.into())),
            };
            let version =
                version_of(format!("{location} {tag:?} {seconds}").as_bytes(), offset, len);
            let location = ReferencedValue::Other(location);
            let target = ReferenceTarget::Part { location, offset, len, stored_len: len, check };
            return Ok(Reference { target, version, modified: time });
        }
        let Some(bytes) = chunk.octets(field::INLINE)? else {
            return Err(Error::corrupt("the manifest has no bytes and no place for this chunk"));
        };
        // A part of the buffer would keep the whole manifest in memory.
        let target = ReferenceTarget::Inline(Bytes::copy_from_slice(bytes));
        let len = bytes.len().to_u64();
        Ok(Reference { target, version: version_of(bytes, 0, len), modified: time })
    }

    /// Returns the URL of the file that has the chunk.
    fn location(&self, chunk: &FlatTable<'_>) -> Result<Option<Arc<str>>> {
        if let Some(compressed) = chunk.octets(field::COMPRESSED_LOCATION)? {
            let mut decompressor = self.manifest.decompressor()?;
            let location = decompressor
                .decompress(compressed, MAX_LOCATION_LEN)
                .map_err(|error| damaged(&error))?;
            let location = String::from_utf8(location);
            let not_utf8 = |_| Error::corrupt("the location of the chunk is not UTF-8");
            return location.map(|it| Some(it.into())).map_err(not_utf8);
        }
        Ok(chunk.text(field::LOCATION)?.map(Arc::from))
    }

    /// Returns the next index of all chunks whose indices begin with `first`, each once, in order,
    /// and whether it is the last of them.
    pub fn next_indices(&self, first: &[u32]) -> Result<Vec<(u32, bool)>> {
        let mut found = Vec::new();
        let mut wanted = first.to_vec();
        wanted.push(0);
        loop {
            // The first chunk that is not before the wanted ones.
            let at = search(self.refs.count(), |at| {
                let order = compare(self.indices(at)?, &wanted)?;
                Ok(if order == Ordering::Equal { Ordering::Greater } else { order })
            })?;
            let at = at.unwrap_or_else(|at| at);
            if at >= self.refs.count() {
                return Ok(found);
            }
            let Some(indices) = self.indices(at)? else { return Ok(found) };
            if compare(Some(indices), first)? != Ordering::Equal || indices.count() <= first.len() {
                return Ok(found);
            }
            let next = indices.u32(first.len())?;
            let is_before = wanted.last().is_some_and(|last| next < *last);
            if is_before {
                return Err(Error::corrupt("the chunks of the manifest are not sorted"));
            }
            found.push((next, indices.count() == wanted.len()));
            let Some(after) = next.checked_add(1) else { return Ok(found) };
            wanted.pop();
            wanted.push(after);
        }
    }
}
