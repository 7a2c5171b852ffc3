//! Nodes that appear all at once, in a hierarchy that programs use.
//!
//! The chunks are stored aside, so that no program sees an array before its last value is there,
//! and nothing is left of a copy that was interrupted.

use std::num::NonZero;
use std::sync::Arc;
use std::thread;

use super::chunks::{self, Copied};
use super::options::{CopyOptions, CopyTarget, TargetState, Verify};
use super::plan::ConversionPlan;
use super::survey::StoredState;
use super::watch::CopyWatch;
use crate::array::{Array, FillChunks};
use crate::error::{Error, Result, WithSubject};
use crate::hierarchy::{Hierarchy, NewValues, Raised};
use crate::metadata::NodePath;
use crate::store::{Aside, Key};
use crate::waiting;

/// The most bytes of decoded chunks of the source that are kept.
const CACHE_LEN: u64 = 64 << 20;

/// Makes the planned nodes at `to`. Calls `alone` when all chunks are stored, for what locks out
/// other changes of this mount until the nodes are there. Returns the keys of their chunks.
pub fn make_at_once<L>(
    dest: &Hierarchy,
    to: &NodePath,
    plan: &ConversionPlan,
    fill_chunks: FillChunks,
    alone: impl FnOnce() -> Result<L>,
) -> Result<(Vec<Key>, L)> {
    if let Some((path, error)) = plan.unsupported.iter().chain(&plan.unread).next() {
        return Err(error.clone()).at(path);
    }
    let changes = dest.changes();
    let aside = changes.aside()?;
    let arrays = store_aside(dest, plan, &aside, fill_chunks);
    let arrays = arrays.inspect_err(|_| changes.drop_aside(&aside))?;
    let locked = alone().inspect_err(|_| changes.drop_aside(&aside))?;
    let made: Vec<(NodePath, &Raised)> =
        plan.jobs().iter().map(|job| (job.path.clone(), &job.raised)).collect();
    let new = NewValues { aside: &aside, arrays: &arrays, edits: &[], made: &made };
    // The time of an earlier look does not count.
    Ok((dest.changes().put_new_values(to, new)?, locked))
}

/// Stores the chunks of all arrays aside. Returns the arrays in their order.
fn store_aside(
    dest: &Hierarchy,
    plan: &ConversionPlan,
    aside: &Aside,
    fill_chunks: FillChunks,
) -> Result<Vec<(NodePath, Arc<Array>)>> {
    let options = CopyOptions {
        threads: thread::available_parallelism().map_or(1, NonZero::get),
        verify: Verify::None,
        state: TargetState::Fresh,
        fill_chunks,
        target: CopyTarget::Directory,
        cache_len: CACHE_LEN,
    };
    let (watch, copied) = (ForProgram(waiting::program()), Copied::default());
    let mut arrays = Vec::new();
    for (number, (path, chunks)) in plan.arrays().enumerate() {
        let new = dest.changes().bind_new_values(&chunks.dest, aside, number)?;
        let own = chunks.stored_in(new);
        chunks::copy(
            (path, &own, StoredState::default()),
            dest.store(),
            (&options, &watch),
            &copied,
        )
        .at(path)?;
        arrays.push((path.clone(), Arc::clone(&chunks.dest)));
    }
    Ok(arrays)
}

/// A copy for a program that waits for it, which ends when the program does.
struct ForProgram(Option<waiting::Program>);

impl CopyWatch for ForProgram {
    fn begin(&self, _path: &NodePath, _values: u64) {}

    fn advance(&self) {}

    fn go_on_without(&self, _unread: &Error) -> bool {
        false
    }

    fn is_stopped(&self) -> bool {
        let _works = waiting::work_for(self.0);
        waiting::check().is_err()
    }
}
