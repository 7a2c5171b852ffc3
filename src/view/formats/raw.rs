//! `raw`: the elements and nothing else, little endian and in C order.

use crate::error::Result;
use crate::view::layout::{Layout, NumberForm};
use crate::view::parts::{Part, View};
use crate::view::source::ViewSource;

pub(super) fn build(source: &ViewSource<'_>) -> Result<View> {
    View::new([Part::from(source.elements(Layout::Linear, NumberForm::default())?)])
}
