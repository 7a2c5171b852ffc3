//! `zarrfs tree`: the hierarchy, as people would draw it.

use serde_json::{Value, json};

use super::args::Tree;
use super::{Failure, open, print};
use crate::hierarchy::{Content, Hierarchy, Node};
use crate::metadata::NodeKind;

/// Prints the tree of a hierarchy, or of a node in one.
pub fn run(args: &Tree) -> Result<(), Failure> {
    let (hierarchy, path) = open::node(&args.source, args.from.as_ref())?;
    let node = hierarchy.existing(&path)?;
    let title = args.source.display().to_string();
    let mut text = format!("{title}  {} ({})\n", describe(&node), hierarchy.dialect().name());
    draw(&hierarchy, &node, "", &mut text)?;
    print::output(&text)
}

fn draw(
    hierarchy: &Hierarchy,
    node: &Node,
    indent: &str,
    text: &mut String,
) -> Result<(), Failure> {
    if node.kind() == NodeKind::Array {
        return Ok(());
    }
    let children = hierarchy.children(node.path())?;
    let width = children
        .iter()
        .filter_map(|child| child.path().name())
        .map(|name| name.chars().count())
        .max();
    let width = width.unwrap_or_default() + 1;
    for (at, child) in children.iter().enumerate() {
        let is_last = at + 1 == children.len();
        let (branch, below) =
            if is_last { ("└── ", "    ") } else { ("├── ", "│   ") };
        let slash = if child.kind() == NodeKind::Group { "/" } else { "" };
        let name = format!("{}{slash}", child.path().name().unwrap_or_default());
        let line = format!("{indent}{branch}{name:<width$}  {}", describe(child));
        text.push_str(line.trim_end());
        text.push('\n');
        draw(hierarchy, child, &format!("{indent}{below}"), text)?;
    }
    Ok(())
}

/// A node in half a line.
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
            let codecs = super::info::codec_names(&model.codecs);
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

/// Lengths as people write them: `12 x 90 x 180`; `scalar` without dimensions. Where chunks differ along a dimension,
/// the shortest and the longest: `12 x 1..5`.
pub fn shape(lens: &[Value]) -> String {
    if lens.is_empty() {
        return "scalar".to_owned();
    }
    lens.iter().map(length).collect::<Vec<_>>().join(" x ")
}

/// A length, or the ends of a list of lengths, some of them with how often they come.
fn length(value: &Value) -> String {
    let Some(items) = value.as_array() else { return value.to_string() };
    let lens = items.iter().filter_map(|item| item.get(0).unwrap_or(item).as_u64());
    match (lens.clone().min(), lens.max()) {
        (Some(least), Some(most)) if least < most => format!("{least}..{most}"),
        (_, most) => most.unwrap_or_default().to_string(),
    }
}
