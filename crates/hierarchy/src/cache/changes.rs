//! The latest change of each array's chunks.

use std::collections::HashMap;
use std::time::SystemTime;

use parking_lot::Mutex;

use crate::array::Array;
use zarrfs_store::Prefix;

/// The number and time of the latest change of each array's chunks.
#[derive(Debug, Default)]
pub(super) struct ChunkChanges {
    /// A leaf lock.
    generations: Mutex<HashMap<Prefix, (u64, SystemTime)>>,
}

impl ChunkChanges {
    /// Returns a number that changes whenever a chunk of the array changes in this mount.
    pub fn generation(&self, array: &Array) -> u64 {
        self.generations
            .lock()
            .get(array.prefix())
            .map(|(generation, _)| *generation)
            .unwrap_or_default()
    }

    /// Returns when a chunk of the array last changed in this mount.
    pub fn modified(&self, array: &Array) -> Option<SystemTime> {
        self.generations.lock().get(array.prefix()).map(|(_, modified)| *modified)
    }

    /// Counts a change of one of the array's chunks.
    pub fn changed(&self, array: &Array) {
        let now = SystemTime::now();
        let mut generations = self.generations.lock();
        if let Some((generation, modified)) = generations.get_mut(array.prefix()) {
            (*generation, *modified) = (generation.wrapping_add(1), now);
        } else {
            generations.insert(array.prefix().clone(), (1, now));
        }
    }
}
