//! `raw`: the elements and nothing else, little endian and in C order.

use crate::error::Result;
use crate::view::layout::{Items, Layout};
use crate::view::parts::{Part, View};
use crate::view::source::Source;

pub(super) fn build(source: &Source<'_>) -> Result<View> {
    View::new([Part::from(source.elements(Layout::Linear, Items::default())?)])
}
