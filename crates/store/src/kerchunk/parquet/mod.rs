//! References in Parquet files, as fsspec's `LazyReferenceMapper` and `kerchunk.df` write them.
//!
//! ```text
//! .zmetadata           {"metadata": {KEY: {JSON}, ...}, "record_size": N}
//! ARRAY/refs.0.parq    a row for each of the first N chunks, in C order
//! ARRAY/refs.1.parq    the next N chunks; a file without chunks does not exist
//! row                  path | offset | size, or raw; neither path nor raw for a missing chunk
//! ```
//!
//! The metadata is in memory as a `ReferenceTable`. A file of rows is read when one of its chunks
//! is asked for, and `LoadedFiles` keeps those that were used last. So opening the references takes
//! the same time whatever the number of chunks.

mod grid;
mod lengths;
mod record;
mod runs;

use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use parking_lot::Mutex;

use super::lexer::{FileBlocks, Lexer};
use super::{Builder, METADATA, ReferenceTable, StoredFile};
use crate::refs::loaded::{FileKind, LoadedFiles};
use crate::refs::table::Added;
use crate::refs::{KeyNames, RefStore, Reference, ReferenceTarget, References, SourceStores};
use crate::{Entries, Key, Prefix, Store, StoreEntry, Value};
use grid::ChunkGrid;
use record::{Record, max_len};
use zarrfs_base::bounded::{Bounded, MapLimits};
use zarrfs_base::error::{Error, Result, WithSubject};
use zarrfs_base::resources;

/// The name of an array's metadata file.
const ARRAY: &str = ".zarray";

/// The most chunk grids in memory.
const MAX_GRIDS: usize = 1024;

/// Returns the store of the references below `base` in the directory `dir` of `own`, whose metadata
/// may take about `most` bytes of memory. The references may lead to `places`.
pub(super) fn open(
    own: &Store,
    dir: Prefix,
    base: Prefix,
    places: SourceStores,
    most: u64,
) -> Result<Store> {
    let key = dir.key(METADATA)?;
    let (file, found) = StoredFile::open(own, &key)?;
    let (metadata, record_size) = read_metadata(file, most, found.stat.modified).at(&key)?;
    let kind = RecordFiles { dir: dir.clone(), record_size };
    let files = LoadedFiles::new(own.clone(), kind, resources::within_memory(256 << 20, 8));
    let grids = Mutex::new(Bounded::new(MapLimits::entries(MAX_GRIDS)));
    let (own, metadata) = (own.clone(), Arc::new(metadata));
    let references = ParquetReferences { own, dir, metadata, record_size, files, grids };
    Ok(RefStore::open(references, places, base))
}

/// Reads the metadata files of all nodes, and the number of rows of a file.
fn read_metadata(
    file: impl FileBlocks,
    most: u64,
    modified: SystemTime,
) -> Result<(ReferenceTable, u64)> {
    let mut lexer = Lexer::new(file);
    let (mut builder, mut record_size) = (Builder::new(most), None);
    lexer.begin(b'{')?;
    let mut is_first = true;
    while lexer.has_next(b'}', &mut is_first)? {
        match lexer.key()? {
            "metadata" => {
                lexer.begin(b'{')?;
                let (mut is_first, mut key) = (true, String::new());
                while lexer.has_next(b'}', &mut is_first)? {
                    key.clear();
                    key.push_str(lexer.key()?);
                    let text = Bytes::copy_from_slice(lexer.bracketed().at(&key)?);
                    builder.add(&key, Added::Inline(text))?;
                }
            }
            "record_size" => record_size = Some(lexer.number()?),
            _ => lexer.skip()?,
        }
    }
    lexer.end()?;
    let record_size = record_size.filter(|size| *size > 0).ok_or_else(|| {
        Error::invalid("not references of kerchunk in Parquet files: it has no `record_size`")
    })?;
    Ok((builder.build(modified)?, record_size))
}

/// A file of rows: the path of its array, and its number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct RecordId {
    array: Arc<str>,
    number: u64,
}

/// The files of rows below a directory.
#[derive(Debug)]
struct RecordFiles {
    dir: Prefix,
    record_size: u64,
}

impl FileKind for RecordFiles {
    type Id = RecordId;
    type Parsed = Record;

    fn key(&self, id: &RecordId) -> Result<Key> {
        self.dir.join(&id.array)?.key(&format!("refs.{}.parq", id.number))
    }

    fn max_len(&self) -> u64 {
        max_len()
    }

    fn parse(&self, _id: &RecordId, _key: &Key, value: Option<Value>) -> Result<Record> {
        match value {
            Some(value) => Record::parse(value.bytes, self.record_size, value.stat.modified),
            None => Ok(Record::empty()),
        }
    }

    fn len(&self, record: &Record) -> u64 {
        // That a file does not exist takes memory, too.
        record.len().saturating_add(256)
    }
}

/// A row of a file.
#[derive(Debug)]
struct RowPlace {
    file: RecordId,
    row: u64,
}

/// References in Parquet files.
#[derive(Debug)]
struct ParquetReferences {
    own: Store,
    /// The directory of the references in it.
    dir: Prefix,
    metadata: Arc<ReferenceTable>,
    record_size: u64,
    files: LoadedFiles<RecordFiles>,
    /// The chunk grids of arrays, by their paths. A leaf lock.
    grids: Mutex<Bounded<Arc<str>, Arc<ChunkGrid>>>,
}

impl ParquetReferences {
    /// Returns the chunk grid of the array at a path; `None` if there is no array.
    fn grid(&self, array: &Arc<str>) -> Result<Option<Arc<ChunkGrid>>> {
        if let Some(grid) = self.grids.lock().get(array) {
            return Ok(Some(Arc::clone(grid)));
        }
        let key = Prefix::parse(array)?.key(ARRAY)?;
        let found = self.metadata.known(std::slice::from_ref(&key)).pop().flatten();
        let Some(Reference { target: ReferenceTarget::Inline(text), .. }) = found else {
            return Ok(None);
        };
        let grid = Arc::new(ChunkGrid::parse(&text).at(&key)?);
        let evicted = self.grids.lock().put(Arc::clone(array), Arc::clone(&grid), 0);
        drop(evicted);
        Ok(Some(grid))
    }

    /// Returns the number of the file that has the chunk at a place, and the row in it.
    fn place(&self, index: u64) -> (u64, u64) {
        let (number, row) =
            (index.checked_div(self.record_size), index.checked_rem(self.record_size));
        (number.unwrap_or_default(), row.unwrap_or_default())
    }

    /// Returns the place of the chunk that a key names; `None` if it names none.
    fn place_of(&self, key: &Key) -> Result<Option<RowPlace>> {
        let (array, name) = key.as_str().rsplit_once('/').unwrap_or(("", key.as_str()));
        // The keys of chunks begin with a digit.
        if !name.starts_with(|first: char| first.is_ascii_digit()) {
            return Ok(None);
        }
        let array: Arc<str> = array.into();
        let Some(grid) = self.grid(&array)? else { return Ok(None) };
        Ok(grid.index_of(name).map(|index| {
            let (number, row) = self.place(index);
            RowPlace { file: RecordId { array, number }, row }
        }))
    }
}

impl References for ParquetReferences {
    fn find(&self, keys: &[Key]) -> Result<Vec<Option<Reference>>> {
        let mut found = self.metadata.known(keys);
        let mut places: Vec<(RowPlace, &mut Option<Reference>)> = Vec::new();
        for (key, found) in keys.iter().zip(&mut found).filter(|(_, found)| found.is_none()) {
            places.extend(self.place_of(key)?.map(|place| (place, found)));
        }
        places.sort_by(|(a, _), (b, _)| a.file.cmp(&b.file));
        let ids: Vec<RecordId> = places.iter().map(|(place, _)| place.file.clone()).collect();
        self.files.each(ids, |id, record| {
            let start = places.partition_point(|(place, _)| place.file < *id);
            for (place, found) in places.iter_mut().skip(start) {
                if place.file != *id {
                    break;
                }
                **found = record.reference(place.row);
            }
            Ok(())
        })?;
        Ok(found)
    }

    fn known(&self, keys: &[Key]) -> Vec<Option<Reference>> {
        let mut found = self.metadata.known(keys);
        for (key, found) in keys.iter().zip(&mut found).filter(|(_, found)| found.is_none()) {
            // An error is reported when the value is read.
            let place = self.place_of(key).ok().flatten();
            let record = place.as_ref().and_then(|place| self.files.known(&place.file));
            *found = record.zip(place).and_then(|(record, place)| record.reference(place.row));
        }
        found
    }

    fn list_dir(self: Arc<Self>, prefix: &Prefix) -> Result<Entries> {
        let entries = Arc::clone(&self.metadata).list_dir(prefix)?;
        let Some(names) = self.chunks(prefix, "")? else { return Ok(entries) };
        Ok(Box::new(entries.chain(names.map(|name| name.map(StoreEntry::Key)))))
    }

    fn names_starting(self: Arc<Self>, prefix: &Prefix, start: &str) -> Option<KeyNames> {
        match Arc::clone(&self).chunks(prefix, start) {
            Ok(Some(chunks)) => {
                let others = Arc::clone(&self.metadata).names_starting(prefix, start);
                Some(Box::new(others.into_iter().flatten().chain(chunks)))
            }
            Ok(None) => Arc::clone(&self.metadata).names_starting(prefix, start),
            Err(error) => Some(Box::new(std::iter::once(Err(error)))),
        }
    }
}

impl ParquetReferences {
    /// Returns the names of the chunks of an array that begin with `start`; `None` if there is no
    /// array. Reads one file after the other.
    fn chunks(self: Arc<Self>, prefix: &Prefix, start: &str) -> Result<Option<ChunkNames>> {
        let array: Arc<str> = prefix.as_str().trim_end_matches('/').into();
        let Some(grid) = self.grid(&array)? else { return Ok(None) };
        let places = grid.starting(start);
        let first = self.place(places.start).0;
        let numbers = self.numbers(prefix, first..places.end.div_ceil(self.record_size))?;
        let start = start.to_owned();
        Ok(Some(ChunkNames { references: self, array, grid, places, start, numbers, open: None }))
    }

    /// Returns the numbers of the files of an array that exist, as far as the store can list them.
    fn numbers(&self, prefix: &Prefix, wanted: Range<u64>) -> Result<Numbers> {
        let Some(list) = self.own.list().filter(|list| list.can_list()) else {
            return Ok(Box::new(wanted));
        };
        let mut numbers = Vec::new();
        for entry in list.list_dir(&self.dir.join(prefix.as_str())?)? {
            let StoreEntry::Key(name) = entry? else { continue };
            let number = name.strip_prefix("refs.").and_then(|name| name.strip_suffix(".parq"));
            let number = number.and_then(|number| number.parse().ok());
            numbers.extend(number.filter(|number| wanted.contains(number)));
        }
        numbers.sort_unstable();
        numbers.dedup();
        Ok(Box::new(numbers.into_iter()))
    }
}

/// The numbers of files.
type Numbers = Box<dyn Iterator<Item = u64> + Send>;

/// The names of the chunks of an array, file by file.
struct ChunkNames {
    references: Arc<ParquetReferences>,
    array: Arc<str>,
    grid: Arc<ChunkGrid>,
    /// The places of the chunks that are wanted.
    places: Range<u64>,
    /// The beginning of their names.
    start: String,
    /// The files that follow.
    numbers: Numbers,
    open: Option<OpenRecord>,
}

/// A file whose rows are being listed.
struct OpenRecord {
    record: Arc<Record>,
    /// The place of the first row.
    first: u64,
    rows: Range<u64>,
}

impl ChunkNames {
    /// Opens the next file; `None` if it was the last.
    fn open(&mut self) -> Option<Result<()>> {
        let number = self.numbers.next()?;
        let id = RecordId { array: Arc::clone(&self.array), number };
        let record = match self.references.files.get(std::slice::from_ref(&id)) {
            Ok(mut found) => found.pop()?.1,
            Err(error) => return Some(Err(error)),
        };
        let first = number.saturating_mul(self.references.record_size);
        let start = self.places.start.saturating_sub(first);
        let end = self.places.end.saturating_sub(first).min(record.count());
        self.open = Some(OpenRecord { record, first, rows: start..end });
        Some(Ok(()))
    }
}

impl Iterator for ChunkNames {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Result<String>> {
        loop {
            let (grid, start) = (&self.grid, &self.start);
            if let Some(OpenRecord { record, first, rows }) = &mut self.open {
                let names = rows
                    .filter(|row| !record.is_missing(*row))
                    .map(|row| grid.name_of(first.saturating_add(row)));
                if let Some(name) = { names }.find(|name| name.starts_with(start)) {
                    return Some(Ok(name));
                }
            }
            self.open = None;
            if let Err(error) = self.open()? {
                return Some(Err(error));
            }
        }
    }
}

#[cfg(test)]
mod tests;
