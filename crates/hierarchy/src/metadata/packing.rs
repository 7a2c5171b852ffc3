//! What attributes mean for the elements of an array by the CF conventions. An element that equals
//! `_FillValue` or `missing_value` has no value, `scale_factor` and `add_offset` unpack the others,
//! and `_Unsigned` changes the sign. xarray applies these when it opens a data set.
//!
//! Statistics and pictures decode elements with this module, and it makes attributes readable.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::conventions::{FILL, decoded_fill};
use zarrfs_codec::dtype::{DType, Element, FillValue, base64_decode, integer, to_float};
use zarrfs_codec::json::Object;

/// How elements of an array become values.
#[derive(Debug, Clone, PartialEq)]
pub struct Packing {
    /// The elements that mean that there is no value.
    missing: Vec<Element>,
    scale: Option<f64>,
    offset: Option<f64>,
    /// Added to negative integers, or subtracted from those above half the range.
    sign: Option<Sign>,
}

/// Another sign of integers than that of their type, with the number of their values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    Unsigned(i128),
    Signed(i128),
}

impl Packing {
    /// Returns what the attributes of an array of this type say.
    pub fn of(dtype: &DType, attributes: &Object) -> Self {
        let mut packing = Self::none();
        if !matches!(dtype, DType::Int(_) | DType::Uint(_) | DType::Float(_)) {
            return packing;
        }
        let number = |name: &str| attributes.get(name).and_then(Value::as_f64);
        packing.scale = number("scale_factor");
        packing.offset = number("add_offset");
        packing.sign = sign(dtype, attributes);
        let fill = attributes.get(FILL).and_then(|value| decoded_fill(value, dtype));
        let fill = fill.map(|fill| Element::of(dtype, &fill.item(dtype)));
        let others = attributes.get("missing_value").map(|value| match value {
            Value::Array(items) => items.iter().filter_map(|item| element(item, dtype)).collect(),
            other => element(other, dtype).into_iter().collect::<Vec<_>>(),
        });
        let all = fill.into_iter().chain(others.unwrap_or_default());
        // NaN is no value anyway.
        let is_number = |one: &Element| !matches!(one, Element::Float(float) if float.is_nan());
        packing.missing = all.map(|one| packing.signed(one)).filter(is_number).collect();
        packing
    }

    /// Returns the packing of elements that are values.
    pub fn none() -> Self {
        Self { missing: Vec::new(), scale: None, offset: None, sign: None }
    }

    /// Whether all elements are values.
    pub fn is_none(&self) -> bool {
        *self == Self::none()
    }

    /// Whether values are floats although elements may be integers.
    pub fn is_scaled(&self) -> bool {
        self.scale.is_some() || self.offset.is_some()
    }

    /// Whether elements with a value are that value.
    pub fn changes_nothing(&self) -> bool {
        !self.is_scaled() && self.sign.is_none()
    }

    /// Whether elements mean the same by both. `may_lack` says that this one may know of no
    /// elements without a value.
    pub fn is_like(&self, other: &Self, may_lack: bool) -> bool {
        let scale = |one: &Self| (one.scale.unwrap_or(1.0), one.offset.unwrap_or(0.0));
        let are_in = |one: &[Element], two: &[Element]| one.iter().all(|it| two.contains(it));
        scale(self) == scale(other)
            && self.sign == other.sign
            && are_in(&self.missing, &other.missing)
            && (may_lack && self.missing.is_empty() || are_in(&other.missing, &self.missing))
    }

    /// Whether some elements mean that there is no value.
    pub fn has_missing(&self) -> bool {
        !self.missing.is_empty()
    }

    /// Returns the value of an element, `None` if there is none.
    pub fn value(&self, element: Element) -> Option<Element> {
        let element = self.signed(element);
        if self.missing.contains(&element) {
            return None;
        }
        Some(match element {
            Element::Int(int) if self.is_scaled() => Element::Float(self.scaled(to_float(int))),
            Element::Float(float) => Element::Float(self.scaled(float)),
            other => other,
        })
    }

    fn scaled(&self, value: f64) -> f64 {
        match (self.scale, self.offset) {
            (None, None) => value,
            (scale, offset) => value * scale.unwrap_or(1.0) + offset.unwrap_or(0.0),
        }
    }

    /// Returns an integer with the sign that `_Unsigned` gives it.
    fn signed(&self, element: Element) -> Element {
        match (element, self.sign) {
            (Element::Int(int), Some(Sign::Unsigned(count))) if int < 0 => {
                Element::Int(int.saturating_add(count))
            }
            (Element::Int(int), Some(Sign::Signed(count))) if int >= count / 2 => {
                Element::Int(int.saturating_sub(count))
            }
            (other, _) => other,
        }
    }

    /// Returns the type of values of elements of a type.
    pub fn value_type(&self, dtype: &DType) -> DType {
        match (dtype, self.sign) {
            _ if self.is_scaled() => DType::Float(8),
            (DType::Int(len), Some(Sign::Unsigned(_))) => DType::Uint(*len),
            (DType::Uint(len), Some(Sign::Signed(_))) => DType::Int(*len),
            _ => dtype.clone(),
        }
    }

    /// Returns the words for how elements become values; `None` if they are values.
    pub fn words(&self) -> Option<String> {
        let mut words = Vec::new();
        if let Some(scale) = self.scale {
            words.push(format!("scale_factor {scale}"));
        }
        if let Some(offset) = self.offset {
            words.push(format!("add_offset {offset}"));
        }
        if self.sign.is_some() {
            words.push("_Unsigned".to_owned());
        }
        (!words.is_empty()).then(|| words.join(", "))
    }
}

/// Returns the sign of integers if it is not that of their type. Like xarray, it takes no other
/// spelling.
fn sign(dtype: &DType, attributes: &Object) -> Option<Sign> {
    let count = |len: u8| 1_i128 << (8 * u32::from(len));
    match (dtype, attributes.get("_Unsigned")?.as_str()?) {
        (DType::Int(len), "true") => Some(Sign::Unsigned(count(*len))),
        (DType::Uint(len), "false") => Some(Sign::Signed(count(*len))),
        _ => None,
    }
}

/// Returns the value of `missing_value` as an element.
fn element(value: &Value, dtype: &DType) -> Option<Element> {
    match dtype {
        // Programs write -9999.0 for integers, too.
        DType::Int(_) | DType::Uint(_) => integer(value.as_number()?.as_str()).map(Element::Int),
        _ => {
            let value = FillValue::parse(value, dtype).ok()?;
            Some(Element::of(dtype, &value.item(dtype)))
        }
    }
}

/// Returns an attribute of an array as people should see it: xarray stores a `_FillValue` in
/// base64.
pub fn shown_attribute<'v>(name: &str, value: &'v Value, dtype: &DType) -> Cow<'v, Value> {
    let shown = match (name, dtype, value) {
        (FILL, DType::Float(_) | DType::Complex(_), Value::String(_) | Value::Array(_)) => {
            decoded_fill(value, dtype).map(|fill| fill.to_json(dtype))
        }
        (FILL, DType::Bytes(_), Value::String(text)) => {
            let bytes = base64_decode(text).and_then(|bytes| String::from_utf8(bytes).ok());
            bytes.map(|text| json!(text.trim_end_matches('\0')))
        }
        _ => None,
    };
    shown.map_or(Cow::Borrowed(value), Cow::Owned)
}

/// Returns the attributes of an array as people should see them.
pub fn shown_attributes(attributes: &Object, dtype: &DType) -> Object {
    let shown = |(name, value): (&String, &Value)| {
        (name.clone(), shown_attribute(name, value, dtype).into_owned())
    };
    attributes.iter().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packing(dtype: &DType, attributes: &Value) -> Packing {
        Packing::of(dtype, attributes.as_object().expect("an object"))
    }

    #[test]
    fn elements_are_decoded_as_xarray_does() {
        let int = |int| Element::Int(int);
        let float = |float| Element::Float(float);
        let fill = "AAAAAAA8j8A="; // -999.5
        for (dtype, attributes, element, value) in [
            (DType::Int(2), json!({"_FillValue": -32767}), int(-32767), None),
            (DType::Int(2), json!({"_FillValue": -32767}), int(5), Some(int(5))),
            (DType::Int(2), json!({"missing_value": -9.0}), int(-9), None),
            (DType::Int(2), json!({"missing_value": [1, 2]}), int(2), None),
            (
                DType::Int(2),
                json!({"scale_factor": 0.5, "add_offset": 3}),
                int(4),
                Some(float(5.0)),
            ),
            (DType::Float(4), json!({"_FillValue": fill}), float(-999.5), None),
            (DType::Float(4), json!({"missing_value": 1e20}), float(f64::from(1e20_f32)), None),
            (DType::Float(8), json!({"_FillValue": -1.5}), float(-1.5), None),
            (DType::Int(1), json!({"_Unsigned": "true"}), int(-1), Some(int(255))),
            (DType::Int(1), json!({"_Unsigned": "true", "_FillValue": -1}), int(-1), None),
            (DType::Uint(1), json!({"_Unsigned": "false"}), int(255), Some(int(-1))),
            (DType::Uint(1), json!({"_Unsigned": "True"}), int(255), Some(int(255))),
            (DType::Int(4), json!({"_FillValue": "x", "scale_factor": "y"}), int(7), Some(int(7))),
            (DType::Bool, json!({"_FillValue": true}), int(1), Some(int(1))),
        ] {
            assert_eq!(packing(&dtype, &attributes).value(element), value, "{attributes}");
        }
        assert!(packing(&DType::Float(4), &json!({"units": "K"})).is_none());
    }

    #[test]
    fn an_encoded_fill_value_is_shown_as_a_number() {
        for (dtype, stored, shown) in [
            (DType::Float(4), json!("AAAAAAAA+H8="), json!("NaN")),
            (DType::Float(8), json!("AAAAAAA8j8A="), json!(-999.5)),
            (DType::Float(8), json!(5.5), json!(5.5)),
            (DType::Complex(8), json!(["AAAAAAAA8D8=", "AAAAAAAAAAA="]), json!([1.0, 0.0])),
            (DType::Bytes(3), json!("YWI="), json!("ab")),
            (DType::Int(2), json!(-7), json!(-7)),
            (DType::Float(4), json!("?"), json!("?")),
        ] {
            assert_eq!(*shown_attribute(FILL, &stored, &dtype), shown, "{stored}");
            assert_eq!(*shown_attribute("units", &stored, &dtype), stored);
        }
    }
}
