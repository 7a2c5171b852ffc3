//! Compares JSON, and names what differs by its path: `attributes.axes[2].unit`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::json::same;

/// Reports a difference: its path, and both values; `None` for a value that is missing.
pub type Differ<'d> = dyn FnMut(String, [Option<Value>; 2]) + 'd;

/// Compares two values at `path`.
pub fn compare(path: &str, one: &Value, two: &Value, differ: &mut Differ<'_>) {
    match (one, two) {
        (Value::Object(in_one), Value::Object(in_two)) => {
            let names: BTreeSet<&String> = in_one.keys().chain(in_two.keys()).collect();
            for name in names {
                let below = format!("{path}{}", member(name));
                match (in_one.get(name), in_two.get(name)) {
                    (Some(one), Some(two)) => compare(&below, one, two, differ),
                    (one, two) => differ(below, [one.cloned(), two.cloned()]),
                }
            }
        }
        (Value::Array(in_one), Value::Array(in_two)) if in_one.len() == in_two.len() => {
            for (index, (one, two)) in in_one.iter().zip(in_two).enumerate() {
                compare(&format!("{path}[{index}]"), one, two, differ);
            }
        }
        (one, two) if same(one, two) => {}
        (one, two) => differ(path.to_owned(), [Some(one.clone()), Some(two.clone())]),
    }
}

/// Returns a name as a part of a path.
fn member(name: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || c == '_' || c == '-' || c == ':';
    if !name.is_empty() && name.chars().all(is_plain) {
        format!(".{name}")
    } else {
        format!("[{}]", Value::from(name))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_difference_is_named_by_its_path() {
        let one = json!({"a": 1, "b": {"c": [1, 2, {"d": "x"}]}, "e f": 1, "g": [1], "h": 1.0});
        let two = json!({"a": 1, "b": {"c": [1, 3, {"d": "y"}]}, "e f": 2, "g": [1, 2], "i": 0});
        let mut found = Vec::new();
        compare("attributes", &one, &two, &mut |path, values| found.push((path, values)));
        let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "attributes.b.c[1]",
                "attributes.b.c[2].d",
                "attributes[\"e f\"]",
                "attributes.g",
                "attributes.h",
                "attributes.i"
            ]
        );
        assert_eq!(found[4].1, [Some(json!(1.0)), None]);
        compare("", &json!({"x": 1.0, "y": [2]}), &json!({"y": [2.0], "x": 1}), &mut |path, _| {
            panic!("{path} differs");
        });
    }
}
