//! `mha`: MetaImage (<https://itk.org/Wiki/ITK/MetaIO>), a header of lines with names and values,
//! followed by the elements. `mhd` is the header alone; its elements are in `X.raw` beside it. The
//! last line of the header states where the elements are.

use super::header::data_file;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::view::image::{Axis, Directions, Image};
use crate::view::layout::{Layout, NumberForm};
use crate::view::left_out::LeftOutOfView;
use crate::view::parts::{Part, View};
use crate::view::source::ViewSource;

/// The most axes that MetaIO reads.
const MAX_RANK: usize = 10;

pub(super) fn attached(source: &ViewSource<'_>) -> Result<View> {
    let elements = source.elements(Layout::Linear, NumberForm::default())?;
    let (header, left_out) = header(source, "LOCAL")?;
    Ok(View::new([Part::from(header), elements.into()])?.with_left_out(left_out))
}

pub(super) fn detached(source: &ViewSource<'_>) -> Result<View> {
    source.elements(Layout::Linear, NumberForm::default())?;
    let (header, left_out) = header(source, &data_file(source)?)?;
    Ok(View::new([Part::from(header)])?.with_left_out(left_out))
}

fn header(source: &ViewSource<'_>, data_file: &str) -> Result<(String, LeftOutOfView)> {
    let image = Image::of(source)?.in_one_unit();
    let name = match image.number() {
        DType::Int(1) => "MET_CHAR",
        DType::Uint(1) => "MET_UCHAR",
        DType::Int(2) => "MET_SHORT",
        DType::Uint(2) => "MET_USHORT",
        DType::Int(4) => "MET_INT",
        DType::Uint(4) => "MET_UINT",
        DType::Int(8) => "MET_LONG_LONG",
        DType::Uint(8) => "MET_ULONG_LONG",
        DType::Float(4) => "MET_FLOAT",
        DType::Float(8) => "MET_DOUBLE",
        _ => return Err(image.no_type("MetaImage")),
    };
    let samples = image.axes.last().filter(|_| image.is_interleaved()).map_or(1, |axis| axis.len);
    let axes: Vec<&Axis> =
        image.axes.iter().rev().skip(usize::from(image.is_interleaved())).collect();
    if axes.len() > MAX_RANK {
        return Err(Error::unsupported(format!("MetaImage has at most {MAX_RANK} dimensions")));
    }
    let list = |of: &dyn Fn(&Axis) -> String| {
        axes.iter().map(|axis| of(axis)).collect::<Vec<_>>().join(" ")
    };
    let scale = |of: fn(&crate::view::image::Scale) -> f64, without: f64| {
        list(&|axis| axis.scale.as_ref().map_or(without, of).to_string())
    };
    let turned = image.directions.as_ref().and_then(|found| turned(&image, found));
    let mut text = format!(
        "ObjectType = Image\nNDims = {}\nBinaryData = True\nBinaryDataByteOrderMSB = False\nCompressedData = False\n\
         {}ElementSpacing = {}\nDimSize = {}\n",
        axes.len(),
        match &turned {
            Some(turned) => turned.clone(),
            None => format!("Offset = {}\n", scale(|scale| scale.start, 0.0)),
        },
        scale(|scale| scale.step, 1.0),
        list(&|axis| axis.len.to_string()),
    );
    if samples > 1 {
        text.extend([format!("ElementNumberOfChannels = {samples}\n")]);
    }
    text.extend([format!("ElementType = {name}\nElementDataFile = {data_file}\n")]);
    let says_directions = image.directions.is_none() || turned.is_some();
    Ok((text, LeftOutOfView::of_image(source.path(), &image, says_directions)))
}

/// Returns the lines of the origin, and of the directions of the axes of the file, each a unit
/// vector in x, y and z; `None` if the axes of the file are not three of space.
fn turned(image: &Image, directions: &Directions) -> Option<String> {
    let is_of_space = image.axes.len() == 3 && image.axes.iter().all(Axis::is_space);
    let steps = (0..3).rev().map(|axis| {
        let len = image.axes.get(axis)?.scale.as_ref()?.step;
        Some(directions.step(axis).map(|part| part / len))
    });
    let steps: Vec<[f64; 3]> = steps.collect::<Option<_>>().filter(|_| is_of_space)?;
    let list = |numbers: &[f64]| numbers.iter().map(f64::to_string).collect::<Vec<_>>().join(" ");
    let (matrix, origin) = (list(steps.as_flattened()), list(&directions.origin()));
    Some(format!("TransformMatrix = {matrix}\nOffset = {origin}\n"))
}
