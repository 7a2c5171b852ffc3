//! Where in a shard a chunk is: two levels of indexes, which are read when they are needed.
//!
//! ```text
//! (u64 start, u64 end) × 2^minishard_bits | chunks and indexes of minishards
//! ```
//!
//! All is little endian, and places count from the end of the first index. It may have any length,
//! so it is read in pages. A read of several chunks takes one call of the store for each 128 pages
//! that are not known, and one or a few for the indexes of minishards.
//!
//! The state of a shard ([`Stat`]) is known for a while, and what was read of it is valid as long
//! as it has this state.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;

use super::minishard::{self, ChunkRow, MAX_INDEX_LEN, ROW_LEN, Rows};
use super::scale::ChunkPlace;
use super::sharding::{Minishard, Sharding};
use zarrfs_base::bounded::{Bounded, MapLimits};
use zarrfs_base::error::{Error, Fault, Kind, Result, WithSubject};
use zarrfs_base::resources;
use zarrfs_base::width::{ToU64, ToUsize};
use zarrfs_store::{ByteRange, Key, Stat, Store, Version};

/// The entries of a page of the index of a shard, and the length of one.
const PAGE_ENTRIES: u64 = 4096;
const ENTRY_LEN: u64 = 16;

/// The most pages that one call has in memory: 8 MiB.
const GROUP_PAGES: usize = 128;

/// The most bytes of all indexes in memory, of pages and of minishards.
fn kept_len() -> u64 {
    resources::within_memory(64 << 20, 32)
}

/// The most shards whose state is kept.
const KEPT_SHARDS: usize = 1 << 16;

/// The shard of a scale, by the index of the scale and the number of the shard.
type ShardId = (usize, u64);

/// A chunk in a shard.
#[derive(Debug, Clone, Copy)]
pub struct ChunkPart {
    /// The place in the shard.
    pub offset: u64,
    /// The length in bytes.
    pub len: u64,
    /// The state of the shard.
    pub stat: Stat,
}

/// The state of a shard, `None` if there is none, and when it was seen.
#[derive(Debug, Clone, Copy)]
struct ShardState {
    stat: Option<Stat>,
    seen: Instant,
}

/// A part of an index, and the version of the shard that it is of.
#[derive(Debug, Clone)]
struct IndexPart<T> {
    version: Version,
    part: T,
}

/// How much is known of the place of a chunk.
enum Known {
    Nothing,
    /// There is no such shard.
    NoShard,
    /// The page of the index, of a shard of this state.
    Page(Stat, Bytes),
    /// The chunks of the minishard, in a shard of this state.
    Rows(Stat, Rows),
}

/// The indexes of the shards of a volume.
#[derive(Debug)]
pub struct ShardIndexes {
    own: Store,
    ttl: Duration,
    /// A leaf lock.
    tables: Mutex<IndexTables>,
}

#[derive(Debug)]
struct IndexTables {
    shards: Bounded<ShardId, ShardState>,
    pages: Bounded<(ShardId, u64), IndexPart<Bytes>>,
    minishards: Bounded<(ShardId, u64), IndexPart<Rows>>,
}

/// A chunk that is looked for.
#[derive(Debug, Clone, Copy)]
struct Wanted<'p, 'v> {
    place: &'p ChunkPlace<'v>,
    sharding: &'v Sharding,
    minishard: Minishard,
    id: u64,
}

impl Wanted<'_, '_> {
    fn shard(&self) -> ShardId {
        (self.place.index, self.minishard.shard)
    }

    fn page(&self) -> (ShardId, u64) {
        (self.shard(), self.minishard.number / PAGE_ENTRIES)
    }

    fn minishard(&self) -> (ShardId, u64) {
        (self.shard(), self.minishard.number)
    }

    fn key(&self) -> Result<Key> {
        let name = self.sharding.name(self.minishard.shard);
        self.place.scale.directory.key(&format!("{name}.shard"))
    }

    /// Returns the range of the page of the index of the shard.
    fn page_range(&self) -> ByteRange {
        let offset = self.minishard.number / PAGE_ENTRIES * (PAGE_ENTRIES * ENTRY_LEN);
        let rest = self.sharding.index_len().saturating_sub(offset);
        ByteRange::Span { offset, len: rest.min(PAGE_ENTRIES * ENTRY_LEN) }
    }
}

/// Returns the key of the shard that has a chunk, if there are shards.
pub fn key_of(place: &ChunkPlace<'_>) -> Option<Result<Key>> {
    wanted(place).map(|wanted| wanted.key())
}

impl ShardIndexes {
    /// Returns the indexes of shards in `own`, which are taken to be as they were for `ttl`.
    pub fn new(own: Store, ttl: Duration) -> Self {
        Self::keeping(own, ttl, kept_len() / 2)
    }

    /// Returns them with this many bytes of pages, and of minishards, in memory.
    fn keeping(own: Store, ttl: Duration, len: u64) -> Self {
        let limits = MapLimits::bytes(len);
        let tables = IndexTables {
            shards: Bounded::new(MapLimits::entries(KEPT_SHARDS)),
            pages: Bounded::new(limits),
            minishards: Bounded::new(limits),
        };
        Self { own, ttl, tables: Mutex::new(tables) }
    }

    /// Returns where each of these chunks is; `None` for those that do not exist. Only chunks of
    /// scales with shards.
    pub fn find(&self, places: &[ChunkPlace<'_>]) -> Result<Vec<Option<ChunkPart>>> {
        let wanted: Vec<Wanted<'_, '_>> = places.iter().filter_map(wanted).collect();
        self.check_states(&wanted)?;
        let mut found = vec![None; wanted.len()];
        let mut chunks: Vec<(usize, &Wanted<'_, '_>)> = wanted.iter().enumerate().collect();
        chunks.sort_by_key(|(_, wanted)| wanted.page());
        let mut rest = chunks.as_slice();
        while !rest.is_empty() {
            let mut pages = BTreeSet::new();
            let fits = |(_, wanted): &&(usize, &Wanted<'_, '_>)| {
                pages.insert(wanted.page());
                pages.len() <= GROUP_PAGES
            };
            let (now, later) = rest.split_at(rest.iter().take_while(fits).count());
            rest = later;
            self.find_some(now, &mut found)?;
        }
        Ok(found)
    }

    /// Notes where chunks are. What this takes of the indexes stays in memory until it returns:
    /// other readers may take all room for them.
    fn find_some(
        &self,
        chunks: &[(usize, &Wanted<'_, '_>)],
        found: &mut [Option<ChunkPart>],
    ) -> Result<()> {
        let (mut pages, mut unread) = (BTreeMap::new(), BTreeMap::new());
        let mut missing: BTreeMap<(ShardId, u64), Vec<(usize, &Wanted<'_, '_>)>> = BTreeMap::new();
        for (at, wanted) in chunks {
            match self.known(wanted) {
                Known::Rows(stat, rows) => {
                    note(found, *at, wanted, stat, &rows);
                    continue;
                }
                Known::NoShard => continue,
                Known::Page(stat, bytes) => drop(pages.insert(wanted.page(), (stat, bytes))),
                Known::Nothing => drop(unread.insert(wanted.page(), *wanted)),
            }
            missing.entry(wanted.minishard()).or_default().push((*at, *wanted));
        }
        self.read_pages(&unread, &mut pages)?;
        self.read_minishards(&missing, &pages, found)
    }

    /// Like [`Self::find`], as far as that is known without a request: else returns the range that
    /// is read first.
    pub fn expected(&self, place: &ChunkPlace<'_>) -> Option<(Key, ByteRange)> {
        let wanted = wanted(place)?;
        let key = wanted.key().ok()?;
        match self.known(&wanted) {
            Known::Nothing => Some((key, wanted.page_range())),
            Known::NoShard => None,
            Known::Page(stat, page) => {
                let (offset, len) = entry(&page, &wanted, stat.len).ok().flatten()?;
                Some((key, ByteRange::Span { offset, len }))
            }
            Known::Rows(_, rows) => {
                let row = minishard::find(&rows, wanted.id)?;
                Some((key, ByteRange::Span { offset: row.offset, len: row.len }))
            }
        }
    }

    /// Forgets a shard that has changed: what was read of it is not valid without its state.
    pub fn forget(&self, place: &ChunkPlace<'_>) {
        if let Some(wanted) = wanted(place) {
            self.tables.lock().shards.remove(&wanted.shard());
        }
    }

    fn state(&self, shard: ShardId) -> Option<ShardState> {
        self.tables.lock().shards.get(&shard).copied()
    }

    fn set_state(&self, shard: ShardId, stat: Option<Stat>) {
        let state = ShardState { stat, seen: Instant::now() };
        drop(self.tables.lock().shards.put(shard, state, 0));
    }

    /// Asks for the state of shards whose state was seen too long ago.
    fn check_states(&self, wanted: &[Wanted<'_, '_>]) -> Result<()> {
        let mut old: BTreeMap<ShardId, (Key, Option<Stat>)> = BTreeMap::new();
        for wanted in wanted {
            let state = self.state(wanted.shard());
            if let Some(state) = state.filter(|state| state.seen.elapsed() > self.ttl) {
                old.insert(wanted.shard(), (wanted.key()?, state.stat));
            }
        }
        if old.is_empty() {
            return Ok(());
        }
        let keys: Vec<Key> = old.values().map(|(key, _)| key.clone()).collect();
        for ((id, (_, was)), now) in old.into_iter().zip(self.own.read().stat(&keys)?) {
            let versions = (was.map(|stat| stat.version), now.map(|stat| stat.version));
            if Version::holds_of(versions.0, versions.1) {
                self.set_state(id, was);
            } else {
                self.tables.lock().shards.remove(&id);
            }
        }
        Ok(())
    }

    /// Reads pages of indexes of shards, and adds those of shards that exist to `pages`.
    fn read_pages(
        &self,
        unread: &BTreeMap<(ShardId, u64), &Wanted<'_, '_>>,
        pages: &mut BTreeMap<(ShardId, u64), (Stat, Bytes)>,
    ) -> Result<()> {
        if unread.is_empty() {
            return Ok(());
        }
        let ranges = unread.values().map(|wanted| Ok((wanted.key()?, wanted.page_range())));
        let ranges: Vec<(Key, ByteRange)> = ranges.collect::<Result<_>>()?;
        let values = self.own.read().get_partial_values(&ranges)?;
        let mut absent: BTreeSet<ShardId> = BTreeSet::new();
        for (id, value) in unread.keys().zip(values) {
            match value {
                Some(value) => {
                    self.set_state(id.0, Some(value.stat));
                    drop(pages.insert(*id, (value.stat, value.bytes.clone())));
                    let part = IndexPart { version: value.stat.version, part: value.bytes };
                    let len = part.part.len().to_u64();
                    drop(self.tables.lock().pages.put(*id, part, len));
                }
                None => drop(absent.insert(id.0)),
            }
        }
        let lost = unread.values().filter(|wanted| absent.contains(&wanted.shard()));
        self.check_form(&lost.copied().copied().collect::<Vec<_>>())?;
        for shard in absent {
            self.set_state(shard, None);
        }
        Ok(())
    }

    /// Fails if one of these shards, which do not exist, is there in the old form.
    fn check_form(&self, lost: &[Wanted<'_, '_>]) -> Result<()> {
        let index = |wanted: &Wanted<'_, '_>| {
            let name = wanted.sharding.name(wanted.minishard.shard);
            wanted.place.scale.directory.key(&format!("{name}.index"))
        };
        let mut keys: Vec<Key> = lost.iter().map(index).collect::<Result<_>>()?;
        keys.sort();
        keys.dedup();
        let stats = if keys.is_empty() { Vec::new() } else { self.own.read().stat(&keys)? };
        match keys.iter().zip(stats).find(|(_, stat)| stat.is_some()) {
            Some((key, _)) => {
                let detail = "a shard of the old form, whose index is a file of its own";
                Err(Error::unsupported(detail).at(key))
            }
            None => Ok(()),
        }
    }

    fn page(&self, wanted: &Wanted<'_, '_>, version: Version) -> Option<Bytes> {
        let mut tables = self.tables.lock();
        let known = tables.pages.get(&wanted.page())?;
        known.version.is_same(version).then(|| known.part.clone())
    }

    fn minishard(&self, wanted: &Wanted<'_, '_>, version: Version) -> Option<Rows> {
        let mut tables = self.tables.lock();
        let known = tables.minishards.get(&wanted.minishard())?;
        known.version.is_same(version).then(|| Rows::clone(&known.part))
    }

    /// Returns what is known of the place of a chunk.
    fn known(&self, wanted: &Wanted<'_, '_>) -> Known {
        let stat = match self.state(wanted.shard()) {
            Some(ShardState { stat: None, .. }) => return Known::NoShard,
            Some(ShardState { stat: Some(stat), .. }) => stat,
            None => return Known::Nothing,
        };
        if let Some(rows) = self.minishard(wanted, stat.version) {
            return Known::Rows(stat, rows);
        }
        self.page(wanted, stat.version).map_or(Known::Nothing, |page| Known::Page(stat, page))
    }

    /// Reads the indexes of minishards, and notes the chunks in them. A shard without a page does
    /// not exist.
    fn read_minishards(
        &self,
        missing: &BTreeMap<(ShardId, u64), Vec<(usize, &Wanted<'_, '_>)>>,
        pages: &BTreeMap<(ShardId, u64), (Stat, Bytes)>,
        found: &mut [Option<ChunkPart>],
    ) -> Result<()> {
        let mut requests: Vec<IndexRequest<'_, '_, '_>> = Vec::new();
        for chunks in missing.values() {
            let Some((_, first)) = chunks.first() else { continue };
            let Some((stat, page)) = pages.get(&first.page()) else { continue };
            let key = first.key()?;
            match entry(page, first, stat.len).at(&key)? {
                Some((offset, len)) => {
                    let (wanted, stat) = (*first, *stat);
                    requests.push(IndexRequest { wanted, key, stat, offset, len, chunks });
                }
                None => self.keep(first, stat.version, Rows::from([])),
            }
        }
        let mut rest = requests.as_slice();
        while !rest.is_empty() {
            // At least one, and no more than the limit of one in all.
            let mut len = 0_u64;
            let fits = |request: &&IndexRequest<'_, '_, '_>| {
                len = len.saturating_add(request.len);
                len <= MAX_INDEX_LEN
            };
            let count = rest.iter().take_while(fits).count().max(1);
            let (now, later) = rest.split_at(count);
            rest = later;
            self.read_some(now, found)?;
        }
        Ok(())
    }

    fn read_some(
        &self,
        requests: &[IndexRequest<'_, '_, '_>],
        found: &mut [Option<ChunkPart>],
    ) -> Result<()> {
        let range = |request: &IndexRequest<'_, '_, '_>| {
            (request.key.clone(), ByteRange::Span { offset: request.offset, len: request.len })
        };
        let ranges: Vec<_> = requests.iter().map(range).collect();
        let values = self.own.read().get_partial_values(&ranges)?;
        for (request, value) in requests.iter().zip(values) {
            let IndexRequest { key, stat, chunks, .. } = request;
            let value = value.filter(|value| value.stat.version.is_same(stat.version));
            let value = value.ok_or_else(|| stale().at(key))?;
            let index_len = request.wanted.sharding.index_len();
            let encoding = request.wanted.sharding.index_encoding;
            let rows = minishard::parse(encoding, value.bytes, index_len, stat.len).at(key)?;
            for (at, wanted) in *chunks {
                note(found, *at, wanted, *stat, &rows);
            }
            self.keep(request.wanted, stat.version, rows);
        }
        Ok(())
    }

    fn keep(&self, wanted: &Wanted<'_, '_>, version: Version, rows: Rows) {
        let len = (rows.len().saturating_add(4)).saturating_mul(ROW_LEN).to_u64();
        let part = IndexPart { version, part: rows };
        let evicted = self.tables.lock().minishards.put(wanted.minishard(), part, len);
        drop(evicted);
    }
}

/// The index of a minishard to read, and the chunks that are looked for in it.
struct IndexRequest<'w, 'p, 'v> {
    wanted: &'w Wanted<'p, 'v>,
    key: Key,
    stat: Stat,
    offset: u64,
    len: u64,
    chunks: &'w [(usize, &'w Wanted<'p, 'v>)],
}

fn wanted<'p, 'v>(place: &'p ChunkPlace<'v>) -> Option<Wanted<'p, 'v>> {
    let sharding = place.scale.sharding.as_ref()?;
    let id = place.id();
    Some(Wanted { place, sharding, minishard: sharding.minishard(id), id })
}

/// Returns the error for a shard that another program replaced while it was read.
pub fn stale() -> Error {
    Error::new(Kind::Stale, "changed while it was read; try again")
}

/// Returns where the index of a minishard is in its shard of `shard_len` bytes; `None` if it has no
/// chunks.
fn entry(page: &[u8], wanted: &Wanted<'_, '_>, shard_len: u64) -> Result<Option<(u64, u64)>> {
    let number = wanted.minishard.number;
    let at = (number % PAGE_ENTRIES * ENTRY_LEN).to_usize();
    let words = page.get(at..).and_then(|rest| rest.first_chunk::<16>());
    let words = words
        .ok_or_else(|| Error::fault(Fault::Length, "the shard ends before the end of its index"))?;
    let words = words.as_chunks::<8>().0;
    let &[start, end] = words else { return Ok(None) };
    let (start, end) = (u64::from_le_bytes(start), u64::from_le_bytes(end));
    if start == end {
        return Ok(None);
    }
    let place = |at: u64| at.checked_add(wanted.sharding.index_len()).filter(|at| *at <= shard_len);
    let (Some(from), Some(to)) = (place(start), place(end).filter(|_| start < end)) else {
        return Err(Error::corrupt(format!(
            "the index of minishard {number} has bytes {start} to {end} after that of the shard, \
             which has {shard_len} bytes"
        )));
    };
    let len = to.saturating_sub(from);
    if len > MAX_INDEX_LEN {
        return Err(minishard::too_long(number));
    }
    Ok(Some((from, len)))
}

fn note(
    found: &mut [Option<ChunkPart>],
    at: usize,
    wanted: &Wanted<'_, '_>,
    stat: Stat,
    rows: &[ChunkRow],
) {
    if let (Some(place), Some(row)) = (found.get_mut(at), minishard::find(rows, wanted.id)) {
        *place = Some(ChunkPart { offset: row.offset, len: row.len, stat });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::super::scale::VolumeScale;
    use super::*;
    use zarrfs_store::memory::MemoryStore;
    use zarrfs_store::{Condition, Prefix, ValuePiece};

    /// Shards of one chunk each: an index of one entry, the chunk, and the index of the minishard.
    fn shards(count: u64) -> Store {
        let store = Store::new(Arc::new(MemoryStore::new()));
        for id in 0..count {
            let words = [1, 25].map(u64::to_le_bytes).concat();
            let rows = [id, 0, 1].map(u64::to_le_bytes).concat();
            let bytes = [words, vec![7], rows].concat();
            let key = Key::parse(&format!("s/{id:02x}.shard")).unwrap();
            let pieces = [ValuePiece::New(bytes.into())];
            store.write().unwrap().set(&key, &pieces, Condition::Always).unwrap();
        }
        store
    }

    #[test]
    fn a_call_finds_chunks_in_more_shards_than_the_indexes_in_memory() {
        let form = json!({
            "@type": "neuroglancer_uint64_sharded_v1", "hash": "identity", "preshift_bits": 0,
            "minishard_bits": 0, "shard_bits": 8,
        });
        let scale = VolumeScale {
            directory: Prefix::parse("s").unwrap(),
            size: [256, 1, 1],
            offset: [0; 3],
            chunk: [1; 3],
            channels: 1,
            sharding: Some(Sharding::parse(&form).unwrap()),
        };
        let place = |x| ChunkPlace { scale: &scale, index: 0, cell: [x, 0, 0] };
        let places: Vec<_> = (0..256).rev().map(place).collect();
        let indexes = ShardIndexes::keeping(shards(200), Duration::from_secs(60), 16);
        for _ in 0..2 {
            let found = indexes.find(&places).unwrap();
            for (found, place) in found.iter().zip(&places) {
                let found = found.map(|part| (part.offset, part.len));
                let expected = (place.cell[0] < 200).then_some((16, 1));
                assert_eq!(found, expected, "chunk {:?}", place.cell);
            }
        }
    }
}
