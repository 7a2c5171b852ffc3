//! `zarrfs info --stats`: the statistics of an array, in words and as JSON.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use super::stored;
use crate::array::{Array, Coords};
use crate::cli::args::SampleShare;
use crate::cli::failure::{Failure, failed};
use crate::cli::open::remote;
use crate::cli::output::progress::CommandProgress;
use crate::cli::output::size;
use crate::cli::output::terminal::Terminal;
use crate::dtype::{DType, FillValue, Time, time_text, to_float};
use crate::json::Object;
use crate::metadata::Packing;
use crate::picture::{bars, significant};
use crate::stats::{self, Average, Chosen, Range, Statistics};
use crate::width::ToU64;

/// The columns of the line that a histogram leaves for its limits.
const LIMITS_WIDTH: usize = 45;

/// Returns how elements of an array become values: as its attributes say, or not at all if
/// `is_raw`.
pub fn packing(array: &Array, is_raw: bool) -> Packing {
    let model = array.model();
    if is_raw { Packing::none() } else { Packing::of(&model.dtype, &model.attributes) }
}

/// Computes the statistics of an array. Calls `seen` after each chunk.
pub fn compute(
    array: &Arc<Array>,
    source: &Path,
    sample: Option<SampleShare>,
    packing: &Packing,
    seen: &(dyn Fn(&Coords, Option<bool>) + Sync),
) -> Result<Statistics, Failure> {
    let shown = remote::typed(source);
    if let Some(error) = array.not_understood() {
        return Err(failed(format!(
            "{shown}: no statistics: its chunks cannot be decoded: {error}"
        )));
    }
    let chosen = chosen(array, sample);
    let steps = match chosen {
        Chosen::All => stored::StoredChunks::of(array)?.chunks,
        Chosen::Sample(count) => count,
    };
    let progress = CommandProgress::new("chunks", steps);
    let counted = |coords: &Coords, is_fill: Option<bool>| {
        seen(coords, is_fill);
        progress.advance();
    };
    let threads = remote::reading_threads(None, [source]);
    stats::of(array, chosen, threads, packing, &counted).map_err(|error| {
        failed(format!("{shown}: {error}; no statistics, because a chunk cannot be decoded"))
    })
}

fn chosen(array: &Array, sample: Option<SampleShare>) -> Chosen {
    let all = stored::chunks_of(array).unwrap_or(u64::MAX);
    let count = match sample {
        None => return Chosen::All,
        Some(SampleShare::Chunks(count)) => count,
        Some(SampleShare::Percent(percent)) => {
            let part = (to_float(all.into()) * percent / 100.0).ceil();
            crate::dtype::to_index(part).to_u64()
        }
    };
    if count >= all { Chosen::All } else { Chosen::Sample(count.max(1)) }
}

/// Returns the statistics as JSON. Numbers are exact, and times are counts of their unit.
pub fn facts(
    array: &Array,
    summary: &Statistics,
    sample: Option<SampleShare>,
    packing: &Packing,
) -> Value {
    let mut facts = Object::new();
    let mut add = |name: &str, value: Value| drop(facts.insert(name.to_owned(), value));
    let exact = chosen(array, sample) == Chosen::All;
    add("exact", json!(exact));
    add("chunks_read", json!(summary.chunks_read));
    add("elements", json!(summary.elements));
    add("missing", json!(summary.missing));
    add("fill", json!(summary.fill));
    if let Some(words) = packing.words() {
        add("decoded", json!(words));
    }
    if let Some(masked) = summary.masked {
        add("masked", json!(masked));
    }
    let dtype = &summary.dtype;
    match summary.range {
        Some(Range::Ints(low, high)) => {
            add("minimum", integer(low, dtype));
            add("maximum", integer(high, dtype));
        }
        Some(Range::Floats(low, high)) => {
            let suffix = if is_complex(dtype) { "_absolute" } else { "" };
            add(&format!("minimum{suffix}"), wide(low));
            add(&format!("maximum{suffix}"), wide(high));
        }
        Some(Range::Lens(low, high)) => {
            add("shortest", json!(low));
            add("longest", json!(high));
        }
        None => {}
    }
    match summary.average {
        Some(Average::Real(moments)) => {
            add("mean", wide(moments.mean));
            add("standard_deviation", wide(moments.deviation));
        }
        Some(Average::Complex(moments, imaginary)) => {
            add("mean", json!([wide(moments.mean), wide(imaginary)]));
            add("standard_deviation", wide(moments.deviation));
        }
        Some(Average::Time(mean, deviation)) => {
            add("mean", integer(mean, dtype));
            add("standard_deviation", wide(deviation));
        }
        None => {}
    }
    let counts = [("finite", summary.finite), ("nan", summary.nan), ("empty", summary.empty)];
    for (name, count) in counts {
        if let Some(count) = count {
            add(name, json!(count));
        }
    }
    if let Some([negative, positive]) = summary.infinite {
        add("negative_infinity", json!(negative));
        add("positive_infinity", json!(positive));
    }
    if let Some(columns) = &summary.histogram {
        add("histogram", json!({"edges": columns.edges, "counts": columns.counts}));
    }
    Value::Object(facts)
}

/// Returns the statistics as labels and words.
pub fn lines(
    array: &Array,
    summary: &Statistics,
    sample: Option<SampleShare>,
    packing: &Packing,
    terminal: &Terminal,
) -> Vec<(&'static str, String)> {
    let dtype = &summary.dtype;
    let mut lines = vec![("statistics", scope(array, summary, sample))];
    lines.extend(packing.words().map(|words| ("decoded", format!("{words} (--raw: as stored)"))));
    let mut limits = None;
    match summary.range {
        Some(Range::Ints(low, high)) => {
            let (low, high) = (integer_text(low, dtype), integer_text(high, dtype));
            lines.extend([("minimum", low.clone()), ("maximum", high.clone())]);
            limits = Some((low, high));
        }
        Some(Range::Floats(low, high)) => {
            let (low, high) = (text_of(&float(low, dtype)), text_of(&float(high, dtype)));
            if is_complex(dtype) {
                lines.push(("absolute", format!("{low} to {high}")));
            } else {
                lines.extend([("minimum", low), ("maximum", high)]);
            }
        }
        Some(Range::Lens(low, high)) => {
            let unit = if matches!(dtype, DType::Utf32(_)) { "characters" } else { "bytes" };
            lines.push(("length", format!("{low} to {high} {unit}")));
        }
        None => {}
    }
    match summary.average {
        Some(Average::Real(moments)) => {
            lines.push(("mean", significant(moments.mean)));
            lines.push(("standard deviation", significant(moments.deviation)));
        }
        Some(Average::Complex(moments, imaginary)) => {
            let sign = if imaginary < 0.0 { '-' } else { '+' };
            let (real, imaginary) = (significant(moments.mean), significant(imaginary.abs()));
            lines.push(("mean", format!("{real}{sign}{imaginary}j")));
            lines.push(("standard deviation", significant(moments.deviation)));
        }
        Some(Average::Time(mean, deviation)) => {
            lines.push(("mean", integer_text(mean, dtype)));
            if let DType::Time(time) = dtype {
                lines.push(("standard deviation", span_text(deviation, *time)));
            }
        }
        None => {}
    }
    lines.extend(counts(array, summary));
    lines.extend(histogram(summary, limits, terminal).map(|line| ("histogram", line)));
    lines
}

/// Describes which elements were counted, and which statistics their type lacks.
fn scope(array: &Array, summary: &Statistics, sample: Option<SampleShare>) -> String {
    let count = summary.elements;
    let elements = if count == 1 { "1 element".to_owned() } else { format!("{count} elements") };
    let scope = match chosen(array, sample) {
        Chosen::All => format!("exact, all {elements}"),
        Chosen::Sample(chunks) => {
            let all = stored::chunks_of(array).unwrap_or(u64::MAX);
            format!("of a sample: chunks {}, {elements}", size::part(chunks, all))
        }
    };
    let lacks = match &array.model().dtype {
        DType::Complex(_) | DType::ComplexNarrow(_) => {
            "complex numbers have no order: the range is that of their absolute values"
        }
        DType::Struct(_) | DType::Raw(_) => {
            "elements of this type are not numbers: zarrfs only counts fill values"
        }
        DType::Bytes(_) | DType::Utf32(_) | DType::String | DType::VariableBytes => {
            "elements of this type are not numbers: zarrfs counts fill values and measures lengths"
        }
        _ => return scope,
    };
    format!("{scope}; {lacks}")
}

/// Returns the lines with counts. Leaves out the lines of rare kinds whose count is 0.
fn counts(array: &Array, summary: &Statistics) -> Vec<(&'static str, String)> {
    let model = array.model();
    let all = summary.elements;
    let mut lines = Vec::new();
    if let (DType::Bool, Some(Average::Real(_)), Some(columns)) =
        (&model.dtype, summary.average, &summary.histogram)
    {
        // The columns are for false and true, or for one of them.
        let last_is_true = matches!(summary.range, Some(Range::Ints(_, 1)));
        let count = if last_is_true { columns.counts.last().copied().unwrap_or(0) } else { 0 };
        lines.push(("true", size::part(count, all)));
    } else if let Some(finite) = summary.finite {
        lines.push(("finite", size::part(finite, all)));
    }
    if let Some(masked) = summary.masked {
        lines.push(("masked", size::part(masked, all)));
    }
    if let Some(nan) = summary.nan {
        let label = if matches!(model.dtype, DType::Time(_)) { "NaT" } else { "NaN" };
        lines.push((label, size::part(nan, all)));
    }
    if let Some([negative, positive]) = summary.infinite.filter(|both| *both != [0, 0]) {
        lines.push(("infinite", format!("{negative} negative, {positive} positive")));
    }
    if let Some(empty) = summary.empty {
        lines.push(("empty", size::part(empty, all)));
    }
    let value = match &model.dtype {
        _ if !model.fill.is_defined() => "undefined, so zero".to_owned(),
        DType::Time(time) => {
            let count = model.fill.to_json(&model.dtype).as_i64();
            count.map_or("NaT".to_owned(), |count| time_text(count.into(), *time))
        }
        dtype => text_of(&model.fill.to_json(dtype)),
    };
    lines.push(("fill value", format!("{} equal {value}", size::part(summary.fill, all))));
    if summary.missing > 0 {
        lines.push(("in missing chunks", size::part(summary.missing, all)));
    }
    lines
}

fn histogram(
    summary: &Statistics,
    limits: Option<(String, String)>,
    terminal: &Terminal,
) -> Option<String> {
    let columns = summary.histogram.as_ref()?;
    let edge = |edge: Option<&Value>| significant(edge.and_then(Value::as_f64).unwrap_or_default());
    let (low, high) =
        limits.unwrap_or_else(|| (edge(columns.edges.first()), edge(columns.edges.last())));
    let width = terminal.width.saturating_sub(LIMITS_WIDTH).max(10);
    Some(format!("{low} |{}| {high}", bars(&columns.counts, width, terminal.glyphs)))
}

fn is_complex(dtype: &DType) -> bool {
    matches!(dtype, DType::Complex(_) | DType::ComplexNarrow(_))
}

fn integer(int: i128, dtype: &DType) -> Value {
    match dtype {
        DType::Bool => json!(int != 0),
        _ => Value::Number(serde_json::Number::from_string_unchecked(int.to_string())),
    }
}

/// Returns the cells of the line of an array in a table: the minimum, the maximum, the mean, the
/// standard deviation, and how many elements have no value.
pub fn cells(summary: &Statistics) -> [String; 5] {
    let dtype = &summary.dtype;
    let none = || "-".to_owned();
    let (low, high) = match summary.range {
        Some(Range::Ints(low, high)) => (integer_text(low, dtype), integer_text(high, dtype)),
        Some(Range::Floats(low, high)) if !is_complex(dtype) => {
            (text_of(&float(low, dtype)), text_of(&float(high, dtype)))
        }
        Some(Range::Floats(..) | Range::Lens(..)) | None => (none(), none()),
    };
    let (mean, deviation) = match summary.average {
        Some(Average::Real(moments)) => (significant(moments.mean), significant(moments.deviation)),
        Some(Average::Time(mean, deviation)) => {
            let span = match dtype {
                DType::Time(time) => span_text(deviation, *time),
                _ => none(),
            };
            (integer_text(mean, dtype), span)
        }
        Some(Average::Complex(..)) | None => (none(), none()),
    };
    let counts = summary.masked.into_iter().chain(summary.nan);
    let missing = counts.reduce(u64::saturating_add);
    let part = |count| size::part(count, summary.elements);
    [low, high, mean, deviation, missing.map_or_else(none, part)]
}

fn integer_text(int: i128, dtype: &DType) -> String {
    match dtype {
        DType::Time(time) => time_text(int, *time),
        _ => integer(int, dtype).to_string(),
    }
}

/// Returns a float with the digits that its type needs.
fn float(float: f64, dtype: &DType) -> Value {
    let exact = wide(float);
    match dtype {
        DType::Float(_) | DType::Narrow(_) => {
            FillValue::parse(&exact, dtype).map_or(exact, |value| value.to_json(dtype))
        }
        _ => exact,
    }
}

/// Returns a float of 64 bits as metadata files spell it.
fn wide(float: f64) -> Value {
    FillValue::from_item(&float.to_le_bytes()).to_json(&DType::Float(8))
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), |text| format!("{text:?}").replace('"', ""))
}

fn span_text(steps: f64, time: Time) -> String {
    let number = significant(steps * to_float(time.scale.into()));
    if time.unit == "generic" { number } else { format!("{number} {}", time.unit) }
}
