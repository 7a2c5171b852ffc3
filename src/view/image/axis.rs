//! The axes of an image, and its channels.

use super::unit::Unit;

/// The kind of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AxisKind {
    /// Time.
    Time,
    /// Channels, or the samples of a pixel.
    Channel,
    /// Space, of the planes.
    Z,
    /// Space, of the rows.
    Y,
    /// Space, of the columns.
    X,
}

impl AxisKind {
    /// Whether it is one of space.
    pub fn is_space(self) -> bool {
        matches!(self, Self::X | Self::Y | Self::Z)
    }
}

/// An axis.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Axis {
    /// The name.
    pub name: Option<String>,
    /// The kind, if known.
    pub kind: Option<AxisKind>,
    /// The number of elements along it.
    pub len: u64,
    /// The positions of the elements, if known.
    pub scale: Option<Scale>,
}

/// The positions of the elements along an axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    /// The distance between neighbours.
    pub step: f64,
    /// The position of the first element.
    pub start: f64,
    /// The unit of both.
    pub unit: Option<Unit>,
}

/// A channel.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Channel {
    /// The name.
    pub label: Option<String>,
    /// The colour as red, green and blue.
    pub color: Option<u32>,
}

impl Axis {
    /// Returns a letter or a word for the axis.
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(match self.kind {
            Some(AxisKind::Time) => "t",
            Some(AxisKind::Channel) => "c",
            Some(AxisKind::Z) => "z",
            Some(AxisKind::Y) => "y",
            Some(AxisKind::X) => "x",
            None => "",
        })
    }

    /// Whether the axis is one of space.
    pub fn is_space(&self) -> bool {
        self.kind.is_some_and(AxisKind::is_space)
    }

    /// Returns the step between elements, in ten to the power of `exponent` metres or seconds;
    /// `None` if unknown.
    pub fn step_in(&self, exponent: i32) -> Option<f64> {
        let scale = self.scale.as_ref()?;
        scale.unit.as_ref()?.convert(scale.step, exponent)
    }

    /// Returns the position of the first element, in the same unit.
    pub fn start_in(&self, exponent: i32) -> Option<f64> {
        let scale = self.scale.as_ref()?;
        scale.unit.as_ref()?.convert(scale.start, exponent)
    }
}
