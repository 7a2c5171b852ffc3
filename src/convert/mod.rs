//! A copy of a hierarchy in another dialect, with other codecs, chunks or shards.
//!
//! [`plan`] says beforehand what every node becomes, and what the target cannot hold. [`run`] stores all
//! chunks first and all documents last, so that a copy that is not whole has no nodes; a [`Mark`] at its
//! root says what it is, and goes when it is whole. Chunks that are there when a copy is taken up
//! again are whole, since values take their keys by renaming: they are not copied again.

mod chunks;
mod mark;
mod plan;

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Kind, Result};
use crate::hierarchy::Hierarchy;
use crate::metadata::merge::Edit;
use crate::metadata::model::CodecSpec;
use crate::metadata::{NodePath, Shards};
pub use mark::{Mark, Standing};
pub use plan::{Plan, plan};

/// What a copy is to be.
#[derive(Debug, Clone, Default)]
pub struct Wishes {
    /// The codecs of chunks; those of the source where nothing is said and the target has them.
    pub codecs: Option<Vec<CodecSpec>>,
    /// The shape of chunks in arrays of as many dimensions; those of the source where nothing is said.
    pub chunk_shape: Option<Vec<u64>>,
    /// Which chunks are stored together; those of the source where nothing is said and the target has shards.
    pub shards: Option<Shards>,
    /// The nodes that are copied with all below and the groups above them; all where the list is empty.
    pub only: Vec<NodePath>,
}

/// Whether chunks are read back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// Every chunk, and compared with the source.
    All,
    /// None.
    None,
}

/// How a copy is made.
#[derive(Debug, Clone)]
pub struct How {
    /// How many chunks are worked on at a time.
    pub threads: usize,
    /// Whether chunks are read back.
    pub verify: Verify,
    /// Whether values that the target has already are taken to be whole.
    pub standing: Standing,
    /// Bytes for decoded chunks of the source that are needed more than once.
    pub cache_len: u64,
}

/// Who is told how far a copy has come, and may end it.
pub trait Watch: Sync {
    /// An array begins that has so many values to store.
    fn begin(&self, path: &NodePath, values: u64);
    /// One of them is done.
    fn advance(&self);
    /// Whether to end early.
    fn is_stopped(&self) -> bool;
}

/// What was copied.
#[derive(Debug, Default)]
pub struct Copied {
    /// Values that were stored: chunks, or shards.
    pub stored: AtomicU64,
    /// Values that were there already.
    pub found: AtomicU64,
    /// Decoded bytes of the chunks that were stored.
    pub bytes: AtomicU64,
}

impl Copied {
    fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

/// Makes the copy that was planned.
pub fn run(dest: &Hierarchy, plan: &Plan, how: &How, watch: &dyn Watch) -> Result<Copied> {
    let copied = Copied::default();
    for (path, array) in plan.arrays() {
        chunks::copy((path, array), dest.store(), (how, watch), &copied)?;
    }
    store_documents(dest, plan)?;
    Ok(copied)
}

/// Stores the documents of all nodes, the groups first.
fn store_documents(dest: &Hierarchy, plan: &Plan) -> Result<()> {
    let mut keys: Vec<_> = dest.store_entry_point()?.into_iter().collect();
    for job in plan.jobs() {
        dest.invalidate(&job.path);
        let known = dest.node(&job.path)?.and_then(|node| node.stored().cloned());
        keys.extend(match known {
            Some(document) => document.keys(),
            None => vec![dest.put_document(&job.path, &job.raised, None)?],
        });
    }
    let consolidated = Edit { consolidated: Some(true), ..Edit::default() };
    for job in plan.jobs().iter().rev().filter(|job| job.consolidated) {
        dest.edit(&job.path, &consolidated)?;
    }
    dest.store().write()?.sync(&keys)
}

/// Why a copy ended early.
fn stopped() -> Error {
    Error::new(Kind::Busy, "interrupted")
}
