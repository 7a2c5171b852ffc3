//! FUSE passthrough of chunks and small views: the kernel reads a backing file without asking
//! zarrfs. An uncompressed chunk is backed by its own file in the store, anything else by a memory
//! file with the decoded bytes. This saves copying each answer into the page cache, more than half
//! of the cost of other reads.
//!
//! The kernel reads an inode in one way at a time. While a file is open with passthrough, opening
//! it in another way or with another backing file fails with `EIO`. So an inode counts its handles
//! with passthrough (`PassthroughState`). It learns of a close later than the kernel does, which is
//! safe. A program that wants to write, or that finds another version stored, gets `ESTALE`. The
//! kernel then looks the name up again and finds a new inode (`detach_from_name`). The old
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
//!   through this process. So all handles are counted in one way (`handles::Source`), whatever
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

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::array::{Array, Coords};
use crate::backing::Backing;
use crate::error::{Error, Kind, Result};
use crate::metadata::NodePath;
use crate::store::Version;
use crate::vfs::access::Access;
use crate::vfs::core::Core;
use crate::vfs::inodes::attr::Attr;
use crate::vfs::inodes::file::{BytesAt, InodeFile};
use crate::vfs::inodes::inode::Inode;
use crate::vfs::inodes::place::Place;
use crate::vfs::kernel::backing_files::{BackingFiles, ChunkState, Id, Origin};
use crate::vfs::kernel::view_pages::{KernelPages, ReadVersions as SeenChunks};
use crate::vfs::names::Names;
use crate::vfs::reader::Reader;
use crate::vfs::reader::open_view::OpenView;
use crate::view::{Format, View};

/// The most bytes of a view with passthrough; longer ones are generated as they are read.
const LONGEST_VIEW: u64 = 4 << 20;

/// The most chunks of a view with passthrough.
const MOST_CHUNKS: usize = 64;

/// How long the kernel may still use the old inode number for a name.
const NAME_GRACE: Duration = Duration::from_secs(1);

/// Decides which files the kernel reads itself.
pub struct Passthrough {
    pub(in crate::vfs) core: Arc<Core>,
    pub(in crate::vfs) names: Arc<Names>,
    pub(in crate::vfs) reader: Arc<Reader>,
    pub(in crate::vfs) backing_files: Arc<BackingFiles>,
}

impl fmt::Debug for Passthrough {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passthrough").finish_non_exhaustive()
    }
}

impl Passthrough {
    /// Returns the backing file for a reader of a chunk that is stored as `version`; `None` if it
    /// should use the page cache.
    pub fn backing_for_chunk(
        &self,
        file: &mut InodeFile,
        path: &NodePath,
        (array, coords): (&Arc<Array>, &Coords),
        version: Version,
    ) -> Option<Arc<Backing>> {
        let state = &file.passthrough;
        let seen = (version, self.core.cache.generation(array));
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
                && !self.backing_files.is_here(&self.core.cache, array, coords)
            {
                return None;
            }
            self.backing_files.chunk(&self.core.cache, array, coords, Some(version))?
        };
        Some(self.settle_with_passthrough(file, seen, backing))
    }

    fn settle_with_passthrough(
        &self,
        file: &mut InodeFile,
        seen: ChunkState,
        backing: Arc<Backing>,
    ) -> Arc<Backing> {
        file.settle();
        self.count_passthrough(file, Access::Read, Some(seen), backing)
    }

    /// Whether opening a file only opens the store's own file for passthrough, which is quick.
    pub fn opens_stored(&self, number: u64, access: Access) -> bool {
        let Some(inode) = self.names.inodes.get(number) else { return false };
        let Some(Place::Chunk(path, coords)) = inode.place() else { return false };
        // A thread that stores the file has it locked.
        let is_busy = inode.known_file().is_some_and(|file| file.is_locked());
        access == Access::Read
            && !is_busy
            && self.backing_files.is_possible()
            && !self.core.tree_lock.is_locked_exclusive()
            && self.core.shown_array(&path).is_ok_and(|array| array.is_stored_decoded(&coords))
    }

    /// Whether the store's own file can back a chunk.
    fn can_back_with_store(&self, array: &Array, coords: &Coords) -> bool {
        self.backing_files.is_possible_of_store.load(Ordering::Relaxed)
            && array.is_stored_decoded(coords)
    }

    /// Returns the backing file for another handle of a file that has lost its name. `None` shortly
    /// after that, while the kernel may still use the number for the name.
    pub fn backing_for_unnamed(&self, file: &mut InodeFile) -> Option<Arc<Backing>> {
        let window = NAME_GRACE.min(self.backing_files.options.calm);
        if file.passthrough.lost_name_at.is_some_and(|lost_at| lost_at.elapsed() < window) {
            return None;
        }
        let (seen, backing) = file.passthrough.backing.clone()?;
        Some(self.count_passthrough(file, Access::Read, seen, backing))
    }

    /// Returns the attributes of a file with passthrough that has lost its name.
    pub fn attr_of_unnamed(inode: &Inode) -> Option<Attr> {
        let file = inode.known_file()?.lock();
        let (_, backing) = file.passthrough.backing.as_ref().filter(|_| inode.place().is_none())?;
        let own = file.created.as_ref().map(|created| created.owner);
        Some(Attr {
            number: inode.number(),
            len: backing.len(),
            blocks: Attr::blocks_of(backing.len(), backing.len()),
            links: 0,
            mode: own.map(|own| own.mode & 0o777),
            owner: own,
            may_change: true,
            ..Attr::file(backing.modified())
        })
    }

    /// Returns the backing file for a reader of a small view. Fails if passthrough is in use with
    /// another backing file.
    pub(in crate::vfs) fn backing_for_view(
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
                Ok(Some(self.count_passthrough(&mut file, Access::Read, None, found)))
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
        if !is_small || !is_of_chunks(&open.view, MOST_CHUNKS) || open.view.is_rewritten() {
            return None;
        }
        let id = Id::View(open.path.clone(), open.format.extension);
        self.backing_files.once(&id, || self.make_view_file(&id, open))
    }

    fn make_view_file(&self, id: &Id, open: &OpenView) -> Option<Arc<Backing>> {
        if let Some((pages, backing)) = self.backing_files.find_view(id)
            && let Some(known) = self.names.views.known_since(&pages, open)
        {
            self.backing_files.renew_view(id, known, open.opened);
            return Some(backing);
        }
        let seen = Arc::new(SeenChunks::default());
        let bytes = self.reader.whole_view(open, &seen)?;
        let (view, generations) = (Arc::clone(&open.view), open.generations);
        let pages = KernelPages { generations, since: open.opened, view, seen };
        let origin = Origin::View(pages, open.opened);
        self.backing_files.keep(id.clone(), origin, &bytes, open.modified)
    }

    pub(super) fn count_passthrough(
        &self,
        file: &mut InodeFile,
        access: Access,
        seen: Option<ChunkState>,
        backing: Arc<Backing>,
    ) -> Arc<Backing> {
        let state = &mut file.passthrough;
        state.openers = state.openers.saturating_add(1);
        state.writers = state.writers.saturating_add(u32::from(access != Access::Read));
        (state.last, state.has_pages) = (seen.map(|seen| seen.0), false);
        state.backing = Some((seen, Arc::clone(&backing)));
        file.seen = None; // The kernel keeps no pages, except of a file that it cannot read by itself.
        self.backing_files.opened.fetch_add(1, Ordering::Relaxed);
        backing
    }

    /// Whether the kernel reads a file with passthrough.
    pub fn uses_passthrough(inode: &Inode) -> bool {
        inode.known_file().is_some_and(|file| file.lock().passthrough.openers > 0)
    }

    /// Gives the name of a locked file with passthrough to a new inode without it. Returns the
    /// error that makes the kernel look up the name again.
    pub fn detach_from_name(&self, inode: &Arc<Inode>, file: &mut InodeFile) -> Error {
        if matches!(file.content, BytesAt::Unstored(_)) {
            // A chunk that was renamed waits for its array to grow, and belongs to this inode.
            let detail = "other readers still have the previous contents open";
            return Error::new(Kind::Busy, detail);
        }
        if let Some(path) = inode.place().as_ref().and_then(Place::node) {
            self.backing_files.record_contention(path);
        }
        if let Some(new) = self.names.renew_read_by_kernel(inode, file) {
            self.names.inodes.release(new);
        }
        Error::not_found()
    }

    /// Gives the name of a file that the kernel reads by itself to a new inode if its bytes have
    /// changed since: an open would do that, and programs such as `cp` compare the number that they
    /// looked up with that of the open file.
    pub fn renew_outdated(&self, place: &Place) {
        let Some(inode) = self.names.inodes.known_at(place) else { return };
        if !Self::uses_passthrough(&inode) {
            return;
        }
        // If it is no chunk or view any more, its open reports it.
        let is_outdated = match place {
            Place::Chunk(path, coords) => self.is_outdated_chunk(&inode, path, coords),
            Place::View(path, format) => self.is_outdated_view(&inode, path, format),
            _ => Ok(false),
        };
        let mut file = inode.file().lock();
        let is_read = file.passthrough.openers > 0 && file.passthrough.writers == 0;
        if is_read && is_outdated.unwrap_or_default() && inode.is_at(place) {
            // The name is being looked up already.
            let _ = self.detach_from_name(&inode, &mut file);
        }
    }

    fn is_outdated_chunk(&self, inode: &Inode, path: &NodePath, coords: &Coords) -> Result<bool> {
        let seen = {
            let file = inode.file().lock();
            let backing = file.passthrough.backing.as_ref();
            backing.filter(|_| matches!(file.content, BytesAt::Stored)).and_then(|(seen, _)| *seen)
        };
        let Some((version, generation)) = seen else { return Ok(false) };
        let array = self.core.shown_array_at(path, coords.indices())?;
        let now = self.core.stat_chunk(&array, coords)?.version;
        Ok(!version.holds(now) || generation != self.core.cache.generation(&array))
    }

    fn is_outdated_view(
        &self,
        inode: &Inode,
        path: &NodePath,
        format: &'static Format,
    ) -> Result<bool> {
        let kept = self.names.views.kept_view(path, format)?;
        let (open, _) = self.names.views.open(inode.number(), (path, format), kept, Access::Read);
        let found = self.backing_files.find_view(&Id::View(path.clone(), format.extension));
        let now = found.filter(|(pages, _)| self.names.views.known_since(pages, &open).is_some());
        let file = inode.file().lock();
        Ok(match (&file.passthrough.backing, &now) {
            (Some((_, opened)), Some((_, now))) => !Arc::ptr_eq(opened, now),
            _ => true,
        })
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

/// Whether a view has at most `most` chunks.
fn is_of_chunks(view: &View, most: usize) -> bool {
    let mut found = 0_usize;
    let walked = view.for_each_chunk((0, view.len()), &mut |_, _, _| {
        found = found.saturating_add(1);
        Ok(if found > most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    });
    matches!(walked, Ok(ControlFlow::Continue(())))
}
