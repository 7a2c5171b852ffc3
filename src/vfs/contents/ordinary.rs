//! Ordinary files of a store of files: programs change them in place.
//!
//! A new file is in the store at once, unless its name is one of a scratch file: most of these are
//! soon renamed onto a chunk, a metadata file or another name, or removed. Until then they have
//! their bytes in memory, as any other file ([`BytesAt::Unstored`]), and their attributes, too
//! ([`Created`]).
//!
//! They are not written to memory and stored at close: they may be longer than memory, have several
//! names, and be mapped or locked while others write. Scratch files are in memory so that no raw
//! bytes of chunks appear in the store.

use std::sync::Arc;

use super::files::Files;
use super::next_step::StoreReason;
use super::stored::taken;
use crate::budget::Purpose;
use crate::error::{Error, Result, WithSubject};
use crate::store::{FileChanges, FileUse, Key, NewTime, OpenFile, Ownership, Presence};
use crate::vfs::inodes::file::{BytesAt, Created, InodeFile, UnstoredBytes, Write};
use crate::vfs::inodes::inode::Inode;
use crate::vfs::inodes::place::Place;
use crate::vfs::names::ordinary::keeps_no_files;

/// The ends of the names that programs give to scratch files: zarr-python, TensorStore and zarrs,
/// and many others.
const SCRATCH_ENDS: [&str; 4] = [".partial", "__lock", ".tmp", ".temp"];

/// The beginning of the names of scratch files of `GLib` (`gedit`).
const SCRATCH_BEGIN: &str = ".goutputstream-";

/// The letters in the random end of the name of a scratch file of rsync.
const RSYNC_RANDOM: usize = 6;

/// Whether programs give this name to files that they rename or remove at once.
pub fn is_scratch(name: &str) -> bool {
    let is_of_rsync = || {
        let (stem, random) = name.strip_prefix('.')?.rsplit_once('.')?;
        let is_random = random.len() == RSYNC_RANDOM
            && random.chars().all(|letter| letter.is_ascii_alphanumeric());
        Some(is_random && !stem.is_empty())
    };
    SCRATCH_ENDS.iter().any(|end| name.ends_with(end))
        || name.starts_with(SCRATCH_BEGIN)
        || is_of_rsync().unwrap_or_default()
}

impl Files {
    /// Whether a place is an ordinary file that the store keeps as a file.
    pub fn is_kept_as_file(&self, place: Option<&Place>) -> bool {
        matches!(place, Some(Place::Ordinary(..))) && self.names.ordinary.store().is_some()
    }

    /// Opens the stored file that a locked ordinary file is, or returns the open one. `None` for
    /// all other files, and for bytes that are not stored yet.
    pub fn open_stored(
        &self,
        inode: &Inode,
        file: &mut InodeFile,
        purpose: FileUse,
    ) -> Result<Option<Arc<OpenFile>>> {
        match &file.content {
            BytesAt::Open(open) if open.serves(purpose) => return Ok(Some(Arc::clone(open))),
            // It may have no name any more.
            BytesAt::Open(open) => {
                let open = Arc::new(open.reopen(purpose)?);
                file.content = BytesAt::Open(Arc::clone(&open));
                return Ok(Some(open));
            }
            BytesAt::Stored => {}
            BytesAt::Unstored(_) | BytesAt::Detached(_) => return Ok(None),
        }
        let Some((_, open)) = self.open_by_a_name(inode, purpose)? else { return Ok(None) };
        let open = Arc::new(open);
        if file.openers > 0 {
            file.content = BytesAt::Open(Arc::clone(&open));
        }
        Ok(Some(open))
    }

    /// Opens an ordinary file by its first name that is still one, and returns that name, too:
    /// another program may have removed a name, or given it to another file.
    pub fn open_by_a_name(
        &self,
        inode: &Inode,
        purpose: FileUse,
    ) -> Result<Option<(Place, OpenFile)>> {
        let Some(files) = self.names.ordinary.store() else { return Ok(None) };
        loop {
            let Some(place @ Place::Ordinary(..)) = inode.place() else { return Ok(None) };
            let path = self.names.ordinary.path(&place)?.ok_or_else(Error::not_found)?;
            let open = files.open(&path, purpose)?;
            if inode.has_several_places() {
                let id = open.as_ref().map(OpenFile::stat).transpose()?.map(|stat| stat.id);
                if id.is_none_or(|id| inode.is_other_than(id)) {
                    self.names.inodes.unlink(&place);
                    continue;
                }
            }
            return open.ok_or_else(Error::not_found).map(|open| Some((place, open)));
        }
    }

    /// Like [`Self::open_stored`], to change the bytes.
    pub fn open_to_change(
        &self,
        inode: &Inode,
        file: &mut InodeFile,
    ) -> Result<Option<Arc<OpenFile>>> {
        let open = self.open_stored(inode, file, FileUse::Write)?;
        if open.is_some()
            && let Some(place @ Place::Ordinary(..)) = inode.place()
        {
            self.note_change(&place)?;
        }
        Ok(open)
    }

    /// Like [`Self::open_to_change`], for a write. A scratch file that becomes too long for memory
    /// is stored first.
    pub fn open_to_write(
        &self,
        inode: &Inode,
        file: &mut InodeFile,
        write: Write<'_>,
    ) -> Result<Option<Arc<OpenFile>>> {
        self.leave_memory(inode, file, write)?;
        self.open_to_change(inode, file)
    }

    /// Stores a scratch file that a write makes too long for memory: then only the disk limits it.
    pub fn leave_memory(
        &self,
        inode: &Inode,
        file: &mut InodeFile,
        write: Write<'_>,
    ) -> Result<()> {
        let BytesAt::Unstored(unstored) = &file.content else { return Ok(()) };
        if unstored.bytes.file().is_some() || !self.is_kept_as_file(inode.place().as_ref()) {
            return Ok(());
        }
        let limit = self.core.hierarchy.options().max_chunk_len;
        let fits = write.end() <= limit
            && u64::try_from(unstored.bytes.len()).is_ok_and(|len| len <= limit);
        if fits && self.memory.try_reserve(file.content.added_by(write)).is_ok() {
            self.memory.unreserve(file.content.added_by(write));
            return Ok(());
        }
        self.store_locked(inode, file, StoreReason::Asked)
    }

    /// Marks an ordinary file, its name, or the end of its name, as not synced to disk.
    pub fn note_change(&self, place: &Place) -> Result<()> {
        if let Place::Ordinary(path, relative) = place {
            self.unsynced.changed(self.stored.ordinary_key(path, relative)?);
        }
        Ok(())
    }

    /// Makes the unstored bytes of an ordinary file a file of the store, with the attributes that
    /// programs gave it, and returns it. It is open for writing if this made it, whatever its mode
    /// says.
    pub fn make_file(
        &self,
        place: &Place,
        unstored: &UnstoredBytes,
        created: &Created,
    ) -> Result<OpenFile> {
        self.names.ordinary.check_home(place, created)?;
        let new_name = self.names.ordinary.for_new(place)?.ok_or_else(keeps_no_files)?;
        let (files, path, write) = (new_name.files()?, &new_name.path, new_name.store.write()?);
        let written = unstored.written();
        let times = FileChanges {
            accessed: created.accessed.map(NewTime::At),
            modified: Some(NewTime::At(unstored.last_modified())),
            ..FileChanges::default()
        };
        // A program that still writes to it changes the ordinary file, as it should.
        if let Some(new) = written.bytes.new_file() {
            let open = new.open_file()?;
            set_xattrs(&open, created)?;
            open.change(&FileChanges {
                mode: Some(created.owner.mode),
                uid: Some(created.owner.uid).filter(|_| files.may_give()),
                gid: Some(created.owner.gid).filter(|_| files.may_give()),
                ..times
            })?;
            let key = Key::parse(path)?;
            if write.set_file(&key, new, unstored.condition).map_err(taken)?.is_some() {
                return Ok(open);
            }
        }
        let limit = self.core.budget.limit(Purpose::Unstored);
        let bytes = written.bytes.to_buffer(limit)?;
        // A file that nobody may write to cannot get extended attributes, and a write clears the
        // set-user-ID bit.
        let first = Ownership { mode: created.owner.mode & 0o777 | 0o600, ..created.owner };
        let open = files.create(path, first).map_err(taken)?;
        let filled = open
            .write(0, &bytes)
            .and_then(|()| set_xattrs(&open, created))
            .and_then(|()| give(&open, first, created.owner))
            .and_then(|()| open.change(&times));
        filled.map(|()| open).inspect_err(|_| {
            // The bytes stay in memory.
            files.remove_file(path).unwrap_or_else(|error| log::debug!("{error}"));
        })
    }
}

/// Gives a new file its extended attributes.
fn set_xattrs(open: &OpenFile, created: &Created) -> Result<()> {
    for (name, value) in &created.xattrs {
        open.set_xattr(name.as_ref(), value, Presence::Any).at(name)?;
    }
    Ok(())
}

/// Gives a new file, which was created with the owner and mode `first`, its own.
fn give(open: &OpenFile, first: Ownership, owner: Ownership) -> Result<()> {
    let gid = Some(owner.gid).filter(|gid| open.stat().is_ok_and(|now| now.owner.gid != *gid));
    if gid.is_some() {
        match open.change(&FileChanges { gid, ..FileChanges::default() }) {
            // A program may have been a member of more groups than zarrfs.
            Err(error) if error.errno() == libc::EPERM => {}
            changed => changed?,
        }
    }
    let mode = Some(owner.mode).filter(|mode| *mode != first.mode);
    open.change(&FileChanges { mode, ..FileChanges::default() })
}

#[cfg(test)]
mod tests {
    use super::is_scratch;

    #[test]
    fn names_of_scratch_files_are_those_that_programs_rename_at_once() {
        for name in [
            "0.8c3d2c1b.partial",
            "zarr.json.__lock",
            "0.__lock",
            "a.tmp",
            ".a.nc.Xy12ZB",
            ".goutputstream-ABC123",
        ] {
            assert!(is_scratch(name), "{name}");
        }
        for name in ["notes.txt", ".gitignore", ".a.conf", "tmp", ".bashrc", "a.partially"] {
            assert!(!is_scratch(name), "{name}");
        }
    }
}
