//! An open view: its bytes come from the chunks of arrays, and writes to it change these.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::open_file::OpenFileCalls;
use crate::error::{Kind, Result, WithSubject};
use crate::vfs::Vfs;
use crate::vfs::authors::{Processes, Thread};
use crate::vfs::inodes::file::Write;
use crate::vfs::opening::handles::Handle;
use crate::vfs::reader::open_view::OpenView;
use crate::vfs::view_writers::ViewWriters;

/// An open view.
pub(super) struct ViewFile<'a> {
    pub vfs: &'a Vfs,
    pub handle: &'a Handle,
    pub view: &'a Arc<OpenView>,
}

impl OpenFileCalls for ViewFile<'_> {
    fn note_opener(&self, by: Thread) {
        if self.handle.may_write() {
            self.view.note_user(by);
        } else if self.vfs.contents.chunks.shows_old_chunks() {
            let program = Processes::of(by);
            for elements in self.view.view.sources() {
                self.vfs.names.seen_versions.note_array(&elements.path, &program);
            }
        }
    }

    fn read(&self, offset: u64, len: usize) -> Result<Bytes> {
        if let Some(read) = self.view.read_new_file(offset, len) {
            return read.at(self.handle.shown());
        }
        self.vfs.names.views.note_pages(self.view);
        self.vfs.reader.read_view(self.view, offset, len).at(self.handle.shown())
    }

    fn try_read(&self, offset: u64, len: usize) -> Option<Bytes> {
        if self.view.is_cut && self.view.new_file.try_lock()?.file.is_some() {
            return None;
        }
        self.vfs.names.views.note_pages(self.view);
        self.vfs.reader.try_read_view(self.view, offset, len)
    }

    fn write(&self, write: Write<'_>, by: Thread) -> Result<()> {
        let writer = &self.vfs.contents.view_writer;
        if writer.write_new_file(self.view, write, by).at(self.handle.shown())? {
            return Ok(());
        }
        let written = self.vfs.contents.view_writer.write_view(self.view, write, by);
        if self.note_refused(written)? {
            // The write may have changed more bytes than the kernel wrote.
            self.vfs.core.invalidate(self.handle.inode.number());
        }
        Ok(())
    }

    fn try_write(&self, write: Write<'_>, by: Thread) -> Result<bool> {
        if self.view.may_be_new_file() {
            return Ok(false);
        }
        self.note_refused(self.vfs.contents.view_writer.try_write_view(self.view, write, by))
    }

    fn is_of_others(&self, by: Thread) -> bool {
        self.view.is_closed_by_stranger(by) || self.view.is_written_by_others(by)
    }

    fn flush(&self, by: Thread) -> Result<()> {
        let writer = &self.vfs.contents.view_writer;
        let flushed = match writer.store_new_file(self.view, by) {
            Ok(false) => {
                self.view.set_new_len(None);
                writer.flush_view(self.view)
            }
            stored => {
                // The kernel has the bytes of the new file, and the view may have others now.
                self.vfs.core.invalidate(self.handle.inode.number());
                stored.map(drop)
            }
        };
        let has_refused = |writing: &Arc<ViewWriters>| writing.has_refused.load(Ordering::Relaxed);
        if flushed.is_ok() && !self.view.writing.as_ref().is_some_and(has_refused) {
            self.vfs.core.refused.forget(|| self.handle.shown());
        }
        self.note_refused(flushed)
    }

    fn fsync(&self) -> Result<()> {
        let contents = &self.vfs.contents;
        if self.view.is_cut && self.view.new_file.lock().file.is_some() {
            return Ok(()); // It is stored as a whole when it is closed.
        }
        contents.view_writer.store_view(&self.view.view)?;
        contents.unsynced.sync_all(self.vfs.core.hierarchy.store())
    }

    fn release(&self) {
        self.view.reads.end();
        if self.view.writing.is_some() && self.view.is_cut {
            let ended = self.vfs.contents.view_writer.end_new_file(self.view);
            self.view.set_new_len(None);
            let was_new = ended.at(self.handle.shown()).unwrap_or_else(|error| {
                self.vfs.core.refused.note(self.handle.shown(), &error);
                self.vfs.core.note("close", &error);
                true
            });
            if was_new {
                self.vfs.core.invalidate(self.handle.inode.number());
            }
        }
        if self.handle.may_write() {
            // Store what a mapping wrote after the last close.
            let stored = self.vfs.contents.view_writer.store_view(&self.view.view);
            stored.unwrap_or_else(|error| self.vfs.core.note("close", &error));
        }
    }
}

impl ViewFile<'_> {
    /// Notes that a write to a view was refused, and names the view in the error. A write that
    /// failed for now may be repeated, or its chunks wait.
    fn note_refused<T>(&self, done: Result<T>) -> Result<T> {
        done.at(self.handle.shown()).inspect_err(|error| {
            let kinds = [Kind::NotPermitted, Kind::Invalid, Kind::TooLarge, Kind::Unsupported];
            if let Some(writing) =
                self.view.writing.as_ref().filter(|_| kinds.contains(&error.kind()))
            {
                writing.has_refused.store(true, Ordering::Relaxed);
                self.vfs.core.refused.note(self.handle.shown(), error);
            }
        })
    }
}
