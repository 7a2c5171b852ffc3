//! The values below a prefix as a store that cannot be written: a directory in an archive.

use std::time::Instant;

use super::{
    ByteRange, Capacity, Entries, Expected, Key, Keys, ListableStore, Omissions, Prefix,
    ReadableStore, Requests, Stat, Store, StoreEntry, Value,
};
use zarrfs_base::error::{Error, Result};

/// The values of another store below a prefix.
#[derive(Debug)]
pub struct Within {
    store: Store,
    prefix: Prefix,
}

impl Within {
    /// Returns the values of `store` below `prefix`.
    pub fn new(store: Store, prefix: Prefix) -> Self {
        Self { store, prefix }
    }

    fn key(&self, key: &Key) -> Result<Key> {
        self.prefix.key(key.as_str())
    }

    fn keys(&self, keys: &[Key]) -> Result<Vec<Key>> {
        keys.iter().map(|key| self.key(key)).collect()
    }

    fn ranges(&self, ranges: &[(Key, ByteRange)]) -> Result<Vec<(Key, ByteRange)>> {
        ranges.iter().map(|(key, range)| Ok((self.key(key)?, *range))).collect()
    }

    /// Calls `ask` with the listable store and a prefix in it.
    fn ask<T>(
        &self,
        prefix: &Prefix,
        ask: impl FnOnce(&dyn ListableStore, &Prefix) -> T,
    ) -> Option<T> {
        let prefix = self.prefix.join(prefix.as_str()).ok()?;
        self.store.list().map(|list| ask(list, &prefix))
    }
}

impl ReadableStore for Within {
    fn expect(&self, ranges: &[(Key, ByteRange)]) -> Expected {
        // The read that follows reports the error.
        self.store.read().expect(&self.ranges(ranges).unwrap_or_default())
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
        self.store.read().get_partial_values(&self.ranges(ranges)?)
    }

    fn stat(&self, keys: &[Key]) -> Result<Vec<Option<Stat>>> {
        self.store.read().stat(&self.keys(keys)?)
    }

    fn stat_since(&self, keys: &[Key], since: Instant) -> Result<Vec<Option<Stat>>> {
        self.store.read().stat_since(&self.keys(keys)?, since)
    }

    fn check_name(&self, key: &Key) -> Result<()> {
        self.store.read().check_name(&self.key(key)?)
    }

    fn has_checksums(&self) -> bool {
        self.store.read().has_checksums()
    }

    fn check_value(&self, key: &Key) -> Result<()> {
        self.store.read().check_value(&self.key(key)?)
    }

    fn note_misnamed(&self, wanted: &dyn Fn(&str) -> bool) -> Result<()> {
        let start = self.prefix.as_str();
        let is_wanted = |name: &str| wanted(name.strip_prefix(start).unwrap_or(name));
        self.store.read().note_misnamed(&is_wanted)
    }

    fn room(&self) -> Result<Option<Capacity>> {
        self.store.read().room()
    }
}

impl ListableStore for Within {
    fn can_list(&self) -> bool {
        self.store.list().is_some()
    }

    fn expect_names(&self, prefix: &Prefix) {
        self.ask(prefix, |list, prefix| list.expect_names(prefix));
    }

    fn is_listed(&self, prefix: &Prefix) -> bool {
        self.ask(prefix, |list, prefix| list.is_listed(prefix)).unwrap_or(true)
    }

    fn lists_empty_prefixes(&self) -> bool {
        self.store.list().is_none_or(ListableStore::lists_empty_prefixes)
    }

    fn proves_absence(&self) -> bool {
        self.store.list().is_none_or(ListableStore::proves_absence)
    }

    fn omissions(&self) -> Omissions {
        self.store.omissions().clone()
    }

    fn may_have(&self, prefix: &Prefix) -> bool {
        self.ask(prefix, |list, prefix| list.may_have(prefix)).unwrap_or(true)
    }

    fn may_have_entry(&self, prefix: &Prefix, is_wanted: &dyn Fn(&StoreEntry) -> bool) -> bool {
        self.ask(prefix, |list, prefix| list.may_have_entry(prefix, is_wanted)).unwrap_or(true)
    }

    fn forget_below(&self, prefix: &Prefix) {
        self.ask(prefix, |list, prefix| list.forget_below(prefix));
    }

    fn list_dir(&self, prefix: &Prefix) -> Result<Entries> {
        self.ask(prefix, |list, prefix| list.list_dir(prefix)).ok_or_else(unlisted)?
    }

    fn list_prefix(&self, prefix: &Prefix) -> Result<Keys> {
        let keys =
            self.ask(prefix, |list, prefix| list.list_prefix(prefix)).ok_or_else(unlisted)?;
        let len = self.prefix.as_str().len();
        let relative = move |key: Result<Key>| {
            key.and_then(|key| Key::parse(key.as_str().get(len..).unwrap_or_default()))
        };
        Ok(Box::new(keys?.map(relative)))
    }
}

fn unlisted() -> Error {
    Error::unsupported("the store cannot list its keys")
}
