//! The files of the tree as they are stored: their bytes, keys, lengths and times.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use bytes::Bytes;

use super::unsynced::Unsynced;
use crate::array::ChunkRef;
use crate::buffer::Buffer;
use crate::cache::DecodedChunk;
use crate::error::{Error, Kind, Result};
use crate::hierarchy::TextPurpose;
use crate::metadata::NodePath;
use crate::store::{ByteRange, Key, NewFile, Value, Version};
use crate::vfs::core::Core;
use crate::vfs::inodes::file::{FileToStore, slice};
use crate::vfs::inodes::place::Place;
use crate::vfs::names::Names;
use crate::vfs::names::target::CurrentPlace;
use crate::width::ToU64;

/// The versions of a stored value before and after a change.
pub(in crate::vfs) type VersionChange = (Version, Version);

/// The files of the tree as they are stored.
pub(in crate::vfs) struct StoredFiles {
    pub core: Arc<Core>,
    pub names: Arc<Names>,
    pub unsynced: Arc<Unsynced>,
}

impl StoredFiles {
    /// Returns a range of a stored file.
    pub fn read_stored(&self, target: &CurrentPlace, offset: u64, len: usize) -> Result<Bytes> {
        let Place::Ordinary(path, relative) = &target.place else {
            return Ok(slice(&self.stored_bytes(target)?.into(), offset, len));
        };
        let key = self.ordinary_key(path, relative)?;
        let range = ByteRange::Span { offset, len: len.to_u64() };
        let value = self.core.hierarchy.store().read().get_partial_values(&[(key, range)])?.pop();
        Ok(value.flatten().ok_or_else(Error::not_found)?.bytes)
    }

    /// Like [`Self::bytes_at`], as a server has it now.
    pub fn bytes_now(&self, place: &Place) -> Result<Buffer> {
        self.names.look_again(place, Instant::now())?;
        self.bytes_at(place)
    }

    /// Returns all bytes of the stored file at `place`.
    pub fn bytes_at(&self, place: &Place) -> Result<Buffer> {
        let target = self.names.target(place.clone())?;
        match target.chunk() {
            Some((path, chunk)) => {
                // Another program may have replaced it since it was cached.
                let now = Some(Instant::now());
                self.bytes_of(
                    path,
                    chunk,
                    self.core.cache.get_fresh(&chunk.array, &chunk.coords, now)?,
                )
            }
            None => self.stored_bytes(&target),
        }
    }

    /// Returns the bytes of a chunk that was looked up.
    pub fn bytes_of(
        &self,
        path: &NodePath,
        chunk: &ChunkRef,
        found: Option<DecodedChunk>,
    ) -> Result<Buffer> {
        let ChunkRef { array, coords } = chunk;
        match found {
            Some(chunk) => Ok(chunk.bytes),
            None if self.names.zarr2.shows_fill(path, array) => array.fill_file(coords),
            None => Err(Error::not_found()),
        }
    }

    /// Returns all bytes of a stored file.
    pub fn stored_bytes(&self, target: &CurrentPlace) -> Result<Buffer> {
        if let Some((path, chunk)) = target.chunk() {
            return self.bytes_of(path, chunk, self.core.cache.get(&chunk.array, &chunk.coords)?);
        }
        match &target.place {
            Place::Document(_) | Place::Attributes(_) | Place::Copies(_) => {
                let shown = self.names.zarr2.shown_at(&target.place, TextPurpose::Text)?;
                Ok(shown.as_bytes().to_vec().into())
            }
            Place::Ordinary(path, relative) => self.value_of(&self.ordinary_key(path, relative)?),
            Place::StoredDocument(_, key) => self.value_of(key),
            Place::Chunk(..) | Place::Report(_) | Place::ViewsOf(..) | Place::View(..) => {
                Ok(Vec::new().into())
            }
            Place::Node(_)
            | Place::ChunkDir(..)
            | Place::OrdinaryDir(..)
            | Place::Control
            | Place::StoredDir(_)
            | Place::ViewsDir(_) => Err(Error::new(Kind::IsDirectory, "is a directory")),
        }
    }

    fn value_of(&self, key: &Key) -> Result<Buffer> {
        Ok(self.value_at(key)?.bytes.into())
    }

    /// Returns the value of a file that is stored as it is.
    pub fn value_at(&self, key: &Key) -> Result<Value> {
        let limit = self.core.hierarchy.options().max_chunk_len;
        self.core.hierarchy.store().get(key, limit)?.ok_or_else(Error::not_found)
    }

    /// Returns the version of an ordinary file that programs see.
    pub fn version_shown(&self, place: &Place) -> Option<Version> {
        let Place::Ordinary(path, relative) = place else { return None };
        let key = self.ordinary_key(path, relative).ok()?;
        let stat = self.core.hierarchy.store().stat(&key).ok()??;
        Some(stat.version)
    }

    /// Returns the key of an ordinary file.
    pub fn ordinary_key(&self, path: &NodePath, relative: &str) -> Result<Key> {
        self.core.hierarchy.ordinary_prefix(path)?.key(relative)
    }

    /// Stores an ordinary file. If the kernel has written it, and no program can still write to it,
    /// the file itself becomes the value.
    pub fn set_ordinary(&self, key: &Key, written: &FileToStore) -> Result<Version> {
        let FileToStore { bytes, condition, .. } = written;
        let store = self.core.hierarchy.store().write()?;
        if let Some(new) = bytes.new_file().filter(|new| !new.may_have_writers())
            && let Some(stat) = store.set_file(key, new, *condition).map_err(taken)?
        {
            return Ok(stat.version);
        }
        let limit = self.core.hierarchy.options().max_chunk_len;
        let pieces = [Bytes::from(bytes.to_buffer(limit)?).into()];
        Ok(store.set(key, &pieces, *condition).map_err(taken)?.version)
    }

    /// Returns the most bytes that a file may have.
    pub fn longest(&self, target: Option<&CurrentPlace>) -> Result<u64> {
        if let Some((_, chunk)) = target.and_then(CurrentPlace::chunk)
            && target.is_some_and(|target| target.waits().is_none())
        {
            return Ok(chunk.array.chunk_len(&chunk.coords)?.longest());
        }
        Ok(match target.map(|target| &target.place) {
            Some(place) if place.is_document() => crate::limits::METADATA.get(),
            Some(Place::View(path, format)) => self.names.views.view(path, format)?.len(),
            _ => self.core.hierarchy.options().max_chunk_len,
        })
    }

    /// Fails with [`Kind::TooLarge`] if a file cannot have `len` bytes.
    pub fn check_longest(&self, target: Option<&CurrentPlace>, len: u64) -> Result<()> {
        let limit = self.longest(target)?;
        if len <= limit {
            return Ok(());
        }
        Err(Error::too_large(format!("{len} bytes: the limit of the file is {limit}")))
    }

    /// Sets the modification time of a stored file. A shard gets it if programs have set the times
    /// of all of its chunks; otherwise only this mount knows it. Returns the versions of the stored
    /// value before and after, or `None` if its time was not set.
    pub fn set_stored_modified(
        &self,
        target: &CurrentPlace,
        modified: SystemTime,
    ) -> Result<Option<VersionChange>> {
        let Some(key) = self.key_of(target)? else { return Ok(None) };
        let Some((_, ChunkRef { array, coords })) = target.chunk() else {
            return self.set_value_modified(target, &key, modified).map(Some);
        };
        if self.core.cache.set_modified(&key, coords, modified) {
            return Ok(None);
        }
        let of_value = array.set_modified(&[(coords.clone(), modified)])?;
        of_value.map(|modified| self.set_value_modified(target, &key, modified)).transpose()
    }

    /// Whether a new file has become the stored value of `key`, and is so still.
    pub fn is_value_of(&self, key: &Key, new: &NewFile) -> Result<bool> {
        let found = self.core.hierarchy.store().read().open(key)?;
        Ok(found.map(|(file, _)| new.is_same(file)).transpose()?.unwrap_or_default())
    }

    /// Sets the modification time of the stored value of `key`, even if changes to it are pending.
    pub fn set_value_modified(
        &self,
        target: &CurrentPlace,
        key: &Key,
        modified: SystemTime,
    ) -> Result<VersionChange> {
        let (before, after) = self.core.hierarchy.store().write()?.set_modified(key, modified)?;
        if let Some((_, chunk)) = target.chunk() {
            self.core.cache.set_version(&chunk.array, &chunk.coords, before, after);
            chunk.array.chunks().renew(&chunk.coords, before, after);
        }
        if let Place::Document(path) | Place::Attributes(path) = &target.place {
            self.core.hierarchy.invalidate(path);
        }
        Ok((before, after))
    }

    /// Returns the key of the value that contains a file; `None` if it has none.
    pub fn key_of(&self, target: &CurrentPlace) -> Result<Option<Key>> {
        if let Some((_, chunk)) = target.chunk() {
            return chunk.array.key(&chunk.coords).map(Some);
        }
        Ok(match &target.place {
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
            | Place::Chunk(..)
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
    pub fn sync_key(&self, target: &CurrentPlace) -> Result<()> {
        let Some(key) = self.key_of(target)? else { return Ok(()) };
        if !self.core.hierarchy.store().is_writable() {
            return Ok(()); // A read-only mount has written nothing.
        }
        self.unsynced.sync_key(self.core.hierarchy.store(), key)
    }
}

/// Says what to do if the name of a new ordinary file is taken. Unlike other errors of this errno,
/// it is logged: the program may have closed the file.
pub(super) fn taken(error: Error) -> Error {
    let (errno, detail) = match error.kind() {
        Kind::Exists => (
            libc::EEXIST,
            "another program has just made a file of this name, which stays: copy this one to \
             another name",
        ),
        Kind::Stale => (
            libc::EBUSY,
            "another program has stored the file since this one was read, and that one stays: copy \
             this one to another name",
        ),
        _ => return error,
    };
    Error::new(Kind::Os(errno), detail)
}
