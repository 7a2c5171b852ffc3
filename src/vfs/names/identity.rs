//! An open file keeps the meaning that it had when it was opened.
//!
//! All opens of an inode share its pages in the kernel, so all of them must show the same file: the
//! same header and layout of a view, or chunks of the same type and shape. If the name gets another
//! meaning (an attribute of the node was changed, the array was replaced), the name gets another
//! inode. Programs that have the old inode open keep it: a view continues with its old header, and
//! a chunk of a replaced array returns `ESTALE`.

use std::sync::Arc;
use std::time::Instant;

use super::Names;
use crate::error::{Error, Kind, Result};
use crate::store::{FileKind, Stat};
use crate::vfs::core::ATTEMPTS;
use crate::vfs::inodes::attr::Attr;
use crate::vfs::inodes::file::{BytesAt, InodeFile, OpenedAs};
use crate::vfs::inodes::inode::Inode;
use crate::vfs::inodes::place::Place;

impl Names {
    /// Returns the inode itself, or the one that has replaced it.
    pub fn current(&self, known: &Arc<Inode>) -> Arc<Inode> {
        let mut inode = Arc::clone(known);
        while inode.place().is_none()
            && !matches!(inode.file().lock().content, BytesAt::Detached(_) | BytesAt::Open(_))
        {
            let next = inode
                .successor()
                .or_else(|| inode.replaced_at().map(|place| self.inodes.at(&place)));
            let Some(next) = next else { break };
            inode = next;
        }
        inode
    }

    /// Returns the inode for a name. If the current one is open with another meaning, the name gets
    /// a new inode and the open one keeps its number.
    pub fn inode_for_name(&self, place: &Place) -> Arc<Inode> {
        let inode = self.inode_at(place);
        if inode.known_file().is_none_or(|file| file.lock().opened.is_none()) {
            return inode;
        }
        // If the node cannot be read, looking at the inode reports it.
        let Ok(Some(now)) = self.opened_as(place) else { return inode };
        let file = inode.file().lock();
        if file.opened.as_ref().is_none_or(|opened| opened.is_like(&now)) {
            drop(file);
            return inode;
        }
        let renewed = self.renew(&inode);
        drop(file);
        renewed.unwrap_or(inode)
    }

    /// Returns the inode at `place`. Names of one file of the store share theirs, until another
    /// program gives one of them to another file.
    pub fn inode_at(&self, place: &Place) -> Arc<Inode> {
        let known = self.inodes.known_at(place);
        if let Some(inode) = known.as_ref().filter(|inode| !inode.is_linked()) {
            return Arc::clone(inode);
        }
        // If it cannot be looked at, looking at the inode reports it.
        let is_ordinary = matches!(place, Place::Ordinary(..));
        let found = is_ordinary.then(|| self.ordinary.stat(place).ok().flatten()).flatten();
        if let Some(inode) = known {
            if found.as_ref().is_some_and(|found| !inode.is_other_than(found.id)) {
                // Its other names may have gone or have other files.
                inode.prefer(place);
                return inode;
            }
            if !inode.has_several_places() {
                return inode;
            }
            self.inodes.unlink(place);
        }
        match found.filter(|found| found.links > 1 && found.kind != FileKind::Directory) {
            Some(found) => self.inodes.at_linked(place, found.id),
            None => self.inodes.at(place),
        }
    }

    /// Returns the inode for a file that was just made at `place`. The file that had the name,
    /// before another program removed it, keeps its inode if it has other names, or if the kernel
    /// reads it by itself.
    pub fn inode_of_new(&self, place: &Place) -> Arc<Inode> {
        let Some(known) = self.inodes.known_at(place) else { return self.inodes.at(place) };
        if known.is_linked() {
            self.inodes.unlink(place);
        } else if let Some(file) = known.known_file() {
            let mut file = file.lock();
            // Unstored bytes are those of a thread that has just made the file, too.
            if file.passthrough.openers > 0
                && !matches!(file.content, BytesAt::Unstored(_))
                && known.is_at(place)
                && let Some(new) = self.renew_read_by_kernel(&known, &mut file)
            {
                return new;
            }
        }
        self.inodes.at(place)
    }

    /// Gives the place of a locked inode, which the kernel reads by itself, to a new one.
    pub fn renew_read_by_kernel(&self, inode: &Inode, file: &mut InodeFile) -> Option<Arc<Inode>> {
        let new = self.inodes.renew(inode)?;
        file.passthrough.lost_name_at = Some(Instant::now());
        Some(new)
    }

    /// Whether a file with several names, which was not found by one of them, has another name. A
    /// name that leads to no file or to another one is forgotten: a thread or another program has
    /// just removed it.
    pub fn has_another_name(&self, inode: &Inode) -> bool {
        if !inode.is_linked() {
            return false;
        }
        // A thread that removes a name of the file holds its lock.
        let _file = inode.file().lock();
        let Some(place) = inode.place() else { return false };
        let found = self.ordinary.id(&place).ok().flatten();
        let is_there = found.is_some_and(|id| !inode.is_other_than(id));
        if is_there || !inode.has_several_places() {
            return is_there;
        }
        self.inodes.unlink(&place);
        true
    }

    /// Fails if another program has given a name of this file to another one, or removed it. The
    /// kernel may still know the name, and does not say by which of several it opens or truncates a
    /// file; after the error it looks the name up. The others lead to this file from now on.
    pub fn check_all_names(&self, inode: &Inode) -> Result<()> {
        if !inode.has_several_places() {
            return Ok(());
        }
        // A thread that removes a name of the file holds its lock.
        let _file = inode.file().lock();
        let leads_away = |place: &Place| {
            let found = self.ordinary.id(place);
            matches!(place, Place::Ordinary(..))
                && found.is_ok_and(|found| found.is_none_or(|id| inode.is_other_than(id)))
        };
        let lost: Vec<Place> = inode.all_places().into_iter().filter(leads_away).collect();
        for place in &lost {
            self.inodes.unlink(place);
        }
        if lost.is_empty() { Ok(()) } else { Err(Error::not_found()) }
    }

    /// Returns the current meaning of a place; `None` for files whose bytes have no meaning here.
    fn opened_as(&self, place: &Place) -> Result<Option<OpenedAs>> {
        Ok(match place {
            Place::View(path, format) => Some(OpenedAs::View(self.views.view(path, format)?)),
            Place::Chunk(path, coords) => {
                Some(OpenedAs::Chunk(self.core.shown_array_at(path, coords.indices())?))
            }
            Place::Ordinary(..) => self.ordinary.id(place)?.map(OpenedAs::Ordinary),
            _ => None,
        })
    }

    /// Records the meaning of an open, and returns the meaning that all opens of the inode share:
    /// that of the first one. If they differ, the name gets another inode, which the kernel finds
    /// at its next lookup.
    pub fn share(&self, inode: &Arc<Inode>, now: OpenedAs) -> Result<OpenedAs> {
        let mut file = inode.file().lock();
        match &file.opened {
            Some(opened) if opened.is_like(&now) => Ok(opened.clone()),
            Some(_) => {
                self.renew(inode);
                Err(Error::not_found())
            }
            None => {
                file.opened = Some(now.clone());
                Ok(now)
            }
        }
    }

    /// Gives the place of a locked inode to a new one.
    fn renew(&self, inode: &Arc<Inode>) -> Option<Arc<Inode>> {
        if let Some(Place::View(path, format)) = inode.place() {
            self.views.forget_openers(&path, format);
        }
        self.inodes.renew(inode)
    }

    pub fn inode(&self, number: u64) -> Result<Arc<Inode>> {
        self.inodes.get(number).ok_or_else(|| Error::new(Kind::Stale, "unknown inode number"))
    }

    /// Like [`Self::directory`], and notes that a program looks up a name in it.
    pub fn directory_looked_in(&self, number: u64) -> Result<Place> {
        let place = self.directory(number)?;
        if let Some(inode) = self.inodes.get(number) {
            inode.mark_used();
        }
        Ok(place)
    }

    pub fn directory(&self, number: u64) -> Result<Place> {
        let place = self.inode(number)?.place().ok_or_else(Error::not_found)?;
        if place.is_dir() {
            Ok(place)
        } else {
            Err(Error::new(Kind::NotDirectory, "not a directory"))
        }
    }

    /// Returns a directory that is to be listed, or to get a new name. Fails if another program
    /// removed it from the store, even if that is not noticed yet.
    pub fn current_directory(&self, number: u64) -> Result<Place> {
        let place = self.directory(number)?;
        match &place {
            Place::Node(path) | Place::ChunkDir(path, _) => {
                self.core.hierarchy.check_there(path)?;
            }
            Place::OrdinaryDir(path, _) => {
                self.core.hierarchy.check_there(path)?;
                if self.ordinary.store().is_some() && self.ordinary.stat(&place)?.is_none() {
                    return Err(Error::not_found());
                }
            }
            _ => {}
        }
        Ok(place)
    }

    /// Returns the attributes of the file at `place`, and adds one to its lookup count.
    pub fn lookup_place(&self, place: &Place) -> Result<Attr> {
        self.lookup_stored(place, None)
    }

    /// Like [`Self::lookup_place`], with the stat of a stored chunk if the caller knows it.
    pub fn lookup_stored(&self, place: &Place, stored: Option<&Stat>) -> Result<Attr> {
        // Fast path: most names of a listing have no inode yet.
        if stored.is_some() && !self.inodes.is_known(place) {
            let attr = self.attrs.at(place, stored)?;
            if let Some(number) = self.inodes.insert_looked_up(place) {
                return Ok(Attr { number, ..attr });
            }
        }
        let mut attempts = 0;
        loop {
            let inode = self.inode_for_name(place);
            let attr = self.attrs.of_with_stat(&inode, stored);
            attempts += 1;
            // Another file may take the name meanwhile, or the file may lose another name by which
            // it is looked at.
            let is_gone = attr.as_ref().is_err_and(|error| error.kind() == Kind::NotFound);
            let has_moved = !inode.is_at(place) || is_gone && self.has_another_name(&inode);
            match &attr {
                Ok(_) => self.inodes.looked_up(&inode),
                Err(_) => self.inodes.release(inode),
            }
            match attr {
                Err(error)
                    if error.kind() == Kind::NotFound && has_moved && attempts < ATTEMPTS => {}
                attr => return attr,
            }
        }
    }
}
