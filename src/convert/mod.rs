//! A copy of a hierarchy in another dialect, with other codecs, chunks or shards.
//!
//! [`plan`] decides beforehand what every node becomes, and which nodes the target cannot hold.
//! [`run`] stores all chunks first and all metadata files last, so an incomplete copy has no nodes.
//! A [`Mark`] at the root identifies an incomplete copy and is removed at the end. If a copy is
//! continued after an interruption, existing chunks are complete, since values are renamed to their
//! keys; they are copied again only if the source has changed.
//!
//! A copy has the state of the source at one moment, unless other programs keep writing to the
//! source: a [`Survey`] before the first chunk is read is compared with one after the last. Arrays
//! that changed in between are compared with the copy, chunk by chunk, once; arrays that have
//! changed again by then are listed in [`Copied::changing`]. Each stored node is read back and
//! compared with the plan.
//!
//! In a mount, metadata files are stored first, because chunk files go through the codecs of their
//! array.

mod aside;
mod chunks;
mod compare;
pub mod hold;
mod mark;
mod options;
mod plan;
mod survey;
mod units;
mod watch;

use std::sync::atomic::Ordering;

use crate::error::{Error, Kind, Result, WithSubject};
use crate::hierarchy::{Content, Hierarchy, Node};
use crate::metadata::NodePath;
use crate::metadata::merge::Edit;
use crate::metadata::model::Group;
pub use aside::make_at_once;
pub use chunks::Copied;
pub use compare::{difference, difference_of_copy};
pub use mark::{Claim, Mark, Passed, is_ignored};
pub use options::{CopyOptions, CopyTarget, TargetState, Verify};
pub use plan::{ChunkPlan, ConversionPlan, Requested, plan};
pub use survey::Survey;
use survey::{SourceChange, StoredState};
pub use watch::CopyWatch;
use watch::stopped;

/// Makes a planned copy. `survey` was made before the plan. `survey_again` makes another one, and
/// fails if the plan would be different now.
pub fn run(
    dest: &Hierarchy,
    plan: &ConversionPlan,
    survey: &Survey,
    options: &CopyOptions,
    watch: &dyn CopyWatch,
    survey_again: &dyn Fn() -> Result<Survey>,
) -> Result<Copied> {
    let mut copied = Copied::default();
    if options.target == CopyTarget::Mount {
        store_documents(dest, plan, options.target, watch)?;
    }
    copy_arrays(dest, stored(plan, survey), options, watch, &copied)?;
    let second = survey_again()?;
    let changes = second.compare(survey);
    if changes.iter().any(|change| *change != SourceChange::None) {
        let options = CopyOptions { state: TargetState::Doubtful, ..options.clone() };
        let changed = stored(plan, &second).zip(&changes);
        let changed =
            changed.filter(|(_, change)| **change != SourceChange::None).map(|(array, _)| array);
        copy_arrays(dest, changed, &options, watch, &Copied::default())?;
        let third = survey_again()?;
        let again = stored(plan, &third).zip(third.compare(&second));
        for (array, change) in again.filter(|(_, change)| *change != SourceChange::None) {
            let path = array.0;
            // If only the versions changed, the files of the source may just have new inode
            // numbers, so the chunks are compared once more.
            if change == SourceChange::Sure || recopy_differing(dest, array, &options, watch)? {
                copied.changing.push(path.clone());
            }
        }
    }
    if options.target == CopyTarget::Directory {
        store_documents(dest, plan, options.target, watch)?;
    }
    Ok(copied)
}

/// Compares the chunks of an array with the copy, and copies those that differ again. Returns
/// whether any differ.
fn recopy_differing(
    dest: &Hierarchy,
    array: (&NodePath, &ChunkPlan, StoredState),
    options: &CopyOptions,
    watch: &dyn CopyWatch,
) -> Result<bool> {
    let compared = Copied::default();
    copy_arrays(dest, std::iter::once(array), options, watch, &compared)?;
    Ok(compared.stored.load(Ordering::Relaxed) > 0)
}

/// Returns each array of a plan, with its stored chunks.
fn stored<'p>(
    plan: &'p ConversionPlan,
    survey: &'p Survey,
) -> impl Iterator<Item = (&'p NodePath, &'p ChunkPlan, StoredState)> {
    plan.arrays().zip(survey.arrays()).map(|((path, chunks), (_, stored))| (path, chunks, stored))
}

/// Copies the chunks of these arrays.
fn copy_arrays<'p>(
    dest: &Hierarchy,
    arrays: impl Iterator<Item = (&'p NodePath, &'p ChunkPlan, StoredState)>,
    options: &CopyOptions,
    watch: &dyn CopyWatch,
    copied: &Copied,
) -> Result<()> {
    for (path, chunks, stored) in arrays {
        match options.target {
            CopyTarget::Directory => {
                chunks::copy((path, chunks, stored), dest.store(), (options, watch), copied)?;
            }
            CopyTarget::Mount => {
                // The mount may show it in another form than the one that was written.
                let node = dest.existing(path)?;
                let shown = node.array().ok_or_else(|| Error::not_found().at(path))?;
                let chunks = chunks.shown_as(shown);
                chunks::copy((path, &chunks, stored), dest.store(), (options, watch), copied)?;
            }
        }
    }
    Ok(())
}

/// Stores the metadata files of all nodes, the groups first. Then reads each back, because the
/// owner of the target, or another program, may have changed it.
fn store_documents(
    dest: &Hierarchy,
    plan: &ConversionPlan,
    target: CopyTarget,
    watch: &dyn CopyWatch,
) -> Result<()> {
    let go_on = || if watch.is_stopped() { Err(stopped()) } else { Ok(()) };
    let mut keys: Vec<_> = dest.changes().store_entry_point()?.into_iter().collect();
    for job in plan.jobs() {
        go_on()?;
        dest.invalidate(&job.path);
        let found = dest.node(&job.path)?;
        let known = found.as_ref().and_then(|node| node.stored());
        let content = job.raised.content();
        match found.as_deref().zip(known) {
            None => {
                keys.push(dest.changes().put_document(&job.path, &job.raised, None).at(&job.path)?);
            }
            Some((node, known)) => match difference(content, Some(node), target) {
                None => keys.extend(known.keys()),
                // A mount shows a directory as such a group.
                Some(_) if is_empty_group(node) => {
                    let put = dest.changes().put_document(&job.path, &job.raised, Some(known));
                    keys.push(put.at(&job.path)?);
                }
                Some(difference) => {
                    let detail = format!("a different node is stored there: {difference}");
                    return Err(Error::new(Kind::Exists, detail).at(&job.path));
                }
            },
        }
    }
    let consolidated = Edit { consolidated: Some(true), ..Edit::default() };
    for job in plan.jobs().iter().rev().filter(|job| job.consolidated) {
        go_on()?;
        dest.changes().edit(&job.path, &consolidated)?;
    }
    dest.store().write()?.sync(&keys)?;
    for job in plan.jobs() {
        go_on()?;
        dest.invalidate(&job.path);
        let found = dest.node(&job.path)?;
        let difference = difference(job.raised.content(), found.as_deref(), target);
        if let Some(difference) = difference {
            let detail = format!("the stored node differs from the planned one: {difference}");
            return Err(Error::corrupt(detail).at(&job.path));
        }
    }
    Ok(())
}

/// Whether a node is a group without contents, which may be replaced.
fn is_empty_group(node: &Node) -> bool {
    match node.content() {
        Content::Group(Group { attributes, consolidated }) => {
            attributes.is_empty() && !consolidated && node.document().is_some()
        }
        Content::Array(_) | Content::NotUnderstood(..) => false,
    }
}

#[cfg(test)]
mod tests;
