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

/// How long an answer may take to reach the kernel.
const ON_ITS_WAY: Duration = Duration::from_millis(100);

/// A chunk and the version that was read; `None` if it was not stored.
type Read = (Coords, Option<Version>);

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
    pub seen: Arc<Seen>,
}

/// The versions of the chunks that any handle of a view has read since the kernel dropped its
/// pages. A leaf lock.
#[derive(Debug, Default)]
pub(in crate::vfs) struct Seen(Mutex<Chunks>);

#[derive(Debug, Default)]
struct Chunks {
    versions: HashMap<(NodePath, Coords), Option<Version>>,
    /// Whether the pages may show other chunks or versions.
    is_unsure: bool,
    last: Option<Instant>,
    /// How often the kernel had to drop its pages.
    forgotten: u64,
}

impl Seen {
    /// Forgets the chunks because the kernel drops its pages, except if an answer may still be on
    /// its way to the kernel.
    pub fn forget(&self) {
        let mut chunks = self.0.lock();
        chunks.is_unsure = chunks.last.is_some_and(|last| last.elapsed() < ON_ITS_WAY);
        chunks.versions = HashMap::new();
        chunks.forgotten = chunks.forgotten.wrapping_add(1);
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

    /// Returns the chunks and versions by array; `None` if there may be others.
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

impl KernelPages {
    /// Whether the kernel's pages of a view still match the store, which other programs may have
    /// changed.
    pub fn hold(&self, core: &Core, view: &View) -> bool {
        let Some(by_array) = self.seen.by_array() else { return false };
        let holds = |path: &NodePath, mut chunks: Vec<Read>| {
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
