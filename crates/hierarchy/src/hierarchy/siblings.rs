//! Metadata files that a program will probably read next, in a store that takes long.
//!
//! A program that reads the metadata files of two nodes in a row usually reads those of the others
//! in the group, too: `cat */zarr.json`, `ls -l *`, a view of the group. Each would take a round
//! trip. So the next ones by name are requested in advance, a few at first, and more as long as the
//! program reads what was requested.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::metadata::NodePath;
use zarrfs_base::bounded::{Bounded, MapLimits};
use zarrfs_base::width::ToU64;
use zarrfs_store::Expected;

/// The fewest and the most nodes whose metadata files are requested together.
const TOGETHER: (usize, usize) = (8, 256);

/// A program goes through a group if the second node that it reads comes at most this many names
/// after the first.
const MOST_SKIPPED: usize = 4;

/// The most bytes of the names of all groups.
const MOST_LEN: u64 = 16 << 20;

/// The bytes of a group besides its names.
const GROUP_LEN: u64 = 1 << 10;

/// The batches of requests of a group that are kept alive. Of more, programs have read the first.
const MOST_KEPT: usize = 3;

/// The groups whose nodes programs read.
#[derive(Debug)]
pub(super) struct Siblings {
    /// A leaf lock.
    groups: Mutex<Bounded<NodePath, Reading>>,
}

/// How far the nodes of a group were read.
#[derive(Debug, Default)]
struct Reading {
    /// The place among the names of the node that was read last.
    at: Option<usize>,
    /// How many nodes in a row had been requested in advance when they were read.
    hits: usize,
    /// The sorted names in the group, and when they were listed.
    names: Option<(Instant, Arc<[String]>)>,
    /// The names before this one were requested.
    until: usize,
    /// The nodes that were requested in advance and not read yet.
    requested: HashSet<String>,
    /// Keeps the requests alive.
    expected: VecDeque<Expected>,
}

impl Default for Siblings {
    fn default() -> Self {
        Self { groups: Mutex::new(Bounded::new(MapLimits::bytes(MOST_LEN))) }
    }
}

impl Siblings {
    /// Notes that the metadata file of `name` in `group` is read. Returns the names of the nodes
    /// that the program will probably read next and that were not requested yet. `list` lists the
    /// names in the group, sorted, if no request is needed for that; they are used for `ttl`.
    pub(super) fn next(
        &self,
        group: &NodePath,
        name: &str,
        ttl: Duration,
        list: impl FnOnce() -> Option<Vec<String>>,
    ) -> Vec<String> {
        let known = self.names(group, ttl);
        let Some(names) = known.or_else(|| self.keep_names(group, list()?)) else {
            return Vec::new();
        };
        // Programs also ask for files that are no nodes.
        let Ok(at) = names.binary_search_by(|it| (**it).cmp(name)) else { return Vec::new() };
        let mut groups = self.groups.lock();
        let Some(reading) = groups.get_mut(group).filter(|reading| reading.at != Some(at)) else {
            return Vec::new();
        };
        let before = reading.at.replace(at);
        if reading.requested.remove(name) {
            reading.hits = reading.hits.saturating_add(1);
            if reading.requested.len() > reading.hits.min(TOGETHER.1 / 2) {
                return Vec::new();
            }
        } else {
            reading.hits = 0;
            reading.until = at.saturating_add(1);
            reading.requested.clear();
            if !before.is_some_and(|before| before < at && at - before <= MOST_SKIPPED) {
                return Vec::new();
            }
        }
        let most = reading.hits.saturating_mul(2).clamp(TOGETHER.0, TOGETHER.1);
        let next = names.get(reading.until..).unwrap_or_default();
        let next: Vec<String> = next.iter().take(most).cloned().collect();
        reading.until = reading.until.saturating_add(next.len());
        reading.requested.extend(next.iter().cloned());
        next
    }

    /// Returns the names in a group, if they were listed recently.
    fn names(&self, group: &NodePath, ttl: Duration) -> Option<Arc<[String]>> {
        let mut groups = self.groups.lock();
        let (listed, names) = groups.get(group)?.names.as_ref()?;
        (listed.elapsed() < ttl).then(|| Arc::clone(names))
    }

    fn keep_names(&self, group: &NodePath, names: Vec<String>) -> Option<Arc<[String]>> {
        let names: Arc<[String]> = names.into();
        let len_of = |name: &String| name.len().saturating_add(size_of::<String>());
        let len = names.iter().map(len_of).fold(0, usize::saturating_add);
        let len = len.to_u64().saturating_add(GROUP_LEN);
        let mut groups = self.groups.lock();
        groups.get_or_insert(group.clone(), Reading::default);
        let reading = groups.get_mut(group)?;
        // The places of the names may have changed.
        reading.at = None;
        reading.hits = 0;
        reading.requested.clear();
        reading.names = Some((Instant::now(), Arc::clone(&names)));
        let gone = groups.set_len(group, len);
        drop(groups);
        drop(gone);
        Some(names)
    }

    /// Keeps the requests for nodes of a group alive.
    pub(super) fn keep(&self, group: &NodePath, expected: Expected) {
        let mut groups = self.groups.lock();
        let Some(reading) = groups.get_mut(group) else { return };
        reading.expected.push_back(expected);
        let many = reading.expected.len() > MOST_KEPT;
        let passed = many.then(|| reading.expected.pop_front());
        drop(groups);
        drop(passed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(60);

    fn names() -> Vec<String> {
        (0..1000).map(|number| format!("a{number:03}")).collect()
    }

    #[test]
    fn a_program_that_reads_all_nodes_has_each_requested_once_and_more_and_more_together() {
        let (siblings, group) = (Siblings::default(), NodePath::root());
        let (mut requested, mut batches) = (vec![names()[0].clone(), names()[1].clone()], 0);
        for name in names() {
            let next = siblings.next(&group, &name, TTL, || Some(names()));
            batches += usize::from(!next.is_empty());
            requested.extend(next);
            // All but the first two nodes are requested before they are read.
            assert!(requested.contains(&name), "{name} was not requested");
        }
        assert_eq!(requested, names());
        assert!(batches < 20, "{batches} batches");
    }

    #[test]
    fn a_program_that_reads_here_and_there_has_nothing_requested() {
        let (siblings, group, all) = (Siblings::default(), NodePath::root(), names());
        let next = |name: &str| siblings.next(&group, name, TTL, || Some(names()));
        for at in [500, 10, 900, 300, 700, 20, 10] {
            assert!(next(&all[at]).is_empty());
            // Again, and a file that is no node.
            assert!(next(&all[at]).is_empty());
            assert!(next(&format!("{}.npy", all[at])).is_empty());
        }
        assert_eq!(next(&all[13]), all[14..22], "the third after the one before it");
    }

    #[test]
    fn nothing_is_requested_in_a_group_whose_names_are_not_known() {
        let (siblings, group) = (Siblings::default(), NodePath::root());
        for name in names() {
            assert!(siblings.next(&group, &name, TTL, || None).is_empty());
        }
        let other = NodePath::root().child("g").expect("a name");
        for name in ["a", "b", "c"] {
            let all = || Some(vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]);
            let next = siblings.next(&other, name, TTL, all);
            assert_eq!(next, if name == "b" { vec!["c"] } else { Vec::new() }, "{name}");
        }
    }
}
