//! Formats the facts about a node for people.

use serde_json::Value;

use super::describe::shape;
use super::image;
use crate::cli::output::size::{self, Sizes};
use crate::json::Object;

/// Print a read amplification of at least this factor.
const WORTH_SAYING: f64 = 1.05;

/// Formats a fact.
pub fn for_people(name: &str, value: &Value, facts: &Object, sizes: Sizes) -> String {
    if let Some(line) = image::line(name, value) {
        return line;
    }
    match (name, value) {
        ("shape" | "chunk_shape" | "shard_shape", Value::Array(lens)) => shape(lens),
        ("chunk_row_size", value) => {
            let size = size(value, sizes);
            format!("{size} (--cache-size that a sequential read of a view needs)")
        }
        ("size_stored", value) => {
            let decoded = facts.get("size").and_then(Value::as_u64).zip(value.as_u64());
            match decoded.and_then(|(decoded, stored)| size::ratio(decoded, stored)) {
                Some(ratio) => format!("{}, ratio {ratio}", size(value, sizes)),
                None => size(value, sizes),
            }
        }
        ("size" | "chunk_size", value) => size(value, sizes),
        ("chunks_stored", value) => {
            let chunks = facts.get("chunks").and_then(Value::as_u64);
            let stored = value.as_u64().zip(chunks);
            stored.map_or_else(|| value.to_string(), |(stored, all)| size::part(stored, all))
        }
        ("views", Value::Object(views)) => views_line(views, facts, sizes),
        ("remarks" | "not_seen", Value::Array(remarks)) => {
            remarks.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("; ")
        }
        ("dimension_names", Value::Array(names)) => {
            names.iter().map(|name| name.as_str().unwrap_or("-")).collect::<Vec<_>>().join(" ")
        }
        ("no_views" | "left_out" | "without", Value::Object(others)) => {
            // Formats that are missing for the same reason share it.
            let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
            for (format, why) in others {
                let why = why.as_str().unwrap_or_default();
                match reasons.iter_mut().find(|(reason, _)| *reason == why) {
                    Some((_, formats)) => formats.push(format),
                    None => reasons.push((why, vec![format])),
                }
            }
            let line = |(why, formats): &(&str, Vec<&str>)| format!("{}: {why}", formats.join(" "));
            reasons.iter().map(line).collect::<Vec<_>>().join("; ")
        }
        ("children", Value::Array(names)) => {
            names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
        }
        (_, Value::String(text)) => text.clone(),
        (_, value) => value.to_string(),
    }
}

fn size(value: &Value, sizes: Sizes) -> String {
    value.as_u64().map_or_else(|| "more than 2^64 bytes".to_owned(), |len| sizes.text(len))
}

/// Lists views with their sizes. Views of about the same size share the size, and one whose size
/// takes long to find has none.
fn views_line(views: &Object, facts: &Object, sizes: Sizes) -> String {
    let times = |name: &str| facts.get("read_amplification")?.get(name)?.as_f64();
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for (name, len) in views {
        let mut text = match len {
            Value::Null => "size known once it is read".to_owned(),
            len => size(len, sizes),
        };
        if let Some(times) = times(name).filter(|times| *times > WORTH_SAYING) {
            text = format!("{text}, reading decodes {times:.1} times as much");
        }
        match groups.iter_mut().find(|(found, _)| *found == text) {
            Some((_, names)) => names.push(name),
            None => groups.push((text, vec![name])),
        }
    }
    let group = |(text, names): &(String, Vec<&str>)| format!("{} ({text})", names.join(" "));
    groups.iter().map(group).collect::<Vec<_>>().join("; ")
}
