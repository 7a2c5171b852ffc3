//! `raw`: the elements and nothing else, little endian and in C order.

use crate::error::Result;
use crate::view::{Items, Layout, Part, Source, View};

pub(super) fn build(source: &Source<'_>) -> Result<View> {
    View::new([Part::from(source.elements(Layout::Linear, Items::default())?)])
}
