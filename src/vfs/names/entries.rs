//! The names in a directory with their places, without attributes.

use std::collections::HashSet;
use std::sync::Arc;

use super::listing::Listings;
use crate::array::{Array, Coords, Grid};
use crate::error::{Error, Kind, Result};
use crate::hierarchy::{Content, Member};
use crate::metadata::{NodeKind, NodePath};
use crate::store::STATES;
use crate::vfs::inodes::chunk_names::ChunkNames;
use crate::vfs::inodes::place::{
    CHUNKS, CONTROL, DOCUMENT, DirEntries, DirEntry, GROUP, Place, Report, STORED, VIEWS,
    state_directory, view_name,
};
use crate::vfs::options::Presentation;
use crate::view::has_level;

/// A listing remembers this many directories of chunks, to list none of them twice. It asks the
/// store about the others. Few in unit tests, so that these try both.
const MAX_KNOWN: usize = if cfg!(test) { 2 } else { 1 << 16 };

impl Listings {
    /// Lists every name in a directory with its place, those that only this mount has first.
    pub fn entries(&self, directory: &Place) -> Result<DirEntries> {
        let mut own = self.names.overlay.list(directory);
        own.retain(|(_, shown)| self.names.tree.is_current(shown).unwrap_or(true));
        let names: HashSet<String> = own.iter().map(|(name, _)| name.clone()).collect();
        let stored = self.without_removed(directory, self.stored_names(directory)?);
        let stored = stored
            .filter(move |found| found.as_ref().map_or(true, |(name, _)| !names.contains(name)));
        let own = own.into_iter().map(|(name, shown)| Ok((name, shown.place().clone())));
        let names: DirEntries = Box::new(own.chain(stored));
        let Place::Node(path) = directory else { return Ok(names) };
        let names = self.with_chunk_names(path, names)?;
        let names = match self.core.form_of(path) {
            Presentation::Zarr3 => names,
            Presentation::Zarr2 => self.names.zarr2.names_of_zarr2(path, names)?,
            Presentation::View(_) => Box::new(self.groups_in(path)?.into_iter()),
        };
        Ok(Box::new(names.chain(self.listed_views(path)?.into_iter().map(Ok))))
    }

    /// Leaves out chunks that a program has removed, and must not find.
    fn without_removed(&self, directory: &Place, names: DirEntries) -> DirEntries {
        let hidden = directory.node().map(|path| self.names.tree.removed_chunks.hidden(path));
        let Some(hidden) = hidden.filter(|hidden| !hidden.is_empty()) else { return names };
        Box::new(names.filter(move |found| match found {
            Ok((_, Place::Chunk(_, coords))) => !hidden.contains(coords),
            _ => true,
        }))
    }

    /// Gives the chunks in the directory of an array the names that its metadata file shows.
    fn with_chunk_names(&self, path: &NodePath, names: DirEntries) -> Result<DirEntries> {
        let form = self.core.form_of(path);
        if matches!(form, Presentation::View(_))
            || (form == Presentation::Zarr3 && self.core.hierarchy.forms.keys(path).is_none())
        {
            return Ok(names);
        }
        let node = self.core.hierarchy.existing(path)?;
        let Some(array) = self.core.hierarchy.forms.shown_array_of(&node) else { return Ok(names) };
        let chunk_names = ChunkNames::of(&self.core, path, array.grid().rank());
        if chunk_names.are_of_places() {
            return Ok(names);
        }
        let lists_fill = self.names.zarr2.lists_fill(path, &array);
        let others = names.filter_map(move |found| match found {
            Ok((_, Place::ChunkDir(..))) => None,
            Ok((_, place @ Place::Chunk(..))) => match &place {
                // It has no dimensions.
                Place::Chunk(_, coords) if coords.indices().is_empty() && !lists_fill => {
                    Some(Ok((chunk_names.name_of(coords), place)))
                }
                _ => None,
            },
            Ok((name, _)) if name == CHUNKS => None,
            other => Some(other),
        });
        if array.grid().rank() == 0 && !lists_fill {
            return Ok(Box::new(others));
        }
        if chunk_names.has_directories() && array.grid().rank() > 0 {
            let chunks = self.entries(&Place::ChunkDir(path.clone(), Vec::new()))?;
            return Ok(Box::new(others.chain(chunks)));
        }
        let chunks = self.all_chunks(path, &array, chunk_names)?;
        let chunks = self.without_removed(&Place::Node(path.clone()), chunks);
        Ok(Box::new(others.chain(chunks)))
    }

    /// Lists all chunks of an array.
    fn all_chunks(
        &self,
        path: &NodePath,
        array: &Arc<Array>,
        names: ChunkNames,
    ) -> Result<DirEntries> {
        if self.names.zarr2.lists_fill(path, array) {
            let (path, array) = (path.clone(), Arc::clone(array));
            return Ok(Box::new(array.grid().all().map(move |coords| {
                Ok((names.name_of(&coords), Place::Chunk(path.clone(), coords)))
            })));
        }
        let unstored: Vec<Coords> = self.names.overlay.chunks_of(path);
        let known: HashSet<Coords> = unstored.iter().cloned().collect();
        let stored = match self.core.cache.list_prefix(array, &[]) {
            Ok(stored) => stored,
            Err(error) if error.kind() == Kind::Unsupported => Box::new(std::iter::empty()),
            Err(error) => return Err(error),
        };
        let stored = stored.filter(move |found| match found {
            Ok(coords) => !known.contains(coords),
            Err(_) => true,
        });
        let path = path.clone();
        Ok(Box::new(unstored.into_iter().map(Ok).chain(stored).map(move |coords| {
            let coords = coords?;
            Ok((names.name_of(&coords), Place::Chunk(path.clone(), coords)))
        })))
    }

    /// Returns the views that the directory of a group lists.
    fn listed_views(&self, group: &NodePath) -> Result<Vec<(String, Place)>> {
        let formats = match self.core.options.form {
            Presentation::View(only) => vec![only],
            Presentation::Zarr3 | Presentation::Zarr2 => self.core.options.listed_views.formats(),
        };
        if formats.is_empty() {
            return Ok(Vec::new());
        }
        let mut paths: Vec<NodePath> = Vec::new();
        if group.is_root() {
            paths.push(NodePath::root());
        }
        let node = self.core.hierarchy.existing(group)?;
        if node.array().is_none() {
            // An unreadable node has no views.
            let children = self.core.hierarchy.children(group)?.flatten();
            paths.extend(children.map(|child| child.path().clone()));
        }
        let mut names = Vec::new();
        for path in paths {
            let is_level = match node.content() {
                Content::Group(group) => {
                    has_level(&group.attributes, path.name().unwrap_or_default())
                }
                _ => false,
            };
            // The file of an image has all of its levels.
            for format in formats.iter().filter(|format| !(is_level && format.holds_images())) {
                let (name, place) = (view_name(&path, format), Place::View(path.clone(), format));
                // A node or file of the same name takes precedence. Skip names that cannot be
                // checked.
                let found = self.names.places.resolve(&Place::Node(group.clone()), &name);
                if found.is_ok_and(|found| found.as_ref() == Some(&place)) {
                    names.push((name, place));
                }
            }
        }
        Ok(names)
    }

    /// Lists the groups directly below one, with an error for each unreadable node.
    fn groups_in(&self, path: &NodePath) -> Result<Vec<Result<DirEntry>>> {
        if self.core.hierarchy.existing(path)?.kind() == NodeKind::Array {
            return Ok(Vec::new());
        }
        let mut groups = Vec::new();
        for child in self.core.hierarchy.children(path)? {
            match child {
                Ok(child) if child.kind() == NodeKind::Group => {
                    let name = child.path().name().unwrap_or_default().to_owned();
                    groups.push(Ok((name, Place::Node(child.path().clone()))));
                }
                Ok(_) => {}
                Err(error) => groups.push(Err(error)),
            }
        }
        Ok(groups)
    }

    fn stored_names(&self, place: &Place) -> Result<DirEntries> {
        match place {
            Place::Node(path) => self.names_in_node(path),
            Place::ChunkDir(path, prefix) => {
                let array = self.core.shown_array(path)?;
                let chunks = self.chunk_names(path, &array, prefix)?;
                Ok(self.with_ordinary_files(path, &array, prefix, chunks))
            }
            Place::OrdinaryDir(path, _) => self.names.ordinary.entries(path, place),
            Place::Control => {
                let reports = Report::ALL.map(|report| (report.name(), Place::Report(report)));
                let directories = [
                    (STORED, Place::StoredDir(NodePath::root())),
                    (VIEWS, Place::ViewsDir(NodePath::root())),
                ];
                let entries = directories.into_iter().chain(reports);
                let entries = entries.map(|(name, place)| Ok((name.to_owned(), place)));
                let states = if self.names.tree.has_states() { &STATES[..] } else { &[] };
                let states =
                    states.iter().map(|name| Ok(((*name).to_owned(), state_directory(name)?)));
                Ok(Box::new(entries.chain(states)))
            }
            Place::StoredDir(path) => self.names_in_stored(path),
            Place::ViewsDir(path) => self.names_in_views(path),
            _ => Err(Error::new(Kind::NotDirectory, "not a directory")),
        }
    }

    /// Adds the ordinary files in the directory of chunks with the first indices `prefix` to its
    /// `chunks`.
    fn with_ordinary_files(
        &self,
        path: &NodePath,
        array: &Arc<Array>,
        prefix: &[u64],
        chunks: DirEntries,
    ) -> DirEntries {
        let (names, path, array) = (Arc::clone(&self.names), path.clone(), Arc::clone(array));
        let (prefix, mut chunks) = (prefix.to_vec(), chunks.fuse());
        let (mut listed, mut ordinary) = (HashSet::new(), None);
        Box::new(std::iter::from_fn(move || {
            if let Some(found) = chunks.next() {
                if let Ok((_, Place::ChunkDir(_, indices))) = &found
                    && listed.len() < MAX_KNOWN
                {
                    listed.extend(indices.last().copied());
                }
                return Some(found);
            }
            // A store that takes long knows the names by now.
            let ordinary = ordinary.get_or_insert_with(|| {
                let place = Place::ChunkDir(path.clone(), prefix.clone());
                let (known, all) = (Arc::clone(&names), std::mem::take(&mut listed));
                let (array, prefix) = (Arc::clone(&array), prefix.clone());
                let is_listed = move |index| {
                    let below = [&prefix[..], &[index]].concat();
                    Ok(all.contains(&index)
                        || all.len() == MAX_KNOWN && known.tree.may_have_chunks(&array, &below)?)
                };
                let entries = names.ordinary.entries_beside(&path, &place, is_listed);
                entries.unwrap_or_else(|error| Box::new(std::iter::once(Err(error))))
            });
            ordinary.next()
        }))
    }

    fn names_in_node(&self, path: &NodePath) -> Result<DirEntries> {
        match self.names_in_unread(path)? {
            Some(names) => Ok(names),
            None => self.names_in_read(path),
        }
    }

    pub(super) fn names_in_read(&self, path: &NodePath) -> Result<DirEntries> {
        let node = self.core.hierarchy.existing(path)?;
        let document = (!node.is_bare())
            .then(|| Ok((DOCUMENT.to_owned(), Place::Document(path.clone()))))
            .into_iter();
        match node.content() {
            Content::NotUnderstood(NodeKind::Array, _) => Ok(Box::new(document)),
            Content::NotUnderstood(NodeKind::Group, _) => {
                let mut nodes = Vec::new();
                for child in self.core.hierarchy.children(path)? {
                    nodes.push(child.map(|child| {
                        let name = child.path().name().unwrap_or_default().to_owned();
                        (name, Place::Node(child.path().clone()))
                    }));
                }
                Ok(Box::new(document.chain(nodes)))
            }
            Content::Group(_) => {
                let at = path.clone();
                let member = move |member| {
                    Ok(match member {
                        Member::Directory(name) => {
                            let child = at.child(&name)?;
                            (name, Place::Node(child))
                        }
                        Member::File(name) => (name.clone(), Place::Ordinary(at.clone(), name)),
                    })
                };
                let members = match self.core.hierarchy.members(path) {
                    Ok(members) => members,
                    Err(error) if error.kind() == Kind::Unsupported => {
                        return Ok(Box::new(document));
                    }
                    Err(error) => return Err(error),
                };
                let is_root = path.is_root();
                // The store may have a directory with the name of the metadata file.
                let shown = move |member: &Member| match member {
                    Member::Directory(name) | Member::File(name) => {
                        name != DOCUMENT && (!is_root || name != CONTROL)
                    }
                };
                let members = members
                    .filter(move |found| found.as_ref().map_or(true, &shown))
                    .map(move |found| found.and_then(&member));
                Ok(Box::new(document.chain(members)))
            }
            Content::Array(array) => {
                let chunks = if self.shows_chunks(path, array)? {
                    self.names.tree.chunks_of(path, array)?
                } else {
                    None
                };
                let chunks = chunks.into_iter().map(|found| Ok((CHUNKS.to_owned(), found.place)));
                let ordinary = self.names.ordinary.entries(path, &Place::Node(path.clone()))?;
                let ordinary = ordinary
                    .filter(|found| found.as_ref().map_or(true, |(name, _)| name != DOCUMENT));
                Ok(Box::new(document.chain(chunks).chain(ordinary)))
            }
        }
    }

    /// Whether the listing of an array shows its chunks. A remote store says so without a request
    /// of its own: the names beside the metadata file are listed anyway.
    fn shows_chunks(&self, path: &NodePath, array: &Array) -> Result<bool> {
        let list = self.core.hierarchy.store().list().filter(|_| self.core.is_remote());
        let Some(list) = list.filter(|_| array.grid().rank() > 0) else { return Ok(true) };
        for entry in list.list_dir(&self.core.hierarchy.ordinary_prefix(path)?)? {
            if array.owns(entry?.name()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn names_in_views(&self, path: &NodePath) -> Result<DirEntries> {
        let node = self.core.hierarchy.existing(path)?;
        let own = Place::ViewsOf(path.clone(), node.kind());
        let mut names = vec![Ok((GROUP.to_owned(), own))];
        if node.kind() == NodeKind::Group {
            for child in self.core.hierarchy.children(path)? {
                names.push(child.map(|child| {
                    let (name, child_path) =
                        (child.path().name().unwrap_or_default().to_owned(), child.path().clone());
                    let place = match child.kind() {
                        NodeKind::Array => Place::ViewsOf(child_path, NodeKind::Array),
                        NodeKind::Group => Place::ViewsDir(child_path),
                    };
                    (name, place)
                }));
            }
        }
        Ok(Box::new(names.into_iter()))
    }

    fn names_in_stored(&self, path: &NodePath) -> Result<DirEntries> {
        let node = self.core.hierarchy.existing(path)?;
        let documents = self.names.tree.stored_documents(&node)?;
        let at = path.clone();
        let documents = documents
            .into_iter()
            .map(move |key| Ok((key.name().to_owned(), Place::StoredDocument(at.clone(), key))));
        let mut children = Vec::new();
        if node.kind() == NodeKind::Group {
            for child in self.core.hierarchy.children(path)? {
                children.push(child.map(|child| {
                    let name = child.path().name().unwrap_or_default().to_owned();
                    (name, Place::StoredDir(child.path().clone()))
                }));
            }
        }
        Ok(Box::new(documents.chain(children)))
    }

    /// Lists the chunks and directories directly below the directory with the first indices
    /// `prefix`.
    fn chunk_names(
        &self,
        path: &NodePath,
        array: &Arc<Array>,
        prefix: &[u64],
    ) -> Result<DirEntries> {
        if prefix.len() >= array.grid().rank() {
            return Ok(Box::new(std::iter::empty()));
        }
        let indices = match self.core.cache.list_dir(array, prefix) {
            Ok(indices) => indices,
            Err(error) if error.kind() == Kind::Unsupported => {
                return Ok(Box::new(std::iter::empty()));
            }
            Err(error) => return Err(error),
        };
        let (path, prefix, grid): (NodePath, Vec<u64>, Grid) =
            (path.clone(), prefix.to_vec(), array.grid().clone());
        Ok(Box::new(indices.map(move |index| {
            let index = index?;
            let indices = [&prefix[..], &[index]].concat();
            let place = if indices.len() == grid.rank() {
                Place::Chunk(path.clone(), Coords::new(indices))
            } else {
                Place::ChunkDir(path.clone(), indices)
            };
            Ok((index.to_string(), place))
        })))
    }
}
