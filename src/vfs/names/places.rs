//! The places to which the names in a directory lead (`Places`); `new` has those of new files.
//!
//! A smaller shape erases no chunks, so their names lead to them until they are removed.
//! zarr-python writes its old shape with every attribute, so a program that did not know of an
//! append would erase what was appended, and whether it knows cannot be told: two arrays that are
//! open in one process are one writer. Libraries remove the chunks themselves, zarr-python 3 before
//! it stores the shape, zarr-python 2 afterwards.

use std::sync::Arc;

use super::chunk_names::{ChunkName, ChunkNames};
use super::ordinary::OrdinaryFiles;
use super::overlay::{Overlay, Shown};
use super::place::{
    CHUNKS, CONTROL, DOCUMENT, FoundPlace, GROUP, Place, Report, STORED, VIEWS, below,
    state_directory,
};
use super::views::Views;
use super::zarr2::Zarr2;
use crate::array::{Array, Coords, parse_index};
use crate::error::{Error, Kind, Result};
use crate::hierarchy::{Content as NodeContent, Document, Node};
use crate::metadata::{NodeKind, NodePath};
use crate::store::{FileKind, Key, ListableStore, STATES};
use crate::vfs::core::Core;
use crate::vfs::options::Presentation;
use crate::view::{Format, ROOT_NAME};

/// Knows to which place a name leads.
pub(in crate::vfs) struct Places {
    pub(super) core: Arc<Core>,
    pub(super) views: Arc<Views>,
    pub(super) overlay: Arc<Overlay>,
    pub(super) zarr2: Arc<Zarr2>,
    pub(super) ordinary: Arc<OrdinaryFiles>,
}

impl Places {
    /// Returns the place of `name` in `directory`; `None` if it does not exist.
    pub fn resolve(&self, directory: &Place, name: &str) -> Result<Option<Place>> {
        Ok(self.find(directory, name)?.map(|found| found.place))
    }

    /// Like [`Self::resolve`], with the stat of the stored value if it was needed.
    pub fn find(&self, directory: &Place, name: &str) -> Result<Option<FoundPlace>> {
        // It explains why the root cannot be read, so it is found even then.
        if name == CONTROL && *directory == Place::Node(NodePath::root()) {
            return Ok(Some(Place::Control.into()));
        }
        let found = match self.core.options.form {
            Presentation::View(_) => self.find_among_views(directory, name)?,
            Presentation::Zarr3 | Presentation::Zarr2 => self.find_in_form(directory, name)?,
        };
        match found {
            None => Ok(self.views.resolve_view(directory, name)?.map(FoundPlace::from)),
            found => Ok(found),
        }
    }

    /// With `--as FORMAT`, only groups and views have names.
    fn find_among_views(&self, directory: &Place, name: &str) -> Result<Option<FoundPlace>> {
        let Place::Node(_) = directory else { return self.find_in_zarr3(directory, name) };
        Ok(match self.find_in_zarr3(directory, name)? {
            Some(FoundPlace { place: Place::Node(path), .. }) => {
                let node = self.core.hierarchy.existing(&path)?;
                (node.kind() == NodeKind::Group).then(|| Place::Node(path).into())
            }
            _ => None,
        })
    }

    fn find_in_form(&self, directory: &Place, name: &str) -> Result<Option<FoundPlace>> {
        match self.translate(directory, name)? {
            ChunkName::Same => match self.find_in_zarr3(directory, name)? {
                None => Ok(self.zarr2.unlisted_chunk(directory, name)?.map(FoundPlace::from)),
                found => Ok(found),
            },
            ChunkName::As(parent, alias) => match self.find_in_zarr3(&parent, &alias)? {
                None => {
                    let is_bare = self.is_bare(directory)?;
                    let own = if is_bare { self.find_in_zarr3(directory, name)? } else { None };
                    let unlisted = || self.zarr2.unlisted_chunk(&parent, &alias);
                    own.map_or_else(|| Ok(unlisted()?.map(FoundPlace::from)), |own| Ok(Some(own)))
                }
                found => Ok(found),
            },
            ChunkName::Beside(place) => Ok(self.zarr2.beside(place)?.map(FoundPlace::from)),
            ChunkName::Nothing => Ok(None),
        }
    }

    /// Returns where `name` in `directory` leads, in the tree of places.
    fn translate(&self, directory: &Place, name: &str) -> Result<ChunkName> {
        let Place::Node(path) = directory else { return Ok(ChunkName::Same) };
        let form = self.core.form_of(path);
        if form == Presentation::Zarr3 && self.core.hierarchy.forms.keys(path).is_none() {
            return Ok(ChunkName::Same);
        }
        let Some(node) = self.core.hierarchy.node(path)? else { return Ok(ChunkName::Same) };
        let of_chunk = node.array().map_or(ChunkName::Same, |array| {
            ChunkNames::of(&self.core, path, array.grid().rank()).translate(path, name)
        });
        Ok(match of_chunk {
            ChunkName::Same if form == Presentation::Zarr2 => Zarr2::translate(&node, name),
            found => found,
        })
    }

    /// Returns the directory and name in the tree of places to which a name leads that may be that
    /// of a chunk.
    pub fn translated(&self, directory: &Place, name: &str) -> Result<(Place, String)> {
        Ok(match self.translate(directory, name)? {
            ChunkName::As(parent, alias) if alias != DOCUMENT => (parent, alias),
            _ => (directory.clone(), name.to_owned()),
        })
    }

    fn is_bare(&self, directory: &Place) -> Result<bool> {
        let Place::Node(path) = directory else { return Ok(false) };
        Ok(self.core.hierarchy.node(path)?.is_some_and(|node| node.is_bare()))
    }

    fn find_in_zarr3(&self, directory: &Place, name: &str) -> Result<Option<FoundPlace>> {
        if let Some(found) = self.find_in_overlay(directory, name)? {
            return Ok(Some(found));
        }
        match self.find_below(directory, name)? {
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

    fn find_below(&self, directory: &Place, name: &str) -> Result<Option<FoundPlace>> {
        match directory {
            Place::Node(path) => self.find_in_node(path, directory, name),
            Place::ChunkDir(path, prefix) => self.find_in_chunks(path, prefix, name),
            Place::OrdinaryDir(path, _) => self.find_ordinary(path, directory, name),
            Place::Control => Ok(match name {
                STORED => Some(Place::StoredDir(NodePath::root()).into()),
                VIEWS => Some(Place::ViewsDir(NodePath::root()).into()),
                name if self.has_states() && STATES.contains(&name) => {
                    Some(state_directory(name)?.into())
                }
                name => Report::of_name(name).map(|report| Place::Report(report).into()),
            }),
            Place::StoredDir(path) => Ok(self.resolve_stored(path, name)?.map(FoundPlace::from)),
            Place::ViewsDir(path) => Ok(self.resolve_views_of(path, name)?.map(FoundPlace::from)),
            _ => Err(Error::new(Kind::NotDirectory, "not a directory")),
        }
    }

    /// Whether the store has other states of the hierarchy.
    pub fn has_states(&self) -> bool {
        self.core.hierarchy.store().list().is_some_and(ListableStore::has_states)
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
                if self.zarr2.removed_chunks.is_hidden(path, &coords) {
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

    fn resolve_stored(&self, path: &NodePath, name: &str) -> Result<Option<Place>> {
        let Some(node) = self.core.hierarchy.node(path)? else { return Ok(None) };
        if let Some(key) = self.stored_documents(&node)?.into_iter().find(|key| key.name() == name)
        {
            return Ok(Some(Place::StoredDocument(path.clone(), key)));
        }
        if node.kind() == NodeKind::Array {
            return Ok(None);
        }
        let child = path.child(name)?;
        Ok(self.core.hierarchy.node(&child)?.map(|_| Place::StoredDir(child)))
    }

    fn resolve_views_of(&self, path: &NodePath, name: &str) -> Result<Option<Place>> {
        let Some(node) = self.core.hierarchy.node(path)? else { return Ok(None) };
        if name == GROUP || (name == ROOT_NAME && path.is_root()) {
            return Ok(Some(Place::ViewsOf(path.clone(), node.kind())).filter(|_| !node.is_bare()));
        }
        let Ok(child) = path.child(name) else { return Ok(None) };
        if node.kind() == NodeKind::Array {
            return Ok(None);
        }
        if let Some(node) = self.core.hierarchy.node(&child)?.filter(|node| !node.is_bare()) {
            return Ok(Some(match node.kind() {
                NodeKind::Array => Place::ViewsOf(child, NodeKind::Array),
                NodeKind::Group => Place::ViewsDir(child),
            }));
        }
        // Name the file that a user misses, such as `t2m.txt`.
        for (stem, _) in Format::split(name) {
            let Ok(child) = path.child(stem) else { continue };
            if let Some(node) = self.core.hierarchy.node(&child)?.filter(|node| !node.is_bare()) {
                return Ok(Some(Place::ViewsOf(child, node.kind())));
            }
        }
        Ok(None)
    }

    /// Returns the keys of a node's stored metadata files; for the root, also of the entry point.
    pub fn stored_documents(&self, node: &Node) -> Result<Vec<Key>> {
        let mut keys: Vec<Key> = node.document().map(Document::keys).unwrap_or_default();
        if node.path().is_root() {
            let entry = Key::parse(DOCUMENT)?;
            if !keys.contains(&entry) && self.core.hierarchy.store().stat(&entry)?.is_some() {
                keys.push(entry);
            }
        }
        Ok(keys)
    }

    /// Returns the keys at which the dialect may store the metadata of a node.
    pub fn stored_keys(&self, path: &NodePath) -> Result<Vec<Key>> {
        let dialect = self.core.hierarchy.dialect_of(path);
        let keys = dialect.document_keys(path)?.into_iter().map(|(_, key)| key);
        Ok(keys.chain(dialect.attributes_key(path)?).collect())
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
