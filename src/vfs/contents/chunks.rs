//! Decides when pending chunks are stored, and reports when they cannot be.
//!
//! `close` hands an inner chunk of a shard to the cache as pending; every reader of this mount sees
//! it. The shard is stored once with all its pending chunks: when it is full, when a program asks,
//! after `--writeback-delay`, or when too much is pending. What cannot be stored stays pending and
//! is retried. With `--writeback=all` a chunk outside of a shard becomes pending too, and counts as
//! a full shard.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use super::latest::Latest;
use super::stored::StoredFiles;
use super::unsynced::Unsynced;
use crate::array::{Array, ChunkRef, Coords, Current};
use crate::buffer::Buffer;
use crate::cache::{Due, NewChunk, PutChunk, WrittenBack};
use crate::error::{Error, Kind, Result, WithSubject};
use crate::hierarchy::TextPurpose;
use crate::metadata::{NodeKind, NodePath, merge};
use crate::pool::Urgency;
use crate::store::{Capacity, Key};
use crate::vfs::authors::Processes;
use crate::vfs::core::{Core, Outdated};
use crate::vfs::inodes::file::FileToStore;
use crate::vfs::inodes::place::Place;
use crate::vfs::names::Names;
use crate::vfs::names::target::CurrentPlace;
use crate::vfs::options::Writeback;

/// The free bytes below which the disk counts as full.
const LEAST_FREE: u64 = 1 << 20;

/// How many threads store shards on a server.
const REMOTE_THREADS: usize = 16;

/// Whether an error means that a server could not be reached.
fn is_unreachable(error: &Error) -> bool {
    matches!(error.errno(), libc::EIO | libc::ETIMEDOUT)
}

/// Stores chunks that were closed, now or later.
pub(in crate::vfs) struct ChunkWriter {
    pub core: Arc<Core>,
    pub names: Arc<Names>,
    pub stored: Arc<StoredFiles>,
    pub unsynced: Arc<Unsynced>,
    /// The programs that stored chunks in the last minute.
    pub latest: Latest,
    /// How many threads store in the background.
    pub storing: Arc<AtomicUsize>,
}

impl ChunkWriter {
    /// Stores a chunk of the array at `path` or makes it pending, and returns its new stat.
    pub fn store_chunk(
        &self,
        path: &NodePath,
        chunk: &ChunkRef,
        written: FileToStore,
        by: &Processes,
    ) -> Result<PutChunk> {
        self.latest.check_accepted(path, by)?;
        self.check_seen(path, &chunk.array, by)?;
        let seen = self.take_seen(path, chunk, by).filter(|_| written.base.is_none());
        let base = match seen {
            Some(seen) => self.check_current(path, chunk, seen),
            None => Ok(written.base.clone()),
        };
        let stored = base
            .and_then(|base| self.store_known(path, chunk, FileToStore { base, ..written }, by));
        let place = Place::Chunk(path.clone(), chunk.coords.clone());
        match (&stored, seen) {
            (Ok(_), _) => {
                self.names.seen_versions.forget(&place);
                self.names.tree.removed_chunks.forget(path, &chunk.coords);
            }
            (Err(error), Some(seen)) if error.kind() != Kind::Stale => {
                self.names.seen_versions.put_back(&place, seen.renewed());
            }
            (Err(_), _) => (),
        }
        stored
    }

    fn store_known(
        &self,
        path: &NodePath,
        chunk: &ChunkRef,
        written: FileToStore,
        by: &Processes,
    ) -> Result<PutChunk> {
        if !chunk.array.is_stored_decoded(&chunk.coords) {
            self.latest.note(path, &chunk.coords, by);
        }
        if self.defers(&chunk.array) {
            return self.store_checked(path, chunk, None, written);
        }
        let current = self.core.hierarchy.array_since(path, &chunk.array, Instant::now())?;
        // Another program may have changed the shape.
        let chunk = ChunkRef::new(&current, &chunk.coords);
        self.store_checked(path, &chunk, Some(&current), written)
    }

    /// Fails if a program writes a chunk of another array than the one that is there now: another
    /// program has replaced that since this one read its metadata.
    fn check_seen(&self, path: &NodePath, array: &Array, by: &Processes) -> Result<()> {
        if self.latest.has_seen(by, array.id()) {
            return Ok(());
        }
        if let Some(seen) = self.names.seen_texts.known_node(path, by) {
            let node = self.core.hierarchy.existing(path)?;
            let now = self.core.hierarchy.shown().text_of(&node, TextPurpose::Text)?;
            if *seen != *now && !merge::have_like_chunks(seen.as_bytes(), now.as_bytes()) {
                let detail = "another program has replaced the array since this one read its \
                              metadata: open it again";
                return Err(Error::new(Kind::Stale, detail).at(path));
            }
            self.latest.note_seen(by, array.id());
        }
        Ok(())
    }

    /// Stores a chunk of `current`, or makes it pending if there is none.
    fn store_checked(
        &self,
        path: &NodePath,
        chunk: &ChunkRef,
        current: Option<&Current>,
        written: FileToStore,
    ) -> Result<PutChunk> {
        let ChunkRef { array, coords } = chunk;
        let FileToStore { bytes, base, modified, .. } = written;
        let file = bytes.new_file().zip(current);
        let store_file = |(file, current)| self.core.cache.write_file(current, coords, file);
        if let Some(file) = file.filter(|_| array.is_trusted() && !bytes.is_empty()) {
            self.check_room()?;
            if let Some(stored) = store_file(file)? {
                return Ok(stored);
            }
        }
        let all = bytes.to_buffer(array.chunk_len(coords)?.longest())?;
        array.check_chunk(coords, &all).map_err(|error| {
            let advice = "nothing was stored";
            Error::new(error.kind(), format!("{}: {advice}", error.detail()))
        })?;
        // A program that can still write to it could change it after the check.
        if let Some(file) = file.filter(|(file, _)| !file.may_have_writers())
            && let Some(stored) = store_file(file)?
        {
            return Ok(stored);
        }
        let bytes = all;
        let skipped = array.is_skipped(coords, &bytes, self.core.options.fill_chunks);
        // A chunk that would be skipped still needs its bytes, in case another program has changed
        // it.
        let new = NewChunk { bytes: Some(bytes).filter(|_| !skipped || base.is_some()), base };
        match current {
            Some(current) => self.change_now(path, chunk, current, new, modified),
            None => self.defer_chunk(path, chunk, new, modified),
        }
    }

    /// Fails if the disk is full: then a write may have failed, and only the program knows that.
    fn check_room(&self) -> Result<()> {
        let room = self.core.hierarchy.store().read().room()?;
        let free = |room: &Capacity| room.free.saturating_mul(u64::from(room.unit_len));
        if room.as_ref().is_some_and(|room| free(room) < LEAST_FREE) {
            return Err(Error::new(Kind::Os(libc::ENOSPC), "the disk is full: nothing was stored"));
        }
        Ok(())
    }

    /// Erases a chunk, now or later. If there is no chunk, nothing becomes pending, because another
    /// program may store one meanwhile. If programs take a missing chunk for another value than the
    /// store does, the chunk gets that value.
    pub fn erase_chunk(&self, path: &NodePath, chunk: &ChunkRef) -> Result<()> {
        let place = Place::Chunk(path.clone(), chunk.coords.clone());
        self.names.seen_versions.forget(&place);
        self.store_removal(path, chunk, || self.bytes_after_removal(path, chunk))
    }

    /// Erases a chunk, or stores the bytes that `instead` returns.
    pub(super) fn store_removal(
        &self,
        path: &NodePath,
        chunk: &ChunkRef,
        instead: impl FnOnce() -> Result<Option<Buffer>>,
    ) -> Result<()> {
        let ChunkRef { array, coords } = chunk;
        let now = Instant::now();
        if !self.core.shown_array(path)?.grid().contains(coords) {
            // A program that has made the array smaller removes what lies outside.
            let current = self.core.hierarchy.array_reaching(path, array, coords, now)?;
            let fill = self.core.options.fill_chunks;
            return self.core.cache.write(&current, coords, None, fill).map(drop);
        }
        if !self.defers(array) {
            let current = self.core.hierarchy.array_since(path, array, now)?;
            let chunk = ChunkRef::new(&current, coords);
            return self.change_now(path, &chunk, &current, instead()?.into(), None).map(drop);
        }
        let bytes = instead()?;
        // In this order, because a pending chunk may be stored in between.
        if bytes.is_none()
            && !self.core.cache.is_pending(array, coords)
            && array.stat(coords)?.is_none()
        {
            return Ok(());
        }
        self.defer_chunk(path, chunk, bytes.into(), None).map(drop)
    }

    fn defer_chunk(
        &self,
        path: &NodePath,
        chunk: &ChunkRef,
        new: NewChunk,
        modified: Option<SystemTime>,
    ) -> Result<PutChunk> {
        if chunk.array.is_sharded() || new.base.is_some() {
            // If it can never be stored, its program gets the error.
            self.core.hierarchy.store().write()?.check_conditions()?;
        }
        self.core.cache.defer(path, chunk, new, modified)
    }

    fn change_now(
        &self,
        path: &NodePath,
        chunk: &ChunkRef,
        current: &Current,
        new: NewChunk,
        modified: Option<SystemTime>,
    ) -> Result<PutChunk> {
        let ChunkRef { array, coords } = chunk;
        // If the shard could not be stored before, store its pending chunks with this one.
        if array.is_sharded()
            && let key = array.key(coords)?
            && self.core.cache.pending_array(&key).is_some()
        {
            self.core.cache.defer(path, chunk, new, modified)?;
            self.store_shard(&key, Instant::now())?;
            // The shard may contain elements of other writers.
            return Ok(PutChunk { stat: self.core.cache.stat(array, coords)?, is_merged: true });
        }
        self.core.cache.write(current, coords, new, self.core.options.fill_chunks)
    }

    /// Whether closing a chunk of `array` makes it pending.
    fn defers(&self, array: &Array) -> bool {
        match self.core.options.writeback {
            Writeback::Sync => false,
            Writeback::Delay => array.is_sharded(),
            Writeback::All => true,
        }
    }

    /// Stores the shards that are due. Tries all before it returns the first error.
    pub fn store_shards(&self, due: Due<'_>) -> Result<()> {
        let keys = self.core.cache.due(due);
        if keys.is_empty() {
            return Ok(());
        }
        let since = Instant::now();
        if self.core.is_remote() {
            self.check_arrays(&keys, since);
        }
        // Not `parallel::map`: storing a shard holds the lock of its key while inner chunks are
        // encoded. A thread of that pool that waits for them takes up other work, and if that were
        // another shard, the thread could wait for a lock that it holds itself.
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        // Threads that wait for a server need no processor.
        let threads = if self.core.is_remote() { REMOTE_THREADS } else { processors };
        let threads = threads.min(keys.len());
        let first = Mutex::new(Ok(()));
        let rest = Mutex::new(keys.into_iter());
        let work = || {
            loop {
                if self.core.is_remote() && first.lock().as_ref().is_err_and(is_unreachable) {
                    // Each of the others would wait as long.
                    return;
                }
                let key = rest.lock().next();
                let Some(key) = key else { return };
                if let Err(error) = self.store_shard(&key, since) {
                    let mut first = first.lock();
                    if first.is_ok() {
                        *first = Err(error);
                    }
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..threads {
                // If no thread can be started, this one does all the work.
                let spawned = thread::Builder::new().spawn_scoped(scope, work);
                drop(spawned);
            }
            work();
        });
        first.into_inner()
    }

    /// Compares the arrays of a flush with a server before threads store their shards, so that each
    /// array takes one request.
    fn check_arrays(&self, keys: &[Key], since: Instant) {
        let arrays = keys.iter().filter_map(|key| self.core.cache.pending_array(key));
        for (path, array) in arrays.collect::<BTreeMap<_, _>>() {
            // Each shard reports the error.
            let checked = self.core.hierarchy.array_since(&path, &array, since);
            checked.map_or_else(|error| log::debug!("{error}"), drop);
        }
    }

    /// Stores the pending chunks in the value of `key`, for a flush that began at `since`.
    pub fn store_shard(&self, key: &Key, since: Instant) -> Result<()> {
        let Some((path, written)) = self.core.cache.pending_array(key) else { return Ok(()) };
        // A server is asked once for each array and flush. A directory answers at once.
        let since = if self.core.is_remote() { since } else { Instant::now() };
        let changed = || self.unsynced.changed(key.clone());
        let fill = self.core.options.fill_chunks;
        let epoch = self.core.epoch();
        let array = self.core.hierarchy.array_since(&path, &written, since);
        if array.is_err() && self.core.cache.pending_array(key).is_none() {
            return Ok(()); // Another thread has stored them, and then moved or removed the array.
        }
        let stored = array
            .and_then(|array| Ok((self.core.cache.store(key, &array, fill, changed)?, array)))
            .and_then(|((chunks, unread), array)| {
                self.settle_stored(&path, &array, &chunks)?;
                unread
            })
            .at(&path);
        if let Err(error) = &stored
            // A change of this mount is not that of another program. The next flush sees its end.
            && (error.errno() != libc::ESTALE || self.core.is_unchanged_since(epoch))
            && self.core.cache.record_failure(key, error)
        {
            self.core.note("write back", error);
        }
        stored
    }

    /// Stores the pending chunks of an array before it changes, while they still mean what they
    /// meant when they were written. Does nothing for a group, whose change does not affect the
    /// nodes below.
    pub fn store_array(&self, path: &NodePath) -> Result<()> {
        let node = self.core.hierarchy.node(path)?;
        match node.as_ref().map(|node| node.kind()) {
            Some(NodeKind::Array) => self.store_shards(Due::Below(path)),
            Some(NodeKind::Group) | None => Ok(()),
        }
    }

    /// Like [`Self::store_array`], but ignores errors because the caller will call that again and
    /// report them.
    pub fn store_array_before(&self, path: &NodePath) {
        self.store_array(path).unwrap_or_else(|error| log::debug!("{error}"));
    }

    /// Stores the pending chunks in the shard of a chunk.
    pub fn store_shard_of(&self, target: &CurrentPlace) -> Result<()> {
        match target.chunk() {
            Some((_, chunk)) if self.core.cache.has_pending() && target.waits().is_none() => {
                self.store_shard(&chunk.array.key(&chunk.coords)?, Instant::now())
            }
            _ => Ok(()),
        }
    }

    /// Whether a file is a pending chunk.
    pub fn is_pending(&self, target: &CurrentPlace) -> Result<bool> {
        let Some((_, chunk)) = target.chunk() else { return Ok(false) };
        let stat = self.core.cache.stat(&chunk.array, &chunk.coords)?;
        Ok(stat.is_some_and(|stat| stat.version.is_unstored()))
    }

    /// Returns the error of the last attempt to store the shard of a chunk. Chunks outside of
    /// shards fail with the error of any pending chunk of their array.
    pub fn check_shard_of(&self, target: &CurrentPlace) -> Result<()> {
        let Some((path, ChunkRef { array, coords })) = target.chunk() else { return Ok(()) };
        // A chunk that waits is in no shard yet.
        if !self.core.cache.has_pending() || target.waits().is_some() {
            return Ok(());
        }
        let is_alone = self.core.options.writeback == Writeback::All && !array.is_sharded();
        let failure = if is_alone {
            self.core.cache.failure_in(path)
        } else {
            self.core.cache.failure(&array.key(coords)?)
        };
        failure.map_or(Ok(()), Err)
    }

    /// Stores full shards in the background, with one thread for each processor.
    pub fn store_full_soon(self: &Arc<Self>) {
        let Some(pool) = self.core.pool.get() else { return };
        while let Some(counted) = Storing::take(&self.storing, pool.most_ahead()) {
            let Some(key) = self.core.cache.take_full() else { return };
            let writer = Arc::downgrade(self);
            pool.run(Urgency::Request, move || {
                let _counted = counted;
                let mut next = Some(key);
                while let (Some(writer), Some(key)) = (writer.upgrade(), next.take()) {
                    // The next close or `fsync` reports the error.
                    writer
                        .store_shard(&key, Instant::now())
                        .unwrap_or_else(|error| log::debug!("{error}"));
                    next = writer.core.cache.take_full();
                }
            });
        }
    }

    /// Stores full shards, and others if too much is pending.
    pub fn store_full(&self) {
        // The next close or `fsync` in the shard reports the error.
        let log_error = |stored: Result<()>| stored.unwrap_or_else(|error| log::debug!("{error}"));
        log_error(self.store_shards(Due::Full));
        let limit = self.core.options.dirty_limit / 2;
        if self.core.cache.pending_len() <= limit {
            return;
        }
        for key in self.core.cache.due(Due::Since(Duration::ZERO)) {
            if self.core.cache.pending_len() <= limit {
                break;
            }
            if self.core.cache.failure(&key).is_none() {
                log_error(self.store_shard(&key, Instant::now()));
            }
        }
    }

    /// Updates the state of the stored chunks: the kernel's pages show them if they read as they
    /// were written.
    fn settle_stored(
        &self,
        path: &NodePath,
        array: &Arc<Array>,
        chunks: &[WrittenBack],
    ) -> Result<()> {
        let stored = chunks.iter().filter(|chunk| chunk.now.is_some());
        let times: Vec<(Coords, SystemTime)> =
            stored.filter_map(|chunk| Some((chunk.coords.clone(), chunk.modified?))).collect();
        let mut versions = None;
        if let Some((first, _)) = times.first()
            && let Some(modified) = array.set_modified(&times)?
        {
            let target = self.names.target(Place::Chunk(path.clone(), first.clone()))?;
            let key = array.key(first)?;
            versions = self.stored.set_value_modified(&target, &key, modified).map(Some)?;
        }
        for WrittenBack { coords, was, now, .. } in chunks {
            let place = Place::Chunk(path.clone(), coords.clone());
            self.names.seen_versions.forget(&place);
            let Some(inode) = self.names.inodes.known_at(&place) else { continue };
            let stored = now.map(|stat| stat.version);
            let now = match versions {
                Some((before, after)) if stored.is_some_and(|stored| stored.holds(before)) => {
                    self.core.cache.set_version(array, coords, before, after);
                    Some(after)
                }
                Some(_) => None,
                None => stored,
            };
            if stored.is_none() {
                self.names.forget_names(&place);
            }
            if !array.reads_as_written(coords) {
                self.core.invalidate(inode.number());
                continue;
            }
            // A write to a view changes them without the kernel.
            self.core.outdate(Outdated::Attributes(inode.number()));
            if let Some(mut file) = inode.file().try_lock() {
                // The thread that has it locked will open it again, and then drops the pages.
                file.renew_version(*was, now);
            }
        }
        Ok(())
    }
}

/// Counts a thread that stores in the background, until it is dropped.
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
