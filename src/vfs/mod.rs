//! The mounted tree in plain types: lookups, listings, opening, reading and writing.
//!
//! It does not know FUSE; most tests drive it without a mount. A file has bytes, and its `Place`
//! decides what they are when they are stored: bytes of a chunk go through the codecs, those of a
//! metadata file are merged into the stored one, those of an ordinary file are stored as they are.
//! Writing to a name and renaming a scratch file onto it therefore have the same effect.
//!
//! `Vfs` has the calls that FUSE makes, and takes the lock of the tree where their order matters.
//! The rooms below it import each other only upwards in this list (`tests/it/layering.rs`):
//!
//! - `core`, `options`, `access`: what all others stand on.
//! - `kernel`: what the kernel holds, pages and backing files.
//! - `reader`: reads views and chunks, ahead of a program or in parts.
//! - `names`: finds names, their inodes and attributes, lists directories, and shows the tree as
//!   Zarr 3, Zarr 2 or files of one format.
//! - `contents`: the bytes of files, from the first write until they are stored.
//! - `opening`: opens files, with passthrough where that is possible.
//! - `changes`: removes, renames and creates files and directories.
//! - `attr_writer`: changes attributes, the length of a file and the space for it.
//! - `xattrs`: extended attributes.
//! - `versions`: numbers that change with the bytes of open files, for clients over HTTP.

mod access;
mod attr_writer;
mod authors;
mod changes;
mod contents;
mod core;
mod file_calls;
mod inodes;
mod journal;
mod kernel;
mod name_calls;
mod names;
mod opening;
mod options;
mod reader;
mod refused;
mod versions;
mod view_writers;
mod xattrs;

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Mutex, RwLock};

use crate::budget::Budget;
use crate::buffer;
use crate::cache::{ChunkCache, Due};
use crate::error::{Error, Kind, Result, WithSubject};
use crate::hierarchy::Hierarchy;
use crate::pool::Pool;
use crate::store::{Capacity, FileUse};
pub use crate::store::{
    Extent, FileChanges, FileKind, NewNode, NewTime, Ownership, Presence, Replace,
};
pub use crate::vfs::reader::ChunkReader;
use crate::vfs::reader::Reader;
pub use crate::vfs::reader::stored_versions::FileVersion;
use crate::view::Format;
use crate::width::ToUsize;
pub use access::{Access, Caller, OpenedFile, Pages};
use attr_writer::AttrWriter;
pub use attr_writer::NewLen;
pub use authors::HandleUse;
use changes::directories::DirectoryChanges;
use changes::new_files::NewFiles;
use changes::renames::Renames;
use contents::Contents;
use contents::next_step::StoreReason;
pub use core::Outdated;
use core::{ATTEMPTS, Core, Invalidate};
pub use inodes::attr::Attr;
pub use inodes::inode::ROOT;
pub use inodes::place::CONTROL;
use journal::Journal;
pub use journal::timestamp;
use kernel::backing_files::BackingFiles;
use names::Names;
pub use names::listing::Listings;
pub use names::open_directory::{DirHandle, DirectoryName};
use names::views::{Views, is_view_name};
use opening::Opener;
use opening::passthrough::Passthrough;
pub use opening::unstored::{Unstored, UnstoredChange};
pub use options::{ListedViews, PassthroughOptions, Presentation, VfsOptions, Writeback};
use refused::RefusedFiles;
use versions::OpenVersions;
use xattrs::Xattrs;

/// The most keys to keep for a later `fsync` before syncing them anyway.
const MAX_UNSYNCED: usize = 10_000;

/// The idle time after which the store releases what it keeps for writing.
const QUIET: Duration = Duration::from_secs(1);

/// A hierarchy as a tree of files.
pub struct Vfs {
    core: Arc<Core>,
    reader: Arc<Reader>,
    names: Arc<Names>,
    listings: Arc<Listings>,
    contents: Contents,
    opener: Arc<Opener>,
    new_files: NewFiles,
    directories: DirectoryChanges,
    renames: Renames,
    attr_writer: AttrWriter,
    xattrs: Xattrs,
    versions: OpenVersions,
}

impl fmt::Debug for Vfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vfs").field("hierarchy", &self.core.hierarchy).finish_non_exhaustive()
    }
}

impl Vfs {
    /// Returns the tree of `hierarchy`.
    pub fn new(hierarchy: Hierarchy, options: VfsOptions) -> Self {
        buffer::set_limit((options.cache_len / 4).to_usize());
        let budget = Budget::new(options.cache_len, options.dirty_limit);
        let backing_files =
            Arc::new(BackingFiles::new(options.passthrough, &budget, options.descriptors));
        let core = Arc::new(Core {
            cache: Arc::new(ChunkCache::within(&budget)),
            budget,
            hierarchy,
            options,
            tree_lock: RwLock::new(()),
            changes: AtomicU64::new(0),
            pool: OnceLock::new(),
            mounted: SystemTime::now(),
            journal: Journal::default(),
            refused: RefusedFiles::default(),
            invalidate: Mutex::new(None),
        });
        let reader = Arc::new(Reader::new(Arc::clone(&core), Arc::clone(&backing_files)));
        let views = Arc::new(Views::new(Arc::clone(&core), Arc::clone(&reader)));
        let names = Arc::new(Names::new(Arc::clone(&core), views));
        let listings = Arc::new(Listings::new(Arc::clone(&core), Arc::clone(&names)));
        let contents = Contents::new(&core, &names, &listings);
        let writer = Arc::downgrade(&contents.chunks);
        core.cache.store_with(move |key| {
            writer.upgrade().map_or(Ok(()), |writer| writer.store_shard(key, Instant::now()))
        });
        let opener = Arc::new(Opener::new(&contents, &listings, &reader, backing_files));
        Self {
            new_files: NewFiles::new(&contents, &opener),
            directories: DirectoryChanges::new(&contents, &listings, &opener.handles),
            renames: Renames::new(&contents),
            attr_writer: AttrWriter::new(&contents, &opener.handles),
            xattrs: Xattrs::new(&contents),
            versions: OpenVersions::new(&contents, &opener.handles),
            core,
            reader,
            names,
            listings,
            contents,
            opener,
        }
    }

    /// Returns the hierarchy.
    pub fn hierarchy(&self) -> &Hierarchy {
        &self.core.hierarchy
    }

    /// Returns how long the kernel may cache an entry with these attributes. It opens a file with
    /// several names by its number: if another program has removed the name, that would be the file
    /// under another name. So it looks such names up each time.
    pub fn ttl(&self, attr: &Attr) -> Duration {
        let has_names = attr.links > 1 && attr.kind != FileKind::Directory;
        if attr.may_change || has_names {
            Duration::ZERO
        } else {
            self.core.hierarchy.options().metadata_ttl
        }
    }

    /// Calls `invalidate` with what the kernel must drop. It is called while a request is answered,
    /// so it must not wait for the kernel.
    pub fn on_invalidate(&self, invalidate: Invalidate) {
        *self.core.invalidate.lock() = Some(invalidate);
    }

    /// Runs background work on `pool`. The caller must close the pool before it drops the tree.
    pub fn use_pool(&self, pool: Arc<Pool>) {
        if self.core.pool.set(pool).is_err() {
            log::debug!("the tree has a pool already");
        }
    }

    /// Returns what lists directories.
    pub fn listings(&self) -> &Arc<Listings> {
        &self.listings
    }

    /// Returns what changes the attributes of files.
    pub fn attr_writer(&self) -> &AttrWriter {
        &self.attr_writer
    }

    /// Returns what reads and changes extended attributes.
    pub fn xattrs(&self) -> &Xattrs {
        &self.xattrs
    }

    /// Returns what knows the versions of open files.
    pub fn versions(&self) -> &OpenVersions {
        &self.versions
    }

    /// Returns what decides which files the kernel reads itself.
    pub fn passthrough(&self) -> &Passthrough {
        &self.opener.passthrough
    }

    /// Has zarrfs receive what a handle reads and writes, because the kernel has refused to.
    pub fn refuse_passthrough(&self, handle: u64) {
        let refused = self.opener.refuse_passthrough(handle);
        refused.unwrap_or_else(|error| self.core.note("open", &error));
    }

    /// Returns the text of `.zarrfs/stats`.
    pub fn stats(&self) -> String {
        self.opener.reports.stats()
    }

    /// Returns all files and directories with unstored changes, by path.
    pub fn unstored(&self) -> Vec<Unstored> {
        self.opener.reports.unstored()
    }

    /// Stores full shards, and others if too much is pending.
    pub fn store_full(&self) {
        self.contents.chunks.store_full();
    }

    /// Records an error in the journal, because the program only sees its errno.
    pub fn note(&self, operation: &str, error: &Error) {
        self.core.note(operation, error);
    }

    /// Returns the latest errors as text, the oldest first.
    pub fn errors(&self) -> String {
        self.core.journal.text()
    }

    /// Returns the files that were refused when a program closed them, and were not stored since:
    /// a JSON object in a line for each, with its path and the reason.
    pub fn refused(&self) -> String {
        self.core.refused.text()
    }

    /// Whether the tree has views of this format.
    pub fn shows(&self, format: &Format) -> bool {
        self.names.views.shows(format)
    }

    /// Whether listings include views, which generates them.
    pub fn lists_views(&self) -> bool {
        self.core.options.lists_views()
    }

    /// Returns the capacity and the free space of the medium below the store.
    pub fn room(&self) -> Result<Option<Capacity>> {
        self.core.hierarchy.store().read().room()
    }

    /// Looks up `name` in the directory `parent`, and adds one to its lookup count.
    pub fn lookup(&self, parent: u64, name: &str) -> Result<Attr> {
        let epoch = self.core.epoch();
        let mut found = self.lookup_once(parent, name);
        let is_missing = match &found {
            Ok(found) => found.is_none(),
            Err(error) => error.kind() == Kind::NotFound,
        };
        if is_missing && !self.core.is_unchanged_since(epoch) {
            // The directory has just become an array or was moved, and names in it with it.
            let _shared = self.core.shared()?;
            found = self.lookup_once(parent, name);
        }
        if let Some(attr) = found? {
            return Ok(attr);
        }
        let refusal = self.names.views.refusal(&self.names.directory(parent)?, name);
        Err(refusal.unwrap_or_else(Error::not_found))
    }

    /// Returns the attributes of a listed name and adds one to its lookup count; `None` if it is
    /// gone.
    pub fn lookup_listed(&self, dir: &DirHandle, listed: &DirectoryName) -> Result<Option<Attr>> {
        self.opener.passthrough.renew_outdated(&listed.place);
        self.listings.lookup_listed(dir, listed)
    }

    fn lookup_once(&self, parent: u64, name: &str) -> Result<Option<Attr>> {
        let directory = self.names.directory_looked_in(parent)?;
        let Some(found) = self.names.places.find(&directory, name)? else { return Ok(None) };
        self.opener.passthrough.renew_outdated(&found.place);
        self.names.lookup_stored(&found.place, found.stored.as_ref()).map(Some)
    }

    /// Whether the kernel knows far more names than it may, and was asked to forget some.
    pub fn knows_many_names(&self) -> bool {
        self.names.has_many()
    }

    /// Subtracts `count` from the lookup count of an inode.
    pub fn forget(&self, number: u64, count: u64) {
        self.names.inodes.forget(number, count);
    }

    /// Returns the path of an inode in the mount, for messages.
    pub fn path_of(&self, number: u64) -> Option<String> {
        self.names.inode(number).ok()?.place().map(|place| place.shown())
    }

    /// Returns the attributes of an inode.
    pub fn getattr(&self, number: u64) -> Result<Attr> {
        let known = self.names.inode(number)?;
        if let Some(attr) = Passthrough::attr_of_unnamed(&known) {
            // Only a store of files keeps the owner.
            let owner = attr.owner.filter(|_| self.names.ordinary.store().is_some());
            let attr = Attr { owner, ..attr };
            return self.names.attrs.with_private(attr, known.place().as_ref());
        }
        if known.is_orphaned() {
            return self.names.attrs.of(&known);
        }
        let mut attempts = 1;
        let attr = loop {
            let inode = self.names.current(&known);
            // The first attempt may hit a moving node, so later ones exclude moves.
            let still = (attempts > 1).then(|| self.core.shared()).transpose()?;
            let attr = self.names.attrs.of(&inode);
            drop(still);
            match attr {
                Err(error)
                    if error.kind() == Kind::NotFound
                        && (inode.is_replaced()
                            || attempts == 1
                            || self.names.has_another_name(&inode))
                        && attempts < ATTEMPTS => {}
                // `.zarrfs/errors` explains what is wrong with the store, so the root must stay
                // reachable.
                Err(error) if number == ROOT => {
                    self.core.note("getattr", &error);
                    break Attr::directory(self.core.mounted);
                }
                attr => break attr?,
            }
            attempts += 1;
        };
        Ok(Attr { number, ..attr })
    }

    /// Fails if a name of a file with several leads to another one now, so that a program that has
    /// named it looks the name up again.
    pub fn check_all_names(&self, number: u64) -> Result<()> {
        self.names.check_all_names(&*self.names.inode(number)?)
    }

    /// Returns the text of a symbolic link.
    pub fn link_text(&self, number: u64) -> Result<Vec<u8>> {
        let place = self.names.inode(number)?.place().ok_or_else(Error::not_found)?;
        let files =
            self.names.ordinary.store().ok_or_else(|| Error::invalid("not a symbolic link"))?;
        let path = self.names.ordinary.path(&place)?.ok_or_else(Error::not_found)?;
        let found = files.open(&path, FileUse::Attributes)?.ok_or_else(Error::not_found)?;
        found.link_text().at(place.shown())
    }

    /// Syncs everything that is complete to disk. Files that a program is still writing are not
    /// stored. Tries everything before it returns the first error.
    pub fn sync(&self) -> Result<()> {
        let directories = self.directories.store_directories(Duration::ZERO);
        let stored = directories.and(self.sync_files());
        self.release_idle(Duration::ZERO);
        stored
    }

    fn sync_files(&self) -> Result<()> {
        let mut first = Ok(());
        for inode in
            self.names.overlay.files().into_iter().chain(self.opener.handles.written_files())
        {
            first = first.and(self.contents.files.store_content(&inode, StoreReason::Everything));
        }
        first = first.and(self.contents.chunks.store_shards(Due::All));
        first.and(self.contents.unsynced.sync_all(self.core.hierarchy.store()))
    }

    /// Stores scratch files, shards and directories that are old enough. Call this now and then.
    pub fn tick(&self) {
        for error in self.core.hierarchy.shown().take_notes() {
            self.core.note("consolidated metadata are not shown", &error);
        }
        if let Err(error) = self.directories.store_directories(self.core.options.writeback_delay) {
            self.core.note("write back", &error);
        }
        for inode in self.names.overlay.files() {
            if let Err(error) = self.contents.files.store_content(&inode, StoreReason::Aged) {
                self.core.note("write back", &error);
            }
        }
        // Errors are logged when they occur, and reported by the next close or `fsync` in the
        // shard.
        let stored =
            self.contents.chunks.store_shards(Due::Since(self.core.options.writeback_delay));
        stored.unwrap_or_else(|error| log::debug!("{error}"));
        self.names.inodes.sweep();
        self.names.shrink();
        self.opener.passthrough.backing_files.sweep(&self.core.cache);
        reader::drop_old_spans(&self.opener.handles.all_open_views());
        buffer::release_idle();
        if self.contents.unsynced.len() > MAX_UNSYNCED
            && let Err(error) = self.contents.unsynced.sync_all(self.core.hierarchy.store())
        {
            self.core.note("write back", &error);
        }
        self.release_idle(QUIET);
    }

    /// Releases what the store keeps for writing, if nothing was written for `quiet`.
    fn release_idle(&self, quiet: Duration) {
        self.core.hierarchy.release_idle(quiet);
    }

    /// Finishes or undoes the changes of killed daemons.
    pub fn recover(&self) {
        self.core.hierarchy.recovery().recover_beside(|| self.core.alone_for_itself());
    }

    /// Ends all waits for a remote store. What would have to be stored there stays unstored.
    pub fn give_up(&self) {
        if self.is_remote() {
            self.core.hierarchy.store().read().stop();
        }
    }

    /// Returns how long the server of a remote store has shown no sign of its work while requests
    /// were under way.
    pub fn silence(&self) -> Option<Duration> {
        Some(self.core.hierarchy.store().read().requests()?.silence)
    }

    /// Ends all waits for a remote store, unless something may have to be stored there.
    pub fn stop_waiting(&self) {
        let may_store = || {
            !self.core.cache.due(Due::All).is_empty()
                || !self.names.overlay.files().is_empty()
                || !self.opener.handles.written_files().is_empty()
                || !self.core.hierarchy.directories.unstored().is_empty()
        };
        if self.is_remote() && !(self.core.hierarchy.store().is_writable() && may_store()) {
            self.core.hierarchy.store().read().stop();
        }
    }

    /// Whether each answer of the store takes long.
    pub fn is_remote(&self) -> bool {
        self.core.is_remote()
    }

    /// Whether answering a request on `number`, or on `name` in it, may take long: a node is being
    /// created, moved or removed, a chunk must be decoded, or the header of a view be generated.
    pub fn may_take_time(&self, number: u64, name: Option<&str>) -> bool {
        self.core.is_remote()
            || self.core.tree_lock.is_locked_exclusive()
            || name.is_some_and(is_view_name)
            || self.names.inodes.get(number).and_then(|inode| inode.place()).is_some_and(|place| {
                self.names.attrs.may_decode(&place) || self.names.may_show_many(&place, name)
            })
    }
}

#[cfg(test)]
mod tests;
