//! A digest of all stored values of a source at one moment, by which changes are detected.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::plan::{ChunkPlan, ConversionPlan};
use super::watch::{CopyWatch, stopped};
use crate::array::{ChunkStore, Coords, Direct, Grid};
use crate::error::Result;
use crate::metadata::NodePath;
use crate::store::Stat;

/// The number of stored values to look up at a time.
const BATCH: usize = 1024;

/// The state of the stored chunks of an array.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoredState {
    /// The number of values: chunks, or shards.
    pub count: u64,
    /// The sum of a digest of each value's version, independent of the order of listings.
    versions: u128,
    /// The sum of a digest of each value's length and time.
    times: u128,
}

/// Whether the stored chunks of an array have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceChange {
    /// Nothing has changed.
    None,
    /// Only versions have changed.
    Possible,
    /// Lengths, times, or the number of values have changed.
    Sure,
}

/// The state of the stored chunks of each array of a plan, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey(Vec<(NodePath, StoredState)>);

impl Survey {
    /// Looks up every stored value of the source once.
    pub fn of(plan: &ConversionPlan, watch: &dyn CopyWatch) -> Result<Self> {
        let stored = |(path, chunks): (&NodePath, &ChunkPlan)| {
            Ok((path.clone(), StoredState::of(chunks, watch)?))
        };
        plan.arrays().map(stored).collect::<Result<_>>().map(Self)
    }

    /// Returns each array with the state of its stored chunks.
    pub fn arrays(&self) -> impl Iterator<Item = (&NodePath, StoredState)> {
        self.0.iter().map(|(path, stored)| (path, *stored))
    }

    /// Returns a string that changes with the values of the source.
    pub fn digest(&self) -> String {
        let mut hasher = DefaultHasher::new();
        for (path, stored) in &self.0 {
            (path.as_str(), stored.count, stored.versions).hash(&mut hasher);
        }
        format!("{:016x}", hasher.finish())
    }

    /// Returns whether the stored chunks of each array have changed since the survey `before`.
    /// Ignores version changes with equal lengths and times, because some file systems give a file
    /// a new number when it is looked up again.
    pub fn compare(&self, before: &Self) -> Vec<SourceChange> {
        let pairs = self.0.iter().zip(&before.0);
        let change = |((_, now), (_, then)): (&(_, StoredState), &(_, StoredState))| {
            if (now.count, now.times) != (then.count, then.times) {
                SourceChange::Sure
            } else if now.versions != then.versions {
                SourceChange::Possible
            } else {
                SourceChange::None
            }
        };
        pairs.map(change).collect()
    }
}

impl StoredState {
    fn of(chunks: &ChunkPlan, watch: &dyn CopyWatch) -> Result<Self> {
        let (array, store) = (&chunks.source, chunks.source_store.clone());
        let model = array.model();
        let grid = Grid::of(model);
        let direct = Arc::new(Direct::new(store, array.prefix().clone(), model.key_encoding, grid));
        let mut all = Self::default();
        let mut batch = Vec::with_capacity(BATCH);
        let list = match Arc::clone(&direct).list() {
            // The copy reports it when it gets there.
            Err(error) if error.is_lasting() => {
                return Ok(Self { times: digest(&error.to_string()), ..all });
            }
            list => list?,
        };
        for coords in list {
            match coords {
                Ok(coords) => batch.push(coords),
                // The copy reports it when it gets there.
                Err(error) if error.is_lasting() => {
                    all.times = all.times.wrapping_add(digest(&error.to_string()));
                    continue;
                }
                Err(error) => return Err(error),
            }
            if batch.len() >= BATCH {
                all.add(&batch, &stats(&direct, &batch)?);
                batch.clear();
                if watch.is_stopped() {
                    return Err(stopped());
                }
            }
        }
        all.add(&batch, &stats(&direct, &batch)?);
        Ok(all)
    }

    fn add(&mut self, coords: &[Coords], stats: &[Option<Stat>]) {
        for (coords, stat) in coords.iter().zip(stats) {
            // A value that was removed after the listing is detected by the next survey.
            let version = stat.as_ref().map(|stat| stat.version.state());
            let time = stat.as_ref().map(|stat| (stat.len, stat.modified));
            self.count = self.count.saturating_add(1);
            self.versions = self.versions.wrapping_add(digest(&(coords, version)));
            self.times = self.times.wrapping_add(digest(&(coords, time)));
        }
    }
}

/// Looks values up. One that cannot be read has no stat: the copy reports it when it gets there.
fn stats(direct: &Direct, batch: &[Coords]) -> Result<Vec<Option<Stat>>> {
    let each = |coords: &Coords| match direct.stat(std::slice::from_ref(coords)) {
        Err(error) if error.is_lasting() => Ok(None),
        found => Ok(found?.pop().flatten()),
    };
    match direct.stat(batch) {
        Err(error) if error.is_lasting() => batch.iter().map(each).collect(),
        found => found,
    }
}

/// Returns a number that differs for different values, except with a probability of 2^-64 or less.
fn digest(value: &impl Hash) -> u128 {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, value).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}
