//! A map with a limit in bytes and in entries, which evicts the least recently used ones.
//!
//! It has no lock of its own. Methods that evict return what they evicted, so that the caller can
//! unlock the map before it frees the memory, which takes time.

use std::fmt;
use std::hash::Hash;

use lru::LruCache;

/// Evicted entries, the least recently used first.
pub type Evicted<K, V> = Vec<(K, V)>;

/// The most that a map holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapLimits {
    /// The most bytes of all entries.
    pub len: u64,
    /// The most entries.
    pub count: usize,
}

impl MapLimits {
    /// No limits, for a map whose owner calls [`Bounded::shrink_to`].
    pub const NONE: Self = Self { len: u64::MAX, count: usize::MAX };

    /// At most this many bytes.
    pub const fn bytes(len: u64) -> Self {
        Self { len, ..Self::NONE }
    }

    /// At most this many entries.
    pub const fn entries(count: usize) -> Self {
        Self { count, ..Self::NONE }
    }
}

/// A map in order of use. The newest entry stays even if it exceeds the limit by itself, since the
/// next call probably needs it.
pub struct Bounded<K, V> {
    entries: LruCache<K, (V, u64)>,
    len: u64,
    limits: MapLimits,
}

impl<K: Hash + Eq, V> Bounded<K, V> {
    /// Returns an empty map.
    pub fn new(limits: MapLimits) -> Self {
        Self { entries: LruCache::unbounded(), len: 0, limits }
    }

    /// Returns the bytes of all entries.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns the number of entries.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns a value, which becomes the most recently used.
    pub fn get(&mut self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(value, _)| value)
    }

    /// Returns a value to change, which becomes the most recently used.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key).map(|(value, _)| value)
    }

    /// Returns a value, which keeps its place in the order.
    pub fn peek(&self, key: &K) -> Option<&V> {
        self.entries.peek(key).map(|(value, _)| value)
    }

    /// Returns a value to change, which keeps its place in the order.
    pub fn peek_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.peek_mut(key).map(|(value, _)| value)
    }

    /// Returns the bytes of an entry, `None` if there is none.
    pub fn len_of(&self, key: &K) -> Option<u64> {
        self.entries.peek(key).map(|(_, len)| *len)
    }

    /// Whether there is an entry, which keeps its place in the order.
    pub fn contains(&self, key: &K) -> bool {
        self.entries.contains(key)
    }

    /// Returns the entries, the most recently used first.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().map(|(key, (value, _))| (key, value))
    }

    /// Adds or replaces a value of `len` bytes as the most recently used. Returns the value that it
    /// replaced and those it evicted.
    #[must_use = "free it when the map is unlocked"]
    pub fn put(&mut self, key: K, value: V, len: u64) -> Evicted<K, V> {
        let replaced = self.entries.push(key, (value, len));
        self.len = self.len.saturating_add(len);
        let mut gone = Vec::new();
        self.note_gone(replaced, &mut gone);
        self.evict(self.limits, 1, &mut gone);
        gone
    }

    /// Returns the value of `key`, a new one without bytes if there is none, as the most recently
    /// used. Evicts nothing: [`Self::set_len`] does.
    pub fn get_or_insert(&mut self, key: K, new: impl FnOnce() -> V) -> &V {
        let (value, _) = self.entries.get_or_insert(key, || (new(), 0));
        value
    }

    /// Sets the bytes of an entry, which becomes the most recently used. Returns what was evicted;
    /// does nothing if there is no such entry.
    #[must_use = "free it when the map is unlocked"]
    pub fn set_len(&mut self, key: &K, len: u64) -> Evicted<K, V> {
        let Some((_, now)) = self.entries.get_mut(key) else { return Vec::new() };
        self.len = self.len.saturating_sub(*now).saturating_add(len);
        *now = len;
        let mut gone = Vec::new();
        self.evict(self.limits, 1, &mut gone);
        gone
    }

    /// Removes an entry.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let (value, len) = self.entries.pop(key)?;
        self.len = self.len.saturating_sub(len);
        Some(value)
    }

    /// Removes the least recently used entry.
    pub fn pop_oldest(&mut self) -> Option<(K, V)> {
        let (key, (value, len)) = self.entries.pop_lru()?;
        self.len = self.len.saturating_sub(len);
        Some((key, value))
    }

    /// Evicts entries until the others have at most `len` bytes, the newest one too if need be.
    #[must_use = "free it when the map is unlocked"]
    pub fn shrink_to(&mut self, len: u64) -> Evicted<K, V> {
        let mut gone = Vec::new();
        self.evict(MapLimits::bytes(len), 0, &mut gone);
        gone
    }

    /// Removes the entries that `is_kept` rejects.
    pub fn retain(&mut self, mut is_kept: impl FnMut(&K, &V) -> bool) {
        let mut left = 0_u64;
        self.entries.retain(|key, (value, len)| {
            let is_kept = is_kept(key, value);
            left = left.saturating_add(if is_kept { *len } else { 0 });
            is_kept
        });
        self.len = left;
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.len = 0;
    }

    /// Evicts entries that exceed `limits`, but leaves at least `least` of them.
    fn evict(&mut self, limits: MapLimits, least: usize, gone: &mut Evicted<K, V>) {
        while (self.len > limits.len || self.entries.len() > limits.count)
            && self.entries.len() > least
        {
            let oldest = self.entries.pop_lru();
            self.note_gone(oldest, gone);
        }
    }

    fn note_gone(&mut self, entry: Option<(K, (V, u64))>, gone: &mut Evicted<K, V>) {
        if let Some((key, (value, len))) = entry {
            self.len = self.len.saturating_sub(len);
            gone.push((key, value));
        }
    }
}

impl<K: Hash + Eq, V> fmt::Debug for Bounded<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bounded")
            .field("len", &self.len)
            .field("count", &self.entries.len())
            .field("limits", &self.limits)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn keys(map: &Bounded<u8, u8>) -> Vec<u8> {
        map.iter().map(|(key, _)| *key).collect()
    }

    #[test]
    fn the_least_recently_used_entries_are_evicted() {
        let mut map = Bounded::new(MapLimits { len: 10, count: 3 });
        assert!(map.put(1, 'a', 4).is_empty() && map.put(2, 'b', 4).is_empty());
        assert_eq!(map.get(&1), Some(&'a'));
        assert_eq!(map.put(3, 'c', 4), [(2, 'b')]);
        assert_eq!(map.put(3, 'd', 1), [(3, 'c')], "the replaced value");
        assert_eq!((map.peek(&1), map.len(), map.count()), (Some(&'a'), 5, 2));
        assert_eq!(map.put(4, 'e', 0).len() + map.put(5, 'f', 0).len(), 1, "too many entries");
        assert!(!map.contains(&1), "a value that was only looked at is not recent");
    }

    #[test]
    fn the_newest_entry_stays_however_long_it_is_unless_the_owner_shrinks_the_map() {
        let mut map = Bounded::new(MapLimits::bytes(10));
        assert!(map.put(1, 'a', 3).is_empty());
        assert_eq!(map.put(2, 'b', 1000), [(1, 'a')]);
        assert_eq!((map.len(), map.len_of(&2)), (1000, Some(1000)));
        assert_eq!(map.shrink_to(10), [(2, 'b')]);
        assert_eq!((map.count(), map.len()), (0, 0));
    }

    /// The same map as a list, the most recently used entry first.
    #[derive(Default)]
    struct ByUse(VecDeque<(u8, u8, u64)>);

    impl ByUse {
        fn take(&mut self, key: u8) -> Option<(u8, u8, u64)> {
            let at = self.0.iter().position(|entry| entry.0 == key)?;
            self.0.remove(at)
        }

        fn len(&self) -> u64 {
            self.0.iter().map(|entry| entry.2).sum()
        }

        fn evict(&mut self, limits: MapLimits) {
            while (self.len() > limits.len || self.0.len() > limits.count) && self.0.len() > 1 {
                self.0.pop_back();
            }
        }
    }

    proptest! {
        #[test]
        fn every_operation_does_what_it_does_to_a_list(
            operations in prop::collection::vec((0_u8..7, 0_u8..8, 0_u64..12), 0..200),
        ) {
            let limits = MapLimits { len: 30, count: 5 };
            let (mut map, mut list) = (Bounded::new(limits), ByUse::default());
            for (at, (operation, key, len)) in operations.into_iter().enumerate() {
                let (value, known) = (at as u8, list.0.iter().find(|entry| entry.0 == key).copied());
                match operation {
                    0 | 1 => {
                        let before = map.count();
                        let gone = map.put(key, value, len);
                        list.take(key);
                        list.0.push_front((key, value, len));
                        list.evict(limits);
                        prop_assert_eq!(map.count() + gone.len(), before + 1);
                    }
                    2 => {
                        prop_assert_eq!(map.get(&key).copied(), known.map(|entry| entry.1));
                        let entry = list.take(key);
                        list.0.extend(entry);
                        list.0.rotate_right(usize::from(entry.is_some()));
                    }
                    3 => {
                        drop(map.set_len(&key, len));
                        if let Some((key, value, _)) = list.take(key) {
                            list.0.push_front((key, value, len));
                            list.evict(limits);
                        }
                    }
                    4 => prop_assert_eq!(map.remove(&key), list.take(key).map(|entry| entry.1)),
                    5 => {
                        map.retain(|known, _| known % 4 != key % 4);
                        list.0.retain(|entry| entry.0 % 4 != key % 4);
                    }
                    _ => {
                        prop_assert_eq!(map.peek(&key).copied(), known.map(|entry| entry.1));
                        prop_assert_eq!(map.len_of(&key), known.map(|entry| entry.2));
                    }
                }
                let listed: Vec<u8> = list.0.iter().map(|entry| entry.0).collect();
                prop_assert_eq!((keys(&map), map.len()), (listed, list.len()));
            }
        }
    }
}
