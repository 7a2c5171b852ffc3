//! Codecs from array to array, one file each, and the one table of their names.

mod transpose;

pub use transpose::{Order, Transpose};

use super::{ArrayToArray, Elements};
use crate::error::Result;
use crate::metadata::model::CodecSpec;

/// Whether `name` is that of a codec from array to array.
pub fn is_known(name: &str) -> bool {
    matches!(name, "transpose")
}

/// Whether the codec does the same to each element, wherever it is: it may be done before or behind what moves them.
pub fn is_of_each_element(name: &str) -> bool {
    let _ = name;
    false
}

/// A codec, none where nothing is to be done, and what comes out of it.
pub type Built = (Option<Box<dyn ArrayToArray>>, Elements);

/// The codec of that registered name, bound to chunks of `elements`, and what comes out of it; `None` for a name of another kind of codec or of one that zarrfs does not have.
pub fn build(spec: &CodecSpec, elements: &Elements) -> Result<Option<Built>> {
    Ok(Some(match spec.name.as_str() {
        "transpose" => {
            let order = Order::parse(&spec.configuration, elements.shape.len())?;
            let shape = order.apply(&elements.shape);
            let codec = Transpose::new(&order, &elements.shape, elements.dtype.item_len())?;
            let codec: Option<Box<dyn ArrayToArray>> = match codec {
                Some(codec) => Some(Box::new(codec)),
                None => None,
            };
            (codec, Elements { shape, dtype: elements.dtype.clone() })
        }
        _ => return Ok(None),
    }))
}
