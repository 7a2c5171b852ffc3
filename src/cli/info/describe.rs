//! Short descriptions of nodes for users.

use serde_json::{Value, json};

use crate::array::Array;
use crate::codec::CodecSpec;
use crate::hierarchy::{Content, Node};
use crate::metadata::NodeKind;
use crate::printable::{escaped, shortened};

/// The most characters of a description, which may have the name of a structure with many fields.
const MAX_LEN: usize = 1500;

/// The most characters of the name of a codec or a data type, and of an option of a codec.
const MAX_NAME_LEN: usize = 80;

/// Describes a node in a few words, without characters that a message must not have.
pub fn describe(node: &Node) -> String {
    escaped(&shortened(&described(node), MAX_LEN)).into_owned()
}

fn described(node: &Node) -> String {
    match node.content() {
        Content::Group(_) if node.document().is_none() => "group, implicit".to_owned(),
        Content::Group(_) => "group".to_owned(),
        Content::Array(array) => {
            let model = array.model();
            let lens = |json: Value| shape(json.as_array().map_or(&[], Vec::as_slice));
            let dtype = model.dtype.name();
            let dtype = shortened(&dtype, MAX_NAME_LEN);
            let mut text = format!("{dtype} {}", lens(json!(model.shape)));
            text.extend([", chunks ", &lens(array.chunk_shape_json())]);
            if let Some(shards) = array.shard_shape_json() {
                text.extend([", shards ", &lens(shards)]);
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

/// Describes codecs in a line: `zstd(3) in shards of 64`, `transpose + blosc(lz4, 5, shuffle)`, or
/// `none`.
pub fn codec_line(array: &Array) -> String {
    let names = codec_names(&array.model().codecs);
    let mut line = if names.is_empty() { "none".to_owned() } else { names.join(" + ") };
    if array.is_sharded() {
        let lens = array.model().chunk_shape.iter().zip(array.chunk_shape());
        let count = lens.map(|(shard, chunk)| shard.checked_div(*chunk).unwrap_or(1));
        let count = count.fold(1, u64::saturating_mul);
        line.extend([" in shards of ".to_owned(), count.to_string()]);
    }
    line
}

/// Returns the names of the codecs, including those inside shards, with the options that people
/// compare. Leaves out `bytes` unless it is big endian.
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
            _ => names.push(with_options(codec)),
        }
    }
    names
}

/// Returns the name of a codec with its compressor, level and shuffle.
fn with_options(codec: &CodecSpec) -> String {
    let short = |text: &str| shortened(text, MAX_NAME_LEN).into_owned();
    let options = ["cname", "clevel", "level", "preset", "shuffle"].into_iter();
    let shown = |option: &str| match codec.configuration.get(option)? {
        Value::String(text) if text == "noshuffle" => None,
        Value::String(text) => Some(short(text)),
        Value::Number(number) if option != "shuffle" => Some(short(number.as_str())),
        _ => None,
    };
    let options: Vec<String> = options.filter_map(shown).collect();
    let name = short(codec.short());
    if options.is_empty() { name } else { format!("{name}({})", options.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_have_the_options_that_people_compare() {
        let codecs = json!([
            {"name": "transpose", "configuration": {"order": [1, 0]}},
            {"name": "sharding_indexed", "configuration": {"codecs": [
                {"name": "bytes", "configuration": {"endian": "big"}},
                {"name": "blosc", "configuration":
                    {"cname": "lz4", "clevel": 5, "shuffle": "bitshuffle", "typesize": 4}},
                {"name": "zstd", "configuration": {"level": 3, "checksum": false}},
                {"name": "crc32c"},
            ]}},
        ]);
        let codecs = codecs.as_array().expect("a list").iter();
        let codecs: Vec<_> = codecs.map(|one| CodecSpec::from_json(one).expect("one")).collect();
        assert_eq!(
            codec_names(&codecs).join(" + "),
            "transpose + big endian + blosc(lz4, 5, bitshuffle) + zstd(3) + crc32c"
        );
    }

    #[test]
    fn codecs_are_named_as_in_the_metadata_file() {
        let named = |written: &str, name: &str| {
            let codec =
                CodecSpec::from_json(&json!({"name": written, "configuration": {"level": 1}}));
            codec_names(&[codec.expect("a codec").renamed(name.to_owned())]).concat()
        };
        assert_eq!(named("zlib", "numcodecs.zlib"), "zlib(1)");
        assert_eq!(named("numcodecs.zlib", "numcodecs.zlib"), "numcodecs.zlib(1)");
        assert_eq!(named("https://purl.org/zarr/spec/codec/gzip/1.0", "gzip"), "gzip(1)");
        assert_eq!(named("https://purl.org/zarr/spec/codecs/zlib", "numcodecs.zlib"), "zlib(1)");
        assert_eq!(named("https://example.com/zlib", "unknown"), "https://example.com/zlib(1)");
    }
}
