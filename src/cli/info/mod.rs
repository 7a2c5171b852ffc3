//! `zarrfs info`: describes one node.

pub mod chunk_map;
pub mod describe;
pub mod facts;
pub mod group_statistics;
pub mod image;
pub mod plot;
#[cfg(feature = "pictures")]
mod plot_file;
pub mod statistics;
pub mod stored;
pub mod wording;

use std::fmt::Write;

use serde_json::Value;

use crate::array::Coords;
use crate::cli::args::{Info, Plot};
use crate::cli::failure::{Failure, failed};
use crate::cli::open;
use crate::cli::open::remote;
use crate::cli::output::print;
use crate::cli::output::size::Sizes;
use crate::cli::output::terminal::{Style, Terminal};
use crate::hierarchy::{Hierarchy, Node, ReadExtent};
use crate::json::Object;
use crate::metadata::{NodeKind, NodePath, shown_attributes};
use crate::printable::escaped;
use chunk_map::ChunkMap;
use describe::{codec_line, describe};
use facts::facts;
use group_statistics::StatisticsTable;
use wording::for_people;

/// Prints the properties of a node.
pub fn run(args: &Info) -> Result<(), Failure> {
    let (hierarchy, path) = open::node_with_groups(&args.source, args.from.as_ref(), &args.remote)?;
    describe_node(args, &hierarchy, &path)?;
    match hierarchy.not_seen(&[path], ReadExtent::Metadata)?.in_words() {
        None => Ok(()),
        Some(why) => {
            Err(failed(format!("{}: not all is known of it: {why}", remote::typed(&args.source))))
        }
    }
}

fn describe_node(args: &Info, hierarchy: &Hierarchy, path: &NodePath) -> Result<(), Failure> {
    let node = hierarchy.existing(path)?;
    let terminal = Terminal::detect(args.color);
    let sections = Sections::new(args, hierarchy, &node, &terminal)?;
    if sections.is_empty() {
        let facts = facts(hierarchy, &node, &args.source)?;
        if args.json {
            return print::json(&Value::Object(facts));
        }
        return print::output(&facts_text(&node, &facts, Sizes::of(args.bytes), &terminal));
    }
    if args.json {
        let mut facts = facts(hierarchy, &node, &args.source)?;
        facts.extend(sections.facts);
        print::json(&Value::Object(facts))?;
        return sections.table.map_or(Ok(()), |table| table.check(&remote::typed(&args.source)));
    }
    let title = terminal.paint(Style::Array, &remote::typed(&args.source));
    let first = terminal.line(&format!("{title}  {}", describe(&node)));
    print::output(&format!("{first}\n{}", sections.text))?;
    sections.table.map_or(Ok(()), |table| table.check(&remote::typed(&args.source)))
}

/// The output of options that replace the properties: as text, and as JSON.
#[derive(Debug, Default)]
struct Sections {
    text: String,
    facts: Object,
    /// The statistics of the arrays in a group.
    table: Option<StatisticsTable>,
}

/// Draws a slice, as lines or into a file.
fn draw(
    args: &Info,
    plot: &Plot,
    (hierarchy, node): (&Hierarchy, &Node),
    terminal: &Terminal,
) -> Result<(Vec<String>, Value), Failure> {
    let region = match (plot, &args.region) {
        (Plot::Of(_), Some(_)) => {
            let detail = "--plot and --region both name a region: give one";
            return Err(Failure::Usage(detail.to_owned()));
        }
        (Plot::Of(region), None) | (_, Some(region)) => Some(region),
        (_, None) => None,
    };
    match plot {
        Plot::Usual | Plot::Of(_) => plot::draw(hierarchy, node, &args.source, region, terminal),
        #[cfg(feature = "pictures")]
        Plot::File(file) => plot_file::draw(hierarchy, node, &args.source, region, file),
        #[cfg(not(feature = "pictures"))]
        Plot::File(file) => Err(failed(format!(
            "{}: this zarrfs was built without the feature pictures",
            file.display()
        ))),
    }
}

impl Sections {
    fn new(
        args: &Info,
        hierarchy: &Hierarchy,
        node: &Node,
        terminal: &Terminal,
    ) -> Result<Self, Failure> {
        let mut sections = Self::default();
        if args.stats && !args.chunks && node.kind() == NodeKind::Group {
            let table = StatisticsTable::of(args, hierarchy, node)?;
            table.lines().iter().for_each(|line| sections.add_line(&escaped(line)));
            sections.facts.insert("statistics".to_owned(), table.facts());
            sections.table = Some(table);
        } else if args.stats || args.chunks {
            sections.add_chunks(args, node, terminal)?;
        }
        if let Some(plot) = &args.plot {
            let (lines, facts) = draw(args, plot, (hierarchy, node), terminal)?;
            for line in &lines {
                sections.add_line(line);
            }
            sections.facts.insert("plot".to_owned(), facts);
        }
        Ok(sections)
    }

    /// Adds statistics and the map of chunks. Chunks are decoded once for both.
    fn add_chunks(&mut self, args: &Info, node: &Node, terminal: &Terminal) -> Result<(), Failure> {
        let array = node.array().ok_or_else(|| {
            failed(format!(
                "{}: not an array that zarrfs understands, so it has no statistics and no map of \
                 chunks; `zarrfs tree` lists the arrays of a group",
                remote::typed(&args.source)
            ))
        })?;
        let mut map = args.chunks.then(|| ChunkMap::new(array, terminal.width));
        let is_whole = args.stats && args.sample.is_none();
        if args.stats {
            let seen = |coords: &Coords, is_fill| {
                if let Some(map) = map.as_ref().filter(|_| is_whole) {
                    map.add(coords, is_fill);
                }
            };
            let packing = statistics::packing(array, args.raw);
            let summary = statistics::compute(array, &args.source, args.sample, &packing, &seen)?;
            let lines = statistics::lines(array, &summary, args.sample, &packing, terminal);
            self.add_labelled(&lines, terminal);
            let facts = statistics::facts(array, &summary, args.sample, &packing);
            self.facts.insert("statistics".to_owned(), facts);
        }
        if let Some(map) = &mut map {
            if !is_whole {
                map.fill(array, &args.source)?;
            }
            for line in map.lines(terminal) {
                self.add_line(&line);
            }
            self.facts.insert("chunk_map".to_owned(), map.facts());
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    fn add_line(&mut self, line: &str) {
        self.text.extend([&print::colored(line.trim_end()), "\n"]);
    }

    fn add_labelled(&mut self, lines: &[(&str, String)], terminal: &Terminal) {
        let width = lines.iter().map(|(label, _)| label.len()).max().unwrap_or_default();
        for (label, words) in lines {
            let label = terminal.paint(Style::Label, &format!("{label:<width$}"));
            self.add_line(&format!("{label}  {words}"));
        }
    }
}

/// Returns the name of the dialect of a node.
pub fn dialect_name(hierarchy: &Hierarchy, path: &NodePath) -> &'static str {
    if hierarchy.is_in_folder(path) {
        return "several";
    }
    hierarchy.dialect_of(path).name()
}

/// Formats the facts as lines, each with a label.
fn facts_text(node: &Node, facts: &Object, sizes: Sizes, terminal: &Terminal) -> String {
    // These facts are parts of other lines.
    let is_line = |name: &str| !matches!(name, "path" | "chunks" | "read_amplification" | "ratio");
    let width = facts.keys().map(|name| name.chars().count()).max().unwrap_or_default();
    let mut text = String::new();
    for (name, value) in facts.iter().filter(|(name, _)| is_line(name)) {
        let label = match name.as_str() {
            // The path in the hierarchy is `/` if the user named a node by its directory.
            "source" => "path".to_owned(),
            name => name.replace('_', " "),
        };
        let words = match (name.as_str(), node.array()) {
            ("codecs", Some(array)) => codec_line(array),
            ("attributes", Some(array)) => {
                let model = array.model();
                Value::Object(shown_attributes(&model.attributes, &model.dtype)).to_string()
            }
            _ => for_people(name, value, facts, sizes),
        };
        let words = escaped(&words).into_owned();
        let words = match name.as_str() {
            "remarks" => terminal.paint(Style::Remark, &words),
            "not_understood" => terminal.paint(Style::Wrong, &words),
            _ => words,
        };
        let label = terminal.paint(Style::Label, &format!("{label:<width$}"));
        // Writing to a string does not fail.
        let _never = writeln!(text, "{}", terminal.line(&format!("{label}  {words}")));
    }
    text
}
