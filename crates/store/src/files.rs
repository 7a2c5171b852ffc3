//! Files and directories with everything that a file system keeps of them: the capability of a
//! store that is a directory.
//!
//! A value of a store has bytes, a time and a version. A file also has an owner, a mode, extended
//! attributes and several names, may be changed in place, and need not be a regular file. Programs
//! expect that of the files of a mount that belong to no node.
//!
//! A path is that of a key or a prefix below the root; it is empty for the root itself. Its last
//! component is never followed if it is a symbolic link, the others only as far as they stay below
//! the root.

use std::fmt;
use std::sync::Arc;

use super::file_stat::{FileStat, FileUse, NewNode, Ownership, Replace};
use super::key::Prefix;
use super::open_file::OpenFile;
use zarrfs_base::error::Result;

/// A store that is a directory of files.
///
/// These calls change what a path names at once. A directory stays when its last file is removed.
pub trait FileStore: Send + Sync + fmt::Debug {
    /// Returns this store for files in the directory `home`, which exists and is not recreated: see
    /// [`WritableStore::in_directory`](super::WritableStore::in_directory).
    fn files_in_directory(&self, home: &Prefix) -> Arc<dyn FileStore>;

    /// Opens the file at `path`; `None` if there is none.
    fn open(&self, path: &str, purpose: FileUse) -> Result<Option<OpenFile>>;

    /// Creates the regular file `path` with this mode, and opens it for writing. It belongs to the
    /// user of `owner` if this process may give it away, and to the group of its directory if that
    /// has the set-group-ID bit.
    fn create(&self, path: &str, owner: Ownership) -> Result<OpenFile>;

    /// Returns the owner and mode of a regular file that [`Self::create`] would make, without
    /// making it; `None` if only making it tells them. Fails as it would if this process may not
    /// make files there.
    fn owner_of_new(&self, path: &str, owner: Ownership) -> Result<Option<Ownership>>;

    /// Makes a file that is not a regular one, or an empty one. The owner is that of
    /// [`Self::create`].
    fn make(&self, path: &str, node: NewNode<'_>, owner: Ownership) -> Result<()>;

    /// Removes the name of a file that is no directory.
    fn remove_file(&self, path: &str) -> Result<()>;

    /// Removes an empty directory.
    fn remove_directory(&self, path: &str) -> Result<()>;

    /// Whether a directory, or one below it, has names that no key can have: they are not UTF-8.
    fn has_names_without_key(&self, path: &str) -> Result<bool>;

    /// Renames a file or directory.
    fn rename(&self, from: &str, to: &str, replace: Replace) -> Result<()>;

    /// Gives a file that is no directory a second name.
    fn link(&self, from: &str, to: &str) -> Result<()>;

    /// Says that several users use the files, and links of one must not give another's rights.
    fn expect_others(&self);

    /// Whether this process may give files to other users.
    fn may_give(&self) -> bool;

    /// Returns the attributes of the file to which the link at `path` leads; `None` if there is
    /// none.
    fn target_stat(&self, path: &str) -> Result<Option<FileStat>>;

    /// Returns the attributes of the file at `path`; `None` if there is none.
    fn file_stat(&self, path: &str) -> Result<Option<FileStat>> {
        self.open(path, FileUse::Attributes)?.map(|file| file.stat()).transpose()
    }
}
