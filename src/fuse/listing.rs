//! Open directories, and the lines of their listings by position.
//!
//! Listings always bring attributes (readdirplus without `AUTO`). A program that lists a directory
//! before it asks for sizes would ask for each size separately, and looking up 128 chunks at once
//! costs as much as looking up a few.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fuser::FileHandle;
use parking_lot::Mutex;

use super::terms::dot;
use crate::error::{Error, Kind, Result};
use crate::vfs::{Attr, DirHandle, Vfs};
use crate::width::ToUsize;

/// A line of a listing.
pub(super) enum ListingLine<'a> {
    Dot(&'a str, u64),
    Listed(&'a DirHandle, &'a crate::vfs::DirectoryName),
}

/// Whether a reply has space for more.
#[derive(PartialEq, Eq)]
pub(super) enum ReplySpace {
    Some,
    None,
}

/// The directories that programs have open, by handle.
#[derive(Debug, Default)]
pub(super) struct OpenDirectories {
    /// A leaf lock.
    open: Mutex<HashMap<u64, Arc<DirHandle>>>,
    /// The last handle that was assigned.
    last: AtomicU64,
}

impl OpenDirectories {
    /// Adds a directory. Returns its handle.
    pub fn insert(&self, dir: DirHandle) -> FileHandle {
        let handle = self.last.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        self.open.lock().insert(handle, Arc::new(dir));
        FileHandle(handle)
    }

    /// Returns the directory of a handle; `EBADF` if there is none.
    pub fn get(&self, fh: FileHandle) -> Result<Arc<DirHandle>> {
        let found = self.open.lock().get(&fh.0).cloned();
        found.ok_or_else(|| Error::new(Kind::Os(libc::EBADF), "unknown file handle"))
    }

    /// Closes a directory.
    pub fn remove(&self, fh: FileHandle) {
        self.open.lock().remove(&fh.0);
    }
}

/// Lists `dir` from `offset` until `add` has no more space. Positions 0 and 1 are `.` and `..`.
pub(super) fn list(
    vfs: &Vfs,
    dir: &Arc<DirHandle>,
    offset: u64,
    add: &mut dyn FnMut(u64, ListingLine<'_>) -> Result<ReplySpace>,
) -> Result<()> {
    vfs.listings().forget_stats(dir);
    let dots = [(".", vfs.listings().number_of(dir)), ("..", vfs.listings().number_above(dir))];
    let mut position = offset;
    for (at, (name, number)) in (0..).zip(dots) {
        if position == at {
            position += 1;
            if add(position, ListingLine::Dot(name, number))? == ReplySpace::None {
                return Ok(());
            }
        }
    }
    let first = position;
    loop {
        let at = position.saturating_sub(2).to_usize();
        let listed = match vfs.listings().readdir(dir, at) {
            Ok(Some(listed)) => listed,
            Ok(None) => return Ok(()),
            // An error would discard the names of this reply, so they are sent first.
            Err(_) if position > first => return Ok(()),
            Err(error) => return Err(error),
        };
        position += 1;
        if add(position, ListingLine::Listed(dir, &listed))? == ReplySpace::None {
            vfs.listings().list_ahead(dir, at);
            return Ok(());
        }
    }
}

/// Returns the name and the attributes of a line of a listing; `None` if it is gone. Unless they
/// are kept, they have no length. The kernel must then refuse them, since a program may have the
/// file open.
pub(super) fn attr_of<'e>(
    vfs: &Vfs,
    entry: &ListingLine<'e>,
    is_kept: bool,
) -> Option<(&'e str, Attr)> {
    match *entry {
        ListingLine::Dot(name, number) => Some((name, dot(number))),
        ListingLine::Listed(_, listed) if !is_kept => {
            Some((listed.name.as_str(), vfs.listings().lookup_listed_name(listed)))
        }
        ListingLine::Listed(dir, listed) => {
            let attr = match vfs.lookup_listed(dir, listed) {
                Ok(attr) => attr?,
                Err(error) => {
                    // A bad entry does not hide the others.
                    vfs.note("readdir", &error);
                    vfs.listings().lookup_listed_name(listed)
                }
            };
            Some((listed.name.as_str(), attr))
        }
    }
}
