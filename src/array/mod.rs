//! An array: coordinates to decoded chunks.
//!
//! Opening one resolves codecs, lengths, keys and fill bytes once; a chunk that is
//! read looks nothing up. An array whose codecs are not understood opens all the same:
//! it has a shape and chunks that can be listed, and the reason why they cannot be decoded.

mod chunk_store;
mod coords;
mod kept;
mod key_encoding;
mod layers;
mod level;
mod sharded;

use std::sync::Arc;

use crate::codec::{Buffer, Pipeline, reserve};
use crate::error::{Error, Result};
use crate::metadata::model;
use crate::store::{ByteRange, Key, Prefix, Stat, Store};

pub use chunk_store::{Change, ChunkStore, CoordsList, Direct, Indices};
pub use coords::{Coords, Grid};
pub use key_encoding::{decode as decode_key, index as parse_index};
pub use sharded::Sharded;

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
    model: model::Array,
    /// Elements along each dimension of the chunks that are shown: the innermost.
    chunk_shape: Vec<u64>,
    chunk_len: u64,
    chunks: Arc<dyn ChunkStore>,
    pipeline: Result<Pipeline>,
    prefix: Prefix,
    store: Store,
}

impl Array {
    /// Binds `model` to the chunks below `prefix`. Chunks of more than `max_chunk_len` decoded bytes are
    /// listed but not read.
    pub fn open(
        model: model::Array,
        store: &Store,
        prefix: Prefix,
        max_chunk_len: u64,
    ) -> Result<Self> {
        let grid = Grid::regular(&model.shape, &model.chunk_shape);
        let direct = Direct::new(store.clone(), prefix.clone(), model.key_encoding, grid);
        let mut chunks: Arc<dyn ChunkStore> = Arc::new(direct);
        let mut chunk_shape = model.chunk_shape.clone();
        let pipeline = match layers::split(&model, max_chunk_len) {
            Ok(layers) => {
                for (level, inner) in layers.levels {
                    let grid = Grid::regular(&model.shape, &inner);
                    chunks = Arc::new(Sharded::new(chunks, level, grid));
                    chunk_shape = inner;
                }
                Ok(layers.pipeline)
            }
            Err(error) => Err(error),
        };
        let chunk_len = layers::chunk_len(&chunk_shape, &model.dtype)?;
        let pipeline = pipeline.and_then(|pipeline| {
            if chunk_len <= max_chunk_len {
                return Ok(pipeline);
            }
            Err(Error::too_large(format!(
                "a chunk has {chunk_len} bytes, the limit is {max_chunk_len} (--max-chunk-size)"
            )))
        });
        let store = store.clone();
        Ok(Self { model, chunk_shape, chunk_len, chunks, pipeline, prefix, store })
    }

    /// What its document says.
    pub fn model(&self) -> &model::Array {
        &self.model
    }

    /// Elements along each dimension of a chunk that is shown: of the innermost, where shards nest.
    pub fn chunk_shape(&self) -> &[u64] {
        &self.chunk_shape
    }

    /// Bytes of every decoded chunk.
    pub fn chunk_len(&self) -> u64 {
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

    /// Whether a chunk that was stored may read back changed, because of a codec that loses something.
    pub fn is_lossy(&self) -> bool {
        self.pipeline.as_ref().is_ok_and(Pipeline::is_lossy)
    }

    /// Why its chunks cannot be decoded, if so.
    pub fn not_understood(&self) -> Option<&Error> {
        self.pipeline.as_ref().err()
    }

    /// Length, time and version of an encoded chunk; `None` where it is not stored.
    pub fn stat(&self, coords: &Coords) -> Result<Option<Stat>> {
        Ok(self.chunks.stat(std::slice::from_ref(coords))?.pop().flatten())
    }

    /// Bytes of the stored value that a chunk lies in: of the shard where there are shards.
    pub fn stored_len(&self, coords: &Coords) -> Result<Option<u64>> {
        Ok(self.store.stat(&self.key(coords)?)?.map(|stat| stat.len))
    }

    /// The key of the stored value that a chunk lies in.
    pub fn key(&self, coords: &Coords) -> Result<Key> {
        self.chunks.key(coords)
    }

    /// Whether `relative`, a path below the array in the store, can be that of chunks: a key, or what
    /// keys begin with.
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
        let pipeline = self.pipeline.as_ref().map_err(Clone::clone)?;
        let range = (coords.clone(), ByteRange::first(pipeline.longest()));
        let Some(value) = self.chunks.get_partial_values(&[range])?.pop().flatten() else {
            return Ok(None);
        };
        let named = |error: Error| match self.key(coords) {
            Ok(key) => error.at_key(&key),
            Err(_) => error.at_coords(coords),
        };
        if value.stat.len > pipeline.longest() {
            return Err(named(Error::corrupt(format!(
                "{} bytes stored for a chunk of {} bytes",
                value.stat.len, self.chunk_len
            ))));
        }
        let decoded = pipeline.decode(value.bytes).map_err(named)?;
        Ok(Some((decoded, value.stat)))
    }

    /// Stores decoded chunks, and erases those that are `None`. Of the chunks of one shard all are
    /// changed or none. What others change in the same shards meanwhile is kept. Returns for each what
    /// is stored then.
    pub fn write_chunks(
        &self,
        chunks: Vec<(Coords, Option<Buffer>)>,
        fill: FillChunks,
    ) -> Result<Vec<Option<Stat>>> {
        let pipeline = self.pipeline.as_ref().map_err(Clone::clone)?;
        let mut changes = Vec::with_capacity(chunks.len());
        for (coords, decoded) in chunks {
            changes.push(match decoded {
                Some(decoded) if fill == FillChunks::Store || !self.is_fill(&decoded) => {
                    let extent = self.extent(&coords);
                    let encoded = pipeline.encode(decoded, &extent);
                    let encoded = encoded.map_err(|e| e.at_coords(&coords))?;
                    Change::set(coords, encoded)
                }
                _ => Change::erase(coords),
            });
        }
        self.chunks.update(changes)
    }

    /// How many elements of a chunk lie in the array, along each dimension.
    fn extent(&self, coords: &Coords) -> Vec<u64> {
        let along = coords.indices().iter().zip(&self.chunk_shape).zip(&self.model.shape);
        along
            .map(|((index, chunk), len)| {
                len.saturating_sub(index.saturating_mul(*chunk)).min(*chunk)
            })
            .collect()
    }

    /// A chunk of nothing but the fill value.
    pub fn fill_chunk(&self) -> Result<Buffer> {
        self.pipeline.as_ref().map_err(Clone::clone)?;
        let len = usize::try_from(self.chunk_len)
            .map_err(|_| Error::too_large("a chunk that does not fit into memory"))?;
        let item = self.model.fill.item(&self.model.dtype);
        if item.iter().all(|byte| *byte == 0) {
            return Buffer::zeroed(len);
        }
        let mut bytes = reserve(len)?;
        while bytes.len() < len {
            bytes.extend_from_slice(&item);
        }
        Ok(bytes.into())
    }

    /// Whether bytes of a chunk's length are an encoded chunk, by a chance that a compressor takes sometimes.
    pub fn is_encoded(&self, bytes: &[u8]) -> bool {
        self.pipeline.as_ref().is_ok_and(|pipeline| pipeline.is_encoded(bytes))
    }

    fn is_fill(&self, decoded: &[u8]) -> bool {
        let item = self.model.fill.item(&self.model.dtype);
        self.model.fill.is_defined()
            // Of a wrong length it is no chunk at all.
            && u64::try_from(decoded.len()).is_ok_and(|len| len == self.chunk_len)
            && decoded.chunks_exact(item.len().max(1)).all(|element| element == &*item)
    }

    /// Erases the chunks that lie wholly outside of `shape`. Where a shard is damaged the others are
    /// erased all the same, and the error comes last.
    pub fn erase_outside(&self, shape: &[u64]) -> Result<()> {
        if shape.len() != self.grid().rank() {
            return Err(Error::invalid(format!("{shape:?} is not a shape of the same dimensions")));
        }
        let inside = Grid::regular(shape, &self.chunk_shape);
        let shrunk = inside.counts().iter().zip(self.grid().counts()).any(|(new, old)| new < old);
        if !shrunk {
            return Ok(());
        }
        let mut outside = Vec::new();
        let mut failure = None;
        for coords in Arc::clone(&self.chunks).list()? {
            match coords {
                Ok(coords) if inside.contains(&coords) => {}
                Ok(coords) => outside.push((self.chunks.key(&coords)?, coords)),
                Err(error) => failure = Some(error),
            }
        }
        // Those of one shard go together, but not the indexes of all shards at once into memory.
        for shard in outside.chunk_by(|(one, _), (other, _)| one == other) {
            let coords: Vec<Coords> = shard.iter().map(|(_, coords)| coords.clone()).collect();
            if let Err(error) = self.chunks.erase_values(&coords) {
                failure = Some(error);
            }
        }
        failure.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests;
