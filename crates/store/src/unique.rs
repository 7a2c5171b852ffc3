//! Names that no other process makes.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Returns a random number.
pub(crate) fn number() -> u64 {
    RandomState::new().build_hasher().finish() ^ u64::from(std::process::id())
}

/// The length of a random text.
pub(crate) const LEN: usize = 32;

/// Returns a random text of [`LEN`] hexadecimal digits.
pub(crate) fn text() -> String {
    format!("{:016x}{:016x}", number(), number())
}
