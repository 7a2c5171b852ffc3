//! The one tree of places, whose names are those of Zarr 3 (`Tree`). The other names that a
//! presentation has lead to names in it (`places`).
//!
//! A smaller shape erases no chunks, so their names lead to them until they are removed.
//! zarr-python writes its old shape with every attribute, so a program that did not know of an
//! append would erase what was appended, and whether it knows cannot be told: two arrays that are
//! open in one process are one writer. Libraries remove the chunks themselves, zarr-python 3 before
//! it stores the shape, zarr-python 2 afterwards.

use std::sync::Arc;

use super::ordinary::OrdinaryFiles;
use super::overlay::{Overlay, Shown};
use super::removed_chunks::RemovedChunks;
use crate::array::{Array, Coords, parse_index};
use crate::error::{Error, Kind, Result};
use crate::hierarchy::Content as NodeContent;
use crate::metadata::{NodeKind, NodePath};
use crate::store::FileKind;
use crate::vfs::core::Core;
use crate::vfs::inodes::place::{CHUNKS, DOCUMENT, FoundPlace, Place, below};
use crate::vfs::options::Presentation;

/// Knows which names of Zarr 3 exist, and where they lead.
pub(in crate::vfs) struct Tree {
    pub(super) core: Arc<Core>,
    pub(super) overlay: Arc<Overlay>,
    pub(super) ordinary: Arc<OrdinaryFiles>,
    pub removed_chunks: Arc<RemovedChunks>,
}

impl Tree {
    /// Returns the place of `name` in `directory`, with the stat of the stored value if it was
    /// needed; `None` if it does not exist.
    pub fn find(&self, directory: &Place, name: &str) -> Result<Option<FoundPlace>> {
        if let Some(found) = self.find_in_overlay(directory, name)? {
            return Ok(Some(found));
        }
        match self.find_stored(directory, name)? {
            // A thread that removes the last chunk of a directory leaves the directory there.
            None => self.find_in_overlay(directory, name),
            found => Ok(found),
        }
    }

    fn find_in_overlay(&self, directory: &Place, name: &str) -> Result<Option<FoundPlace>> {
        let epoch = self.core.epoch();
        let Some(shown) = self.overlay.get(directory, name) else { return Ok(None) };
        if self.is_current(&shown)? {
            return Ok(Some(shown.place().clone().into()));
        }
        // A directory in an array that is being made comes before the array.
        if self.core.is_unchanged_since(epoch) {
            self.overlay.remove(directory, name);
        }
        Ok(None)
    }

    fn find_stored(&self, directory: &Place, name: &str) -> Result<Option<FoundPlace>> {
        match directory {
            Place::Node(path) => self.find_in_node(path, directory, name),
            Place::ChunkDir(path, prefix) => self.find_in_chunks(path, prefix, name),
            Place::OrdinaryDir(path, _) => self.find_ordinary(path, directory, name),
            Place::Control | Place::StoredDir(_) | Place::ViewsDir(_) => {
                Ok(self.find_in_control(directory, name)?.map(FoundPlace::from))
            }
            _ => Err(Error::new(Kind::NotDirectory, "not a directory")),
        }
    }

    /// Whether a name that only this mount has is still valid: a directory in an array needs the
    /// array.
    pub fn is_current(&self, shown: &Shown) -> Result<bool> {
        let Shown::Directory(place) = shown else { return Ok(true) };
        if !matches!(place, Place::ChunkDir(..) | Place::OrdinaryDir(..)) {
            return Ok(true);
        }
        let node = place.node().map_or(Ok(None), |path| self.core.hierarchy.node(path))?;
        let Some(array) = node.as_ref().and_then(|node| node.array()) else { return Ok(false) };
        let Place::ChunkDir(path, prefix) = place else { return Ok(true) };
        // One that is too deep, for chunks that wait, must not hide a chunk.
        let coords = Coords::new(prefix.as_slice());
        let array = self.core.hierarchy.forms.shown_array(path, array);
        Ok(!array.grid().contains(&coords) || self.core.cache.stat(&array, &coords)?.is_none())
    }

    fn find_in_node(
        &self,
        path: &NodePath,
        directory: &Place,
        name: &str,
    ) -> Result<Option<FoundPlace>> {
        let Some(node) = self.core.hierarchy.node(path)? else { return Ok(None) };
        if name == DOCUMENT {
            return Ok((!node.is_bare()).then(|| Place::Document(path.clone()).into()));
        }
        match node.content() {
            NodeContent::Array(array) if name == CHUNKS => self.chunks_of(path, array),
            NodeContent::NotUnderstood(NodeKind::Array, error) => {
                let found = self.find_ordinary(path, directory, name)?;
                // An encoded chunk must not appear as an ordinary file with the name of a decoded
                // one.
                let is_safe = found.is_none() && !may_be_chunk(name);
                if is_safe { Ok(None) } else { Err(error.clone()) }
            }
            NodeContent::Array(_) => self.find_ordinary(path, directory, name),
            NodeContent::Group(_) | NodeContent::NotUnderstood(NodeKind::Group, _) => {
                let child = path.child(name)?;
                if matches!(node.content(), NodeContent::Group(_))
                    && !matches!(self.core.options.form, Presentation::View(_))
                    && self.ordinary.is_special(path, directory, name)?
                {
                    return self.find_ordinary(path, directory, name);
                }
                let found = self.core.hierarchy.node(&child)?;
                if let NodeContent::NotUnderstood(_, error) = node.content()
                    && found.as_ref().is_none_or(|found| found.is_bare())
                {
                    // The node may be an array, and its encoded chunks must not appear as decoded
                    // ones.
                    return Err(error.clone());
                }
                if found.is_some() {
                    return Ok(Some(Place::Node(child).into()));
                }
                let found = self.find_ordinary(path, directory, name)?;
                // Another program may have made the directory since the node was looked for.
                let is_dir =
                    matches!(&found, Some(FoundPlace { place: Place::OrdinaryDir(..), .. }));
                if is_dir && self.core.hierarchy.changes().node(&child)?.is_some() {
                    return Ok(Some(Place::Node(child).into()));
                }
                Ok(found)
            }
        }
    }

    /// Returns the place of an array's chunks, if it has any: a directory, or the only chunk of an
    /// array without dimensions.
    pub fn chunks_of(&self, path: &NodePath, array: &Arc<Array>) -> Result<Option<FoundPlace>> {
        let array = &self.core.hierarchy.forms.shown_array(path, array);
        if array.grid().rank() == 0 {
            let coords = Coords::new([]);
            let stat = self.core.cache.stat(array, &coords)?;
            return Ok(
                stat.map(|stat| FoundPlace::stored(Place::Chunk(path.clone(), coords), stat))
            );
        }
        let place = Place::ChunkDir(path.clone(), Vec::new());
        let is_there = self.may_have_chunks(array, &[])?
            || self.overlay.has_chunks(path, &[])
            || self.ordinary.are_in(&place)?;
        Ok(is_there.then(|| place.into()))
    }

    fn find_in_chunks(
        &self,
        path: &NodePath,
        prefix: &[u64],
        name: &str,
    ) -> Result<Option<FoundPlace>> {
        let array = self.core.shown_array(path)?;
        if let Some(index) = parse_index(name) {
            let indices = [prefix, &[index]].concat();
            if !array.grid().contains_prefix(&indices) {
                return self.find_outside(path, &array, indices);
            }
            return Ok(if indices.len() == array.grid().rank() {
                let coords = Coords::new(indices);
                if self.removed_chunks.is_hidden(path, &coords) {
                    return Ok(None);
                }
                let stat = self.core.cache.stat(&array, &coords)?;
                stat.map(|stat| FoundPlace::stored(Place::Chunk(path.clone(), coords), stat))
            } else {
                let is_there = self.may_have_chunks(&array, &indices)?
                    || self.overlay.has_chunks(path, &indices);
                let place = Place::ChunkDir(path.clone(), indices);
                (is_there || self.ordinary.are_in(&place)?).then(|| place.into())
            });
        }
        self.find_ordinary(path, &Place::ChunkDir(path.clone(), prefix.to_vec()), name)
    }

    /// Finds a chunk, or a directory of chunks, that lies outside of the array's shape: a program
    /// that makes an array smaller may remove these afterwards, by their names. They are not
    /// listed.
    fn find_outside(
        &self,
        path: &NodePath,
        array: &Arc<Array>,
        indices: Vec<u64>,
    ) -> Result<Option<FoundPlace>> {
        let Some(array) = array.reaching(&indices) else { return Ok(None) };
        if indices.len() < array.grid().rank() {
            let is_there = self.has_chunks(&array, &indices)?;
            return Ok(is_there.then(|| Place::ChunkDir(path.clone(), indices).into()));
        }
        let coords = Coords::new(indices);
        let stat = self.core.cache.stat(&array, &coords)?;
        Ok(stat.map(|stat| FoundPlace::stored(Place::Chunk(path.clone(), coords), stat)))
    }

    /// Finds an ordinary file or directory in the store, by its path below a node.
    fn find_ordinary(
        &self,
        path: &NodePath,
        directory: &Place,
        name: &str,
    ) -> Result<Option<FoundPlace>> {
        let relative = below(directory, name);
        if self.ordinary.is_reserved(path, &relative)? {
            return Ok(None);
        }
        let store = self.core.hierarchy.store();
        let prefix = self.core.hierarchy.ordinary_prefix(path)?;
        if let Some(files) = self.ordinary.store() {
            let found = files.file_stat(prefix.key(&relative)?.as_str())?;
            return Ok(found.map(|found| match found.kind {
                FileKind::Directory => Place::OrdinaryDir(path.clone(), relative).into(),
                _ => Place::Ordinary(path.clone(), relative).into(),
            }));
        }
        if let Some(list) = store.list() {
            list.expect_names(&prefix.key(&relative)?.parent());
        }
        if let Some(stat) = store.stat(&prefix.key(&relative)?)? {
            return Ok(Some(FoundPlace::stored(Place::Ordinary(path.clone(), relative), stat)));
        }
        let is_dir = self.ordinary.is_directory(path, &relative)?;
        Ok(is_dir.then(|| Place::OrdinaryDir(path.clone(), relative).into()))
    }

    /// Whether there may be a chunk with the first indices `prefix`. A store that takes long is
    /// asked only where it was listed before.
    pub fn may_have_chunks(&self, array: &Arc<Array>, prefix: &[u64]) -> Result<bool> {
        if self.core.is_remote() {
            let is_in_grid = array.grid().rank() > 0 && array.grid().contains_prefix(prefix);
            return Ok(is_in_grid && self.core.cache.may_have_chunks(array, prefix));
        }
        self.has_chunks(array, prefix)
    }

    /// Whether there is a chunk with the first indices `prefix`. `true` if the store cannot list.
    pub fn has_chunks(&self, array: &Arc<Array>, prefix: &[u64]) -> Result<bool> {
        if array.grid().rank() == 0 || !array.grid().contains_prefix(prefix) {
            return Ok(false);
        }
        match self.core.cache.has_chunks(array, prefix) {
            // The first shard is damaged, but later chunks may be readable; or the store cannot
            // list.
            Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::Unsupported) => Ok(true),
            found => found,
        }
    }
}

/// Whether a name can begin a chunk key in any dialect: `c`, `c.0.1`, `c0`, `0`, `0.1`, `0_1`.
pub(super) fn may_be_chunk(name: &str) -> bool {
    let is_index = |rest: &str| rest.starts_with(|first: char| first.is_ascii_digit());
    match name.strip_prefix('c') {
        Some("") => true,
        Some(rest) => is_index(rest.trim_start_matches(['.', '_', '-'])),
        None => is_index(name),
    }
}
