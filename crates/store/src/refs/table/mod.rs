//! References in memory, compact: 24 bytes each, its name, and 4 to 8 bytes to find it.
//!
//! ```text
//! directories   sorted paths; each with runs of its entries: `t2m` 0..5000
//! entries       directory u32 | name u32 | location u32 | length u32 | offset u64
//! names         the last components of keys, each after its length
//! slots         a hash table of entries, by directory and name
//! ```
//!
//! References are added in any order; of those with the same key the last one counts, as in Python.
//! A value in the reference itself, as a whole, or of 4 GiB or more, is kept beside the entries.

use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use bytes::Bytes;
use foldhash::quality::RandomState;

use super::{KeyNames, RefStore, Reference, References, SourceStores, children};
use crate::{Entries, Key, MAX_KEY_LEN, Prefix, Store, StoreEntry, Version, is_component};
use zarrfs_base::error::{Error, Result, WithSubject};
use zarrfs_base::width::ToUsize;

/// The most references. They take 3 GB.
pub const MAX_COUNT: usize = 1 << 26;

/// The bytes of a reference beside its name and its value: its row and two slots.
const ROW_LEN: usize = 32;

/// The bytes of a directory or a location beside its text, about.
const TEXT_LEN: usize = 128;

/// The most bytes of all locations.
const MAX_LOCATIONS_LEN: usize = 1 << 30;

/// The location of an entry whose target is in [`ReferenceTable::others`].
const OTHER: u32 = u32::MAX;

/// A reference while it is added.
#[derive(Debug, Clone)]
pub enum Added<'a> {
    /// The value itself.
    Inline(Bytes),
    /// A part of another value.
    Part {
        /// The path or URL of the other value.
        location: &'a str,
        /// The offset in it.
        offset: u64,
        /// The number of bytes.
        len: u64,
    },
    /// A part of another value that ends earlier: the rest is zero.
    Padded {
        /// The path or URL of the other value.
        location: &'a str,
        /// The offset in it.
        offset: u64,
        /// The number of bytes.
        len: u64,
        /// How many of them are there.
        stored_len: u64,
    },
    /// Another value as a whole.
    Whole {
        /// Its path or URL.
        location: &'a str,
    },
}

#[derive(Debug, Clone, Copy)]
struct ReferenceRow {
    directory: u32,
    name: u32,
    location: u32,
    len: u32,
    offset: u64,
}

/// A target that does not fit in a row.
#[derive(Debug)]
enum Other {
    Inline(Bytes),
    Part { location: u32, offset: u64, len: u64, stored_len: u64 },
    Whole { location: u32 },
}

/// A directory, with the rows of its keys.
#[derive(Debug)]
struct Directory {
    path: Box<str>,
    runs: Vec<Range<u32>>,
    /// Its rows by their names, if these were asked for.
    sorted: OnceLock<Vec<u32>>,
}

/// References that are being collected.
#[derive(Debug)]
pub struct Builder {
    /// The bytes that they may still take.
    left: usize,
    rows: Vec<ReferenceRow>,
    names: Vec<u8>,
    directories: Vec<Directory>,
    directory_ids: HashMap<Box<str>, u32, RandomState>,
    last_directory: Option<u32>,
    locations: Vec<Arc<str>>,
    location_ids: HashMap<Arc<str>, u32, RandomState>,
    locations_len: usize,
    last_location: Option<u32>,
    others: Vec<Other>,
    version: Option<Version>,
    /// The versions of other locations than the one that most parts are of.
    versions: HashMap<u32, Version, RandomState>,
}

fn number(index: usize) -> Result<u32> {
    let too_many = |_| Error::too_large("the references take more than 4 GiB");
    u32::try_from(index).map_err(too_many)
}

impl Builder {
    /// Returns no references. They may take about `most` bytes of memory.
    pub fn new(most: u64) -> Self {
        Self {
            left: most.to_usize(),
            rows: Vec::new(),
            names: Vec::new(),
            directories: Vec::new(),
            directory_ids: HashMap::default(),
            last_directory: None,
            locations: Vec::new(),
            location_ids: HashMap::default(),
            locations_len: 0,
            last_location: None,
            others: Vec::new(),
            version: None,
            versions: HashMap::default(),
        }
    }

    /// Sets the version that the values must still have that parts are of.
    pub fn expect_version(&mut self, version: Version) {
        self.version = Some(version);
    }

    /// Sets the version that the value at another location must still have.
    pub fn expect_version_of(&mut self, location: &str, version: Version) -> Result<()> {
        let location = self.location(location)?;
        self.versions.insert(location, version);
        Ok(())
    }

    /// Notes that `len` more bytes of memory are taken.
    fn take(&mut self, len: usize) -> Result<()> {
        let no_room = || {
            Error::too_large(
                "the references take more than a quarter of the memory that zarrfs may use",
            )
        };
        self.left = self.left.checked_sub(len).ok_or_else(no_room)?;
        Ok(())
    }

    /// Adds a reference, which replaces one with the same key.
    pub fn add(&mut self, key: &str, reference: Added<'_>) -> Result<()> {
        if self.rows.len() >= MAX_COUNT {
            return Err(Error::too_large(format!("more than {MAX_COUNT} references")));
        }
        let (directory, name) = key.rsplit_once('/').unwrap_or(("", key));
        if key.len() > MAX_KEY_LEN {
            let start: String = key.chars().take(100).collect();
            let detail =
                format!("a key of {} bytes of a reference, the limit is {MAX_KEY_LEN}", key.len());
            return Err(Error::too_large(detail).at(format!("{start}...")));
        }
        if !is_component(name) || key.starts_with('/') {
            return Err(invalid_key(key));
        }
        self.take(ROW_LEN.saturating_add(name.len()))?;
        let directory = self.directory(directory).map_err(|error| error.at(key))?;
        let (location, len, offset) = match reference {
            Added::Inline(bytes) => {
                self.take(bytes.len())?;
                self.other(Other::Inline(bytes))?
            }
            Added::Whole { location } => {
                let location = self.location(location)?;
                self.other(Other::Whole { location })?
            }
            Added::Part { location, offset, len } => {
                let location = self.location(location)?;
                match u32::try_from(len) {
                    Ok(short) => (location, short, offset),
                    Err(_) => self.other(Other::Part { location, offset, len, stored_len: len })?,
                }
            }
            Added::Padded { location, offset, len, stored_len } => {
                let location = self.location(location)?;
                self.other(Other::Part { location, offset, len, stored_len })?
            }
        };
        let row = number(self.rows.len())?;
        let name = self.name(name)?;
        self.rows.push(ReferenceRow { directory, name, location, len, offset });
        let directory = usize::try_from(directory).ok().and_then(|it| self.directories.get_mut(it));
        let runs = directory.map(|directory| &mut directory.runs).ok_or_else(too_many)?;
        let end = row.checked_add(1).ok_or_else(too_many)?;
        match runs.last_mut().filter(|run| run.end == row) {
            Some(run) => run.end = end,
            None => runs.push(row..end),
        }
        Ok(())
    }

    /// Returns how many references there are.
    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// Changes each location.
    pub fn change_locations(
        &mut self,
        change: impl Fn(&str) -> Result<Option<String>>,
    ) -> Result<()> {
        self.locations_len = 0;
        self.location_ids.clear();
        let mut locations = std::mem::take(&mut self.locations);
        for location in &mut locations {
            if let Some(changed) = change(location)? {
                self.take(changed.len().saturating_sub(location.len()))?;
                *location = changed.into();
            }
            self.locations_len = self.locations_len.saturating_add(location.len());
            check_locations_len(self.locations_len)?;
        }
        self.locations = locations;
        self.last_location = None;
        Ok(())
    }

    fn directory(&mut self, path: &str) -> Result<u32> {
        let last = self.last_directory.and_then(|last| {
            let directory = self.directories.get(last.to_usize())?;
            (&*directory.path == path).then_some(last)
        });
        if let Some(last) = last {
            return Ok(last);
        }
        let id = if let Some(id) = self.directory_ids.get(path) {
            *id
        } else {
            if !path.is_empty() && !path.split('/').all(is_component) {
                return Err(invalid_key(path));
            }
            // Its path is kept twice.
            self.take(path.len().saturating_mul(2).saturating_add(TEXT_LEN))?;
            let id = number(self.directories.len())?;
            self.directories.push(Directory {
                path: path.into(),
                runs: Vec::new(),
                sorted: OnceLock::new(),
            });
            self.directory_ids.insert(path.into(), id);
            id
        };
        self.last_directory = Some(id);
        Ok(id)
    }

    fn location(&mut self, location: &str) -> Result<u32> {
        let last = self.last_location.and_then(|last| {
            let text = self.locations.get(last.to_usize())?;
            (&**text == location).then_some(last)
        });
        if let Some(last) = last {
            return Ok(last);
        }
        let id = if let Some(id) = self.location_ids.get(location) {
            *id
        } else {
            self.locations_len = self.locations_len.saturating_add(location.len());
            check_locations_len(self.locations_len)?;
            self.take(location.len().saturating_add(TEXT_LEN))?;
            let id = number(self.locations.len())?;
            let location: Arc<str> = location.into();
            self.locations.push(Arc::clone(&location));
            self.location_ids.insert(location, id);
            id
        };
        self.last_location = Some(id);
        Ok(id)
    }

    fn name(&mut self, name: &str) -> Result<u32> {
        let start = number(self.names.len())?;
        // Seven bits at a time, the last byte without the highest bit.
        let mut len = name.len();
        while len > 0x7f {
            self.names.push(u8::try_from(len & 0x7f).unwrap_or_default() | 0x80);
            len >>= 7;
        }
        self.names.push(u8::try_from(len).unwrap_or_default());
        self.names.extend_from_slice(name.as_bytes());
        Ok(start)
    }

    fn other(&mut self, other: Other) -> Result<(u32, u32, u64)> {
        let index = number(self.others.len())?;
        self.take(size_of::<Other>())?;
        self.others.push(other);
        Ok((OTHER, 0, u64::from(index)))
    }

    /// Returns the table. All values in it have this version and time, as far as they do not depend
    /// on their own place.
    pub fn build(mut self, modified: SystemTime) -> Result<ReferenceTable> {
        self.names.shrink_to_fit();
        self.rows.shrink_to_fit();
        drop(self.directory_ids);
        drop(self.location_ids);
        let mut sorted: Vec<u32> =
            (0..self.directories.len()).map(number).collect::<Result<_>>()?;
        let path = |id: &u32| {
            let directory = usize::try_from(*id).ok().and_then(|id| self.directories.get(id));
            directory.map_or("", |directory| &*directory.path)
        };
        sorted.sort_unstable_by(|a, b| path(a).cmp(path(b)));
        let slot_count = self.rows.len().saturating_mul(3) / 2;
        let slot_count = slot_count.checked_next_power_of_two().ok_or_else(too_many)?.max(4);
        let mut table = ReferenceTable {
            rows: self.rows,
            names: self.names,
            directories: self.directories,
            sorted,
            locations: self.locations,
            others: self.others,
            slots: vec![0; slot_count],
            hasher: RandomState::default(),
            modified,
            version: self.version,
            versions: self.versions,
            has_replaced: false,
        };
        table.fill_slots()?;
        Ok(table)
    }
}

fn check_locations_len(len: usize) -> Result<()> {
    if len > MAX_LOCATIONS_LEN {
        return Err(Error::too_large(format!(
            "the locations of references take more than {MAX_LOCATIONS_LEN} bytes"
        )));
    }
    Ok(())
}

fn too_many() -> Error {
    Error::too_large("too many references")
}

fn invalid_key(key: &str) -> Error {
    let detail =
        "invalid key of a reference: no name in it may be empty, `.` or `..`, or have a NUL";
    Error::corrupt(detail).at(format!("{key:?}"))
}

/// References by key.
#[derive(Debug)]
pub struct ReferenceTable {
    rows: Vec<ReferenceRow>,
    names: Vec<u8>,
    directories: Vec<Directory>,
    /// The indices of directories, by their paths.
    sorted: Vec<u32>,
    locations: Vec<Arc<str>>,
    others: Vec<Other>,
    /// One more than the index of a row; 0 for an empty slot.
    slots: Vec<u32>,
    hasher: RandomState,
    modified: SystemTime,
    /// The version that the values must still have that parts are of.
    version: Option<Version>,
    /// The versions of other locations, by their numbers.
    versions: HashMap<u32, Version, RandomState>,
    /// Whether a key was added twice.
    has_replaced: bool,
}

impl ReferenceTable {
    /// Returns the read-only store of the references below `base`, into `places`.
    pub fn open(self, places: SourceStores, base: Prefix) -> Store {
        RefStore::open(self, places, base)
    }

    /// Puts every row in a slot, the last of each key.
    fn fill_slots(&mut self) -> Result<()> {
        for row in 0..number(self.rows.len())? {
            let Some((directory, name)) = self.key_of(row) else { continue };
            let slot = self.slot(directory, name);
            if let Some(slot) = self.slots.get_mut(slot) {
                self.has_replaced |= *slot != 0;
                *slot = row.checked_add(1).ok_or_else(too_many)?;
            }
        }
        Ok(())
    }

    fn row(&self, row: u32) -> Option<&ReferenceRow> {
        self.rows.get(row.to_usize())
    }

    /// Returns the directory and the name of a row.
    fn key_of(&self, row: u32) -> Option<(u32, &[u8])> {
        let row = self.row(row)?;
        let mut rest = self.names.get(row.name.to_usize()..)?;
        let (mut len, mut shift) = (0_usize, 0_u32);
        loop {
            let (byte, after) = rest.split_first()?;
            len |= usize::from(byte & 0x7f).checked_shl(shift)?;
            shift = shift.checked_add(7)?;
            rest = after;
            if byte & 0x80 == 0 {
                break;
            }
        }
        Some((row.directory, rest.get(..len)?))
    }

    /// Returns the index of the slot that a key has, or would get.
    fn slot(&self, directory: u32, name: &[u8]) -> usize {
        let mask = self.slots.len().wrapping_sub(1);
        let hash = self.hasher.hash_one((directory, name));
        let mut at = (hash & u64::from(u32::MAX)).to_usize() & mask;
        // At most two thirds of the slots are taken.
        loop {
            match self.slots.get(at).copied().unwrap_or_default().checked_sub(1) {
                Some(row) if self.key_of(row) != Some((directory, name)) => {
                    at = at.wrapping_add(1) & mask;
                }
                _ => return at,
            }
        }
    }

    fn path(&self, at: usize) -> &str {
        let id = self.sorted.get(at).and_then(|id| usize::try_from(*id).ok());
        id.and_then(|id| self.directories.get(id)).map_or("", |directory| &*directory.path)
    }

    /// Returns the index of the directory of this path.
    fn directory(&self, path: &str) -> Option<u32> {
        let at = self.sorted.partition_point(|id| {
            let directory = usize::try_from(*id).ok().and_then(|id| self.directories.get(id));
            directory.is_some_and(|directory| &*directory.path < path)
        });
        (self.path(at) == path).then(|| self.sorted.get(at).copied()).flatten()
    }

    fn find_row(&self, key: &Key) -> Option<&ReferenceRow> {
        let (directory, name) = key.as_str().rsplit_once('/').unwrap_or(("", key.as_str()));
        let slot = self.slot(self.directory(directory)?, name.as_bytes());
        self.row(self.slots.get(slot)?.checked_sub(1)?)
    }

    fn reference(&self, row: &ReferenceRow) -> Option<Reference> {
        let location = |id: u32| self.locations.get(id.to_usize()).cloned();
        let part = |id, offset, len| {
            let part = Reference::part(location(id)?, offset, len, self.modified);
            Some(part.checked(self.versions.get(&id).copied().or(self.version)))
        };
        if row.location != OTHER {
            return part(row.location, row.offset, u64::from(row.len));
        }
        match self.others.get(row.offset.to_usize())? {
            Other::Inline(bytes) => Some(Reference::inline(bytes.clone(), self.modified)),
            Other::Part { location, offset, len, stored_len } => {
                part(*location, *offset, *len).map(|part| part.stored(*stored_len))
            }
            Other::Whole { location: id } => Some(Reference::whole(location(*id)?, self.modified)),
        }
    }

    fn name(&self, row: u32) -> String {
        let name = self.key_of(row).map(|(_, name)| name).unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }

    /// Whether no other row with the same key was added later.
    fn is_last(&self, row: u32) -> bool {
        let Some((directory, name)) = self.key_of(row).filter(|_| self.has_replaced) else {
            return true;
        };
        let slot = self.slots.get(self.slot(directory, name)).copied().unwrap_or_default();
        slot.checked_sub(1) == Some(row)
    }

    /// Returns the rows of the keys in a directory, in the order in which they were added.
    fn rows_of(&self, directory: u32) -> impl Iterator<Item = u32> + use<'_> {
        let directory = usize::try_from(directory).ok().and_then(|id| self.directories.get(id));
        let runs = directory.into_iter().flat_map(|directory| directory.runs.iter().cloned());
        runs.flatten().filter(|row| self.is_last(*row))
    }

    /// Returns the rows of the keys in a directory, by their names. Sorts them when it is first
    /// called, since most files have their chunks in the order of numbers: 2 before 10.
    fn sorted_rows(&self, directory: u32) -> &[u32] {
        let Some(found) = usize::try_from(directory).ok().and_then(|id| self.directories.get(id))
        else {
            return &[];
        };
        found.sorted.get_or_init(|| {
            let name = |row: &u32| self.key_of(*row).map(|(_, name)| name);
            let mut rows: Vec<u32> = self.rows_of(directory).collect();
            rows.sort_unstable_by(|a, b| name(a).cmp(&name(b)));
            rows
        })
    }

    /// Returns the names of the keys in a directory, one after the other.
    fn names_of(self: Arc<Self>, directory: u32) -> impl Iterator<Item = String> + Send {
        let (mut run, mut offset) = (0_usize, 0_u32);
        let next = move || loop {
            let found = usize::try_from(directory).ok().and_then(|id| self.directories.get(id))?;
            let rows = found.runs.get(run)?;
            if let Some(row) = rows.start.checked_add(offset).filter(|row| *row < rows.end) {
                offset = offset.saturating_add(1);
                if self.is_last(row) {
                    return Some(self.name(row));
                }
            } else {
                run = run.saturating_add(1);
                offset = 0;
            }
        };
        std::iter::from_fn(next)
    }

    /// Returns the locations that references lead to.
    pub fn locations(&self) -> impl Iterator<Item = &str> {
        self.locations.iter().map(|location| &**location)
    }
}

impl References for ReferenceTable {
    fn find(&self, keys: &[Key]) -> Result<Vec<Option<Reference>>> {
        Ok(self.known(keys))
    }

    fn known(&self, keys: &[Key]) -> Vec<Option<Reference>> {
        keys.iter().map(|key| self.reference(self.find_row(key)?)).collect()
    }

    fn list_dir(self: Arc<Self>, prefix: &Prefix) -> Result<Entries> {
        let prefix = prefix.as_str();
        let below = children(self.sorted.len(), |at| self.path(at), prefix);
        let below: BTreeSet<String> = below.into_iter().map(str::to_owned).collect();
        let prefixes: Vec<StoreEntry> = below.iter().cloned().map(StoreEntry::Prefix).collect();
        let Some(directory) = self.directory(prefix.strip_suffix('/').unwrap_or(prefix)) else {
            return Ok(Box::new(prefixes.into_iter().map(Ok)));
        };
        // A file and a directory cannot have the same name in a mount.
        let keys = self.names_of(directory).filter(move |name| !below.contains(name));
        Ok(Box::new(prefixes.into_iter().chain(keys.map(StoreEntry::Key)).map(Ok)))
    }

    fn names_starting(self: Arc<Self>, prefix: &Prefix, start: &str) -> Option<KeyNames> {
        let prefix = prefix.as_str();
        let directory = self.directory(prefix.strip_suffix('/').unwrap_or(prefix))?;
        let rows = self.sorted_rows(directory);
        let name = |row: &u32| self.key_of(*row).map(|(_, name)| name).unwrap_or_default();
        let mut at = rows.partition_point(|row| name(row) < start.as_bytes());
        let start = start.to_owned();
        let next = move || {
            let row = *self.sorted_rows(directory).get(at)?;
            at = at.saturating_add(1);
            Some(self.name(row))
        };
        let names = std::iter::from_fn(next).take_while(move |name| name.starts_with(&start));
        Some(Box::new(names.map(Ok)))
    }
}

#[cfg(test)]
mod tests;
