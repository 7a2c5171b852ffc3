//! One level of sharding: the positions of inner chunks in shards.
//!
//! The 2022 transformer and the `sharding_indexed` codec differ only in data of a level: index
//! codecs, index position, codecs around the shard. With a `transpose` before the sharding codec,
//! slots are counted in the transposed shard.
//!
//! Shards have the grid of the level below, counted in inner chunks. On a rectilinear grid they
//! have different numbers of slots, so what belongs to the index of a shard ([`ShardForm`]) is
//! bound to the shape of the shard.
//!
//! <https://zarr-specs.readthedocs.io/en/latest/v3/codecs/sharding-indexed/index.html>

use bytes::Bytes;

use super::by_shape::{Bound, ShapeCache};
use super::coords::{ChunkAlong, Coords, Grid};
use super::shard_form::{FormOptions, ShardForm};
use zarrfs_base::error::Result;
use zarrfs_base::width::{ToU64, ToUsize};
use zarrfs_codec::BytesToBytes;
use zarrfs_codec::CodecSpec;
use zarrfs_codec::array_to_array::DimensionOrder;
use zarrfs_codec::json::Object;
use zarrfs_codec::registry;

/// A level of sharding, bound to the grid of its shards.
#[derive(Debug)]
pub struct ShardLevel {
    /// The shards; an element of this grid is an inner chunk.
    shards: Grid,
    /// The dimensions in the order in which slots are counted.
    axes: Vec<usize>,
    forms: ShardForms,
    /// The codecs that encode the whole shard, in order of encoding. If there are any, no part of a
    /// shard can be read by itself.
    pub(super) around: Vec<Box<dyn BytesToBytes>>,
}

/// The forms of shards.
#[derive(Debug)]
enum ShardForms {
    /// All shards have the same shape.
    One(ShardForm),
    /// Shards have different shapes.
    ByShape(Box<(FormOptions, ShapeCache<ShardForm>)>),
}

impl ShardLevel {
    /// Binds the configuration of a sharding codec. `shards` is the grid of the shards, and
    /// `inner_shape` the shape of inner chunks, both in the array's own order of dimensions;
    /// `order` is the transpose before the codec. Decoded inner chunks have `inner_len` bytes, or
    /// for `None` variable lengths of at most `max_len`.
    #[expect(clippy::too_many_arguments, reason = "a sharding codec depends on all of these")]
    pub fn bind(
        configuration: &Object,
        shards: &Grid,
        inner_shape: &[u64],
        order: &DimensionOrder,
        around: &[CodecSpec],
        inner_len: Option<u64>,
        max_len: u64,
    ) -> Result<Self> {
        let shards = shards.divided(inner_shape)?;
        let axes: Vec<usize> = order.apply(&(0..shards.rank()).collect::<Vec<_>>());
        let options = FormOptions::parse(configuration, axes.clone(), around, inner_len, max_len)?;
        let around = registry::bytes_to_bytes(around)?;
        let first = Coords::new(vec![0; shards.rank()]);
        let forms = if shards.is_regular() {
            ShardForms::One(options.bind(&shards.chunk_shape_at(&first)?)?)
        } else {
            // Codecs that are not known concern all shards, those that are too large only
            // themselves.
            options.bind(&vec![1; shards.rank()])?;
            ShardForms::ByShape(Box::new((options, ShapeCache::new())))
        };
        Ok(Self { shards, axes, forms, around })
    }

    /// Returns the form of a shard.
    pub fn form(&self, shard: &Coords) -> Result<Bound<'_, ShardForm>> {
        match &self.forms {
            ShardForms::One(form) => Ok(Bound::Only(form)),
            ShardForms::ByShape(by_shape) => {
                let (options, cached) = &**by_shape;
                let counts = self.shards.chunk_shape_at(shard)?;
                cached.get(counts, |counts| options.bind(counts)).map(Bound::Cached)
            }
        }
    }

    /// Returns the number of inner chunks in a shard, including those outside of the array.
    pub fn slots(&self, shard: &Coords) -> usize {
        match &self.forms {
            ShardForms::One(form) => form.slots(),
            ShardForms::ByShape(_) => {
                let along = shard.indices().iter().enumerate();
                let count = |(axis, index): (usize, &u64)| self.count_along(axis, *index);
                along.map(count).fold(1, u64::saturating_mul).to_usize()
            }
        }
    }

    /// Returns the shard that contains an inner chunk. Beyond all shards it lies outside of their
    /// grid, too.
    pub fn shard_of(&self, coords: &Coords) -> Coords {
        Coords::new(self.shard_prefix(coords.indices()))
    }

    /// Returns the first indices of the shards that contain the inner chunks with these first
    /// indices.
    pub fn shard_prefix(&self, prefix: &[u64]) -> Vec<u64> {
        let index = |(axis, index): (usize, &u64)| {
            self.shards.find(axis, *index).map_or(u64::MAX, |shard| shard.index)
        };
        prefix.iter().enumerate().map(index).collect()
    }

    /// Returns the slot of an inner chunk in the index of its shard.
    pub fn slot_of(&self, coords: &Coords) -> usize {
        let along = |axis: &usize| {
            let index = *coords.indices().get(*axis)?;
            let ChunkAlong { start, len, .. } = self.shards.find(*axis, index)?;
            Some((index - start, len))
        };
        let next = |slot: u64, axis| {
            let (within, count) = along(axis)?;
            slot.checked_mul(count)?.checked_add(within)
        };
        // No index has an entry beyond all shards.
        self.axes.iter().try_fold(0, next).unwrap_or(u64::MAX).to_usize()
    }

    /// Returns the inner chunk of `slot` in `shard`.
    pub fn coords_of(&self, shard: &Coords, slot: usize) -> Coords {
        let mut indices = self.place_in(shard, slot);
        for (axis, (index, shard)) in indices.iter_mut().zip(shard.indices()).enumerate() {
            let start = self.shards.span(axis, *shard).map_or(u64::MAX, |(start, _)| start);
            *index = index.saturating_add(start);
        }
        Coords::new(indices)
    }

    /// Returns the place of `slot` in `shard`, counted from the first inner chunk of the shard.
    pub fn place_in(&self, shard: &Coords, slot: usize) -> Vec<u64> {
        let mut indices = vec![0; self.axes.len()];
        let mut rest = slot.to_u64();
        for axis in self.axes.iter().rev() {
            let Some(shard) = shard.indices().get(*axis) else { continue };
            let count = self.count_along(*axis, *shard).max(1);
            if let Some(index) = indices.get_mut(*axis) {
                *index = rest % count;
            }
            rest /= count;
        }
        indices
    }

    /// Returns how many inner chunks of `shard` lie in the array, whose inner chunks have the grid
    /// `inner`.
    pub fn chunks_of(&self, shard: &Coords, inner: &Grid) -> u64 {
        let along = shard.indices().iter().zip(inner.counts()).enumerate();
        let count = |(axis, (index, all)): (usize, (&u64, &u64))| {
            let (start, count) = self.shards.span(axis, *index).unwrap_or_default();
            all.saturating_sub(start).min(count)
        };
        along.map(count).product()
    }

    /// Returns the number of inner chunks along dimension `axis` of the shards with this index.
    pub fn count_along(&self, axis: usize, index: u64) -> u64 {
        self.shards.span(axis, index).map_or(0, |(_, count)| count)
    }

    /// Whether the inner chunks with these first indices form whole shards.
    pub fn covers_whole_shards(&self, prefix: &[u64]) -> bool {
        let mut along = prefix.iter().enumerate();
        along.all(|(axis, index)| self.shards.find(axis, *index).is_none_or(|it| it.len == 1))
    }

    /// Decodes the codecs around a shard of this form.
    pub fn decode_around(&self, form: &ShardForm, encoded: Bytes) -> Result<Bytes> {
        let limit = form.longest().to_usize();
        let mut bytes = encoded;
        for codec in self.around.iter().rev() {
            bytes = codec.decode(&bytes, limit)?.into();
        }
        Ok(bytes)
    }

    /// Encodes the codecs around a shard.
    pub fn encode_around(&self, shard: Vec<u8>) -> Result<Bytes> {
        let mut bytes = shard;
        for codec in &self.around {
            bytes = codec.encode(&bytes)?;
        }
        Ok(bytes.into())
    }
}
