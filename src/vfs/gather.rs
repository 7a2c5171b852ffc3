//! Chunks that wait for the others of their shard: when they are stored, and who is told that they cannot be.
//!
//! `close` hands an inner chunk of a shard to the cache, where everybody in this mount finds it. Its shard is
//! stored once, with all that waits for it: when it is full, when somebody asks, when it has waited for
//! `--writeback-delay`, or when too much waits. What cannot be stored goes on waiting and is tried again.
//! With `--writeback=all` a chunk that is in no shard waits so, too: it is full by itself.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use super::file::{Content, File};
use super::place::Place;
use super::{Vfs, Writeback};
use crate::array::{Array, Coords};
use crate::buffer::Buffer;
use crate::cache::{Base, Due, NewChunk, PutChunk, Stored};
use crate::error::{At, Error, Kind, Result};
use crate::metadata::{NodeKind, NodePath};
use crate::pool::Urgency;
use crate::store::Key;

impl Vfs {
    /// Stores a chunk, or lets it wait for the others of its shard. Returns what its `stat` is then.
    pub(super) fn store_chunk(
        &self,
        path: &NodePath,
        coords: &Coords,
        (bytes, base): (Buffer, Option<Base>),
        modified: Option<SystemTime>,
    ) -> Result<PutChunk> {
        let array = self.array(path)?;
        let whole = array.check_decoded(coords, &bytes).map_err(|error| {
            let advice = "the stored chunk is unchanged; write chunks uncompressed (in \
                          zarr-python: compressors=None)";
            Error::new(error.kind(), format!("{}: {advice}", error.detail()))
        });
        // Of elements of any length, compressed bytes are no chunk: the better of two reasons.
        if (whole.is_ok() || array.model().dtype.is_variable()) && array.is_encoded(coords, &bytes)
        {
            return Err(Error::invalid(
                "the chunk is already compressed; write chunks uncompressed (in zarr-python: \
                 compressors=None)",
            ));
        }
        whole?;
        let skipped = array.is_skipped(coords, &bytes, self.options.fill_chunks);
        // One that is erased if nobody has changed it needs its bytes if somebody has.
        let new = NewChunk { bytes: Some(bytes).filter(|_| !skipped || base.is_some()), base };
        self.change_chunk(path, &array, coords, new, modified)
    }

    /// Erases a chunk, or lets that wait. Where there is none, here or in the store, nothing waits: another program may
    /// store one meanwhile.
    pub(super) fn erase_chunk(&self, path: &NodePath, coords: &Coords) -> Result<()> {
        let array = self.array(path)?;
        // In this order: one that waits may be stored right now.
        if self.gathers(&array)
            && !self.cache.is_pending(&array, coords)
            && array.stat(coords)?.is_none()
        {
            return Ok(());
        }
        self.change_chunk(path, &array, coords, None.into(), None).map(drop)
    }

    fn change_chunk(
        &self,
        path: &NodePath,
        array: &Arc<Array>,
        coords: &Coords,
        new: NewChunk,
        modified: Option<SystemTime>,
    ) -> Result<PutChunk> {
        if self.gathers(array) {
            return self.cache.defer(path, array, coords, new, modified);
        }
        // Where the shard could not be stored before, what waits for it goes with this one.
        if array.is_sharded()
            && let key = array.key(coords)?
            && self.cache.pending_array(&key).is_some()
        {
            self.cache.defer(path, array, coords, new, modified)?;
            self.store_shard(&key)?;
            // What others have stored may be in it.
            return Ok(PutChunk { stat: self.cache.stat(array, coords)?, is_merged: true });
        }
        self.cache.write(array, coords, new, self.options.fill_chunks)
    }

    /// Lets the bytes of a file wait that the store did not take: they are tried again. Whether they do: only chunks
    /// wait, and not what will never be one.
    pub(super) fn keep_waiting(
        &self,
        place: &Place,
        file: &mut File,
        error: &Error,
    ) -> Result<bool> {
        let (Place::Chunk(path, coords), Content::Unstored(unstored)) = (place, &file.content)
        else {
            return Ok(false);
        };
        if !is_of_medium(error) {
            return Ok(false);
        }
        let array = self.array(path)?;
        let modified = unstored.keep_modified.then_some(unstored.modified);
        let new = NewChunk { bytes: Some(unstored.bytes.clone()), base: unstored.base.clone() };
        let deferred = self.cache.defer(path, &array, coords, new, modified)?;
        self.cache.record_failure(&array.key(coords)?, error);
        let seen = deferred.stat.map(|stat| stat.version);
        file.seen = seen.filter(|_| !file.is_shared && !deferred.is_merged);
        self.forget_unstored(file);
        Ok(true)
    }

    /// Whether a chunk of `array` may wait after it was closed.
    fn gathers(&self, array: &Array) -> bool {
        match self.options.writeback {
            Writeback::Sync => false,
            Writeback::Delay => array.is_sharded(),
            Writeback::All => true,
        }
    }

    /// Stores the shards that are due. All are tried before the first error is returned.
    pub(super) fn store_shards(&self, due: Due<'_>) -> Result<()> {
        let keys = self.cache.due(due);
        if keys.is_empty() {
            return Ok(());
        }
        // Not `parallel::map`: storing a shard holds the lock of its key while inner chunks are
        // encoded. A thread of that pool that waits for them takes up other work, and if that were
        // another shard, the thread could wait for a lock that it holds itself.
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(keys.len());
        let first = Mutex::new(Ok(()));
        let rest = Mutex::new(keys.into_iter());
        let work = || {
            loop {
                let key = rest.lock().next();
                let Some(key) = key else { return };
                if let Err(error) = self.store_shard(&key) {
                    let mut first = first.lock();
                    if first.is_ok() {
                        *first = Err(error);
                    }
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..threads {
                // Where no thread can be had, this one does it all.
                let spawned = thread::Builder::new().spawn_scoped(scope, work);
                drop(spawned);
            }
            work();
        });
        first.into_inner()
    }

    /// Stores what waits for the value of `key`.
    pub(super) fn store_shard(&self, key: &Key) -> Result<()> {
        let Some(path) = self.cache.pending_array(key) else { return Ok(()) };
        let changed = || self.unsynced.changed(key.clone());
        let fill = self.options.fill_chunks;
        let stored = self
            .array(&path)
            .and_then(|array| Ok((self.cache.store(key, &array, fill, changed)?, array)))
            .and_then(|((chunks, unread), array)| {
                self.settle_stored(&path, &array, &chunks)?;
                unread
            })
            .at(&path);
        if let Err(error) = &stored
            && self.cache.record_failure(key, error)
        {
            self.note("write back", error);
        }
        stored
    }

    /// Stores what waits in an array, which is about to change: its chunks mean then what they meant when they were written.
    /// In groups nothing changes for what is below them.
    pub(super) fn store_array(&self, path: &NodePath) -> Result<()> {
        let node = self.hierarchy.node(path)?;
        match node.as_ref().map(|node| node.kind()) {
            Some(NodeKind::Array) => self.store_shards(Due::Below(path)),
            Some(NodeKind::Group) | None => Ok(()),
        }
    }

    /// The same, before that is done for good: what cannot be stored is told then.
    pub(super) fn store_array_before(&self, path: &NodePath) {
        self.store_array(path).unwrap_or_else(|error| log::debug!("{error}"));
    }

    /// What waits for the shard that a chunk lies in is stored.
    pub(super) fn store_shard_of(&self, place: &Place) -> Result<()> {
        match self.shard_of(place)? {
            Some(key) => self.store_shard(&key),
            None => Ok(()),
        }
    }

    /// Whether what is at `place` waits to be stored with others.
    pub(super) fn waits(&self, place: &Place) -> Result<bool> {
        let Place::Chunk(path, coords) = place else { return Ok(false) };
        let stat = self.cache.stat(&*self.array(path)?, coords)?;
        Ok(stat.is_some_and(|stat| stat.version.is_unstored()))
    }

    /// Why the shard that a chunk lies in could not be stored so far, if it was tried; where chunks wait that are in none,
    /// why another one of its array could not.
    pub(super) fn check_shard_of(&self, place: &Place) -> Result<()> {
        let Place::Chunk(path, coords) = place else { return Ok(()) };
        if !self.cache.has_pending() {
            return Ok(());
        }
        let array = self.array(path)?;
        let is_alone = self.options.writeback == Writeback::All && !array.is_sharded();
        let failure = if is_alone {
            self.cache.failure_in(path)
        } else {
            self.cache.failure(&array.key(coords)?)
        };
        failure.map_or(Ok(()), Err)
    }

    fn shard_of(&self, place: &Place) -> Result<Option<Key>> {
        let Place::Chunk(path, coords) = place else { return Ok(None) };
        if !self.cache.has_pending() {
            return Ok(None);
        }
        self.array(path)?.key(coords).map(Some)
    }

    /// Has chunks and shards of which nothing is missing stored meanwhile, by as many threads as there are processors.
    pub(super) fn store_full_soon(&self) {
        let Some(crew) = self.crew.get() else { return };
        while let Some(turn) = Storing::take(&crew.storing, crew.pool.most_ahead()) {
            let Some(key) = self.cache.take_full() else { return };
            let vfs = Weak::clone(&crew.vfs);
            crew.pool.run(Urgency::Asked, move || {
                let _turn = turn;
                let mut next = Some(key);
                while let (Some(vfs), Some(key)) = (vfs.upgrade(), next.take()) {
                    // Whoever closes or syncs next is told.
                    vfs.store_shard(&key).unwrap_or_else(|error| log::debug!("{error}"));
                    next = vfs.cache.take_full();
                }
            });
        }
    }

    /// Stores shards of which nothing is missing, and others where more waits than is good.
    pub fn store_full(&self) {
        // Whoever closes or syncs next in the shard is told.
        let told = |stored: Result<()>| stored.unwrap_or_else(|error| log::debug!("{error}"));
        told(self.store_shards(Due::Full));
        let limit = self.options.dirty_limit / 2;
        if self.cache.pending_len() <= limit {
            return;
        }
        for key in self.cache.due(Due::Since(Duration::ZERO)) {
            if self.cache.pending_len() <= limit {
                break;
            }
            if self.cache.failure(&key).is_none() {
                told(self.store_shard(&key));
            }
        }
    }

    /// Makes known what is stored now: the kernel's pages are of it, where it reads as it was written.
    fn settle_stored(&self, path: &NodePath, array: &Arc<Array>, chunks: &[Stored]) -> Result<()> {
        let modified = chunks.iter().filter_map(|chunk| chunk.modified).max();
        let mut versions = None;
        let stored = chunks.iter().find(|chunk| chunk.now.is_some());
        if let (Some(modified), Some(chunk)) = (modified, stored) {
            let place = Place::Chunk(path.clone(), chunk.coords.clone());
            let key = array.key(&chunk.coords)?;
            versions = self.set_value_modified(&place, &key, modified).map(Some)?;
        }
        for Stored { coords, was, now, .. } in chunks {
            let place = Place::Chunk(path.clone(), coords.clone());
            let Some(inode) = self.inodes.known_at(&place) else { continue };
            let stored = now.map(|stat| stat.version);
            let now = match versions {
                Some((before, after)) if stored.is_some_and(|stored| stored.holds(before)) => {
                    self.cache.set_version(array, coords, before, after);
                    Some(after)
                }
                Some(_) => None,
                None => stored,
            };
            if !array.reads_as_written(coords) {
                self.invalidate(&inode);
            } else if let Some(mut file) = inode.file().try_lock() {
                // Whoever has it locked opens it again, and drops the pages then.
                file.renew_version(*was, now);
            }
        }
        Ok(())
    }
}

/// One of those who store while programs go on.
struct Storing(Arc<AtomicUsize>);

impl Storing {
    fn take(busy: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let one_more = |busy: usize| (busy < most).then(|| busy.saturating_add(1));
        busy.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Self(Arc::clone(busy)))
    }
}

impl Drop for Storing {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether an error is one of the medium below the store, which may take what it is given another time.
fn is_of_medium(error: &Error) -> bool {
    matches!(error.kind(), Kind::Os(_) | Kind::ReadOnly | Kind::Busy | Kind::NoMemory)
}
