//! Listings: positions of an open directory to the lines of a reply.

use std::sync::Arc;

use fuser::FileHandle;

use super::Fs;
use crate::error::{Error, Kind, Result};
use crate::vfs::DirHandle;

/// A line of a listing.
pub(super) enum Entry<'a> {
    Dot(&'a str, u64),
    Listed(&'a DirHandle, &'a crate::vfs::Listed),
}

/// Whether a reply takes more.
#[derive(PartialEq, Eq)]
pub(super) enum Room {
    Some,
    None,
}

impl Fs {
    pub(super) fn dir(&self, fh: FileHandle) -> Result<Arc<DirHandle>> {
        let found = self.dirs.lock().get(&fh.0).cloned();
        found.ok_or_else(|| Error::new(Kind::Os(libc::EBADF), "unknown file handle"))
    }

    /// Lists from `offset` until `add` has no more room. Positions 0 and 1 are `.` and `..`.
    pub(super) fn list(
        &self,
        fh: FileHandle,
        offset: u64,
        add: &mut dyn FnMut(u64, Entry<'_>) -> Result<Room>,
    ) -> Result<()> {
        let dir = self.dir(fh)?;
        self.vfs.forget_stats(&dir);
        let dots = [(".", self.vfs.number_of(&dir)), ("..", self.vfs.number_above(&dir))];
        let mut position = offset;
        for (at, (name, number)) in (0..).zip(dots) {
            if position == at {
                position += 1;
                if add(position, Entry::Dot(name, number))? == Room::None {
                    return Ok(());
                }
            }
        }
        let first = position;
        loop {
            let at = usize::try_from(position.saturating_sub(2)).unwrap_or(usize::MAX);
            let listed = match self.vfs.readdir(&dir, at) {
                Ok(Some(listed)) => listed,
                Ok(None) => return Ok(()),
                // The kernel has not seen the names of an answer that is an error: those first.
                Err(_) if position > first => return Ok(()),
                Err(error) => return Err(error),
            };
            position += 1;
            if add(position, Entry::Listed(&dir, &listed))? == Room::None {
                self.vfs.list_ahead(&dir, at);
                return Ok(());
            }
        }
    }
}
