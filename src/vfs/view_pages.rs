//! What the kernel's pages of views are made of: they are kept while that is what is stored.
//!
//! The pages stay while the generations of the arrays (`ChunkCache::generation`) and of the
//! hierarchy are those of the last open. After `--metadata-ttl`, every chunk that they were made of
//! must also still have the version that was read.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Vfs;
use crate::array::Coords;
use crate::metadata::NodePath;
use crate::store::{Stat, Version};
use crate::view::View;

/// Chunks that are asked for when a view is opened again, at the most.
const MAX_SEEN: usize = 4096;

/// An answer may still be on its way to the kernel for so long after it was made.
const ON_ITS_WAY: Duration = Duration::from_millis(100);

/// A chunk, and the version of it that was read; none where none was stored.
type Read = (Coords, Option<Version>);

/// Of a hierarchy, and of chunks.
pub(super) type Generations = (u64, u64);

/// The pages that the kernel has of a view.
#[derive(Debug, Clone)]
pub(super) struct KernelPages {
    /// What they are of.
    pub generations: Generations,
    /// When they were last known to be what is stored.
    pub since: Instant,
    /// The file that they are of.
    pub view: Arc<View>,
    /// The chunks that they were made of.
    pub seen: Arc<Seen>,
}

/// The versions of chunks that were read through a view, by whomever, since the kernel dropped its
/// pages. A leaf.
#[derive(Debug, Default)]
pub(super) struct Seen(Mutex<Chunks>);

#[derive(Debug, Default)]
struct Chunks {
    versions: HashMap<(NodePath, Coords), Option<Version>>,
    /// Whether there may be pages of other chunks or versions.
    is_unsure: bool,
    last: Option<Instant>,
    /// How often the kernel was told to drop its pages.
    forgotten: u64,
}

impl Seen {
    /// Forgets what was read, since the kernel is told to drop its pages; but for what is still on
    /// its way to it.
    pub fn forget(&self) {
        let mut chunks = self.0.lock();
        chunks.is_unsure = chunks.last.is_some_and(|last| last.elapsed() < ON_ITS_WAY);
        chunks.versions = HashMap::new();
        chunks.forgotten = chunks.forgotten.wrapping_add(1);
    }

    /// How often it was.
    pub fn forgotten(&self) -> u64 {
        self.0.lock().forgotten
    }

    /// Notes that something is on its way to the kernel that was made of chunks which were noted
    /// before.
    pub fn note_answer(&self) {
        self.0.lock().last = Some(Instant::now());
    }

    /// Notes the versions of the chunks that an answer was made of, or that they were not stored.
    pub fn note_all(&self, read: impl IntoIterator<Item = (NodePath, Coords, Option<Version>)>) {
        let mut chunks = self.0.lock();
        chunks.last = Some(Instant::now());
        for (path, coords, version) in read {
            if chunks.is_unsure {
                return;
            }
            let before = chunks.versions.insert((path, coords), version);
            if before.is_some_and(|before| !Version::holds_of(before, version))
                || chunks.versions.len() > MAX_SEEN
            {
                (chunks.is_unsure, chunks.versions) = (true, HashMap::new());
            }
        }
    }

    /// The chunks of each array, and their versions; none where others may have been read.
    fn by_array(&self) -> Option<HashMap<NodePath, Vec<Read>>> {
        let chunks = self.0.lock();
        if chunks.is_unsure {
            return None;
        }
        let mut by_array: HashMap<NodePath, Vec<_>> = HashMap::new();
        for ((path, coords), version) in &chunks.versions {
            by_array.entry(path.clone()).or_default().push((coords.clone(), *version));
        }
        Some(by_array)
    }
}

impl Vfs {
    /// Whether the kernel's pages of a view are what is stored, which others may have changed.
    pub(super) fn pages_hold(&self, pages: &KernelPages, view: &View) -> bool {
        let Some(by_array) = pages.seen.by_array() else { return false };
        let holds = |path: &NodePath, mut chunks: Vec<Read>| {
            // Those that lie in one directory are asked for together.
            chunks.sort_by(|(one, _), (other, _)| one.indices().cmp(other.indices()));
            let (coords, versions): (Vec<Coords>, Vec<Option<Version>>) =
                chunks.into_iter().unzip();
            let array = self.array(path).ok()?;
            let stats = self.cache.stat_many(&array, &coords).ok()?;
            let holds = |(was, now): (Option<Version>, Option<Stat>)| {
                Version::holds_of(was, now.map(|stat| stat.version))
            };
            Some(stats.len() == versions.len() && versions.into_iter().zip(stats).all(holds))
        };
        pages.view.is_like(view)
            && by_array.into_iter().all(|(path, chunks)| holds(&path, chunks) == Some(true))
    }
}
