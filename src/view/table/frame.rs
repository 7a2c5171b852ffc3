//! Data frames of [AnnData](https://anndata.readthedocs.io/en/stable/fileformat-prose.html): groups
//! with a column in each member, which may be a group of its own.

use super::column::TableColumn;
use crate::error::{Error, Kind, Result, WithSubject};
use crate::json::Object;
use crate::metadata::NodeKind;
use crate::view::source::ViewSource;

/// The name by which `AnnData` stores an index without a name.
const NO_NAME: &str = "_index";

/// Returns the columns of a data frame, the index first, with the number of rows; `None` for other
/// groups.
pub(super) fn columns(group: &ViewSource<'_>) -> Result<Option<(u64, Vec<TableColumn>)>> {
    let attributes = group.attributes();
    if text(attributes, "encoding-type") != Some("dataframe") {
        return Ok(None);
    }
    let wrong = |detail: &str| Error::unsupported(format!("it is no data frame: {detail}"));
    let index = text(attributes, "_index").ok_or_else(|| wrong("_index is missing"))?;
    let order = attributes.get("column-order").and_then(|order| order.as_array());
    let order = order.ok_or_else(|| wrong("column-order is missing"))?;
    let names = order.iter().map(|name| name.as_str());
    let names: Option<Vec<&str>> = std::iter::once(Some(index)).chain(names).collect();
    let names = names.ok_or_else(|| wrong("column-order is no list of names"))?;
    let mut columns: Vec<TableColumn> = Vec::new();
    let mut count = None;
    for name in names {
        let node = member(group, name)?;
        let (len, mut column) = column_of(&node).at(node.path())?;
        if *count.get_or_insert(len) != len {
            let detail = format!("column {name} has {len} rows, the index another number");
            return Err(wrong(&detail));
        }
        if columns.is_empty() && name == NO_NAME {
            column.name.clear();
        }
        columns.push(column);
    }
    Ok(Some((count.unwrap_or_default(), columns)))
}

/// Returns a column with the number of its rows.
fn column_of(node: &ViewSource<'_>) -> Result<(u64, TableColumn)> {
    let encoding = text(node.attributes(), "encoding-type");
    if node.kind() == NodeKind::Array {
        if node.attributes().contains_key("categories") {
            let detail = "a categorical column of AnnData before version 0.8 is not understood";
            return Err(Error::unsupported(detail));
        }
        return Ok((rows_of(node)?, TableColumn::of_array(node)?));
    }
    let column = match encoding {
        Some("categorical") => {
            let (codes, categories) = (member(node, "codes")?, member(node, "categories")?);
            rows_of(&categories)?;
            (rows_of(&codes)?, TableColumn::of_codes(node.name(), &codes, &categories)?)
        }
        Some("nullable-integer" | "nullable-boolean" | "nullable-string-array") => {
            let (values, mask) = (member(node, "values")?, member(node, "mask")?);
            let count = rows_of(&values)?;
            if rows_of(&mask)? != count {
                return Err(Error::unsupported("its mask has another length than its values"));
            }
            (count, TableColumn::of_masked(node.name(), &values, &mask)?)
        }
        other => {
            let other = other.unwrap_or("a group");
            return Err(Error::unsupported(format!(
                "a column of the encoding {other} has no text"
            )));
        }
    };
    Ok(column)
}

/// Returns the number of rows of an array with one dimension.
fn rows_of(node: &ViewSource<'_>) -> Result<u64> {
    match *node.array()?.model().shape {
        [count] => Ok(count),
        ref shape => {
            let detail =
                format!("{} has {} dimensions, a column has one", node.path(), shape.len());
            Err(Error::unsupported(detail))
        }
    }
}

fn member<'s>(group: &ViewSource<'s>, name: &str) -> Result<ViewSource<'s>> {
    let found = group.path().child(name).and_then(|path| group.other(&path));
    found.map_err(|error| match error.kind() {
        Kind::NotFound | Kind::Invalid => {
            Error::unsupported(format!("the data frame has no member {name:?}"))
        }
        _ => error,
    })
}

fn text<'a>(attributes: &'a Object, name: &str) -> Option<&'a str> {
    attributes.get(name)?.as_str()
}
