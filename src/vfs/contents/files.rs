//! The bytes of files: reads and changes them.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;

use super::chunks::ChunkWriter;
use super::documents::DocumentWriter;
use super::memory::UnstoredMemory;
use super::next_step::StoreReason;
use super::stored::StoredFiles;
use super::unsynced::Unsynced;
use crate::array::ChunkRef;
use crate::buffer::Buffer;
use crate::cache::{ChunkBase, DecodedChunk, Due};
use crate::error::{Error, Kind, Result, WithSubject};
use crate::store::Condition;
use crate::vfs::access::Access;
use crate::vfs::authors::{Processes, Thread};
use crate::vfs::core::{ATTEMPTS, Core};
use crate::vfs::inodes::file::{BytesAt, ImportState, InodeFile, UnstoredBytes, Write, slice};
use crate::vfs::inodes::inode::Inode;
use crate::vfs::inodes::place::{Place, check_writable};
use crate::vfs::names::Names;
use crate::vfs::names::overlay::Shown;
use crate::vfs::names::target::CurrentPlace;

/// How long a write waits for memory.
const PATIENCE: Duration = Duration::from_secs(2);

/// The bytes of files that programs have open or that are not stored yet.
pub(in crate::vfs) struct Files {
    pub core: Arc<Core>,
    pub names: Arc<Names>,
    pub stored: Arc<StoredFiles>,
    pub chunks: Arc<ChunkWriter>,
    pub documents: Arc<DocumentWriter>,
    pub memory: Arc<UnstoredMemory>,
    pub unsynced: Arc<Unsynced>,
}

impl Files {
    pub fn read_content(&self, inode: &Inode, offset: u64, len: usize) -> Result<Bytes> {
        let file = inode.file().lock();
        if let Some(bytes) = file.content.range(offset, len)? {
            return Ok(bytes);
        }
        if let Some(open) = file.content.open_file().map(Arc::clone) {
            drop(file);
            return open.read(offset, len).map_err(|error| error_in(inode, error));
        }
        self.names.target_of(inode, &file)?;
        drop(file);
        let read = self.read_named(inode, offset, len);
        // A thread that removes or replaces the file holds its lock over that, and keeps the bytes
        // for its openers. The bytes that were read meanwhile may be missing, or those of the new
        // value.
        let kept = inode.file().lock().content.range(offset, len)?;
        kept.map_or(read, Ok)
    }

    /// Reads the bytes that are stored under the name of a file.
    fn read_named(&self, inode: &Inode, offset: u64, len: usize) -> Result<Bytes> {
        let mut attempts = 1;
        loop {
            let alone = (attempts >= ATTEMPTS).then(|| self.core.shared()).transpose()?;
            let place = inode.place().ok_or_else(Error::not_found)?;
            let (moves, target) = (self.core.hierarchy.moves(), self.names.target(place.clone()));
            let id = target.as_ref().ok().and_then(CurrentPlace::array_id);
            let read = target.and_then(|target| self.stored.read_stored(&target, offset, len));
            // If its node was moved, removed or changed meanwhile, a chunk that has gone may have
            // been read as the fill value: it is read again, where it is now.
            let shared = if alone.is_some() { alone } else { Some(self.core.shared()?) };
            let is_same = || {
                let now = self.names.target(place.clone());
                self.core.hierarchy.moves() == moves
                    && now.ok().and_then(|now| now.array_id()) == id
            };
            if attempts >= ATTEMPTS || inode.place().as_ref() == Some(&place) && is_same() {
                return read.at(place.shown());
            }
            drop(shared);
            attempts += 1;
        }
    }

    pub fn try_read_content(&self, inode: &Inode, offset: u64, len: usize) -> Option<Bytes> {
        let file = inode.file().try_lock()?;
        if let Some(bytes) = file.content.range(offset, len).ok()? {
            return Some(bytes);
        }
        let target = self.names.target_of(inode, &file).ok()??;
        let (_, chunk) = target.chunk()?;
        // The lock excludes a thread that replaces the file while the chunk is looked up.
        let found = self.core.cache.peek(&chunk.array, &chunk.coords)?;
        drop(file);
        Some(slice(&found.bytes.into(), offset, len))
    }

    pub fn write_content(&self, inode: &Inode, write: Write<'_>, by: Thread) -> Result<()> {
        // A thread that moves the node waits for this lock.
        self.write_locked(inode, &mut inode.file().lock(), write, by)
    }

    /// Writes at the end of an ordinary file, and returns where that is. `write` has the place that
    /// the kernel takes for it.
    pub fn append(&self, inode: &Inode, write: Write<'_>, by: Thread) -> Result<u64> {
        let mut file = inode.file().lock();
        let mut end = || {
            if let Some(open) = self.open_to_write(inode, &mut file, write)? {
                return Ok(open.stat()?.len);
            }
            let target = self.names.target_of(inode, &file)?;
            self.load(&mut file, target.as_ref())?;
            Ok(file.content.len().unwrap_or(write.offset))
        };
        let offset = end().map_err(|error| error_in(inode, error))?;
        self.write_locked(inode, &mut file, Write { offset, ..write }, by)?;
        Ok(offset)
    }

    fn write_locked(
        &self,
        inode: &Inode,
        file: &mut InodeFile,
        write: Write<'_>,
        by: Thread,
    ) -> Result<()> {
        if file.import == ImportState::Done {
            let detail = "the file has become a node: open it again";
            return Err(error_in(inode, Error::new(Kind::Stale, detail)));
        }
        let mut written = || {
            if let Some(open) = self.open_to_write(inode, file, write)? {
                return open.write(write.offset, write.data);
            }
            let target = self.names.target_of(inode, file)?;
            let full_len = self.check_end(target.as_ref(), write)?;
            self.load(file, target.as_ref())?;
            self.reserve(file.content.added_by(write))?;
            self.put(file, write, full_len)?;
            file.note_author(by);
            Ok(())
        };
        written().map_err(|error| {
            file.note_failed_write(&error);
            error_in(inode, error)
        })
    }

    pub fn try_write_content(&self, inode: &Inode, write: Write<'_>, by: Thread) -> Result<bool> {
        let Some(mut file) = inode.file().try_lock() else { return Ok(false) };
        if !matches!(file.content, BytesAt::Unstored(_)) {
            return Ok(false);
        }
        let Ok(target) = self.names.target_of(inode, &file) else { return Ok(false) };
        let is_long = write.end() > self.core.hierarchy.options().max_chunk_len;
        if is_long && self.is_kept_as_file(target.as_ref().map(|target| &target.place)) {
            return Ok(false); // It becomes a file of the store first.
        }
        let mut written = || {
            let full_len = self.check_end(target.as_ref(), write)?;
            // `try_reserve` only: freeing memory would take time.
            if self.memory.try_reserve(file.content.added_by(write)).is_err() {
                return Ok(false);
            }
            self.put(&mut file, write, full_len)?;
            file.note_author(by);
            Ok(true)
        };
        written().map_err(|error| {
            file.note_failed_write(&error);
            error_in(inode, error)
        })
    }

    /// Refuses a write that ends past the longest file. Returns the length to allocate at once.
    fn check_end(&self, target: Option<&CurrentPlace>, write: Write<'_>) -> Result<usize> {
        let has_grid = target.is_some_and(|target| target.waits().is_none());
        let (limit, full_len) = match target.and_then(CurrentPlace::chunk).filter(|_| has_grid) {
            Some((_, chunk)) => {
                let chunk_len = chunk.array.chunk_len(&chunk.coords)?;
                (chunk_len.longest(), chunk_len.exactly())
            }
            None => (self.stored.longest(target)?, None),
        };
        if write.end() > limit {
            return Err(Error::too_large(match full_len {
                Some(_) => format!("a write past the end: the chunk has {limit} bytes"),
                None => format!("a write past the limit of {limit} bytes (--max-chunk-size)"),
            }));
        }
        Ok(full_len.and_then(|len| usize::try_from(len).ok()).unwrap_or_default())
    }

    /// Writes bytes to a loaded file. The memory must be reserved.
    fn put(&self, file: &mut InodeFile, write: Write<'_>, full_len: usize) -> Result<()> {
        let Write { offset, data } = write;
        let offset =
            usize::try_from(offset).map_err(|_| Error::too_large("offset out of range"))?;
        match &mut file.content {
            // A detached file is never stored, but its openers see what they write.
            BytesAt::Unstored(unstored) | BytesAt::Detached(unstored) => {
                let base_len = unstored.base_len();
                let added = unstored.bytes.memory_added(offset.saturating_add(data.len()));
                let written = unstored.write(offset, data, full_len);
                self.memory.unreserve(base_len.saturating_sub(unstored.base_len()));
                if written.is_err() {
                    self.memory.unreserve(added);
                }
                written
            }
            BytesAt::Stored | BytesAt::Open(_) => {
                Err(Error::new(Kind::Internal, "the bytes of the file are not here"))
            }
        }
    }

    /// Loads the bytes of a file into memory, so that they can be changed.
    fn load(&self, file: &mut InodeFile, target: Option<&CurrentPlace>) -> Result<()> {
        if matches!(file.content, BytesAt::Stored) {
            let target = target.ok_or_else(Error::not_found)?;
            let mut base = None;
            let mut condition = Condition::Always;
            let bytes = if let Some((path, chunk_ref)) = target.chunk() {
                let ChunkRef { array, coords } = chunk_ref;
                let chunk = self.core.cache.get(array, coords)?;
                // Another program may have replaced the chunk since it was opened. The kernel's
                // old pages must then not count as pages of the version that is stored later.
                // They are not dropped here: the kernel locks the page that is being written
                // until this request is answered. If the daemon were killed while it waits for
                // that page, the writing program would hang.
                let now = chunk.as_ref().map(|chunk| chunk.stat.version);
                base = Some(chunk.as_ref().map_or(ChunkBase::Absent, DecodedChunk::base));
                let bytes = self.stored.bytes_of(path, chunk_ref, chunk)?;
                file.is_shared |= !now.zip(file.seen).is_some_and(|(now, seen)| seen.holds(now));
                bytes
            } else if let Place::Ordinary(path, relative) = &target.place
                && self.core.is_remote()
            {
                // It waits in memory, and another mount may store it meanwhile.
                let value = self.stored.value_at(&self.stored.ordinary_key(path, relative)?)?;
                if self.core.compares_puts()? {
                    condition = Condition::Unchanged(value.stat.version);
                }
                value.bytes.into()
            } else {
                self.stored.stored_bytes(target)?
            };
            self.reserve(bytes.len())?;
            // Without memory for both, the chunk is stored as a whole.
            let base = base.filter(|base| self.reserve(base.bytes_len()).is_ok());
            file.content =
                BytesAt::Unstored(UnstoredBytes { condition, base, ..UnstoredBytes::of(bytes) });
        }
        Ok(())
    }

    /// Moves the bytes of a file that the kernel should have written into memory.
    pub fn hold_in_memory(&self, file: &mut InodeFile) -> Result<()> {
        let (BytesAt::Unstored(unstored) | BytesAt::Detached(unstored)) = &mut file.content else {
            return Ok(());
        };
        if unstored.bytes.file().is_some() {
            let bytes = unstored.bytes.to_buffer(self.core.hierarchy.options().max_chunk_len)?;
            self.memory.add(bytes.len());
            (unstored.bytes, unstored.stamp) = (bytes.into(), None);
        }
        Ok(())
    }

    /// Changes the length of a file. If no program has it open for writing, also stores it, or
    /// leaves it unchanged on failure.
    pub fn truncate_and_store(&self, inode: &Inode, len: u64) -> Result<()> {
        let _tree = self.lock_tree_to_store(inode)?;
        let mut file = inode.file().lock();
        let is_here = !matches!(file.content, BytesAt::Stored);
        let cut = self.truncate_locked(inode, &mut file, len);
        if file.writers > 0 {
            return cut;
        }
        let done = cut.and_then(|()| self.store_locked(inode, &mut file, StoreReason::Asked));
        if done.is_err() && !is_here {
            self.memory.forget_unstored(&mut file);
        }
        done
    }

    pub fn truncate_content(&self, inode: &Inode, len: u64) -> Result<()> {
        self.truncate_locked(inode, &mut inode.file().lock(), len)
    }

    /// Like [`Self::truncate_content`], for a caller that has locked the file.
    pub fn truncate_locked(&self, inode: &Inode, file: &mut InodeFile, len: u64) -> Result<()> {
        let mut cut = || {
            self.leave_memory(inode, file, Write { offset: len, data: &[] })?;
            if let Some(open) = self.open_to_change(inode, file)? {
                return open.set_len(len);
            }
            let target = inode.place().map(|place| self.names.target(place)).transpose()?;
            self.stored.check_longest(target.as_ref(), len)?;
            self.note_late_writes(inode, file)?;
            let written = file.passthrough.written().and_then(|written| written.new_file());
            if let (BytesAt::Stored, Some(written)) = (&file.content, written) {
                // It was closed, and is open still: the kernel writes to the stored file.
                return Ok(written.set_len(len)?);
            }
            if len == 0 && file.content.backing().is_none() {
                // The bytes of earlier writers are gone. A close that failed leaves some until the
                // kernel has released that handle.
                file.authors = Processes::default();
            }
            if len == 0 && matches!(file.content, BytesAt::Stored) {
                // Truncating to 0 must work on a damaged file, so it does not read the file.
                file.content = BytesAt::Unstored(UnstoredBytes::empty());
                return Ok(());
            }
            self.load(file, target.as_ref())?;
            // POSIX changes the times of an ordinary file even if its length stays.
            let is_ordinary = matches!(inode.place(), Some(Place::Ordinary(..)));
            self.set_len(file, len, is_ordinary)
        };
        cut().map_err(|error| error_in(inode, error))
    }

    /// Changes the length of a loaded file. A chunk of this length already stays as it is.
    fn set_len(&self, file: &mut InodeFile, len: u64, is_ordinary: bool) -> Result<()> {
        let len = usize::try_from(len).map_err(|_| Error::too_large("length out of range"))?;
        match &mut file.content {
            BytesAt::Unstored(unstored) | BytesAt::Detached(unstored)
                if unstored.bytes.len() == len && !is_ordinary =>
            {
                Ok(())
            }
            BytesAt::Unstored(unstored) | BytesAt::Detached(unstored) => {
                let more = unstored.bytes.memory_added(len);
                let less = unstored.bytes.memory_len().saturating_sub(len);
                self.reserve(more)?;
                let base_len = unstored.base_len();
                let cut = unstored.set_len(len);
                self.memory.unreserve(base_len.saturating_sub(unstored.base_len()));
                self.memory.unreserve(if cut.is_ok() { less } else { more });
                cut
            }
            BytesAt::Stored | BytesAt::Open(_) => Ok(()),
        }
    }

    pub fn set_modified_content(&self, inode: &Inode, modified: SystemTime) -> Result<()> {
        let mut file = inode.file().lock();
        let place = inode.place();
        if let Some(new) = file.content.backing().and_then(|backing| backing.new_file()) {
            new.set_modified(modified)?;
        }
        if let BytesAt::Unstored(unstored) = &mut file.content
            && unstored.changed
        {
            unstored.modified = modified;
            unstored.keep_modified = true;
            return Ok(());
        }
        let Some(place) = place else { return Ok(()) };
        check_writable(Some(&place))?;
        let target = self.names.target(place)?;
        let Some((before, after)) =
            self.stored.set_stored_modified(&target, modified).at(target.shown())?
        else {
            return Ok(());
        };
        // The kernel's pages match the new version only if they matched the old one.
        file.seen = Some(after).filter(|_| file.seen.is_some_and(|seen| seen.holds(before)));
        Ok(())
    }

    /// Ends one open of a file. Stores what a mapping wrote after the last close. With the last
    /// open, drops bytes that could not be stored, as that close has reported. `end` updates other
    /// counters under the same lock.
    pub fn release_content(
        &self,
        inode: &Arc<Inode>,
        access: Access,
        end: impl FnOnce(&mut InodeFile),
    ) {
        let mut file = inode.file().lock();
        if access != Access::Read
            && let Err(error) = self.note_late_writes(inode, &mut file)
        {
            self.core.note("close", &error);
        }
        if let BytesAt::Unstored(unstored) = &mut file.content {
            unstored.refresh();
        }
        end(&mut file);
        file.openers = file.openers.saturating_sub(1);
        file.writers = file.writers.saturating_sub(u32::from(access != Access::Read));
        let refused =
            matches!(&file.content, BytesAt::Unstored(unstored) if unstored.refused.is_some());
        let stores = access != Access::Read && file.writers == 0 && !refused;
        let stored =
            if stores { self.store_locked(inode, &mut file, StoreReason::Closing) } else { Ok(()) };
        let has_failed_write = file.has_failed_write;
        if file.openers == 0 {
            (file.opened, file.users) = (None, Processes::default());
            file.has_failed_write = false;
            if let BytesAt::Open(_) = file.content {
                file.content = BytesAt::Stored;
                file.created = None;
            }
        }
        let place = inode.place();
        if self.is_kept_waiting(&file, place.as_ref()) {
            return;
        }
        match (&file.content, &place) {
            // It stays until it is due, even if no handle and no kernel inode refers to it.
            (BytesAt::Unstored(_), Some(place @ Place::Ordinary(..))) => {
                let name = place.name().unwrap_or_default();
                let shown = Shown::File(place.clone(), Arc::clone(inode));
                return self.names.overlay.insert(place.parent(), &name, shown);
            }
            (BytesAt::Stored | BytesAt::Open(_), _) => return,
            _ if file.openers > 0 => return,
            (BytesAt::Unstored(_) | BytesAt::Detached(_), _) => {}
        }
        if let (Err(error), Some(place)) = (&stored, &place) {
            // No program gets this error: it closed the file before the kernel wrote its mapping,
            // or had another process close it.
            let detail = format!("unstored changes are discarded: {}", error.detail());
            self.core.note("close", &Error::new(error.kind(), detail).at(place.shown()));
        }
        if let BytesAt::Unstored(UnstoredBytes { refused: Some(error), .. }) = &file.content
            && error.kind() == Kind::Incomplete
            && !has_failed_write
        {
            self.core.note("close", &error.clone().of_kind(Kind::Invalid));
        }
        if let (Some(place), Some(error)) = (&place, discarded(&file, stored.err())) {
            self.core.refused.note(place.shown(), &error);
        }
        file.seen = None;
        self.memory.forget_unstored(&mut file);
        if let Some(place) = &place {
            self.names.overlay.remove_file(place, inode);
        }
        drop(file);
        self.core.invalidate(inode.number());
    }

    /// Returns the bytes of a file that is about to be unlinked or replaced, for the programs that
    /// have it open; `None` if there are none, or if the bytes are in memory already.
    pub fn bytes_for_openers(&self, file: &InodeFile, place: &Place) -> Option<Buffer> {
        if let Place::View(..) = place {
            return None; // Its openers have it as it is.
        }
        let wanted = file.openers > 0 && matches!(file.content, BytesAt::Stored);
        // A file that cannot be read now could not be read before either.
        wanted.then(|| self.stored.bytes_at(place).unwrap_or_else(|_| Vec::new().into()))
    }

    /// Makes a file without a name private to its openers. Call this after the name is gone, under
    /// the same lock as [`Self::bytes_for_openers`]; otherwise an open in between would see neither
    /// the old bytes nor the new ones.
    pub fn detach(&self, file: &mut InodeFile, kept: Option<Buffer>) {
        if file.openers == 0 {
            return self.memory.forget_unstored(file);
        }
        if let Some(bytes) = kept {
            // The limit does not apply: removing a file must always work.
            self.memory.add(bytes.len());
            file.content = BytesAt::Detached(UnstoredBytes::of(bytes));
            return;
        }
        file.content = match std::mem::take(&mut file.content) {
            BytesAt::Unstored(unstored) => BytesAt::Detached(unstored),
            // Another thread has removed or replaced it just now.
            kept @ (BytesAt::Stored | BytesAt::Detached(_) | BytesAt::Open(_)) => kept,
        };
    }

    /// Reserves `more` bytes for unstored data, or fails. Stores files early to free memory. The
    /// caller may hold the lock of one file.
    pub fn reserve(&self, more: usize) -> Result<()> {
        let started = Instant::now();
        let fits = u64::try_from(more).is_ok_and(|more| more <= self.core.options.dirty_limit);
        loop {
            if self.memory.try_reserve(more).is_ok() {
                return Ok(());
            }
            self.store_idle_files();
            let stored = self.chunks.store_shards(Due::All);
            match (self.memory.try_reserve(more), stored) {
                (Ok(()), _) => return Ok(()),
                // Memory cannot be freed because the store fails, so report that error.
                (Err(_), Err(error)) => return Err(error),
                (Err(error), Ok(())) if !fits || started.elapsed() > PATIENCE => return Err(error),
                // Other writers take the memory as it is freed, or have not closed their files.
                (Err(_), Ok(())) => std::thread::park_timeout(Duration::from_millis(1)),
            }
        }
    }

    /// Stores ordinary files that no program is writing. Skips locked files: a thread that holds
    /// the lock of one file must not wait for that of another.
    fn store_idle_files(&self) {
        for inode in self.names.overlay.files() {
            let Some(mut file) = inode.file().try_lock() else { continue };
            let is_ordinary = matches!(inode.place(), Some(Place::Ordinary(..)));
            if is_ordinary && file.writers == 0 && matches!(file.content, BytesAt::Unstored(_)) {
                // The next request to store the file reports the error.
                let stored = self.store_locked(&inode, &mut file, StoreReason::Asked);
                stored.unwrap_or_else(|error| log::debug!("{error}"));
            }
        }
    }
}

/// Returns why the bytes of a file that was just closed are discarded: the error of this close, or
/// of an earlier one. A file that lost its name keeps nothing back.
fn discarded(file: &InodeFile, error: Option<Error>) -> Option<Error> {
    match &file.content {
        BytesAt::Unstored(unstored) if unstored.changed => error.or(unstored.refused.clone()),
        _ => None,
    }
}

/// Names the file in an error.
fn error_in(inode: &Inode, error: Error) -> Error {
    error.at(inode.place().map_or_else(String::new, |place| place.shown()))
}
