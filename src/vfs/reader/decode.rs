//! Decoding in advance, on the threads of the pool.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::jobs::Jobs;
use super::pattern::Ticket;
use super::plan::PlannedChunk;
use crate::array::ChunkRef;
use crate::budget::Purpose;
use crate::pool::Urgency;
use crate::vfs::core::Core;
use crate::vfs::kernel::backing_files::BackingFiles;

/// The most bytes of a chunk that is read at once, if no codec changes them.
const READ_AT_ONCE: u64 = 64 << 10;

/// Where a chunk is decoded to.
#[derive(Debug, Clone, Copy)]
pub(super) enum DecodeTo {
    /// The cache, where it must be what was stored at this time, or later.
    Cache(Option<Instant>),
    /// A memory file that the kernel reads without us; the cache where that cannot be.
    MemoryFile,
}

/// Decodes chunks in advance, and drops those that were read.
#[derive(Clone)]
pub(super) struct Decoder {
    pub core: Arc<Core>,
    pub backing_files: Arc<BackingFiles>,
}

impl Decoder {
    /// Has a chunk decoded, unless it is here already or is not wanted any more when its turn
    /// comes. An error is reported to the reader that needs the chunk.
    pub fn decode(
        &self,
        urgency: Urgency,
        ticket: Ticket,
        ChunkRef { array, coords }: ChunkRef,
        to: DecodeTo,
    ) {
        let Some(pool) = self.core.pool.get() else { return };
        let (cache, passed) = (Arc::clone(&self.core.cache), Arc::clone(&self.backing_files));
        let budget = Arc::clone(&self.core.budget);
        pool.run(urgency, move || {
            if !ticket.is_wanted() || cache.is_here(&array, &coords) {
                return;
            }
            if urgency == Urgency::Prefetch {
                let len = array.longest_chunk_len().exactly().unwrap_or_default();
                if !budget.has_room(Purpose::Decoding, len) {
                    return;
                }
                cache.counters().ahead.fetch_add(1, Ordering::Relaxed);
            }
            let since = match to {
                DecodeTo::MemoryFile if passed.chunk(&cache, &array, &coords, None).is_some() => {
                    return;
                }
                DecodeTo::MemoryFile => None,
                DecodeTo::Cache(since) => since,
            };
            if let Err(error) = cache.get_fresh(&array, &coords, since) {
                log::debug!("decoding in advance: {error}");
            }
        });
    }

    /// Whether the thread that needs a chunk best reads it itself, if there are few of them.
    pub fn is_read_at_once(&self, chunk: &ChunkRef) -> bool {
        !self.core.is_remote()
            && chunk.array.is_by_element()
            && chunk.len().is_some_and(|len| len <= READ_AT_ONCE)
    }

    /// Has threads of the pool do jobs that a program waits for, at most `most` of them.
    pub fn help_with(&self, jobs: &Arc<Jobs>, most: usize, since: Option<Instant>) {
        let Some(pool) = self.core.pool.get() else { return };
        for _ in 0..most.min(pool.most_ahead()) {
            let (cache, jobs) = (Arc::clone(&self.core.cache), Arc::clone(jobs));
            pool.run(Urgency::Soon, move || jobs.run(&cache, since));
        }
    }

    /// Removes chunks from the cache that a sequence has passed, since the kernel has their bytes.
    /// Where it keeps no pages, they stay if all that the sequence has read, `len` bytes, fits.
    pub fn drop_passed(&self, passed: impl IntoIterator<Item = ChunkRef>, len: u64) {
        if self.core.options.kernel_keeps || len > self.core.options.cache_len {
            for ChunkRef { array, coords } in passed {
                self.core.cache.remove(&array, &coords);
            }
        }
    }
}
