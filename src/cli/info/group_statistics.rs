//! `zarrfs info --stats` of a group: the statistics of all arrays below it, as a table.

use serde_json::{Value, json};

use super::statistics;
use crate::cli::args::Info;
use crate::cli::failure::{Failure, failed};
use crate::cli::open::remote;
use crate::error::Error;
use crate::hierarchy::{Bounds, Content, Hierarchy, Node};
use crate::json::Object;
use crate::metadata::NodePath;

/// The head of the table.
const HEAD: [&str; 6] =
    ["array", "minimum", "maximum", "mean", "standard deviation", "masked or NaN"];

/// The statistics of the arrays below a group.
#[derive(Debug, Default)]
pub struct StatisticsTable {
    /// A row for each array: its path below the group, and its cells or why it has none.
    rows: Vec<(String, Result<[String; 5], String>)>,
    facts: Object,
    /// The number of nodes without statistics.
    failed: usize,
}

impl StatisticsTable {
    /// Computes the statistics of all arrays below a group.
    pub fn of(args: &Info, hierarchy: &Hierarchy, group: &Node) -> Result<Self, Failure> {
        let mut table = Self::default();
        let mut walk = hierarchy.walk_below(group.path(), Bounds::stream());
        while let Some(node) = walk.next() {
            let below = |path: &NodePath| path.relative_to(group.path()).unwrap_or("").to_owned();
            match node {
                Ok(node) => table.add_node(args, &node, below(node.path()))?,
                Err(error) => table.add_error(below(walk.at()), &error),
            }
        }
        Ok(table)
    }

    fn add_node(&mut self, args: &Info, node: &Node, name: String) -> Result<(), Failure> {
        let array = match node.content() {
            Content::Group(_) => return Ok(()),
            Content::NotUnderstood(_, error) => {
                self.add_error(name, error);
                return Ok(());
            }
            Content::Array(array) => array,
        };
        let packing = statistics::packing(array, args.raw);
        match statistics::compute(array, &args.source, args.sample, &packing, &|_, _| ()) {
            Ok(summary) => {
                let facts = statistics::facts(array, &summary, args.sample, &packing);
                self.facts.insert(name.clone(), facts);
                self.rows.push((name, Ok(statistics::cells(&summary))));
            }
            Err(Failure::Failed(message)) => {
                let shown = remote::typed(&args.source);
                let why = message.strip_prefix(&format!("{shown}: ")).unwrap_or(&message);
                self.add_failure(name, why.to_owned());
            }
            Err(other) => return Err(other),
        }
        Ok(())
    }

    fn add_error(&mut self, name: String, error: &Error) {
        self.add_failure(name, format!("no statistics: {}", error.detail()));
    }

    fn add_failure(&mut self, name: String, why: String) {
        self.failed = self.failed.saturating_add(1);
        self.facts.insert(name.clone(), json!({"error": why}));
        self.rows.push((name, Err(why)));
    }

    /// Returns the lines of the table.
    pub fn lines(&self) -> Vec<String> {
        let head: Vec<&str> = HEAD.to_vec();
        let mut widths: Vec<usize> = head.iter().map(|word| word.len()).collect();
        let width = |text: &str| text.chars().count();
        for (name, cells) in &self.rows {
            let cells = cells.iter().flatten().map(String::as_str);
            for (own, cell) in widths.iter_mut().zip(std::iter::once(name.as_str()).chain(cells)) {
                *own = (*own).max(width(cell));
            }
        }
        let line = |cells: &[&str]| {
            let cells = cells.iter().zip(&widths).enumerate().map(|(at, (cell, width))| match at {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
            cells.collect::<Vec<_>>().join("  ")
        };
        let mut lines = vec![line(&head)];
        for (name, cells) in &self.rows {
            lines.push(match cells {
                Ok(cells) => {
                    let cells =
                        std::iter::once(name.as_str()).chain(cells.iter().map(String::as_str));
                    line(&cells.collect::<Vec<_>>())
                }
                Err(why) => format!("{}  {why}", line(&[name.as_str()])),
            });
        }
        lines
    }

    /// Returns the statistics as JSON.
    pub fn facts(&self) -> Value {
        Value::Object(self.facts.clone())
    }

    /// Fails if a node has no statistics.
    pub fn check(&self, shown: &str) -> Result<(), Failure> {
        if self.failed == 0 {
            return Ok(());
        }
        let (failed_count, all) = (self.failed, self.rows.len());
        Err(failed(format!("{shown}: {failed_count} of {all} arrays have no statistics")))
    }
}
