//! The FUSE device, which this process opens or inherits.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, fcntl_getfl, fcntl_setfl, fstat, major, minor, open};

/// The number of `/dev/fuse` (Documentation/admin-guide/devices.txt of Linux).
const FUSE: (u32, u32) = (10, 229);

/// Opens the device, for a new mount.
pub fn open_fuse_device() -> io::Result<OwnedFd> {
    Ok(open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

/// Takes the descriptor with this number that the process inherited, and keeps its children from
/// inheriting it.
pub fn inherited(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointers, and fails for a number that is not open.
    let copy = super::check(unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) })?;
    // SAFETY: as above.
    super::check(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    // SAFETY: the copy is open, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Whether a descriptor is a FUSE device. If so, reading from it waits for requests.
pub fn is_fuse_device(descriptor: &OwnedFd) -> io::Result<bool> {
    let stat = fstat(descriptor)?;
    let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
        && (major(stat.st_rdev), minor(stat.st_rdev)) == FUSE;
    if is_device {
        let flags = fcntl_getfl(descriptor)?;
        fcntl_setfl(descriptor, flags - OFlags::NONBLOCK)?;
    }
    Ok(is_device)
}
