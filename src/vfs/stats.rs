//! Counters in the text form of Prometheus.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Vfs;

/// Name, kind, what it is, and the value.
type Line = (&'static str, &'static str, &'static str, u64);

impl Vfs {
    /// What was read, decoded, encoded and written.
    fn work_done(&self) -> Vec<Line> {
        let counters = self.cache.counters();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        vec![
            (
                "zarrfs_chunks_decoded_total",
                "counter",
                "Chunks read and decoded.",
                count(&counters.decoded),
            ),
            (
                "zarrfs_chunks_decoded_ahead_total",
                "counter",
                "Those of them that were not asked for yet.",
                count(&counters.ahead),
            ),
            (
                "zarrfs_chunks_stored_total",
                "counter",
                "Chunks encoded and stored.",
                count(&counters.stored),
            ),
            ("zarrfs_chunks_erased_total", "counter", "Chunks erased.", count(&counters.erased)),
            (
                "zarrfs_decoded_bytes_total",
                "counter",
                "Bytes of chunks decoded.",
                count(&counters.decoded_len),
            ),
            (
                "zarrfs_stored_bytes_total",
                "counter",
                "Bytes of chunks stored, before they were encoded.",
                count(&counters.stored_len),
            ),
            (
                "zarrfs_decoding_milliseconds_total",
                "counter",
                "Time of threads that read and decoded chunks.",
                count(&counters.decoding) / 1_000_000,
            ),
            (
                "zarrfs_storing_milliseconds_total",
                "counter",
                "Time of threads that encoded and stored chunks.",
                count(&counters.storing) / 1_000_000,
            ),
            (
                "zarrfs_read_bytes_total",
                "counter",
                "Bytes read by the kernel, other than those that it reads by itself.",
                count(&self.read_len),
            ),
            (
                "zarrfs_written_bytes_total",
                "counter",
                "Bytes written by programs.",
                count(&self.written_len),
            ),
        ]
    }

    /// What `.zarrfs/stats` shows.
    pub(super) fn stats(&self) -> String {
        let counters = self.cache.counters();
        let handles = u64::try_from(self.handles.lock().len()).unwrap_or(u64::MAX);
        let inodes = u64::try_from(self.inodes.len()).unwrap_or(u64::MAX);
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let lines = [
            (
                "zarrfs_process_id",
                "gauge",
                "Process that serves the mount.",
                u64::from(std::process::id()),
            ),
            ("zarrfs_cache_hits_total", "counter", "Chunks found decoded.", count(&counters.hits)),
            ("zarrfs_cache_bytes", "gauge", "Decoded chunks that are kept.", self.cache.len()),
            (
                "zarrfs_memory_files_bytes",
                "gauge",
                "Decoded chunks in files that the kernel reads.",
                self.passed.len(),
            ),
            (
                "zarrfs_opens_passed_total",
                "counter",
                "Chunks opened that the kernel reads by itself.",
                self.passed.opened(),
            ),
            (
                "zarrfs_unstored_bytes",
                "gauge",
                "Bytes of files that wait to be stored.",
                self.unstored_len().saturating_add(self.cache.waiting_len()),
            ),
            ("zarrfs_open_files", "gauge", "Open files.", handles),
            ("zarrfs_inodes", "gauge", "Inodes that the kernel knows.", inodes),
            ("zarrfs_errors_total", "counter", "Errors that programs saw.", self.journal.count()),
        ];
        let mut text = String::new();
        for (name, kind, help, value) in self.work_done().into_iter().chain(lines) {
            // Writing to a string does not fail.
            let _never =
                writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
        }
        text
    }
}
