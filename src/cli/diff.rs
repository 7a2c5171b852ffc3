//! `zarrfs diff`: the differences between two hierarchies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value, json};

use super::args::Diff;
use super::failure::{Failure, failed};
use super::interrupt::{GiveUp, Interrupted, stop_on_signals};
use super::open;
use super::open::remote;
use super::output::print;
use super::output::progress::{Bar, SharedLines};
use super::output::size;
use crate::diff::{
    self, DiffOptions, DiffSummary, DiffWatch, Difference, Largest, Side, ValueDifference,
};
use crate::error::Error;
use crate::json;
use crate::printable::{escaped, escaped_json, shortened};
use crate::resources;

/// The most characters of a value in a line; `--json` has all of it.
const MAX_VALUE_LEN: usize = 200;

/// Compares two hierarchies, and prints the differences.
pub fn run(args: &Diff) -> Result<(), Failure> {
    let printer = Arc::new(Printer::new(args.json)?);
    let compared = compare(args, &printer);
    printer.bar.end();
    let summary = compared.map_err(exit_2)?;
    printer.lines.end().map_err(exit_2)?;
    let names = [remote::typed(&args.a), remote::typed(&args.b)];
    let [one, two] = &names;
    if printer.is_stopped.load(Ordering::Relaxed) && !printer.lines.is_closed() {
        return Err(interrupted(args));
    }
    if let Some(why) = &summary.not_seen {
        return Err(Failure::Usage(format!("{one} and {two}: not all was compared: {why}")));
    }
    let failures = printer.failures.load(Ordering::Relaxed);
    if failures > 0 {
        let text = format!("{one} and {two}: {failures} nodes cannot be compared (see above)");
        return Err(Failure::Usage(text));
    }
    let differences = printer.differences.load(Ordering::Relaxed);
    if !args.json {
        let DiffSummary { nodes, arrays, elements, .. } = summary;
        let found = if differences == 0 {
            "equal".to_owned()
        } else {
            size::counted(differences, "difference")
        };
        print::error(&format!(
            "{one} and {two}: {found}; {} compared, {} in {}",
            size::counted(nodes, "node"),
            size::counted(elements, "element"),
            size::counted(arrays, "array")
        ));
    }
    if differences > 0 { Err(Failure::Different) } else { Ok(()) }
}

/// Gives a failure the exit code 2, because 1 means here that the hierarchies differ.
#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
pub fn exit_2(failure: Failure) -> Failure {
    Failure::Usage(failure.message().to_owned())
}

fn compare(args: &Diff, printer: &Arc<Printer>) -> Result<DiffSummary, Failure> {
    let (one, top_one) = open::node(&args.a, args.from.as_ref(), &args.remote)?;
    let (two, top_two) = open::node(&args.b, args.from_b.as_ref(), &args.remote)?;
    let stores = vec![one.store().clone(), two.store().clone()];
    let give_up = Some(give_up(args, Arc::clone(printer)));
    let interrupted = Interrupted { stores, give_up, left: String::new() };
    let signals = stop_on_signals(&printer.is_stopped, interrupted)?;
    let jobs = remote::reading_threads(args.jobs, [args.a.as_path(), args.b.as_path()]);
    let options = DiffOptions {
        tolerance: args.tolerance,
        relative: args.rtol,
        compares_values: !args.metadata_only,
        only: args.only.clone(),
        jobs,
        cache_len: resources::within_memory(args.cache_size, 4),
    };
    for path in &args.only {
        let is_in = |hierarchy: &crate::hierarchy::Hierarchy, top: &crate::metadata::NodePath| {
            Ok::<_, Failure>(hierarchy.node(&top.join(path.as_str())?)?.is_some())
        };
        if !is_in(&one, &top_one)? && !is_in(&two, &top_two)? {
            return Err(failed(format!("neither hierarchy has a node {path} (--only)")));
        }
    }
    let one = Side { hierarchy: &one, top: &top_one };
    let two = Side { hierarchy: &two, top: &top_two };
    let compared = diff::run(one, two, &options, &**printer);
    signals.work_has_ended();
    Ok(compared?)
}

/// Returns the end of an interrupted comparison in which a chunk takes long.
fn give_up(args: &Diff, printer: Arc<Printer>) -> GiveUp {
    let failure = interrupted(args);
    Box::new(move || {
        printer.bar.end();
        printer.lines.end().map_or_else(exit_2, |()| failure)
    })
}

fn interrupted(args: &Diff) -> Failure {
    let [one, two] = [&args.a, &args.b].map(|path| remote::typed(path));
    Failure::Usage(format!("{one} and {two}: interrupted"))
}

/// Prints differences as they come, and a progress bar on a terminal.
struct Printer {
    is_json: bool,
    bar: Bar,
    lines: SharedLines,
    differences: AtomicU64,
    failures: AtomicU64,
    is_stopped: Arc<AtomicBool>,
}

impl Printer {
    fn new(is_json: bool) -> Result<Self, Failure> {
        let bar = Bar::new("{prefix} {wide_bar} {pos}/{len} chunks, {eta} left")?;
        let is_stopped: Arc<AtomicBool> = Arc::default();
        Ok(Self {
            is_json,
            bar,
            lines: SharedLines::new(Arc::clone(&is_stopped)),
            differences: AtomicU64::default(),
            failures: AtomicU64::default(),
            is_stopped,
        })
    }
}

impl DiffWatch for Printer {
    fn differ(&self, path: &str, difference: Difference) {
        self.differences.fetch_add(1, Ordering::Relaxed);
        let line = if self.is_json {
            escaped_json(&as_json(path, &difference).to_string()).into_owned()
        } else {
            escaped(&as_text(path, &difference)).into_owned()
        };
        self.lines.print(&self.bar, &line);
    }

    fn fail(&self, path: &str, error: &Error) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.bar.above(|| print::error(&format!("zarrfs: /{path}: {error}")));
    }

    fn expect(&self, path: &str, chunks: u64) {
        self.bar.begin(&format!("/{path}"), chunks);
    }

    fn advance(&self) {
        self.bar.advance("compared");
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }
}

fn as_text(path: &str, difference: &Difference) -> String {
    let shown = |value: &Option<Value>| match value {
        Some(value) => shortened(&json::compact(value), MAX_VALUE_LEN).into_owned(),
        None => "missing".to_owned(),
    };
    match difference {
        Difference::OnlyIn(is_first) => {
            format!("/{path}: only in {}", if *is_first { "A" } else { "B" })
        }
        Difference::Metadata { member, values: [one, two] } => {
            let member = shortened(member, MAX_VALUE_LEN);
            format!("/{path}: {member}: {} in A, {} in B", shown(one), shown(two))
        }
        Difference::Values(ValueDifference { count, elements, first, largest }) => {
            let mut parts = vec![format!("/{path}: {count} of {elements} elements differ")];
            if let Some((place, [one, two])) = first {
                let [one, two] = [one, two].map(|value| shown(&Some(value.clone())));
                parts.push(format!("the first at {place:?}: {one} in A, {two} in B"));
            }
            if let Some((largest, place)) = largest {
                let largest = number(*largest);
                parts.push(format!("the largest difference is {largest} at {place:?}"));
            }
            parts.join("; ")
        }
    }
}

fn as_json(path: &str, difference: &Difference) -> Value {
    let path = format!("/{path}");
    match difference {
        Difference::OnlyIn(is_first) => {
            json!({"path": path, "difference": "only_in", "only_in": if *is_first { "A" } else { "B" }})
        }
        Difference::Metadata { member, values: [one, two] } => {
            json!({"path": path, "difference": "metadata", "member": member, "a": one, "b": two})
        }
        Difference::Values(ValueDifference { count, elements, first, largest }) => {
            let (index, one, two) = match first {
                Some((place, [one, two])) => (json!(place), one.clone(), two.clone()),
                None => (Value::Null, Value::Null, Value::Null),
            };
            let (size, place) = match largest {
                Some((largest, place)) => {
                    let text = number(*largest);
                    (serde_json::from_str(&text).unwrap_or(Value::from(text)), json!(place))
                }
                None => (Value::Null, Value::Null),
            };
            json!({
                "path": path,
                "difference": "values",
                "count": count,
                "elements": elements,
                "first_index": index,
                "a": one,
                "b": two,
                "largest_difference": size,
                "largest_index": place,
            })
        }
    }
}

fn number(largest: Largest) -> String {
    match largest {
        Largest::Int(int) => int.to_string(),
        Largest::Float(float) if float.is_infinite() => "Infinity".to_owned(),
        Largest::Float(float) => format!("{float:?}"),
    }
}
