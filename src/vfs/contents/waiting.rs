//! Chunk files for which the metadata file is still missing.
//!
//! A program that copies an array over an older state of it brings chunks and metadata files in any
//! order (`tar`, `cp -r`, `git checkout`). A chunk that the present grid does not have therefore
//! waits in memory, under its name, where all programs see it. If a metadata file comes that makes
//! it a chunk, it is stored. If none comes before the write-back delay ends, that is an error: it
//! is logged, `fsync` and `umount` return it, and `umount --rescue` can save the file, which waits
//! on.
//!
//! Making such a chunk is no error at once, since git does not look at the error of a close.

use std::time::Instant;

use super::files::Files;
use super::next_step::StoreReason;
use crate::error::Result;
use crate::metadata::NodePath;
use crate::vfs::authors::Processes;
use crate::vfs::inodes::file::{BytesAt, FileToStore, InodeFile, UnstoredBytes};
use crate::vfs::inodes::place::Place;
use crate::vfs::names::overlay::Shown;
use crate::vfs::names::target::CurrentPlace;

impl Files {
    /// Whether a place is a chunk that waits for another metadata file.
    pub fn is_waiting(&self, place: Option<&Place>) -> bool {
        let Some(place @ Place::Chunk(..)) = place else { return false };
        // If the array cannot be read, storing the chunk reports it.
        self.names.target(place.clone()).is_ok_and(|target| target.waits().is_some())
    }

    /// Like [`Self::is_waiting`], as the store has the array now.
    pub fn is_waiting_now(&self, place: &Place) -> Result<bool> {
        if !self.is_waiting(Some(place)) {
            return Ok(false);
        }
        let target = self.names.target(place.clone())?;
        Ok(target.chunk().is_none() || !self.has_room_now(&target)?)
    }

    /// Whether another program has given the array of a chunk a grid that has the chunk.
    fn has_room_now(&self, target: &CurrentPlace) -> Result<bool> {
        let Some((path, chunk)) = target.chunk() else { return Ok(false) };
        let now = self.core.hierarchy.array_since(path, &chunk.array, Instant::now())?;
        Ok(now.grid().contains(&chunk.coords))
    }

    /// Whether a place is a chunk that the array could not have with any shape, because it has
    /// another rank or other lengths of chunks. The store has nothing of it.
    pub fn has_no_key(&self, place: &Place) -> bool {
        let target = matches!(place, Place::Chunk(..)).then(|| self.names.target(place.clone()));
        let Some(Ok(target)) = target else { return false };
        target.chunk().is_some_and(|(_, chunk)| !chunk.array.grid().contains(&chunk.coords))
    }

    /// Whether a chunk that waits is to be stored, because another program has given the array a
    /// grid that has it.
    pub(super) fn has_grown(
        &self,
        target: &CurrentPlace,
        file: &InodeFile,
        reason: StoreReason,
    ) -> Result<bool> {
        let BytesAt::Unstored(unstored) = &file.content else { return Ok(false) };
        let is_due = reason != StoreReason::Aged || self.is_late(unstored);
        if target.waits().is_none() || !is_due || !unstored.changed {
            return Ok(false);
        }
        self.has_room_now(target)
    }

    /// Whether a file has waited for as long as it may, and that is not reported yet.
    pub(super) fn is_late(&self, unstored: &UnstoredBytes) -> bool {
        unstored.refused.is_none() && unstored.since.elapsed() >= self.core.options.writeback_delay
    }

    /// Keeps the name of a file that cannot be stored yet.
    pub(super) fn keep_name(&self, place: &Place) {
        if let Some(kept) = self.names.inodes.known_at(place) {
            let (name, shown) =
                (place.name().unwrap_or_default(), Shown::File(place.clone(), kept));
            self.names.overlay.insert(place.parent(), &name, shown);
        }
    }

    /// Stores the chunks of the array at `path` that have waited for its metadata file, which these
    /// programs have written. Tries all before it returns the first error of a chunk that is from
    /// them, too; the others are noted. The caller holds `tree_lock` exclusively.
    pub(super) fn store_waiting(&self, path: &NodePath, by: &Processes) -> Result<()> {
        let mut first = Ok(());
        for inode in self.names.overlay.files() {
            let Some(place @ Place::Chunk(..)) = inode.place() else { continue };
            if place.node() != Some(path) || self.is_waiting(Some(&place)) {
                continue;
            }
            let mut file = inode.file().lock();
            // A writer stores it when it closes the file.
            if file.writers == 0 {
                let stored = self.store_locked(&inode, &mut file, StoreReason::Asked);
                let is_theirs = by
                    .known()
                    .zip(file.authors.known())
                    .is_none_or(|(one, other)| one.iter().any(|process| other.contains(process)));
                drop(file);
                match stored {
                    Err(error) if !is_theirs => self.core.note("close", &error),
                    stored => first = first.and(stored),
                }
                self.core.invalidate(inode.number());
            }
        }
        first
    }

    /// Has a locked file wait if the place to which its bytes are `moved` is that of a chunk that
    /// waits, and returns whether it does. An ordinary file of the store gets its bytes in memory.
    pub fn wait_at(&self, file: &mut InodeFile, moved: &FileToStore, to: &Place) -> Result<bool> {
        let waits = self.is_waiting_now(to)?;
        if waits && !matches!(file.content, BytesAt::Unstored(_)) {
            let bytes = moved.bytes.to_buffer(self.core.hierarchy.options().max_chunk_len)?;
            self.reserve(bytes.len())?;
            file.content =
                BytesAt::Unstored(UnstoredBytes { changed: true, ..UnstoredBytes::of(bytes) });
        }
        if let BytesAt::Unstored(unstored) = &mut file.content {
            unstored.waits_since = waits.then(Instant::now);
        }
        Ok(waits)
    }

    /// Whether the bytes of a file wait, or its close has kept them for that, whatever has become
    /// of its array since.
    pub fn is_kept_waiting(&self, file: &InodeFile, place: Option<&Place>) -> bool {
        let BytesAt::Unstored(unstored) = &file.content else { return false };
        unstored.waits_since.is_some() || self.is_waiting(place)
    }
}
