//! Chunks inside shards: many encoded chunks in one value of the chunk store below.
//!
//! The operations are those that the sharding storage transformer draft of 2022
//! lists, with the calls that it asks for: two reads below for a batch of chunks, however
//! many shards they are in; none where all chunks of a shard are set; one erase for
//! a whole shard. A changed shard is written as a whole; the encoded bytes of its
//! other inner chunks are kept, not decoded, and not even read where the store can copy them.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use super::chunk_store::{Change, ChunkStore, CoordsList, Indices};
use super::coords::{Coords, Grid};
use super::level::Level;
use crate::error::{Error, Kind, Result};
use crate::shard::{Index, Part, Span, assemble};
use crate::store::{ByteRange, Condition, Key, Piece, Stat, Value};

/// How often a read starts again when shards are replaced under it.
const ATTEMPTS: usize = 8;

/// Memory for decoded indexes of one array, in bytes.
const INDEX_CACHE_LEN: usize = 16 << 20;

/// A level of shards over the chunk store that holds them.
#[derive(Debug)]
pub struct Sharded {
    below: Arc<dyn ChunkStore>,
    level: Level,
    grid: Grid,
    /// Indexes by shard, each with the version of the shard that it was read from. A leaf: nothing else
    /// is locked under it, and it is not held while an index is read.
    indexes: Mutex<LruCache<Coords, Arc<Loaded>>>,
    /// The last shard that had to be decoded as a whole, because codecs lie around it. A leaf.
    decoded: Mutex<Option<(Coords, Value)>>,
}

/// The index of a shard, and the shard that it is of.
#[derive(Debug)]
struct Loaded {
    index: Index,
    /// Of the shard; its length is that before codecs around it.
    stat: Stat,
    /// Where in the shard the index is.
    at: Range<u64>,
}

impl Loaded {
    fn span(&self, slot: usize) -> Result<Option<Span>> {
        self.index.span(slot, self.stat.len, &self.at)
    }
}

/// How far an index may be trusted: read in this call, or kept from an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Freshness {
    Read,
    Kept,
}

impl Sharded {
    /// The inner chunks of `grid` in the shards of `below`.
    pub fn new(below: Arc<dyn ChunkStore>, level: Level, grid: Grid) -> Self {
        let index_len = level.slots().saturating_mul(16).max(1);
        let capacity = (INDEX_CACHE_LEN / index_len).clamp(1, 4096);
        let capacity = NonZeroUsize::new(capacity).unwrap_or(NonZeroUsize::MIN);
        let indexes = Mutex::new(LruCache::new(capacity));
        Self { below, level, grid, indexes, decoded: Mutex::new(None) }
    }

    /// Ranges of shards, as they are inside the codecs around them.
    fn get_from_shards(&self, ranges: &[(Coords, ByteRange)]) -> Result<Vec<Option<Value>>> {
        if self.level.around.is_empty() {
            return self.below.get_partial_values(ranges);
        }
        let get = |(shard, range): &(Coords, ByteRange)| {
            let Some(value) = self.decoded_shard(shard)? else { return Ok(None) };
            let (offset, len) = range.within(value.stat.len);
            // Both are within bytes that are in memory.
            let start = usize::try_from(offset).unwrap_or(usize::MAX).min(value.bytes.len());
            let len = usize::try_from(len).unwrap_or(usize::MAX).min(value.bytes.len() - start);
            Ok(Some(Value { bytes: value.bytes.slice(start..start + len), stat: value.stat }))
        };
        ranges.iter().map(get).collect()
    }

    fn decoded_shard(&self, shard: &Coords) -> Result<Option<Value>> {
        let stat = self.below.stat(std::slice::from_ref(shard))?.pop().flatten();
        let Some(stat) = stat else { return Ok(None) };
        if let Some((kept, value)) = &*self.decoded.lock()
            && kept == shard
            && value.stat.version == stat.version
        {
            return Ok(Some(value.clone()));
        }
        let whole = [(shard.clone(), ByteRange::first(self.level.longest()))];
        let Some(encoded) = self.below.get_partial_values(&whole)?.pop().flatten() else {
            return Ok(None);
        };
        let bytes = self.level.decode_around(encoded.bytes).map_err(|e| e.at_coords(shard))?;
        let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let value = Value { bytes, stat: Stat { len, ..encoded.stat } };
        *self.decoded.lock() = Some((shard.clone(), value.clone()));
        Ok(Some(value))
    }

    /// Reads the indexes of `shards`, in one call below.
    fn read_indexes(&self, shards: &[Coords]) -> Result<Vec<Option<Arc<Loaded>>>> {
        let range = self.level.index_range();
        let ranges: Vec<(Coords, ByteRange)> = shards.iter().map(|s| (s.clone(), range)).collect();
        let values = self.get_from_shards(&ranges)?;
        let mut loaded = Vec::with_capacity(values.len());
        for (shard, value) in shards.iter().zip(values) {
            let Some(value) = value else {
                self.indexes.lock().pop(shard);
                loaded.push(None);
                continue;
            };
            let (index, at) =
                self.level.parse_index(&value).map_err(|e| e.at_key_of(self, shard))?;
            let index = Arc::new(Loaded { index, stat: value.stat, at });
            self.indexes.lock().put(shard.clone(), Arc::clone(&index));
            loaded.push(Some(index));
        }
        Ok(loaded)
    }

    /// The indexes of `shards`: kept ones, unless `Freshness::Read` is asked for, and the rest read.
    fn indexes_of(
        &self,
        shards: &BTreeMap<Coords, Freshness>,
    ) -> Result<BTreeMap<Coords, (Option<Arc<Loaded>>, Freshness)>> {
        let mut found = BTreeMap::new();
        let mut wanted = Vec::new();
        for (shard, freshness) in shards {
            let kept = match freshness {
                Freshness::Kept => self.indexes.lock().get(shard).cloned(),
                Freshness::Read => None,
            };
            match kept {
                Some(index) => drop(found.insert(shard.clone(), (Some(index), Freshness::Kept))),
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

    /// The shards of kept indexes that are no longer those that the indexes are of.
    fn outdated(&self, kept: &[(Coords, Arc<Loaded>)]) -> Result<Vec<Coords>> {
        if kept.is_empty() {
            return Ok(Vec::new());
        }
        let shards: Vec<Coords> = kept.iter().map(|(shard, _)| shard.clone()).collect();
        let stats = self.below.stat(&shards)?;
        let changed = kept.iter().zip(stats).filter(|((_, loaded), stat)| {
            stat.map(|stat| stat.version) != Some(loaded.stat.version)
        });
        Ok(changed.map(|((shard, _), _)| shard.clone()).collect())
    }

    /// One attempt at reading `wanted` (positions in `ranges`); returns those whose shards changed meanwhile.
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
            match loaded.span(slot).map_err(|error| error.at_key_of(self, &shard)) {
                Ok(Some(span)) => spans.push((*at, shard, span, *range, Arc::clone(loaded))),
                // A kept index may be outdated in what it does not have, and in what is wrong with it.
                missing if *freshness == Freshness::Kept => {
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
            match value.filter(|value| value.stat.version == loaded.stat.version) {
                Some(value) => {
                    let stat = Stat { len: span.len, ..value.stat };
                    if let Some(slot) = values.get_mut(*at) {
                        *slot = Some(Value { bytes: value.bytes, stat });
                    }
                }
                None => {
                    self.indexes.lock().pop(shard);
                    again.push(*at);
                }
            }
        }
        let kept: Vec<(Coords, Arc<Loaded>)> = absent
            .iter()
            .map(|(_, shard, loaded, _)| (shard.clone(), Arc::clone(loaded)))
            .collect();
        let outdated = self.outdated(&kept)?;
        for (at, shard, _, damage) in absent {
            match damage {
                _ if outdated.contains(&shard) => again.push(at),
                Some(error) => return Err(error),
                None => {}
            }
        }
        Ok(again)
    }

    /// The new value of one shard: what changes, and the rest as it is.
    fn changed_shard(
        &self,
        shard: &Coords,
        changes: BTreeMap<usize, Option<Vec<Piece>>>,
        old: Option<&Loaded>,
    ) -> Result<Change> {
        let mut parts: BTreeMap<usize, Vec<Piece>> = BTreeMap::new();
        if let Some(old) = old {
            for slot in (0..old.index.slots()).filter(|slot| old.index.is_present(*slot)) {
                // An entry that is damaged can be replaced, but not kept: that would spread the damage.
                if !changes.contains_key(&slot)
                    && let Some(span) = old.span(slot).map_err(|e| e.at_key_of(self, shard))?
                {
                    parts.insert(slot, vec![Piece::Kept { offset: span.offset, len: span.len }]);
                }
            }
        }
        for (slot, pieces) in changes {
            if let Some(pieces) = pieces {
                let base = old.map(|old| old.span(slot)).transpose()?.flatten();
                parts.insert(slot, rebase(pieces, base)?);
            }
        }
        let condition = match old {
            Some(old) => Condition::Unchanged(old.stat.version),
            None => Condition::Absent,
        };
        if parts.is_empty() {
            return Ok(Change { coords: shard.clone(), value: None, condition });
        }
        let lens = parts
            .iter()
            .map(|(slot, pieces)| Part { slot: *slot, len: pieces.iter().map(Piece::len).sum() });
        let index = assemble(self.level.slots(), lens, self.level.index_first_len())?;
        let mut pieces: Vec<Piece> = parts.into_values().flatten().collect();
        let encoded_index = self.level.encode_index(&index, old.map(|old| &old.at))?;
        self.level.place_index(&mut pieces, encoded_index.into());
        let value = Some(self.wrap(shard, merge_kept(pieces))?);
        Ok(Change { coords: shard.clone(), value, condition })
    }

    /// The shard inside the codecs around it, if there are any.
    fn wrap(&self, shard: &Coords, pieces: Vec<Piece>) -> Result<Vec<Piece>> {
        if self.level.around.is_empty() {
            return Ok(pieces);
        }
        let old = self.decoded_shard(shard)?.map(|value| value.bytes).unwrap_or_default();
        let mut whole = Vec::new();
        for piece in pieces {
            match piece {
                Piece::New(bytes) => whole.extend_from_slice(&bytes),
                Piece::Kept { offset, len } => {
                    let start = usize::try_from(offset).ok();
                    let end = usize::try_from(len).ok().and_then(|len| start?.checked_add(len));
                    let kept = start.zip(end).and_then(|(start, end)| old.get(start..end));
                    whole.extend_from_slice(kept.ok_or_else(stale)?);
                }
            }
        }
        Ok(vec![self.level.encode_around(&whole)?.into()])
    }

    /// Whether the changes leave nothing of the shard as it is.
    fn replaces_all(&self, shard: &Coords, changes: &BTreeMap<usize, Option<Vec<Piece>>>) -> bool {
        let all = self.level.chunks_of(shard, &self.grid);
        u64::try_from(changes.len()).is_ok_and(|changed| changed >= all)
            && changes.values().flatten().flatten().all(|piece| matches!(piece, Piece::New(_)))
    }

    /// Which of the inner chunks of `shard` that begin with `prefix` are there.
    fn present(&self, shard: &Coords, prefix: &[u64]) -> Result<Vec<Coords>> {
        let wanted = BTreeMap::from([(shard.clone(), Freshness::Kept)]);
        let (mut loaded, freshness) =
            self.indexes_of(&wanted)?.remove(shard).unwrap_or((None, Freshness::Read));
        if let Some(kept) = loaded.clone().filter(|_| freshness == Freshness::Kept)
            && !self.outdated(&[(shard.clone(), kept)])?.is_empty()
        {
            loaded = self.read_indexes(std::slice::from_ref(shard))?.pop().flatten();
        }
        let Some(loaded) = loaded else { return Ok(Vec::new()) };
        let inner = (0..loaded.index.slots()).filter(|slot| loaded.index.is_present(*slot));
        let coords = inner.map(|slot| self.level.coords_of(shard, slot));
        Ok(coords.filter(|c| c.starts_with(prefix) && self.grid.contains(c)).collect())
    }

    /// Groups changes by shard and slot, and checks their conditions against what is there.
    fn plan(&self, changes: Vec<Change>) -> Result<Vec<Change>> {
        let mut by_shard: BTreeMap<Coords, Vec<Change>> = BTreeMap::new();
        for change in changes {
            if !self.grid.contains(&change.coords) {
                return Err(outside(&self.grid, &change.coords));
            }
            by_shard.entry(self.level.shard_of(&change.coords)).or_default().push(change);
        }
        let mut planned = Vec::new();
        let mut partial = Vec::new();
        for (shard, changes) in by_shard {
            let conditions: Vec<(usize, Condition)> =
                changes.iter().map(|c| (self.level.slot_of(&c.coords), c.condition)).collect();
            let slots: BTreeMap<usize, Option<Vec<Piece>>> =
                changes.into_iter().map(|c| (self.level.slot_of(&c.coords), c.value)).collect();
            let unconditional = conditions.iter().all(|(_, c)| *c == Condition::Always);
            if unconditional && self.replaces_all(&shard, &slots) {
                let mut change = self.changed_shard(&shard, slots, None)?;
                change.condition = Condition::Always;
                planned.push(change);
            } else {
                partial.push((shard, slots, conditions));
            }
        }
        let shards: Vec<Coords> = partial.iter().map(|(shard, ..)| shard.clone()).collect();
        let indexes = if shards.is_empty() { Vec::new() } else { self.read_indexes(&shards)? };
        for ((shard, slots, conditions), old) in partial.into_iter().zip(indexes) {
            for (slot, condition) in conditions {
                let there = old.as_ref().filter(|old| old.index.is_present(slot));
                condition
                    .check(there.map(|old| old.stat.version))
                    .map_err(|e| e.at_key_of(self, &shard))?;
            }
            let present =
                |slot: &usize| old.as_ref().is_some_and(|old| old.index.is_present(*slot));
            if slots.iter().all(|(slot, value)| value.is_none() && !present(slot)) {
                continue; // Erasing what is not there.
            }
            planned.push(self.changed_shard(&shard, slots, old.as_deref())?);
        }
        Ok(planned)
    }
}

impl ChunkStore for Sharded {
    fn grid(&self) -> &Grid {
        &self.grid
    }

    fn get_partial_values(&self, ranges: &[(Coords, ByteRange)]) -> Result<Vec<Option<Value>>> {
        if let Some((coords, _)) = ranges.iter().find(|(coords, _)| !self.grid.contains(coords)) {
            return Err(outside(&self.grid, coords));
        }
        let mut values = vec![None; ranges.len()];
        let mut wanted: Vec<usize> = (0..ranges.len()).collect();
        let mut freshness = Freshness::Kept;
        for _ in 0..ATTEMPTS {
            wanted = self.try_get(ranges, &wanted, freshness, &mut values)?;
            if wanted.is_empty() {
                return Ok(values);
            }
            freshness = Freshness::Read;
        }
        Err(Error::new(Kind::Stale, "the shard is replaced faster than it can be read"))
    }

    fn stat(&self, coords: &[Coords]) -> Result<Vec<Option<Stat>>> {
        let shards: BTreeMap<Coords, Freshness> =
            coords.iter().map(|coords| (self.level.shard_of(coords), Freshness::Kept)).collect();
        let mut indexes = self.indexes_of(&shards)?;
        let kept: Vec<(Coords, Arc<Loaded>)> = indexes
            .iter()
            .filter(|(_, (_, freshness))| *freshness == Freshness::Kept)
            .filter_map(|(shard, (loaded, _))| Some((shard.clone(), Arc::clone(loaded.as_ref()?))))
            .collect();
        let outdated = self.outdated(&kept)?;
        if !outdated.is_empty() {
            for (shard, index) in outdated.iter().zip(self.read_indexes(&outdated)?) {
                indexes.insert(shard.clone(), (index, Freshness::Read));
            }
        }
        let stat = |coords: &Coords| {
            let shard = self.level.shard_of(coords);
            let Some((Some(loaded), _)) = indexes.get(&shard) else { return Ok(None) };
            let slot = self.level.slot_of(coords);
            if !loaded.index.is_present(slot) {
                return Ok(None);
            }
            // A damaged entry is there all the same: reading it says what is wrong.
            let len = loaded.span(slot).ok().flatten().map_or(0, |span| span.len);
            Ok(Some(Stat { len, ..loaded.stat }))
        };
        coords.iter().map(stat).collect()
    }

    fn update(&self, changes: Vec<Change>) -> Result<()> {
        let changes = self.plan(changes)?;
        if changes.is_empty() { Ok(()) } else { self.below.update(changes) }
    }

    fn erase_prefix(&self, prefix: &[u64]) -> Result<()> {
        if self.level.covers_whole_shards(prefix.len()) {
            return self.below.erase_prefix(&self.level.shard_prefix(prefix));
        }
        let shards = Arc::clone(&self.below).list_prefix(&self.level.shard_prefix(prefix))?;
        for shard in shards {
            self.erase_values(&self.present(&shard?, prefix)?)?;
        }
        Ok(())
    }

    fn list_dir(self: Arc<Self>, prefix: &[u64]) -> Result<Indices> {
        let depth = prefix.len();
        let shard_prefix = self.level.shard_prefix(prefix);
        let along = Arc::clone(&self.below).list_dir(&shard_prefix)?;
        let prefix: Box<[u64]> = prefix.into();
        Ok(Box::new(along.flat_map(move |shard_index| {
            let found = shard_index.and_then(|index| {
                let shards = [&shard_prefix[..], &[index]].concat();
                let most = self.level.count_along(depth);
                let mut seen = std::collections::BTreeSet::new();
                for shard in Arc::clone(&self.below).list_prefix(&shards)? {
                    let present = self.present(&shard?, &prefix)?;
                    seen.extend(present.iter().filter_map(|c| c.indices().get(depth)).copied());
                    if u64::try_from(seen.len()).is_ok_and(|seen| seen == most) {
                        break;
                    }
                }
                Ok(seen)
            });
            match found {
                Ok(seen) => seen.into_iter().map(Ok).collect::<Vec<_>>(),
                Err(error) => vec![Err(error)],
            }
        })))
    }

    fn list_prefix(self: Arc<Self>, prefix: &[u64]) -> Result<CoordsList> {
        let shards = Arc::clone(&self.below).list_prefix(&self.level.shard_prefix(prefix))?;
        let prefix: Box<[u64]> = prefix.into();
        Ok(Box::new(shards.flat_map(move |shard| {
            match shard.and_then(|shard| self.present(&shard, &prefix)) {
                Ok(present) => present.into_iter().map(Ok).collect::<Vec<_>>(),
                Err(error) => vec![Err(error)],
            }
        })))
    }

    fn key(&self, coords: &Coords) -> Result<Key> {
        if !self.grid.contains(coords) {
            return Err(outside(&self.grid, coords));
        }
        self.below.key(&self.level.shard_of(coords))
    }
}

impl Error {
    /// Names the stored value of a shard, which is what a person can look at.
    fn at_key_of(self, sharded: &Sharded, shard: &Coords) -> Self {
        match sharded.below.key(shard) {
            Ok(key) => self.at_key(&key),
            Err(_) => self.at_coords(shard),
        }
    }
}

fn outside(grid: &Grid, coords: &Coords) -> Error {
    let detail = format!("outside the grid, which has {:?} chunks", grid.counts());
    Error::new(Kind::Invalid, detail).at_coords(coords)
}

fn stale() -> Error {
    Error::new(Kind::Stale, "the shard was changed by someone else meanwhile")
}

/// Pieces that count from the start of an inner chunk, counted from the start of its shard.
fn rebase(pieces: Vec<Piece>, base: Option<Span>) -> Result<Vec<Piece>> {
    let rebase = |piece| match (piece, base) {
        (Piece::New(bytes), _) => Ok(Piece::New(bytes)),
        (Piece::Kept { offset, len }, Some(base))
            if offset.checked_add(len).is_some_and(|end| end <= base.len) =>
        {
            Ok(Piece::Kept { offset: base.offset + offset, len })
        }
        (Piece::Kept { .. }, _) => Err(stale()),
    };
    pieces.into_iter().map(rebase).collect()
}

/// Joins kept pieces that follow one another, so that they are copied in one go.
fn merge_kept(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut merged: Vec<Piece> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match (merged.last_mut(), &piece) {
            (Some(Piece::Kept { offset, len }), Piece::Kept { offset: next, len: more })
                if offset.checked_add(*len) == Some(*next) =>
            {
                *len += more
            }
            _ => merged.push(piece),
        }
    }
    merged
}
