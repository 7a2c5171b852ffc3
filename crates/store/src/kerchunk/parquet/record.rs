//! The references in a Parquet file, `refs.N.parq`: a row for each chunk.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use ::parquet::basic::{Compression, LogicalType, Type};
use ::parquet::column::reader::ColumnReaderImpl;
use ::parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::{ColumnChunkMetaData, ParquetStatisticsPolicy, RowGroupMetaData};
use ::parquet::file::reader::{FileReader, RowGroupReader};
use ::parquet::file::serialized_reader::{ReadOptionsBuilder, SerializedFileReader};
use bytes::Bytes;
use foldhash::quality::RandomState;

use super::lengths::{check_footer, check_pages};
use super::runs::{CheckedPages, ColumnValues};
use crate::refs::Reference;
use zarrfs_base::error::{Error, Result, WithSubject};
use zarrfs_base::resources;
use zarrfs_base::width::{ToU64, ToUsize};

/// The bytes that a row takes while it is decoded, about: its levels, values and place.
const ROW_LEN: u64 = 128;

/// The bytes that a value takes in a dictionary, beside its page.
const VALUE_LEN: u64 = 32;

/// The location of a row that has none.
const NO_LOCATION: u32 = u32::MAX;

/// The location of a row whose value is in the file.
const INLINE: u32 = u32::MAX - 1;

/// Returns the most bytes of a file, and of its pages when they are decoded.
pub(super) fn max_len() -> u64 {
    resources::within_memory(256 << 20, 16)
}

/// The columns of a file.
const PATH: &str = "path";
const OFFSET: &str = "offset";
const SIZE: &str = "size";
const RAW: &str = "raw";

#[derive(Debug, Clone, Copy)]
struct Row {
    location: u32,
    offset: u64,
    len: u64,
}

/// The references in a file.
#[derive(Debug)]
pub(super) struct Record {
    rows: Vec<Row>,
    locations: Vec<Arc<str>>,
    /// All values that are in the file. The offset of a row is that in them.
    inline: Bytes,
    modified: SystemTime,
    len: u64,
}

impl Record {
    /// Returns the references of a file that does not exist.
    pub fn empty() -> Self {
        Self {
            rows: Vec::new(),
            locations: Vec::new(),
            inline: Bytes::new(),
            modified: SystemTime::UNIX_EPOCH,
            len: 0,
        }
    }

    /// Parses a file of at most `most_rows` rows.
    pub fn parse(file: Bytes, most_rows: u64, modified: SystemTime) -> Result<Self> {
        let options = ReadOptionsBuilder::new()
            .with_column_stats_policy(ParquetStatisticsPolicy::SkipAll)
            .with_encoding_stats_policy(ParquetStatisticsPolicy::SkipAll)
            .with_size_stats_policy(ParquetStatisticsPolicy::SkipAll);
        let pages_len = check_footer(&file)?.len();
        let pages = file.slice(..pages_len);
        let reader = SerializedFileReader::new_with_options(file, options.build());
        let reader = reader.map_err(|error| invalid(&error))?;
        let mut parser = Parser { pages, most_rows, left: max_len(), ..Parser::default() };
        for (index, group) in reader.metadata().row_groups().iter().enumerate() {
            parser.check(group)?;
            let group_reader = reader.get_row_group(index).map_err(|error| invalid(&error))?;
            parser.read(group, &*group_reader)?;
        }
        Ok(parser.finish(modified))
    }

    /// Returns the reference of a row; `None` for a chunk that is missing.
    pub fn reference(&self, row: u64) -> Option<Reference> {
        let row = self.rows.get(row.to_usize())?;
        let location = match row.location {
            NO_LOCATION => return None,
            INLINE => {
                let (start, len) = (row.offset.to_usize(), row.len.to_usize());
                let end = start.checked_add(len).filter(|end| *end <= self.inline.len())?;
                return Some(Reference::inline(self.inline.slice(start..end), self.modified));
            }
            location => Arc::clone(self.locations.get(location.to_usize())?),
        };
        Some(match (row.offset, row.len) {
            (0, 0) => Reference::whole(location, self.modified),
            (offset, len) => Reference::part(location, offset, len, self.modified),
        })
    }

    /// Returns the number of rows.
    pub fn count(&self) -> u64 {
        self.rows.len().to_u64()
    }

    /// Whether the chunk of a row is missing.
    pub fn is_missing(&self, row: u64) -> bool {
        self.rows.get(row.to_usize()).is_none_or(|row| row.location == NO_LOCATION)
    }

    /// Returns the bytes that they take in memory.
    pub fn len(&self) -> u64 {
        self.len
    }
}

fn invalid(error: &ParquetError) -> Error {
    Error::corrupt(format!("the Parquet file is damaged: {error}"))
}

/// Reads the row groups of a file.
#[derive(Default)]
struct Parser {
    /// The file up to its footer.
    pages: Bytes,
    most_rows: u64,
    /// The bytes that the rest may take.
    left: u64,
    rows: Vec<Row>,
    locations: Vec<Arc<str>>,
    location_ids: HashMap<Arc<str>, u32, RandomState>,
    inline: Vec<u8>,
}

/// The values of a column that are not null, and for each row whether its value is null.
struct Column<T> {
    values: Vec<T>,
    levels: Vec<i16>,
    max_level: i16,
}

impl<T> Column<T> {
    /// Returns the value of each row.
    fn rows(&self) -> impl Iterator<Item = Option<&T>> {
        let mut values = self.values.iter();
        let count = if self.max_level == 0 { self.values.len() } else { self.levels.len() };
        (0..count).map(move |row| {
            let is_null = self.max_level > 0 && self.levels.get(row) != Some(&self.max_level);
            if is_null { None } else { values.next() }
        })
    }
}

/// Returns the index and the metadata of a column; `None` if it is absent, or has nothing but
/// nulls, to which pyarrow gives a type of their own.
fn column<'g>(group: &'g RowGroupMetaData, name: &str) -> Option<(usize, &'g ColumnChunkMetaData)> {
    let is_wanted = |column: &&ColumnChunkMetaData| column.column_path().parts() == [name];
    let index = group.columns().iter().position(|column| is_wanted(&column))?;
    let column = group.columns().get(index)?;
    let of_nulls = column.column_descr().logical_type_ref();
    let is_of_nulls = of_nulls == Some(&LogicalType::Unknown);
    (!is_of_nulls).then_some((index, column))
}

impl Parser {
    fn take(&mut self, len: u64) -> Result<()> {
        let no_room = || {
            Error::too_large(format!(
                "the references take more than {} bytes when they are decoded; write them with a \
                 smaller record size",
                max_len()
            ))
        };
        self.left = self.left.checked_sub(len).ok_or_else(no_room)?;
        Ok(())
    }

    /// Checks the lengths of a row group, before anything of it is decoded.
    fn check(&mut self, group: &RowGroupMetaData) -> Result<()> {
        let count = u64::try_from(group.num_rows());
        let count = count.map_err(|_| Error::corrupt("a negative number of rows"))?;
        let total = self.rows.len().to_u64().saturating_add(count);
        if total > self.most_rows {
            return Err(Error::corrupt(format!(
                "{total} rows, more than the record size {}",
                self.most_rows
            )));
        }
        self.take(count.saturating_mul(ROW_LEN))?;
        for name in [PATH, OFFSET, SIZE, RAW] {
            let Some((_, column)) = column(group, name) else { continue };
            self.check_column(column, count).at(name)?;
        }
        Ok(())
    }

    fn check_column(&mut self, column: &ColumnChunkMetaData, count: u64) -> Result<()> {
        let descr = column.column_descr();
        if descr.max_rep_level() != 0 || descr.max_def_level() > 1 {
            return Err(Error::corrupt("the column has lists as values"));
        }
        let is_compressed = match column.compression() {
            Compression::UNCOMPRESSED => false,
            Compression::SNAPPY | Compression::ZSTD(_) => true,
            other => {
                return Err(Error::unsupported(format!("the compression {other} of Parquet")));
            }
        };
        let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
        let range = usize::try_from(start).ok().zip(usize::try_from(column.compressed_size()).ok());
        let chunk =
            range.and_then(|(start, len)| self.pages.get(start..).and_then(|rest| rest.get(..len)));
        let chunk = chunk.ok_or_else(|| Error::corrupt("its pages end after the file"))?;
        let lengths = check_pages(chunk, is_compressed)?;
        if lengths.values != count {
            return Err(Error::corrupt(format!("{} values for {count} rows", lengths.values)));
        }
        self.take(lengths.dictionary.saturating_mul(VALUE_LEN))?;
        self.take(lengths.decoded)
    }

    fn read(&mut self, group: &RowGroupMetaData, reader: &dyn RowGroupReader) -> Result<()> {
        let count = usize::try_from(group.num_rows()).unwrap_or_default();
        let bytes = |name| {
            let Some(found) = column(group, name) else { return Ok(None) };
            match found.1.column_type() {
                Type::BYTE_ARRAY => read::<ByteArrayType>(reader, found, count).map(Some),
                _ => Err(Error::corrupt("the column has no strings")),
            }
        };
        let numbers = |name| {
            let Some(found) = column(group, name) else { return Ok(vec![0; count]) };
            match found.1.column_type() {
                Type::INT64 => integers(&read::<Int64Type>(reader, found, count)?),
                Type::INT32 => integers(&read::<Int32Type>(reader, found, count)?),
                _ => Err(Error::corrupt("the column has no integers")),
            }
        };
        let (offsets, lens): (Vec<u64>, Vec<u64>) =
            (numbers(OFFSET).at(OFFSET)?, numbers(SIZE).at(SIZE)?);
        let (paths, raws) = (bytes(PATH).at(PATH)?, bytes(RAW).at(RAW)?);
        let mut paths = paths.iter().flat_map(Column::rows);
        let mut raws = raws.iter().flat_map(Column::rows);
        self.rows.reserve(count);
        for (offset, len) in offsets.into_iter().zip(lens) {
            let (path, raw) = (paths.next().flatten(), raws.next().flatten());
            let row = self.row(path.map(ByteArray::data), raw.map(ByteArray::data), offset, len)?;
            self.rows.push(row);
        }
        Ok(())
    }

    /// Returns a row. As in fsspec, a value in the file comes before a path.
    fn row(
        &mut self,
        path: Option<&[u8]>,
        raw: Option<&[u8]>,
        offset: u64,
        len: u64,
    ) -> Result<Row> {
        if let Some(raw) = raw {
            let offset = self.inline.len().to_u64();
            // A value in the dictionary may belong to every row.
            self.take(raw.len().to_u64())?;
            self.inline.extend_from_slice(raw);
            return Ok(Row { location: INLINE, offset, len: raw.len().to_u64() });
        }
        match path {
            None | Some([]) => Ok(Row { location: NO_LOCATION, offset: 0, len: 0 }),
            Some(path) => Ok(Row { location: self.location(path)?, offset, len }),
        }
    }

    fn location(&mut self, path: &[u8]) -> Result<u32> {
        let path = std::str::from_utf8(path)
            .map_err(|_| Error::corrupt("a path that is not UTF-8").at(PATH))?;
        // Most rows have the path of the row before.
        let last = self.rows.last().map(|row| row.location);
        if let Some(last) = last
            && self.locations.get(last.to_usize()).is_some_and(|it| **it == *path)
        {
            return Ok(last);
        }
        if let Some(id) = self.location_ids.get(path) {
            return Ok(*id);
        }
        let id = u32::try_from(self.locations.len()).ok().filter(|id| *id < INLINE);
        let id = id.ok_or_else(|| Error::too_large("more than 2^32 paths"))?;
        let path: Arc<str> = path.into();
        self.locations.push(Arc::clone(&path));
        self.location_ids.insert(path, id);
        Ok(id)
    }

    fn finish(mut self, modified: SystemTime) -> Record {
        self.rows.shrink_to_fit();
        self.inline.shrink_to_fit();
        let texts: usize = self.locations.iter().map(|it| it.len().saturating_add(64)).sum();
        let rows = self.rows.len().saturating_mul(size_of::<Row>());
        let len = texts.saturating_add(rows).saturating_add(self.inline.len()).to_u64();
        let (rows, locations, inline) = (self.rows, self.locations, self.inline.into());
        Record { rows, locations, inline, modified, len }
    }
}

/// Returns the integers of a column, 0 for those that are null.
fn integers<T: Copy>(column: &Column<T>) -> Result<Vec<u64>>
where
    u64: TryFrom<T>,
{
    let integer = |value: Option<&T>| value.map_or(Ok(0), |value| u64::try_from(*value));
    let found: std::result::Result<_, _> = column.rows().map(integer).collect();
    found.map_err(|_| Error::corrupt("a negative number"))
}

/// Reads a column of `count` rows.
fn read<T: DataType>(
    reader: &dyn RowGroupReader,
    (index, column): (usize, &ColumnChunkMetaData),
    count: usize,
) -> Result<Column<T::T>> {
    let descr = column.column_descr_ptr();
    let max_level = descr.max_def_level();
    let pages = reader.get_column_page_reader(index).map_err(|error| invalid(&error))?;
    let are_strings = column.column_type() == Type::BYTE_ARRAY;
    let values = ColumnValues { has_levels: max_level > 0, are_strings };
    let pages = Box::new(CheckedPages::new(pages, values));
    let mut reader = ColumnReaderImpl::<T>::new(descr, pages);
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    let read = reader.read_records(count, Some(&mut levels), None, &mut values);
    let (found, _, _) = read.map_err(|error| invalid(&error))?;
    if found != count {
        return Err(Error::corrupt(format!("{found} values for {count} rows")));
    }
    Ok(Column { values, levels, max_level })
}
