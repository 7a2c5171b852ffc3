//! The chunks in each stored value of an array: one, or those of a shard.

use serde_json::{Value, json};

use super::coords::Coords;
use super::open::Array;
use crate::metadata::chunk_shapes;
use crate::metadata::policy::Shards;
use zarrfs_base::error::Result;

impl Array {
    /// Whether one stored value may contain several chunks.
    pub fn is_sharded(&self) -> bool {
        self.model.chunk_shape != self.chunk_shape
    }

    /// Returns how many chunks of the grid share the stored value of the chunk at `coords`: 1, or
    /// those of its shard.
    pub fn chunks_beside(&self, coords: &Coords) -> u64 {
        let Some(shards) = self.levels.first().filter(|_| self.is_sharded()) else { return 1 };
        let along = coords.indices().iter().zip(&self.chunk_shape).zip(self.grid().counts());
        let count = |(axis, ((index, inner), count)): (usize, ((&u64, &u64), &u64))| {
            let shard = shards.grid().find(axis, index.saturating_mul(*inner))?;
            let (first, most) = (shard.start.checked_div(*inner)?, shard.len.checked_div(*inner)?);
            Some(count.saturating_sub(first).min(most))
        };
        let along = along.enumerate().map(|along| count(along).unwrap_or(1));
        along.fold(1, u64::saturating_mul)
    }

    /// Returns the box of chunks in the stored value at `value`: the first one, and how many there
    /// are along each dimension, including those outside of the array.
    pub fn chunks_in(&self, value: &Coords) -> Result<(Vec<u64>, Vec<u64>)> {
        let Some(shards) = self.levels.first().filter(|_| self.is_sharded()) else {
            return Ok((value.indices().to_vec(), vec![1; value.indices().len()]));
        };
        let along = shards.grid().spans(value)?.into_iter().zip(&self.chunk_shape);
        let along = along.map(|((start, len), inner)| (start / inner.max(&1), len / inner.max(&1)));
        Ok(along.unzip())
    }

    /// Returns the shape of the shards as JSON, like [`Self::chunk_shape_json`]; `None` if each
    /// chunk is stored by itself.
    pub fn shard_shape_json(&self) -> Option<Value> {
        let shape = match &self.model.rectilinear {
            Some(runs) => chunk_shapes(runs),
            None => json!(self.model.chunk_shape),
        };
        self.is_sharded().then_some(shape)
    }

    /// Returns how a copy of this array is stored in the same shards.
    pub fn shards(&self) -> Shards {
        match &self.model.rectilinear {
            _ if !self.is_sharded() => Shards::None,
            Some(runs) => Shards::Rectilinear(runs.clone()),
            None => Shards::Shape(self.model.chunk_shape.clone()),
        }
    }
}
