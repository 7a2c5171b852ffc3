//! How a file is opened.

use std::sync::Arc;

use crate::backing::Backing;

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

/// What the kernel may do with its pages of a file.
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
pub(super) struct Prepared {
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
