//! Short descriptions of nodes for users.

use serde_json::{Value, json};

use crate::codec::CodecSpec;
use crate::hierarchy::{Content, Node};
use crate::metadata::NodeKind;

/// Describes a node in a few words.
pub fn describe(node: &Node) -> String {
    match node.content() {
        Content::Group(_) if node.document().is_none() => "group, implicit".to_owned(),
        Content::Group(_) => "group".to_owned(),
        Content::Array(array) => {
            let model = array.model();
            let lens = |json: Value| shape(json.as_array().map_or(&[], Vec::as_slice));
            let mut text = format!("{} {}", model.dtype.name(), lens(json!(model.shape)));
            text.extend([", chunks ", &lens(array.chunk_shape_json())]);
            if array.chunk_shape() != model.chunk_shape {
                text.extend([", shards ", &lens(json!(model.chunk_shape))]);
            }
            let codecs = codec_names(&model.codecs);
            if !codecs.is_empty() {
                text.extend([", ", &codecs.join(" + ")]);
            }
            match array.not_understood() {
                Some(error) => format!("{text}; cannot be decoded: {error}"),
                None => text,
            }
        }
        Content::NotUnderstood(kind, error) => {
            let kind = if *kind == NodeKind::Array { "array" } else { "group" };
            format!("{kind}, not understood: {error}")
        }
    }
}

/// Formats a shape: `12 x 90 x 180`; `scalar` without dimensions. If chunks differ along a
/// dimension, it has the shortest and the longest: `12 x 1..5`.
pub fn shape(lens: &[Value]) -> String {
    if lens.is_empty() {
        return "scalar".to_owned();
    }
    lens.iter().map(length).collect::<Vec<_>>().join(" x ")
}

/// Returns a length, or the range of a list of lengths, whose items may have repeat counts.
fn length(value: &Value) -> String {
    let Some(items) = value.as_array() else { return value.to_string() };
    let lens = items.iter().filter_map(|item| item.get(0).unwrap_or(item).as_u64());
    match (lens.clone().min(), lens.max()) {
        (Some(least), Some(most)) if least < most => format!("{least}..{most}"),
        (_, most) => most.unwrap_or_default().to_string(),
    }
}

/// Returns the names of the codecs that are more than a byte order, those inside of shards too.
fn codec_names(codecs: &[CodecSpec]) -> Vec<String> {
    let mut names = Vec::new();
    for codec in codecs {
        match codec.name.as_str() {
            "sharding_indexed" | "n5_default" => {
                let inner = codec.configuration.get("codecs").and_then(Value::as_array);
                let inner = inner
                    .into_iter()
                    .flatten()
                    .filter_map(|codec| CodecSpec::from_json(codec).ok());
                names.extend(codec_names(&inner.collect::<Vec<_>>()));
            }
            "bytes" if codec.configuration.get("endian") == Some(&json!("big")) => {
                names.push("big endian".to_owned());
            }
            "bytes" => {}
            name => names.push(name.to_owned()),
        }
    }
    names
}
