//! The versions of open files: numbers that change when their bytes change, for clients that keep
//! parts of them.
//!
//! A client may combine parts that have the same version. So each part of a view must consist of
//! stored values that have the versions which the number was made from, although other programs may
//! change them at any time, and although the versions of all values are not read for each part:
//!
//! 1. The versions of all values are read. The number is their hash, and they are kept.
//! 2. After that, the view is opened. A handle takes chunks from the cache only if they were
//!    compared with the store after it was opened.
//! 3. The part is read.
//! 4. The versions of the values in the part are read, and must be those of step 1.
//!
//! A value that has one version in steps 1 and 4 has not changed in between, so the part was made
//! from this version. If step 4 fails, the steps are repeated. Values outside of the part do not
//! matter: their parts are checked by their own requests. Bytes that are not elements do not change
//! in an open view, and the number includes them.
//!
//! Step 1 is left out while the kept versions are younger than `--metadata-ttl` and the view is the
//! same. They have at most [`MAX_VALUES`] entries, and go with the cached view.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use foldhash::quality::FixedState;

use super::contents::Contents;
use super::core::Core;
use super::inodes::place::Place;
use super::names::Names;
use super::opening::handles::{HandleSource, Handles};
use super::reader::open_view::OpenView;
use super::reader::stored_versions::{FileVersion, StoredVersions, of_key, of_stat};
use crate::array::Array;
use crate::error::{Error, Result};
use crate::store::{Key, Stat};

/// The most stored values whose versions are read for one file.
const MAX_VALUES: usize = 4096;

/// The most bytes that are compared themselves.
const MAX_LEN: usize = 1 << 20;

/// Compares open files with the stored values that they are made of.
pub struct OpenVersions {
    core: Arc<Core>,
    names: Arc<Names>,
    handles: Arc<Handles>,
}

impl fmt::Debug for OpenVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Versions").finish_non_exhaustive()
    }
}

impl OpenVersions {
    /// Returns the versions of the files of `contents` that `handles` has open.
    pub(in crate::vfs) fn new(contents: &Contents, handles: &Arc<Handles>) -> Self {
        Self {
            core: Arc::clone(&contents.core),
            names: Arc::clone(&contents.names),
            handles: Arc::clone(handles),
        }
    }

    /// Returns the version of an open file, which another program may change at any time. A file
    /// and its parts have their version from the stored values that they are made of. A generated
    /// file has it from its bytes: `read` returns the first bytes of the file, up to a length.
    pub fn of(
        &self,
        handle: u64,
        read: impl FnOnce(usize) -> Result<Bytes>,
    ) -> Result<FileVersion> {
        let open = self.handles.get(handle)?;
        if let HandleSource::View(view) = &open.source {
            let stored = Arc::new(self.stored_versions(view)?);
            *view.versions.lock() = Some(Arc::clone(&stored));
            return Ok(FileVersion { number: stored.number, stored: Some(stored) });
        }
        let mut hasher = FixedState::default().build_hasher();
        match open.inode.place() {
            Some(Place::Chunk(path, coords)) => {
                let array = self.core.hierarchy.existing(&path)?;
                let array = array.array().ok_or_else(Error::not_found)?;
                let keys = [array.key(&coords)?];
                hash(&keys, self.stats_of(&keys)?, &mut hasher);
            }
            Some(Place::Ordinary(path, relative)) => {
                let stat = self.names.ordinary.stat_value(&path, &relative)?;
                (stat.len, stat.version.state()).hash(&mut hasher);
            }
            _ => {
                let bytes = read(MAX_LEN.saturating_add(1))?;
                if bytes.len() > MAX_LEN {
                    return Ok(FileVersion::default());
                }
                bytes.hash(&mut hasher);
            }
        }
        Ok(FileVersion { number: Some(hasher.finish()), stored: None })
    }

    /// Returns the version of an open view that was read last, if it was read a short time ago and
    /// before this handle was opened.
    pub fn last_of(&self, handle: u64) -> Option<FileVersion> {
        let open = self.handles.get(handle).ok()?;
        let HandleSource::View(view) = &open.source else { return None };
        let stored = view.versions.lock().clone()?;
        let is_young = stored.since.elapsed() < self.core.hierarchy.options().metadata_ttl;
        let number = stored.number;
        (is_young && is_before(&stored, view))
            .then_some(FileVersion { number, stored: Some(stored) })
    }

    /// Whether a part of an open view, which was read since `version` was, has this version.
    pub fn is_part_of(&self, handle: u64, version: &FileVersion, part: Range<u64>) -> Result<bool> {
        let open = self.handles.get(handle)?;
        let (HandleSource::View(view), Some(stored)) = (&open.source, &version.stored) else {
            return Ok(false);
        };
        if stored.number.is_none() {
            return Ok(is_before(stored, view));
        }
        let mut keys: Vec<Key> = Vec::new();
        let walk =
            view.view.for_each_chunk((part.start, part.end), &mut |elements, coords, _| {
                let key = elements.array.key(coords)?;
                if keys.last() != Some(&key) {
                    keys.push(key);
                }
                Ok(ControlFlow::Continue(()))
            })?;
        keys.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        keys.dedup();
        let stats = self.stats_of(&keys)?;
        Ok(walk.is_continue() && is_before(stored, view) && stored.hold(keys.iter().zip(stats)))
    }

    /// Reads the versions of all stored values of a view.
    fn stored_versions(&self, open: &OpenView) -> Result<StoredVersions> {
        let (since, view) = (Instant::now(), Arc::clone(&open.view));
        let mut hasher = FixedState::default().build_hasher();
        // The header may have values of arrays that are not among the elements.
        view.print().hash(&mut hasher);
        let mut values = HashMap::new();
        let mut left = MAX_VALUES;
        for elements in view.sources() {
            let Some(keys) = keys_of(&elements.array, left)? else {
                let (view, values) = (Arc::clone(&open.view), HashMap::new());
                return Ok(StoredVersions {
                    since,
                    until: Instant::now(),
                    view,
                    number: None,
                    values,
                });
            };
            left = left.saturating_sub(keys.len());
            let stats = self.stats_of(&keys)?;
            let stored = keys.iter().zip(&stats);
            values.extend(
                stored.filter_map(|(key, stat)| stat.map(|stat| (of_key(key), of_stat(stat)))),
            );
            hash(&keys, stats, &mut hasher);
        }
        open.modified.hash(&mut hasher);
        let (number, until) = (Some(hasher.finish()), Instant::now());
        Ok(StoredVersions { since, until, view, number, values })
    }

    fn stats_of(&self, keys: &[Key]) -> Result<Vec<Option<Stat>>> {
        self.core.hierarchy.store().read().stat(keys)
    }
}

/// Whether the versions were read before a handle of the same view was opened.
fn is_before(stored: &StoredVersions, open: &OpenView) -> bool {
    Arc::ptr_eq(&stored.view, &open.view) && stored.until <= open.opened
}

/// Returns the keys of all stored values of an array; `None` if there are more than `most`.
fn keys_of(array: &Arc<Array>, most: usize) -> Result<Option<Vec<Key>>> {
    let mut keys: Vec<Key> = Vec::new();
    for coords in Arc::clone(array.chunks()).list()? {
        let key = array.key(&coords?)?;
        // The inner chunks of a shard are listed one after another.
        if keys.last() == Some(&key) {
            continue;
        }
        if keys.len() >= most {
            return Ok(None);
        }
        keys.push(key);
    }
    keys.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
    Ok(Some(keys))
}

fn hash(keys: &[Key], stats: Vec<Option<Stat>>, hasher: &mut impl Hasher) {
    for (key, stat) in keys.iter().zip(stats) {
        key.as_str().hash(hasher);
        stat.map(|stat| (stat.len, stat.version.state())).hash(hasher);
    }
}
