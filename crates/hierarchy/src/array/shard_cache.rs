//! Caches for shards: their indexes, and shards that must be decoded as a whole.
//!
//! Their limits in bytes apply to all arrays of a hierarchy together: it may have any number of
//! them, and metadata may ask for any number of index entries. The newest value is always kept,
//! however long, since the next call probably needs it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::chunk_times::Times;
use super::coords::Coords;
use super::sharded::Loaded;
use zarrfs_base::bounded::{Bounded, MapLimits};
use zarrfs_base::resources;
use zarrfs_base::width::ToU64;
use zarrfs_store::Value;

/// The caches of the shards of a hierarchy.
#[derive(Debug)]
pub struct ShardCaches {
    /// The decoded indexes.
    pub(super) indexes: ShardCache<Arc<Loaded>>,
    /// Shards that were decoded as a whole, because codecs encode the whole shard.
    pub(super) whole: ShardCache<Value>,
    /// The times of chunks in shards that have more than one. A leaf lock.
    pub(super) times: Mutex<Bounded<(LevelId, Coords), Times>>,
}

/// The most bytes of indexes and of decoded shards, each.
const MAX_LEN: u64 = 64 << 20;

/// The most bytes of times.
const MAX_TIMES: u64 = 32 << 20;

impl Default for ShardCaches {
    fn default() -> Self {
        let most = resources::within_memory(MAX_LEN, 16);
        let of_times = MapLimits::bytes(resources::within_memory(MAX_TIMES, 16));
        let times = Mutex::new(Bounded::new(of_times));
        Self { indexes: ShardCache::new(most), whole: ShardCache::new(most), times }
    }
}

/// The bytes of an entry besides its value.
const ENTRY_LEN: u64 = 256;

/// The number of a sharding level of an open array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LevelId(u64);

impl LevelId {
    /// Returns a number that no other level has or had.
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The most recently used values by shard.
#[derive(Debug)]
pub struct ShardCache<V> {
    /// A leaf lock for look-ups.
    table: Mutex<Bounded<(LevelId, Coords), V>>,
}

impl<V: Clone> ShardCache<V> {
    /// Returns a cache for at most `limit` bytes, or one value that is longer.
    pub fn new(limit: u64) -> Self {
        Self { table: Mutex::new(Bounded::new(MapLimits::bytes(limit))) }
    }

    /// Returns the cached value of a shard.
    pub fn get(&self, level: LevelId, shard: &Coords) -> Option<V> {
        self.table.lock().get(&(level, shard.clone())).cloned()
    }

    /// Caches the value of a shard, which takes `len` bytes.
    pub fn put(&self, level: LevelId, shard: &Coords, value: V, len: usize) {
        let len = len.to_u64().saturating_add(ENTRY_LEN);
        let evicted = self.table.lock().put((level, shard.clone()), value, len);
        drop(evicted); // Freeing memory takes time: not under the lock.
    }

    /// Drops the value of a shard.
    pub fn forget(&self, level: LevelId, shard: &Coords) {
        let forgotten = self.table.lock().remove(&(level, shard.clone()));
        drop(forgotten);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(index: u64) -> Coords {
        Coords::new([index])
    }

    #[test]
    fn the_cache_limit_applies_to_all_levels_together() {
        let cache = ShardCache::new(10_000);
        let levels = [LevelId::new(), LevelId::new()];
        for index in 0..1000 {
            for level in levels {
                cache.put(level, &shard(index), index, 744);
                assert!(cache.table.lock().len() <= 10_000);
            }
        }
        let there =
            |level| (0..1000).filter(|index| cache.get(level, &shard(*index)).is_some()).count();
        assert_eq!(levels.map(there), [5, 5]);
        cache.forget(levels[1], &shard(999));
        assert_eq!((levels.map(there), cache.table.lock().len()), ([5, 4], 9000));
    }

    #[test]
    fn one_value_is_cached_however_long() {
        let (cache, level) = (ShardCache::new(1000), LevelId::new());
        cache.put(level, &shard(0), 'a', 10);
        cache.put(level, &shard(1), 'b', 1_000_000);
        assert_eq!([0, 1].map(|index| cache.get(level, &shard(index))), [None, Some('b')]);
        cache.put(level, &shard(1), 'c', 10);
        assert_eq!((cache.get(level, &shard(1)), cache.table.lock().len()), (Some('c'), 266));
    }
}
