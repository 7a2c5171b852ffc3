//! Attributes: JSON values as strings and numbers of netCDF and HDF5.

use std::collections::HashSet;

use serde_json::Value;

use super::names::{clean, distinct};
use crate::dtype::{DType, FillValue, integer};
use crate::json::Object;
use crate::metadata::{FILL, masked_value};

/// Attributes whose values have the type of the array, by the CF conventions.
const OF_THE_TYPE: [&str; 7] =
    [FILL, "missing_value", "valid_min", "valid_max", "valid_range", "flag_values", "flag_masks"];

/// The attribute that marks signed integers as unsigned.
pub(crate) const UNSIGNED: &str = "_Unsigned";

/// An attribute.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Attribute {
    /// The name.
    pub name: String,
    /// The values.
    pub values: Values,
    /// Whether the values have the type of the array.
    pub is_of_the_type: bool,
}

/// The values of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Values {
    /// A string.
    Text(String),
    /// Several strings.
    Texts(Vec<String>),
    /// Numbers of a type, little endian, and whether they are a list.
    Numbers(DType, Vec<u8>, Many),
    /// Booleans, each a byte, and whether they are a list.
    Bools(Vec<u8>, Many),
    /// An empty list.
    Nothing,
}

/// Whether numbers are a list or a single number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Many {
    /// One number.
    No,
    /// A list.
    Yes,
}

impl Attribute {
    /// Returns an attribute with a string.
    pub fn text(name: &str, text: impl Into<String>) -> Self {
        let values = Values::Text(text.into());
        Self { name: name.to_owned(), values, is_of_the_type: false }
    }
}

/// Returns the attributes of a node, without those that are null. Attributes of the array's type
/// get the type `dtype`.
pub(crate) fn attributes(object: &Object, dtype: Option<&DType>) -> Vec<Attribute> {
    let attribute = |(name, value): (&String, &Value)| {
        let of_type = dtype.filter(|_| OF_THE_TYPE.contains(&name.as_str()));
        let elements = of_type.and_then(|dtype| elements(name, value, dtype));
        let is_of_the_type = elements.is_some();
        let values = elements.or_else(|| values(value))?;
        Some(Attribute { name: name.clone(), values, is_of_the_type })
    };
    object.iter().filter_map(attribute).collect()
}

/// Returns attributes with names that netCDF accepts, without an invalid `_FillValue`.
pub(crate) fn cleaned(mut attributes: Vec<Attribute>) -> Vec<Attribute> {
    attributes.retain(|attribute| attribute.is_of_the_type || attribute.name != FILL);
    renamed(attributes, clean)
}

/// Renames attributes so that each has a unique name that fits a file.
pub(crate) fn renamed(
    mut attributes: Vec<Attribute>,
    fitting: impl Fn(&str) -> String,
) -> Vec<Attribute> {
    let names = attributes.iter().map(|attribute| attribute.name.as_str());
    let names = distinct(names, &mut HashSet::new(), &HashSet::new(), fitting);
    for (attribute, name) in attributes.iter_mut().zip(names) {
        attribute.name = name;
    }
    attributes
}

/// Returns the value of an attribute as elements of a type.
fn elements(name: &str, value: &Value, dtype: &DType) -> Option<Values> {
    let element = |value: &Value| {
        let element = match name {
            FILL => masked_value(value, dtype),
            _ => FillValue::parse(value, dtype).ok(),
        };
        Some(element?.item(dtype).into_owned())
    };
    match value {
        Value::Null | Value::Object(_) => None,
        Value::Array(items) if items.is_empty() => None,
        Value::Array(items) => {
            let bytes: Vec<Vec<u8>> = items.iter().map(element).collect::<Option<_>>()?;
            Some(Values::Numbers(dtype.clone(), bytes.concat(), Many::Yes))
        }
        // netCDF requires `_FillValue` to be a list of one element.
        _ if name == FILL => Some(Values::Numbers(dtype.clone(), element(value)?, Many::Yes)),
        _ => Some(Values::Numbers(dtype.clone(), element(value)?, Many::No)),
    }
}

/// Returns the values of an attribute by their JSON types. Objects and lists of mixed types become
/// strings of JSON.
fn values(value: &Value) -> Option<Values> {
    let json = || Some(Values::Text(value.to_string()));
    match value {
        Value::Null => None,
        Value::String(text) => match numbers(&[value], Many::No) {
            Some(number) => Some(number),
            // Readers stop at a NUL.
            None if text.contains('\0') => json(),
            None => Some(Values::Text(text.clone())),
        },
        Value::Bool(_) | Value::Number(_) => numbers(&[value], Many::No).or_else(json),
        Value::Array(items) => {
            let texts: Option<Vec<String>> =
                items.iter().map(|item| item.as_str().map(ToOwned::to_owned)).collect();
            let items: Vec<&Value> = items.iter().collect();
            match (numbers(&items, Many::Yes), texts) {
                _ if items.is_empty() => Some(Values::Nothing),
                (Some(numbers), _) => Some(numbers),
                (None, Some(texts)) if texts.iter().any(|text| text.contains('\0')) => json(),
                (None, Some(texts)) => Some(Values::Texts(texts)),
                (None, None) => json(),
            }
        }
        Value::Object(_) => json(),
    }
}

/// Returns numbers in the first type that holds them all: booleans, int32, int64, uint64, float64.
fn numbers(values: &[&Value], many: Many) -> Option<Values> {
    let of = |len: u8, bytes: Option<Vec<Vec<u8>>>| {
        Some(Values::Numbers(DType::Int(len), bytes?.concat(), many))
    };
    if values.iter().all(|value| value.is_boolean()) {
        let bytes: Option<Vec<u8>> =
            values.iter().map(|value| value.as_bool().map(u8::from)).collect();
        return Some(Values::Bools(bytes?, many));
    }
    let plain = |value: &&Value| {
        let text = value.as_number()?.as_str();
        integer(text).filter(|_| !text.contains(['.', 'e', 'E']))
    };
    let Some(integers) = values.iter().map(plain).collect::<Option<Vec<i128>>>() else {
        let bytes: Option<Vec<Vec<u8>>> = values.iter().map(|value| double(value)).collect();
        return Some(Values::Numbers(DType::Float(8), bytes?.concat(), many));
    };
    let bytes = integers.iter().map(|int| Some(i32::try_from(*int).ok()?.to_le_bytes().to_vec()));
    if let found @ Some(_) = of(4, bytes.collect()) {
        return found;
    }
    let bytes = integers.iter().map(|int| Some(i64::try_from(*int).ok()?.to_le_bytes().to_vec()));
    if let found @ Some(_) = of(8, bytes.collect()) {
        return found;
    }
    let bytes = integers.iter().map(|int| Some(u64::try_from(*int).ok()?.to_le_bytes().to_vec()));
    let bytes: Option<Vec<Vec<u8>>> = bytes.collect();
    Some(Values::Numbers(DType::Uint(8), bytes?.concat(), many))
}

/// Returns a number, or the string of NaN or an infinity, as a double.
fn double(value: &Value) -> Option<Vec<u8>> {
    let number = match value {
        Value::String(text) => match text.as_str() {
            "NaN" => f64::NAN,
            "Infinity" => f64::INFINITY,
            "-Infinity" => f64::NEG_INFINITY,
            _ => return None,
        },
        Value::Number(number) => number.as_str().parse().ok()?,
        _ => return None,
    };
    Some(number.to_le_bytes().to_vec())
}

/// Returns strings as one string: joined by spaces if none has any, else a list in JSON.
pub(crate) fn joined(texts: &[String]) -> String {
    let is_plain = texts.iter().all(|text| !text.is_empty() && !text.contains(' '));
    if is_plain { texts.join(" ") } else { Value::from(texts.to_vec()).to_string() }
}

/// Formats numbers as in JSON.
pub(crate) fn decimal(bytes: &[u8], dtype: &DType, many: Many) -> String {
    let numbers = bytes.chunks_exact(dtype.item_len().max(1));
    let numbers: Vec<String> =
        numbers.map(|item| FillValue::from_item(item).to_json(dtype).to_string()).collect();
    match many {
        Many::No => numbers.concat(),
        Many::Yes => format!("[{}]", numbers.join(",")),
    }
}
