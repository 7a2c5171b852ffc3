//! A file is what it was when it was opened, or it is gone.
//!
//! All who have an inode open share its pages in the kernel, so all of them must have the same file: the same header
//! and layout of a view, or chunks of the same type and shape. If the name leads to something else (an attribute of the
//! node was changed, the array was replaced), the name gets another inode. Those who have the old one open keep it: a view
//! goes on with its old header, and a chunk of an array that was replaced is `ESTALE`.

use std::sync::Arc;

use super::Vfs;
use super::attr::Attr;
use super::file::{Content, File, OpenedAs};
use super::inode::Inode;
use super::place::Place;
use crate::error::{Error, Kind, Result};
use crate::view::View;

impl Vfs {
    /// The inode at a place that a name leads to now. If others have something else open there, that keeps the old inode.
    pub(super) fn inode_for_name(&self, place: &Place) -> Arc<Inode> {
        let inode = self.inodes.at(place);
        if inode.known_file().is_none_or(|file| file.lock().opened.is_none()) {
            return inode;
        }
        // A node that cannot be read any more says so when it is looked at.
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

    /// What somebody opens who opens a place now; none for files whose bytes mean nothing here.
    fn opened_as(&self, place: &Place) -> Result<Option<OpenedAs>> {
        Ok(match place {
            Place::View(path, format) => Some(OpenedAs::View(self.view(path, format)?)),
            Place::Chunk(path, _) => Some(OpenedAs::Chunk(self.array(path)?)),
            _ => None,
        })
    }

    /// Notes what somebody opens, and returns what all who have the inode open share: the first one's. If they have something
    /// else open, the name gets another inode, which the kernel finds when it looks the name up again.
    pub(super) fn share(&self, inode: &Arc<Inode>, now: OpenedAs) -> Result<OpenedAs> {
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

    /// Gives the place of an inode whose file is locked to a new one.
    fn renew(&self, inode: &Arc<Inode>) -> Option<Arc<Inode>> {
        if let Some(Place::View(path, format)) = inode.place() {
            self.views.forget_openers(&path, format);
        }
        self.inodes.renew(inode)
    }

    /// Whether those who have an inode open have something else than its name leads to: by its number nobody else opens it.
    pub(super) fn is_left_to_openers(inode: &Inode) -> bool {
        inode.was_renewed() && inode.known_file().is_some_and(|file| file.lock().opened.is_some())
    }

    /// Refuses to read or store the bytes of an open chunk if its array is another one now.
    pub(super) fn check_still(&self, inode: &Inode, file: &File) -> Result<()> {
        let Some(OpenedAs::Chunk(opened)) = &file.opened else { return Ok(()) };
        if matches!(file.content, Content::Detached(_)) {
            return Ok(());
        }
        match inode.place() {
            Some(Place::Chunk(path, _)) if self.array(&path)?.has_chunks_of(opened) => Ok(()),
            Some(Place::Chunk(..)) => Err(replaced()),
            None if inode.was_renewed() => Err(replaced()),
            _ => Ok(()),
        }
    }

    /// The view that those who have an inode open share.
    pub(super) fn open_as(inode: &Inode) -> Option<Arc<View>> {
        match &inode.known_file()?.lock().opened {
            Some(OpenedAs::View(view)) => Some(Arc::clone(view)),
            _ => None,
        }
    }

    /// The attributes of a view that somebody has open, whatever its name leads to now.
    pub(super) fn attr_of_open_view(&self, inode: &Inode) -> Option<Attr> {
        let view = Self::open_as(inode)?;
        let place = inode.place();
        let modified = match &place {
            Some(Place::View(path, format)) => self.stat_view(path, format).ok().map(|stat| stat.1),
            _ => None,
        };
        Some(Attr {
            number: inode.number(),
            is_dir: false,
            len: view.len(),
            blocks: Attr::blocks_of(view.len(), view.len()),
            links: u32::from(place.is_some()),
            may_change: true,
            ..Attr::directory(modified.unwrap_or(self.mounted))
        })
    }
}

/// The array that a chunk was opened in has been replaced.
fn replaced() -> Error {
    let detail = "another program replaced the array after the chunk was opened: open it again";
    Error::new(Kind::Stale, detail)
}
