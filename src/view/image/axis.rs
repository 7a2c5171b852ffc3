//! The axes of an image, and its channels.

use super::unit::Unit;

/// What lies along an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
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

/// An axis.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Axis {
    /// Its name.
    pub name: Option<String>,
    /// What lies along it, if that is known.
    pub kind: Option<Kind>,
    /// How many elements the array has along it.
    pub len: u64,
    /// Where the elements lie, if that is known.
    pub scale: Option<Scale>,
}

/// Where the elements along an axis lie.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    /// From one to the next.
    pub step: f64,
    /// The place of the first.
    pub start: f64,
    /// What both are measured in.
    pub unit: Option<Unit>,
}

/// A channel.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Channel {
    /// What it is called.
    pub label: Option<String>,
    /// Red, green and blue.
    pub color: Option<u32>,
}

impl Axis {
    /// Returns a letter or a word for it.
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(match self.kind {
            Some(Kind::Time) => "t",
            Some(Kind::Channel) => "c",
            Some(Kind::Z) => "z",
            Some(Kind::Y) => "y",
            Some(Kind::X) => "x",
            None => "",
        })
    }

    /// Whether it is one of space.
    pub fn is_space(&self) -> bool {
        matches!(self.kind, Some(Kind::X | Kind::Y | Kind::Z))
    }

    /// From one element to the next, in a unit of ten to that power of metres, or of seconds,
    /// `None` if that is not known.
    pub fn step_in(&self, exponent: i32) -> Option<f64> {
        let scale = self.scale.as_ref()?;
        scale.unit.as_ref()?.convert(scale.step, exponent)
    }

    /// Returns the place of the first element, in the same way.
    pub fn start_in(&self, exponent: i32) -> Option<f64> {
        let scale = self.scale.as_ref()?;
        scale.unit.as_ref()?.convert(scale.start, exponent)
    }
}

/// What an axis of this name is.
pub(super) fn kind_of(name: &str) -> Option<Kind> {
    Some(match name.to_lowercase().as_str() {
        "t" | "time" => Kind::Time,
        "c" | "ch" | "channel" | "channels" | "band" | "bands" => Kind::Channel,
        "z" => Kind::Z,
        "y" => Kind::Y,
        "x" => Kind::X,
        _ => return None,
    })
}
