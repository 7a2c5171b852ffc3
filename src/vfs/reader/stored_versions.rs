//! The versions of the stored values that a view is made of, for clients that keep parts of it.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Instant;

use foldhash::quality::FixedState;
use parking_lot::Mutex;

use crate::store::{Key, Stat};
use crate::view::View;

/// The version of an open file. By default, it is not known.
#[derive(Debug, Clone, Default)]
pub struct FileVersion {
    /// Changes with the bytes of the file; `None` if reading it would take too long.
    pub number: Option<u64>,
    /// The versions of the values of a view.
    pub(in crate::vfs) stored: Option<Arc<StoredVersions>>,
}

impl FileVersion {
    /// Whether parts have to be compared with it: those of views.
    pub fn has_parts(&self) -> bool {
        self.number.is_some() && self.stored.is_some()
    }
}

/// The versions of all stored values of a view.
#[derive(Debug)]
pub(in crate::vfs) struct StoredVersions {
    /// When reading them began, and when it had ended.
    pub since: Instant,
    pub until: Instant,
    pub view: Arc<View>,
    /// A number that depends on all of them, and on the bytes of the view that are not elements.
    /// `None` if there are too many values.
    pub number: Option<u64>,
    /// The hash of each version by the hash of its key. Values that are not stored are absent.
    pub values: HashMap<u64, u64>,
}

/// The versions that were read last for a cached view, which all its handles share. A leaf lock.
pub(in crate::vfs) type LastVersions = Arc<Mutex<Option<Arc<StoredVersions>>>>;

impl StoredVersions {
    /// Whether values have these versions.
    pub fn hold<'k>(&self, found: impl IntoIterator<Item = (&'k Key, Option<Stat>)>) -> bool {
        let mut found = found.into_iter();
        found.all(|(key, stat)| self.values.get(&of_key(key)).copied() == stat.map(of_stat))
    }
}

/// Returns the hash of a key.
pub(in crate::vfs) fn of_key(key: &Key) -> u64 {
    hash(&key.as_str())
}

/// Returns the hash of a version.
pub(in crate::vfs) fn of_stat(stat: Stat) -> u64 {
    hash(&(stat.len, stat.version.state()))
}

fn hash(value: &impl Hash) -> u64 {
    FixedState::default().hash_one(value)
}
