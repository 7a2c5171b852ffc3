//! Draws numbers as text for a terminal. No I/O: the caller knows the terminal.

mod bars;
mod colors;
pub mod grid;
mod heat;
mod numbers;

pub use bars::bars;
pub use colors::{Colors, Glyphs};
pub use heat::Heat;
pub use numbers::significant;
