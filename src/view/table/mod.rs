//! Elements as the rows of a table, with their coordinates: CSV, or JSON records.
//!
//! An array has a row for each element, in C order, with a column for each dimension, and a column
//! for each field of structures. A group has a column for each of the arrays that have the
//! dimensions of its largest one; a data frame of `AnnData` has its columns. Values are those that
//! xarray shows: missing ones are empty (`null`), packed ones unpacked, and times are in ISO 8601.

mod column;
mod field;
mod frame;
mod kind;
mod values;

use std::io::{self, Write};
use std::ops::Range;

pub(super) use column::TableColumn;
pub(super) use field::TableField;
use field::csv_text;
#[cfg(feature = "parquet")]
pub(super) use kind::{ColumnKind, nanoseconds};
use values::Values;

use crate::array::Array;
use crate::dtype::DType;
use crate::error::{Error, Result, WithSubject};
use crate::metadata::NodeKind;
use crate::view::elements::{ElementRange, GetChunk};
use crate::view::lines::Rows;
use crate::view::source::ViewSource;

/// The form of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableForm {
    /// Comma-separated values (RFC 4180), with a line of names.
    Csv,
    /// A list of an object for each row.
    Json,
}

/// A table.
#[derive(Debug)]
pub struct Table {
    /// The lengths of the dimensions.
    shape: Vec<u64>,
    /// The coordinates of each dimension.
    dimensions: Vec<TableColumn>,
    columns: Vec<TableColumn>,
    /// Arrays that have other dimensions.
    left_out: Vec<String>,
}

impl Table {
    /// Returns the table of an array, or of the arrays of a group.
    pub fn of(source: &ViewSource<'_>) -> Result<Self> {
        match source.kind() {
            NodeKind::Array => Self::of_arrays(std::slice::from_ref(source), Vec::new()),
            NodeKind::Group => match frame::columns(source)? {
                Some((count, columns)) => Ok(Self {
                    shape: vec![count],
                    dimensions: Vec::new(),
                    columns,
                    left_out: Vec::new(),
                }),
                None => Self::of_group(source),
            },
        }
    }

    /// Returns the names of arrays that are not in it, because they have other dimensions.
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// Returns the columns of a table with one dimension.
    #[cfg(feature = "parquet")]
    pub(super) fn columns(&self) -> impl Iterator<Item = &TableColumn> {
        self.dimensions.iter().chain(&self.columns)
    }

    /// Returns the number of dimensions of its arrays.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    fn of_group(group: &ViewSource<'_>) -> Result<Self> {
        let mut arrays = group.children()?.nodes;
        arrays.retain(|child| child.kind() == NodeKind::Array && child.array().is_ok());
        // The bounds of coordinates have more dimensions than these, and are no values.
        let named = |child: &ViewSource<'_>| {
            let names = ["bounds", "climatology", "grid_mapping"].into_iter();
            let name = |name: &str| Some(child.attributes().get(name)?.as_str()?.to_owned());
            names.filter_map(name).collect::<Vec<String>>()
        };
        let of_others: Vec<String> = arrays.iter().flat_map(named).collect();
        arrays.retain(|child| !of_others.iter().any(|name| name == child.name()));
        let rank = |one: &ViewSource<'_>| one.array().map_or(0, |array| array.model().shape.len());
        // Of several, the first one.
        let largest = arrays.iter().rev().max_by_key(|one| rank(one));
        let largest = largest.ok_or_else(|| Error::invalid("the group has no arrays"))?;
        let dimensions = names(largest.array()?);
        let shape = largest.array()?.model().shape.clone();
        let is_coordinate = |one: &ViewSource<'_>| {
            let is_one = rank(one) == 1 && dimensions.len() > 1;
            is_one && dimensions.iter().any(|name| name == one.name())
                || dimensions.as_slice() == [one.name().to_owned()]
        };
        let (mut columns, mut left_out) = (Vec::new(), Vec::new());
        for one in &arrays {
            let array = one.array()?;
            let is_like = array.model().shape == shape && names(array) == dimensions;
            if is_like && !is_coordinate(one) {
                columns.push(one.clone());
            } else if !is_coordinate(one) {
                left_out.push(one.name().to_owned());
            }
        }
        Self::of_arrays(&columns, left_out)
    }

    fn of_arrays(arrays: &[ViewSource<'_>], left_out: Vec<String>) -> Result<Self> {
        let first = arrays.first().ok_or_else(|| {
            Error::invalid("no array of the group has other values than coordinates")
        })?;
        let shape = first.array()?.model().shape.clone();
        let mut dimensions = Vec::new();
        for (name, len) in names(first.array()?).into_iter().zip(&shape) {
            // The coordinates of a dimension are no coordinates of their own.
            let is_own = name == first.name();
            let column = if is_own {
                TableColumn::of_indices("index")
            } else {
                TableColumn::of_dimension(first, &name, *len)?
            };
            dimensions.push(column);
        }
        let mut columns = Vec::new();
        for one in arrays {
            match &one.array()?.model().dtype {
                DType::Struct(fields) => {
                    for mut column in TableColumn::of_fields(one, fields).at(one.path())? {
                        if arrays.len() > 1 {
                            column.name = format!("{}.{}", one.name(), column.name);
                        }
                        columns.push(column);
                    }
                }
                _ => columns.push(TableColumn::of_array(one).at(one.path())?),
            }
        }
        Ok(Self { shape, dimensions, columns, left_out })
    }

    /// Returns the line of names of a file of CSV.
    pub fn head(&self) -> String {
        let names = self.dimensions.iter().chain(&self.columns);
        let names: Vec<String> = names.map(|one| csv_text(&one.name)).collect();
        format!("{}\n", names.join(","))
    }

    /// Writes the table. The outer error is one of the output.
    pub fn write(
        &self,
        form: TableForm,
        get: &GetChunk<'_>,
        out: &mut dyn Write,
    ) -> io::Result<Result<()>> {
        if form == TableForm::Csv {
            write!(out, "{}", self.head())?;
        } else {
            write!(out, "[")?;
        }
        let count = self.shape.iter().try_fold(1, |all: u64, len| all.checked_mul(*len));
        let Some(count) = count else { return Ok(Err(Error::too_large("the table"))) };
        let mut rows = self.read(0..count);
        for row in 0..count {
            match rows.next(row, get) {
                Ok(fields) => write_row(form, row == 0, &fields, out)?,
                Err(error) => return Ok(Err(error)),
            }
        }
        if form == TableForm::Json {
            writeln!(out, "{}]", if count == 0 { "" } else { "\n" })?;
        }
        Ok(Ok(()))
    }

    /// Returns what reads some rows in order.
    fn read(&self, rows: Range<u64>) -> RowReader<'_> {
        let values = self.columns.iter().map(|column| column.values(rows.start, rows.end));
        RowReader { table: self, values: values.collect() }
    }
}

/// Reads rows in order.
struct RowReader<'t> {
    table: &'t Table,
    values: Vec<Values<'t>>,
}

impl<'t> RowReader<'t> {
    /// Returns the fields of the next row, whose number is `row`, with their names.
    fn next(&mut self, row: u64, get: &GetChunk<'_>) -> Result<Vec<(&'t String, TableField)>> {
        let Table { shape, dimensions, columns, .. } = self.table;
        let mut fields = Vec::new();
        let mut rest = row;
        for (dimension, len) in dimensions.iter().zip(shape).rev() {
            let index = rest.checked_rem(*len).unwrap_or_default();
            rest = rest.checked_div(*len).unwrap_or_default();
            fields.push((&dimension.name, dimension.field(index)));
        }
        fields.reverse();
        for (column, values) in columns.iter().zip(&mut self.values) {
            fields.push((&column.name, values.next(get)?));
        }
        Ok(fields)
    }
}

impl Rows for Table {
    fn count(&self) -> u64 {
        self.shape.iter().fold(1, |all: u64, len| all.saturating_mul(*len))
    }

    fn width(&self) -> u64 {
        let width = self.dimensions.len().saturating_add(self.columns.len());
        u64::try_from(width).unwrap_or(u64::MAX)
    }

    fn sources(&self) -> Vec<&ElementRange> {
        self.columns.iter().flat_map(|column| column.source.elements()).collect()
    }

    fn lines(&self, rows: Range<u64>, get: &GetChunk<'_>) -> Result<String> {
        let mut reader = self.read(rows.clone());
        let mut text = String::new();
        for row in rows {
            for (number, (_, field)) in reader.next(row, get)?.iter().enumerate() {
                text.extend([if number == 0 { "" } else { "," }, &field.in_csv()]);
            }
            text.push('\n');
        }
        Ok(text)
    }
}

fn write_row(
    form: TableForm,
    is_first: bool,
    fields: &[(&String, TableField)],
    out: &mut dyn Write,
) -> io::Result<()> {
    let all: Vec<String> = match form {
        TableForm::Csv => fields.iter().map(|(_, field)| field.in_csv()).collect(),
        TableForm::Json => {
            let name = |name: &String| serde_json::Value::from(name.as_str());
            fields.iter().map(|(of, field)| format!("{}: {}", name(of), field.in_json())).collect()
        }
    };
    match form {
        TableForm::Csv => writeln!(out, "{}", all.join(",")),
        TableForm::Json => {
            write!(out, "{}\n  {{{}}}", if is_first { "" } else { "," }, all.join(", "))
        }
    }
}

/// Returns the names of the dimensions of an array.
fn names(array: &Array) -> Vec<String> {
    let model = array.model();
    let name = |at: usize| model.dimension_names.get(at).cloned().flatten();
    let name = |at: usize| name(at).filter(|name| !name.is_empty());
    (0..model.shape.len()).map(|at| name(at).unwrap_or_else(|| format!("dim{at}"))).collect()
}
