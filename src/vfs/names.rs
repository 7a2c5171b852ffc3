//! Names that go or change: unlink, rmdir, rename.

use std::sync::Arc;

use super::Vfs;
use super::file::Content;
use super::overlay::Shown;
use super::place::Place;
use super::tree::{below_shown, has_chunks};
use crate::array::FillChunks;
use crate::codec::Buffer;
use crate::error::{At, Error, Kind, Result};
use crate::store::Version;

/// What a rename does where the new name is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replace {
    /// What is there goes.
    Yes,
    /// It is an error.
    No,
}

impl Vfs {
    /// Removes the file `name` from `parent`: a chunk is erased.
    pub fn unlink(&self, parent: u64, name: &str) -> Result<()> {
        let parent = self.directory(parent)?;
        let place = self.resolve(&parent, name)?.ok_or_else(Error::not_found)?;
        self.hierarchy.store().write()?;
        match &place {
            place if place.is_dir() => return Err(Error::new(Kind::IsDirectory, "is a directory")),
            Place::Chunk(..) | Place::Ordinary(..) => {}
            Place::Document(_) => {
                let detail = "a node cannot be removed through the mount yet";
                return Err(Error::new(Kind::NotPermitted, detail).at(place.shown()));
            }
            _ => return Err(Error::new(Kind::NotPermitted, "can only be read").at(place.shown())),
        }
        let inode = self.inodes.known_at(&place);
        self.leaving(inode.as_deref(), &place, || {
            self.erase(&place).at(place.shown())?;
            self.leave_overlay(&place);
            self.remember_chunk_dirs(&place);
            self.inodes.unlink(&place);
            Ok(())
        })
    }

    /// Removes the empty directory `name` from `parent`.
    pub fn rmdir(&self, parent: u64, name: &str) -> Result<()> {
        let parent = self.directory(parent)?;
        let place = self.resolve(&parent, name)?.ok_or_else(Error::not_found)?;
        self.hierarchy.store().write()?;
        let holds_something = match &place {
            Place::ChunkDir(path, prefix) => {
                has_chunks(&*self.array(path)?, prefix)? || self.holds_ordinary(&place)?
            }
            Place::OrdinaryDir(..) => self.holds_ordinary(&place)?,
            Place::Node(_) | Place::Control | Place::StoredDir(_) => {
                let detail = "a node cannot be removed through the mount yet";
                return Err(Error::new(Kind::NotPermitted, detail).at(place.shown()));
            }
            _ => return Err(Error::new(Kind::NotDirectory, "not a directory")),
        };
        if holds_something || self.overlay.has_any(&place) {
            return Err(Error::new(Kind::NotEmpty, "directory not empty"));
        }
        self.leave_overlay(&place);
        self.inodes.unlink(&place);
        Ok(())
    }

    /// Gives the file `name` in `parent` the name `new_name` in `new_parent`: its bytes become what is there.
    pub fn rename(
        &self,
        parent: u64,
        name: &str,
        new_parent: u64,
        new_name: &str,
        replace: Replace,
    ) -> Result<()> {
        let (parent, new_parent) = (self.directory(parent)?, self.directory(new_parent)?);
        let from = self.resolve(&parent, name)?.ok_or_else(Error::not_found)?;
        self.hierarchy.store().write()?;
        let taken = self.resolve(&new_parent, new_name)?;
        if taken.is_some() && replace == Replace::No {
            return Err(Error::new(Kind::Exists, "the file exists"));
        }
        if taken.as_ref() == Some(&from) {
            return Ok(());
        }
        match &from {
            Place::Chunk(..) | Place::Ordinary(..) => {}
            place if place.is_dir() => {
                let detail = "a directory cannot be renamed through the mount yet";
                return Err(Error::unsupported(detail).at(place.shown()));
            }
            place => {
                let detail = "this file cannot be renamed: its node needs it";
                return Err(Error::new(Kind::NotPermitted, detail).at(place.shown()));
            }
        }
        let to = match taken {
            Some(place) if place.is_dir() => {
                return Err(Error::new(Kind::IsDirectory, "is a directory"));
            }
            Some(place) => place,
            None => self.place_for_new(&new_parent, new_name)?,
        };
        super::commit::check_writable(Some(&to))?;
        self.rename_file(&from, &to).at(below_shown(&new_parent, new_name))
    }

    fn rename_file(&self, from: &Place, to: &Place) -> Result<()> {
        let inode = self.inodes.at(from);
        let replaced = self.inodes.known_at(to);
        let shown = replaced.as_ref().and_then(|inode| inode.file.lock().shown.clone());
        let (bytes, is_stored) = self.bytes_to_move(&inode, from)?;
        let modified = match &inode.file.lock().content {
            Content::Unstored(unstored) => unstored.keep_modified.then_some(unstored.modified),
            Content::Stored | Content::Detached(_) => None,
        };
        let stays_unstored = !is_stored && matches!(to, Place::Ordinary(..));
        let version = self.leaving(replaced.as_deref(), to, || {
            let mut version = None;
            if !stays_unstored {
                version = self.store_as(to, bytes, shown.as_deref(), modified)?;
                if is_stored {
                    self.erase(from)?;
                }
            }
            self.leave_overlay(from);
            self.remember_chunk_dirs(from);
            self.inodes.rename(&inode, to);
            Ok(version)
        })?;
        let directory = to.parent();
        let name = to.name().unwrap_or_default();
        if stays_unstored {
            self.overlay.insert(directory, &name, Shown::File(to.clone(), Arc::clone(&inode)));
        } else {
            self.overlay.remove(&directory, &name);
            self.now_stored(&inode, version);
        }
        if matches!(to, Place::Document(_)) {
            // What is shown is not what was written.
            self.invalidate(&inode);
        }
        Ok(())
    }

    /// All bytes of a file that is to be renamed, and whether its old name has them in the store.
    fn bytes_to_move(&self, inode: &super::inode::Inode, from: &Place) -> Result<(Buffer, bool)> {
        if let Content::Unstored(unstored) = &inode.file.lock().content
            && unstored.changed
        {
            let is_new =
                self.overlay.get(&from.parent(), &from.name().unwrap_or_default()).is_some();
            return Ok((unstored.bytes.clone(), !is_new));
        }
        Ok((self.stored_bytes(from)?, true))
    }

    /// Notes that the bytes of a file are what is stored.
    fn now_stored(&self, inode: &super::inode::Inode, version: Option<Version>) {
        let mut file = inode.file.lock();
        self.forget_unstored(&mut file);
        file.seen = version;
        file.shown = None;
    }

    fn erase(&self, place: &Place) -> Result<()> {
        let Some(key) = self.key_of(place)? else { return Ok(()) };
        match place {
            Place::Chunk(path, coords) => {
                self.cache.write(&self.array(path)?, coords, None, FillChunks::Store)?;
            }
            _ => self.hierarchy.store().write()?.erase_values(std::slice::from_ref(&key))?,
        }
        self.unsynced.lock().insert(key);
        Ok(())
    }

    /// Directories of chunks stay until they are removed, though the store has none that are empty.
    fn remember_chunk_dirs(&self, place: &Place) {
        let mut directory = place.parent();
        while matches!(directory, Place::ChunkDir(..) | Place::OrdinaryDir(..)) {
            let above = directory.parent();
            if let Some(name) = directory.name() {
                self.overlay.insert(above.clone(), &name, Shown::Directory(directory));
            }
            directory = above;
        }
    }

    /// Whether the store has ordinary files in a directory.
    pub(super) fn holds_ordinary(&self, place: &Place) -> Result<bool> {
        let (Place::ChunkDir(path, _) | Place::OrdinaryDir(path, _)) = place else {
            return Ok(false);
        };
        Ok(self.ordinary_entries(path, place)?.next().transpose()?.is_some())
    }
}
