//! Codecs from array to array, one file each, and the one table of their names.

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
use crate::error::Result;
use crate::metadata::model::CodecSpec;

/// Whether `name` is that of a codec from array to array.
pub fn is_known(name: &str) -> bool {
    let of_chunks =
        ["numcodecs.categorize", "numcodecs.delta", "numcodecs.packbits", "reshape", "transpose"];
    of_chunks.contains(&name) || is_of_each_element(name)
}

/// Whether the codec does the same to each element, wherever it is: it may be done before or behind what moves them.
pub fn is_of_each_element(name: &str) -> bool {
    matches!(
        name,
        "bitround"
            | "cast_value"
            | "numcodecs.astype"
            | "numcodecs.bitround"
            | "numcodecs.fixedscaleoffset"
            | "numcodecs.quantize"
            | "scale_offset"
    )
}

/// Whether the codec names the type of what it makes, and that in big endian order; none where it names none. Between
/// codecs elements are little endian: behind the last one [`BigEndian`] does what is asked here.
pub fn makes_big(spec: &CodecSpec) -> Result<Option<bool>> {
    filter::makes_big(spec)
}

/// A codec, none where nothing is to be done, and what comes out of it.
pub type Built = (Option<Box<dyn ArrayToArray>>, Elements);

/// The codec of that registered name, bound to chunks of `elements`, and what comes out of it; `None` for a name of
/// another kind of codec or of one that zarrfs does not have.
pub fn build(spec: &CodecSpec, elements: &Elements) -> Result<Option<Built>> {
    let configuration = &spec.configuration;
    Ok(Some(match spec.name.as_str() {
        "bitround" | "numcodecs.bitround" => {
            let codec = BitRound::new(configuration, elements)?;
            let codec = codec.map(|codec| -> Box<dyn ArrayToArray> { Box::new(codec) });
            (codec, elements.clone())
        }
        "cast_value" => some(CastValue::new(configuration, elements)?),
        "numcodecs.astype" => some(AsType::new(configuration, elements)?),
        "numcodecs.categorize" => some(Categorize::new(configuration, elements)?),
        "numcodecs.delta" => some(Delta::new(configuration, elements)?),
        "numcodecs.fixedscaleoffset" => some(FixedScaleOffset::new(configuration, elements)?),
        "numcodecs.packbits" => some(PackBits::new(elements)?),
        "numcodecs.quantize" => some(Quantize::new(configuration, elements)?),
        "reshape" => some(Reshape::new(configuration, elements)?),
        "scale_offset" => {
            let codec = ScaleOffset::new(configuration, elements)?;
            let codec = codec.map(|codec| -> Box<dyn ArrayToArray> { Box::new(codec) });
            (codec, elements.clone())
        }
        "transpose" => {
            let order = Order::parse(configuration, elements.shape.len())?;
            let shape = order.apply(&elements.shape);
            let codec = Transpose::new(&order, elements)?;
            let codec = codec.map(|codec| -> Box<dyn ArrayToArray> { Box::new(codec) });
            (codec, Elements { shape, dtype: elements.dtype.clone() })
        }
        _ => return Ok(None),
    }))
}

fn some((codec, encoded): (impl ArrayToArray + 'static, Elements)) -> Built {
    (Some(Box::new(codec)), encoded)
}

#[cfg(test)]
mod tests;
