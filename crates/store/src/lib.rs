//! The abstract store interface: keys to values.
//!
//! Each capability of the Zarr drafts (readable, writeable, listable) is a trait. zarrfs adds the
//! length, time and version of a value, conditional `set`, and `sync`. [`Store`] holds the
//! capabilities that a store has: a store that cannot list can still be mounted.
//!
//! Nothing above this module does I/O on the source.
//!
//! <https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html#abstract-store-interface>
//!
//! `WritableStore::set` takes pieces: new bytes, or a range of the value that it replaces
//! (`ValuePiece::Kept`, valid only under `Condition::Unchanged`). The unchanged inner chunks of a
//! shard are such ranges. They are never decoded, and in a directory the kernel copies them
//! (`copy_file_range`) without using memory of this process.
//!
//! Conditions preserve the changes of other programs. A change of a shard is stored only if the
//! shard still has the version that was read, or is still missing. Otherwise the writer starts
//! again.

#![deny(missing_docs)]
#![cfg_attr(
    test,
    allow(
        clippy::as_conversions,
        clippy::cast_possible_truncation,
        clippy::let_underscore_must_use,
        clippy::needless_pass_by_value,
        clippy::unnecessary_wraps,
        clippy::too_many_lines,
        reason = "tests compute with small numbers, and may throw results away"
    )
)]

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

mod aside;
pub mod backing;
mod capabilities;
#[cfg(test)]
#[path = "../testing/counting.rs"]
#[expect(dead_code, reason = "tests of other crates use the rest")]
mod counting;
pub mod described;
pub mod directory;
#[cfg(any(test, feature = "remote"))]
pub mod disk_cache;
mod file_stat;
mod files;
pub mod grafted;
#[cfg(feature = "remote")]
pub mod http;
pub mod icechunk;
pub mod kerchunk;
mod key;
pub mod memory;
#[cfg(test)]
#[path = "../testing/server.rs"]
mod memory_server;
mod new_file;
#[cfg(feature = "remote")]
pub mod object;
mod omissions;
mod open_file;
#[cfg(feature = "remote")]
mod pace;
mod piece;
pub mod refs;
#[cfg(any(test, feature = "remote"))]
pub mod remote;
#[cfg(feature = "remote")]
mod runner;
#[cfg(test)]
#[path = "../testing/suite.rs"]
mod suite;
#[cfg(any(test, feature = "remote"))]
mod unique;
pub mod unnamed;
mod value;
pub mod within;
#[cfg(feature = "remote")]
mod xml;
pub mod zip;

#[cfg(test)]
extern crate self as zarrfs_store; // The files in testing/ use this name, here and in other crates.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;

pub use aside::{Aside, PRIVATE};
pub use capabilities::Store;
pub use file_stat::{
    FileChanges, FileId, FileKind, FileStat, FileUse, NewNode, NewTime, Ownership, PRIVILEGES,
    Presence, Replace,
};
pub use files::FileStore;
pub use key::{Key, MAX_KEY_LEN, Prefix, is_component};
pub use new_file::{NewFile, Stamp};
pub use omissions::{NotSeen, OMISSIONS_TARGET, Omission, Omissions};
pub use open_file::{Extent, OpenFile};
pub use piece::ValuePiece;
pub(crate) use value::WasRead;
pub use value::{ByteRange, Condition, Stat, Value, Version};
use zarrfs_base::error::{Error, Kind, Result};

/// The directories of other states of a hierarchy, below [`PRIVATE`]: see
/// [`ListableStore::has_states`].
pub const STATES: [&str; 3] = [BRANCHES, TAGS, SNAPSHOTS];
const BRANCHES: &str = "branches";
const TAGS: &str = "tags";
const SNAPSHOTS: &str = "snapshots";

/// The capacity of the medium below a store, as in `statfs`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Capacity {
    /// The bytes of one unit in the following counts.
    pub unit_len: u32,
    /// All units.
    pub total: u64,
    /// The free units.
    pub free: u64,
    /// The units that ordinary users may use.
    pub available: u64,
    /// The most values.
    pub values: u64,
    /// How many more values fit.
    pub values_free: u64,
    /// The most bytes of a component's name.
    pub name_max: u32,
}

/// An entry directly below a prefix.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum StoreEntry {
    /// A value, by the last component of its key.
    Key(String),
    /// A prefix of further keys, by its last component without the slash.
    Prefix(String),
}

impl StoreEntry {
    /// Returns the component.
    pub fn name(&self) -> &str {
        match self {
            Self::Key(name) | Self::Prefix(name) => name,
        }
    }
}

/// A private file of a writer: a lock file, or its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriterFile {
    /// Its path in the store, which is not a key.
    pub path: String,
    /// Whether it is a session, not the lock file of a key.
    pub is_session: bool,
    /// Whether its writer is alive.
    pub is_held: bool,
}

/// Entries in no particular order, each once. They are read lazily, because a directory may hold
/// millions.
pub type Entries = Box<dyn Iterator<Item = Result<StoreEntry>> + Send>;

/// Keys in no particular order, each once.
pub type Keys = Box<dyn Iterator<Item = Result<Key>> + Send>;

/// An entry of a listing whose keys the store may not all know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListedEntry {
    /// A key.
    Key(Key),
    /// A directory that the store cannot list, and why.
    Unlisted(Prefix, Error),
}

/// Values that are expected to be read: see [`ReadableStore::expect`].
#[derive(Default)]
pub struct Expected(Option<Box<dyn Send + Sync>>);

impl Expected {
    /// Returns the expectation that ends when `guard` is dropped.
    pub fn new(guard: impl Send + Sync + 'static) -> Self {
        Self(Some(Box::new(guard)))
    }
}

impl fmt::Debug for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expected").field("has_guard", &self.0.is_some()).finish()
    }
}

/// The requests to a server, and the bytes of values in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requests {
    /// Requests for a value, a part of it, or its stat.
    pub gets: u64,
    /// Requests for a page of a listing.
    pub lists: u64,
    /// Requests that store a value.
    pub puts: u64,
    /// Requests that erase values.
    pub deletes: u64,
    /// The bytes of values that were received.
    pub received_len: u64,
    /// The bytes of values that were sent.
    pub sent_len: u64,
    /// How long the server has shown no sign of its work while requests were under way.
    pub silence: Duration,
    /// Reads that the disk cache answered.
    pub disk_hits: u64,
    /// The bytes of values in them.
    pub disk_len: u64,
}

impl Requests {
    /// Returns the requests to two servers.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            gets: self.gets.saturating_add(other.gets),
            lists: self.lists.saturating_add(other.lists),
            puts: self.puts.saturating_add(other.puts),
            deletes: self.deletes.saturating_add(other.deletes),
            received_len: self.received_len.saturating_add(other.received_len),
            sent_len: self.sent_len.saturating_add(other.sent_len),
            silence: self.silence.max(other.silence),
            disk_hits: self.disk_hits.saturating_add(other.disk_hits),
            disk_len: self.disk_len.saturating_add(other.disk_len),
        }
    }
}

/// A store that values can be read from.
pub trait ReadableStore: Send + Sync + fmt::Debug {
    /// Notes that these ranges will be read soon, and returns at once. A store that takes long for
    /// each answer requests them together. What it has not requested when the result is dropped, it
    /// does not request.
    fn expect(&self, _ranges: &[(Key, ByteRange)]) -> Expected {
        Expected::default()
    }

    /// Ends all waits for answers, for a mount that ends: they fail, and so do later calls.
    fn stop(&self) {}

    /// Returns the requests since the store was opened, if it is on a server.
    fn requests(&self) -> Option<Requests> {
        None
    }

    /// Returns how many bytes are best expected at a time; 0 if each answer comes at once.
    fn most_expected(&self) -> u64 {
        0
    }

    /// Whether each answer takes long, as of a server.
    fn is_remote(&self) -> bool {
        self.most_expected() > 0
    }

    /// Returns the bytes of each range; `None` for a key without a value.
    fn get_partial_values(&self, ranges: &[(Key, ByteRange)]) -> Result<Vec<Option<Value>>>;

    /// Returns the stat of each value; `None` for a key without a value.
    fn stat(&self, keys: &[Key]) -> Result<Vec<Option<Stat>>>;

    /// Like [`Self::stat`], but no answer is older than `since`, whatever the store remembers: it
    /// decides over a change.
    fn stat_since(&self, keys: &[Key], _since: Instant) -> Result<Vec<Option<Stat>>> {
        self.stat(keys)
    }

    /// Fails if the store has the name of a value twice, and the two differ. Each read of the value
    /// does that, too.
    fn check_name(&self, _key: &Key) -> Result<()> {
        Ok(())
    }

    /// Whether the store has checksums of its values.
    fn has_checksums(&self) -> bool {
        false
    }

    /// Fails if the bytes of a value have another checksum than the store has of them. A read of
    /// the whole value does that, too.
    fn check_value(&self, _key: &Key) -> Result<()> {
        Ok(())
    }

    /// Notes, among the omissions of the store, values that were not read yet and have a second
    /// name that differs from their key, like [`Self::check_name`]. Looks only at keys that are
    /// `wanted`.
    fn note_misnamed(&self, _wanted: &dyn Fn(&str) -> bool) -> Result<()> {
        Ok(())
    }

    /// Whether a value with this stat has an entity tag (`ETag`); `None` if the store has no tags.
    fn has_tag(&self, _stat: &Stat, _tag: &str) -> Option<bool> {
        None
    }

    /// Returns where a value lies in another one: its offset and its length. `None` if it is no
    /// part of another value.
    fn part_of(&self, _key: &Key) -> Result<Option<(u64, u64)>> {
        Ok(None)
    }

    /// Returns the capacity of the medium, if it has one.
    fn room(&self) -> Result<Option<Capacity>>;

    /// Opens a file with exactly the value's bytes, if the store has one. The file does not change
    /// when the key gets another value.
    fn open(&self, _key: &Key) -> Result<Option<(OwnedFd, Stat)>> {
        Ok(None)
    }
}

/// The error of a change that needs an empty place, where another program has just made something.
pub fn not_free() -> Error {
    Error::new(Kind::NotEmpty, "another program has just made something here")
}

/// The promises of a directory that a writable store keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promises {
    /// A prefix moves in one step. Otherwise its values move one after another.
    pub moves: bool,
    /// [`WritableStore::erase_unchanged`] works.
    pub erases_unchanged: bool,
    /// Times can be set.
    pub times: bool,
}

impl Promises {
    /// All of them.
    pub const ALL: Self = Self { moves: true, erases_unchanged: true, times: true };
}

/// A store that values can be written to.
///
/// At every instant a value is the old one or the new one: the new bytes are complete before they
/// take the key.
pub trait WritableStore: Send + Sync + fmt::Debug {
    /// Returns the promises of a directory that the store keeps.
    fn promises(&self) -> Promises {
        Promises::ALL
    }

    /// Fails if the store cannot keep a condition, so that a value cannot be changed in part.
    fn check_conditions(&self) -> Result<()> {
        Ok(())
    }

    /// Returns this store for values in the directory `home`, which exists: it creates directories
    /// below `home`, but never `home` itself. If another program has moved or removed `home`, a
    /// change fails with `ESTALE`. `None` if the store has no directories.
    fn in_directory(&self, _home: &Prefix) -> Option<Arc<dyn WritableStore>> {
        None
    }

    /// Stores the concatenated `pieces` as the value of `key`, and returns the new stat.
    fn set(&self, key: &Key, pieces: &[ValuePiece], condition: Condition) -> Result<Stat>;

    /// Keeps other writers from changing the value of `key` until what it returns is dropped; only
    /// this thread can change it. For a writer that has lost to others again and again. `None` if
    /// the store has no locks. A thread takes one turn at a time.
    fn take_turn(&self, _key: &Key) -> Result<Option<Box<dyn fmt::Debug + Send>>> {
        Ok(None)
    }

    /// Creates an empty file that is no value yet, for [`Self::set_file`] with a key below
    /// `prefix`; `None` if the store has no files. A file that is dropped leaves nothing behind.
    fn new_file(&self, _prefix: &Prefix) -> Result<Option<NewFile>> {
        Ok(None)
    }

    /// Makes a file of [`Self::new_file`] the value of `key`, and returns the new stat. `None`, and
    /// no change, if the file cannot take this key: then `set` its bytes.
    fn set_file(&self, _key: &Key, _file: &NewFile, _condition: Condition) -> Result<Option<Stat>> {
        Ok(None)
    }

    /// Stores several values, as [`Self::set`] does, and returns the result of each. A store that
    /// takes long for each stores them at the same time.
    fn set_all(&self, values: Vec<(Key, Vec<ValuePiece>, Condition)>) -> Vec<Result<Stat>> {
        let set = |(key, pieces, condition): (Key, Vec<ValuePiece>, Condition)| {
            self.set(&key, &pieces, condition)
        };
        values.into_iter().map(set).collect()
    }

    /// Replaces the bytes from `start` for each `(key, start, bytes)`. The value must exist and be
    /// long enough.
    fn set_partial_values(&self, parts: &[(Key, u64, Bytes)]) -> Result<()>;

    /// Erases the values of `keys`. Keys without a value are skipped.
    fn erase_values(&self, keys: &[Key]) -> Result<()>;

    /// Erases the value of `key` if it still has this `version`, else fails with [`Kind::Stale`].
    fn erase_unchanged(&self, key: &Key, version: Version) -> Result<()>;

    /// Erases every value below `prefix`.
    fn erase_prefix(&self, prefix: &Prefix) -> Result<()>;

    /// Removes the directories at and below `prefix`, in which no value lies. Fails with
    /// [`Kind::NotEmpty`] if there is one, since another program has just stored it. A store
    /// without directories only looks. It is `ESTALE` if `prefix` is the
    /// [home](Self::in_directory), and not there.
    fn erase_empty(&self, prefix: &Prefix) -> Result<()>;

    /// Moves every value below `from` to the same place below `to`, where nothing lies, in one step
    /// if the store [moves](Promises::moves) a prefix in one. Fails with [`Kind::NotEmpty`] if
    /// another program has just made something there, and with [`Kind::NotFound`] if nothing lies
    /// below `from`; then nothing has moved.
    fn move_to_free(&self, from: &Prefix, to: &Prefix) -> Result<()>;

    /// Moves every value below `from` to the same place below `to`, replacing values there. If
    /// nothing is below `to`, a store does it in one step if it can.
    fn move_prefix(&self, from: &Prefix, to: &Prefix) -> Result<()>;

    /// Moves the value of `from` to `to`, replacing a value there. Does nothing if `from` has no
    /// value.
    fn move_value(&self, from: &Key, to: &Key) -> Result<()>;

    /// Sets the modification time of a value, if times can be set, and returns the versions before
    /// and after. [`Kind::NotFound`] if the key has no value.
    fn set_modified(&self, key: &Key, modified: SystemTime) -> Result<(Version, Version)>;

    /// Forces the values of `keys`, or their absence, to disk.
    fn sync(&self, keys: &[Key]) -> Result<()>;

    /// Returns a place for the temporary values of one change.
    fn aside(&self) -> Result<Aside>;

    /// Stores the declaration of a change in `aside`. If the store syncs values at once, it also
    /// syncs the declaration at once, not only in [`Self::sync`].
    fn declare(&self, aside: &Aside, text: Bytes) -> Result<()>;

    /// Returns the temporary places of dead writers, never those of live ones. Also removes their
    /// half-written values. A remote store may take a minute to see that a writer is dead.
    fn abandoned(&self) -> Result<Vec<Aside>>;

    /// Removes a lock file of [`ListableStore::writer_files`] if its writer is dead. Returns
    /// whether it was removed.
    fn remove_lock(&self, _path: &str) -> Result<bool> {
        Ok(false)
    }

    /// Releases resources that are only needed for writing, if nothing was written for `quiet`.
    /// Call this periodically.
    fn release_idle(&self, quiet: Duration) -> Result<()>;
}

/// A store that can list its keys.
pub trait ListableStore: Send + Sync + fmt::Debug {
    /// Whether keys can be listed: a server may refuse that.
    fn can_list(&self) -> bool {
        true
    }

    /// Notes that a program asks for names directly below `prefix`. A store that takes long for
    /// each answer reads the first of them together.
    fn expect_names(&self, _prefix: &Prefix) {}

    /// Whether the entries directly below `prefix` are listed without a request that takes long.
    fn is_listed(&self, _prefix: &Prefix) -> bool {
        true
    }

    /// Whether a prefix may be listed although no key has it, as an empty directory is.
    fn lists_empty_prefixes(&self) -> bool {
        true
    }

    /// Whether a name that is not listed is not there. The pages of web servers leave out some:
    /// names that begin with a dot, or those that its owner wants to hide.
    fn proves_absence(&self) -> bool {
        true
    }

    /// Notes that these keys may be there, whatever the lists say that do not prove absence: they
    /// are asked for by the next read.
    fn doubt(&self, _keys: &[Key]) {}

    /// Returns the account of what its lists leave out.
    fn omissions(&self) -> Omissions {
        Omissions::default()
    }

    /// Whether a key may have this `prefix`, as far as that is known. A store that takes long is
    /// not asked about a directory that no program has listed.
    fn may_have(&self, _prefix: &Prefix) -> bool {
        true
    }

    /// Like [`Self::may_have`], for the entries directly below `prefix` that `is_wanted`.
    fn may_have_entry(&self, prefix: &Prefix, _is_wanted: &dyn Fn(&StoreEntry) -> bool) -> bool {
        self.may_have(prefix)
    }

    /// Whether the store has other states of the hierarchy below [`PRIVATE`], in the directories
    /// [`STATES`]. Listings of the root leave them out.
    fn has_states(&self) -> bool {
        false
    }

    /// Whether other keys stand for the contents of this one: it is a file that is shown as a
    /// hierarchy.
    fn is_shown_otherwise(&self, _key: &Key) -> bool {
        false
    }

    /// Forgets what is known of the keys below `prefix`, because what is listed next decides over a
    /// change.
    fn forget_below(&self, _prefix: &Prefix) {}

    /// Lists the entries directly below `prefix`; none if no key has this prefix.
    fn list_dir(&self, prefix: &Prefix) -> Result<Entries>;

    /// Lists every key with this `prefix`.
    fn list_prefix(&self, prefix: &Prefix) -> Result<Keys>;

    /// Lists every key with this `prefix` that goes on with `start`. A store with sorted names does
    /// not list the others.
    fn list_starting(&self, prefix: &Prefix, start: &str) -> Result<Keys> {
        Ok(Box::new(starting(self.list_prefix(prefix)?, format!("{prefix}{start}"))))
    }

    /// Lists every key with this `prefix` that goes on with `start`. A directory that the store
    /// cannot list is an entry, and none of its keys is.
    fn list_known(
        &self,
        prefix: &Prefix,
        start: &str,
    ) -> Result<Box<dyn Iterator<Item = Result<ListedEntry>> + Send>> {
        let keys = if start.is_empty() {
            self.list_prefix(prefix)?
        } else {
            self.list_starting(prefix, start)?
        };
        Ok(Box::new(keys.map(|key| key.map(ListedEntry::Key))))
    }

    /// Returns the private files of writers below `prefix`, which the other listings leave out.
    fn writer_files(&self, _prefix: &Prefix) -> Result<Vec<WriterFile>> {
        Ok(Vec::new())
    }

    /// Lists every key.
    fn list(&self) -> Result<Keys> {
        self.list_prefix(&Prefix::root())
    }
}

/// Returns the keys that start with `start`.
fn starting(keys: Keys, start: String) -> impl Iterator<Item = Result<Key>> + Send {
    keys.filter(move |key| key.as_ref().map_or(true, |key| key.as_str().starts_with(&start)))
}
