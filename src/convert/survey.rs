//! What is stored of a source at one moment, in a few bytes: by this a change of the source is detected.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::plan::Chunks;
use super::{Plan, Watch, stopped};
use crate::array::{ChunkStore, Coords, Direct, Grid};
use crate::error::{Error, Kind, Result};
use crate::metadata::NodePath;
use crate::store::Stat;

/// How many stored values are asked for at a time.
const BATCH: usize = 1024;

/// What is stored of the chunks of an array.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stored {
    /// How many values: chunks, or shards.
    pub count: u64,
    /// The sum of a digest of each value's version, in whatever order they are listed.
    digest: u128,
}

/// What is stored of each array of a plan, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey(Vec<(NodePath, Stored)>);

impl Survey {
    /// Looks at every stored value of the source, once.
    pub fn of(plan: &Plan, watch: &dyn Watch) -> Result<Self> {
        let stored =
            |(path, chunks): (&NodePath, &Chunks)| Ok((path.clone(), Stored::of(chunks, watch)?));
        plan.arrays().map(stored).collect::<Result<_>>().map(Self)
    }

    /// Each array, and what is stored of it.
    pub fn arrays(&self) -> impl Iterator<Item = (&NodePath, Stored)> {
        self.0.iter().map(|(path, stored)| (path, *stored))
    }

    /// A text that is another one when any value of the source has changed.
    pub fn digest(&self) -> String {
        let mut hasher = DefaultHasher::new();
        for (path, stored) in &self.0 {
            (path.as_str(), stored.count, stored.digest).hash(&mut hasher);
        }
        format!("{:016x}", hasher.finish())
    }

    /// Refuses a source whose chunks are not what they were `before`.
    pub fn check_unchanged(&self, before: &Self) -> Result<()> {
        let is_other =
            |((_, now), (_, then)): &(&(NodePath, Stored), &(NodePath, Stored))| now != then;
        match self.0.iter().zip(&before.0).find(is_other) {
            None if self.0.len() == before.0.len() => Ok(()),
            found => Err(changed(found.map(|((path, _), _)| path))),
        }
    }
}

/// Why a copy is not what the source was at any one moment.
pub(super) fn changed(path: Option<&NodePath>) -> Error {
    let what = path.map_or_else(String::new, |path| format!(" at {path}"));
    let detail = format!("the source has changed{what} while it was converted");
    Error::new(Kind::Stale, detail)
}

impl Stored {
    fn of(chunks: &Chunks, watch: &dyn Watch) -> Result<Self> {
        let (array, store) = (&chunks.source, chunks.source_store.clone());
        let model = array.model();
        let grid = Grid::of(model);
        let direct = Arc::new(Direct::new(store, array.prefix().clone(), model.key_encoding, grid));
        let mut all = Self::default();
        let mut batch = Vec::with_capacity(BATCH);
        for coords in Arc::clone(&direct).list()? {
            batch.push(coords?);
            if batch.len() >= BATCH {
                all.add(&batch, &direct.stat(&batch)?);
                batch.clear();
                if watch.is_stopped() {
                    return Err(stopped());
                }
            }
        }
        all.add(&batch, &direct.stat(&batch)?);
        Ok(all)
    }

    fn add(&mut self, coords: &[Coords], stats: &[Option<Stat>]) {
        for (coords, stat) in coords.iter().zip(stats) {
            // One that has gone since it was listed is missed by the next look.
            let version = stat.as_ref().map(|stat| stat.version.state());
            let half = |salt: u8| {
                let mut hasher = DefaultHasher::new();
                (salt, coords, version).hash(&mut hasher);
                u128::from(hasher.finish())
            };
            self.count = self.count.saturating_add(1);
            self.digest = self.digest.wrapping_add(half(0) << 64 | half(1));
        }
    }
}
