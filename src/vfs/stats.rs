//! Counters in the text form of Prometheus.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Vfs;
use crate::resources;

/// Name after `zarrfs_`, what it is, and the value. What counts up has a name that ends in `_total`.
type Line = (&'static str, &'static str, u64);

impl Vfs {
    /// What was read, decoded, encoded and written.
    fn work_done(&self) -> Vec<Line> {
        let done = self.cache.counters();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let ms = |counter: &AtomicU64| count(counter) / 1_000_000;
        vec![
            ("chunks_decoded_total", "Chunks read and decoded.", count(&done.decoded)),
            ("chunks_decoded_ahead_total", "Those of them not asked for yet.", count(&done.ahead)),
            ("excerpts_total", "Ranges read of chunks, no more.", count(&self.excerpts)),
            (
                "windows_total",
                "Long parts of views made at once, where the cache holds no row of chunks.",
                count(&self.windows.made),
            ),
            ("chunks_stored_total", "Chunks encoded and stored.", count(&done.stored)),
            ("chunks_erased_total", "Chunks erased.", count(&done.erased)),
            ("decoded_bytes_total", "Bytes of chunks decoded.", count(&done.decoded_len)),
            ("stored_bytes_total", "Bytes of chunks stored, decoded.", count(&done.stored_len)),
            ("decoding_milliseconds_total", "Threads that read and decode.", ms(&done.decoding)),
            ("storing_milliseconds_total", "Threads that encode and store.", ms(&done.storing)),
            ("read_bytes_total", "Bytes that the kernel asked for.", count(&self.read_len)),
            ("written_bytes_total", "Bytes that programs wrote.", count(&self.written_len)),
            ("cache_hits_total", "Chunks found decoded.", count(&done.hits)),
            ("opens_passed_total", "Files opened that the kernel reads.", self.passed.opened()),
            ("errors_total", "Errors that programs saw.", self.journal.count()),
        ]
    }

    /// What there is now.
    fn held(&self) -> Vec<Line> {
        let len = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let waiting = self.unstored_len().saturating_add(self.cache.waiting_len());
        let in_use = resources::in_use();
        let mut lines = vec![
            ("process_id", "Process that serves the mount.", u64::from(std::process::id())),
            ("cache_bytes", "Decoded chunks that are kept.", self.cache.len()),
            ("memory_files_bytes", "The same in files that the kernel reads.", self.passed.len()),
            ("unstored_bytes", "Bytes that wait to be stored.", waiting),
            ("open_files", "Open files.", len(self.handles.lock().len())),
            ("inodes", "Inodes that the kernel knows.", len(self.inodes.len())),
            ("passed_files", "Files open that the kernel reads.", len(self.passed.open_files())),
            ("open_directories", "Directories that programs have open.", len(self.open_dirs())),
            (
                "directories_being_read",
                "Directories of the store that are being read.",
                len(in_use.directories),
            ),
            (
                "descriptor_limit",
                "Descriptors that this process may have.",
                in_use.descriptor_limit,
            ),
        ];
        let known = [
            ("descriptors", "Descriptors in use.", in_use.descriptors),
            ("threads", "Threads of this process.", in_use.threads),
            ("thread_limit", "Threads that its user may have in all.", in_use.thread_limit),
        ];
        let known = known.into_iter();
        lines.extend(known.filter_map(|(name, help, value)| Some((name, help, value?))));
        lines
    }

    /// What `.zarrfs/stats` shows.
    pub(super) fn stats(&self) -> String {
        let mut text = String::new();
        for (name, help, value) in self.held().into_iter().chain(self.work_done()) {
            let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
            let name = format!("zarrfs_{name}");
            // Writing to a string does not fail.
            let _never =
                writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
        }
        text
    }
}
