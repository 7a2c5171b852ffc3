//! Arguments and answers of calls: how a file is opened, and whether a name may be replaced.

use std::sync::Arc;

use crate::backing::Backing;

/// An open file.
#[derive(Debug, Clone)]
pub struct Opened {
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
pub(in crate::vfs) struct Prepared {
    pub pages: Pages,
    pub backing: Option<Arc<Backing>>,
    /// The drop epoch, if the kernel drops its pages.
    pub drops: Option<u64>,
}

impl From<Pages> for Prepared {
    fn from(pages: Pages) -> Self {
        Self { pages, backing: None, drops: None }
    }
}

impl From<Arc<Backing>> for Prepared {
    fn from(backing: Arc<Backing>) -> Self {
        Self { pages: Pages::Drop, backing: Some(backing), drops: None }
    }
}
