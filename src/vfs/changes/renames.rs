//! Removes, renames and links files.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::MutexGuard;

use super::ordinary::is_lock_of_tensorstore;
use crate::buffer::Buffer;
use crate::error::{Error, Kind, Result, WithSubject};
use crate::metadata::NodePath;
use crate::store::unnamed::UnnamedFile;
use crate::store::{Condition, FileUse, Replace};
use crate::vfs::access::Caller;
use crate::vfs::contents::Contents;
use crate::vfs::contents::store::FileWriters;
use crate::vfs::core::{ATTEMPTS, Core, once};
use crate::vfs::inodes::chunk_names::ChunkNames;
use crate::vfs::inodes::file::{BytesAt, FileToStore, InodeFile, OpenedAs, UnstoredBytes};
use crate::vfs::inodes::inode::Inode;
use crate::vfs::inodes::place::Place;
use crate::vfs::names::Names;
use crate::vfs::names::overlay::Shown;
use crate::view::Format;

/// How many bytes to copy at a time.
const PIECE: usize = 1 << 20;

/// The bytes of a file that is renamed.
struct Moved {
    written: FileToStore,
    /// Whether the old name has a value in the store.
    is_stored: bool,
    /// Whether they are unstored bytes that a program has written.
    was_written: bool,
}

/// A file and its name.
#[derive(Clone, Copy)]
pub(in crate::vfs) struct NamedFile<'f> {
    pub inode: &'f Arc<Inode>,
    pub place: &'f Place,
}

/// The stored value of a place before a rename replaced it.
enum Before {
    Bytes(Buffer),
    Nothing,
    /// Unreadable, or more than bytes.
    Unknown,
}

/// Removes, renames and links files.
pub(in crate::vfs) struct Renames {
    pub(super) core: Arc<Core>,
    pub(super) names: Arc<Names>,
    pub(super) contents: Contents,
}

impl Renames {
    /// Changes the names of the files of `contents`.
    pub fn new(contents: &Contents) -> Self {
        let contents = contents.clone();
        Self { core: Arc::clone(&contents.core), names: Arc::clone(&contents.names), contents }
    }

    /// Removes the file at `place`. Programs that have it open keep its bytes.
    pub fn unlink(&self, place: &Place) -> Result<()> {
        let inode = self.names.inode_at(place);
        let removed = self.unlink_file(&inode, place);
        self.names.inodes.release(inode);
        self.contents.chunks.store_full_soon();
        removed
    }

    pub(super) fn unlink_file(&self, inode: &Inode, place: &Place) -> Result<()> {
        let mut file = inode.file().lock();
        if !inode.is_at(place) {
            return Err(Error::not_found()); // Another thread has removed or replaced it just now.
        }
        if self.contents.files.is_kept_as_file(Some(place)) {
            return self.unlink_in_store(inode, &mut file, place);
        }
        let kept = self.contents.files.bytes_for_openers(&file, place);
        self.names.keep_parent(place)?;
        // The store may have no directory for the chunk any more as soon as it is erased.
        self.names.remember_chunk_dirs(place);
        let is_replaced = match &file.content {
            BytesAt::Unstored(unstored) => self.is_replaced(unstored, place)?,
            _ => false,
        };
        if !file.is_only_here() && !is_replaced {
            self.erase(place)?;
        }
        self.contents.files.detach(&mut file, kept);
        self.names.inodes.unlink(place);
        self.names.overlay.remove_file(place, inode);
        self.names.remember_chunk_dirs(place);
        Ok(())
    }

    /// Writes the bytes of a file to a view and removes the file, because a view cannot be
    /// replaced.
    pub fn rename_onto_view(
        &self,
        user: Caller,
        from: &Place,
        path: &NodePath,
        format: &'static Format,
    ) -> Result<()> {
        let inode = self.names.inodes.at(from);
        let replaced = self
            .check_may_copy(user, &inode)
            .and_then(|()| self.write_to_view(&inode, from, path, format));
        self.names.inodes.release(inode);
        replaced
    }

    fn write_to_view(
        &self,
        inode: &Inode,
        from: &Place,
        path: &NodePath,
        format: &'static Format,
    ) -> Result<()> {
        if !matches!(from, Place::Ordinary(..)) {
            let detail = "only an ordinary file can be renamed onto a view";
            return Err(Error::new(Kind::NotPermitted, detail));
        }
        let writer = &self.contents.view_writer;
        if !writer.rename_new_file(path, format, || self.copy_of(inode, from)).map_err(once)? {
            let moved = self.bytes_to_move(&inode.file().lock(), from)?;
            let limit = self.core.hierarchy.options().max_chunk_len;
            let bytes = moved.written.bytes.to_buffer(limit)?;
            writer.replace_view(path, format, &bytes)?;
        }
        self.unlink_file(inode, from).map_err(once)
    }

    /// Copies the bytes of a file, however many they are.
    pub(super) fn copy_of(&self, inode: &Inode, from: &Place) -> Result<UnnamedFile> {
        let mut file = inode.file().lock();
        let mut copy = UnnamedFile::make()?;
        let open = match &file.content {
            BytesAt::Unstored(_) => None,
            _ => self.contents.files.open_stored(inode, &mut file, FileUse::Read)?,
        };
        if let Some(open) = open {
            while let bytes = open.read(copy.len(), PIECE)?
                && !bytes.is_empty()
            {
                copy.append(&bytes)?;
            }
            return Ok(copy);
        }
        let held = self.bytes_to_move(&file, from)?.written.bytes;
        while let bytes = held.range(copy.len(), PIECE)?
            && !bytes.is_empty()
        {
            copy.append(&bytes)?;
        }
        Ok(copy)
    }

    /// Refuses `RENAME_EXCHANGE` unless both are ordinary files in a directory.
    pub fn check_exchange(&self, from: &Place, to: Option<&Place>, at: &str) -> Result<()> {
        match to {
            None => Err(Error::not_found()),
            Some(to) if self.are_kept_as_files(from, to) => Ok(()),
            Some(_) => {
                let detail = "RENAME_EXCHANGE is only for ordinary files of a directory";
                Err(Error::invalid(detail).at(at))
            }
        }
    }

    /// Renames a file to a name that may have one.
    pub fn rename(&self, user: Caller, from: &Place, to: &Place, replace: Replace) -> Result<()> {
        let rename = || self.rename_once(user, from, to, replace);
        // Other threads may give the new name to one file after the other.
        let is_over =
            |renamed: &Result<()>| !matches!(renamed, Err(error) if error.kind() == Kind::Stale);
        (1..ATTEMPTS).map(|_| rename()).find(is_over).unwrap_or_else(rename)
    }

    fn rename_once(&self, user: Caller, from: &Place, to: &Place, replace: Replace) -> Result<()> {
        let is_in_store = self.are_kept_as_files(from, to) && !is_lock_of_tensorstore(from);
        if !is_in_store {
            self.check_regular(from)?;
        }
        let (inode, replaced) = (self.names.inode_at(from), self.names.inode_at(to));
        let renamed = if !is_in_store && inode.has_several_places() {
            // The error makes `mv` copy it.
            let detail =
                "a file with several names cannot become a chunk or metadata file: copy it";
            Err(Error::new(Kind::CrossDevice, detail))
        } else {
            let from = NamedFile { inode: &inode, place: from };
            let to = NamedFile { inode: &replaced, place: to };
            if is_in_store {
                self.rename_in_store(from, to, replace)
            } else {
                self.check_may_copy(user, &inode)
                    .and_then(|()| self.rename_bytes(from, to, replace))
            }
        };
        self.names.inodes.release(inode);
        self.names.inodes.release(replaced);
        self.contents.chunks.store_full_soon();
        renamed
    }

    /// Refuses to copy the bytes of a file for a user who may not read it. The error makes `mv`
    /// copy it, and the kernel checks that.
    pub(super) fn check_may_copy(&self, user: Caller, inode: &Inode) -> Result<()> {
        if !self.core.options.has_others || user.is_trusted() {
            return Ok(());
        }
        let attr = self.names.attrs.of(inode)?;
        let may_read = match attr.owner.or(attr.private) {
            Some(owner) => user.may_read(owner),
            None => attr.mode.is_none_or(|mode| mode & 0o004 != 0),
        };
        if may_read {
            return Ok(());
        }
        let detail = "not every user may read the file: copy it";
        Err(Error::new(Kind::CrossDevice, detail))
    }

    /// Stores the bytes of a file under its new name, and removes the old one. Both files stay
    /// locked, so that every concurrent write or open comes entirely before or after the rename.
    fn rename_bytes(&self, from: NamedFile<'_>, to: NamedFile<'_>, replace: Replace) -> Result<()> {
        let NamedFile { inode, place: from } = from;
        let NamedFile { inode: replaced, place: to } = to;
        if Arc::ptr_eq(inode, replaced) {
            return Ok(()); // POSIX wants that for two names of one file.
        }
        let (mut file, mut old) = lock_both(inode, replaced);
        check_are_at((inode, from), (replaced, to))?;
        let kept = self.contents.files.bytes_for_openers(&old, to);
        let mut moved = self.bytes_to_move(&file, from)?;
        let stamp = moved.written.bytes.stamp();
        // It replaces only what programs have seen there.
        let is_new = replace == Replace::No || old.is_new();
        let condition = if is_new {
            Condition::Absent
        } else {
            self.contents.files.condition_as_read(to, &file.makers()).map_err(once)?
        };
        moved.written.condition = condition;
        let before = if moved.is_stored { self.value_at(to) } else { Before::Unknown };
        let stays_unstored = self.contents.files.wait_at(&mut file, &moved.written, to)?
            || !moved.is_stored
                && matches!(to, Place::Ordinary(..))
                && !self.contents.files.is_kept_as_file(Some(to));
        let version = if stays_unstored {
            None
        } else {
            let target = self.names.target(to.clone())?;
            let by = FileWriters { authors: file.makers(), shown: old.shown.clone() };
            self.contents.files.store_as(&target, moved.written, &by).map_err(once)?
        };
        // Use the current place: the directory may have become an array meanwhile.
        let found = inode.place();
        let from = found.as_ref().unwrap_or(from);
        self.names.remember_chunk_dirs(from);
        if moved.is_stored
            && let Err(error) =
                self.names.keep_parent(from).and_then(|()| self.erase(from)).map_err(once)
        {
            self.restore_value(to, before);
            // The old value was stored again, as another version.
            old.seen = None;
            drop((file, old));
            self.core.invalidate(replaced.number());
            return Err(error);
        }
        self.contents.files.detach(&mut old, kept);
        self.names.overlay.remove_file(to, replaced);
        self.names.overlay.remove_file(from, inode);
        self.names.remember_chunk_dirs(from);
        self.names.inodes.rename(inode, from, to);
        if stays_unstored {
            self.keep_unstored(inode, &mut file, to, condition);
        } else {
            self.contents.files.forget_stored(&mut file, stamp);
            // The kernel's pages hold what was written, which may differ from what was stored.
            file.seen = version.filter(|_| moved.was_written && file.has_pages_of_one_version());
            file.shown = None;
        }
        self.settle_meaning(&mut file, from, to);
        drop((file, old));
        if to.is_document() {
            // A metadata file is not shown as it was written.
            self.core.invalidate(inode.number());
        }
        Ok(())
    }

    /// Keeps a renamed file in memory under its new name, to be stored there on this condition.
    fn keep_unstored(
        &self,
        inode: &Arc<Inode>,
        file: &mut InodeFile,
        to: &Place,
        condition: Condition,
    ) {
        if let BytesAt::Unstored(unstored) = &mut file.content {
            unstored.condition = condition;
            unstored.refused = None; // That was by what it meant where it was.
        }
        let name = to.name().unwrap_or_default();
        let shown = Shown::File(to.clone(), Arc::clone(inode));
        self.names.overlay.insert(to.parent(), &name, shown);
    }

    /// Gives a file that was renamed the meaning of its new name.
    fn settle_meaning(&self, file: &mut InodeFile, from: &Place, to: &Place) {
        if matches!(from, Place::Ordinary(..)) != matches!(to, Place::Ordinary(..)) {
            file.opened = None; // It means something else now.
        } else if let (Some(OpenedAs::Chunk(_)), Place::Chunk(path, coords)) = (&file.opened, to) {
            // It is a chunk of another array.
            let array = self.core.shown_array_at(path, coords.indices());
            file.opened = array.ok().map(OpenedAs::Chunk);
        }
    }

    /// Returns the stored value of a chunk or an ordinary file.
    fn value_at(&self, place: &Place) -> Before {
        let found = match place {
            Place::Chunk(path, coords) => {
                let chunk = self
                    .core
                    .shown_array(path)
                    .and_then(|array| self.core.cache.get(&array, coords));
                chunk.map(|chunk| chunk.map(|chunk| chunk.bytes))
            }
            Place::Ordinary(..) => match self.contents.stored.bytes_at(place) {
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
            Before::Bytes(bytes) => {
                let target = self.names.target(place.clone());
                let stored = |target| {
                    self.contents.files.store_as(&target, bytes.into(), &FileWriters::default())
                };
                target.and_then(stored).map(drop)
            }
            Before::Nothing => self.erase(place),
            Before::Unknown => Ok(()),
        };
        if let Err(error) = restored {
            log::warn!("{}: a failed rename could not be undone: {error}", place.shown());
        }
    }

    /// Returns the bytes of a file that is to be renamed.
    fn bytes_to_move(&self, file: &InodeFile, from: &Place) -> Result<Moved> {
        let BytesAt::Unstored(unstored) = &file.content else {
            let bytes = self.contents.stored.bytes_now(from)?;
            return Ok(Moved { written: bytes.into(), is_stored: true, was_written: false });
        };
        let is_stored = match self.names.attrs.of_stored(from) {
            _ if file.is_only_here() || self.is_replaced(unstored, from)? => false,
            Ok(_) => true,
            Err(error) if error.kind() == Kind::NotFound => false,
            Err(error) => return Err(error),
        };
        Ok(Moved {
            // The chunk that it was a change of has another name.
            written: FileToStore { base: None, ..unstored.written() },
            is_stored,
            was_written: unstored.changed,
        })
    }

    /// Whether another program has stored a file since a change of it was made here.
    fn is_replaced(&self, unstored: &UnstoredBytes, place: &Place) -> Result<bool> {
        let (Condition::Unchanged(version), Place::Ordinary(path, relative)) =
            (unstored.condition, place)
        else {
            return Ok(false);
        };
        let key = self.contents.stored.ordinary_key(path, relative)?;
        let now = self.core.hierarchy.store().stat_since(&key, Instant::now())?;
        Ok(now.is_some_and(|now| !version.is_same(now.version)))
    }

    fn erase(&self, place: &Place) -> Result<()> {
        self.names.check_is_ordinary(place)?;
        if self.contents.files.has_no_key(place) {
            return Ok(());
        }
        if let Place::Document(path) = place {
            self.contents.chunks.erase_removed(path)?;
            if let Some(key) = self.core.hierarchy.changes().remove_document(path)? {
                self.contents.unsynced.changed(key);
            }
            return Ok(());
        }
        if let Place::Attributes(_) | Place::Copies(_) = place {
            return self.contents.documents.erase_beside(place);
        }
        let target = self.names.target(place.clone())?;
        let Some(key) = self.contents.stored.key_of(&target)? else { return Ok(()) };
        match target.chunk() {
            Some((path, chunk)) => self.contents.chunks.erase_chunk(path, chunk)?,
            None if self.contents.files.is_kept_as_file(Some(place)) => self.remove_file(place)?,
            None => {
                self.core.hierarchy.store().write()?.erase_values(std::slice::from_ref(&key))?;
            }
        }
        self.contents.unsynced.changed(key);
        Ok(())
    }
}

/// Fails if another thread has just removed or renamed one of these files.
fn check_are_at((inode, from): (&Inode, &Place), (replaced, to): (&Inode, &Place)) -> Result<()> {
    if !inode.is_at(from) {
        return Err(Error::not_found());
    }
    if !replaced.is_at(to) {
        return Err(Error::new(Kind::Stale, "another program has just replaced the file"));
    }
    Ok(())
}

/// Locks two files in the order of their numbers, so that two opposite renames do not deadlock.
pub(super) fn lock_both<'i>(
    one: &'i Inode,
    other: &'i Inode,
) -> (MutexGuard<'i, InodeFile>, MutexGuard<'i, InodeFile>) {
    if one.number() < other.number() {
        let locked = one.file().lock();
        (locked, other.file().lock())
    } else {
        let locked = other.file().lock();
        (one.file().lock(), locked)
    }
}

/// Refuses to rename a generated file.
pub fn check_has_bytes(place: &Place) -> Result<()> {
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
pub fn check_is_no_chunk_of(from: &Place, to: &Place) -> Result<()> {
    let (Place::Document(path) | Place::StoredDocument(path, _)) = to else { return Ok(()) };
    // The metadata file decides which names of chunks the array has.
    let is_chunk = |names| matches!(from.in_array(path, names), Some(Place::Chunk(..)));
    if ChunkNames::all().into_iter().any(is_chunk) {
        return Err(Error::invalid("a chunk cannot be renamed to a metadata file"));
    }
    Ok(())
}
