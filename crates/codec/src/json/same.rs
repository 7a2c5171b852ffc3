//! Compares values by meaning, not by spelling.

use serde_json::Value;

/// Whether two values are equal: members in any order, numbers by value.
///
/// If one of two numbers has a fraction or an exponent, they are equal if they are the same double:
/// a library that rewrites a metadata file reads its numbers as doubles.
pub fn same(one: &Value, other: &Value) -> bool {
    compare(one, other, same_number)
}

/// Like [`same`], but an integer never equals a number with a fraction or an exponent: Python
/// reads these as two types, and the type of `scale_factor` decides that of xarray's elements.
pub fn same_and_of_one_type(one: &Value, other: &Value) -> bool {
    compare(one, other, |one, other| {
        is_integer(one) == is_integer(other) && same_number(one, other)
    })
}

fn compare(one: &Value, other: &Value, numbers: fn(&str, &str) -> bool) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => numbers(one.as_str(), other.as_str()),
        (Value::Array(one), Value::Array(other)) => {
            let mut pairs = one.iter().zip(other);
            one.len() == other.len() && pairs.all(|(one, other)| compare(one, other, numbers))
        }
        (Value::Object(one), Value::Object(other)) => {
            let is_in_other = |(key, one): (&String, &Value)| {
                other.get(key).is_some_and(|other| compare(one, other, numbers))
            };
            one.len() == other.len() && one.iter().all(is_in_other)
        }
        (one, other) => one == other,
    }
}

fn is_integer(number: &str) -> bool {
    !number.contains(['.', 'e', 'E'])
}

fn same_number(one: &str, other: &str) -> bool {
    if one == other {
        return true;
    }
    if is_integer(one) && is_integer(other) {
        return false;
    }
    match (one.parse::<f64>(), other.parse::<f64>()) {
        (Ok(one), Ok(other)) => one.is_finite() && one.to_bits() == other.to_bits(),
        (Ok(_) | Err(_), Ok(_) | Err(_)) => false,
    }
}
