//! The entries of an archive by name, in little memory: 34 bytes for each beside its name.
//!
//! Names lie in one buffer, in the order of the central directory, each after its length in two
//! bytes. Rows are sorted by name. A directory has a row if the archive has an entry for it, whose
//! name ends with a slash.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};

use super::entry::{FIXED_LEN, Method};
use super::names::Spelling;
use crate::{Key, Stat, StoreEntry};
use zarrfs_base::bounded::{self, Bounded};
use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_base::width::ToU64;

/// The most bytes of decoded entries to keep: inner chunks of a deflated shard are read one after
/// another.
const MOST_DECODED: u64 = 64 << 20;

/// The lengths of an entry in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lens {
    /// In the archive.
    pub(super) stored: u64,
    /// Decoded.
    pub(super) decoded: u64,
}

/// An entry of the central directory.
#[derive(Debug, Clone, Copy)]
pub(super) struct CentralRecord {
    /// Where its local header begins.
    pub(super) header_offset: u64,
    pub(super) lens: Lens,
    pub(super) crc: u32,
    pub(super) method: Method,
    pub(super) is_encrypted: bool,
    pub(super) spelling: Spelling,
}

/// An entry in the table.
#[derive(Debug)]
pub(super) struct EntryRow {
    pub(super) header_offset: u64,
    /// The lengths, `u32::MAX` both if `EntryTable::long` has them.
    stored_len: u32,
    decoded_len: u32,
    pub(super) crc: u32,
    name_at: u32,
    /// The length of its local header, 0 until that was read.
    header_len: AtomicU32,
    pub(super) method: Method,
    pub(super) is_encrypted: bool,
    pub(super) spelling: Spelling,
}

impl EntryRow {
    /// Returns the length of its local header, if that was read.
    pub(super) fn header_len(&self) -> Option<u64> {
        match self.header_len.load(Relaxed) {
            0 => None,
            len => Some(u64::from(len)),
        }
    }

    /// Whether its bytes are compressed.
    pub(super) fn is_compressed(&self) -> bool {
        self.method != Method::STORED
    }

    /// Notes the length of its local header.
    pub(super) fn set_header_len(&self, len: u32) {
        self.header_len.store(len, Relaxed);
    }
}

/// An entry whose name a later one has, too.
#[derive(Debug)]
pub(super) struct Shadowed {
    pub(super) header_offset: u64,
    name_at: u32,
}

/// The most of these to keep.
const MOST_SHADOWED: usize = 4096;

/// The entries of an archive.
pub(super) struct EntryTable {
    names: Vec<u8>,
    rows: Vec<EntryRow>,
    /// The lengths of long entries, by the place of their names.
    long: Vec<(u32, Lens)>,
    /// The stat of the archive when its directory was read.
    pub(super) stat: Stat,
    /// Where the directory begins.
    pub(super) end: u64,
    /// Entries that were decoded to read a part of them, by their offsets. A leaf lock.
    decoded: Mutex<Bounded<u64, Bytes>>,
    /// Held while a part of an entry is read that is too long to be kept, so that one at a time is
    /// in memory: a chunk may take a few bytes of an entry of a gigabyte.
    decoding: Mutex<()>,
}

impl fmt::Debug for EntryTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("rows", &self.rows.len()).finish_non_exhaustive()
    }
}

impl EntryTable {
    /// Returns the entry with this name.
    pub(super) fn find(&self, name: &str) -> Option<&EntryRow> {
        let found = self.rows.binary_search_by(|row| self.name(row).cmp(name.as_bytes()));
        self.rows.get(found.ok()?)
    }

    /// Returns the name of an entry.
    pub(super) fn name(&self, row: &EntryRow) -> &[u8] {
        name_at(&self.names, row.name_at)
    }

    /// Returns the entries, by name.
    pub(super) fn rows(&self) -> &[EntryRow] {
        &self.rows
    }

    /// Returns the name of an entry that a later one shadows.
    pub(super) fn shadowed_name(&self, entry: &Shadowed) -> &[u8] {
        name_at(&self.names, entry.name_at)
    }

    /// Returns the lengths of an entry.
    pub(super) fn lens(&self, row: &EntryRow) -> Lens {
        if (row.stored_len, row.decoded_len) == (u32::MAX, u32::MAX) {
            let found = self.long.binary_search_by_key(&row.name_at, |(name_at, _)| *name_at);
            if let Some((_, lens)) = found.ok().and_then(|at| self.long.get(at)) {
                return *lens;
            }
        }
        Lens { stored: u64::from(row.stored_len), decoded: u64::from(row.decoded_len) }
    }

    /// Returns the number of the first entry whose name is not less.
    fn first_from(&self, name: &[u8]) -> usize {
        self.rows.partition_point(|row| self.name(row) < name)
    }

    /// Whether an entry has this prefix.
    pub(super) fn has_prefix(&self, prefix: &str) -> bool {
        let first = self.rows.get(self.first_from(prefix.as_bytes()));
        first.is_some_and(|row| self.name(row).starts_with(prefix.as_bytes()))
    }

    /// Returns the bytes of an entry that was decoded before.
    pub(super) fn decoded(&self, row: &EntryRow) -> Option<Bytes> {
        self.decoded.lock().get(&row.header_offset).cloned()
    }

    /// Returns the right to decode an entry that is too long to be kept; `None` for another one.
    pub(super) fn right_to_decode(&self, len: u64) -> Option<MutexGuard<'_, ()>> {
        (len > MOST_DECODED).then(|| self.decoding.lock())
    }

    /// Keeps the bytes of an entry, because a part of them was read.
    pub(super) fn keep_decoded(&self, row: &EntryRow, bytes: &Bytes) {
        let len = bytes.len().to_u64();
        if len <= MOST_DECODED {
            let evicted = self.decoded.lock().put(row.header_offset, bytes.clone(), len);
            drop(evicted);
        }
    }

    /// Whether the entry before the row `at` has the name of a directory, too. No mount can show
    /// both, so it is not listed.
    fn is_directory(&self, name: &[u8], at: usize) -> bool {
        let next = self.rows.get(at).and_then(|next| self.name(next).strip_prefix(name));
        // Names of other files may lie between.
        match next.and_then(<[u8]>::first) {
            Some(first) if *first < b'/' => self.has_prefix(&format!("{}/", text(name))),
            first => first == Some(&b'/'),
        }
    }

    /// Returns the names of the values that are not listed.
    pub(super) fn not_listed(&self) -> impl Iterator<Item = &str> {
        (1..).zip(&self.rows).filter_map(|(next, row)| {
            let name = self.name(row);
            let is_hidden = !name.ends_with(b"/") && self.is_directory(name, next);
            is_hidden.then(|| text(name))
        })
    }

    /// Returns the names of the directories and values directly below a prefix.
    pub(super) fn entries(
        self: &Arc<Self>,
        prefix: String,
    ) -> impl Iterator<Item = StoreEntry> + use<> {
        let (table, mut at) = (Arc::clone(self), self.first_from(prefix.as_bytes()));
        std::iter::from_fn(move || {
            loop {
                let name = table.name(table.rows.get(at)?);
                let rest = name.strip_prefix(prefix.as_bytes())?;
                at = at.saturating_add(1);
                let mut parts = rest.splitn(2, |byte| *byte == b'/');
                match (parts.next().map(text), parts.next()) {
                    // The entry of the directory itself.
                    (Some("") | None, _) => {}
                    (Some(_), None) if table.is_directory(name, at) => {}
                    (Some(name), None) => return Some(StoreEntry::Key(name.to_owned())),
                    (Some(name), Some(_)) => {
                        // The character after the slash ends all names below it.
                        at = table.first_from(format!("{prefix}{name}0").as_bytes());
                        return Some(StoreEntry::Prefix(name.to_owned()));
                    }
                }
            }
        })
    }

    /// Returns the keys of the values below a prefix.
    pub(super) fn keys(
        self: &Arc<Self>,
        prefix: String,
    ) -> impl Iterator<Item = Result<Key>> + use<> {
        let (table, mut at) = (Arc::clone(self), self.first_from(prefix.as_bytes()));
        std::iter::from_fn(move || {
            loop {
                let name = table.name(table.rows.get(at)?);
                if !name.starts_with(prefix.as_bytes()) {
                    return None;
                }
                at = at.saturating_add(1);
                if !name.ends_with(b"/") && !table.is_directory(name, at) {
                    return Some(Key::parse(text(name)));
                }
            }
        })
    }
}

/// Names are made from strings.
pub(super) fn text(name: &[u8]) -> &str {
    std::str::from_utf8(name).unwrap_or_default()
}

fn name_at(names: &[u8], at: u32) -> &[u8] {
    let named = usize::try_from(at).ok().and_then(|at| names.get(at..));
    let named = named.and_then(<[u8]>::split_first_chunk::<2>);
    let Some((len, rest)) = named else { return &[] };
    rest.get(..usize::from(u16::from_le_bytes(*len))).unwrap_or_default()
}

/// Makes a table of the entries of a directory, one after another.
#[derive(Debug, Default)]
pub(super) struct Builder {
    names: Vec<u8>,
    rows: Vec<EntryRow>,
    long: Vec<(u32, Lens)>,
}

impl Builder {
    pub(super) fn count(&self) -> usize {
        self.rows.len()
    }

    /// Adds an entry.
    pub(super) fn add(&mut self, name: &str, record: &CentralRecord) -> Result<()> {
        let too_long = || Error::too_large("the names of its entries have more than 4 GiB");
        let name_at = u32::try_from(self.names.len()).map_err(|_| too_long())?;
        let name_len = u16::try_from(name.len())
            .map_err(|_| Error::too_large(format!("a name of {} bytes", name.len())))?;
        let lens = record.lens;
        let short = |len: u64| u32::try_from(len).ok().filter(|len| *len != u32::MAX);
        let (stored_len, decoded_len) =
            short(lens.stored).zip(short(lens.decoded)).unwrap_or((u32::MAX, u32::MAX));
        self.names.try_reserve(name.len().saturating_add(2)).map_err(|_| no_memory())?;
        self.rows.try_reserve(1).map_err(|_| no_memory())?;
        if stored_len == u32::MAX {
            self.long.try_reserve(1).map_err(|_| no_memory())?;
            self.long.push((name_at, lens));
        }
        self.names.extend(name_len.to_le_bytes());
        self.names.extend(name.as_bytes());
        self.rows.push(EntryRow {
            header_offset: record.header_offset,
            stored_len,
            decoded_len,
            crc: record.crc,
            name_at,
            header_len: AtomicU32::new(0),
            method: record.method,
            is_encrypted: record.is_encrypted,
            spelling: record.spelling,
        });
        Ok(())
    }

    /// Returns the table of an archive whose directory begins at `end`. Fails if two entries
    /// overlap, or if one reaches into the directory. Of entries with the same name, the last one
    /// counts; also returns the others, unless their names in the archive have other bytes.
    pub(super) fn finish(self, stat: Stat, end: u64) -> Result<(EntryTable, Vec<Shadowed>)> {
        let Self { names, mut rows, long } = self;
        rows.sort_unstable_by(|one, other| {
            let by_name = name_at(&names, one.name_at).cmp(name_at(&names, other.name_at));
            // Names lie in the order of the directory.
            by_name.then(other.name_at.cmp(&one.name_at))
        });
        let mut shadowed = Vec::new();
        rows.dedup_by(|next, first| {
            let is_shadowed = name_at(&names, next.name_at) == name_at(&names, first.name_at);
            if is_shadowed && next.spelling == Spelling::Same && shadowed.len() < MOST_SHADOWED {
                let EntryRow { header_offset, name_at, .. } = *next;
                shadowed.push(Shadowed { header_offset, name_at });
            }
            is_shadowed
        });
        let decoded = Mutex::new(Bounded::new(bounded::MapLimits::bytes(MOST_DECODED)));
        let table =
            EntryTable { names, rows, long, stat, end, decoded, decoding: Mutex::default() };
        table.check_apart()?;
        Ok((table, shadowed))
    }
}

impl EntryTable {
    /// Fails if entries overlap: a few bytes could then be decoded as many large values.
    fn check_apart(&self) -> Result<()> {
        let mut order: Vec<u32> = Vec::new();
        order.try_reserve_exact(self.rows.len()).map_err(|_| no_memory())?;
        order.extend(0..u32::try_from(self.rows.len()).unwrap_or(u32::MAX));
        let row_at = |at: &u32| usize::try_from(*at).ok().and_then(|at| self.rows.get(at));
        order.sort_unstable_by(|one, other| match (row_at(one), row_at(other)) {
            (Some(one), Some(other)) => one.header_offset.cmp(&other.header_offset),
            _ => Ordering::Equal,
        });
        let mut last: Option<(&EntryRow, u64)> = None;
        for row in order.iter().filter_map(row_at) {
            if let Some((before, until)) = last
                && until > row.header_offset
            {
                return Err(Error::corrupt(format!(
                    "its entries {:?} and {:?} overlap",
                    text(self.name(before)),
                    text(self.name(row))
                )));
            }
            let name_len = if row.spelling == Spelling::Same { self.name(row).len() } else { 0 };
            let name_len = name_len.to_u64();
            let least = self.lens(row).stored.saturating_add(name_len).saturating_add(FIXED_LEN);
            let until = row.header_offset.saturating_add(least);
            if until > self.end {
                return Err(Error::corrupt(format!(
                    "its entry {:?} ends at byte {until}, past the start of the directory at {}",
                    text(self.name(row)),
                    self.end
                )));
            }
            last = Some((row, until));
        }
        Ok(())
    }
}

/// Returns the error for a directory that does not fit in memory.
pub(super) fn no_memory() -> Error {
    Error::new(Kind::NoMemory, "no memory for the directory of the archive")
}
