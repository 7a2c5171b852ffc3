//! Names that go or change: unlink, rmdir, rename.

use std::sync::Arc;
use std::time::SystemTime;

use super::Vfs;
use super::file::{Content, File};
use super::inode::Inode;
use super::overlay::Shown;
use super::place::Place;
use super::tree::{below_shown, has_chunks};
use crate::array::FillChunks;
use crate::codec::Buffer;
use crate::error::{At, Error, Kind, Result};

/// What a rename does where the new name is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replace {
    /// What is there goes.
    Yes,
    /// It is an error.
    No,
}

/// The bytes of a file that is renamed.
struct Moved {
    bytes: Buffer,
    /// Whether its old name has a value in the store.
    is_stored: bool,
    /// Whether they are what a program has written, and not what was stored.
    was_written: bool,
    /// When a program said that they were modified.
    modified: Option<SystemTime>,
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
        let inode = self.inodes.at(&place);
        let removed = self.unlink_file(&inode, &place).at(place.shown());
        self.inodes.release(inode);
        removed
    }

    fn unlink_file(&self, inode: &Inode, place: &Place) -> Result<()> {
        let mut file = inode.file.lock();
        let kept = self.bytes_for_openers(&file, place);
        self.erase(place)?;
        self.detach(&mut file, kept);
        self.inodes.unlink(place);
        self.leave_overlay(place, inode);
        self.remember_chunk_dirs(place);
        Ok(())
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
        if let Some(name) = place.name() {
            self.overlay.remove(&place.parent(), &name);
        }
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
        let (inode, replaced) = (self.inodes.at(&from), self.inodes.at(&to));
        let renamed = self.rename_file((&inode, &from), (&replaced, &to));
        self.inodes.release(inode);
        self.inodes.release(replaced);
        renamed.at(below_shown(&new_parent, new_name))
    }

    /// Both files are locked until it is done: whatever is written to one of them, or opened, comes before
    /// or after the rename.
    fn rename_file(
        &self,
        (inode, from): (&Arc<Inode>, &Place),
        (replaced, to): (&Arc<Inode>, &Place),
    ) -> Result<()> {
        // Two renames that meet from both ends would wait for one another without an order.
        let (mut file, mut old) = if inode.number() < replaced.number() {
            let file = inode.file.lock();
            (file, replaced.file.lock())
        } else {
            let old = replaced.file.lock();
            (inode.file.lock(), old)
        };
        let kept = self.bytes_for_openers(&old, to);
        let moved = self.bytes_to_move(&file, from)?;
        let stays_unstored = !moved.is_stored && matches!(to, Place::Ordinary(..));
        let version = if stays_unstored {
            None
        } else {
            self.store_as(to, moved.bytes, old.shown.as_deref(), moved.modified)?
        };
        self.detach(&mut old, kept);
        self.leave_overlay(to, replaced);
        self.leave_overlay(from, inode);
        self.remember_chunk_dirs(from);
        self.inodes.rename(inode, to);
        if stays_unstored {
            let name = to.name().unwrap_or_default();
            self.overlay.insert(to.parent(), &name, Shown::File(to.clone(), Arc::clone(inode)));
        } else {
            self.forget_unstored(&mut file);
            // The kernel has pages of what was written, but perhaps others than of what was stored.
            file.seen = version.filter(|_| moved.was_written);
            file.shown = None;
        }
        drop((file, old));
        if matches!(to, Place::Document(_)) {
            // What is shown is not what was written.
            self.invalidate(inode);
        }
        if moved.is_stored { self.erase(from) } else { Ok(()) }
    }

    /// All bytes of a file that is to be renamed.
    fn bytes_to_move(&self, file: &File, from: &Place) -> Result<Moved> {
        let Content::Unstored(unstored) = &file.content else {
            let bytes = self.stored_bytes(from)?;
            return Ok(Moved { bytes, is_stored: true, was_written: false, modified: None });
        };
        let is_stored = match self.attr_of_stored(from) {
            Ok(_) => true,
            Err(error) if error.kind() == Kind::NotFound => false,
            Err(error) => return Err(error),
        };
        Ok(Moved {
            bytes: unstored.bytes.clone(),
            is_stored,
            was_written: unstored.changed,
            modified: unstored.keep_modified.then_some(unstored.modified),
        })
    }

    fn erase(&self, place: &Place) -> Result<()> {
        let Some(key) = self.key_of(place)? else { return Ok(()) };
        match place {
            Place::Chunk(path, coords) => {
                self.cache.write(&self.array(path)?, coords, None, FillChunks::Store)?;
            }
            _ => self.hierarchy.store().write()?.erase_values(std::slice::from_ref(&key))?,
        }
        self.unsynced.changed(key);
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
