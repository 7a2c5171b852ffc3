//! Files that the kernel reads directly.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use fuser::{BackingId, FopenFlags, OpenFlags};

use crate::vfs::{Access, OpenedFile, Vfs};

/// Returns the flags for an open with passthrough; the kernel allows few others with it. It need
/// not report the close of a read-only file.
pub fn flags(access: Access) -> FopenFlags {
    match access {
        Access::Read => FopenFlags::FOPEN_NOFLUSH,
        Access::Write | Access::Truncate => FopenFlags::empty(),
    }
}

/// How long the kernel may use the attributes of a file that a program has just created and that
/// the kernel writes: long enough for the program to ask for them at once. Later, the name may be
/// gone, because the file was refused.
pub const NEW_FILE_TTL: Duration = Duration::from_millis(20);

/// Registers the file that the kernel uses instead of the opened one; `None` if the kernel must
/// send reads and writes to zarrfs.
///
/// A program that writes with `O_DIRECT` does not expect the rules of the store's file system for
/// offsets and lengths, so zarrfs receives its writes.
pub fn register(
    vfs: &Vfs,
    opened: &OpenedFile,
    flags: OpenFlags,
    open_backing: impl FnOnce(BorrowedFd<'_>) -> io::Result<BackingId>,
) -> Option<Arc<BackingId>> {
    let backing = opened.backing.as_ref()?;
    if flags.0 & libc::O_DIRECT != 0 && backing.new_file().is_some() {
        vfs.refuse_passthrough(opened.handle);
        return None;
    }
    let registered = backing.registered(|file| match open_backing(file) {
        Ok(id) => Ok(Arc::new(id)),
        Err(error) => Err(error.to_string().into()),
    });
    match registered {
        Ok(registration) => Arc::clone(registration).downcast().ok(),
        Err(why) => {
            vfs.passthrough().disable_passthrough(backing, why);
            vfs.refuse_passthrough(opened.handle);
            None
        }
    }
}
