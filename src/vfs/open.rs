//! Open files, from `open` to the last `close`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::access::{Access, Pages, Prepared};
use super::authors::HandleUse;
use super::file::OpenedAs;
use super::inode::Inode;
use super::open_view::OpenView;
use super::place::Place;
use super::views::as_gone;
use super::{ATTEMPTS, Attr, Vfs, commit, file, overlay};
use crate::backing::Backing;
use crate::error::{At, Error, Kind, Result};
use crate::metadata::NodePath;
use crate::view::Format;

/// An open file.
#[derive(Debug, Clone)]
pub struct Opened {
    /// The handle number.
    pub handle: u64,
    /// What the kernel may do with its pages of the file.
    pub pages: Pages,
    /// The backing file, if the kernel uses passthrough.
    pub backing: Option<Arc<Backing>>,
}

#[derive(Debug, Clone)]
pub(super) struct Handle {
    inode: Arc<Inode>,
    access: Access,
    source: Source,
}

/// Where a handle reads from.
#[derive(Debug, Clone)]
enum Source {
    /// The current bytes of its file, with the drop epoch if this open made the kernel drop its
    /// pages.
    File(Option<u64>),
    /// Bytes that were generated at the open.
    Made(Bytes),
    /// A view.
    View(Arc<OpenView>),
    /// A backing file that the kernel reads. All opens of the inode use passthrough while this one
    /// lasts.
    Backing(Arc<Backing>),
}

/// The text of a metadata file as bytes, shared by all opens.
struct SharedText(Arc<str>);

impl AsRef<[u8]> for SharedText {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl Handle {
    fn shown(&self) -> String {
        self.inode.place().map_or_else(String::new, |place| place.shown())
    }

    /// Returns the arrays with elements in this file.
    fn arrays(&self) -> Vec<NodePath> {
        match (self.view(), self.inode.place()) {
            (Some(open), _) => open.view.elements().map(|part| part.path.clone()).collect(),
            (None, Some(Place::Chunk(path, _))) => vec![path],
            _ => Vec::new(),
        }
    }

    fn view(&self) -> Option<&Arc<OpenView>> {
        match &self.source {
            Source::View(view) => Some(view),
            _ => None,
        }
    }
}

impl Vfs {
    /// Opens a file. All writers share its bytes.
    pub fn open(&self, number: u64, access: Access) -> Result<Opened> {
        let known = self.inode(number)?;
        let mut attempts = 1;
        loop {
            if Self::is_orphaned(&known) && !Self::uses_passthrough(&known) {
                return Err(Error::not_found());
            }
            let place = known.place();
            let Some(opened) = self.open_unmoved(&known, access, attempts >= ATTEMPTS) else {
                attempts += 1;
                continue;
            };
            match opened {
                // Another file just took the name. For passthrough, only the kernel can look up the
                // new inode.
                Err(error)
                    if error.kind() == Kind::NotFound
                        && (known.is_replaced() || known.place() != place)
                        && !Self::uses_passthrough(&known)
                        && !Self::is_orphaned(&known)
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
    ) -> Option<Result<Opened>> {
        if access != Access::Read || is_last {
            let _shared = self.core.tree_lock.read();
            return Some(self.open_inode(known, access));
        }
        let before = self.core.hierarchy.moves();
        let opened = self.open_inode(known, access);
        // A thread that moves a node now has done so when this one gets the lock.
        let shared = self.core.tree_lock.read();
        let is_unmoved = self.core.hierarchy.moves() == before;
        drop(shared);
        if is_unmoved {
            return Some(opened);
        }
        if let Ok(opened) = opened {
            self.end(opened.handle);
        }
        None
    }

    /// Creates the file `name` in `parent` and opens it, or opens the existing one.
    pub fn create(
        &self,
        parent: u64,
        name: &str,
        mode: u16,
        access: Access,
        exclusive: bool,
    ) -> Result<(Attr, Opened)> {
        let create = || self.create_once(parent, name, mode, (access, exclusive));
        match create() {
            // The name may have led to an inode with passthrough; it has another inode now.
            Err(error) if error.kind() == Kind::NotFound => create(),
            created => created,
        }
    }

    fn create_once(
        &self,
        parent: u64,
        name: &str,
        mode: u16,
        (access, is_exclusive): (Access, bool),
    ) -> Result<(Attr, Opened)> {
        let _shared = self.core.tree_lock.read();
        let parent = self.directory(parent)?;
        if let Some(place) = self.resolve(&parent, name)? {
            if is_exclusive {
                return Err(Error::new(Kind::Exists, "the file exists"));
            }
            if place.is_dir() {
                return Err(Error::new(Kind::IsDirectory, "is a directory"));
            }
            return self.open_and_look_up(&self.inode_for_name(&place), access);
        }
        self.core.hierarchy.store().write()?;
        let place = self.place_for_new(&parent, name)?;
        self.touch(&place);
        let inode = self.inodes.at(&place);
        let shown = overlay::Shown::File(place.clone(), Arc::clone(&inode));
        self.overlay.insert(place.parent(), &place.name().unwrap_or_default(), shown);
        inode.file().lock().mode = Some(mode);
        let created = self.open_and_look_up(&inode, Access::Truncate);
        if created.is_err() {
            self.leave_overlay(&place, &inode);
            self.inodes.release(inode);
        }
        created
    }

    fn open_and_look_up(&self, inode: &Arc<Inode>, access: Access) -> Result<(Attr, Opened)> {
        let opened = self.open_inode(inode, access)?;
        match self.attr(inode) {
            Ok(attr) => {
                self.inodes.looked_up(inode);
                Ok((attr, opened))
            }
            Err(error) => {
                self.end(opened.handle);
                Err(error)
            }
        }
    }

    fn open_inode(&self, known: &Arc<Inode>, access: Access) -> Result<Opened> {
        if access != Access::Read {
            self.core.hierarchy.store().write()?;
        }
        let inode = loop {
            if let Some(opened) = self.open_unnamed(known, access)? {
                return Ok(opened);
            }
            let inode = self.count_opener(known, access)?;
            if Arc::ptr_eq(&inode, known) || !Self::uses_passthrough(known) {
                break inode;
            }
            // The inode just lost its name to a new one.
            self.abort_open(&inode, access);
        };
        let place = inode.place();
        let opened = match &place {
            Some(Place::Report(report)) if access == Access::Read => {
                self.report(*report).map(|made| (Some(made), None))
            }
            Some(Place::ViewsOf(path, _)) if access == Access::Read => {
                self.views.text(path).map(|text| (Some(Bytes::from(text)), None))
            }
            Some(Place::View(path, format)) => {
                self.open_view(&inode, path, format, access).map(|view| (None, Some(view)))
            }
            _ => Ok((None, None)),
        };
        let (made, opened_view) = opened.inspect_err(|_| self.abort_open(&inode, access))?;
        let (view, view_pages) = opened_view.unzip();
        let prepared = match (&made, &place, view.as_ref().zip(view_pages)) {
            (_, _, Some((view, pages))) => {
                let passed = self.backing_for_view(&inode, view, access);
                passed.map(|backing| Prepared { pages, backing, drops: None })
            }
            (Some(_), _, None) => {
                inode.file().lock().settle();
                Ok(Pages::None.into())
            }
            (None, Some(place), None) => self.prepare(&inode, place, access).at(place.shown()),
            // The file just lost its name.
            (None, None, None) => self.prepare_unnamed(&inode, access).map(Prepared::from),
        };
        let made = made.or_else(|| self.shown_to_reader(&inode, place.as_ref()?, access));
        let Prepared { pages, backing, drops } = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                self.abort_open(&inode, access);
                return Err(error);
            }
        };
        let source = match (&backing, made, view) {
            (Some(backing), ..) => Source::Backing(Arc::clone(backing)),
            (None, Some(made), _) => Source::Made(made),
            (None, None, Some(view)) => Source::View(view),
            (None, None, None) => Source::File(drops.filter(|_| Arc::ptr_eq(&inode, known))),
        };
        // For another inode than the kernel asked for, and for a generated file, the kernel's
        // length and pages may be wrong.
        let is_known = !matches!(source, Source::Made(_)) && Arc::ptr_eq(&inode, known);
        let pages = if is_known { pages } else { Pages::None };
        let handle = self.new_handle(Handle { inode, access, source });
        Ok(Opened { handle, pages, backing: backing.filter(|_| is_known) })
    }

    /// Opens a view. All opens of its inode show the same one.
    fn open_view(
        &self,
        inode: &Arc<Inode>,
        path: &NodePath,
        format: &'static Format,
        access: Access,
    ) -> Result<(Arc<OpenView>, Pages)> {
        let mut kept = self.views.kept_view(path, format).map_err(as_gone)?;
        let made = OpenedAs::View(Arc::clone(&kept.view));
        if let OpenedAs::View(shared) = self.share(inode, made)? {
            kept.view = shared;
        }
        Ok(self.views.open(path, format, kept, access))
    }

    /// Prepares a file that has lost its name and whose bytes are kept for its openers.
    pub(super) fn prepare_unnamed(&self, inode: &Inode, access: Access) -> Result<Pages> {
        let file = inode.file().lock();
        if file.passthrough.openers > 0 || matches!(file.content, file::Content::Stored) {
            return Err(Error::not_found()); // What it has is another file's now.
        }
        drop(file);
        if access == Access::Truncate {
            self.truncate_content(inode, 0)?;
        }
        inode.file().lock().settle();
        // The kernel's pages may be older than the bytes that were kept.
        Ok(Pages::Drop)
    }

    /// Undoes the counting of an open that failed.
    fn abort_open(&self, inode: &Arc<Inode>, access: Access) {
        self.release_content(inode, access, file::File::settle);
    }

    fn new_handle(&self, handle: Handle) -> u64 {
        let number = self.next_handle.fetch_add(1, Ordering::Relaxed);
        if handle.access != Access::Read {
            self.writing_handles.fetch_add(1, Ordering::Relaxed);
        }
        self.handles.lock().insert(number, handle);
        number
    }

    /// Opens an inode with passthrough that has lost its name: it can only be opened with the same
    /// backing file. `None` if it is no such inode.
    fn open_unnamed(&self, known: &Arc<Inode>, access: Access) -> Result<Option<Opened>> {
        let Some(file) = known.known_file() else { return Ok(None) };
        let mut file = file.lock();
        if file.passthrough.openers == 0 || known.place().is_some() {
            return Ok(None);
        }
        if access != Access::Read {
            return Err(Error::not_found());
        }
        let backing = self.backing_for_unnamed(&mut file).ok_or_else(Error::not_found)?;
        file.openers += 1;
        drop(file);
        let source = Source::Backing(Arc::clone(&backing));
        let handle = self.new_handle(Handle { inode: Arc::clone(known), access, source });
        Ok(Some(Opened { handle, pages: Pages::Drop, backing: Some(backing) }))
    }

    fn prepare(&self, inode: &Arc<Inode>, place: &Place, access: Access) -> Result<Prepared> {
        if access != Access::Read {
            commit::check_writable(Some(place))?;
            self.core.options.check_names_change()?;
        }
        self.open_content(inode, place, access)
    }

    /// Returns the bytes that a reader keeps while it has the file open. For a metadata file, these
    /// are its current text, because its length may change at any time. For a file whose unstored
    /// bytes were refused and will be dropped, these are the stored bytes: the kernel reports the
    /// last close late and in no order.
    fn shown_to_reader(&self, inode: &Inode, place: &Place, access: Access) -> Option<Bytes> {
        if access != Access::Read {
            return None;
        }
        let file = inode.file().lock();
        match (&file.content, place) {
            (
                file::Content::Stored,
                Place::Document(_) | Place::Attributes(_) | Place::Copies(_),
            ) => file.shown.clone().map(|text| Bytes::from_owner(SharedText(text))),
            (file::Content::Unstored(unstored), _) if unstored.is_unfit() => {
                self.stored_bytes(place).ok().map(Bytes::from)
            }
            _ => None,
        }
    }

    /// Counts an open before it is prepared, so that a concurrent last close does not drop the
    /// bytes. Returns the inode to open: the one that replaced `known`, if any.
    fn count_opener(&self, known: &Arc<Inode>, access: Access) -> Result<Arc<Inode>> {
        loop {
            let inode = self.current(known);
            let mut file = inode.file().lock();
            if inode.place().is_some() || matches!(file.content, file::Content::Detached(_)) {
                file.openers += 1;
                file.opening += 1;
                file.writers += u32::from(access != Access::Read);
                drop(file);
                return Ok(inode);
            }
            if inode.replaced_at().is_none() && inode.successor().is_none() {
                return Err(Error::not_found());
            }
        }
    }

    /// Returns the inode itself, or the one that has replaced it.
    pub(super) fn current(&self, known: &Arc<Inode>) -> Arc<Inode> {
        let mut inode = Arc::clone(known);
        while inode.place().is_none()
            && !matches!(inode.file().lock().content, file::Content::Detached(_))
        {
            let next = inode
                .successor()
                .or_else(|| inode.replaced_at().map(|place| self.inodes.at(&place)));
            let Some(next) = next else { break };
            inode = next;
        }
        inode
    }

    /// Reads up to `len` bytes at `offset`, fewer only at the end of the file.
    pub fn read(&self, handle: u64, offset: u64, len: usize) -> Result<Bytes> {
        let handle = self.handle(handle)?;
        let read = match &handle.source {
            Source::File(drops) => {
                if let Some(opener) = *drops {
                    handle.inode.file().lock().note_dropped(opener);
                }
                self.read_content(&handle.inode, offset, len)
            }
            Source::Made(made) => Ok(slice(made, offset, len)),
            Source::View(view) => {
                self.views.note_pages(view);
                self.reader.read_view(view, offset, len).at(handle.shown())
            }
            Source::Backing(backing) => Ok(backing.read(offset, len)?),
        };
        read.inspect(|bytes| add_len(&self.read_len, bytes))
    }

    /// Like [`Self::read`], but only if nothing must be read from the store, decoded or waited for.
    pub fn try_read(&self, handle: u64, offset: u64, len: usize) -> Option<Bytes> {
        let handle = self.handle(handle).ok()?;
        let read = match &handle.source {
            Source::File(drops) => {
                if let Some(opener) = *drops {
                    handle.inode.file().try_lock()?.note_dropped(opener);
                }
                self.try_read_content(&handle.inode, offset, len)
            }
            Source::Made(made) => Some(slice(made, offset, len)),
            Source::View(view) => {
                self.views.note_pages(view);
                self.reader.try_read_view(view, offset, len)
            }
            Source::Backing(_) => None,
        };
        read.inspect(|bytes| add_len(&self.read_len, bytes))
    }

    /// Writes all of `data` at `offset`, or nothing.
    pub fn write(&self, by: impl Into<HandleUse>, offset: u64, data: &[u8]) -> Result<()> {
        let HandleUse { handle, thread } = by.into();
        let handle = self.handle(handle)?;
        let written = match handle.view() {
            Some(view) => {
                let written = self.write_view(view, (offset, data), thread).at(handle.shown());
                written.map(|is_filled| {
                    if is_filled {
                        // The write may have changed more bytes than the kernel wrote.
                        self.core.invalidate(handle.inode.number());
                    }
                })
            }
            None => self.write_content(&handle.inode, (offset, data), thread),
        };
        written.inspect(|()| add_len(&self.written_len, data))
    }

    /// Like [`Self::write`], but returns `false` if anything must be read, decoded or waited for.
    pub fn try_write(&self, by: impl Into<HandleUse>, offset: u64, data: &[u8]) -> Result<bool> {
        let HandleUse { handle, thread } = by.into();
        let handle = self.handle(handle)?;
        let is_written = match handle.view() {
            Some(view) => self.try_write_view(view, (offset, data), thread).at(handle.shown())?,
            None => self.try_write_content(&handle.inode, (offset, data), thread)?,
        };
        if is_written {
            add_len(&self.written_len, data);
        }
        Ok(is_written)
    }

    /// Stores the unstored bytes of a file at the close of a descriptor. If the process has written
    /// none of them (a child that closes inherited descriptors), it neither stores an incomplete
    /// file nor gets an error for it.
    pub fn flush(&self, by: impl Into<HandleUse>) -> Result<()> {
        let HandleUse { handle, thread } = by.into();
        let handle = self.handle(handle)?;
        if handle.access == Access::Read {
            return Ok(());
        }
        let is_of_others = match handle.view() {
            Some(view) => view.is_written_by_others(thread),
            None => handle.inode.file().lock().is_written_by_others(thread),
        };
        if is_of_others {
            return Ok(());
        }
        let stored = match handle.view() {
            Some(view) => self.flush_view(view).at(handle.shown()),
            None => self.store_content_and(&handle.inode, commit::StoreReason::Closing, |place| {
                self.check_shard_of(place)
            }),
        };
        self.drop_pages_of_others(&handle);
        stored
    }

    /// Syncs a file to disk.
    pub fn fsync(&self, handle: u64) -> Result<()> {
        let handle = self.handle(handle)?;
        let stored = match handle.view() {
            Some(view) => self
                .store_view(&view.view)
                .and_then(|()| self.unsynced.sync_all(self.core.hierarchy.store())),
            None => self.store_content_and(&handle.inode, commit::StoreReason::Asked, |place| {
                self.store_shard_of(place)?;
                self.sync_place(place)
            }),
        };
        self.drop_pages_of_others(&handle);
        stored
    }

    /// Makes the kernel drop its pages of all other files that are open for writing and have
    /// elements of the same arrays. A mapping that changes one of these pages later reads it again
    /// first, so that it does not undo what was just stored beside its own bytes.
    fn drop_pages_of_others(&self, written: &Handle) {
        if self.writing_handles.load(Ordering::Relaxed) < 2 || written.access == Access::Read {
            return;
        }
        let arrays = written.arrays();
        let is_other = |handle: &&Handle| {
            handle.access != Access::Read
                // Two different chunk files have no elements in common.
                && (handle.view().is_some() || written.view().is_some())
                && handle.inode.number() != written.inode.number()
                && handle.arrays().iter().any(|path| arrays.contains(path))
        };
        let others: Vec<Arc<Inode>> = {
            let handles = self.handles.lock();
            handles.values().filter(is_other).map(|handle| Arc::clone(&handle.inode)).collect()
        };
        for inode in &others {
            self.core.invalidate(inode.number());
        }
    }

    /// Closes a handle. The last close of a file drops incomplete bytes.
    pub fn release(&self, handle: u64) {
        let Ok(open) = self.handle(handle) else { return };
        let is_writer = open.access != Access::Read;
        if let Some(view) = open.view() {
            view.reads.end();
            if is_writer {
                // Store what a mapping wrote after the last close.
                self.store_view(&view.view).unwrap_or_else(|error| self.core.note("close", &error));
            }
        }
        let _tree = is_writer.then(|| self.lock_tree_to_store(&open.inode)).flatten();
        drop(open);
        self.end(handle);
    }

    pub(super) fn end(&self, handle: u64) {
        // Remove the handle only after its bytes are where `sync` finds them without it.
        let Ok(Handle { inode, access, source }) = self.handle(handle) else { return };
        self.release_content(&inode, access, |file| {
            if let Source::Backing(_) = source {
                file.passthrough.end();
            }
        });
        let ended = self.handles.lock().remove(&handle);
        if ended.is_some_and(|ended| ended.access != Access::Read) {
            self.writing_handles.fetch_sub(1, Ordering::Relaxed);
        }
        self.inodes.release(inode);
    }

    pub(super) fn open_files(&self) -> Vec<Arc<Inode>> {
        let handles = self.handles.lock();
        handles
            .values()
            .filter(|h| h.access != Access::Read)
            .map(|h| Arc::clone(&h.inode))
            .collect()
    }

    /// Returns the open views of an inode.
    pub(super) fn open_views(&self, inode: &Inode) -> Vec<Arc<OpenView>> {
        let handles = self.handles.lock();
        let of_inode = handles.values().filter(|handle| handle.inode.number() == inode.number());
        of_inode.filter_map(Handle::view).cloned().collect()
    }

    pub(super) fn all_open_views(&self) -> Vec<Arc<OpenView>> {
        self.handles.lock().values().filter_map(Handle::view).cloned().collect()
    }

    fn handle(&self, handle: u64) -> Result<Handle> {
        let found = self.handles.lock().get(&handle).cloned();
        found.ok_or_else(|| Error::new(Kind::Os(libc::EBADF), "unknown file handle"))
    }
}

fn add_len(counter: &AtomicU64, bytes: &[u8]) {
    counter.fetch_add(u64::try_from(bytes.len()).unwrap_or_default(), Ordering::Relaxed);
}

/// Returns up to `len` bytes at `offset`.
pub(super) fn slice(bytes: &Bytes, offset: u64, len: usize) -> Bytes {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
    let end = start.saturating_add(len).min(bytes.len());
    bytes.slice(start..end)
}
