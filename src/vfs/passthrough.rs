//! FUSE passthrough of chunks and small views: the kernel reads a backing file without asking
//! zarrfs. An uncompressed chunk is backed by its own file in the store, anything else by a memory
//! file with the decoded bytes. This saves copying each answer into the page cache, more than half
//! of the cost of other reads.
//!
//! The kernel reads an inode in one way at a time. While a file is open with passthrough, opening
//! it in another way or with another backing file fails with `EIO`. So an inode counts its handles
//! with passthrough (`PassthroughState`). It learns of a close later than the kernel does, which is
//! safe. A program that wants to write, or that finds another version stored, gets `ESTALE`. The
//! kernel then looks the name up again and finds a new inode (`Vfs::detach_from_name`). The old
//! inode remembers it as its successor, even if it is renamed later. Programs that have the old
//! inode open keep reading what they opened.
//!
//! - For five seconds after that, the array is read through the page cache, so that the kernel does
//!   not look up names again at every open.
//! - A program that uses the old inode number within a second may have looked up the name before,
//!   and gets `ESTALE` too. Later, only programs that have the file open can use the number
//!   (`/proc/self/fd`), and they get the old file.
//! - A chunk with passthrough is current only while no chunk of its array changes in this mount: a
//!   stored version may return, because programs can set times.
//! - A handle of a replaced file, for which passthrough is impossible, reads the same memory file
//!   through this process. So all handles are counted in one way (`vfs::open::Source`), whatever
//!   the name means by then.
//!
//! Memory files take at most half of the cache, apart from those that programs still have mapped,
//! and the chunk cache does not hold the same chunks. The page cache keeps the rest: chunks that a
//! longer sequential read has passed, and chunks that are read again after their eviction. A view
//! of at most 4 MiB and 64 chunks is generated as a whole when it is opened, and passthrough serves
//! it like a chunk as long as it is current by the rule of `view_pages`. Longer views are read
//! through the page cache. A program that only writes bypasses the page cache
//! (`fuse::terms::is_past_pages`), since filling pages that are never read would take most of the
//! time.
//!
//! The model of the tree (`vfs::tests::model`) also runs with passthrough for chunks of any length.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use lru::LruCache;
use parking_lot::Mutex;

use super::Vfs;
use super::attr::Attr;
use super::file::{Content, File};
use super::inode::Inode;
use super::open::Access;
use super::place::Place;
use super::view_pages::{KernelPages, Seen as SeenChunks};
use super::views::OpenView;
use crate::array::{Array, ArrayId, Coords};
use crate::backing::{Backing, MemoryFiles};
use crate::cache::{ChunkCache, Elsewhere};
use crate::error::{Error, Kind, Result};
use crate::metadata::NodePath;
use crate::resources::Part;
use crate::store::Version;

/// The most memory files, if the limit of open files allows as many.
const MOST_FILES: usize = 512;

/// The fraction of this process's file descriptors for memory files, and for store files that the
/// kernel reads. The rest is for files that are open during a call, and for listings.
const PART_IN_MEMORY: usize = 8;
const PART_OF_STORE: usize = 4;

/// When to use passthrough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassthroughOptions {
    /// The least bytes of a chunk: shorter ones are faster through the page cache.
    pub shortest: u64,
    /// How long an array is read through the page cache after a write interrupted passthrough.
    pub calm: Duration,
}

impl Default for PassthroughOptions {
    fn default() -> Self {
        Self { shortest: 64 << 10, calm: Duration::from_secs(5) }
    }
}

/// The most bytes of a view with passthrough; longer ones are generated as they are read.
const LONGEST_VIEW: u64 = 4 << 20;

/// The most chunks of a view with passthrough.
const MOST_CHUNKS: usize = 64;

/// How long to keep the memory file of a view after it was opened last.
const KEPT_VIEW: Duration = Duration::from_secs(60);

/// How long the kernel may still use the old inode number for a name.
const NAME_GRACE: Duration = Duration::from_secs(1);

/// The passthrough state of a file.
#[derive(Debug, Default)]
pub struct PassthroughState {
    /// The number of handles with passthrough: none or all of them.
    pub openers: u32,
    /// Their backing file, for a chunk with the state that it shows; `None` without handles.
    backing: Option<(Option<Seen>, Arc<Backing>)>,
    /// The version that was last read with passthrough.
    last: Option<Version>,
    /// Whether the page cache was used since then.
    pub has_pages: bool,
    /// When another inode got its name.
    lost_name_at: Option<Instant>,
}

impl PassthroughState {
    /// Ends a handle with passthrough.
    pub fn end(&mut self) {
        self.openers = self.openers.saturating_sub(1);
        if self.openers == 0 {
            self.backing = None;
        }
    }
}

/// The state of a chunk when it was opened: its version, and the generation of its array. A version
/// alone may return (a reused inode number, a time that was set).
type Seen = (Version, u64);

/// The contents of a memory file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Id {
    /// This chunk of this open array.
    Chunk(ArrayId, Coords),
    /// A view: its node, and the extension of its format.
    View(NodePath, &'static str),
}

/// Decoded chunks and small views in memory files.
#[derive(Debug)]
pub(super) struct BackingFiles {
    /// Whether passthrough is enabled, and supported by the kernel.
    is_possible: AtomicBool,
    /// Whether it works for files of the store; it does not if they are on an overlay.
    is_possible_of_store: AtomicBool,
    options: PassthroughOptions,
    limit: u64,
    files: MemoryFiles,
    /// Counts open files of the store.
    stored: Part,
    /// The memory files in order of use. A leaf lock.
    kept: Mutex<LruCache<Id, CachedFile>>,
    /// A lock for each memory file that is being filled, held over the decoding, so that it happens
    /// once. The lock of the table is a leaf.
    making: Mutex<HashMap<Id, Arc<Mutex<()>>>>,
    /// Nodes in which a write interrupted passthrough, and when. A leaf lock.
    contended: Mutex<HashMap<NodePath, Instant>>,
    /// The number of opens with passthrough.
    opened: AtomicU64,
}

#[derive(Debug)]
struct CachedFile {
    origin: Origin,
    backing: Arc<Backing>,
}

/// The origin of the bytes in a memory file.
#[derive(Debug)]
enum Origin {
    /// The array, and the state of the chunk.
    Chunk(Arc<Array>, Seen),
    /// The state of the view, and when it was opened last.
    View(KernelPages, Instant),
}

impl BackingFiles {
    /// Limits memory files to half of the cache.
    pub fn new(options: Option<PassthroughOptions>, cache_len: u64, descriptors: usize) -> Self {
        let limit = cache_len / 2;
        let most_files = MOST_FILES.min(descriptors / PART_IN_MEMORY);
        Self {
            is_possible: AtomicBool::new(options.is_some()),
            is_possible_of_store: AtomicBool::new(true),
            options: options.unwrap_or_default(),
            limit,
            files: MemoryFiles::new(limit, most_files),
            stored: Part::new(descriptors / PART_OF_STORE),
            kept: Mutex::new(LruCache::unbounded()),
            making: Mutex::default(),
            contended: Mutex::default(),
            opened: AtomicU64::new(0),
        }
    }

    /// Whether passthrough is enabled and supported.
    pub fn is_possible(&self) -> bool {
        self.is_possible.load(Ordering::Relaxed)
    }

    /// Returns the number of opens with passthrough.
    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Returns the number of open backing files: memory files, and files of the store.
    pub fn open_files(&self) -> usize {
        self.stored.taken().saturating_add(self.files.count())
    }

    /// Returns the bytes of all memory files.
    pub fn len(&self) -> u64 {
        self.files.len()
    }

    /// Records that a write interrupted passthrough in a node.
    fn record_contention(&self, path: &NodePath) {
        let mut contended = self.contended.lock();
        contended.retain(|_, at| at.elapsed() < self.options.calm);
        contended.insert(path.clone(), Instant::now());
    }

    /// Whether a write interrupted passthrough in a node recently, so that it pauses there.
    fn is_contended(&self, path: &NodePath) -> bool {
        self.contended.lock().get(path).is_some_and(|at| at.elapsed() < self.options.calm)
    }

    /// Whether a memory file has the current chunk.
    pub fn is_here(&self, cache: &ChunkCache, array: &Arc<Array>, coords: &Coords) -> bool {
        let generation = cache.generation(array);
        self.find(array, coords, (None, generation)).is_some()
    }

    /// Drops memory files that are outdated, or unused for long.
    pub fn sweep(&self, cache: &ChunkCache) {
        let known = |(id, kept): (&Id, &CachedFile)| match &kept.origin {
            Origin::Chunk(array, seen) => (id.clone(), Some((Arc::clone(array), seen.1)), false),
            Origin::View(_, used) => (id.clone(), None, used.elapsed() > KEPT_VIEW),
        };
        let all: Vec<_> = self.kept.lock().iter().map(known).collect();
        for (id, chunk, is_old) in all {
            let is_other =
                chunk.is_some_and(|(array, generation)| cache.generation(&array) != generation);
            if is_other || is_old {
                let gone = self.kept.lock().pop(&id);
                drop(gone);
            }
        }
    }

    /// Drops a chunk that a sequential read has passed, if the array exceeds the limit: it would be
    /// evicted before the next sequential read reaches it.
    pub fn let_go(&self, array: &Arc<Array>, passed: &Coords) {
        let chunks = array.grid().counts().iter().copied().fold(1, u64::saturating_mul);
        if chunks.saturating_mul(array.longest_chunk_len().longest()) > self.limit {
            let gone = self.kept.lock().pop(&id(array, passed));
            drop(gone);
        }
    }

    /// Returns a memory file with a chunk, decoded if necessary, in the given version if there is
    /// one. `None` if the chunk is unsuitable.
    pub fn chunk(
        &self,
        cache: &ChunkCache,
        array: &Arc<Array>,
        coords: &Coords,
        version: Option<Version>,
    ) -> Option<Arc<Backing>> {
        let len = array.longest_chunk_len().longest();
        if len < self.options.shortest || len > self.limit / 4 {
            return None;
        }
        // Read the generation first, so that every later change counts.
        let generation = cache.generation(array);
        if let Some(backing) = self.find(array, coords, (version, generation)) {
            return Some(backing);
        }
        if cache.is_pending(array, coords) {
            return None;
        }
        self.once(&id(array, coords), || self.make(cache, array, coords, (version, generation)))
    }

    /// Runs `make`, one thread at a time for each `id`. `make` must look first whether another
    /// thread has made the file.
    fn once<T>(&self, id: &Id, make: impl FnOnce() -> T) -> T {
        let lock = Arc::clone(self.making.lock().entry(id.clone()).or_default());
        let guard = lock.lock();
        let made = make();
        self.making.lock().remove(id);
        drop(guard);
        made
    }

    fn make(
        &self,
        cache: &ChunkCache,
        array: &Arc<Array>,
        coords: &Coords,
        (version, generation): (Option<Version>, u64),
    ) -> Option<Arc<Backing>> {
        if let Some(backing) = self.find(array, coords, (version, generation)) {
            return Some(backing); // Another one was faster.
        }
        // A read of the chunk will report why it cannot be decoded.
        let chunk = cache.get(array, coords).ok()??;
        let read = chunk.stat.version;
        if version.is_some_and(|version| !read.holds(version)) || read.is_unstored() {
            return None;
        }
        let origin = Origin::Chunk(Arc::clone(array), (read, generation));
        let backing = self.keep(id(array, coords), origin, &chunk.bytes, chunk.stat.modified)?;
        cache.remove(array, coords);
        cache.set_elsewhere(Elsewhere::MemoryFiles, self.len());
        Some(backing)
    }

    /// Creates a memory file with these bytes and keeps it; `None` if there is no room.
    fn keep(
        &self,
        id: Id,
        origin: Origin,
        bytes: &[u8],
        modified: SystemTime,
    ) -> Option<Arc<Backing>> {
        let backing = Arc::new(self.fill(bytes, modified)?);
        let kept = CachedFile { origin, backing: Arc::clone(&backing) };
        let replaced = self.kept.lock().push(id, kept);
        drop(replaced);
        Some(backing)
    }

    /// Returns the memory file of a view, and the state of the view in it.
    fn find_view(&self, id: &Id) -> Option<(KernelPages, Arc<Backing>)> {
        match self.kept.lock().get(id) {
            Some(CachedFile { origin: Origin::View(pages, _), backing }) => {
                Some((pages.clone(), Arc::clone(backing)))
            }
            _ => None,
        }
    }

    /// Records that the memory file of a view is opened, and when it was last known to match the
    /// store.
    fn renew_view(&self, id: &Id, known: Instant, opened: Instant) {
        if let Some(CachedFile { origin: Origin::View(pages, used), .. }) =
            self.kept.lock().get_mut(id)
        {
            (pages.since, *used) = (known, opened);
        }
    }

    fn find(
        &self,
        array: &Arc<Array>,
        coords: &Coords,
        (version, generation): (Option<Version>, u64),
    ) -> Option<Arc<Backing>> {
        let mut kept = self.kept.lock();
        let CachedFile { origin: Origin::Chunk(_, seen), backing } =
            kept.get(&id(array, coords))?
        else {
            return None;
        };
        let is_it = generation == seen.1 && version.is_none_or(|version| seen.0.holds(version));
        is_it.then(|| Arc::clone(backing))
    }

    /// Creates a memory file with these bytes, evicting others if necessary.
    fn fill(&self, bytes: &[u8], modified: SystemTime) -> Option<Backing> {
        loop {
            match self.files.with(bytes, modified) {
                Ok(Some(backing)) => return Some(backing),
                Ok(None) => {
                    let oldest = self.kept.lock().pop_lru()?;
                    drop(oldest);
                }
                Err(error) => {
                    log::debug!("memory file: {error}");
                    return None;
                }
            }
        }
    }
}

impl Vfs {
    /// Returns the backing file for a reader of a chunk that is stored as `version`; `None` if it
    /// should use the page cache.
    pub(super) fn backing_for_chunk(
        &self,
        file: &mut File,
        path: &NodePath,
        (array, coords): (&Arc<Array>, &Coords),
        version: Version,
    ) -> Option<Arc<Backing>> {
        let state = &file.passthrough;
        let seen = (version, self.cache.generation(array));
        if let Some((opened, backing)) = &state.backing {
            let backing = Arc::clone(backing);
            let is_same = opened
                .is_some_and(|(version, generation)| version.holds(seen.0) && generation == seen.1);
            let is_it = is_same && file.may_use_passthrough();
            return is_it.then(|| self.settle_with_passthrough(file, seen, backing));
        }
        if !file.may_use_passthrough() || !self.backing_files.is_possible() || version.is_unstored()
        {
            return None;
        }
        let is_in_pages = state.has_pages && file.seen.is_some_and(|seen| seen.holds(version));
        if is_in_pages || self.backing_files.is_contended(path) {
            return None;
        }
        let stored = if self.can_back_with_store(array, coords) {
            // If too many store files are open, the page cache serves the chunk.
            let taken = self.backing_files.stored.take()?;
            array.open_decoded(coords).transpose().map(|stored| (stored, taken))
        } else {
            None
        };
        let backing = if let Some((stored, taken)) = stored {
            let (stored, stat) = stored.ok().filter(|(_, stat)| version.is_same(stat.version))?;
            let is_long = stat.len >= self.backing_files.options.shortest;
            Arc::new(is_long.then(|| Backing::stored(stored, stat.len, stat.modified, taken))?)
        } else {
            // The chunk was evicted and is read again: this time the page cache should keep it.
            if state.last.is_some_and(|last| last.is_same(version))
                && !self.backing_files.is_here(&self.cache, array, coords)
            {
                return None;
            }
            self.backing_files.chunk(&self.cache, array, coords, Some(version))?
        };
        Some(self.settle_with_passthrough(file, seen, backing))
    }

    fn settle_with_passthrough(
        &self,
        file: &mut File,
        seen: Seen,
        backing: Arc<Backing>,
    ) -> Arc<Backing> {
        file.settle();
        self.count_passthrough(file, Some(seen), backing)
    }

    /// Whether opening a file only opens the store's own file for passthrough, which is quick.
    pub fn opens_stored(&self, number: u64, access: Access) -> bool {
        let Some(inode) = self.inodes.get(number) else { return false };
        let Some(Place::Chunk(path, coords)) = inode.place() else { return false };
        // A thread that stores the file has it locked.
        let is_busy = inode.known_file().is_some_and(|file| file.is_locked());
        access == Access::Read
            && !is_busy
            && self.backing_files.is_possible()
            && !self.tree_lock.is_locked_exclusive()
            && self.array(&path).is_ok_and(|array| array.is_stored_decoded(&coords))
    }

    /// Whether the store's own file can back a chunk.
    fn can_back_with_store(&self, array: &Array, coords: &Coords) -> bool {
        self.backing_files.is_possible_of_store.load(Ordering::Relaxed)
            && array.is_stored_decoded(coords)
    }

    /// Returns the backing file for another handle of a file that has lost its name. `None` shortly
    /// after that, while the kernel may still use the number for the name.
    pub(super) fn backing_for_unnamed(&self, file: &mut File) -> Option<Arc<Backing>> {
        let window = NAME_GRACE.min(self.backing_files.options.calm);
        if file.passthrough.lost_name_at.is_some_and(|lost_at| lost_at.elapsed() < window) {
            return None;
        }
        let (seen, backing) = file.passthrough.backing.clone()?;
        Some(self.count_passthrough(file, seen, backing))
    }

    /// Returns the attributes of a file with passthrough that has lost its name.
    pub(super) fn attr_of_unnamed(inode: &Inode) -> Option<Attr> {
        let file = inode.known_file()?.lock();
        let (_, backing) = file.passthrough.backing.as_ref().filter(|_| inode.place().is_none())?;
        Some(Attr {
            number: inode.number(),
            is_dir: false,
            len: backing.len(),
            blocks: Attr::blocks_of(backing.len(), backing.len()),
            links: 0,
            may_change: true,
            ..Attr::directory(backing.modified())
        })
    }

    /// Returns the backing file for a reader of a small view. Fails if passthrough is in use with
    /// another backing file.
    pub(super) fn backing_for_view(
        &self,
        inode: &Arc<Inode>,
        open: &OpenView,
        access: Access,
    ) -> Result<Option<Arc<Backing>>> {
        // Do not generate a file that cannot be used.
        let is_wanted = access == Access::Read && inode.file().lock().may_use_passthrough();
        let found = is_wanted.then(|| self.view_file(open)).flatten();
        let mut file = inode.file().lock();
        if inode.place().is_none() {
            return Err(Error::not_found()); // It just lost its name to a new one.
        }
        let is_same = |found: &Arc<Backing>| match &file.passthrough.backing {
            Some((_, opened)) => Arc::ptr_eq(opened, found),
            None => true,
        };
        match found {
            Some(found) if file.may_use_passthrough() && is_same(&found) => {
                file.settle();
                Ok(Some(self.count_passthrough(&mut file, None, found)))
            }
            _ if file.passthrough.openers > 0 => Err(self.detach_from_name(inode, &mut file)),
            _ => {
                file.settle();
                Ok(None)
            }
        }
    }

    /// Returns a memory file with a small view, a new one if necessary. `None` if the view is
    /// unsuitable.
    fn view_file(&self, open: &OpenView) -> Option<Arc<Backing>> {
        let (len, shortest) = (open.view.len(), self.backing_files.options.shortest);
        if !self.backing_files.is_possible() || self.backing_files.is_contended(&open.path) {
            return None;
        }
        let is_small = (shortest..=LONGEST_VIEW.min(self.backing_files.limit / 4)).contains(&len);
        if !is_small || !Self::is_of_chunks(&open.view, MOST_CHUNKS) || open.view.is_rewritten() {
            return None;
        }
        let id = Id::View(open.path.clone(), open.format.extension);
        self.backing_files.once(&id, || self.make_view_file(&id, open))
    }

    fn make_view_file(&self, id: &Id, open: &OpenView) -> Option<Arc<Backing>> {
        if let Some((pages, backing)) = self.backing_files.find_view(id)
            && let Some(known) = self.known_since(&pages, open)
        {
            self.backing_files.renew_view(id, known, open.opened);
            return Some(backing);
        }
        let seen = Arc::new(SeenChunks::default());
        let bytes = self.whole_view(open, &seen)?;
        let (view, generations) = (Arc::clone(&open.view), open.generations);
        let pages = KernelPages { generations, since: open.opened, view, seen };
        let origin = Origin::View(pages, open.opened);
        let backing = self.backing_files.keep(id.clone(), origin, &bytes, open.modified);
        self.cache.set_elsewhere(Elsewhere::MemoryFiles, self.backing_files.len());
        backing
    }

    fn count_passthrough(
        &self,
        file: &mut File,
        seen: Option<Seen>,
        backing: Arc<Backing>,
    ) -> Arc<Backing> {
        let state = &mut file.passthrough;
        state.openers = state.openers.saturating_add(1);
        (state.last, state.has_pages) = (seen.map(|seen| seen.0), false);
        state.backing = Some((seen, Arc::clone(&backing)));
        file.seen = None; // The kernel keeps no pages, except of a file that it cannot read by itself.
        self.backing_files.opened.fetch_add(1, Ordering::Relaxed);
        backing
    }

    /// Whether the kernel reads a file with passthrough.
    pub(super) fn uses_passthrough(inode: &Inode) -> bool {
        inode.known_file().is_some_and(|file| file.lock().passthrough.openers > 0)
    }

    /// Gives the name of a locked file with passthrough to a new inode without it. Returns the
    /// error that makes the kernel look up the name again.
    pub(super) fn detach_from_name(&self, inode: &Arc<Inode>, file: &mut File) -> Error {
        if matches!(file.content, Content::Unstored(_)) {
            let detail = "other readers still have the previous contents open";
            return Error::new(Kind::Busy, detail);
        }
        if let Some(path) = inode.place().as_ref().and_then(Place::node) {
            self.backing_files.record_contention(path);
        }
        if let Some(new) = self.inodes.renew(inode) {
            file.passthrough.lost_name_at = Some(Instant::now());
            self.inodes.release(new);
        }
        Error::not_found()
    }

    /// Disables passthrough for this kind of backing file, because the kernel refused it.
    pub fn disable_passthrough(&self, backing: &Backing, why: &str) {
        let (possible, what) = if backing.is_in_memory() {
            (&self.backing_files.is_possible, "zarrfs copies decoded chunks into the page cache")
        } else {
            (
                &self.backing_files.is_possible_of_store,
                "zarrfs copies the store's files into the page \
                 cache",
            )
        };
        if possible.swap(false, Ordering::Relaxed) {
            log::info!("no FUSE passthrough, so {what}: {why}");
        }
    }
}

fn id(array: &Arc<Array>, coords: &Coords) -> Id {
    Id::Chunk(array.id(), coords.clone())
}
