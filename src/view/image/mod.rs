//! An array as an image: the kinds of its axes, the distances between its elements, and the names
//! of its channels. All image formats use this module, so that they agree.
//!
//! If the array belongs to an OME-Zarr image, the group describes it (`multiscales`, `omero`).
//! Otherwise the names of the dimensions and the attributes of their coordinates decide. Without
//! these, the last two axes are y and x, and the one before is z.

mod axis;
mod cut;
mod directions;
mod kinds;
mod ome;
mod systems;
#[cfg(test)]
mod tests;
mod transform;
mod unit;

use super::source::ViewSource;
use crate::dtype::DType;
use crate::error::{Error, Result};
pub use axis::{Axis, AxisKind, Channel, Scale};
pub use cut::attributes_of_box;
pub use directions::Directions;
pub use ome::{has_level, levels, title};
pub use unit::{Quantity, Unit};

/// An array as an image.
#[derive(Debug, Clone, PartialEq)]
pub struct Image {
    /// The axes of the array, slowest first.
    pub axes: Vec<Axis>,
    /// The channels, in order.
    pub channels: Vec<Channel>,
    /// The directions of the axes, if some do not run along an axis of the coordinate system.
    pub directions: Option<Directions>,
    /// The parts of its description that no view says, in words.
    pub left_out: Vec<String>,
    /// The type of the elements.
    pub dtype: DType,
}

impl Image {
    /// Returns an array as an image. Fails if it has no elements or no axes.
    pub fn of(source: &ViewSource<'_>) -> Result<Self> {
        let model = source.array()?.model();
        if model.shape.is_empty() {
            return Err(Error::unsupported("it has no dimensions"));
        }
        if model.shape.contains(&0) {
            return Err(Error::unsupported("it has no elements"));
        }
        let name = |axis: usize| model.dimension_names.get(axis).cloned().flatten();
        let axis = |(index, len): (usize, &u64)| Axis {
            name: name(index).filter(|name| !name.is_empty()),
            len: *len,
            ..Axis::default()
        };
        let mut axes: Vec<Axis> = model.shape.iter().enumerate().map(axis).collect();
        let described = ome::of(source, &mut axes);
        if described.is_none() {
            kinds::find(source, &mut axes);
        }
        kinds::complete(&mut axes);
        let ome::ImageDescription { channels, directions, left_out } =
            described.unwrap_or_default();
        Ok(Self { axes, channels, directions, left_out, dtype: model.dtype.clone() })
    }

    /// Returns the lengths of the axes.
    pub fn shape(&self) -> Vec<u64> {
        self.axes.iter().map(|axis| axis.len).collect()
    }

    /// Returns the axis of a kind, and its index.
    pub fn axis(&self, kind: AxisKind) -> Option<(usize, &Axis)> {
        self.axes.iter().enumerate().find(|(_, axis)| axis.kind == Some(kind))
    }

    /// Removes leading axes of one element until `rank` axes are left. Fails if that takes axes
    /// with more elements.
    pub fn of_rank(mut self, rank: usize) -> Result<Self> {
        while self.axes.len() > rank {
            if self.axes.first().is_none_or(|axis| axis.len != 1) {
                return Err(Error::unsupported(format!(
                    "it has {} dimensions, the limit is {rank}",
                    self.axes.len()
                )));
            }
            self.axes.remove(0);
        }
        Ok(self)
    }

    /// Returns the image with all axes of space in the unit of x if there are several units, for
    /// formats that have one.
    #[must_use]
    pub fn in_one_unit(mut self) -> Self {
        let unit_of = |axis: &Axis| axis.scale.as_ref().and_then(|scale| scale.unit.clone());
        let units: Vec<_> = self.axes.iter().filter(|axis| axis.is_space()).map(unit_of).collect();
        let Some(unit) = units.last().cloned().flatten() else { return self };
        if units.iter().all(|other| other.as_ref() == Some(&unit)) {
            return self;
        }
        let exponent = unit.exponent().unwrap_or(-6);
        for axis in self.axes.iter_mut().filter(|axis| axis.is_space()) {
            if let Some((step, start)) = axis.step_in(exponent).zip(axis.start_in(exponent)) {
                let unit = Some(Unit::of_exponent(exponent));
                axis.scale = Some(Scale { step, start, unit });
            }
        }
        self.directions = self.directions.map(|found| found.in_unit(Some(exponent)));
        self
    }

    /// Returns the image for formats whose columns are x and whose rows are y, whatever these axes
    /// are in the array: each has its own distance between elements.
    #[must_use]
    pub fn in_pages(mut self) -> Self {
        let count = self.axes.len().saturating_sub(usize::from(self.is_interleaved()));
        let (outer, rest) = self.axes.split_at_mut(count.saturating_sub(2));
        let mut plane = rest.iter_mut().take(count.min(2)).rev();
        let mut said = Vec::new();
        for (what, kind, axis) in
            [("columns", AxisKind::X, plane.next()), ("rows", AxisKind::Y, plane.next())]
        {
            let Some(axis) = axis.filter(|axis| axis.kind != Some(kind)) else { continue };
            if let Some(name) = &axis.name {
                said.push(format!("the {what} are {name}"));
            }
            if !axis.is_space() {
                axis.scale = None;
            }
            axis.kind = Some(kind);
        }
        if said.is_empty() {
            return self;
        }
        let mut has_slices = outer.iter().any(|axis| axis.kind == Some(AxisKind::Z));
        for axis in
            outer.iter_mut().filter(|axis| matches!(axis.kind, Some(AxisKind::X | AxisKind::Y)))
        {
            axis.kind = (!has_slices).then_some(AxisKind::Z);
            has_slices = true;
        }
        self.left_out.push(format!("the names of its axes ({})", said.join(", ")));
        self
    }

    /// Whether the last axis is that of channels, so that the samples of a pixel are adjacent.
    pub fn is_interleaved(&self) -> bool {
        self.axes.len() > 2
            && self.axes.last().is_some_and(|axis| axis.kind == Some(AxisKind::Channel))
    }

    /// Returns the type of the numbers; that of a Boolean is a byte, 0 or 1.
    pub fn number(&self) -> DType {
        match &self.dtype {
            DType::Bool => DType::Uint(1),
            other => other.clone(),
        }
    }

    /// Returns the error for a format that cannot hold the type.
    pub fn no_type(&self, format: &str) -> Error {
        Error::unsupported(format!("{format} has no type for {}", self.dtype.name()))
    }
}

/// Escapes a string for XML. Uses names instead of numbers, since Bio-Formats cannot read `&#181;`.
pub fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for char in text.chars() {
        match char {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            // XML cannot represent these.
            char if char.is_control() || matches!(char, '\u{fffe}' | '\u{ffff}') => {
                escaped.push('_');
            }
            char => escaped.push(char),
        }
    }
    escaped
}
