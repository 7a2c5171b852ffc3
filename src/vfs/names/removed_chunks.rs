//! The chunks that programs have removed from arrays that show missing chunks.
//!
//! Such a chunk is a file again at once, of the fill value. But a program that replaces a file may
//! first remove it and then create it with `O_EXCL` (`tar x`, `mv`, `git checkout`). So the name
//! leads to nothing as long as the program that removed it runs.

use std::collections::{BTreeMap, HashMap, HashSet};

use parking_lot::Mutex;

use crate::array::Coords;
use crate::metadata::NodePath;
use crate::vfs::authors::Processes;

/// The most chunks of an array that are remembered. Another one is a file again at once.
const MOST: usize = 1 << 20;

/// The chunks of an array, and the program that removed each, if it must not find it.
type Removed = HashMap<Coords, Option<Processes>>;

/// The chunks that programs have removed, by array.
#[derive(Default)]
pub struct RemovedChunks {
    /// A leaf lock.
    arrays: Mutex<BTreeMap<NodePath, Removed>>,
}

impl RemovedChunks {
    /// Notes that a chunk was removed; by a program that must not find it, if `by` is known.
    pub fn note(&self, path: &NodePath, coords: &Coords, by: Option<Processes>) {
        let mut arrays = self.arrays.lock();
        let removed = arrays.entry(path.clone()).or_default();
        if removed.len() >= MOST && !removed.contains_key(coords) {
            return;
        }
        let known = removed.entry(coords.clone()).or_default();
        if by.is_some() {
            *known = by;
        }
    }

    /// Forgets a chunk, which a program has stored again.
    pub fn forget(&self, path: &NodePath, coords: &Coords) {
        let mut arrays = self.arrays.lock();
        if let Some(removed) = arrays.get_mut(path) {
            removed.remove(coords);
            if removed.is_empty() {
                arrays.remove(path);
            }
        }
    }

    /// Forgets the chunks of the arrays at and below `path`.
    pub fn forget_below(&self, path: &NodePath) {
        self.arrays.lock().retain(|array, _| array.relative_to(path).is_none());
    }

    /// Returns the chunks of an array that were removed.
    pub fn of(&self, path: &NodePath) -> HashSet<Coords> {
        let arrays = self.arrays.lock();
        arrays.get(path).into_iter().flat_map(HashMap::keys).cloned().collect()
    }

    /// Returns those whose names lead to nothing.
    pub fn hidden(&self, path: &NodePath) -> HashSet<Coords> {
        let removed = self.arrays.lock().get(path).cloned().unwrap_or_default();
        // Most were removed by one program, which is looked up once.
        let mut live: HashMap<Vec<u32>, bool> = HashMap::new();
        let mut may_live = |by: &Processes| match by.known() {
            Some(known) => *live.entry(known.to_vec()).or_insert_with(|| by.may_live()),
            None => true,
        };
        let mut is_hidden = |by: &Option<Processes>| by.as_ref().is_some_and(&mut may_live);
        removed.into_iter().filter(|(_, by)| is_hidden(by)).map(|(coords, _)| coords).collect()
    }

    /// Whether the name of a chunk leads to nothing.
    pub fn is_hidden(&self, path: &NodePath, coords: &Coords) -> bool {
        let by = self.arrays.lock().get(path).and_then(|removed| removed.get(coords)).cloned();
        by.flatten().is_some_and(|by| by.may_live())
    }
}
