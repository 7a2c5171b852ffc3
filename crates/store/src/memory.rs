//! A store in memory, for tests; it is also the simplest implementation of the interface.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use parking_lot::Mutex;

use super::{
    Aside, ByteRange, Capacity, Condition, Entries, Key, Keys, ListableStore, PRIVATE, Prefix,
    ReadableStore, Stat, StoreEntry, Value, ValuePiece, Version, WritableStore, not_free,
};
use zarrfs_base::error::{Error, Kind, Result, WithSubject};
use zarrfs_base::width::{ToU64, ToUsize};

/// Values in a map, which are lost when the process ends.
#[derive(Debug, Default)]
pub struct MemoryStore {
    /// A leaf lock; no thread waits while it holds it.
    values: Mutex<MemoryValues>,
    asides: Arc<Mutex<Asides>>,
}

/// The temporary places in use.
#[derive(Debug, Default)]
struct Asides {
    made: u64,
    live: BTreeSet<Prefix>,
}

/// Marks a temporary place as in use until it is dropped.
#[derive(Debug)]
struct AsideGuard {
    prefix: Prefix,
    asides: Arc<Mutex<Asides>>,
}

impl Drop for AsideGuard {
    fn drop(&mut self) {
        self.asides.lock().live.remove(&self.prefix);
    }
}

#[derive(Debug, Default)]
struct MemoryValues {
    by_key: BTreeMap<Key, (Bytes, Stat)>,
    sets: u64,
}

impl MemoryValues {
    fn check_is_free(&self, prefix: &Prefix) -> Result<()> {
        let is_taken = self.by_key.keys().any(|key| key.as_str().starts_with(prefix.as_str()));
        if is_taken { Err(not_free().at(prefix)) } else { Ok(()) }
    }

    fn move_below(&mut self, from: &Prefix, to: &Prefix) -> Result<()> {
        let below: Vec<(Key, String)> = self
            .by_key
            .keys()
            .filter_map(|key| {
                Some((key.clone(), key.as_str().strip_prefix(from.as_str())?.to_owned()))
            })
            .collect();
        for (key, relative) in below {
            if let Some(value) = self.by_key.remove(&key) {
                self.by_key.insert(to.key(&relative)?, value);
            }
        }
        Ok(())
    }
}

impl MemoryStore {
    /// Returns an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn hold(&self, prefix: Prefix) -> Aside {
        self.asides.lock().live.insert(prefix.clone());
        let guard = AsideGuard { prefix: prefix.clone(), asides: Arc::clone(&self.asides) };
        Aside::new(prefix, Box::new(guard))
    }
}

impl ReadableStore for MemoryStore {
    fn get_partial_values(&self, ranges: &[(Key, ByteRange)]) -> Result<Vec<Option<Value>>> {
        let values = self.values.lock();
        let get = |(key, range): &(Key, ByteRange)| {
            let (bytes, stat) = values.by_key.get(key)?;
            let (offset, len) = range.within(stat.len);
            // Both offsets lie within a value that is in memory.
            let start = offset.to_usize();
            let end = start.saturating_add(len.to_usize());
            Some(Value {
                bytes: bytes.slice(start.min(bytes.len())..end.min(bytes.len())),
                stat: *stat,
            })
        };
        Ok(ranges.iter().map(get).collect())
    }

    fn stat(&self, keys: &[Key]) -> Result<Vec<Option<Stat>>> {
        let values = self.values.lock();
        Ok(keys.iter().map(|key| values.by_key.get(key).map(|(_, stat)| *stat)).collect())
    }

    fn room(&self) -> Result<Option<Capacity>> {
        Ok(None)
    }
}

impl WritableStore for MemoryStore {
    fn set(&self, key: &Key, pieces: &[ValuePiece], condition: Condition) -> Result<Stat> {
        let mut values = self.values.lock();
        let old = values.by_key.get(key);
        condition.check(old.map(|(_, stat)| stat.version)).at(key)?;
        let old = old.map(|(bytes, _)| bytes.clone()).unwrap_or_default();
        let mut new = Vec::new();
        for piece in pieces {
            match piece {
                ValuePiece::New(bytes) => new.extend_from_slice(bytes),
                ValuePiece::Kept { offset, len } => {
                    new.extend_from_slice(kept(&old, *offset, *len)?);
                }
            }
        }
        let bytes = Bytes::from(new);
        values.sets += 1;
        let stat = Stat {
            len: bytes.len().to_u64(),
            modified: SystemTime::now(),
            version: Version::settled([values.sets, 0, 0, 0]),
        };
        values.by_key.insert(key.clone(), (bytes, stat));
        Ok(stat)
    }

    fn set_partial_values(&self, parts: &[(Key, u64, Bytes)]) -> Result<()> {
        for (key, start, bytes) in parts {
            let stat = self.values.lock().by_key.get(key).map(|(_, stat)| *stat);
            let stat = stat.ok_or_else(|| Error::not_found().at(key))?;
            let pieces = ValuePiece::overlay(stat.len, &[(*start, bytes.clone())]).at(key)?;
            self.set(key, &pieces, Condition::Unchanged(stat.version))?;
        }
        Ok(())
    }

    fn erase_values(&self, keys: &[Key]) -> Result<()> {
        let mut values = self.values.lock();
        for key in keys {
            values.by_key.remove(key);
        }
        Ok(())
    }

    fn erase_unchanged(&self, key: &Key, version: Version) -> Result<()> {
        let mut values = self.values.lock();
        let found = values.by_key.get(key).map(|(_, stat)| stat.version);
        Condition::Unchanged(version).check(found).at(key)?;
        values.by_key.remove(key);
        Ok(())
    }

    fn erase_prefix(&self, prefix: &Prefix) -> Result<()> {
        self.values.lock().by_key.retain(|key, _| !key.as_str().starts_with(prefix.as_str()));
        Ok(())
    }

    fn erase_empty(&self, prefix: &Prefix) -> Result<()> {
        self.values.lock().check_is_free(prefix)
    }

    fn move_to_free(&self, from: &Prefix, to: &Prefix) -> Result<()> {
        let mut values = self.values.lock();
        values.check_is_free(to)?;
        if values.check_is_free(from).is_ok() {
            return Err(Error::not_found().at(from));
        }
        values.move_below(from, to)
    }

    fn move_prefix(&self, from: &Prefix, to: &Prefix) -> Result<()> {
        self.values.lock().move_below(from, to)
    }

    fn move_value(&self, from: &Key, to: &Key) -> Result<()> {
        let mut values = self.values.lock();
        if let Some(value) = values.by_key.remove(from) {
            values.by_key.insert(to.clone(), value);
        }
        Ok(())
    }

    fn set_modified(&self, key: &Key, modified: SystemTime) -> Result<(Version, Version)> {
        let mut values = self.values.lock();
        values.sets += 1;
        let after = Version::settled([values.sets, 0, 0, 0]);
        let (_, stat) = values.by_key.get_mut(key).ok_or_else(|| Error::not_found().at(key))?;
        let before = std::mem::replace(&mut stat.version, after);
        stat.modified = modified;
        Ok((before, after))
    }

    fn sync(&self, _keys: &[Key]) -> Result<()> {
        Ok(())
    }

    fn aside(&self) -> Result<Aside> {
        let mut asides = self.asides.lock();
        asides.made += 1;
        let prefix = Prefix::parse(&format!("{PRIVATE}/aside-{}", asides.made))?;
        drop(asides);
        Ok(self.hold(prefix))
    }

    fn declare(&self, aside: &Aside, text: Bytes) -> Result<()> {
        self.set(&aside.declaration()?, &[text.into()], Condition::Always).map(drop)
    }

    fn abandoned(&self) -> Result<Vec<Aside>> {
        let private = Prefix::parse(PRIVATE)?;
        let mut abandoned = Vec::new();
        for entry in self.list_dir(&private)? {
            if let StoreEntry::Prefix(name) = entry?
                && name.starts_with("aside-")
            {
                let prefix = private.join(&name)?;
                let is_live = self.asides.lock().live.contains(&prefix);
                abandoned.extend((!is_live).then(|| self.hold(prefix)));
            }
        }
        Ok(abandoned)
    }

    fn release_idle(&self, _quiet: Duration) -> Result<()> {
        Ok(()) // Nothing is there for writing alone.
    }
}

fn kept(old: &[u8], offset: u64, len: u64) -> Result<&[u8]> {
    let start = usize::try_from(offset).ok();
    let end = usize::try_from(len).ok().and_then(|len| start?.checked_add(len));
    let bytes = start.zip(end).and_then(|(start, end)| old.get(start..end));
    bytes.ok_or_else(|| Error::new(Kind::Stale, "the old value became shorter"))
}

impl ListableStore for MemoryStore {
    fn list_dir(&self, prefix: &Prefix) -> Result<Entries> {
        let values = self.values.lock();
        let below = |key: &Key| -> Option<StoreEntry> {
            let rest = key.as_str().strip_prefix(prefix.as_str())?;
            Some(match rest.split_once('/') {
                Some((name, _)) => StoreEntry::Prefix(name.to_owned()),
                None => StoreEntry::Key(rest.to_owned()),
            })
        };
        let mut entries: Vec<StoreEntry> = values.by_key.keys().filter_map(below).collect();
        entries.sort();
        entries.dedup();
        Ok(Box::new(entries.into_iter().map(Ok)))
    }

    fn list_prefix(&self, prefix: &Prefix) -> Result<Keys> {
        let values = self.values.lock();
        let begins = |key: &&Key| key.as_str().starts_with(prefix.as_str());
        let keys: Vec<Key> = values.by_key.keys().filter(begins).cloned().collect();
        Ok(Box::new(keys.into_iter().map(Ok)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Store, suite};

    #[test]
    fn keeps_the_promises_of_a_store() {
        suite::run(|| Store::new(Arc::new(MemoryStore::new())));
    }
}
