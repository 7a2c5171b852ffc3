//! Files that the kernel reads by itself.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use fuser::{BackingId, FopenFlags};

use crate::vfs::{Opened, Vfs};

/// It is only read. Of other flags the kernel takes few together with this.
pub const FLAGS: FopenFlags = FopenFlags::FOPEN_NOFLUSH;

/// What the kernel knows the file by that it is to read in the place of one that was opened, `None`
/// if it is to ask us.
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
            vfs.disable_passthrough(backing, why);
            None
        }
    }
}
