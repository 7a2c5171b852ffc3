//! What several tests need.

use std::fmt::Debug;

/// Returns values that have no `==` in a form that an assertion can compare.
pub(crate) fn text(values: &impl Debug) -> String {
    format!("{values:?}")
}
