//! Stores the unstored bytes of files as the kind of file that their place says.

use std::sync::Arc;
use std::time::Instant;

use super::documents::SeenDocument;
use super::files::Files;
use crate::cache::NewChunk;
use crate::error::{Error, Kind, Result, WithSubject};
use crate::hierarchy::TextPurpose;
use crate::store::directory::LOCK_SUFFIX;
use crate::store::{Condition, FileUse, Ownership, Stamp, Version};
use crate::vfs::authors::Processes;
use crate::vfs::core::TreeLock;
use crate::vfs::names::file::{BytesAt, Created, FileToStore, InodeFile, UnstoredBytes};
use crate::vfs::names::held::HeldBytes;
use crate::vfs::names::inode::Inode;
use crate::vfs::names::place::Place;
use crate::vfs::names::target::CurrentPlace;
use crate::vfs::options::Presentation;

/// The reason for storing a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreReason {
    /// A descriptor was closed. Scratch files stay unstored, since most are renamed or removed at
    /// once.
    Closing,
    /// The file must be stored now.
    Asked,
    /// Everything must be stored, except files that their writers have not completed.
    Everything,
    /// The ticker stores scratch files that are old enough.
    Aged,
}

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
        if !unstored.changed {
            // If the kernel may write to them, they are looked at again.
            if !is_open {
                self.memory.forget_unstored(file);
            }
            return Ok(());
        }
        if let Some(error) = target.as_ref().ok().and_then(|target| target.as_ref()?.waits()) {
            return self.keep_waiting(inode, file, error, reason);
        }
        if !self.is_due(&place, unstored, reason, (writers, is_open)) {
            // The ticker has tried to store it since it was written.
            let refused = unstored.refused.clone().filter(|_| reason == StoreReason::Closing);
            return refused.map_or(Ok(()), |error| Err(error.at(place.shown())));
        }
        if self.is_kept_as_file(Some(&place)) {
            return self.store_as_file(inode, file, &place);
        }
        if let Some(error) = refused_for_good(unstored, &place) {
            return Err(error);
        }
        let (written, stamp) = (unstored.written(), unstored.bytes.stamp());
        let by = FileWriters { authors: file.authors.clone(), shown: file.shown.clone() };
        let (is_empty, cut_by) = (written.bytes.is_empty(), unstored.cut_by.clone());
        let target = target.and_then(|target| target.ok_or_else(Error::not_found));
        let stored = self.store_whole(&target, written, cut_by, &by).map_err(|error| {
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
        if let (Err(error), Ok(target)) = (&stored, &target)
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

    /// Whether a changed file is to be stored for this reason. `is_open` says whether the kernel
    /// still writes to it.
    fn is_due(
        &self,
        place: &Place,
        unstored: &UnstoredBytes,
        reason: StoreReason,
        (writers, is_open): (u32, bool),
    ) -> bool {
        let is_old = || unstored.since.elapsed() >= self.core.options.writeback_delay;
        let Place::Ordinary(_, relative) = place else {
            return match reason {
                StoreReason::Closing | StoreReason::Asked => true,
                // A program may still be writing it, and half of the file would be stored.
                StoreReason::Everything => writers == 0 || unstored.settled,
                // It has waited for the array that is there now.
                StoreReason::Aged => {
                    let has_waited = writers == 0 && unstored.waits_since.is_some();
                    has_waited && (unstored.refused.is_none() || is_old())
                }
            };
        };
        // TensorStore renames its lock files onto their keys or removes them, so they never need to
        // be stored.
        !relative.ends_with(LOCK_SUFFIX)
            && match reason {
                StoreReason::Closing => false,
                StoreReason::Asked => true,
                // The kernel still writes to it, so it cannot become the value yet.
                _ if is_open => false,
                StoreReason::Everything => true,
                // Its name is taken, as was reported; the next `fsync` tries again.
                StoreReason::Aged if unstored.is_taken() => false,
                StoreReason::Aged => is_old(),
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
            let len = u64::try_from(written.bytes.len()).unwrap_or(u64::MAX);
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

/// Returns why a metadata file can never be stored as it is.
fn refused_for_good(unstored: &UnstoredBytes, place: &Place) -> Option<Error> {
    let error = unstored.refused.as_ref()?;
    // Its name was taken when it was to be stored, and is taken still.
    let is_taken = unstored.is_taken() && place.is_document();
    // What it was made of has changed: only the mount knew that, and has forgotten it.
    let is_old = error.errno() == libc::ESTALE && matches!(place, Place::StoredDocument(..));
    (is_taken || is_old).then(|| error.clone())
}

/// Whether the medium below the store failed, so that a retry may succeed.
fn is_store_failure(error: &Error) -> bool {
    matches!(error.kind(), Kind::Os(_) | Kind::ReadOnly | Kind::Busy | Kind::NoMemory)
}
