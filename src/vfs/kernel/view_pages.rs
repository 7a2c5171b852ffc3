//! The kernel's pages of views, which stay while they match the store.
//!
//! The pages stay while the generations of the arrays (`ChunkCache::generation`) and of the
//! hierarchy are those of the last open. After `--metadata-ttl`, every chunk that was read for them
//! must also still have the version that was read.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::array::Coords;
use crate::metadata::NodePath;
use crate::store::{Stat, Version};
use crate::vfs::core::Core;
use crate::view::View;

/// The most chunks to check when a view is opened again.
const MAX_SEEN: usize = 4096;

/// The most indices of their coordinates: an array may have many dimensions.
const MAX_INDICES: usize = 4 * MAX_SEEN;

/// How long an answer may take to reach the kernel.
const ON_ITS_WAY: Duration = Duration::from_millis(100);

/// A chunk and the version that was read; `None` if it was not stored.
type ChunkSeen = (Coords, Option<Version>);

/// The generation of the hierarchy, and the sum of those of the arrays.
pub(in crate::vfs) type Generations = (u64, u64);

/// The kernel's pages of a view.
#[derive(Debug, Clone)]
pub(in crate::vfs) struct KernelPages {
    /// The generations that they show.
    pub generations: Generations,
    /// When they were last known to match the store.
    pub since: Instant,
    /// The view that they belong to.
    pub view: Arc<View>,
    /// The chunks that were read for them.
    pub seen: Arc<ReadVersions>,
}

/// The versions of the chunks that any handle of a view has read since the kernel dropped its
/// pages. A leaf lock.
#[derive(Debug, Default)]
pub(in crate::vfs) struct ReadVersions(Mutex<PageVersions>);

#[derive(Debug, Default)]
struct PageVersions {
    versions: ChunkVersions,
    last: Option<Instant>,
    /// How often the kernel had to drop its pages.
    forgotten: u64,
}

/// The versions of the chunks that some bytes were made of. A request may need a million chunks, so
/// only a limited number is kept.
#[derive(Debug, Default)]
pub(in crate::vfs) struct ChunkVersions {
    by_chunk: HashMap<(NodePath, Coords), Option<Version>>,
    index_count: usize,
    /// Whether the bytes may be made of other chunks or versions.
    is_unsure: bool,
}

impl ChunkVersions {
    /// Notes the version of a chunk that was read, or that it was not stored.
    pub fn note(&mut self, path: &NodePath, coords: &Coords, version: Option<Version>) {
        if !self.is_unsure {
            self.add((path.clone(), coords.clone()), version);
        }
    }

    fn add(&mut self, chunk: (NodePath, Coords), version: Option<Version>) {
        let rank = chunk.1.indices().len();
        match self.by_chunk.insert(chunk, version) {
            Some(before) if Version::holds_of(before, version) => {}
            Some(_) => *self = Self::unsure(),
            None => {
                self.index_count = self.index_count.saturating_add(rank);
                if self.by_chunk.len() > MAX_SEEN || self.index_count > MAX_INDICES {
                    *self = Self::unsure();
                }
            }
        }
    }

    fn unsure() -> Self {
        Self { is_unsure: true, ..Self::default() }
    }
}

impl ReadVersions {
    /// Forgets the chunks because the kernel drops its pages, except if an answer may still be on
    /// its way to the kernel.
    pub fn forget(&self) {
        let mut chunks = self.0.lock();
        let is_unsure = chunks.last.is_some_and(|last| last.elapsed() < ON_ITS_WAY);
        let gone = std::mem::replace(
            &mut chunks.versions,
            ChunkVersions { is_unsure, ..ChunkVersions::default() },
        );
        chunks.forgotten = chunks.forgotten.wrapping_add(1);
        drop(chunks);
        drop(gone); // Freeing memory takes time: not under the lock.
    }

    /// Returns how often that happened.
    pub fn forgotten(&self) -> u64 {
        self.0.lock().forgotten
    }

    /// Records that an answer is on its way to the kernel, made from chunks that were recorded
    /// before.
    pub fn note_answer(&self) {
        self.0.lock().last = Some(Instant::now());
    }

    /// Notes the versions of the chunks that an answer was made of.
    pub fn note_all(&self, read: ChunkVersions) {
        let mut chunks = self.0.lock();
        chunks.last = Some(Instant::now());
        if read.is_unsure {
            chunks.versions = ChunkVersions::unsure();
        }
        for (chunk, version) in read.by_chunk {
            if chunks.versions.is_unsure {
                return;
            }
            chunks.versions.add(chunk, version);
        }
    }

    /// Returns the chunks and versions by array; `None` if there may be others.
    fn by_array(&self) -> Option<HashMap<NodePath, Vec<ChunkSeen>>> {
        let chunks = self.0.lock();
        if chunks.versions.is_unsure {
            return None;
        }
        let mut by_array: HashMap<NodePath, Vec<_>> = HashMap::new();
        for ((path, coords), version) in &chunks.versions.by_chunk {
            by_array.entry(path.clone()).or_default().push((coords.clone(), *version));
        }
        Some(by_array)
    }
}

impl KernelPages {
    /// Whether the kernel's pages of a view still match the store, which other programs may have
    /// changed.
    pub fn hold(&self, core: &Core, view: &View) -> bool {
        let Some(by_array) = self.seen.by_array() else { return false };
        let holds = |path: &NodePath, mut chunks: Vec<ChunkSeen>| {
            // Sort the chunks, so that those of one directory are checked together.
            chunks.sort_by(|(one, _), (other, _)| one.indices().cmp(other.indices()));
            let (coords, versions): (Vec<Coords>, Vec<Option<Version>>) =
                chunks.into_iter().unzip();
            let array = core.array(path).ok()?;
            let stats = core.cache.stat_many(&array, &coords).ok()?;
            let holds = |(was, now): (Option<Version>, Option<Stat>)| {
                Version::holds_of(was, now.map(|stat| stat.version))
            };
            Some(stats.len() == versions.len() && versions.into_iter().zip(stats).all(holds))
        };
        self.view.is_like(view)
            && by_array.into_iter().all(|(path, chunks)| holds(&path, chunks) == Some(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::width::ToU64;

    #[test]
    fn the_memory_for_versions_of_chunks_has_a_limit_in_chunks_and_in_dimensions() {
        for (rank, most) in [(1, MAX_SEEN), (4, MAX_SEEN), (64, MAX_INDICES / 64)] {
            let (seen, path) = (ReadVersions::default(), NodePath::root());
            let chunk = |number: usize| {
                let mut indices = vec![0; rank];
                indices[0] = number.to_u64();
                Coords::new(indices)
            };
            let mut read = ChunkVersions::default();
            for number in 0..most {
                read.note(&path, &chunk(number), None);
                read.note(&path, &chunk(number), None);
            }
            seen.note_all(read);
            let known = seen.by_array().expect("all of them are known");
            assert_eq!(known[&path].len(), most, "of rank {rank}");
            let mut more = ChunkVersions::default();
            more.note(&path, &chunk(most), None);
            seen.note_all(more);
            assert!(seen.by_array().is_none(), "{most} chunks of rank {rank} and one");
            let mut many = ChunkVersions::default();
            (0..=most).for_each(|number| many.note(&path, &chunk(number), None));
            assert!(many.is_unsure && many.by_chunk.is_empty(), "rank {rank}");
            let other = ReadVersions::default();
            other.note_all(many);
            assert!(other.by_array().is_none(), "rank {rank}");
        }
    }
}
