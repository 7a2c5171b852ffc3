//! The abstract store interface: keys to values.
//!
//! The three capabilities of the Zarr drafts (readable, writeable, listable),
//! each apart, and what the promises of zarrfs need besides: the length, time and
//! version of a value, `set` on a condition, and `sync`. [`Store`] holds
//! whichever of the three there are: a store that cannot list still mounts.
//!
//! Nothing above this module does I/O on the source.
//!
//! <https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html#abstract-store-interface>
//!
//! `WritableStore::set` takes pieces: new bytes, or a range of the value that it replaces
//! (`Piece::Kept`, valid only under `Condition::Unchanged`). The unchanged inner chunks of a shard
//! are such ranges. They are never decoded, and in a directory the kernel copies them
//! (`copy_file_range`) without memory of this process.
//!
//! Conditions keep the changes of other programs. Every change of a shard is stored on the
//! condition that the shard still has the version that was read, or that there still is none. If
//! the condition does not hold, the writer starts again.

mod aside;
#[cfg(test)]
pub(crate) mod counting;
pub mod directory;
mod key;
pub mod memory;
#[cfg(test)]
pub(crate) mod suite;

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::error::{Error, Kind, Result};
pub use aside::{Aside, PRIVATE};
pub use key::{Key, Prefix, is_component};

/// Which bytes of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteRange {
    /// `len` bytes from `offset`; what lies past the end is left out.
    Span {
        /// Where it begins, in bytes from the start of the value.
        offset: u64,
        /// How many bytes at most.
        len: u64,
    },
    /// The last bytes: that many, or the whole value where it is shorter.
    Suffix(u64),
}

impl ByteRange {
    /// The first `len` bytes.
    pub fn first(len: u64) -> Self {
        Self::Span { offset: 0, len }
    }

    /// The bytes as an offset and a length inside a value of `value_len` bytes.
    pub fn within(self, value_len: u64) -> (u64, u64) {
        match self {
            Self::Span { offset, len } => {
                let offset = offset.min(value_len);
                (offset, len.min(value_len - offset))
            }
            Self::Suffix(len) => {
                let len = len.min(value_len);
                (value_len - len, len)
            }
        }
    }
}

/// Identifies one state of a value.
///
/// Two versions are not compared with `==`: a cache asks whether bytes that it read are still those of the store
/// ([`Self::holds`]), and a condition whether a value is the one that was found ([`Self::is_same`]).
#[derive(Debug, Clone, Copy)]
#[cfg_attr(test, derive(PartialEq, Eq))]
pub struct Version {
    pub(crate) state: [u64; 4],
    /// Whether every later change of the value has another state. If not, bytes that were read as this version may be
    /// outdated though a later look finds the same state.
    pub(crate) is_settled: bool,
    /// What was read of a value that is not settled: by this a condition tells whether it is the same still.
    pub(crate) read: WasRead,
}

/// What was read of a value along with its version.
#[derive(Debug, Clone, Copy, Default)]
#[cfg_attr(test, derive(PartialEq, Eq))]
pub(crate) enum WasRead {
    /// Nothing.
    #[default]
    Nothing,
    /// Some of its bytes.
    Part,
    /// All of its bytes; a digest of them.
    Whole(u64),
}

impl Version {
    /// The version of a value of which every state is another one.
    pub(crate) fn settled(state: [u64; 4]) -> Self {
        Self { state, is_settled: true, read: WasRead::Nothing }
    }

    /// A version that no stored value has, for bytes that are not stored yet. A greater number is a later version.
    pub fn unstored(number: u64) -> Self {
        Self::settled([u64::MAX, number, u64::MAX, u64::MAX])
    }

    /// Whether it was made by [`Self::unstored`].
    pub fn is_unstored(self) -> bool {
        matches!(self.state, [u64::MAX, _, u64::MAX, u64::MAX])
    }

    /// Whether bytes that were read as this version are those of the value in which `now` was found later.
    pub fn holds(self, now: Self) -> bool {
        self.is_settled && self.is_same(now)
    }

    /// The same for a value that may be absent: bytes that were read hold until the value is erased, and its absence until
    /// it is set.
    pub fn holds_of(was: Option<Self>, now: Option<Self>) -> bool {
        match (was, now) {
            (Some(was), Some(now)) => was.holds(now),
            (None, None) => true,
            _ => false,
        }
    }

    /// Whether two looks at a value found the same state.
    pub fn is_same(self, other: Self) -> bool {
        self.state == other.state
    }

    /// A number for each state. Of bytes that are not stored yet it grows with each write.
    pub fn state(self) -> [u64; 4] {
        self.state
    }
}

/// What is known of a value without its bytes.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(test, derive(PartialEq, Eq))]
pub struct Stat {
    /// Length in bytes.
    pub len: u64,
    /// When it was last set.
    pub modified: SystemTime,
    /// Which state of the value this is.
    pub version: Version,
}

/// Bytes of a value, and what the whole value was when they were read.
#[derive(Debug, Clone)]
pub struct Value {
    /// The bytes that were asked for, as far as the value has them.
    pub bytes: Bytes,
    /// The whole value's length, time and version.
    pub stat: Stat,
}

/// A part of a new value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// New bytes.
    New(Bytes),
    /// Bytes of the value that is replaced, so that a shard's unchanged inner chunks need not pass
    /// through memory. Only with [`Condition::Unchanged`]: of which value would it be otherwise?
    Kept {
        /// Bytes from the start of the old value.
        offset: u64,
        /// How many bytes; all of them must be there.
        len: u64,
    },
}

impl Piece {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::New(bytes) => u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            Self::Kept { len, .. } => *len,
        }
    }

    /// Whether it adds nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The length of `pieces` one after another; more than 2^64 bytes are an error.
    pub fn total_len(pieces: &[Self]) -> Result<u64> {
        let total = pieces.iter().try_fold(0_u64, |total, piece| total.checked_add(piece.len()));
        total.ok_or_else(|| Error::too_large("a value of more than 2^64 bytes"))
    }

    /// A value of `len` bytes in which each of `parts` stands in the place of what was from its start. It
    /// keeps its length: a part that would end past it is an error.
    pub fn overlay(len: u64, parts: &[(u64, Bytes)]) -> Result<Vec<Self>> {
        let mut pieces = vec![Self::Kept { offset: 0, len }];
        for (start, bytes) in parts {
            let new = Self::New(bytes.clone());
            if start.checked_add(new.len()).is_none_or(|end| end > len) {
                return Err(Error::too_large(format!(
                    "{len} bytes stored, the requested range ends past them"
                )));
            }
            let (mut all, rest) = Self::cut(pieces, *start);
            let (_, after) = Self::cut(rest, new.len());
            all.push(new);
            all.extend(after);
            pieces = all;
        }
        pieces.retain(|piece| !piece.is_empty());
        Ok(pieces)
    }

    /// The pieces before `at` bytes, and those from there.
    fn cut(pieces: Vec<Self>, at: u64) -> (Vec<Self>, Vec<Self>) {
        let (mut before, mut after) = (Vec::new(), Vec::new());
        let mut room = at;
        for piece in pieces {
            let head_len = room.min(piece.len());
            room -= head_len;
            let (head, tail) = match piece {
                Self::New(mut bytes) => {
                    // No longer than bytes that are in memory.
                    let head = bytes.split_to(usize::try_from(head_len).unwrap_or(bytes.len()));
                    (Self::New(head), Self::New(bytes))
                }
                Self::Kept { offset, len } => (
                    Self::Kept { offset, len: head_len },
                    Self::Kept { offset: offset + head_len, len: len - head_len },
                ),
            };
            before.push(head);
            after.push(tail);
        }
        (before, after)
    }
}

impl From<Bytes> for Piece {
    fn from(bytes: Bytes) -> Self {
        Self::New(bytes)
    }
}

/// When a `set` may happen.
#[derive(Debug, Clone, Copy)]
pub enum Condition {
    /// Whatever is there.
    Always,
    /// Only where the key has no value; else [`Kind::Exists`].
    Absent,
    /// Only where the value is still this one; else [`Kind::Stale`].
    Unchanged(Version),
}

impl Condition {
    /// Whether `found` is what the condition wants.
    pub fn check(self, found: Option<Version>) -> Result<()> {
        match self {
            Self::Always => Ok(()),
            Self::Absent if found.is_none() => Ok(()),
            Self::Absent => Err(Error::new(Kind::Exists, "the key already has a value")),
            Self::Unchanged(version) if found.is_some_and(|found| version.is_same(found)) => Ok(()),
            Self::Unchanged(_) => {
                Err(Error::new(Kind::Stale, "another program changed the value in the meantime"))
            }
        }
    }
}

/// The room of the medium below a store, as `statfs` has it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Room {
    /// Bytes in one unit of the counts below.
    pub unit_len: u32,
    /// Units in all.
    pub total: u64,
    /// Units free.
    pub free: u64,
    /// Units free to ordinary users.
    pub available: u64,
    /// Values that fit in all.
    pub values: u64,
    /// Values that still fit.
    pub values_free: u64,
    /// The longest name of a component, in bytes.
    pub name_max: u32,
}

/// What is directly below a prefix.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Entry {
    /// A value; the last component of its key.
    Key(String),
    /// A prefix of further keys; its last component, without the slash.
    Prefix(String),
}

impl Entry {
    /// The component, whichever it is.
    pub fn name(&self) -> &str {
        match self {
            Self::Key(name) | Self::Prefix(name) => name,
        }
    }
}

/// Entries as the store gives them, in no order, each once. Read lazily: a directory may hold millions.
pub type Entries = Box<dyn Iterator<Item = Result<Entry>> + Send>;

/// Keys as the store gives them, in no order, each once.
pub type Keys = Box<dyn Iterator<Item = Result<Key>> + Send>;

/// A store that values can be read from.
pub trait ReadableStore: Send + Sync + fmt::Debug {
    /// For each key the bytes of its range; `None` where the key has no value.
    fn get_partial_values(&self, ranges: &[(Key, ByteRange)]) -> Result<Vec<Option<Value>>>;

    /// The length, time and version of each value; `None` where the key has none.
    fn stat(&self, keys: &[Key]) -> Result<Vec<Option<Stat>>>;

    /// The room of the medium, where it has one.
    fn room(&self) -> Result<Option<Room>>;

    /// A file that has the value's bytes, and what is known of it, where the store has it so. It stays what it is when the
    /// key gets another value.
    fn open(&self, _key: &Key) -> Result<Option<(OwnedFd, Stat)>> {
        Ok(None)
    }
}

/// A store that values can be written to.
///
/// A value is at every instant the old one or the new one: the new bytes are
/// complete before they take the key.
pub trait WritableStore: Send + Sync + fmt::Debug {
    /// Stores the `pieces`, one after another, as the value of `key`. Returns what is stored now.
    fn set(&self, key: &Key, pieces: &[Piece], condition: Condition) -> Result<Stat>;

    /// For each `(key, start, bytes)` replaces the bytes from `start`; the value must exist and be that long.
    fn set_partial_values(&self, parts: &[(Key, u64, Bytes)]) -> Result<()>;

    /// Erases the values of `keys`. A key without a value is none the worse.
    fn erase_values(&self, keys: &[Key]) -> Result<()>;

    /// Erases the value of `key` only while it is still `version`; else [`Kind::Stale`].
    fn erase_unchanged(&self, key: &Key, version: Version) -> Result<()>;

    /// Erases every value below `prefix`.
    fn erase_prefix(&self, prefix: &Prefix) -> Result<()>;

    /// Moves every value below `from` to the same place below `to`, where it replaces what is there. Where nothing
    /// is below `to` a store that can does it as one step.
    fn move_prefix(&self, from: &Prefix, to: &Prefix) -> Result<()>;

    /// Moves the value of `from` to `to`, where it replaces what is there. A `from` without a value is none the worse.
    fn move_value(&self, from: &Key, to: &Key) -> Result<()>;

    /// Changes when the value was last set, and returns its versions before and after. A key without a value is
    /// [`Kind::NotFound`].
    fn set_modified(&self, key: &Key, modified: SystemTime) -> Result<(Version, Version)>;

    /// Returns when the values of `keys`, or their absence, survive a power cut.
    fn sync(&self, keys: &[Key]) -> Result<()>;

    /// A place for the values that one change has on their way.
    fn aside(&self) -> Result<Aside>;

    /// Stores what `aside` is for. It survives what values survive: where that is a power cut, from now on, and not
    /// only after [`Self::sync`].
    fn declare(&self, aside: &Aside, text: Bytes) -> Result<()>;

    /// What writers that are dead have aside, never a live one's; half-written values that they left are gone then.
    fn abandoned(&self) -> Result<Vec<Aside>>;

    /// To be called now and then: where nothing was written for `quiet`, nothing stays in the store that is there for
    /// writing alone.
    fn rest(&self, quiet: Duration) -> Result<()>;
}

/// A store that can say which keys there are.
pub trait ListableStore: Send + Sync + fmt::Debug {
    /// What is directly below `prefix`; nothing where no key begins so.
    fn list_dir(&self, prefix: &Prefix) -> Result<Entries>;

    /// Every key that begins with `prefix`.
    fn list_prefix(&self, prefix: &Prefix) -> Result<Keys>;

    /// Every key.
    fn list(&self) -> Result<Keys> {
        self.list_prefix(&Prefix::root())
    }
}

/// A store with the capabilities that it has.
#[derive(Debug, Clone)]
pub struct Store {
    read: Arc<dyn ReadableStore>,
    write: Option<Arc<dyn WritableStore>>,
    list: Option<Arc<dyn ListableStore>>,
}

impl Store {
    /// A store that can do everything.
    pub fn new<S: ReadableStore + WritableStore + ListableStore + 'static>(store: Arc<S>) -> Self {
        let read: Arc<dyn ReadableStore> = Arc::<S>::clone(&store);
        let write: Arc<dyn WritableStore> = Arc::<S>::clone(&store);
        Self { read, write: Some(write), list: Some(store) }
    }

    /// The same store, which now refuses to be changed.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.write = None;
        self
    }

    /// The same store, which now cannot say what it holds.
    #[must_use]
    pub fn unlistable(mut self) -> Self {
        self.list = None;
        self
    }

    /// Whether values can be written.
    pub fn is_writable(&self) -> bool {
        self.write.is_some()
    }

    /// For reading.
    pub fn read(&self) -> &dyn ReadableStore {
        &*self.read
    }

    /// For writing; [`Kind::ReadOnly`] where the store or the mount takes none.
    pub fn write(&self) -> Result<&dyn WritableStore> {
        self.write.as_deref().ok_or_else(|| Error::new(Kind::ReadOnly, "mounted read-only"))
    }

    /// For listing, where that can be had.
    pub fn list(&self) -> Option<&dyn ListableStore> {
        self.list.as_deref()
    }

    /// The whole value of `key`, which may have at most `limit` bytes.
    pub fn get(&self, key: &Key, limit: u64) -> Result<Option<Value>> {
        let range = ByteRange::first(limit);
        let mut values = self.read.get_partial_values(&[(key.clone(), range)])?;
        match values.pop().flatten() {
            Some(value) if value.stat.len > limit => Err(Error::too_large(format!(
                "{} bytes stored, the limit here is {limit}",
                value.stat.len
            ))
            .at_key(key)),
            found => Ok(found),
        }
    }

    /// The length, time and version of one value.
    pub fn stat(&self, key: &Key) -> Result<Option<Stat>> {
        Ok(self.read.stat(std::slice::from_ref(key))?.pop().flatten())
    }
}

impl Error {
    /// Names the key it is about.
    #[must_use]
    pub fn at_key(self, key: &Key) -> Self {
        crate::error::At::at(self, key)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_overlay_is_what_writing_the_parts_one_after_another_makes(
            old in prop::collection::vec(any::<u8>(), 0..20),
            parts in prop::collection::vec((0_u64..22, prop::collection::vec(any::<u8>(), 0..8)), 0..5),
        ) {
            let mut want = old.clone();
            let mut fits = true;
            for (start, bytes) in &parts {
                let start = *start as usize;
                match want.get_mut(start..start + bytes.len()) {
                    Some(place) => place.copy_from_slice(bytes),
                    None => fits = false,
                }
            }
            let parts: Vec<(u64, Bytes)> =
                parts.into_iter().map(|(start, bytes)| (start, bytes.into())).collect();
            let pieces = Piece::overlay(old.len() as u64, &parts);
            prop_assert_eq!(pieces.is_ok(), fits);
            if let Ok(pieces) = pieces {
                let mut found = Vec::new();
                for piece in pieces {
                    match piece {
                        Piece::New(bytes) => found.extend_from_slice(&bytes),
                        Piece::Kept { offset, len } => {
                            found.extend_from_slice(&old[offset as usize..][..len as usize]);
                        }
                    }
                }
                prop_assert_eq!(found, want);
            }
        }
    }
}
