//! Opens and creates files below a directory, by its descriptor (openat2(2)).

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

/// The links that [`open_beneath`] follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// Symbolic links that stay below the directory.
    Beneath,
    /// No links.
    Refuse,
}

/// Returns a path of an open file, also of one without a name.
pub fn path_of(file: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// The number of attempts to resolve a path with `..` in a link while files are renamed.
const RESOLVE_ATTEMPTS: u32 = 10_000;

/// Opens `path` below `dir`. Fails with `EXDEV` if a path or a link leads out, or with `ELOOP` if
/// links are refused. A new file has the mode 0666 without the bits of the umask.
///
/// With `RESOLVE_BENEATH`, openat2(2) fails with `EAGAIN` for a `..` while anything is renamed or
/// mounted anywhere in the system, and leaves the retry to the caller.
pub fn open_beneath(
    dir: impl AsFd,
    path: &CStr,
    flags: OFlags,
    links: Links,
) -> rustix::io::Result<OwnedFd> {
    let creates = flags.contains(OFlags::CREATE) || flags.contains(OFlags::TMPFILE);
    let mode = if creates { Mode::from(0o666) } else { Mode::empty() };
    open_with_mode(dir, path, flags, mode, links)
}

/// Creates a file that does not exist yet below `dir`, and opens it for reading and writing. It has
/// this mode without the bits of the umask.
pub fn create_beneath(dir: impl AsFd, path: &CStr, mode: Mode) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    open_with_mode(dir, path, flags, mode, Links::Refuse)
}

fn open_with_mode(
    dir: impl AsFd,
    path: &CStr,
    flags: OFlags,
    mode: Mode,
    links: Links,
) -> rustix::io::Result<OwnedFd> {
    let follow = match links {
        Links::Beneath => ResolveFlags::empty(),
        Links::Refuse => ResolveFlags::NO_SYMLINKS,
    };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | follow;
    let mut attempts = 0;
    loop {
        let opened = openat2(&dir, path, flags | OFlags::CLOEXEC, mode, resolve);
        attempts += 1;
        match opened {
            Err(Errno::AGAIN | Errno::INTR) if attempts < RESOLVE_ATTEMPTS => {
                std::thread::yield_now();
            }
            opened => return opened,
        }
    }
}
