//! The chunks of one array, copied by all threads: each stored value of the target is made once, by one of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;

use super::plan::{Chunks, Form};
use super::{Copied, How, Standing, Verify, Watch, stopped};
use crate::array::region::{self, Place};
use crate::array::{Array, Change, Coords, FillChunks};
use crate::buffer::Buffer;
use crate::cache::ChunkCache;
use crate::error::{At, Error, Kind, Result};
use crate::metadata::NodePath;
use crate::store::{ByteRange, Key, Store};

/// Copies what is stored of an array.
pub fn copy(
    (path, chunks): (&NodePath, &Chunks),
    store: &Store,
    (how, watch): (&How, &dyn Watch),
    copied: &Copied,
) -> Result<()> {
    let cache = ChunkCache::new(how.cache_len);
    let work = Work { chunks, store, how, cache, copied };
    let units: Vec<Coords> = work.units()?.into_iter().collect();
    watch.begin(path, u64::try_from(units.len()).unwrap_or(u64::MAX));
    let next = AtomicUsize::new(0);
    let failure: Mutex<Option<Error>> = Mutex::new(None);
    let stored: Mutex<Vec<Key>> = Mutex::new(Vec::new());
    let run = || {
        while let Some(unit) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
            if watch.is_stopped() || failure.lock().is_some() {
                return;
            }
            match work.unit(unit) {
                Ok(key) => stored.lock().extend(key),
                Err(error) => {
                    failure.lock().get_or_insert(error);
                }
            }
            watch.advance();
        }
    };
    thread::scope(|scope| {
        for _ in 1..how.threads {
            scope.spawn(run);
        }
        run();
    });
    if let Some(error) = failure.into_inner() {
        return Err(error);
    }
    if watch.is_stopped() {
        return Err(stopped());
    }
    store.write()?.sync(&stored.into_inner())
}

struct Work<'w> {
    chunks: &'w Chunks,
    store: &'w Store,
    how: &'w How,
    /// Decoded chunks of the source that several chunks of the target are made of.
    cache: ChunkCache,
    copied: &'w Copied,
}

impl Work<'_> {
    fn source(&self) -> &Arc<Array> {
        &self.chunks.source
    }

    fn dest(&self) -> &Arc<Array> {
        &self.chunks.dest
    }

    /// The stored values of the target that something of the source goes into, as the coordinates of shards
    /// where it has shards.
    fn units(&self) -> Result<BTreeSet<Coords>> {
        let (source, dest) = (self.source(), self.dest());
        let mut units = BTreeSet::new();
        for coords in Arc::clone(source.chunks()).list()? {
            let coords = coords?;
            if !source.grid().contains(&coords) {
                continue;
            }
            if !source.grid().is_regular() {
                units.insert(coords);
                continue;
            }
            let shape = &source.model().shape;
            let span = |(((index, len), all), unit): (((&u64, &u64), &u64), &u64)| {
                let start = index.saturating_mul(*len);
                let end = start.saturating_add(*len).min(*all).max(start.saturating_add(1));
                let (first, last) = (start / unit, end.saturating_sub(1) / unit);
                (first, last.saturating_sub(first).saturating_add(1))
            };
            let along = coords.indices().iter().zip(source.chunk_shape()).zip(shape);
            let along = along.zip(&dest.model().chunk_shape);
            let (first, counts): (Vec<u64>, Vec<u64>) = along.map(span).unzip();
            units.extend(places(&first, &counts));
        }
        if self.needs_fill() {
            let grid = dest.grid();
            units.extend(places(&vec![0; grid.rank()], grid.counts()));
        }
        Ok(units)
    }

    /// The chunks of a stored value that are in the array.
    fn inner(&self, unit: &Coords) -> Vec<Coords> {
        let dest = self.dest();
        let counts: Vec<u64> = if dest.grid().is_regular() {
            let along = dest.model().chunk_shape.iter().zip(dest.chunk_shape());
            along.map(|(outer, inner)| (outer / (*inner).max(1)).max(1)).collect()
        } else {
            vec![1; unit.indices().len()]
        };
        let along = unit.indices().iter().zip(&counts);
        let first: Vec<u64> = along.map(|(index, count)| index.saturating_mul(*count)).collect();
        places(&first, &counts).filter(|coords| dest.grid().contains(coords)).collect()
    }

    /// Makes one stored value; its key, where there was something to store.
    fn unit(&self, unit: &Coords) -> Result<Option<Key>> {
        let inner = self.inner(unit);
        let Some(first) = inner.first() else { return Ok(None) };
        let key = self.dest().key(first)?;
        let is_there = self.how.standing == Standing::Resumed && self.store.stat(&key)?.is_some();
        let stored = if is_there {
            Copied::add(&self.copied.found, 1);
            false
        } else {
            match self.chunks.form {
                Form::Encoded if !self.needs_fill() => self.copy_encoded(&inner),
                Form::Encoded | Form::Decoded | Form::Regridded => self.copy_decoded(&inner),
            }
            .at(&key)?
        };
        if stored {
            Copied::add(&self.copied.stored, 1);
        }
        if self.how.verify == Verify::All {
            inner.iter().try_for_each(|coords| self.verify(coords))?;
        }
        Ok(stored.then_some(key))
    }

    fn copy_encoded(&self, inner: &[Coords]) -> Result<bool> {
        let ranges: Vec<_> =
            inner.iter().map(|coords| (coords.clone(), ByteRange::first(u64::MAX))).collect();
        let values = self.source().chunks().get_partial_values(&ranges)?;
        let mut changes = Vec::new();
        for (coords, value) in inner.iter().zip(values) {
            let Some(value) = value else { continue };
            // Of elements that have lengths of their own nobody knows without decoding.
            self.count(self.dest().chunk_len(coords)?.exactly().unwrap_or(value.stat.len));
            changes.push(Change::set(coords.clone(), value.bytes));
        }
        let any = !changes.is_empty();
        if any {
            self.dest().chunks().update(changes)?;
        }
        Ok(any)
    }

    fn copy_decoded(&self, inner: &[Coords]) -> Result<bool> {
        let mut changes = Vec::new();
        for coords in inner {
            if let Some(decoded) = self.elements(coords)? {
                self.count(u64::try_from(decoded.len()).unwrap_or(u64::MAX));
                changes.push((coords.clone(), Some(decoded)));
            }
        }
        let any = !changes.is_empty();
        if any {
            self.dest().write_chunks(changes, FillChunks::Store)?;
        }
        Ok(any)
    }

    fn count(&self, len: u64) {
        Copied::add(&self.copied.bytes, len);
    }

    /// What a chunk of the target is to hold; none where nothing of it is stored.
    fn elements(&self, coords: &Coords) -> Result<Option<Buffer>> {
        let found = match self.chunks.form {
            Form::Encoded | Form::Decoded => {
                self.source().read_chunk(coords)?.map(|(decoded, _)| decoded)
            }
            Form::Regridded => self.regridded(coords)?,
        };
        if found.is_none() && self.needs_fill() {
            return self.dest().fill_chunk(coords).map(Some);
        }
        Ok(found)
    }

    /// Whether the target has no fill value though the source has one: zarr-python 2 reads anything at all then from a
    /// chunk that is not stored.
    fn needs_fill(&self) -> bool {
        let (source, dest) = (self.source(), self.dest());
        source.model().fill.is_defined()
            && !dest.model().fill.is_defined()
            && source.grid().is_regular()
    }

    /// A chunk of the target, put together from those of the source that it overlaps.
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
            let Some(chunk) = self.cache.get(source, &place)? else { continue };
            let target = match &mut made {
                Some(target) => target,
                None => made.insert(dest.fill_chunk(coords)?),
            };
            // The overlap, in elements of the array.
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
                (&chunk.bytes, Place { shape: old, start: &old_at }),
                (target.to_mut(), Place { shape: new, start: &new_at }),
                &overlap,
                item_len,
            )?;
        }
        Ok(made)
    }

    /// Reads a chunk of the target back and compares it with what it is to hold, as far as it lies in the array.
    fn verify(&self, coords: &Coords) -> Result<()> {
        let dest = self.dest();
        let found = dest.read_chunk(coords)?.map(|(decoded, _)| decoded);
        let expected = self.elements(coords)?;
        let is_same = match (&found, &expected) {
            (Some(found), Some(expected)) if found == expected => true,
            (Some(found), Some(expected)) => {
                self.inside(coords, found)? == self.inside(coords, expected)?
            }
            (None, None) => true,
            _ => false,
        };
        if is_same {
            return Ok(());
        }
        let detail =
            "read back, it does not hold what the source holds: remove it and run the same again";
        Err(Error::new(Kind::Corrupt, detail)).at(dest.key(coords)?)
    }

    /// The elements of a chunk that lie in the array; all of it where they have lengths of their own.
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
        let len = count.ok_or_else(|| Error::too_large("a chunk that does not fit into memory"))?;
        let mut cut = Buffer::zeroed(len)?;
        let origin = vec![0; extent.len()];
        region::copy(
            (decoded, Place { shape: &shape, start: &origin }),
            (cut.to_mut(), Place { shape: &extent, start: &origin }),
            &extent,
            item_len,
        )?;
        Ok(cut)
    }
}

/// Every place in a box of `counts`, from `first` on.
fn places(first: &[u64], counts: &[u64]) -> impl Iterator<Item = Coords> {
    let mut at = (!counts.contains(&0)).then(|| vec![0; counts.len()]);
    let (first, counts) = (first.to_vec(), counts.to_vec());
    std::iter::from_fn(move || {
        let now = at.as_mut()?;
        let place: Vec<u64> =
            first.iter().zip(now.iter()).map(|(first, at)| first.saturating_add(*at)).collect();
        if !region::step(now, &counts) {
            at = None;
        }
        Some(Coords::new(place))
    })
}
