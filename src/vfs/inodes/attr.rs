//! File attributes as `stat` shows them.

use std::time::SystemTime;

use crate::store::{FileKind, FileStat, Ownership, Stat};

/// The attributes of a file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// The inode number.
    pub number: u64,
    /// Its type.
    pub kind: FileKind,
    /// The decoded length in bytes.
    pub len: u64,
    /// The stored size in units of 512 bytes.
    pub blocks: u64,
    /// The time of the last access, if the store has it.
    pub accessed: SystemTime,
    /// The time when it was last stored, or written if it is not stored yet.
    pub modified: SystemTime,
    /// The time of the last change of its bytes or attributes.
    pub changed: SystemTime,
    /// The number of names; 0 once it was unlinked.
    pub links: u32,
    /// The permissions of a file that was created here and is not stored yet, in a store that keeps
    /// none.
    pub mode: Option<u16>,
    /// Its own owner and mode. Other files have those of the mount.
    pub owner: Option<Ownership>,
    /// The owner and mode of a generated file, if the store keeps what it shows from some users.
    pub private: Option<Ownership>,
    /// Whether it is a directory of a node or of chunks, to which the owner of the mount applies if
    /// it was given.
    pub is_of_node: bool,
    /// The number of the device that it is, if it is one.
    pub device: u32,
    /// Whether this kind of file can be written.
    pub is_writable: bool,
    /// Whether length and time may change without a write through this mount: unstored bytes may
    /// still be merged or dropped, and generated files depend on what other programs store.
    pub may_change: bool,
}

impl Attr {
    /// Returns the attributes of a directory.
    pub fn directory(modified: SystemTime) -> Self {
        Self { kind: FileKind::Directory, links: 2, ..Self::file(modified) }
    }

    /// Returns the attributes of an empty regular file.
    pub fn file(modified: SystemTime) -> Self {
        Self {
            number: 0,
            kind: FileKind::Regular,
            len: 0,
            blocks: 0,
            accessed: modified,
            modified,
            changed: modified,
            links: 1,
            mode: None,
            owner: None,
            private: None,
            is_of_node: false,
            device: 0,
            is_writable: true,
            may_change: false,
        }
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Returns the same attributes with another time of the last modification.
    #[must_use]
    pub(in crate::vfs) fn modified_at(self, modified: SystemTime) -> Self {
        Self { accessed: modified, modified, changed: modified, ..self }
    }

    /// Returns the attributes of a file of `len` bytes that shows the stored value of `stat`.
    pub(in crate::vfs) fn of_value(self, len: u64, stat: &Stat) -> Self {
        let blocks = Self::blocks_of(stat.len, len);
        Self { len, blocks, ..self }.modified_at(stat.modified)
    }

    /// Returns the attributes of a file with those of the store's own file. A directory of a node
    /// has two links, because its subdirectories here may be others than in the store.
    pub(in crate::vfs) fn of_file(self, stat: &FileStat) -> Self {
        Self {
            kind: stat.kind,
            len: stat.len,
            blocks: stat.blocks,
            accessed: stat.accessed,
            modified: stat.modified,
            changed: stat.changed,
            links: if self.is_of_node { 2 } else { stat.links },
            owner: Some(stat.owner),
            device: stat.device,
            ..self
        }
    }

    /// Returns the 512-byte units for `stored_len` bytes; at least 1 if the file has bytes.
    pub fn blocks_of(stored_len: u64, len: u64) -> u64 {
        stored_len.div_ceil(512).max(u64::from(len > 0))
    }
}
