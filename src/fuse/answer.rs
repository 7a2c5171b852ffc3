//! Runs single requests, so that a failure affects nothing else.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fuser::Errno;

use crate::error::{Error, Kind, Result};
use crate::vfs::Vfs;

/// Runs a request. Converts an error to an errno, and records it for the user.
pub fn answer<T>(
    vfs: &Vfs,
    operation: &str,
    request: impl FnOnce() -> Result<T>,
) -> Result<T, Errno> {
    let result = catch_unwind(AssertUnwindSafe(request)).unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message =
            message.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason");
        Err(Error::new(Kind::Internal, format!("a bug in zarrfs, please report it: {message}")))
    });
    result.map_err(|error| {
        vfs.note(operation, &error);
        Errno::from_i32(error.errno())
    })
}

/// Converts `ENOENT` for an inode that the kernel knows to the errno that makes it look up the name
/// again. Then `O_CREAT` creates the file, and other opens fail with `ENOENT`.
pub fn gone(errno: Errno) -> Errno {
    if errno.code() == libc::ENOENT { Errno::ESTALE } else { errno }
}
