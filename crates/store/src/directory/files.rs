//! The files of the directory with all that the file system keeps of them.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{
    Access, AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Uid, accessat, chownat, fstat,
    getxattr, linkat, mkdirat, mknodat, renameat_with, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};

use super::names::{c_name, is_lock};
use super::opening::{check_root, open_at, open_dir};
use super::parents::make_parent;
use super::trees::has_names_without_key;
use super::trust::Last;
use super::{DirectoryStore, Durability};
use crate::open_file::check_count;
use crate::{
    FileChanges, FileKind, FileStat, FileStore, FileUse, Key, NewNode, OpenFile, Ownership, Prefix,
    Replace,
};
use zarrfs_base::error::{Error, Kind, Result, WithSubject};
use zarrfs_base::sys::{self, Links, path_of};

/// The set-group-ID bit.
const SET_GID: u32 = 0o2000;

impl DirectoryStore {
    /// Finds `path` without following its last component; `None` if there is none.
    fn find_last(&self, path: &str) -> Result<Option<OwnedFd>> {
        let path = if path.is_empty() { "." } else { path.trim_end_matches('/') };
        let (name, flags) = (c_name(path)?, OFlags::PATH | OFlags::NOFOLLOW);
        let mut opened = sys::open_beneath(&*self.root, &name, flags, Links::Refuse);
        if matches!(opened, Err(Errno::LOOP)) {
            if let Some((above, _)) = path.rsplit_once('/') {
                self.root.check(above)?;
            }
            opened = self.root.follow(path, flags, Last::Itself)?;
        }
        match opened {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::NOENT | Errno::NOTDIR) => check_root(&self.root).map(|()| None),
            Err(Errno::XDEV) => {
                Err(Error::new(Kind::Os(libc::EXDEV), "its path leads out of the store"))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Opens the directory of a new name, and returns it with the last component.
    fn parent_of(&self, path: &str) -> Result<(OwnedFd, CString)> {
        let key = Key::parse(path)?;
        if is_lock(&key) {
            return Err(super::reserved());
        }
        let name = c_name(key.name())?;
        // It may be one that this process cannot read.
        let dir = open_at(&self.root, key.parent().as_str(), OFlags::PATH | OFlags::DIRECTORY)?;
        Ok((dir.map_or_else(|| make_parent(&self.root, self.home.as_ref(), &key), Ok)?, name))
    }

    /// Opens the directory of an existing name, and returns it with the last component.
    fn existing_parent_of(&self, path: &str) -> Result<(OwnedFd, CString)> {
        let key = Key::parse(path)?;
        if is_lock(&key) {
            return Err(super::reserved());
        }
        let parent = key.parent();
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let dir = open_at(&self.root, parent.as_str(), flags)?.ok_or_else(Error::not_found)?;
        Ok((dir, c_name(key.name())?))
    }
}

/// Returns the mode and the owner of a new file in the directory `dir`, as a file system chooses
/// them for a process of that user.
fn owner_in(dir: &OwnedFd, owner: Ownership, is_dir: bool) -> Result<Ownership> {
    let above = fstat(dir)?;
    if above.st_mode & SET_GID == 0 {
        return Ok(owner);
    }
    let inherited = if is_dir { 0o2000 } else { 0 };
    Ok(Ownership { mode: owner.mode | inherited, gid: above.st_gid, ..owner })
}

/// Whether a directory has a default ACL, which decides over the mode of new files (acl(5)).
fn has_default_acl(dir: &OwnedFd) -> bool {
    let found = getxattr(path_of(dir), c"system.posix_acl_default", &mut [0_u8; 1]);
    matches!(found, Ok(_) | Err(Errno::RANGE))
}

/// Returns the mode with which to create a file, and whether it has its mode then. Unless a default
/// ACL decides over that, other users cannot open a file before it has its owner.
fn first_mode(dir: &OwnedFd, owner: Ownership) -> Result<(Mode, bool)> {
    let gives_group = fstat(dir)?.st_mode & SET_GID != 0;
    let is_own_group = gives_group || owner.gid == getegid().as_raw();
    let is_own = owner.uid == geteuid().as_raw() && is_own_group;
    let has_mode = has_default_acl(dir);
    let mode = if is_own || has_mode { owner.mode } else { owner.mode & 0o700 };
    Ok((Mode::from_raw_mode(u32::from(mode)), has_mode))
}

/// Gives a new file to its owner, if this process may do that, and its mode, unless it has it.
fn give(file: &OpenFile, owner: Ownership, has_mode: bool) -> Result<()> {
    let now = file.stat()?.owner;
    if (now.uid, now.gid) != (owner.uid, owner.gid) && geteuid().is_root() {
        let (uid, gid) = (Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)));
        chownat(file, c"", uid, gid, AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW)?;
    }
    let now = file.stat()?;
    if !has_mode && now.owner.mode != owner.mode && now.kind != FileKind::Link {
        file.change(&FileChanges { mode: Some(owner.mode), ..FileChanges::default() })?;
    }
    Ok(())
}

impl FileStore for DirectoryStore {
    fn files_in_directory(&self, home: &Prefix) -> Arc<dyn FileStore> {
        Arc::new(self.in_home(home))
    }

    fn open(&self, path: &str, purpose: FileUse) -> Result<Option<OpenFile>> {
        if Key::parse(path.trim_end_matches('/')).is_ok_and(|key| is_lock(&key)) {
            return Ok(None);
        }
        let Some(found) = self.find_last(path).at(path)? else { return Ok(None) };
        let found = OpenFile::new(found, FileUse::Attributes);
        if purpose == FileUse::Attributes {
            return Ok(Some(found));
        }
        // To open a device would have effects.
        match found.stat()?.kind {
            FileKind::Regular => {
                check_count().and_then(|()| found.reopen(purpose)).at(path).map(Some)
            }
            FileKind::Directory => Err(Error::new(Kind::IsDirectory, "is a directory").at(path)),
            FileKind::Link => Err(Error::new(Kind::Os(libc::ELOOP), "a symbolic link").at(path)),
            _ => Err(super::opening::not_a_file().at(path)),
        }
    }

    fn create(&self, path: &str, owner: Ownership) -> Result<OpenFile> {
        check_count().at(path)?;
        let (dir, name) = self.parent_of(path)?;
        let owner = owner_in(&dir, owner, false)?;
        let (mode, has_mode) = first_mode(&dir, owner)?;
        let created = sys::create_beneath(&dir, &name, mode)?;
        let file = OpenFile::new(created, FileUse::Write);
        give(&file, owner, has_mode)?;
        Ok(file)
    }

    fn owner_of_new(&self, path: &str, owner: Ownership) -> Result<Option<Ownership>> {
        let above = Key::parse(path)?.parent();
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        // The store makes a directory of chunks with its first file.
        let Some(dir) = open_at(&self.root, above.as_str(), flags)? else { return Ok(Some(owner)) };
        let access = Access::WRITE_OK | Access::EXEC_OK;
        accessat(CWD, path_of(&dir), access, AtFlags::EACCESS).map_err(Error::from).at(path)?;
        if has_default_acl(&dir) {
            return Ok(None);
        }
        owner_in(&dir, owner, false).map(Some)
    }

    fn make(&self, path: &str, node: NewNode<'_>, owner: Ownership) -> Result<()> {
        let (dir, name) = self.parent_of(path)?;
        let owner = owner_in(&dir, owner, matches!(node, NewNode::Directory))?;
        let (mode, has_mode) = first_mode(&dir, owner)?;
        match node {
            NewNode::Directory => mkdirat(&dir, &name, mode)?,
            NewNode::Link(text) => {
                let text = CString::new(text)
                    .map_err(|_| Error::invalid("the link contains a NUL byte"))?;
                symlinkat(&text, &dir, &name)?;
            }
            NewNode::Special(kind, device) => {
                let kind = match kind {
                    FileKind::Fifo => FileType::Fifo,
                    FileKind::Socket => FileType::Socket,
                    FileKind::BlockDevice => FileType::BlockDevice,
                    FileKind::CharDevice => FileType::CharacterDevice,
                    FileKind::Regular => FileType::RegularFile,
                    FileKind::Directory | FileKind::Link => {
                        return Err(Error::invalid("mknod cannot make this kind of file"));
                    }
                };
                mknodat(&dir, &name, kind, mode, u64::from(device))?;
            }
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let made = sys::open_beneath(&dir, &name, flags, Links::Refuse)?;
        give(&OpenFile::new(made, FileUse::Attributes), owner, has_mode)
    }

    fn remove_file(&self, path: &str) -> Result<()> {
        let (dir, name) = self.existing_parent_of(path)?;
        Ok(unlinkat(&dir, &name, AtFlags::empty())?)
    }

    fn remove_directory(&self, path: &str) -> Result<()> {
        let (dir, name) = self.existing_parent_of(path)?;
        Ok(unlinkat(&dir, &name, AtFlags::REMOVEDIR)?)
    }

    fn rename(&self, from: &str, to: &str, replace: Replace) -> Result<()> {
        let (dir, name) = self.existing_parent_of(from)?;
        let (new_dir, new_name) = self.parent_of(to)?;
        let replaces = statat(&new_dir, &new_name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        if replace == Replace::Yes && replaces && self.durability == Durability::Synced {
            // The new file must be on the disk before it replaces the old one. A link has no bytes.
            if let Ok(Some(file)) = self.open(from, FileUse::Read) {
                file.sync()?;
            }
        }
        let flags = match replace {
            Replace::Yes => RenameFlags::empty(),
            Replace::No => RenameFlags::NOREPLACE,
            Replace::Exchange => RenameFlags::EXCHANGE,
        };
        Ok(renameat_with(&dir, &name, &new_dir, &new_name, flags)?)
    }

    fn has_names_without_key(&self, path: &str) -> Result<bool> {
        let prefix = Prefix::parse(path).at(path)?;
        open_dir(&self.root, &prefix)?.map_or(Ok(false), has_names_without_key).at(path)
    }

    fn expect_others(&self) {
        self.root.expect_others();
    }

    fn target_stat(&self, path: &str) -> Result<Option<FileStat>> {
        let found = open_at(&self.root, path, OFlags::PATH)?;
        found.map(|found| OpenFile::new(found, FileUse::Attributes).stat()).transpose()
    }

    fn may_give(&self) -> bool {
        geteuid().is_root()
    }

    fn link(&self, from: &str, to: &str) -> Result<()> {
        let (dir, name) = self.existing_parent_of(from)?;
        let (new_dir, new_name) = self.parent_of(to)?;
        Ok(linkat(&dir, &name, &new_dir, &new_name, AtFlags::empty())?)
    }
}
