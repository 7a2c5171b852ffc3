//! Files that the kernel reads directly.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use fuser::{BackingId, FopenFlags};

use crate::vfs::{Opened, Vfs};

/// The file is read-only. The kernel allows few other flags together with passthrough.
pub const FLAGS: FopenFlags = FopenFlags::FOPEN_NOFLUSH;

/// Registers the file that the kernel reads instead of the opened one; `None` if the kernel must
/// send reads to zarrfs.
pub fn register(
    vfs: &Vfs,
    opened: &Opened,
    open_backing: impl FnOnce(BorrowedFd<'_>) -> io::Result<BackingId>,
) -> Option<Arc<BackingId>> {
    let backing = opened.backing.as_ref()?;
    let registered = backing.registered(|file| match open_backing(file) {
        Ok(id) => Ok(Arc::new(id)),
        Err(error) => Err(error.to_string().into()),
    });
    match registered {
        Ok(registration) => Arc::clone(registration).downcast().ok(),
        Err(why) => {
            vfs.passthrough().disable_passthrough(backing, why);
            None
        }
    }
}
