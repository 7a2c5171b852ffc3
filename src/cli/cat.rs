//! `zarrfs cat`: a node in another format, without a mount.

use std::io::{ErrorKind, Write};

use super::args::Cat;
use super::failure::{Failure, failed};
use super::open;
use super::open::remote;
use super::output::print;
use super::output::size;
use crate::cache::ChunkCache;
use crate::cut;
use crate::hierarchy::{HierarchyOptions, ReadExtent};
use crate::resources;
use crate::view::{ElementRange, GetChunk, View, ViewSource};
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
    let extension = args.format.extension;
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
    let view = args.format.view(&source).map_err(|error| {
        failed(format!("{shown}: cannot be shown as {extension}: {}", error.detail()))
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
    let seen = if part.is_some() { ReadExtent::Metadata } else { ReadExtent::Values };
    match hierarchy.not_seen(&[path], seen)?.in_words() {
        Some(why) => Err(failed(format!("{shown}: the file is incomplete: {why}"))),
        None => match view.left_out().unread() {
            0 => Ok(()),
            unread => {
                let nodes = size::counted(unread, "node");
                Err(failed(format!("{shown}: the file is incomplete: {nodes} could not be read")))
            }
        },
    }
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
