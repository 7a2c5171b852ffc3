//! Compares values by meaning, not by spelling.

use serde_json::Value;

/// Whether two values are equal: members in any order, numbers by value.
///
/// If one of two numbers has a fraction or an exponent, they are equal if they are the same double:
/// a library that rewrites a metadata file reads its numbers as doubles.
pub fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => same_number(one.as_str(), other.as_str()),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, one)| other.get(key).is_some_and(|other| same(one, other)))
        }
        (one, other) => one == other,
    }
}

fn same_number(one: &str, other: &str) -> bool {
    if one == other {
        return true;
    }
    let is_integer = |text: &str| !text.contains(['.', 'e', 'E']);
    if is_integer(one) && is_integer(other) {
        return false;
    }
    match (one.parse::<f64>(), other.parse::<f64>()) {
        (Ok(one), Ok(other)) => one.is_finite() && one.to_bits() == other.to_bits(),
        (Ok(_) | Err(_), Ok(_) | Err(_)) => false,
    }
}
