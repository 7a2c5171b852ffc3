//! `zarrfs cat`: a node in another format, without a mount.

use std::fmt::Display;
use std::io::{BufWriter, ErrorKind, Write};

use super::args::Cat;
use super::args::values::CatFormat;
use super::failure::{Failure, failed};
use super::open;
use super::open::remote;
use super::output::print;
use super::output::size;
use crate::cache::ChunkCache;
use crate::cut;
use crate::error::Error;
use crate::hierarchy::{HierarchyOptions, ReadExtent};
use crate::resources;
use crate::view::table::{Table, TableForm};
use crate::view::{ElementRange, Format, GetChunk, View, ViewSource};
use crate::width::{ToU64, ToUsize};

/// The number of bytes to produce at a time.
const STEP: u64 = 4 << 20;

/// Writes a node to standard output.
pub fn run(args: &Cat) -> Result<(), Failure> {
    let (hierarchy, path) = open::node_with_groups(&args.source, args.from.as_ref(), &args.remote)?;
    // The other half is for the bytes in progress.
    let half = resources::within_memory(args.cache_size, 4) / 2;
    let cache = ChunkCache::new(half);
    let shown = remote::typed(&args.source);
    let part = args
        .region
        .as_ref()
        .map(|region| cut::open(&hierarchy, &path, region, half, HierarchyOptions::default()));
    let part = part.transpose().map_err(|error| failed(format!("{shown}: {}", error.detail())))?;
    let get: &GetChunk<'_> = &|elements, coords, _| {
        Ok(cache.get(&elements.array, coords)?.map(|chunk| chunk.bytes.into()))
    };
    let hierarchy = part.as_ref().unwrap_or(&hierarchy);
    let source = ViewSource::new(hierarchy, &path, get)?;
    let unread = match args.format {
        CatFormat::View(format) => write_view(args, format, &source, half)?,
        CatFormat::Table(form) => {
            write_table(form, &source, &shown)?;
            0
        }
    };
    let seen = if part.is_some() { ReadExtent::Metadata } else { ReadExtent::Values };
    match hierarchy.not_seen(&[path], seen)?.in_words() {
        Some(why) => Err(failed(format!("{shown}: the file is incomplete: {why}"))),
        None if unread == 0 => Ok(()),
        None => {
            let nodes = size::counted(unread, "node");
            Err(failed(format!("{shown}: the file is incomplete: {nodes} could not be read")))
        }
    }
}

/// Writes a table.
fn write_table(
    form: TableForm,
    source: &ViewSource<'_>,
    shown: &dyn Display,
) -> Result<(), Failure> {
    let wrong = |error: &Error| failed(format!("{shown}: no table: {}", error.detail()));
    let table = Table::of(source).map_err(|error| wrong(&error))?;
    for name in table.left_out() {
        log::warn!("{shown}: left out: {name}, which has other dimensions");
    }
    let mut out = BufWriter::new(std::io::stdout().lock());
    match table.write(form, source.get_chunk(), &mut out) {
        Ok(written) => written.map_err(|error| wrong(&error))?,
        Err(error) => print::ended(Err(error))?,
    }
    print::ended(out.flush())
}

/// Writes a file of another format. Returns how many nodes could not be read.
fn write_view(
    args: &Cat,
    format: &Format,
    source: &ViewSource<'_>,
    half: u64,
) -> Result<usize, Failure> {
    let (shown, get) = (remote::typed(&args.source), source.get_chunk());
    let view = format.view(source).map_err(|error| {
        let (extension, detail) = (format.extension, error.detail());
        failed(format!("{shown}: cannot be shown as {extension}: {detail}"))
    })?;
    let is_beyond = |elements: &ElementRange| elements.slab_len().is_none_or(|slab| slab > half);
    let step = if view.elements().any(is_beyond) { half.max(STEP) } else { STEP };
    let warnings = view.elements().filter_map(|elements| elements.warning(args.cache_size, step));
    for warning in warnings {
        log::warn!("{shown}: {warning}");
    }
    for line in view.left_out().lines() {
        log::warn!("{shown}: left out: {line}");
    }
    write(&view, step, get)?;
    Ok(view.left_out().unread())
}

fn write(view: &View, step: u64, get: &GetChunk<'_>) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let mut at = 0;
    while at < view.len() {
        let until = view.rows_until(at, at.saturating_add(step).min(view.len()));
        let len = until.saturating_sub(at).to_usize();
        let bytes = view.read(at, len, get)?;
        at = at.saturating_add(bytes.len().to_u64());
        match out.write_all(&bytes) {
            // The reader has closed the pipe on purpose.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            written => print::ended(written)?,
        }
    }
    print::ended(out.flush())
}
