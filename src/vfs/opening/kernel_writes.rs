//! FUSE passthrough for writing: the kernel writes to a new file of the store without asking
//! zarrfs. The file has no name until it becomes the value of the file in the mount, at a close or
//! a rename (`HeldBytes::File`). This saves two of three copies of the bytes.
//!
//! A program may write again after a close that has stored the file, through another descriptor or
//! a mapping, and the kernel does not report it. So among chunk files, the kernel writes only
//! encoded ones that are not checked: what is written later changes the stored value in place
//! (`Files::note_late_writes`). An ordinary file is renamed onto a chunk: then its bytes are
//! checked, and copied if a program can still write to the file (`NewFile::may_have_writers`). Or
//! it is stored: then the new file becomes the ordinary file, also for programs that have it open.
//!
//! All handles of a file share the new file until it is the value, and those of an ordinary file
//! also afterwards. Of another value, readers may share it, and a program that opens the file to
//! write gets a new inode (`Passthrough::detach_from_name`).
//!
//! If the kernel refuses passthrough, the bytes are received in memory
//! (`Opener::refuse_passthrough`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::passthrough::Passthrough;
use crate::backing::Backing;
use crate::store::Prefix;
use crate::vfs::access::Access;
use crate::vfs::inodes::file::{BytesAt, InodeFile};
use crate::vfs::inodes::held::HeldBytes;
use crate::vfs::inodes::place::Place;
use crate::vfs::options::Writeback;

impl Passthrough {
    /// Creates a new file of the store for a file that was truncated, and has the kernel write to
    /// it. `None` if zarrfs must receive the bytes.
    pub fn backing_for_writer(&self, file: &mut InodeFile, place: &Place) -> Option<Arc<Backing>> {
        let is_possible = self.backing_files.is_possible()
            && self.backing_files.is_possible_of_store.load(Ordering::Relaxed);
        let are_alike = file.openers.saturating_sub(file.opening) == file.passthrough.openers;
        if !is_possible || !are_alike || self.core.options.writeback == Writeback::All {
            return None;
        }
        let BytesAt::Unstored(unstored) = &mut file.content else { return None };
        if !unstored.bytes.is_empty() {
            return None;
        }
        let prefix = self.prefix_of_new_file(place)?;
        let taken = self.backing_files.stored.take()?;
        let new = self.core.hierarchy.store().write().and_then(|store| store.new_file(&prefix));
        let new = new.inspect_err(|error| log::debug!("no new file: {error}")).ok()??;
        let backing = Arc::new(Backing::of_new_file(new, taken));
        unstored.bytes = HeldBytes::File(Arc::clone(&backing));
        Some(self.share_new_file(file, Access::Truncate, backing))
    }

    /// Returns where in the store to create a new file that the kernel writes instead of a chunk or
    /// ordinary file; `None` if that would be of no use.
    fn prefix_of_new_file(&self, place: &Place) -> Option<Prefix> {
        let (Place::Chunk(path, _) | Place::Ordinary(path, _)) = place else { return None };
        let is_ordinary = matches!(place, Place::Ordinary(..));
        match self.core.shown_array(path) {
            Ok(array) if array.stores_as_written() && (is_ordinary || array.is_trusted()) => {
                Some(array.prefix().clone())
            }
            // The directory may become an array.
            Err(_) if is_ordinary => Some(Prefix::root()),
            _ => None,
        }
    }

    /// Returns the new file of the store that the kernel reads and writes for handles of a file.
    pub fn kernel_file(file: &InodeFile) -> Option<Arc<Backing>> {
        let (_, backing) = file.passthrough.backing.as_ref()?;
        let is_used = file.passthrough.openers > 0 && backing.new_file().is_some();
        is_used.then(|| Arc::clone(backing))
    }

    /// Adds a handle of a file that the kernel writes to a new file of the store.
    pub fn share_new_file(
        &self,
        file: &mut InodeFile,
        access: Access,
        backing: Arc<Backing>,
    ) -> Arc<Backing> {
        file.settle();
        self.count_passthrough(file, access, None, backing)
    }
}
