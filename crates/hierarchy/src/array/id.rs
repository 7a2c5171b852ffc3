//! The identity of an open array.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of an open array. An array that is opened again, after its metadata changed, gets
/// another number, so it never uses cached values of the old one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ArrayId(u64);

impl ArrayId {
    /// Returns a number that no other array of this process has or had.
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}
