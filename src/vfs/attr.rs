//! What `stat` shows.

use std::time::SystemTime;

use crate::store::Stat;

/// Attributes of a file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub number: u64,
    /// Whether it is a directory; else it is a regular file.
    pub is_dir: bool,
    /// Length in bytes, decoded.
    pub len: u64,
    /// Units of 512 bytes that it takes in the store.
    pub blocks: u64,
    /// When it was last stored, or written if it is not stored yet.
    pub modified: SystemTime,
    /// Names that it has: 0 once it was unlinked.
    pub links: u32,
    /// The permissions of a file that was made here and is not stored yet; what is stored has none of its own.
    pub mode: Option<u16>,
    /// Whether it can be written, by what it is.
    pub is_writable: bool,
    /// Whether length and time may be others at the next look: of bytes that are not stored yet, and may be merged
    /// or dropped, and of what is made from what others store.
    pub may_change: bool,
}

impl Attr {
    /// Those of a directory.
    pub fn directory(modified: SystemTime) -> Self {
        let (is_writable, may_change) = (true, false);
        Self {
            number: 0,
            is_dir: true,
            len: 0,
            blocks: 0,
            modified,
            links: 2,
            mode: None,
            is_writable,
            may_change,
        }
    }

    /// The same of a file of `len` bytes that shows the stored value of `stat`.
    pub(super) fn of_value(self, len: u64, stat: &Stat) -> Self {
        let blocks = Self::blocks_of(stat.len, len);
        Self { len, blocks, modified: stat.modified, ..self }
    }

    /// The units that `stored_len` bytes take; at least 1 where the file has bytes.
    pub fn blocks_of(stored_len: u64, len: u64) -> u64 {
        stored_len.div_ceil(512).max(u64::from(len > 0))
    }
}
