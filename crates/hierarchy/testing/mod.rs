//! Helpers of several tests.

use std::fmt::Debug;

/// Returns values without `==` as text, which an assertion can compare.
pub(crate) fn text(values: &impl Debug) -> String {
    format!("{values:?}")
}
