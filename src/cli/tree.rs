//! `zarrfs tree`: the hierarchy, as people would draw it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::vec::IntoIter;

use serde_json::{Value, json};

use super::args::Tree;
use super::{Failure, failed, open, print};
use crate::error::Result as Found;
use crate::hierarchy::{Content, Hierarchy, Met, Node};
use crate::metadata::{NodeKind, NodePath};

/// Lines of a tree: nobody reads more.
const MAX_LINES: usize = 1_000_000;

/// Groups in one another.
const MAX_DEPTH: usize = 256;

/// Prints the tree of a hierarchy, or of a node in one.
pub fn run(args: &Tree) -> Result<(), Failure> {
    let (hierarchy, path) = open::node(&args.source, args.from.as_ref())?;
    let node = hierarchy.existing(&path)?;
    let title = args.source.display().to_string();
    let mut lines = print::Lines::new();
    let first = format!("{title}  {} ({})", describe(&node), hierarchy.dialect().name());
    if lines.print(&first)?.is_break() {
        return Ok(());
    }
    let drawn = draw(&hierarchy, &node, &mut lines)?;
    lines.end()?;
    if drawn.is_whole {
        return Ok(());
    }
    Err(failed(format!("{title}: the list is incomplete: {}", drawn.why)))
}

/// Whether all was drawn, or why something was not.
struct Drawn {
    is_whole: bool,
    why: String,
}

/// The nodes of a group that are still to be drawn.
struct Level {
    path: NodePath,
    names: IntoIter<String>,
    /// The name and the node that come next: a line says whether it is the last one.
    next: Option<(String, Found<Arc<Node>>)>,
    width: usize,
    indent: String,
}

impl Level {
    fn open(hierarchy: &Hierarchy, path: &NodePath, indent: String) -> Found<Self> {
        let names = hierarchy.child_names(path)?;
        let width = names.iter().map(|name| name.chars().count()).max().unwrap_or_default() + 1;
        let (path, names) = (path.clone(), names.into_iter());
        let mut level = Self { path, names, next: None, width, indent };
        level.take(hierarchy);
        Ok(level)
    }

    /// The name of the next node, the node, and whether it is the last one.
    fn take(&mut self, hierarchy: &Hierarchy) -> Option<(String, Found<Arc<Node>>, bool)> {
        let path = &self.path;
        let node = |name: String| {
            let node = path.child(&name).and_then(|path| hierarchy.child_node(&path));
            Some((name, node.transpose()?))
        };
        let next = self.names.find_map(node);
        let (name, found) = std::mem::replace(&mut self.next, next)?;
        Some((name, found, self.next.is_none()))
    }
}

/// Draws what is below a group, line by line.
fn draw(hierarchy: &Hierarchy, node: &Node, lines: &mut print::Lines) -> Result<Drawn, Failure> {
    let mut drawn = Drawn { is_whole: true, why: String::new() };
    let mut levels = Vec::new();
    if node.kind() == NodeKind::Group {
        levels.push(Level::open(hierarchy, node.path(), String::new())?);
    }
    let (mut count, mut met) = (0_usize, Met::default());
    while let Some(level) = levels.last_mut() {
        let Some((name, found, is_last)) = level.take(hierarchy) else {
            levels.pop();
            continue;
        };
        count += 1;
        if count > MAX_LINES {
            let why = format!("more than {MAX_LINES} nodes");
            return Ok(Drawn { is_whole: false, why });
        }
        if let Ok(node) = &found
            && let Err(error) = met.meet(node)
        {
            return Ok(Drawn { is_whole: false, why: error.to_string() });
        }
        let (branch, below) =
            if is_last { ("└── ", "    ") } else { ("├── ", "│   ") };
        let (indent, width) = (&level.indent, level.width);
        let mut line = match &found {
            Ok(node) => {
                let slash = if node.kind() == NodeKind::Group { "/" } else { "" };
                let name = format!("{name}{slash}");
                format!("{indent}{branch}{name:<width$}  {}", describe(node))
            }
            Err(error) => format!("{indent}{branch}{name:<width$}  cannot be read: {error}"),
        };
        let below = format!("{indent}{below}");
        let opened = match found {
            Ok(node) if node.kind() == NodeKind::Group && levels.len() >= MAX_DEPTH => {
                let why = format!("groups nested more than {MAX_DEPTH} deep");
                line = format!("{line}; {why}");
                Err(why)
            }
            Ok(node) if node.kind() == NodeKind::Group => {
                Level::open(hierarchy, node.path(), below).map(Some).map_err(|error| {
                    line = format!("{line}; its contents cannot be read: {error}");
                    error.to_string()
                })
            }
            Ok(_) => Ok(None),
            Err(error) => Err(error.to_string()),
        };
        if lines.print(line.trim_end())? == ControlFlow::Break(()) {
            return Ok(Drawn { is_whole: true, ..drawn });
        }
        match opened {
            Ok(level) => levels.extend(level),
            Err(why) => drawn = Drawn { is_whole: false, why },
        }
    }
    Ok(drawn)
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
