//! `zarrfs info --plot FILE.png`: a slice of an array as an image with axes.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::plot::{MOST_READ, facts, read, what_was_read};
use crate::cli::failure::{Failure, failed};
use crate::hierarchy::{Hierarchy, Node};
use crate::picture::Palette;
use crate::picture::chart::{Chart, ChartAxis, MOST_PIXELS};
use crate::printable::escaped;
use crate::raster::{PictureLimits, Raster, Side};
use crate::view::region::Region;

/// Draws a slice of a node into a file. Returns lines about it, and its properties as JSON.
pub fn draw(
    hierarchy: &Hierarchy,
    node: &Node,
    typed: &Path,
    region: Option<&Region>,
    file: &Path,
) -> Result<(Vec<String>, Value), Failure> {
    let (columns, rows) = MOST_PIXELS;
    let limits = PictureLimits { columns, rows, height_of_row: 1, len: MOST_READ };
    let raster = read((hierarchy, node), typed, region, &limits)?;
    let not_written = |error: io::Error| failed(format!("{}: {error}", file.display()));
    let png = chart(&raster, hierarchy).png().map_err(not_written)?;
    write(file, &png).map_err(not_written)?;
    let mut facts = facts(&raster);
    if let Value::Object(facts) = &mut facts {
        facts.remove("values");
        facts.insert("file".to_owned(), json!(file.display().to_string()));
    }
    let lines = vec![escaped(&file.display().to_string()).into_owned(), what_was_read(&raster)];
    Ok((lines, facts))
}

/// Returns the chart of a slice.
fn chart<'r>(raster: &'r Raster, hierarchy: &Hierarchy) -> Chart<'r> {
    let known = hierarchy.node(&raster.path).ok().flatten();
    let text = |name: &str| {
        let array = known.as_ref().and_then(|node| node.array())?;
        Some(array.model().attributes.get(name)?.as_str()?.to_owned())
    };
    let own_name = || raster.path.name().unwrap_or_default().to_owned();
    let mut title = text("long_name").or(text("standard_name")).unwrap_or_else(own_name);
    for fixed in &raster.fixed {
        title = format!("{title}, {} = {} of {}", fixed.name, fixed.index, fixed.len);
    }
    Chart {
        title,
        unit: raster.unit.clone().unwrap_or_default(),
        values: &raster.values,
        down: axis(&raster.down),
        across: axis(&raster.across),
        palette: Palette::default(),
        range: None,
    }
}

fn axis(side: &Side) -> ChartAxis {
    let unit = side.unit.as_ref().map_or(String::new(), |unit| format!(" ({unit})"));
    let label = format!("{}{unit}", side.name);
    ChartAxis { label, ends: side.ends, cells: side.cells, elements: side.len }
}

/// Writes a file: all of it, or nothing. A file of this name is replaced; what is no file, such as
/// a terminal, gets the bytes.
fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let found = match fs::metadata(file) {
        Ok(found) => Some(found),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    if found.as_ref().is_some_and(|found| !found.is_file()) {
        return File::options().write(true).open(file)?.write_all(bytes);
    }
    // A link leads to another name.
    let target = if found.is_some() { fs::canonicalize(file)? } else { file.to_owned() };
    let aside = aside(&target);
    let written = File::create_new(&aside)
        .and_then(|mut new| {
            if let Some(found) = &found {
                new.set_permissions(found.permissions())?;
            }
            new.write_all(bytes)
        })
        .and_then(|()| fs::rename(&aside, &target));
    if let Err(error) = &written
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        fs::remove_file(&aside).unwrap_or_else(|error| log::debug!("{error}"));
    }
    written
}

/// Returns the name of a file until it is whole.
fn aside(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}.new-{}", std::process::id()))
}
