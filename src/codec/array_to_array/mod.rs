//! Codecs from elements to elements, one file each.

mod transpose;

pub use transpose::{Order, Transpose};
