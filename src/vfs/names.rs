//! Changes names of files: unlink, rename and link.

use std::sync::Arc;
use std::time::SystemTime;

use super::attr::Attr;
use super::file::{Content, File, Unstored};
use super::inode::Inode;
use super::overlay::Shown;
use super::place::{DOCUMENT, Place, ZARRAY, ZATTRS, ZGROUP, ZMETADATA, below_shown};
use super::{Form, TreeLock, Vfs};
use crate::buffer::Buffer;
use crate::cache::Due;
use crate::error::{At, Error, Kind, Result};
use crate::metadata::NodePath;
use crate::view::Format;

/// What a rename does if the new name exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replace {
    /// It replaces the existing file.
    Yes,
    /// It fails.
    No,
}

/// The bytes of a file that is renamed.
struct Moved {
    bytes: Buffer,
    /// Whether the old name has a value in the store.
    is_stored: bool,
    /// Whether they are unstored bytes that a program has written.
    was_written: bool,
    /// The modification time that a program set.
    modified: Option<SystemTime>,
}

/// The stored value of a place before a rename replaced it.
enum Before {
    Bytes(Buffer),
    Nothing,
    /// Unreadable, or more than bytes.
    Unknown,
}

/// Refuses to rename a generated file.
fn check_has_bytes(place: &Place) -> Result<()> {
    match place {
        Place::Chunk(..)
        | Place::Ordinary(..)
        | Place::Document(_)
        | Place::Attributes(_)
        | Place::Copies(_) => Ok(()),
        place => {
            let detail = "generated from the store; cannot be renamed or linked";
            Err(Error::new(Kind::NotPermitted, detail).at(place.shown()))
        }
    }
}

/// Refuses to rename a chunk of an array onto the metadata file of that array.
fn check_is_no_chunk_of(from: &Place, to: &Place, form: Form) -> Result<()> {
    let (Place::Document(path) | Place::StoredDocument(path, _)) = to else { return Ok(()) };
    match from.in_array(path, form) {
        Some(Place::Chunk(..)) => Err(Error::invalid(
            "a chunk cannot be renamed to a metadata \
             file",
        )),
        _ => Ok(()),
    }
}

/// Whether this name belongs to a metadata file.
fn is_document_name(name: &str) -> bool {
    [DOCUMENT, ZARRAY, ZGROUP, ZATTRS, ZMETADATA].contains(&name)
}

impl Vfs {
    /// Removes the file `name` from `parent`; a chunk is erased.
    pub fn unlink(&self, parent: u64, name: &str) -> Result<()> {
        let _tree = self.lock_tree(is_document_name(name));
        let parent = self.directory(parent)?;
        let place = self.resolve(&parent, name)?.ok_or_else(Error::not_found)?;
        self.core.hierarchy.store().write()?;
        match &place {
            place if place.is_dir() => return Err(Error::new(Kind::IsDirectory, "is a directory")),
            Place::Chunk(path, coords) if self.shows_fill(path, &*self.core.array(path)?) => {
                // A chunk that is only shown as the fill value cannot be removed.
                if self.core.cache.stat(&*self.core.array(path)?, coords)?.is_none()
                    && self
                        .overlay
                        .get(&place.parent(), &place.name().unwrap_or_default())
                        .is_none()
                {
                    return Err(Error::not_found());
                }
            }
            Place::Chunk(..)
            | Place::Ordinary(..)
            | Place::Document(_)
            | Place::Attributes(_)
            | Place::Copies(_) => {}
            Place::View(path, _) => {
                let detail = format!("it is a view of {path}, and exists as long as {path} does");
                return Err(Error::new(Kind::NotPermitted, detail).at(place.shown()));
            }
            _ => return Err(Error::new(Kind::NotPermitted, "read-only").at(place.shown())),
        }
        let inode = self.inodes.at(&place);
        let removed = self.unlink_file(&inode, &place).at(place.shown());
        self.inodes.release(inode);
        self.store_full_soon();
        removed
    }

    fn unlink_file(&self, inode: &Inode, place: &Place) -> Result<()> {
        let mut file = inode.file().lock();
        let kept = self.bytes_for_openers(&file, place);
        self.keep_parent(place)?;
        self.erase(place)?;
        self.detach(&mut file, kept);
        self.inodes.unlink(place);
        self.leave_overlay(place, inode);
        self.remember_chunk_dirs(place);
        Ok(())
    }

    /// Renames `name` in `parent` to `new_name` in `new_parent`: the bytes of a file are stored as
    /// what the new name is; a node moves with everything below it.
    pub fn rename(
        &self,
        parent: u64,
        name: &str,
        new_parent: u64,
        new_name: &str,
        replace: Replace,
    ) -> Result<()> {
        self.core.options.check_names_change()?;
        let is_document = is_document_name(name) || is_document_name(new_name);
        let is_dir =
            self.resolve(&self.directory(parent)?, name)?.is_some_and(|from| from.is_dir());
        if is_dir && let Some(Place::Node(path)) = self.resolve(&self.directory(parent)?, name)? {
            // Storing pending chunks now shortens the time under the lock. The move reports what
            // cannot be stored.
            let stored = self.store_shards(Due::Below(&path));
            stored.unwrap_or_else(|error| log::debug!("{error}"));
        }
        let _tree = self.lock_tree(is_document || is_dir || self.is_stored_dir(new_parent)?);
        let (parent, new_parent) = (self.directory(parent)?, self.directory(new_parent)?);
        let from = self.resolve(&parent, name)?.ok_or_else(Error::not_found)?;
        self.core.hierarchy.store().write()?;
        let taken = self.resolve(&new_parent, new_name)?;
        if taken.is_some() && replace == Replace::No {
            return Err(Error::new(Kind::Exists, "the file exists"));
        }
        if taken.as_ref() == Some(&from) {
            return Ok(());
        }
        let at = below_shown(&new_parent, new_name);
        if from.is_dir() {
            let renamed = if is_dir {
                self.rename_directory(&from, &new_parent, new_name, taken.as_ref(), replace)
            } else {
                Err(Error::new(Kind::Busy, "it has just become a directory"))
            };
            return renamed.at(at);
        }
        check_has_bytes(&from)?;
        let to = match taken {
            Some(place) if place.is_dir() => {
                return Err(Error::new(Kind::IsDirectory, "is a directory"));
            }
            Some(place) => place,
            None => self.place_for_new(&new_parent, new_name)?,
        };
        super::commit::check_writable(Some(&to))?;
        if let Place::View(path, format) = &to {
            let inode = self.inodes.at(&from);
            let replaced = self.rename_onto_view(&inode, &from, (path, format));
            self.inodes.release(inode);
            return replaced.at(at);
        }
        check_is_no_chunk_of(&from, &to, self.core.options.form).at(at.clone())?;
        self.touch(&to);
        let (inode, replaced) = (self.inodes.at(&from), self.inodes.at(&to));
        let renamed = self.rename_file((&inode, &from), (&replaced, &to));
        self.inodes.release(inode);
        self.inodes.release(replaced);
        self.store_full_soon();
        renamed.at(at)
    }

    /// Writes the bytes of a file to a view and removes the file, because a view cannot be
    /// replaced.
    fn rename_onto_view(
        &self,
        inode: &Inode,
        from: &Place,
        (path, format): (&NodePath, &'static Format),
    ) -> Result<()> {
        if !matches!(from, Place::Ordinary(..)) {
            let detail = "only an ordinary file can be renamed onto a view";
            return Err(Error::new(Kind::NotPermitted, detail));
        }
        let moved = self.bytes_to_move(&inode.file().lock(), from)?;
        self.replace_view(path, format, &moved.bytes)?;
        self.unlink_file(inode, from)
    }

    fn is_stored_dir(&self, number: u64) -> Result<bool> {
        Ok(matches!(self.directory(number)?, Place::StoredDir(_)))
    }

    fn lock_tree(&self, alone: bool) -> TreeLock<'_> {
        if alone {
            TreeLock::Alone { _guard: self.core.tree_lock.write() }
        } else {
            TreeLock::Shared { _guard: self.core.tree_lock.read() }
        }
    }

    /// Creates a second name for the bytes of a file. Every name gets a copy: a store has no links.
    pub fn link(&self, number: u64, new_parent: u64, new_name: &str) -> Result<Attr> {
        self.core.options.check_names_change()?;
        let _tree = self.lock_tree(is_document_name(new_name) || self.is_stored_dir(new_parent)?);
        let inode = self.inode(number)?;
        let from = inode.place().ok_or_else(Error::not_found)?;
        self.core.hierarchy.store().write()?;
        check_has_bytes(&from)?;
        let new_parent = self.directory(new_parent)?;
        if self.resolve(&new_parent, new_name)?.is_some() {
            return Err(Error::new(Kind::Exists, "the file exists"));
        }
        let to = self.place_for_new(&new_parent, new_name)?;
        super::commit::check_writable(Some(&to))?;
        self.touch(&to);
        let bytes = match &inode.file().lock().content {
            Content::Unstored(unstored) => unstored.bytes.clone(),
            Content::Stored | Content::Detached(_) => self.stored_bytes(&from)?,
        };
        if matches!(to, Place::Ordinary(..)) {
            self.put_new_file(&to, bytes)?;
        } else {
            self.store_as(&to, (bytes, None), None, None).at(to.shown())?;
        }
        self.lookup_place(&to)
    }

    /// Creates an unstored ordinary file.
    fn put_new_file(&self, place: &Place, bytes: Buffer) -> Result<()> {
        let inode = self.inodes.at(place);
        if let Err(error) = self.reserve(bytes.len()) {
            self.inodes.release(inode);
            return Err(error);
        }
        inode.file().lock().content =
            Content::Unstored(Unstored { changed: true, ..Unstored::of(bytes) });
        let name = place.name().unwrap_or_default();
        self.overlay.insert(place.parent(), &name, Shown::File(place.clone(), inode));
        Ok(())
    }

    /// Renames a file. Both files stay locked, so that every concurrent write or open comes
    /// entirely before or after the rename.
    fn rename_file(
        &self,
        (inode, from): (&Arc<Inode>, &Place),
        (replaced, to): (&Arc<Inode>, &Place),
    ) -> Result<()> {
        // Lock in the order of numbers, so that two opposite renames do not deadlock.
        let (mut file, mut old) = if inode.number() < replaced.number() {
            let file = inode.file().lock();
            (file, replaced.file().lock())
        } else {
            let old = replaced.file().lock();
            (inode.file().lock(), old)
        };
        let kept = self.bytes_for_openers(&old, to);
        let moved = self.bytes_to_move(&file, from)?;
        let before = if moved.is_stored { self.value_at(to) } else { Before::Unknown };
        let stays_unstored = !moved.is_stored && matches!(to, Place::Ordinary(..));
        let version = if stays_unstored {
            None
        } else {
            self.store_as(to, (moved.bytes, None), old.shown.as_deref(), moved.modified)?
        };
        // Use the current place: the directory may have become an array meanwhile.
        let found = inode.place();
        let from = found.as_ref().unwrap_or(from);
        if moved.is_stored
            && let Err(error) = self.keep_parent(from).and_then(|()| self.erase(from))
        {
            self.restore_value(to, before);
            // The old value was stored again, as another version.
            old.seen = None;
            drop((file, old));
            self.core.invalidate(replaced.number());
            return Err(error);
        }
        self.detach(&mut old, kept);
        self.leave_overlay(to, replaced);
        self.leave_overlay(from, inode);
        self.remember_chunk_dirs(from);
        self.inodes.rename(inode, to);
        if stays_unstored {
            if let Content::Unstored(unstored) = &mut file.content {
                unstored.refused = None; // That was by what it meant where it was.
            }
            let name = to.name().unwrap_or_default();
            self.overlay.insert(to.parent(), &name, Shown::File(to.clone(), Arc::clone(inode)));
        } else {
            self.forget_unstored(&mut file);
            // The kernel's pages hold what was written, which may differ from what was stored.
            file.seen = version.filter(|_| moved.was_written && !file.is_shared);
            file.shown = None;
        }
        drop((file, old));
        if to.is_document() {
            // A metadata file is not shown as it was written.
            self.core.invalidate(inode.number());
        }
        Ok(())
    }

    /// Returns the stored value of a chunk or an ordinary file.
    fn value_at(&self, place: &Place) -> Before {
        let found = match place {
            Place::Chunk(path, coords) => {
                let chunk =
                    self.core.array(path).and_then(|array| self.core.cache.get(&array, coords));
                chunk.map(|chunk| chunk.map(|chunk| chunk.bytes))
            }
            Place::Ordinary(..) => match self.stored_bytes(place) {
                Err(error) if error.kind() == Kind::NotFound => Ok(None),
                found => found.map(Some),
            },
            _ => return Before::Unknown,
        };
        match found {
            Ok(Some(bytes)) => Before::Bytes(bytes),
            Ok(None) => Before::Nothing,
            Err(_) => Before::Unknown,
        }
    }

    /// Restores the value of a place after a failed change.
    fn restore_value(&self, place: &Place, before: Before) {
        let restored = match before {
            Before::Bytes(bytes) => self.store_as(place, (bytes, None), None, None).map(drop),
            Before::Nothing => self.erase(place),
            Before::Unknown => Ok(()),
        };
        if let Err(error) = restored {
            log::warn!("{}: a failed rename could not be undone: {error}", place.shown());
        }
    }

    /// Keeps the directory of a file that is about to be removed.
    pub(super) fn keep_parent(&self, place: &Place) -> Result<()> {
        match place.parent() {
            Place::Node(path) => self.core.hierarchy.keep_directory(&path),
            _ => Ok(()),
        }
    }

    /// Returns the bytes of a file that is to be renamed.
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
        if let Place::Document(path) = place {
            if let Some(key) = self.core.hierarchy.remove_document(path)? {
                self.unsynced.changed(key);
            }
            return Ok(());
        }
        if let Place::Attributes(_) | Place::Copies(_) = place {
            return self.erase_beside(place);
        }
        let Some(key) = self.key_of(place)? else { return Ok(()) };
        match place {
            Place::Chunk(path, coords) => {
                self.erase_chunk(path, coords)?;
            }
            _ => self.core.hierarchy.store().write()?.erase_values(std::slice::from_ref(&key))?,
        }
        self.unsynced.changed(key);
        Ok(())
    }

    /// Keeps directories of chunks until a program removes them, although the store has no empty
    /// ones.
    fn remember_chunk_dirs(&self, place: &Place) {
        if self.core.options.form == Form::Zarr2 {
            return; // It shows none.
        }
        let mut directory = place.parent();
        while matches!(directory, Place::ChunkDir(..) | Place::OrdinaryDir(..)) {
            let above = directory.parent();
            if let Some(name) = directory.name() {
                self.overlay.insert(above.clone(), &name, Shown::Directory(directory));
            }
            directory = above;
        }
    }

    /// Forgets the directories of a chunk that was stored, because the store has them now.
    pub(super) fn forget_chunk_dirs(&self, place: &Place) {
        let mut directory = place.parent();
        while let Place::ChunkDir(..) = directory {
            let above = directory.parent();
            let name = directory.name().unwrap_or_default();
            if matches!(self.overlay.get(&above, &name), Some(Shown::Directory(_))) {
                self.overlay.remove(&above, &name);
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
