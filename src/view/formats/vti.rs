//! `vti`: VTK image data, an XML file with raw data appended: for each VTK array its length in
//! eight bytes, little endian, and its elements. If the node has axes before the spatial ones, each
//! of their indices is a separate VTK array.

use std::collections::HashSet;
use std::fmt::Write;

use super::header::line;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::view::cf::unused;
use crate::view::image::{Axis, AxisKind, Directions, Image, Scale, escape};
use crate::view::layout::{Layout, NumberForm};
use crate::view::left_out::LeftOutOfView;
use crate::view::parts::{Part, View};
use crate::view::source::ViewSource;

/// The most arrays for the axes before those of space.
const MAX_ARRAYS: u64 = 1 << 12;

pub(super) fn build(source: &ViewSource<'_>) -> Result<View> {
    let image = Image::of(source)?.in_one_unit();
    let name = match image.number() {
        DType::Int(len) => format!("Int{}", u32::from(len).saturating_mul(8)),
        DType::Uint(len) => format!("UInt{}", u32::from(len).saturating_mul(8)),
        DType::Float(4) => "Float32".to_owned(),
        DType::Float(8) => "Float64".to_owned(),
        _ => return Err(image.no_type("VTK")),
    };
    let in_pixel = usize::from(image.is_interleaved());
    let components = image.axes.last().filter(|_| in_pixel == 1).map_or(1, |axis| axis.len);
    let count = image.axes.len().saturating_sub(in_pixel);
    let order = order(image.axes.get(..count).unwrap_or_default());
    let axes: Vec<Axis> = order.iter().filter_map(|at| image.axes.get(*at)).cloned().collect();
    let count = axes.iter().filter(|axis| is_in_image(axis, &axes)).count();
    let (outer, space) = axes.split_at(axes.len().saturating_sub(count));
    let arrays = outer.iter().try_fold(1_u64, |all, axis| all.checked_mul(axis.len));
    let arrays = arrays.filter(|count| *count <= MAX_ARRAYS).ok_or_else(|| {
        Error::unsupported(format!(
            "the axes before the spatial ones would give more than {MAX_ARRAYS} arrays"
        ))
    })?;
    let elements = source.elements(Layout::Linear, NumberForm::default())?.turned(&order)?;
    let array_len = elements.len() / arrays.max(1);
    let places = order.get(outer.len()..).unwrap_or_default();
    let mut text = head(space, places, image.directions.as_ref())?;
    // A reader shows only one of two arrays with the same name.
    let mut titles = HashSet::new();
    for number in 0..arrays {
        let offset = array_len.saturating_add(8).saturating_mul(number);
        let title = escape(&unused(&mut titles, title(source, &image, outer, number)));
        // Writing to a string does not fail.
        let _never = writeln!(
            text,
            "<DataArray type=\"{name}\" Name=\"{title}\" NumberOfComponents=\"{components}\" format=\"appended\" \
             offset=\"{offset}\"/>"
        );
    }
    text.push_str("</PointData>\n</Piece>\n</ImageData>\n<AppendedData encoding=\"raw\">\n_");
    let mut parts = vec![Part::from(text)];
    for number in 0..arrays {
        parts.push(array_len.to_le_bytes().to_vec().into());
        parts.push(elements.range(number.saturating_mul(array_len), array_len)?.into());
    }
    parts.push("\n</AppendedData>\n</VTKFile>\n".to_owned().into());
    let left_out = LeftOutOfView::of_image(source.path(), &image, true);
    Ok(View::new(parts)?.with_left_out(left_out))
}

/// Returns the order of the axes in the file: first those that become separate arrays, then z, y
/// and x. An array without axes of space is an image along its last axis.
fn order(axes: &[Axis]) -> Vec<usize> {
    let rank = |at: &usize| {
        let axis = axes.get(*at).filter(|axis| is_in_image(axis, axes));
        match axis.map(|axis| axis.kind) {
            None => 0,
            Some(Some(AxisKind::Z)) => 1,
            Some(Some(AxisKind::Y)) => 2,
            Some(_) => 3,
        }
    };
    let mut order: Vec<usize> = (0..axes.len()).collect();
    order.sort_by_key(rank);
    order
}

fn is_in_image(axis: &Axis, axes: &[Axis]) -> bool {
    if axes.iter().any(Axis::is_space) { axis.is_space() } else { axes.last() == Some(axis) }
}

/// Returns the head of the file. `places` has the numbers of the axes of space in the array.
fn head(space: &[Axis], places: &[usize], directions: Option<&Directions>) -> Result<String> {
    let mut axes = space.iter().rev();
    let axes = [axes.next(), axes.next(), axes.next()];
    let mut extent = String::new();
    let (mut origin, mut spacing) = (String::new(), String::new());
    for axis in axes {
        let last = axis.map_or(0, |axis| axis.len.saturating_sub(1));
        let last = i32::try_from(last)
            .map_err(|_| Error::unsupported("VTK has fewer than 2^31 elements along each axis"))?;
        let scale = axis.and_then(|axis| axis.scale.as_ref()).filter(|scale| scale.step > 0.0);
        let number = |of: fn(&Scale) -> f64, without: f64| scale.map_or(without, of);
        // Writing to a string does not fail.
        let _never = write!(extent, "0 {last} ");
        let _never = write!(origin, "{} ", number(|scale| scale.start, 0.0));
        let _never = write!(spacing, "{} ", number(|scale| scale.step, 1.0));
    }
    let mut direction = String::new();
    if let Some(directions) = directions {
        let [x, y, z] = directions.origin();
        origin = format!("{x} {y} {z}");
        direction = format!(" Direction=\"{}\"", turned(space, places, directions));
    }
    let (extent, origin, spacing) = (extent.trim_end(), origin.trim_end(), spacing.trim_end());
    Ok(format!(
        "<?xml version=\"1.0\"?>\n<VTKFile type=\"ImageData\" version=\"1.0\" byte_order=\"LittleEndian\" \
         header_type=\"UInt64\">\n<ImageData WholeExtent=\"{extent}\" Origin=\"{origin}\" Spacing=\"{spacing}\"{direction}>\n\
         <Piece Extent=\"{extent}\">\n<PointData>\n"
    ))
}

/// Returns the matrix whose columns are the directions of the axes of the file, of length 1.
fn turned(space: &[Axis], places: &[usize], directions: &Directions) -> String {
    let mut columns = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
    let axes = space.iter().zip(places).rev();
    for (column, (axis, place)) in columns.iter_mut().zip(axes) {
        let len = axis.scale.as_ref().map_or(1.0, |scale| scale.step);
        *column = directions.step(*place).map(|part| part / len);
    }
    let [first, second, third] = columns;
    let rows = first.into_iter().zip(second).zip(third).flat_map(|((a, b), c)| [a, b, c]);
    rows.map(|part| part.to_string()).collect::<Vec<_>>().join(" ")
}

/// Returns the name of array `number`: the name of the node with the indices along the axes before
/// those of space.
fn title(source: &ViewSource<'_>, image: &Image, outer: &[Axis], number: u64) -> String {
    let mut left = number;
    let mut names = Vec::new();
    for axis in outer.iter().rev() {
        let index = left % axis.len.max(1);
        left /= axis.len.max(1);
        if axis.len == 1 {
            continue;
        }
        let channel = usize::try_from(index).ok().and_then(|index| image.channels.get(index));
        let label = channel.and_then(|channel| channel.label.as_deref());
        match label.filter(|_| axis.kind == Some(AxisKind::Channel)) {
            Some(label) => names.push(line(label)),
            None => names.push(format!("{}{index}", line(axis.label()))),
        }
    }
    names.push(line(source.name()));
    names.reverse();
    names.join(" ")
}
