//! The interface through which a copy reports progress and can be stopped.

use crate::error::{Error, Kind, Result};
use crate::metadata::NodePath;

/// Watches the progress of a copy, and may end it.
pub trait CopyWatch: Sync {
    /// Reports the start of an array with about `values` values to store.
    fn begin(&self, path: &NodePath, values: u64);
    /// Reports that a value is done.
    fn advance(&self);
    /// Reports a chunk of the source that cannot be read, with its key. Returns whether the copy
    /// continues without it.
    fn go_on_without(&self, unread: &Error) -> bool;
    /// Called when a value of the source was read, before its copy is stored: what was not seen of
    /// it must be recorded now.
    fn before_storing(&self) -> Result<()> {
        Ok(())
    }
    /// Whether to end early.
    fn is_stopped(&self) -> bool;
}

/// Returns the error for a copy that ended early.
pub(super) fn stopped() -> Error {
    Error::new(Kind::Busy, "interrupted")
}
