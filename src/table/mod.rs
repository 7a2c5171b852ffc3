//! Elements as the rows of a table, with their coordinates: CSV, or JSON records.
//!
//! An array has a row for each element, in C order, with a column for each dimension. A group has a
//! column for each of the arrays that have the dimensions of its largest one. Values are those that
//! xarray shows: missing ones are empty (`null`), packed ones unpacked, and times are in ISO 8601.

mod values;

use std::fmt;
use std::io::{self, Write};

use values::{TableColumn, TableField, Values};

use crate::array::Array;
use crate::error::{Error, Result, WithSubject};
use crate::metadata::NodeKind;
use crate::view::ViewSource;
use crate::width::ToUsize;

/// The form of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableForm {
    /// Comma-separated values (RFC 4180), with a line of names.
    Csv,
    /// A list of an object for each row.
    Json,
}

/// A table.
pub struct Table<'s> {
    /// The lengths of the dimensions.
    shape: Vec<u64>,
    /// The coordinates of each dimension.
    dimensions: Vec<TableColumn<'s>>,
    columns: Vec<TableColumn<'s>>,
    /// Arrays that have other dimensions.
    left_out: Vec<String>,
}

impl fmt::Debug for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl<'s> Table<'s> {
    /// Returns the table of an array, or of the arrays of a group.
    pub fn of(source: &ViewSource<'s>) -> Result<Self> {
        match source.kind() {
            NodeKind::Array => Self::of_arrays(std::slice::from_ref(source), Vec::new()),
            NodeKind::Group => Self::of_group(source),
        }
    }

    /// Returns the names of arrays that are not in it, because they have other dimensions.
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    fn of_group(group: &ViewSource<'s>) -> Result<Self> {
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

    fn of_arrays(arrays: &[ViewSource<'s>], left_out: Vec<String>) -> Result<Self> {
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
        let columns = arrays.iter().map(|one| TableColumn::of_array(one).at(one.path()));
        Ok(Self { shape, dimensions, columns: columns.collect::<Result<_>>()?, left_out })
    }

    /// Writes the table. The outer error is one of the output.
    pub fn write(&self, form: TableForm, out: &mut dyn Write) -> io::Result<Result<()>> {
        if form == TableForm::Csv {
            let names = self.dimensions.iter().chain(&self.columns);
            let names: Vec<String> = names.map(|one| csv_text(&one.name)).collect();
            writeln!(out, "{}", names.join(","))?;
        } else {
            write!(out, "[")?;
        }
        let count = self.shape.iter().try_fold(1, |all: u64, len| all.checked_mul(*len));
        let Some(count) = count else { return Ok(Err(Error::too_large("the table"))) };
        let mut readers: Vec<Values<'_>> = self.columns.iter().map(TableColumn::values).collect();
        for row in 0..count {
            let mut fields = Vec::new();
            let mut rest = row;
            for (dimension, len) in self.dimensions.iter().zip(&self.shape).rev() {
                let index = rest.checked_rem(*len).unwrap_or_default();
                rest = rest.checked_div(*len).unwrap_or_default();
                fields.push((&dimension.name, dimension.field(index.to_usize())));
            }
            fields.reverse();
            for (column, reader) in self.columns.iter().zip(&mut readers) {
                match reader.next() {
                    Ok(field) => fields.push((&column.name, field)),
                    Err(error) => return Ok(Err(error)),
                }
            }
            write_row(form, row == 0, &fields, out)?;
        }
        if form == TableForm::Json {
            writeln!(out, "{}]", if count == 0 { "" } else { "\n" })?;
        }
        Ok(Ok(()))
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

/// Returns a text as a field of CSV.
fn csv_text(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) || text.trim() != text || text.is_empty() {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.to_owned()
}
