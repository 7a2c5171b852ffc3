//! Chunks inside shards: many encoded chunks in one value of the chunk store below.
//!
//! It has the operations of the sharding storage transformer draft of 2022, with the number of
//! calls that the draft allows: two reads below for a batch of chunks, however many shards contain
//! them; no read if all chunks of a shard are set; one erase for a whole shard. A changed shard is
//! written as a whole. The encoded bytes of its other inner chunks are kept without decoding them,
//! and if the store can copy ranges, without reading them.

mod change;
mod times;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use parking_lot::Mutex;

use super::by_shape::Bound;
use super::chunk_store::{
    ChunkChange, ChunkStore, CoordsList, Indices, WriteTurn, has_lost, retried,
};
use super::coords::{Coords, Grid};
use super::layout::ShardLayout;
use super::level::ShardLevel;
use super::shard_cache::{LevelId, ShardCaches};
use super::shard_form::ShardForm;
use zarrfs_base::error::{Error, Kind, Result, WithSubject};
use zarrfs_base::width::{ToU64, ToUsize};
use zarrfs_codec::shard::{ByteSpan, ENTRY_LEN, ShardIndex, Usage};
use zarrfs_store::{ByteRange, Condition, Expected, Key, Stat, Value, Version};

/// How often to retry a read because shards were replaced in the meantime.
const ATTEMPTS: usize = 1000;

/// How many of these to make at once. After that each waits a little longer than the one before.
const ATTEMPTS_AT_ONCE: usize = 10;

/// How long to retry a read.
const LONGEST: Duration = Duration::from_secs(10);

/// How long the retry `attempt` of a read waits.
fn pause(attempt: usize) -> Duration {
    let waits = attempt.saturating_sub(ATTEMPTS_AT_ONCE).min(100);
    Duration::from_millis(waits.to_u64())
}

/// A level of shards over the chunk store that holds them.
#[derive(Debug)]
pub struct Sharded {
    below: Arc<dyn ChunkStore>,
    level: ShardLevel,
    grid: Grid,
    layout: ShardLayout,
    caches: Arc<ShardCaches>,
    /// The key of this level in the caches.
    id: LevelId,
    /// Held while a shard is decoded as a whole, so that it is decoded once, and at most one is in
    /// memory twice. Only the lock of the level below is taken under it.
    decoding: Mutex<()>,
}

/// The index of a shard.
#[derive(Debug)]
pub struct Loaded {
    index: ShardIndex,
    /// The stat of the shard; the length is that inside the codecs around it.
    stat: Stat,
    /// The range of the index in the shard.
    at: Range<u64>,
}

impl Loaded {
    fn span(&self, slot: usize) -> Result<Option<ByteSpan>> {
        self.index.span(slot, self.stat.len, &self.at)
    }
}

/// Whether an index was read in this call or comes from the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Freshness {
    Read,
    Cached,
}

/// The index of a shard, `None` if there is no such shard, and where it comes from.
type KnownIndex = (Option<Arc<Loaded>>, Freshness);

impl Sharded {
    /// Returns the inner chunks of `grid` in the shards of `below`, which are written in `layout`.
    pub fn new(
        below: Arc<dyn ChunkStore>,
        level: ShardLevel,
        grid: Grid,
        layout: ShardLayout,
        caches: Arc<ShardCaches>,
    ) -> Self {
        Self { below, level, grid, layout, caches, id: LevelId::new(), decoding: Mutex::new(()) }
    }

    /// Returns the inner chunks in the bytes of a shard.
    fn inner_chunks(&self, shard: &Coords, encoded: Bytes) -> Result<Vec<(Coords, Bytes)>> {
        let form = self.form(shard)?;
        let bytes = self.level.decode_around(&form, encoded)?;
        let len = bytes.len().to_u64();
        let (modified, version) = (SystemTime::UNIX_EPOCH, Version::unstored(0));
        let stat = Stat { len, modified, version };
        let slice = |(offset, len): (u64, u64)| {
            let start = offset.to_usize().min(bytes.len());
            let len = len.to_usize().min(bytes.len() - start);
            bytes.slice(start..start + len)
        };
        let of_index = slice(form.index_range().within(len));
        let (index, at) = form.parse_index(&Value { bytes: of_index, stat })?;
        let mut inner = Vec::new();
        for slot in 0..form.slots() {
            let Some(ByteSpan { offset, len }) = index.span(slot, len, &at)? else { continue };
            inner.push((self.level.coords_of(shard, slot), slice((offset, len))));
        }
        Ok(inner)
    }

    /// Reads ranges of shards, inside the codecs around them.
    fn get_from_shards(&self, ranges: &[(Coords, ByteRange)]) -> Result<Vec<Option<Value>>> {
        if self.level.around.is_empty() {
            return self.below.get_partial_values(ranges);
        }
        let get = |(shard, range): &(Coords, ByteRange)| {
            let Some(value) = self.decoded_shard(shard)? else { return Ok(None) };
            let (offset, len) = range.within(value.stat.len);
            // Both offsets lie within bytes that are in memory.
            let start = offset.to_usize().min(value.bytes.len());
            let len = len.to_usize().min(value.bytes.len() - start);
            Ok(Some(Value { bytes: value.bytes.slice(start..start + len), stat: value.stat }))
        };
        ranges.iter().map(get).collect()
    }

    /// Reads a whole shard, and decodes the codecs around it.
    pub(super) fn decoded_shard(&self, shard: &Coords) -> Result<Option<Value>> {
        let _decoding = self.decoding.lock();
        let stat = self.below.stat(std::slice::from_ref(shard))?.pop().flatten();
        let Some(stat) = stat else { return Ok(None) };
        if let Some(cached) = self.caches.whole.get(self.id, shard)
            && cached.stat.version.holds(stat.version)
        {
            return Ok(Some(cached));
        }
        let form = self.form(shard)?;
        let limit = form.longest();
        let whole = [(shard.clone(), ByteRange::first(limit))];
        let Some(encoded) = self.below.get_partial_values(&whole)?.pop().flatten() else {
            return Ok(None);
        };
        if encoded.stat.len > limit {
            let detail = format!("{} bytes stored for a shard, {limit} at most", encoded.stat.len);
            return Err(self.at_key_of(shard, Error::corrupt(detail)));
        }
        let decoded = self.level.decode_around(&form, encoded.bytes);
        let bytes = decoded.map_err(|error| self.at_key_of(shard, error))?;
        let len = bytes.len().to_u64();
        let value = Value { bytes, stat: Stat { len, ..encoded.stat } };
        self.caches.whole.put(self.id, shard, value.clone(), value.bytes.len());
        Ok(Some(value))
    }

    /// Reads the indexes of `shards` in one call below.
    pub(super) fn read_indexes(&self, shards: &[Coords]) -> Result<Vec<Option<Arc<Loaded>>>> {
        let range = |shard: &Coords| Ok((shard.clone(), self.form(shard)?.index_range()));
        let ranges: Vec<(Coords, ByteRange)> = shards.iter().map(range).collect::<Result<_>>()?;
        let values = self.get_from_shards(&ranges)?;
        let mut loaded = Vec::with_capacity(values.len());
        for (shard, value) in shards.iter().zip(values) {
            let Some(value) = value else {
                self.caches.indexes.forget(self.id, shard);
                loaded.push(None);
                continue;
            };
            let (index, at) = self
                .form(shard)?
                .parse_index(&value)
                .map_err(|error| self.at_key_of(shard, error))?;
            let index = Arc::new(Loaded { index, stat: value.stat, at });
            self.keep(shard, &index);
            loaded.push(Some(index));
        }
        Ok(loaded)
    }

    /// Caches the index of a shard.
    pub(super) fn keep(&self, shard: &Coords, index: &Arc<Loaded>) {
        let len = index.index.slots().saturating_mul(ENTRY_LEN);
        self.caches.indexes.put(self.id, shard, Arc::clone(index), len);
    }

    /// Returns the indexes of `shards`: cached ones unless `Freshness::Read` is asked for, and
    /// reads the others.
    fn indexes_of(
        &self,
        shards: &BTreeMap<Coords, Freshness>,
    ) -> Result<BTreeMap<Coords, KnownIndex>> {
        let mut found = BTreeMap::new();
        let mut wanted = Vec::new();
        for (shard, freshness) in shards {
            let cached = match freshness {
                Freshness::Cached => self.caches.indexes.get(self.id, shard),
                Freshness::Read => None,
            };
            match cached {
                Some(index) => drop(found.insert(shard.clone(), (Some(index), Freshness::Cached))),
                None => wanted.push(shard.clone()),
            }
        }
        if !wanted.is_empty() {
            for (shard, index) in wanted.iter().zip(self.read_indexes(&wanted)?) {
                found.insert(shard.clone(), (index, Freshness::Read));
            }
        }
        Ok(found)
    }

    /// Returns the shards that have changed since their cached index was read.
    fn outdated(&self, cached: &[(Coords, Arc<Loaded>)]) -> Result<Vec<Coords>> {
        if cached.is_empty() {
            return Ok(Vec::new());
        }
        let shards: Vec<Coords> = cached.iter().map(|(shard, _)| shard.clone()).collect();
        let stats = self.below.stat(&shards)?;
        let changed = cached.iter().zip(stats).filter(|((_, loaded), stat)| {
            !stat.is_some_and(|stat| loaded.stat.version.holds(stat.version))
        });
        Ok(changed.map(|((shard, _), _)| shard.clone()).collect())
    }

    /// Tries once to read `wanted` (positions in `ranges`); returns those whose shards changed
    /// meanwhile.
    fn try_get(
        &self,
        ranges: &[(Coords, ByteRange)],
        wanted: &[usize],
        freshness: Freshness,
        values: &mut [Option<Value>],
    ) -> Result<Vec<usize>> {
        let mut shards = BTreeMap::new();
        for (coords, _) in wanted.iter().filter_map(|at| ranges.get(*at)) {
            shards.insert(self.level.shard_of(coords), freshness);
        }
        let indexes = self.indexes_of(&shards)?;
        let (mut spans, mut absent) = (Vec::new(), Vec::new());
        for at in wanted {
            let Some((coords, range)) = ranges.get(*at) else { continue };
            let shard = self.level.shard_of(coords);
            let Some((Some(loaded), freshness)) = indexes.get(&shard) else { continue };
            let slot = self.level.slot_of(coords);
            match loaded.span(slot).map_err(|error| self.at_key_of(&shard, error)) {
                Ok(Some(span)) => spans.push((*at, shard, span, *range, Arc::clone(loaded))),
                // The cached index may be outdated, so a missing or damaged entry does not count.
                missing if *freshness == Freshness::Cached => {
                    absent.push((*at, shard, Arc::clone(loaded), missing.err()));
                }
                missing => drop(missing?),
            }
        }
        let mut again = Vec::new();
        let below: Vec<(Coords, ByteRange)> = spans
            .iter()
            .map(|(_, shard, span, range, _)| {
                let (offset, len) = range.within(span.len);
                (shard.clone(), ByteRange::Span { offset: span.offset + offset, len })
            })
            .collect();
        let read = if below.is_empty() { Vec::new() } else { self.get_from_shards(&below)? };
        for ((at, shard, span, _, loaded), value) in spans.iter().zip(read) {
            let Some(value) = value.filter(|value| loaded.stat.version.is_same(value.stat.version))
            else {
                self.caches.indexes.forget(self.id, shard);
                again.push(*at);
                continue;
            };
            let stat = Stat { len: span.len, ..value.stat };
            if let Some(slot) = values.get_mut(*at) {
                *slot = Some(Value { bytes: value.bytes, stat });
            }
        }
        let cached: Vec<(Coords, Arc<Loaded>)> = absent
            .iter()
            .map(|(_, shard, loaded, _)| (shard.clone(), Arc::clone(loaded)))
            .collect();
        let outdated = self.outdated(&cached)?;
        for (at, shard, _, damage) in absent {
            match damage {
                _ if outdated.contains(&shard) => again.push(at),
                Some(error) => return Err(error),
                None => {}
            }
        }
        Ok(again)
    }

    /// Returns the current index of a shard; `None` if there is no such shard.
    fn index_now(&self, shard: &Coords) -> Result<Option<Arc<Loaded>>> {
        Ok(self.indexes_now([shard.clone()])?.remove(shard).flatten())
    }

    /// Returns the current indexes of shards. Cached ones are not read again unless the stats of
    /// their shards have changed.
    fn indexes_now(
        &self,
        shards: impl IntoIterator<Item = Coords>,
    ) -> Result<BTreeMap<Coords, Option<Arc<Loaded>>>> {
        let shards: BTreeSet<Coords> = shards.into_iter().collect();
        let cached = shards
            .iter()
            .filter_map(|shard| Some((shard.clone(), self.caches.indexes.get(self.id, shard)?)));
        let cached: Vec<(Coords, Arc<Loaded>)> = cached.collect();
        let outdated = self.outdated(&cached)?;
        let mut indexes: BTreeMap<Coords, Option<Arc<Loaded>>> =
            cached.into_iter().map(|(shard, index)| (shard, Some(index))).collect();
        indexes.retain(|shard, _| !outdated.contains(shard));
        let unknown: Vec<Coords> =
            shards.into_iter().filter(|shard| !indexes.contains_key(shard)).collect();
        if !unknown.is_empty() {
            let read = self.read_indexes(&unknown)?;
            indexes.extend(unknown.into_iter().zip(read));
        }
        Ok(indexes)
    }

    /// Updates one stored value after the other, so that a thread takes one turn at a time.
    fn update_one_by_one(&self, changes: Vec<ChunkChange>) -> Result<Vec<Option<Stat>>> {
        let mut by_value: BTreeMap<Key, Vec<(usize, ChunkChange)>> = BTreeMap::new();
        let mut stored = vec![None; changes.len()];
        for (at, change) in changes.into_iter().enumerate() {
            by_value.entry(self.key(&change.coords)?).or_default().push((at, change));
        }
        for changes in by_value.into_values() {
            let (places, changes): (Vec<usize>, Vec<ChunkChange>) = changes.into_iter().unzip();
            let first = changes.first().map(|change| change.coords.clone());
            let take_turn = || first.map_or(Ok(None), |coords| self.take_turn(&coords));
            let stats = retried(take_turn, || self.try_update(changes.clone()))?;
            for (at, stat) in places.into_iter().zip(stats) {
                if let Some(slot) = stored.get_mut(at) {
                    *slot = stat;
                }
            }
        }
        Ok(stored)
    }

    /// Returns the inner chunk of `slot` if it exists and begins with `prefix`.
    fn present(
        &self,
        shard: &Coords,
        index: &ShardIndex,
        slot: usize,
        prefix: &[u64],
    ) -> Option<Coords> {
        if !index.is_present(slot) {
            return None;
        }
        let coords = self.level.coords_of(shard, slot);
        (coords.starts_with(prefix) && self.grid.contains(&coords)).then_some(coords)
    }
}

impl Sharded {
    /// Adds the key of the shard to an error, so that the user can look at it.
    fn at_key_of(&self, shard: &Coords, error: Error) -> Error {
        match self.below.key(shard) {
            Ok(key) => error.at(key),
            Err(_) => error.at(shard),
        }
    }

    /// Returns the form of a shard.
    pub(super) fn form(&self, shard: &Coords) -> Result<Bound<'_, ShardForm>> {
        self.level.form(shard).map_err(|error| self.at_key_of(shard, error))
    }

    /// Lists the inner chunks that begin with `prefix`, in the shards that begin with
    /// `shard_prefix`.
    fn list_below(self: Arc<Self>, shard_prefix: &[u64], prefix: &[u64]) -> Result<CoordsList> {
        let shards = Arc::clone(&self.below).list_prefix(shard_prefix)?;
        let prefix: Arc<[u64]> = prefix.into();
        let inner = move |shard: Result<Coords>| -> CoordsList {
            let index = shard.and_then(|shard| Ok((self.index_now(&shard)?, shard)));
            match index {
                Ok((Some(index), shard)) => {
                    let (sharded, prefix) = (Arc::clone(&self), Arc::clone(&prefix));
                    let slots = index.index.slots();
                    let present =
                        move |slot| sharded.present(&shard, &index.index, slot, &prefix).map(Ok);
                    Box::new((0..slots).filter_map(present))
                }
                Ok((None, _)) => Box::new(std::iter::empty()),
                Err(error) => Box::new(std::iter::once(Err(error))),
            }
        };
        Ok(Box::new(shards.flat_map(inner)))
    }
}

/// A sequence that reads `1/MANY` of a shard soon will read all of it.
const MANY: usize = 10;

/// The most inner chunks of a shard that are announced together.
const MOST_TOGETHER: usize = 16 << 10;

impl ChunkStore for Sharded {
    fn grid(&self) -> &Grid {
        &self.grid
    }

    fn depth(&self) -> usize {
        self.below.depth().saturating_add(1)
    }

    fn split(&self, depth: usize, coords: &Coords, value: Bytes) -> Result<Vec<(Coords, Bytes)>> {
        if depth >= self.depth() {
            return Ok(vec![(coords.clone(), value)]);
        }
        let shards = self.below.split(depth, coords, value)?;
        let parts = shards.into_iter().map(|(shard, bytes)| self.inner_chunks(&shard, bytes));
        Ok(parts.collect::<Result<Vec<_>>>()?.concat())
    }

    fn get_partial_values(&self, ranges: &[(Coords, ByteRange)]) -> Result<Vec<Option<Value>>> {
        if let Some((coords, _)) = ranges.iter().find(|(coords, _)| !self.grid.contains(coords)) {
            return Err(self.grid.outside(coords));
        }
        let mut values = vec![None; ranges.len()];
        let mut wanted: Vec<usize> = (0..ranges.len()).collect();
        let mut freshness = Freshness::Cached;
        let began = Instant::now();
        for attempt in 0..ATTEMPTS {
            wanted = self.try_get(ranges, &wanted, freshness, &mut values)?;
            if wanted.is_empty() {
                let found = ranges.iter().zip(&mut values);
                self.set_own_times(found.filter_map(|((coords, _), value)| {
                    value.as_mut().map(|value| (coords, &mut value.stat))
                }));
                return Ok(values);
            }
            if began.elapsed() > LONGEST {
                break;
            }
            freshness = Freshness::Read;
            thread::sleep(pause(attempt));
        }
        Err(Error::new(
            Kind::Stale,
            "gave up after repeated conflicts: other programs keep \
             replacing this shard",
        ))
    }

    fn with_others(&self, coords: &[Coords]) -> Vec<Coords> {
        let mut by_shard: BTreeMap<Coords, Vec<Coords>> = BTreeMap::new();
        for coords in coords {
            by_shard.entry(self.level.shard_of(coords)).or_default().push(coords.clone());
        }
        let many = |(shard, some): (Coords, Vec<Coords>)| {
            let slots = self.level.slots(&shard);
            if some.len() < slots / MANY || slots > MOST_TOGETHER {
                return some;
            }
            let all = (0..slots).map(|slot| self.level.coords_of(&shard, slot));
            all.filter(|coords| self.grid.contains(coords)).collect()
        };
        by_shard.into_iter().flat_map(many).collect()
    }

    fn expect(&self, ranges: &[(Coords, ByteRange)]) -> Result<Expected> {
        let shard_of = |(coords, _): &(Coords, ByteRange)| self.level.shard_of(coords);
        let shards: BTreeMap<Coords, Freshness> =
            ranges.iter().map(|range| (shard_of(range), Freshness::Cached)).collect();
        if !self.level.around.is_empty() {
            let whole = |shard: Coords| {
                let longest = self.form(&shard)?.longest();
                Ok((shard, ByteRange::first(longest)))
            };
            let shards: Vec<_> = shards.into_keys().map(whole).collect::<Result<_>>()?;
            return self.below.expect(&shards);
        }
        let indexes = self.indexes_of(&shards)?;
        let span_of = |(coords, range): &(Coords, ByteRange)| {
            let shard = self.level.shard_of(coords);
            let (Some(loaded), _) = indexes.get(&shard)? else { return None };
            // A damaged entry is reported when it is read.
            let span = loaded.span(self.level.slot_of(coords)).ok().flatten()?;
            let (offset, len) = range.within(span.len);
            Some((shard, ByteRange::Span { offset: span.offset.checked_add(offset)?, len }))
        };
        let below: Vec<_> = ranges.iter().filter_map(span_of).collect();
        self.below.expect(&below)
    }

    fn stat(&self, coords: &[Coords]) -> Result<Vec<Option<Stat>>> {
        if let Some(coords) = coords.iter().find(|coords| !self.grid.contains(coords)) {
            return Err(self.grid.outside(coords));
        }
        let shards = coords.iter().map(|coords| self.level.shard_of(coords));
        let indexes = self.indexes_now(shards)?;
        let stat = |coords: &Coords| {
            let shard = self.level.shard_of(coords);
            let loaded = indexes.get(&shard)?.as_ref()?;
            let slot = self.level.slot_of(coords);
            if !loaded.index.is_present(slot) {
                return None;
            }
            // List a damaged entry, so that reading it reports the damage.
            let len = loaded.span(slot).ok().flatten().map_or(0, |span| span.len);
            Some(Stat { len, ..loaded.stat })
        };
        let mut stats: Vec<Option<Stat>> = coords.iter().map(stat).collect();
        let found = coords.iter().zip(&mut stats);
        self.set_own_times(found.filter_map(|(coords, stat)| Some((coords, stat.as_mut()?))));
        Ok(stats)
    }

    fn set_modified(&self, times: &[(Coords, SystemTime)]) -> Result<Option<SystemTime>> {
        let mut by_shard: BTreeMap<Coords, Vec<(usize, SystemTime)>> = BTreeMap::new();
        for (coords, modified) in times {
            let shard = by_shard.entry(self.level.shard_of(coords)).or_default();
            shard.push((self.level.slot_of(coords), *modified));
        }
        let mut of_shards = Vec::new();
        for (shard, set) in by_shard {
            if let Some(latest) = self.set_times(&shard, set)? {
                of_shards.push((shard, latest));
            }
        }
        if of_shards.is_empty() { Ok(None) } else { self.below.set_modified(&of_shards) }
    }

    fn renew(&self, coords: &Coords, before: Version, after: Version) {
        let shard = self.level.shard_of(coords);
        self.renew_times(&shard, before, after);
        self.below.renew(&shard, before, after);
    }

    fn update(&self, changes: Vec<ChunkChange>) -> Result<Vec<Option<Stat>>> {
        if changes.iter().all(|change| matches!(change.condition, Condition::Always)) {
            // Other writers changed other inner chunks, or the same ones, for which the last writer
            // wins.
            let updated = self.try_update(changes.clone());
            if has_lost(&updated) { self.update_one_by_one(changes) } else { updated }
        } else {
            self.try_update(changes)
        }
    }

    fn take_turn(&self, coords: &Coords) -> Result<WriteTurn> {
        self.below.take_turn(&self.level.shard_of(coords))
    }

    fn erase_prefix(&self, prefix: &[u64]) -> Result<()> {
        if self.level.covers_whole_shards(prefix) {
            return self.below.erase_prefix(&self.level.shard_prefix(prefix));
        }
        let shards = Arc::clone(&self.below).list_prefix(&self.level.shard_prefix(prefix))?;
        for shard in shards {
            let shard = shard?;
            let Some(index) = self.index_now(&shard)? else { continue };
            let index = &index.index;
            let slots = 0..index.slots();
            let present = slots.filter_map(|slot| self.present(&shard, index, slot, prefix));
            self.erase_values(&present.collect::<Vec<_>>())?;
        }
        Ok(())
    }

    fn forget(&self) {
        self.below.forget();
    }

    fn may_have(&self, prefix: &[u64]) -> bool {
        self.below.may_have(&self.level.shard_prefix(prefix))
    }

    fn list_dir(self: Arc<Self>, prefix: &[u64]) -> Result<Indices> {
        let depth = prefix.len();
        let shard_prefix = self.level.shard_prefix(prefix);
        let along = Arc::clone(&self.below).list_dir(&shard_prefix)?;
        let prefix: Box<[u64]> = prefix.into();
        Ok(Box::new(along.flat_map(move |shard_index| {
            let found = shard_index.and_then(|index| {
                let shards = [&shard_prefix[..], &[index]].concat();
                let most = self.level.count_along(depth, index);
                let (mut seen, mut damage) = (BTreeSet::new(), None);
                for coords in Arc::clone(&self).list_below(&shards, &prefix)? {
                    match coords {
                        Ok(coords) => seen.extend(coords.indices().get(depth).copied()),
                        // Continue with the other shards.
                        Err(error) => damage = Some(error),
                    }
                    if u64::try_from(seen.len()).is_ok_and(|seen| seen == most) {
                        damage = None;
                        break;
                    }
                }
                Ok((seen, damage))
            });
            match found {
                Ok((seen, damage)) => {
                    seen.into_iter().map(Ok).chain(damage.map(Err)).collect::<Vec<_>>()
                }
                Err(error) => vec![Err(error)],
            }
        })))
    }

    fn list_prefix(self: Arc<Self>, prefix: &[u64]) -> Result<CoordsList> {
        let shards = self.level.shard_prefix(prefix);
        self.list_below(&shards, prefix)
    }

    fn shard_usage(&self, shard: &Coords) -> Result<Option<Usage>> {
        let loaded = self.read_indexes(std::slice::from_ref(shard))?.pop().flatten();
        Ok(loaded.map(|loaded| Usage::of(&loaded.index, loaded.stat.len, &loaded.at)))
    }

    fn slots_in_shard(&self, shard: &Coords) -> usize {
        self.level.slots(shard)
    }

    fn in_slot(&self, shard: &Coords, slot: usize) -> Coords {
        self.level.coords_of(shard, slot)
    }

    fn compact(&self, shard: &Coords) -> Result<()> {
        self.rewrite(shard)
    }

    fn key(&self, coords: &Coords) -> Result<Key> {
        if !self.grid.contains(coords) {
            return Err(self.grid.outside(coords));
        }
        self.below.key(&self.level.shard_of(coords))
    }
}
