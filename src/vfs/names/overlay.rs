//! Names that only this mount has: unstored files, and empty directories.
//!
//! A store has no empty directories, and a scratch file need not be stored.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::array::Coords;
use crate::metadata::NodePath;
use crate::vfs::inodes::inode::Inode;
use crate::vfs::inodes::place::Place;

/// The names by directory.
#[derive(Debug, Default)]
pub struct Overlay {
    /// A leaf lock.
    names: Mutex<HashMap<Place, BTreeMap<String, Shown>>>,
}

/// A name that differs from the store.
#[derive(Debug, Clone)]
pub enum Shown {
    /// A directory.
    Directory(Place),
    /// A file with unstored bytes. This keeps its inode after the kernel has forgotten it.
    File(Place, Arc<Inode>),
}

impl Shown {
    /// Returns its place.
    pub fn place(&self) -> &Place {
        match self {
            Self::Directory(place) | Self::File(place, _) => place,
        }
    }
}

impl Overlay {
    /// Returns the entry for `name` in `directory`.
    pub fn get(&self, directory: &Place, name: &str) -> Option<Shown> {
        self.names.lock().get(directory)?.get(name).cloned()
    }

    /// Lists the names in `directory`.
    pub fn list(&self, directory: &Place) -> Vec<(String, Shown)> {
        let names = self.names.lock();
        let list = names.get(directory).into_iter().flatten();
        list.map(|(name, shown)| (name.clone(), shown.clone())).collect()
    }

    /// Returns the chunks of an array with unstored bytes.
    pub fn chunks_of(&self, array: &NodePath) -> Vec<Coords> {
        let names = self.names.lock();
        let shown = names.values().flat_map(BTreeMap::values);
        let coords = shown.filter_map(|shown| match shown {
            Shown::File(Place::Chunk(path, coords), _) if path == array => Some(coords.clone()),
            Shown::File(..) | Shown::Directory(_) => None,
        });
        coords.collect()
    }

    /// Whether any unstored chunk has the first indices `prefix`.
    pub fn has_chunks(&self, array: &NodePath, prefix: &[u64]) -> bool {
        let names = self.names.lock();
        let is_chunk = |shown: &Shown| match shown {
            Shown::File(Place::Chunk(path, coords), _) => {
                path == array && coords.starts_with(prefix)
            }
            Shown::File(..) | Shown::Directory(_) => false,
        };
        names.values().flat_map(BTreeMap::values).any(is_chunk)
    }

    /// Adds a name.
    pub fn insert(&self, directory: Place, name: &str, shown: Shown) {
        self.names.lock().entry(directory).or_default().insert(name.to_owned(), shown);
    }

    /// Removes a name; `false` if it was not here.
    pub fn remove(&self, directory: &Place, name: &str) -> bool {
        let mut names = self.names.lock();
        let Some(list) = names.get_mut(directory) else { return false };
        let removed = list.remove(name).is_some();
        if list.is_empty() {
            names.remove(directory);
        }
        removed
    }

    /// Removes a file, because it is stored or gone. A newer file of the same name stays.
    pub fn remove_file(&self, place: &Place, inode: &Inode) {
        let Some(name) = place.name() else { return };
        let directory = place.parent();
        let mut names = self.names.lock();
        let Some(list) = names.get_mut(&directory) else { return };
        if let Some(Shown::File(_, here)) = list.get(&name)
            && std::ptr::eq(&raw const **here, inode)
        {
            list.remove(&name);
        }
        if list.is_empty() {
            names.remove(&directory);
        }
    }

    /// Removes the empty directories of a node.
    pub fn forget_directories(&self, path: &NodePath) {
        let mut names = self.names.lock();
        for list in names.values_mut() {
            list.retain(|_, shown| match shown {
                Shown::Directory(place) => place.node() != Some(path),
                Shown::File(..) => true,
            });
        }
        names.retain(|_, list| !list.is_empty());
    }

    /// Moves all entries for whose place `new_place` returns another one.
    pub fn replace(&self, new_place: impl Fn(&Place) -> Option<Place>) {
        let moved = |place: Place| new_place(&place).unwrap_or(place);
        let mut names = self.names.lock();
        let old = std::mem::take(&mut *names);
        for (directory, list) in old {
            let list = list.into_iter().map(|(name, shown)| {
                let shown = match shown {
                    Shown::Directory(place) => Shown::Directory(moved(place)),
                    Shown::File(place, inode) => Shown::File(moved(place), inode),
                };
                (name, shown)
            });
            names.entry(moved(directory)).or_default().extend(list);
        }
    }

    /// Returns all files.
    pub fn files(&self) -> Vec<Arc<Inode>> {
        let names = self.names.lock();
        let all = names.values().flat_map(BTreeMap::values);
        all.filter_map(|shown| match shown {
            Shown::File(_, inode) => Some(Arc::clone(inode)),
            Shown::Directory(_) => None,
        })
        .collect()
    }
}
