//! The mounted tree: look-ups, listings, opening, reading, writing, in plain types.
//!
//! It does not know FUSE; most tests drive it without a mount. A file has bytes, and its
//! `Place` gives them a meaning when they are stored: those of a chunk go through
//! the codecs, those of a document are merged into the stored one, those of an ordinary
//! file are kept as they are. So writing to a name, and renaming a scratch file onto it,
//! are the same thing.

mod attr;
mod authors;
mod commit;
mod convert;
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
mod overlay;
mod passthrough;
mod place;
mod reader;
mod stats;
mod tree;
mod unstored;
mod unsynced;
mod view_pages;
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

use crate::array::FillChunks;
use crate::buffer;
use crate::cache::{ChunkCache, Due, Elsewhere};
use crate::error::{At, Error, Kind, Result};
use crate::hierarchy::{Hierarchy, Texts};
use crate::metadata::NodePath;
use crate::pool::Pool;
use crate::store::{Room, Stat};
use crate::view::Format;
pub use attr::Attr;
pub use authors::Use;
pub use inode::ROOT;
use inode::{Inode, Inodes};
use journal::Journal;
pub use listing::{DirHandle, Listed};
pub use names::Replace;
pub use open::{Access, Opened, Pages};
use open::{Handle, slice};
use overlay::Overlay;
use passthrough::Passed;
pub use passthrough::Passthrough;
use place::{DOCUMENT, Place, Report, ZMETADATA};
use reader::{Followed, Spans};
pub use unstored::Unstored;
use unsynced::Unsynced;
pub use views::ListedViews;
use views::Views;
pub use xattr::Presence;

/// How many keys may wait for a program to call `fsync` before they are synced without.
const MAX_UNSYNCED: usize = 10_000;

/// How often a file is looked for whose name others take just then.
const ATTEMPTS: usize = 16;

/// How long nothing is written before the store is left as if nobody wrote to it.
const QUIET: Duration = Duration::from_secs(1);

/// What a tree shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// A hierarchy of Zarr 3.
    #[default]
    Zarr3,
    /// A hierarchy of Zarr 2.
    Zarr2,
    /// Directories of groups, with each node as a file of this format, and nothing else.
    View(&'static Format),
}

/// Which chunks may wait to be stored after they were closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Writeback {
    /// None.
    Sync,
    /// Those of a shard, for one another.
    #[default]
    Delay,
    /// All: others are stored while their writer goes on.
    All,
}

/// How a mount behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// Bytes of decoded chunks that are kept.
    pub cache_len: u64,
    /// Whether the kernel keeps what it has read, so that it need not be kept here.
    pub kernel_keeps: bool,
    /// Bytes of files that may wait to be stored.
    pub dirty_limit: u64,
    /// What to do with a chunk that equals the fill value.
    pub fill_chunks: FillChunks,
    /// Which chunks may wait to be stored after they were closed.
    pub writeback: Writeback,
    /// How long a scratch file may live without being stored, and a chunk that waits.
    pub writeback_delay: Duration,
    /// What is shown.
    pub form: Form,
    /// Which views are listed.
    pub listed_views: ListedViews,
    /// When the kernel is to read chunks by itself, from files that it is given; none for never.
    pub passthrough: Option<Passthrough>,
    /// How many files this process may have open.
    pub descriptors: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_len: 256 << 20,
            kernel_keeps: true,
            dirty_limit: 1 << 30,
            fill_chunks: FillChunks::Store,
            writeback: Writeback::default(),
            writeback_delay: Duration::from_secs(5),
            form: Form::default(),
            listed_views: ListedViews::default(),
            passthrough: None,
            descriptors: 1024,
        }
    }
}

/// The right to change names.
enum TreeLock<'a> {
    Shared { _guard: RwLockReadGuard<'a, ()> },
    Alone { _guard: RwLockWriteGuard<'a, ()> },
}

/// Threads that decode ahead, and store what is complete.
struct Crew {
    pool: Arc<Pool>,
    vfs: Weak<Vfs>,
    /// How many of them are storing.
    storing: Arc<AtomicUsize>,
}

type Invalidate = Box<dyn Fn(u64) + Send + Sync>;

/// A hierarchy as a tree of files.
pub struct Vfs {
    hierarchy: Hierarchy,
    cache: Arc<ChunkCache>,
    options: Options,
    inodes: Inodes,
    overlay: Overlay,
    journal: Journal,
    /// A leaf: copy the handle out, unlock, then work.
    handles: Mutex<HashMap<u64, Handle>>,
    next_handle: AtomicU64,
    /// How many of the handles may write.
    writing_handles: AtomicUsize,
    unsynced: Unsynced,
    views: Views,
    followed: Followed,
    passed: Arc<Passed>,
    /// Who does what nobody waits for; nobody where there is no mount.
    crew: OnceLock<Crew>,
    /// Bytes that were read and written through handles.
    read_len: AtomicU64,
    written_len: AtomicU64,
    /// Ranges of chunks that were read without the rest.
    excerpts: AtomicU64,
    spans: Spans,
    /// Bytes of files that wait to be stored, or are those of removed files that are still open.
    unstored_len: AtomicU64,
    /// Whether anybody has asked for a chunk whose length is known only when it is decoded.
    has_variable: AtomicBool,
    mounted: SystemTime,
    /// Attributes of removed nodes that were removed, too, in a mount that shows Zarr 2. A leaf.
    hidden: Mutex<HashSet<Place>>,
    /// Attributes there that came before their document. A leaf.
    waiting: Mutex<HashMap<NodePath, String>>,
    /// Arrays there whose document gives no fill value. A leaf.
    without_fill: Mutex<HashSet<NodePath>>,
    /// Groups there that are to have consolidated metadata, which came before their document. A leaf.
    wished: Mutex<HashSet<NodePath>>,
    /// Consolidated metadata shown there.
    copies: Texts,
    /// How many directories programs have open.
    dirs: Arc<AtomicUsize>,
    /// Which names there are: who makes, moves or removes nodes has it alone, who makes or renames files shares it.
    /// Taken before the lock of any file, and held over store I/O.
    tree_lock: RwLock<()>,
    /// Told the number of an inode whose pages and attributes the kernel must not use any more.
    invalidate: Mutex<Option<Invalidate>>,
}

impl fmt::Debug for Vfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vfs").field("hierarchy", &self.hierarchy).finish_non_exhaustive()
    }
}

impl Vfs {
    /// The tree of `hierarchy`.
    pub fn new(hierarchy: Hierarchy, options: Options) -> Self {
        buffer::keep_at_most(usize::try_from(options.cache_len / 4).unwrap_or(usize::MAX));
        Self {
            cache: Arc::new(ChunkCache::new(options.cache_len)),
            passed: Arc::new(Passed::new(
                options.passthrough,
                options.cache_len,
                options.descriptors,
            )),
            hierarchy,
            options,
            inodes: Inodes::new(),
            overlay: Overlay::default(),
            journal: Journal::default(),
            handles: Mutex::default(),
            next_handle: AtomicU64::new(1),
            writing_handles: AtomicUsize::new(0),
            unsynced: Unsynced::default(),
            views: Views::default(),
            followed: Followed::default(),
            crew: OnceLock::new(),
            read_len: AtomicU64::new(0),
            written_len: AtomicU64::new(0),
            excerpts: AtomicU64::new(0),
            spans: Spans::default(),
            unstored_len: AtomicU64::new(0),
            has_variable: AtomicBool::new(false),
            mounted: SystemTime::now(),
            hidden: Mutex::default(),
            waiting: Mutex::default(),
            without_fill: Mutex::default(),
            wished: Mutex::default(),
            copies: Texts::default(),
            dirs: Arc::default(),
            tree_lock: RwLock::new(()),
            invalidate: Mutex::new(None),
        }
    }

    /// The hierarchy that is shown.
    pub fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    /// How long what was answered about a name and its attributes holds.
    pub fn ttl(&self, attr: &Attr) -> Duration {
        if attr.may_change { Duration::ZERO } else { self.hierarchy.options().metadata_ttl }
    }

    /// Calls `invalidate` with the number of each inode whose pages the kernel must drop. It is called
    /// while a request is answered, so it must not wait for the kernel.
    pub fn on_invalidate(&self, invalidate: Invalidate) {
        *self.invalidate.lock() = Some(invalidate);
    }

    /// Uses `pool` for what nobody waits for yet. Who gives it closes it before the tree goes.
    pub fn use_pool(self: &Arc<Self>, pool: Arc<Pool>) {
        let crew = Crew { pool, vfs: Arc::downgrade(self), storing: Arc::default() };
        if self.crew.set(crew).is_err() {
            log::debug!("the tree has a pool already");
        }
    }

    /// Keeps an error that a program is about to see as a number.
    pub fn note(&self, operation: &str, error: &Error) {
        if !error.is_expected() {
            log::warn!("{operation}: {error}");
            self.journal.note(operation, error);
        }
    }

    /// The last errors in words, the oldest first.
    pub fn errors(&self) -> String {
        self.journal.text()
    }

    fn report(&self, report: Report) -> Result<bytes::Bytes> {
        Ok(match report {
            Report::Errors => self.errors().into(),
            Report::Stats => self.stats().into(),
            Report::Unstored => self.unstored_text().into(),
            Report::UnstoredBytes => self.unstored_bytes()?.into(),
        })
    }

    /// The figures of the medium below the store.
    pub fn room(&self) -> Result<Option<Room>> {
        self.hierarchy.store().read().room()
    }

    /// The file or directory `name` in the directory `parent`; the caller's kernel knows it from now on.
    pub fn lookup(&self, parent: u64, name: &str) -> Result<Attr> {
        let found = self.find(&self.directory(parent)?, name)?.ok_or_else(Error::not_found)?;
        self.told_knowing(&found.place, found.stored.as_ref())
    }

    /// Notes that the kernel forgot `count` of the times that it was told of an inode.
    pub fn forget(&self, number: u64, count: u64) {
        self.inodes.forget(number, count);
    }

    /// The path of an inode in the mount, for messages.
    pub fn path_of(&self, number: u64) -> Option<String> {
        self.inode(number).ok()?.place().map(|place| place.shown())
    }

    /// What `stat` shows.
    pub fn getattr(&self, number: u64) -> Result<Attr> {
        let known = self.inode(number)?;
        if let Some(attr) = Self::attr_of_parted(&known) {
            return Ok(attr);
        }
        if Self::is_left_to_openers(&known) {
            return self.attr_of_open_view(&known).ok_or_else(Error::not_found);
        }
        let mut attempts = 1;
        let attr = loop {
            let inode = self.current(&known);
            // It may just be moving, with its node: then it is looked for where that has gone.
            let still = (attempts > 1).then(|| self.tree_lock.read());
            let attr = self.attr(&inode);
            drop(still);
            match attr {
                Err(error)
                    if error.kind() == Kind::NotFound
                        && (inode.is_replaced() || attempts == 1)
                        && attempts < ATTEMPTS => {}
                // `.zarrfs/errors` is below the root, and says what is wrong with the store.
                Err(error) if number == ROOT && error.errno() == libc::ESTALE => {
                    self.note("getattr", &error);
                    break Attr::directory(self.mounted);
                }
                attr => break attr?,
            }
            attempts += 1;
        };
        Ok(Attr { number, ..attr })
    }

    /// Changes the length of a file. Where nobody has it open to write the rest, it is stored as it is then.
    pub fn truncate(&self, number: u64, len: u64) -> Result<Attr> {
        self.hierarchy.store().write()?;
        let inode = self.inode(number)?;
        let place = inode.place();
        commit::check_writable(place.as_ref())?;
        if let Some(place @ Place::View(path, format)) = &place {
            let view = Self::open_as(&inode).map_or_else(|| self.view(path, format), Ok)?;
            if self.truncate_view(&inode, &view, len).at(place.shown())? {
                self.invalidate(&inode);
            }
            return self.attr(&inode);
        }
        self.truncate_and_store(&inode, len)?;
        self.getattr(number)
    }

    /// Gives a file a mode that was made here and is not stored yet; whether it is one.
    pub fn set_mode(&self, number: u64, mode: u16) -> Result<bool> {
        let inode = self.inode(number)?;
        let mut file = inode.file().lock();
        let is_new = file.mode.is_some();
        if is_new {
            file.mode = Some(mode);
        }
        Ok(is_new)
    }

    /// Whether a file can have `len` bytes; [`Kind::TooLarge`] where it cannot.
    pub fn check_len(&self, number: u64, len: u64) -> Result<()> {
        self.check_longest(self.inode(number)?.place().as_ref(), len)
    }

    /// Sets when a file was last modified.
    pub fn set_modified(&self, number: u64, modified: SystemTime) -> Result<Attr> {
        self.hierarchy.store().write()?;
        let inode = self.inode(number)?;
        self.set_modified_content(&inode, modified)?;
        self.getattr(number)
    }

    /// Stores everything that waits and is complete, and returns when it survives a power cut. What a program
    /// is still writing is its own to complete. All is tried before the first error is returned.
    pub fn sync(&self) -> Result<()> {
        let directories = self.store_directories(Duration::ZERO);
        let stored = directories.and(self.sync_files());
        self.rest(Duration::ZERO);
        stored
    }

    fn sync_files(&self) -> Result<()> {
        let mut first = Ok(());
        for inode in self.overlay.files().into_iter().chain(self.open_files()) {
            first = first.and(self.store_content(&inode, commit::When::Everything));
        }
        first = first.and(self.store_shards(Due::All));
        first.and(self.unsynced.sync_all(self.hierarchy.store()))
    }

    /// Stores the scratch files, the shards and the directories that have lived long enough; to be called now and then.
    pub fn tick(&self) {
        for error in self.hierarchy.take_notes() {
            self.note("consolidated metadata are not shown", &error);
        }
        if let Err(error) = self.store_directories(self.options.writeback_delay) {
            self.note("write back", &error);
        }
        for inode in self.overlay.files() {
            if let Err(error) = self.store_content(&inode, commit::When::Aged) {
                self.note("write back", &error);
            }
        }
        // Told as they fail, and whoever closes or syncs next in the shard.
        let stored = self.store_shards(Due::Since(self.options.writeback_delay));
        stored.unwrap_or_else(|error| log::debug!("{error}"));
        self.inodes.sweep();
        self.passed.sweep(&self.cache);
        self.cache.set_elsewhere(Elsewhere::MemoryFiles, self.passed.len());
        self.drop_old_spans();
        buffer::rest();
        if self.unsynced.len() > MAX_UNSYNCED
            && let Err(error) = self.unsynced.sync_all(self.hierarchy.store())
        {
            self.note("write back", &error);
        }
        self.rest(QUIET);
    }

    /// Nothing stays in the store that is there for writing alone, where nothing was written for `quiet`.
    fn rest(&self, quiet: Duration) {
        self.hierarchy.rest(quiet);
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

    /// The attributes of what is at `place`, which the kernel is told of now.
    fn told(&self, place: &Place) -> Result<Attr> {
        self.told_knowing(place, None)
    }

    /// The same, where it is known what is stored there: for a chunk.
    fn told_knowing(&self, place: &Place, stored: Option<&Stat>) -> Result<Attr> {
        // Most names of a listing nobody knows yet.
        if stored.is_some() && !self.inodes.is_known(place) {
            let attr = self.attr_at(place, stored)?;
            if let Some(number) = self.inodes.tell_new(place) {
                return Ok(Attr { number, ..attr });
            }
        }
        let mut attempts = 0;
        loop {
            let inode = self.inode_for_name(place);
            let attr = self.attr_knowing(&inode, stored);
            attempts += 1;
            // Another file may take the name while this one is looked at.
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

    /// Whether an answer about `number`, or about `name` in it, may take its time: a node is being made, moved or
    /// removed, a chunk must be decoded, or the header of a view be made.
    pub fn may_take_time(&self, number: u64, name: Option<&str>) -> bool {
        self.tree_lock.is_locked_exclusive()
            || name.is_some_and(Self::is_view_name)
            || self.may_decode(number)
            || self.may_show_many(number, name)
    }

    /// Whether `number`, or a name in it, is a document that others are copied into.
    fn may_show_many(&self, number: u64, name: Option<&str>) -> bool {
        match self.inodes.get(number).and_then(|inode| inode.place()) {
            Some(Place::Node(path)) if matches!(name, Some(DOCUMENT | ZMETADATA)) => {
                self.hierarchy.shows_many(&path)
            }
            Some(Place::Document(path) | Place::Copies(path)) => self.hierarchy.shows_many(&path),
            _ => false,
        }
    }

    /// Notes that something is done at a place, so that a directory above it that was made is not taken to be done.
    fn touch(&self, place: &Place) {
        if let Some(path) = place.node() {
            self.hierarchy.touch(path);
        }
    }

    /// The right to store an inode: alone, where that makes or changes a node; of a chunk, while no node is made, moved
    /// or removed: it waits, or is stored, where its array is.
    fn turn(&self, inode: &Inode) -> Option<TreeLock<'_>> {
        match inode.place()? {
            place if place.is_document() => {
                // What can be stored before takes nobody's time.
                if let Some(path) = place.node() {
                    self.store_array_before(path);
                }
                Some(TreeLock::Alone { _guard: self.tree_lock.write() })
            }
            Place::Chunk(..) => Some(TreeLock::Shared { _guard: self.tree_lock.read() }),
            _ => None,
        }
    }

    fn invalidate(&self, inode: &Inode) {
        if let Some(invalidate) = &*self.invalidate.lock() {
            invalidate(inode.number());
        }
    }
}

#[cfg(test)]
mod tests;
