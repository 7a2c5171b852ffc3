//! A zip archive as a store that cannot be written, over the store that holds the archive.
//!
//! Entries are values, and directories are prefixes. `directory` reads the names of all entries
//! when the archive is opened, in two reads at most; a `table` keeps them. `misnamed` finds entries
//! that have another name in the directory. Reads of entries become reads of parts of the archive
//! (`reading`), all of one call in one call of the store below, so that a store on a server can
//! join them and make them at the same time.
//!
//! The version and the time of every entry are those of the archive. Another program may replace
//! the archive. Each read checks the version of the bytes that it got against the one of the table.
//! If they differ, it reads the directory again, and begins again.
//!
//! The archive may come from anyone: `directory` and `table` limit the memory for names, and refuse
//! entries that overlap; `entry` decodes no more bytes than the directory says, and checks CRC-32
//! of whole entries.

mod archive;
mod directory;
mod entry;
mod misnamed;
mod names;
mod reading;
mod table;
mod writer;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use libdeflater::Crc;
use parking_lot::Mutex;

use super::{
    ByteRange, Capacity, Entries, Expected, Key, Keys, ListableStore, Omissions, Prefix,
    ReadableStore, Requests, Stat, Store, StoreEntry, Value, Version,
};
use archive::Archive;
pub use archive::ArchiveLimits;
use table::EntryTable;
pub use writer::{Zip64, ZipWriter};
use zarrfs_base::error::{Error, Kind, Result, WithSubject};
use zarrfs_base::width::ToUsize;

/// How often a read begins again because the archive was replaced meanwhile.
const ATTEMPTS: usize = 8;

/// The most bytes of an entry to read at a time for its checksum.
const PIECE: u64 = 8 << 20;

/// The bytes of an entry, one piece after another.
struct Pieces {
    crc: Crc,
    version: Option<Version>,
}

impl Pieces {
    fn add(&mut self, piece: &Value) -> Result<()> {
        let version = *self.version.get_or_insert(piece.stat.version);
        if !version.is_same(piece.stat.version) {
            return Err(Archive::replaced());
        }
        self.crc.update(&piece.bytes);
        Ok(())
    }
}

/// One state of the archive: its table, as soon as a thread has read it. Others wait for that.
#[derive(Debug, Default)]
struct ArchiveState {
    table: OnceLock<Result<Arc<EntryTable>>>,
    /// When the archive was last seen to have the version of the table, in milliseconds since the
    /// store was made.
    seen: AtomicU64,
}

/// The entries of a zip archive.
#[derive(Debug)]
pub struct ZipStore {
    archive: Archive,
    limits: ArchiveLimits,
    made: Instant,
    /// A leaf lock.
    opened: Mutex<Arc<ArchiveState>>,
    omissions: Omissions,
}

/// Returns an error about the archive as one of the whole store: no single value is damaged, and it
/// may pass, as when another program is writing the archive.
fn of_archive(error: Error) -> Error {
    match error.kind() {
        Kind::Corrupt | Kind::TooLarge => {
            let errno = error.errno();
            error.of_kind(Kind::Os(errno))
        }
        _ => error,
    }
}

impl ZipStore {
    /// Opens the archive that is the value of `key` in `below`.
    pub fn open(below: Store, key: Key, limits: ArchiveLimits) -> Result<Self> {
        let store = Self {
            archive: Archive { below, key },
            limits,
            made: Instant::now(),
            opened: Mutex::default(),
            omissions: Omissions::default(),
        };
        store.table()?;
        Ok(store)
    }

    /// Returns the name of the directory that all entries lie in, if there is one.
    pub fn only_directory(&self) -> Result<Option<String>> {
        let mut entries = self.table()?.1.entries(String::new());
        match (entries.next(), entries.next()) {
            (Some(StoreEntry::Prefix(name)), None) => Ok(Some(name)),
            _ => Ok(None),
        }
    }

    /// Returns the table of the archive as it is now, or was not longer than `ttl` ago.
    fn table(&self) -> Result<(Arc<ArchiveState>, Arc<EntryTable>)> {
        for _ in 0..ATTEMPTS {
            let opened = Arc::clone(&self.opened.lock());
            let mut is_new = false;
            let read = opened.table.get_or_init(|| {
                is_new = true;
                let now = self.now();
                let read = directory::read(&self.archive, &self.limits, &self.omissions);
                let read = read.map(Arc::new);
                opened.seen.store(now, Ordering::Relaxed);
                read
            });
            let table = match read {
                Ok(table) => Arc::clone(table),
                Err(error) => {
                    let error = error.clone();
                    // The next reader tries again.
                    self.drop_outdated(&opened);
                    return Err(of_archive(error));
                }
            };
            if is_new || self.is_fresh(&opened) || self.is_current(&opened, &table)? {
                return Ok((opened, table));
            }
            self.drop_outdated(&opened);
        }
        Err(Archive::replaced())
    }

    fn now(&self) -> u64 {
        u64::try_from(self.made.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether the archive was seen recently.
    fn is_fresh(&self, opened: &ArchiveState) -> bool {
        let age = self.now().saturating_sub(opened.seen.load(Ordering::Relaxed));
        Duration::from_millis(age) < self.limits.ttl
    }

    /// Whether the archive still has the version of the table. The last byte comes with the
    /// version, in a short answer even from a server.
    fn is_current(&self, opened: &ArchiveState, table: &EntryTable) -> Result<bool> {
        let now = self.now();
        let found = self.archive.get(ByteRange::Suffix(1))?;
        let is_current = table.stat.version.holds(found.stat.version);
        if is_current {
            opened.seen.store(now, Ordering::Relaxed);
        }
        Ok(is_current)
    }

    /// Lets the next reader read the directory again, unless that has happened.
    fn drop_outdated(&self, opened: &Arc<ArchiveState>) {
        let mut current = self.opened.lock();
        if Arc::ptr_eq(&current, opened) {
            *current = Arc::default();
        }
    }
}

impl ReadableStore for ZipStore {
    fn expect(&self, ranges: &[(Key, ByteRange)]) -> Expected {
        let opened = Arc::clone(&self.opened.lock());
        let Some(Ok(table)) = opened.table.get() else { return Expected::default() };
        let mut spans = Vec::new();
        for (key, range) in ranges {
            if let Some(row) = table.find(key.as_str()) {
                // The read that follows reports the error.
                let wanted = table.wanted(row, *range);
                spans.extend(table.spans(&wanted, &self.limits).unwrap_or_default());
            }
        }
        spans.sort_unstable();
        spans.dedup();
        self.archive.below.read().expect(&self.archive.ranges(&spans))
    }

    fn stop(&self) {
        self.archive.below.read().stop();
    }

    fn requests(&self) -> Option<Requests> {
        self.archive.below.read().requests()
    }

    fn most_expected(&self) -> u64 {
        self.archive.below.read().most_expected()
    }

    fn get_partial_values(&self, ranges: &[(Key, ByteRange)]) -> Result<Vec<Option<Value>>> {
        for _ in 0..ATTEMPTS {
            let (opened, table) = self.table()?;
            let wanted: Vec<_> = ranges
                .iter()
                .map(|(key, range)| table.find(key.as_str()).map(|row| table.wanted(row, *range)))
                .collect();
            if let Some(values) = table.read(&self.archive, &self.limits, &wanted)? {
                return Ok(values);
            }
            self.drop_outdated(&opened);
        }
        Err(Archive::replaced())
    }

    fn stat(&self, keys: &[Key]) -> Result<Vec<Option<Stat>>> {
        let (_, table) = self.table()?;
        let stat_of =
            |key: &Key| table.find(key.as_str()).map(|row| table.stat_of(row, table.stat));
        Ok(keys.iter().map(stat_of).collect())
    }

    fn check_name(&self, key: &Key) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let (opened, table) = self.table()?;
            let Some(row) = table.find(key.as_str()) else { return Ok(()) };
            if table.check_header(&self.archive, row)?.is_some() {
                return Ok(());
            }
            self.drop_outdated(&opened);
        }
        Err(Archive::replaced())
    }

    fn has_checksums(&self) -> bool {
        true
    }

    fn check_value(&self, key: &Key) -> Result<()> {
        let (_, table) = self.table()?;
        let Some(row) = table.find(key.as_str()) else { return Ok(()) };
        let len = table.lens(row).decoded;
        // A read of a whole entry, or of a part of a compressed one, compares the checksum.
        let step = if row.is_compressed() { u64::MAX } else { PIECE };
        let mut pieces = Pieces { crc: Crc::new(), version: None };
        for offset in (0..len).step_by(step.to_usize()) {
            let range = ByteRange::Span { offset, len: step.min(len.saturating_sub(offset)) };
            let values = self.get_partial_values(&[(key.clone(), range)])?;
            pieces.add(&values.into_iter().next().flatten().ok_or_else(Archive::gone)?)?;
        }
        entry::check_crc(pieces.crc.sum(), row.crc).at(key)
    }

    fn note_misnamed(&self, wanted: &dyn Fn(&str) -> bool) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let (opened, table) = self.table()?;
            if misnamed::note_unread(&self.archive, &table, wanted, &self.omissions)?.is_some() {
                return Ok(());
            }
            self.drop_outdated(&opened);
        }
        Err(Archive::replaced())
    }

    fn room(&self) -> Result<Option<Capacity>> {
        self.archive.below.read().room()
    }
}

impl ListableStore for ZipStore {
    fn omissions(&self) -> Omissions {
        self.omissions.clone()
    }

    fn may_have(&self, prefix: &Prefix) -> bool {
        // An error is reported when the directory is read.
        self.table().map_or(true, |(_, table)| table.has_prefix(prefix.as_str()))
    }

    fn list_dir(&self, prefix: &Prefix) -> Result<Entries> {
        let (_, table) = self.table()?;
        Ok(Box::new(table.entries(prefix.to_string()).map(Ok)))
    }

    fn list_prefix(&self, prefix: &Prefix) -> Result<Keys> {
        let (_, table) = self.table()?;
        Ok(Box::new(table.keys(prefix.to_string())))
    }
}

#[cfg(test)]
mod tests;
