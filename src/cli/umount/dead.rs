//! Dead mounts: those whose process has ended, so that every call fails.

use std::fs::File;
use std::path::Path;

use crate::cli::failure::{Failure, failed};

/// Whether an error means that no process serves a mount any more.
pub fn is_dead(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED))
}

/// Fails with the remedy if `path` lies in a mount that no process serves any more.
pub fn refuse_dead(path: &Path) -> Result<(), Failure> {
    let is_in_dead = |path: &&Path| alive(path).is_err_and(|error| is_dead(&error));
    let Some(mountpoint) = path.ancestors().take_while(is_in_dead).last() else { return Ok(()) };
    Err(failed(format!(
        "{}: the process that served this mount has ended; run zarrfs umount {}",
        path.display(),
        mountpoint.display()
    )))
}

/// Returns the attributes of a mountpoint from the process that serves it, because the kernel may
/// still have cached attributes of a dead mount.
pub fn alive(mountpoint: &Path) -> std::io::Result<std::fs::Metadata> {
    let found = std::fs::metadata(mountpoint)?;
    if found.is_dir() {
        File::open(mountpoint)?;
    }
    Ok(found)
}
