//! Copies the chunks of an array with several threads. Each stored value of the target is written
//! once, by one thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use parking_lot::Mutex;

use super::options::{CopyOptions, TargetState, Verify};
use super::plan::{ChunkConversion, ChunkPlan};
use super::survey::StoredState;
use super::units::{self, Units, places};
use super::watch::{CopyWatch, stopped};
use crate::array::region::{self, Offset};
use crate::array::{Array, ChunkChange, Coords, Current, FillChunks};
use crate::buffer::Buffer;
use crate::cache::ChunkCache;
use crate::error::{Error, Kind, Result, WithSubject};
use crate::metadata::NodePath;
use crate::parallel;
use crate::store::{ByteRange, Condition, Key, Stat, Store, Value};
use crate::width::ToU64;

/// The number of values to sync at a time.
const SYNCED: usize = 4096;

/// The counts of a copy.
#[derive(Debug, Default)]
pub struct Copied {
    /// The number of stored values: chunks, or shards.
    pub stored: AtomicU64,
    /// The number of values that existed already.
    pub found: AtomicU64,
    /// The decoded bytes of the stored chunks.
    pub bytes: AtomicU64,
    /// The arrays that other programs kept changing: their chunks may be from different moments.
    pub changing: Vec<NodePath>,
}

impl Copied {
    fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

/// Copies the stored chunks of an array; `stored` describes them.
pub fn copy(
    (path, chunks, stored): (&NodePath, &ChunkPlan, StoredState),
    store: &Store,
    (options, watch): (&CopyOptions, &dyn CopyWatch),
    copied: &Copied,
) -> Result<()> {
    let cache = ChunkCache::new(options.cache_len);
    let work =
        ChunkCopier { chunks, store, options, watch, cache, copied, unsynced: Mutex::default() };
    let needs_fill = chunks.needs_fill(options.fill_chunks);
    let units = if needs_fill { units::all(&chunks.dest) } else { stored_units(&work, watch)? };
    let expected = if needs_fill { chunks.count_all() } else { chunks.expected(stored.count) };
    watch.begin(path, expected);
    let units = Mutex::new(units);
    let failure: Mutex<Option<Error>> = Mutex::new(None);
    let run = || {
        while !watch.is_stopped() && failure.lock().is_none() {
            let next = units.lock().next();
            let Some(unit) = next else { return };
            let done = match unit {
                // The index of a shard in the source.
                Err(error) if work.can_lack(&error) && watch.go_on_without(&error) => Ok(()),
                unit => unit.and_then(|unit| work.unit(&unit)),
            };
            if let Err(error) = done {
                failure.lock().get_or_insert(error);
            }
            watch.advance();
        }
    };
    // `parallel::map` does not fit: it takes a list of known length and chooses the number of
    // threads itself. Also, while a thread of that pool waits for inner chunks it runs other work,
    // so it must not hold the lock of a cached chunk, as it does here.
    thread::scope(|scope| {
        parallel::spawn(scope, options.threads.saturating_sub(1), run);
        run();
    });
    if let Some(error) = failure.into_inner() {
        return Err(error);
    }
    if !watch.is_stopped() && options.state == TargetState::Doubtful && !needs_fill {
        work.erase_stale(watch)?;
    }
    if options.verify == Verify::All {
        work.check_shards(watch)?;
    }
    if watch.is_stopped() {
        return Err(stopped());
    }
    store.write()?.sync(&work.unsynced.into_inner())
}

/// Returns the values to store; none if the directory of the chunks cannot be read and the copy
/// goes on without it.
fn stored_units<'w>(work: &ChunkCopier<'w>, watch: &dyn CopyWatch) -> Result<Units<'w>> {
    match units::stored(work.chunks) {
        Err(error) if work.can_lack(&error) && watch.go_on_without(&error) => {
            Ok(Box::new(std::iter::empty()))
        }
        units => units,
    }
}

/// Returns the error for a value that is there, though the copy has not stored it.
fn stored_by_another(error: Error) -> Error {
    match error.kind() {
        Kind::Exists | Kind::Stale => {
            let detail = "another program has stored it during the copy, and it stays: copy to a \
                          place where nothing else writes";
            Error::new(Kind::Busy, detail)
        }
        _ => error,
    }
}

struct ChunkCopier<'w> {
    chunks: &'w ChunkPlan,
    store: &'w Store,
    options: &'w CopyOptions,
    watch: &'w dyn CopyWatch,
    /// The decoded chunks of the source that several chunks of the target need.
    cache: ChunkCache,
    copied: &'w Copied,
    /// The stored values that are not synced yet. A leaf lock.
    unsynced: Mutex<Vec<Key>>,
}

impl ChunkCopier<'_> {
    fn source(&self) -> &Arc<Array> {
        &self.chunks.source
    }

    fn dest(&self) -> &Arc<Array> {
        &self.chunks.dest
    }

    /// Returns the chunks of a stored value that are in the array.
    fn inner(&self, unit: &Coords) -> Result<Vec<Coords>> {
        let dest = self.dest();
        let (first, counts) = dest.chunks_in(unit)?;
        Ok(places(&first, &counts).filter(|coords| dest.grid().contains(coords)).collect())
    }

    /// Writes a stored value, unless it exists and is correct.
    fn unit(&self, unit: &Coords) -> Result<()> {
        let inner = self.inner(unit)?;
        let Some(first) = inner.first() else { return Ok(()) };
        let key = self.dest().key(first)?;
        let is_there = self.options.state != TargetState::Fresh && self.store.stat(&key)?.is_some();
        let is_right = match self.options.state {
            TargetState::Doubtful if is_there => self.is_right(&inner)?,
            TargetState::Fresh | TargetState::Resumed | TargetState::Doubtful => is_there,
        };
        if is_right {
            Copied::add(&self.copied.found, 1);
        } else {
            if is_there {
                // A shard keeps inner chunks that are not written to it.
                self.store.write()?.erase_values(std::slice::from_ref(&key))?;
            }
            if self.make(&inner).map_err(stored_by_another).at(&key)? {
                Copied::add(&self.copied.stored, 1);
                self.sync_later(key)?;
            }
        }
        if self.options.verify == Verify::All {
            for coords in &inner {
                self.verify(coords)?;
            }
        }
        Ok(())
    }

    /// Compares the shards of the source with the checksums that their store has of them.
    fn check_shards(&self, watch: &dyn CopyWatch) -> Result<()> {
        let shards = self.source().levels().first();
        let Some(shards) = shards.filter(|_| self.source().has_checked_shards()) else {
            return Ok(());
        };
        for shard in Arc::clone(shards).list()? {
            if watch.is_stopped() {
                break;
            }
            match shard.and_then(|shard| self.source().check_shard(&shard)) {
                Err(error) if self.can_lack(&error) && watch.go_on_without(&error) => {}
                checked => checked?,
            }
        }
        Ok(())
    }

    /// Queues a value to be synced with others.
    fn sync_later(&self, key: Key) -> Result<()> {
        let mut unsynced = self.unsynced.lock();
        unsynced.push(key);
        if unsynced.len() < SYNCED {
            return Ok(());
        }
        let keys = std::mem::take(&mut *unsynced);
        drop(unsynced);
        self.store.write()?.sync(&keys)
    }

    /// Whether the target has exactly the contents of these chunks.
    fn is_right(&self, inner: &[Coords]) -> Result<bool> {
        for coords in inner {
            let found = match self.dest().read_chunk(coords) {
                Err(error) if error.is_of_data() => return Ok(false),
                found => found?.map(|(decoded, _)| decoded),
            };
            if !self.is_same(coords, found.as_ref())? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Erases chunks of the target that the source no longer has.
    fn erase_stale(&self, watch: &dyn CopyWatch) -> Result<()> {
        let (source, dest) = (self.source(), self.dest());
        for coords in Arc::clone(dest.chunks()).list()? {
            let coords = coords?;
            if watch.is_stopped() {
                return Ok(());
            }
            let is_made = if source.grid().is_regular() {
                let parts = units::overlapping(source, &coords, dest.grid());
                parts.first_stored(source)?.is_some()
            } else {
                source.stat(&coords)?.is_some()
            };
            if !is_made {
                dest.chunks().erase_values(&[coords])?;
            }
        }
        Ok(())
    }

    /// Stores these chunks of a stored value, which is not there. Returns whether any had to be
    /// stored.
    fn make(&self, inner: &[Coords]) -> Result<bool> {
        match self.chunks.form {
            ChunkConversion::Encoded => self.copy_encoded(inner),
            ChunkConversion::Decoded | ChunkConversion::Regridded => self.copy_decoded(inner),
        }
    }

    fn copy_encoded(&self, inner: &[Coords]) -> Result<bool> {
        let ranges: Vec<_> =
            inner.iter().map(|coords| (coords.clone(), ByteRange::first(u64::MAX))).collect();
        let values = match self.source().chunks().get_partial_values(&ranges) {
            // One of them cannot be read, so each is read by itself.
            Err(error) if self.can_lack(&error) => {
                let each = ranges.iter().map(|range| {
                    let values =
                        self.source().chunks().get_partial_values(std::slice::from_ref(range));
                    self.of_source(values.map(|mut values| values.pop().flatten()))
                });
                each.collect::<Result<_>>()?
            }
            values => values?,
        };
        let (mut changes, mut missing) = (Vec::new(), Vec::new());
        for (coords, value) in inner.iter().zip(values) {
            let value = match value {
                Some(value) => {
                    let checked = self.source().check_copied(coords, &value.bytes);
                    self.of_source(checked.at(self.source().key(coords)?).map(|()| Some(value)))?
                }
                None => self.encoded_again(coords)?,
            };
            let Some(value) = value else {
                missing.push(coords.clone());
                continue;
            };
            // For elements of variable length only decoding tells the length.
            self.count(self.dest().chunk_len(coords)?.exactly().unwrap_or(value.stat.len));
            changes.push(ChunkChange {
                coords: coords.clone(),
                value: Some(vec![value.bytes.into()]),
                condition: Condition::Absent,
            });
        }
        let any = !changes.is_empty();
        if any {
            self.watch.before_storing()?;
            self.dest().chunks().update(changes)?;
        }
        if self.needs_fill() && !missing.is_empty() {
            return self.copy_decoded(&missing);
        }
        Ok(any)
    }

    /// Returns the encoded bytes of a chunk of the source that was found absent, if it is there.
    fn encoded_again(&self, coords: &Coords) -> Result<Option<Value>> {
        let Some(_decoded) = self.of_source(self.source().read_again(coords))? else {
            return Ok(None);
        };
        let range = (coords.clone(), ByteRange::first(u64::MAX));
        Ok(self.source().chunks().get_partial_values(&[range])?.pop().flatten())
    }

    fn copy_decoded(&self, inner: &[Coords]) -> Result<bool> {
        let mut changes = Vec::new();
        for coords in inner {
            if let Some(decoded) = self.elements(coords)? {
                self.count(decoded.len().to_u64());
                changes.push((coords.clone(), Some(decoded), Condition::Absent));
            }
        }
        let any = !changes.is_empty();
        if any {
            self.watch.before_storing()?;
            Current::made_here(self.dest()).write_chunks_if(changes, FillChunks::Store)?;
        }
        Ok(any)
    }

    fn count(&self, len: u64) {
        Copied::add(&self.copied.bytes, len);
    }

    /// Returns the contents of a chunk of the target, `None` if the source stores none of it.
    fn elements(&self, coords: &Coords) -> Result<Option<Buffer>> {
        let found = match self.chunks.form {
            ChunkConversion::Encoded | ChunkConversion::Decoded => {
                let read = self.source().read_chunk(coords);
                let read = read.and_then(|found| self.or_again(coords, found));
                self.of_source(read)?.map(|(decoded, _)| decoded)
            }
            ChunkConversion::Regridded => self.regridded(coords)?,
        };
        if found.is_none() && self.needs_fill() {
            return self.chunks.filled.fill_chunk(coords).map(Some);
        }
        Ok(found)
    }

    /// Reads a chunk of the source that was found absent again, if it is there.
    fn or_again(
        &self,
        coords: &Coords,
        found: Option<(Buffer, Stat)>,
    ) -> Result<Option<(Buffer, Stat)>> {
        if found.is_some() { Ok(found) } else { self.source().read_again(coords) }
    }

    /// Whether an error of reading the source stays however often one tries. A failure of a local
    /// disk does.
    fn can_lack(&self, error: &Error) -> bool {
        let is_of_disk =
            || error.kind() == Kind::Os(libc::EIO) && !self.chunks.source_store.read().is_remote();
        error.is_lasting() || is_of_disk()
    }

    /// Returns a value read from the source; `None` for one that cannot be read if the copy
    /// continues without it.
    fn of_source<T>(&self, read: Result<Option<T>>) -> Result<Option<T>> {
        match read {
            Err(error) if self.can_lack(&error) && self.watch.go_on_without(&error) => Ok(None),
            read => read,
        }
    }

    fn needs_fill(&self) -> bool {
        self.chunks.needs_fill(self.options.fill_chunks)
    }

    /// Assembles a chunk of the target from the chunks of the source that it overlaps.
    fn regridded(&self, coords: &Coords) -> Result<Option<Buffer>> {
        let (source, dest) = (self.source(), self.dest());
        let (old, new) = (source.chunk_shape(), dest.chunk_shape());
        let item_len = dest.model().dtype.item_len();
        let extent = dest.grid().extent(coords, &dest.model().shape)?;
        let start: Vec<u64> = coords
            .indices()
            .iter()
            .zip(new)
            .map(|(index, len)| index.saturating_mul(*len))
            .collect();
        let end: Vec<u64> =
            start.iter().zip(&extent).map(|(start, len)| start.saturating_add(*len)).collect();
        let first: Vec<u64> = start.iter().zip(old).map(|(at, len)| at / (*len).max(1)).collect();
        let counts: Vec<u64> = end
            .iter()
            .zip(old)
            .zip(&first)
            .map(|((end, len), first)| end.div_ceil((*len).max(1)).saturating_sub(*first))
            .collect();
        let mut made: Option<Buffer> = None;
        for place in places(&first, &counts) {
            let read = self.cache.get(source, &place).map(|found| found.map(|chunk| chunk.bytes));
            let read = read.and_then(|found| match found {
                Some(bytes) => Ok(Some(bytes)),
                None => Ok(source.read_again(&place)?.map(|(bytes, _)| bytes)),
            });
            let Some(bytes) = self.of_source(read)? else { continue };
            let target = match &mut made {
                Some(target) => target,
                None => made.insert(self.chunks.filled.fill_chunk(coords)?),
            };
            // The overlap in elements of the array.
            let begin = |index: &u64, len: &u64| index.saturating_mul(*len);
            let old_start: Vec<u64> =
                place.indices().iter().zip(old).map(|(index, len)| begin(index, len)).collect();
            let from: Vec<u64> = old_start.iter().zip(&start).map(|(a, b)| *a.max(b)).collect();
            let until = old_start.iter().zip(old).zip(&end);
            let until = until.map(|((start, len), end)| start.saturating_add(*len).min(*end));
            let overlap: Vec<u64> =
                until.zip(&from).map(|(until, from)| until.saturating_sub(*from)).collect();
            let within = |start: &[u64]| -> Vec<u64> {
                from.iter().zip(start).map(|(from, start)| from.saturating_sub(*start)).collect()
            };
            let (old_at, new_at) = (within(&old_start), within(&start));
            region::copy(
                (&bytes, Offset { shape: old, start: &old_at }),
                (target.to_mut(), Offset { shape: new, start: &new_at }),
                &overlap,
                item_len,
            )?;
        }
        Ok(made)
    }

    /// Whether the chunk that was found in the target has the correct contents inside the array.
    fn is_same(&self, coords: &Coords, found: Option<&Buffer>) -> Result<bool> {
        let expected = self.elements(coords)?;
        self.are_same(coords, found, expected.as_ref())
    }

    fn are_same(
        &self,
        coords: &Coords,
        found: Option<&Buffer>,
        expected: Option<&Buffer>,
    ) -> Result<bool> {
        Ok(match (found, expected) {
            (Some(found), Some(expected)) if found == expected => true,
            (Some(found), Some(expected)) => {
                self.inside(coords, found)? == self.inside(coords, expected)?
            }
            (None, None) => true,
            _ => false,
        })
    }

    /// Reads a chunk of the target back and compares it with its expected contents.
    fn verify(&self, coords: &Coords) -> Result<()> {
        // Read the source first, so that its damage is not reported as damage of the target.
        let expected = self.elements(coords)?;
        let found = self.dest().read_chunk(coords);
        if expected.is_none() && self.chunks.form == ChunkConversion::Encoded {
            // A damaged chunk was copied with its encoded bytes.
            if !matches!(found, Ok(None)) {
                self.dest().chunks().erase_values(std::slice::from_ref(coords))?;
            }
            return Ok(());
        }
        let found = found?.map(|(decoded, _)| decoded);
        if self.are_same(coords, found.as_ref(), expected.as_ref())? {
            return Ok(());
        }
        let detail = "its contents differ from the source when read back: remove it and run the same \
                      command again";
        Err(Error::new(Kind::Corrupt, detail)).at(self.dest().key(coords)?)
    }

    /// Returns the elements of a chunk inside the array; the whole chunk for elements of variable
    /// length.
    fn inside(&self, coords: &Coords, decoded: &Buffer) -> Result<Buffer> {
        let model = self.dest().model();
        if model.dtype.is_variable() {
            return Ok(decoded.clone());
        }
        let shape = self.dest().chunk_shape_at(coords)?;
        let extent = self.dest().grid().extent(coords, &model.shape)?;
        let item_len = model.dtype.item_len();
        let count = extent.iter().try_fold(item_len, |count, len| {
            usize::try_from(*len).ok().and_then(|len| count.checked_mul(len))
        });
        let len = count.ok_or_else(|| Error::too_large("the chunk does not fit into memory"))?;
        let mut cut = Buffer::zeroed(len)?;
        let origin = vec![0; extent.len()];
        region::copy(
            (decoded, Offset { shape: &shape, start: &origin }),
            (cut.to_mut(), Offset { shape: &extent, start: &origin }),
            &extent,
            item_len,
        )?;
        Ok(cut)
    }
}
