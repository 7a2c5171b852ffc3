//! Creates, removes and moves directories, and stores them as groups.
//!
//! A store of files keeps empty directories, apart from those of chunks. `mkdir` makes a directory
//! of the store, which still becomes a group after a while. If it has ordinary files by then, it
//! stays what it is: `git clone` and `pip install` make hundreds of directories that are no groups.

use std::sync::Arc;
use std::time::Duration;

use crate::array::parse_index;
use crate::cache::Due;
use crate::error::{Error, Kind, Result, WithSubject};
use crate::hierarchy::Content;
use crate::metadata::merge::Edit;
use crate::metadata::{NodeKind, NodePath};
use crate::store::directory::LOCK_SUFFIX;
use crate::store::{Key, NewNode, Ownership, PRIVATE, StoreEntry};
use crate::vfs::contents::Contents;
use crate::vfs::core::Core;
use crate::vfs::inodes::chunk_names::ChunkNames;
use crate::vfs::inodes::place::{CHUNKS, DOCUMENT, Place};
use crate::vfs::names::Names;
use crate::vfs::names::listing::Listings;
use crate::vfs::names::overlay::Shown;
use crate::vfs::names::zarr2::is_name_of_zarr2;
use crate::vfs::opening::handles::Handles;
use crate::vfs::options::Presentation;

/// The reason why a directory cannot be moved into an array. The errno is not `EINVAL`, which `mv`
/// takes for a move of a directory into itself.
const NOT_IN_ARRAY: &str = "an array cannot contain nodes";

/// The reason why a directory cannot be moved in, into or out of an array. The error makes `mv` and
/// `shutil.move` copy file by file, and then remove.
const COPY_FILES: &str = "a directory of an array cannot be renamed: copy its files";

/// How deep to look for nodes and files in a made directory.
const MOST_LEVELS: usize = 64;

/// Creates, removes and moves directories.
pub(in crate::vfs) struct DirectoryChanges {
    core: Arc<Core>,
    names: Arc<Names>,
    listings: Arc<Listings>,
    contents: Contents,
    handles: Arc<Handles>,
}

impl DirectoryChanges {
    /// Changes the directories that `listings` lists.
    pub fn new(contents: &Contents, listings: &Arc<Listings>, handles: &Arc<Handles>) -> Self {
        let contents = contents.clone();
        Self {
            core: Arc::clone(&contents.core),
            names: Arc::clone(&contents.names),
            listings: Arc::clone(listings),
            handles: Arc::clone(handles),
            contents,
        }
    }

    /// Makes a directory, in a store of files with this owner and mode.
    pub fn make_directory(&self, directory: &Place, name: &str, owner: Ownership) -> Result<Place> {
        let (directory, name) = &self.names.places.translated(directory, name)?;
        let has_own_names = |path: &NodePath| -> Result<bool> {
            Ok(ChunkNames::at(&self.core, path)?.is_some_and(ChunkNames::are_of_places))
        };
        let (path, indices) = match directory {
            Place::Node(path) if name == CHUNKS && has_own_names(path)? => (path, Some(Vec::new())),
            Place::ChunkDir(path, prefix) => {
                (path, parse_index(name).map(|index| [&prefix[..], &[index]].concat()))
            }
            Place::Node(path) | Place::OrdinaryDir(path, _) | Place::StoredDir(path) => {
                (path, None)
            }
            _ => return Err(Error::new(Kind::NotPermitted, "nothing can be created here")),
        };
        let node = self.core.hierarchy.existing(path)?;
        match node.content() {
            Content::Group(_) if matches!(directory, Place::OrdinaryDir(..)) => {}
            Content::Group(_) => return self.make_in_group(directory, path, name, owner),
            Content::Array(_) if matches!(directory, Place::StoredDir(_)) => {
                return Err(Error::new(Kind::NotPermitted, "an array cannot contain nodes"));
            }
            Content::Array(_) => {}
            Content::NotUnderstood(_, error) => return Err(error.clone()),
        }
        let place = if let Some(indices) = indices {
            // The metadata file that makes it a directory of chunks may come later. An empty one
            // does no harm.
            Place::ChunkDir(path.clone(), indices)
        } else {
            match self.names.places.for_new(directory, name)? {
                Place::Ordinary(path, relative) => {
                    self.names.check_is_no_file(&path, &relative)?;
                    Place::OrdinaryDir(path, relative)
                }
                _ => return Err(Error::new(Kind::NotPermitted, "this must be a file")),
            }
        };
        // The store makes a directory of chunks with its first chunk.
        if matches!(place, Place::ChunkDir(..)) || !self.make_in_store(&place, owner)? {
            self.names.overlay.insert(directory.clone(), name, Shown::Directory(place.clone()));
        }
        Ok(place)
    }

    /// Makes a directory in the group `path`, which `directory` is or stands for.
    fn make_in_group(
        &self,
        directory: &Place,
        path: &NodePath,
        name: &str,
        owner: Ownership,
    ) -> Result<Place> {
        if self.core.form_of(path) == Presentation::Zarr2 && is_name_of_zarr2(name) {
            return Err(Error::invalid("the name of a metadata file"));
        }
        let (child, changes) = (path.child(name)?, self.core.hierarchy.changes());
        self.names.check_is_no_file(path, name)?;
        match changes.make_directory(&child) {
            // No node can have this name (`__pycache__`), but an ordinary directory can.
            Err(error)
                if error.kind() == Kind::Invalid
                    && matches!(directory, Place::Node(_))
                    && self.may_be_plain(path, name)? => {}
            made => made?,
        }
        let made = self.make_in_store(&Place::Node(child.clone()), owner);
        if made.inspect_err(|_| changes.forget_directories(&child))? {
            self.core.hierarchy.directories.note_in_store(&child);
        }
        Ok(match directory {
            Place::StoredDir(_) => Place::StoredDir(child),
            _ => Place::Node(child),
        })
    }

    /// Makes a directory of the store. Returns whether the store has such directories.
    fn make_in_store(&self, place: &Place, owner: Ownership) -> Result<bool> {
        let Some(new) = self.names.ordinary.for_new(place)? else { return Ok(false) };
        match new.files()?.make(&new.path, NewNode::Directory, owner).at(place.shown()) {
            // It is there, and shows nothing unless another program made it just now.
            Err(error) if error.kind() == Kind::Exists => {
                if let Place::Node(path) = place
                    && !self.core.hierarchy.changes().existing(path)?.is_bare()
                {
                    return Err(error);
                }
            }
            made => made?,
        }
        self.contents.unsynced.changed(Key::parse(&new.path)?);
        Ok(true)
    }

    fn holds_chunks(&self, place: &Place, path: &NodePath, prefix: &[u64]) -> Result<bool> {
        Ok(self.contents.chunks.has_kept_chunks(path, prefix)?
            || self.names.ordinary.are_in(place)?)
    }

    /// Whether a node has entries other than its metadata file. A remote store may list a directory
    /// of shards without chunks.
    fn lists_something(&self, place: &Place) -> Result<bool> {
        for entry in self.listings.entries(place)? {
            let (name, found) = entry?;
            match found {
                Place::ChunkDir(path, prefix) => {
                    let place = Place::ChunkDir(path.clone(), prefix.clone());
                    if self.holds_chunks(&place, &path, &prefix)? {
                        return Ok(true);
                    }
                }
                Place::Document(_) => {}
                // Some servers go on listing directories in which no key is left.
                found
                    if found.is_dir()
                        && self.core.is_remote()
                        && self.names.places.resolve(place, &name)?.is_none() => {}
                _ => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Removes an empty directory.
    pub fn remove(&self, place: &Place) -> Result<()> {
        match self.check_empty(place) {
            Err(error) if error.errno() == libc::EACCES => return self.remove_unread(place, error),
            checked => checked?,
        }
        if let Place::Node(path) = place {
            self.core.cache.forget_below(path);
            let removed = self.core.hierarchy.changes().remove_directory(path).at(path);
            removed.inspect_err(|error| self.note_kept(error))?;
            self.names.zarr2.forget(path);
            self.names.seen_texts.forget_below(path);
            self.contents.chunks.latest.forget_below(path);
            self.names.tree.removed_chunks.forget_below(path);
            self.note_documents(path)?;
        } else if let Some(name) = place.name() {
            if let Place::OrdinaryDir(path, relative) = place {
                let prefix = self.core.hierarchy.ordinary_prefix(path)?.join(relative)?;
                let store = self.core.hierarchy.store().in_directory(&prefix);
                let removed = store.write()?.erase_empty(&prefix);
                removed.inspect_err(|error| self.note_kept(error))?;
            }
            self.names.overlay.remove(&place.parent(), &name);
        }
        self.names.inodes.unlink(place);
        Ok(())
    }

    /// Removes a directory that this process may not read, which failed with `error`, if the store
    /// finds it empty.
    fn remove_unread(&self, place: &Place, error: Error) -> Result<()> {
        let (Place::Node(path), Some(files)) = (place, self.names.ordinary.store()) else {
            return Err(error);
        };
        files.remove_directory(&self.names.ordinary.path(place)?.ok_or_else(Error::not_found)?)?;
        self.core.hierarchy.changes().forget_directories(path);
        self.names.inodes.unlink(place);
        Ok(())
    }

    /// Refuses a file, and a directory that is not empty.
    fn check_empty(&self, place: &Place) -> Result<()> {
        self.check_looks_empty(place)?;
        match place {
            // With these goes everything that the store has below them.
            Place::Node(path) | Place::OrdinaryDir(path, _) if self.core.is_remote() => {
                self.core.hierarchy.changes().look_again(path)?;
                self.check_looks_empty(place)
            }
            _ => Ok(()),
        }
    }

    fn check_looks_empty(&self, place: &Place) -> Result<()> {
        let holds_something = match place {
            Place::ChunkDir(path, prefix) => self.holds_chunks(place, path, prefix)?,
            Place::OrdinaryDir(..) => self.names.ordinary.are_in(place)?,
            Place::Node(path) => {
                let is_directory = self.core.hierarchy.changes().existing(path)?.is_bare()
                    || self.core.hierarchy.changes().is_directory_as_group(path)?;
                !is_directory || self.lists_something(place)?
            }
            Place::Control | Place::StoredDir(_) => {
                let detail = "generated from the store; remove the node itself";
                return Err(Error::new(Kind::NotPermitted, detail).at(place.shown()));
            }
            _ => return Err(Error::new(Kind::NotDirectory, "not a directory")),
        };
        let is_current =
            |(_, shown): &(String, Shown)| self.names.tree.is_current(shown).unwrap_or(true);
        if holds_something || self.names.overlay.list(place).iter().any(is_current) {
            return Err(Error::new(Kind::NotEmpty, "directory not empty"));
        }
        self.check_hides_no_names(place)
    }

    /// Refuses a directory of the store with names that the mount does not show: removing it would
    /// remove files that its user has never seen.
    fn check_hides_no_names(&self, place: &Place) -> Result<()> {
        let detail = if self.hides_a_directory(place)? {
            "it has a directory called zarr.json, which a mount does not show beside the metadata \
             file: rename it in the store"
        } else if self.hides_unreadable_names(place)? {
            "it has names that are not UTF-8, which a mount does not show: rename them in the store"
        } else if self.hides_a_file(place)? {
            "it has a file in a directory with the name of a chunk, which a mount does not show: \
             move it in the store"
        } else {
            return Ok(());
        };
        let error = Error::new(Kind::NotEmpty, detail).at(place.shown());
        self.note_kept(&error);
        Err(error)
    }

    /// Notes why a directory that looks empty stays: its program says only that it is not empty.
    fn note_kept(&self, error: &Error) {
        if error.kind() == Kind::NotEmpty {
            log::warn!("rmdir: {error}");
            self.core.journal.note("rmdir", error);
        }
    }

    /// Whether the store has a directory with the name of the metadata file of a node.
    fn hides_a_directory(&self, place: &Place) -> Result<bool> {
        let Place::Node(path) = place else { return Ok(false) };
        let Some(list) = self.core.hierarchy.store().list() else { return Ok(false) };
        for entry in list.list_dir(&self.core.hierarchy.ordinary_prefix(path)?)? {
            if matches!(entry?, StoreEntry::Prefix(name) if name == DOCUMENT) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether an array has a file below a place that only a chunk can have.
    fn hides_a_file(&self, place: &Place) -> Result<bool> {
        let (Place::Node(path), Some(list)) = (place, self.core.hierarchy.store().list()) else {
            return Ok(false);
        };
        let node = self.core.hierarchy.existing(path)?;
        let Some(array) = node.array() else { return Ok(false) };
        let prefix = self.core.hierarchy.ordinary_prefix(path)?;
        for key in list.list_prefix(&prefix)? {
            let key = key?;
            let relative = key.as_str().strip_prefix(prefix.as_str()).unwrap_or_default();
            if !array.owns(relative) && !self.core.hierarchy.dialect_of(path).is_reserved(relative)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the directory of a store of files has names that are not UTF-8.
    fn hides_unreadable_names(&self, place: &Place) -> Result<bool> {
        let Some(files) = self.names.ordinary.store() else { return Ok(false) };
        let Some(path) = self.names.ordinary.path(place)? else { return Ok(false) };
        files.has_names_without_key(&path)
    }

    /// Returns the error of a move of the directory `path` into an array, where the files of one
    /// that holds only ordinary files can be copied.
    fn not_into_array(&self, path: &NodePath) -> Result<Error> {
        let is_bare = self.core.hierarchy.existing(path)?.is_bare();
        if is_bare && self.holds_only_ordinary(&Place::Node(path.clone()), 0)? == Some(true) {
            return Ok(Error::new(Kind::CrossDevice, COPY_FILES));
        }
        Ok(Error::new(Kind::NotPermitted, NOT_IN_ARRAY))
    }

    /// Moves the directory `from` with everything below it to `new_name` in `new_parent`. `taken`
    /// is what has that name now.
    pub fn rename_directory(
        &self,
        from: &Place,
        new_parent: &Place,
        new_name: &str,
        taken: Option<&Place>,
    ) -> Result<()> {
        let path = match from {
            Place::Node(path) => path,
            Place::ChunkDir(..) | Place::OrdinaryDir(..) => {
                return Err(Error::new(Kind::CrossDevice, COPY_FILES));
            }
            _ => return Err(Error::new(Kind::NotPermitted, "cannot be renamed")),
        };
        if new_parent.node().is_some_and(|node| node.relative_to(path).is_some()) {
            return Err(Error::invalid("a directory cannot be moved into itself"));
        }
        let new_path = match new_parent {
            Place::Node(group) => {
                let node = self.core.hierarchy.existing(group)?;
                if node.kind() == NodeKind::Array {
                    return Err(self.not_into_array(path)?);
                }
                group.child(new_name)?
            }
            _ => return Err(self.not_into_array(path)?),
        };
        let replaced = match taken {
            None => None,
            Some(place @ Place::Node(_)) => {
                self.check_empty(place)?;
                Some(place)
            }
            Some(_) => return Err(Error::new(Kind::NotDirectory, "not a directory")),
        };
        self.check_new_name(path, &new_path)?;
        self.note_documents(path)?;
        // Threads that store a file below have finished, or begin when it has its new place.
        let below = self.names.inodes.below(path);
        let files: Vec<_> = below.iter().map(|inode| inode.file().lock()).collect();
        self.contents.chunks.store_shards(Due::Below(path))?;
        let renamed = if let Some(place) = replaced {
            let renamed = self.core.hierarchy.changes().rename_onto_empty(path, &new_path)?;
            self.core.cache.forget_below(&new_path);
            self.names.inodes.unlink(place);
            renamed
        } else {
            self.core.hierarchy.changes().rename(path, &new_path)?
        };
        let moved = |place: &Place| self.moved_place(place, path, &new_path);
        self.names.overlay.replace(moved);
        self.names.seen_texts.forget_below(path);
        self.contents.chunks.latest.forget_below(path);
        self.names.tree.removed_chunks.forget_below(path);
        self.names.inodes.replace(moved);
        drop(files);
        self.core.hierarchy.changes().consolidate_moved(renamed);
        self.note_documents(&new_path)
    }

    /// Whether a directory in a group may have a name that no node can have: the store keeps files,
    /// and the name is neither that of a metadata file nor reserved for lock files.
    fn may_be_plain(&self, group: &NodePath, name: &str) -> Result<bool> {
        Ok(self.names.ordinary.store().is_some()
            && name != DOCUMENT
            && !name.ends_with(LOCK_SUFFIX)
            && !self.names.ordinary.is_reserved(group, name)?)
    }

    /// Refuses a new name that no node can have (`__pycache__`), unless the directory has only
    /// ordinary files.
    fn check_new_name(&self, path: &NodePath, new_path: &NodePath) -> Result<()> {
        let hierarchy = &self.core.hierarchy;
        let Err(error) = hierarchy.check_new_name(new_path) else { return Ok(()) };
        let node = hierarchy.existing(path)?;
        let parent = new_path.parent().unwrap_or_else(NodePath::root);
        let is_plain = self.may_be_plain(&parent, new_path.name().unwrap_or_default())?
            && node.is_bare()
            && node.stored().is_none()
            && self.holds_only_ordinary(&Place::Node(path.clone()), 0)? != Some(false);
        match error.kind() {
            Kind::Invalid if is_plain => Ok(()),
            // `mv` takes `EINVAL` for a move of a directory into itself.
            Kind::Invalid => Err(Error::new(Kind::NotPermitted, error.detail().to_owned())),
            _ => Err(error),
        }
    }

    /// Returns the new place after the node `from` has moved to `to`.
    fn moved_place(&self, place: &Place, from: &NodePath, to: &NodePath) -> Option<Place> {
        let Place::StoredDocument(path, key) = place else { return place.moved(from, to) };
        let new_path = path.moved(from, to)?;
        let at = self.names.tree.stored_keys(path).ok()?.iter().position(|known| known == key)?;
        let new_key = self.names.tree.stored_keys(&new_path).ok()?.into_iter().nth(at)?;
        Some(Place::StoredDocument(new_path, new_key))
    }

    /// Marks the metadata files of a node, or their removal, as not synced to disk.
    fn note_documents(&self, path: &NodePath) -> Result<()> {
        for key in self.names.tree.stored_keys(path)? {
            self.contents.unsynced.changed(key);
        }
        // Its chunks may lie in a separate tree.
        self.contents.unsynced.changed(self.core.hierarchy.ordinary_prefix(path)?.key(DOCUMENT)?);
        Ok(())
    }

    /// Stores made directories that were idle for `delay` as groups. Tries all before it returns
    /// the first error.
    pub fn store_directories(&self, delay: Duration) -> Result<()> {
        let mut first = Ok(());
        for path in self.core.hierarchy.directories.quiet(delay) {
            if delay.is_zero() || !self.is_being_filled(&path) {
                let _alone = self.core.alone()?;
                first = first.and(self.store_as_group(&path));
            }
        }
        first.and(self.store_late_attributes())
    }

    /// Stores attributes that programs gave directories before another program made these groups.
    fn store_late_attributes(&self) -> Result<()> {
        let mut first = Ok(());
        for (path, edit) in self.core.hierarchy.directories.take_late_attributes() {
            let _alone = self.core.alone()?;
            let Err(error) = self.store_attributes(&path, &edit) else { continue };
            let shown = Place::Node(path).shown();
            self.core.refused.note(shown.clone(), &error);
            let is_gone = error.kind() == Kind::NotFound;
            let error = error.at(shown);
            self.core.note("setxattr", &error);
            // With a directory go its attributes, also if another program removes it.
            first = if is_gone { first } else { first.and(Err(error)) };
        }
        first
    }

    fn store_attributes(&self, path: &NodePath, edit: &Edit) -> Result<()> {
        let Some(node) = self.core.hierarchy.node(path)? else {
            let detail = "another program has removed or moved the directory: the attributes that \
                          it had are not stored";
            return Err(Error::new(Kind::NotFound, detail));
        };
        if node.kind() == NodeKind::Array {
            let detail = "another program has made the directory an array: the attributes that it \
                          had are not stored";
            return Err(Error::new(Kind::Stale, detail));
        }
        self.core.hierarchy.changes().edit(path, edit)?;
        self.note_documents(path)
    }

    /// Whether a program has a file below a directory open for writing.
    fn is_being_filled(&self, path: &NodePath) -> bool {
        let is_below =
            |place: &Place| place.node().is_some_and(|node| node.relative_to(path).is_some());
        self.handles
            .written_files()
            .iter()
            .any(|inode| inode.place().is_some_and(|place| is_below(&place)))
    }

    /// Stores a made directory as a group. If that fails, the directory stays pending.
    pub fn store_as_group(&self, path: &NodePath) -> Result<()> {
        self.try_store_as_group(path).map_err(|error| {
            let error = error.at(path);
            self.core.hierarchy.directories.note_failure(path, &error);
            error
        })
    }

    /// Whether there are ordinary files and no nodes in a directory and in those around it that are
    /// no nodes either. They belong to other programs then: a repository, a library, results.
    fn is_of_ordinary_files(&self, path: &NodePath) -> Result<bool> {
        let mut outermost = path.clone();
        while let Some(above) = outermost.parent() {
            let node = self.core.hierarchy.node(&above)?;
            let Some(node) = node.filter(|node| node.is_bare()) else { break };
            if !node.is_made() {
                return Ok(true); // That was found before.
            }
            outermost = above;
        }
        Ok(self.holds_only_ordinary(&Place::Node(outermost), 0)? == Some(true))
    }

    /// Whether a directory has ordinary files in or below it and no nodes; `None` if it is empty.
    fn holds_only_ordinary(&self, directory: &Place, depth: usize) -> Result<Option<bool>> {
        let mut found = None;
        let entries = match self.listings.entries(directory) {
            // It belongs to another user.
            Err(error) if error.errno() == libc::EACCES => return Ok(Some(true)),
            entries => entries?,
        };
        for entry in entries {
            let (name, _) = entry?;
            if name.starts_with('.') {
                continue; // It belongs to a program, wherever it is.
            }
            // A link to a directory is no directory.
            match self.names.places.resolve(directory, &name)? {
                Some(Place::Ordinary(..)) => found = Some(true),
                Some(place @ Place::Node(_)) if depth < MOST_LEVELS => {
                    let Place::Node(path) = &place else { continue };
                    if self.core.hierarchy.node(path)?.is_some_and(|node| !node.is_bare()) {
                        return Ok(Some(false));
                    }
                    match self.holds_only_ordinary(&place, depth.saturating_add(1))? {
                        Some(false) => return Ok(Some(false)),
                        Some(true) => found = Some(true),
                        None => {}
                    }
                }
                Some(_) => return Ok(Some(false)),
                None => {}
            }
        }
        Ok(found)
    }

    fn try_store_as_group(&self, path: &NodePath) -> Result<()> {
        let Some(node) = self.core.hierarchy.node(path)?.filter(|node| node.is_bare()) else {
            return Ok(());
        };
        let is_private = path.components().any(|name| name == PRIVATE);
        let has_attributes = node.attributes().is_some_and(|attributes| !attributes.is_empty())
            || self.names.zarr2.early_attributes.lock().contains_key(path);
        if is_private
            || node.is_closed()
            || self.names.places.is_of_another_format(path)?
            || !has_attributes
                && self.names.ordinary.store().is_some()
                && self.is_of_ordinary_files(path)?
        {
            return self.core.hierarchy.changes().keep_plain_directory(path);
        }
        if path.parent().is_some_and(|group| self.core.hierarchy.forms.is_zarr2(&group)) {
            self.core.hierarchy.forms.change(path, |form| form.is_zarr2 = true);
        }
        match self.core.hierarchy.changes().store_group(path) {
            Ok(key) => {
                self.contents.unsynced.changed(key);
                self.contents.documents.settle_early_attributes(path)?;
            }
            // Its mode does not let the user of the mount do that.
            Err(error)
                if error.errno() == libc::EACCES && self.names.ordinary.store().is_some() =>
            {
                self.core.note("write back", &error);
                return self.core.hierarchy.changes().keep_plain_directory(path);
            }
            // Another program created an array above it, so the directory can no longer become a
            // group.
            Err(error) if error.kind() == Kind::Invalid => {
                self.core.note("write back", &error);
                self.core.hierarchy.changes().forget_directories(path);
            }
            // Another program has removed or moved it: its attributes are late.
            Err(error)
                if error.kind() == Kind::NotFound && self.core.hierarchy.node(path)?.is_none() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
