//! The keys that changed since they were last synced to disk.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::error::Result;
use crate::store::{Key, Store};

/// Keys whose values or removal may be lost in a power cut.
#[derive(Debug, Default)]
pub struct Unsynced {
    /// A leaf lock, never held while waiting for the store.
    changes: Mutex<UnsyncedKeys>,
}

#[derive(Debug, Default)]
struct UnsyncedKeys {
    count: u64,
    /// The number of the last change of each key.
    last: BTreeMap<Key, u64>,
}

impl Unsynced {
    /// Records a change of the value of `key`.
    pub fn changed(&self, key: Key) {
        let mut changes = self.changes.lock();
        changes.count += 1;
        let count = changes.count;
        changes.last.insert(key, count);
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.changes.lock().last.len()
    }

    /// Syncs all changes recorded so far.
    pub fn sync_all(&self, store: &Store) -> Result<()> {
        let last = self.changes.lock().last.clone();
        if last.is_empty() { Ok(()) } else { self.sync(store, last) }
    }

    /// Syncs the value of `key`, even if no change was recorded.
    pub fn sync_key(&self, store: &Store, key: Key) -> Result<()> {
        let last = self.changes.lock().last.get(&key).copied().unwrap_or_default();
        self.sync(store, BTreeMap::from([(key, last)]))
    }

    /// Forgets a key only after it was synced, and only if it did not change again: otherwise a
    /// concurrent `fsync` would return too early.
    fn sync(&self, store: &Store, changes: BTreeMap<Key, u64>) -> Result<()> {
        let keys: Vec<Key> = changes.keys().cloned().collect();
        store.write()?.sync(&keys)?;
        let mut noted = self.changes.lock();
        for (key, change) in changes {
            if noted.last.get(&key) == Some(&change) {
                noted.last.remove(&key);
            }
        }
        Ok(())
    }
}
