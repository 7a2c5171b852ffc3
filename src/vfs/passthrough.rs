//! Chunks and small views that the kernel reads by itself (FUSE passthrough): stored decoded chunks
//! from the store's own file, others from a memory file with the decoded bytes. This saves the
//! pages that the kernel would make of each answer, more than half of the cost of reading without
//! it.
//!
//! The kernel reads an inode in one way at a time. While a file is open this way, it refuses with
//! `EIO` to open it in another way or from another file. So an inode counts the handles that read
//! it this way (`Passing`). It learns of a close later than the kernel does, which is the safe
//! side. A program that wants to write, or that finds another version stored, gets `ESTALE`. The
//! kernel then looks the name up again and finds a new inode (`Vfs::part`), which the old one knows
//! as its successor wherever that goes. Programs that have the old inode open read on what they
//! have opened.
//!
//! - For five seconds after that the array is read through the page cache, so that the kernel looks
//!   names up again once and not each time.
//! - A program that uses the old inode number within a second may have come by the name, and is
//!   sent back to it. Later only programs that have the file open can (`/proc/self/fd`), and they
//!   get it as it was.
//! - A chunk that is in a memory file or open this way is current only while no chunk of its array
//!   was changed here: a stored version may come again, since programs set times.
//! - A handle of a replaced file, which the kernel cannot read by itself, reads the same memory
//!   file through this process. So all openers are counted in one way (`vfs::open::Source`),
//!   whatever the name leads to by then.
//!
//! Memory files take at most half of the cache, besides those that programs still have mapped, and
//! the chunk cache does not hold what they hold. The page cache keeps the rest: chunks that a
//! longer sequential read has passed, and chunks that are read again after they have left. A view
//! of at most 4 MiB and 64 chunks is made as a whole when it is opened, and is passed like a chunk
//! while it is current by the rule of `view_pages`. Longer views are read through the page cache. A
//! program that only writes goes past the page cache (`fuse::terms::is_past_pages`), since making
//! pages that it never reads takes longer than all else.
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

/// Memory files that there may be, if as many files may be open: each is one.
const MOST_FILES: usize = 512;

/// The parts of the files that this process may have open: memory files, and files of the store
/// that the kernel reads. The rest is for what is opened for the time of one call, and for
/// listings.
const PART_IN_MEMORY: usize = 8;
const PART_OF_STORE: usize = 4;

/// When the kernel is to read chunks by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passthrough {
    /// Bytes that a chunk has at least: shorter ones are read faster through the kernel's pages.
    pub shortest: u64,
    /// How long the chunks of an array are read through the page cache after one had to give way to
    /// a writer.
    pub calm: Duration,
}

impl Default for Passthrough {
    fn default() -> Self {
        Self { shortest: 64 << 10, calm: Duration::from_secs(5) }
    }
}

/// Longer views are made as they are read.
const LONGEST_VIEW: u64 = 4 << 20;

/// And those of more chunks.
const MOST_CHUNKS: usize = 64;

/// How long a view is kept that nobody opens.
const KEPT_VIEW: Duration = Duration::from_secs(60);

/// How long the kernel may still know a name by the number of the file that was parted from it.
const PARTED: Duration = Duration::from_secs(1);

/// How the kernel reads a file by itself.
#[derive(Debug, Default)]
pub struct Passing {
    /// Handles that are read so: none or all of them.
    pub openers: u32,
    /// What they are read from; none where there are none. Of a chunk with what was stored then.
    backing: Option<(Option<Seen>, Arc<Backing>)>,
    /// The version that was last read so.
    last: Option<Version>,
    /// Whether somebody has read it through the kernel's pages since.
    pub has_pages: bool,
    /// When another inode got its name.
    parted: Option<Instant>,
}

impl Passing {
    /// Ends a handle on a file that the kernel reads by itself.
    pub fn end(&mut self) {
        self.openers = self.openers.saturating_sub(1);
        if self.openers == 0 {
            self.backing = None;
        }
    }
}

/// What was stored when a chunk was opened: its version, and the generation of its array, since a
/// version may come again (an inode number that is free again, a time that was set).
type Seen = (Version, u64);

/// What a memory file has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Id {
    /// This chunk of this open array.
    Chunk(ArrayId, Coords),
    /// A view: its node, and the extension of its format.
    View(NodePath, &'static str),
}

/// Decoded chunks, and small views, in memory files.
#[derive(Debug)]
pub(super) struct Passed {
    /// Whether the kernel can do it, and is to.
    is_possible: AtomicBool,
    /// Whether it can with files of the store: it cannot where that lies on an overlay.
    is_possible_of_store: AtomicBool,
    options: Passthrough,
    limit: u64,
    files: MemoryFiles,
    /// Files of the store.
    stored: Part,
    /// In order of use. A leaf.
    kept: Mutex<LruCache<Id, Kept>>,
    /// What is being put into memory files, so that it is not decoded twice: locked over that. The
    /// table is a leaf.
    making: Mutex<HashMap<Id, Arc<Mutex<()>>>>,
    /// Nodes in which a reader had to be parted from, and when. A leaf.
    parted: Mutex<HashMap<NodePath, Instant>>,
    /// How often a file was opened so.
    opened: AtomicU64,
}

#[derive(Debug)]
struct Kept {
    of: Of,
    backing: Arc<Backing>,
}

/// What the bytes of a memory file were made of.
#[derive(Debug)]
enum Of {
    /// The array is held so that the address in its id stays taken.
    Chunk(Arc<Array>, Seen),
    /// With when it was opened last.
    View(KernelPages, Instant),
}

impl Passed {
    /// Half of the cache is for memory files at most.
    pub fn new(options: Option<Passthrough>, cache_len: u64, descriptors: usize) -> Self {
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
            parted: Mutex::default(),
            opened: AtomicU64::new(0),
        }
    }

    /// Whether the kernel may read files by itself.
    pub fn is_possible(&self) -> bool {
        self.is_possible.load(Ordering::Relaxed)
    }

    /// How often a file was opened so.
    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// How many files are open that the kernel reads: those of the store, and memory files.
    pub fn open_files(&self) -> usize {
        self.stored.taken().saturating_add(self.files.count())
    }

    /// Bytes of memory files.
    pub fn len(&self) -> u64 {
        self.files.len()
    }

    /// Notes that a node is written to while it is read.
    fn note_parted(&self, path: &NodePath) {
        let mut parted = self.parted.lock();
        parted.retain(|_, at| at.elapsed() < self.options.calm);
        parted.insert(path.clone(), Instant::now());
    }

    /// Whether a node is written to while it is read: the kernel looks a name up again once, and
    /// not each time.
    fn is_contended(&self, path: &NodePath) -> bool {
        self.parted.lock().get(path).is_some_and(|at| at.elapsed() < self.options.calm)
    }

    /// Whether a chunk is in a memory file.
    pub fn is_here(&self, cache: &ChunkCache, array: &Arc<Array>, coords: &Coords) -> bool {
        let generation = cache.generation(array);
        self.find(array, coords, (None, generation)).is_some()
    }

    /// Lets go of what was decoded before chunks of its array were changed here.
    pub fn sweep(&self, cache: &ChunkCache) {
        let known = |(id, kept): (&Id, &Kept)| match &kept.of {
            Of::Chunk(array, seen) => (id.clone(), Some((Arc::clone(array), seen.1)), false),
            Of::View(_, used) => (id.clone(), None, used.elapsed() > KEPT_VIEW),
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

    /// Lets go of chunks that a sweep has passed, where it will have passed all that fit before it
    /// comes again.
    pub fn let_go(&self, array: &Arc<Array>, passed: &Coords) {
        let chunks = array.grid().counts().iter().copied().fold(1, u64::saturating_mul);
        if chunks.saturating_mul(array.longest_chunk_len().longest()) > self.limit {
            let gone = self.kept.lock().pop(&id(array, passed));
            drop(gone);
        }
    }

    /// A chunk in a memory file, decoded if need be; of a certain version where one is given. None
    /// where it cannot be had so.
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
        // Before the chunk is looked at: whatever changes it from here on counts.
        let generation = cache.generation(array);
        if let Some(backing) = self.find(array, coords, (version, generation)) {
            return Some(backing);
        }
        if cache.is_pending(array, coords) {
            return None;
        }
        self.once(&id(array, coords), || self.make(cache, array, coords, (version, generation)))
    }

    /// Makes a memory file, or finds what another one has made meanwhile: `make` looks for that
    /// first.
    fn once<T>(&self, id: &Id, make: impl FnOnce() -> T) -> T {
        let turn = Arc::clone(self.making.lock().entry(id.clone()).or_default());
        let alone = turn.lock();
        let made = make();
        self.making.lock().remove(id);
        drop(alone);
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
        // Who reads it is told why it cannot be decoded.
        let chunk = cache.get(array, coords).ok()??;
        let read = chunk.stat.version;
        if version.is_some_and(|version| !read.holds(version)) || read.is_unstored() {
            return None;
        }
        let of = Of::Chunk(Arc::clone(array), (read, generation));
        let backing = self.keep(id(array, coords), of, &chunk.bytes, chunk.stat.modified)?;
        cache.remove(array, coords);
        cache.set_elsewhere(Elsewhere::MemoryFiles, self.len());
        Some(backing)
    }

    /// Puts bytes that were stored then into a memory file, which is kept; none where there can be
    /// none.
    fn keep(&self, id: Id, of: Of, bytes: &[u8], modified: SystemTime) -> Option<Arc<Backing>> {
        let backing = Arc::new(self.fill(bytes, modified)?);
        let kept = Kept { of, backing: Arc::clone(&backing) };
        let replaced = self.kept.lock().push(id, kept);
        drop(replaced);
        Some(backing)
    }

    /// A view in a memory file, and what it was made of.
    fn find_view(&self, id: &Id) -> Option<(KernelPages, Arc<Backing>)> {
        match self.kept.lock().get(id) {
            Some(Kept { of: Of::View(pages, _), backing }) => {
                Some((pages.clone(), Arc::clone(backing)))
            }
            _ => None,
        }
    }

    /// Notes that a view in a memory file is opened, and since when it is known to be what is
    /// stored.
    fn renew_view(&self, id: &Id, known: Instant, opened: Instant) {
        if let Some(Kept { of: Of::View(pages, used), .. }) = self.kept.lock().get_mut(id) {
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
        let Kept { of: Of::Chunk(_, seen), backing } = kept.get(&id(array, coords))? else {
            return None;
        };
        let is_it = generation == seen.1 && version.is_none_or(|version| seen.0.holds(version));
        is_it.then(|| Arc::clone(backing))
    }

    /// A memory file with these bytes, for which others may have to go.
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
    /// What the kernel is to read a chunk from that is opened to be read, and that the store has as
    /// `version`.
    pub(super) fn pass(
        &self,
        file: &mut File,
        path: &NodePath,
        (array, coords): (&Arc<Array>, &Coords),
        version: Version,
    ) -> Option<Arc<Backing>> {
        let passing = &file.passing;
        let seen = (version, self.cache.generation(array));
        if let Some((opened, backing)) = &passing.backing {
            let backing = Arc::clone(backing);
            let is_same = opened
                .is_some_and(|(version, generation)| version.holds(seen.0) && generation == seen.1);
            let is_it = is_same && file.is_for_kernel();
            return is_it.then(|| self.settle_passing(file, seen, backing));
        }
        if !file.is_for_kernel() || !self.passed.is_possible() || version.is_unstored() {
            return None;
        }
        let is_in_pages = passing.has_pages && file.seen.is_some_and(|seen| seen.holds(version));
        if is_in_pages || self.passed.is_contended(path) {
            return None;
        }
        let stored = if self.may_be_stored(array, coords) {
            // Where too many are open others are read through the page cache.
            let taken = self.passed.stored.take()?;
            array.open_decoded(coords).transpose().map(|stored| (stored, taken))
        } else {
            None
        };
        let backing = if let Some((stored, taken)) = stored {
            let (stored, stat) = stored.ok().filter(|(_, stat)| version.is_same(stat.version))?;
            let is_long = stat.len >= self.passed.options.shortest;
            Arc::new(is_long.then(|| Backing::stored(stored, stat.len, stat.modified, taken))?)
        } else {
            // What was read before, and is not here any more, the kernel had better keep.
            if passing.last.is_some_and(|last| last.is_same(version))
                && !self.passed.is_here(&self.cache, array, coords)
            {
                return None;
            }
            self.passed.chunk(&self.cache, array, coords, Some(version))?
        };
        Some(self.settle_passing(file, seen, backing))
    }

    fn settle_passing(&self, file: &mut File, seen: Seen, backing: Arc<Backing>) -> Arc<Backing> {
        file.settle();
        self.count_passing(file, Some(seen), backing)
    }

    /// Whether a file is a chunk that the kernel reads from the store's own file, if anybody opens
    /// it to read it: there is nothing to decode, and little to wait for.
    pub fn opens_stored(&self, number: u64, access: Access) -> bool {
        let Some(inode) = self.inodes.get(number) else { return false };
        let Some(Place::Chunk(path, coords)) = inode.place() else { return false };
        // Who stores it has it locked meanwhile.
        let is_busy = inode.known_file().is_some_and(|file| file.is_locked());
        access == Access::Read
            && !is_busy
            && self.passed.is_possible()
            && !self.tree_lock.is_locked_exclusive()
            && self.array(&path).is_ok_and(|array| array.is_stored_decoded(&coords))
    }

    /// Whether the store has a chunk decoded, in a file that the kernel can read.
    fn may_be_stored(&self, array: &Array, coords: &Coords) -> bool {
        self.passed.is_possible_of_store.load(Ordering::Relaxed) && array.is_stored_decoded(coords)
    }

    /// What another handle on a file that is read so, and has lost its name, is to be read from.
    /// None while whoever asks may have come by that name, which is another file's now.
    pub(super) fn pass_again(&self, file: &mut File) -> Option<Arc<Backing>> {
        let window = PARTED.min(self.passed.options.calm);
        if file.passing.parted.is_some_and(|parted| parted.elapsed() < window) {
            return None;
        }
        let (seen, backing) = file.passing.backing.clone()?;
        Some(self.count_passing(file, seen, backing))
    }

    /// The attributes of a file that has no name any more, and that the kernel reads by itself.
    pub(super) fn attr_of_parted(inode: &Inode) -> Option<Attr> {
        let file = inode.known_file()?.lock();
        let (_, backing) = file.passing.backing.as_ref().filter(|_| inode.place().is_none())?;
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

    /// What the kernel is to read a small view from that is opened to be read. An error where it is
    /// reading another one in its place.
    pub(super) fn pass_view(
        &self,
        inode: &Arc<Inode>,
        open: &OpenView,
        access: Access,
    ) -> Result<Option<Arc<Backing>>> {
        // What cannot be used is not made.
        let is_wanted = access == Access::Read && inode.file().lock().is_for_kernel();
        let found = is_wanted.then(|| self.view_file(open)).flatten();
        let mut file = inode.file().lock();
        if inode.place().is_none() {
            return Err(Error::not_found()); // It was parted from its name just now.
        }
        let is_same = |found: &Arc<Backing>| match &file.passing.backing {
            Some((_, opened)) => Arc::ptr_eq(opened, found),
            None => true,
        };
        match found {
            Some(found) if file.is_for_kernel() && is_same(&found) => {
                file.settle();
                Ok(Some(self.count_passing(&mut file, None, found)))
            }
            _ if file.passing.openers > 0 => Err(self.part(inode, &mut file)),
            _ => {
                file.settle();
                Ok(None)
            }
        }
    }

    /// A small view in a memory file: one that is what is stored, or a new one. None where it
    /// cannot be had so.
    fn view_file(&self, open: &OpenView) -> Option<Arc<Backing>> {
        let (len, shortest) = (open.view.len(), self.passed.options.shortest);
        if !self.passed.is_possible() || self.passed.is_contended(&open.path) {
            return None;
        }
        let is_small = (shortest..=LONGEST_VIEW.min(self.passed.limit / 4)).contains(&len);
        if !is_small || !Self::is_of_chunks(&open.view, MOST_CHUNKS) || open.view.is_rewritten() {
            return None;
        }
        let id = Id::View(open.path.clone(), open.format.extension);
        self.passed.once(&id, || self.make_view_file(&id, open))
    }

    fn make_view_file(&self, id: &Id, open: &OpenView) -> Option<Arc<Backing>> {
        if let Some((pages, backing)) = self.passed.find_view(id)
            && let Some(known) = self.known_since(&pages, open)
        {
            self.passed.renew_view(id, known, open.opened);
            return Some(backing);
        }
        let seen = Arc::new(SeenChunks::default());
        let bytes = self.whole_view(open, &seen)?;
        let (view, generations) = (Arc::clone(&open.view), open.generations);
        let pages = KernelPages { generations, since: open.opened, view, seen };
        let of = Of::View(pages, open.opened);
        let backing = self.passed.keep(id.clone(), of, &bytes, open.modified);
        self.cache.set_elsewhere(Elsewhere::MemoryFiles, self.passed.len());
        backing
    }

    fn count_passing(
        &self,
        file: &mut File,
        seen: Option<Seen>,
        backing: Arc<Backing>,
    ) -> Arc<Backing> {
        let passing = &mut file.passing;
        passing.openers = passing.openers.saturating_add(1);
        (passing.last, passing.has_pages) = (seen.map(|seen| seen.0), false);
        passing.backing = Some((seen, Arc::clone(&backing)));
        file.seen = None; // The kernel keeps no pages, except of a file that it cannot read by itself.
        self.passed.opened.fetch_add(1, Ordering::Relaxed);
        backing
    }

    /// Whether the kernel reads a file by itself.
    pub(super) fn is_passing(inode: &Inode) -> bool {
        inode.known_file().is_some_and(|file| file.lock().passing.openers > 0)
    }

    /// Gives the name of a file, which the kernel is reading by itself, to a new inode that it does
    /// not; to be called where the file is locked. Returns what makes the kernel look the name up
    /// again.
    pub(super) fn part(&self, inode: &Arc<Inode>, file: &mut File) -> Error {
        if matches!(file.content, Content::Unstored(_)) {
            let detail = "other readers still have the previous contents open";
            return Error::new(Kind::Busy, detail);
        }
        if let Some(path) = inode.place().as_ref().and_then(Place::node) {
            self.passed.note_parted(path);
        }
        if let Some(new) = self.inodes.renew(inode) {
            file.passing.parted = Some(Instant::now());
            self.inodes.release(new);
        }
        Error::not_found()
    }

    /// The kernel does not read such a file by itself: it asks us for what is in it.
    pub fn cannot_pass(&self, backing: &Backing, why: &str) {
        let (possible, what) = if backing.is_in_memory() {
            (&self.passed.is_possible, "zarrfs copies decoded chunks into the page cache")
        } else {
            (
                &self.passed.is_possible_of_store,
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
