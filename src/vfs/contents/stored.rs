//! The files of the tree as they are stored: their bytes, keys, lengths and times.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;

use super::unsynced::Unsynced;
use crate::array::ArrayId;
use crate::buffer::Buffer;
use crate::error::{At, Error, Kind, Result};
use crate::hierarchy::Wanted;
use crate::metadata::NodePath;
use crate::store::{ByteRange, Key, Version};
use crate::vfs::core::Core;
use crate::vfs::names::Names;
use crate::vfs::names::file::slice;
use crate::vfs::names::place::Place;

/// The versions of a stored value before and after a change.
pub(in crate::vfs) type Versions = (Version, Version);

/// The files of the tree as they are stored.
pub(in crate::vfs) struct StoredFiles {
    pub core: Arc<Core>,
    pub names: Arc<Names>,
    pub unsynced: Arc<Unsynced>,
}

impl StoredFiles {
    /// What changes when the node of a file is moved, removed or gets other metadata.
    pub fn state_of(&self, place: &Place) -> (u64, Option<ArrayId>) {
        let array = match place {
            Place::Chunk(path, _) => self.core.array(path).ok().map(|array| array.id()),
            _ => None,
        };
        (self.core.hierarchy.moves(), array)
    }

    /// A range of what is stored at `place`.
    pub fn read_stored(&self, place: &Place, offset: u64, len: usize) -> Result<Bytes> {
        let Place::Ordinary(path, relative) = place else {
            return Ok(slice(&self.stored_bytes(place)?.into(), offset, len));
        };
        let key = self.ordinary_key(path, relative)?;
        let range = ByteRange::Span { offset, len: u64::try_from(len).unwrap_or(u64::MAX) };
        let value = self.core.hierarchy.store().read().get_partial_values(&[(key, range)])?.pop();
        Ok(value.flatten().ok_or_else(Error::not_found)?.bytes)
    }

    /// Returns all bytes of the stored file at `place`.
    pub fn stored_bytes(&self, place: &Place) -> Result<Buffer> {
        match place {
            Place::Chunk(path, coords) => {
                let array = self.core.array(path)?;
                match self.core.cache.get(&array, coords)? {
                    Some(chunk) => Ok(chunk.bytes),
                    None if self.names.zarr2.shows_fill(path, &array) => array.fill_chunk(coords),
                    None => Err(Error::not_found()),
                }
            }
            Place::Document(_) | Place::Attributes(_) | Place::Copies(_) => {
                Ok(self.names.zarr2.shown_at(place, Wanted::Text)?.as_bytes().to_vec().into())
            }
            Place::Ordinary(path, relative) => self.value_of(&self.ordinary_key(path, relative)?),
            Place::StoredDocument(_, key) => self.value_of(key),
            Place::Report(_) | Place::ViewsOf(..) | Place::View(..) => Ok(Vec::new().into()),
            Place::Node(_)
            | Place::ChunkDir(..)
            | Place::OrdinaryDir(..)
            | Place::Control
            | Place::StoredDir(_)
            | Place::ViewsDir(_) => Err(Error::new(Kind::IsDirectory, "is a directory")),
        }
    }

    fn value_of(&self, key: &Key) -> Result<Buffer> {
        let limit = self.core.hierarchy.options().max_chunk_len;
        let value = self.core.hierarchy.store().get(key, limit)?.ok_or_else(Error::not_found)?;
        Ok(value.bytes.into())
    }

    pub fn ordinary_key(&self, path: &NodePath, relative: &str) -> Result<Key> {
        self.core.hierarchy.ordinary_prefix(path)?.key(relative)
    }

    /// Returns the most bytes that the file at `place` may have.
    pub fn longest(&self, place: Option<&Place>) -> Result<u64> {
        Ok(match place {
            Some(Place::Chunk(path, coords)) => self.core.array(path)?.chunk_len(coords)?.longest(),
            Some(place) if place.is_document() => crate::json::MAX_DOCUMENT_LEN,
            Some(Place::View(path, format)) => self.names.views.view(path, format)?.len(),
            _ => self.core.hierarchy.options().max_chunk_len,
        })
    }

    pub fn check_longest(&self, place: Option<&Place>, len: u64) -> Result<()> {
        let limit = self.longest(place)?;
        if len <= limit {
            return Ok(());
        }
        let shown = place.map(Place::shown).unwrap_or_default();
        Err(Error::too_large(format!("{len} bytes: the limit of the file is {limit}")).at(shown))
    }

    /// Sets the modification time of what is stored at `place`; for an inner chunk, that of its
    /// shard. Returns the versions before and after, or `None` if the file has no stored value of
    /// its own.
    pub fn set_stored_modified(
        &self,
        place: &Place,
        modified: SystemTime,
    ) -> Result<Option<Versions>> {
        let Some(key) = self.key_of(place)? else { return Ok(None) };
        if let Place::Chunk(_, coords) = place
            && self.core.cache.set_modified(&key, coords, modified)
        {
            return Ok(None);
        }
        self.set_value_modified(place, &key, modified).map(Some)
    }

    /// Sets the modification time of the stored value of `key`, even if changes to it are pending.
    pub fn set_value_modified(
        &self,
        place: &Place,
        key: &Key,
        modified: SystemTime,
    ) -> Result<Versions> {
        let (before, after) = self.core.hierarchy.store().write()?.set_modified(key, modified)?;
        match place {
            Place::Chunk(path, coords) => {
                self.core.cache.set_version(&self.core.array(path)?, coords, before, after);
            }
            Place::Document(path) | Place::Attributes(path) => self.core.hierarchy.invalidate(path),
            _ => {}
        }
        Ok((before, after))
    }

    /// Returns the key of the value that contains the file; `None` if it has none.
    pub fn key_of(&self, place: &Place) -> Result<Option<Key>> {
        Ok(match place {
            Place::Chunk(path, coords) => Some(self.core.array(path)?.key(coords)?),
            Place::Document(path) => {
                let node = self.core.hierarchy.existing(path)?;
                node.document().map(|document| document.key.clone())
            }
            Place::Attributes(path) => {
                let node = self.core.hierarchy.existing(path)?;
                node.document().and_then(|document| document.keys().pop())
            }
            Place::Ordinary(path, relative) => Some(self.ordinary_key(path, relative)?),
            Place::StoredDocument(_, key) => Some(key.clone()),
            Place::Node(_)
            | Place::Copies(_)
            | Place::ChunkDir(..)
            | Place::OrdinaryDir(..)
            | Place::Control
            | Place::StoredDir(_)
            | Place::Report(_)
            | Place::View(..)
            | Place::ViewsDir(_)
            | Place::ViewsOf(..) => None,
        })
    }

    /// Syncs what was written to a file, or its removal, to disk.
    pub fn sync_place(&self, place: &Place) -> Result<()> {
        let Some(key) = self.key_of(place)? else { return Ok(()) };
        if !self.core.hierarchy.store().is_writable() {
            return Ok(()); // A read-only mount has written nothing.
        }
        self.unsynced.sync_key(self.core.hierarchy.store(), key)
    }
}
