//! The modification times of inner chunks. A store has one time for a whole shard.
//!
//! Programs like `rsync` and `cp -u` compare times to find what is up to date. If one chunk of a
//! shard is changed, the others therefore keep the time that they had, and the time that a program
//! sets for a chunk is not that of the others. This is known as long as the array is open and
//! nobody else changes the shard. Afterwards its chunks have the time of the shard, which is one
//! that programs have set only if they have set the time of each of its chunks.

use std::collections::BTreeMap;
use std::time::SystemTime;

use super::{Loaded, Sharded};
use crate::array::chunk_times::{Time, Times};
use crate::array::coords::Coords;
use zarrfs_base::error::Result;
use zarrfs_store::{Stat, Version};

/// A change of a shard.
#[derive(Debug)]
pub(super) struct ShardChanged {
    /// The stat of the shard before, `None` if all of its chunks were replaced.
    pub old: Option<Stat>,
    /// The slots that were changed, and whether each has a chunk now.
    pub slots: Vec<(usize, bool)>,
}

impl Sharded {
    /// Gives stats of chunks, which have the time of the shard, the times of these chunks.
    pub(super) fn set_own_times<'s>(
        &self,
        stats: impl Iterator<Item = (&'s Coords, &'s mut Stat)>,
    ) {
        let mut known = self.caches.times.lock();
        if known.is_empty() {
            return;
        }
        for (coords, stat) in stats {
            let times = known.get(&(self.id, self.level.shard_of(coords)));
            if let Some(times) = times.filter(|times| times.version.is_same(stat.version)) {
                let own = times.slots.get(&self.level.slot_of(coords));
                stat.modified = own.map_or(times.others, |time| time.modified);
            }
        }
    }

    /// Keeps the times of the chunks of a shard that a change, which gave it the stat `now`, has
    /// left as they were.
    pub(super) fn keep_times(&self, shard: &Coords, changed: ShardChanged, now: Option<Stat>) {
        let ShardChanged { old, slots } = changed;
        self.change_times(shard, |known| {
            let (old, now) = (old?, now?);
            let new = Times { version: old.version, others: old.modified, slots: BTreeMap::new() };
            let mut times = known.filter(|times| times.version.is_same(old.version)).unwrap_or(new);
            times.version = now.version;
            for (slot, is_there) in slots {
                if is_there {
                    let time = Time { modified: now.modified, is_set: false };
                    times.slots.insert(slot, time);
                } else {
                    times.slots.remove(&slot);
                }
            }
            Some(times)
        });
    }

    /// Notes the times that a program has set for chunks of a shard. Returns the latest one if the
    /// time of each chunk in the shard was set.
    pub(super) fn set_times(
        &self,
        shard: &Coords,
        set: Vec<(usize, SystemTime)>,
    ) -> Result<Option<SystemTime>> {
        let Some(loaded) = self.index_now(shard)? else { return Ok(None) };
        let Loaded { index, stat, .. } = &*loaded;
        let mut latest = None;
        self.change_times(shard, |known| {
            let known = known.filter(|times| times.version.is_same(stat.version));
            let mut times = known.unwrap_or_else(|| Times {
                version: stat.version,
                others: stat.modified,
                slots: BTreeMap::new(),
            });
            let set = set.into_iter().filter(|(slot, _)| index.is_present(*slot));
            let time = |(slot, modified)| (slot, Time { modified, is_set: true });
            times.slots.extend(set.map(time));
            // From the end, because most programs set the times of the first chunks first.
            let present = (0..index.slots()).rev().filter(|slot| index.is_present(*slot));
            let each: Option<Vec<SystemTime>> = present
                .map(|slot| times.slots.get(&slot).filter(|time| time.is_set))
                .map(|time| time.map(|time| time.modified))
                .collect();
            latest = each.and_then(|each| each.into_iter().max());
            Some(times)
        });
        Ok(latest)
    }

    /// Notes that only the time of a shard was set, which changed its version.
    pub(super) fn renew_times(&self, shard: &Coords, before: Version, after: Version) {
        self.change_times(shard, |known| {
            let mut times = known?;
            if times.version.is_same(before) {
                times.version = after;
            }
            Some(times)
        });
    }

    fn change_times(&self, shard: &Coords, change: impl FnOnce(Option<Times>) -> Option<Times>) {
        let key = (self.id, shard.clone());
        let mut known = self.caches.times.lock();
        let changed = change(known.remove(&key));
        let evicted = changed.map(|times| {
            let len = times.len();
            known.put(key, times, len)
        });
        drop(known);
        drop(evicted); // Freeing memory takes time: not under the lock.
    }
}
