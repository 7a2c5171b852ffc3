//! Codecs from array to array, one file each. The rows of [`table`](super::table) build them.

mod astype;
mod bitround;
mod byte_order;
mod cast_value;
mod categorize;
mod delta;
mod filter;
mod of_bytes;
mod packbits;
mod quantize;
mod reshape;
mod scale;
mod scale_offset;
mod significant;
mod transpose;

pub use astype::AsType;
pub use bitround::BitRound;
pub use byte_order::BigEndian;
pub use cast_value::CastValue;
pub use categorize::Categorize;
pub use delta::Delta;
pub use filter::makes_big;
pub use of_bytes::OfBytes;
pub use packbits::PackBits;
pub use quantize::Quantize;
pub use reshape::Reshape;
pub use scale::FixedScaleOffset;
pub use scale_offset::ScaleOffset;
pub use significant::Significant;
pub use transpose::{DimensionOrder, Transpose};

#[cfg(test)]
mod tests;
