//! The bytes of chunks: a header for the codec `precomputed_chunk`, and what is stored.
//!
//! A chunk without shards is a value of its own. cloud-volume compresses files in a directory and
//! shows that by the ending of their names (`0-64_0-64_0-64.gz`). Every chunk that has no value
//! with its plain name is looked for with each ending: if it were not, it would read as zeros.

use bytes::{Bytes, BytesMut};

use super::chunk_names::ENDINGS;
use super::indexes::{self, ChunkPart};
use super::scale::ChunkPlace;
use super::sharding::Encoding;
use super::volume::{KeyTarget, VolumeStore};
use zarrfs_base::error::{Error, Fault, Kind, Result, WithSubject};
use zarrfs_base::width::{ToU64, ToUsize};
use zarrfs_store::{ByteRange, Capacity, Expected, Key, ReadableStore, Requests, Stat, Value};

/// How often a read begins again because a shard was replaced meanwhile.
const ATTEMPTS: usize = 4;

/// Where a chunk is.
#[derive(Debug, Clone)]
pub(super) struct Located {
    key: Key,
    /// The part of the value, if it is not the whole.
    part: Option<ChunkPart>,
    header: Bytes,
}

impl Located {
    fn new(key: Key, part: Option<ChunkPart>, packing: u8, place: &ChunkPlace<'_>) -> Self {
        let shape = place.shape();
        let mut header = BytesMut::new();
        // A scale has three or four dimensions of no more than this.
        header.extend_from_slice(&[packing, u8::try_from(shape.len()).unwrap_or(u8::MAX)]);
        for len in shape {
            header.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
        }
        Self { key, part, header: header.freeze() }
    }

    /// Returns the range of the stored value for a range of the chunk.
    fn below(&self, range: ByteRange) -> ByteRange {
        let header_len = self.header.len().to_u64();
        let after = |offset: u64, len: u64| {
            let start = offset.saturating_sub(header_len);
            let end = offset.saturating_add(len).saturating_sub(header_len);
            // Where only the header is wanted, one byte shows that the value is there.
            (start, end.saturating_sub(start).max(1))
        };
        match (self.part, range) {
            (None, ByteRange::Suffix(len)) => ByteRange::Suffix(len.max(1)),
            (None, ByteRange::Span { offset, len }) => {
                let (offset, len) = after(offset, len);
                ByteRange::Span { offset, len }
            }
            (Some(part), range) => {
                let (offset, len) = range.within(part.len.saturating_add(header_len));
                let (start, len) = after(offset, len);
                let len = len.min(part.len.saturating_sub(start));
                ByteRange::Span { offset: part.offset.saturating_add(start), len }
            }
        }
    }

    /// Returns the stat of the chunk, by that of the stored value.
    fn stat(&self, stored: Stat) -> Stat {
        let len = self.part.map_or(stored.len, |part| part.len);
        Stat { len: len.saturating_add(self.header.len().to_u64()), ..stored }
    }

    /// Returns a range of the chunk. `found` has the bytes of it that are stored.
    fn value(&self, range: ByteRange, found: &Value) -> Value {
        let stat = self.stat(found.stat);
        let (offset, len) = range.within(stat.len);
        let (offset, len) = (offset.to_usize(), len.to_usize());
        let header = self.header.get(offset..).unwrap_or_default();
        let header = header.get(..len).unwrap_or(header);
        let rest = found.bytes.len().min(len.saturating_sub(header.len()));
        let stored = found.bytes.slice(..rest);
        if header.is_empty() {
            return Value { bytes: stored, stat };
        }
        let mut bytes = BytesMut::with_capacity(header.len().saturating_add(rest));
        bytes.extend_from_slice(header);
        bytes.extend_from_slice(&stored);
        Value { bytes: bytes.freeze(), stat }
    }
}

impl VolumeStore {
    /// Returns where each of these chunks is, as far as that is known without reading values of
    /// chunks.
    fn located(&self, places: &[ChunkPlace<'_>]) -> Result<Vec<Option<Located>>> {
        let sharded: Vec<ChunkPlace<'_>> =
            places.iter().filter(|place| place.scale.sharding.is_some()).copied().collect();
        let mut parts = self.indexes.find(&sharded)?.into_iter();
        let locate = |place: &ChunkPlace<'_>| {
            let Some(sharding) = &place.scale.sharding else {
                return Ok(Some(Located::new(place.key()?, None, 0, place)));
            };
            let Some(part) = parts.next().flatten() else { return Ok(None) };
            let key = indexes::key_of(place).ok_or_else(Error::not_found)??;
            if part.len == 0 {
                return Err(Error::fault(Fault::Length, "a chunk of no bytes").at(&key));
            }
            let packing = u8::from(sharding.data_encoding == Encoding::Gzip);
            Ok(Some(Located::new(key, Some(part), packing, place)))
        };
        places.iter().map(locate).collect()
    }

    /// Finds chunks that have no value with their plain names.
    fn otherwise_named(&self, places: &[ChunkPlace<'_>]) -> Result<Vec<Option<(Located, Stat)>>> {
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let keys = places.iter().flat_map(|place| {
            let name = place.name();
            ENDINGS.map(|(ending, _)| place.scale.directory.key(&format!("{name}{ending}")))
        });
        let keys: Vec<Key> = keys.collect::<Result<_>>()?;
        let mut stats = keys.iter().zip(self.own.read().stat(&keys)?);
        let mut found = Vec::with_capacity(places.len());
        for place in places {
            let mut named = None;
            for ((ending, packing), (key, stat)) in ENDINGS.iter().zip(stats.by_ref()) {
                let Some(stat) = stat.filter(|_| named.is_none()) else { continue };
                let Some(packing) = packing else {
                    let detail = format!("zarrfs does not read chunks with the ending {ending}");
                    return Err(Error::unsupported(detail).at(key));
                };
                named = Some((Located::new(key.clone(), None, *packing, place), stat));
            }
            found.push(named);
        }
        Ok(found)
    }

    /// Reads ranges of chunks.
    fn read(&self, wanted: &[(ChunkPlace<'_>, ByteRange)]) -> Result<Vec<Option<Value>>> {
        let places: Vec<ChunkPlace<'_>> = wanted.iter().map(|(place, _)| *place).collect();
        let located = self.located(&places)?;
        let below = located.iter().zip(wanted).filter_map(|(located, (_, range))| {
            located.as_ref().map(|located| (located.key.clone(), located.below(*range)))
        });
        let below: Vec<(Key, ByteRange)> = below.collect();
        let found = match below.as_slice() {
            [] => Vec::new(),
            below => self.own.read().get_partial_values(below)?,
        };
        let mut found = found.into_iter();
        let mut values = Vec::with_capacity(wanted.len());
        let mut lost = Vec::new();
        for (at, (located, (_, range))) in located.iter().zip(wanted).enumerate() {
            let Some(located) = located else {
                values.push(None);
                continue;
            };
            let value = match (found.next().flatten(), located.part) {
                (Some(value), Some(part)) if !part.stat.version.is_same(value.stat.version) => {
                    return Err(indexes::stale().at(&located.key));
                }
                (None, Some(_)) => return Err(indexes::stale().at(&located.key)),
                (Some(value), _) => Some(located.value(*range, &value)),
                (None, None) => {
                    lost.push(at);
                    None
                }
            };
            values.push(value);
        }
        self.read_otherwise_named(wanted, &lost, &mut values)?;
        Ok(values)
    }

    /// Reads the chunks with the indexes `lost`, which have no values with their plain names.
    fn read_otherwise_named(
        &self,
        wanted: &[(ChunkPlace<'_>, ByteRange)],
        lost: &[usize],
        values: &mut [Option<Value>],
    ) -> Result<()> {
        let chunks = lost.iter().filter_map(|at| Some((*at, wanted.get(*at)?)));
        let chunks: Vec<_> = chunks.collect();
        let places: Vec<ChunkPlace<'_>> = chunks.iter().map(|(_, (place, _))| *place).collect();
        let named = chunks.iter().zip(self.otherwise_named(&places)?);
        let named: Vec<(usize, Located, ByteRange)> =
            named.filter_map(|((at, (_, range)), found)| Some((*at, found?.0, *range))).collect();
        if named.is_empty() {
            return Ok(());
        }
        let below = named.iter().map(|(_, located, range)| {
            let below = located.below(*range);
            (located.key.clone(), below)
        });
        let found = self.own.read().get_partial_values(&below.collect::<Vec<_>>())?;
        for ((at, located, range), found) in named.iter().zip(found) {
            if let (Some(slot), Some(found)) = (values.get_mut(*at), found) {
                *slot = Some(located.value(*range, &found));
            }
        }
        Ok(())
    }

    /// Calls `read` until no shard of these chunks was replaced meanwhile.
    fn again<T>(
        &self,
        places: &[ChunkPlace<'_>],
        mut read: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        for _ in 1..ATTEMPTS {
            match read() {
                Err(error) if error.kind() == Kind::Stale => {
                    for place in places {
                        self.indexes.forget(place);
                    }
                }
                other => return other,
            }
        }
        read()
    }

    /// Returns an answer for each key: those for known bytes by `text`, and those of chunks by
    /// `chunks`, which gets their indexes among the keys.
    fn each<T>(
        &self,
        keys: &[&Key],
        text: impl Fn(usize, &Bytes) -> T,
        chunks: impl FnOnce(&[usize], &[ChunkPlace<'_>]) -> Result<Vec<Option<T>>>,
    ) -> Result<Vec<Option<T>>> {
        let mut answers: Vec<Option<T>> = Vec::with_capacity(keys.len());
        let (mut indices, mut places) = (Vec::new(), Vec::new());
        for (index, key) in keys.iter().enumerate() {
            answers.push(match self.target(key) {
                KeyTarget::Text(bytes) => Some(text(index, bytes)),
                KeyTarget::Nothing => None,
                KeyTarget::Chunk(place) => {
                    indices.push(index);
                    places.push(place);
                    None
                }
            });
        }
        if !places.is_empty() {
            for (index, answer) in indices.iter().zip(chunks(&indices, &places)?) {
                if let Some(slot) = answers.get_mut(*index) {
                    *slot = answer;
                }
            }
        }
        Ok(answers)
    }
}

impl ReadableStore for VolumeStore {
    fn expect(&self, ranges: &[(Key, ByteRange)]) -> Expected {
        let below = ranges.iter().filter_map(|(key, range)| {
            let KeyTarget::Chunk(place) = self.target(key) else { return None };
            if place.scale.sharding.is_some() {
                return self.indexes.expected(&place);
            }
            let located = Located::new(place.key().ok()?, None, 0, &place);
            Some((located.key.clone(), located.below(*range)))
        });
        let mut below: Vec<(Key, ByteRange)> = below.collect();
        below.dedup();
        self.own.read().expect(&below)
    }

    fn stop(&self) {
        self.own.read().stop();
    }

    fn requests(&self) -> Option<Requests> {
        self.own.read().requests()
    }

    fn most_expected(&self) -> u64 {
        self.own.read().most_expected()
    }

    fn get_partial_values(&self, ranges: &[(Key, ByteRange)]) -> Result<Vec<Option<Value>>> {
        let keys: Vec<&Key> = ranges.iter().map(|(key, _)| key).collect();
        let range_of = |index: usize| ranges.get(index).map_or(ByteRange::first(0), |it| it.1);
        let text = |index: usize, bytes: &Bytes| {
            let stat = self.text_stat(bytes);
            let (offset, len) = range_of(index).within(stat.len);
            let place = |at: u64| at.to_usize().min(bytes.len());
            Value { bytes: bytes.slice(place(offset)..place(offset.saturating_add(len))), stat }
        };
        self.each(&keys, text, |indices, places| {
            let ranges = indices.iter().map(|index| range_of(*index));
            let wanted: Vec<_> = places.iter().copied().zip(ranges).collect();
            self.again(places, || self.read(&wanted))
        })
    }

    fn stat(&self, keys: &[Key]) -> Result<Vec<Option<Stat>>> {
        let keys: Vec<&Key> = keys.iter().collect();
        let text = |_, bytes: &Bytes| self.text_stat(bytes);
        self.each(&keys, text, |_, places| self.again(places, || self.stat_chunks(places)))
    }

    fn room(&self) -> Result<Option<Capacity>> {
        self.own.read().room()
    }
}

impl VolumeStore {
    fn stat_chunks(&self, places: &[ChunkPlace<'_>]) -> Result<Vec<Option<Stat>>> {
        let located = self.located(places)?;
        let whole = located.iter().flatten().filter(|located| located.part.is_none());
        let keys: Vec<Key> = whole.map(|located| located.key.clone()).collect();
        let stats = if keys.is_empty() { Vec::new() } else { self.own.read().stat(&keys)? };
        let mut stats = stats.into_iter();
        let stat = |located: &Option<Located>| {
            let located = located.as_ref()?;
            let stored =
                located.part.map_or_else(|| stats.next().flatten(), |part| Some(part.stat));
            stored.map(|stored| located.stat(stored))
        };
        let mut found: Vec<Option<Stat>> = located.iter().map(stat).collect();
        let lost = found.iter_mut().zip(&located).zip(places).filter(|((found, located), _)| {
            found.is_none() && located.as_ref().is_some_and(|located| located.part.is_none())
        });
        let (slots, lost): (Vec<&mut Option<Stat>>, Vec<ChunkPlace<'_>>) =
            lost.map(|((slot, _), place)| (slot, *place)).unzip();
        for (slot, named) in slots.into_iter().zip(self.otherwise_named(&lost)?) {
            *slot = named.map(|(located, stat)| located.stat(stat));
        }
        Ok(found)
    }
}
