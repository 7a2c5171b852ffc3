//! `zarrfs tree`: draws the hierarchy as a tree.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::vec::IntoIter;

use super::args::Tree;
use super::failure::{Failure, failed};
use super::info::describe::describe;
use super::info::dialect_name;
use super::info::stored::{self, StoredChunks};
use super::open;
use super::open::remote;
use super::output::print;
use super::output::size::Sizes;
use super::output::terminal::{Style, Terminal};
use crate::error::{Error, Result as Found, Word};
use crate::hierarchy::{Content, Hierarchy, Node, ReadExtent, Visited};
use crate::metadata::{NodeKind, NodePath};
use crate::printable::escaped;

/// The most lines of a tree.
const MAX_LINES: usize = 1_000_000;

/// The most nested groups.
const MAX_DEPTH: usize = 256;

/// Prints the tree of a hierarchy, or of a node in one.
pub fn run(args: &Tree) -> Result<(), Failure> {
    let (hierarchy, path) = open::node(&args.source, args.from.as_ref(), &args.remote)?;
    let node = hierarchy.existing(&path)?;
    let title = remote::typed(&args.source);
    let mut lines = print::Lines::new();
    let mut look = Look {
        terminal: Terminal::detect(args.color),
        sizes: args.sizes.then(|| Sizes::of(args.bytes)),
        depth: args.depth.unwrap_or(usize::MAX),
        total: StoredChunks::default(),
        decoded_len: Some(0),
        unlisted: None,
    };
    let dialect = dialect_name(&hierarchy, &path);
    let first = format!(
        "{}  {} ({dialect}){}",
        look.terminal.paint(style_of(node.kind()), &title),
        describe(&node),
        look.size(&node)
    );
    if lines.print(&look.terminal.line(&first))?.is_break() {
        return Ok(());
    }
    let drawn = draw(&hierarchy, &node, &mut lines, &mut look)?;
    if let Some(total) = look.last_line()
        && node.kind() == NodeKind::Group
    {
        let _next = lines.print(&total)?;
    }
    lines.flush()?;
    let not_seen = hierarchy.not_seen(&[path], ReadExtent::Metadata)?;
    let why = if drawn.is_whole { not_seen.in_words() } else { Some(drawn.why) };
    let why = why.or(look.unlisted).or_else(|| damage_of(&node).map(ToString::to_string));
    match why {
        None => Ok(()),
        Some(why) => Err(failed(format!("{title}: the list is incomplete: {why}"))),
    }
}

/// The options of the tree, and the sizes so far.
struct Look {
    terminal: Terminal,
    /// How to print sizes; `None` if the user did not ask for them.
    sizes: Option<Sizes>,
    /// How many levels of nodes to draw below the first.
    depth: usize,
    total: StoredChunks,
    /// The decoded size of all arrays; `None` if the size of one is unknown.
    decoded_len: Option<u64>,
    /// Why the chunks of an array are not counted.
    unlisted: Option<String>,
}

impl Look {
    /// Returns the size of an array for its line, and adds it to the total.
    fn size(&mut self, node: &Node) -> String {
        let (Some(sizes), Some(array)) = (self.sizes, node.array()) else { return String::new() };
        match StoredChunks::of(array) {
            Ok(stored) => {
                let total = &mut self.total;
                total.chunks = total.chunks.saturating_add(stored.chunks);
                total.len = total.len.saturating_add(stored.len);
                let lens = self.decoded_len.zip(stored::len_of(array));
                self.decoded_len = lens.map(|(all, one)| all.saturating_add(one));
                self.terminal
                    .paint(Style::Dim, &format!("; {}", stored::line(array, &stored, sizes)))
            }
            Err(failure) => {
                let why = format!("its chunks cannot be listed: {}", failure.message());
                let line = format!("; {why}");
                self.unlisted = Some(why);
                line
            }
        }
    }

    /// Returns the line with the sum of the sizes.
    fn last_line(&self) -> Option<String> {
        let line = stored::in_words(self.decoded_len, self.total.len, self.sizes?);
        Some(format!("{line}, {} chunks", self.total.chunks))
    }
}

fn style_of(kind: NodeKind) -> Style {
    match kind {
        NodeKind::Group => Style::Group,
        NodeKind::Array => Style::Array,
    }
}

/// Whether everything was drawn, with the reason if not.
struct Drawn {
    is_whole: bool,
    why: String,
}

/// The nodes of a group that are not drawn yet.
struct UndrawnNodes {
    path: NodePath,
    names: IntoIter<String>,
    /// The next name and node, read ahead because a line shows whether it is the last one.
    next: Option<(String, Found<Arc<Node>>)>,
    width: usize,
    indent: String,
}

impl UndrawnNodes {
    fn open(hierarchy: &Hierarchy, path: &NodePath, indent: String) -> Found<Self> {
        let names = hierarchy.child_names(path)?;
        let width = names.iter().map(|name| width_of(name)).max().unwrap_or_default() + 1;
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
fn draw(
    hierarchy: &Hierarchy,
    node: &Node,
    lines: &mut print::Lines,
    look: &mut Look,
) -> Result<Drawn, Failure> {
    let mut drawn = Drawn { is_whole: true, why: String::new() };
    let mut levels = Vec::new();
    if node.kind() == NodeKind::Group && look.depth > 0 {
        levels.push(UndrawnNodes::open(hierarchy, node.path(), String::new())?);
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
        let (below, stem) =
            (format!("{}{below}", level.indent), format!("{}{branch}", level.indent));
        let mut line = stem + &node_line(&name, &found, level.width, look);
        if let Some(error) = found.as_ref().ok().and_then(|node| damage_of(node)) {
            drawn = Drawn { is_whole: false, why: error.to_string() };
        }
        let opened = match found {
            Ok(node) if node.kind() == NodeKind::Group && levels.len() >= MAX_DEPTH => {
                let why = format!("groups nested more than {MAX_DEPTH} deep");
                line = format!("{line}; {why}");
                Err(why)
            }
            Ok(node) if node.kind() == NodeKind::Group && levels.len() < look.depth => {
                UndrawnNodes::open(hierarchy, node.path(), below).map(Some).map_err(|error| {
                    line = format!("{line}; its contents cannot be read: {error}");
                    error.to_string()
                })
            }
            Ok(_) => Ok(None),
            Err(error) => Err(error.to_string()),
        };
        if lines.print(&look.terminal.line(line.trim_end()))? == ControlFlow::Break(()) {
            return Ok(Drawn { is_whole: true, ..drawn });
        }
        match opened {
            Ok(level) => levels.extend(level),
            Err(why) => drawn = Drawn { is_whole: false, why },
        }
    }
    Ok(drawn)
}

/// Returns why the metadata of a node cannot be used, unless zarrfs does not know their form.
fn damage_of(node: &Node) -> Option<&Error> {
    match node.content() {
        Content::NotUnderstood(_, error) => {
            Some(error).filter(|error| error.word() != Word::Unsupported)
        }
        Content::Array(_) | Content::Group(_) => None,
    }
}

/// Returns the line of a node without its branch. Names are padded to `width`.
fn node_line(name: &str, found: &Found<Arc<Node>>, width: usize, look: &mut Look) -> String {
    let (style, name, text) = match found {
        Ok(node) => {
            let slash = if node.kind() == NodeKind::Group { "/" } else { "" };
            let text = format!("{}{}", describe(node), look.size(node));
            (style_of(node.kind()), format!("{name}{slash}"), text)
        }
        Err(error) => (Style::Wrong, name.to_owned(), format!("cannot be read: {error}")),
    };
    let padding = " ".repeat(width.saturating_sub(width_of(&name)));
    format!("{}{padding}  {text}", look.terminal.paint(style, &name))
}

/// Returns the number of characters of a name as it is printed.
fn width_of(name: &str) -> usize {
    escaped(name).chars().count()
}
