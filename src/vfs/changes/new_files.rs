//! Creates files.

use std::sync::Arc;
use std::time::Instant;

use super::ordinary::is_lock_of_tensorstore;
use crate::error::{Error, Kind, Result, WithSubject};
use crate::store::{Condition, NewNode, Ownership, PRIVILEGES};
use crate::vfs::access::{Access, OpenedFile};
use crate::vfs::contents::Contents;
use crate::vfs::contents::ordinary::is_scratch;
use crate::vfs::core::Core;
use crate::vfs::inodes::attr::Attr;
use crate::vfs::inodes::file::{BytesAt, Created, UnstoredBytes};
use crate::vfs::inodes::inode::Inode;
use crate::vfs::inodes::place::Place;
use crate::vfs::names::Names;
use crate::vfs::names::ordinary::{NewName, keeps_no_files};
use crate::vfs::names::overlay::Shown;
use crate::vfs::opening::Opener;

/// Creates files.
pub(in crate::vfs) struct NewFiles {
    core: Arc<Core>,
    names: Arc<Names>,
    contents: Contents,
    opener: Arc<Opener>,
}

impl NewFiles {
    /// Creates files in `contents`, which `opener` opens.
    pub fn new(contents: &Contents, opener: &Arc<Opener>) -> Self {
        let (contents, opener) = (contents.clone(), Arc::clone(opener));
        let (core, names) = (Arc::clone(&contents.core), Arc::clone(&contents.names));
        Self { core, names, contents, opener }
    }

    /// Creates the file `name` in `parent` with this owner and mode, and opens it, or opens the
    /// existing one.
    pub fn create(
        &self,
        parent: &Place,
        name: &str,
        owner: Ownership,
        access: Access,
        is_exclusive: bool,
    ) -> Result<(Attr, OpenedFile)> {
        let since = Instant::now();
        if let Some(place) = self.names.places.resolve(parent, name)? {
            return self.open_existing(&place, access, is_exclusive);
        }
        self.core.hierarchy.store().write()?;
        let place = self.names.places.for_new(parent, name)?;
        // Most scratch files are never stored, and no store of one replaces anything.
        if !is_scratch(name)
            && self.names.is_taken_since(&place, since)?
            && let Some(place) = self.names.places.resolve(parent, name)?
        {
            return self.open_existing(&place, access, is_exclusive);
        }
        self.names.check_is_ordinary(&place)?;
        self.names.touch(&place);
        if self.contents.files.is_kept_as_file(Some(&place)) && !is_scratch(name) {
            return self.create_in_store(&place, owner, access);
        }
        let owner = if self.contents.files.is_kept_as_file(Some(&place)) {
            let new = self.in_store(&place)?;
            match new.files()?.owner_of_new(&new.path, owner).at(place.shown())? {
                Some(new) if new.mode & PRIVILEGES == 0 => new,
                _ if is_lock_of_tensorstore(&place) => owner,
                // Only the store keeps an ACL, and clears privileges when others write to a file.
                _ => return self.create_in_store(&place, owner, access),
            }
        } else {
            owner
        };
        let inode = self.names.inode_of_new(&place);
        self.make_unstored(&inode, &place, owner)?;
        let created = self.open_and_look_up(&inode, Access::Truncate);
        if created.is_err() {
            self.names.overlay.remove_file(&place, &inode);
            self.names.inodes.release(inode);
        }
        created
    }

    /// Opens a file that is there already.
    fn open_existing(
        &self,
        place: &Place,
        access: Access,
        is_exclusive: bool,
    ) -> Result<(Attr, OpenedFile)> {
        if is_exclusive {
            return Err(Error::new(Kind::Exists, "the file exists"));
        }
        if place.is_dir() {
            return Err(Error::new(Kind::IsDirectory, "is a directory"));
        }
        self.open_and_look_up(&self.names.inode_for_name(place), access)
    }

    /// Makes a new file that is not stored yet.
    fn make_unstored(&self, inode: &Arc<Inode>, place: &Place, owner: Ownership) -> Result<()> {
        let mut file = inode.file().lock();
        if !inode.is_at(place) {
            return Err(Error::not_found()); // A thread has just removed the file that was there.
        }
        if !matches!(file.content, BytesAt::Stored) {
            return Err(Error::new(Kind::Exists, "another program has just created the file"));
        }
        let home = self.names.ordinary.home(place)?;
        let shown = Shown::File(place.clone(), Arc::clone(inode));
        self.names.overlay.insert(place.parent(), &place.name().unwrap_or_default(), shown);
        file.created = Some(Created { home, ..Created::by(owner) });
        let is_compared = matches!(place, Place::Ordinary(..) | Place::Document(_));
        let condition = if is_compared { Condition::Absent } else { Condition::Always };
        file.content = BytesAt::Unstored(UnstoredBytes { condition, ..UnstoredBytes::empty() });
        Ok(())
    }

    /// Creates an ordinary file in a store of files, and opens it.
    fn create_in_store(
        &self,
        place: &Place,
        owner: Ownership,
        access: Access,
    ) -> Result<(Attr, OpenedFile)> {
        let new = self.in_store(place)?;
        let created = new.files()?.create(&new.path, owner).at(place.shown())?;
        self.contents.files.note_change(place)?;
        let inode = self.names.inode_of_new(place);
        // Its creator may write to it whatever the mode says.
        inode.file().lock().content = BytesAt::Open(Arc::new(created));
        let opened = self.open_and_look_up(&inode, access);
        if opened.is_err() {
            inode.file().lock().content = BytesAt::Stored;
            self.names.inodes.release(inode);
        }
        opened
    }

    /// Opens a file for its creator, and adds one to its lookup count.
    fn open_and_look_up(&self, inode: &Arc<Inode>, access: Access) -> Result<(Attr, OpenedFile)> {
        let opened = self.opener.open_inode(inode, access)?;
        match self.names.attrs.of(inode) {
            Ok(attr) => {
                self.names.inodes.looked_up(inode);
                Ok((attr, opened))
            }
            Err(error) => {
                self.opener.end(opened.handle);
                Err(error)
            }
        }
    }

    /// Makes a symbolic link, a FIFO, a socket, a device or an empty regular file. Only a store of
    /// files keeps these, and only ordinary files can be one.
    pub fn make(&self, place: &Place, node: NewNode<'_>, owner: Ownership) -> Result<()> {
        if !self.contents.files.is_kept_as_file(Some(place)) {
            let detail = "the store keeps only regular files and directories";
            let of_node = "a chunk or metadata file is a regular file";
            let is_ordinary = matches!(place, Place::Ordinary(..));
            let detail = if is_ordinary { detail } else { of_node };
            return Err(Error::new(Kind::NotPermitted, detail).at(place.shown()));
        }
        self.names.touch(place);
        let new = self.in_store(place)?;
        new.files()?.make(&new.path, node, owner).at(place.shown())?;
        self.contents.files.note_change(place)
    }

    /// Returns the name of a new ordinary file in its store of files.
    fn in_store(&self, place: &Place) -> Result<NewName> {
        self.names.ordinary.for_new(place)?.ok_or_else(keeps_no_files)
    }
}
