//! `mrc`: MRC2014 (<https://www.ccpem.ac.uk/mrc_format/mrc2014.php>), a header of 1024 bytes
//! followed by the elements, all little endian.

use super::header::put;
use crate::dtype::{DType, to_single};
use crate::error::{Error, Result};
use crate::view::image::{Axis, AxisKind, Image};
use crate::view::layout::{Layout, NumberForm};
use crate::view::left_out::LeftOutOfView;
use crate::view::parts::{Part, View};
use crate::view::source::ViewSource;

const HEADER_LEN: usize = 1024;

/// The unit of the header, the angstrom, as a power of ten of a metre.
const ANGSTROM: i32 = -10;

pub(super) fn build(source: &ViewSource<'_>) -> Result<View> {
    let elements = source.elements(Layout::Linear, NumberForm::default())?;
    let image = Image::of(source)?.of_rank(4)?;
    let left_out = LeftOutOfView::of_image(source.path(), &image, false);
    Ok(View::new([Part::from(header(&image)?), elements.into()])?.with_left_out(left_out))
}

fn header(image: &Image) -> Result<Vec<u8>> {
    let mode: i32 = match image.number() {
        DType::Int(1) => 0,
        // Mode 0 is signed, and would misread bytes above 127.
        DType::Uint(1) if image.dtype == DType::Bool => 0,
        DType::Int(2) => 1,
        DType::Float(4) => 2,
        DType::Complex(8) => 4,
        DType::Uint(2) => 6,
        DType::Float(2) => 12,
        _ => return Err(image.no_type("MRC")),
    };
    if image.is_interleaved() {
        return Err(Error::unsupported("MRC has no channels within pixels"));
    }
    let none = Axis { len: 1, ..Axis::default() };
    let mut axes = image.axes.iter().rev();
    let mut next = || axes.next().unwrap_or(&none);
    let (x, y, z, volumes) = (next(), next(), next(), next());
    let is_stack_of_planes = image.axes.len() == 3 && z.kind != Some(AxisKind::Z);
    let too_long = || Error::unsupported("MRC has fewer than 2^31 elements along each axis");
    let int = |len: u64| i32::try_from(len).map_err(|_| too_long());
    let sections = int(z.len.checked_mul(volumes.len).ok_or_else(too_long)?)?;
    let (columns, rows) = (int(x.len)?, int(y.len)?);
    // A unit cell is a volume. In a stack of planes each plane is a cell of one section.
    let depth = if is_stack_of_planes { 1 } else { int(z.len)? };
    let space_group: i32 = match image.axes.len() {
        4 => 401,
        3 if !is_stack_of_planes => 1,
        _ => 0,
    };
    let mut bytes = vec![0; HEADER_LEN];
    let ints = [columns, rows, sections, mode, 0, 0, 0, columns, rows, depth];
    for (word, value) in ints.into_iter().enumerate() {
        put(&mut bytes, word.saturating_mul(4), &value.to_le_bytes());
    }
    for (index, (axis, count)) in [(x, columns), (y, rows), (z, depth)].into_iter().enumerate() {
        let at = index.saturating_mul(4);
        // Zero means unknown.
        let cell = axis.step_in(ANGSTROM).map_or(0.0, |step| step * f64::from(count));
        put(&mut bytes, at.saturating_add(40), &to_single(cell).to_le_bytes());
        put(&mut bytes, at.saturating_add(52), &90_f32.to_le_bytes());
        let number = i32::try_from(index.saturating_add(1)).unwrap_or(0);
        put(&mut bytes, at.saturating_add(64), &number.to_le_bytes());
        let origin = axis.start_in(ANGSTROM).unwrap_or(0.0);
        put(&mut bytes, at.saturating_add(196), &to_single(origin).to_le_bytes());
    }
    // A minimum above the maximum, a mean below both and a negative deviation mean that these are
    // unknown.
    for (at, value) in [(76, 0_f32), (80, -1.0), (84, -2.0), (216, -1.0)] {
        put(&mut bytes, at, &value.to_le_bytes());
    }
    put(&mut bytes, 88, &space_group.to_le_bytes());
    put(&mut bytes, 108, &20140_i32.to_le_bytes());
    put(&mut bytes, 208, b"MAP \x44\x44\0\0");
    put(&mut bytes, 220, &1_i32.to_le_bytes());
    put(&mut bytes, 224, format!("{:<80}", "made by zarrfs").as_bytes());
    Ok(bytes)
}
