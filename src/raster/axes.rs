//! Chooses the two dimensions of a picture, and the elements that it shows.

use crate::array::{Array, Coords};
use crate::dtype::to_float;
use crate::error::{Error, Result};
use crate::metadata::NodeKind;
use crate::selection::Selector;
use crate::stats::number;
use crate::view::region::{Region, Selected, TURN, Turns};
use crate::view::{Axis, AxisKind, Image, ViewSource};
use crate::width::ToUsize;

/// The most decoded bytes of a chunk of coordinates.
const MAX_COORDINATES_LEN: u64 = 4 << 20;

/// The least number of cells along a side that is much shorter than the other one.
const LEAST: u64 = 4;

/// The largest factor by which to enlarge a small slice.
const MOST_TIMES: u64 = 4;

/// Limits for the size of a picture, and for the bytes to read.
#[derive(Debug, Clone, Copy)]
pub struct PictureLimits {
    /// The most cells in a row.
    pub columns: u64,
    /// The most cells in a column.
    pub rows: u64,
    /// The height of a row divided by the width of a column: 1 if cells are squares.
    pub height_of_row: u64,
    /// The most bytes to decode, unless a single chunk has more.
    pub len: u64,
}

/// A dimension of a picture.
#[derive(Debug, Clone, PartialEq)]
pub struct Side {
    /// The name.
    pub name: String,
    /// The number of elements that the cells are taken from.
    pub len: u64,
    /// The number of cells.
    pub cells: u64,
    /// The coordinates of the first and the last element.
    pub ends: [f64; 2],
    /// The unit of the coordinates.
    pub unit: Option<String>,
}

/// A dimension that the slice fixes at one index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fixed {
    /// The name.
    pub name: String,
    /// The index.
    pub index: u64,
    /// The length of the dimension.
    pub len: u64,
}

/// The number of cells of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// The number of rows.
    pub down: u64,
    /// The number of columns.
    pub across: u64,
}

/// The elements of the cells: an index for each dimension of the array, or one for each row or
/// column.
#[derive(Debug)]
pub struct Slice {
    /// The vertical dimension, `None` for a single row.
    pub down: Option<usize>,
    /// The horizontal dimension.
    pub across: usize,
    /// The indices of the rows.
    pub rows: Vec<u64>,
    /// The indices of the columns.
    pub columns: Vec<u64>,
    /// The index along each dimension, ignored for `down` and `across`.
    pub at: Vec<u64>,
}

/// The selected part of each dimension, and the two dimensions of the picture.
#[derive(Debug, Clone)]
pub struct PicturePlan {
    shape: Vec<u64>,
    selected: Vec<Selected>,
    down: Option<usize>,
    across: usize,
}

impl PicturePlan {
    /// Returns the plan for `region`, or for the default slice.
    pub fn new(source: &ViewSource<'_>, region: Option<&Region>) -> Result<Self> {
        let array = source.array()?;
        check(array)?;
        let shape = array.model().shape.clone();
        let image = Image::of(source)?;
        let (mut selected, kept) = match region {
            Some(region) => {
                let selected = Selector::new(region).of_array(source)?;
                let kept = selected.iter().enumerate().filter(|(_, one)| one.is_kept);
                let kept: Vec<usize> = kept.map(|(axis, _)| axis).collect();
                (selected, kept)
            }
            None => usual(&image.axes),
        };
        let (down, across) = match kept.as_slice() {
            [] => {
                // A single element.
                let last = shape.len().saturating_sub(1);
                (None, last)
            }
            [across] => (None, *across),
            [one, other] => {
                let kind = |axis: usize| image.axes.get(axis).and_then(|axis| axis.kind);
                let is_turned =
                    kind(*one) == Some(AxisKind::X) && kind(*other) == Some(AxisKind::Y);
                if is_turned { (Some(*other), *one) } else { (Some(*one), *other) }
            }
            more => {
                return Err(Error::invalid(format!(
                    "the region has {} dimensions, but a plot has two: give an index for the others",
                    more.len()
                )));
            }
        };
        for (axis, one) in selected.iter_mut().enumerate() {
            one.is_kept = axis == across || Some(axis) == down;
        }
        Ok(Self { shape, selected, down, across })
    }

    /// Whether the array has no elements.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    fn len(&self, axis: Option<usize>) -> u64 {
        axis.and_then(|axis| self.selected.get(axis)).map_or(1, |one| one.len)
    }

    /// Returns the number of cells: as many as fit, in about the shape of the slice.
    pub fn size(&self, limits: &PictureLimits) -> Size {
        let (rows, columns) =
            (u128::from(self.len(self.down)), u128::from(self.len(Some(self.across))));
        let (most_rows, most_columns) = (u128::from(limits.rows), u128::from(limits.columns));
        let height = u128::from(limits.height_of_row.max(1));
        // Enlarge a small slice by an integer factor.
        let times = (most_columns / columns).min(most_rows * height / rows);
        if times >= 1 {
            let times = times.min(MOST_TIMES.into());
            let down = (rows * times).div_ceil(height);
            return Size { down: narrow(down), across: narrow(columns * times) };
        }
        let across = most_columns.min((most_rows * height * columns / rows).max(LEAST.into()));
        let across = across.min(columns.max(most_columns.min(LEAST.into())));
        let down = (across * rows / columns / height).max(if rows > 1 { 2 } else { 1 });
        Size { down: narrow(down.min(most_rows)), across: narrow(across) }
    }

    /// Whether a level of this shape has an element for each cell.
    pub fn has_elements_in(&self, shape: &[u64], size: Size) -> bool {
        if shape.len() != self.shape.len() || shape.contains(&0) {
            return false;
        }
        let plan = self.clone().in_level(shape);
        // A level needs no more elements than the first level has.
        let is_enough =
            |axis: Option<usize>, cells: u64| plan.len(axis) >= cells.min(self.len(axis));
        is_enough(self.down, size.down) && is_enough(Some(self.across), size.across)
    }

    /// Returns the plan for the same part of a level of this shape.
    #[must_use]
    pub fn in_level(mut self, shape: &[u64]) -> Self {
        let all = self.selected.iter_mut().zip(self.shape.iter().zip(shape));
        for (one, (full, len)) in all.filter(|(_, (full, len))| full != len) {
            let place =
                |at: u64| narrow(u128::from(at) * u128::from(*len) / u128::from((*full).max(1)));
            // A part that goes on after the end is as long in the level.
            let end = place(one.start.saturating_add(one.len));
            one.start = place(one.start).min(len.saturating_sub(1));
            one.len = end.saturating_sub(one.start).min(*len).max(1);
            one.turns.count = place(one.turns.count);
        }
        self.shape = shape.to_vec();
        self
    }

    /// Returns the elements of the cells.
    pub fn slice(&self, size: Size) -> Slice {
        let indices = |axis: Option<usize>, cells: u64| {
            let one = axis.and_then(|axis| self.selected.get(axis)).copied();
            let one = one.unwrap_or(Selected::one(0));
            let len = axis.and_then(|axis| self.shape.get(axis)).copied().unwrap_or(1);
            let middle = |cell: u64| {
                let twice = u128::from(cell) * 2 + 1;
                let within = twice * u128::from(one.len) / (u128::from(cells) * 2);
                one.index(narrow(within), len)
            };
            (0..cells).map(middle).collect()
        };
        Slice {
            down: self.down,
            across: self.across,
            rows: indices(self.down, size.down),
            columns: indices(Some(self.across), size.across),
            at: self.selected.iter().map(|one| one.start).collect(),
        }
    }

    /// Describes the dimensions of a picture of the array `source`.
    pub fn sides(
        &self,
        source: &ViewSource<'_>,
        shape: &[u64],
        size: Size,
    ) -> (Side, Side, Vec<Fixed>) {
        let axes = Image::of(source).map(|image| image.axes).unwrap_or_default();
        let name = |axis: usize| {
            let named = axes.get(axis).map(|axis| axis.label().to_owned());
            named.filter(|name| !name.is_empty()).unwrap_or_else(|| format!("dim{axis}"))
        };
        let side = |axis: Option<usize>, cells: u64| {
            let known = axis.and_then(|axis| Some((axis, self.selected.get(axis)?)));
            let Some((axis, one)) = known else {
                let name = String::new();
                return Side { name, len: 1, cells, ends: [0.0, 0.0], unit: None };
            };
            let last = one.len.saturating_sub(1);
            let len = shape.get(axis).copied().unwrap_or(1);
            let indices = [one.index(0, len), one.index(last, len)];
            let turned = |(ends, unit)| (turned(ends, one), unit);
            let last = one.start.saturating_add(last);
            let place = coordinates(source, axis, indices)
                .map(turned)
                .or_else(|| positions(axes.get(axis)?, [one.start, last]));
            let (ends, unit) = place
                .unwrap_or_else(|| ([one.start, last].map(|index| to_float(index.into())), None));
            Side { name: name(axis), len: one.len, cells, ends, unit }
        };
        let fixed =
            self.selected.iter().zip(shape).enumerate().filter(|(_, (one, _))| !one.is_kept);
        let fixed =
            fixed.map(|(axis, (one, len))| Fixed { name: name(axis), index: one.start, len: *len });
        (side(self.down, size.down), side(Some(self.across), size.across), fixed.collect())
    }
}

impl Side {
    /// Whether the first row is the southernmost, so that a picture would be upside down.
    pub fn is_southward(&self) -> bool {
        let [first, last] = self.ends;
        let is_latitude = self.name.starts_with("lat")
            || self.unit.as_deref().is_some_and(|unit| unit.starts_with("degrees_n"));
        is_latitude && first < last
    }

    /// Returns the dimension with its direction reversed.
    #[must_use]
    pub fn reversed(mut self) -> Self {
        self.ends.reverse();
        self
    }
}

fn narrow(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// Returns the default slice, and the dimensions of the picture.
fn usual(axes: &[Axis]) -> (Vec<Selected>, Vec<usize>) {
    let of_kind = |kind: AxisKind| axes.iter().position(|axis| axis.kind == Some(kind));
    let is_other = |axis: &Axis| matches!(axis.kind, Some(AxisKind::Time | AxisKind::Channel));
    let mut kept: Vec<usize> = if let (Some(y), Some(x)) =
        (of_kind(AxisKind::Y), of_kind(AxisKind::X))
    {
        vec![y, x]
    } else {
        // Prefer dimensions with several elements, then those that are neither time nor channel,
        // then the last ones.
        let mut all: Vec<usize> = (0..axes.len()).rev().collect();
        let rank =
            |at: &usize| axes.get(*at).map_or((true, true), |axis| (axis.len <= 1, is_other(axis)));
        all.sort_by_key(rank);
        all.truncate(2);
        all
    };
    kept.sort_unstable();
    let select = |axis: &Axis| {
        let start = if is_other(axis) { 0 } else { axis.len / 2 };
        Selected::one(start)
    };
    let mut selected: Vec<Selected> = axes.iter().map(select).collect();
    for axis in &kept {
        if let (Some(one), Some(axis)) = (selected.get_mut(*axis), axes.get(*axis)) {
            *one = Selected::all(axis.len);
        }
    }
    (selected, kept)
}

/// Returns the longitudes at the ends of a part with their turns.
fn turned([first, last]: [f64; 2], part: &Selected) -> [f64; 2] {
    let Turns { count, first: of_first, rest } = part.turns;
    let of_last = if count < part.len { rest } else { of_first };
    [first + TURN * f64::from(of_first), last + TURN * f64::from(of_last)]
}

/// Returns the positions of two elements along an axis of an image, with their unit.
fn positions(axis: &Axis, indices: [u64; 2]) -> Option<([f64; 2], Option<String>)> {
    let scale = axis.scale.as_ref()?;
    let ends = indices.map(|index| scale.start + scale.step * to_float(index.into()));
    Some((ends, scale.unit.as_ref().map(|unit| unit.name.clone())))
}

/// Returns the coordinates of two elements along a dimension with their unit, if the group of the
/// array has an array with the name of the dimension.
fn coordinates(
    source: &ViewSource<'_>,
    axis: usize,
    indices: [u64; 2],
) -> Option<([f64; 2], Option<String>)> {
    let model = source.array().ok()?.model();
    let name = model.dimension_names.get(axis)?.as_ref()?;
    let path = source.path().parent()?.child(name).ok()?;
    let other = source.other(&path).ok().filter(|other| other.kind() == NodeKind::Array)?;
    let array = other.array().ok()?;
    let is_of_axis = array.model().shape.as_slice() == [*model.shape.get(axis)?];
    if !is_of_axis || array.longest_chunk_len().longest() > MAX_COORDINATES_LEN {
        return None;
    }
    let [first, last] = indices.map(|index| element(array, index));
    let unit = other.attributes().get("units").and_then(|unit| unit.as_str());
    let shown = unit.filter(|unit| !unit.is_empty()).map(str::to_owned);
    Some(([first?, last?], shown))
}

/// Returns an element of a one-dimensional array as a number.
fn element(array: &Array, index: u64) -> Option<f64> {
    let dtype = &array.model().dtype;
    if dtype.is_variable() {
        return None;
    }
    let coords = Coords::new([array.grid().index_of(0, index)?]);
    let (start, _) = array.grid().spans(&coords).ok()?.first().copied()?;
    let Some((bytes, _)) = array.read_chunk(&coords).ok()? else {
        return number(dtype, &array.model().fill.item(dtype));
    };
    let at = index.checked_sub(start)?.to_usize();
    number(dtype, bytes.chunks_exact(dtype.item_len()).nth(at)?).filter(|number| number.is_finite())
}

/// Fails unless the elements are numbers.
fn check(array: &Array) -> Result<()> {
    let model = array.model();
    if let Some(error) = array.not_understood() {
        return Err(error.clone());
    }
    let fill = model.fill.item(&model.dtype);
    if model.dtype.is_variable() || number(&model.dtype, &fill).is_none() {
        let detail = format!("elements of type {} are not numbers", model.dtype.name());
        return Err(Error::unsupported(detail));
    }
    Ok(())
}
