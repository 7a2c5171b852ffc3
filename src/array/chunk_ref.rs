//! References to a chunk of an open array.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Array, Coords};

/// The number of an open array. An array that is opened again, after its metadata changed, gets
/// another number, so it never uses cached values of the old one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ArrayId(u64);

impl ArrayId {
    /// Returns a number that no other array of this process has or had.
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A chunk by numbers alone: a key for maps, which does not keep the array open.
pub type ChunkId = (ArrayId, Coords);

/// A chunk of an open array. Two are equal if they have the same open array and the same
/// coordinates.
#[derive(Clone)]
pub struct ChunkRef {
    /// The open array.
    pub array: Arc<Array>,
    /// The coordinates in the grid that the mount shows: those of the inner chunk in a sharded
    /// array.
    pub coords: Coords,
}

impl ChunkRef {
    /// Returns the reference to the chunk of `array` at `coords`.
    pub fn new(array: &Arc<Array>, coords: &Coords) -> Self {
        Self { array: Arc::clone(array), coords: coords.clone() }
    }

    /// Returns the key of this chunk for maps.
    pub fn id(&self) -> ChunkId {
        (self.array.id(), self.coords.clone())
    }
}

impl PartialEq for ChunkRef {
    fn eq(&self, other: &Self) -> bool {
        (self.array.id(), &self.coords) == (other.array.id(), &other.coords)
    }
}

impl Eq for ChunkRef {}

impl Hash for ChunkRef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.array.id(), &self.coords).hash(state);
    }
}

impl fmt::Debug for ChunkRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.array.id(), self.coords)
    }
}
