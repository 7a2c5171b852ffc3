//! Checks a hierarchy: every metadata file, every key and every chunk.
//!
//! First all nodes are read (`nodes`), because keys mean nothing without them. Then all keys are
//! listed (`keys`): each belongs to a node or a chunk, or is reported. The stored values go through
//! a queue (`queue`) to several threads, which decode their chunks (`chunks`). Memory does not grow
//! with the number of chunks.
//!
//! `repair` makes the repairs that take no guessing.

mod chunks;
mod conventions;
mod finding;
mod keys;
mod names;
mod nodes;
mod options;
mod queue;
pub mod repair;
mod seen;
mod spelling;
mod tally;
mod target;
mod unlisted;

use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use chunks::{CheckReader, Counters};
pub use finding::{Code, Finding, FindingPlace, Repair, Severity};
use keys::KeyCheck;
use nodes::Nodes;
pub use options::{CheckOptions, CheckSummary, CheckWatch, Unchecked, WhichChunks};
use options::{ChunkSample, digest};
use queue::Queue;
use tally::Tally;
use target::CheckedArray;

use crate::error::{Result, Word};
use crate::hierarchy::Hierarchy;
use crate::metadata::NodePath;
use crate::parallel;
use crate::store::Omission;
use crate::width::ToUsize;

/// Checks the nodes in `options` and everything below them.
pub fn run(
    hierarchy: &Hierarchy,
    options: &CheckOptions,
    watch: &dyn CheckWatch,
) -> Result<CheckSummary> {
    let tally = Tally::new(watch, hierarchy.store().omissions());
    let watch: &dyn CheckWatch = &tally;
    let nodes = Nodes::read(hierarchy, &options.only, watch)?;
    let mut summary =
        CheckSummary { groups: nodes.groups, arrays: nodes.arrays, ..CheckSummary::default() };
    let targets: Vec<Arc<CheckedArray>> = nodes.targets.values().cloned().collect();
    if watch.is_stopped() {
        return Ok(summary);
    }
    let lists_chunks = options.chunks != WhichChunks::None;
    let keys = KeyCheck::new(hierarchy, &nodes, options.expects_all, lists_chunks, watch);
    let sample = match options.chunks {
        WhichChunks::All | WhichChunks::None => None,
        WhichChunks::PerMillion(part) => Some(ChunkSample::of(part, 1_000_000)),
        WhichChunks::Count(count) => sample_of_count(count, &targets, watch),
    };
    let (queue, counters) = (Queue::default(), Counters::default());
    let reader = CheckReader {
        queue: &queue,
        counters: &counters,
        watch,
        store: hierarchy.store(),
        sample,
        expects_all: options.expects_all,
    };
    thread::scope(|scope| {
        let work = || {
            let _busy = parallel::busy();
            reader.work();
        };
        scope.spawn(work);
        parallel::spawn(scope, options.jobs.saturating_sub(1), work);
        for path in &nodes.tops {
            keys.list(path, &queue);
        }
        queue.complete();
    });
    report_unseen(hierarchy, &nodes, &tally);
    let sum = |counter: fn(&CheckedArray) -> &AtomicU64| {
        let counts = targets.iter().map(|target| counter(target).load(Ordering::Relaxed));
        counts.fold(0, u64::saturating_add)
    };
    summary.values = sum(|target| &target.value_count);
    summary.chunks_stored = sum(|target| &target.chunk_count);
    if lists_chunks {
        summary.chunks_missing = missing_in(&targets);
        summary.chunks_unread = sum(|target| &target.unread_count);
    }
    summary.chunks_read = load(&counters.read);
    summary.chunks_skipped = load(&counters.skipped);
    summary.chunks_unknown = load(&counters.unknown).saturating_add(load(&keys.unclear));
    summary.unchecked = tally.unchecked();
    summary.decoded_len = load(&counters.decoded_len);
    Ok(summary)
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Returns how many chunks are not stored.
fn missing_in(targets: &[Arc<CheckedArray>]) -> u64 {
    let listed = targets.iter().filter(|target| {
        target.array.not_understood().is_none() && !target.is_unlisted.load(Ordering::Relaxed)
    });
    let missing = listed.map(|target| {
        let known = load(&target.chunk_count).saturating_add(load(&target.unread_count));
        target.possible().saturating_sub(known)
    });
    missing.fold(0, u64::saturating_add)
}

/// Reports what the walks did not see, unless a finding says it already.
fn report_unseen(hierarchy: &Hierarchy, nodes: &Nodes<'_>, tally: &Tally<'_>) {
    // The names of values were compared, those of empty directories were not.
    if let Err(error) = hierarchy.store().read().note_misnamed(&|_| false) {
        log::warn!("{error}");
    }
    let tops = nodes.tops.iter().map(NodePath::as_str);
    let not_seen = hierarchy.store().omissions().around(tops);
    for Omission { place, word, why } in not_seen.omissions {
        if tally.has_found(&place) {
            continue;
        }
        let place = if place.is_empty() { "/".to_owned() } else { place };
        let code = match word {
            Word::Refused => Code::Refused,
            Word::Missing => Code::MissingTarget,
            Word::Unsupported | Word::Limited | Word::Damaged | Word::Failed => Code::Unseen,
        };
        tally.find(Finding::new(code, place, why));
    }
    if not_seen.others > 0 {
        let reason = format!("{} more places could not be seen", not_seen.others);
        tally.find(Finding::new(Code::Unseen, "/", reason));
    }
}

/// Returns a sample of `count` chunks; `None` if there are no more, or if the user stopped the
/// check.
fn sample_of_count(
    count: u64,
    targets: &[Arc<CheckedArray>],
    watch: &dyn CheckWatch,
) -> Option<ChunkSample> {
    let most = count.to_usize();
    // The smallest digests so far.
    let mut chosen: BinaryHeap<u64> = BinaryHeap::new();
    let mut all: u64 = 0;
    for target in targets.iter().filter(|target| target.array.not_understood().is_none()) {
        // The check itself reports an array that cannot be listed.
        let Ok(listed) = Arc::clone(target.array.chunks()).list() else { continue };
        for coords in listed.flatten() {
            if watch.is_stopped() {
                return None;
            }
            all = all.saturating_add(1);
            let digest = digest(&target.path, &coords);
            if chosen.len() < most {
                chosen.push(digest);
            } else if chosen.peek().is_some_and(|greatest| digest < *greatest) {
                chosen.pop();
                chosen.push(digest);
            }
        }
    }
    (all > count).then(|| ChunkSample { threshold: chosen.peek().copied().unwrap_or_default() })
}
