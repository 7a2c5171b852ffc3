//! Backing files for FUSE passthrough: decoded chunks and small views in memory files.
//!
//! Memory files take at most half of the cache, apart from those that programs still have mapped,
//! and the chunk cache does not hold the same chunks.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use super::view_pages::KernelPages;
use crate::array::{Array, ArrayId, Coords};
use crate::backing::{Backing, MemoryFiles};
use crate::bounded::{Bounded, MapLimits};
use crate::budget::{Budget, Purpose};
use crate::cache::ChunkCache;
use crate::metadata::NodePath;
use crate::resources::FileShare;
use crate::store::{Stamp, Version};
use crate::vfs::access::Access;
use crate::vfs::options::PassthroughOptions;
use crate::width::ToU64;

/// The most memory files, if the limit of open files allows as many.
const MOST_FILES: usize = 512;

/// The fraction of this process's file descriptors for memory files, and for store files that the
/// kernel reads. The rest is for files that are open during a call, and for listings.
const PART_IN_MEMORY: usize = 8;
const PART_OF_STORE: usize = 4;

/// How long to keep the memory file of a view after it was opened last.
const KEPT_VIEW: Duration = Duration::from_secs(60);

/// The passthrough state of a file.
#[derive(Debug, Default)]
pub struct PassthroughState {
    /// The number of handles with passthrough: none or all of them.
    pub openers: u32,
    /// How many of them may write: to a new file of the store.
    pub writers: u32,
    /// Their backing file, for a chunk with the state that it shows; `None` without handles.
    pub backing: Option<(Option<ChunkState>, Arc<Backing>)>,
    /// The state of the new file when it became the value.
    pub stamp: Option<Stamp>,
    /// The version that was last read with passthrough.
    pub last: Option<Version>,
    /// Whether the page cache was used since then.
    pub has_pages: bool,
    /// When another inode got its name.
    pub lost_name_at: Option<Instant>,
}

impl PassthroughState {
    /// Returns the new file of the store that programs have open to write.
    pub fn written(&self) -> Option<&Arc<Backing>> {
        let (_, backing) = self.backing.as_ref().filter(|_| self.writers > 0)?;
        backing.new_file().is_some().then_some(backing)
    }

    /// Records what the new file of the store has become, so that readers can share it, and its
    /// state then.
    pub fn stored_as(&mut self, now: Option<ChunkState>, stamp: Option<Stamp>) {
        if let Some((seen, _)) = self.backing.as_mut().filter(|_| self.writers > 0) {
            (*seen, self.stamp) = (now, stamp);
        }
    }

    /// Ends a handle with passthrough.
    pub fn end(&mut self, access: Access) {
        self.openers = self.openers.saturating_sub(1);
        self.writers = self.writers.saturating_sub(u32::from(access != Access::Read));
        if self.openers == 0 {
            (self.backing, self.stamp) = (None, None);
        }
    }
}

/// The state of a chunk when it was opened: its version, and the generation of its array. A version
/// alone may return (a reused inode number, a time that was set).
pub(in crate::vfs) type ChunkState = (Version, u64);

/// The contents of a memory file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::vfs) enum Id {
    /// This chunk of this open array.
    Chunk(ArrayId, Coords),
    /// A view: its node, and the extension of its format.
    View(NodePath, &'static str),
}

/// Decoded chunks and small views in memory files.
#[derive(Debug)]
pub(in crate::vfs) struct BackingFiles {
    /// Whether passthrough is enabled, and supported by the kernel.
    pub is_possible: AtomicBool,
    /// Whether it works for files of the store; it does not if they are on an overlay.
    pub is_possible_of_store: AtomicBool,
    pub options: PassthroughOptions,
    pub limit: u64,
    files: MemoryFiles,
    /// Counts open files of the store.
    pub stored: FileShare,
    /// The memory files in order of use. A leaf lock.
    kept: Mutex<Bounded<Id, CachedFile>>,
    /// A lock for each memory file that is being filled, held over the decoding, so that it happens
    /// once. The lock of the table is a leaf.
    making: Mutex<HashMap<Id, Arc<Mutex<()>>>>,
    /// Nodes in which a write interrupted passthrough, and when. A leaf lock.
    contended: Mutex<HashMap<NodePath, Instant>>,
    /// The number of opens with passthrough.
    pub opened: AtomicU64,
}

#[derive(Debug)]
struct CachedFile {
    origin: Origin,
    backing: Arc<Backing>,
}

/// The origin of the bytes in a memory file.
#[derive(Debug)]
pub(in crate::vfs) enum Origin {
    /// The array, and the state of the chunk.
    Chunk(Arc<Array>, ChunkState),
    /// The state of the view, and when it was opened last.
    View(KernelPages, Instant),
}

impl BackingFiles {
    /// Returns none, with the limits of the budget and of open files.
    pub fn new(
        options: Option<PassthroughOptions>,
        budget: &Arc<Budget>,
        descriptors: usize,
    ) -> Self {
        let limit = budget.limit(Purpose::MemoryFiles);
        let most_files = MOST_FILES.min(descriptors / PART_IN_MEMORY);
        Self {
            is_possible: AtomicBool::new(options.is_some()),
            is_possible_of_store: AtomicBool::new(true),
            options: options.unwrap_or_default(),
            limit,
            files: MemoryFiles::new(Arc::clone(budget), most_files),
            stored: FileShare::new(descriptors / PART_OF_STORE),
            kept: Mutex::new(Bounded::new(MapLimits { len: limit, count: most_files })),
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

    /// Records that a write interrupted passthrough in a node.
    pub fn record_contention(&self, path: &NodePath) {
        let mut contended = self.contended.lock();
        contended.retain(|_, at| at.elapsed() < self.options.calm);
        contended.insert(path.clone(), Instant::now());
    }

    /// Whether a write interrupted passthrough in a node recently, so that it pauses there.
    pub fn is_contended(&self, path: &NodePath) -> bool {
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
                let gone = self.kept.lock().remove(&id);
                drop(gone);
            }
        }
    }

    /// Drops a chunk that a sequential read has passed, if the array exceeds the limit: it would be
    /// evicted before the next sequential read reaches it.
    pub fn let_go(&self, array: &Arc<Array>, passed: &Coords) {
        let chunks = array.grid().counts().iter().copied().fold(1, u64::saturating_mul);
        if chunks.saturating_mul(array.longest_chunk_len().longest()) > self.limit {
            let gone = self.kept.lock().remove(&id(array, passed));
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
    pub fn once<T>(&self, id: &Id, make: impl FnOnce() -> T) -> T {
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
        Some(backing)
    }

    /// Creates a memory file with these bytes and keeps it; `None` if there is no room.
    pub fn keep(
        &self,
        id: Id,
        origin: Origin,
        bytes: &[u8],
        modified: SystemTime,
    ) -> Option<Arc<Backing>> {
        let backing = Arc::new(self.fill(bytes, modified)?);
        let kept = CachedFile { origin, backing: Arc::clone(&backing) };
        let evicted = self.kept.lock().put(id, kept, backing.len());
        drop(evicted);
        Some(backing)
    }

    /// Returns the memory file of a view, and the state of the view in it.
    pub fn find_view(&self, id: &Id) -> Option<(KernelPages, Arc<Backing>)> {
        match self.kept.lock().get(id) {
            Some(CachedFile { origin: Origin::View(pages, _), backing }) => {
                Some((pages.clone(), Arc::clone(backing)))
            }
            _ => None,
        }
    }

    /// Records that the memory file of a view is opened, and when it was last known to match the
    /// store.
    pub fn renew_view(&self, id: &Id, known: Instant, opened: Instant) {
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

    /// Creates a memory file with these bytes, evicting others if necessary: at most as many bytes
    /// as it needs, because beyond that the shortage has another cause.
    fn fill(&self, bytes: &[u8], modified: SystemTime) -> Option<Backing> {
        let needed = bytes.len().to_u64();
        let mut freed = 0_u64;
        loop {
            match self.files.with(bytes, modified) {
                Ok(Some(backing)) => return Some(backing),
                Ok(None) if freed > needed => return None,
                Ok(None) => {
                    let (_, oldest) = self.kept.lock().pop_oldest()?;
                    // A file that a program has mapped or open frees nothing.
                    let unused = Arc::into_inner(oldest.backing);
                    freed = freed.saturating_add(unused.map_or(0, |unused| unused.len().max(1)));
                }
                Err(error) => {
                    log::debug!("memory file: {error}");
                    return None;
                }
            }
        }
    }
}

fn id(array: &Arc<Array>, coords: &Coords) -> Id {
    Id::Chunk(array.id(), coords.clone())
}
