//! An array: coordinates to decoded chunks.
//!
//! Opening it resolves codecs, lengths, keys and fill bytes once; reading a chunk looks nothing up.
//! An array can be opened even if its codecs are not understood: it has a shape, chunks that can be
//! listed, and the reason why they cannot be decoded.

mod bound;
mod chunk_ref;
mod chunk_store;
mod coords;
mod kept;
mod key_encoding;
mod layers;
mod layout;
mod level;
pub mod region;
mod sharded;

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use serde_json::{Value, json};

use crate::buffer::{Buffer, reserve};
use crate::codec::{Elements, vlen};
use crate::error::{Error, Result};
use crate::metadata::{chunk_shapes, model};
use crate::parallel;
use crate::store::{ByteRange, Condition, Key, Prefix, Stat, Store};

pub use bound::ChunkLen;
use bound::{Bound, Pipelines};
pub use chunk_ref::{ArrayId, ChunkId, ChunkRef};
pub(crate) use chunk_store::retried;
pub use chunk_store::{Change, ChunkStore, CoordsList, Direct, Indices};
pub use coords::{Coords, Grid};
pub use key_encoding::{decode as decode_key, index as parse_index};
pub use layout::{ShardLayout, ShardOrder, ShardWrite};
pub use sharded::Sharded;

/// Chunks outside of a smaller shape that are erased at a time; as many more as lie in the last
/// shard.
const MAX_ERASED: usize = 10_000;

/// What to do with a chunk that equals the fill value bit for bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FillChunks {
    /// Store it like any other.
    Store,
    /// Erase it: readers see the same.
    Skip,
}

/// An array, bound to a store.
#[derive(Debug)]
pub struct Array {
    id: ArrayId,
    model: model::Array,
    /// Elements along each dimension of the chunks that are shown: the innermost.
    chunk_shape: Vec<u64>,
    /// Of the longest chunk.
    chunk_len: ChunkLen,
    max_chunk_len: u64,
    chunks: Arc<dyn ChunkStore>,
    pipelines: Result<Pipelines>,
    prefix: Prefix,
    store: Store,
    /// Whether a range was found to take most of its chunk: those of an array are compressed alike.
    is_in_one_block: AtomicBool,
}

impl Array {
    /// Binds `model` to the chunks below `prefix`. Chunks of more than `max_chunk_len` decoded
    /// bytes are listed but not read. Shards are written as `layout` says.
    pub fn open(
        model: model::Array,
        store: &Store,
        prefix: Prefix,
        max_chunk_len: u64,
        layout: ShardLayout,
    ) -> Result<Self> {
        let direct =
            Direct::new(store.clone(), prefix.clone(), model.key_encoding, Grid::of(&model));
        let mut chunks: Arc<dyn ChunkStore> = Arc::new(direct);
        let mut chunk_shape = model.chunk_shape.clone();
        let stack = match layers::split(&model, max_chunk_len) {
            Ok(layers) => {
                let mut layout = layout;
                for (level, inner) in layers.levels {
                    let grid = Grid::regular(&model.shape, &inner);
                    chunks = Arc::new(Sharded::new(chunks, level, grid, layout));
                    chunk_shape = inner;
                    // A shard in a shard has no place of its own to stay at.
                    layout.write = ShardWrite::Rewrite;
                }
                Ok(layers.stack)
            }
            Err(error) => Err(error),
        };
        let chunk_len = ChunkLen::of(&chunk_shape, &model.dtype, max_chunk_len)?;
        let pipelines = stack.and_then(|stack| {
            if model.rectilinear.is_none() {
                return Pipelines::one(&stack, chunk_shape.clone(), &model.dtype, max_chunk_len);
            }
            let first = Coords::new(vec![0; chunk_shape.len()]);
            let first = chunks.grid().chunk_shape_at(&first);
            let first = first.unwrap_or_else(|_| chunk_shape.clone());
            Pipelines::by_shape(stack, first, &model.dtype, max_chunk_len)
        });
        let store = store.clone();
        let is_in_one_block = AtomicBool::new(false);
        Ok(Self {
            id: ArrayId::new(),
            model,
            chunk_shape,
            chunk_len,
            max_chunk_len,
            chunks,
            pipelines,
            prefix,
            store,
            is_in_one_block,
        })
    }

    /// The number of this array as it was opened now.
    pub fn id(&self) -> ArrayId {
        self.id
    }

    /// What its document says.
    pub fn model(&self) -> &model::Array {
        &self.model
    }

    /// Elements along each dimension of a chunk that is shown: of the innermost, where shards nest.
    /// On a rectilinear grid the longest along each.
    pub fn chunk_shape(&self) -> &[u64] {
        &self.chunk_shape
    }

    /// The chunk shape as JSON: a length for each dimension, or where chunks differ along one,
    /// their lengths.
    pub fn chunk_shape_json(&self) -> Value {
        match &self.model.rectilinear {
            Some(runs) => chunk_shapes(runs),
            None => json!(self.chunk_shape),
        }
    }

    /// Elements along each dimension of the chunk at `coords`.
    pub fn chunk_shape_at(&self, coords: &Coords) -> Result<Vec<u64>> {
        self.grid().chunk_shape_at(coords)
    }

    /// Bytes of the decoded chunk at `coords`.
    pub fn chunk_len(&self, coords: &Coords) -> Result<ChunkLen> {
        if self.model.rectilinear.is_none() {
            return Ok(self.chunk_len);
        }
        ChunkLen::of(&self.chunk_shape_at(coords)?, &self.model.dtype, self.max_chunk_len)
    }

    /// Bytes of the longest decoded chunk.
    pub fn longest_chunk_len(&self) -> ChunkLen {
        self.chunk_len
    }

    /// The grid of the chunks that are shown.
    pub fn grid(&self) -> &Grid {
        self.chunks.grid()
    }

    /// The encoded chunks.
    pub fn chunks(&self) -> &Arc<dyn ChunkStore> {
        &self.chunks
    }

    /// Where its chunks begin.
    pub fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    /// Whether a chunk that was stored may read back changed, because of a codec that loses
    /// something.
    pub fn is_lossy(&self) -> bool {
        self.pipelines.as_ref().is_ok_and(Pipelines::is_lossy)
    }

    /// Whether the chunk at `coords` reads back as it was written, once it is stored.
    pub fn reads_as_written(&self, coords: &Coords) -> bool {
        let Ok(pipeline) = self.pipeline(coords) else { return false };
        let is_whole = || {
            let extent = self.grid().extent(coords, &self.model.shape);
            extent.ok() == self.chunk_shape_at(coords).ok()
        };
        !self.is_lossy() && (!pipeline.crops() || is_whole())
    }

    /// A file of the store that has the decoded chunk at `coords` and nothing else, and what is
    /// known of it; none where it must be decoded, or the store has no files.
    pub fn open_decoded(&self, coords: &Coords) -> Result<Option<(OwnedFd, Stat)>> {
        if !self.is_stored_decoded(coords) {
            return Ok(None);
        }
        let len = self.chunk_len(coords)?.exactly();
        let found = self.store.read().open(&self.key(coords)?)?;
        Ok(found.filter(|(_, stat)| Some(stat.len) == len))
    }

    /// Whether the chunk at `coords` is stored as it is, by itself.
    pub fn is_stored_decoded(&self, coords: &Coords) -> bool {
        !self.is_sharded() && self.pipeline(coords).is_ok_and(|pipeline| pipeline.is_identity())
    }

    /// Whether a range of the decoded chunk at `coords` takes less to read than all of it: its
    /// elements are stored one by one, or compressed in blocks.
    pub fn has_ranges(&self, coords: &Coords) -> bool {
        !self.is_in_one_block.load(Ordering::Relaxed)
            && self.pipeline(coords).is_ok_and(|pipeline| pipeline.has_ranges())
    }

    /// Whether its elements are stored one by one: each can be read without others.
    pub fn is_by_element(&self) -> bool {
        self.pipelines.as_ref().is_ok_and(Pipelines::is_by_element)
    }

    /// A range of the bytes of a chunk that has ranges, of whole elements, what is stored of the
    /// chunk, and how many of its bytes were decoded; none where none is stored, or one of another
    /// length, or where most of it must be decoded for that.
    pub fn read_range(
        &self,
        coords: &Coords,
        range: &Range<usize>,
    ) -> Result<Option<(Buffer, Stat, usize)>> {
        let pipeline = self.pipeline(coords)?;
        let Range { start, end } = pipeline.encoded_range(range);
        let wanted = ByteRange::Span { offset: start, len: end.saturating_sub(start) };
        let values = self.chunks.get_partial_values(&[(coords.clone(), wanted)]);
        let Some(value) = values?.pop().flatten() else {
            return Ok(None);
        };
        let is_of_len = match pipeline.encoded_len() {
            Some(len) => value.stat.len == len,
            None => value.stat.len <= pipeline.longest(),
        };
        if !is_of_len {
            return Ok(None);
        }
        let part = pipeline.decode_range(value.bytes, range)?;
        self.is_in_one_block.fetch_or(part.is_none(), Ordering::Relaxed);
        Ok(part.map(|(bytes, decoded_len)| (bytes, value.stat, decoded_len)))
    }

    /// Why its chunks cannot be decoded, if so.
    pub fn not_understood(&self) -> Option<&Error> {
        self.pipelines.as_ref().err()
    }

    /// Refuses a chunk that cannot be decoded whatever its bytes are: of an array that is not
    /// understood, or too long.
    pub fn check_readable(&self, coords: &Coords) -> Result<()> {
        self.pipeline(coords).map(drop)
    }

    /// What the chunk at `coords` goes through.
    fn pipeline(&self, coords: &Coords) -> Result<Bound<'_>> {
        let pipelines = self.pipelines.as_ref().map_err(Clone::clone)?;
        pipelines.of(|| self.chunk_shape_at(coords))
    }

    /// The elements of the chunk at `coords`.
    fn elements(&self, coords: &Coords) -> Result<Elements> {
        let dtype = self.model.dtype.clone();
        Ok(Elements { shape: self.chunk_shape_at(coords)?, dtype })
    }

    /// Whether another binding has the same elements at the same places.
    pub fn has_elements_of(&self, other: &Self) -> bool {
        let (one, two) = (&self.model, &other.model);
        std::ptr::eq(self, other)
            || (one.shape == two.shape
                && one.dtype == two.dtype
                && one.fill == two.fill
                && self.chunk_shape() == other.chunk_shape()
                && self.grid() == other.grid())
    }

    /// Whether a decoded chunk of `other` means the same in this array: type and chunk grid are
    /// equal. The shape may differ, as after a resize.
    pub fn has_chunks_of(&self, other: &Self) -> bool {
        let (one, two) = (&self.model, &other.model);
        std::ptr::eq(self, other)
            || (one.dtype == two.dtype
                && self.chunk_shape() == other.chunk_shape()
                && one.rectilinear == two.rectilinear)
    }

    /// Length, time and version of an encoded chunk; `None` where it is not stored.
    pub fn stat(&self, coords: &Coords) -> Result<Option<Stat>> {
        Ok(self.chunks.stat(std::slice::from_ref(coords))?.pop().flatten())
    }

    /// The same of several chunks.
    pub fn stat_many(&self, coords: &[Coords]) -> Result<Vec<Option<Stat>>> {
        self.chunks.stat(coords)
    }

    /// Bytes of the stored value that a chunk lies in: of the shard where there are shards.
    pub fn stored_len(&self, coords: &Coords) -> Result<Option<u64>> {
        Ok(self.store.stat(&self.key(coords)?)?.map(|stat| stat.len))
    }

    /// The key of the stored value that a chunk lies in.
    pub fn key(&self, coords: &Coords) -> Result<Key> {
        self.chunks.key(coords)
    }

    /// Whether `relative`, a path below the array in the store, can be that of chunks: a key, or
    /// what keys begin with.
    pub fn owns(&self, relative: &str) -> bool {
        let encoding = self.model.key_encoding;
        let is_level =
            key_encoding::level(encoding, &[]).is_some_and(|(level, _)| level == relative);
        is_level
            || key_encoding::is_level_of_n5(encoding, relative, self.grid().rank())
            || (0..=self.grid().rank()).any(|rank| {
                let is_whole = rank == self.grid().rank();
                let may_be_cut = rank > 0 && key_encoding::level(encoding, &[]).is_some();
                (is_whole || may_be_cut) && decode_key(encoding, relative, rank).is_some()
            })
    }

    /// The decoded chunk and what is stored of it; `None` where it is not stored.
    pub fn read_chunk(&self, coords: &Coords) -> Result<Option<(Buffer, Stat)>> {
        let pipeline = self.pipeline(coords)?;
        let range = (coords.clone(), ByteRange::first(pipeline.longest()));
        let Some(value) = self.chunks.get_partial_values(&[range])?.pop().flatten() else {
            return Ok(None);
        };
        let named = |error: Error| match self.key(coords) {
            Ok(key) => error.at_key(&key),
            Err(_) => error.at_coords(coords),
        };
        if value.stat.len > pipeline.longest() {
            let longest = self.chunk_len(coords)?.longest();
            return Err(named(Error::corrupt(format!(
                "{} bytes stored, too many for a chunk of {longest} bytes",
                value.stat.len
            ))));
        }
        let decoded = pipeline.decode(value.bytes).map_err(named)?;
        Ok(Some((decoded, value.stat)))
    }

    /// Stores decoded chunks, and erases those that are `None`. Of the chunks of one shard all are
    /// changed or none. What others change in the same shards meanwhile is kept. Returns for each
    /// what is stored then.
    pub fn write_chunks(
        &self,
        chunks: Vec<(Coords, Option<Buffer>)>,
        fill: FillChunks,
    ) -> Result<Vec<Option<Stat>>> {
        let always = |(coords, decoded)| (coords, decoded, Condition::Always);
        self.write_chunks_if(chunks.into_iter().map(always).collect(), fill)
    }

    /// The same, if of each chunk its condition holds: else
    /// [`Kind::Stale`](crate::error::Kind::Stale) or [`Kind::Exists`](crate::error::Kind::Exists).
    pub fn write_chunks_if(
        &self,
        chunks: Vec<(Coords, Option<Buffer>, Condition)>,
        fill: FillChunks,
    ) -> Result<Vec<Option<Stat>>> {
        self.pipelines.as_ref().map_err(Clone::clone)?;
        let change = |(coords, decoded, condition): (Coords, Option<Buffer>, Condition)| {
            let value = match decoded {
                Some(decoded) if !self.is_skipped(&coords, &decoded, fill) => {
                    let encoded = self.encode(&coords, decoded);
                    Some(vec![encoded.map_err(|e| e.at_coords(&coords))?.into()])
                }
                _ => None,
            };
            Ok(Change { coords, value, condition })
        };
        self.chunks.update(parallel::map(chunks, || Ok(()), |(), chunk| change(chunk))?)
    }

    /// Whether a chunk is erased instead of stored, since it equals the fill value bit for bit.
    pub fn is_skipped(&self, coords: &Coords, decoded: &[u8], fill: FillChunks) -> bool {
        fill == FillChunks::Skip && self.is_fill(coords, decoded)
    }

    /// How many chunks of the grid lie in the stored value that the chunk at `coords` lies in: 1,
    /// or as many as its shard has.
    pub fn chunks_beside(&self, coords: &Coords) -> u64 {
        let outer = self.model.chunk_shape.iter().zip(&self.chunk_shape);
        let along = coords.indices().iter().zip(outer).zip(self.grid().counts());
        along
            .map(|((index, (outer, inner)), count)| {
                let most = outer.checked_div(*inner).unwrap_or(1).max(1);
                let first = index / most * most;
                count.saturating_sub(first).min(most)
            })
            .fold(1, u64::saturating_mul)
    }

    /// Whether several chunks may lie in one stored value.
    pub fn is_sharded(&self) -> bool {
        self.model.rectilinear.is_none() && self.model.chunk_shape != self.chunk_shape
    }

    fn encode(&self, coords: &Coords, decoded: Buffer) -> Result<Bytes> {
        let extent = self.grid().extent(coords, &self.model.shape)?;
        self.pipeline(coords)?.encode(decoded, &extent)
    }

    /// A chunk of nothing but the fill value.
    pub fn fill_chunk(&self, coords: &Coords) -> Result<Buffer> {
        self.check_readable(coords)?;
        let item = self.model.fill.item(&self.model.dtype);
        let len = match self.chunk_len(coords)? {
            ChunkLen::Exactly(len) => usize::try_from(len)
                .map_err(|_| Error::too_large("the chunk does not fit into memory"))?,
            ChunkLen::UpTo(limit) => {
                let form = vlen::Form::new(&self.elements(coords)?)?;
                return form.filled(&item, limit).map(Buffer::from);
            }
        };
        if item.iter().all(|byte| *byte == 0) {
            return Buffer::zeroed(len);
        }
        let mut bytes = reserve(len)?;
        while bytes.len() < len {
            bytes.extend_from_slice(&item);
        }
        Ok(bytes.into())
    }

    /// Refuses bytes that are no decoded chunk: of another length, or elements that are not those
    /// of the chunk.
    pub fn check_decoded(&self, coords: &Coords, bytes: &[u8]) -> Result<()> {
        self.elements(coords)?.check(bytes)
    }

    /// Whether bytes of a chunk's length are an encoded chunk, by a chance that a compressor takes
    /// sometimes.
    pub fn is_encoded(&self, coords: &Coords, bytes: &[u8]) -> bool {
        self.pipeline(coords).is_ok_and(|pipeline| pipeline.is_encoded(bytes))
    }

    fn is_fill(&self, coords: &Coords, decoded: &[u8]) -> bool {
        if !self.model.fill.is_defined() {
            return false;
        }
        let item = self.model.fill.item(&self.model.dtype);
        match self.chunk_len(coords) {
            // Of a wrong length it is no chunk at all.
            Ok(ChunkLen::Exactly(len)) => {
                u64::try_from(decoded.len()).is_ok_and(|found| found == len)
                    && decoded.chunks_exact(item.len().max(1)).all(|element| element == &*item)
            }
            Ok(ChunkLen::UpTo(_)) => self
                .elements(coords)
                .and_then(|elements| vlen::Form::new(&elements))
                .is_ok_and(|form| form.is_filled(decoded, &item)),
            Err(_) => false,
        }
    }

    /// Erases the chunks that lie wholly outside of `shape`. If a shard is damaged, erases the
    /// others and then returns the error.
    pub fn erase_outside(&self, shape: &[u64]) -> Result<()> {
        if shape.len() != self.grid().rank() {
            return Err(Error::invalid(format!(
                "shape {shape:?} has another number of dimensions"
            )));
        }
        let inside = self.grid().resized(shape);
        let shrunk = inside.counts().iter().zip(self.grid().counts()).any(|(new, old)| new < old);
        if !shrunk {
            return Ok(());
        }
        let (mut outside, mut failure): (Vec<(Key, Coords)>, _) = (Vec::new(), None);
        for coords in Arc::clone(&self.chunks).list()? {
            match coords {
                Ok(coords) if inside.contains(&coords) => {}
                Ok(coords) => {
                    let key = self.chunks.key(&coords)?;
                    // The chunks of one shard are listed one after another, and go together.
                    let is_next = outside.last().is_some_and(|(last, _)| *last != key);
                    if is_next && outside.len() >= MAX_ERASED {
                        failure = self.erase_shards(&outside).err().or(failure);
                        outside.clear();
                    }
                    outside.push((key, coords));
                }
                Err(error) => failure = Some(error),
            }
        }
        failure = self.erase_shards(&outside).err().or(failure);
        failure.map_or(Ok(()), Err)
    }

    /// Erases chunks, those of one shard together. The last error comes after all others were
    /// tried.
    fn erase_shards(&self, chunks: &[(Key, Coords)]) -> Result<()> {
        let mut failure = None;
        // Not the indexes of all shards at once into memory.
        for shard in chunks.chunk_by(|(one, _), (other, _)| one == other) {
            let coords: Vec<Coords> = shard.iter().map(|(_, coords)| coords.clone()).collect();
            failure = self.chunks.erase_values(&coords).err().or(failure);
        }
        failure.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests;
