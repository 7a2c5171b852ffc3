//! The colours of numbers.

use crate::dtype::{to_float, to_index};

/// Viridis, whose order people with colour blindness can see, too.
const VIRIDIS: &[[u8; 3]] = &[
    [68, 1, 84],
    [72, 36, 117],
    [65, 68, 135],
    [53, 95, 141],
    [42, 120, 142],
    [33, 145, 140],
    [34, 168, 132],
    [68, 191, 112],
    [122, 209, 81],
    [189, 223, 38],
    [253, 231, 37],
];

/// From black to white.
const GRAY: &[[u8; 3]] = &[[0, 0, 0], [255, 255, 255]];

/// From blue for low numbers over white to red for high ones (`RdBu` of `ColorBrewer`).
const BLUE_RED: &[[u8; 3]] = &[
    [5, 48, 97],
    [33, 102, 172],
    [67, 147, 195],
    [146, 197, 222],
    [209, 229, 240],
    [247, 247, 247],
    [253, 219, 199],
    [244, 165, 130],
    [214, 96, 77],
    [178, 24, 43],
    [103, 0, 31],
];

/// The steps between two colours of a scale.
const STEPS: usize = 16;

/// The colours from the smallest to the largest number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Palette {
    /// From dark blue over green to yellow.
    #[default]
    Viridis,
    /// From black to white.
    Gray,
    /// From blue over white to red.
    BlueRed,
}

impl Palette {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Self); 3] =
        [("viridis", Self::Viridis), ("gray", Self::Gray), ("bluered", Self::BlueRed)];

    /// Returns the colour at a position on the scale, from 0 to 1.
    pub fn color(self, part: f64) -> [u8; 3] {
        let scale = match self {
            Self::Viridis => VIRIDIS,
            Self::Gray => GRAY,
            Self::BlueRed => BLUE_RED,
        };
        let steps = STEPS * (scale.len() - 1);
        let at = to_index((part * to_float(i128::try_from(steps).unwrap_or(1))).round());
        let color = |at: usize| scale.get(at).or(scale.last()).copied().unwrap_or_default();
        let (from, to, step) = (color(at / STEPS), color(at / STEPS + 1), at % STEPS);
        let mix = |from: u8, to: u8| {
            let sum = usize::from(from) * (STEPS - step) + usize::from(to) * step;
            u8::try_from(sum / STEPS).unwrap_or(u8::MAX)
        };
        let ([r, g, b], [to_r, to_g, to_b]) = (from, to);
        [mix(r, to_r), mix(g, to_g), mix(b, to_b)]
    }
}
