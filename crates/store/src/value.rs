//! Stored values: their bytes, ranges, lengths, times and versions.

use std::time::SystemTime;

use bytes::Bytes;

use zarrfs_base::error::{Error, Kind, Result};

/// A range of the bytes of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteRange {
    /// `len` bytes from `offset`; bytes past the end are left out.
    Span {
        /// The offset from the start of the value.
        offset: u64,
        /// The most bytes.
        len: u64,
    },
    /// The last bytes: this many, or the whole value if it is shorter.
    Suffix(u64),
}

impl ByteRange {
    /// Returns the range of the first `len` bytes.
    pub fn first(len: u64) -> Self {
        Self::Span { offset: 0, len }
    }

    /// Returns the range as an offset and a length inside a value of `value_len` bytes.
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
/// There is no `==`. A cache checks whether bytes that it read still match the store
/// ([`Self::holds`]), and a condition checks whether the value was replaced ([`Self::is_same`]).
#[derive(Debug, Clone, Copy)]
#[cfg_attr(test, derive(PartialEq, Eq))]
pub struct Version {
    pub(crate) state: [u64; 4],
    /// Whether every later change of the value results in another state. Otherwise bytes that were
    /// read under this version may be outdated even if a later `stat` finds the same state.
    pub(crate) is_settled: bool,
    /// How much of an unsettled value was read, so that a condition can compare it with the stored
    /// bytes.
    pub(crate) read: WasRead,
}

/// How much of a value was read together with its version.
#[derive(Debug, Clone, Copy, Default)]
#[cfg_attr(test, derive(PartialEq, Eq))]
pub(crate) enum WasRead {
    /// Nothing.
    #[default]
    Nothing,
    /// Some of its bytes.
    Part,
    /// All of its bytes, as a digest.
    Whole(u64),
}

impl Version {
    /// Returns a version after which every change results in another state.
    pub fn settled(state: [u64; 4]) -> Self {
        Self { state, is_settled: true, read: WasRead::Nothing }
    }

    /// Returns a version that no stored value has, for unstored bytes. Later versions have greater
    /// numbers.
    pub fn unstored(number: u64) -> Self {
        Self::settled([u64::MAX, number, u64::MAX, u64::MAX])
    }

    /// Whether [`Self::unstored`] made it.
    pub fn is_unstored(self) -> bool {
        matches!(self.state, [u64::MAX, _, u64::MAX, u64::MAX])
    }

    /// Whether bytes that were read under this version match the value that has the version `now`.
    pub fn holds(self, now: Self) -> bool {
        self.is_settled && self.is_same(now)
    }

    /// Like [`Self::holds`], for a value that may be absent: an absent value matches until it is
    /// set.
    pub fn holds_of(was: Option<Self>, now: Option<Self>) -> bool {
        match (was, now) {
            (Some(was), Some(now)) => was.holds(now),
            (None, None) => true,
            _ => false,
        }
    }

    /// Whether two versions are the same state.
    pub fn is_same(self, other: Self) -> bool {
        self.state == other.state
    }

    /// Returns a number for each state. For unstored bytes it grows with each write.
    pub fn state(self) -> [u64; 4] {
        self.state
    }
}

/// The properties of a value without its bytes.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(test, derive(PartialEq, Eq))]
pub struct Stat {
    /// The length in bytes.
    pub len: u64,
    /// The time of the last set.
    pub modified: SystemTime,
    /// The version.
    pub version: Version,
}

/// Bytes of a value, with the stat of the whole value when they were read.
#[derive(Debug, Clone)]
pub struct Value {
    /// The requested bytes, as far as the value has them.
    pub bytes: Bytes,
    /// The stat of the whole value.
    pub stat: Stat,
}

/// The condition of a `set`.
#[derive(Debug, Clone, Copy)]
pub enum Condition {
    /// None.
    Always,
    /// The key must have no value, else [`Kind::Exists`].
    Absent,
    /// The value must still have this version, else [`Kind::Stale`].
    Unchanged(Version),
}

impl Condition {
    /// Checks the condition against the version `found`.
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
