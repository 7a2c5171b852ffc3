//! `zarrfs cat`: a node in another format, without a mount.

use std::io::{ErrorKind, Write};

use super::args::Cat;
use super::{Failure, failed, open};
use crate::cache::ChunkCache;
use crate::view::{Elements, GetChunk, Source, View};

/// Bytes that are made at a time.
const STEP: usize = 4 << 20;

/// Writes a node to standard output.
pub fn run(args: &Cat) -> Result<(), Failure> {
    let (hierarchy, path) = open::node_with_groups(&args.source, args.from.as_ref())?;
    let cache = ChunkCache::new(args.cache_size);
    let get: &GetChunk<'_> = &|elements, coords, _| {
        Ok(cache.get(&elements.array, coords)?.map(|chunk| chunk.bytes.into()))
    };
    let shown = args.source.display();
    let extension = args.format.extension;
    let source = Source::new(&hierarchy, &path, get)?;
    let view = args.format.view(&source).map_err(|error| {
        failed(format!("{shown}: there is no {extension} of it: {}", error.detail()))
    })?;
    for elements in view.elements() {
        if let Some(advice) = advice(elements, args.cache_size) {
            log::warn!("{shown}: {advice}");
        }
    }
    write(&view, get)
}

/// What to do where each chunk is decoded many times over, because the cache does not hold a row of them.
fn advice(elements: &Elements, cache_len: u64) -> Option<String> {
    let slab = elements.slab_beyond(cache_len)?;
    Some(format!(
        "{}: a row of chunks has {slab} decoded bytes, and --cache-size is {cache_len}: each chunk is decoded many times",
        elements.path
    ))
}

fn write(view: &View, get: &GetChunk<'_>) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let mut at = 0;
    while at < view.len() {
        let bytes = view.read(at, STEP, get)?;
        at = at.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        match out.write_all(&bytes) {
            // Who reads it has seen enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            written => written.map_err(|error| not_written(&error))?,
        }
    }
    match out.flush() {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(not_written(&error)),
        _ => Ok(()),
    }
}

fn not_written(error: &std::io::Error) -> Failure {
    failed(format!("standard output: {error}"))
}
