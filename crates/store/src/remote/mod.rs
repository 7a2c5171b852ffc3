//! A store on a server, where each request takes a round trip.
//!
//! `server` has the requests. This store makes few of them: `names` remembers listings, `deep`
//! lists subtrees, `flights` requests a byte once for all its readers, and `cached` has values on
//! the local disk.
//!
//! These are parts of one store and not stores over stores: all need requests that report later,
//! which the interface of a store does not have, and the disk cache is another server in front of
//! the real one.

mod cached;
mod conditions;
mod counts;
mod deep;
mod descent;
mod flights;
mod listing;
mod names;
mod pages;
mod paging;
mod permission;
mod places;
pub mod server;
mod writing;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{
    ByteRange, Capacity, Entries, Expected, Key, Keys, ListableStore, ListedEntry, Omissions,
    Prefix, ReadableStore, Requests, Stat, StoreEntry, Value,
};
use cached::Cached;
pub use cached::ValueCache;
use conditions::Puts;
use counts::CountedServer;
use deep::{SubtreeListing, Visits};
use descent::Descent;
use flights::Flights;
use listing::RemoteListing;
use names::{KnownPresence, NameCache};
use pages::Directory;
use paging::Paging;
use permission::Permission;
use places::OwnPlaces;
use server::{Depth, ListingPage, Server, Start, wait};
use zarrfs_base::bounded::{self, Bounded};
use zarrfs_base::error::{Error, Kind, Result, WithSubject};

/// How many bytes of a value are requested together with its stat: what the kernel reads first.
const FIRST_LEN: u64 = (1 << 20) + (128 << 10);

/// The most values whose first bytes are requested together with their stats.
const FEW: usize = 8;

/// The most values whose conflicts are counted.
const MOST_CONFLICTS: usize = 1 << 12;

/// The bounds of a store.
#[derive(Debug, Clone, Copy)]
pub struct RemoteLimits {
    /// How long names and stats are cached.
    pub ttl: Duration,
    /// The most bytes that wait for a reader.
    pub memory: u64,
    /// The most requests under way.
    pub requests: usize,
    /// The longest value that is stored again because a part of it changes, in bytes.
    pub rewrite: u64,
    /// How long a writer may be silent until another one finishes its change of several values.
    pub lease: Duration,
    /// Whether no one else writes, so that a server that ignores conditions will do.
    pub is_single_writer: bool,
}

impl RemoteLimits {
    /// Those of a mount without options.
    pub const DEFAULT: Self = Self {
        ttl: Duration::from_secs(60),
        memory: 256 << 20,
        requests: 64,
        rewrite: 1 << 30,
        lease: Duration::from_secs(60),
        is_single_writer: false,
    };
}

/// A store on a server.
#[derive(Debug)]
pub struct RemoteStore {
    server: Arc<dyn Server>,
    counted: Arc<CountedServer>,
    names: Arc<NameCache>,
    flights: Flights,
    /// What keeps values on disk, if something does.
    cached: Option<Arc<Cached>>,
    visits: Arc<Visits>,
    limits: RemoteLimits,
    puts: Arc<Puts>,
    places: OwnPlaces,
    /// Held while a long value is stored again, so that one at a time is in memory.
    rewriting: Mutex<()>,
    /// How often writers of a value have lost against others since one was stored. A leaf lock.
    conflicts: Mutex<Bounded<Key, u32>>,
    permission: Arc<Permission>,
    omissions: Omissions,
}

impl RemoteStore {
    /// Returns the store on `server`, whose values are kept in a cache if there is one.
    pub fn new(
        server: Arc<dyn Server>,
        limits: RemoteLimits,
        cache: Option<ValueCache>,
    ) -> Result<Self> {
        let omissions = server.omissions();
        let counted = Arc::new(CountedServer::new(server));
        let server: Arc<dyn Server> = Arc::<CountedServer>::clone(&counted);
        let mut names = NameCache::new(limits.ttl, server.proves_absence());
        names.omissions = omissions.clone();
        let names = Arc::new(names);
        let visits = Arc::new(Visits::new());
        let with = |cache| {
            let (names, visits) = (Arc::clone(&names), Arc::clone(&visits));
            Cached::new(Arc::clone(&server), cache, names, visits).map(Arc::new)
        };
        let cached = cache.map(with).transpose()?;
        let source: Arc<dyn Server> = match &cached {
            Some(cached) => Arc::<Cached>::clone(cached),
            None => Arc::clone(&server),
        };
        let flights = Flights::new(source, Arc::clone(&names), limits);
        let puts = Arc::new(Puts::new(Arc::clone(&server), limits.is_single_writer));
        let places = OwnPlaces::new(Arc::clone(&server), Arc::clone(&puts), limits.lease);
        let conflicts = Mutex::new(Bounded::new(bounded::MapLimits::entries(MOST_CONFLICTS)));
        let permission = Arc::default();
        Ok(Self {
            server,
            counted,
            names,
            flights,
            cached,
            visits,
            limits,
            puts,
            places,
            rewriting: Mutex::default(),
            conflicts,
            permission,
            omissions,
        })
    }

    /// Lists the root beside other requests, which shows whether the server lists at all.
    pub fn try_listing(&self) {
        let (asked, names) = (self.permission.ask(), Arc::clone(&self.names));
        let mut listing = RemoteListing::new();
        let report = Box::new(move |page: Result<ListingPage>| {
            let listed = page.map(|page| {
                listing.add(page);
                names.keep(&Prefix::root(), &listing);
            });
            // Those that wait for this then find the names.
            asked.note(listed.as_ref().copied());
        });
        self.server.list(&Prefix::root(), Depth::Directory, Start::First, report);
    }

    /// Reads a range for which the server has answered that the value is not there, although a
    /// listing has it: a program may have removed it since, or the server does not say the truth.
    fn read_again(&self, range: &(Key, ByteRange)) -> Result<Option<Value>> {
        let key = &range.0;
        if !self.names.is_listed(key) {
            return Ok(None);
        }
        let found = self.flights.read(std::slice::from_ref(range), |key| self.known_len(key))?;
        if let Some(found) = found.into_iter().next().flatten() {
            return Ok(Some(found));
        }
        if !self.is_still_listed(key) {
            self.names.keep_stat(key, Instant::now(), None);
            return Ok(None);
        }
        // Another program may have stored it since.
        let found = self.flights.read(std::slice::from_ref(range), |key| self.known_len(key))?;
        found.into_iter().next().flatten().map(Some).ok_or_else(|| {
            let detail = "it is listed, but the server answers that it is not there";
            Error::new(Kind::Os(libc::EIO), detail).by_server().at(key)
        })
    }

    /// Whether the server lists a key now. If the list cannot be read, nothing says so.
    fn is_still_listed(&self, key: &Key) -> bool {
        let (mut start, mut paging) = (Start::First, Paging::default());
        loop {
            let from = start.clone();
            let list = |report| {
                self.server.list(&key.parent(), Depth::Directory, from, report);
            };
            let Ok(page) = wait(list) else { return false };
            if page
                .entries
                .iter()
                .any(|(listed, _)| *listed == StoreEntry::Key(key.name().to_owned()))
            {
                return true;
            }
            let Some(next) = page.next.clone() else { return false };
            if paging.note(&start, &page).is_err() {
                return false;
            }
            start = Start::Continue(next);
        }
    }

    fn is_absent(&self, key: &Key) -> bool {
        matches!(self.names.key(key), KnownPresence::Absent)
    }

    /// Returns what listings say of a value. May list the directories that a program goes through.
    fn known(&self, key: &Key) -> KnownPresence<Stat> {
        let known = self.names.key(key);
        if !matches!(known, KnownPresence::Unknown) {
            return known;
        }
        self.visits.look_into(&key.parent(), &*self.server, &self.names);
        self.names.key(key)
    }

    fn known_len(&self, key: &Key) -> Option<u64> {
        match self.names.key(key) {
            // The parts of a value of known length are several requests.
            KnownPresence::Present(stat) => self.server.has_version(&stat).then_some(stat.len),
            KnownPresence::Absent | KnownPresence::Unknown => None,
        }
    }
}

impl Drop for RemoteStore {
    fn drop(&mut self) {
        if let Some(cached) = &self.cached {
            cached.wait_until_written();
        }
    }
}

impl ReadableStore for RemoteStore {
    fn expect(&self, ranges: &[(Key, ByteRange)]) -> Expected {
        if !self.names.holds() {
            // Nothing may be older than the read.
            return Expected::default();
        }
        let wanted: Vec<(Key, ByteRange)> =
            ranges.iter().filter(|(key, _)| !self.is_absent(key)).cloned().collect();
        Expected::new(self.flights.expect(&wanted, |key| self.known_len(key)))
    }

    fn requests(&self) -> Option<Requests> {
        let (disk_hits, disk_len) = self.cached.as_ref().map_or((0, 0), |cached| cached.hits());
        Some(Requests { disk_hits, disk_len, ..self.counted.requests() })
    }

    fn stop(&self) {
        self.flights.stop();
        self.places.stop();
        self.server.stop();
        if let Some(cached) = &self.cached {
            cached.wait_until_written();
        }
    }

    fn most_expected(&self) -> u64 {
        self.flights.most_expected()
    }

    fn get_partial_values(&self, ranges: &[(Key, ByteRange)]) -> Result<Vec<Option<Value>>> {
        let absent: Vec<bool> = ranges.iter().map(|(key, _)| self.is_absent(key)).collect();
        let wanted: Vec<(Key, ByteRange)> = ranges
            .iter()
            .zip(&absent)
            .filter(|(_, is_absent)| !**is_absent)
            .map(|(range, _)| range.clone())
            .collect();
        let mut read = self.flights.read(&wanted, |key| self.known_len(key))?;
        for (range, found) in wanted.iter().zip(&mut read).filter(|(_, found)| found.is_none()) {
            *found = self.read_again(range)?;
        }
        if let Some(((key, _), _)) = wanted.iter().zip(&read).find(|(_, read)| read.is_some()) {
            self.permission.note_read(key);
        }
        let mut read = read.into_iter();
        let value_of = |is_absent| if is_absent { None } else { read.next().flatten() };
        Ok(absent.into_iter().map(value_of).collect())
    }

    fn stat(&self, keys: &[Key]) -> Result<Vec<Option<Stat>>> {
        let known: Vec<KnownPresence<Stat>> = keys.iter().map(|key| self.known(key)).collect();
        let unknown: Vec<Key> = keys
            .iter()
            .zip(&known)
            .filter(|(_, known)| matches!(known, KnownPresence::Unknown))
            .map(|(key, _)| key.clone())
            .collect();
        // A program that asks for many stats at once does not read all the values.
        let is_few = unknown.len() <= FEW;
        let len = if self.names.holds() && is_few { FIRST_LEN } else { 1 };
        let mut stats = self.flights.stat(&unknown, len)?;
        for (key, stat) in unknown.iter().zip(&mut stats).filter(|(_, stat)| stat.is_none()) {
            let found = self.read_again(&(key.clone(), ByteRange::first(len)))?;
            *stat = found.map(|found| found.stat);
        }
        if let Some((key, _)) = unknown.iter().zip(&stats).find(|(_, stat)| stat.is_some()) {
            self.permission.note_read(key);
        }
        let mut stats = stats.into_iter();
        Ok(known
            .into_iter()
            .map(|known| match known {
                KnownPresence::Present(stat) => Some(stat),
                KnownPresence::Absent => None,
                KnownPresence::Unknown => stats.next().flatten(),
            })
            .collect())
    }

    fn stat_since(&self, keys: &[Key], since: Instant) -> Result<Vec<Option<Stat>>> {
        let outdated = |key: &&Key| !self.names.is_known_since(key, since);
        let outdated: Vec<Key> = keys.iter().filter(outdated).cloned().collect();
        for key in &outdated {
            self.names.forget(key);
            self.flights.forget(key);
        }
        let asked = self.flights.stat(&outdated, 1)?;
        let mut asked = outdated.iter().zip(asked).peekable();
        let mut stat_of = |key: &Key| match asked.next_if(|(known, _)| *known == key) {
            Some((_, stat)) => Ok(stat),
            None => self.stat(std::slice::from_ref(key)).map(|mut stats| stats.pop().flatten()),
        };
        keys.iter().map(&mut stat_of).collect()
    }

    fn has_tag(&self, stat: &Stat, tag: &str) -> Option<bool> {
        self.server.has_tag(stat, tag)
    }

    fn room(&self) -> Result<Option<Capacity>> {
        Ok(None)
    }
}

impl ListableStore for RemoteStore {
    fn can_list(&self) -> bool {
        let (root, depth) = (Prefix::root(), Depth::Directory);
        let first = Some(ByteRange::first(1));
        self.permission.is_given(
            |key| wait(|report| self.server.get(key, first, report)).map(|_: Option<Value>| ()),
            || {
                let list = |report| self.server.list(&root, depth, Start::First, report);
                wait(list).map(|_: ListingPage| ())
            },
        )
    }

    fn lists_empty_prefixes(&self) -> bool {
        false
    }

    fn proves_absence(&self) -> bool {
        self.server.proves_absence()
    }

    fn doubt(&self, keys: &[Key]) {
        self.names.doubt(keys);
    }

    fn omissions(&self) -> Omissions {
        self.omissions.clone()
    }

    fn is_listed(&self, prefix: &Prefix) -> bool {
        self.names.listing(prefix).is_some_and(|listing| listing.next().is_none())
    }

    fn expect_names(&self, prefix: &Prefix) {
        if self.names.listing(prefix).is_some() || !self.names.holds() {
            return;
        }
        // An error is reported when a name is asked for.
        if let Ok(mut entries) = self.list_dir(prefix) {
            drop(entries.next());
        }
    }

    fn may_have(&self, prefix: &Prefix) -> bool {
        let Some(key) = prefix.as_key() else { return true };
        match self.names.prefix(prefix) {
            KnownPresence::Absent => false,
            KnownPresence::Unknown
                if self.names.was_listed(&key.parent()) || !self.names.holds() =>
            {
                let is_own = |name: Result<StoreEntry>| {
                    name.map_or(true, |name| name == StoreEntry::Prefix(key.name().to_owned()))
                };
                // An error is reported when the directory is read.
                self.list_dir(&key.parent()).map_or(true, |mut names| names.any(is_own))
            }
            KnownPresence::Present(()) | KnownPresence::Unknown => true,
        }
    }

    fn may_have_entry(&self, prefix: &Prefix, is_wanted: &dyn Fn(&StoreEntry) -> bool) -> bool {
        match self.names.listing(prefix).filter(|listing| listing.next().is_none()) {
            Some(listing) if self.names.holds() => {
                listing.names().any(|(entry, _)| is_wanted(&entry))
            }
            _ => self.may_have(prefix),
        }
    }

    fn forget_below(&self, prefix: &Prefix) {
        self.names.forget_below(prefix);
        self.flights.forget_all();
    }

    fn list_dir(&self, prefix: &Prefix) -> Result<Entries> {
        if self.names.contradicted(prefix).is_some() {
            // It may be older than the file. If not, reading it again says so.
            self.names.forget_listing(prefix);
        }
        let mut listing = self.names.listing(prefix);
        if listing.is_none() && !matches!(self.names.prefix(prefix), KnownPresence::Absent) {
            self.visits.look_into(prefix, &*self.server, &self.names);
            listing = self.names.listing(prefix);
        }
        if listing.is_none() && matches!(self.names.prefix(prefix), KnownPresence::Absent) {
            return Ok(Box::new(std::iter::empty()));
        }
        Ok(Box::new(Directory::continued(&self.server, &self.names, prefix)))
    }

    fn list_known(
        &self,
        prefix: &Prefix,
        start: &str,
    ) -> Result<Box<dyn Iterator<Item = Result<ListedEntry>> + Send>> {
        if self.server.lists_subtrees()
            || matches!(self.names.prefix(prefix), KnownPresence::Absent)
        {
            let keys = self.list_starting(prefix, start)?;
            return Ok(Box::new(keys.map(|key| key.map(ListedEntry::Key))));
        }
        let (server, names) = (Arc::clone(&self.server), Arc::clone(&self.names));
        let start = format!("{prefix}{start}");
        let entries = Descent::new(server, names, prefix.clone());
        Ok(Box::new(entries.filter(move |entry| match entry {
            Ok(ListedEntry::Key(key)) => key.as_str().starts_with(&start),
            Ok(ListedEntry::Unlisted(..)) | Err(_) => true,
        })))
    }

    fn list_prefix(&self, prefix: &Prefix) -> Result<Keys> {
        if matches!(self.names.prefix(prefix), KnownPresence::Absent) {
            return Ok(Box::new(std::iter::empty()));
        }
        if let Some(keys) = self.names.keys_below(prefix) {
            return Ok(Box::new(keys.into_iter().map(Ok)));
        }
        let (server, names) = (Arc::clone(&self.server), Arc::clone(&self.names));
        if !server.lists_subtrees() {
            let entries = Descent::new(server, names, prefix.clone());
            return Ok(Box::new(entries.map(|entry| match entry? {
                ListedEntry::Key(key) => Ok(key),
                ListedEntry::Unlisted(prefix, error) => Err(error).at(&prefix),
            })));
        }
        let (prefix, mut walk) = (prefix.clone(), Some(SubtreeListing::new(prefix)));
        let mut rest: VecDeque<String> = VecDeque::new();
        Ok(Box::new(std::iter::from_fn(move || {
            loop {
                if let Some(path) = rest.pop_front() {
                    return Some(prefix.key(&path));
                }
                let reading = walk.as_mut().filter(|walk| !walk.is_at_end())?;
                match reading.read_page(&*server, &names).at(&prefix) {
                    Ok(paths) => rest.extend(paths),
                    Err(error) => {
                        walk = None;
                        return Some(Err(error));
                    }
                }
            }
        })))
    }
}

#[cfg(test)]
mod tests;
