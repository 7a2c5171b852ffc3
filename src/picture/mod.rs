//! Draws numbers as text for a terminal, and as pixels. No I/O: the caller knows the terminal.

mod bars;
#[cfg(feature = "pictures")]
mod canvas;
#[cfg(feature = "pictures")]
pub mod chart;
mod colors;
pub mod grid;
mod heat;
mod numbers;
mod palette;
#[cfg(feature = "pictures")]
mod ticks;

pub use bars::bars;
pub use colors::{Colors, Glyphs};
pub use heat::Heat;
pub use numbers::significant;
pub use palette::Palette;
