//! Stores the values of an import, chunk by chunk, and then the shapes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use parking_lot::Mutex;

use super::part::{ArrayImport, is_same, put_part, values_of};
use super::plan::ImportPlan;
use super::record::ImportRecord;
use crate::array::assembled::{Assembled, ElementBox};
use crate::array::{Coords, Current, FillChunks};
use crate::buffer::Buffer;
use crate::cache::ChunkCache;
use crate::convert::CopyWatch;
use crate::error::{Error, Kind, Result, WithSubject};
use crate::hierarchy::Hierarchy;
use crate::parallel;
use crate::store::{Condition, Key};
use crate::width::ToU64;

/// The number of values to sync at a time.
const SYNCED: usize = 4096;

/// How often to store a value again because another program has changed it meanwhile.
const ATTEMPTS: usize = 20;

/// How an import is made.
#[derive(Debug, Clone)]
pub struct ImportOptions {
    /// How many values are stored at a time.
    pub threads: usize,
    /// Memory for decoded chunks of the sources.
    pub cache_len: u64,
    /// Whether every chunk is read back and compared.
    pub is_verified: bool,
}

/// The counts of an import.
#[derive(Debug, Default)]
pub struct Imported {
    /// The number of stored values: chunks, or shards.
    pub stored: AtomicU64,
    /// The number of values that an import that was interrupted had stored.
    pub found: AtomicU64,
    /// The decoded bytes of the stored chunks.
    pub bytes: AtomicU64,
}

/// Makes a planned import.
pub fn run(
    dest: &Hierarchy,
    plan: &ImportPlan,
    record: &ImportRecord<'_>,
    options: &ImportOptions,
    watch: &dyn CopyWatch,
) -> Result<Imported> {
    let imported = Imported::default();
    for import in &plan.arrays {
        let cache = ChunkCache::new(options.cache_len);
        let unsynced = Mutex::default();
        let work = Importer { dest, import, record, options, cache, imported: &imported, unsynced };
        work.array(watch).at(&import.path)?;
    }
    record.set_shapes(dest, plan)?;
    Ok(imported)
}

struct Importer<'w> {
    dest: &'w Hierarchy,
    import: &'w ArrayImport,
    record: &'w ImportRecord<'w>,
    options: &'w ImportOptions,
    cache: ChunkCache,
    imported: &'w Imported,
    /// The stored values that are not synced yet. A leaf lock.
    unsynced: Mutex<Vec<Key>>,
}

impl Importer<'_> {
    /// Stores everything that goes into the array.
    fn array(&self, watch: &dyn CopyWatch) -> Result<()> {
        let grid = values_of(&self.import.grown);
        let region = self.import.region();
        let count = grid.overlapping(&region).count();
        watch.begin(&self.import.path, count.to_u64());
        let units = Mutex::new(grid.overlapping(&region));
        let failure: Mutex<Option<Error>> = Mutex::new(None);
        let run = || {
            while !watch.is_stopped() && failure.lock().is_none() {
                let Some(unit) = units.lock().next() else { return };
                if let Err(error) = self.unit(&unit) {
                    failure.lock().get_or_insert(error);
                }
                watch.advance();
            }
        };
        // As in `convert::chunks`, `parallel::map` does not fit.
        thread::scope(|scope| {
            parallel::spawn(scope, self.options.threads.saturating_sub(1), run);
            run();
        });
        if let Some(error) = failure.into_inner() {
            return Err(error);
        }
        if watch.is_stopped() {
            return Err(Error::new(Kind::Busy, "interrupted"));
        }
        self.dest.store().write()?.sync(&self.unsynced.lock())
    }

    /// Stores one value with all of its chunks that change.
    fn unit(&self, unit: &Coords) -> Result<()> {
        let grown = &self.import.grown;
        let (first, counts) = grown.chunks_in(unit)?;
        let inner = ElementBox { start: first, extent: counts };
        let inner = inner.places().filter(|coords| grown.grid().contains(coords));
        let inner: Vec<Coords> = inner.collect();
        let Some(one) = inner.first() else { return Ok(()) };
        let key = grown.key(one)?;
        let place = ElementBox::of_spans(&values_of(grown).spans(unit)?);
        let is_new =
            place.intersection(&ElementBox::whole(&self.import.now.model().shape)).is_none();
        let is_there = is_new && self.dest.store().stat(&key)?.is_some();
        if is_there && self.record.continues() {
            self.imported.found.fetch_add(1, Ordering::Relaxed);
            return self.verify(&inner);
        }
        if is_there {
            // Outside of the shape is only what a program has left there, unless one has just
            // changed the shape.
            self.current()?;
            self.dest.store().write()?.erase_values(std::slice::from_ref(&key))?;
        }
        for attempt in 1.. {
            match self.store(&inner, is_new) {
                Ok(false) => return self.verify(&inner),
                Err(error)
                    if matches!(error.kind(), Kind::Stale | Kind::Exists) && attempt < ATTEMPTS =>
                {
                    log::debug!("{key}: {error}");
                }
                stored => {
                    stored.at(&key)?;
                    break;
                }
            }
        }
        self.imported.stored.fetch_add(1, Ordering::Relaxed);
        self.sync_later(key)?;
        self.verify(&inner)
    }

    /// Returns the array as the store has it now, with the shape that it gets.
    fn current(&self) -> Result<Current> {
        let ArrayImport { path, now, grown, .. } = self.import;
        self.dest.array_that_gets(path, now, &grown.model().shape, Instant::now())
    }

    /// Stores chunks of one value; where it is new, nothing may be there. Returns whether any had
    /// to be stored.
    fn store(&self, inner: &[Coords], is_new: bool) -> Result<bool> {
        let current = self.current()?;
        let mut changes = Vec::new();
        for coords in inner {
            if let Some((made, condition)) = self.chunk(coords)? {
                if is_new && made.is_none() {
                    continue;
                }
                let condition = if is_new { Condition::Absent } else { condition };
                let len = made.as_ref().map_or(0, |made| made.len().to_u64());
                self.imported.bytes.fetch_add(len, Ordering::Relaxed);
                changes.push((coords.clone(), made, condition));
            }
        }
        let any = !changes.is_empty();
        if any {
            current.write_chunks_if(changes, FillChunks::Store)?;
        }
        Ok(any)
    }

    /// Returns the new contents of a chunk, and the condition under which to store them; `None` if
    /// the import does not touch it. There are no contents if all are the fill value.
    fn chunk(&self, coords: &Coords) -> Result<Option<(Option<Buffer>, Condition)>> {
        let ArrayImport { now, grown, parts, .. } = self.import;
        let spans = grown.grid().spans(coords)?;
        let place = ElementBox::of_spans(&spans);
        let whole = ElementBox::whole(&grown.model().shape);
        let inside = place.intersection(&whole).unwrap_or_else(|| place.clone());
        let Some(wanted) = place.intersection(&self.import.region()) else { return Ok(None) };
        let kept = if wanted.contains(&inside) {
            None
        } else {
            place.intersection(&ElementBox::whole(&now.model().shape))
        };
        let model = grown.model();
        let mut made = Assembled::new(&model.dtype, &model.fill, place)?;
        let mut is_stored = !model.fill.is_defined();
        let mut condition = Condition::Always;
        if let Some(kept) = &kept {
            let found = now.read_chunk(coords)?;
            let found = if found.is_none() { now.read_again(coords)? } else { found };
            condition = found
                .as_ref()
                .map_or(Condition::Absent, |(_, stat)| Condition::Unchanged(stat.version));
            if let Some((bytes, _)) = found {
                made.put(&bytes, &spans, kept)?;
                is_stored = true;
            }
        }
        for part in parts {
            is_stored |= put_part(part, &wanted, &mut made, model, &|array, coords| {
                Ok(self.cache.get(array, coords)?.map(|chunk| chunk.bytes))
            })?;
        }
        Ok(Some((if is_stored { Some(made.finish()?) } else { None }, condition)))
    }

    /// Reads chunks back and compares them with what went into them.
    fn verify(&self, inner: &[Coords]) -> Result<()> {
        if !self.options.is_verified {
            return Ok(());
        }
        let grown = &self.import.grown;
        for coords in inner {
            let spans = grown.grid().spans(coords)?;
            let place = ElementBox::of_spans(&spans);
            let Some(wanted) = place.intersection(&self.import.region()) else { continue };
            for part in &self.import.parts {
                if part.place().intersection(&wanted).is_some() {
                    let same = is_same(part, grown, coords)?;
                    if !same {
                        let detail = "its contents differ from the source when read back";
                        return Err(Error::new(Kind::Corrupt, detail)).at(grown.key(coords)?);
                    }
                }
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
        self.dest.store().write()?.sync(&keys)
    }
}
