//! The two forms of an array's chunks: decoded, or as the codecs of its metadata encode them.
//!
//! Both forms are an [`Array`], so everything above it (cache, pending chunks, chunk files) handles
//! them alike. The chunks of the encoded form are any bytes of any length. They belong to the grid
//! of the array's metadata: in a sharded array, an encoded chunk is a whole shard. Only shards that
//! the mount added to the metadata ([`Levels`]) are hidden: then an encoded chunk is an inner chunk
//! of these.

use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;

use super::bound::{ChunkLen, Pipelines};
use super::chunk_store::ChunkStore;
use super::coords::Coords;
use super::id::ArrayId;
use super::open::Array;
use crate::metadata::model::{ArrayMetadata, Levels};
use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_base::parallel;
use zarrfs_codec::{ChunkType, Pipeline};
use zarrfs_store::{NewFile, Stat};

/// How to treat encoded chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoded {
    /// The levels that the mount added.
    pub levels: Levels,
    /// Whether encoded chunks are stored without decoding them first.
    pub is_trusted: bool,
}

/// The form of an open array.
#[derive(Debug)]
pub(super) enum ArrayForm {
    /// Chunks are decoded. Its encoded forms, once they were opened.
    Decoded { by_maker: OnceLock<Arc<Array>>, by_mount: OnceLock<Arc<Array>> },
    /// Chunks are encoded.
    Encoded(EncodedForm),
}

/// The link of an encoded form to the decoded one.
#[derive(Debug)]
pub(super) struct EncodedForm {
    decoded: Weak<Array>,
    how: Encoded,
    /// The innermost chunks, and their codecs.
    chunks: Arc<dyn ChunkStore>,
    pipelines: Arc<Result<Pipelines>>,
}

impl ArrayForm {
    pub(super) fn decoded() -> Self {
        Self::Decoded { by_maker: OnceLock::new(), by_mount: OnceLock::new() }
    }
}

impl Array {
    /// Returns the encoded form of this array, which is decoded.
    pub fn encoded(self: &Arc<Self>, how: Encoded) -> Arc<Self> {
        let ArrayForm::Decoded { by_maker, by_mount } = &self.form else {
            return Arc::clone(self);
        };
        let opened = match how.levels {
            Levels::Mount if self.levels.len() > 1 => by_mount,
            Levels::Mount | Levels::Maker => by_maker,
        };
        Arc::clone(opened.get_or_init(|| Arc::new(self.open_encoded(how))))
    }

    fn open_encoded(self: &Arc<Self>, how: Encoded) -> Self {
        let at = match how.levels {
            Levels::Mount => 1,
            Levels::Maker => 0,
        };
        let chunks = self.levels.get(at).or(self.levels.first()).unwrap_or(&self.chunks);
        let is_sharded = !Arc::ptr_eq(chunks, &self.chunks);
        // A shard is at most as long as any file in memory.
        let limit = match &*self.pipelines {
            Ok(pipelines) if !is_sharded => pipelines.longest().max(self.chunk_len.longest()),
            _ => self.options.max_chunk_len,
        };
        let chunk_shape =
            if is_sharded || at == 0 { &self.model.chunk_shape } else { &self.chunk_shape };
        let form = ArrayForm::Encoded(EncodedForm {
            decoded: Arc::downgrade(self),
            how,
            chunks: Arc::clone(&self.chunks),
            pipelines: Arc::clone(&self.pipelines),
        });
        Self {
            id: ArrayId::new(),
            model: self.model.clone(),
            chunk_shape: chunk_shape.clone(),
            chunk_len: ChunkLen::UpTo(limit),
            options: self.options.clone(),
            chunks: Arc::clone(chunks),
            levels: Arc::clone(&self.levels),
            pipelines: Arc::new(Pipeline::of_any_bytes(limit).map(Pipelines::One)),
            prefix: self.prefix.clone(),
            store: self.store.clone(),
            is_in_one_block: false.into(),
            form,
        }
    }

    /// Returns this array with a shape that reaches a chunk that begins with `indices` and lies
    /// outside of its own: a program may have made the array smaller and left the chunk. `None` if
    /// the chunk lies inside, or the grid cannot reach it.
    pub fn reaching(&self, indices: &[u64]) -> Option<Arc<Self>> {
        let is_outside =
            indices.len() <= self.grid().rank() && !self.grid().contains_prefix(indices);
        if !is_outside || self.model.rectilinear.is_some() {
            return None;
        }
        let mut shape = self.model.shape.clone();
        for (at, len) in shape.iter_mut().enumerate() {
            let index = indices.get(at).copied().unwrap_or_default();
            let end = index.checked_add(1)?.checked_mul(*self.chunk_shape.get(at)?)?;
            *len = end.max(*len);
        }
        self.with_shape(shape).ok()
    }

    /// Returns this array with another shape.
    ///
    /// # Errors
    ///
    /// - Its grid cannot have that shape.
    pub fn with_shape(&self, shape: Vec<u64>) -> Result<Arc<Self>> {
        let model = ArrayMetadata { shape, ..self.model.clone() };
        let prefix = self.prefix.clone();
        let array = Arc::new(Self::open(model, &self.store, prefix, self.options.clone())?);
        Ok(match &self.form {
            ArrayForm::Encoded(form) => array.encoded(form.how),
            ArrayForm::Decoded { .. } => array,
        })
    }

    /// Whether its chunks are encoded.
    pub fn is_encoded(&self) -> bool {
        matches!(self.form, ArrayForm::Encoded(_))
    }

    /// Returns the levels of sharding that the mount added, if its chunks are encoded.
    pub fn encoded_levels(&self) -> Option<Levels> {
        match &self.form {
            ArrayForm::Encoded(form) => Some(form.how.levels),
            ArrayForm::Decoded { .. } => None,
        }
    }

    /// Whether [`Self::other_forms`] may have any.
    pub fn has_other_forms(&self) -> bool {
        match &self.form {
            ArrayForm::Decoded { by_maker, by_mount } => {
                by_maker.get().is_some() || by_mount.get().is_some()
            }
            ArrayForm::Encoded(_) => true,
        }
    }

    /// Returns the other forms of the same open array that were opened so far.
    pub fn other_forms(&self) -> Vec<Arc<Self>> {
        let decoded = self.decoded_form();
        let ArrayForm::Decoded { by_maker, by_mount } =
            decoded.as_ref().map_or(&self.form, |decoded| &decoded.form)
        else {
            return Vec::new();
        };
        let encoded = [by_maker, by_mount].into_iter().filter_map(OnceLock::get);
        let all = decoded.iter().chain(encoded).filter(|form| form.id != self.id);
        all.cloned().collect()
    }

    /// Whether `other` is the same array with chunks in another form.
    pub fn is_other_form_of(&self, other: &Self) -> bool {
        self.encoded_levels() != other.encoded_levels() && self.model.means_same(&other.model)
    }

    /// Returns the chunk of `other`, another form of this array, that contains the chunk at
    /// `coords`; `None` if that contains several.
    pub fn coords_in(&self, other: &Self, coords: &Coords) -> Option<Coords> {
        if self.grid() == other.grid() {
            return Some(coords.clone());
        }
        let indices = coords.indices().iter().enumerate().map(|(axis, index)| {
            let (start, len) = self.grid().span(axis, *index)?;
            let found = other.grid().find(axis, start)?;
            let end = found.start.saturating_add(found.len);
            (start.saturating_add(len) <= end).then_some(found.index)
        });
        indices.collect::<Option<Vec<u64>>>().map(Coords::new)
    }

    /// Whether its chunks are encoded, and stored without being checked.
    pub fn is_trusted(&self) -> bool {
        matches!(&self.form, ArrayForm::Encoded(form) if form.how.is_trusted)
    }

    /// Returns the decoded form, if the chunks of this one are encoded.
    pub(super) fn decoded_form(&self) -> Option<Arc<Self>> {
        match &self.form {
            ArrayForm::Encoded(form) => form.decoded.upgrade(),
            ArrayForm::Decoded { .. } => None,
        }
    }

    /// Whether [`Self::file_of`] makes chunk files. A shard of only the fill value has none.
    pub fn can_fill(&self) -> bool {
        self.decoded_form().map_or(!self.is_encoded(), |decoded| decoded.grid() == self.grid())
    }

    /// Whether the bytes of chunk files are stored as they are, each in a value of its own.
    pub fn stores_as_written(&self) -> bool {
        self.is_encoded() && self.chunks.depth() == 0
    }

    /// Stores a file as the chunk at `coords`, as [`Current::set_file`](super::Current::set_file)
    /// does.
    pub(super) fn set_file(&self, coords: &Coords, file: &NewFile) -> Result<Option<Stat>> {
        if self.stores_as_written() { self.chunks.set_file(coords, file) } else { Ok(None) }
    }

    /// Fails for bytes that the codecs of the array cannot have made. If encoded chunks are
    /// trusted, fails only for no bytes.
    pub(super) fn check_encoded(&self, coords: &Coords, bytes: &[u8]) -> Result<()> {
        let ArrayForm::Encoded(form) = &self.form else { return Ok(()) };
        if form.how.is_trusted {
            let empty = || Error::invalid("an encoded chunk cannot be empty");
            return if bytes.is_empty() { Err(empty()) } else { Ok(()) };
        }
        let pipelines = match &*form.pipelines {
            Ok(pipelines) => pipelines,
            Err(error) => return Err(error.clone()),
        };
        let invalid = |error: Error| {
            let detail = format!("not a chunk as the codecs of the array encode it: {error}");
            Error::new(Kind::Invalid, detail)
        };
        let bytes = Bytes::copy_from_slice(bytes);
        let parts = form.chunks.split(self.chunks.depth(), coords, bytes).map_err(invalid)?;
        let check = |(coords, encoded): (Coords, Bytes)| {
            let shape = form.chunks.grid().chunk_shape_at(&coords)?;
            let decoded = pipelines.of(|| Ok(shape.clone()))?.decode(encoded).map_err(invalid)?;
            let dtype = self.model.dtype.clone();
            ChunkType { shape, dtype }.check(&decoded).map_err(invalid)
        };
        let memory = |(coords, _): &(Coords, Bytes)| {
            let shape = || form.chunks.grid().chunk_shape_at(coords);
            pipelines.of(shape).map_or(0, |pipeline| pipeline.decoder_memory(pipeline.usual_len()))
        };
        parallel::map_within(parts, memory, || Ok(()), |(), part| check(part)).map(drop)
    }
}
