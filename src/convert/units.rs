//! Lists the stored values of a target that have chunks in the source, each once.
//!
//! They may not all fit into memory, so they are listed lazily. If a value has several chunks of
//! the source, it is listed with the first stored one, in the order of their coordinates.

use std::collections::HashMap;
use std::sync::Arc;

use super::plan::ChunkPlan;
use crate::array::assembled::ElementBox;
use crate::array::{Array, Coords, CoordsList, Grid};
use crate::error::{Error, Result};

/// The number of chunks of the source to list and sort at a time.
const BATCH: usize = 1 << 18;

/// The number of values whose first chunk is cached.
const KNOWN: usize = 1 << 16;

/// The number of chunks of the source to look up at a time.
const LOOKUP_BATCH: usize = 256;

/// Coordinates of stored values of the target: of shards if it has shards.
pub type Units<'c> = Box<dyn Iterator<Item = Result<Coords>> + Send + 'c>;

/// Returns every stored value that the target can have.
pub fn all(dest: &Array) -> Units<'static> {
    let grid = values_of(dest);
    Box::new(places(&vec![0; grid.rank()], grid.counts()).map(Ok))
}

/// Returns the stored values of the target that have chunks in the source.
pub fn stored(chunks: &ChunkPlan) -> Result<Units<'_>> {
    let list = Arc::clone(chunks.source.chunks()).list()?;
    if !chunks.source.grid().is_regular() {
        // The target has the same grid.
        return Ok(list);
    }
    Ok(Box::new(StoredUnits {
        chunks,
        list,
        batch: Vec::new().into_iter(),
        failures: Vec::new(),
        now: None,
        known: HashMap::new(),
    }))
}

/// Returns the chunks of the source that overlap the chunk at `coords` of `grid`, that of the
/// chunks or stored values of the target.
pub fn overlapping(source: &Array, coords: &Coords, grid: &Grid) -> GridBox {
    GridBox::over(coords, grid, source.grid(), &source.model().shape)
}

/// Returns the grid of the stored values of an array.
fn values_of(array: &Array) -> &Grid {
    array.levels().first().map_or(array.grid(), |direct| direct.grid())
}

/// A box of places in a grid.
#[derive(Debug, Clone)]
pub struct GridBox {
    first: Vec<u64>,
    counts: Vec<u64>,
}

impl GridBox {
    /// Returns the places in the grid of `others` that the chunk at `coords` of `grid` overlaps, in
    /// an array of `shape`.
    fn over(coords: &Coords, grid: &Grid, others: &Grid, shape: &[u64]) -> Self {
        let span = |(axis, (index, all)): (usize, (&u64, &u64))| {
            let (start, len) = grid.span(axis, *index)?;
            let end = start.saturating_add(len).min(*all).max(start.saturating_add(1));
            let first = others.find(axis, start)?.index;
            let last = others.find(axis, end.saturating_sub(1))?.index;
            Some((first, last.saturating_sub(first).saturating_add(1)))
        };
        let along = coords.indices().iter().zip(shape).enumerate();
        let (first, counts) = along.map(|along| span(along).unwrap_or_default()).unzip();
        Self { first, counts }
    }

    /// Whether the box has a single place.
    fn is_single(&self) -> bool {
        self.counts.iter().all(|count| *count == 1)
    }

    /// Returns the places in order.
    pub fn places(&self) -> impl Iterator<Item = Coords> + use<> {
        places(&self.first, &self.counts)
    }

    /// Returns the first of these places at which `array` has a chunk.
    pub fn first_stored(&self, array: &Array) -> Result<Option<Coords>> {
        let mut places = self.places().filter(|coords| array.grid().contains(coords));
        // Usually the first place has one.
        let mut batch_len = 1;
        loop {
            let batch: Vec<Coords> = places.by_ref().take(batch_len).collect();
            if batch.is_empty() {
                return Ok(None);
            }
            let found = match array.stat_many(&batch) {
                // The index of a shard cannot be read; the chunks of other shards are there.
                Err(error) if error.is_lasting() => {
                    batch.iter().map(|coords| array.stat(coords).ok().flatten()).collect()
                }
                found => found?,
            };
            let stored = batch.into_iter().zip(found).find(|(_, stat)| stat.is_some());
            if let Some((coords, _)) = stored {
                return Ok(Some(coords));
            }
            batch_len = LOOKUP_BATCH;
        }
    }
}

struct StoredUnits<'c> {
    chunks: &'c ChunkPlan,
    /// The chunks of the source.
    list: CoordsList,
    /// The next chunks, in order.
    batch: std::vec::IntoIter<Coords>,
    /// The shards of the batch that could not be listed.
    failures: Vec<Error>,
    /// The current chunk, with the rest of the values that need it.
    now: Option<(Coords, Box<dyn Iterator<Item = Coords> + Send>)>,
    /// The chunk with which each value is listed.
    known: HashMap<Coords, Coords>,
}

impl StoredUnits<'_> {
    /// Returns the next chunk of the source.
    fn next_chunk(&mut self) -> Option<Result<Coords>> {
        if let Some(coords) = self.batch.next() {
            return Some(Ok(coords));
        }
        if let Some(failure) = self.failures.pop() {
            return Some(Err(failure));
        }
        let mut batch = Vec::new();
        for coords in self.list.by_ref().take(BATCH) {
            match coords {
                Ok(coords) => batch.push(coords),
                // The others are listed.
                Err(error) => self.failures.push(error),
            }
        }
        batch.sort_unstable();
        self.batch = batch.into_iter();
        self.batch.next().map(Ok).or_else(|| self.failures.pop().map(Err))
    }

    /// Whether `unit` is listed with `coords`, one of the chunks of the source in it.
    fn comes_with(&mut self, unit: &Coords, coords: &Coords) -> Result<bool> {
        let (source, dest) = (&self.chunks.source, &self.chunks.dest);
        let parts = overlapping(source, unit, values_of(dest));
        if parts.is_single() {
            return Ok(true);
        }
        if let Some(known) = self.known.get(unit) {
            return Ok(known == coords);
        }
        let first = parts.first_stored(source)?.unwrap_or_else(|| coords.clone());
        if self.known.len() >= KNOWN {
            self.known.clear();
        }
        let comes = first == *coords;
        self.known.insert(unit.clone(), first);
        Ok(comes)
    }
}

impl Iterator for StoredUnits<'_> {
    type Item = Result<Coords>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let next =
                self.now.as_mut().and_then(|(coords, units)| Some((coords.clone(), units.next()?)));
            if let Some((coords, unit)) = next {
                match self.comes_with(&unit, &coords) {
                    Ok(true) => return Some(Ok(unit)),
                    Ok(false) => continue,
                    Err(error) => return Some(Err(error)),
                }
            }
            let coords = match self.next_chunk()? {
                Ok(coords) => coords,
                Err(error) => return Some(Err(error)),
            };
            let (source, dest) = (&self.chunks.source, &self.chunks.dest);
            let shape = &source.model().shape;
            let units = GridBox::over(&coords, source.grid(), values_of(dest), shape);
            self.now = Some((coords, Box::new(units.places())));
        }
    }
}

/// Returns every place in a box of `counts`, from `first` on.
pub fn places(first: &[u64], counts: &[u64]) -> impl Iterator<Item = Coords> + use<> {
    ElementBox { start: first.to_vec(), extent: counts.to_vec() }.places()
}
