//! Creates second names of files (link(2)).

use std::sync::Arc;
use std::time::Instant;

use super::ordinary::is_lock_of_tensorstore;
use super::renames::Renames;
use crate::buffer::Buffer;
use crate::error::{Error, Result, WithSubject};
use crate::store::{Condition, FileUse, Ownership};
use crate::vfs::access::Caller;
use crate::vfs::contents::next_step::StoreReason;
use crate::vfs::contents::store::FileWriters;
use crate::vfs::core::once;
use crate::vfs::inodes::file::{BytesAt, Created, UnstoredBytes};
use crate::vfs::inodes::inode::Inode;
use crate::vfs::inodes::place::Place;
use crate::vfs::names::overlay::Shown;

impl Renames {
    /// Gives the file at `from` the second name `to`. If that is no name of the same file, it gets
    /// a copy of the bytes.
    pub fn link(&self, user: Caller, inode: &Arc<Inode>, from: &Place, to: &Place) -> Result<()> {
        if self.are_kept_as_files(from, to) && !is_lock_of_tensorstore(from) {
            return self.link_in_store(inode, to);
        }
        self.check_regular(from)?;
        self.check_may_copy(user, inode)?;
        let file = inode.file().lock();
        let by = FileWriters { authors: file.makers(), shown: None };
        let bytes = match &file.content {
            BytesAt::Unstored(unstored) => {
                unstored.bytes.to_buffer(self.core.hierarchy.options().max_chunk_len)?
            }
            BytesAt::Stored | BytesAt::Detached(_) | BytesAt::Open(_) => {
                self.contents.stored.bytes_now(from)?
            }
        };
        drop(file);
        if matches!(to, Place::Ordinary(..)) || self.contents.files.is_waiting_now(to)? {
            self.put_new_file(to, bytes)?;
        } else {
            let target = self.names.target(to.clone())?;
            self.contents.files.store_as(&target, bytes.into(), &by).map_err(once).at(to.shown())?;
        }
        Ok(())
    }

    /// Gives an ordinary file a second name.
    fn link_in_store(&self, inode: &Arc<Inode>, to: &Place) -> Result<()> {
        let mut file = inode.file().lock();
        self.contents.files.store_locked(inode, &mut file, StoreReason::Asked)?;
        let opened = self.contents.files.open_by_a_name(inode, FileUse::Attributes)?;
        let (from, _) = opened.ok_or_else(Error::not_found)?;
        let new = self.for_new(to)?;
        new.files()?.link(&self.path(&from)?, &new.path).at(to.shown())?;
        self.contents.files.note_change(to)?;
        if let Some(id) = self.names.ordinary.id(to)? {
            self.names.inodes.link(inode, to, id);
            self.names.forget_names(&from);
        }
        Ok(())
    }

    /// Creates an ordinary file with these bytes.
    fn put_new_file(&self, place: &Place, bytes: Buffer) -> Result<()> {
        if self.contents.files.is_kept_as_file(Some(place)) {
            let created = Created::by(Ownership::of_process(0o644));
            let new = UnstoredBytes { condition: Condition::Absent, ..UnstoredBytes::of(bytes) };
            self.contents.files.make_file(place, &new, &created)?;
            return self.contents.files.note_change(place);
        }
        let inode = self.names.inode_of_new(place);
        if let Err(error) = self.contents.files.reserve(bytes.len()) {
            self.names.inodes.release(inode);
            return Err(error);
        }
        inode.file().lock().content = BytesAt::Unstored(UnstoredBytes {
            changed: true,
            condition: Condition::Absent,
            waits_since: matches!(place, Place::Chunk(..)).then(Instant::now),
            ..UnstoredBytes::of(bytes)
        });
        let name = place.name().unwrap_or_default();
        self.names.overlay.insert(place.parent(), &name, Shown::File(place.clone(), inode));
        Ok(())
    }
}
