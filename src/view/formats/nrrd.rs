//! `nrrd`: "nearly raw raster data" (<https://teem.sourceforge.net/nrrd/format.html>), a text
//! header, an empty line, and the elements. `nhdr` is the header alone, for the elements in `X.raw`
//! beside it.

use super::header::{data_file, line};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::view::image::{Axis, AxisKind, Directions, Image, Scale, Unit};
use crate::view::layout::{Layout, NumberForm};
use crate::view::left_out::LeftOutOfView;
use crate::view::parts::{Part, View};
use crate::view::source::ViewSource;

/// The most axes that Teem reads.
const MAX_RANK: usize = 16;

pub(super) fn attached(source: &ViewSource<'_>) -> Result<View> {
    let elements = source.elements(Layout::Linear, NumberForm::default())?;
    let (header, left_out) = header(source, None)?;
    Ok(View::new([Part::from(header), elements.into()])?.with_left_out(left_out))
}

pub(super) fn detached(source: &ViewSource<'_>) -> Result<View> {
    source.elements(Layout::Linear, NumberForm::default())?;
    let name = data_file(source)?;
    if !name.is_ascii() {
        // Some readers drop the other characters and open another file.
        return Err(Error::unsupported(
            "an NRRD header is ASCII, so the name of the data file must be ASCII, too",
        ));
    }
    let (header, left_out) = header(source, Some(&name))?;
    Ok(View::new([Part::from(header)])?.with_left_out(left_out))
}

fn header(source: &ViewSource<'_>, data_file: Option<&str>) -> Result<(String, LeftOutOfView)> {
    let image = Image::of(source)?.in_one_unit();
    let (name, is_complex) = match image.number() {
        DType::Int(1) => ("int8", false),
        DType::Uint(1) => ("uint8", false),
        DType::Int(2) => ("int16", false),
        DType::Uint(2) => ("uint16", false),
        DType::Int(4) => ("int32", false),
        DType::Uint(4) => ("uint32", false),
        DType::Int(8) => ("int64", false),
        DType::Uint(8) => ("uint64", false),
        DType::Float(4) => ("float", false),
        DType::Float(8) => ("double", false),
        DType::Complex(8) => ("float", true),
        DType::Complex(16) => ("double", true),
        _ => return Err(image.no_type("NRRD")),
    };
    // A complex number is an axis of two elements, the fastest.
    let parts = is_complex.then(|| Axis { len: 2, ..Axis::default() });
    let axes: Vec<&Axis> = parts.iter().chain(image.axes.iter().rev()).collect();
    if axes.len() > MAX_RANK {
        return Err(Error::unsupported(format!("NRRD has at most {MAX_RANK} dimensions")));
    }
    let list = |of: &dyn Fn(&Axis) -> String| {
        axes.iter().map(|axis| of(axis)).collect::<Vec<_>>().join(" ")
    };
    let space = space(&axes);
    let turned = image.directions.as_ref().filter(|_| space.is_some());
    let mut text = format!(
        "NRRD0005\n# {}\ntype: {name}\ndimension: {}\n{}sizes: {}\n{}",
        line(&source.path().to_string()),
        axes.len(),
        space
            .map(|count| turned.map_or(count, |turned| turned_space(turned, image.axes.len())))
            .map(|count| format!("space dimension: {count}\n"))
            .unwrap_or_default(),
        list(&|axis| axis.len.to_string()),
        match turned {
            Some(turned) => turned_directions(turned, image.axes.len(), is_complex),
            None if space.is_some() => directions(&axes),
            None => spacings(&axes),
        },
    );
    let kind = |axis: &Axis| match axis.kind {
        None if is_complex && axis.len == 2 && axis.name.is_none() => "complex",
        Some(AxisKind::Time) => "time",
        Some(AxisKind::Channel) => "list",
        Some(AxisKind::X | AxisKind::Y | AxisKind::Z) if space.is_some() => "space",
        Some(AxisKind::X | AxisKind::Y | AxisKind::Z) | None => "domain",
    };
    let label = |axis: &Axis| format!("\"{}\"", line(axis.label()).replace(['"', '\\'], "_"));
    text.extend([format!(
        "kinds: {}\nlabels: {}\nendian: little\nencoding: raw\n",
        list(&|axis| kind(axis).to_owned()),
        list(&label)
    )]);
    if let Some(data_file) = data_file {
        text.extend([format!("data file: {data_file}\n")]);
    }
    text.push('\n');
    let says_directions = image.directions.is_none() || turned.is_some();
    Ok((text, LeftOutOfView::of_image(source.path(), &image, says_directions)))
}

/// Returns the number of spatial axes if the positions along all of them are known. ITK does not
/// read a file with directions if it has other axes, except channels.
fn space(axes: &[&Axis]) -> Option<usize> {
    let space = axes.iter().filter(|axis| axis.is_space());
    let known = space.clone().all(|axis| axis.scale.is_some())
        && axes.iter().all(|axis| axis.is_space() || axis.kind == Some(AxisKind::Channel));
    Some(space.count()).filter(|count| *count > 0 && known)
}

/// Returns the fields with the step and the first position along each axis, in its unit.
fn spacings(axes: &[&Axis]) -> String {
    let scales = || axes.iter().map(|axis| axis.scale.as_ref());
    if scales().all(|scale| scale.is_none()) {
        return String::new();
    }
    let list = |of: &dyn Fn(&Scale) -> String, without: &str| {
        let words = scales().map(|scale| scale.map_or_else(|| without.to_owned(), of));
        words.collect::<Vec<_>>().join(" ")
    };
    // The first element lies at the minimum, not half an element beyond it.
    format!(
        "spacings: {}\naxis mins: {}\ncenters: {}\nunits: {}\n",
        list(&|scale| scale.step.to_string(), "nan"),
        list(&|scale| scale.start.to_string(), "nan"),
        list(&|_| "node".to_owned(), "none"),
        list(&|scale| format!("\"{}\"", unit(scale)), "\"\""),
    )
}

/// Returns the name of a unit, suitable for quotes.
fn unit(scale: &Scale) -> String {
    unit_name(scale.unit.as_ref())
}

fn unit_name(unit: Option<&Unit>) -> String {
    unit.map(|unit| line(&unit.name).replace(['"', '\\'], "_")).unwrap_or_default()
}

/// Returns the number of dimensions of the space in which axes are turned: 2 without a third axis.
fn turned_space(directions: &Directions, rank: usize) -> usize {
    let [.., z] = directions.origin();
    let has_z = (0..rank).any(|axis| directions.step(axis)[2] != 0.0) || z != 0.0;
    if has_z { 3 } else { 2 }
}

/// Returns the fields with the directions of axes that do not run along x, y or z.
fn turned_directions(directions: &Directions, rank: usize, is_complex: bool) -> String {
    let count = turned_space(directions, rank);
    let vector = |parts: [f64; 3]| {
        let numbers: Vec<String> = parts.iter().take(count).map(f64::to_string).collect();
        format!("({})", numbers.join(","))
    };
    let step = |axis: usize| match directions.step(axis) {
        [0.0, 0.0, 0.0] => "none".to_owned(),
        step => vector(step),
    };
    let parts = is_complex.then(|| "none".to_owned());
    let steps: Vec<String> = parts.into_iter().chain((0..rank).rev().map(step)).collect();
    let name = |unit: &Option<Unit>| format!("\"{}\"", unit_name(unit.as_ref()));
    let units: Vec<String> = directions.units().iter().take(count).map(name).collect();
    format!(
        "space directions: {}\nspace units: {}\nspace origin: {}\n",
        steps.join(" "),
        units.join(" "),
        vector(directions.origin()),
    )
}

/// Returns the fields with the directions and the origin in the space of x, y and z, each in its
/// unit.
fn directions(axes: &[&Axis]) -> String {
    let mut kinds = vec![AxisKind::X, AxisKind::Y, AxisKind::Z];
    kinds.retain(|kind| axes.iter().any(|axis| axis.kind == Some(*kind)));
    let vector = |of: &dyn Fn(AxisKind) -> f64| {
        let numbers: Vec<String> = kinds.iter().map(|kind| of(*kind).to_string()).collect();
        format!("({})", numbers.join(","))
    };
    let step = |axis: &&Axis| match (axis.kind, axis.scale.as_ref()) {
        (Some(own), Some(scale)) if axis.is_space() => {
            vector(&|kind| if kind == own { scale.step } else { 0.0 })
        }
        _ => "none".to_owned(),
    };
    let scale_of =
        |kind: AxisKind| axes.iter().find(|axis| axis.kind == Some(kind))?.scale.as_ref();
    let units =
        kinds.iter().map(|kind| format!("\"{}\"", scale_of(*kind).map(unit).unwrap_or_default()));
    format!(
        "space directions: {}\nspace units: {}\nspace origin: {}\n",
        axes.iter().map(step).collect::<Vec<_>>().join(" "),
        units.collect::<Vec<_>>().join(" "),
        vector(&|kind| scale_of(kind).map_or(0.0, |scale| scale.start)),
    )
}
