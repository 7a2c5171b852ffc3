//! Values of a new file, encoded aside.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::ops::Bound;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use super::file::{ArrayPair, FileNodes};
use super::place::RewrittenView;
use crate::array::assembled::{Assembled, ElementBox};
use crate::array::{Array, Coords, Current, FillChunks};
use crate::buffer::Buffer;
use crate::cache::{ChunkCache, Due};
use crate::codec::number::exactly;
use crate::error::{Error, Result, WithSubject};
use crate::metadata::NodePath;
use crate::parallel;
use crate::store::{Aside, Key};
use crate::view::ElementRange;
use crate::width::{ToU64, ToUsize};

/// The most bytes of new chunks before they are stored aside.
const PENDING_LEN: u64 = 128 << 20;

/// The most bytes of decoded chunks of the new file.
const SOURCE_LEN: u64 = 64 << 20;

/// Arrays of at most this many bytes are compared first, so that coordinates are not stored again.
const COMPARED_LEN: u64 = 1 << 20;

/// The new values of arrays, while they are encoded.
pub(super) struct ValuesAside<'w> {
    view: RewrittenView<'w>,
    old: &'w FileNodes,
    aside: &'w Aside,
    /// The arrays with new values, in the order of their numbers.
    arrays: Vec<(NodePath, ArrayAside)>,
    /// New chunks that are not complete.
    chunks: ChunkCache,
    /// Chunks of the new file.
    sources: ChunkCache,
}

/// An array that gets new values.
#[derive(Clone)]
struct ArrayAside {
    /// As it is.
    now: Arc<Array>,
    /// With its new values.
    new: Arc<Array>,
    /// How many bytes of its new elements were put, and how many there are.
    put: u64,
    len: u64,
}

impl<'w> ValuesAside<'w> {
    pub fn new(view: RewrittenView<'w>, old: &'w FileNodes, aside: &'w Aside) -> Self {
        let (chunks, sources) = (ChunkCache::new(PENDING_LEN), ChunkCache::new(SOURCE_LEN));
        Self { view, old, aside, arrays: Vec::new(), chunks, sources }
    }

    /// Puts the values of an array of the new file at the elements that this array of the view
    /// stands for.
    pub fn put(&mut self, pair: &ArrayPair, target: Option<&ElementRange>) -> Result<()> {
        match target {
            Some(target) => self.put_elements(pair, target),
            None => self.put_named(pair),
        }
    }

    fn put_elements(&mut self, pair: &ArrayPair, target: &ElementRange) -> Result<()> {
        let (Some(old), Some(new)) = (pair.old.array(), pair.new.array()) else { return Ok(()) };
        let starts = self.starts(old)?;
        if target.len() <= COMPARED_LEN && self.is_unchanged(old, new, &starts)? {
            return Ok(());
        }
        let now = (self.view.array_of)(target)?;
        let number = self.begin(&target.path, &now)?;
        for coords in old.grid().all() {
            let (offset, bytes) = self.bytes_in_view(old, new, (&coords, &starts))?;
            let place = self
                .view
                .view
                .elements_at(offset)
                .filter(|(elements, _)| elements.path == target.path);
            place.ok_or_else(not_its_own)?;
            let (path, array) = self.arrays.get_mut(number).ok_or_else(not_its_own)?;
            let (path, into) = (path.clone(), Arc::clone(&array.new));
            array.put = array.put.saturating_add(bytes.len().to_u64());
            let chunks = &self.chunks;
            self.view.view.write_elements(offset, &bytes, &mut |_, coords, cover, change| {
                chunks.change(&path, &into, coords, (&cover, None), change)
            })?;
            self.store_full()?;
        }
        Ok(())
    }

    /// Returns where the chunks of an array begin in the file that the view is.
    fn starts(&self, old: &Array) -> Result<BTreeSet<u64>> {
        let start = |coords| Ok(self.old.part_of(old, &coords)?.ok_or_else(not_its_own)?.0);
        old.grid().all().map(start).collect()
    }

    /// Returns the bytes of a chunk in the file that the view is, with the values of the new file,
    /// and their offset. `starts` has those of all chunks.
    fn bytes_in_view(
        &self,
        old: &Arc<Array>,
        new: &Arc<Array>,
        (coords, starts): (&Coords, &BTreeSet<u64>),
    ) -> Result<(u64, bytes::Bytes)> {
        let (offset, len) = self.old.part_of(old, coords)?.ok_or_else(not_its_own)?;
        let place = ElementBox::of_spans(&old.grid().spans(coords)?);
        let values = self.values(new, &place, old)?;
        let bytes = old.encode(coords, values)?;
        if bytes.len().to_u64() != len {
            return Err(not_its_own());
        }
        // The last piece along a dimension reaches into the next one, or past the array.
        let (_, place) = self.view.view.elements_at(offset).ok_or_else(not_its_own)?;
        let next = starts.range((Bound::Excluded(offset), Bound::Unbounded)).next();
        let end = next.map_or(place.end, |next| place.end.min(*next));
        let inside = end.saturating_sub(offset).to_usize().min(bytes.len());
        Ok((offset, bytes.slice(..inside)))
    }

    fn is_unchanged(
        &self,
        old: &Arc<Array>,
        new: &Arc<Array>,
        starts: &BTreeSet<u64>,
    ) -> Result<bool> {
        for coords in old.grid().all() {
            let (offset, bytes) = self.bytes_in_view(old, new, (&coords, starts))?;
            if self.view.view.read(offset, bytes.len(), self.view.get)? != *bytes {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Puts the values of an array whose values are in the header of the view, in another type
    /// perhaps: it stands for the array of its name.
    fn put_named(&mut self, pair: &ArrayPair) -> Result<()> {
        let (Some(old), Some(new)) = (pair.old.array(), pair.new.array()) else { return Ok(()) };
        if !self.old.is_netcdf() {
            // A header that zarrfs shows as an array.
            return Ok(());
        }
        for coords in old.grid().all() {
            if let Some((offset, _)) = self.old.part_of(old, &coords)?
                && self.view.view.elements_at(offset).is_some()
            {
                return Err(not_its_own());
            }
        }
        let whole = ElementBox::whole(&old.model().shape);
        let before = self.values(old, &whole, old)?;
        if self.values(new, &whole, old).is_ok_and(|now| *now == *before) {
            return Ok(());
        }
        let path = self.view.node_named(&pair.name)?;
        let now = self.view.array_at(&path)?;
        if now.model().shape != new.model().shape {
            return Err(not_its_own());
        }
        let number = self.begin(&path, &now)?;
        let Some((_, array)) = self.arrays.get_mut(number) else { return Ok(()) };
        array.put = array.len;
        let current = Current::made_here(&array.new);
        for coords in now.grid().all() {
            let place = ElementBox::of_spans(&now.grid().spans(&coords)?);
            let values = self.values(new, &place, &now)?;
            current.write_chunks(vec![(coords, Some(values))], FillChunks::Store)?;
        }
        Ok(())
    }

    /// Returns a chunk of `target` at `place`, with the elements of an array in a file that has its
    /// shape.
    fn values(&self, array: &Arc<Array>, place: &ElementBox, target: &Array) -> Result<Buffer> {
        let (model, to) = (array.model(), target.model());
        let mut made = Assembled::new(&to.dtype, &to.fill, place.clone())?;
        let inside = place.intersection(&ElementBox::whole(&model.shape));
        let Some(inside) = inside else { return made.finish() };
        let mut found = Assembled::new(&model.dtype, &model.fill, inside.clone())?;
        for coords in array.grid().overlapping(&inside) {
            let bytes = match self.sources.get(array, &coords)? {
                Some(chunk) => chunk.bytes,
                None => array.fill_chunk(&coords)?,
            };
            found.put(&bytes, &array.grid().spans(&coords)?, &inside)?;
        }
        let mut found = found.finish()?;
        if model.dtype != to.dtype {
            found = exactly(&model.dtype, &to.dtype, &found)?;
        }
        if *place == inside && !to.dtype.is_variable() {
            return Ok(found);
        }
        made.put(&found, &inside.spans(), &inside)?;
        made.finish()
    }

    /// Makes the place of the new values of an array, and returns its number.
    fn begin(&mut self, path: &NodePath, now: &Arc<Array>) -> Result<usize> {
        let number = self.arrays.iter().position(|(other, _)| other == path);
        if let Some(number) = number {
            return Ok(number);
        }
        let number = self.arrays.len();
        let changes = self.view.hierarchy.changes();
        let new = changes.bind_new_values(now, self.aside, number)?;
        let elements = self.view.view.elements().filter(|elements| elements.path == *path);
        let len = elements.map(ElementRange::len).fold(0, u64::saturating_add);
        self.arrays.push((path.clone(), ArrayAside { now: Arc::clone(now), new, put: 0, len }));
        Ok(number)
    }

    /// Stores complete chunks if there are many.
    pub fn store_full(&self) -> Result<()> {
        if self.chunks.pending_len() <= PENDING_LEN {
            return Ok(());
        }
        self.store(&self.chunks.due(Due::Full))?;
        if self.chunks.pending_len() <= PENDING_LEN {
            return Ok(());
        }
        self.store(&self.chunks.due(Due::Since(Duration::ZERO)))
    }

    /// Stores the rest, and returns the arrays that have new values.
    pub fn finish(self) -> Result<Vec<(NodePath, Arc<Array>)>> {
        self.store(&self.chunks.due(Due::Since(Duration::ZERO)))?;
        if let Some((path, _)) = self.arrays.iter().find(|(_, array)| array.put != array.len) {
            return Err(not_its_own().at(path));
        }
        Ok(self.arrays.into_iter().map(|(path, array)| (path, array.now)).collect())
    }

    /// Stores the chunks of these values, on all processors.
    fn store(&self, keys: &[Key]) -> Result<()> {
        let places: BTreeMap<&NodePath, &Arc<Array>> =
            self.arrays.iter().map(|(path, array)| (path, &array.new)).collect();
        let rest = Mutex::new(keys.iter());
        let failure: Mutex<Option<Error>> = Mutex::new(None);
        let chunks = &self.chunks;
        let work = || {
            while failure.lock().is_none() {
                let Some(key) = rest.lock().next() else { return };
                let stored = chunks.pending_array(key).map_or(Ok(()), |(path, _)| {
                    let array = places.get(&path).ok_or_else(not_its_own)?;
                    let current = Current::made_here(array);
                    chunks.store(key, &current, FillChunks::Store, || ())?.1
                });
                if let Err(error) = stored {
                    failure.lock().get_or_insert(error);
                }
            }
        };
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(keys.len());
        // As in `chunks`, `parallel::map` does not fit.
        thread::scope(|scope| {
            parallel::spawn(scope, threads.saturating_sub(1), work);
            work();
        });
        failure.into_inner().map_or(Ok(()), Err)
    }
}

/// Returns the error for a view whose arrays cannot be told apart in the file that it is.
fn not_its_own() -> Error {
    Error::unsupported("a new file cannot replace this one: its values do not lie in one piece")
}
