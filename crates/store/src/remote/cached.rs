//! Values of a server that are kept on the local disk.
//!
//! The disk has bytes of one version of a value, so they count only if that is the version on the
//! server. Listings say the versions of 1,000 values at a time; if a server does not list, a
//! request for one byte does.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use super::deep::Visits;
use super::names::{KnownPresence, NameCache};
use super::pages::Directory;
use super::server::{Depth, ListingPage, Report, Server, Start, wait};
use crate::disk_cache::DiskCache;
use crate::{ByteRange, Condition, Key, Prefix, Stat, Value};
use zarrfs_base::error::{Result, WithSubject};
use zarrfs_base::pool::{Pool, Urgency};
use zarrfs_base::width::ToU64;

/// The threads that read and write the disk. Some wait for listings.
const THREADS: usize = 8;

/// So many bytes may wait to be written while their readers go on.
const MOST_WAITING: u64 = 64 << 20;

/// How long no names are listed after that failed.
const PAUSE: Duration = Duration::from_secs(60);

/// How long the end of a mount waits for what is being written.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// A cache on disk, and the name of a store among those whose values it has.
#[derive(Debug, Clone)]
pub struct ValueCache {
    /// The cache.
    pub disk: Arc<DiskCache>,
    /// What comes before the keys of this store in the names of its values.
    pub store: String,
}

/// A server whose values are kept on disk.
pub(super) struct Cached {
    shared: Arc<CachedShared>,
    pool: Arc<Pool>,
}

struct CachedShared {
    server: Arc<dyn Server>,
    cache: ValueCache,
    names: Arc<NameCache>,
    visits: Arc<Visits>,
    /// Held while names are listed, so that readers of one directory list it once.
    listing: Mutex<()>,
    /// Until when values are asked for one by one, since a listing failed. A leaf lock.
    failed_until: Mutex<Option<Instant>>,
    /// The bytes that wait to be written. A leaf lock.
    waiting: Mutex<u64>,
    /// All that waited is written.
    is_written: Condvar,
    hits: AtomicU64,
    hit_len: AtomicU64,
}

impl fmt::Debug for Cached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cached").field("cache", &self.shared.cache).finish_non_exhaustive()
    }
}

impl Cached {
    pub(super) fn new(
        server: Arc<dyn Server>,
        cache: ValueCache,
        names: Arc<NameCache>,
        visits: Arc<Visits>,
    ) -> Result<Self> {
        let shared = CachedShared {
            server,
            cache,
            names,
            visits,
            listing: Mutex::default(),
            failed_until: Mutex::default(),
            waiting: Mutex::default(),
            is_written: Condvar::new(),
            hits: AtomicU64::new(0),
            hit_len: AtomicU64::new(0),
        };
        let pool = Arc::new(Pool::new(THREADS, THREADS)?);
        Ok(Self { shared: Arc::new(shared), pool })
    }

    /// Waits a while until all that waits is written.
    pub(super) fn wait_until_written(&self) {
        self.shared.wait_until_written();
    }

    /// Returns how many reads the disk has answered, and with how many bytes.
    pub(super) fn hits(&self) -> (u64, u64) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (count(&self.shared.hits), count(&self.shared.hit_len))
    }
}

/// Gets a value from the server, and keeps it.
fn get_and_keep(
    shared: &Arc<CachedShared>,
    pool: &Arc<Pool>,
    key: &Key,
    range: Option<ByteRange>,
    report: Report<Option<Value>>,
) {
    let (shared, pool, name) = (Arc::clone(shared), Arc::clone(pool), shared.name_of(key));
    let server = Arc::clone(&shared.server);
    let kept: Report<Option<Value>> = Box::new(move |answer| {
        let Ok(Some(value)) = &answer else { return report(answer) };
        let (stat, bytes) = (value.stat, value.bytes.clone());
        let (start, _) = range.map_or((0, stat.len), |range| range.within(stat.len));
        let len = len_of(&bytes);
        let is_much = shared.note_waiting(len) > MOST_WAITING;
        let keep = move || {
            shared.cache.disk.put(&name, stat, start, &bytes);
            shared.note_written(len);
        };
        if is_much {
            // The reader waits, so that the disk can follow.
            pool.run(Urgency::Request, move || {
                keep();
                report(answer);
            });
        } else {
            report(answer);
            pool.run(Urgency::Request, keep);
        }
    });
    server.get(key, range, kept);
}

impl CachedShared {
    fn name_of(&self, key: &Key) -> String {
        format!("{}{key}", self.cache.store)
    }

    /// Notes that bytes wait to be written, and returns how many do.
    fn note_waiting(&self, len: u64) -> u64 {
        let mut waiting = self.waiting.lock();
        *waiting = waiting.saturating_add(len);
        *waiting
    }

    fn note_written(&self, len: u64) {
        let mut waiting = self.waiting.lock();
        *waiting = waiting.saturating_sub(len);
        if *waiting == 0 {
            self.is_written.notify_all();
        }
    }

    /// Waits a while until all that waits is written.
    fn wait_until_written(&self) {
        let mut waiting = self.waiting.lock();
        let end = Instant::now() + LONGEST_WAIT;
        while *waiting > 0 && !self.is_written.wait_until(&mut waiting, end).timed_out() {}
    }

    /// Returns the bytes of a range, if the disk has them in the version of the server.
    fn find(&self, key: &Key, name: &str, range: Option<ByteRange>) -> Option<Value> {
        let stat = match self.names.key(key) {
            KnownPresence::Present(stat) => stat,
            KnownPresence::Absent => return None,
            KnownPresence::Unknown => self.learn(key)?,
        };
        let (start, len) = range.map_or((0, stat.len), |range| range.within(stat.len));
        let bytes = self.cache.disk.get(name, stat, start, start.saturating_add(len))?;
        self.hits.fetch_add(1, Ordering::Relaxed);
        self.hit_len.fetch_add(len, Ordering::Relaxed);
        Some(Value { bytes, stat })
    }

    /// Asks the server for the version of a value that is on disk.
    fn learn(&self, key: &Key) -> Option<Stat> {
        if self.may_list() {
            let _alone = self.listing.lock();
            match self.list(key) {
                Ok(KnownPresence::Present(stat)) => return Some(stat),
                Ok(KnownPresence::Absent) => return None,
                // There are too many names to list all.
                Ok(KnownPresence::Unknown) => {}
                Err(error) => {
                    log::debug!("{key}: {error}");
                    *self.failed_until.lock() = Instant::now().checked_add(PAUSE);
                }
            }
        }
        let first = Some(ByteRange::first(1));
        let value = wait(|report| self.server.get(key, first, report)).ok()?;
        value.map(|value| value.stat)
    }

    /// Whether no listing has failed recently.
    fn may_list(&self) -> bool {
        self.failed_until.lock().is_none_or(|until| Instant::now() >= until)
    }

    /// Lists names, a page for each call, until a value is among them.
    fn list(&self, key: &Key) -> Result<KnownPresence<Stat>> {
        let known = self.names.key(key);
        if !matches!(known, KnownPresence::Unknown) {
            return Ok(known);
        }
        let parent = key.parent();
        // Where one value is on disk its neighbours are too, and one listing confirms them all.
        if let Some(first) = self.names.first_unlisted(&parent).filter(|first| *first != parent) {
            self.visits.expect(&first);
        }
        self.visits.look_into(&parent, &*self.server, &self.names);
        let known = self.names.key(key);
        if matches!(known, KnownPresence::Unknown) {
            Directory::continued(&self.server, &self.names, &parent).read_next().at(&parent)?;
        }
        Ok(self.names.key(key))
    }
}

impl Server for Cached {
    fn get(&self, key: &Key, range: Option<ByteRange>, report: Report<Option<Value>>) {
        let (shared, name) = (&self.shared, self.shared.name_of(key));
        if !shared.names.holds() || !shared.cache.disk.may_have(&name) {
            return get_and_keep(shared, &self.pool, key, range, report);
        }
        let (shared, pool, key) = (Arc::clone(shared), Arc::clone(&self.pool), key.clone());
        self.pool.run(Urgency::Request, move || match shared.find(&key, &name, range) {
            Some(value) => report(Ok(Some(value))),
            None => get_and_keep(&shared, &pool, &key, range, report),
        });
    }

    fn put(&self, key: &Key, bytes: Vec<Bytes>, condition: Condition, report: Report<Stat>) {
        self.shared.server.put(key, bytes, condition, report);
    }

    fn has_tag(&self, stat: &Stat, tag: &str) -> Option<bool> {
        self.shared.server.has_tag(stat, tag)
    }

    fn has_version(&self, stat: &Stat) -> bool {
        self.shared.server.has_version(stat)
    }

    fn delete(&self, keys: &[Key], report: Report<()>) {
        self.shared.server.delete(keys, report);
    }

    fn stop(&self) {
        self.shared.server.stop();
    }

    fn lists_subtrees(&self) -> bool {
        self.shared.server.lists_subtrees()
    }

    fn proves_absence(&self) -> bool {
        self.shared.server.proves_absence()
    }

    fn list(&self, prefix: &Prefix, depth: Depth, start: Start, report: Report<ListingPage>) {
        self.shared.server.list(prefix, depth, start, report);
    }
}

fn len_of(bytes: &Bytes) -> u64 {
    bytes.len().to_u64()
}
