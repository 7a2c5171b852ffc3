//! The attributes that a file system keeps of a file, and their changes.

use std::time::SystemTime;

use rustix::process::{getegid, geteuid};

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
    /// A block device.
    BlockDevice,
    /// A character device.
    CharDevice,
}

/// The identity of a file, whatever its names are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId {
    /// The number of the device that it is on.
    pub device: u64,
    /// Its inode number there.
    pub number: u64,
}

/// The set-user-ID and set-group-ID bits of a mode.
pub const PRIVILEGES: u16 = 0o6000;

/// The owner and the mode of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ownership {
    /// The permissions, with the set-user-ID, set-group-ID and sticky bits.
    pub mode: u16,
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

impl Ownership {
    /// Returns the user and the group of this process, with this mode.
    pub fn of_process(mode: u16) -> Self {
        Self { mode, uid: geteuid().as_raw(), gid: getegid().as_raw() }
    }
}

/// The attributes of a file, as in `stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStat {
    /// Its identity.
    pub id: FileId,
    /// Its type.
    pub kind: FileKind,
    /// Its owner and mode.
    pub owner: Ownership,
    /// The number of its names.
    pub links: u32,
    /// Its length in bytes.
    pub len: u64,
    /// The stored size in units of 512 bytes.
    pub blocks: u64,
    /// The time of the last access.
    pub accessed: SystemTime,
    /// The time of the last modification of its bytes.
    pub modified: SystemTime,
    /// The time of the last change of its bytes or attributes.
    pub changed: SystemTime,
    /// The number of the device that it is, if it is one.
    pub device: u32,
}

/// A time that is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewTime {
    /// The present one. A user who may write a file may set this time, others only the owner.
    Now,
    /// This one.
    At(SystemTime),
}

/// Changes of attributes; those that are `None` stay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileChanges {
    /// The mode.
    pub mode: Option<u16>,
    /// The user.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// The time of the last access.
    pub accessed: Option<NewTime>,
    /// The time of the last modification.
    pub modified: Option<NewTime>,
}

impl FileChanges {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What [`FileStore::make`](super::FileStore::make) makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewNode<'t> {
    /// An empty directory.
    Directory,
    /// A symbolic link with this text.
    Link(&'t [u8]),
    /// An empty regular file, a FIFO, a socket or a device with this number.
    Special(FileKind, u32),
}

/// The use of an opened file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileUse {
    /// Its attributes. No permission for the file itself is needed, and it may be of any kind.
    Attributes,
    /// Reading. It must be a regular file.
    Read,
    /// Reading and writing. It must be a regular file.
    Write,
}

/// Whether an extended attribute must exist before it is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It may exist or not.
    Any,
    /// It must not exist (`XATTR_CREATE`).
    Absent,
    /// It must exist (`XATTR_REPLACE`).
    Present,
}

/// The effect of a rename if the new name exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replace {
    /// It replaces the existing file.
    Yes,
    /// It fails.
    No,
    /// The files take each other's name.
    Exchange,
}
