//! `csv`: a table of one dimension as comma-separated values, as `zarrfs cat --as csv` writes it.

use crate::dtype::DType;
use crate::error::{Error, Kind, Result};
use crate::view::left_out::LeftOutOfView;
use crate::view::lines::{Rows, TableLines};
use crate::view::parts::{Part, View};
use crate::view::source::ViewSource;
use crate::view::table::Table;

/// The most fields in a file: making them all takes seconds. `zarrfs cat` has no limit.
pub(super) const MAX_FIELDS: u64 = 1 << 24;

/// The most elements of an array that is no table of columns.
const MAX_ELEMENTS: u64 = 1 << 20;

pub(super) fn build(source: &ViewSource<'_>) -> Result<View> {
    let (table, left_out) = table(source)?;
    let head = Part::from(table.head());
    let lines = TableLines::new(table, MAX_FIELDS, source.get_chunk())?;
    Ok(View::new([head, Part::Derived(Box::new(lines))])?.with_left_out(left_out))
}

/// Returns the table of a node with a row for each index of one dimension, and the arrays that it
/// lacks.
pub(super) fn table(source: &ViewSource<'_>) -> Result<(Table, LeftOutOfView)> {
    let table = Table::of(source).map_err(|error| match error.kind() {
        Kind::Invalid => error.of_kind(Kind::Unsupported),
        _ => error,
    })?;
    if table.rank() != 1 {
        return Err(Error::unsupported(format!(
            "a table has one dimension, not {}; `zarrfs cat --as csv` has a row for each element",
            table.rank()
        )));
    }
    let is_plain =
        source.array().is_ok_and(|array| !matches!(array.model().dtype, DType::Struct(_)));
    if is_plain && table.count() > MAX_ELEMENTS {
        return Err(Error::unsupported(format!(
            "it has {} elements, the limit of the table of an array is {MAX_ELEMENTS}",
            table.count()
        )));
    }
    let mut left_out = LeftOutOfView::default();
    for name in table.left_out() {
        let array = source.path().child(name).and_then(|path| source.other(&path));
        let rank = array.and_then(|array| Ok(array.array()?.model().shape.len()))?;
        if rank > 0 {
            return Err(Error::unsupported(format!("its arrays have different lengths: {name}")));
        }
        let why = Error::unsupported("it is a single value");
        left_out.add(source.path(), source.path(), name, &why);
    }
    Ok((table, left_out))
}
