//! Which keys were changed and may not survive a power cut yet.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::error::Result;
use crate::store::{Key, Store};

/// Keys whose values, or whose absence, may not survive a power cut yet.
#[derive(Debug, Default)]
pub struct Unsynced {
    /// A leaf: never held while the store is waited for.
    changes: Mutex<Changes>,
}

#[derive(Debug, Default)]
struct Changes {
    count: u64,
    /// Of each key its last change.
    last: BTreeMap<Key, u64>,
}

impl Unsynced {
    /// Notes that the value of `key` has changed.
    pub fn changed(&self, key: Key) {
        let mut changes = self.changes.lock();
        changes.count += 1;
        let count = changes.count;
        changes.last.insert(key, count);
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.changes.lock().last.len()
    }

    /// Makes every change that was noted before survive a power cut.
    pub fn sync_all(&self, store: &Store) -> Result<()> {
        let last = self.changes.lock().last.clone();
        if last.is_empty() { Ok(()) } else { self.sync(store, last) }
    }

    /// Makes the value of `key` survive a power cut, whether a change of it was noted or not.
    pub fn sync_key(&self, store: &Store, key: Key) -> Result<()> {
        let last = self.changes.lock().last.get(&key).copied().unwrap_or_default();
        self.sync(store, BTreeMap::from([(key, last)]))
    }

    /// A key is forgotten only when it is synced, and only if it was not changed again meanwhile:
    /// whoever asks next must not be told that there is nothing to do.
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
