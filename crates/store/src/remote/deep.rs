//! Listings of whole subtrees.
//!
//! The chunks of an array often lie in many directories with few names each. When a program goes
//! through them, listings of the directory above that include all levels answer for hundreds of
//! them.
//!
//! Such a listing begins at its start: `SeaweedFS` 4.48 leaves out keys if a listing starts after a
//! key (`start-after`), and a missing name would read as the fill value.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::listing::RemoteListing;
use super::names::NameCache;
use super::paging::Paging;
use super::server::{Depth, ListingPage, Server, Start, wait};
use crate::{Prefix, Stat, StoreEntry};
use zarrfs_base::bounded::{Bounded, MapLimits};
use zarrfs_base::error::Result;

/// A subtree is listed when a program looks into this many of its directories.
const DIRECTORIES: usize = 2;

/// The most pages that are read for one directory.
const PAGES: usize = 2;

/// How many levels above a directory a listing may begin.
const LEVELS: usize = 4;

/// The most directories whose visits are remembered.
const MOST_VISITED: usize = 1024;

/// The directories that programs go through.
#[derive(Debug)]
pub(super) struct Visits {
    /// A leaf lock.
    visited: Mutex<Bounded<Prefix, Visit>>,
}

/// A directory whose directories are looked into.
#[derive(Debug, Default)]
struct Visit {
    /// The one that was looked into last.
    last: String,
    /// How many different ones there were.
    count: usize,
    /// The listing of the subtree, while no thread reads it.
    walk: Option<SubtreeListing>,
    /// Whether the subtree is not worth it: a directory alone has too many names.
    is_broad: bool,
}

/// A listing of a subtree, as far as it was read.
#[derive(Debug)]
pub(super) struct SubtreeListing {
    prefix: Prefix,
    began: RemoteListing,
    /// Where it continues; `None` at its end.
    next: Option<Start>,
    paging: Paging,
    /// Whether the server lists keys in another order than that of their text.
    is_unsorted: bool,
    /// The key that was read last.
    last: String,
    /// The directories that may have more names, by their path below the prefix.
    open: BTreeMap<String, BTreeMap<StoreEntry, Option<Stat>>>,
}

impl Visits {
    pub(super) fn new() -> Self {
        Self { visited: Mutex::new(Bounded::new(MapLimits::entries(MOST_VISITED))) }
    }

    /// Notes that a program will probably go through the directories of this one.
    pub(super) fn expect(&self, above: &Prefix) {
        let mut visited = self.visited.lock();
        visited.get_or_insert(above.clone(), Visit::default);
        drop(visited.set_len(above, 0));
        if let Some(visit) = visited.get_mut(above) {
            visit.count = visit.count.max(DIRECTORIES);
        }
    }

    /// Notes that a program looks into `directory`, whose names are not known. If it looked into
    /// others beside it before, or beside a directory above, lists their subtree as far as this
    /// one. An error is no loss.
    pub(super) fn look_into(&self, directory: &Prefix, server: &dyn Server, names: &NameCache) {
        if !server.lists_subtrees() {
            return;
        }
        let mut below = directory.clone();
        for _ in 0..LEVELS {
            let Some(key) = below.as_key().filter(|_| names.holds()) else { return };
            let above = key.parent();
            if let Some(walk) = self.begin(&above, key.name(), names) {
                let walk = walk.read_past(key.name(), server, names);
                if let Ok(Some(walk)) = &walk
                    && walk.is_at_end()
                {
                    // All keys were read. Before the end it may still come: servers differ in the
                    // order of `a-b/` and `a/`.
                    names.keep_if_unknown(directory, &walk.began);
                }
                let is_read = matches!(walk, Ok(Some(_)));
                self.end(&above, walk);
                if is_read {
                    return;
                }
            }
            below = above;
        }
    }

    /// Notes a visit. Returns the listing of the subtree, if there should be one.
    fn begin(&self, above: &Prefix, name: &str, names: &NameCache) -> Option<SubtreeListing> {
        let mut visited = self.visited.lock();
        visited.get_or_insert(above.clone(), Visit::default);
        drop(visited.set_len(above, 0));
        let visit = visited.get_mut(above)?;
        if visit.last != name {
            name.clone_into(&mut visit.last);
            visit.count = visit.count.saturating_add(1);
        }
        if visit.count < DIRECTORIES || visit.is_broad {
            return None;
        }
        let is_recent = |walk: &SubtreeListing| names.is_recent(&walk.began);
        if visit.walk.as_ref().is_some_and(|walk| is_recent(walk) && walk.is_past(name)) {
            // What it has read of this one is forgotten: there are too many names.
            return None;
        }
        let walk = visit.walk.take().filter(is_recent);
        Some(walk.unwrap_or_else(|| SubtreeListing::new(above)))
    }

    /// Notes how far a listing has come; `None` if it did not come to the directory.
    fn end(&self, above: &Prefix, walk: Result<Option<SubtreeListing>>) {
        let walk = match walk {
            Ok(walk) => walk,
            Err(error) => return log::debug!("{above}: {error}"),
        };
        if let Some(visit) = self.visited.lock().get_mut(above) {
            visit.is_broad = walk.is_none();
            visit.walk = walk;
        }
    }
}

impl SubtreeListing {
    /// Returns a listing of all keys below `prefix`, which begins now.
    pub(super) fn new(prefix: &Prefix) -> Self {
        Self {
            prefix: prefix.clone(),
            began: RemoteListing::new(),
            next: Some(Start::First),
            paging: Paging::default(),
            is_unsorted: false,
            last: String::new(),
            open: BTreeMap::from([(String::new(), BTreeMap::new())]),
        }
    }

    /// Whether all keys were read.
    pub(super) fn is_at_end(&self) -> bool {
        self.next.is_none()
    }

    /// Whether all keys of the directory `name` were read.
    fn is_past(&self, name: &str) -> bool {
        let is_after = || self.last.as_str() > format!("{name}/").as_str();
        self.is_at_end() || (!self.is_unsorted && !is_in(&self.last, name) && is_after())
    }

    /// Reads on until all keys of the directory `name` were read; `None` if it has too many.
    fn read_past(
        mut self,
        name: &str,
        server: &dyn Server,
        names: &NameCache,
    ) -> Result<Option<Self>> {
        for _ in 0..PAGES {
            self.read_page(server, names)?;
            if self.is_past(name) {
                return Ok(Some(self));
            }
        }
        Ok(None)
    }

    /// Reads the next page, keeps the listings that it completes, and returns its keys as paths
    /// below the prefix.
    pub(super) fn read_page(
        &mut self,
        server: &dyn Server,
        names: &NameCache,
    ) -> Result<Vec<String>> {
        let Some(start) = self.next.clone() else { return Ok(Vec::new()) };
        let from = start.clone();
        let page = wait(|report| server.list(&self.prefix, Depth::All, from, report))?;
        self.paging.note(&start, &page)?;
        let mut paths = Vec::with_capacity(page.entries.len());
        let mut is_sorted = true;
        for (entry, stat) in page.entries {
            let path = entry.name().to_owned();
            is_sorted &= self.last <= path;
            self.add(&path, stat);
            self.last.clone_from(&path);
            paths.push(path);
        }
        self.next = page.next.map(Start::Continue);
        if !is_sorted {
            // Then names may come later that belong to any directory.
            self.is_unsorted = true;
        }
        self.keep_whole(names)?;
        Ok(paths)
    }

    /// Keeps the listings of the directories whose last name was read.
    fn keep_whole(&mut self, names: &NameCache) -> Result<()> {
        let is_whole = |directory: &String| {
            self.next.is_none() || !(self.is_unsorted || is_in(&self.last, directory))
        };
        let whole: Vec<String> = self.open.keys().filter(|it| is_whole(it)).cloned().collect();
        for directory in whole {
            if let Some(entries) = self.open.remove(&directory) {
                let mut listing = self.began.clone();
                listing.add(ListingPage { entries: entries.into_iter().collect(), next: None });
                names.keep(&self.prefix.join(&directory)?, &listing);
            }
        }
        Ok(())
    }

    /// Adds a key to its directory, and that to the one above.
    fn add(&mut self, path: &str, stat: Option<Stat>) {
        let (mut directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        let mut entry = (StoreEntry::Key(name.to_owned()), stat);
        loop {
            let names = self.open.entry(directory.to_owned()).or_default();
            names.insert(entry.0, entry.1);
            if directory.is_empty() {
                return;
            }
            let (above, name) = directory.rsplit_once('/').unwrap_or(("", directory));
            entry = (StoreEntry::Prefix(name.to_owned()), None);
            directory = above;
        }
    }
}

/// Whether a key lies in a directory, or in the one that all lie in.
fn is_in(key: &str, directory: &str) -> bool {
    directory.is_empty() || key.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}
