//! References to a chunk of an open array.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::coords::Coords;
use super::id::ArrayId;
use super::open::Array;

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
