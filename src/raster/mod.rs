//! Reads a slice of an array for a picture, with few elements.
//!
//! A slice has two dimensions. Each cell of the picture shows the element in its middle, so at most
//! one chunk is read for each cell. An OME-Zarr image is read from the smallest level that has
//! enough elements. If the chunks of all cells exceed a limit of decoded bytes, only some of them
//! are read, and a cell shows the nearest element of those.

mod axes;
mod read;

use crate::error::{Error, Result};
use crate::metadata::{NodeKind, NodePath};
use crate::view::region::Region;
use crate::view::{ViewSource, levels};
pub use axes::{Fixed, PictureLimits, Side};

/// A slice with few elements.
#[derive(Debug)]
pub struct Raster {
    /// The array that was read: the named one, or a smaller level of the image.
    pub path: NodePath,
    /// The vertical dimension.
    pub down: Side,
    /// The horizontal dimension.
    pub across: Side,
    /// The dimensions that are fixed at one index.
    pub fixed: Vec<Fixed>,
    /// The cells, row by row; NaN for a cell without a number.
    pub values: Vec<f64>,
    /// The unit of the values.
    pub unit: Option<String>,
    /// The number of chunks that were read, and the number that contain the cells.
    pub chunks: (u64, u64),
    /// The number of decoded bytes.
    pub len: u64,
}

/// Whether the array, or the image in the group, has a slice of numbers. Reads no chunks.
pub fn is_possible(source: &ViewSource<'_>) -> bool {
    let first = match source.kind() {
        NodeKind::Group => levels(source).ok().and_then(|all| all.into_iter().next()),
        NodeKind::Array => Some(source.clone()),
    };
    first.is_some_and(|first| {
        axes::PicturePlan::new(&first, None).is_ok_and(|plan| !plan.is_empty())
    })
}

/// Reads a slice of an array, or of the image in a group. Without a region, the slice has the last
/// two spatial dimensions, and lies in the middle of other spatial dimensions and at index 0 of the
/// rest.
pub fn of(
    source: &ViewSource<'_>,
    region: Option<&Region>,
    limits: &PictureLimits,
) -> Result<Raster> {
    let all = match source.kind() {
        NodeKind::Group => levels(source).map_err(|error| {
            Error::unsupported(format!("{}; name an array in the group", error.detail()))
        })?,
        NodeKind::Array => levels_from(source),
    };
    let first = all.first().ok_or_else(|| Error::unsupported("the image has no arrays"))?;
    let plan = axes::PicturePlan::new(first, region)?;
    let size = plan.size(limits);
    // The smallest level with an element for each cell.
    let is_enough = |level: &&ViewSource<'_>| {
        level.array().is_ok_and(|array| plan.has_elements_in(&array.model().shape, size))
    };
    let level = all.iter().rev().find(is_enough).unwrap_or(first);
    let array = level.array()?;
    let plan = plan.in_level(&array.model().shape);
    let slice = plan.slice(size);
    let mut found = read::cells(array, &slice, limits.len)?;
    let attributes = &array.model().attributes;
    let (mut down, across, fixed) = plan.sides(level, &array.model().shape, size);
    if down.is_southward() {
        let width = usize::try_from(size.across).unwrap_or(1).max(1);
        let rows: Vec<f64> = found.values.chunks(width).rev().flatten().copied().collect();
        found.values = rows;
        down = down.reversed();
    }
    let unit = attributes.get("units").and_then(|unit| unit.as_str()).map(str::to_owned);
    Ok(Raster {
        path: level.path().clone(),
        down,
        across,
        fixed,
        values: found.values,
        unit,
        chunks: found.chunks,
        len: found.len,
    })
}

/// Returns the array and the smaller levels of its image.
fn levels_from<'s>(source: &ViewSource<'s>) -> Vec<ViewSource<'s>> {
    let of_group = |group: ViewSource<'s>| {
        let all = levels(&group).ok()?;
        let at = all.iter().position(|level| level.path() == source.path())?;
        let rank =
            |level: &ViewSource<'s>| level.array().map(|array| array.model().shape.len()).ok();
        let is_alike = |level: &ViewSource<'s>| rank(level) == rank(source);
        Some(all.into_iter().skip(at).filter(is_alike).collect())
    };
    source.above().find_map(of_group).unwrap_or_else(|| vec![source.clone()])
}
