//! An array as an image: the kinds of its axes, the distances between its elements, and the names
//! of its channels. All image formats use this module, so that they agree.
//!
//! If the array belongs to an OME-Zarr image, the group describes it (`multiscales`, `omero`).
//! Otherwise the names of the dimensions decide. Without names, the last two axes are y and x, and
//! the one before is z.

mod axis;
mod ome;
mod unit;

use super::elements::Elements;
use super::parts::Part;
use super::source::Source;
use crate::dtype::DType;
use crate::error::{Error, Result};
use axis::kind_of;
pub use axis::{Axis, Channel, Kind, Scale};
pub use ome::{channel_axis, has_level, levels, title};
pub use unit::{Quantity, Unit};

/// The most parts to split the elements of an image into to reorder its planes.
const MAX_PARTS: u64 = 1 << 18;

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
    pub fn of(source: &Source<'_>) -> Result<Self> {
        let model = source.array()?.model();
        if model.shape.is_empty() {
            return Err(Error::unsupported("it has no dimensions"));
        }
        if model.shape.contains(&0) {
            return Err(Error::unsupported("it has no elements"));
        }
        let name = |axis: usize| model.dimension_names.get(axis).cloned().flatten();
        let axis = |(index, len): (usize, &u64)| {
            let name = name(index);
            Axis { kind: name.as_deref().and_then(kind_of), name, len: *len, scale: None }
        };
        let mut axes: Vec<Axis> = model.shape.iter().enumerate().map(axis).collect();
        let mut channels = Vec::new();
        if let Some(described) = ome::of(source, &mut axes) {
            channels = described;
        }
        let mut kinds: Vec<Kind> = axes.iter().filter_map(|axis| axis.kind).collect();
        let count = kinds.len();
        kinds.sort_unstable_by_key(|kind| format!("{kind:?}"));
        kinds.dedup();
        if kinds.len() != count {
            // A name or kind that occurs twice is ignored.
            for axis in &mut axes {
                axis.kind = None;
            }
        }
        if axes.iter().all(|axis| axis.kind.is_none()) {
            let last = [Kind::X, Kind::Y, Kind::Z].into_iter();
            for (axis, kind) in axes.iter_mut().rev().zip(last) {
                axis.kind = Some(kind);
            }
        }
        Ok(Self { axes, channels, dtype: model.dtype.clone() })
    }

    /// Returns the lengths of the axes.
    pub fn shape(&self) -> Vec<u64> {
        self.axes.iter().map(|axis| axis.len).collect()
    }

    /// Returns the axis of a kind, and its index.
    pub fn axis(&self, kind: Kind) -> Option<(usize, &Axis)> {
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
        self.axes.len() > 2 && self.axes.last().is_some_and(|axis| axis.kind == Some(Kind::Channel))
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

/// Returns the elements of an array of `shape` with its first axes in the order `order`, the
/// slowest first. The axes that are not in `order` follow unchanged.
pub fn in_order(elements: &Elements, shape: &[u64], order: &[usize]) -> Result<Vec<Part>> {
    // Trailing axes that keep their places are copied together.
    let kept = order.iter().enumerate().rev().take_while(|(place, axis)| place == *axis).count();
    let outer = order.get(..order.len().saturating_sub(kept)).unwrap_or_default();
    if outer.is_empty() {
        return Ok(vec![elements.clone().into()]);
    }
    let product = |lens: &[u64]| lens.iter().try_fold(1_u64, |all, len| all.checked_mul(*len));
    let (lens, _) = shape.split_at_checked(outer.len()).unwrap_or_default();
    let count = product(lens).filter(|count| (1..=MAX_PARTS).contains(count)).ok_or_else(|| {
        Error::unsupported(format!(
            "its axes are in another order, and more than {MAX_PARTS} planes would have to move"
        ))
    })?;
    let part_len = elements.len() / count;
    let len = |axis: usize| lens.get(axis).copied().unwrap_or(1);
    let stride = |axis: usize| {
        lens.iter().skip(axis.saturating_add(1)).fold(1_u64, |all, len| all.saturating_mul(*len))
    };
    let part = |number: u64| {
        let (mut left, mut from) = (number, 0_u64);
        for axis in outer.iter().rev() {
            let index = left % len(*axis).max(1);
            left /= len(*axis).max(1);
            from = from.saturating_add(index.saturating_mul(stride(*axis)));
        }
        elements.range(from.saturating_mul(part_len), part_len).map(Part::from)
    };
    (0..count).map(part).collect()
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
