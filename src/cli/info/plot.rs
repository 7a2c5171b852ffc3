//! `zarrfs info --plot`: a slice of an array as a picture.

use std::path::Path;

use serde_json::{Value, json};

use crate::cache::ChunkCache;
use crate::cli::failure::{Failure, failed};
use crate::cli::open::remote;
use crate::cli::output::size;
use crate::cli::output::terminal::{Style, Terminal};
use crate::hierarchy::{Hierarchy, Node};
use crate::picture::{Heat, significant};
use crate::printable::escaped;
use crate::raster::{self, PictureLimits, Raster, Side};
use crate::view::region::Region;
use crate::view::{GetChunk, ViewSource};
use crate::width::ToU64;

/// The most decoded bytes to read, unless one chunk has more.
pub(super) const MOST_READ: u64 = 48 << 20;

/// The cache size in bytes for values in headers.
const CACHE_LEN: u64 = 16 << 20;

/// The smallest and the largest number of lines of a picture.
const LINES: (usize, usize) = (12, 50);

/// Draws a slice of a node. Returns the lines, and the properties of the picture as JSON.
pub fn draw(
    hierarchy: &Hierarchy,
    node: &Node,
    typed: &Path,
    region: Option<&Region>,
    terminal: &Terminal,
) -> Result<(Vec<String>, Value), Failure> {
    let in_line = Heat::rows_in_line(terminal.colors, terminal.glyphs);
    let count = |number: usize| number.to_u64();
    let gutter = terminal.width / 6;
    let limits = PictureLimits {
        columns: count(terminal.width.saturating_sub(gutter).max(1)),
        rows: count((terminal.width / 3).clamp(LINES.0, LINES.1) * in_line),
        // A character is about twice as high as it is wide.
        height_of_row: if in_line == 2 { 1 } else { 2 },
        len: MOST_READ,
    };
    let raster = read((hierarchy, node), typed, region, &limits)?;
    let facts = facts(&raster);
    Ok((lines(&raster, node, gutter, terminal), facts))
}

/// Reads a slice of a node.
pub(super) fn read(
    (hierarchy, node): (&Hierarchy, &Node),
    typed: &Path,
    region: Option<&Region>,
    limits: &PictureLimits,
) -> Result<Raster, Failure> {
    let cache = ChunkCache::new(CACHE_LEN);
    let get: &GetChunk<'_> = &|elements, coords, _| {
        Ok(cache.get(&elements.array, coords)?.map(|chunk| chunk.bytes.into()))
    };
    let source = ViewSource::new(hierarchy, node.path(), get)?;
    raster::of(&source, region, limits).map_err(|error| {
        let shown = remote::typed(typed);
        failed(format!("{shown}: no plot: {}", error.detail()))
    })
}

/// Returns the properties of a picture as JSON.
pub(super) fn facts(raster: &Raster) -> Value {
    let side = |side: &Side| {
        let [first, last] = side.ends;
        json!({
            "dimension": side.name,
            "elements": side.len,
            "cells": side.cells,
            "first": first,
            "last": last,
            "unit": side.unit,
        })
    };
    let number = |value: &f64| if value.is_finite() { json!(value) } else { Value::Null };
    let fixed = raster.fixed.iter().map(|one| (one.name.clone(), json!(one.index)));
    json!({
        "array": raster.path.to_string(),
        "rows": side(&raster.down),
        "columns": side(&raster.across),
        "indices": Value::Object(fixed.collect()),
        "values": raster.values.iter().map(number).collect::<Vec<_>>(),
        "unit": raster.unit,
        "chunks_read": raster.chunks.0,
        "chunks_needed": raster.chunks.1,
        "bytes_decoded": raster.len,
    })
}

fn lines(raster: &Raster, node: &Node, gutter: usize, terminal: &Terminal) -> Vec<String> {
    let width = usize::try_from(raster.across.cells).unwrap_or(1);
    let mut lines = vec![heading(raster, node)];
    let Some(heat) = Heat::of(&raster.values, terminal.colors, terminal.glyphs) else {
        lines.push("no element of the slice is a finite number".to_owned());
        return lines;
    };
    let picture = heat.draw(&raster.values, width);
    let down = labels(&raster.down, gutter, picture.len());
    let pad = down.iter().map(|label| label.chars().count()).max().unwrap_or_default();
    for (label, row) in down.iter().zip(picture) {
        let label = terminal.paint(Style::Dim, &format!("{label:>pad$}"));
        lines.push(format!("{label} {row}"));
    }
    let across = below(&raster.across, width, terminal.width.saturating_sub(pad + 1));
    lines.push(format!("{:pad$} {}", "", terminal.paint(Style::Dim, &across)));
    let (low, high) = heat.range;
    let unit = raster.unit.as_ref().map_or(String::new(), |unit| format!(" {}", escaped(unit)));
    let scale = heat.scale((terminal.width / 4).clamp(8, 32));
    lines.push(format!("{} {scale} {}{unit}", significant(low), significant(high)));
    lines.push(what_was_read(raster));
    lines
}

/// Describes the array and the indices that a picture shows.
fn heading(raster: &Raster, node: &Node) -> String {
    let names = [&raster.down, &raster.across].map(|side| escaped(&side.name).into_owned());
    let names: Vec<String> = names.into_iter().filter(|name| !name.is_empty()).collect();
    let mut text = names.join(" x ");
    for fixed in &raster.fixed {
        text = format!("{text}, {} = {} of {}", escaped(&fixed.name), fixed.index, fixed.len);
    }
    if raster.path != *node.path() {
        text = format!("{text}, from {}", escaped(raster.path.as_str()));
    }
    text
}

/// Describes how much was read, and what the cells show.
pub(super) fn what_was_read(raster: &Raster) -> String {
    let Raster { down, across, chunks: (read, needed), .. } = raster;
    let all = down.len.saturating_mul(across.len);
    let drawn = down.cells.min(down.len).saturating_mul(across.cells.min(across.len));
    let elements =
        if drawn < all { format!("{drawn} of {all} elements") } else { "all elements".to_owned() };
    let chunk = if *read == 1 { "chunk" } else { "chunks" };
    let text = format!("{elements}; {read} {chunk} read, {} decoded", size::human(raster.len));
    if read < needed {
        return format!(
            "{text}: reading all {needed} chunks would take too long, so cells show the nearest \
             element that was read"
        );
    }
    text
}

/// Returns the labels at the left of a picture: the first and the last coordinate, and the name.
fn labels(side: &Side, width: usize, lines: usize) -> Vec<String> {
    let mut labels = vec![String::new(); lines];
    if side.name.is_empty() {
        return labels;
    }
    let cut = |text: String| text.chars().take(width.saturating_sub(1)).collect::<String>();
    let [first, last] = side.ends;
    let texts = [
        (0, significant(first)),
        (lines.saturating_sub(1), significant(last)),
        (lines / 2, escaped(&side.name).into_owned()),
        (lines / 2 + 1, unit_of(side)),
    ];
    for (at, text) in texts {
        if let Some(label) = labels.get_mut(at).filter(|label| label.is_empty()) {
            *label = cut(text);
        }
    }
    labels
}

/// Returns the unit of a side in parentheses, empty if it has none.
fn unit_of(side: &Side) -> String {
    side.unit.as_ref().map_or(String::new(), |unit| format!("({})", escaped(unit)))
}

/// Returns the line below a picture: the first coordinate at the left, the last at the right.
fn below(side: &Side, width: usize, most: usize) -> String {
    let [first, last] = side.ends.map(significant);
    let name = format!("{} {}", escaped(&side.name), unit_of(side));
    let name = name.trim_end();
    let used = first.chars().count() + name.chars().count() + last.chars().count();
    if used + 2 > width {
        return format!("{first} {name} {last}").chars().take(most).collect();
    }
    let left = (width - used) / 2;
    let right = width - used - left;
    format!("{first}{}{name}{}{last}", " ".repeat(left), " ".repeat(right))
}
