//! Pipelines and the like, bound to the shapes of chunks or shards: the most recently used ones.

use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;

use zarrfs_base::bounded::{Bounded, MapLimits};
use zarrfs_base::error::Result;
use zarrfs_codec::Pipeline;

/// The most shapes to cache.
const SHAPES: usize = 64;

/// The most recently used of what is bound to shapes.
#[derive(Debug)]
pub struct ShapeCache<T> {
    /// A leaf lock: values are bound without it.
    cached: Mutex<Bounded<Vec<u64>, Arc<T>>>,
}

impl<T> ShapeCache<T> {
    /// Returns a cache of nothing.
    pub fn new() -> Self {
        Self { cached: Mutex::new(Bounded::new(MapLimits::entries(SHAPES))) }
    }

    /// Returns the value for `shape`, which `bind` makes if it is not cached.
    pub fn get(&self, shape: Vec<u64>, bind: impl FnOnce(&[u64]) -> Result<T>) -> Result<Arc<T>> {
        let known = self.cached.lock().get(&shape).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let bound = Arc::new(bind(&shape)?);
        let evicted = self.cached.lock().put(shape, Arc::clone(&bound), 0);
        drop(evicted); // Freeing memory takes time: not under the lock.
        Ok(bound)
    }
}

/// A value that is bound to the shape of one chunk or shard, in use.
#[derive(Debug)]
pub enum Bound<'a, T = Pipeline> {
    /// That of all chunks.
    Only(&'a T),
    /// That of chunks of the same shape.
    Cached(Arc<T>),
}

impl<T> Deref for Bound<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Only(bound) => bound,
            Self::Cached(bound) => bound,
        }
    }
}
