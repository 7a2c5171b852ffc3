//! The places to which the names in a directory lead (`Places`); `new` has those of new files.
//!
//! There is one tree of places (`tree`). A presentation has other names for some of them: Zarr 2
//! and other chunk key encodings translate a name to one of the tree, and with `--as FORMAT`, the
//! tree has only groups. Names that lead to nothing else may be those of views.

use std::borrow::Cow;
use std::sync::Arc;

use super::ordinary::OrdinaryFiles;
use super::overlay::Overlay;
use super::tree::Tree;
use super::views::Views;
use super::zarr2::Zarr2;
use crate::error::Result;
use crate::metadata::{NodeKind, NodePath};
use crate::vfs::core::Core;
use crate::vfs::inodes::chunk_names::{ChunkName, ChunkNames};
use crate::vfs::inodes::place::{CONTROL, DOCUMENT, FoundPlace, Place};
use crate::vfs::options::Presentation;

/// Knows to which place a name leads.
pub(in crate::vfs) struct Places {
    pub(super) core: Arc<Core>,
    pub(super) tree: Arc<Tree>,
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
            Presentation::View(_) => self.find_group(directory, name)?,
            Presentation::Zarr3 | Presentation::Zarr2 => self.find_shown(directory, name)?,
        };
        match found {
            None => Ok(self.views.resolve_view(directory, name)?.map(FoundPlace::from)),
            found => Ok(found),
        }
    }

    /// Finds a name in a mount that shows each array as a file of one format: only groups have
    /// other names.
    fn find_group(&self, directory: &Place, name: &str) -> Result<Option<FoundPlace>> {
        let found = self.tree.find(directory, name)?;
        let Place::Node(_) = directory else { return Ok(found) };
        match found {
            Some(FoundPlace { place: Place::Node(path), .. })
                if self.core.hierarchy.existing(&path)?.kind() == NodeKind::Group =>
            {
                Ok(Some(Place::Node(path).into()))
            }
            _ => Ok(None),
        }
    }

    /// Finds a name by the names that the node of a directory shows.
    fn find_shown(&self, directory: &Place, name: &str) -> Result<Option<FoundPlace>> {
        let (parent, alias) = match self.translate(directory, name)? {
            ChunkName::Same => (Cow::Borrowed(directory), Cow::Borrowed(name)),
            ChunkName::As(parent, alias) => (Cow::Owned(parent), Cow::Owned(alias)),
            ChunkName::Beside(place) => return Ok(self.zarr2.beside(place)?.map(FoundPlace::from)),
            ChunkName::Nothing => return Ok(None),
        };
        if let Some(found) = self.tree.find(&parent, &alias)? {
            return Ok(Some(found));
        }
        if matches!(alias, Cow::Owned(_))
            && self.is_bare(directory)?
            && let Some(own) = self.tree.find(directory, name)?
        {
            return Ok(Some(own));
        }
        Ok(self.zarr2.unlisted_chunk(&parent, &alias)?.map(FoundPlace::from))
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
}
