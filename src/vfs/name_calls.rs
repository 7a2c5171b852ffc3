//! The calls that change names: they lock the tree, find the names and check them.

use std::time::Instant;

use super::Vfs;
use super::access::Caller;
use super::authors::{Processes, Thread};
use super::changes::renames::{check_has_bytes, check_is_no_chunk_of};
use super::contents::next_step::StoreReason;
use super::core::once;
use super::inodes::attr::Attr;
use super::inodes::place::{DOCUMENT, Place, below_shown, check_writable};
use super::names::zarr2::is_name_of_zarr2;
use super::options::Presentation;
use crate::cache::Due;
use crate::error::{Error, Kind, Result, WithSubject};
use crate::hierarchy::TextPurpose;
use crate::store::{NewNode, Ownership, Replace};

/// The bits of a mode with which an owner can make files in a directory: write and search.
const MAY_MAKE_FILES: u16 = 0o300;

impl Vfs {
    /// Makes the directory `name` in `parent`: in a group, one that becomes a node; in an array,
    /// one of chunks or of ordinary files. A store of files gives it this owner and mode.
    pub fn mkdir(&self, parent: u64, name: &str, owner: Ownership) -> Result<Attr> {
        self.core.options.check_names_change()?;
        let _shared = self.core.shared()?;
        let parent = self.directory_for_new(parent, name)?;
        let place =
            self.directories.make_directory(&parent, name, owner).at(below_shown(&parent, name))?;
        self.names.lookup_place(&place)
    }

    /// Makes a symbolic link, a FIFO, a socket, a device or an empty regular file. Only a store of
    /// files keeps these, and only ordinary files can be one.
    pub fn make_node(
        &self,
        parent: u64,
        name: &str,
        node: NewNode<'_>,
        owner: Ownership,
    ) -> Result<Attr> {
        self.core.options.check_names_change()?;
        let _shared = self.core.shared()?;
        let parent = self.directory_for_new(parent, name)?;
        let place = self.names.places.for_new(&parent, name)?;
        self.new_files.make(&place, node, owner)?;
        self.names.lookup_place(&place)
    }

    /// Removes the metadata file of an empty group of Zarr 3 if a program creates one of Zarr 2
    /// there, so that the group becomes one of Zarr 2. The caller has locked the tree exclusively.
    fn give_way_to_zarr2(&self, directory: &Place, name: &str) -> Result<()> {
        match self.names.places.gives_way(directory, name)? {
            Some(path) => {
                self.renames.unlink(&Place::Document(path.clone()))?;
                self.core.hierarchy.changes().await_metadata(&path)?;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Like [`Self::give_way_to_zarr2`], for a program that opens a file of this name.
    pub(super) fn give_way_to_file(&self, parent: u64, name: &str) -> Result<()> {
        let is_of_other_form =
            self.core.options.form == Presentation::Zarr3 && is_name_of_zarr2(name);
        if !is_of_other_form || !self.core.hierarchy.store().is_writable() {
            return Ok(());
        }
        let _alone = self.core.alone()?;
        self.give_way_to_zarr2(&self.names.current_directory(parent)?, name)
    }

    /// Returns the place of a directory that may get the name `name`, if nothing has it.
    fn directory_for_new(&self, number: u64, name: &str) -> Result<Place> {
        let directory = self.names.current_directory(number)?;
        if self.names.places.resolve(&directory, name)?.is_some() {
            return Err(Error::new(Kind::Exists, "the file exists"));
        }
        self.core.hierarchy.store().write()?;
        Ok(directory)
    }

    /// Removes the empty directory `name` from `parent`.
    pub fn rmdir(&self, parent: u64, name: &str) -> Result<()> {
        self.core.options.check_names_change()?;
        let _alone = self.core.alone()?;
        let parent = self.names.directory(parent)?;
        let place = self.names.places.resolve(&parent, name)?.ok_or_else(Error::not_found)?;
        self.core.hierarchy.store().write()?;
        self.directories.remove(&place)?;
        self.core.refused.forget(|| place.shown());
        Ok(())
    }

    /// Syncs the unstored files of a directory that are complete, and stores the directory itself
    /// as a group if it is to become one. On the root, syncs everything.
    pub fn sync_directory(&self, number: u64) -> Result<()> {
        if self.core.hierarchy.store().is_writable() {
            match self.names.inode(number)?.place() {
                Some(Place::Node(path)) if path.is_root() => return self.sync(),
                Some(Place::Node(path)) => {
                    let _alone = self.core.alone()?;
                    let node = self.core.hierarchy.node(&path)?;
                    if node.is_some_and(|node| node.is_made()) {
                        self.directories.store_as_group(&path)?;
                    }
                }
                _ => {}
            }
        }
        self.sync_files()
    }

    /// Stores what programs have written in and below a directory before it gets this mode, if it
    /// takes the right to make files there from the user of the mount: later, the store would
    /// refuse them.
    pub fn store_before_mode(&self, number: u64, mode: u16) -> Result<()> {
        let is_limited = self.names.ordinary.store().is_some_and(|files| !files.may_give());
        if !is_limited || mode & MAY_MAKE_FILES == MAY_MAKE_FILES {
            return Ok(());
        }
        let place = self.names.inode(number)?.place().filter(Place::is_dir);
        let Some(path) = place.as_ref().and_then(Place::node) else { return Ok(()) };
        for inode in self.names.inodes.below(path) {
            self.contents.files.store_content(&inode, StoreReason::Everything)?;
        }
        self.contents.chunks.store_shards(Due::Below(path))?;
        if matches!(place, Some(Place::Node(_))) {
            let _alone = self.core.alone()?;
            if self.core.hierarchy.node(path)?.is_some_and(|node| node.is_made()) {
                self.directories.store_as_group(path)?;
            }
        }
        Ok(())
    }

    /// Removes the file `name` from `parent`; a chunk is erased.
    pub fn unlink(&self, parent: u64, name: &str) -> Result<()> {
        self.unlink_by(None, parent, name)
    }

    /// Like [`Self::unlink`], for a program.
    pub fn unlink_by(&self, by: Thread, parent: u64, name: &str) -> Result<()> {
        let _tree = self.core.lock_tree(is_document_name(name))?;
        let parent = self.names.directory(parent)?;
        let place = self.names.places.resolve(&parent, name)?.ok_or_else(Error::not_found)?;
        self.core.hierarchy.store().write()?;
        match &place {
            place if place.is_dir() => return Err(Error::new(Kind::IsDirectory, "is a directory")),
            Place::Chunk(..)
            | Place::Ordinary(..)
            | Place::Document(_)
            | Place::Attributes(_)
            | Place::Copies(_) => {}
            Place::View(path, _) => {
                let detail = format!("it is a view of {path}, and exists as long as {path} does");
                return Err(Error::new(Kind::NotPermitted, detail).at(place.shown()));
            }
            _ => return Err(Error::new(Kind::NotPermitted, "read-only").at(place.shown())),
        }
        let hidden = match &place {
            Place::Chunk(path, coords) => {
                let is_shown = self.names.zarr2.shows_fill(path, &*self.core.shown_array(path)?);
                is_shown.then_some((path, coords))
            }
            _ => None,
        };
        self.unlink_known(&place, by).at(place.shown())?;
        if let Some((path, coords)) = hidden {
            // The program may create it again, and then it must not be there.
            self.names.tree.removed_chunks.note(path, coords, Some(Processes::of(by)));
        }
        self.core.refused.forget(|| place.shown());
        Ok(())
    }

    /// Removes a file, unless another program has replaced or changed its node since `by` looked.
    fn unlink_known(&self, place: &Place, by: Thread) -> Result<()> {
        let (Place::Chunk(of_node, _) | Place::Document(of_node) | Place::Attributes(of_node)) =
            place
        else {
            if self.contents.chunks.shows_old_chunks() {
                self.contents.files.check_removed(place, &Processes::of(by)).map_err(once)?;
            }
            return self.renames.unlink(place).map_err(once);
        };
        self.contents.chunks.latest.check_removable(of_node, by)?;
        let known = self.check_known(place, by);
        let is_unknown = known.as_ref().is_err_and(|error| error.kind() == Kind::Busy);
        let removed = known.and_then(|()| self.renames.unlink(place));
        if is_unknown || removed.as_ref().is_err_and(|error| error.errno() == libc::ESTALE) {
            let mut program = Processes::default();
            program.note(by);
            self.contents.chunks.latest.note_kept(of_node, &program);
        }
        removed.map_err(once)
    }

    /// Fails if a program removes a metadata file that another one has changed since it was read.
    fn check_known(&self, place: &Place, by: Thread) -> Result<()> {
        // In a directory, metadata are old for a moment at most, and `mv` is one step.
        if !self.core.is_remote() {
            return Ok(());
        }
        let program = Processes::of(by);
        if let Place::Chunk(path, _) = place {
            let target = self.names.target(place.clone())?;
            let Some((_, chunk)) = target.chunk() else { return Ok(()) };
            return self.contents.chunks.check_removed(path, chunk, &program);
        }
        if self.names.seen_texts.last(place, &program).is_none() {
            return Ok(());
        }
        self.names.look_again(place, Instant::now())?;
        // What cannot be shown can be removed.
        let Ok(now) = self.names.zarr2.shown_at(place, TextPurpose::Text) else { return Ok(()) };
        self.names.seen_texts.check_known(place, &program, &now)
    }

    /// Renames `name` in `parent` to `new_name` in `new_parent`: the bytes of a file are stored as
    /// what the new name is; a node moves with everything below it.
    pub fn rename(
        &self,
        parent: u64,
        name: &str,
        new_parent: u64,
        new_name: &str,
        replace: Replace,
    ) -> Result<()> {
        self.rename_for(Caller::own(), (parent, name), (new_parent, new_name), replace)
    }

    /// Like [`Self::rename`], for a user.
    pub fn rename_for(
        &self,
        user: Caller,
        (parent, name): (u64, &str),
        (new_parent, new_name): (u64, &str),
        replace: Replace,
    ) -> Result<()> {
        self.core.options.check_names_change()?;
        let is_document = is_document_name(name) || is_document_name(new_name);
        let found = self.names.places.resolve(&self.names.directory(parent)?, name)?;
        let is_dir = found.as_ref().is_some_and(Place::is_dir);
        if let Some(Place::Node(path)) = &found {
            // Storing pending chunks now shortens the time under the lock. The move reports what
            // cannot be stored.
            let stored = self.contents.chunks.store_shards(Due::Below(path));
            stored.unwrap_or_else(|error| log::debug!("{error}"));
        }
        let new_directory = self.names.current_directory(new_parent)?;
        let taken = self.names.places.resolve(&new_directory, new_name)?;
        let may_import = match replace {
            Replace::Yes => !matches!(taken, Some(Place::View(..))),
            Replace::No => taken.is_none(),
            Replace::Exchange => false,
        };
        if let Some(from) = found.as_ref().filter(|_| may_import)
            && let Some(done) = self.renames.import_renamed(user, from, (&new_directory, new_name))
        {
            return done.at(below_shown(&new_directory, new_name));
        }
        let is_alone = is_document || is_dir || self.is_stored_dir(new_parent)?;
        let _tree = self.core.lock_tree(is_alone)?;
        self.rename_locked(user, (parent, name), (new_parent, new_name), (replace, is_dir))
    }

    /// Renames a file or a directory, for a caller that has locked the tree: alone if `is_dir`.
    fn rename_locked(
        &self,
        user: Caller,
        (parent, name): (u64, &str),
        (new_parent, new_name): (u64, &str),
        (replace, is_dir): (Replace, bool),
    ) -> Result<()> {
        let (parent, new_parent) =
            (self.names.directory(parent)?, self.names.current_directory(new_parent)?);
        let from = self.names.places.resolve(&parent, name)?.ok_or_else(Error::not_found)?;
        self.core.hierarchy.store().write()?;
        let since = Instant::now();
        let taken = self.names.places.resolve(&new_parent, new_name)?;
        if taken.is_some() && replace == Replace::No {
            return Err(Error::new(Kind::Exists, "the file exists"));
        }
        if taken.as_ref() == Some(&from) {
            return Ok(());
        }
        let at = below_shown(&new_parent, new_name);
        if replace == Replace::Exchange {
            self.renames.check_exchange(&from, taken.as_ref(), &at)?;
        }
        if from.is_dir() {
            let renamed = if is_dir {
                self.directories.rename_directory(&from, &new_parent, new_name, taken.as_ref())
            } else {
                Err(Error::new(Kind::Busy, "it has just become a directory"))
            };
            return renamed.at(at);
        }
        check_has_bytes(&from)?;
        let to = match taken {
            Some(place) if place.is_dir() => {
                return Err(Error::new(Kind::IsDirectory, "is a directory"));
            }
            Some(place) => place,
            None => {
                if !matches!(from, Place::Document(_)) {
                    self.give_way_to_zarr2(&new_parent, new_name)?;
                }
                self.names.places.for_new(&new_parent, new_name)?
            }
        };
        check_writable(Some(&to))?;
        if replace == Replace::No && self.names.is_taken_since(&to, since)? {
            return Err(Error::new(Kind::Exists, "another program has just made the file").at(at));
        }
        if let Place::View(path, format) = &to {
            let renamed = self.renames.rename_onto_view(user, &from, path, format);
            return renamed.map_err(once).at(at);
        }
        check_is_no_chunk_of(&from, &to).at(at.clone())?;
        self.names.touch(&to);
        self.renames.rename(user, &from, &to, replace).at(at)?;
        self.core.refused.forget(|| to.shown());
        Ok(())
    }

    fn is_stored_dir(&self, number: u64) -> Result<bool> {
        Ok(matches!(self.names.directory(number)?, Place::StoredDir(_)))
    }

    /// Creates a second name for a file. Two ordinary files in a store of files are names of one
    /// file; otherwise the new name gets a copy of the bytes.
    pub fn link(&self, number: u64, new_parent: u64, new_name: &str) -> Result<Attr> {
        self.link_for(Caller::own(), number, new_parent, new_name)
    }

    /// Like [`Self::link`], for a user.
    pub fn link_for(
        &self,
        user: Caller,
        number: u64,
        new_parent: u64,
        new_name: &str,
    ) -> Result<Attr> {
        self.core.options.check_names_change()?;
        let _tree =
            self.core.lock_tree(is_document_name(new_name) || self.is_stored_dir(new_parent)?)?;
        let inode = self.names.inode(number)?;
        self.names.check_all_names(&inode)?;
        let from = inode.place().ok_or_else(Error::not_found)?;
        self.core.hierarchy.store().write()?;
        check_has_bytes(&from)?;
        let new_parent = self.names.current_directory(new_parent)?;
        let since = Instant::now();
        if self.names.places.resolve(&new_parent, new_name)?.is_some() {
            return Err(Error::new(Kind::Exists, "the file exists"));
        }
        self.give_way_to_zarr2(&new_parent, new_name)?;
        let to = self.names.places.for_new(&new_parent, new_name)?;
        check_writable(Some(&to))?;
        if self.names.is_taken_since(&to, since)? {
            return Err(Error::new(Kind::Exists, "another program has just made the file"));
        }
        self.names.touch(&to);
        self.renames.link(user, &inode, &from, &to)?;
        self.names.lookup_place(&to)
    }
}

/// Whether this name belongs to a metadata file.
fn is_document_name(name: &str) -> bool {
    name == DOCUMENT || is_name_of_zarr2(name)
}
