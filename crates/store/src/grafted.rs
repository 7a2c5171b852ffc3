//! A store in which other stores take the place of prefixes: a folder of files that are read as
//! hierarchies. It cannot be written.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::num::NonZero;
use std::os::fd::OwnedFd;

use lru::LruCache;
use parking_lot::Mutex;

use super::{
    ByteRange, Capacity, Entries, Expected, Key, Keys, ListableStore, Omissions, Prefix,
    ReadableStore, Stat, Store, StoreEntry, Value,
};
use zarrfs_base::error::{Error, Result};

/// How many of the stores are kept open.
const OPEN: NonZero<usize> = NonZero::<usize>::MIN.saturating_add(255);

/// Opens the store that is made of a key of the base.
pub type OpenGraft = dyn Fn(&str) -> Result<Store> + Send + Sync;

/// A store with others in it.
pub struct Grafted {
    base: Store,
    /// The paths of the others, without slashes at their ends, and the key in the base that each is
    /// made of.
    paths: BTreeMap<String, String>,
    open: Box<OpenGraft>,
    /// Those that were used last. A leaf lock.
    opened: Mutex<LruCache<String, Store>>,
}

impl fmt::Debug for Grafted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Grafted");
        shown.field("base", &self.base).field("paths", &self.paths).finish_non_exhaustive()
    }
}

/// Where a key or prefix leads.
enum Lead<'p> {
    Base,
    /// To the store at this path, with the rest of the key.
    Graft(&'p str, String),
}

impl Grafted {
    /// Returns `base` with other stores at `paths`. No path is below another. Each is made of
    /// the key beside it, which `open` gets.
    pub fn new(base: Store, paths: BTreeMap<String, String>, open: Box<OpenGraft>) -> Self {
        Self { base, paths, open, opened: Mutex::new(LruCache::new(OPEN)) }
    }

    fn lead(&self, key: &str) -> Lead<'_> {
        for (at, _) in key.match_indices('/') {
            let (path, rest) = (key.get(..at), key.get(at.saturating_add(1)..));
            if let Some((path, _)) = path.and_then(|path| self.paths.get_key_value(path)) {
                return Lead::Graft(path, rest.unwrap_or_default().to_owned());
            }
        }
        Lead::Base
    }

    fn opened(&self, path: &str) -> Result<Store> {
        if let Some(store) = self.opened.lock().get(path) {
            return Ok(store.clone());
        }
        let what = self.paths.get(path).ok_or_else(Error::not_found)?;
        let store = (self.open)(what)?;
        self.base.omissions().add(store.omissions());
        self.opened.lock().put(path.to_owned(), store.clone());
        Ok(store)
    }

    /// Calls `ask` with the listable store that has a prefix, and the prefix in it.
    fn ask<T>(
        &self,
        prefix: &Prefix,
        ask: impl FnOnce(&dyn ListableStore, &Prefix) -> Result<T>,
    ) -> Result<T> {
        let unlisted = || Error::unsupported("the store cannot list its keys");
        match self.lead(prefix.as_str()) {
            Lead::Base => ask(self.base.list().ok_or_else(unlisted)?, prefix),
            Lead::Graft(path, rest) => {
                let store = self.opened(path)?;
                ask(store.list().ok_or_else(unlisted)?, &Prefix::parse(&rest)?)
            }
        }
    }

    /// Returns the names of the paths directly below a prefix of the base.
    fn names_below(&self, prefix: &Prefix) -> Vec<String> {
        let below = |path: &String| {
            let rest = path.strip_prefix(prefix.as_str())?;
            (!rest.contains('/') && !rest.is_empty()).then(|| rest.to_owned())
        };
        self.paths.keys().filter_map(below).collect()
    }
}

impl ReadableStore for Grafted {
    fn expect(&self, ranges: &[(Key, ByteRange)]) -> Expected {
        let is_of_base =
            |(key, _): &&(Key, ByteRange)| matches!(self.lead(key.as_str()), Lead::Base);
        let ranges: Vec<_> = ranges.iter().filter(is_of_base).cloned().collect();
        self.base.read().expect(&ranges)
    }

    fn stop(&self) {
        self.base.read().stop();
    }

    fn get_partial_values(&self, ranges: &[(Key, ByteRange)]) -> Result<Vec<Option<Value>>> {
        let mut values: Vec<Option<Value>> = Vec::new();
        let mut rest = ranges;
        while let Some((first, _)) = rest.first() {
            // Most often all of them are in one store.
            let lead = self.lead(first.as_str());
            let is_like = |key: &Key| match (&lead, self.lead(key.as_str())) {
                (Lead::Base, Lead::Base) => true,
                (Lead::Graft(one, _), Lead::Graft(two, _)) => *one == two,
                _ => false,
            };
            let count = rest.iter().take_while(|(key, _)| is_like(key)).count();
            let (same, others) = rest.split_at(count);
            rest = others;
            match lead {
                Lead::Base => values.extend(self.base.read().get_partial_values(same)?),
                Lead::Graft(path, _) => {
                    let within = same.iter().map(|(key, range)| Ok((within(key, path)?, *range)));
                    let within = within.collect::<Result<Vec<_>>>()?;
                    values.extend(self.opened(path)?.read().get_partial_values(&within)?);
                }
            }
        }
        Ok(values)
    }

    fn stat(&self, keys: &[Key]) -> Result<Vec<Option<Stat>>> {
        let one = |key: &Key| match self.lead(key.as_str()) {
            Lead::Base => self.base.stat(key),
            Lead::Graft(path, _) => self.opened(path)?.stat(&within(key, path)?),
        };
        keys.iter().map(one).collect()
    }

    fn open(&self, key: &Key) -> Result<Option<(OwnedFd, Stat)>> {
        match self.lead(key.as_str()) {
            Lead::Base => self.base.read().open(key),
            Lead::Graft(path, _) => self.opened(path)?.read().open(&within(key, path)?),
        }
    }

    fn room(&self) -> Result<Option<Capacity>> {
        self.base.read().room()
    }
}

/// Returns a key below the path of a store as a key of that store.
fn within(key: &Key, path: &str) -> Result<Key> {
    let rest = key.as_str().strip_prefix(path).and_then(|rest| rest.strip_prefix('/'));
    Key::parse(rest.unwrap_or_default())
}

impl ListableStore for Grafted {
    fn omissions(&self) -> Omissions {
        self.base.omissions().clone()
    }

    fn is_shown_otherwise(&self, key: &Key) -> bool {
        self.paths.values().any(|source| source == key.as_str())
    }

    fn forget_below(&self, prefix: &Prefix) {
        if let (Lead::Base, Some(list)) = (self.lead(prefix.as_str()), self.base.list()) {
            list.forget_below(prefix);
        }
    }

    fn list_dir(&self, prefix: &Prefix) -> Result<Entries> {
        let found = self.ask(prefix, |list, prefix| list.list_dir(prefix))?;
        if !matches!(self.lead(prefix.as_str()), Lead::Base) {
            return Ok(found);
        }
        let names = self.names_below(prefix).into_iter();
        Ok(Box::new(found.chain(names.map(|name| Ok(StoreEntry::Prefix(name))))))
    }

    /// Leaves out the keys that the other stores are made of.
    fn list_prefix(&self, prefix: &Prefix) -> Result<Keys> {
        if let Lead::Graft(path, rest) = self.lead(prefix.as_str()) {
            let store = self.opened(path)?;
            return below(&store, path, &rest);
        }
        let sources: HashSet<String> = self.paths.values().cloned().collect();
        let keys = self.ask(prefix, |list, prefix| list.list_prefix(prefix))?;
        let is_other = move |key: &Result<Key>| {
            key.as_ref().map_or(true, |key| !sources.contains(key.as_str()))
        };
        let mut all: Keys = Box::new(keys.filter(is_other));
        for path in self.paths.keys().filter(|path| path.starts_with(prefix.as_str())) {
            match self.opened(path).and_then(|store| below(&store, path, "")) {
                Ok(keys) => all = Box::new(all.chain(keys)),
                Err(error) => all = Box::new(all.chain(std::iter::once(Err(error)))),
            }
        }
        Ok(all)
    }
}

/// Returns the keys of a store that takes the place of `path`, below a prefix of it.
fn below(store: &Store, path: &str, prefix: &str) -> Result<Keys> {
    let unlisted = || Error::unsupported("the store cannot list its keys");
    let keys = store.list().ok_or_else(unlisted)?.list_prefix(&Prefix::parse(prefix)?)?;
    let path = path.to_owned();
    let whole = move |key: Result<Key>| Key::parse(&format!("{path}/{}", key?.as_str()));
    Ok(Box::new(keys.map(whole)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::Condition;
    use crate::memory::MemoryStore;

    fn store(keys: &[&str]) -> Store {
        let store = Store::new(Arc::new(MemoryStore::new()));
        for key in keys {
            let key = Key::parse(key).expect("a key");
            let bytes = Bytes::copy_from_slice(key.as_str().as_bytes());
            let write = store.write().expect("writable");
            write.set(&key, &[bytes.into()], Condition::Always).expect("stored");
        }
        store
    }

    #[test]
    fn keys_lead_to_the_store_that_takes_the_place_of_their_prefix() {
        let base = store(&["one", "a.nc", "b/two", "b/d/zarr.json", "ab/x"]);
        let paths = [("a", "one"), ("b/c", "b/two"), ("bad", "none")];
        let paths = paths.map(|(path, what)| (path.to_owned(), what.to_owned()));
        let open = |what: &str| match what {
            "none" => Err(Error::corrupt("damaged")),
            what => Ok(store(&["zarr.json", &format!("{}/c/0", what.trim_start_matches("b/"))])),
        };
        let grafted = Arc::new(Grafted::new(base, BTreeMap::from(paths), Box::new(open)));
        let all = Store::reading(Arc::clone(&grafted));
        let get = |key: &str| {
            let value = all.get(&Key::parse(key).expect("a key"), 100).expect("read");
            value.map(|value| String::from_utf8_lossy(&value.bytes).into_owned())
        };
        assert_eq!(get("a/one/c/0").as_deref(), Some("one/c/0"));
        assert_eq!(get("b/c/two/c/0").as_deref(), Some("two/c/0"));
        assert_eq!(get("b/d/zarr.json").as_deref(), Some("b/d/zarr.json"));
        assert_eq!(get("ab/x").as_deref(), Some("ab/x"));
        assert_eq!(get("a/none"), None);
        all.get(&Key::parse("bad/zarr.json").expect("a key"), 100).expect_err("it is damaged");
        let names = |prefix: &str| {
            let prefix = Prefix::parse(prefix).expect("a prefix");
            let entries = grafted.list_dir(&prefix).expect("listed");
            let mut names: Vec<_> =
                entries.map(|entry| entry.expect("listed").name().to_owned()).collect();
            names.sort();
            names
        };
        assert_eq!(names(""), ["a", "a.nc", "ab", "b", "bad", "one"]);
        assert_eq!(names("b/"), ["c", "d", "two"]);
        assert_eq!(names("a/"), ["one", "zarr.json"]);
        let keys = grafted.list_prefix(&Prefix::parse("b/").expect("a prefix")).expect("listed");
        let mut keys: Vec<_> = keys.map(|key| key.expect("listed").to_string()).collect();
        keys.sort();
        assert_eq!(keys, ["b/c/two/c/0", "b/c/zarr.json", "b/d/zarr.json"]);
    }
}
