//! Temporary places of changes of several values, and who still works on them.
//!
//! ```text
//! .zarrfs/aside-ID/beat     a number that its owner raises while it lives
//! .zarrfs/aside-ID/change   the declaration of the change, and its temporary values
//! ```
//!
//! A server has no locks that end with a process. Instead, a process that finds the place of
//! another watches the beat: if it does not change for the time of a lease, by the clock of the
//! watcher, it takes the place over with a put under the version that it saw. An owner that was
//! only slow finds the beat changed, and stops. No two clocks are compared.
//!
//! The beat is a value of its own and not a part of the declaration, since the places for encoded
//! chunks and for `convert` have no declaration at first, but an owner that may die.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use rustix::time::{ClockId, clock_gettime};

use super::conditions::Puts;
use super::paging::Paging;
use super::server::{Depth, Server, Start, wait};
use crate::{
    Aside, ByteRange, Condition, Key, PRIVATE, Prefix, StoreEntry, Value, Version, unique,
};
use zarrfs_base::error::{Error, Kind, Result, WithSubject};

/// How the name of a place begins.
const PLACE: &str = "aside-";

/// The places of this process.
#[derive(Debug)]
pub(super) struct OwnPlaces {
    lease: Duration,
    shared: Arc<PlacesShared>,
}

#[derive(Debug)]
struct PlacesShared {
    server: Arc<dyn Server>,
    puts: Arc<Puts>,
    /// Held during the put of a beat, so that this process does not compete with itself.
    raising: Mutex<()>,
    /// A leaf lock.
    state: Mutex<Beats>,
    /// Signalled when a place is taken or dropped, or all waits end.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Beats {
    /// The places that this process works in.
    live: BTreeMap<Prefix, Beat>,
    /// The last beat of each place whose put may have failed.
    tried: BTreeMap<Prefix, Bytes>,
    /// Whether a thread raises the beats.
    is_beating: bool,
    is_stopped: bool,
}

#[derive(Debug, Clone, Copy)]
struct Beat {
    number: u64,
    version: Version,
    /// When it was put, by the clock that goes on while the machine sleeps.
    at: Duration,
    /// Whether another process has taken the place over.
    is_lost: bool,
}

/// Gives a place up when it is dropped.
#[derive(Debug)]
struct Guard {
    prefix: Prefix,
    shared: Weak<PlacesShared>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            let mut state = shared.state.lock();
            state.live.remove(&self.prefix);
            state.tried.remove(&self.prefix);
            drop(state);
            shared.changed.notify_all();
        }
    }
}

impl OwnPlaces {
    /// Returns no places. A place without a beat for the time of `lease` is abandoned.
    pub(super) fn new(server: Arc<dyn Server>, puts: Arc<Puts>, lease: Duration) -> Self {
        let (raising, state, changed) = (Mutex::default(), Mutex::default(), Condvar::new());
        Self { lease, shared: Arc::new(PlacesShared { server, puts, raising, state, changed }) }
    }

    /// Ends all waits.
    pub(super) fn stop(&self) {
        self.shared.state.lock().is_stopped = true;
        self.shared.changed.notify_all();
    }

    /// Gives a place up, so that its beat can be erased. Fails if another process has taken it
    /// over: then it is not this one's to erase.
    pub(super) fn give_up(&self, prefix: &Prefix) -> Result<()> {
        match self.shared.state.lock().live.remove(prefix) {
            Some(beat) if beat.is_lost => Err(lost().at(prefix)),
            _ => Ok(()),
        }
    }

    /// Takes a new place.
    pub(super) fn take(&self) -> Result<Aside> {
        let prefix = Prefix::parse(&format!("{PRIVATE}/{PLACE}{}", unique::text()))?;
        self.occupy(prefix, Condition::Absent)
    }

    /// Works in a place, which has no beat yet, or that of a dead owner.
    fn occupy(&self, prefix: Prefix, condition: Condition) -> Result<Aside> {
        let number = u64::from(!matches!(condition, Condition::Absent));
        let beat = self.shared.beat(&prefix, number, condition)?;
        let mut state = self.shared.state.lock();
        state.live.insert(prefix.clone(), beat);
        if !state.is_beating {
            state.is_beating = true;
            let (shared, every) = (Arc::clone(&self.shared), self.lease / 3);
            let beating = thread::Builder::new()
                .name("beats".to_owned())
                .spawn(move || shared.keep_beating(every));
            if let Err(error) = beating {
                state.is_beating = false;
                return Err(error.into());
            }
        }
        drop(state);
        let guard = Guard { prefix: prefix.clone(), shared: Arc::downgrade(&self.shared) };
        Ok(Aside::new(prefix, Box::new(guard)))
    }

    /// Fails if another process has taken over a place of this one, or may have done so while this
    /// process was stopped. Call this before each change.
    pub(super) fn check(&self) -> Result<()> {
        let late: Vec<(Prefix, Beat)> = {
            let state = self.shared.state.lock();
            let is_late = |beat: &Beat| beat.is_lost || since(beat.at) > self.lease * 2 / 3;
            let late = state.live.iter().filter(|(_, beat)| is_late(beat));
            late.map(|(prefix, beat)| (prefix.clone(), *beat)).collect()
        };
        for (prefix, beat) in late {
            if beat.is_lost || !self.shared.raise(&prefix, beat)? {
                return Err(lost().at(&prefix));
            }
        }
        Ok(())
    }

    /// Takes over the places whose owners are dead. Waits for the time of a lease if there are
    /// places of others.
    pub(super) fn abandoned(&self) -> Result<Vec<Aside>> {
        match self.take_abandoned() {
            // The mount ends, and another one will look.
            Err(_) if self.shared.state.lock().is_stopped => Ok(Vec::new()),
            taken => taken,
        }
    }

    fn take_abandoned(&self) -> Result<Vec<Aside>> {
        let mut seen = Vec::new();
        for prefix in self.of_others()? {
            let version = self.shared.version(&prefix)?;
            // Some servers list a prefix for a while after its last key is gone.
            if version.is_none() && !self.shared.has_values(&prefix)? {
                continue;
            }
            seen.push((prefix, version));
        }
        if seen.is_empty() {
            return Ok(Vec::new());
        }
        log::warn!(
            "{} changes of other writers are not finished: waiting {} s to see whether these \
             writers live",
            seen.len(),
            self.lease.as_secs()
        );
        if !self.shared.sleep(self.lease) {
            return Ok(Vec::new());
        }
        let mut abandoned = Vec::new();
        for (prefix, before) in seen {
            let now = self.shared.version(&prefix)?;
            let condition = match (before, now) {
                (Some(before), Some(now)) if before.is_same(now) => Condition::Unchanged(now),
                // A place without a beat is what a removal has left, if there is something.
                (None, None) if self.shared.has_values(&prefix)? => Condition::Absent,
                _ => continue,
            };
            match self.occupy(prefix, condition) {
                Ok(aside) => abandoned.push(aside),
                Err(error) if matches!(error.kind(), Kind::Exists | Kind::Stale) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(abandoned)
    }

    /// Returns the places in the store that are not of this process.
    fn of_others(&self) -> Result<Vec<Prefix>> {
        let private = Prefix::parse(PRIVATE)?;
        let mut found = Vec::new();
        let (mut next, mut paging) = (Some(Start::First), Paging::default());
        while let Some(start) = next {
            let from = start.clone();
            let list = |report| self.shared.server.list(&private, Depth::Directory, from, report);
            let page = wait(list).at(&private)?;
            paging.note(&start, &page)?;
            for (entry, _) in page.entries {
                if let StoreEntry::Prefix(name) = entry
                    && is_place(&name)
                {
                    found.push(private.join(&name)?);
                }
            }
            next = page.next.map(Start::Continue);
        }
        let state = self.shared.state.lock();
        found.retain(|prefix| !state.live.contains_key(prefix));
        Ok(found)
    }
}

impl PlacesShared {
    /// Puts a beat.
    fn beat(&self, prefix: &Prefix, number: u64, condition: Condition) -> Result<Beat> {
        let key = key_of(prefix)?;
        // Two owners never write the same.
        let text = Bytes::from(format!("{number} {}\n", unique::text()));
        let at = now();
        let stat = match self.puts.put(&key, vec![text.clone()], condition) {
            Err(error) if error.kind() == Kind::Stale => {
                // The answer to a put of this text may have been lost.
                let found = wait(|report| self.server.get(&key, None, report)).at(&key)?;
                let is_own =
                    |value: &Value| self.state.lock().tried.get(prefix) == Some(&value.bytes);
                found.filter(is_own).ok_or(error)?.stat
            }
            put => {
                self.state.lock().tried.insert(prefix.clone(), text);
                put?
            }
        };
        Ok(Beat { number, version: stat.version, at, is_lost: false })
    }

    /// Raises a beat; returns whether the place is still of this process.
    fn raise(&self, prefix: &Prefix, beat: Beat) -> Result<bool> {
        let _raising = self.raising.lock();
        match self.state.lock().live.get(prefix) {
            Some(known) if known.number == beat.number => {}
            // Another thread has raised it.
            known => return Ok(known.is_none_or(|known| !known.is_lost)),
        }
        let number = beat.number.saturating_add(1);
        let raised = match self.beat(prefix, number, Condition::Unchanged(beat.version)) {
            Ok(raised) => raised,
            Err(error) if error.kind() == Kind::Stale => Beat { is_lost: true, ..beat },
            Err(error) => return Err(error),
        };
        match self.state.lock().live.get_mut(prefix) {
            Some(known) => {
                *known = raised;
                Ok(!raised.is_lost)
            }
            // It was given up meanwhile.
            None => Ok(true),
        }
    }

    /// Raises the beats of all places, until there are none.
    fn keep_beating(&self, every: Duration) {
        loop {
            let mut state = self.state.lock();
            if state.live.is_empty() || state.is_stopped {
                state.is_beating = false;
                return;
            }
            let due = |beat: &Beat| every.saturating_sub(since(beat.at));
            let beating = state.live.values().filter(|beat| !beat.is_lost);
            let pause = beating.map(due).min().unwrap_or(every);
            if !pause.is_zero() {
                self.changed.wait_for(&mut state, pause);
                continue;
            }
            let live = state.live.iter().filter(|(_, beat)| !beat.is_lost && due(beat).is_zero());
            let live: Vec<(Prefix, Beat)> =
                live.map(|(prefix, beat)| (prefix.clone(), *beat)).collect();
            drop(state);
            for (prefix, beat) in live {
                match self.raise(&prefix, beat) {
                    Ok(true) => {}
                    Ok(false) => log::warn!("{prefix}: {}", lost()),
                    Err(error) => {
                        log::warn!("{prefix}: {error}");
                        self.sleep(every / 4);
                    }
                }
            }
        }
    }

    /// Returns the version of the beat of a place.
    fn version(&self, prefix: &Prefix) -> Result<Option<Version>> {
        let key = key_of(prefix)?;
        let value = wait(|report| self.server.get(&key, Some(ByteRange::first(1)), report));
        Ok(value.at(&key)?.map(|value| value.stat.version))
    }

    fn has_values(&self, prefix: &Prefix) -> Result<bool> {
        let page = wait(|report| self.server.list(prefix, Depth::All, Start::First, report));
        Ok(!page.at(prefix)?.entries.is_empty())
    }

    /// Waits; returns false if all waits end meanwhile.
    fn sleep(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut state = self.state.lock();
        while !state.is_stopped && Instant::now() < until {
            self.changed.wait_until(&mut state, until);
        }
        !state.is_stopped
    }
}

/// Whether a directory has the name of a place. Others may belong to the user.
fn is_place(name: &str) -> bool {
    let id = name.strip_prefix(PLACE).unwrap_or_default();
    id.len() == unique::LEN && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the time since the machine was started.
fn now() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let (seconds, nanoseconds) = (u64::try_from(now.tv_sec), u32::try_from(now.tv_nsec));
    Duration::new(seconds.unwrap_or_default(), nanoseconds.unwrap_or_default())
}

fn since(at: Duration) -> Duration {
    now().saturating_sub(at)
}

fn key_of(prefix: &Prefix) -> Result<Key> {
    prefix.key("beat")
}

fn lost() -> Error {
    let detail = "this mount was silent for so long that another one has finished its change";
    Error::new(Kind::Os(libc::EIO), detail)
}
