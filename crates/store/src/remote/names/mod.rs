//! The names in recent listings.
//!
//! One listing of a directory answers later questions about the names in it: their sizes,
//! times and versions, and that other names do not exist. Each would take a request otherwise.
//! Changes of this process show at once; those of others when a listing or a stat is too old.
//!
//! The server does not say the time of what it has stored. Until the next listing, a value has the
//! time of the clock of the mount.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::listing::{OwnChange, RemoteListing};
use super::server::ListingPage;
use crate::{Key, Omissions, Prefix, Stat, StoreEntry};
use zarrfs_base::bounded::{Bounded, MapLimits};
use zarrfs_base::resources;

/// Returns the memory of all listings, in bytes.
fn most_len() -> u64 {
    resources::within_memory(64 << 20, 16)
}

/// The most values whose stats are kept besides listings.
const MOST_STATS: usize = 1 << 16;

/// The most changes of this process that are applied to listings that were requested before.
const MOST_CHANGES: usize = 1 << 12;

/// The most keys and prefixes that are in doubt.
const MOST_DOUBTED: usize = 1 << 18;

/// Whether web servers leave a name out of their lists: Apache does that by default with these
/// (`IndexIgnore .??* *~ *# HEADER* README* RCS CVS *,v *,t`), others with names that begin with a
/// dot.
fn is_often_hidden(name: &str) -> bool {
    name.starts_with('.')
        || ["HEADER", "README"].iter().any(|start| name.starts_with(start))
        || ["RCS", "CVS"].contains(&name)
        || name.ends_with(['~', '#'])
        || [",v", ",t"].iter().any(|end| name.ends_with(end))
}

/// The names of metadata files.
const DOCUMENTS: [&str; 3] = ["zarr.json", ".zgroup", ".zarray"];

/// Whether a key or a prefix is there, as far as that is known.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(test, derive(PartialEq, Eq))]
pub(super) enum KnownPresence<T> {
    Present(T),
    Absent,
    Unknown,
}

impl<T> From<Option<T>> for KnownPresence<T> {
    fn from(found: Option<T>) -> Self {
        found.map_or(Self::Absent, Self::Present)
    }
}

/// The listings that are kept, by the prefix that was listed.
#[derive(Debug)]
pub(super) struct NameCache {
    ttl: Duration,
    /// What listings leave out.
    pub(super) omissions: Omissions,
    /// A leaf lock.
    tables: Mutex<Tables>,
}

#[derive(Debug)]
struct Tables {
    /// Whether a name that a listing does not have is not there. Otherwise a listing does not tell
    /// that a directory has no names at all, nor that there is no name of those that web servers
    /// hide ([`is_often_hidden`]) or of those in doubt.
    proves_absence: bool,
    /// The keys, and the prefixes of keys, that may be there although no listing has them.
    doubted: Bounded<String, ()>,
    listings: Bounded<Prefix, RemoteListing>,
    /// The values that were requested or changed by themselves, and since when that is known.
    stats: Bounded<Key, (Instant, KnownPresence<Stat>)>,
    /// The last changes of this process.
    changes: VecDeque<(Instant, Own)>,
    /// When the last change was made that is no longer among them.
    dropped: Option<Instant>,
}

/// A change of this process.
#[derive(Debug, Clone)]
enum Own {
    /// A value was set, or erased.
    Value(Key, Option<Stat>),
    /// Everything below a prefix was erased.
    Below(Prefix),
}

impl Own {
    /// Returns the name that it changes directly below `directory`, if it changes one.
    fn within(self, directory: &Prefix) -> Option<(StoreEntry, OwnChange)> {
        let name_in = |text: &str| text.strip_prefix(directory.as_str()).map(str::to_owned);
        match self {
            Self::Value(key, stat) => {
                let below = name_in(key.as_str())?;
                match (below.split_once('/'), stat) {
                    (None, Some(_)) => Some((StoreEntry::Key(below), OwnChange::Present(stat))),
                    (None, None) => Some((StoreEntry::Key(below), OwnChange::Absent)),
                    (Some((name, _)), Some(_)) => {
                        Some((StoreEntry::Prefix(name.to_owned()), OwnChange::Present(None)))
                    }
                    // Others may have keys there.
                    (Some(_), None) => None,
                }
            }
            Self::Below(prefix) => {
                let below = name_in(prefix.as_str())?;
                let name = below.strip_suffix('/').filter(|name| !name.contains('/'))?;
                Some((StoreEntry::Prefix(name.to_owned()), OwnChange::Absent))
            }
        }
    }
}

impl NameCache {
    /// Returns an empty table, whose listings hold for `ttl`. `proves_absence` says whether they
    /// have all names.
    pub(super) fn new(ttl: Duration, proves_absence: bool) -> Self {
        let tables = Tables {
            proves_absence,
            doubted: Bounded::new(MapLimits::entries(MOST_DOUBTED)),
            listings: Bounded::new(MapLimits::bytes(most_len())),
            stats: Bounded::new(MapLimits::entries(MOST_STATS)),
            changes: VecDeque::new(),
            dropped: None,
        };
        Self { ttl, omissions: Omissions::default(), tables: Mutex::new(tables) }
    }

    /// Whether a name that a listing does not have is not there.
    pub(super) fn proves_absence(&self) -> bool {
        self.tables.lock().proves_absence
    }

    /// Whether a listing still holds.
    pub(super) fn is_recent(&self, listing: &RemoteListing) -> bool {
        listing.began.elapsed() < self.ttl
    }

    /// Whether listings hold for a while.
    pub(super) fn holds(&self) -> bool {
        !self.ttl.is_zero()
    }

    /// Whether a listing takes much of the memory for listings: then what follows is not kept.
    pub(super) fn is_long(listing: &RemoteListing) -> bool {
        listing.len() > most_len() / 4
    }

    /// Returns the listing of `prefix`, if it is recent.
    pub(super) fn listing(&self, prefix: &Prefix) -> Option<RemoteListing> {
        let mut tables = self.tables.lock();
        tables.listings.get(prefix).filter(|listing| self.is_recent(listing)).cloned()
    }

    /// Keeps a listing, unless a longer one is known, with what this process has changed since it
    /// was requested.
    pub(super) fn keep(&self, prefix: &Prefix, listing: &RemoteListing) {
        let mut tables = self.tables.lock();
        if tables.listings.peek(prefix).is_some_and(|known| known.began > listing.began)
            || tables.dropped.is_some_and(|at| at >= listing.began)
        {
            return;
        }
        let mut listing = listing.clone();
        let since = tables.changes.iter().rev().take_while(|(at, _)| *at >= listing.began);
        let since: Vec<Own> = since.map(|(_, own)| own.clone()).collect();
        for own in since.into_iter().rev() {
            if matches!(&own, Own::Below(erased) if prefix.as_str().starts_with(erased.as_str())) {
                // It has names that are gone.
                return;
            }
            if let Some((entry, change)) = own.within(prefix)
                && !listing.note(entry, change)
            {
                return;
            }
        }
        let is_empty =
            tables.proves_absence && matches!(listing.has_names(), KnownPresence::Absent);
        let len = listing.len();
        let evicted = tables.listings.put(prefix.clone(), listing, len);
        if let Some(key) = prefix.as_key().filter(|_| is_empty) {
            // Some servers list directories without keys.
            tables.note(
                self.ttl,
                &key,
                StoreEntry::Prefix(key.name().to_owned()),
                OwnChange::Absent,
            );
        }
        drop(tables);
        drop(evicted);
    }

    /// Keeps that a directory has no names, if nothing is known of it.
    pub(super) fn keep_if_unknown(&self, directory: &Prefix, began: &RemoteListing) {
        if matches!(self.prefix(directory), KnownPresence::Unknown) {
            let mut listing = began.clone();
            listing.add(ListingPage::default());
            self.keep(directory, &listing);
        }
    }

    /// Returns all keys below `prefix`, if the directories there were listed recently.
    pub(super) fn keys_below(&self, prefix: &Prefix) -> Option<Vec<Key>> {
        let (mut keys, mut open) = (Vec::new(), vec![prefix.clone()]);
        while let Some(directory) = open.pop() {
            let listing = self.listing(&directory).filter(|listing| listing.next().is_none())?;
            for (entry, _) in listing.names() {
                match entry {
                    StoreEntry::Key(name) => keys.push(directory.key(&name).ok()?),
                    StoreEntry::Prefix(name) => open.push(directory.join(&name).ok()?),
                }
            }
        }
        Some(keys)
    }

    /// Keeps the stat of a value, or its absence, which was requested at `began`.
    pub(super) fn keep_stat(&self, key: &Key, began: Instant, stat: Option<Stat>) {
        let mut tables = self.tables.lock();
        if tables.stats.peek(key).is_none_or(|(known, _)| *known <= began) {
            drop(tables.stats.put(key.clone(), (began, stat.into()), 0));
        }
    }

    /// Notes that this process has set a value, or erased it.
    pub(super) fn note_change(&self, key: &Key, stat: Option<Stat>) {
        if !self.holds() {
            return;
        }
        let mut tables = self.tables.lock();
        tables.remember(Own::Value(key.clone(), stat));
        drop(tables.stats.put(key.clone(), (Instant::now(), stat.into()), 0));
        let change = stat.map_or(OwnChange::Absent, |stat| OwnChange::Present(Some(stat)));
        tables.note(self.ttl, key, StoreEntry::Key(key.name().to_owned()), change);
    }

    /// Notes that this process has erased everything below `prefix`.
    pub(super) fn note_erased(&self, prefix: &Prefix) {
        let Some(key) = prefix.as_key().filter(|_| self.holds()) else { return };
        let mut tables = self.tables.lock();
        tables.remember(Own::Below(prefix.clone()));
        drop(tables.listings.put(prefix.clone(), RemoteListing::new(), 0));
        tables.note(self.ttl, &key, StoreEntry::Prefix(key.name().to_owned()), OwnChange::Absent);
    }

    /// Forgets what is known of all keys below `prefix`, and whether there are some.
    pub(super) fn forget_below(&self, prefix: &Prefix) {
        let mut tables = self.tables.lock();
        let is_below = |text: &str| text.starts_with(prefix.as_str());
        let listed = tables.listings.iter().map(|(at, _)| at).filter(|at| is_below(at.as_str()));
        for at in listed.cloned().collect::<Vec<_>>() {
            tables.listings.remove(&at);
        }
        // Where a listing above says that nothing is there, something may be by now.
        let mut below = prefix.clone();
        while let Some(key) = below.as_key() {
            let entry = StoreEntry::Prefix(key.name().to_owned());
            if let Some(above) = tables.listings.peek_mut(&key.parent())
                && matches!(above.find(&entry), KnownPresence::Absent)
                && !above.note(entry, OwnChange::Present(None))
            {
                tables.listings.remove(&key.parent());
            }
            below = key.parent();
        }
        let known = tables.stats.iter().map(|(key, _)| key).filter(|key| is_below(key.as_str()));
        for key in known.cloned().collect::<Vec<_>>() {
            tables.stats.remove(&key);
        }
    }

    /// Whether a directory was listed, however long ago.
    pub(super) fn was_listed(&self, prefix: &Prefix) -> bool {
        self.tables.lock().listings.contains(prefix)
    }

    /// Returns the first directory on the way to this one that was not listed, if those above it
    /// were.
    pub(super) fn first_unlisted(&self, directory: &Prefix) -> Option<Prefix> {
        let mut first = directory.clone();
        while let Some(key) = first.as_key() {
            if self.was_listed(&key.parent()) {
                return Some(first);
            }
            first = key.parent();
        }
        None
    }

    /// Forgets what is known of a key, since a server has contradicted it.
    pub(super) fn forget(&self, key: &Key) {
        let mut tables = self.tables.lock();
        drop(tables.stats.put(key.clone(), (Instant::now(), KnownPresence::Unknown), 0));
    }

    /// Whether it is known since `since` or later whether a value has this key.
    pub(super) fn is_known_since(&self, key: &Key, since: Instant) -> bool {
        let tables = self.tables.lock();
        let known = tables.stats.peek(key);
        if known.is_some_and(|(at, known)| *at >= since && !matches!(known, KnownPresence::Unknown))
        {
            return true;
        }
        let listing = tables.listings.peek(&key.parent()).filter(|known| known.began >= since);
        let entry = StoreEntry::Key(key.name().to_owned());
        match listing.map(|listing| listing.find(&entry)) {
            Some(KnownPresence::Present(stat)) => stat.is_some(),
            Some(KnownPresence::Absent) => tables.proves_absence,
            Some(KnownPresence::Unknown) | None => false,
        }
    }

    /// Notes that keys may be there although no listing has them.
    pub(super) fn doubt(&self, keys: &[Key]) {
        let mut tables = self.tables.lock();
        if tables.proves_absence {
            return;
        }
        for key in keys {
            drop(tables.doubted.put(key.as_str().to_owned(), (), 0));
            let mut above = key.parent();
            while let Some(directory) = above.as_key() {
                if tables.doubted.contains(&above.as_str().to_owned()) {
                    break;
                }
                drop(tables.doubted.put(above.as_str().to_owned(), (), 0));
                above = directory.parent();
            }
        }
    }

    /// Returns a metadata file that was read directly below `prefix`, although the whole listing of
    /// that does not have it.
    pub(super) fn contradicted(&self, prefix: &Prefix) -> Option<Key> {
        let mut tables = self.tables.lock();
        let is_recent = |at: &Instant| at.elapsed() < self.ttl;
        let listing = tables.recent(self.ttl, prefix).filter(|listing| listing.next().is_none());
        let lacks = listing.map(|listing| {
            DOCUMENTS.map(|name| {
                let entry = StoreEntry::Key(name.to_owned());
                (name, matches!(listing.find(&entry), KnownPresence::Absent))
            })
        })?;
        lacks.into_iter().filter(|(_, is_absent)| *is_absent).find_map(|(name, _)| {
            let key = prefix.key(name).ok()?;
            let (at, known) = tables.stats.peek(&key)?;
            let is_hidden = !tables.proves_absence && is_often_hidden(name);
            let is_there =
                matches!(known, KnownPresence::Present(_)) && is_recent(at) && !is_hidden;
            is_there.then_some(key)
        })
    }

    /// Forgets a listing.
    pub(super) fn forget_listing(&self, prefix: &Prefix) {
        drop(self.tables.lock().listings.remove(prefix));
    }

    /// Whether a recent listing has a value.
    pub(super) fn is_listed(&self, key: &Key) -> bool {
        let entry = StoreEntry::Key(key.name().to_owned());
        let mut tables = self.tables.lock();
        let listed = tables.recent(self.ttl, &key.parent()).map(|listing| listing.find(&entry));
        matches!(listed, Some(KnownPresence::Present(_)))
    }

    /// Returns what is known about a key.
    pub(super) fn key(&self, key: &Key) -> KnownPresence<Stat> {
        let mut tables = self.tables.lock();
        let is_recent = |at: &Instant| at.elapsed() < self.ttl;
        let stat = tables.stats.get(key).copied().filter(|(at, _)| is_recent(at));
        let parent = key.parent();
        let listed_at = tables.listings.peek(&parent).map(|listing| listing.began);
        if let Some((at, known)) = stat
            && listed_at.is_none_or(|began| began <= at)
        {
            return known;
        }
        match tables.find(self.ttl, &parent, &StoreEntry::Key(key.name().to_owned())) {
            KnownPresence::Present(Some(stat)) => KnownPresence::Present(stat),
            KnownPresence::Absent => KnownPresence::Absent,
            KnownPresence::Present(None) | KnownPresence::Unknown => {
                stat.map_or(KnownPresence::Unknown, |(_, known)| known)
            }
        }
    }

    /// Returns whether keys have this prefix, as far as listings have shown.
    pub(super) fn prefix(&self, prefix: &Prefix) -> KnownPresence<()> {
        let Some(key) = prefix.as_key() else { return KnownPresence::Unknown };
        let mut tables = self.tables.lock();
        let listed = tables.recent(self.ttl, prefix).map(RemoteListing::has_names);
        if let Some(listed) = listed {
            let is_sure = tables.proves_absence || !matches!(listed, KnownPresence::Absent);
            return if is_sure { listed } else { KnownPresence::Unknown };
        }
        match tables.find(self.ttl, &key.parent(), &StoreEntry::Prefix(key.name().to_owned())) {
            KnownPresence::Present(_) => KnownPresence::Present(()),
            KnownPresence::Absent => KnownPresence::Absent,
            KnownPresence::Unknown => KnownPresence::Unknown,
        }
    }
}

impl Tables {
    fn remember(&mut self, own: Own) {
        self.changes.push_back((Instant::now(), own));
        if self.changes.len() > MOST_CHANGES {
            self.dropped = self.changes.pop_front().map(|(at, _)| at);
        }
    }

    /// Whether an entry may be there although a listing does not have it.
    fn may_be_hidden(&self, parent: &Prefix, entry: &StoreEntry) -> bool {
        let slash = if matches!(entry, StoreEntry::Prefix(_)) { "/" } else { "" };
        is_often_hidden(entry.name())
            || self.doubted.contains(&format!("{parent}{}{slash}", entry.name()))
    }

    /// Finds an entry below `parent`. Where that was not listed, it is absent if `parent` is.
    fn find(
        &mut self,
        ttl: Duration,
        parent: &Prefix,
        entry: &StoreEntry,
    ) -> KnownPresence<Option<Stat>> {
        let is_listed = self.proves_absence || !self.may_be_hidden(parent, entry);
        let found = self.recent(ttl, parent).map(|listing| listing.find(entry));
        let found = found.filter(|found| is_listed || matches!(found, KnownPresence::Present(_)));
        match (found, parent.as_key()) {
            (Some(known @ (KnownPresence::Present(_) | KnownPresence::Absent)), _) => known,
            (_, Some(key)) => {
                let above = StoreEntry::Prefix(key.name().to_owned());
                match self.find(ttl, &key.parent(), &above) {
                    KnownPresence::Absent => KnownPresence::Absent,
                    KnownPresence::Present(_) | KnownPresence::Unknown => KnownPresence::Unknown,
                }
            }
            (_, None) => KnownPresence::Unknown,
        }
    }

    /// Returns the listing of `prefix`, if it is recent.
    fn recent(&mut self, ttl: Duration, prefix: &Prefix) -> Option<&RemoteListing> {
        self.listings.get(prefix).filter(|listing| listing.began.elapsed() < ttl)
    }

    /// Returns since when a directory is known to be absent, if it is.
    fn absent_since(&mut self, ttl: Duration, directory: &Prefix) -> Option<Instant> {
        let key = directory.as_key()?;
        let entry = StoreEntry::Prefix(key.name().to_owned());
        match self.recent(ttl, &key.parent()).map(|above| (above.find(&entry), above.began)) {
            Some((KnownPresence::Absent, began)) => Some(began),
            Some((KnownPresence::Present(_) | KnownPresence::Unknown, _)) => None,
            None => self.absent_since(ttl, &key.parent()),
        }
    }

    /// Notes a change in the listings of the directories above a key. A new directory has no other
    /// names, and a directory goes with its last name.
    fn note(&mut self, ttl: Duration, key: &Key, entry: StoreEntry, change: OwnChange) {
        let (mut entry, mut directory, mut change) = (entry, key.parent(), change);
        loop {
            if matches!(change, OwnChange::Present(_))
                && self.recent(ttl, &directory).is_none()
                && let Some(began) = self.absent_since(ttl, &directory)
            {
                drop(self.listings.put(directory.clone(), RemoteListing::empty(began), 0));
            }
            let is_recent = self.recent(ttl, &directory).is_some();
            match (self.listings.peek_mut(&directory).filter(|_| is_recent), change) {
                (Some(listing), _) => {
                    let (has_room, len) = (listing.note(entry, change), listing.len());
                    let is_empty = matches!(listing.has_names(), KnownPresence::Absent);
                    if has_room {
                        drop(self.listings.set_len(&directory, len));
                    } else {
                        self.listings.remove(&directory);
                    }
                    if matches!(change, OwnChange::Absent) && !(has_room && is_empty) {
                        return;
                    }
                }
                (None, OwnChange::Absent) => return,
                (None, OwnChange::Present(_)) => {}
            }
            let Some(key) = directory.as_key() else { return };
            (entry, directory) = (StoreEntry::Prefix(key.name().to_owned()), key.parent());
            if let OwnChange::Present(stat) = &mut change {
                *stat = None;
            }
        }
    }
}

#[cfg(test)]
mod tests;
