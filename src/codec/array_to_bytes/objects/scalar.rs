//! The scalars in such a list, in either notation.

/// A scalar: an element, or a part of the type and shape that follow the elements.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scalar<'t> {
    Text(&'t str),
    Bool(bool),
    Int(i128),
    Float(f64),
}
