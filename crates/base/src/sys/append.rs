//! A file that is appended to and may be opened again by its name.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};

/// The name of a file in a directory that is open: the path of the directory may lead to another
/// one later, as into a new mount.
#[derive(Debug)]
pub struct AppendedFile {
    directory: OwnedFd,
    name: Box<OsStr>,
}

impl AppendedFile {
    /// Opens the directory of a file whose path has no links.
    pub fn at(path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or_else(|| io::Error::other("not the name of a file"))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, path.parent().unwrap_or(path), flags, Mode::empty())?;
        Ok(Self { directory, name: name.into() })
    }

    /// Opens the file to append to it; a new one if there is none. Follows no link.
    pub fn open(&self) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW;
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
        Ok(File::from(openat(&self.directory, &*self.name, flags, Mode::from(0o666))?))
    }
}
