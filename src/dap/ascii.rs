//! Elements as decimal numbers, for people.
//!
//! ```text
//! t2m.t2m[2][3]
//! [0], 1.5, 2.5, NaN
//! [1], 3.5, 4.5, 5.5
//! ```

use super::error::quoted;
use super::xdr::{double, single};
use crate::dtype::{DType, Element};
use crate::error::Result;

/// Returns a number in decimal.
pub(super) fn number(dtype: &DType, item: &[u8]) -> String {
    let float = |bits: &[u8]| match *bits {
        [a, b] => format!("{:?}", single(u16::from_le_bytes([a, b]))),
        [a, b, c, d] => format!("{:?}", f32::from_le_bytes([a, b, c, d])),
        _ => String::new(),
    };
    match (Element::of(dtype, item), dtype) {
        (Element::Float(_), DType::Float(2 | 4)) => float(item),
        (Element::Float(value), _) => format!("{value:?}"),
        (Element::Int(value), _) => value.to_string(),
        _ => String::new(),
    }
}

/// Returns an element. Fails if DAP2 cannot hold it.
pub(super) fn element(dtype: &DType, item: &[u8]) -> Result<String> {
    if dtype.item_len() == 8 && !matches!(dtype, DType::Float(_)) {
        double(dtype, item)?;
    }
    Ok(number(dtype, item))
}

/// Returns a string in double quotes.
pub(super) fn string(bytes: &[u8]) -> String {
    quoted(&String::from_utf8_lossy(bytes))
}

/// Returns the beginning of the line of the row with an element, if the element begins one: the
/// indices along all dimensions but the last one.
pub(super) fn row_start(shape: &[u64], number: u64) -> Option<String> {
    let (last, outer) = shape.split_last()?;
    let mut rows = number.checked_div(*last)?;
    if number.checked_rem(*last)? != 0 {
        return None;
    }
    let mut indices = Vec::new();
    for len in outer.iter().rev() {
        indices.push(format!("[{}]", rows.checked_rem(*len)?));
        rows = rows.checked_div(*len)?;
    }
    indices.reverse();
    Some(indices.concat())
}
