//! `nii`: NIfTI-1 (<https://nifti.nimh.nih.gov/nifti-1>): a header of 348 bytes, four bytes that
//! say that there are no extensions, then the elements. If an axis has more than 32767 elements, it
//! is NIfTI-2, with a header of 540 bytes.
//!
//! Axes are x, y, z, time and channels, fastest first. If an array has time and channels in the
//! other order, its volumes are reordered. Axes of space keep their order, and the matrix
//! identifies them. If the header of another file is stored beside the image
//! ([`nifti_zarr`](super::nifti_zarr)), the view uses it.

use super::header::put;
use super::nifti_zarr;
use crate::dtype::{DType, to_single};
use crate::error::{Error, Result};
use crate::view::image::{Axis, AxisKind, Directions, Image};
use crate::view::layout::{Layout, NumberForm};
use crate::view::left_out::LeftOutOfView;
use crate::view::parts::{Part, View};
use crate::view::source::ViewSource;
use crate::width::ToU64;

/// The number of axes in a file.
const RANK: usize = 7;

/// The lengths of headers.
const LEN_1: usize = 348;
const LEN_2: usize = 540;

/// The contents of a header of either version.
struct NiftiHeader<'i> {
    /// The axis of the array for each axis of the file.
    axes: [Option<&'i Axis>; RANK],
    /// The number of that axis of the array.
    places: [Option<usize>; RANK],
    /// The directions of the axes of the array, if some are turned.
    directions: Option<&'i Directions>,
    datatype: i16,
    bitpix: i16,
    /// The units of space and of time.
    units: Units,
}

struct Units {
    /// The unit of length as a power of ten of a metre, `None` if unknown.
    space: Option<i32>,
    /// The unit of time as a power of ten of a second.
    time: Option<i32>,
}

pub(super) fn build(source: &ViewSource<'_>) -> Result<View> {
    let image = Image::of(source)?;
    let (datatype, bitpix, of_pixel) = datatype(&image)?;
    let axes = image.axes.get(..image.axes.len().saturating_sub(of_pixel)).unwrap_or_default();
    let places = places(axes)?;
    let mut order: Vec<usize> = places.iter().rev().copied().flatten().collect();
    order.extend(axes.len()..image.axes.len());
    let elements = source.elements(Layout::Linear, NumberForm::default())?;
    let elements = elements.turned(&order)?;
    let axes = places.map(|place| place.and_then(|place| axes.get(place)));
    let directions = image.directions.as_ref();
    let units = units(&axes);
    let header = NiftiHeader { axes, places, directions, datatype, bitpix, units };
    let short: Option<Vec<i16>> = header.dim().into_iter().map(|len| len.try_into().ok()).collect();
    let base = nifti_zarr::header(source).filter(|base| header.is_of(base));
    let bytes = match (short, base) {
        (Some(dim), None) => header.version_1(&dim, None),
        (Some(dim), Some(base)) if base.len() < LEN_2 => header.version_1(&dim, Some(base)),
        (_, base) => header.version_2(base),
    };
    let dim = header.dim();
    let mut left_out = LeftOutOfView::of_image(source.path(), &image, true);
    let rank = axes_count(&image, of_pixel);
    if dim.first() != Some(&rank) {
        let what = format!("{rank} dimensions (as {})", dim.first().unwrap_or(&0));
        left_out.add_property(source.path(), source.path(), what);
    }
    Ok(View::new([Part::from(bytes), elements.into()])?.with_left_out(left_out))
}

/// Returns the number of axes of the array outside of pixels.
fn axes_count(image: &Image, of_pixel: usize) -> u64 {
    image.axes.len().saturating_sub(of_pixel).to_u64()
}

/// Returns the code of the type, its bits, and the number of axes of the array in a pixel.
fn datatype(image: &Image) -> Result<(i16, i16, usize)> {
    let samples = image.axes.last().filter(|_| image.is_interleaved()).map(|axis| axis.len);
    Ok(match (image.number(), samples) {
        (DType::Uint(1), Some(3)) => (128, 24, 1),
        (DType::Uint(1), Some(4)) => (2304, 32, 1),
        (DType::Uint(1), _) => (2, 8, 0),
        (DType::Int(2), _) => (4, 16, 0),
        (DType::Int(4), _) => (8, 32, 0),
        (DType::Float(4), _) => (16, 32, 0),
        (DType::Complex(8), _) => (32, 64, 0),
        (DType::Float(8), _) => (64, 64, 0),
        (DType::Int(1), _) => (256, 8, 0),
        (DType::Uint(2), _) => (512, 16, 0),
        (DType::Uint(4), _) => (768, 32, 0),
        (DType::Int(8), _) => (1024, 64, 0),
        (DType::Uint(8), _) => (1280, 64, 0),
        (DType::Complex(16), _) => (1792, 128, 0),
        _ => return Err(image.no_type("NIfTI")),
    })
}

/// Returns the axis of the array for each axis of the file.
fn places(axes: &[Axis]) -> Result<[Option<usize>; RANK]> {
    let mut places = [None; RANK];
    let has = |kind| axes.iter().any(|axis| axis.kind == Some(kind));
    // If neither time nor channels are known, unknown axes follow the spatial ones in order.
    let others = if has(AxisKind::Time) || has(AxisKind::Channel) { 5..RANK } else { 3..RANK };
    for (index, axis) in axes.iter().enumerate().rev() {
        let among = match axis.kind {
            Some(AxisKind::X | AxisKind::Y | AxisKind::Z) => 0..3,
            Some(AxisKind::Time) => 3..4,
            Some(AxisKind::Channel) => 4..5,
            None => others.clone(),
        };
        let free = places.get_mut(among).into_iter().flatten().find(|place| place.is_none());
        match free {
            Some(place) => *place = Some(index),
            // An axis of one element can be dropped.
            None if axis.len == 1 => {}
            None => {
                return Err(Error::unsupported(
                    "NIfTI has at most three spatial axes, one of time, one of channels and two \
                     others",
                ));
            }
        }
    }
    Ok(places)
}

fn units(axes: &[Option<&Axis>; RANK]) -> Units {
    let exponent = |axis: &Axis, known: [i32; 3]| {
        let own = axis.scale.as_ref()?.unit.as_ref()?;
        let nearest = own.exponent().filter(|exponent| known.contains(exponent));
        Some(nearest.unwrap_or(match own.convert(1.0, -3)? {
            size if size < 1.0 => -6,
            _ => -3,
        }))
    };
    let space: Vec<&Axis> = axes.iter().flatten().copied().filter(|axis| axis.is_space()).collect();
    let first = space.iter().find_map(|axis| exponent(axis, [0, -3, -6]));
    let time = axes.iter().flatten().find(|axis| axis.kind == Some(AxisKind::Time));
    Units {
        space: first.filter(|exponent| {
            space.iter().all(|axis| axis.scale.is_none() || axis.step_in(*exponent).is_some())
        }),
        time: time.and_then(|axis| exponent(axis, [0, -3, -6])),
    }
}

impl NiftiHeader<'_> {
    /// Returns the number of axes, and the length of each.
    fn dim(&self) -> [u64; 8] {
        let mut dim = [1; 8];
        let last = self.axes.iter().rposition(Option::is_some).unwrap_or(0);
        for (dim, len) in dim.iter_mut().zip(
            std::iter::once(last.to_u64().saturating_add(1))
                .chain(self.axes.iter().map(|axis| axis.map_or(1, |axis| axis.len))),
        ) {
            *dim = len;
        }
        dim
    }

    /// Returns the step between elements along an axis, and the position of the first, in the units
    /// of the header.
    fn place(&self, axis: &Axis) -> (f64, f64) {
        let unit = if axis.is_space() { self.units.space } else { self.units.time };
        let plain = || {
            let scale = axis.scale.as_ref()?;
            Some((scale.step, scale.start))
        };
        unit.and_then(|unit| axis.step_in(unit).zip(axis.start_in(unit)))
            .or_else(plain)
            .unwrap_or((1.0, 0.0))
    }

    fn pixdim(&self) -> [f64; 8] {
        let mut pixdim = [1.0; 8];
        for (pixdim, axis) in pixdim.iter_mut().skip(1).zip(self.axes) {
            *pixdim = axis.map_or(1.0, |axis| self.place(axis).0.abs());
        }
        pixdim
    }

    fn time_start(&self) -> f64 {
        let time = self.axes.get(3).copied().flatten();
        time.filter(|axis| axis.kind == Some(AxisKind::Time)).map_or(0.0, |axis| self.place(axis).1)
    }

    fn xyzt_units(&self) -> u8 {
        let space = match self.units.space {
            Some(0) => 1,
            Some(-3) => 2,
            Some(_) => 3,
            None => 0,
        };
        let time = match self.units.time {
            Some(0) => 8,
            Some(-3) => 16,
            Some(_) => 24,
            None => 0,
        };
        space | time
    }

    /// Returns the rows of the matrix from the indices of a voxel to x, y and z, `None` if no
    /// position is known.
    fn matrix(&self) -> Option<[[f64; 4]; 3]> {
        if let Some(directions) = self.directions {
            return Some(self.turned(&directions.clone().in_unit(self.units.space)));
        }
        let space = self.axes.iter().take(3).flatten();
        if space.clone().all(|axis| axis.scale.is_none()) {
            return None;
        }
        let row_of = |axis: &Axis| match axis.kind {
            Some(AxisKind::Y) => 1,
            Some(AxisKind::Z) => 2,
            _ => 0,
        };
        let mut rows = [[0.0; 4]; 3];
        let mut free: Vec<usize> =
            (0..3).filter(|row| !space.clone().any(|axis| row_of(axis) == *row)).collect();
        for (column, axis) in self.axes.iter().take(3).enumerate() {
            let (row, (step, start)) = match axis {
                Some(axis) => (row_of(axis), self.place(axis)),
                None => (free.pop().unwrap_or(column), (1.0, 0.0)),
            };
            if let Some(row) = rows.get_mut(row) {
                if let Some(target) = row.get_mut(column) {
                    *target = step;
                }
                row[3] = start;
            }
        }
        Some(rows)
    }

    /// Returns the matrix of axes that are turned. An axis of one element that the array does not
    /// have runs along none of the others.
    fn turned(&self, directions: &Directions) -> [[f64; 4]; 3] {
        let mut rows = [[0.0; 4]; 3];
        for (column, place) in self.places.iter().take(3).enumerate() {
            let mut step = [0.0; 3];
            match place {
                Some(axis) => step = directions.step(*axis),
                None => step.get_mut(column).into_iter().for_each(|part| *part = 1.0),
            }
            for (row, part) in rows.iter_mut().zip(step) {
                row.get_mut(column).into_iter().for_each(|target| *target = part);
            }
        }
        for (row, start) in rows.iter_mut().zip(directions.origin()) {
            row[3] = start;
        }
        rows
    }

    /// Whether another header describes an image of the same shape.
    fn is_of(&self, base: &[u8]) -> bool {
        let lens: Vec<u64> = match base.len() {
            LEN_1 => base.get(42..56).map(|dim| {
                let (dim, _) = dim.as_chunks::<2>();
                dim.iter().map(|len| u64::try_from(i16::from_le_bytes(*len)).unwrap_or(0)).collect()
            }),
            _ => base.get(24..80).map(|dim| {
                let (dim, _) = dim.as_chunks::<8>();
                dim.iter().map(|len| u64::try_from(i64::from_le_bytes(*len)).unwrap_or(0)).collect()
            }),
        }
        .unwrap_or_default();
        // Lengths after the last may be 0.
        lens.iter().zip(self.dim().iter().skip(1)).all(|(one, own)| (*one).max(1) == *own)
    }

    /// Returns the header of version 1, based on `base`, which may have more fields set.
    fn version_1(&self, dim: &[i16], base: Option<Vec<u8>>) -> Vec<u8> {
        let is_new = base.is_none();
        let mut bytes = base.unwrap_or_default();
        bytes.resize(LEN_1.saturating_add(4), 0);
        put(&mut bytes, 0, &348_i32.to_le_bytes());
        put(&mut bytes, 40, &dim.iter().flat_map(|len| len.to_le_bytes()).collect::<Vec<_>>());
        put(&mut bytes, 70, &self.datatype.to_le_bytes());
        put(&mut bytes, 72, &self.bitpix.to_le_bytes());
        put(&mut bytes, 108, &singles(&[352.0]));
        put(&mut bytes, 344, b"n+1\0");
        if is_new {
            put(&mut bytes, 38, b"r");
            put(&mut bytes, 76, &singles(&self.pixdim()));
            put(&mut bytes, 112, &singles(&[1.0]));
            put(&mut bytes, 123, &[self.xyzt_units()]);
            put(&mut bytes, 136, &singles(&[self.time_start()]));
            if let Some(matrix) = self.matrix() {
                put(&mut bytes, 254, &1_i16.to_le_bytes());
                put(&mut bytes, 280, &singles(&matrix.concat()));
            }
        }
        bytes
    }

    /// Returns the header of version 2.
    fn version_2(&self, base: Option<Vec<u8>>) -> Vec<u8> {
        let base = base.filter(|base| base.len() == LEN_2);
        let is_new = base.is_none();
        let mut bytes = base.unwrap_or_default();
        bytes.resize(LEN_2.saturating_add(4), 0);
        put(&mut bytes, 0, &540_i32.to_le_bytes());
        put(&mut bytes, 4, b"n+2\0\r\n\x1a\n");
        put(&mut bytes, 12, &self.datatype.to_le_bytes());
        put(&mut bytes, 14, &self.bitpix.to_le_bytes());
        let dim = self.dim();
        put(&mut bytes, 16, &dim.iter().flat_map(|len| len.to_le_bytes()).collect::<Vec<_>>());
        put(&mut bytes, 168, &544_i64.to_le_bytes());
        if is_new {
            put(&mut bytes, 104, &doubles(&self.pixdim()));
            put(&mut bytes, 176, &doubles(&[1.0]));
            put(&mut bytes, 216, &doubles(&[self.time_start()]));
            if let Some(matrix) = self.matrix() {
                put(&mut bytes, 348, &1_i32.to_le_bytes());
                put(&mut bytes, 400, &doubles(&matrix.concat()));
            }
            put(&mut bytes, 500, &i32::from(self.xyzt_units()).to_le_bytes());
        }
        bytes
    }
}

fn singles(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| to_single(*value).to_le_bytes()).collect()
}

fn doubles(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}
