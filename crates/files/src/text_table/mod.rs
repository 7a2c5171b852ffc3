//! Tables in text: CSV and TSV (RFC 4180), a group with an array for each column.
//!
//! The first line has the names, unless all of its fields are numbers. A column of whole numbers
//! is `int64` or `uint64`, one of other numbers `float64`, one of `true` and `false` is `bool`, and
//! any other one has texts. Missing numbers are NaN. A number with zeros in front (`007`) is a
//! text, so nothing that is written is lost; times are texts, too.

mod column;

use std::io::{self, Read};

use csv::{ByteRecord, ReaderBuilder};
use serde_json::json;

use crate::described::{Described, DescribedArray, codec, is_node_name, no_attributes, zero_of};
use crate::source::SourceFile;
use column::{Column, ColumnType, Seen, is_number};
use zarrfs_base::error::{Error, Result};
use zarrfs_base::width::ToU64;

/// The most columns.
const MAX_COLUMNS: usize = 1 << 14;

/// The most bytes of a line.
const MAX_LINE_LEN: u64 = 64 << 20;

/// How many rows a chunk has, unless the table is shorter.
const CHUNK_ROWS: u64 = 1 << 16;

/// How many bytes are read at a time.
const READ_LEN: usize = 1 << 20;

/// What may separate fields.
const SEPARATORS: [u8; 3] = *b",;\t";

/// Describes the columns of a table.
pub fn scan(file: &SourceFile, described: &mut Described) -> Result<()> {
    let table = Table::open(file)?;
    let (types, rows) = table.look()?;
    described.group("", no_attributes())?;
    let names = table.names();
    let chunk_rows = rows.clamp(1, CHUNK_ROWS);
    for (name, of) in names.iter().zip(&types) {
        let data_type = of.name();
        let (fill_value, codecs) = match of {
            ColumnType::Text => (json!(""), vec![codec("vlen-utf8", json!({}))]),
            ColumnType::Bool => (json!(false), vec![codec("bytes", json!({}))]),
            _ => (zero_of(data_type), vec![codec("bytes", json!({"endian": "little"}))]),
        };
        let array = DescribedArray {
            shape: vec![rows],
            data_type: json!(data_type),
            chunk_shape: vec![chunk_rows],
            codecs,
            fill_value,
            dimension_names: Some(vec![Some("row".to_owned())]),
            attributes: no_attributes(),
        };
        described.array(name, &array)?;
    }
    table.fill(&names, &types, chunk_rows, described)
}

/// A table, and how its lines are read.
struct Table<'f> {
    file: &'f SourceFile,
    separator: u8,
    /// The first line.
    first: ByteRecord,
    has_names: bool,
}

impl<'f> Table<'f> {
    fn open(file: &'f SourceFile) -> Result<Self> {
        let begin = file.read_up_to(0, READ_LEN)?;
        let line = begin.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let count = |separator: u8| line.split(|byte| *byte == separator).count();
        let is_tabbed = file.name().to_ascii_lowercase().ends_with(".tsv");
        let found =
            SEPARATORS.into_iter().max_by_key(|separator| (count(*separator), *separator == b','));
        let separator = if is_tabbed { b'\t' } else { found.unwrap_or(b',') };
        let mut table = Self { file, separator, first: ByteRecord::new(), has_names: false };
        let mut reader = table.reader();
        let mut first = ByteRecord::new();
        if !reader.read_byte_record(&mut first).map_err(|error| refused(&error))? {
            return Err(Error::invalid("the table has no line"));
        }
        if first.len() > MAX_COLUMNS {
            return Err(Error::too_large(format!("a table of {} columns", first.len())));
        }
        table.has_names = !first.iter().all(is_number);
        table.first = first;
        Ok(table)
    }

    fn reader(&self) -> csv::Reader<FileReader<'f>> {
        let mut builder = ReaderBuilder::new();
        builder.delimiter(self.separator).has_headers(false).buffer_capacity(READ_LEN);
        builder.from_reader(FileReader { file: self.file, at: 0, until: MAX_LINE_LEN })
    }

    /// Returns the names of the columns, each another one.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for (number, field) in self.first.iter().enumerate() {
            let written = String::from_utf8_lossy(field);
            let written = written.trim_start_matches('\u{feff}').trim().replace('/', "_");
            let is_usable = self.has_names && is_node_name(&written);
            let name = if is_usable { written } else { format!("column_{number}") };
            let is_free = |name: &String| !names.contains(name);
            let others = (2_u64..).map(|again| format!("{name}_{again}"));
            let free = std::iter::once(name.clone()).chain(others).find(is_free);
            names.push(free.unwrap_or(name));
        }
        names
    }

    /// Calls `each` with every row.
    fn for_each_row(&self, each: &mut dyn FnMut(&ByteRecord) -> Result<()>) -> Result<()> {
        let (mut reader, mut record) = (self.reader(), ByteRecord::new());
        let mut is_first = self.has_names;
        while reader.read_byte_record(&mut record).map_err(|error| refused(&error))? {
            if !std::mem::take(&mut is_first) {
                each(&record)?;
            }
            let bytes = reader.get_mut();
            bytes.until = bytes.at.saturating_add(MAX_LINE_LEN);
        }
        Ok(())
    }

    /// Returns the type of each column, and the number of rows.
    fn look(&self) -> Result<(Vec<ColumnType>, u64)> {
        let mut columns = vec![Seen::default(); self.first.len()];
        let mut rows = 0_u64;
        self.for_each_row(&mut |record| {
            for (seen, field) in columns.iter_mut().zip(record) {
                seen.note(field);
            }
            rows = rows.saturating_add(1);
            Ok(())
        })?;
        Ok((columns.into_iter().map(Seen::column_type).collect(), rows))
    }

    /// Adds the chunks of all columns.
    fn fill(
        &self,
        names: &[String],
        types: &[ColumnType],
        chunk_rows: u64,
        described: &mut Described,
    ) -> Result<()> {
        let mut columns: Vec<Column> = types.iter().map(|of| Column::new(*of)).collect();
        let (mut rows, mut chunk) = (0_u64, 0_u64);
        let mut add = |columns: &mut Vec<Column>, chunk: u64| -> Result<()> {
            for (column, name) in columns.iter_mut().zip(names) {
                described.inline(name, &[chunk], column.take(chunk_rows)?)?;
            }
            Ok(())
        };
        self.for_each_row(&mut |record| {
            for (column, field) in columns.iter_mut().zip(record) {
                column.push(field)?;
            }
            rows = rows.saturating_add(1);
            if rows == chunk_rows {
                add(&mut columns, chunk)?;
                (rows, chunk) = (0, chunk.saturating_add(1));
            }
            Ok(())
        })?;
        if rows > 0 { add(&mut columns, chunk) } else { Ok(()) }
    }
}

/// Returns the error for a line that is no row of the table.
fn refused(error: &csv::Error) -> Error {
    Error::corrupt(format!("the table cannot be read: {error}"))
}

/// Reads a file from its beginning.
struct FileReader<'f> {
    file: &'f SourceFile,
    at: u64,
    /// Where the current line has to end.
    until: u64,
}

impl Read for FileReader<'_> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        if self.at >= self.until {
            let detail = format!("a line has more than {MAX_LINE_LEN} bytes: is a quote open?");
            return Err(io::Error::other(detail));
        }
        let found = self.file.read_up_to(self.at, target.len());
        let found = found.map_err(|error| io::Error::other(error.to_string()))?;
        if let Some(place) = target.get_mut(..found.len()) {
            place.copy_from_slice(&found);
        }
        self.at = self.at.saturating_add(found.len().to_u64());
        Ok(found.len())
    }
}
