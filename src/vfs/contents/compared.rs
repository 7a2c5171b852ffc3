//! Chunks and ordinary files of a server, compared with what the programs that change them have
//! read.
//!
//! A mount shows such a file as it was up to `--metadata-ttl` ago. A program that changes an
//! element or a line reads the file, and writes all of it again: into the file, or into another one
//! that takes its name, or that gets the name after the old one was removed. None of these may undo
//! what another program has stored in between. The server decides at the put, and a request before
//! it tells the program of a change that was there already.
//!
//! A whole file that was written by an old view is refused, not merged: which elements of a chunk
//! its program meant to change cannot be told from the bytes. The server is not asked at each open,
//! since most programs only read, and a request takes longer than the read itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::chunks::ChunkWriter;
use super::files::Files;
use crate::array::{Array, ChunkRef, Coords};
use crate::cache::{ChunkBase, DecodedChunk};
use crate::error::{Error, Kind, Result, WithSubject};
use crate::metadata::NodePath;
use crate::store::{Condition, Version};
use crate::vfs::authors::Processes;
use crate::vfs::inodes::file::BytesAt;
use crate::vfs::inodes::inode::Inode;
use crate::vfs::inodes::place::Place;
use crate::vfs::inodes::seen_versions::SeenVersion;

fn place_of(path: &NodePath, coords: &Coords) -> Place {
    Place::Chunk(path.clone(), coords.clone())
}

impl ChunkWriter {
    /// Returns the version of a chunk that programs have read, as a file or in a view.
    pub(super) fn take_seen(
        &self,
        path: &NodePath,
        chunk: &ChunkRef,
        by: &Processes,
    ) -> Option<SeenVersion> {
        let ChunkRef { array, coords } = chunk;
        let seen = self.names.seen_versions.take(&place_of(path, coords), by, self.ttl());
        seen.or_else(|| {
            let in_view = || self.core.cache.peek(array, coords).map(|chunk| chunk.stat.version);
            let version = self.has_read_array(path, by).then(in_view).flatten();
            version.filter(|it| it.holds(*it) && !it.is_unstored()).map(SeenVersion::of)
        })
    }

    /// Whether programs have read a view of an array, and may have got old chunks.
    fn has_read_array(&self, path: &NodePath, by: &Processes) -> bool {
        self.shows_old_chunks() && self.names.seen_versions.has_read_array(path, by, self.ttl())
    }

    /// Whether the cache has a chunk as programs have read it in a view, and the server can compare
    /// it with its own when they store it.
    pub fn is_cached_as_read(
        &self,
        path: &NodePath,
        array: &Arc<Array>,
        coords: &Coords,
        by: &Processes,
    ) -> bool {
        self.has_read_array(path, by)
            && self.core.cache.peek(array, coords).is_some()
            && self.core.compares_puts().is_ok_and(|does| does)
    }

    /// Fails if a program removes a chunk that has changed since it read it.
    pub fn check_removed(&self, path: &NodePath, chunk: &ChunkRef, by: &Processes) -> Result<()> {
        match self.take_seen(path, chunk, by) {
            Some(seen) => self.check_current(path, chunk, seen).map(drop),
            None => Ok(()),
        }
    }

    /// Returns the chunk that the programs `by` have read before they wrote this one, which could
    /// not be stored: if another program stores it before it is, their changes are merged.
    pub fn base_seen(
        &self,
        path: &NodePath,
        chunk: &ChunkRef,
        by: &Processes,
    ) -> Option<ChunkBase> {
        let seen = self.take_seen(path, chunk, by)?;
        match seen.version {
            None => Some(ChunkBase::Absent),
            Some(version) => {
                let before = self.core.cache.peek(&chunk.array, &chunk.coords)?;
                let is_seen = version.holds(before.stat.version);
                is_seen.then(|| ChunkBase::Stored(before.bytes, version))
            }
        }
    }

    fn ttl(&self) -> Duration {
        self.core.hierarchy.options().metadata_ttl
    }

    /// Whether programs may get chunks that are older than those of the server.
    pub fn shows_old_chunks(&self) -> bool {
        let may_be_old = self.core.is_remote() && !self.ttl().is_zero();
        may_be_old && self.core.hierarchy.store().is_writable()
    }

    /// Notes that programs read a chunk, which may be older than that of the server. `pages` is the
    /// version that the kernel has.
    pub fn note_reader(
        &self,
        path: &NodePath,
        coords: &Coords,
        by: &Processes,
        pages: Option<Version>,
    ) {
        // Reading it reports an error.
        let Ok(array) = self.core.shown_array_at(path, coords.indices()) else { return };
        if self.core.cache.is_pending(&array, coords) {
            // It is that of this mount.
            return self.names.seen_versions.forget(&place_of(path, coords));
        }
        let cached = || self.core.cache.peek(&array, coords).map(|chunk| chunk.stat.version);
        let shows_fill = || {
            let is_absent = array.stat(coords).is_ok_and(|stat| stat.is_none());
            self.names.zarr2.shows_fill(path, &array) && is_absent
        };
        let version = pages.or_else(cached);
        if version.is_some() || shows_fill() {
            self.names.seen_versions.note(&place_of(path, coords), by, version);
        }
    }

    /// Fails if a program writes a whole chunk after it has read an older one: it would undo what
    /// another program has stored before. Returns the chunk that it has read, if the server can
    /// compare that with its own when the chunk is stored.
    pub(super) fn check_current(
        &self,
        path: &NodePath,
        chunk: &ChunkRef,
        seen: SeenVersion,
    ) -> Result<Option<ChunkBase>> {
        let ChunkRef { array, coords } = chunk;
        let is_seen =
            |it: &DecodedChunk| seen.version.is_some_and(|seen| seen.holds(it.stat.version));
        let before = self.core.cache.peek(array, coords).filter(is_seen);
        let store = self.core.hierarchy.store();
        let stat = store.stat_since(&array.key(coords)?, Instant::now())?;
        if Version::holds_of(seen.version, stat.map(|stat| stat.version)) {
            let is_compared = self.core.compares_puts()?;
            let base = match (stat, before) {
                (None, _) => Some(ChunkBase::Absent),
                (Some(stat), Some(before)) => Some(ChunkBase::Stored(before.bytes, stat.version)),
                (Some(_), None) => None,
            };
            return Ok(base.filter(|_| is_compared));
        }
        // The version is that of the whole shard.
        let is_same = |before: &DecodedChunk| {
            let now = self.core.cache.get_fresh(array, coords, Some(Instant::now()));
            now.map(|now| now.is_some_and(|now| now.bytes == before.bytes))
        };
        match before {
            Some(before) if is_same(&before)? => Ok(None),
            None if array.is_sharded() => Ok(None),
            _ => {
                if stat.is_some() {
                    // The program has not read it again since.
                    self.names.seen_versions.put_back(&place_of(path, coords), seen);
                }
                let detail = "another program has stored the chunk since this one has read it: \
                              read it again";
                Err(Error::new(Kind::Stale, detail).at(array.key(coords)?))
            }
        }
    }
}

impl Files {
    /// Returns the condition under which programs replace the file at `place`: if they have read
    /// it, that it is still the same. [`Kind::Stale`] if it is not.
    pub fn condition_as_read(&self, place: &Place, by: &Processes) -> Result<Condition> {
        let Some(read) = self.take_read(place, by) else { return Ok(Condition::Always) };
        Ok(match self.check_is(place, read)? {
            None => Condition::Absent,
            Some(_) if !self.core.compares_puts()? => Condition::Always,
            Some(now) => Condition::Unchanged(now),
        })
    }

    /// Gives a file that programs have truncated the condition that the server still has what they
    /// have read.
    pub fn compare_with_read(&self, inode: &Inode, by: &Processes) {
        let Some(read) = inode.place().and_then(|place| self.take_read(&place, by)) else { return };
        if let BytesAt::Unstored(unstored) = &mut inode.file().lock().content
            && matches!(unstored.condition, Condition::Always)
            && self.core.compares_puts().unwrap_or(true)
        {
            unstored.condition = Condition::Unchanged(read);
        }
    }

    /// Fails if programs remove a file that has changed since they read it.
    pub fn check_removed(&self, place: &Place, by: &Processes) -> Result<()> {
        match self.take_read(place, by) {
            Some(read) => self.check_is(place, read).map(drop),
            None => Ok(()),
        }
    }

    /// Fails if a changed file that waits can no longer take the place of the one that is stored.
    pub fn check_unchanged(&self, inode: &Inode) -> Result<()> {
        if !self.core.is_remote() {
            return Ok(());
        }
        let Some(place @ Place::Ordinary(..)) = inode.place() else { return Ok(()) };
        let read = match &inode.file().lock().content {
            BytesAt::Unstored(unstored) if unstored.changed => unstored.condition,
            _ => Condition::Always,
        };
        match read {
            Condition::Unchanged(read) => self.check_is(&place, read).map(drop),
            Condition::Always | Condition::Absent => Ok(()),
        }
    }

    /// Returns the version of an ordinary file that programs have read, once.
    fn take_read(&self, place: &Place, by: &Processes) -> Option<Version> {
        let ttl = self.core.hierarchy.options().metadata_ttl;
        let is_ordinary = matches!(place, Place::Ordinary(..)) && self.core.is_remote();
        let read = is_ordinary.then(|| self.names.seen_versions.take(place, by, ttl))??;
        read.version
    }

    /// Returns the version of an ordinary file on the server, `None` if it is gone. [`Kind::Stale`]
    /// if it is another one than `read`.
    fn check_is(&self, place: &Place, read: Version) -> Result<Option<Version>> {
        let Place::Ordinary(path, relative) = place else { return Ok(None) };
        let key = self.stored.ordinary_key(path, relative)?;
        let now = self.core.hierarchy.store().stat_since(&key, Instant::now())?;
        if now.is_some_and(|now| !read.holds(now.version)) {
            let detail = "another program has stored it since this one has read it: read it again";
            return Err(Error::new(Kind::Stale, detail).at(place.shown()));
        }
        Ok(now.map(|now| now.version))
    }
}
