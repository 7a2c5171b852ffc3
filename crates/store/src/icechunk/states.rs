//! All states of a repository as directories:
//!
//! ```text
//! .zarrfs/branches/NAME/                       the snapshot that the branch has now
//! .zarrfs/tags/NAME/
//! .zarrfs/snapshots/20261125T180507Z-ID/       by the times of the snapshots
//! ```
//!
//! Each is a whole tree, which is read when it is entered. The names are read again after a while.
//! The directories above the trees are groups, and so is an empty snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use parking_lot::Mutex;

use super::file::Id;
use super::names::StateNames;
use super::read_snapshot;
use super::tree::{DOCUMENT, Manifests, SnapshotTree};
use crate::refs::{Reference, ReferenceTarget, version_of};
use crate::{BRANCHES, PRIVATE, SNAPSHOTS, STATES, Store, StoreEntry, TAGS, is_component};
use zarrfs_base::bounded::{Bounded, MapLimits};
use zarrfs_base::error::Result;
use zarrfs_base::resources;

/// The metadata file of a group without attributes.
const GROUP: &[u8] = br#"{"zarr_format": 3, "node_type": "group"}"#;

/// Returns the most snapshots whose nodes are in memory, and the most bytes of them, or one.
fn trees() -> MapLimits {
    MapLimits { count: 16, len: resources::within_memory(256 << 20, 8) }
}

/// The most snapshots that are listed in version 1, where each must be read.
const MAX_SNAPSHOTS: usize = 10_000;

/// The states of a repository.
#[derive(Debug)]
pub(super) struct States {
    own: Store,
    manifests: Arc<Manifests>,
    ttl: Duration,
    /// The directories, when they were read. A leaf lock.
    read: Mutex<Option<(Instant, Arc<StateListing>)>>,
    /// Snapshots that were entered. A leaf lock.
    trees: Mutex<Bounded<Id, Arc<SnapshotTree>>>,
}

/// The names of all states.
#[derive(Debug)]
struct StateListing {
    branches: BTreeMap<String, Id>,
    tags: BTreeMap<String, Id>,
    snapshots: BTreeMap<String, Id>,
    /// The time of the last snapshot.
    newest: SystemTime,
}

impl StateListing {
    fn kind(&self, kind: &str) -> Option<&BTreeMap<String, Id>> {
        match kind {
            BRANCHES => Some(&self.branches),
            TAGS => Some(&self.tags),
            SNAPSHOTS => Some(&self.snapshots),
            _ => None,
        }
    }
}

impl States {
    /// Returns the states of the repository in `own`.
    pub fn new(own: Store, manifests: Arc<Manifests>, ttl: Duration) -> Self {
        let trees = Mutex::new(Bounded::new(trees()));
        Self { own, manifests, ttl, read: Mutex::default(), trees }
    }

    /// Returns the rest of a path below the directory with the states; `None` if it is not there.
    pub fn below(path: &str) -> Option<&str> {
        let rest = path.strip_prefix(PRIVATE)?;
        if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
    }

    fn directories(&self) -> Result<Arc<StateListing>> {
        if let Some((at, read)) = &*self.read.lock()
            && at.elapsed() < self.ttl
        {
            return Ok(Arc::clone(read));
        }
        let at = Instant::now();
        let StateNames { mut branches, mut tags, snapshots } = StateNames::read(&self.own)?;
        let snapshots = match snapshots {
            Some(snapshots) => snapshots,
            None => self.snapshots_of(branches.values().chain(tags.values()).copied().collect())?,
        };
        // A name with a slash has no directory. Its snapshot has one.
        branches.retain(|name, _| is_component(name));
        tags.retain(|name, _| is_component(name));
        let newest = snapshots.values().max().copied().unwrap_or(SystemTime::UNIX_EPOCH);
        let snapshots = snapshots.into_iter().map(|(id, time)| (directory_name(id, time), id));
        let read = StateListing { branches, tags, snapshots: snapshots.collect(), newest };
        let read = Arc::new(read);
        *self.read.lock() = Some((at, Arc::clone(&read)));
        Ok(read)
    }

    /// Returns the snapshots that lead to `ids`, and their times: in version 1 each names the one
    /// before it.
    fn snapshots_of(&self, mut ids: Vec<Id>) -> Result<BTreeMap<Id, SystemTime>> {
        let mut found = BTreeMap::new();
        while let Some(id) = ids.pop() {
            if found.contains_key(&id) || found.len() >= MAX_SNAPSHOTS {
                continue;
            }
            let tree = self.tree(id)?;
            found.insert(id, tree.snapshot().time);
            ids.extend(tree.snapshot().parent);
        }
        Ok(found)
    }

    fn tree(&self, id: Id) -> Result<Arc<SnapshotTree>> {
        if let Some(tree) = self.trees.lock().get(&id) {
            return Ok(Arc::clone(tree));
        }
        let snapshot = read_snapshot(&self.own, id)?;
        let len = snapshot.len();
        let tree = Arc::new(SnapshotTree::new(snapshot, Arc::clone(&self.manifests)));
        let evicted = self.trees.lock().put(id, Arc::clone(&tree), len);
        drop(evicted);
        Ok(tree)
    }

    /// Returns the reference of a key below the directory with the states.
    pub fn find(&self, below: &str) -> Result<Option<Reference>> {
        let group = |modified| {
            let target = ReferenceTarget::Inline(Bytes::from_static(GROUP));
            Ok(Some(Reference { target, version: version_of(GROUP, 0, 0), modified }))
        };
        if let Some(kind) = below.strip_suffix(DOCUMENT).and_then(|it| it.strip_suffix('/'))
            && STATES.contains(&kind)
        {
            return group(self.directories()?.newest);
        }
        let Some((tree, path)) = self.tree_of(below)? else { return Ok(None) };
        match tree.find(&[path])?.pop().flatten() {
            // The first snapshot of a repository has no nodes.
            None if path == DOCUMENT => group(tree.snapshot().time),
            found => Ok(found),
        }
    }

    /// Returns the tree that has the path `below`, and the path in it.
    fn tree_of<'p>(&self, below: &'p str) -> Result<Option<(Arc<SnapshotTree>, &'p str)>> {
        let Some((kind, rest)) = below.split_once('/') else { return Ok(None) };
        let (name, rest) = rest.split_once('/').unwrap_or((rest, ""));
        let directories = self.directories()?;
        let id = directories.kind(kind).and_then(|names| names.get(name));
        id.map(|id| Ok((self.tree(*id)?, rest))).transpose()
    }

    /// Lists the entries directly below a path.
    pub fn list(&self, below: &str) -> Result<Vec<StoreEntry>> {
        let prefixes = |names: Vec<&str>| {
            names.into_iter().map(|name| StoreEntry::Prefix(name.to_owned())).collect()
        };
        if below.is_empty() {
            return Ok(prefixes(STATES.to_vec()));
        }
        if !below.contains('/') {
            let directories = self.directories()?;
            let Some(names) = directories.kind(below) else { return Ok(Vec::new()) };
            let mut entries: Vec<StoreEntry> = prefixes(names.keys().map(String::as_str).collect());
            entries.push(StoreEntry::Key(DOCUMENT.to_owned()));
            return Ok(entries);
        }
        match self.tree_of(below)? {
            Some((tree, "")) if tree.snapshot().is_empty() => {
                Ok(vec![StoreEntry::Key(DOCUMENT.to_owned())])
            }
            Some((tree, path)) => tree.list(path),
            None => Ok(Vec::new()),
        }
    }
}

/// Returns the name of the directory of a snapshot: `20261125T180507Z-1CECHNKREP0F1RSTCMT0`.
fn directory_name(id: Id, time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, seconds) = (since / 86_400, since % 86_400);
    // Days of 400 years that begin with a March, so that the leap day is the last of its year.
    let shifted = days.saturating_add(719_468);
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let leap_days = day / 1460 + day / 146_096 - day / 36_524;
    let year = (day - leap_days) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era.saturating_mul(400).saturating_add(year).saturating_add(next);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z-{id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_of_a_snapshot_has_its_time_and_id() {
        let id = Id::parse("1CECHNKREP0F1RSTCMT0").unwrap();
        for (seconds, want) in [
            (0, "19700101T000000Z"),
            (951_782_399, "20000228T235959Z"),
            (951_868_799, "20000229T235959Z"),
            (951_868_800, "20000301T000000Z"),
            (1_795_629_907, "20261125T180507Z"),
            (4_107_542_400, "21000301T000000Z"),
        ] {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(directory_name(id, time), format!("{want}-1CECHNKREP0F1RSTCMT0"));
        }
    }
}
