//! An open array: coordinates to chunks.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use bytes::Bytes;
use serde_json::{Value, json};

use super::bound::{ChunkLen, Pipelines};
use super::by_shape::Bound;
use super::chunk_store::{ChunkChange, ChunkStore, Direct};
use super::coords::{Coords, Grid};
use super::form::ArrayForm;
use super::id::ArrayId;
use super::key_encoding::{self, decode as decode_key};
use super::layers;
use super::layout::{ShardLayout, ShardWrite};
use super::shard_cache::ShardCaches;
use super::sharded::Sharded;
use crate::metadata::{chunk_shapes, model};
use zarrfs_base::admission;
use zarrfs_base::buffer::{Buffer, reserve};
use zarrfs_base::error::{Error, Result, WithSubject};
use zarrfs_base::parallel;
use zarrfs_codec::{ChunkType, vlen};
use zarrfs_store::{ByteRange, Condition, Expected, Key, Prefix, Stat, Store};

/// What to do with a chunk that equals the fill value bit for bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FillChunks {
    /// Store it like any other.
    Store,
    /// Erase it; reading returns the same.
    Skip,
}

/// How to open an array.
#[derive(Debug, Clone)]
pub struct ArrayOptions {
    /// The most bytes of a decoded chunk. Longer ones are listed but not read.
    pub max_chunk_len: u64,
    /// How to write shards.
    pub layout: ShardLayout,
    /// The caches that it shares with other arrays.
    pub shards: Arc<ShardCaches>,
}

impl ArrayOptions {
    /// Returns the options for chunks of at most `max_chunk_len` bytes, with caches of its own.
    pub fn new(max_chunk_len: u64) -> Self {
        Self { max_chunk_len, layout: ShardLayout::default(), shards: Arc::default() }
    }
}

/// An array, bound to a store.
#[derive(Debug)]
pub struct Array {
    pub(super) id: ArrayId,
    pub(super) model: model::ArrayMetadata,
    /// The shape of the chunks that are shown, the innermost.
    pub(super) chunk_shape: Vec<u64>,
    /// The length of the longest chunk.
    pub(super) chunk_len: ChunkLen,
    pub(super) options: ArrayOptions,
    pub(super) chunks: Arc<dyn ChunkStore>,
    /// The chunk stores from the values of the store to the innermost chunks.
    pub(super) levels: Arc<[Arc<dyn ChunkStore>]>,
    pub(super) pipelines: Arc<Result<Pipelines>>,
    pub(super) prefix: Prefix,
    pub(super) store: Store,
    /// Whether reading a range once had to decode most of its chunk. If so, no other chunk is
    /// tried, since all chunks of an array are compressed alike.
    pub(super) is_in_one_block: AtomicBool,
    pub(super) form: ArrayForm,
}

impl Array {
    /// Binds `model` to the chunks below `prefix`.
    pub fn open(
        model: model::ArrayMetadata,
        store: &Store,
        prefix: Prefix,
        options: ArrayOptions,
    ) -> Result<Self> {
        let max_chunk_len = options.max_chunk_len;
        let direct =
            Direct::new(store.clone(), prefix.clone(), model.key_encoding, Grid::of(&model));
        let mut chunks: Arc<dyn ChunkStore> = Arc::new(direct);
        let mut all = vec![Arc::clone(&chunks)];
        let mut chunk_shape = model.chunk_shape.clone();
        let stack = match layers::split(&model, max_chunk_len) {
            Ok(layers) => {
                let mut layout = options.layout;
                for (level, inner) in layers.levels {
                    let grid = Grid::regular(&model.shape, &inner);
                    let caches = Arc::clone(&options.shards);
                    chunks = Arc::new(Sharded::new(chunks, level, grid, layout, caches));
                    all.push(Arc::clone(&chunks));
                    chunk_shape = inner;
                    // Nested shards cannot stay in place.
                    layout.write = ShardWrite::Rewrite;
                }
                Ok(layers.stack)
            }
            Err(error) => Err(error),
        };
        let chunk_len = ChunkLen::of(&chunk_shape, &model.dtype, max_chunk_len)?;
        let pipelines = stack.and_then(|stack| {
            if chunks.grid().is_regular() {
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
            options,
            chunks,
            levels: all.into(),
            pipelines: Arc::new(pipelines),
            prefix,
            store,
            is_in_one_block,
            form: ArrayForm::decoded(),
        })
    }

    /// Returns the number of this open array.
    pub fn id(&self) -> ArrayId {
        self.id
    }

    /// Returns its metadata.
    pub fn model(&self) -> &model::ArrayMetadata {
        &self.model
    }

    /// Returns the shape of the chunks that are shown, the innermost. On a rectilinear grid this is
    /// the longest length along each dimension.
    pub fn chunk_shape(&self) -> &[u64] {
        &self.chunk_shape
    }

    /// Returns the chunk shape as JSON: a length for each dimension, or a list of lengths if they
    /// differ.
    pub fn chunk_shape_json(&self) -> Value {
        match &self.model.rectilinear {
            Some(runs) if !self.grid().is_regular() => chunk_shapes(runs),
            Some(_) | None => json!(self.chunk_shape),
        }
    }

    /// Returns the shape of the chunk at `coords`.
    pub fn chunk_shape_at(&self, coords: &Coords) -> Result<Vec<u64>> {
        self.grid().chunk_shape_at(coords)
    }

    /// Returns the decoded length of the chunk at `coords`.
    pub fn chunk_len(&self, coords: &Coords) -> Result<ChunkLen> {
        if self.grid().is_regular() || self.is_encoded() {
            return Ok(self.chunk_len);
        }
        ChunkLen::of(&self.chunk_shape_at(coords)?, &self.model.dtype, self.options.max_chunk_len)
    }

    /// Whether the length of a chunk does not follow from its shape.
    pub fn has_variable_len(&self) -> bool {
        self.chunk_len.exactly().is_none()
    }

    /// Returns the length of a stored chunk with this stat; `None` if it must be decoded for that.
    pub fn len_of_stored(&self, coords: &Coords, stat: &Stat) -> Result<Option<u64>> {
        if self.is_encoded() {
            return Ok(Some(stat.len));
        }
        Ok(self.chunk_len(coords)?.exactly())
    }

    /// Returns the length of the longest decoded chunk.
    pub fn longest_chunk_len(&self) -> ChunkLen {
        self.chunk_len
    }

    /// Returns the grid of the chunks that are shown.
    pub fn grid(&self) -> &Grid {
        self.chunks.grid()
    }

    /// Returns the store of encoded chunks.
    pub fn chunks(&self) -> &Arc<dyn ChunkStore> {
        &self.chunks
    }

    /// Returns the chunk stores from that of the stored values to that of the innermost chunks.
    pub fn levels(&self) -> &[Arc<dyn ChunkStore>] {
        &self.levels
    }

    /// Returns the prefix of its chunks.
    pub fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    /// Whether a stored chunk may read back changed because of a lossy codec.
    pub fn is_lossy(&self) -> bool {
        self.pipelines.as_ref().as_ref().is_ok_and(Pipelines::is_lossy)
    }

    /// Whether the chunk at `coords` reads back as it was written.
    pub fn reads_as_written(&self, coords: &Coords) -> bool {
        let Ok(pipeline) = self.pipeline(coords) else { return false };
        let is_whole = || {
            let extent = self.grid().extent(coords, &self.model.shape);
            extent.ok() == self.chunk_shape_at(coords).ok()
        };
        !self.is_lossy() && (!pipeline.crops() || is_whole())
    }

    /// Opens a file of the store with exactly the decoded chunk at `coords`; `None` if it must be
    /// decoded, or the store has no files.
    pub fn open_decoded(&self, coords: &Coords) -> Result<Option<(OwnedFd, Stat)>> {
        if !self.is_stored_decoded(coords) {
            return Ok(None);
        }
        let len = self.chunk_len(coords)?.exactly();
        let found = self.store.read().open(&self.key(coords)?)?;
        Ok(found.filter(|(_, stat)| self.is_encoded() || Some(stat.len) == len))
    }

    /// Whether the chunk at `coords` is stored uncompressed in a value of its own.
    pub fn is_stored_decoded(&self, coords: &Coords) -> bool {
        !self.is_sharded() && self.pipeline(coords).is_ok_and(|pipeline| pipeline.is_identity())
    }

    /// Whether a range of the chunk at `coords` can be read for less than the whole: its elements
    /// are stored one by one, or compressed in blocks.
    pub fn has_ranges(&self, coords: &Coords) -> bool {
        !self.is_in_one_block.load(Ordering::Relaxed)
            && self.pipeline(coords).is_ok_and(|pipeline| pipeline.has_ranges())
    }

    /// Whether each element is stored by itself.
    pub fn is_by_element(&self) -> bool {
        self.pipelines.as_ref().as_ref().is_ok_and(Pipelines::is_by_element)
    }

    /// Reads a range of whole elements from a chunk that has ranges. Returns the bytes, the stat of
    /// the chunk, and how many bytes were decoded. `None` if no chunk is stored, if it has another
    /// length, or if most of it must be decoded.
    pub fn read_range(
        &self,
        coords: &Coords,
        range: &Range<usize>,
    ) -> Result<Option<(Buffer, Stat, usize)>> {
        let pipeline = self.pipeline(coords)?;
        if pipeline.needs_most_for(range) {
            return Ok(None);
        }
        let is_whole = !pipeline.is_by_element();
        let memory = if is_whole { pipeline.decoder_memory(pipeline.usual_len()) } else { 0 };
        let _memory = admission::enter(memory);
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

    /// Returns the reason why its chunks cannot be decoded.
    pub fn not_understood(&self) -> Option<&Error> {
        self.pipelines.as_ref().as_ref().err()
    }

    /// Refuses a chunk that can never be decoded: the array is not understood, or the chunk is too
    /// long.
    pub fn check_readable(&self, coords: &Coords) -> Result<()> {
        self.pipeline(coords).map(drop)
    }

    /// Returns the pipeline of the chunk at `coords`.
    pub(super) fn pipeline(&self, coords: &Coords) -> Result<Bound<'_>> {
        let pipelines = self.pipelines.as_ref().as_ref().map_err(Clone::clone)?;
        pipelines.of(|| self.chunk_shape_at(coords))
    }

    /// Returns the elements of the chunk at `coords`.
    fn elements(&self, coords: &Coords) -> Result<ChunkType> {
        let dtype = self.model.dtype.clone();
        Ok(ChunkType { shape: self.chunk_shape_at(coords)?, dtype })
    }

    /// Whether another array has the same elements at the same places.
    pub fn has_elements_of(&self, other: &Self) -> bool {
        let (one, two) = (&self.model, &other.model);
        std::ptr::eq(self, other)
            || (self.encoded_levels() == other.encoded_levels()
                && one.shape == two.shape
                && one.dtype == two.dtype
                && one.fill == two.fill
                && self.chunk_shape() == other.chunk_shape()
                && self.grid() == other.grid())
    }

    /// Whether chunks of `other` are chunks of this array: they are open in the same form, and
    /// their metadata mean the same. The shape may differ, as after a resize.
    pub fn has_chunks_of(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
            || (self.encoded_levels() == other.encoded_levels()
                && self.model.means_same(&other.model))
    }

    /// Returns the stat of an encoded chunk; `None` if it is not stored.
    pub fn stat(&self, coords: &Coords) -> Result<Option<Stat>> {
        Ok(self.chunks.stat(std::slice::from_ref(coords))?.pop().flatten())
    }

    /// Notes the modification times that a program has set for stored chunks. Returns the time that
    /// the stored value with them gets; `None` if it has other chunks, whose times were not set.
    pub fn set_modified(&self, times: &[(Coords, SystemTime)]) -> Result<Option<SystemTime>> {
        self.chunks.set_modified(times)
    }

    /// Whether the store has any chunk of it now.
    pub fn holds_chunks(&self) -> Result<bool> {
        self.chunks.forget();
        Ok(Arc::clone(&self.chunks).list()?.next().transpose()?.is_some())
    }

    /// Returns the stats of several chunks.
    pub fn stat_many(&self, coords: &[Coords]) -> Result<Vec<Option<Stat>>> {
        self.chunks.stat(coords)
    }

    /// Returns the length of the stored value that contains a chunk, which may be a shard.
    pub fn stored_len(&self, coords: &Coords) -> Result<Option<u64>> {
        Ok(self.store.stat(&self.key(coords)?)?.map(|stat| stat.len))
    }

    /// Returns the key of the stored value that contains a chunk.
    pub fn key(&self, coords: &Coords) -> Result<Key> {
        self.chunks.key(coords)
    }

    /// Returns the key of the stored value that contains the chunk at `coords` of a level of
    /// [`Self::levels`].
    pub fn key_of_level(&self, level: usize, coords: &Coords) -> Result<Key> {
        self.levels.get(level).unwrap_or(&self.chunks).key(coords)
    }

    /// Whether `relative`, a path below the array in the store, can belong to chunks: as a key, or
    /// as a prefix of keys.
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

    /// Adds to the next chunks of a sequence those beside them in their shards, where they are many
    /// of a shard: the sequence will read the others later.
    pub fn with_others(&self, coords: &[Coords]) -> Vec<Coords> {
        self.chunks.with_others(coords)
    }

    /// Notes that these chunks will be read soon, so that a store that takes long requests them
    /// together. May wait for the indexes of shards. Errors are reported when a chunk is read.
    pub fn expect(&self, coords: &[Coords]) -> Expected {
        let range_of = |coords: &Coords| {
            Some((coords.clone(), ByteRange::first(self.pipeline(coords).ok()?.longest())))
        };
        let ranges: Vec<_> = coords.iter().filter_map(range_of).collect();
        let expected = self.chunks.expect(&ranges);
        expected.inspect_err(|error| log::debug!("expecting chunks: {error}")).unwrap_or_default()
    }

    /// Stores decoded chunks, as [`Current::write_chunks`](super::Current::write_chunks) does.
    pub(super) fn write_chunks(
        &self,
        chunks: Vec<(Coords, Option<Buffer>)>,
        fill: FillChunks,
    ) -> Result<Vec<Option<Stat>>> {
        let always = |(coords, decoded)| (coords, decoded, Condition::Always);
        self.write_chunks_if(chunks.into_iter().map(always).collect(), fill)
    }

    /// Like [`Self::write_chunks`], with a condition for each chunk.
    pub(super) fn write_chunks_if(
        &self,
        chunks: Vec<(Coords, Option<Buffer>, Condition)>,
        fill: FillChunks,
    ) -> Result<Vec<Option<Stat>>> {
        self.pipelines.as_ref().as_ref().map_err(Clone::clone)?;
        let can_erase = self.chunks.erases_unchanged();
        let change = |(coords, decoded, condition): (Coords, Option<Buffer>, Condition)| {
            let fill = match condition {
                Condition::Unchanged(_) if !can_erase => FillChunks::Store,
                _ => fill,
            };
            let value = match decoded {
                Some(decoded) if !self.is_skipped(&coords, &decoded, fill) => {
                    let encoded = self.encode(&coords, decoded);
                    Some(vec![encoded.map_err(|e| e.at(&coords))?.into()])
                }
                _ => None,
            };
            Ok(ChunkChange { coords, value, condition })
        };
        // A chunk that is erased takes none.
        let memory = |(coords, decoded, _): &(Coords, Option<Buffer>, Condition)| {
            let encoded = self.pipeline(coords).ok().zip(decoded.as_ref());
            encoded.map_or(0, |(pipeline, bytes)| pipeline.encoder_memory(bytes.len()))
        };
        self.chunks.update(parallel::map_within(
            chunks,
            memory,
            || Ok(()),
            |(), chunk| change(chunk),
        )?)
    }

    /// Whether a chunk is erased instead of stored, because it equals the fill value bit for bit.
    pub fn is_skipped(&self, coords: &Coords, decoded: &[u8], fill: FillChunks) -> bool {
        fill == FillChunks::Skip && self.is_fill(coords, decoded)
    }

    /// Whether the store has checksums of shards, which a read of some of their chunks does not
    /// compare.
    pub fn has_checked_shards(&self) -> bool {
        self.is_sharded() && self.store.read().has_checksums()
    }

    /// Fails if a shard has another checksum than the store has of it.
    pub fn check_shard(&self, shard: &Coords) -> Result<()> {
        self.store.read().check_value(&self.key_of_level(0, shard)?)
    }

    /// Fails if an encoded chunk cannot be one: it has another length than all chunks of this shape
    /// have. If the length of encoded chunks varies, and the store may send something else than the
    /// value, as the page of an error, the chunk is decoded.
    pub fn check_copied(&self, coords: &Coords, encoded: &Bytes) -> Result<()> {
        let pipeline = self.pipeline(coords)?;
        let has_known_len = pipeline.check_encoded_len(encoded)?;
        let sends_pages = self.store.list().is_none_or(|list| !list.proves_absence());
        if has_known_len || !(sends_pages && self.store.read().is_remote()) {
            return Ok(());
        }
        pipeline.decode(encoded.clone()).map(drop)
    }

    /// Encodes a chunk.
    pub fn encode(&self, coords: &Coords, decoded: Buffer) -> Result<Bytes> {
        let extent = self.grid().extent(coords, &self.model.shape)?;
        let pipeline = self.pipeline(coords)?;
        let old = if pipeline.has_spellings() {
            let whole = [(coords.clone(), ByteRange::first(pipeline.longest()))];
            let found = self.chunks.get_partial_values(&whole)?;
            found.into_iter().next().flatten().map(|value| value.bytes)
        } else {
            None
        };
        pipeline.encode_over(decoded, &extent, old)
    }

    /// Returns the chunk file of a chunk of only this element: encoded if those of the array are.
    pub fn file_of(&self, coords: &Coords, item: &[u8]) -> Result<Buffer> {
        match self.decoded_form() {
            Some(decoded) => {
                decoded.encode(coords, decoded.chunk_of(coords, item)?).map(Buffer::from)
            }
            None => self.chunk_of(coords, item),
        }
    }

    /// Returns the chunk file of a chunk of only the fill value.
    pub fn fill_file(&self, coords: &Coords) -> Result<Buffer> {
        self.file_of(coords, &self.model.fill.item(&self.model.dtype))
    }

    /// Returns a chunk of only the fill value, no bytes if chunks are encoded.
    pub fn fill_chunk(&self, coords: &Coords) -> Result<Buffer> {
        self.chunk_of(coords, &self.model.fill.item(&self.model.dtype))
    }

    /// Returns a chunk of only this element, no bytes if chunks are encoded.
    pub fn chunk_of(&self, coords: &Coords, item: &[u8]) -> Result<Buffer> {
        self.check_readable(coords)?;
        if self.is_encoded() {
            return Ok(Vec::new().into());
        }
        let len = match self.chunk_len(coords)? {
            ChunkLen::Exactly(len) => usize::try_from(len)
                .map_err(|_| Error::too_large("the chunk does not fit into memory"))?,
            ChunkLen::UpTo(limit) => {
                let form = vlen::DecodedVlen::new(&self.elements(coords)?)?;
                return form.filled(item, limit).map(Buffer::from);
            }
        };
        if item.iter().all(|byte| *byte == 0) {
            return Buffer::zeroed(len);
        }
        let mut bytes = reserve(len)?;
        while bytes.len() < len {
            bytes.extend_from_slice(item);
        }
        Ok(bytes.into())
    }

    /// Fails for bytes that are not a chunk: a wrong length, invalid elements, or, in the encoded
    /// form, bytes that do not decode.
    pub fn check_chunk(&self, coords: &Coords, bytes: &[u8]) -> Result<()> {
        if self.is_encoded() {
            return self.check_encoded(coords, bytes);
        }
        self.elements(coords)?.check(bytes)
    }

    fn is_fill(&self, coords: &Coords, decoded: &[u8]) -> bool {
        if !self.model.fill.is_defined() || self.is_encoded() {
            return false;
        }
        let item = self.model.fill.item(&self.model.dtype);
        match self.chunk_len(coords) {
            // Other lengths are refused anyway.
            Ok(ChunkLen::Exactly(len)) => {
                u64::try_from(decoded.len()).is_ok_and(|found| found == len)
                    && decoded.chunks_exact(item.len().max(1)).all(|element| element == &*item)
            }
            Ok(ChunkLen::UpTo(_)) => self
                .elements(coords)
                .and_then(|elements| vlen::DecodedVlen::new(&elements))
                .is_ok_and(|form| form.is_filled(decoded, &item)),
            Err(_) => false,
        }
    }
}
