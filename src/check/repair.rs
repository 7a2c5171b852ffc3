//! Repairs that take no guessing: they remove leftover files, rebuild consolidated metadata,
//! rewrite shards without unused bytes, and move damaged chunks out of the store.
//!
//! Each step is complete or has no effect, so a repair that was killed can be run again. No other
//! value changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::thread;
use std::time::Duration;

use super::finding::{Finding, FindingPlace, Repair};
use crate::array::ChunkChange;
use crate::error::{Error, Kind, Result, WithSubject, Word};
use crate::hierarchy::Hierarchy;
use crate::metadata::NodePath;
use crate::store::{Condition, Key, Store};

/// How long a temporary file must have been unchanged before it is removed.
const LEFTOVER_AGE: Duration = Duration::from_secs(3);

/// The most chunks to name in the line for a step.
const MOST_NAMED: usize = 8;

/// Which temporary files a repair removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leftovers {
    /// Those of zarrfs, and lock files, which the next writer of the key would take over.
    Own,
    /// Also files that have the name of a temporary file of another program.
    All,
}

/// Receives values that a repair moves out of the store.
pub trait Quarantine {
    /// Keeps a copy of a value. It must be on disk when this returns.
    fn keep(&self, key: &Key, store: &Store) -> Result<()>;
}

/// A step of a repair.
#[derive(Debug)]
pub enum RepairStep {
    /// Finish or undo interrupted changes, and remove the files that killed mounts left.
    Recover,
    /// Remove a temporary file.
    Remove(Key),
    /// Remove a lock file.
    RemoveLock(String),
    /// Move chunks of a value out of the store: the whole value if they are in the first level.
    Quarantine {
        /// The stored value.
        key: Key,
        /// The chunks or shards in it.
        damaged: Vec<FindingPlace>,
    },
    /// Rewrite a shard without its unused bytes.
    Compact {
        /// The stored value.
        key: Key,
        /// The shard, which may be nested in another one.
        shard: FindingPlace,
    },
    /// Rebuild consolidated metadata.
    Consolidate(NodePath),
}

impl fmt::Display for RepairStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recover => f.write_str("finish or undo interrupted changes"),
            Self::Remove(key) => write!(f, "remove {key}"),
            Self::RemoveLock(path) => write!(f, "remove {path}"),
            Self::Quarantine { key, damaged } => {
                let inner = damaged.iter().filter(|place| place.level > 0);
                let inner: Vec<String> = inner.map(|place| place.coords.to_string()).collect();
                if inner.len() < damaged.len() {
                    return write!(f, "move {key} to quarantine");
                }
                let named = inner.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join(" ");
                let more = inner.len().saturating_sub(MOST_NAMED);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                write!(f, "copy {key} to quarantine, and remove {named}{more} from the shard")
            }
            Self::Compact { key, .. } => write!(f, "rewrite {key} without unused bytes"),
            Self::Consolidate(path) => write!(f, "rebuild the consolidated metadata of {path}"),
        }
    }
}

/// Returns the steps that repair `findings`. Damaged chunks stay where they are unless
/// `moves_damaged`.
pub fn plan(
    findings: &[Finding],
    moves_damaged: bool,
    removes: Leftovers,
) -> Result<Vec<RepairStep>> {
    let mut steps = Vec::new();
    let mut recovers = false;
    let mut removed = BTreeSet::new();
    let mut damaged: BTreeMap<Key, Vec<FindingPlace>> = BTreeMap::new();
    let mut shards = Vec::new();
    let mut groups: BTreeMap<String, NodePath> = BTreeMap::new();
    for repair in findings.iter().filter_map(|finding| finding.repair.as_ref()) {
        match repair {
            Repair::Recover => recovers = true,
            Repair::Remove(key) if removes == Leftovers::All => drop(removed.insert(key.clone())),
            Repair::RemoveLock(path) => steps.push(RepairStep::RemoveLock(path.clone())),
            Repair::Quarantine(place) if moves_damaged => {
                let key = place.array.key_of_level(place.level, &place.coords)?;
                damaged.entry(key).or_default().push(place.clone());
            }
            // Only if the user says so.
            Repair::Remove(_) | Repair::Quarantine(_) => {}
            Repair::Compact(shard) => {
                let key = shard.array.key_of_level(shard.level, &shard.coords)?;
                shards.push((key, shard.clone()));
            }
            Repair::Consolidate(path) => {
                drop(groups.insert(path.as_str().to_owned(), path.clone()));
            }
        }
    }
    if recovers {
        steps.insert(0, RepairStep::Recover);
    }
    steps.extend(removed.into_iter().map(RepairStep::Remove));
    // Removing a damaged chunk stores its shard without unused bytes.
    let is_inner = |place: &FindingPlace| place.level <= 1;
    shards.retain(|(key, _)| !damaged.get(key).is_some_and(|all| all.iter().all(is_inner)));
    steps.extend(damaged.into_iter().map(|(key, damaged)| RepairStep::Quarantine { key, damaged }));
    steps.extend(shards.into_iter().map(|(key, shard)| RepairStep::Compact { key, shard }));
    steps.extend(groups.into_values().map(RepairStep::Consolidate));
    Ok(steps)
}

/// Takes one step.
pub fn take(
    hierarchy: &Hierarchy,
    step: &RepairStep,
    quarantine: Option<&dyn Quarantine>,
) -> Result<()> {
    let store = hierarchy.store();
    match step {
        RepairStep::Recover => {
            hierarchy.recovery().recover();
            Ok(())
        }
        RepairStep::Remove(key) => remove_leftover(store, key),
        RepairStep::RemoveLock(path) => store.write()?.remove_lock(path).map(drop),
        RepairStep::Quarantine { key, damaged } => {
            let Some(quarantine) = quarantine else { return Ok(()) };
            // Another program may have written good bytes since.
            let mut changes = Vec::new();
            for place in damaged {
                let change = still_damaged(place).at(key)?;
                changes.extend(change.map(|change| (place, change)));
            }
            if changes.is_empty() {
                return Ok(());
            }
            quarantine.keep(key, store).at(key)?;
            erase(changes).at(key)
        }
        RepairStep::Compact { key, shard } => {
            let above = shard.array.levels().get(shard.level.saturating_add(1));
            above.map_or(Ok(()), |chunks| chunks.compact(&shard.coords)).at(key)
        }
        RepairStep::Consolidate(path) => hierarchy.copies().rebuild(path),
    }
}

/// Removes a temporary file, unless a program is writing it.
fn remove_leftover(store: &Store, key: &Key) -> Result<()> {
    let Some(stat) = store.stat(key)? else { return Ok(()) };
    let in_use = || Error::new(Kind::Busy, "a program is still writing this file");
    // zarr-python closes the file before it renames it.
    let age = stat.modified.elapsed().unwrap_or_default();
    if age < LEFTOVER_AGE {
        thread::sleep(LEFTOVER_AGE.saturating_sub(age));
    }
    let Some(now) = store.stat(key)? else { return Ok(()) };
    if !stat.version.is_same(now.version) {
        return Err(in_use().at(key));
    }
    // Every program that is still writing it has it open.
    if let Some((file, _)) = store.read().open(key)?
        && crate::sys::is_written(file)?
    {
        return Err(in_use().at(key));
    }
    store.write()?.erase_unchanged(key, now.version)
}

/// Returns the change that removes a chunk or shard, if it is still damaged. The change fails if
/// another program replaces the value first.
fn still_damaged(place: &FindingPlace) -> Result<Option<ChunkChange>> {
    let levels = place.array.levels();
    let Some(chunks) = levels.get(place.level) else { return Ok(None) };
    let stat = chunks.stat(std::slice::from_ref(&place.coords))?.pop().flatten();
    let Some(stat) = stat else { return Ok(None) };
    let read = match levels.get(place.level.saturating_add(1)) {
        Some(inner) => inner.shard_usage(&place.coords).map(drop),
        None => place.array.read_chunk(&place.coords).map(drop),
    };
    match read {
        Ok(()) => Ok(None),
        // What zarrfs only does not read stays where it is.
        Err(error) if error.word() == Word::Damaged => Ok(Some(ChunkChange {
            coords: place.coords.clone(),
            value: None,
            condition: Condition::Unchanged(stat.version),
        })),
        Err(error) if matches!(error.word(), Word::Unsupported | Word::Limited) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Erases damaged chunks of a stored value, the outermost first.
fn erase(changes: Vec<(&FindingPlace, ChunkChange)>) -> Result<()> {
    let mut by_level: BTreeMap<usize, (&FindingPlace, Vec<ChunkChange>)> = BTreeMap::new();
    for (place, change) in changes {
        by_level.entry(place.level).or_insert((place, Vec::new())).1.push(change);
    }
    // A change in one level changes the versions in the others: the next repair erases those.
    let Some((level, (place, changes))) = by_level.into_iter().next() else { return Ok(()) };
    let Some(chunks) = place.array.levels().get(level) else { return Ok(()) };
    chunks.update(changes).map(drop)
}
