//! Stores the unstored bytes of files as the kind of file that their place says. `next_step`
//! decides whether that is done.

use std::sync::Arc;
use std::time::Instant;

use super::documents::SeenDocument;
use super::files::Files;
use super::next_step::{FileClass, NextStep, StoreReason, UnstoredState, next_step};
use crate::cache::NewChunk;
use crate::error::{Error, Kind, Result, WithSubject};
use crate::hierarchy::TextPurpose;
use crate::store::directory::LOCK_SUFFIX;
use crate::store::{Condition, FileUse, Ownership, Stamp, Version};
use crate::vfs::authors::Processes;
use crate::vfs::core::TreeLock;
use crate::vfs::inodes::file::{BytesAt, Created, FileToStore, InodeFile, UnstoredBytes};
use crate::vfs::inodes::held::HeldBytes;
use crate::vfs::inodes::inode::Inode;
use crate::vfs::inodes::place::Place;
use crate::vfs::names::target::CurrentPlace;
use crate::vfs::options::Presentation;
use crate::width::ToU64;

/// The programs that have written the bytes of a file, and the file as they may have seen it.
#[derive(Debug, Default)]
pub struct FileWriters {
    /// The programs.
    pub authors: Processes,
    /// A metadata file as any program saw it last.
    pub shown: Option<Arc<str>>,
}

impl Files {
    /// Makes a chunk pending if the store could not take it, so that it is retried. Returns `false`
    /// for other files, and for bytes that can never be stored.
    fn defer_failed(
        &self,
        target: &CurrentPlace,
        file: &mut InodeFile,
        error: &Error,
    ) -> Result<bool> {
        let (Some((path, chunk)), BytesAt::Unstored(unstored)) = (target.chunk(), &file.content)
        else {
            return Ok(false);
        };
        // On a full disk, the kernel may have written a part only.
        let is_full = matches!(error.kind(), Kind::Os(libc::ENOSPC | libc::EDQUOT));
        if !is_store_failure(error) || is_full && unstored.bytes.file().is_some() {
            return Ok(false);
        }
        let FileToStore { bytes, base, modified, .. } = unstored.written();
        let base = base.or_else(|| self.chunks.base_seen(path, chunk, &file.authors));
        let limit = chunk.array.chunk_len(&chunk.coords)?.longest();
        let stamp = bytes.stamp();
        let new = NewChunk { bytes: Some(bytes.to_buffer(limit)?), base };
        let deferred = self.core.cache.defer(path, chunk, new, modified)?;
        self.core.cache.record_failure(&chunk.array.key(&chunk.coords)?, error);
        let seen = deferred.stat.map(|stat| stat.version);
        file.seen = seen.filter(|_| file.has_pages_of_one_version() && !deferred.is_merged);
        self.forget_stored(file, stamp);
        Ok(true)
    }

    /// Stores the unstored bytes of a file, if `reason` asks for it.
    pub fn store_content(&self, inode: &Inode, reason: StoreReason) -> Result<()> {
        self.store_content_and(inode, reason, |_| Ok(()))
    }

    /// Like [`Self::store_content`], and then calls `then` with the place of the file before that
    /// can move.
    pub fn store_content_and(
        &self,
        inode: &Inode,
        reason: StoreReason,
        then: impl FnOnce(Place) -> Result<()>,
    ) -> Result<()> {
        let _tree = self.lock_tree_to_store(inode)?;
        self.store_locked(inode, &mut inode.file().lock(), reason)?;
        inode.place().map_or(Ok(()), then)
    }

    /// Like [`Self::store_content`], for a caller that has locked the file and its names
    /// ([`Self::lock_tree_to_store`]).
    pub fn store_locked(
        &self,
        inode: &Inode,
        file: &mut InodeFile,
        reason: StoreReason,
    ) -> Result<()> {
        self.note_late_writes(inode, file)?;
        let (writers, is_open) = (file.writers, file.passthrough.writers > 0);
        let mut target = self.names.target_of(inode, file);
        if let Ok(Some(waiting)) = &target
            && self.has_grown(waiting, file, reason)?
        {
            target = self.names.target_of(inode, file);
        }
        let BytesAt::Unstored(unstored) = &mut file.content else { return Ok(()) };
        unstored.refresh();
        let Some(place) = inode.place() else { return target.map(drop) };
        unstored.settled |= matches!(reason, StoreReason::Closing | StoreReason::Asked);
        let missing = target.as_ref().ok().and_then(|target| target.as_ref()?.waits());
        let state = self.state_of(&place, unstored, (writers, is_open), missing.is_some());
        let refused = || unstored.refused.clone().map_or(Ok(()), Err);
        match next_step(reason, state) {
            NextStep::Leave => Ok(()),
            NextStep::Drop => {
                self.memory.forget_unstored(file);
                Ok(())
            }
            NextStep::FailAgain => refused().at(place.shown()),
            NextStep::Refuse => refused(),
            NextStep::Wait => {
                unstored.waits_since = Some(Instant::now());
                self.keep_name(&place);
                Ok(())
            }
            NextStep::FailWaiting => missing.map_or(Ok(()), Err),
            NextStep::GiveUp => {
                unstored.refused.clone_from(&missing);
                missing.map_or(Ok(()), Err)
            }
            NextStep::StoreAsFile => self.store_as_file(inode, file, &place),
            NextStep::Store => {
                let target = target.and_then(|target| target.ok_or_else(Error::not_found));
                self.store_now(inode, file, reason, &target)
            }
        }
    }

    /// Stores unstored bytes as what their place, which is in `target`, says.
    fn store_now(
        &self,
        inode: &Inode,
        file: &mut InodeFile,
        reason: StoreReason,
        target: &Result<CurrentPlace>,
    ) -> Result<()> {
        let (BytesAt::Unstored(unstored), Some(place)) = (&file.content, inode.place()) else {
            return Ok(());
        };
        let (written, stamp) = (unstored.written(), unstored.bytes.stamp());
        let by = FileWriters { authors: file.authors.clone(), shown: file.shown.clone() };
        let (is_empty, cut_by) = (written.bytes.is_empty(), unstored.cut_by.clone());
        let stored = self.store_whole(target, written, cut_by, &by).map_err(|error| {
            // A shell closes a duplicate of the descriptor before it writes anything. If nothing is
            // ever written, `release` reports it.
            let may_follow =
                is_empty && reason == StoreReason::Closing && error.kind() == Kind::Invalid;
            let kind = if may_follow { Kind::Incomplete } else { error.kind() };
            error.of_kind(kind).at(place.shown())
        });
        if target.is_err() && stored.as_ref().is_err_and(is_store_failure) {
            // The array could not be looked up: the next close or the release tries again.
            return stored.map(drop);
        }
        if let (Err(error), Ok(target)) = (&stored, target)
            && self.defer_failed(target, file, error)?
        {
            self.names.overlay.remove_file(&place, inode);
        } else if let (Err(error), BytesAt::Unstored(unstored)) = (&stored, &mut file.content) {
            // A program is still writing it, or got the error at its close. No program gets that of
            // a chunk that has waited.
            let is_known = unstored.waits_since.is_none() && error.kind() == Kind::Invalid;
            if reason == StoreReason::Everything && is_known {
                return Ok(());
            }
            unstored.note_refused(error, stamp);
        }
        self.settle_stored(file, target.as_ref().ok(), stored?, stamp);
        self.names.overlay.remove_file(&place, inode);
        Ok(())
    }

    /// Stores bytes, unless a write of a chunk failed with `cut_by` after them.
    fn store_whole(
        &self,
        target: &Result<CurrentPlace>,
        written: FileToStore,
        cut_by: Option<Error>,
        by: &FileWriters,
    ) -> Result<Option<Version>> {
        let target = target.as_ref().map_err(Error::clone)?;
        if let Some(error) = cut_by.filter(|_| target.chunk().is_some()) {
            return Err(Error::invalid(format!("after {}, nothing was stored", error.detail())));
        }
        self.store_as(target, written, by)
    }

    /// Returns the facts about unstored bytes. `writers` handles are open, `kernel_writes` says
    /// whether the kernel writes for one of them, and `waits` whether the array lacks the chunk.
    fn state_of(
        &self,
        place: &Place,
        unstored: &UnstoredBytes,
        (writers, kernel_writes): (u32, bool),
        waits: bool,
    ) -> UnstoredState {
        let class = match place {
            Place::Ordinary(_, relative) if relative.ends_with(LOCK_SUFFIX) => FileClass::Lock,
            Place::Ordinary(..) => FileClass::Ordinary,
            _ => FileClass::Translated,
        };
        UnstoredState {
            class,
            is_changed: unstored.changed,
            has_writers: writers > 0,
            kernel_writes,
            is_settled: unstored.settled,
            waits,
            has_waited: unstored.waits_since.is_some(),
            is_late: self.is_late(unstored),
            is_old: unstored.since.elapsed() >= self.core.options.writeback_delay,
            was_refused: unstored.refused.is_some(),
            is_refused_for_good: is_refused_for_good(unstored, place),
            is_taken: unstored.is_taken(),
            is_kept_as_file: self.is_kept_as_file(Some(place)),
        }
    }

    /// Makes a scratch file a file of the store, at the name that it has.
    fn store_as_file(&self, inode: &Inode, file: &mut InodeFile, place: &Place) -> Result<()> {
        let BytesAt::Unstored(unstored) = &mut file.content else { return Ok(()) };
        let created =
            file.created.clone().unwrap_or_else(|| Created::by(Ownership::of_process(0o644)));
        let made = self.make_file(place, unstored, &created).at(place.shown());
        let made = made.inspect_err(|error| {
            unstored.refused = Some(error.clone());
            unstored.since = Instant::now();
        })?;
        self.note_change(place)?;
        file.seen = None;
        self.memory.forget_unstored(file);
        if file.openers > 0 {
            file.content = BytesAt::Open(Arc::new(made));
            self.open_stored(inode, file, FileUse::Write)?;
        }
        self.names.overlay.remove_file(place, inode);
        Ok(())
    }

    /// Records that the bytes of a file were stored as `version`; `stamp` is the state in which the
    /// kernel had written them.
    fn settle_stored(
        &self,
        file: &mut InodeFile,
        target: Option<&CurrentPlace>,
        version: Option<Version>,
        stamp: Option<Stamp>,
    ) {
        file.seen = version.filter(|_| file.has_pages_of_one_version());
        file.shown = None;
        self.forget_stored(file, stamp);
        let chunk = target.and_then(CurrentPlace::chunk);
        if let (BytesAt::Stored, Some((_, chunk)), Some(_)) = (&file.content, chunk, stamp) {
            let generation = self.core.cache.generation(&chunk.array);
            file.passthrough.stored_as(version.map(|version| (version, generation)), stamp);
        }
    }

    /// Takes note of what programs wrote after a close that made the file the value. If another
    /// program has replaced the value since, the file is stored again.
    pub fn note_late_writes(&self, inode: &Inode, file: &mut InodeFile) -> Result<()> {
        let (BytesAt::Stored, Some(backing)) = (&file.content, file.passthrough.written()) else {
            return Ok(());
        };
        let Some(new) = backing.new_file() else { return Ok(()) };
        let now = new.stamp().ok();
        let Some(place) = inode.place().filter(|_| now != file.passthrough.stamp) else {
            return Ok(());
        };
        let target = self.names.target(place)?;
        let Some((key, (_, chunk))) = self.stored.key_of(&target)?.zip(target.chunk()) else {
            return Ok(());
        };
        if self.stored.is_value_of(&key, new)? {
            self.core.cache.note_change(&chunk.array, &chunk.coords);
            self.unsynced.changed(key);
            file.passthrough.stamp = now;
        } else {
            let held = HeldBytes::File(Arc::clone(backing));
            file.content =
                BytesAt::Unstored(UnstoredBytes { changed: true, ..UnstoredBytes::of(held) });
        }
        Ok(())
    }

    /// Drops bytes that have been stored. If programs may go on writing to a new file that has not
    /// become the value, it stays, to be stored again; `stamp` is its state before it was stored.
    pub fn forget_stored(&self, file: &mut InodeFile, stamp: Option<Stamp>) {
        let is_open = file.passthrough.writers > 0;
        match &mut file.content {
            BytesAt::Unstored(unstored) if is_open && unstored.bytes.is_nameless() => {
                (unstored.changed, unstored.condition) = (false, Condition::Always);
                (unstored.refused, unstored.stamp) = (None, stamp);
            }
            _ => self.memory.forget_unstored(file),
        }
    }

    /// Stores bytes that `by` has written as the kind of file that `target` is. Returns the stored
    /// version, or `None` if reading returns other bytes than were written (metadata files).
    pub fn store_as(
        &self,
        target: &CurrentPlace,
        written: FileToStore,
        by: &FileWriters,
    ) -> Result<Option<Version>> {
        let modified = written.modified;
        if written.bytes.file().is_some() && !matches!(target.place, Place::Ordinary(..)) {
            // The kernel knows no limit.
            let len = written.bytes.len().to_u64();
            self.stored.check_longest(Some(target), len)?;
        }
        let version = match target.chunk() {
            Some((path, chunk)) => {
                let stored = self.chunks.store_chunk(path, chunk, written, &by.authors)?;
                if stored.stat.is_some() {
                    self.names.forget_chunk_dirs(&target.place);
                }
                // The kernel's pages hold what was written.
                let is_in_pages = !stored.is_merged && chunk.array.reads_as_written(&chunk.coords);
                stored.stat.filter(|_| is_in_pages).map(|stat| stat.version)
            }
            None => self.store_file(&target.place, &written, by)?,
        };
        self.core.refused.forget(|| target.place.shown());
        if let Some(key) = self.stored.key_of(target)? {
            self.unsynced.changed(key);
        }
        match modified {
            Some(modified) if version.is_some() && !self.chunks.is_pending(target)? => {
                let Some((before, after)) = self.stored.set_stored_modified(target, modified)?
                else {
                    return Ok(version);
                };
                // If another program stored a value in between, that is not what was written.
                let is_ours = version.is_some_and(|version| version.holds(before));
                Ok(is_ours.then_some(after))
            }
            _ => Ok(version),
        }
    }

    /// Stores the bytes of a file that is no chunk.
    fn store_file(
        &self,
        place: &Place,
        written: &FileToStore,
        by: &FileWriters,
    ) -> Result<Option<Version>> {
        if let Place::Ordinary(path, relative) = place {
            self.names.check_is_ordinary(place)?;
            let key = self.stored.ordinary_key(path, relative)?;
            return self.stored.set_ordinary(&key, written).map(Some);
        }
        let bytes = written.bytes.to_buffer(crate::limits::METADATA.get())?;
        // If zarrfs does not know what the writer has read, it is what any program saw last.
        let seen = self.names.seen_texts.last(place, &by.authors);
        let shown = seen.as_deref().or(by.shown.as_deref());
        let is_new = matches!(written.condition, Condition::Absent);
        match place {
            Place::Document(path) if self.core.form_of(path) == Presentation::Zarr3 => {
                let seen = SeenDocument { before: shown, is_new, ..SeenDocument::default() };
                self.documents.store_document(path, seen, &bytes, &by.authors)?;
            }
            Place::Document(_) | Place::Attributes(_) | Place::Copies(_) => {
                self.documents.store_zarr2(place, shown, is_new, &bytes, &by.authors)?;
            }
            Place::StoredDocument(path, key) => {
                let document = Place::Document(path.clone());
                let before = self.names.zarr2.shown_at(&document, TextPurpose::Text);
                self.documents.store_stored_document(path, key, &bytes, &by.authors)?;
                self.documents.invalidate_document(path);
                if let Ok(before) = before {
                    self.names.seen_texts.note_changed(&document, &before);
                }
                for process in by.authors.known().unwrap_or_default() {
                    self.documents.note_stored_reader(path, key, Some(*process));
                }
                return self.store_waiting(path, &by.authors).map(|()| None);
            }
            other => {
                return Err(Error::new(Kind::NotPermitted, "read-only").at(other.shown()));
            }
        }
        self.names.seen_texts.note_written(place, &by.authors, &bytes);
        place.node().map_or(Ok(()), |path| self.store_waiting(path, &by.authors))?;
        Ok(None)
    }

    /// Locks the tree for storing an inode: exclusively if that creates or changes a node; shared
    /// for a chunk, whose array must not be moved or removed meanwhile.
    pub fn lock_tree_to_store(&self, inode: &Inode) -> Result<Option<TreeLock<'_>>> {
        let Some(place) = inode.place() else { return Ok(None) };
        Ok(match place {
            place if place.is_document() => {
                // Storing pending chunks now shortens the time under the lock.
                if let Some(path) = place.node() {
                    self.chunks.store_array_before(path);
                }
                Some(TreeLock::Alone { _guard: self.core.alone()? })
            }
            Place::Chunk(..) => Some(TreeLock::Shared { _guard: self.core.shared()? }),
            _ => None,
        })
    }
}

/// Whether a metadata file can never be stored as it is.
fn is_refused_for_good(unstored: &UnstoredBytes, place: &Place) -> bool {
    // Its name was taken when it was to be stored, and is taken still.
    let is_taken = unstored.is_taken() && place.is_document();
    // What it was made of has changed: only the mount knew that, and has forgotten it.
    let is_old = unstored.refused.as_ref().is_some_and(|error| error.errno() == libc::ESTALE);
    is_taken || is_old && matches!(place, Place::StoredDocument(..))
}

/// Whether the medium below the store failed, so that a retry may succeed.
fn is_store_failure(error: &Error) -> bool {
    matches!(error.kind(), Kind::Os(_) | Kind::ReadOnly | Kind::Busy | Kind::NoMemory)
}
