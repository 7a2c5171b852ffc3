//! Codecs from array to array, one file each. The rows of [`table`](super::table) build them.

mod astype;
mod bitround;
mod byte_order;
mod cast_value;
mod categorize;
mod delta;
mod filter;
mod packbits;
mod quantize;
mod reshape;
mod scale;
mod scale_offset;
mod transpose;

pub use astype::AsType;
pub use bitround::BitRound;
pub use byte_order::BigEndian;
pub use cast_value::CastValue;
pub use categorize::Categorize;
pub use delta::Delta;
pub use packbits::PackBits;
pub use quantize::Quantize;
pub use reshape::Reshape;
pub use scale::FixedScaleOffset;
pub use scale_offset::ScaleOffset;
pub use transpose::{Order, Transpose};

use super::{ArrayToArray, Elements};
use crate::codec::CodecSpec;
use crate::error::Result;

/// Whether the codec names the type of what it makes, and that in big endian order; none where it names none. Between
/// codecs elements are little endian: behind the last one [`BigEndian`] does what is asked here.
pub fn makes_big(spec: &CodecSpec) -> Result<Option<bool>> {
    filter::makes_big(spec)
}

/// A codec, `None` if it would change nothing, and the elements that it produces.
pub type Built = (Option<Box<dyn ArrayToArray>>, Elements);

/// A codec, and the elements that it produces.
pub(super) fn built((codec, encoded): (impl ArrayToArray + 'static, Elements)) -> Built {
    (Some(Box::new(codec)), encoded)
}

/// A codec that is `None` if it would change nothing, and the elements that it produces.
pub(super) fn unless_identity(
    codec: Option<impl ArrayToArray + 'static>,
    encoded: Elements,
) -> Built {
    let codec = codec.map(|codec| -> Box<dyn ArrayToArray> { Box::new(codec) });
    (codec, encoded)
}

#[cfg(test)]
mod tests;
