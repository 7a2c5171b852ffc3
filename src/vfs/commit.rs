//! The bytes of files: reads and changes them, and stores them as the kind of file that their place
//! asks for.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime};

use bytes::Bytes;

use super::access::Access;
use super::authors::{Authors, Thread};
use super::file::{Content, File, Unstored};
use super::inode::Inode;
use super::options::Form;
use super::overlay::Shown;
use super::place::Place;
use super::{ATTEMPTS, Vfs};
use crate::array::ArrayId;
use crate::buffer::Buffer;
use crate::cache::Base;
use crate::error::{At, Error, Kind, Result};
use crate::hierarchy::Wanted;
use crate::metadata::NodePath;
use crate::store::{ByteRange, Condition, Key, Version};

/// The reason for storing a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoreReason {
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

/// The versions of a stored value before and after a change.
pub(super) type Versions = (Version, Version);

/// Refuses writing to files that are read-only by their kind.
pub(super) fn check_writable(place: Option<&Place>) -> Result<()> {
    match place {
        Some(Place::Report(_) | Place::ViewsOf(..)) => {
            let shown = place.map(Place::shown).unwrap_or_default();
            Err(Error::new(Kind::NotPermitted, "read-only").at(shown))
        }
        _ => Ok(()),
    }
}

impl Vfs {
    pub(super) fn read_content(&self, inode: &Inode, offset: u64, len: usize) -> Result<Bytes> {
        let file = inode.file().lock();
        if let Some(bytes) = unstored_range(&file.content, offset, len) {
            return Ok(bytes);
        }
        self.check_still(inode, &file)?;
        drop(file);
        let mut attempts = 1;
        loop {
            let alone = (attempts >= ATTEMPTS).then(|| self.core.tree_lock.read());
            let place = inode.place().ok_or_else(Error::not_found)?;
            let before = self.state_of(&place);
            let read = self.read_stored(&place, offset, len);
            // If its node was moved, removed or changed meanwhile, a chunk that has gone may have
            // been read as the fill value: it is read again, where it is now.
            let shared = if alone.is_some() { alone } else { Some(self.core.tree_lock.read()) };
            if attempts >= ATTEMPTS
                || inode.place().as_ref() == Some(&place) && self.state_of(&place) == before
            {
                return read.at(place.shown());
            }
            drop(shared);
            attempts += 1;
        }
    }

    /// What changes when the node of a file is moved, removed or gets other metadata.
    fn state_of(&self, place: &Place) -> (u64, Option<ArrayId>) {
        let array = match place {
            Place::Chunk(path, _) => self.core.array(path).ok().map(|array| array.id()),
            _ => None,
        };
        (self.core.hierarchy.moves(), array)
    }

    /// A range of what is stored at `place`.
    fn read_stored(&self, place: &Place, offset: u64, len: usize) -> Result<Bytes> {
        let Place::Ordinary(path, relative) = place else {
            return Ok(super::slice(&self.stored_bytes(place)?.into(), offset, len));
        };
        let key = self.ordinary_key(path, relative)?;
        let range = ByteRange::Span { offset, len: u64::try_from(len).unwrap_or(u64::MAX) };
        let value = self.core.hierarchy.store().read().get_partial_values(&[(key, range)])?.pop();
        Ok(value.flatten().ok_or_else(Error::not_found)?.bytes)
    }

    pub(super) fn try_read_content(&self, inode: &Inode, offset: u64, len: usize) -> Option<Bytes> {
        let file = inode.file().try_lock()?;
        if let Some(bytes) = unstored_range(&file.content, offset, len) {
            return Some(bytes);
        }
        self.check_still(inode, &file).ok()?;
        drop(file);
        let Some(Place::Chunk(path, coords)) = inode.place() else { return None };
        let chunk = self.core.cache.peek(&self.core.array(&path).ok()?, &coords)?;
        Some(super::slice(&chunk.bytes.into(), offset, len))
    }

    /// Returns all bytes of the stored file at `place`.
    pub(super) fn stored_bytes(&self, place: &Place) -> Result<Buffer> {
        match place {
            Place::Chunk(path, coords) => {
                let array = self.core.array(path)?;
                match self.core.cache.get(&array, coords)? {
                    Some(chunk) => Ok(chunk.bytes),
                    None if self.shows_fill(path, &array) => array.fill_chunk(coords),
                    None => Err(Error::not_found()),
                }
            }
            Place::Document(_) | Place::Attributes(_) | Place::Copies(_) => {
                Ok(self.shown_at(place, Wanted::Text)?.as_bytes().to_vec().into())
            }
            Place::Ordinary(path, relative) => self.value_of(&self.ordinary_key(path, relative)?),
            Place::StoredDocument(_, key) => self.value_of(key),
            Place::Report(_) | Place::ViewsOf(..) | Place::View(..) => Ok(Vec::new().into()),
            Place::Node(_)
            | Place::ChunkDir(..)
            | Place::OrdinaryDir(..)
            | Place::Control
            | Place::StoredDir(_)
            | Place::ViewsDir(_) => Err(Error::new(Kind::IsDirectory, "is a directory")),
        }
    }

    fn value_of(&self, key: &Key) -> Result<Buffer> {
        let limit = self.core.hierarchy.options().max_chunk_len;
        let value = self.core.hierarchy.store().get(key, limit)?.ok_or_else(Error::not_found)?;
        Ok(value.bytes.into())
    }

    fn ordinary_key(&self, path: &NodePath, relative: &str) -> Result<Key> {
        self.core.hierarchy.ordinary_prefix(path)?.key(relative)
    }

    /// Returns the most bytes that the file at `place` may have.
    fn longest(&self, place: Option<&Place>) -> Result<u64> {
        Ok(match place {
            Some(Place::Chunk(path, coords)) => self.core.array(path)?.chunk_len(coords)?.longest(),
            Some(place) if place.is_document() => crate::json::MAX_DOCUMENT_LEN,
            Some(Place::View(path, format)) => self.views.view(path, format)?.len(),
            _ => self.core.hierarchy.options().max_chunk_len,
        })
    }

    pub(super) fn check_longest(&self, place: Option<&Place>, len: u64) -> Result<()> {
        let limit = self.longest(place)?;
        if len <= limit {
            return Ok(());
        }
        let shown = place.map(Place::shown).unwrap_or_default();
        Err(Error::too_large(format!("{len} bytes: the limit of the file is {limit}")).at(shown))
    }

    pub(super) fn write_content(
        &self,
        inode: &Inode,
        (offset, data): (u64, &[u8]),
        by: Thread,
    ) -> Result<()> {
        // A thread that moves the node waits for this lock.
        let mut file = inode.file().lock();
        let place = inode.place();
        let shown = || place.as_ref().map_or_else(String::new, Place::shown);
        self.check_still(inode, &file).map_err(|error| error.at(shown()))?;
        let full_len =
            self.check_end(place.as_ref(), offset, data.len()).map_err(|e| e.at(shown()))?;
        self.load(&mut file, place.as_ref()).map_err(|error| error.at(shown()))?;
        self.reserve(grown(&file, offset, data)).map_err(|error| error.at(shown()))?;
        self.put(&mut file, offset, data, full_len).map_err(|error| error.at(shown()))?;
        file.note_author(full_len, by);
        Ok(())
    }

    pub(super) fn try_write_content(
        &self,
        inode: &Inode,
        (offset, data): (u64, &[u8]),
        by: Thread,
    ) -> Result<bool> {
        let Some(mut file) = inode.file().try_lock() else { return Ok(false) };
        if !matches!(file.content, Content::Unstored(_)) || self.check_still(inode, &file).is_err()
        {
            return Ok(false);
        }
        let place = inode.place();
        let shown = || place.as_ref().map_or_else(String::new, Place::shown);
        let full_len =
            self.check_end(place.as_ref(), offset, data.len()).map_err(|e| e.at(shown()))?;
        // `try_reserve` only: freeing memory would take time.
        if self.try_reserve(grown(&file, offset, data)).is_err() {
            return Ok(false);
        }
        self.put(&mut file, offset, data, full_len).map_err(|error| error.at(shown()))?;
        file.note_author(full_len, by);
        Ok(true)
    }

    /// Refuses a write that ends past the longest file. Returns the length to allocate at once.
    fn check_end(&self, place: Option<&Place>, offset: u64, len: usize) -> Result<usize> {
        let (limit, full_len) = match place {
            Some(Place::Chunk(path, coords)) => {
                let chunk_len = self.core.array(path)?.chunk_len(coords)?;
                (chunk_len.longest(), chunk_len.exactly())
            }
            _ => (self.longest(place)?, None),
        };
        let len = u64::try_from(len).unwrap_or(u64::MAX);
        if offset.checked_add(len).is_none_or(|end| end > limit) {
            return Err(Error::too_large(match full_len {
                Some(_) => format!("a write past the end: the chunk has {limit} bytes"),
                None => format!("a write past the limit of {limit} bytes (--max-chunk-size)"),
            }));
        }
        Ok(full_len.and_then(|len| usize::try_from(len).ok()).unwrap_or_default())
    }

    /// Writes bytes to a loaded file. The memory must be reserved.
    fn put(&self, file: &mut File, offset: u64, data: &[u8], full_len: usize) -> Result<()> {
        let offset =
            usize::try_from(offset).map_err(|_| Error::too_large("offset out of range"))?;
        match &mut file.content {
            // A detached file is never stored, but its openers see what they write.
            Content::Unstored(unstored) | Content::Detached(unstored) => {
                let (before, base_len) = (unstored.bytes.len(), unstored.base_len());
                let written = unstored.write(offset, data, full_len);
                self.unreserve(base_len.saturating_sub(unstored.base_len()));
                if written.is_err() {
                    let end = offset.saturating_add(data.len());
                    self.unreserve(end.saturating_sub(before));
                }
                written
            }
            Content::Stored => {
                Err(Error::new(Kind::Internal, "the bytes of the file are not here"))
            }
        }
    }

    /// Loads the bytes of a file into memory, so that they can be changed.
    fn load(&self, file: &mut File, place: Option<&Place>) -> Result<()> {
        if matches!(file.content, Content::Stored) {
            let place = place.ok_or_else(Error::not_found)?;
            let mut base = None;
            let bytes = match place {
                Place::Chunk(path, coords) => {
                    let chunk = self.core.cache.get(&self.core.array(path)?, coords)?;
                    let chunk = chunk.ok_or_else(Error::not_found)?;
                    // Another program may have replaced the chunk since it was opened. The kernel's
                    // old pages must then not count as pages of the version that is stored later.
                    // They are not dropped here: the kernel locks the page that is being written
                    // until this request is answered. If the daemon were killed while it waits for
                    // that page, the writing program would hang.
                    file.is_shared |= !file.seen.is_some_and(|seen| seen.holds(chunk.stat.version));
                    base = Some(chunk.base());
                    chunk.bytes
                }
                place => self.stored_bytes(place)?,
            };
            self.reserve(bytes.len())?;
            // Without memory for both, the chunk is stored as a whole.
            let base = base.filter(|base| self.reserve(base.bytes_len()).is_ok());
            file.content = Content::Unstored(Unstored { base, ..Unstored::of(bytes) });
        }
        Ok(())
    }

    /// Changes the length of a file. If no program has it open for writing, also stores it, or
    /// leaves it unchanged on failure.
    pub(super) fn truncate_and_store(&self, inode: &Inode, len: u64) -> Result<()> {
        let _tree = self.lock_tree_to_store(inode);
        let mut file = inode.file().lock();
        let is_here = !matches!(file.content, Content::Stored);
        let cut = self.truncate_locked(inode, &mut file, len);
        if file.writers > 0 {
            return cut;
        }
        let done = cut.and_then(|()| self.store_locked(inode, &mut file, StoreReason::Asked));
        if done.is_err() && !is_here {
            self.forget_unstored(&mut file);
        }
        done
    }

    pub(super) fn truncate_content(&self, inode: &Inode, len: u64) -> Result<()> {
        self.truncate_locked(inode, &mut inode.file().lock(), len)
    }

    fn truncate_locked(&self, inode: &Inode, file: &mut File, len: u64) -> Result<()> {
        let place = inode.place();
        let shown = || place.as_ref().map_or_else(String::new, Place::shown);
        let limit = self.longest(place.as_ref())?;
        if len > limit {
            return Err(Error::too_large(format!(
                "{len} bytes: the limit of the file is \
                 {limit}"
            ))
            .at(shown()));
        }
        if len == 0 && matches!(file.content, Content::Stored) {
            // Truncating to 0 must work on a damaged file, so it does not read the file.
            file.content = Content::Unstored(Unstored::empty());
            return Ok(());
        }
        self.load(file, place.as_ref()).map_err(|error| error.at(shown()))?;
        let len = usize::try_from(len).map_err(|_| Error::too_large("length out of range"))?;
        match &mut file.content {
            Content::Unstored(unstored) | Content::Detached(unstored)
                if unstored.bytes.len() == len =>
            {
                Ok(())
            }
            Content::Unstored(unstored) | Content::Detached(unstored) => {
                let (more, less) = (
                    len.saturating_sub(unstored.bytes.len()),
                    unstored.bytes.len().saturating_sub(len),
                );
                self.reserve(more)?;
                let base_len = unstored.base_len();
                let cut = unstored.set_len(len);
                self.unreserve(base_len.saturating_sub(unstored.base_len()));
                self.unreserve(if cut.is_ok() { less } else { more });
                cut
            }
            Content::Stored => Ok(()),
        }
    }

    pub(super) fn set_modified_content(&self, inode: &Inode, modified: SystemTime) -> Result<()> {
        let mut file = inode.file().lock();
        let place = inode.place();
        if let Content::Unstored(unstored) = &mut file.content
            && unstored.changed
        {
            unstored.modified = modified;
            unstored.keep_modified = true;
            return Ok(());
        }
        let Some(place) = &place else { return Ok(()) };
        check_writable(Some(place))?;
        let Some((before, after)) = self.set_stored_modified(place, modified).at(place.shown())?
        else {
            return Ok(());
        };
        // The kernel's pages match the new version only if they matched the old one.
        file.seen = Some(after).filter(|_| file.seen.is_some_and(|seen| seen.holds(before)));
        Ok(())
    }

    /// Sets the modification time of what is stored at `place`; for an inner chunk, that of its
    /// shard. Returns the versions before and after, or `None` if the file has no stored value of
    /// its own.
    pub(super) fn set_stored_modified(
        &self,
        place: &Place,
        modified: SystemTime,
    ) -> Result<Option<Versions>> {
        let Some(key) = self.key_of(place)? else { return Ok(None) };
        if let Place::Chunk(_, coords) = place
            && self.core.cache.set_modified(&key, coords, modified)
        {
            return Ok(None);
        }
        self.set_value_modified(place, &key, modified).map(Some)
    }

    /// Sets the modification time of the stored value of `key`, even if changes to it are pending.
    pub(super) fn set_value_modified(
        &self,
        place: &Place,
        key: &Key,
        modified: SystemTime,
    ) -> Result<Versions> {
        let (before, after) = self.core.hierarchy.store().write()?.set_modified(key, modified)?;
        match place {
            Place::Chunk(path, coords) => {
                self.core.cache.set_version(&self.core.array(path)?, coords, before, after);
            }
            Place::Document(path) | Place::Attributes(path) => self.core.hierarchy.invalidate(path),
            _ => {}
        }
        Ok((before, after))
    }

    /// Returns the key of the value that contains the file; `None` if it has none.
    pub(super) fn key_of(&self, place: &Place) -> Result<Option<Key>> {
        Ok(match place {
            Place::Chunk(path, coords) => Some(self.core.array(path)?.key(coords)?),
            Place::Document(path) => {
                let node = self.core.hierarchy.existing(path)?;
                node.document().map(|document| document.key.clone())
            }
            Place::Attributes(path) => {
                let node = self.core.hierarchy.existing(path)?;
                node.document().and_then(|document| document.keys().pop())
            }
            Place::Ordinary(path, relative) => Some(self.ordinary_key(path, relative)?),
            Place::StoredDocument(_, key) => Some(key.clone()),
            Place::Node(_)
            | Place::Copies(_)
            | Place::ChunkDir(..)
            | Place::OrdinaryDir(..)
            | Place::Control
            | Place::StoredDir(_)
            | Place::Report(_)
            | Place::View(..)
            | Place::ViewsDir(_)
            | Place::ViewsOf(..) => None,
        })
    }

    /// Stores the unstored bytes of a file, if `reason` asks for it.
    pub(super) fn store_content(&self, inode: &Inode, reason: StoreReason) -> Result<()> {
        self.store_content_and(inode, reason, |_| Ok(()))
    }

    /// Like [`Self::store_content`], and then calls `then` with the place of the file before that
    /// can move.
    pub(super) fn store_content_and(
        &self,
        inode: &Inode,
        reason: StoreReason,
        then: impl FnOnce(&Place) -> Result<()>,
    ) -> Result<()> {
        let _tree = self.lock_tree_to_store(inode);
        self.store_locked(inode, &mut inode.file().lock(), reason)?;
        inode.place().map_or(Ok(()), |place| then(&place))
    }

    /// Like [`Self::store_content`], for a caller that has locked the file and its names
    /// ([`Self::lock_tree_to_store`]).
    pub(super) fn store_locked(
        &self,
        inode: &Inode,
        file: &mut File,
        reason: StoreReason,
    ) -> Result<()> {
        let writers = file.writers;
        let still = self.check_still(inode, file);
        let Content::Unstored(unstored) = &mut file.content else { return Ok(()) };
        let Some(place) = inode.place() else { return still };
        unstored.settled |= matches!(reason, StoreReason::Closing | StoreReason::Asked);
        if !unstored.changed {
            self.forget_unstored(file);
            return Ok(());
        }
        if let Place::Ordinary(_, relative) = &place {
            let is_due = match reason {
                StoreReason::Closing => false,
                StoreReason::Asked | StoreReason::Everything => true,
                StoreReason::Aged => unstored.since.elapsed() >= self.core.options.writeback_delay,
            };
            // TensorStore renames its lock files onto their keys or removes them, so they never
            // need to be stored.
            if !is_due || relative.ends_with(crate::store::directory::LOCK_SUFFIX) {
                return Ok(());
            }
        } else if reason == StoreReason::Aged
            || (reason == StoreReason::Everything && writers > 0 && !unstored.settled)
        {
            // A program is still writing it, and half of the file would be stored.
            return Ok(());
        }
        let (bytes, base) = (unstored.bytes.clone(), unstored.base.clone());
        let modified = unstored.keep_modified.then_some(unstored.modified);
        let shown = file.shown.clone();
        let is_empty = bytes.is_empty();
        let stored =
            still.and_then(|()| self.store_as(&place, (bytes, base), shown.as_deref(), modified));
        let stored = stored.map_err(|error| {
            // A shell closes a duplicate of the descriptor before it writes anything. If nothing is
            // ever written, `release` reports it.
            let may_follow =
                is_empty && reason == StoreReason::Closing && error.kind() == Kind::Invalid;
            let kind = if may_follow { Kind::Incomplete } else { error.kind() };
            error.of_kind(kind).at(place.shown())
        });
        if let Err(error) = &stored
            && self.defer_failed(&place, file, error)?
        {
            self.leave_overlay(&place, inode);
        } else if let (Err(error), Content::Unstored(unstored)) = (&stored, &mut file.content) {
            // A program is still writing it, or got the error at its close.
            if reason == StoreReason::Everything && error.kind() == Kind::Invalid {
                return Ok(());
            }
            unstored.refused = Some(error.clone());
            // Restart the delay before the next attempt, instead of trying and logging at every
            // tick.
            unstored.since = Instant::now();
        }
        file.seen = stored?.filter(|_| !file.is_shared);
        file.shown = None;
        self.forget_unstored(file);
        self.leave_overlay(&place, inode);
        Ok(())
    }

    /// Stores `bytes` as the kind of file that `place` is; a partially changed chunk with its base.
    /// Returns the stored version, or `None` if reading returns other bytes than were written
    /// (metadata files).
    pub(super) fn store_as(
        &self,
        place: &Place,
        (bytes, base): (Buffer, Option<Base>),
        shown: Option<&str>,
        modified: Option<SystemTime>,
    ) -> Result<Option<Version>> {
        let version = match place {
            Place::Chunk(path, coords) => {
                let written = self.store_chunk(path, coords, (bytes, base), modified)?;
                if written.stat.is_some() {
                    self.forget_chunk_dirs(place);
                }
                // The kernel's pages hold what was written.
                let is_in_pages =
                    !written.is_merged && self.core.array(path)?.reads_as_written(coords);
                written.stat.filter(|_| is_in_pages).map(|stat| stat.version)
            }
            Place::Document(path) if self.core.options.form == Form::Zarr3 => {
                self.store_document(path, shown, &bytes)?;
                None
            }
            Place::Document(_) | Place::Attributes(_) | Place::Copies(_) => {
                self.store_zarr2(place, shown, &bytes)?;
                None
            }
            Place::StoredDocument(path, key) => {
                self.store_stored_document(path, key, &bytes)?;
                self.invalidate_document(path);
                None
            }
            Place::Ordinary(path, relative) => {
                let key = self.ordinary_key(path, relative)?;
                let pieces = [Bytes::from(bytes).into()];
                let stat =
                    self.core.hierarchy.store().write()?.set(&key, &pieces, Condition::Always)?;
                Some(stat.version)
            }
            other => {
                return Err(Error::new(Kind::NotPermitted, "read-only").at(other.shown()));
            }
        };
        if let Some(key) = self.key_of(place)? {
            self.unsynced.changed(key);
        }
        match modified {
            Some(modified) if version.is_some() && !self.is_pending(place)? => {
                let versions = self.set_stored_modified(place, modified)?;
                // If another program stored a value in between, that is not what was written.
                let is_ours = |before| version.is_some_and(|version| version.holds(before));
                Ok(versions.filter(|(before, _)| is_ours(*before)).map(|(_, after)| after))
            }
            _ => Ok(version),
        }
    }

    /// Drops bytes that need not be stored, or no longer.
    pub(super) fn forget_unstored(&self, file: &mut File) {
        file.mode = None;
        file.authors = Authors::default();
        match std::mem::take(&mut file.content) {
            Content::Unstored(unstored) | Content::Detached(unstored) => {
                self.unreserve(unstored.bytes.len());
                self.unreserve(unstored.base_len());
            }
            Content::Stored => {}
        }
    }

    /// Removes a file from the overlay, because it is stored or gone. A newer file of the same name
    /// stays.
    pub(super) fn leave_overlay(&self, place: &Place, inode: &Inode) {
        if let Some(name) = place.name() {
            self.overlay.remove_file(&place.parent(), &name, inode);
        }
    }

    /// Syncs what was written to a file, or its removal, to disk.
    pub(super) fn sync_place(&self, place: &Place) -> Result<()> {
        let Some(key) = self.key_of(place)? else { return Ok(()) };
        if !self.core.hierarchy.store().is_writable() {
            return Ok(()); // A read-only mount has written nothing.
        }
        self.unsynced.sync_key(self.core.hierarchy.store(), key)
    }

    /// Ends one open of a file. Stores what a mapping wrote after the last close. With the last
    /// open, drops bytes that could not be stored, as that close has reported. `end` updates other
    /// counters under the same lock.
    pub(super) fn release_content(
        &self,
        inode: &Arc<Inode>,
        access: Access,
        end: impl FnOnce(&mut File),
    ) {
        let mut file = inode.file().lock();
        end(&mut file);
        file.openers = file.openers.saturating_sub(1);
        file.writers = file.writers.saturating_sub(u32::from(access != Access::Read));
        let refused =
            matches!(&file.content, Content::Unstored(unstored) if unstored.refused.is_some());
        let stores = access != Access::Read && file.writers == 0 && !refused;
        let stored =
            if stores { self.store_locked(inode, &mut file, StoreReason::Closing) } else { Ok(()) };
        if file.openers == 0 {
            file.opened = None;
        }
        let place = inode.place();
        match (&file.content, &place) {
            // It stays until it is due, even if no handle and no kernel inode refers to it.
            (Content::Unstored(_), Some(place @ Place::Ordinary(..))) => {
                let name = place.name().unwrap_or_default();
                let shown = Shown::File(place.clone(), Arc::clone(inode));
                return self.overlay.insert(place.parent(), &name, shown);
            }
            (Content::Stored, _) => return,
            _ if file.openers > 0 => return,
            (Content::Unstored(_) | Content::Detached(_), _) => {}
        }
        if let (Err(error), Some(place)) = (&stored, &place) {
            // No program gets this error: it closed the file before the kernel wrote its mapping,
            // or had another process close it.
            let detail = format!("unstored changes are discarded: {}", error.detail());
            self.core.note("close", &Error::new(error.kind(), detail).at(place.shown()));
        }
        if let Content::Unstored(Unstored { refused: Some(error), .. }) = &file.content
            && error.kind() == Kind::Incomplete
        {
            self.core.note("close", &error.clone().of_kind(Kind::Invalid));
        }
        file.seen = None;
        self.forget_unstored(&mut file);
        if let Some(place) = &place {
            self.leave_overlay(place, inode);
        }
        drop(file);
        self.core.invalidate(inode.number());
    }

    /// Returns the bytes of a file that is about to be unlinked or replaced, for the programs that
    /// have it open; `None` if there are none, or if the bytes are in memory already.
    pub(super) fn bytes_for_openers(&self, file: &File, place: &Place) -> Option<Buffer> {
        if let Place::View(..) = place {
            return None; // Its openers have it as it is.
        }
        let wanted = file.openers > 0 && matches!(file.content, Content::Stored);
        // A file that cannot be read now could not be read before either.
        wanted.then(|| self.stored_bytes(place).unwrap_or_else(|_| Vec::new().into()))
    }

    /// Makes a file without a name private to its openers. Call this after the name is gone, under
    /// the same lock as [`Self::bytes_for_openers`]; otherwise an open in between would see neither
    /// the old bytes nor the new ones.
    pub(super) fn detach(&self, file: &mut File, kept: Option<Buffer>) {
        if file.openers == 0 {
            return self.forget_unstored(file);
        }
        if let Some(bytes) = kept {
            // The limit does not apply: removing a file must always work.
            let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            self.unstored_len.fetch_add(len, Ordering::Relaxed);
            file.content = Content::Detached(Unstored::of(bytes));
        } else if let Content::Unstored(unstored) = std::mem::take(&mut file.content) {
            file.content = Content::Detached(unstored);
        }
    }
}

/// Returns by how many bytes a loaded file grows if `data` is written at `offset`.
fn grown(file: &File, offset: u64, data: &[u8]) -> usize {
    let (Content::Unstored(unstored) | Content::Detached(unstored)) = &file.content else {
        return 0;
    };
    let end = usize::try_from(offset).unwrap_or(usize::MAX).saturating_add(data.len());
    end.saturating_sub(unstored.bytes.len())
}

fn unstored_range(content: &Content, offset: u64, len: usize) -> Option<Bytes> {
    let bytes = match content {
        Content::Unstored(unstored) | Content::Detached(unstored) => &unstored.bytes,
        Content::Stored => return None,
    };
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
    let end = start.saturating_add(len).min(bytes.len());
    // Copy the bytes: sharing them would make the next write copy the whole file.
    bytes.get(start..end).map(Bytes::copy_from_slice)
}
