//! Counters of the cache, for `.zarrfs/stats`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use zarrfs_base::buffer::Buffer;
use zarrfs_base::width::ToU64;

/// Counters of the cache, for `.zarrfs/stats`.
#[derive(Debug, Default)]
pub struct Counters {
    /// Chunks found in the cache.
    pub hits: AtomicU64,
    /// Chunks read and decoded.
    pub decoded: AtomicU64,
    /// Chunks that were prefetched, included in `decoded`.
    pub ahead: AtomicU64,
    /// Chunks encoded and stored.
    pub stored: AtomicU64,
    /// Chunks erased.
    pub erased: AtomicU64,
    /// Bytes of chunks after decoding.
    pub decoded_len: AtomicU64,
    /// Bytes of chunks before encoding and storing.
    pub stored_len: AtomicU64,
    /// Nanoseconds that threads spent reading and decoding.
    pub decoding: AtomicU64,
    /// Nanoseconds that threads spent encoding and storing.
    pub storing: AtomicU64,
}

/// Adds the time since `started` to a counter of nanoseconds.
pub(super) fn add_time(counter: &AtomicU64, started: Instant) {
    let passed = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    counter.fetch_add(passed, Ordering::Relaxed);
}

fn add_len(counter: &AtomicU64, bytes: &[u8]) {
    counter.fetch_add(bytes.len().to_u64(), Ordering::Relaxed);
}

impl Counters {
    /// Counts a chunk whose reading and decoding began at `started`.
    pub(super) fn count_decoded(&self, bytes: &[u8], started: Instant) {
        self.decoded.fetch_add(1, Ordering::Relaxed);
        add_len(&self.decoded_len, bytes);
        add_time(&self.decoding, started);
    }

    /// Counts a chunk that was stored, or erased if `bytes` is `None`.
    pub(super) fn count_stored(&self, bytes: Option<&Buffer>) {
        match bytes {
            Some(bytes) => self.count_stored_len(bytes.len().to_u64()),
            None => {
                self.erased.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn count_stored_len(&self, len: u64) {
        self.stored.fetch_add(1, Ordering::Relaxed);
        self.stored_len.fetch_add(len, Ordering::Relaxed);
    }
}
