//! Lazy listings of directories, because an array may have millions of chunks.
//!
//! Directories of chunks on a server exist if the grid has them, unless listings show that nothing
//! is there. Otherwise a chunk could not be read by its name in one request. After a mount has
//! created an array, it lists its directory, because programs then create directories there.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Names;
use super::open_directory::{DirHandle, DirectoryName, NamesRead, OpenDirectoryCount, Rest, Stats};
use crate::error::{Kind, Result};
use crate::metadata::NodePath;
use crate::pool::Urgency;
use crate::resources;
use crate::store::Stat;
use crate::vfs::core::Core;
use crate::vfs::inodes::attr::Attr;
use crate::vfs::inodes::inode::ROOT;
use crate::vfs::inodes::place::{DirEntries, DirEntry, Place};

/// The names that an open directory keeps, so that a reader can seek back; fewer if many are open.
const MAX_LISTED: usize = 4096;
const MIN_LISTED: usize = 512;

/// This many open directories are many.
const MANY_DIRS: usize = 256;

/// At most `1/PART_OF_LISTINGS` of this process's file descriptors are for directories being read.
/// Beyond that, a directory is read as far as one answer to the kernel, and closed.
const PART_OF_LISTINGS: usize = 4;

/// How many chunks to stat at once, about as many as one answer to the kernel holds.
const STAT_COUNT: usize = 256;

/// The most age of prefetched attributes, if the mount allows names to be that old.
const MOST_STALE: Duration = Duration::from_millis(100);

/// A listing ends after this many errors in a row.
const MAX_ERRORS: usize = 1000;

/// Lists directories.
pub struct Listings {
    pub(in crate::vfs) core: Arc<Core>,
    pub(in crate::vfs) names: Arc<Names>,
    /// The number of directories that programs have open.
    pub(in crate::vfs) dirs: Arc<AtomicUsize>,
}

impl fmt::Debug for Listings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listings").finish_non_exhaustive()
    }
}

impl Listings {
    /// Lists the directories of `names`.
    pub(in crate::vfs) fn new(core: Arc<Core>, names: Arc<Names>) -> Self {
        Self { core, names, dirs: Arc::default() }
    }

    /// Opens a directory for listing.
    pub fn opendir(&self, number: u64) -> Result<DirHandle> {
        let place = self.names.current_directory(number)?;
        let entries = || {
            self.entries(&place).or_else(|error| {
                // `zarrfs umount` opens the root to sync it, even if the store is gone or the root
                // cannot be read. Reading the directory then returns the error.
                if number != ROOT {
                    return Err(error);
                }
                let late: DirEntries = Box::new(std::iter::once(Err(error)));
                Ok(late)
            })
        };
        let rest = if self.is_crowded() { Rest::Closed } else { Rest::Open(entries()?) };
        let read = Mutex::new(NamesRead::new(rest));
        let counted = OpenDirectoryCount::new(&self.dirs);
        Ok(DirHandle { place, read, stats: Mutex::default(), _counted: counted })
    }

    /// Returns the name at `position` of an open directory, without `.` and `..`; `None` at the
    /// end. If some names cannot be read, all others come first, and then the first error, so that
    /// no copy lacks them in silence.
    pub fn readdir(&self, dir: &DirHandle, position: usize) -> Result<Option<Arc<DirectoryName>>> {
        let many = self.open_dirs() > MANY_DIRS;
        let most = if many { MIN_LISTED } else { MAX_LISTED };
        let mut read = dir.read.lock();
        if position < read.first {
            *read = NamesRead::new(Rest::Closed);
        }
        while read.next_position() <= position {
            let (name, place) = match self.next_name(&mut read, &dir.place)? {
                Some(Ok(found)) => found,
                Some(Err(error)) if read.errors < MAX_ERRORS => {
                    read.errors += 1;
                    read.failed.get_or_insert(error);
                    continue;
                }
                Some(Err(error)) => return Err(error),
                None => return read.failed.clone().map_or(Ok(None), Err),
            };
            read.errors = 0;
            let (is_dir, at) = (place.is_dir(), read.next_position());
            read.listed.push_back(Arc::new(DirectoryName { name, is_dir, place, position: at }));
            while read.listed.len() > most {
                read.listed.pop_front();
                read.first = read.first.saturating_add(1);
            }
        }
        Ok(position.checked_sub(read.first).and_then(|at| read.listed.get(at)).cloned())
    }

    /// Returns the next name.
    fn next_name(&self, read: &mut NamesRead, place: &Place) -> Result<Option<Result<DirEntry>>> {
        loop {
            let next = match &mut read.rest {
                Rest::End => return Ok(None),
                Rest::Open(names) => names.next(),
                Rest::Taken(names, more) => match names.pop_front() {
                    None if *more => {
                        read.rest = Rest::Closed;
                        continue;
                    }
                    next => next,
                },
                Rest::Closed => {
                    let (mut names, mut passed) = (self.entries(place)?, 0);
                    while passed < read.next_position()
                        && let Some(found) = names.next()
                    {
                        passed = passed.saturating_add(usize::from(found.is_ok()));
                    }
                    read.rest = if self.is_crowded() {
                        let taken: VecDeque<Result<DirEntry>> = names.take(MIN_LISTED).collect();
                        let more = taken.len() == MIN_LISTED;
                        Rest::Taken(taken, more)
                    } else {
                        Rest::Open(names)
                    };
                    continue;
                }
            };
            if next.is_none() {
                // Close the directory before its reader does, to free the descriptor.
                read.rest = Rest::End;
            }
            return Ok(next);
        }
    }

    /// Returns the number of directories that programs have open.
    pub fn open_dirs(&self) -> usize {
        self.dirs.load(Ordering::Relaxed)
    }

    /// Whether too many directories are being read to keep another one open.
    fn is_crowded(&self) -> bool {
        resources::open_directories() >= self.core.options.descriptors / PART_OF_LISTINGS
    }

    /// Drops prefetched stats that are too old for the next answer.
    pub fn forget_stats(&self, dir: &DirHandle) {
        let most = self.core.hierarchy.options().metadata_ttl.min(MOST_STALE);
        let mut stats = dir.stats.lock();
        if stats.since.is_some_and(|since| since.elapsed() >= most) {
            *stats = Stats::default();
        }
    }

    /// Prefetches the next names while the kernel processes the previous ones.
    pub fn list_ahead(self: &Arc<Self>, dir: &Arc<DirHandle>, position: usize) {
        let Some(pool) = self.core.pool.get() else { return };
        if self.core.hierarchy.options().metadata_ttl < MOST_STALE {
            return;
        }
        let (listings, dir) = (Arc::downgrade(self), Arc::clone(dir));
        pool.run(Urgency::Prefetch, move || {
            let Some(listings) = listings.upgrade() else { return };
            // If the program has gone on meanwhile, this would read the directory again.
            if dir.has_passed(position) {
                return;
            }
            // The reader gets the error when it reaches that name.
            if let Ok(Some(listed)) = listings.readdir(&dir, position)
                && let Err(error) = listings.stat_next(&dir, &listed)
            {
                log::debug!("prefetch of a listing: {error}");
            }
        });
    }

    /// Returns the stat of a listed chunk, and prefetches those of the chunks after it.
    fn stat_listed(&self, dir: &DirHandle, listed: &DirectoryName) -> Result<Option<Stat>> {
        let Place::Chunk(_, coords) = &listed.place else { return Ok(None) };
        if let Some(stat) = dir.stats.lock().known.remove(coords) {
            return Ok(Some(stat));
        }
        self.stat_next(dir, listed)?;
        Ok(dir.stats.lock().known.remove(coords))
    }

    /// Prefetches the stats of a listed chunk and the chunks after it.
    fn stat_next(&self, dir: &DirHandle, listed: &DirectoryName) -> Result<()> {
        let Place::Chunk(path, _) = &listed.place else { return Ok(()) };
        let array = self.core.shown_array(path)?;
        let mut next = Vec::new();
        for position in (listed.position..).take(STAT_COUNT) {
            let Ok(Some(listed)) = self.readdir(dir, position) else { break };
            match &listed.place {
                // Those that wait are not stored.
                Place::Chunk(of, coords) if of == path && !array.grid().contains(coords) => {}
                Place::Chunk(of, coords) if of == path => next.push(coords.clone()),
                _ => break,
            }
        }
        let since = Instant::now();
        let found = self.core.cache.stat_many(&array, &next)?;
        let found = next.into_iter().zip(found).filter_map(|(coords, stat)| Some((coords, stat?)));
        let mut stats = dir.stats.lock();
        stats.known.extend(found);
        stats.since = Some(stats.since.map_or(since, |before| before.min(since)));
        Ok(())
    }

    /// Returns the attributes of a listed name and adds one to its lookup count; `None` if it is
    /// gone. A caller that does not pass them to the kernel must call [`crate::vfs::Vfs::forget`].
    pub fn lookup_listed(&self, dir: &DirHandle, listed: &DirectoryName) -> Result<Option<Attr>> {
        // The listing did not check whether a directory in a group is a node.
        let place = match &listed.place {
            // To read the metadata file of each would take a request each.
            Place::Node(path) if self.is_unread(path) => {
                return Ok(Some(Attr { may_change: false, ..self.lookup_name(&listed.place) }));
            }
            // Its length is not that of the stored file. `getattr` finds it. A program may have a
            // known one open or mapped, so its length must be right.
            place @ Place::Document(path)
                if self.is_unread(path) && self.names.inodes.known_at(place).is_none() =>
            {
                return Ok(Some(self.lookup_name(&listed.place)));
            }
            Place::Node(_) | Place::OrdinaryDir(..) => {
                self.names.places.resolve(&dir.place, &listed.name)?
            }
            known => Some(known.clone()),
        };
        let Some(place) = place else { return Ok(None) };
        if self.is_costly(&place) {
            return Ok(Some(self.lookup_name(&place)));
        }
        if let Place::Document(path) | Place::Copies(path) = &place
            && self.core.hierarchy.shown().includes_many(path)
        {
            // Computing the length may read all nodes below. `getattr` does that when a program
            // asks.
            let len = self.names.zarr2.last_len_shown(&place);
            let blocks = Attr::blocks_of(len, len);
            return Ok(Some(Attr { len, blocks, ..self.lookup_name(&place) }));
        }
        // If the stats of several chunks failed, stat this one alone.
        let stored = self.stat_listed(dir, listed).ok().flatten();
        match self.names.lookup_stored(&place, stored.as_ref()) {
            Ok(attr) => Ok(Some(attr)),
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether to ask for the attributes of a node would take a request.
    fn is_unread(&self, path: &NodePath) -> bool {
        self.core.is_remote() && !self.core.hierarchy.is_read(path)
    }

    /// Returns placeholder attributes for a listed name whose own are unavailable, and adds one to
    /// its lookup count. They expire at once, so the kernel asks again before it uses them.
    pub fn lookup_listed_name(&self, listed: &DirectoryName) -> Attr {
        self.lookup_name(&listed.place)
    }

    fn lookup_name(&self, place: &Place) -> Attr {
        let inode = self.names.inodes.at(place);
        self.names.inodes.looked_up(&inode);
        let attr = if place.is_dir() { Attr::directory } else { Attr::file };
        Attr { number: inode.number(), may_change: true, ..attr(self.core.mounted) }
    }

    /// Whether the length of a listed chunk is known only after decoding, which a listing should
    /// not cause. Chunks with an inode are excluded: a program may map them, so their length must
    /// be right.
    fn is_costly(&self, place: &Place) -> bool {
        let Place::Chunk(path, coords) = place else { return false };
        self.names.attrs.has_variable.load(Ordering::Relaxed)
            && self.names.inodes.known_at(place).is_none()
            && self.core.shown_array(path).is_ok_and(|array| {
                !array.is_encoded()
                    && array.has_variable_len()
                    && self.core.cache.peek(&array, coords).is_none()
            })
    }

    /// Returns the inode number that a name has or would have.
    pub fn number_listed(&self, listed: &DirectoryName) -> u64 {
        self.names.inodes.number_at(&listed.place)
    }

    /// Returns the inode number of the parent of an open directory.
    pub fn number_above(&self, dir: &DirHandle) -> u64 {
        self.names.inodes.number_at(&dir.place.parent())
    }

    /// Returns the inode number of an open directory.
    pub fn number_of(&self, dir: &DirHandle) -> u64 {
        self.names.inodes.number_at(&dir.place)
    }
}
