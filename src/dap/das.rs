//! The `das`: the attributes of each variable, and those of the group under `NC_GLOBAL`.
//!
//! ```text
//! Attributes {
//!     t2m {
//!         String units "K";
//!         Float32 _FillValue NaN;
//!     }
//!     NC_GLOBAL {
//!     }
//! }
//! ```
//!
//! Numbers have the type that elements of their type have. A 64-bit integer that an element may
//! not have becomes a String with its digits.

use super::ascii;
use super::dataset::{DataSet, Variable};
use super::error::quoted;
use super::names::encoded_attribute;
use super::xdr::{Wire, is_exact};
use crate::dtype::{DType, Element};
use crate::metadata::FILL;
use crate::view::cf::{
    Attribute, AttributeValues, ConversionBudget, Many, characters, decimal, joined,
};

/// Returns the attributes. Reads the strings of small arrays for their lengths.
pub(super) fn text(dataset: &DataSet<'_>) -> String {
    let mut parts = vec!["Attributes {\n".to_owned()];
    let mut room = ConversionBudget::default();
    for variable in &dataset.variables {
        parts.push(format!("    {} {{\n", variable.identifier));
        let all = variable.attributes.iter().filter(|one| is_there(one));
        parts.extend(all.map(|one| line(one, Some(&variable.dtype))));
        parts.extend(longest(variable, &mut room).map(|len| of_characters(dataset, len)));
        parts.push("    }\n".to_owned());
    }
    parts.push("    NC_GLOBAL {\n".to_owned());
    let all = dataset.attributes.iter().filter(|one| is_there(one));
    parts.extend(all.map(|one| line(one, None)));
    parts.push("    }\n}\n".to_owned());
    parts.concat()
}

/// Whether DAP2 has the attribute: it has no null.
fn is_there(attribute: &Attribute) -> bool {
    attribute.values != AttributeValues::Null
}

/// Returns the declaration of an attribute, of a variable with elements of type `dtype`.
fn line(attribute: &Attribute, dtype: Option<&DType>) -> String {
    let (kind, values) = values(&attribute.values, dtype.filter(|_| attribute.is_of_the_type));
    let mut name = attribute.name.clone();
    if name == FILL && kind == Wire::String {
        // Readers refuse a `_FillValue` that is not of the type of the elements.
        name.push('_');
    }
    format!("        {} {} {values};\n", kind.name(), encoded_attribute(&name))
}

/// Returns the values of an attribute.
fn values(values: &AttributeValues, dtype: Option<&DType>) -> (Wire, String) {
    let string = |text: &str| (Wire::String, quoted(text));
    match values {
        AttributeValues::Text(text) => string(text),
        AttributeValues::Texts(texts) => string(&joined(texts)),
        AttributeValues::Nothing => string("[]"),
        AttributeValues::Null => string(""),
        AttributeValues::Bools(bools, _) => {
            let bools: Vec<String> = bools.iter().map(u8::to_string).collect();
            (Wire::Byte, bools.join(", "))
        }
        AttributeValues::Numbers(own, bytes, many) => {
            let items = || bytes.chunks_exact(own.item_len().max(1));
            let is_time = matches!(dtype, Some(DType::Time(_)));
            let fits = |item: &[u8]| match Element::of(own, item) {
                Element::Int(integer) if own.item_len() == 8 => {
                    integer.unsigned_abs() <= 1 << 53 || (is_time && is_exact(integer))
                }
                _ => true,
            };
            match Wire::of(own).filter(|_| items().all(fits)) {
                Some(wire) if wire != Wire::String => {
                    let numbers: Vec<String> = items().map(|item| number(own, item)).collect();
                    (wire, numbers.join(", "))
                }
                _ => string(&decimal(
                    bytes,
                    own,
                    match many {
                        Many::Yes if items().count() == 1 => Many::No,
                        other => *other,
                    },
                )),
            }
        }
    }
}

/// Returns a number as C programs write it.
fn number(dtype: &DType, item: &[u8]) -> String {
    match Element::of(dtype, item) {
        Element::Float(float) if float.is_nan() => "NaN".to_owned(),
        Element::Float(float) if float.is_infinite() => {
            if float < 0.0 { "-Inf" } else { "Inf" }.to_owned()
        }
        _ => ascii::number(dtype, item),
    }
}

/// Returns the length of the longest string, if the variable has strings, and they are few and can
/// be read. Damaged strings do not cost the attributes of other variables.
fn longest(variable: &Variable<'_>, room: &mut ConversionBudget) -> Option<u64> {
    match &variable.dtype {
        DType::Bytes(len) => Some(u64::from(*len)),
        DType::Utf32(_) | DType::String => {
            match (characters(&variable.source, room), &variable.dtype) {
                (Ok((_, len)), _) => Some(len),
                // A code point has at most four bytes in UTF-8.
                (Err(_), DType::Utf32(len)) => Some(u64::from(*len).saturating_mul(4)),
                (Err(error), _) => {
                    log::debug!("lengths of strings: {error}");
                    None
                }
            }
        }
        _ => None,
    }
}

/// Returns the attributes by which netCDF-C gives strings the dimension that they have in the `nc`
/// view. Without them it cuts strings to 64 bytes.
fn of_characters(dataset: &DataSet<'_>, len: u64) -> String {
    let name = format!("string{len}");
    let is_other = dataset.dimensions.iter().any(|one| one.name == name && one.len != len);
    let dimension = if is_other {
        String::new()
    } else {
        format!("        String DODS.dimName {};\n", quoted(&name))
    };
    format!("        Int32 DODS.strlen {len};\n{dimension}")
}
