//! Chunk files for which the metadata file is still missing.
//!
//! A program that copies an array over an older state of it brings chunks and metadata files in any
//! order (`tar`, `cp -r`, `git checkout`). A chunk that the present grid does not have therefore
//! waits in memory, under its name, where all programs see it. If a metadata file comes that makes
//! it a chunk, it is stored. If none comes before the write-back delay ends, that is an error: it is
//! logged, `fsync` and `umount` return it, and `umount --rescue` can save the file, which waits on.

use super::files::Files;
use super::store::StoreReason;
use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::metadata::NodePath;
use crate::vfs::names::file::{Content, File, Unstored};
use crate::vfs::names::inode::Inode;
use crate::vfs::names::overlay::Shown;
use crate::vfs::names::place::Place;

impl Files {
    /// Whether a place is a chunk that waits for another metadata file.
    pub fn is_waiting(&self, place: Option<&Place>) -> bool {
        let Some(place @ Place::Chunk(..)) = place else { return false };
        // If the array cannot be read, storing the chunk reports it.
        self.names.target(place.clone()).is_ok_and(|target| target.waits().is_some())
    }

    /// Keeps a file that cannot be stored yet, for the reason `error`.
    pub(super) fn keep_waiting(
        &self,
        inode: &Inode,
        file: &mut File,
        error: Error,
        reason: StoreReason,
    ) -> Result<()> {
        let writers = file.writers;
        let Content::Unstored(unstored) = &mut file.content else { return Ok(()) };
        let is_late = unstored.since.elapsed() >= self.core.options.writeback_delay;
        match reason {
            // Its name keeps it.
            StoreReason::Closing => {}
            StoreReason::Aged if writers == 0 && is_late && unstored.refused.is_none() => {
                unstored.refused = Some(error.clone());
                return Err(error);
            }
            StoreReason::Aged => return Ok(()),
            StoreReason::Everything if writers > 0 && !unstored.settled => return Ok(()),
            StoreReason::Asked | StoreReason::Everything => return Err(error),
        }
        if let Some(place) = inode.place()
            && let Some(kept) = self.names.inodes.known_at(&place)
        {
            let name = place.name().unwrap_or_default();
            self.names.overlay.insert(place.parent(), &name, Shown::File(place, kept));
        }
        Ok(())
    }

    /// Stores the chunks of the array at `path` that have waited for its metadata file. Tries all
    /// before it returns the first error. The caller holds `tree_lock` exclusively.
    pub(super) fn store_waiting(&self, path: &NodePath) -> Result<()> {
        let mut first = Ok(());
        for inode in self.names.overlay.files() {
            let Some(place @ Place::Chunk(..)) = inode.place() else { continue };
            if place.node() != Some(path) || self.is_waiting(Some(&place)) {
                continue;
            }
            let mut file = inode.file().lock();
            // A writer stores it when it closes the file.
            if file.writers == 0 {
                first = first.and(self.store_locked(&inode, &mut file, StoreReason::Asked));
                drop(file);
                self.core.invalidate(inode.number());
            }
        }
        first
    }

    /// Gives a locked file these bytes, to be stored.
    pub fn hold(&self, file: &mut File, bytes: Buffer) -> Result<()> {
        self.reserve(bytes.len())?;
        file.content = Content::Unstored(Unstored { changed: true, ..Unstored::of(bytes) });
        Ok(())
    }
}
