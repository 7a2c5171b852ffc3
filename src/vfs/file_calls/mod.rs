//! The calls on open files, from `open` to the last `close`. What they do to a view is in
//! `view_file`, to any other file in `plain_file`.

mod open_file;
mod plain_file;
mod view_file;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::access::{Access, OpenedFile};
use super::authors::HandleUse;
use super::inodes::attr::Attr;
use super::inodes::file::Write;
use super::inodes::inode::Inode;
use super::inodes::place::Place;
use super::opening::handles::{Handle, HandleSource};
use super::opening::passthrough::Passthrough;
use super::reader::ChunkReader;
use super::{ATTEMPTS, Vfs};
use crate::error::{Error, Kind, Result};
use crate::store::Ownership;
use crate::width::ToU64;
use open_file::OpenFileCalls;
use plain_file::PlainFile;
use view_file::ViewFile;

impl Vfs {
    /// Opens a file. All writers share its bytes.
    pub fn open(&self, number: u64, access: Access) -> Result<OpenedFile> {
        let known = self.names.inode(number)?;
        self.names.check_all_names(&known)?;
        let mut attempts = 1;
        loop {
            if known.is_orphaned() && !Passthrough::uses_passthrough(&known) {
                return Err(Error::not_found());
            }
            let place = known.place();
            let Some(opened) = self.open_unmoved(&known, access, attempts >= ATTEMPTS) else {
                attempts += 1;
                continue;
            };
            match opened {
                // Another file just took the name. If the kernel reads the replaced file by
                // passthrough, the next attempt opens that. If this open gave the name to a new
                // inode, it fails, so that the kernel looks up the name.
                Err(error)
                    if error.kind() == Kind::NotFound
                        && (known.is_replaced() || known.place() != place)
                        && !(known.was_renewed() && Passthrough::uses_passthrough(&known))
                        && !known.is_orphaned()
                        && attempts < ATTEMPTS => {}
                opened => return opened,
            }
            attempts += 1;
        }
    }

    /// Opens a file, unless a node was moved or removed meanwhile: then a chunk may seem to be
    /// missing that is in another place now. Opening for reading may decode a chunk, so the lock is
    /// not held over it, except in the last attempt.
    fn open_unmoved(
        &self,
        known: &Arc<Inode>,
        access: Access,
        is_last: bool,
    ) -> Option<Result<OpenedFile>> {
        if access != Access::Read || is_last {
            let open = |_shared| self.opener.open_inode(known, access);
            return Some(self.core.shared().and_then(open));
        }
        let before = self.core.hierarchy.moves();
        let opened = self.opener.open_inode(known, access);
        // A thread that moves a node now has done so when this one gets the lock.
        let is_unmoved = self.core.shared().map(|_shared| self.core.hierarchy.moves() == before);
        if is_unmoved.as_ref().is_ok_and(|is_unmoved| *is_unmoved) {
            return Some(opened);
        }
        if let Ok(opened) = opened {
            self.opener.end(opened.handle);
        }
        is_unmoved.err().map(Err)
    }

    /// Creates the file `name` in `parent` with this owner and mode, and opens it, or opens the
    /// existing one.
    pub fn create(
        &self,
        parent: u64,
        name: &str,
        owner: Ownership,
        access: Access,
        exclusive: bool,
    ) -> Result<(Attr, OpenedFile)> {
        self.give_way_to_file(parent, name)?;
        let create = || {
            let _shared = self.core.shared()?;
            let parent = self.names.current_directory(parent)?;
            self.new_files.create(&parent, name, owner, access, exclusive)
        };
        match create() {
            // Another program created it just now.
            Err(error) if error.kind() == Kind::Exists && !exclusive => create(),
            // The name may have led to an inode with passthrough; it has another inode now.
            Err(error) if error.kind() == Kind::NotFound => create(),
            created => created,
        }
    }

    /// Does `call` to an open file, whatever kind it is: the only place that tells the kinds apart.
    fn on<T>(&self, handle: &Handle, call: impl FnOnce(&dyn OpenFileCalls) -> T) -> T {
        match handle.view() {
            Some(view) => call(&ViewFile { vfs: self, handle, view }),
            None => call(&PlainFile { vfs: self, handle }),
        }
    }

    /// Records who opened a metadata file, or a file for writing. The thread must wait for the
    /// answer.
    pub fn note_opener(&self, by: HandleUse) {
        let Ok(handle) = self.opener.handles.get(by.handle) else { return };
        self.on(&handle, |file| file.note_opener(by.thread));
    }

    /// Returns a reader of the chunks of nodes.
    pub fn chunks(&self) -> ChunkReader {
        self.reader.chunks()
    }

    /// Returns the length of a file that was generated when it was opened; `None` for others, whose
    /// length is among their attributes.
    pub fn generated_len(&self, handle: u64) -> Result<Option<u64>> {
        let handle = self.opener.handles.get(handle)?;
        Ok(match &handle.source {
            HandleSource::Made(made) => u64::try_from(made.len()).ok(),
            HandleSource::File(_) | HandleSource::View(_) | HandleSource::Backing(_) => None,
        })
    }

    /// Reads up to `len` bytes at `offset`, fewer only at the end of the file.
    pub fn read(&self, handle: u64, offset: u64, len: usize) -> Result<Bytes> {
        let handle = self.opener.handles.get(handle)?;
        let read = self.on(&handle, |file| file.read(offset, len));
        read.inspect(|bytes| add_len(&self.opener.reports.read_len, bytes))
    }

    /// Like [`Self::read`], but only if nothing must be read from the store, decoded or waited for.
    pub fn try_read(&self, handle: u64, offset: u64, len: usize) -> Option<Bytes> {
        let handle = self.opener.handles.get(handle).ok()?;
        let read = self.on(&handle, |file| file.try_read(offset, len));
        read.inspect(|bytes| add_len(&self.opener.reports.read_len, bytes))
    }

    /// Writes all of `data` at `offset`, or nothing.
    pub fn write(&self, by: impl Into<HandleUse>, offset: u64, data: &[u8]) -> Result<()> {
        let HandleUse { handle, thread } = by.into();
        let handle = self.opener.handles.get(handle)?;
        let written = self.on(&handle, |file| file.write(Write { offset, data }, thread));
        written.inspect(|()| add_len(&self.opener.reports.written_len, data))
    }

    /// Like [`Self::write`], for pages of a mapping. The kernel writes them when it likes, so no
    /// program looks at the error, which `umount` names then.
    pub fn write_mapped(&self, by: HandleUse, offset: u64, data: &[u8]) -> Result<()> {
        let handle = self.opener.handles.get(by.handle)?;
        self.write(by, offset, data).inspect_err(|error| {
            log::warn!("write: {error}");
            self.core.journal.note("write", error);
            self.core.refused.note(handle.shown(), error);
        })
    }

    /// Writes all of `data` at the end of an ordinary file, or nothing. `offset` is where the
    /// kernel takes the end to be, by attributes that may be old. Other files have their lengths,
    /// so there it counts.
    pub fn append(&self, by: impl Into<HandleUse>, offset: u64, data: &[u8]) -> Result<()> {
        let by = by.into();
        let handle = self.opener.handles.get(by.handle)?;
        if !matches!(handle.inode.place(), Some(Place::Ordinary(..))) {
            return self.write(by, offset, data);
        }
        let at = self.contents.files.append(&handle.inode, Write { offset, data }, by.thread)?;
        if at != offset {
            // The kernel has put the bytes at another place of its pages.
            self.core.invalidate(handle.inode.number());
        }
        add_len(&self.opener.reports.written_len, data);
        Ok(())
    }

    /// Like [`Self::write`], but returns `false` if anything must be read, decoded or waited for.
    pub fn try_write(&self, by: impl Into<HandleUse>, offset: u64, data: &[u8]) -> Result<bool> {
        let HandleUse { handle, thread } = by.into();
        let handle = self.opener.handles.get(handle)?;
        let is_written = self.on(&handle, |file| file.try_write(Write { offset, data }, thread))?;
        if is_written {
            add_len(&self.opener.reports.written_len, data);
        }
        Ok(is_written)
    }

    /// Stores the unstored bytes of a file at the close of a descriptor. If the process has written
    /// none of them (a child that closes inherited descriptors), it neither stores them nor gets an
    /// error for them, nor one that is due to the writers of pending chunks.
    pub fn flush(&self, by: impl Into<HandleUse>) -> Result<()> {
        let HandleUse { handle, thread } = by.into();
        let handle = self.opener.handles.get(handle)?;
        if !handle.may_write() || self.on(&handle, |file| file.is_of_others(thread)) {
            return Ok(());
        }
        let stored = self.on(&handle, |file| file.flush(thread));
        self.drop_pages_of_others(&handle);
        stored.and_then(|()| self.contents.files.check_unchanged(&handle.inode))
    }

    /// Syncs a file to disk.
    pub fn fsync(&self, handle: u64) -> Result<()> {
        let handle = self.opener.handles.get(handle)?;
        let stored = self.on(&handle, |file| file.fsync());
        self.drop_pages_of_others(&handle);
        stored
    }

    /// Makes the kernel drop its pages of all other files that are open for writing and have
    /// elements of the same arrays. A mapping that changes one of these pages later reads it again
    /// first, so that it does not undo what was just stored beside its own bytes.
    fn drop_pages_of_others(&self, written: &Handle) {
        if !written.may_write() {
            return;
        }
        for inode in self.opener.handles.others_with_elements_of(written) {
            self.core.invalidate(inode.number());
        }
    }

    /// Closes a handle. The last close of a file drops incomplete bytes.
    pub fn release(&self, handle: u64) {
        let Ok(open) = self.opener.handles.get(handle) else { return };
        let is_writer = open.may_write();
        self.on(&open, |file| file.release());
        // No program waits for this, so that it fails for none that was killed.
        let _tree = is_writer.then(|| self.contents.files.lock_tree_to_store(&open.inode));
        drop(open);
        self.opener.end(handle);
    }
}

fn add_len(counter: &AtomicU64, bytes: &[u8]) {
    counter.fetch_add(bytes.len().to_u64(), Ordering::Relaxed);
}
