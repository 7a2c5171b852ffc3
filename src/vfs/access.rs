//! Arguments and answers of calls: how a file is opened, and whether a name may be replaced.

use std::sync::Arc;

use rustix::process::{getegid, geteuid};

use crate::backing::Backing;
use crate::store::Ownership;

/// An open file.
#[derive(Debug, Clone)]
pub struct OpenedFile {
    /// The handle number.
    pub handle: u64,
    /// How the kernel may use its pages of the file.
    pub pages: Pages,
    /// The backing file, if the kernel uses passthrough.
    pub backing: Option<Arc<Backing>>,
}

/// The access mode of an open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read only.
    Read,
    /// Write, and perhaps read.
    Write,
    /// Write, after truncating to 0.
    Truncate,
}

/// The user of a program, with its first group. The kernel does not say its other groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

impl Caller {
    /// Returns the user of this process.
    pub fn own() -> Self {
        Self { uid: geteuid().as_raw(), gid: getegid().as_raw() }
    }

    /// Whether it is root or the user who mounted.
    pub(in crate::vfs) fn is_trusted(self) -> bool {
        self.uid == 0 || self.uid == geteuid().as_raw()
    }

    /// Whether it may certainly read a file.
    pub(in crate::vfs) fn may_read(self, owner: Ownership) -> bool {
        let needed = if self.uid == owner.uid {
            0o400
        } else if self.gid == owner.gid {
            0o040
        } else {
            0o044
        };
        owner.mode & needed == needed
    }
}

/// How the kernel may use its pages of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// Keep them, because they are current.
    Keep,
    /// Drop them, because they may be outdated.
    Drop,
    /// Use none: the file is generated for each open.
    None,
}

/// A file whose bytes are ready for an open.
pub(in crate::vfs) struct PreparedFile {
    pub pages: Pages,
    pub backing: Option<Arc<Backing>>,
    /// The drop epoch, if the kernel drops its pages.
    pub drops: Option<u64>,
}

impl From<Pages> for PreparedFile {
    fn from(pages: Pages) -> Self {
        Self { pages, backing: None, drops: None }
    }
}

impl From<Arc<Backing>> for PreparedFile {
    fn from(backing: Arc<Backing>) -> Self {
        Self { pages: Pages::Drop, backing: Some(backing), drops: None }
    }
}
