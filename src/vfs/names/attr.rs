//! File attributes as `stat` shows them.

use std::time::SystemTime;

use crate::store::Stat;

/// The attributes of a file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// The inode number.
    pub number: u64,
    /// Whether it is a directory; otherwise it is a regular file.
    pub is_dir: bool,
    /// The decoded length in bytes.
    pub len: u64,
    /// The stored size in units of 512 bytes.
    pub blocks: u64,
    /// The time when it was last stored, or written if it is not stored yet.
    pub modified: SystemTime,
    /// The number of names; 0 once it was unlinked.
    pub links: u32,
    /// The permissions of a file that was created here and is not stored yet. The store keeps none.
    pub mode: Option<u16>,
    /// Whether this kind of file can be written.
    pub is_writable: bool,
    /// Whether length and time may change without a write through this mount: unstored bytes may
    /// still be merged or dropped, and generated files depend on what other programs store.
    pub may_change: bool,
}

impl Attr {
    /// Returns the attributes of a directory.
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

    /// Returns the attributes of a file of `len` bytes that shows the stored value of `stat`.
    pub(in crate::vfs) fn of_value(self, len: u64, stat: &Stat) -> Self {
        let blocks = Self::blocks_of(stat.len, len);
        Self { len, blocks, modified: stat.modified, ..self }
    }

    /// Returns the 512-byte units for `stored_len` bytes; at least 1 if the file has bytes.
    pub fn blocks_of(stored_len: u64, len: u64) -> u64 {
        stored_len.div_ceil(512).max(u64::from(len > 0))
    }
}
