//! Names: what they mean, which inodes they have, and what a directory lists.
//!
//! A name leads to a [`Place`] of the one `tree`, by the presentation of its node (`places`, or
//! `new` for a file that is created), and a place has an inode (`identity`) and attributes
//! (`attrs`). Names that only this mount has are in the `overlay`, those of `.zarrfs` in `control`.
//! `ChunkNames` translate the names of chunks, and with `--as zarr2`, `zarr2` those of metadata
//! files. Files of other formats are in `views`, those that the store keeps as they are in
//! `ordinary`.

mod attrs;
mod control;
mod entries;
mod identity;
pub mod listing;
mod new;
pub mod open_directory;
pub mod ordinary;
pub mod overlay;
mod places;
mod private;
pub mod removed_chunks;
mod shrink;
pub mod target;
mod tree;
mod unread;
pub mod views;
pub mod zarr2;

use std::sync::Arc;
use std::time::Instant;

use crate::error::{Error, Kind, Result};
use crate::metadata::NodePath;
use crate::vfs::core::Core;
use crate::vfs::inodes::chunk_names::ChunkNames;
use crate::vfs::inodes::inode::Inodes;
use crate::vfs::inodes::place::{CHUNKS, DOCUMENT, Place, ZMETADATA};
use crate::vfs::inodes::seen_texts::SeenTexts;
use crate::vfs::inodes::seen_versions::SeenVersions;
use attrs::Attrs;
use ordinary::OrdinaryFiles;
use overlay::{Overlay, Shown};
use places::Places;
use private::PrivateFiles;
use tree::Tree;
use views::Views;
use zarr2::Zarr2;

/// The names of the mount, with the inodes that they have.
pub(in crate::vfs) struct Names {
    pub core: Arc<Core>,
    pub views: Arc<Views>,
    pub inodes: Inodes,
    pub overlay: Arc<Overlay>,
    pub tree: Arc<Tree>,
    pub places: Places,
    pub zarr2: Arc<Zarr2>,
    pub ordinary: Arc<OrdinaryFiles>,
    pub private: Arc<PrivateFiles>,
    pub attrs: Attrs,
    /// The metadata files as programs have seen them.
    pub seen_texts: SeenTexts,
    pub seen_versions: SeenVersions,
}

impl Names {
    /// Returns the names of the hierarchy in `core`.
    pub fn new(core: Arc<Core>, views: Arc<Views>) -> Self {
        let overlay = Arc::new(Overlay::default());
        let ordinary = Arc::new(OrdinaryFiles::new(Arc::clone(&core)));
        let tree = Arc::new(Tree {
            core: Arc::clone(&core),
            overlay: Arc::clone(&overlay),
            ordinary: Arc::clone(&ordinary),
            removed_chunks: Arc::default(),
        });
        let zarr2 = Arc::new(Zarr2::new(&tree));
        let private = Arc::new(PrivateFiles::new(Arc::clone(&core), Arc::clone(&ordinary)));
        let attrs = Attrs::new(&core, &views, &zarr2, &ordinary, &private);
        let inodes = Inodes::new();
        let places = Places {
            core: Arc::clone(&core),
            tree: Arc::clone(&tree),
            views: Arc::clone(&views),
            overlay: Arc::clone(&overlay),
            zarr2: Arc::clone(&zarr2),
            ordinary: Arc::clone(&ordinary),
        };
        Self {
            core,
            views,
            inodes,
            overlay,
            tree,
            places,
            zarr2,
            ordinary,
            private,
            attrs,
            seen_texts: SeenTexts::default(),
            seen_versions: SeenVersions::default(),
        }
    }

    /// Whether a place, or a name in it, is a metadata file that includes others.
    pub fn may_show_many(&self, place: &Place, name: Option<&str>) -> bool {
        match place {
            Place::Node(path) if matches!(name, Some(DOCUMENT | ZMETADATA)) => {
                self.core.hierarchy.shown().includes_many(path)
            }
            Place::Document(path) | Place::Copies(path) => {
                self.core.hierarchy.shown().includes_many(path)
            }
            _ => false,
        }
    }

    /// Records activity at a place, so that made directories above it do not become groups yet.
    pub fn touch(&self, place: &Place) {
        if let Some(path) = place.node() {
            self.core.hierarchy.directories.touch(path);
        }
    }

    /// Fails if an ordinary file with the name of a chunk would be a chunk by now, of an array that
    /// another program has just made.
    pub fn check_is_ordinary(&self, place: &Place) -> Result<()> {
        let Place::Ordinary(path, relative) = place else { return Ok(()) };
        let name = relative.rsplit('/').next().unwrap_or(relative);
        let indices = name.strip_prefix(CHUNKS).unwrap_or(name);
        if indices.chars().any(|c| !c.is_ascii_digit() && c != '.') {
            return Ok(());
        }
        self.core.hierarchy.check_is_no_array(path, relative)
    }

    /// Whether the store has, by now, something where the mount shows nothing: on a server, another
    /// mount may have stored it since names were cached. Asks only where nobody has since `since`.
    pub fn is_taken_since(&self, place: &Place, since: Instant) -> Result<bool> {
        let hierarchy = &self.core.hierarchy;
        match place {
            _ if !self.core.is_remote() => Ok(false), // Looking up the name has asked.
            Place::Ordinary(path, relative) => {
                let mut keys = vec![hierarchy.ordinary_prefix(path)?.key(relative)?];
                // A node of this name would hide the file.
                let is_group = hierarchy.node(path)?.is_some_and(|node| node.array().is_none());
                let child = path.child(relative).ok().filter(|_| is_group);
                if let Some(child) = &child {
                    let documents = hierarchy.dialect_of(child).document_keys(child)?;
                    keys.extend(documents.into_iter().map(|(_, key)| key));
                }
                let found = hierarchy.store().read().stat_since(&keys, since)?;
                let is_taken = found.iter().any(Option::is_some);
                if let Some(child) = child.filter(|_| is_taken) {
                    hierarchy.invalidate(&child);
                }
                Ok(is_taken)
            }
            Place::Chunk(path, coords) => {
                let array = self.core.shown_array_at(path, coords.indices())?;
                hierarchy.store().stat_since(&array.key(coords)?, since)?;
                Ok(self.core.cache.stat(&array, coords)?.is_some())
            }
            _ => Ok(false),
        }
    }

    /// Forgets what was known of a file before `since`, if the store has another version by now.
    pub fn look_again(&self, place: &Place, since: Instant) -> Result<()> {
        let hierarchy = &self.core.hierarchy;
        let key = match place {
            Place::Document(path)
            | Place::Attributes(path)
            | Place::Copies(path)
            | Place::StoredDocument(path, _) => {
                return hierarchy.node_since(path, since).map(drop);
            }
            _ if !self.core.is_remote() => return Ok(()), // A directory is asked each time.
            Place::Ordinary(path, relative) => hierarchy.ordinary_prefix(path)?.key(relative)?,
            Place::Chunk(path, coords) => {
                match self.core.shown_array_at(path, coords.indices()) {
                    Ok(array) => array.key(coords)?,
                    Err(_) => return Ok(()), // It waits for its array.
                }
            }
            _ => return Ok(()),
        };
        hierarchy.store().stat_since(&key, since).map(drop)
    }

    /// Fails if another mount has stored a file where a directory is to be made.
    pub fn check_is_no_file(&self, path: &NodePath, relative: &str) -> Result<()> {
        let hierarchy = &self.core.hierarchy;
        let key = hierarchy.ordinary_prefix(path)?.key(relative)?;
        if self.core.is_remote() && hierarchy.store().stat_since(&key, Instant::now())?.is_some() {
            return Err(Error::new(Kind::Exists, "another program has just made a file here"));
        }
        Ok(())
    }

    /// Keeps the directory of a file that is about to be removed.
    pub fn keep_parent(&self, place: &Place) -> Result<()> {
        match place.parent() {
            Place::Node(path) => self.core.hierarchy.changes().keep_directory(&path),
            _ => Ok(()),
        }
    }

    /// Keeps directories of chunks until a program removes them, although the store has no empty
    /// ones.
    pub fn remember_chunk_dirs(&self, place: &Place) {
        let mut directory = place.parent();
        while matches!(directory, Place::ChunkDir(..) | Place::OrdinaryDir(..)) {
            let above = directory.parent();
            if let Some(name) = directory.name().filter(|_| self.is_shown(&directory)) {
                self.overlay.insert(above.clone(), &name, Shown::Directory(directory));
            }
            directory = above;
        }
    }

    /// Whether a directory in an array has a name, which depends on the names of its chunks, and is
    /// none that the store keeps anyway.
    fn is_shown(&self, directory: &Place) -> bool {
        let Place::ChunkDir(path, prefix) = directory else {
            return self.ordinary.store().is_none();
        };
        let names = ChunkNames::of(&self.core, path, prefix.len().saturating_add(1));
        names.are_of_places() || (names.has_directories() && !prefix.is_empty())
    }

    /// Forgets the directories of a chunk that was stored, because the store has them now.
    pub fn forget_chunk_dirs(&self, place: &Place) {
        let mut directory = place.parent();
        while let Place::ChunkDir(..) = directory {
            let above = directory.parent();
            let name = directory.name().unwrap_or_default();
            if matches!(self.overlay.get(&above, &name), Some(Shown::Directory(_))) {
                self.overlay.remove(&above, &name);
            }
            directory = above;
        }
    }
}
