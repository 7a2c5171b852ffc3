//! The attributes of files that programs change, with their length and the space for it.
//!
//! A file of a store of files has attributes of its own, and so has one that is not stored yet. For
//! others, only the length and the modification time can be set.
//!
//! `chmod` applies to a chunk file that is not stored yet, since `rsync`, `install` and `mkstemp`
//! hide incomplete files.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use super::access::Caller;
use super::contents::Contents;
use super::contents::next_step::StoreReason;
use super::core::Core;
use super::inodes::file::{BytesAt, Write};
use super::inodes::inode::Inode;
use super::inodes::place::{Place, check_writable};
use super::names::Names;
use super::names::overlay::Shown;
use super::opening::handles::{Handle, Handles};
use crate::error::{Error, Result, WithSubject};
use crate::store::{Extent, FileChanges, FileUse, OpenFile, PRIVILEGES};

/// Changes the attributes of files.
pub struct AttrWriter {
    core: Arc<Core>,
    names: Arc<Names>,
    contents: Contents,
    handles: Arc<Handles>,
}

impl fmt::Debug for AttrWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttrWriter").finish_non_exhaustive()
    }
}

/// A new length of a file.
#[derive(Debug, Clone, Copy)]
pub struct NewLen {
    /// The length in bytes.
    pub len: u64,
    /// The handle by which a program changes it; `None` if it does so by name.
    pub handle: Option<u64>,
}

impl From<u64> for NewLen {
    fn from(len: u64) -> Self {
        Self { len, handle: None }
    }
}

impl AttrWriter {
    /// Changes the attributes of the files of `contents`, which `handles` may have open.
    pub(in crate::vfs) fn new(contents: &Contents, handles: &Arc<Handles>) -> Self {
        let contents = contents.clone();
        Self {
            core: Arc::clone(&contents.core),
            names: Arc::clone(&contents.names),
            handles: Arc::clone(handles),
            contents,
        }
    }

    /// Changes the length of a file. If no program has it open for writing, also stores it.
    pub fn truncate(&self, number: u64, new: impl Into<NewLen>) -> Result<()> {
        let NewLen { len, handle } = new.into();
        self.core.hierarchy.store().write()?;
        let inode = self.names.inode(number)?;
        let place = inode.place();
        check_writable(place.as_ref())?;
        if let Some(place @ Place::View(path, format)) = &place {
            let own = handle.map(|handle| self.handles.get(handle)).transpose()?;
            let own = own.as_ref().and_then(Handle::view);
            // A new file in the place of a view is that of one open. Without a descriptor, the
            // others may be those of files that are closed, which the kernel has yet to tell.
            let opens =
                own.map_or_else(|| self.handles.open_views(&inode), |own| vec![Arc::clone(own)]);
            for open in opens.iter().filter(|open| open.is_cut) {
                if open.set_len_of_new_file(len).at(place.shown())? {
                    return Ok(());
                }
            }
            let view = inode.open_view().map_or_else(|| self.names.views.view(path, format), Ok)?;
            let own = own.map(Arc::as_ref);
            if self.contents.view_writer.truncate_view(own, &view, len).at(place.shown())? {
                self.core.invalidate(inode.number());
            }
            return Ok(());
        }
        self.contents.files.truncate_and_store(&inode, len)
    }

    /// Fails with the kind `TooLarge` if a file cannot have `len` bytes.
    pub fn check_len(&self, number: u64, len: u64) -> Result<()> {
        let Some(place) = self.names.inode(number)?.place() else { return Ok(()) };
        let target = self.names.target(place)?;
        self.contents.stored.check_longest(Some(&target), len).at(target.shown())
    }

    /// Reserves or frees space in an ordinary file of the store (fallocate(2), with its flags).
    /// Returns `false` for other files.
    pub fn allocate(&self, number: u64, offset: u64, len: u64, flags: i32) -> Result<bool> {
        let inode = self.names.inode(number)?;
        let mut file = inode.file().lock();
        let end = Write { offset: offset.saturating_add(len), data: &[] };
        self.contents.files.leave_memory(&inode, &mut file, end)?;
        let Some(open) = self.contents.files.open_to_change(&inode, &mut file)? else {
            return Ok(false);
        };
        let flags = u32::try_from(flags).map_err(|_| Error::invalid("unknown flags"))?;
        open.allocate(flags, offset, len)?;
        Ok(true)
    }

    /// Returns the first offset from `offset` on that is of this part of an ordinary file of the
    /// store; fails with `ENXIO` if there is none (lseek(2)). `None` for other files, for files
    /// that zarrfs may not read, and while bytes of a mapping may not have arrived.
    pub fn find(&self, number: u64, part: Extent, offset: u64) -> Result<Option<u64>> {
        let inode = self.names.inode(number)?;
        let mut file = inode.file().lock();
        if file.writers > file.passthrough.writers {
            return Ok(None);
        }
        match self.contents.files.open_stored(&inode, &mut file, FileUse::Read) {
            Err(error) if error.errno() == libc::EACCES => Ok(None),
            open => open?.map(|open| open.find(part, offset)).transpose(),
        }
    }

    /// Whether changes of the attributes of a directory have no effect if they cannot be kept: the
    /// store may have no directory for one of chunks, and `cp -a` and `rsync -a` change the
    /// attributes of each directory that they make.
    pub fn may_lose_changes(&self, number: u64) -> Result<bool> {
        let place = self.names.inode(number)?.place();
        Ok(self.names.ordinary.store().is_some() && matches!(place, Some(Place::ChunkDir(..))))
    }

    /// Stores ordinary files that must be stored before attributes change: one that gets
    /// privileges, since only the store clears them when others write to it, and those in a
    /// directory that gets a modification time, since storing them later would change that.
    pub fn store_before(&self, number: u64, changes: &FileChanges) -> Result<()> {
        let files = &self.contents.files;
        let store = |inode: &Inode, reason| {
            let is_file = files.is_kept_as_file(inode.place().as_ref());
            if is_file { files.store_content(inode, reason) } else { Ok(()) }
        };
        let inode = self.names.inode(number)?;
        if changes.mode.is_some_and(|mode| mode & PRIVILEGES != 0) {
            store(&inode, StoreReason::Asked)?;
        }
        let place = inode.place().filter(|place| place.is_dir() && changes.modified.is_some());
        for (_, shown) in place.map_or_else(Vec::new, |place| self.names.overlay.list(&place)) {
            if let Shown::File(_, inode) = shown {
                store(&inode, StoreReason::Everything)?;
            }
        }
        Ok(())
    }

    /// Sets the mode of a file that was created here and is not stored yet; `false` for other
    /// files.
    pub fn set_mode(&self, number: u64, mode: u16) -> Result<bool> {
        let inode = self.names.inode(number)?;
        let mut file = inode.file().lock();
        let created = file.created.as_mut();
        Ok(created.map(|created| created.owner.mode = mode).is_some())
    }

    /// Changes the attributes of a file that has its own.
    pub fn change(&self, number: u64, changes: &FileChanges) -> Result<()> {
        self.core.hierarchy.store().write()?;
        let inode = self.names.inode(number)?;
        let place = inode.place();
        let mut locked = inode.file().lock();
        let file = &mut *locked;
        if let (BytesAt::Unstored(unstored) | BytesAt::Detached(unstored), Some(created)) =
            (&mut file.content, &mut file.created)
        {
            created.change(unstored, changes);
            return Ok(());
        }
        if let BytesAt::Open(open) = &file.content {
            return open.change(changes);
        }
        drop(locked);
        let place = place.ok_or_else(Error::not_found)?;
        if let Place::ChunkDir(path, prefix) = &place
            && !prefix.is_empty()
            && self.core.shown_array(path)?.is_sharded()
        {
            return Ok(()); // The store has directories of shards instead.
        }
        let found = self.stored_file(&place)?.ok_or_else(Error::not_found)?;
        found.change(changes).at(place.shown())
    }

    /// Sets the modification time of a file.
    pub fn set_modified(&self, number: u64, modified: SystemTime) -> Result<()> {
        self.core.hierarchy.store().write()?;
        let inode = self.names.inode(number)?;
        self.contents.files.set_modified_content(&inode, modified)
    }

    /// Clears the set-user-ID and set-group-ID bits of an ordinary file, because a user without the
    /// right to keep them writes to it.
    pub fn clear_privileges(&self, number: u64) {
        let clear = || -> Result<()> {
            let inode = self.names.inode(number)?;
            let known = inode.known_file();
            let mut open = known.and_then(|file| file.lock().content.open_file().map(Arc::clone));
            if open.is_none()
                && let Some(place @ Place::Ordinary(..)) = inode.place()
            {
                open = self.stored_file(&place).at(place.shown())?.map(Arc::new);
            }
            let Some(open) = open else { return Ok(()) };
            let mode = open.stat()?.owner.mode;
            // Without the right to execute, the set-group-ID bit means something else.
            let bits = if mode & 0o010 == 0 { 0o4000 } else { 0o6000 };
            if mode & bits != 0 {
                let changes = FileChanges { mode: Some(mode & !bits), ..FileChanges::default() };
                match open.change(&changes) {
                    // The file of another user: the write of this process clears them.
                    Err(error) if error.errno() == libc::EPERM => {}
                    changed => changed?,
                }
                // After a write, it asks only for the times and the length again.
                self.core.invalidate(number);
            }
            Ok(())
        };
        clear().unwrap_or_else(|error| self.core.note("write", &error));
    }

    /// Does the same for a user other than root who changes the length or the space. The kernel
    /// says only of writes whether the user may keep the bits.
    pub fn clear_privileges_for(&self, user: Caller, number: u64) {
        if user.uid != 0 {
            self.clear_privileges(number);
        }
    }

    /// Opens the file or directory of a store of files at a place for its attributes; `None` if
    /// there is none.
    fn stored_file(&self, place: &Place) -> Result<Option<OpenFile>> {
        let Some(files) = self.names.ordinary.store() else { return Ok(None) };
        let Some(path) = self.names.ordinary.path(place)? else { return Ok(None) };
        files.open(&path, FileUse::Attributes)
    }
}
