//! Counters in the text format of Prometheus.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use super::handles::Handles;
use crate::budget::Purpose;
use crate::error::Result;
use crate::vfs::core::Core;
use crate::vfs::inodes::place::Report;
use crate::vfs::kernel::backing_files::BackingFiles;
use crate::vfs::names::Names;
use crate::vfs::names::listing::Listings;
use crate::vfs::reader::Reader;
use crate::width::ToU64;
use crate::{buffer, resources};

/// The name after `zarrfs_`, the help text, and the value. Names of counters end in `_total`.
type Line = (&'static str, &'static str, u64);

/// Writes the files in `.zarrfs` that are generated for each open.
pub(in crate::vfs) struct Reports {
    pub core: Arc<Core>,
    pub names: Arc<Names>,
    pub listings: Arc<Listings>,
    pub reader: Arc<Reader>,
    pub backing_files: Arc<BackingFiles>,
    pub handles: Arc<Handles>,
    /// Bytes that were read and written through handles.
    pub read_len: AtomicU64,
    pub written_len: AtomicU64,
}

impl Reports {
    /// Returns the counters of reading, decoding, encoding and writing.
    fn counters(&self) -> Vec<Line> {
        let done = self.core.cache.counters();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let ms = |counter: &AtomicU64| count(counter) / 1_000_000;
        vec![
            ("chunks_decoded_total", "Chunks read and decoded.", count(&done.decoded)),
            (
                "chunks_prefetched_total",
                "Chunks decoded before a program asked for them.",
                count(&done.ahead),
            ),
            (
                "partial_chunk_reads_total",
                "Reads that decoded only a part of a chunk.",
                self.reader.partial_reads(),
            ),
            (
                "view_windows_total",
                "Long parts of views assembled at once because a row of chunks exceeds the cache.",
                self.reader.long_parts(),
            ),
            ("chunks_stored_total", "Chunks encoded and stored.", count(&done.stored)),
            ("chunks_erased_total", "Chunks erased from the store.", count(&done.erased)),
            (
                "decoded_bytes_total",
                "Decoded size of the chunks decoded.",
                count(&done.decoded_len),
            ),
            ("stored_bytes_total", "Decoded size of the chunks stored.", count(&done.stored_len)),
            (
                "decoding_milliseconds_total",
                "Time of all threads that read and decode.",
                ms(&done.decoding),
            ),
            (
                "storing_milliseconds_total",
                "Time of all threads that encode and store.",
                ms(&done.storing),
            ),
            ("read_bytes_total", "Bytes that the kernel requested.", count(&self.read_len)),
            ("written_bytes_total", "Bytes that programs wrote.", count(&self.written_len)),
            ("cache_hits_total", "Requests for chunks that the cache held.", count(&done.hits)),
            (
                "passthrough_opens_total",
                "Opens for which the kernel reads the file itself.",
                self.backing_files.opened(),
            ),
            ("errors_total", "Errors returned to programs.", self.core.journal.count()),
        ]
    }

    /// Returns the parts of the memory, with the names of `docs/limits.md`.
    fn memory(&self) -> [Line; 9] {
        let drawn = |purpose| self.core.budget.drawn(purpose);
        let unused = buffer::cached_len().to_u64();
        [
            ("cache_limit_bytes", "The limit of the next six.", self.core.options.cache_len),
            ("cache_bytes", "Memory for decoded chunks.", drawn(Purpose::Chunks)),
            ("decoding_bytes", "Chunks that are being decoded.", drawn(Purpose::Decoding)),
            (
                "long_part_bytes",
                "Long parts of views that were assembled at once.",
                drawn(Purpose::LongParts),
            ),
            (
                "view_header_bytes",
                "Headers of views that are cached or open.",
                drawn(Purpose::ViewHeaders),
            ),
            (
                "passthrough_memory_bytes",
                "Memory files that the kernel reads itself.",
                drawn(Purpose::MemoryFiles),
            ),
            ("free_buffer_bytes", "Memory kept for the next chunks.", unused),
            ("unstored_limit_bytes", "The limit of the next one.", self.core.options.dirty_limit),
            ("unstored_bytes", "Changes that are not stored yet.", drawn(Purpose::Unstored)),
        ]
    }

    /// Returns the gauges.
    fn gauges(&self) -> Vec<Line> {
        let len = |count: usize| count.to_u64();
        let in_use = resources::in_use();
        let started = self.core.mounted.duration_since(SystemTime::UNIX_EPOCH);
        let started = started.map_or(0, |since| since.as_secs());
        let mut lines = vec![
            ("process_id", "Process ID of the daemon.", u64::from(std::process::id())),
            (
                "start_time_seconds",
                "When the hierarchy was mounted, in seconds of Unix time.",
                started,
            ),
            ("open_files", "Files that programs have open.", len(self.handles.len())),
            ("inodes", "Inodes that the kernel knows.", len(self.names.inodes.len())),
            (
                "passthrough_files",
                "Open files that the kernel reads itself.",
                len(self.backing_files.open_files()),
            ),
            (
                "open_directories",
                "Directories that programs have open.",
                len(self.listings.open_dirs()),
            ),
            (
                "directories_being_read",
                "Directories of the store that zarrfs has open to read them.",
                len(in_use.directories),
            ),
            (
                "descriptor_limit",
                "File descriptors that the daemon may have.",
                in_use.descriptor_limit,
            ),
        ];
        let known = [
            ("descriptors", "File descriptors that the daemon has open.", in_use.descriptors),
            ("threads", "Threads of the daemon.", in_use.threads),
            (
                "thread_limit",
                "Threads that the user of the daemon may have in total.",
                in_use.thread_limit,
            ),
        ];
        let known = known.into_iter();
        lines.extend(known.filter_map(|(name, help, value)| Some((name, help, value?))));
        lines
    }

    /// Returns the requests to the server of a remote store.
    fn requests(&self) -> Vec<Line> {
        let Some(made) = self.core.hierarchy.store().read().requests() else { return Vec::new() };
        vec![
            ("requests_get_total", "Requests for values or parts of them.", made.gets),
            ("requests_list_total", "Requests for pages of listings.", made.lists),
            ("requests_put_total", "Requests that store a value.", made.puts),
            ("requests_delete_total", "Requests that erase values.", made.deletes),
            ("received_bytes_total", "Bytes of values that were received.", made.received_len),
            ("sent_bytes_total", "Bytes of values that were sent.", made.sent_len),
            ("disk_cache_hits_total", "Reads that the disk cache answered.", made.disk_hits),
            ("disk_cache_bytes_total", "Bytes of values in them.", made.disk_len),
            (
                "server_silence_milliseconds",
                "How long the server has shown no sign of its work while requests were under way.",
                u64::try_from(made.silence.as_millis()).unwrap_or(u64::MAX),
            ),
        ]
    }

    /// Returns the text of `.zarrfs/stats`.
    pub fn stats(&self) -> String {
        let mut text = String::new();
        let lines = self.gauges().into_iter().chain(self.memory()).chain(self.counters());
        for (name, help, value) in lines.chain(self.requests()) {
            let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
            let name = format!("zarrfs_{name}");
            // Writing to a string does not fail.
            let _never =
                writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
        }
        text.push_str(&self.mount_info());
        text
    }

    /// Returns a line whose labels describe the mount.
    fn mount_info(&self) -> String {
        let options = &self.core.options;
        let source = options.source.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
        let (name, form) = ("zarrfs_mount_info", options.form.name());
        format!(
            "# HELP {name} The labels describe the mount.\n# TYPE {name} gauge\n\
             {name}{{form=\"{form}\",source=\"{source}\"}} 1\n"
        )
    }

    pub fn report(&self, report: Report) -> Result<bytes::Bytes> {
        Ok(match report {
            Report::Errors => self.core.journal.text().into(),
            Report::Stats => self.stats().into(),
            Report::Refused => self.core.refused.text().into(),
            Report::Unstored => self.unstored_text().into(),
            Report::UnstoredBytes => self.unstored_bytes()?.into(),
        })
    }
}
