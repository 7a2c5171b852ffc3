//! The progress of a copy, and the wish to end it early.

use crate::error::{Error, Kind};
use crate::metadata::NodePath;

/// Watches the progress of a copy, and may end it.
pub trait Watch: Sync {
    /// An array begins that has about so many values to store.
    fn begin(&self, path: &NodePath, values: u64);
    /// One of them is done.
    fn advance(&self);
    /// Whether to end early.
    fn is_stopped(&self) -> bool;
}

/// Why a copy ended early.
pub(super) fn stopped() -> Error {
    Error::new(Kind::Busy, "interrupted")
}
