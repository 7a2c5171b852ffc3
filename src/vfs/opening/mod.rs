//! Opens and closes files.

pub mod handles;
mod kernel_writes;
pub mod passthrough;
pub mod reports;
pub mod unstored;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use bytes::Bytes;

use crate::array::Array;
use crate::error::{Error, Kind, Result, WithSubject};
use crate::hierarchy::{Content as NodeContent, TextPurpose};
use crate::metadata::NodePath;
use crate::store::{FileUse, Key, Version};
use crate::vfs::access::{Access, OpenedFile, Pages, PreparedFile};
use crate::vfs::contents::Contents;
use crate::vfs::core::{Core, Outdated};
use crate::vfs::inodes::file::{BytesAt, InodeFile, OpenedAs};
use crate::vfs::inodes::inode::Inode;
use crate::vfs::inodes::place::{Place, check_writable};
use crate::vfs::kernel::backing_files::BackingFiles;
use crate::vfs::names::Names;
use crate::vfs::names::listing::Listings;
use crate::vfs::names::views::as_gone;
use crate::vfs::reader::Reader;
use crate::vfs::reader::open_view::OpenView;
use crate::view::Format;
use handles::{Handle, HandleSource, Handles};
use passthrough::Passthrough;
use reports::Reports;

/// The text of a metadata file as bytes, shared by all opens.
struct SharedText(Arc<str>);

impl AsRef<[u8]> for SharedText {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Opens and closes files.
pub(in crate::vfs) struct Opener {
    core: Arc<Core>,
    names: Arc<Names>,
    reader: Arc<Reader>,
    contents: Contents,
    pub handles: Arc<Handles>,
    pub passthrough: Passthrough,
    pub reports: Reports,
}

impl Opener {
    /// Opens the files of `contents`.
    pub fn new(
        contents: &Contents,
        listings: &Arc<Listings>,
        reader: &Arc<Reader>,
        backing_files: Arc<BackingFiles>,
    ) -> Self {
        let (core, names) = (Arc::clone(&contents.core), Arc::clone(&contents.names));
        let handles = Arc::new(Handles::default());
        let reports = Reports {
            core: Arc::clone(&core),
            names: Arc::clone(&names),
            listings: Arc::clone(listings),
            reader: Arc::clone(reader),
            backing_files: Arc::clone(&backing_files),
            handles: Arc::clone(&handles),
            read_len: AtomicU64::new(0),
            written_len: AtomicU64::new(0),
        };
        let passthrough = Passthrough {
            core: Arc::clone(&core),
            names: Arc::clone(&names),
            reader: Arc::clone(reader),
            backing_files,
        };
        let (reader, contents) = (Arc::clone(reader), contents.clone());
        Self { core, names, reader, contents, handles, passthrough, reports }
    }

    pub fn open_inode(&self, known: &Arc<Inode>, access: Access) -> Result<OpenedFile> {
        self.handles.check_count(known)?;
        if access != Access::Read {
            self.core.hierarchy.store().write()?;
        }
        let inode = loop {
            if let Some(opened) = self.open_unnamed(known, access)? {
                return Ok(opened);
            }
            let inode = self.count_opener(known, access)?;
            if Arc::ptr_eq(&inode, known) || !Passthrough::uses_passthrough(known) {
                break inode;
            }
            // The inode just lost its name to a new one.
            self.abort_open(&inode, access);
        };
        let place = inode.place();
        self.look_again(&inode, place.as_ref(), access)?;
        let opened = match &place {
            Some(Place::Report(report)) if access == Access::Read => {
                self.reports.report(*report).map(|made| (Some(made), None))
            }
            Some(Place::ViewsOf(path, _)) if access == Access::Read => {
                self.names.views.text(path).map(|text| (Some(Bytes::from(text)), None))
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
                let passed = self.passthrough.backing_for_view(&inode, view, access);
                passed.map(|backing| PreparedFile { pages, backing, drops: None })
            }
            (Some(_), _, None) => {
                inode.file().lock().settle();
                Ok(Pages::None.into())
            }
            (None, Some(place), None) => self.prepare(&inode, place, access).at(place.shown()),
            // The file just lost its name.
            (None, None, None) => self.prepare_unnamed(&inode, access).map(PreparedFile::from),
        };
        let made = made.or_else(|| self.shown_to_reader(&inode, place.as_ref()?, access));
        let PreparedFile { pages, backing, drops } = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                self.abort_open(&inode, access);
                return Err(error);
            }
        };
        let source = match (&backing, made, view) {
            (Some(backing), ..) => HandleSource::Backing(Arc::clone(backing)),
            (None, Some(made), _) => HandleSource::Made(made),
            (None, None, Some(view)) => HandleSource::View(view),
            (None, None, None) => HandleSource::File(drops.filter(|_| Arc::ptr_eq(&inode, known))),
        };
        // For another inode than the kernel asked for, and for a generated file, the kernel's
        // length and pages may be wrong.
        let is_known = !matches!(source, HandleSource::Made(_)) && Arc::ptr_eq(&inode, known);
        let pages = if is_known { pages } else { Pages::None };
        let handle = self.handles.insert(Handle { inode, access, source, reader: Arc::default() });
        Ok(OpenedFile { handle, pages, backing: backing.filter(|_| is_known) })
    }

    /// Forgets what is known of a file that a program opens to change a part of it: it must not put
    /// old bytes beside its own, nor take an old length for the end. A program that
    /// reads a stored metadata file gets that of the node as it is known then.
    fn look_again(&self, inode: &Arc<Inode>, place: Option<&Place>, access: Access) -> Result<()> {
        let is_changed = access == Access::Write && self.core.is_remote();
        let is_stored =
            access != Access::Truncate && matches!(place, Some(Place::StoredDocument(..)));
        let is_here = || !matches!(inode.file().lock().content, BytesAt::Stored);
        let Some(place) = place.filter(|_| (is_changed || is_stored) && !is_here()) else {
            return Ok(());
        };
        let looked = match place {
            Place::View(path, _) => self.core.hierarchy.changes().look_again(path),
            Place::Chunk(..) | Place::Ordinary(..) | Place::StoredDocument(..) => {
                self.names.look_again(place, Instant::now())
            }
            _ => Ok(()),
        };
        if matches!(place, Place::Ordinary(..)) {
            self.core.outdate(Outdated::AttributesAtOpen(inode.number()));
        }
        looked.at(place.shown()).inspect_err(|_| self.abort_open(inode, access))
    }

    /// Opens a view. All opens of its inode show the same one.
    fn open_view(
        &self,
        inode: &Arc<Inode>,
        path: &NodePath,
        format: &'static Format,
        access: Access,
    ) -> Result<(Arc<OpenView>, Pages)> {
        let mut kept = self.names.views.kept_view(path, format).map_err(as_gone)?;
        let made = OpenedAs::View(Arc::clone(&kept.view));
        if let OpenedAs::View(shared) = self.names.share(inode, made)? {
            kept.view = shared;
        }
        Ok(self.names.views.open(inode.number(), (path, format), kept, access))
    }

    /// Prepares a file that has lost its name and whose bytes are kept for its openers.
    pub fn prepare_unnamed(&self, inode: &Inode, access: Access) -> Result<Pages> {
        let file = inode.file().lock();
        if file.passthrough.openers > 0 || matches!(file.content, BytesAt::Stored) {
            return Err(Error::not_found()); // What it has is another file's now.
        }
        let is_file = matches!(file.content, BytesAt::Open(_));
        drop(file);
        if is_file && access == Access::Write {
            let mut file = inode.file().lock();
            self.contents.files.open_stored(inode, &mut file, FileUse::Write)?;
        }
        if access == Access::Truncate {
            self.contents.files.truncate_content(inode, 0)?;
        }
        inode.file().lock().settle();
        // The kernel's pages may be older than the bytes that were kept.
        Ok(Pages::Drop)
    }

    /// Undoes the counting of an open that failed.
    fn abort_open(&self, inode: &Arc<Inode>, access: Access) {
        self.contents.files.release_content(inode, access, InodeFile::settle);
    }

    /// Opens an inode with passthrough that has lost its name: it can only be opened with the same
    /// backing file. `None` if it is no such inode.
    fn open_unnamed(&self, known: &Arc<Inode>, access: Access) -> Result<Option<OpenedFile>> {
        let Some(file) = known.known_file() else { return Ok(None) };
        let mut file = file.lock();
        if file.passthrough.openers == 0 || known.place().is_some() {
            return Ok(None);
        }
        if access != Access::Read {
            return Err(Error::not_found());
        }
        let backing =
            self.passthrough.backing_for_unnamed(&mut file).ok_or_else(Error::not_found)?;
        file.openers += 1;
        drop(file);
        let source = HandleSource::Backing(Arc::clone(&backing));
        let handle = self.handles.insert(Handle {
            inode: Arc::clone(known),
            access,
            source,
            reader: Arc::default(),
        });
        Ok(Some(OpenedFile { handle, pages: Pages::Drop, backing: Some(backing) }))
    }

    fn prepare(&self, inode: &Arc<Inode>, place: &Place, access: Access) -> Result<PreparedFile> {
        if access != Access::Read {
            check_writable(Some(place))?;
            self.core.options.check_names_change()?;
            self.names.check_is_ordinary(place)?;
        }
        if self.contents.files.is_kept_as_file(Some(place))
            && let Some(opened) = self.open_file(inode, place, access)?
        {
            return Ok(opened);
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
            (BytesAt::Stored, Place::Document(_) | Place::Attributes(_) | Place::Copies(_)) => {
                file.shown.clone().map(|text| Bytes::from_owner(SharedText(text)))
            }
            (BytesAt::Unstored(unstored), _) if unstored.is_unfit() => {
                self.contents.stored.bytes_at(place).ok().map(Bytes::from)
            }
            _ => None,
        }
    }

    /// Counts an open before it is prepared, so that a concurrent last close does not drop the
    /// bytes. Returns the inode to open: the one that replaced `known`, if any.
    fn count_opener(&self, known: &Arc<Inode>, access: Access) -> Result<Arc<Inode>> {
        loop {
            let inode = self.names.current(known);
            let mut file = inode.file().lock();
            let is_kept = matches!(file.content, BytesAt::Detached(_) | BytesAt::Open(_));
            if inode.place().is_some() || is_kept {
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

    pub fn end(&self, handle: u64) {
        // Remove the handle only after its bytes are where `sync` finds them without it.
        let Ok(Handle { inode, access, source, .. }) = self.handles.get(handle) else { return };
        self.contents.files.release_content(&inode, access, |file| {
            if let HandleSource::Backing(_) = source {
                file.passthrough.end(access);
            }
        });
        self.handles.remove(handle);
        self.names.inodes.release(inode);
    }

    /// Has zarrfs receive what a handle reads and writes, because the kernel has refused to use its
    /// new file.
    pub fn refuse_passthrough(&self, handle: u64) -> Result<()> {
        let Handle { inode, access, source, .. } = self.handles.get(handle)?;
        let HandleSource::Backing(backing) = source else { return Ok(()) };
        if backing.new_file().is_none() {
            return Ok(());
        }
        let mut file = inode.file().lock();
        file.passthrough.end(access);
        self.handles.read_file(handle);
        if file.passthrough.openers == 0 {
            self.contents.files.hold_in_memory(&mut file)?;
        }
        Ok(())
    }

    /// Returns the array that an open file is a chunk of; `None` if it is another file.
    fn array_of_open(
        &self,
        inode: &Arc<Inode>,
        place: &Place,
        access: Access,
    ) -> Result<Option<Arc<Array>>> {
        let Place::Chunk(path, coords) = place else { return Ok(None) };
        let array = self.core.shown_array_at(path, coords.indices())?;
        // One that waits for another metadata file lies outside.
        let is_inside = array.grid().contains(coords);
        if is_inside {
            array.check_readable(coords)?;
        }
        self.names.share(inode, OpenedAs::Chunk(Arc::clone(&array)))?;
        if is_inside && access == Access::Read {
            self.reader.before_chunk(path, &array, coords);
        }
        Ok(Some(array))
    }

    /// Prepares the bytes of a file for an open, and decides what the kernel may do with its pages.
    pub fn open_content(
        &self,
        inode: &Arc<Inode>,
        place: &Place,
        access: Access,
    ) -> Result<PreparedFile> {
        let array = self.array_of_open(inode, place, access)?;
        let mut file = inode.file().lock();
        if inode.place().is_none() {
            // The file has lost its name meanwhile.
            drop(file);
            return self.prepare_unnamed(inode, access).map(PreparedFile::from);
        }
        if let Some(backing) = file.content.backing().map(Arc::clone) {
            if access == Access::Truncate {
                self.contents.files.truncate_locked(inode, &mut file, 0)?;
            }
            return Ok(self.passthrough.share_new_file(&mut file, access, backing).into());
        }
        if file.passthrough.openers > 0 && access != Access::Read {
            return Err(self.passthrough.detach_from_name(inode, &mut file));
        }
        // This open may make the kernel drop pages that another program is just writing.
        file.is_shared = file.openers > 1;
        if access == Access::Truncate {
            drop(file);
            return self.open_truncated(inode, place);
        }
        if let BytesAt::Unstored(unstored) = &file.content
            && unstored.changed
        {
            if file.passthrough.openers > 0 {
                return Err(self.passthrough.detach_from_name(inode, &mut file));
            }
            // The kernel may have old pages of parts that were stored since and not written.
            file.settle();
            return Ok(Pages::Drop.into());
        }
        let version = self.version_for_opener(place, array.as_ref(), &mut file)?;
        if let (Access::Read, Place::Chunk(path, coords)) = (access, place)
            && let (Some(array), Some(version)) = (&array, version)
            && inode.place().as_ref() == Some(place)
        {
            let backing =
                self.passthrough.backing_for_chunk(&mut file, path, (array, coords), version);
            self.reader.note_passthrough(path, backing.is_some());
            if let Some(backing) = backing {
                return Ok(backing.into());
            }
        }
        if file.passthrough.openers > 0 {
            return Err(self.passthrough.detach_from_name(inode, &mut file));
        }
        let drops = file.open_pages(version);
        file.passthrough.has_pages |= access == Access::Read;
        file.settle();
        let pages = if drops.is_some() { Pages::Drop } else { Pages::Keep };
        Ok(PreparedFile { pages, backing: None, drops })
    }

    /// Opens the file of the store that an ordinary file is; `None` if its bytes are not stored.
    fn open_file(
        &self,
        inode: &Arc<Inode>,
        place: &Place,
        access: Access,
    ) -> Result<Option<PreparedFile>> {
        let purpose = if access == Access::Read { FileUse::Read } else { FileUse::Write };
        let mut file = inode.file().lock();
        if matches!(file.content, BytesAt::Stored | BytesAt::Open(_))
            && let Some(backing) = Passthrough::kernel_file(&file)
            && let Some(new) = backing.new_file()
        {
            // The kernel reads and writes by itself for all handles of an inode, or for none.
            if Some(new.open_file()?.stat()?.id) != self.names.ordinary.id(place)? {
                return Err(self.passthrough.detach_from_name(inode, &mut file));
            }
            if access == Access::Truncate {
                new.set_len(0)?;
                self.contents.files.note_change(place)?;
            }
            return Ok(Some(self.passthrough.share_new_file(&mut file, access, backing).into()));
        }
        let was_open = file.content.open_file().is_some();
        let Some(open) = self.contents.files.open_stored(inode, &mut file, purpose)? else {
            return Ok(None);
        };
        let id = open.stat()?.id;
        drop(file);
        if !inode.is_at(place) {
            return Err(Error::not_found()); // It was opened by another name, and is opened again.
        }
        // Another program may have given the name to another file since this one was opened.
        let now = if was_open { self.names.ordinary.id(place)?.unwrap_or(id) } else { id };
        self.names.share(inode, OpenedAs::Ordinary(now))?;
        let mut file = inode.file().lock();
        if access == Access::Truncate {
            open.set_len(0)?;
            self.contents.files.note_change(place)?;
        }
        let key = self.names.ordinary.path(place)?.map(|path| Key::parse(&path)).transpose()?;
        let stat = key.map(|key| self.core.hierarchy.store().stat(&key)).transpose()?.flatten();
        // Bytes that another program has mapped may change without a new version.
        let version = stat.map(|stat| stat.version).filter(|_| file.openers <= 1);
        let drops = file.open_pages(version);
        file.settle();
        let pages = if drops.is_some() { Pages::Drop } else { Pages::Keep };
        Ok(Some(PreparedFile { pages, backing: None, drops }))
    }

    /// Truncates a file for an open, and decides who receives what is written.
    fn open_truncated(&self, inode: &Inode, place: &Place) -> Result<PreparedFile> {
        self.contents.files.truncate_content(inode, 0)?;
        let mut file = inode.file().lock();
        if let Some(backing) = file.content.backing().map(Arc::clone) {
            // Another program has truncated it at the same time.
            return Ok(self
                .passthrough
                .share_new_file(&mut file, Access::Truncate, backing)
                .into());
        }
        if let Some(backing) = self.passthrough.backing_for_writer(&mut file, place) {
            return Ok(backing.into());
        }
        file.settle();
        Ok(Pages::Drop.into())
    }

    /// Returns the stored version of a file that is being opened; `None` if there is none, or if
    /// the contents may change without it.
    fn version_for_opener(
        &self,
        place: &Place,
        array: Option<&Arc<Array>>,
        file: &mut InodeFile,
    ) -> Result<Option<Version>> {
        match place {
            Place::Chunk(path, coords) => {
                let array = array.ok_or_else(Error::not_found)?;
                match self.core.stat_chunk(array, coords) {
                    Err(error)
                        if error.kind() == Kind::NotFound
                            && self.names.zarr2.shows_fill(path, array) =>
                    {
                        self.core.cache.keep_only(array, coords, None);
                        Ok(None)
                    }
                    found => {
                        let version = found?.version;
                        self.core.cache.keep_only(array, coords, Some(version));
                        Ok(Some(version))
                    }
                }
            }
            Place::Ordinary(path, relative) => {
                Ok(Some(self.names.ordinary.stat_value(path, relative)?.version))
            }
            Place::Document(path) | Place::Attributes(path) | Place::Copies(path) => {
                let node = self.core.hierarchy.existing(path)?;
                if let NodeContent::NotUnderstood(_, error) = node.content() {
                    // The text is shown as it is stored, if it can be read.
                    node.document().ok_or_else(|| error.clone())?;
                    self.core.note("open", error);
                }
                file.shown = Some(self.names.zarr2.shown_at(place, TextPurpose::Text)?);
                // The contents also depend on other nodes and on the options of the mount.
                Ok(None)
            }
            _ => Ok(None),
        }
    }
}
