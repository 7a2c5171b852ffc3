//! Attributes: JSON values as strings and numbers of netCDF and HDF5.

use std::collections::HashSet;

use serde_json::Value;

use super::exact::is_double;
use super::names::{clean, distinct};
use crate::dtype::{DType, FillValue, integer};
use crate::json::{self, Object};
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
    pub values: AttributeValues,
    /// Whether the values have the type of the array.
    pub is_of_the_type: bool,
    /// The name in the hierarchy, and the form of the values there if it differs.
    pub origin: Origin,
}

/// How an attribute differs from that of the node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Origin {
    /// The name, unless the file has the attribute under the same name. Empty for an attribute that
    /// only the file has.
    name: Option<String>,
    /// What it is, and its form in the file.
    form: Option<&'static str>,
}

/// The values of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AttributeValues {
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
    /// Null.
    Null,
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
        let values = AttributeValues::Text(text.into());
        Self { name: name.to_owned(), values, is_of_the_type: false, origin: Origin::default() }
    }

    /// Returns the name in the hierarchy.
    fn own_name(&self) -> &str {
        self.origin.name.as_deref().unwrap_or(&self.name)
    }

    /// Changes the name.
    pub fn rename(&mut self, name: String) {
        if name != self.name && self.origin.name.is_none() {
            self.origin.name = Some(self.name.clone());
        }
        self.name = name;
    }

    /// Returns the words for an attribute that the file has under another name or in another form.
    /// `form` is the form of this format, unless the attribute has another one for all formats.
    pub fn changed(&self, form: Option<&'static str>) -> Option<String> {
        let name = (self.own_name() != self.name).then(|| format!("as {}", self.name));
        let form = self.origin.form.or(form).map(ToOwned::to_owned);
        let words: Vec<String> = form.into_iter().chain(name).collect();
        (!words.is_empty()).then(|| format!("attribute {} ({})", self.own_name(), words.join(", ")))
    }
}

/// Returns the attributes of a node. Attributes of the array's type get the type `dtype`.
pub(crate) fn attributes(object: &Object, dtype: Option<&DType>) -> Vec<Attribute> {
    let attribute = |(name, value): (&String, &Value)| {
        // Only the fill value of characters has a form for bytes.
        let is_of = |dtype: &&DType| match dtype {
            DType::Bytes(_) => name == FILL,
            _ => OF_THE_TYPE.contains(&name.as_str()),
        };
        let of_type = dtype.filter(is_of);
        let elements = of_type.and_then(|dtype| elements(name, value, dtype));
        let is_of_the_type = elements.is_some();
        let (values, form) = match elements {
            Some(elements) => (elements, None),
            None => values(value),
        };
        let origin = Origin { name: None, form };
        Attribute { name: name.clone(), values, is_of_the_type, origin }
    };
    object.iter().map(attribute).collect()
}

/// Returns attributes with names that netCDF accepts. A `_FillValue` that is not of the array's
/// type gets another name, since libraries refuse it.
pub(crate) fn cleaned(attributes: Vec<Attribute>) -> Vec<Attribute> {
    let named = |mut attribute: Attribute| {
        if !attribute.is_of_the_type && attribute.name == FILL {
            attribute.rename(format!("{FILL}_"));
        }
        attribute
    };
    renamed(attributes.into_iter().map(named).collect(), clean)
}

/// Renames attributes so that each has a unique name that fits a file.
pub(crate) fn renamed(
    mut attributes: Vec<Attribute>,
    fitting: impl Fn(&str) -> String,
) -> Vec<Attribute> {
    let names = attributes.iter().map(|attribute| attribute.name.as_str());
    let names = distinct(names, &mut HashSet::new(), &HashSet::new(), fitting);
    for (attribute, name) in attributes.iter_mut().zip(names) {
        attribute.rename(name);
    }
    attributes
}

/// Returns the value of an attribute as elements of a type.
fn elements(name: &str, value: &Value, dtype: &DType) -> Option<AttributeValues> {
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
            Some(AttributeValues::Numbers(dtype.clone(), bytes.concat(), Many::Yes))
        }
        // netCDF requires `_FillValue` to be a list of one element.
        _ if name == FILL => {
            Some(AttributeValues::Numbers(dtype.clone(), element(value)?, Many::Yes))
        }
        _ => Some(AttributeValues::Numbers(dtype.clone(), element(value)?, Many::No)),
    }
}

/// Returns the values of an attribute by their JSON types, and their form if no format has one for
/// them. Objects and lists of mixed types become strings of JSON.
fn values(value: &Value) -> (AttributeValues, Option<&'static str>) {
    let json = |what| (AttributeValues::Text(json::compact(value)), Some(what));
    let plain = |values| (values, None);
    match value {
        Value::Null => plain(AttributeValues::Null),
        Value::String(text) => match numbers(&[value], Many::No) {
            Some(number) => plain(number),
            // Readers stop at a NUL.
            None if text.contains('\0') => json("a string with a NUL, as JSON"),
            None => plain(AttributeValues::Text(json::plain(text).into_owned())),
        },
        Value::Bool(_) | Value::Number(_) => match numbers(&[value], Many::No) {
            Some(number) => plain(number),
            None => json("a number that no type holds, as a string"),
        },
        Value::Array(items) => {
            let texts: Option<Vec<String>> =
                items.iter().map(|item| Some(json::plain(item.as_str()?).into_owned())).collect();
            let items: Vec<&Value> = items.iter().collect();
            match (numbers(&items, Many::Yes), texts) {
                _ if items.is_empty() => plain(AttributeValues::Nothing),
                (Some(numbers), _) => plain(numbers),
                (None, Some(texts)) if texts.iter().any(|text| text.contains('\0')) => {
                    json("strings with a NUL, as JSON")
                }
                (None, Some(texts)) => plain(AttributeValues::Texts(texts)),
                (None, None) => json("a list of other than strings or numbers, as JSON"),
            }
        }
        Value::Object(_) => json("an object, as JSON"),
    }
}

/// Returns numbers in the first type that holds them all: booleans, int32, int64, uint64, float64.
fn numbers(values: &[&Value], many: Many) -> Option<AttributeValues> {
    let of = |len: u8, bytes: Option<Vec<Vec<u8>>>| {
        Some(AttributeValues::Numbers(DType::Int(len), bytes?.concat(), many))
    };
    if values.iter().all(|value| value.is_boolean()) {
        let bytes: Option<Vec<u8>> =
            values.iter().map(|value| value.as_bool().map(u8::from)).collect();
        return Some(AttributeValues::Bools(bytes?, many));
    }
    let plain = |value: &&Value| {
        let text = value.as_number()?.as_str();
        integer(text).filter(|_| !text.contains(['.', 'e', 'E']))
    };
    let Some(integers) = values.iter().map(plain).collect::<Option<Vec<i128>>>() else {
        let bytes: Option<Vec<Vec<u8>>> = values.iter().map(|value| double(value)).collect();
        return Some(AttributeValues::Numbers(DType::Float(8), bytes?.concat(), many));
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
    Some(AttributeValues::Numbers(DType::Uint(8), bytes?.concat(), many))
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
        Value::Number(number) => {
            let text = number.as_str();
            let is_integer = !text.contains(['.', 'e', 'E']);
            let is_exact = !is_integer || integer(text).is_some_and(is_double);
            text.parse().ok().filter(|float: &f64| is_exact && float.is_finite())?
        }
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
