//! A read-only store whose values are parts of values in other stores.
//!
//! A reference gives the place of a value: its bytes, or a range of a value elsewhere.
//! [`SourceStores`] are the stores that references may lead to. Reading many keys takes one call of
//! each store, so that a remote one joins the ranges and requests them together.
//!
//! A value has the version of its reference, so its stat takes no request. Therefore zarrfs does
//! not notice if a program changes a file that references lead to, unless the reference has a
//! `Check`. Formats of references have no better way.

mod children;
pub(super) mod loaded;
pub(super) mod places;
pub mod table;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::{
    ByteRange, Capacity, Entries, Expected, Key, Keys, ListableStore, Prefix, ReadableStore,
    Requests, Stat, Store, StoreEntry, Value, Version, starting,
};
pub(super) use children::children;
pub use places::{SourceStores, Spelling};
use zarrfs_base::error::{Error, Fault, Kind, Result, WithSubject};
use zarrfs_base::width::{ToU64, ToUsize};

/// Where the bytes of a value are.
#[derive(Debug, Clone)]
pub(super) enum ReferenceTarget {
    /// In the reference itself.
    Inline(Bytes),
    /// In a part of another value.
    Part {
        /// The other value.
        location: ReferencedValue,
        /// The offset in it.
        offset: u64,
        /// The number of bytes.
        len: u64,
        /// How many of them are there. Zeros stand for the rest.
        stored_len: u64,
        /// The state that the other value must still have.
        check: Option<Check>,
    },
    /// In another value, as a whole.
    Whole(ReferencedValue),
}

/// A value that a reference leads to.
#[derive(Debug, Clone)]
pub(super) enum ReferencedValue {
    /// A value of the store that the references came from.
    Own(Key),
    /// A value by its URL or path.
    Other(Arc<str>),
}

/// A condition on the value that a reference leads to.
#[derive(Debug, Clone)]
pub(super) enum Check {
    /// It has this entity tag.
    Tag(Arc<str>),
    /// It did not change after this second since 1970.
    UnmodifiedSince(u64),
    /// It has this version.
    Version(Version),
}

/// A reference: the place of a value, and the properties that it has by that.
#[derive(Debug, Clone)]
pub(super) struct Reference {
    /// The place.
    pub target: ReferenceTarget,
    /// The version of the value. A [`ReferenceTarget::Whole`] has that of the value it leads to.
    pub version: Version,
    /// The time of the value, likewise.
    pub modified: SystemTime,
}

impl Reference {
    /// Returns a reference that has the value itself.
    pub fn inline(bytes: Bytes, modified: SystemTime) -> Self {
        let version = version_of(&bytes, 0, bytes.len().to_u64());
        Self { target: ReferenceTarget::Inline(bytes), version, modified }
    }

    /// Returns a reference to a part of the value at a location.
    pub fn part(location: Arc<str>, offset: u64, len: u64, modified: SystemTime) -> Self {
        let version = version_of(location.as_bytes(), offset, len);
        let location = ReferencedValue::Other(location);
        let target = ReferenceTarget::Part { location, offset, len, stored_len: len, check: None };
        Self { target, version, modified }
    }

    /// Adds a condition on the value that a part of it is of.
    #[must_use]
    pub(super) fn checked(mut self, version: Option<Version>) -> Self {
        if let (ReferenceTarget::Part { check, .. }, Some(version)) = (&mut self.target, version) {
            *check = Some(Check::Version(version));
        }
        self
    }

    /// Says that no more than `bytes` of a part are there.
    #[must_use]
    pub(super) fn stored(mut self, bytes: u64) -> Self {
        if let ReferenceTarget::Part { stored_len, len, .. } = &mut self.target {
            *stored_len = bytes.min(*len);
        }
        self
    }

    /// Returns a reference to the whole value at a location.
    pub fn whole(location: Arc<str>, modified: SystemTime) -> Self {
        let target = ReferenceTarget::Whole(ReferencedValue::Other(location));
        Self { target, version: Version::settled([0; 4]), modified }
    }

    fn stat(&self, len: u64) -> Stat {
        Stat { len, modified: self.modified, version: self.version }
    }
}

/// The names of keys.
pub(super) type KeyNames = Box<dyn Iterator<Item = Result<String>> + Send>;

/// References by key.
pub(super) trait References: Send + Sync + std::fmt::Debug {
    /// Returns the reference of each key; `None` for a key without a value.
    fn find(&self, keys: &[Key]) -> Result<Vec<Option<Reference>>>;

    /// Like [`Self::find`], for those that are known without I/O.
    fn known(&self, keys: &[Key]) -> Vec<Option<Reference>>;

    /// Lists the entries directly below a prefix.
    fn list_dir(self: Arc<Self>, prefix: &Prefix) -> Result<Entries>;

    /// Lists the names of keys directly below a prefix that start with `start`, if they are sorted.
    fn names_starting(self: Arc<Self>, _prefix: &Prefix, _start: &str) -> Option<KeyNames> {
        None
    }

    /// As [`ListableStore::has_states`].
    fn has_states(&self) -> bool {
        false
    }
}

/// The store of the values that references lead to.
#[derive(Debug)]
pub(super) struct RefStore<R> {
    references: Arc<R>,
    places: SourceStores,
    /// The prefix of all keys here.
    base: Prefix,
}

impl<R: References + 'static> RefStore<R> {
    /// Returns the read-only store of the `references` below `base` into `places`.
    pub fn open(references: R, places: SourceStores, base: Prefix) -> Store {
        Store::reading(Arc::new(Self { references: Arc::new(references), places, base }))
    }

    /// Returns the keys of references.
    fn keys<'k>(&self, keys: impl Iterator<Item = &'k Key>) -> Result<Vec<Key>> {
        keys.map(|key| self.base.key(key.as_str())).collect()
    }

    fn stores(&self) -> impl Iterator<Item = &dyn ReadableStore> {
        self.places.stores().map(Store::read)
    }
}

/// The ranges that are read from one store, each with the index of the answer that it is for.
type Requested = BTreeMap<usize, Vec<(usize, (Key, ByteRange))>>;

/// Returns the request for a range of a value; `None` if the value is in the reference itself.
fn request(
    reference: &Reference,
    range: ByteRange,
    places: &SourceStores,
) -> Result<Option<(usize, (Key, ByteRange))>> {
    let (location, range) = match &reference.target {
        ReferenceTarget::Inline(_) => return Ok(None),
        ReferenceTarget::Part { location, offset, len, stored_len, .. } => {
            let (start, len) = range.within(*len);
            let len = len.min(stored_len.saturating_sub(start));
            let offset = offset.checked_add(start).ok_or_else(|| {
                Error::corrupt(format!("the reference begins {start} bytes after byte {offset}"))
            })?;
            (location, ByteRange::Span { offset, len })
        }
        ReferenceTarget::Whole(location) => (location, range),
    };
    let (store, key) = places.find(location)?;
    Ok(Some((store, (key, range))))
}

/// Returns the part of bytes in memory.
fn part(bytes: &Bytes, range: ByteRange) -> Bytes {
    let total = bytes.len().to_u64();
    let (offset, len) = range.within(total);
    let place = |at: u64| at.to_usize().min(bytes.len());
    bytes.slice(Range { start: place(offset), end: place(offset.saturating_add(len)) })
}

/// Checks what the store has returned for a part of a value, and gives it the stat of the value.
fn answer(
    reference: &Reference,
    range: ByteRange,
    found: Option<Value>,
    store: &dyn ReadableStore,
) -> Result<Value> {
    let (location, offset, len, stored_len, check) = match &reference.target {
        ReferenceTarget::Inline(bytes) => {
            let len = bytes.len().to_u64();
            return Ok(Value { bytes: part(bytes, range), stat: reference.stat(len) });
        }
        ReferenceTarget::Part { location, offset, len, stored_len, check } => {
            (location, *offset, *len, *stored_len, check.as_ref())
        }
        ReferenceTarget::Whole(location) => return found.ok_or_else(|| missing(location)),
    };
    let found = found.ok_or_else(|| missing(location))?;
    check.map_or(Ok(()), |check| check.holds(&found.stat, location, store))?;
    let (start, whole) = range.within(len);
    let needed = whole.min(stored_len.saturating_sub(start));
    if u64::try_from(found.bytes.len()) != Ok(needed) {
        return Err(Error::fault(
            Fault::Length,
            format!(
                "{location} has {} bytes; the reference is to {len} bytes from byte {offset}",
                found.stat.len
            ),
        ));
    }
    let mut bytes = found.bytes;
    if needed < whole {
        let mut padded = bytes.to_vec();
        padded.resize(whole.to_usize(), 0);
        bytes = padded.into();
    }
    Ok(Value { bytes, stat: reference.stat(len) })
}

fn missing(location: &ReferencedValue) -> Error {
    Error::fault(Fault::Absent, format!("the reference leads to {location}, which does not exist"))
}

impl std::fmt::Display for ReferencedValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Own(key) => write!(f, "{key}"),
            Self::Other(location) => f.write_str(location),
        }
    }
}

impl Check {
    /// Fails if the value that a reference leads to has changed.
    fn holds(
        &self,
        stat: &Stat,
        location: &ReferencedValue,
        store: &dyn ReadableStore,
    ) -> Result<()> {
        let changed = |how: String| {
            let detail = format!(
                "{location} has changed since the reference to it was made: {how}; write the \
                 reference again"
            );
            Err(Error::new(Kind::Stale, detail))
        };
        match self {
            Self::Version(version) if version.is_same(stat.version) => Ok(()),
            Self::Version(_) => {
                let detail = format!("{location} has changed since it was opened: mount it again");
                Err(Error::new(Kind::Stale, detail))
            }
            Self::UnmodifiedSince(seconds) => {
                let since = stat.modified.duration_since(SystemTime::UNIX_EPOCH);
                match since.unwrap_or_default().as_secs().checked_sub(*seconds) {
                    Some(later) if later > 0 => changed(format!("it is {later} seconds newer")),
                    _ => Ok(()),
                }
            }
            Self::Tag(tag) => match store.has_tag(stat, tag).or_else(|| has_file_tag(stat, tag)) {
                Some(true) => Ok(()),
                Some(false) => changed(format!("its ETag is not {tag}")),
                None => Err(Error::unsupported(format!(
                    "the reference to {location} needs the ETag {tag}, and the store there has no \
                     such tags"
                ))),
            },
        }
    }
}

/// Whether a file has the tag that the library of Icechunk gives it: the inode, the time in
/// microseconds and the length, in hexadecimal digits. The inode of a copy differs.
fn has_file_tag(stat: &Stat, tag: &str) -> Option<bool> {
    let number = |digits| u128::from_str_radix(digits, 16).ok();
    let mut parts = tag.trim_matches('"').split('-');
    let (_inode, modified, len) =
        (number(parts.next()?)?, number(parts.next()?)?, number(parts.next()?)?);
    let since = stat.modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    parts.next().is_none().then_some(since.as_micros() == modified && u128::from(stat.len) == len)
}

/// Returns the version of a value that consists of these bytes, or of what has this name.
pub(super) fn version_of(what: &[u8], offset: u64, len: u64) -> Version {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    let first = hasher.finish();
    len.hash(&mut hasher);
    Version::settled([first, hasher.finish(), offset, len])
}

impl<R: References + 'static> ReadableStore for RefStore<R> {
    fn expect(&self, ranges: &[(Key, ByteRange)]) -> Expected {
        let keys = self.keys(ranges.iter().map(|(key, _)| key)).unwrap_or_default();
        let mut requested: BTreeMap<usize, Vec<(Key, ByteRange)>> = BTreeMap::new();
        for ((_, range), reference) in ranges.iter().zip(self.references.known(&keys)) {
            // An error is reported when the value is read.
            let found = reference.and_then(|it| request(&it, *range, &self.places).ok().flatten());
            if let Some((store, range)) = found {
                requested.entry(store).or_default().push(range);
            }
        }
        let expect = |(store, ranges): (usize, Vec<_>)| {
            self.places.store(store).map(|store| store.read().expect(&ranges))
        };
        let expected: Vec<Expected> = requested.into_iter().filter_map(expect).collect();
        Expected::new(expected)
    }

    fn stop(&self) {
        self.stores().for_each(ReadableStore::stop);
    }

    fn requests(&self) -> Option<Requests> {
        self.stores().filter_map(ReadableStore::requests).reduce(Requests::plus)
    }

    fn most_expected(&self) -> u64 {
        self.stores().map(ReadableStore::most_expected).max().unwrap_or(0)
    }

    fn get_partial_values(&self, ranges: &[(Key, ByteRange)]) -> Result<Vec<Option<Value>>> {
        let keys = self.keys(ranges.iter().map(|(key, _)| key))?;
        let references = self.references.find(&keys)?;
        let mut answers: Vec<Option<Value>> = Vec::with_capacity(ranges.len());
        let mut requested = Requested::new();
        for (index, ((key, range), reference)) in ranges.iter().zip(&references).enumerate() {
            let Some(reference) = reference else {
                answers.push(None);
                continue;
            };
            match request(reference, *range, &self.places).at(key)? {
                Some((store, range)) => {
                    requested.entry(store).or_default().push((index, range));
                    answers.push(None);
                }
                None => match &reference.target {
                    ReferenceTarget::Inline(bytes) => {
                        let len = bytes.len().to_u64();
                        let stat = reference.stat(len);
                        answers.push(Some(Value { bytes: part(bytes, *range), stat }));
                    }
                    ReferenceTarget::Part { .. } | ReferenceTarget::Whole(_) => answers.push(None),
                },
            }
        }
        for (store, requested) in requested {
            let Some(store) = self.places.store(store) else { continue };
            let (indices, below): (Vec<usize>, Vec<_>) = requested.into_iter().unzip();
            let values = store.read().get_partial_values(&below)?;
            for (index, value) in indices.into_iter().zip(values) {
                let wanted = ranges.get(index).zip(references.get(index));
                if let Some(((key, range), Some(reference))) = wanted
                    && let Some(place) = answers.get_mut(index)
                {
                    *place = Some(answer(reference, *range, value, store.read()).at(key)?);
                }
            }
        }
        Ok(answers)
    }

    fn stat(&self, keys: &[Key]) -> Result<Vec<Option<Stat>>> {
        let references = self.references.find(&self.keys(keys.iter())?)?;
        let stat = |(key, reference): (&Key, Option<Reference>)| {
            let Some(reference) = reference else { return Ok(None) };
            let len = match &reference.target {
                ReferenceTarget::Inline(bytes) => bytes.len().to_u64(),
                ReferenceTarget::Part { len, .. } => *len,
                ReferenceTarget::Whole(location) => {
                    let (store, below) = self.places.find(location).at(key)?;
                    let Some(store) = self.places.store(store) else { return Ok(None) };
                    let found = store.stat(&below)?.ok_or_else(|| missing(location)).at(key)?;
                    return Ok(Some(found));
                }
            };
            Ok(Some(reference.stat(len)))
        };
        keys.iter().zip(references).map(stat).collect()
    }

    fn part_of(&self, key: &Key) -> Result<Option<(u64, u64)>> {
        let found = self.references.find(&self.keys(std::iter::once(key))?)?;
        Ok(found.into_iter().next().flatten().and_then(|reference| match reference.target {
            ReferenceTarget::Part { offset, len, .. } => Some((offset, len)),
            ReferenceTarget::Inline(_) | ReferenceTarget::Whole(_) => None,
        }))
    }

    fn room(&self) -> Result<Option<Capacity>> {
        Ok(None)
    }
}

impl<R: References + 'static> ListableStore for RefStore<R> {
    fn has_states(&self) -> bool {
        self.base.is_root() && self.references.has_states()
    }

    fn list_dir(&self, prefix: &Prefix) -> Result<Entries> {
        Arc::clone(&self.references).list_dir(&self.base.join(prefix.as_str())?)
    }

    fn list_starting(&self, prefix: &Prefix, start: &str) -> Result<Keys> {
        let below = self.base.join(prefix.as_str())?;
        if let Some(names) = Arc::clone(&self.references).names_starting(&below, start) {
            let prefix = prefix.clone();
            return Ok(Box::new(names.map(move |name| prefix.key(&name?))));
        }
        Ok(Box::new(starting(self.list_prefix(prefix)?, format!("{prefix}{start}"))))
    }

    fn list_prefix(&self, prefix: &Prefix) -> Result<Keys> {
        let (references, base) = (Arc::clone(&self.references), self.base.clone());
        let list =
            move |prefix: &Prefix| Arc::clone(&references).list_dir(&base.join(prefix.as_str())?);
        let mut open = vec![(prefix.clone(), list(prefix)?)];
        let next = move || -> Option<Result<Key>> {
            loop {
                let (prefix, entries) = open.last_mut()?;
                let below = match entries.next() {
                    None => {
                        open.pop();
                        continue;
                    }
                    Some(Err(error)) => return Some(Err(error)),
                    Some(Ok(StoreEntry::Key(name))) => return Some(prefix.key(&name)),
                    Some(Ok(StoreEntry::Prefix(name))) => prefix.join(&name),
                };
                match below.and_then(|below| Ok((list(&below)?, below))) {
                    Ok((entries, below)) => open.push((below, entries)),
                    Err(error) => return Some(Err(error)),
                }
            }
        };
        Ok(Box::new(std::iter::from_fn(next)))
    }
}

#[cfg(test)]
mod tests;
