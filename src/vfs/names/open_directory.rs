//! An open directory: the names that were read last, and the rest of them.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::array::Coords;
use crate::error::{Error, Result};
use crate::store::Stat;
use crate::vfs::inodes::place::{DirEntries, DirEntry, Place};

/// A name in a directory.
#[derive(Debug)]
pub struct DirectoryName {
    /// The name itself.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
    pub(in crate::vfs) place: Place,
    pub(super) position: usize,
}

/// An open directory. A position stays valid while the listing stays near it; after a jump far back
/// the directory is read again.
pub struct DirHandle {
    pub(super) place: Place,
    /// Held while the next names are read.
    pub(super) read: Mutex<NamesRead>,
    /// The stats of the next chunks. A leaf lock.
    pub(super) stats: Mutex<Stats>,
    pub(super) _counted: OpenDirectoryCount,
}

impl DirHandle {
    /// Whether the name at `position` is not kept any more.
    pub(super) fn has_passed(&self, position: usize) -> bool {
        position < self.read.lock().first
    }
}

/// Counts an open directory until it is dropped.
pub(super) struct OpenDirectoryCount(Arc<AtomicUsize>);

impl OpenDirectoryCount {
    pub(super) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for OpenDirectoryCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Prefetched stats of chunks, and when the first was taken.
#[derive(Default)]
pub(super) struct Stats {
    pub(super) known: HashMap<Coords, Stat>,
    pub(super) since: Option<Instant>,
}

pub(super) struct NamesRead {
    /// The names read last.
    pub(super) listed: VecDeque<Arc<DirectoryName>>,
    /// The position of the first of them.
    pub(super) first: usize,
    pub(super) rest: Rest,
    /// An error other than damaged data, to be reported at the end of the listing.
    pub(super) failed: Option<Error>,
    /// The number of errors since the last name.
    pub(super) errors: usize,
}

/// The remaining names of a directory.
pub(super) enum Rest {
    /// Not open: the next read starts at the beginning and skips.
    Closed,
    /// Open.
    Open(DirEntries),
    /// Read in part and closed, because too many directories are open. `true` if there may be more
    /// names.
    Taken(VecDeque<Result<DirEntry>>, bool),
    /// At the end.
    End,
}

impl NamesRead {
    pub(super) fn new(rest: Rest) -> Self {
        Self { listed: VecDeque::new(), first: 0, rest, failed: None, errors: 0 }
    }

    /// Returns the position of the next name.
    pub(super) fn next_position(&self) -> usize {
        self.first.saturating_add(self.listed.len())
    }
}

impl fmt::Debug for DirHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirHandle").field("place", &self.place).finish_non_exhaustive()
    }
}
