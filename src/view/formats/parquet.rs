//! `parquet` (<https://parquet.apache.org/docs/file-format/>): the table of `csv`, with types. The
//! file is made as a whole, because its length is that of compressed values.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use ::parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical};
use ::parquet::column::writer::ColumnWriter;
use ::parquet::data_type::ByteArray;
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::{EnabledStatistics, WriterProperties};
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::types::Type;

use super::csv::{MAX_FIELDS, table};
use crate::error::{Error, Result};
use crate::view::elements::GetChunk;
use crate::view::lines::Rows;
use crate::view::parts::{Part, View, max_prefix_len};
use crate::view::source::ViewSource;
use crate::view::table::{ColumnKind, TableColumn, TableField, nanoseconds};
use crate::width::ToU64;

/// The number of rows in a row group.
const GROUP: u64 = 1 << 17;

/// The name of an index that has none.
const INDEX: &str = "_index";

pub(super) fn build(source: &ViewSource<'_>) -> Result<View> {
    let (table, left_out) = table(source)?;
    let (count, width) = (table.count(), table.width());
    if count.saturating_mul(width) > MAX_FIELDS {
        return Err(Error::unsupported(format!(
            "it has {count} rows of {width} columns, the limit of a file is {MAX_FIELDS} fields"
        )));
    }
    let columns: Vec<&TableColumn> = table.columns().collect();
    let schema = Arc::new(schema(&columns)?);
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_created_by(concat!("zarrfs version ", env!("CARGO_PKG_VERSION")).to_owned())
        .build();
    let mut bytes = Vec::new();
    let writer = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties));
    let mut writer = writer.map_err(wrong)?;
    let mut at = 0;
    while at < count {
        let rows = at..at.saturating_add(GROUP).min(count);
        at = rows.end;
        let mut group = writer.next_row_group().map_err(wrong)?;
        let mut of_group = columns.iter();
        while let Some(mut to) = group.next_column().map_err(wrong)? {
            let column = of_group.next().ok_or_else(|| wrong("a column too many"))?;
            write(column, rows.clone(), source.get_chunk(), to.untyped())?;
            to.close().map_err(wrong)?;
        }
        group.close().map_err(wrong)?;
        check_len(writer.bytes_written().to_u64())?;
    }
    writer.close().map_err(wrong)?;
    Ok(View::new([Part::from(bytes)])?.with_left_out(left_out))
}

/// Returns the types of the columns.
fn schema(columns: &[&TableColumn]) -> Result<Type> {
    let (mut fields, mut names) = (Vec::new(), HashSet::new());
    for column in columns {
        let name = name_of(column);
        if !names.insert(name) {
            return Err(Error::unsupported(format!("two of its columns are called {name}")));
        }
        let (physical, logical) = types(column.kind);
        let field = Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical)
            .build();
        fields.push(Arc::new(field.map_err(wrong)?));
    }
    Type::group_type_builder("schema").with_fields(fields).build().map_err(wrong)
}

fn name_of(column: &TableColumn) -> &str {
    if column.name.is_empty() { INDEX } else { &column.name }
}

fn types(kind: ColumnKind) -> (Physical, Option<LogicalType>) {
    let integer = |len: u8, is_signed| {
        let bits = i8::try_from(len.saturating_mul(8)).unwrap_or(64);
        let physical = if len > 4 { Physical::INT64 } else { Physical::INT32 };
        (physical, Some(LogicalType::integer(bits, is_signed)))
    };
    match kind {
        ColumnKind::Bool => (Physical::BOOLEAN, None),
        ColumnKind::Int(len) => integer(len, true),
        ColumnKind::Uint(len) => integer(len, false),
        ColumnKind::Single => (Physical::FLOAT, None),
        ColumnKind::Double => (Physical::DOUBLE, None),
        ColumnKind::Time(unit) => {
            let unit = match unit {
                1 => TimeUnit::NANOS,
                1_000 => TimeUnit::MICROS,
                _ => TimeUnit::MILLIS,
            };
            (Physical::INT64, Some(LogicalType::timestamp(false, unit)))
        }
        ColumnKind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    }
}

/// Writes some rows of a column.
fn write(
    column: &TableColumn,
    rows: Range<u64>,
    get: &GetChunk<'_>,
    to: &mut ColumnWriter<'_>,
) -> Result<()> {
    let mut values = column.values(rows.start, rows.end);
    let (mut fields, mut levels, mut len) = (Vec::new(), Vec::new(), 0_u64);
    for _ in rows {
        let field = values.next(get)?;
        levels.push(i16::from(field != TableField::Missing));
        if let TableField::Text(text) = &field {
            len = len.saturating_add(text.len().to_u64());
            check_len(len)?;
        }
        fields.push(field);
    }
    fields.retain(|field| *field != TableField::Missing);
    let (levels, kind) = (Some(&levels[..]), column.kind);
    let written = match to {
        ColumnWriter::BoolColumnWriter(to) => {
            let bools = all(column, &fields, |field| match field {
                TableField::Bool(value) => Some(*value),
                _ => None,
            });
            to.write_batch(&bools?, levels, None)
        }
        ColumnWriter::Int32ColumnWriter(to) => {
            to.write_batch(&all(column, &fields, |field| int32(field, kind))?, levels, None)
        }
        ColumnWriter::Int64ColumnWriter(to) => {
            to.write_batch(&all(column, &fields, |field| int64(field, kind))?, levels, None)
        }
        ColumnWriter::FloatColumnWriter(to) => {
            to.write_batch(&all(column, &fields, number)?, levels, None)
        }
        ColumnWriter::DoubleColumnWriter(to) => {
            to.write_batch(&all(column, &fields, number)?, levels, None)
        }
        ColumnWriter::ByteArrayColumnWriter(to) => {
            to.write_batch(&all(column, &fields, text)?, levels, None)
        }
        _ => return Err(wrong("a type that no column has")),
    };
    written.map(drop).map_err(wrong)
}

/// Converts all values of a column.
fn all<T>(
    column: &TableColumn,
    fields: &[TableField],
    convert: impl Fn(&TableField) -> Option<T>,
) -> Result<Vec<T>> {
    let value = |field: &TableField| {
        convert(field).ok_or_else(|| {
            let (name, value) = (name_of(column), field.in_csv());
            Error::unsupported(format!(
                "column {name} has the value {value}, which its type in the file does not have"
            ))
        })
    };
    fields.iter().map(value).collect()
}

fn number<T: std::str::FromStr>(field: &TableField) -> Option<T> {
    match field {
        TableField::Number(text) => text.parse().ok(),
        _ => None,
    }
}

fn int32(field: &TableField, kind: ColumnKind) -> Option<i32> {
    match kind {
        ColumnKind::Uint(_) => number(field).map(u32::cast_signed),
        _ => number(field),
    }
}

fn int64(field: &TableField, kind: ColumnKind) -> Option<i64> {
    match (kind, field) {
        (ColumnKind::Uint(_), _) => number(field).map(u64::cast_signed),
        (ColumnKind::Time(unit), TableField::Text(text)) => {
            let nanoseconds = nanoseconds(text)?;
            let is_whole = nanoseconds.checked_rem(unit)? == 0;
            i64::try_from(nanoseconds.checked_div(unit)?).ok().filter(|_| is_whole)
        }
        (ColumnKind::Time(_), _) => None,
        _ => number(field),
    }
}

fn text(field: &TableField) -> Option<ByteArray> {
    match field {
        TableField::Text(text) | TableField::Number(text) => Some(text.as_bytes().to_vec().into()),
        TableField::Bool(_) | TableField::Missing => None,
    }
}

/// Fails if a file would be too long to be kept in memory.
fn check_len(len: u64) -> Result<()> {
    let limit = max_prefix_len();
    if len <= limit {
        return Ok(());
    }
    Err(Error::unsupported(format!("its values take more than {limit} bytes")))
}

fn wrong(error: impl Into<WriteError>) -> Error {
    let WriteError(why) = error.into();
    Error::unsupported(format!("no Parquet file can be made: {why}"))
}

/// Why the library has not written a file.
struct WriteError(String);

impl From<ParquetError> for WriteError {
    fn from(error: ParquetError) -> Self {
        Self(error.to_string())
    }
}

impl From<&str> for WriteError {
    fn from(why: &str) -> Self {
        Self(why.to_owned())
    }
}
