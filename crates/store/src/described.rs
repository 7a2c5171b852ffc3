//! A hierarchy of Zarr 2 whose metadata files are missing: only the copies in `.zmetadata` are
//! there. Each copy stands for the file that it was made of. Such a store cannot be written, since
//! an edit would have to change the copies.

use std::collections::HashMap;

use bytes::Bytes;

use super::refs::version_of;
use super::{
    ByteRange, Capacity, Entries, Expected, Key, Keys, ListableStore, Prefix, ReadableStore,
    Requests, Stat, Store, Value,
};
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::{ToU64, ToUsize};

/// A store with more values than it has.
#[derive(Debug)]
pub struct Described {
    store: Store,
    /// The values that the other store lacks.
    copies: HashMap<Key, Bytes>,
    /// The stat of the value that has them.
    stat: Stat,
}

impl Described {
    /// Returns `store` with `copies` of the values that it lacks, which are in a value with this
    /// stat.
    pub fn new(store: Store, copies: HashMap<Key, Bytes>, stat: Stat) -> Self {
        Self { store, copies, stat }
    }

    fn copy(&self, key: &Key) -> Option<(&Bytes, Stat)> {
        let bytes = self.copies.get(key)?;
        let len = bytes.len().to_u64();
        Some((bytes, Stat { len, version: version_of(bytes, 0, len), ..self.stat }))
    }
}

impl ReadableStore for Described {
    fn expect(&self, ranges: &[(Key, ByteRange)]) -> Expected {
        let is_other = |(key, _): &&(Key, ByteRange)| !self.copies.contains_key(key);
        let others: Vec<_> = ranges.iter().filter(is_other).cloned().collect();
        self.store.read().expect(&others)
    }

    fn stop(&self) {
        self.store.read().stop();
    }

    fn requests(&self) -> Option<Requests> {
        self.store.read().requests()
    }

    fn most_expected(&self) -> u64 {
        self.store.read().most_expected()
    }

    fn get_partial_values(&self, ranges: &[(Key, ByteRange)]) -> Result<Vec<Option<Value>>> {
        let mut values = self.store.read().get_partial_values(ranges)?;
        for (value, (key, range)) in values.iter_mut().zip(ranges) {
            if value.is_none()
                && let Some((bytes, stat)) = self.copy(key)
            {
                let (start, len) = range.within(stat.len);
                let place = |at: u64| at.to_usize().min(bytes.len());
                let bytes = bytes.slice(place(start)..place(start.saturating_add(len)));
                *value = Some(Value { bytes, stat });
            }
        }
        Ok(values)
    }

    fn stat(&self, keys: &[Key]) -> Result<Vec<Option<Stat>>> {
        let stats = self.store.read().stat(keys)?.into_iter().zip(keys);
        Ok(stats.map(|(stat, key)| stat.or_else(|| Some(self.copy(key)?.1))).collect())
    }

    fn check_name(&self, key: &Key) -> Result<()> {
        self.store.read().check_name(key)
    }

    fn has_checksums(&self) -> bool {
        self.store.read().has_checksums()
    }

    fn check_value(&self, key: &Key) -> Result<()> {
        self.store.read().check_value(key)
    }

    fn note_misnamed(&self, wanted: &dyn Fn(&str) -> bool) -> Result<()> {
        self.store.read().note_misnamed(wanted)
    }

    fn open(&self, key: &Key) -> Result<Option<(std::os::fd::OwnedFd, Stat)>> {
        self.store.read().open(key)
    }

    fn room(&self) -> Result<Option<Capacity>> {
        self.store.read().room()
    }
}

impl ListableStore for Described {
    fn can_list(&self) -> bool {
        self.store.list().is_some()
    }

    fn expect_names(&self, prefix: &Prefix) {
        self.store.list().into_iter().for_each(|list| list.expect_names(prefix));
    }

    fn is_listed(&self, prefix: &Prefix) -> bool {
        self.store.list().is_none_or(|list| list.is_listed(prefix))
    }

    fn lists_empty_prefixes(&self) -> bool {
        self.store.list().is_none_or(ListableStore::lists_empty_prefixes)
    }

    fn proves_absence(&self) -> bool {
        self.store.list().is_none_or(ListableStore::proves_absence)
    }

    fn may_have(&self, prefix: &Prefix) -> bool {
        let is_below = |key: &Key| key.as_str().starts_with(prefix.as_str());
        self.copies.keys().any(is_below)
            || self.store.list().is_none_or(|list| list.may_have(prefix))
    }

    fn forget_below(&self, prefix: &Prefix) {
        self.store.list().into_iter().for_each(|list| list.forget_below(prefix));
    }

    /// An array without chunks has no directory, but it is one of the entries.
    fn list_dir(&self, prefix: &Prefix) -> Result<Entries> {
        let mut missing: Vec<String> = Vec::new();
        for key in self.copies.keys() {
            let below = key.as_str().strip_prefix(prefix.as_str());
            if let Some((name, _)) = below.and_then(|below| below.split_once('/')) {
                missing.push(name.to_owned());
            }
        }
        missing.sort_unstable();
        missing.dedup();
        let found: Vec<_> = match self.store.list() {
            Some(list) => list.list_dir(prefix)?.collect(),
            None => return Err(Error::unsupported("the store cannot list its keys")),
        };
        missing.retain(|name| !found.iter().flatten().any(|entry| entry.name() == name));
        let missing = missing.into_iter().map(|name| Ok(super::StoreEntry::Prefix(name)));
        Ok(Box::new(found.into_iter().chain(missing)))
    }

    fn list_prefix(&self, prefix: &Prefix) -> Result<Keys> {
        match self.store.list() {
            Some(list) => list.list_prefix(prefix),
            None => Err(Error::unsupported("the store cannot list its keys")),
        }
    }
}
