//! Chunks that wait to be stored together with the others of their stored value, a shard.
//!
//! They are part of the array for everybody who asks the cache: a chunk that waits is read,
//! listed and measured as if it were stored, and one that waits to be erased is not there. What
//! waits for one stored value is stored as one change of it; what cannot be stored stays.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use crate::array::{Array, Coords};
use crate::codec::Buffer;
use crate::error::Error;
use crate::metadata::NodePath;
use crate::store::{Key, Prefix, Stat, Version};

/// A chunk that waits.
#[derive(Debug, Clone)]
pub(super) struct Held {
    /// None where it is to be erased.
    pub(super) bytes: Option<Buffer>,
    /// Its decoded length, when it was written, and a version that no stored value has.
    pub(super) stat: Stat,
    /// When a program said that it was modified.
    pub(super) modified: Option<SystemTime>,
}

/// The chunks that wait for one stored value.
#[derive(Debug)]
struct Shard {
    path: NodePath,
    prefix: Prefix,
    chunks: BTreeMap<Coords, Held>,
    /// How many chunks there are in all.
    most: u64,
    /// Since when the first of them has waited, or since when the last attempt to store them has failed.
    since: Instant,
    failure: Option<Error>,
}

impl Shard {
    fn is_full(&self) -> bool {
        u64::try_from(self.chunks.len()).is_ok_and(|count| count >= self.most)
    }
}

/// Which of them are to be stored.
#[derive(Debug, Clone, Copy)]
pub enum Due<'p> {
    /// All.
    All,
    /// Those that have waited for so long.
    Since(Duration),
    /// Those of which every chunk waits: nothing would be gained by waiting longer. Not those that could not be stored.
    Full,
    /// Those of the arrays at and below a node.
    Below(&'p NodePath),
}

/// All chunks that wait, by the key of the value that they will lie in.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// A leaf: held for look-ups only, never while storing.
    shards: Mutex<BTreeMap<Key, Shard>>,
    /// Bytes of the chunks, so that nobody need lock for knowing that there are none.
    len: AtomicU64,
    /// Stored values that chunks wait for.
    count: AtomicU64,
    versions: AtomicU64,
}

impl Waiting {
    /// Decoded bytes that wait.
    pub(super) fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Lets a chunk wait, in the place of what waits there already.
    pub(super) fn hold(
        &self,
        path: &NodePath,
        array: &Array,
        (key, coords): (&Key, &Coords),
        bytes: Option<Buffer>,
        modified: Option<SystemTime>,
    ) -> Stat {
        let number = self.versions.fetch_add(1, Ordering::Relaxed);
        let len = bytes.as_ref().map_or(0, |bytes| len_of(bytes));
        let stat = Stat {
            len,
            modified: modified.unwrap_or_else(SystemTime::now),
            version: Version::unstored(number),
        };
        let mut shards = self.shards.lock();
        let shard = shards.entry(key.clone()).or_insert_with(|| {
            self.count.fetch_add(1, Ordering::Release);
            Shard {
                path: path.clone(),
                prefix: array.prefix().clone(),
                chunks: BTreeMap::new(),
                most: array.chunks_beside(coords),
                since: Instant::now(),
                failure: None,
            }
        });
        let old = shard.chunks.insert(coords.clone(), Held { bytes, stat, modified });
        self.len.fetch_add(len, Ordering::Relaxed);
        self.len.fetch_sub(old.as_ref().map_or(0, |old| old.stat.len), Ordering::Relaxed);
        drop(shards);
        drop(old); // Freeing memory takes time: not under the lock.
        stat
    }

    /// What waits at `coords` in the value of `key`.
    pub(super) fn get(&self, key: impl FnOnce() -> Option<Key>, coords: &Coords) -> Option<Held> {
        if self.is_empty() {
            return None;
        }
        let key = key()?;
        self.shards.lock().get(&key)?.chunks.get(coords).cloned()
    }

    /// Changes when a chunk that waits was modified; whether one does.
    pub(super) fn set_modified(&self, key: &Key, coords: &Coords, modified: SystemTime) -> bool {
        let mut shards = self.shards.lock();
        let held = shards.get_mut(key).and_then(|shard| shard.chunks.get_mut(coords));
        if let Some(held) = held {
            held.modified = Some(modified);
            held.stat.modified = modified;
            return held.bytes.is_some();
        }
        false
    }

    /// What waits in an array, of the chunks whose first indices are `prefix`: whether each is to be there.
    pub(super) fn below(&self, array: &Array, prefix: &[u64]) -> Vec<(Coords, bool)> {
        if self.is_empty() {
            return Vec::new();
        }
        let shards = self.shards.lock();
        let shards = shards.values().filter(|shard| shard.prefix == *array.prefix());
        let chunks = shards.flat_map(|shard| &shard.chunks);
        let below = chunks.filter(|(coords, _)| coords.starts_with(prefix));
        below.map(|(coords, held)| (coords.clone(), held.bytes.is_some())).collect()
    }

    /// The keys of the values that are due, those that have waited longest first.
    pub(super) fn due(&self, due: Due<'_>) -> Vec<Key> {
        if self.is_empty() {
            return Vec::new();
        }
        let shards = self.shards.lock();
        let is_due = |shard: &Shard| match due {
            Due::All => true,
            Due::Since(delay) => shard.since.elapsed() >= delay,
            Due::Full => shard.failure.is_none() && shard.is_full(),
            Due::Below(path) => shard.path.relative_to(path).is_some(),
        };
        let mut keys: Vec<(Instant, Key)> = shards
            .iter()
            .filter(|(_, shard)| is_due(shard))
            .map(|(key, shard)| (shard.since, key.clone()))
            .collect();
        drop(shards);
        keys.sort();
        keys.into_iter().map(|(_, key)| key).collect()
    }

    /// What waits for the value of `key`, and the array that it is of.
    pub(super) fn of(&self, key: &Key) -> Option<(NodePath, Vec<(Coords, Held)>)> {
        let shards = self.shards.lock();
        let shard = shards.get(key)?;
        let chunks = shard.chunks.iter().map(|(coords, held)| (coords.clone(), held.clone()));
        Some((shard.path.clone(), chunks.collect()))
    }

    /// Notes that a chunk is stored as it was when it had `version`; whether it has not changed since.
    pub(super) fn done(&self, key: &Key, coords: &Coords, version: Version) -> bool {
        self.remove(key, coords, |held| held.stat.version == version)
    }

    /// Forgets what waits at `coords`.
    pub(super) fn forget(&self, key: &Key, coords: &Coords) {
        if !self.is_empty() {
            self.remove(key, coords, |_| true);
        }
    }

    fn remove(&self, key: &Key, coords: &Coords, is_it: impl Fn(&Held) -> bool) -> bool {
        let mut shards = self.shards.lock();
        let Some(shard) = shards.get_mut(key) else { return false };
        // The store has taken something: why it did not before is no longer so.
        shard.failure = None;
        if !shard.chunks.get(coords).is_some_and(is_it) {
            return false;
        }
        let gone = shard.chunks.remove(coords);
        if shard.chunks.is_empty() {
            shards.remove(key);
            self.count.fetch_sub(1, Ordering::Release);
        }
        self.len.fetch_sub(gone.as_ref().map_or(0, |gone| gone.stat.len), Ordering::Relaxed);
        drop(shards);
        drop(gone);
        true
    }

    /// Notes that what waits for the value of `key` could not be stored; whether that is news.
    pub(super) fn failed(&self, key: &Key, error: &Error) -> bool {
        let mut shards = self.shards.lock();
        let Some(shard) = shards.get_mut(key) else { return true };
        shard.since = Instant::now();
        shard.failure.replace(error.clone()).as_ref() != Some(error)
    }

    /// Why what waits for the value of `key` could not be stored, if it was tried.
    pub(super) fn failure(&self, key: &Key) -> Option<Error> {
        if self.is_empty() {
            return None;
        }
        self.shards.lock().get(key)?.failure.clone()
    }

    /// Forgets what waits below a node that is removed.
    pub(super) fn forget_below(&self, path: &NodePath) {
        if self.is_empty() {
            return;
        }
        let mut shards = self.shards.lock();
        let (gone, kept) = std::mem::take(&mut *shards)
            .into_iter()
            .partition::<BTreeMap<_, _>, _>(|(_, shard)| shard.path.relative_to(path).is_some());
        *shards = kept;
        let len: u64 =
            gone.values().flat_map(|shard| shard.chunks.values()).map(|c| c.stat.len).sum();
        self.len.fetch_sub(len, Ordering::Relaxed);
        self.count.fetch_sub(u64::try_from(gone.len()).unwrap_or_default(), Ordering::Release);
        drop(shards);
        drop(gone);
    }
}

fn len_of(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
