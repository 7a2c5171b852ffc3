//! The calls on open files, from `open` to the last `close`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::access::{Access, OpenedFile};
use super::authors::{HandleUse, Processes};
use super::contents::store::StoreReason;
use super::names::attr::Attr;
use super::names::file::{BytesAt, Write, slice};
use super::names::inode::Inode;
use super::names::place::Place;
use super::opening::handles::{Handle, HandleSource};
use super::opening::passthrough::Passthrough;
use super::reader::ChunkReader;
use super::reader::open_view::OpenView;
use super::view_writers::ViewWriters;
use super::{ATTEMPTS, Vfs};
use crate::error::{Error, Kind, Result, WithSubject};
use crate::store::Ownership;

impl Vfs {
    /// Opens a file. All writers share its bytes.
    pub fn open(&self, number: u64, access: Access) -> Result<OpenedFile> {
        let known = self.names.inode(number)?;
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

    /// Records who opened a metadata file, or a file for writing. The thread must wait for the
    /// answer.
    pub fn note_opener(&self, by: HandleUse) {
        let Ok(handle) = self.opener.handles.get(by.handle) else { return };
        if let Some(view) = handle.view() {
            if handle.may_write() {
                view.note_user(by.thread);
            } else if self.contents.chunks.shows_old_chunks() {
                let program = Processes::of(by.thread);
                for elements in view.view.elements() {
                    self.names.seen_versions.note_array(&elements.path, &program);
                }
            }
            return;
        }
        let is_compared = || {
            matches!(handle.inode.place(), Some(Place::Chunk(..) | Place::Ordinary(..)))
                && self.contents.chunks.shows_old_chunks()
        };
        if handle.access == Access::Truncate {
            if is_compared() {
                self.contents.files.compare_with_read(&handle.inode, &Processes::of(by.thread));
            }
        } else if is_compared() {
            let program = Processes::of(by.thread);
            // There is one opener.
            let _set_before = handle.reader.set(program);
            // The kernel may have its pages. One that may write need not read.
            if handle.access == Access::Read {
                self.note_reads(&handle);
            }
        }
        if let (Access::Read | Access::Write, Some(Place::StoredDocument(path, key))) =
            (handle.access, handle.inode.place())
        {
            self.contents.documents.note_stored_reader(&path, &key, by.thread);
        }
        let mut file = handle.inode.file().lock();
        // A program that truncates the file has not read it now.
        if handle.access != Access::Truncate
            && let (Some(text), Some(place)) = (&file.shown, handle.inode.place())
        {
            self.names.seen_texts.note(&place, by.thread, text);
            if let Some(path) = place.node() {
                self.contents.chunks.latest.note_looked(path, by.thread);
            }
        }
        if !handle.may_write() {
            return;
        }
        file.users.note(by.thread);
        if file.content.backing().is_some() {
            // The kernel writes by itself.
            file.authors.note(by.thread);
        }
    }

    /// Notes the version of a chunk or an ordinary file that a program reads.
    fn note_reads(&self, handle: &Handle) {
        let Some(by) = handle.reader.get() else { return };
        let Some(place) = handle.inode.place() else { return };
        let file = handle.inode.file().lock();
        let pages = match (&handle.source, &file.passthrough.backing) {
            (HandleSource::Backing(_), Some((seen, _))) => seen.map(|(version, _)| version),
            _ => file.seen,
        };
        let is_unstored = matches!(file.content, BytesAt::Unstored(_));
        drop(file);
        match place {
            Place::Chunk(path, coords) if !is_unstored => {
                self.contents.chunks.note_reader(&path, &coords, by, pages);
            }
            place @ Place::Ordinary(..) if !is_unstored => {
                let version = pages.or_else(|| self.contents.stored.version_shown(&place));
                if version.is_some() {
                    self.names.seen_versions.note(&place, by, version);
                }
            }
            _ => {}
        }
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
        let read = match &handle.source {
            HandleSource::File(drops) => {
                if let Some(opener) = *drops {
                    handle.inode.file().lock().note_dropped(opener);
                }
                let read = self.contents.files.read_content(&handle.inode, offset, len);
                self.note_reads(&handle);
                read
            }
            HandleSource::Made(made) => Ok(slice(made, offset, len)),
            HandleSource::View(view) => {
                self.names.views.note_pages(view);
                self.reader.read_view(view, offset, len).at(handle.shown())
            }
            HandleSource::Backing(_) if handle.may_write() => {
                self.contents.files.read_content(&handle.inode, offset, len)
            }
            HandleSource::Backing(backing) => Ok(backing.read(offset, len)?),
        };
        read.inspect(|bytes| add_len(&self.opener.reports.read_len, bytes))
    }

    /// Like [`Self::read`], but only if nothing must be read from the store, decoded or waited for.
    pub fn try_read(&self, handle: u64, offset: u64, len: usize) -> Option<Bytes> {
        let handle = self.opener.handles.get(handle).ok()?;
        let read = match &handle.source {
            HandleSource::File(drops) => {
                if let Some(opener) = *drops {
                    handle.inode.file().try_lock()?.note_dropped(opener);
                }
                let read = self.contents.files.try_read_content(&handle.inode, offset, len);
                if read.is_some() {
                    self.note_reads(&handle);
                }
                read
            }
            HandleSource::Made(made) => Some(slice(made, offset, len)),
            HandleSource::View(view) => {
                self.names.views.note_pages(view);
                self.reader.try_read_view(view, offset, len)
            }
            HandleSource::Backing(_) => None,
        };
        read.inspect(|bytes| add_len(&self.opener.reports.read_len, bytes))
    }

    /// Writes all of `data` at `offset`, or nothing.
    pub fn write(&self, by: impl Into<HandleUse>, offset: u64, data: &[u8]) -> Result<()> {
        let HandleUse { handle, thread } = by.into();
        let handle = self.opener.handles.get(handle)?;
        let write = Write { offset, data };
        let written = match handle.view() {
            Some(view) => {
                let written = self.contents.view_writer.write_view(view, write, thread);
                self.note_refused(&handle, view, written).map(|is_filled| {
                    if is_filled {
                        // The write may have changed more bytes than the kernel wrote.
                        self.core.invalidate(handle.inode.number());
                    }
                })
            }
            None => self.contents.files.write_content(&handle.inode, write, thread),
        };
        written.inspect(|()| add_len(&self.opener.reports.written_len, data))
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
        let write = Write { offset, data };
        let is_written = match handle.view() {
            Some(view) => {
                let written = self.contents.view_writer.try_write_view(view, write, thread);
                self.note_refused(&handle, view, written)?
            }
            None => self.contents.files.try_write_content(&handle.inode, write, thread)?,
        };
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
        if !handle.may_write() {
            return Ok(());
        }
        let is_of_others = if let Some(view) = handle.view() {
            view.is_closed_by_stranger(thread) || view.is_written_by_others(thread)
        } else {
            let file = handle.inode.file().lock();
            file.users.knows_as_stranger(thread) || file.is_written_by_others(thread)
        };
        if is_of_others {
            return Ok(());
        }
        let stored = match handle.view() {
            Some(view) => self.flush_view(&handle, view),
            None => self.contents.files.store_content_and(
                &handle.inode,
                StoreReason::Closing,
                |place| {
                    if !self.core.cache.has_pending() {
                        return Ok(());
                    }
                    self.contents.chunks.check_shard_of(&self.names.target(place)?)
                },
            ),
        };
        self.drop_pages_of_others(&handle);
        stored.and_then(|()| self.contents.files.check_unchanged(&handle.inode))
    }

    fn flush_view(&self, handle: &Handle, view: &OpenView) -> Result<()> {
        let flushed = self.contents.view_writer.flush_view(view);
        let has_refused = |writing: &Arc<ViewWriters>| writing.has_refused.load(Ordering::Relaxed);
        if flushed.is_ok() && !view.writing.as_ref().is_some_and(has_refused) {
            self.core.refused.forget(|| handle.shown());
        }
        self.note_refused(handle, view, flushed)
    }

    /// Notes that a write to a view was refused, and names the view in the error. A write that
    /// failed for now may be repeated, or its chunks wait.
    fn note_refused<T>(&self, handle: &Handle, view: &OpenView, done: Result<T>) -> Result<T> {
        done.at(handle.shown()).inspect_err(|error| {
            let kinds = [Kind::NotPermitted, Kind::Invalid, Kind::TooLarge, Kind::Unsupported];
            if let Some(writing) = view.writing.as_ref().filter(|_| kinds.contains(&error.kind())) {
                writing.has_refused.store(true, Ordering::Relaxed);
                self.core.refused.note(handle.shown(), error);
            }
        })
    }

    /// Syncs a file to disk.
    pub fn fsync(&self, handle: u64) -> Result<()> {
        let handle = self.opener.handles.get(handle)?;
        let stored = match handle.view() {
            Some(view) => self
                .contents
                .view_writer
                .store_view(&view.view)
                .and_then(|()| self.contents.unsynced.sync_all(self.core.hierarchy.store())),
            None => {
                self.contents.files.store_content_and(&handle.inode, StoreReason::Asked, |place| {
                    let target = self.names.target(place)?;
                    self.contents.chunks.store_shard_of(&target)?;
                    self.contents.stored.sync_key(&target)
                })
            }
        };
        if let HandleSource::Backing(backing) = &handle.source
            && let Some(new) = backing.new_file().filter(|_| handle.inode.place().is_none())
        {
            // It has lost its name, but may be the value still.
            new.sync()?;
        }
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
        if let Some(view) = open.view() {
            view.reads.end();
            if is_writer {
                // Store what a mapping wrote after the last close.
                self.contents
                    .view_writer
                    .store_view(&view.view)
                    .unwrap_or_else(|error| self.core.note("close", &error));
            }
        }
        // No program waits for this, so that it fails for none that was killed.
        let _tree = is_writer.then(|| self.contents.files.lock_tree_to_store(&open.inode));
        drop(open);
        self.opener.end(handle);
    }
}

fn add_len(counter: &AtomicU64, bytes: &[u8]) {
    counter.fetch_add(u64::try_from(bytes.len()).unwrap_or_default(), Ordering::Relaxed);
}
