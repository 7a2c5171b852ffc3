//! A listing of a directory, with what this process changed in it since.
//!
//! The entries have no stat. The store keeps the stats of its last listings, so the `stat` that
//! follows takes no request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use super::names::KnownPresence;
use super::server::{Continuation, ListingPage};
use crate::{Stat, StoreEntry};
use zarrfs_base::width::ToU64;

/// The memory of a name besides its text, in bytes.
const LEN_OF_NAME: usize = 96;

/// The most changes of this process that a listing holds.
const MOST_OWN: usize = 1 << 16;

/// A name of a listing; a value has its stat.
pub(super) type ListedName = (StoreEntry, Option<Stat>);

/// A listing, as far as it was read.
#[derive(Debug, Clone)]
pub(super) struct RemoteListing {
    /// When its first page was requested.
    pub(super) began: Instant,
    pages: Vec<Arc<[ListedName]>>,
    len: usize,
    /// Where it continues; `None` if all of it was read.
    next: Option<Continuation>,
    /// What this process created since, with the stat of a value, and what it removed.
    own: Arc<BTreeMap<StoreEntry, OwnChange>>,
}

/// A change of a name by this process.
#[derive(Debug, Clone, Copy)]
pub(super) enum OwnChange {
    Present(Option<Stat>),
    Absent,
}

impl RemoteListing {
    /// Returns a listing that begins now.
    pub(super) fn new() -> Self {
        Self::empty(Instant::now())
    }

    /// Returns the listing of a directory without names, as was known at `began`.
    pub(super) fn empty(began: Instant) -> Self {
        Self { began, pages: Vec::new(), len: 0, next: None, own: Arc::default() }
    }

    /// Adds the page that comes next, and returns its names, without those that this process has
    /// changed.
    pub(super) fn add(&mut self, page: ListingPage) -> Vec<ListedName> {
        let mut names = page.entries;
        names.sort_by(|(one, _), (other, _)| one.cmp(other));
        let text_len: usize = names.iter().map(|(entry, _)| entry.name().len()).sum();
        self.len = self.len.saturating_add(text_len + names.len().saturating_mul(LEN_OF_NAME));
        let names: Arc<[ListedName]> = names.into();
        self.pages.push(Arc::clone(&names));
        self.next = page.next;
        names.iter().filter(|(entry, _)| !self.own.contains_key(entry)).cloned().collect()
    }

    /// Notes that this process created or removed a name; returns whether there is room for it.
    #[must_use]
    pub(super) fn note(&mut self, entry: StoreEntry, change: OwnChange) -> bool {
        let len = entry.name().len().saturating_add(LEN_OF_NAME);
        if Arc::make_mut(&mut self.own).insert(entry, change).is_none() {
            self.len = self.len.saturating_add(len);
        }
        self.own.len() <= MOST_OWN
    }

    /// Returns the names that were read.
    pub(super) fn names(&self) -> impl Iterator<Item = ListedName> {
        let own = self.own.iter().filter_map(|(entry, change)| match change {
            OwnChange::Present(stat) => Some((entry.clone(), *stat)),
            OwnChange::Absent => None,
        });
        let read = self.pages.iter().flat_map(|page| page.iter());
        own.chain(read.filter(|(entry, _)| !self.own.contains_key(entry)).cloned())
    }

    /// Returns how much memory it takes, in bytes.
    pub(super) fn len(&self) -> u64 {
        self.len.to_u64()
    }

    /// Returns where the listing continues, if there is more of it.
    pub(super) fn next(&self) -> Option<&Continuation> {
        self.next.as_ref()
    }

    /// Whether the directory has names; unknown if none was read, but there may be more.
    pub(super) fn has_names(&self) -> KnownPresence<()> {
        match (self.names().next(), &self.next) {
            (Some(_), _) => KnownPresence::Present(()),
            (None, None) => KnownPresence::Absent,
            (None, Some(_)) => KnownPresence::Unknown,
        }
    }

    /// Finds a name.
    pub(super) fn find(&self, entry: &StoreEntry) -> KnownPresence<Option<Stat>> {
        match self.own.get(entry) {
            Some(OwnChange::Present(stat)) => return KnownPresence::Present(*stat),
            Some(OwnChange::Absent) => return KnownPresence::Absent,
            None => {}
        }
        for page in &self.pages {
            if let Ok(at) = page.binary_search_by(|(listed, _)| listed.cmp(entry)) {
                return page
                    .get(at)
                    .map_or(KnownPresence::Unknown, |(_, stat)| KnownPresence::Present(*stat));
            }
        }
        if self.next.is_none() { KnownPresence::Absent } else { KnownPresence::Unknown }
    }
}
