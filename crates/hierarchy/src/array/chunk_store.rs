//! Stores of encoded chunks.
//!
//! [`ChunkStore`] is the abstract store interface of the drafts with coordinates instead of keys.
//! [`Direct`] gives each chunk a key of its own; [`Sharded`](super::sharded::Sharded) puts many
//! into one value of the chunk store below it, so that shards nest. The storage transformer of 2022
//! and the `sharding_indexed` codec are the same here.
//!
//! Coordinates replace keys so that no level parses a key to find a chunk.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;

use super::coords::{Coords, Grid};
use super::{key_encoding, unlisted};
use crate::metadata::model::KeyEncoding;
use zarrfs_base::error::{Error, Kind, Result, WithSubject};
use zarrfs_codec::shard::Usage;
use zarrfs_store::{
    ByteRange, Condition, Expected, Key, ListedEntry, NewFile, Prefix, Stat, Store, StoreEntry,
    Value, ValuePiece, Version,
};

/// How often to retry a change because another program changed the same stored value in the
/// meantime.
const ATTEMPTS: usize = 1000;

/// How long to retry: a program waits in `close`, and cannot be interrupted.
const LONGEST: Duration = Duration::from_secs(120);

/// How often a change may lose to other writers before it takes a turn.
const LOST: usize = 3;

/// A time in which only this thread can change a stored value; `None` if its store has no locks.
pub type WriteTurn = Option<Box<dyn fmt::Debug + Send>>;

/// Whether other writers were faster.
pub(super) fn has_lost<T>(changed: &Result<T>) -> bool {
    matches!(changed, Err(error) if matches!(error.kind(), Kind::Stale | Kind::Exists))
}

/// Retries `change` while it conflicts with other writers. If that goes on, it takes a turn, so
/// that a writer that is always faster does not keep this one out.
pub(crate) fn retried<T>(
    take_turn: impl FnOnce() -> Result<WriteTurn>,
    mut change: impl FnMut() -> Result<T>,
) -> Result<T> {
    let (began, mut take_turn, mut turn) = (Instant::now(), Some(take_turn), None);
    for attempt in 0..ATTEMPTS {
        if attempt >= LOST
            && let Some(take) = take_turn.take()
        {
            turn = take()?;
        }
        let changed = change();
        if !has_lost(&changed) {
            drop(turn);
            return changed;
        }
        if began.elapsed() > LONGEST {
            break;
        }
    }
    Err(Error::new(
        Kind::Busy,
        "gave up after repeated conflicts: other programs keep changing \
         this shard",
    ))
}

/// A new encoded value for a chunk, or its removal.
#[derive(Debug, Clone)]
pub struct ChunkChange {
    /// The coordinates of the chunk.
    pub coords: Coords,
    /// The encoded bytes; `None` erases the chunk.
    pub value: Option<Vec<ValuePiece>>,
    /// The condition for the change.
    pub condition: Condition,
}

impl ChunkChange {
    /// Sets a chunk unconditionally.
    pub fn set(coords: Coords, encoded: Bytes) -> Self {
        Self { coords, value: Some(vec![encoded.into()]), condition: Condition::Always }
    }

    /// Erases a chunk unconditionally.
    pub fn erase(coords: Coords) -> Self {
        Self { coords, value: None, condition: Condition::Always }
    }
}

/// Indices along one dimension, each once, read lazily.
pub type Indices = Box<dyn Iterator<Item = Result<u64>> + Send>;

/// Coordinates, each once, read lazily.
pub type CoordsList = Box<dyn Iterator<Item = Result<Coords>> + Send>;

/// A store of encoded chunks.
pub trait ChunkStore: Send + Sync + fmt::Debug {
    /// Returns the grid of the coordinates.
    fn grid(&self) -> &Grid;

    /// Returns the bytes of each range; `None` for a chunk that is not stored. The length in the
    /// stat is the chunk's; the version is that of the stored value that contains it, and so is the
    /// time, unless another one is known for the chunk.
    fn get_partial_values(&self, ranges: &[(Coords, ByteRange)]) -> Result<Vec<Option<Value>>>;

    /// Notes that these ranges will be read soon, as
    /// [`ReadableStore::expect`](zarrfs_store::ReadableStore::expect) does. May wait for the
    /// indexes of shards.
    fn expect(&self, _ranges: &[(Coords, ByteRange)]) -> Result<Expected> {
        Ok(Expected::default())
    }

    /// Adds to chunks that a sequence will read those beside them in their shards, where it will
    /// read many of a shard: it will read the others later.
    fn with_others(&self, coords: &[Coords]) -> Vec<Coords> {
        coords.to_vec()
    }

    /// Returns the stats of chunks, as in [`Self::get_partial_values`].
    fn stat(&self, coords: &[Coords]) -> Result<Vec<Option<Stat>>>;

    /// Sets and erases whole chunks; the last change of a chunk counts. Changes all of the chunks
    /// in one stored value or none; fails with [`Kind::Stale`] or [`Kind::Exists`] if a condition
    /// does not hold.
    ///
    /// Returns the new stat for each change, `None` for an erased chunk.
    fn update(&self, changes: Vec<ChunkChange>) -> Result<Vec<Option<Stat>>>;

    /// Keeps other writers from changing the stored value that contains the chunk, as
    /// [`WritableStore::take_turn`](zarrfs_store::WritableStore::take_turn) does.
    fn take_turn(&self, coords: &Coords) -> Result<WriteTurn>;

    /// Whether a chunk can be erased under [`Condition::Unchanged`].
    fn erases_unchanged(&self) -> bool {
        true
    }

    /// Notes the modification times that a program has set for stored chunks. Returns the time that
    /// the stored value with them gets; `None` if it has other chunks, whose times were not set.
    fn set_modified(&self, times: &[(Coords, SystemTime)]) -> Result<Option<SystemTime>> {
        Ok(times.iter().map(|(_, modified)| *modified).max())
    }

    /// Notes that the version of the stored value with this chunk has become `after` because its
    /// time was set.
    fn renew(&self, _coords: &Coords, _before: Version, _after: Version) {}

    /// Makes a file the encoded chunk at `coords`, as
    /// [`WritableStore::set_file`](zarrfs_store::WritableStore::set_file) does.
    fn set_file(&self, _coords: &Coords, _file: &NewFile) -> Result<Option<Stat>> {
        Ok(None)
    }

    /// Returns the encoded chunks in `value`, which is or would be the chunk at `coords` of the
    /// level `depth` of this chunk store; level 0 has the stored values.
    fn split(&self, depth: usize, coords: &Coords, value: Bytes) -> Result<Vec<(Coords, Bytes)>> {
        let _ = depth;
        Ok(vec![(coords.clone(), value)])
    }

    /// Returns how many levels are below this one.
    fn depth(&self) -> usize {
        0
    }

    /// Replaces bytes inside encoded chunks. Each part begins at its offset; a chunk must exist and
    /// keeps its length. Keeps concurrent changes of other writers.
    fn set_partial_values(&self, parts: &[(Coords, u64, Bytes)]) -> Result<()> {
        let mut by_chunk: BTreeMap<&Coords, Vec<(u64, Bytes)>> = BTreeMap::new();
        for (coords, start, bytes) in parts {
            by_chunk.entry(coords).or_default().push((*start, bytes.clone()));
        }
        // An empty read reports a damaged chunk, while a stat does not.
        let ranges: Vec<(Coords, ByteRange)> =
            by_chunk.keys().map(|coords| ((*coords).clone(), ByteRange::first(0))).collect();
        let take_turn = || match &ranges[..] {
            [(coords, _)] => self.take_turn(coords),
            // A thread takes one turn at a time.
            _ => Ok(None),
        };
        retried(take_turn, || {
            let mut changes = Vec::with_capacity(ranges.len());
            for ((coords, parts), old) in by_chunk.iter().zip(self.get_partial_values(&ranges)?) {
                let stat = old.ok_or_else(Error::not_found).at(coords)?.stat;
                changes.push(ChunkChange {
                    coords: (*coords).clone(),
                    value: Some(ValuePiece::overlay(stat.len, parts).at(coords)?),
                    condition: Condition::Unchanged(stat.version),
                });
            }
            self.update(changes).map(drop)
        })
    }

    /// Erases chunks, and skips those that are not stored.
    fn erase_values(&self, coords: &[Coords]) -> Result<()> {
        self.update(coords.iter().cloned().map(ChunkChange::erase).collect()).map(drop)
    }

    /// Erases every chunk whose first indices are `prefix`.
    fn erase_prefix(&self, prefix: &[u64]) -> Result<()>;

    /// Forgets which chunks are there, because what is listed next decides over a change.
    fn forget(&self);

    /// Whether there may be a chunk whose first indices are `prefix`, as far as that is known
    /// without asking a server.
    fn may_have(&self, prefix: &[u64]) -> bool;

    /// Lists the next index of every chunk whose first indices are `prefix`, which is shorter than
    /// the rank.
    fn list_dir(self: Arc<Self>, prefix: &[u64]) -> Result<Indices>;

    /// Lists every chunk whose first indices are `prefix`.
    fn list_prefix(self: Arc<Self>, prefix: &[u64]) -> Result<CoordsList>;

    /// Lists every chunk.
    fn list(self: Arc<Self>) -> Result<CoordsList> {
        self.list_prefix(&[])
    }

    /// Reads how the shard at `shard`, which contains chunks of this store, uses its bytes. `None`
    /// if it is not stored, or if this store has no shards.
    fn shard_usage(&self, _shard: &Coords) -> Result<Option<Usage>> {
        Ok(None)
    }

    /// Returns how many chunks of this store the shard at `shard` can hold; 0 if it has no shards.
    fn slots_in_shard(&self, _shard: &Coords) -> usize {
        0
    }

    /// Returns the chunk in a slot of a shard, which may lie outside of the grid.
    fn in_slot(&self, shard: &Coords, _slot: usize) -> Coords {
        shard.clone()
    }

    /// Rewrites a shard without the bytes that no entry of its index uses, unless another program
    /// changes it in the meantime. Does nothing if this store has no shards.
    fn compact(&self, _shard: &Coords) -> Result<()> {
        Ok(())
    }

    /// Returns the key of the stored value that contains the chunk or would contain it. An array
    /// without dimensions may have one of two keys; this returns the one that exists.
    fn key(&self, coords: &Coords) -> Result<Key>;
}

/// A chunk store with a value for each chunk.
#[derive(Debug)]
pub struct Direct {
    store: Store,
    prefix: Prefix,
    encoding: KeyEncoding,
    grid: Grid,
}

impl Direct {
    /// Returns the chunk store below `prefix` in `store`.
    pub fn new(store: Store, prefix: Prefix, encoding: KeyEncoding, grid: Grid) -> Self {
        Self { store, prefix, encoding, grid }
    }

    fn keys(&self, coords: &[Coords]) -> Result<Vec<Key>> {
        coords.iter().map(|coords| self.key(coords)).collect()
    }

    fn listing(&self) -> Result<&dyn zarrfs_store::ListableStore> {
        self.store.list().ok_or_else(|| Error::unsupported("the store cannot list its keys"))
    }

    fn erase_unchanged(&self, key: &Key, version: Version) -> Result<()> {
        self.store.write()?.erase_unchanged(key, version)
    }
}

impl ChunkStore for Direct {
    fn grid(&self) -> &Grid {
        &self.grid
    }

    fn get_partial_values(&self, ranges: &[(Coords, ByteRange)]) -> Result<Vec<Option<Value>>> {
        let keyed = |(coords, range): &(Coords, ByteRange)| Ok((self.key(coords)?, *range));
        let ranges: Vec<(Key, ByteRange)> = ranges.iter().map(keyed).collect::<Result<_>>()?;
        self.store.read().get_partial_values(&ranges)
    }

    fn expect(&self, ranges: &[(Coords, ByteRange)]) -> Result<Expected> {
        let keyed = |(coords, range): &(Coords, ByteRange)| Ok((self.key(coords)?, *range));
        let ranges: Vec<(Key, ByteRange)> = ranges.iter().map(keyed).collect::<Result<_>>()?;
        Ok(self.store.read().expect(&ranges))
    }

    fn stat(&self, coords: &[Coords]) -> Result<Vec<Option<Stat>>> {
        self.store.read().stat(&self.keys(coords)?)
    }

    fn update(&self, changes: Vec<ChunkChange>) -> Result<Vec<Option<Stat>>> {
        let mut stored = Vec::with_capacity(changes.len());
        let (mut set, mut erased) = (Vec::new(), BTreeSet::new());
        for ChunkChange { coords, value, condition } in changes {
            let key = self.key(&coords)?;
            stored.push(match (value, condition) {
                (Some(pieces), condition) => {
                    erased.remove(&key);
                    set.push((stored.len(), (key, pieces, condition)));
                    None
                }
                (None, Condition::Unchanged(version)) => {
                    self.erase_unchanged(&key, version)?;
                    None
                }
                (None, Condition::Always) => {
                    erased.insert(key);
                    None
                }
                (None, Condition::Absent) => {
                    condition.check(self.store.stat(&key)?.map(|stat| stat.version))?;
                    None
                }
            });
        }
        let (positions, values): (Vec<usize>, Vec<_>) = set.into_iter().unzip();
        for (at, stat) in positions.into_iter().zip(self.store.write()?.set_all(values)) {
            if let Some(slot) = stored.get_mut(at) {
                *slot = Some(stat?);
            }
        }
        if !erased.is_empty() {
            self.store.write()?.erase_values(&erased.into_iter().collect::<Vec<_>>())?;
        }
        Ok(stored)
    }

    fn take_turn(&self, coords: &Coords) -> Result<WriteTurn> {
        self.store.write()?.take_turn(&self.key(coords)?)
    }

    fn erases_unchanged(&self) -> bool {
        self.store.write().is_ok_and(|write| write.promises().erases_unchanged)
    }

    fn set_file(&self, coords: &Coords, file: &NewFile) -> Result<Option<Stat>> {
        self.store.write()?.set_file(&self.key(coords)?, file, Condition::Always)
    }

    fn erase_prefix(&self, prefix: &[u64]) -> Result<()> {
        if prefix.len() == self.grid.rank() {
            return self.erase_values(&[Coords::new(prefix)]);
        }
        match key_encoding::level(self.encoding, prefix) {
            Some((level, _)) if !level.is_empty() => {
                self.store.write()?.erase_prefix(&self.prefix.join(&level)?)
            }
            // The prefix holds other values (the array's document), so erase only chunks.
            _ => {
                let mut keys = Vec::new();
                for key in self.listing()?.list_prefix(&self.prefix)? {
                    let key = key?;
                    let text = key.as_str().get(self.prefix.as_str().len()..).unwrap_or_default();
                    let coords = key_encoding::decode(self.encoding, text, self.grid.rank());
                    if coords.is_some_and(|coords| coords.starts_with(prefix)) {
                        keys.push(key);
                    }
                }
                self.store.write()?.erase_values(&keys)
            }
        }
    }

    fn forget(&self) {
        if let Some(list) = self.store.list() {
            list.forget_below(&self.prefix);
        }
    }

    fn may_have(&self, prefix: &[u64]) -> bool {
        let below = match key_encoding::level(self.encoding, prefix) {
            Some((level, _)) => self.prefix.join(&level),
            None => Ok(self.prefix.clone()),
        };
        match (below, self.store.list()) {
            // There is the metadata file, too.
            (Ok(below), Some(list)) if below == self.prefix => {
                let rank = self.grid.rank();
                let is_chunk = |entry: &StoreEntry| match entry {
                    StoreEntry::Key(name) => key_encoding::decode(self.encoding, name, rank)
                        .is_some_and(|coords| coords.starts_with(prefix)),
                    StoreEntry::Prefix(name) => key_encoding::level_of(self.encoding, name, rank)
                        .is_some_and(|first| {
                            first.starts_with(prefix) || prefix.starts_with(&first)
                        }),
                };
                list.may_have_entry(&below, &is_chunk)
            }
            (Ok(below), Some(list)) => list.may_have(&below),
            _ => true,
        }
    }

    fn list_dir(self: Arc<Self>, prefix: &[u64]) -> Result<Indices> {
        let depth = prefix.len();
        if self.store.list().is_none() {
            return self.unlisted_dir(prefix);
        }
        let Some((level, before)) = key_encoding::level(self.encoding, prefix) else {
            // All chunks lie directly below the array, so an index may occur many times.
            let mut seen = HashSet::new();
            let is_leaf = depth + 1 == self.grid.rank();
            let list = self.list_prefix(prefix)?;
            return Ok(Box::new(list.filter_map(move |coords| match coords {
                Ok(coords) => {
                    let index = coords.indices().get(depth).copied()?;
                    (is_leaf || seen.insert(index)).then_some(Ok(index))
                }
                Err(error) => Some(Err(error)),
            })));
        };
        let mut entries = self.listing()?.list_dir(&self.prefix.join(&level)?)?.peekable();
        if matches!(entries.peek(), Some(Err(error)) if error.kind() == Kind::Unsupported) {
            return self.unlisted_dir(prefix);
        }
        let prefix: Box<[u64]> = prefix.into();
        Ok(Box::new(entries.filter_map(move |entry| {
            let found = entry.and_then(|entry| self.child(&prefix, before, &entry));
            found.transpose()
        })))
    }

    fn list_prefix(self: Arc<Self>, prefix: &[u64]) -> Result<CoordsList> {
        let rank = self.grid.rank();
        if prefix.len() >= rank {
            let coords = Coords::new(prefix);
            let is_stored = self.grid.contains(&coords)
                && self.stat(std::slice::from_ref(&coords))?.iter().any(Option::is_some);
            return Ok(Box::new(is_stored.then_some(Ok(coords)).into_iter()));
        }
        if self.store.list().is_none() {
            return self.asked(prefix);
        }
        let mut found = if let Some((level, _)) = key_encoding::level(self.encoding, prefix) {
            self.listing()?.list_known(&self.prefix.join(&level)?, "")?
        } else {
            let start = key_encoding::start(self.encoding, prefix).unwrap_or_default();
            self.listing()?.list_known(&self.prefix, &start)?
        };
        if !self.listing()?.proves_absence()
            && let Some(all) = unlisted::few(&self.grid, prefix)
        {
            return self.with_hidden(found, all);
        }
        let prefix: Box<[u64]> = prefix.into();
        let mut asked: Option<CoordsList> = None;
        Ok(Box::new(std::iter::from_fn(move || {
            loop {
                if let Some(coords) = asked.as_mut().and_then(Iterator::next) {
                    return Some(coords);
                }
                match found.next()? {
                    Ok(ListedEntry::Key(key)) => {
                        let coords = self.coords_of(&key).filter(|it| it.starts_with(&prefix));
                        if let Some(coords) = coords {
                            return Some(Ok(coords));
                        }
                    }
                    Ok(ListedEntry::Unlisted(directory, _)) => {
                        match self.asked_in(&directory, &prefix) {
                            Ok(chunks) => asked = Some(chunks),
                            Err(error) => return Some(Err(error)),
                        }
                    }
                    Err(error) => return Some(Err(error)),
                }
            }
        })))
    }

    fn key(&self, coords: &Coords) -> Result<Key> {
        if !self.grid.contains(coords) {
            return Err(self.grid.outside(coords));
        }
        if let Some(text) = key_encoding::alternative(self.encoding, coords.indices()) {
            let other = self.prefix.key(text)?;
            if self.store.stat(&other)?.is_some() {
                return Ok(other);
            }
        }
        self.prefix.key(&key_encoding::encode(self.encoding, coords.indices()))
    }
}

impl Direct {
    /// Returns the coordinates of a key, if it is that of a chunk of the grid.
    fn coords_of(&self, key: &Key) -> Option<Coords> {
        let text = key.as_str().get(self.prefix.as_str().len()..)?;
        let coords = key_encoding::decode(self.encoding, text, self.grid.rank())?;
        self.grid.contains(&coords).then_some(coords)
    }

    /// Finds the chunks whose first indices are `prefix` without a list: asks for each.
    fn asked(self: Arc<Self>, prefix: &[u64]) -> Result<CoordsList> {
        let (grid, of) = (self.grid.clone(), prefix.to_vec());
        let are_there =
            move |coords: &[Coords]| Ok(self.stat(coords)?.iter().map(Option::is_some).collect());
        unlisted::list(&grid, &of, are_there)
    }

    /// Returns the chunks of `all` that are `listed`, and those that the list leaves out.
    fn with_hidden(
        &self,
        listed: Box<dyn Iterator<Item = Result<ListedEntry>> + Send>,
        all: Vec<Coords>,
    ) -> Result<CoordsList> {
        let mut known = HashSet::new();
        for found in listed {
            match found {
                Ok(ListedEntry::Key(key)) => known.extend(self.coords_of(&key)),
                // Those in it are asked for.
                Ok(ListedEntry::Unlisted(..)) => {}
                Err(error) => return Err(error),
            }
        }
        let hidden: Vec<Coords> = all.iter().filter(|it| !known.contains(*it)).cloned().collect();
        let keys: Vec<Key> = hidden.iter().map(|coords| self.key(coords)).collect::<Result<_>>()?;
        self.listing()?.doubt(&keys);
        let stats = self.stat(&hidden)?;
        let there = hidden.into_iter().zip(stats).filter(|(_, stat)| stat.is_some());
        known.extend(there.map(|(coords, _)| coords));
        Ok(Box::new(all.into_iter().filter(move |coords| known.contains(coords)).map(Ok)))
    }

    /// Finds the chunks in a directory that the store cannot list, as far as their first indices
    /// are `prefix`: asks for each.
    pub fn asked_in(self: &Arc<Self>, directory: &Prefix, prefix: &[u64]) -> Result<CoordsList> {
        let (all, rank) = (self.prefix.as_str().len(), self.grid.rank());
        let text = directory.as_str().get(all..).unwrap_or_default().trim_end_matches('/');
        let within = match key_encoding::level_of(self.encoding, text, rank) {
            Some(within) if within.starts_with(prefix) => within,
            Some(within) if prefix.starts_with(&within) => prefix.to_vec(),
            // No chunks lie there.
            Some(_) | None => return Ok(Box::new(std::iter::empty())),
        };
        let (direct, directory) = (Arc::clone(self), directory.clone());
        let chunks = Arc::clone(self).asked(&within).at(&directory)?;
        let is_there = move |coords: &Coords| {
            direct.key(coords).is_ok_and(|key| key.as_str().starts_with(directory.as_str()))
        };
        Ok(Box::new(chunks.filter(move |coords| coords.as_ref().map_or(true, &is_there))))
    }

    /// Returns the indices that follow `prefix` in a store that cannot list: of chunks those that
    /// are there, else those of the grid.
    fn unlisted_dir(self: Arc<Self>, prefix: &[u64]) -> Result<Indices> {
        let depth = prefix.len();
        let count = self.grid.counts().get(depth).copied().unwrap_or(0);
        if depth.saturating_add(1) < self.grid.rank() {
            unlisted::check(Some(count))?;
            return Ok(Box::new((0..count).map(Ok)));
        }
        let chunks = self.asked(prefix)?;
        Ok(Box::new(chunks.filter_map(move |coords| match coords {
            Ok(coords) => coords.indices().get(depth).copied().map(Ok),
            Err(error) => Some(Err(error)),
        })))
    }

    /// Returns the index that an entry of a level adds to `prefix`, if it leads to a chunk of the
    /// grid.
    fn child(
        self: &Arc<Self>,
        prefix: &[u64],
        before: &str,
        entry: &StoreEntry,
    ) -> Result<Option<u64>> {
        let Some(index) = entry.name().strip_prefix(before).and_then(key_encoding::index) else {
            return Ok(None);
        };
        let path = [prefix, &[index]].concat();
        if !self.grid.contains_prefix(&path) {
            return Ok(None);
        }
        let is_leaf = path.len() == self.grid.rank();
        let found = match entry {
            StoreEntry::Key(_) => is_leaf,
            // Ignore empty directories.
            StoreEntry::Prefix(_) if is_leaf => false,
            StoreEntry::Prefix(_) if !self.listing()?.lists_empty_prefixes() => true,
            StoreEntry::Prefix(_) => {
                Arc::clone(self).list_prefix(&path)?.next().transpose()?.is_some()
            }
        };
        Ok(found.then_some(index))
    }
}
