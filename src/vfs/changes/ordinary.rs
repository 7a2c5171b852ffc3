//! Removes and renames ordinary files in a store of files.

use std::sync::Arc;

use super::renames::{NamedFile, Renames, lock_both};
use crate::error::{Error, Kind, Result, WithSubject};
use crate::store::directory::LOCK_SUFFIX;
use crate::store::{FileKind, FileStore, Replace};
use crate::vfs::contents::next_step::StoreReason;
use crate::vfs::inodes::file::InodeFile;
use crate::vfs::inodes::inode::Inode;
use crate::vfs::inodes::place::Place;
use crate::vfs::names::ordinary::{NewName, keeps_no_files};

/// Whether a file is a lock of TensorStore, which is never stored as it is.
pub(super) fn is_lock_of_tensorstore(place: &Place) -> bool {
    place.name().is_some_and(|name| name.ends_with(LOCK_SUFFIX))
}

impl Renames {
    /// Whether both places are ordinary files that the store keeps as files.
    pub(super) fn are_kept_as_files(&self, from: &Place, to: &Place) -> bool {
        let is_kept = |place| self.contents.files.is_kept_as_file(Some(place));
        is_kept(from) && is_kept(to)
    }

    pub(super) fn files(&self) -> Result<&dyn FileStore> {
        self.core.hierarchy.store().write()?;
        self.names.ordinary.store().ok_or_else(keeps_no_files)
    }

    /// Returns a new name of an ordinary file in its store of files.
    pub(super) fn for_new(&self, place: &Place) -> Result<NewName> {
        self.core.hierarchy.store().write()?;
        self.names.ordinary.for_new(place)?.ok_or_else(keeps_no_files)
    }

    pub(super) fn path(&self, place: &Place) -> Result<String> {
        self.names.ordinary.path(place)?.ok_or_else(Error::not_found)
    }

    /// Removes an ordinary file from the store.
    pub(super) fn remove_file(&self, place: &Place) -> Result<()> {
        self.files()?.remove_file(&self.path(place)?)
    }

    /// Removes one name of an ordinary file. Programs that have it open keep it.
    pub(super) fn unlink_in_store(
        &self,
        inode: &Inode,
        file: &mut InodeFile,
        place: &Place,
    ) -> Result<()> {
        if !file.is_new() {
            self.names.check_is_ordinary(place)?;
            self.remove_file(place)?;
        }
        self.contents.files.note_change(place)?;
        self.names.inodes.unlink(place);
        if inode.place().is_none() {
            self.contents.files.detach(file, None);
        }
        self.names.overlay.remove_file(place, inode);
        self.names.remember_chunk_dirs(place);
        Ok(())
    }

    /// Renames an ordinary file to another ordinary one. A scratch file becomes a file of the store
    /// first.
    pub(super) fn rename_in_store(
        &self,
        from: NamedFile<'_>,
        to: NamedFile<'_>,
        replace: Replace,
    ) -> Result<()> {
        let (inode, replaced) = (from.inode, to.inode);
        if Arc::ptr_eq(inode, replaced) {
            return Ok(()); // POSIX wants that for two names of one file.
        }
        let (mut file, mut old) = lock_both(inode, replaced);
        self.contents.files.store_locked(inode, &mut file, StoreReason::Asked)?;
        if replace == Replace::Exchange {
            self.contents.files.store_locked(replaced, &mut old, StoreReason::Asked)?;
        }
        let new = self.for_new(to.place)?;
        new.files()?.rename(&self.path(from.place)?, &new.path, replace)?;
        self.contents.files.note_change(from.place)?;
        self.contents.files.note_change(to.place)?;
        if replace == Replace::Exchange {
            self.names.inodes.exchange((inode, from.place), (replaced, to.place));
            return Ok(());
        }
        self.names.inodes.rename(inode, from.place, to.place);
        if replaced.place().is_none() {
            self.contents.files.detach(&mut old, None);
        }
        self.names.overlay.remove_file(to.place, replaced);
        self.names.overlay.remove_file(from.place, inode);
        self.names.remember_chunk_dirs(from.place);
        Ok(())
    }

    /// Fails for a link, a FIFO, a socket or a device, which has no bytes for a chunk or a metadata
    /// file.
    pub(super) fn check_regular(&self, from: &Place) -> Result<()> {
        if !self.contents.files.is_kept_as_file(Some(from)) {
            return Ok(());
        }
        match self.names.ordinary.stat(from)? {
            Some(found) if found.kind != FileKind::Regular => {
                Err(Error::new(Kind::NotPermitted, "not a regular file").at(from.shown()))
            }
            _ => Ok(()),
        }
    }
}
