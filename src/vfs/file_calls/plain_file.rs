//! An open file that is no view: a chunk, a metadata file, an ordinary file, or one of `.zarrfs`.
//! Its bytes belong to its inode.

use bytes::Bytes;

use super::open_file::OpenFileCalls;
use crate::error::Result;
use crate::vfs::Vfs;
use crate::vfs::access::Access;
use crate::vfs::authors::{Processes, Thread};
use crate::vfs::contents::next_step::StoreReason;
use crate::vfs::inodes::file::{BytesAt, ImportState, Write};
use crate::vfs::inodes::place::Place;
use crate::vfs::opening::handles::{Handle, HandleSource};

/// An open file that is no view.
pub(super) struct PlainFile<'a> {
    pub vfs: &'a Vfs,
    pub handle: &'a Handle,
}

impl OpenFileCalls for PlainFile<'_> {
    fn note_opener(&self, by: Thread) {
        let (names, contents) = (&self.vfs.names, &self.vfs.contents);
        let Handle { inode, access, reader, .. } = self.handle;
        let is_compared = || {
            matches!(inode.place(), Some(Place::Chunk(..) | Place::Ordinary(..)))
                && contents.chunks.shows_old_chunks()
        };
        if *access == Access::Truncate {
            if is_compared() {
                contents.files.compare_with_read(inode, &Processes::of(by));
            }
        } else if is_compared() {
            // There is one opener.
            let _set_before = reader.set(Processes::of(by));
            // The kernel may have its pages. One that may write need not read.
            if *access == Access::Read {
                self.note_reads();
            }
        }
        if let (Access::Read | Access::Write, Some(Place::StoredDocument(path, key))) =
            (access, inode.place())
        {
            contents.documents.note_stored_reader(&path, &key, by);
        }
        let mut file = inode.file().lock();
        // A program that truncates the file has not read it now.
        if *access != Access::Truncate
            && let (Some(text), Some(place)) = (&file.shown, inode.place())
        {
            match &place {
                Place::Attributes(path) => {
                    let beside = names.zarr2.document_beside(path);
                    names.seen_texts.note_attributes(path, by, text, &beside);
                }
                _ => names.seen_texts.note(&place, by, text),
            }
            if let Some(path) = place.node() {
                contents.chunks.latest.note_looked(path, by);
            }
        }
        if !self.handle.may_write() {
            return;
        }
        file.users.note(by);
        if file.content.backing().is_some() {
            // The kernel writes by itself.
            file.authors.note(by);
        }
    }

    fn read(&self, offset: u64, len: usize) -> Result<Bytes> {
        if let Some(kept) = self.handle.read_kept(offset, len) {
            return kept;
        }
        if let HandleSource::File(Some(opener)) = self.handle.source {
            self.handle.inode.file().lock().note_dropped(opener);
        }
        let read = self.vfs.contents.files.read_content(&self.handle.inode, offset, len);
        self.note_reads();
        read
    }

    fn try_read(&self, offset: u64, len: usize) -> Option<Bytes> {
        match &self.handle.source {
            // It would wait for the disk.
            HandleSource::Backing(_) => return None,
            HandleSource::File(Some(opener)) => {
                self.handle.inode.file().try_lock()?.note_dropped(*opener);
            }
            HandleSource::File(None) | HandleSource::Made(_) | HandleSource::View(_) => {}
        }
        if let Some(kept) = self.handle.read_kept(offset, len) {
            return kept.ok();
        }
        let read = self.vfs.contents.files.try_read_content(&self.handle.inode, offset, len)?;
        self.note_reads();
        Some(read)
    }

    fn write(&self, write: Write<'_>, by: Thread) -> Result<()> {
        self.vfs.contents.files.write_content(&self.handle.inode, write, by)
    }

    fn try_write(&self, write: Write<'_>, by: Thread) -> Result<bool> {
        self.vfs.contents.files.try_write_content(&self.handle.inode, write, by)
    }

    fn is_of_others(&self, by: Thread) -> bool {
        let file = self.handle.inode.file().lock();
        file.users.knows_as_stranger(by) || file.is_written_by_others(by)
    }

    fn flush(&self, by: Thread) -> Result<()> {
        let (contents, inode) = (&self.vfs.contents, &self.handle.inode);
        contents.files.store_content_and(inode, StoreReason::Closing, |place| {
            if !self.vfs.core.cache.has_pending() {
                return Ok(());
            }
            contents.chunks.check_shard_of(&self.vfs.names.target(place)?)
        })?;
        if self.handle.may_write() {
            self.vfs.renames.import_closed((inode, 1), by)
        } else {
            Ok(())
        }
    }

    fn release(&self) {
        // A program that shares the descriptor of another has closed it last.
        if self.handle.inode.file().lock().import == ImportState::AtLastClose {
            let own = u32::from(self.handle.may_write());
            let imported = self.vfs.renames.import_closed((&self.handle.inode, own), None);
            imported.unwrap_or_else(|error| self.vfs.core.note("close", &error));
        }
    }

    fn fsync(&self) -> Result<()> {
        let contents = &self.vfs.contents;
        let inode = &self.handle.inode;
        let stored = contents.files.store_content_and(inode, StoreReason::Asked, |place| {
            let target = self.vfs.names.target(place)?;
            contents.chunks.store_shard_of(&target)?;
            contents.stored.sync_key(&target)
        });
        if let HandleSource::Backing(backing) = &self.handle.source
            && let Some(new) = backing.new_file().filter(|_| inode.place().is_none())
        {
            // It has lost its name, but may be the value still.
            new.sync()?;
        }
        stored
    }
}

impl PlainFile<'_> {
    /// Notes the version of a chunk or an ordinary file that a program reads.
    fn note_reads(&self) {
        let Some(by) = self.handle.reader.get() else { return };
        let Some(place) = self.handle.inode.place() else { return };
        let (names, contents) = (&self.vfs.names, &self.vfs.contents);
        let file = self.handle.inode.file().lock();
        let pages = match (&self.handle.source, &file.passthrough.backing) {
            (HandleSource::Backing(_), Some((seen, _))) => seen.map(|(version, _)| version),
            _ => file.seen,
        };
        let is_unstored = matches!(file.content, BytesAt::Unstored(_));
        drop(file);
        match place {
            Place::Chunk(path, coords) if !is_unstored => {
                contents.chunks.note_reader(&path, &coords, by, pages);
            }
            place @ Place::Ordinary(..) if !is_unstored => {
                let version = pages.or_else(|| contents.stored.version_shown(&place));
                if version.is_some() {
                    names.seen_versions.note(&place, by, version);
                }
            }
            _ => {}
        }
    }
}
