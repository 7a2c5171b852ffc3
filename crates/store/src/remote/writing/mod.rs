//! Changes of values on a server: each is one put, or is declared.
//!
//! A put is atomic. A change of a part of a value reads the value, and puts the new one on the
//! condition that the old one is still there. So any number of machines may write.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use parking_lot::Mutex;

use super::RemoteStore;
use super::names::KnownPresence;
use super::paging::Paging;
use super::server::{Depth, Start, wait};
use crate::{
    Aside, ByteRange, Condition, Key, PRIVATE, Prefix, Promises, ReadableStore, Stat, StoreEntry,
    ValuePiece, Version, WritableStore, not_free, unique,
};
use zarrfs_base::error::{Error, Kind, Result, WithSubject};

/// How often a change of a part of a value is tried.
const ATTEMPTS: usize = 100;

/// The most keys of one request to delete values.
const MOST_DELETED: usize = 1000;

/// The most values that are moved together.
const MOST_MOVED: usize = 64;

/// The most values that a change stores at the same time.
const MOST_AT_ONCE: usize = 32;

/// A value with so many bytes to keep is long: one at a time is stored again.
const LONG: u64 = 64 << 20;

/// The shortest and the longest pause after a conflict, in milliseconds.
const PAUSES: (u64, u64) = (20, 2000);

impl RemoteStore {
    /// Returns the bytes of a new value.
    fn bytes_of(
        &self,
        key: &Key,
        pieces: &[ValuePiece],
        condition: Condition,
    ) -> Result<Vec<Bytes>> {
        let kept: Vec<(Key, ByteRange)> = pieces
            .iter()
            .filter_map(|piece| match piece {
                ValuePiece::Kept { offset, len } => {
                    Some((key.clone(), ByteRange::Span { offset: *offset, len: *len }))
                }
                ValuePiece::New(_) => None,
            })
            .collect();
        let len = ValuePiece::total_len(pieces)?;
        if !kept.is_empty() && len > self.limits.rewrite {
            let detail = format!(
                "a change of a part of a value of {len} bytes, which is stored again as a whole; \
                 the limit is {} (--max-rewrite)",
                self.limits.rewrite
            );
            return Err(Error::too_large(detail).at(key));
        }
        let mut values = match kept.as_slice() {
            [] => Vec::new(),
            kept => self.get_partial_values(kept)?,
        }
        .into_iter();
        let mut bytes = Vec::with_capacity(pieces.len());
        for piece in pieces {
            bytes.push(match piece {
                ValuePiece::New(new) => new.clone(),
                ValuePiece::Kept { len, .. } => {
                    let old = values.next().flatten();
                    condition.check(old.as_ref().map(|value| value.stat.version)).at(key)?;
                    let old = old.map(|value| value.bytes).unwrap_or_default();
                    if u64::try_from(old.len()) != Ok(*len) {
                        return Err(Error::corrupt("the bytes to keep are not there").at(key));
                    }
                    old
                }
            });
        }
        Ok(bytes)
    }

    /// Runs `work`. If `condition` is one, and it is not known yet whether the server honours
    /// conditions, tries that out at the same time, and fails if the server does not answer.
    fn beside_check<T: Send>(
        &self,
        condition: Condition,
        work: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        if matches!(condition, Condition::Always) || self.puts.is_known() {
            return work();
        }
        thread::scope(|scope| {
            // If no thread can be started, the put that follows does this.
            let check = || self.puts.are_honoured().map(drop);
            let checking = thread::Builder::new().spawn_scoped(scope, check);
            let done = work()?;
            if let Ok(Ok(checked)) = checking.map(thread::ScopedJoinHandle::join) {
                checked?;
            }
            Ok(done)
        })
    }

    /// Puts a value, and notes what it is now.
    fn put(&self, key: &Key, bytes: Vec<Bytes>, condition: Condition) -> Result<Stat> {
        self.places.check()?;
        match self.puts.put(key, bytes, condition) {
            Ok(stat) => {
                self.flights.forget(key);
                self.names.note_change(key, Some(stat));
                self.conflicts.lock().remove(key);
                Ok(stat)
            }
            Err(error) => {
                self.forget(key);
                Err(error)
            }
        }
    }

    /// Forgets what is known of a value.
    fn forget(&self, key: &Key) {
        self.flights.forget(key);
        self.names.forget(key);
    }

    /// Waits after a conflict with another writer, the longer the more there were, so that one of
    /// many is done.
    fn pause_after_conflict(&self, key: &Key) {
        let mut conflicts = self.conflicts.lock();
        let count = conflicts.peek(key).copied().unwrap_or_default();
        drop(conflicts.put(key.clone(), count.saturating_add(1), 0));
        drop(conflicts);
        let (shortest, longest) = PAUSES;
        let most = shortest.saturating_mul(1 << count.min(10)).min(longest);
        thread::sleep(Duration::from_millis(unique::number() % most));
    }

    /// Copies values, and then deletes the originals.
    fn move_values(&self, from: &[Key], to: &[Key]) -> Result<()> {
        for key in from {
            self.forget(key);
        }
        let whole = |key: &Key| (key.clone(), ByteRange::first(u64::MAX));
        let values = self.get_partial_values(&from.iter().map(whole).collect::<Vec<_>>())?;
        let moved = from.iter().zip(to).zip(values);
        let moved: Vec<_> =
            moved.filter_map(|((from, to), value)| Some((from, to, value?.bytes))).collect();
        let put = |(_, to, bytes): &(&Key, &Key, Bytes)| {
            ((*to).clone(), vec![bytes.clone().into()], Condition::Always)
        };
        for stored in self.set_all(moved.iter().map(put).collect()) {
            stored?;
        }
        let from: Vec<Key> = moved.iter().map(|(from, ..)| (*from).clone()).collect();
        self.delete(&from)
    }

    fn delete(&self, keys: &[Key]) -> Result<()> {
        for some in keys.chunks(MOST_DELETED) {
            self.places.check()?;
            let deleted = wait(|report| self.server.delete(some, report));
            for key in some {
                match &deleted {
                    Ok(()) => {
                        self.flights.forget(key);
                        self.names.note_change(key, None);
                    }
                    Err(_) => self.forget(key),
                }
            }
            if let (Err(error), Some(first)) = (deleted, some.first()) {
                return Err(error.at(first));
            }
        }
        Ok(())
    }

    /// Whether the server has keys below `prefix`, whatever is known of it.
    fn holds_keys(&self, prefix: &Prefix) -> Result<bool> {
        let mut holds = false;
        self.for_keys_below(prefix, |keys| {
            holds |= !keys.is_empty();
            Ok(())
        })?;
        Ok(holds)
    }

    /// Lists all keys below `prefix` on the server, whatever is known of it, and passes on those of
    /// each answer.
    fn for_keys_below(
        &self,
        prefix: &Prefix,
        mut each: impl FnMut(Vec<Key>) -> Result<()>,
    ) -> Result<()> {
        let (mut start, mut paging) = (Start::First, Paging::default());
        loop {
            let from = start.clone();
            let page = wait(|report| self.server.list(prefix, Depth::All, from, report));
            let page = page.at(prefix)?;
            paging.note(&start, &page)?;
            let key_of = |(entry, _): (StoreEntry, _)| prefix.key(entry.name());
            each(page.entries.into_iter().map(key_of).collect::<Result<_>>()?)?;
            let Some(next) = page.next.map(Start::Continue) else { return Ok(()) };
            start = next;
        }
    }
}

impl WritableStore for RemoteStore {
    fn promises(&self) -> Promises {
        Promises { moves: false, erases_unchanged: false, times: false }
    }

    fn check_conditions(&self) -> Result<()> {
        self.puts.check()
    }

    fn set(&self, key: &Key, pieces: &[ValuePiece], condition: Condition) -> Result<Stat> {
        let is_kept = |piece: &&ValuePiece| matches!(piece, ValuePiece::Kept { .. });
        let kept = pieces.iter().filter(is_kept).map(ValuePiece::len).fold(0, u64::saturating_add);
        let _one_at_a_time = (kept > LONG).then(|| self.rewriting.lock());
        let bytes = self.beside_check(condition, || self.bytes_of(key, pieces, condition));
        let put = bytes.and_then(|bytes| self.put(key, bytes, condition));
        if let Err(error) = &put
            && matches!(error.kind(), Kind::Stale | Kind::Exists)
        {
            self.forget(key);
            self.pause_after_conflict(key);
        }
        put
    }

    fn set_all(&self, values: Vec<(Key, Vec<ValuePiece>, Condition)>) -> Vec<Result<Stat>> {
        let keys: BTreeSet<&Key> = values.iter().map(|(key, ..)| key).collect();
        // The last value of a key counts.
        if values.len() < 2 || keys.len() < values.len() {
            let set = |(key, pieces, condition): (Key, Vec<ValuePiece>, Condition)| {
                self.set(&key, &pieces, condition)
            };
            return values.into_iter().map(set).collect();
        }
        // Bounded, because each thread waits for one answer.
        let next = Mutex::new(values.into_iter().enumerate());
        let results = Mutex::new(BTreeMap::new());
        let work = || {
            loop {
                let Some((at, (key, pieces, condition))) = next.lock().next() else { return };
                let result = self.set(&key, &pieces, condition);
                results.lock().insert(at, result);
            }
        };
        thread::scope(|scope| {
            for _ in 1..self.limits.requests.min(MOST_AT_ONCE) {
                // If no thread can be started, this one does all the work.
                drop(thread::Builder::new().spawn_scoped(scope, work));
            }
            work();
        });
        results.into_inner().into_values().collect()
    }

    fn set_partial_values(&self, parts: &[(Key, u64, Bytes)]) -> Result<()> {
        for (key, start, bytes) in parts {
            let mut tries = 0;
            loop {
                let stat = self.stat(std::slice::from_ref(key))?.pop().flatten();
                let stat = stat.ok_or_else(|| Error::not_found().at(key))?;
                let pieces = ValuePiece::overlay(stat.len, &[(*start, bytes.clone())]).at(key)?;
                match self.set(key, &pieces, Condition::Unchanged(stat.version)) {
                    Err(error) if error.kind() == Kind::Stale && tries < ATTEMPTS => tries += 1,
                    done => break done.map(drop)?,
                }
            }
        }
        Ok(())
    }

    fn erase_values(&self, keys: &[Key]) -> Result<()> {
        // Also those that are believed absent: another mount may have stored them.
        self.delete(keys)
    }

    fn erase_unchanged(&self, key: &Key, _version: Version) -> Result<()> {
        // No request says this. A caller that needs it stores an empty shard instead.
        Err(Error::unsupported("a value on a server cannot be erased on a condition").at(key))
    }

    fn erase_prefix(&self, prefix: &Prefix) -> Result<()> {
        self.places.give_up(prefix)?;
        self.for_keys_below(prefix, |keys| self.delete(&keys))?;
        self.names.note_erased(prefix);
        Ok(())
    }

    fn erase_empty(&self, prefix: &Prefix) -> Result<()> {
        self.places.give_up(prefix)?;
        if self.holds_keys(prefix)? {
            self.names.forget_below(prefix);
            return Err(not_free().at(prefix));
        }
        self.names.note_erased(prefix);
        Ok(())
    }

    fn move_to_free(&self, from: &Prefix, to: &Prefix) -> Result<()> {
        if !self.holds_keys(from)? {
            self.names.note_erased(from);
            return Err(Error::not_found().at(from));
        }
        if self.holds_keys(to)? {
            return Err(not_free().at(to));
        }
        self.move_prefix(from, to)
    }

    fn move_prefix(&self, from: &Prefix, to: &Prefix) -> Result<()> {
        let mut keys = Vec::new();
        self.for_keys_below(from, |some| {
            keys.extend(some);
            Ok(())
        })?;
        for some in keys.chunks(MOST_MOVED) {
            let new_key =
                |key: &Key| to.key(key.as_str().strip_prefix(from.as_str()).unwrap_or_default());
            let to = some.iter().map(new_key).collect::<Result<Vec<_>>>()?;
            self.move_values(some, &to)?;
        }
        self.names.note_erased(from);
        Ok(())
    }

    fn move_value(&self, from: &Key, to: &Key) -> Result<()> {
        self.move_values(std::slice::from_ref(from), std::slice::from_ref(to))
    }

    fn set_modified(&self, key: &Key, _modified: SystemTime) -> Result<(Version, Version)> {
        let stat = self.stat(std::slice::from_ref(key))?.pop().flatten();
        let version = stat.ok_or_else(|| Error::not_found().at(key))?.version;
        Ok((version, version))
    }

    fn sync(&self, _keys: &[Key]) -> Result<()> {
        // A put is answered when it is stored.
        Ok(())
    }

    fn aside(&self) -> Result<Aside> {
        self.places.take()
    }

    fn declare(&self, aside: &Aside, text: Bytes) -> Result<()> {
        self.put(&aside.declaration()?, vec![text], Condition::Always).map(drop)
    }

    fn abandoned(&self) -> Result<Vec<Aside>> {
        if matches!(self.names.prefix(&Prefix::parse(PRIVATE)?), KnownPresence::Absent) {
            // A recent listing shows no places.
            return Ok(Vec::new());
        }
        let abandoned = self.places.abandoned()?;
        for aside in &abandoned {
            self.forget(&aside.declaration()?);
        }
        Ok(abandoned)
    }

    fn release_idle(&self, _quiet: Duration) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
