//! The version of an open file: a number that changes when its bytes change, for clients that keep
//! parts of it.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use foldhash::quality::FixedState;

use super::Vfs;
use super::names::place::Place;
use super::opening::handles::Source;
use crate::array::Array;
use crate::error::{Error, Result};
use crate::store::Key;

/// The most stored values whose versions are read for one file.
const MAX_VALUES: usize = 4096;

/// The most bytes that are compared themselves.
const MAX_LEN: usize = 1 << 20;

impl Vfs {
    /// Returns the version of an open file, which another program may change at any time; `None` if
    /// reading it would take too long. A file and its parts have their version from the
    /// stored values that they are made of.
    pub fn version(&self, handle: u64) -> Result<Option<u64>> {
        let open = self.opener.handles.get(handle)?;
        let mut hasher = FixedState::default().build_hasher();
        if let Source::View(view) = &open.source {
            // The header may have values of arrays that are not among the elements.
            view.view.print().hash(&mut hasher);
            let mut left = MAX_VALUES;
            for elements in view.view.elements() {
                if !self.add_versions(&elements.array, &mut left, &mut hasher)? {
                    return Ok(None);
                }
            }
            view.modified.hash(&mut hasher);
            return Ok(Some(hasher.finish()));
        }
        match open.inode.place() {
            Some(Place::Chunk(path, coords)) => {
                let array = self.core.hierarchy.existing(&path)?;
                let array = array.array().ok_or_else(Error::not_found)?;
                self.add_version(&[array.key(&coords)?], &mut hasher)?;
            }
            Some(Place::Ordinary(path, relative)) => {
                let stat = self.names.stat_ordinary(&path, &relative)?;
                (stat.len, stat.version.state()).hash(&mut hasher);
            }
            _ => {
                let bytes = self.read(handle, 0, MAX_LEN.saturating_add(1))?;
                if bytes.len() > MAX_LEN {
                    return Ok(None);
                }
                bytes.hash(&mut hasher);
            }
        }
        Ok(Some(hasher.finish()))
    }

    /// Adds the versions of all stored values of an array. Returns false if there are too many.
    fn add_versions(
        &self,
        array: &Arc<Array>,
        left: &mut usize,
        hasher: &mut impl Hasher,
    ) -> Result<bool> {
        let mut keys: Vec<Key> = Vec::new();
        for coords in Arc::clone(array.chunks()).list()? {
            let key = array.key(&coords?)?;
            // The inner chunks of a shard are listed one after another.
            if keys.last() == Some(&key) {
                continue;
            }
            if keys.len() >= *left {
                return Ok(false);
            }
            keys.push(key);
        }
        *left = left.saturating_sub(keys.len());
        keys.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        self.add_version(&keys, hasher)?;
        Ok(true)
    }

    fn add_version(&self, keys: &[Key], hasher: &mut impl Hasher) -> Result<()> {
        let stats = self.core.hierarchy.store().read().stat(keys)?;
        for (key, stat) in keys.iter().zip(stats) {
            key.as_str().hash(hasher);
            stat.map(|stat| (stat.len, stat.version.state())).hash(hasher);
        }
        Ok(())
    }
}
