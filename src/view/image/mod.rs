//! An array as an image: the kinds of its axes, the distances between its elements, and the names
//! of its channels. All image formats use this module, so that they agree.
//!
//! If the array belongs to an OME-Zarr image, the group describes it (`multiscales`, `omero`).
//! Otherwise the names of the dimensions and the attributes of their coordinates decide. Without
//! these, the last two axes are y and x, and the one before is z.

mod axis;
mod kinds;
mod ome;
mod unit;

use super::source::ViewSource;
use crate::dtype::DType;
use crate::error::{Error, Result};
pub use axis::{Axis, AxisKind, Channel, Scale};
pub use ome::{channel_axis, has_level, levels, title};
pub use unit::{Quantity, Unit};

/// An array as an image.
#[derive(Debug, Clone, PartialEq)]
pub struct Image {
    /// The axes of the array, slowest first.
    pub axes: Vec<Axis>,
    /// The channels, in order.
    pub channels: Vec<Channel>,
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
        let channels = described.unwrap_or_default();
        Ok(Self { axes, channels, dtype: model.dtype.clone() })
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
