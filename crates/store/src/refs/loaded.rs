//! Files with references that are read when they are needed, and kept in memory up to a limit.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::{ByteRange, Key, Store, Value};
use zarrfs_base::bounded::{Bounded, MapLimits};
use zarrfs_base::error::{Error, Result, WithSubject};
use zarrfs_base::resources;

/// How many files are read at the same time, and how many bytes of each at first: a longer one is
/// then read by itself.
const TOGETHER: usize = 32;
fn first_len() -> u64 {
    resources::within_memory(8 << 20, 256)
}

/// A kind of file.
pub(crate) trait FileKind: Debug + Send + Sync {
    /// The name of a file.
    type Id: Clone + Debug + Hash + Ord + Send + Sync;
    /// The references in a file.
    type Parsed: Debug + Send + Sync;

    /// Returns the key of a file.
    fn key(&self, id: &Self::Id) -> Result<Key>;

    /// Returns the most bytes of a file.
    fn max_len(&self) -> u64;

    /// Parses the value of `key`; `None` if there is no such file.
    fn parse(&self, id: &Self::Id, key: &Key, value: Option<Value>) -> Result<Self::Parsed>;

    /// Returns the bytes that the references of a file take in memory.
    fn len(&self, parsed: &Self::Parsed) -> u64;
}

/// A file that was read, with its name.
type LoadedFile<K> = (<K as FileKind>::Id, Arc<<K as FileKind>::Parsed>);

/// The references of a file; `None` until it is read.
type Contents<K> = Option<Arc<<K as FileKind>::Parsed>>;

/// The place of a file in memory. Its lock is held while one thread reads the file.
type FileSlot<K> = Arc<Mutex<Contents<K>>>;

/// The places of files, by their names.
type FileSlots<K> = Bounded<<K as FileKind>::Id, FileSlot<K>>;

/// A file whose place is locked.
type HeldFile<'s, K> = (&'s <K as FileKind>::Id, MutexGuard<'s, Contents<K>>);

/// Files that were read.
#[derive(Debug)]
pub(crate) struct LoadedFiles<K: FileKind> {
    own: Store,
    kind: K,
    /// The most bytes of all in memory.
    most: u64,
    /// A leaf lock.
    slots: Mutex<FileSlots<K>>,
}

impl<K: FileKind> LoadedFiles<K> {
    /// Returns the files in `own`. At most `most` bytes of them stay in memory.
    pub fn new(own: Store, kind: K, most: u64) -> Self {
        let slots = Mutex::new(Bounded::new(MapLimits::bytes(most)));
        Self { own, kind, most, slots }
    }

    /// Returns a file that was read already, unless it is being read.
    pub fn known(&self, id: &K::Id) -> Option<Arc<K::Parsed>> {
        let slot = self.slots.lock().peek(id).cloned()?;
        let parsed = slot.try_lock()?;
        parsed.clone()
    }

    /// Calls `visit` with each of these files. Only a few are in memory beside those that are kept:
    /// there may be any number.
    pub fn each(
        &self,
        ids: impl IntoIterator<Item = K::Id>,
        mut visit: impl FnMut(&K::Id, &K::Parsed) -> Result<()>,
    ) -> Result<()> {
        let mut left: BTreeSet<K::Id> = ids.into_iter().collect();
        while !left.is_empty() {
            let ids: Vec<K::Id> = left.iter().take(TOGETHER).cloned().collect();
            for (id, parsed) in self.get(&ids)? {
                left.remove(&id);
                visit(&id, &parsed).at(self.kind.key(&id)?)?;
            }
        }
        Ok(())
    }

    /// Returns some of these files, at least the first, whose IDs are sorted. Reads those that are
    /// not in memory with one call of the store.
    pub fn get(&self, ids: &[K::Id]) -> Result<Vec<LoadedFile<K>>> {
        let slots: Vec<(&K::Id, FileSlot<K>)> = {
            let mut table = self.slots.lock();
            let slot = |id| (id, Arc::clone(table.get_or_insert(K::Id::clone(id), Arc::default)));
            ids.iter().map(slot).collect()
        };
        // All threads lock them in the order of their IDs.
        let mut held: Vec<HeldFile<'_, K>> =
            slots.iter().map(|(id, slot)| (*id, slot.lock())).collect();
        let missing = held.iter().filter(|(_, parsed)| parsed.is_none());
        let ranges: Vec<(Key, ByteRange)> = missing
            .map(|(id, _)| Ok((self.kind.key(id)?, ByteRange::first(first_len()))))
            .collect::<Result<_>>()?;
        let mut values = match ranges.as_slice() {
            [] => Vec::new(),
            ranges => self.own.read().get_partial_values(ranges)?,
        }
        .into_iter();
        let (mut keys, mut len) = (ranges.iter(), 0_u64);
        for (id, slot) in held.iter_mut().filter(|(_, parsed)| parsed.is_none()) {
            let (value, key) = (values.next().flatten(), keys.next().map(|(key, _)| key));
            // A few bytes can be decompressed as many.
            if len > self.most {
                break;
            }
            let key = key.ok_or_else(Error::not_found)?;
            let parsed = self.whole(id, key, value)?;
            len = len.saturating_add(self.kind.len(&parsed));
            **slot = Some(Arc::new(parsed));
        }
        let found = held.iter().filter_map(|(id, slot)| {
            slot.as_ref().map(|parsed| (K::Id::clone(id), Arc::clone(parsed)))
        });
        let found: Vec<LoadedFile<K>> = found.collect();
        drop(held);
        self.note_lens(&found);
        Ok(found)
    }

    /// Returns the file `id`, which `key` names and whose first bytes are `value`.
    fn whole(&self, id: &K::Id, key: &Key, mut value: Option<Value>) -> Result<K::Parsed> {
        if value.as_ref().is_some_and(|value| value.stat.len > first_len()) {
            value = self.own.get(key, self.kind.max_len())?;
        }
        self.kind.parse(id, key, value).at(key)
    }

    fn note_lens(&self, found: &[LoadedFile<K>]) {
        let mut evicted = Vec::new();
        let mut slots = self.slots.lock();
        for (id, parsed) in found {
            evicted.extend(slots.set_len(id, self.kind.len(parsed)));
        }
        drop(slots);
        drop(evicted);
    }
}
