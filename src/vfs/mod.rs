//! The mounted tree in plain types: lookups, listings, opening, reading and writing.
//!
//! It does not know FUSE; most tests drive it without a mount. A file has bytes, and its `Place`
//! decides what they are when they are stored: bytes of a chunk go through the codecs, those of a
//! metadata file are merged into the stored one, those of an ordinary file are stored as they are.
//! Writing to a name and renaming a scratch file onto it therefore have the same effect.

mod access;
mod attr;
mod authors;
mod backing_files;
mod commit;
mod convert;
mod core;
mod directories;
mod documents;
mod file;
mod gather;
mod identity;
mod inode;
mod journal;
mod listing;
mod memory;
mod names;
mod open;
mod open_view;
mod options;
mod overlay;
mod passthrough;
mod place;
mod reader;
mod stats;
mod tree;
mod unstored;
mod unsynced;
mod view_pages;
mod view_writers;
mod view_writes;
mod views;
mod xattr;
mod zarr2;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, SystemTime};

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::buffer;
use crate::cache::{ChunkCache, Due, Elsewhere};
use crate::error::{At, Error, Kind, Result};
use crate::hierarchy::{Hierarchy, Texts};
use crate::metadata::NodePath;
use crate::pool::Pool;
use crate::store::{Room, Stat};
pub use access::{Access, Pages};
pub use attr::Attr;
pub use authors::HandleUse;
use backing_files::BackingFiles;
use core::{Core, Invalidate};
pub use inode::ROOT;
use inode::{Inode, Inodes};
use journal::Journal;
pub use listing::{DirHandle, Listed};
pub use names::Replace;
pub use open::Opened;
use open::{Handle, slice};
pub use options::{Form, ListedViews, Options, PassthroughOptions, Writeback};
use overlay::Overlay;
use place::{DOCUMENT, Place, Report, ZMETADATA};
use reader::Reader;
pub use unstored::Unstored;
use unsynced::Unsynced;
use views::{Views, is_view_name};
pub use xattr::Presence;

/// The most keys to keep for a later `fsync` before syncing them anyway.
const MAX_UNSYNCED: usize = 10_000;

/// How often to retry finding a file whose name is being taken by others.
const ATTEMPTS: usize = 16;

/// The idle time after which the store releases what it keeps for writing.
const QUIET: Duration = Duration::from_secs(1);

/// A lock on the names of the tree.
enum TreeLock<'a> {
    Shared { _guard: RwLockReadGuard<'a, ()> },
    Alone { _guard: RwLockWriteGuard<'a, ()> },
}

/// Background threads that prefetch, and store full shards.
struct Background {
    pool: Arc<Pool>,
    vfs: Weak<Vfs>,
    /// How many of them are storing.
    storing: Arc<AtomicUsize>,
}

/// A hierarchy as a tree of files.
pub struct Vfs {
    core: Arc<Core>,
    reader: Arc<Reader>,
    inodes: Inodes,
    overlay: Overlay,
    /// The open files. A leaf lock: copy the handle out, unlock, then work.
    handles: Mutex<HashMap<u64, Handle>>,
    next_handle: AtomicU64,
    /// How many of the handles may write.
    writing_handles: AtomicUsize,
    unsynced: Unsynced,
    views: Views,
    backing_files: Arc<BackingFiles>,
    /// Runs background work; unset without a mount.
    background: OnceLock<Background>,
    /// Bytes that were read and written through handles.
    read_len: AtomicU64,
    written_len: AtomicU64,
    /// The unstored bytes of files, including removed files that are still open.
    unstored_len: AtomicU64,
    /// Whether any chunk with a length that is known only after decoding was used.
    has_variable: AtomicBool,
    /// With Zarr 2: attributes files that were removed although their node was removed before. A
    /// leaf lock.
    removed_attributes: Mutex<HashSet<Place>>,
    /// With Zarr 2: attributes that were written before the metadata file of their node. A leaf
    /// lock.
    early_attributes: Mutex<HashMap<NodePath, String>>,
    /// With Zarr 2: arrays whose metadata give no fill value. A leaf lock.
    lacks_fill: Mutex<HashSet<NodePath>>,
    /// With Zarr 2: groups whose consolidated metadata were written before their metadata file. A
    /// leaf lock.
    wants_copies: Mutex<HashSet<NodePath>>,
    /// With Zarr 2: the consolidated metadata that are shown.
    copies: Texts,
    /// The number of directories that programs have open.
    dirs: Arc<AtomicUsize>,
}

impl fmt::Debug for Vfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vfs").field("hierarchy", &self.core.hierarchy).finish_non_exhaustive()
    }
}

impl Vfs {
    /// Returns the tree of `hierarchy`.
    pub fn new(hierarchy: Hierarchy, options: Options) -> Self {
        buffer::keep_at_most(usize::try_from(options.cache_len / 4).unwrap_or(usize::MAX));
        let backing_files = Arc::new(BackingFiles::new(
            options.passthrough,
            options.cache_len,
            options.descriptors,
        ));
        let core = Arc::new(Core {
            cache: Arc::new(ChunkCache::new(options.cache_len)),
            hierarchy,
            options,
            tree_lock: RwLock::new(()),
            pool: OnceLock::new(),
            mounted: SystemTime::now(),
            journal: Journal::default(),
            invalidate: Mutex::new(None),
        });
        let reader = Arc::new(Reader::new(Arc::clone(&core), Arc::clone(&backing_files)));
        Self {
            views: Views::new(Arc::clone(&core), Arc::clone(&reader)),
            reader,
            core,
            backing_files,
            inodes: Inodes::new(),
            overlay: Overlay::default(),
            handles: Mutex::default(),
            next_handle: AtomicU64::new(1),
            writing_handles: AtomicUsize::new(0),
            unsynced: Unsynced::default(),
            background: OnceLock::new(),
            read_len: AtomicU64::new(0),
            written_len: AtomicU64::new(0),
            unstored_len: AtomicU64::new(0),
            has_variable: AtomicBool::new(false),
            removed_attributes: Mutex::default(),
            early_attributes: Mutex::default(),
            lacks_fill: Mutex::default(),
            wants_copies: Mutex::default(),
            copies: Texts::default(),
            dirs: Arc::default(),
        }
    }

    /// Returns the hierarchy.
    pub fn hierarchy(&self) -> &Hierarchy {
        &self.core.hierarchy
    }

    /// Returns how long the kernel may cache an entry with these attributes.
    pub fn ttl(&self, attr: &Attr) -> Duration {
        if attr.may_change { Duration::ZERO } else { self.core.hierarchy.options().metadata_ttl }
    }

    /// Calls `invalidate` with the number of each inode whose pages the kernel must drop. It is
    /// called while a request is answered, so it must not wait for the kernel.
    pub fn on_invalidate(&self, invalidate: Invalidate) {
        *self.core.invalidate.lock() = Some(invalidate);
    }

    /// Runs background work on `pool`. The caller must close the pool before it drops the tree.
    pub fn use_pool(self: &Arc<Self>, pool: Arc<Pool>) {
        let pool = self.core.pool.get_or_init(|| pool);
        let (pool, vfs) = (Arc::clone(pool), Arc::downgrade(self));
        let background = Background { pool, vfs, storing: Arc::default() };
        if self.background.set(background).is_err() {
            log::debug!("the tree has a pool already");
        }
    }

    /// Records an error in the journal, because the program only sees its errno.
    pub fn note(&self, operation: &str, error: &Error) {
        self.core.note(operation, error);
    }

    /// Returns the latest errors as text, the oldest first.
    pub fn errors(&self) -> String {
        self.core.journal.text()
    }

    fn report(&self, report: Report) -> Result<bytes::Bytes> {
        Ok(match report {
            Report::Errors => self.errors().into(),
            Report::Stats => self.stats().into(),
            Report::Unstored => self.unstored_text().into(),
            Report::UnstoredBytes => self.unstored_bytes()?.into(),
        })
    }

    /// Whether listings include views, which generates them.
    pub fn lists_views(&self) -> bool {
        self.core.options.lists_views()
    }

    /// Returns the capacity and the free space of the medium below the store.
    pub fn room(&self) -> Result<Option<Room>> {
        self.core.hierarchy.store().read().room()
    }

    /// Looks up `name` in the directory `parent`, and adds one to its lookup count.
    pub fn lookup(&self, parent: u64, name: &str) -> Result<Attr> {
        let directory = self.directory(parent)?;
        let Some(found) = self.find(&directory, name)? else {
            self.views.note_refused_view(&directory, name);
            return Err(Error::not_found());
        };
        self.lookup_stored(&found.place, found.stored.as_ref())
    }

    /// Subtracts `count` from the lookup count of an inode.
    pub fn forget(&self, number: u64, count: u64) {
        self.inodes.forget(number, count);
    }

    /// Returns the path of an inode in the mount, for messages.
    pub fn path_of(&self, number: u64) -> Option<String> {
        self.inode(number).ok()?.place().map(|place| place.shown())
    }

    /// Returns the attributes of an inode.
    pub fn getattr(&self, number: u64) -> Result<Attr> {
        let known = self.inode(number)?;
        if let Some(attr) = Self::attr_of_unnamed(&known) {
            return Ok(attr);
        }
        if Self::is_orphaned(&known) {
            return self.attr_of_open_view(&known).ok_or_else(Error::not_found);
        }
        let mut attempts = 1;
        let attr = loop {
            let inode = self.current(&known);
            // The first attempt may hit a moving node, so later ones exclude moves.
            let still = (attempts > 1).then(|| self.core.tree_lock.read());
            let attr = self.attr(&inode);
            drop(still);
            match attr {
                Err(error)
                    if error.kind() == Kind::NotFound
                        && (inode.is_replaced() || attempts == 1)
                        && attempts < ATTEMPTS => {}
                // `.zarrfs/errors` explains what is wrong with the store, so the root must stay
                // reachable.
                Err(error) if number == ROOT && error.errno() == libc::ESTALE => {
                    self.core.note("getattr", &error);
                    break Attr::directory(self.core.mounted);
                }
                attr => break attr?,
            }
            attempts += 1;
        };
        Ok(Attr { number, ..attr })
    }

    /// Changes the length of a file. If no program has it open for writing, also stores it.
    pub fn truncate(&self, number: u64, len: u64) -> Result<Attr> {
        self.core.hierarchy.store().write()?;
        let inode = self.inode(number)?;
        let place = inode.place();
        commit::check_writable(place.as_ref())?;
        if let Some(place @ Place::View(path, format)) = &place {
            let view = Self::open_as(&inode).map_or_else(|| self.views.view(path, format), Ok)?;
            if self.truncate_view(&inode, &view, len).at(place.shown())? {
                self.core.invalidate(inode.number());
            }
            return self.attr(&inode);
        }
        self.truncate_and_store(&inode, len)?;
        self.getattr(number)
    }

    /// Sets the mode of a file that was created here and is not stored yet; `false` for other
    /// files.
    pub fn set_mode(&self, number: u64, mode: u16) -> Result<bool> {
        let inode = self.inode(number)?;
        let mut file = inode.file().lock();
        let is_new = file.mode.is_some();
        if is_new {
            file.mode = Some(mode);
        }
        Ok(is_new)
    }

    /// Fails with [`Kind::TooLarge`] if a file cannot have `len` bytes.
    pub fn check_len(&self, number: u64, len: u64) -> Result<()> {
        self.check_longest(self.inode(number)?.place().as_ref(), len)
    }

    /// Sets the modification time of a file.
    pub fn set_modified(&self, number: u64, modified: SystemTime) -> Result<Attr> {
        self.core.hierarchy.store().write()?;
        let inode = self.inode(number)?;
        self.set_modified_content(&inode, modified)?;
        self.getattr(number)
    }

    /// Syncs everything that is complete to disk. Files that a program is still writing are not
    /// stored. Tries everything before it returns the first error.
    pub fn sync(&self) -> Result<()> {
        let directories = self.store_directories(Duration::ZERO);
        let stored = directories.and(self.sync_files());
        self.release_idle(Duration::ZERO);
        stored
    }

    fn sync_files(&self) -> Result<()> {
        let mut first = Ok(());
        for inode in self.overlay.files().into_iter().chain(self.open_files()) {
            first = first.and(self.store_content(&inode, commit::StoreReason::Everything));
        }
        first = first.and(self.store_shards(Due::All));
        first.and(self.unsynced.sync_all(self.core.hierarchy.store()))
    }

    /// Stores scratch files, shards and directories that are old enough. Call this now and then.
    pub fn tick(&self) {
        for error in self.core.hierarchy.take_notes() {
            self.core.note("consolidated metadata are not shown", &error);
        }
        if let Err(error) = self.store_directories(self.core.options.writeback_delay) {
            self.core.note("write back", &error);
        }
        for inode in self.overlay.files() {
            if let Err(error) = self.store_content(&inode, commit::StoreReason::Aged) {
                self.core.note("write back", &error);
            }
        }
        // Errors are logged when they occur, and reported by the next close or `fsync` in the
        // shard.
        let stored = self.store_shards(Due::Since(self.core.options.writeback_delay));
        stored.unwrap_or_else(|error| log::debug!("{error}"));
        self.inodes.sweep();
        self.backing_files.sweep(&self.core.cache);
        self.core.cache.set_elsewhere(Elsewhere::MemoryFiles, self.backing_files.len());
        self.reader.drop_old_spans(&self.all_open_views());
        buffer::release_idle();
        if self.unsynced.len() > MAX_UNSYNCED
            && let Err(error) = self.unsynced.sync_all(self.core.hierarchy.store())
        {
            self.core.note("write back", &error);
        }
        self.release_idle(QUIET);
    }

    /// Releases what the store keeps for writing, if nothing was written for `quiet`.
    fn release_idle(&self, quiet: Duration) {
        self.core.hierarchy.release_idle(quiet);
    }

    fn inode(&self, number: u64) -> Result<Arc<Inode>> {
        self.inodes.get(number).ok_or_else(|| Error::new(Kind::Stale, "unknown inode number"))
    }

    fn directory(&self, number: u64) -> Result<Place> {
        let place = self.inode(number)?.place().ok_or_else(Error::not_found)?;
        if place.is_dir() {
            Ok(place)
        } else {
            Err(Error::new(Kind::NotDirectory, "not a directory"))
        }
    }

    /// Returns the attributes of the file at `place`, and adds one to its lookup count.
    fn lookup_place(&self, place: &Place) -> Result<Attr> {
        self.lookup_stored(place, None)
    }

    /// Like [`Self::lookup_place`], with the stat of a stored chunk if the caller knows it.
    fn lookup_stored(&self, place: &Place, stored: Option<&Stat>) -> Result<Attr> {
        // Fast path: most names of a listing have no inode yet.
        if stored.is_some() && !self.inodes.is_known(place) {
            let attr = self.attr_at(place, stored)?;
            if let Some(number) = self.inodes.insert_looked_up(place) {
                return Ok(Attr { number, ..attr });
            }
        }
        let mut attempts = 0;
        loop {
            let inode = self.inode_for_name(place);
            let attr = self.attr_with_stat(&inode, stored);
            attempts += 1;
            // Another file may take the name meanwhile.
            let has_moved = inode.place().as_ref() != Some(place);
            match &attr {
                Ok(_) => self.inodes.looked_up(&inode),
                Err(_) => self.inodes.release(inode),
            }
            match attr {
                Err(error)
                    if error.kind() == Kind::NotFound && has_moved && attempts < ATTEMPTS => {}
                attr => return attr,
            }
        }
    }

    /// Whether answering a request on `number`, or on `name` in it, may take long: a node is being
    /// created, moved or removed, a chunk must be decoded, or the header of a view be generated.
    pub fn may_take_time(&self, number: u64, name: Option<&str>) -> bool {
        self.core.tree_lock.is_locked_exclusive()
            || name.is_some_and(is_view_name)
            || self.may_decode(number)
            || self.may_show_many(number, name)
    }

    /// Whether `number`, or a name in it, is a metadata file that includes others.
    fn may_show_many(&self, number: u64, name: Option<&str>) -> bool {
        match self.inodes.get(number).and_then(|inode| inode.place()) {
            Some(Place::Node(path)) if matches!(name, Some(DOCUMENT | ZMETADATA)) => {
                self.core.hierarchy.shows_many(&path)
            }
            Some(Place::Document(path) | Place::Copies(path)) => {
                self.core.hierarchy.shows_many(&path)
            }
            _ => false,
        }
    }

    /// Records activity at a place, so that made directories above it do not become groups yet.
    fn touch(&self, place: &Place) {
        if let Some(path) = place.node() {
            self.core.hierarchy.touch(path);
        }
    }

    /// Locks the tree for storing an inode: exclusively if that creates or changes a node; shared
    /// for a chunk, whose array must not be moved or removed meanwhile.
    fn lock_tree_to_store(&self, inode: &Inode) -> Option<TreeLock<'_>> {
        match inode.place()? {
            place if place.is_document() => {
                // Storing pending chunks now shortens the time under the lock.
                if let Some(path) = place.node() {
                    self.store_array_before(path);
                }
                Some(TreeLock::Alone { _guard: self.core.tree_lock.write() })
            }
            Place::Chunk(..) => Some(TreeLock::Shared { _guard: self.core.tree_lock.read() }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
