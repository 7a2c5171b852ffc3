//! `zarrfs tree`: draws the hierarchy as a tree.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::vec::IntoIter;

use super::args::Tree;
use super::describe::describe;
use super::failure::{Failure, failed};
use super::info::dialect_name;
use super::{open, print};
use crate::error::Result as Found;
use crate::hierarchy::{Hierarchy, Node, Visited};
use crate::metadata::{NodeKind, NodePath};

/// The most lines of a tree.
const MAX_LINES: usize = 1_000_000;

/// The most nested groups.
const MAX_DEPTH: usize = 256;

/// Prints the tree of a hierarchy, or of a node in one.
pub fn run(args: &Tree) -> Result<(), Failure> {
    let (hierarchy, path) = open::node(&args.source, args.from.as_ref(), &args.remote)?;
    let node = hierarchy.existing(&path)?;
    let title = args.source.display().to_string();
    let mut lines = print::Lines::new();
    let first = format!("{title}  {} ({})", describe(&node), dialect_name(&hierarchy, &path));
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

/// Whether everything was drawn, with the reason if not.
struct Drawn {
    is_whole: bool,
    why: String,
}

/// The nodes of a group that are not drawn yet.
struct Level {
    path: NodePath,
    names: IntoIter<String>,
    /// The next name and node, read ahead because a line shows whether it is the last one.
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

    /// Returns the name of the next node, the node, and whether it is the last one.
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

/// Draws the nodes below a group, line by line.
fn draw(hierarchy: &Hierarchy, node: &Node, lines: &mut print::Lines) -> Result<Drawn, Failure> {
    let mut drawn = Drawn { is_whole: true, why: String::new() };
    let mut levels = Vec::new();
    if node.kind() == NodeKind::Group {
        levels.push(Level::open(hierarchy, node.path(), String::new())?);
    }
    let (mut count, mut visited) = (0_usize, Visited::default());
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
            && let Err(error) = visited.visit(node)
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
