//! Directories that no other user can change, for files that zarrfs trusts or removes.
//!
//! A path is opened name by name. Each directory on the way must belong to this user or to root,
//! and others may write to it only if its sticky bit keeps them from renaming what is not theirs. A
//! symbolic link is followed only if it belongs to this user or to root. The directory is then held
//! by its descriptor, and everything below it is opened, made and removed through that, so it does
//! not matter what becomes of the path.
//!
//! A directory of ours is marked with a file that only zarrfs makes. One without the mark is
//! the user's own, and nothing in it is touched.

use std::collections::VecDeque;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RenameFlags, Stat, fstat, linkat, mkdirat, openat, readlinkat,
    renameat, renameat_with, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::beneath::{Links, create_beneath, open_beneath, path_of};
use super::dir::Dir;
use crate::error::{Error, Kind, Result, WithSubject};
use crate::width::ToU64;

/// The most symbolic links on a path, as in Linux.
const MAX_LINKS: usize = 40;

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const PLACE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What others must not have on a directory of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OthersMay {
    /// They may read it.
    Read,
    /// They may not even enter it.
    Nothing,
}

/// What becomes of a file that has the name of a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfTaken {
    /// It stays, and the call fails with `EEXIST`.
    Stays,
    /// It is replaced.
    Goes,
}

/// What becomes of a directory that is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    /// It is made, with the mode 0700.
    Made,
    /// The call fails.
    Fails,
}

/// A directory, held by its descriptor.
#[derive(Debug)]
pub struct OwnDirectory {
    dir: OwnedFd,
    /// The path under which it was opened, for messages only.
    shown: PathBuf,
}

impl OwnDirectory {
    /// Opens the directory at `path`, in which another directory of ours may lie. Makes those that
    /// are missing, with the mode 0700. Fails if another user can replace one on the way.
    pub fn on_safe_way(path: &Path) -> Result<Self> {
        Self::by(path, Missing::Made)
    }

    /// Like [`Self::on_safe_way`], for a directory that must exist.
    pub fn existing(path: &Path) -> Result<Self> {
        Self::by(path, Missing::Fails)
    }

    fn by(path: &Path, missing: Missing) -> Result<Self> {
        let shown = std::path::absolute(path).map_err(|error| Error::os(&error));
        let shown = shown.at(path.display())?;
        let dir = Way::new().walk(&shown, missing)?;
        Ok(Self { dir, shown })
    }

    /// Opens the directory at `path`, which the user has named. Makes those that are missing.
    pub fn named(path: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(path)?;
        Ok(Self { dir: File::open(path)?.into(), shown: path.to_owned() })
    }

    /// Opens the directory `name` in this one, which is made if it is missing. Fails unless it
    /// belongs to this user, and others have no more than `others`.
    pub fn private(&self, name: &str, others: OthersMay) -> Result<Self> {
        let (c_name, shown) = (c_name(name)?, self.shown.join(name));
        match mkdirat(&self.dir, &c_name, Mode::from(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(Error::from(error).at(shown.display())),
        }
        let opened = openat(&self.dir, &c_name, DIRECTORY, Mode::empty());
        let dir = opened.map_err(|error| match error {
            Errno::LOOP | Errno::NOTDIR => refused("not a directory, but a link or a file"),
            error => error.into(),
        });
        let dir = dir.at(shown.display())?;
        let found = fstat(&dir).map_err(Error::from).at(shown.display())?;
        let forbidden = match others {
            OthersMay::Read => 0o022,
            OthersMay::Nothing => 0o077,
        };
        if found.st_uid != geteuid().as_raw() {
            return Err(owner(&found).at(shown.display()));
        }
        if found.st_mode & forbidden != 0 {
            return Err(modes(&found).at(shown.display()));
        }
        Ok(Self { dir, shown })
    }

    /// Fails unless this directory has the file `name` with this text, or nothing at all: then it
    /// gets the file. `is_ours` says which names are those of unfinished files of ours.
    pub fn mark(&self, name: &str, text: &str, is_ours: impl Fn(&str) -> bool) -> Result<()> {
        let shown = self.shown.display();
        match self.text(name, text.len()).at(&shown)? {
            // Another process may be writing it, or was killed meanwhile.
            Some(found) if text.as_bytes().starts_with(&found) => return Ok(()),
            Some(_) => {
                let detail = format!("{name} in it is not that of zarrfs; name another directory");
                return Err(refused(detail).at(&shown));
            }
            None => {}
        }
        for other in self.names().at(&shown)? {
            let other = other.at(&shown)?;
            if other != name && !is_ours(&other.to_string_lossy()) {
                let detail = format!(
                    "it has {} and no {name}, so zarrfs did not make it; name another directory, \
                     or an empty one",
                    other.display()
                );
                return Err(refused(detail).at(&shown));
            }
        }
        self.put_text(name, text).at(&shown)
    }

    /// Writes a small file at once, unless there is one of that name.
    pub fn put_text(&self, name: &str, text: &str) -> Result<()> {
        let unnamed = OFlags::WRONLY | OFlags::TMPFILE;
        let mut file = match open_beneath(&self.dir, c".", unnamed, Links::Refuse) {
            Ok(file) => File::from(file),
            // Not every file system has files without names.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
                return match self.create(name) {
                    Ok(mut file) => Ok(file.write_all(text.as_bytes())?),
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                    Err(error) => Err(error.into()),
                };
            }
            Err(error) => return Err(error.into()),
        };
        file.write_all(text.as_bytes())?;
        let flags = AtFlags::SYMLINK_FOLLOW;
        match linkat(CWD, path_of(&file), &self.dir, &c_name(name)?, flags) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the first bytes of a file: one more than `len` if it has as many.
    fn text(&self, name: &str, len: usize) -> Result<Option<Vec<u8>>> {
        let file = match self.open(name, OFlags::RDONLY) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if !file.metadata()?.is_file() {
            return Ok(Some(Vec::new()));
        }
        let mut found = Vec::new();
        let most = len.to_u64().saturating_add(1);
        file.take(most).read_to_end(&mut found)?;
        Ok(Some(found))
    }

    /// Opens a file or directory below this one for reading, and for appending to it.
    pub fn open_to_append(&self, path: &str) -> io::Result<File> {
        self.open(path, OFlags::RDWR | OFlags::APPEND)
    }

    /// Opens a file or directory below this one for reading.
    pub fn open_to_read(&self, path: &str) -> io::Result<File> {
        self.open(path, OFlags::RDONLY)
    }

    /// Opens a file for writing, and creates it if it is missing.
    pub fn open_or_create(&self, path: &str) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from(0o600);
        Ok(openat(&self.dir, &c_name(path)?, flags | OFlags::NONBLOCK, mode)?.into())
    }

    fn open(&self, path: &str, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(open_beneath(&self.dir, &c_name(path)?, flags, Links::Refuse)?.into())
    }

    /// Creates a file below this directory, which nobody else may read. It must not exist.
    pub fn create(&self, path: &str) -> io::Result<File> {
        self.create_with_mode(path, 0o600)
    }

    /// Creates a file below this directory, for reading and appending. It must not exist.
    pub fn create_with_mode(&self, path: &str, mode: u32) -> io::Result<File> {
        let path = c_name(path)?;
        let file = create_beneath(&self.dir, &path, Mode::from(mode))?;
        rustix::fs::fcntl_setfl(&file, OFlags::APPEND)?;
        Ok(file.into())
    }

    /// Opens the directory `name` in this one, if it is one and no link.
    pub fn directory(&self, name: &str) -> io::Result<Self> {
        let dir = openat(&self.dir, &c_name(name)?, DIRECTORY, Mode::empty())?;
        Ok(Self { dir, shown: self.shown.join(name) })
    }

    /// Makes the directory `name` in this one, which nobody else may enter. It must not exist.
    pub fn create_directory(&self, name: &str) -> io::Result<Self> {
        mkdirat(&self.dir, &c_name(name)?, Mode::from(0o700))?;
        let made = self.directory(name)?;
        let found = fstat(&made.dir)?;
        if found.st_uid != geteuid().as_raw() || found.st_mode & 0o077 != 0 {
            return Err(Errno::PERM.into());
        }
        Ok(made)
    }

    /// Opens the directory `path` below this one, and makes those that are missing.
    pub fn make_directories(&self, path: &Path, mode: u32) -> io::Result<Self> {
        let mut at = self.try_clone()?;
        for part in path.components() {
            let Component::Normal(name) = part else {
                return Err(io::Error::other("not a path below the directory"));
            };
            let c_name = CString::new(name.as_bytes())?;
            match mkdirat(&at.dir, &c_name, Mode::from(mode)) {
                Ok(()) => File::from(at.dir.try_clone()?).sync_all()?,
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            let dir = openat(&at.dir, &c_name, DIRECTORY, Mode::empty())?;
            at = Self { dir, shown: at.shown.join(name) };
        }
        Ok(at)
    }

    /// Returns the attributes of what has this name, without following links.
    pub fn metadata(&self, path: &str) -> io::Result<Metadata> {
        File::from(open_beneath(&self.dir, &c_name(path)?, PLACE, Links::Refuse)?).metadata()
    }

    /// Whether `path` is the name of an open file.
    pub fn is_named(&self, path: &str, file: &File) -> io::Result<bool> {
        match self.metadata(path) {
            Ok(named) => Ok(is_same(&named, &file.metadata()?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes a file.
    pub fn remove(&self, path: &str) -> io::Result<()> {
        self.unlink(path, AtFlags::empty())
    }

    /// Removes an empty directory.
    pub fn remove_directory(&self, path: &str) -> io::Result<()> {
        self.unlink(path, AtFlags::REMOVEDIR)
    }

    /// Removes a file if `file` still has this name.
    pub fn remove_if(&self, path: &str, file: &File) -> io::Result<()> {
        if self.is_named(path, file)? { self.remove(path) } else { Ok(()) }
    }

    /// Removes the empty directory `name` in this one if it is still `dir`.
    pub fn remove_directory_if(&self, name: &str, dir: &impl AsFd) -> io::Result<()> {
        let dir = File::from(dir.as_fd().try_clone_to_owned()?);
        if self.is_named(name, &dir)? { self.remove_directory(name) } else { Ok(()) }
    }

    fn unlink(&self, path: &str, flags: AtFlags) -> io::Result<()> {
        let (above, name) = path.rsplit_once('/').unwrap_or((".", path));
        let above = open_beneath(&self.dir, &c_name(above)?, PLACE, Links::Refuse)?;
        Ok(unlinkat(&above, &c_name(name)?, flags)?)
    }

    /// Gives a file in this directory another name in it.
    pub fn rename(&self, from: &str, to: &str, taken: IfTaken) -> io::Result<()> {
        let (from, to) = (c_name(from)?, c_name(to)?);
        if taken == IfTaken::Goes {
            return Ok(renameat(&self.dir, &from, &self.dir, &to)?);
        }
        match renameat_with(&self.dir, &from, &self.dir, &to, RenameFlags::NOREPLACE) {
            // The file system cannot do it at once.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            renamed => return Ok(renamed?),
        }
        match linkat(&self.dir, &from, &self.dir, &to, AtFlags::empty()) {
            Ok(()) => Ok(unlinkat(&self.dir, &from, AtFlags::empty())?),
            Err(Errno::EXIST) => Err(Errno::EXIST.into()),
            // Nor has it links.
            Err(_) if open_beneath(&self.dir, &to, PLACE, Links::Refuse).is_ok() => {
                Err(Errno::EXIST.into())
            }
            Err(_) => Ok(renameat(&self.dir, &from, &self.dir, &to)?),
        }
    }

    /// Returns the names in this directory.
    pub fn names(&self) -> Result<impl Iterator<Item = Result<OsString>> + use<>> {
        let again = open_beneath(&self.dir, c".", DIRECTORY, Links::Refuse)?;
        let name = |name: &CStr| OsStr::from_bytes(name.to_bytes()).to_owned();
        Ok(Dir::new(again)?.map(move |entry| Ok(name(entry?.file_name()))))
    }

    /// Returns a path that leads to `name` in this directory as long as it is open.
    pub fn path_of(&self, name: &str) -> PathBuf {
        Path::new(&path_of(&self.dir)).join(name)
    }

    /// Returns the path under which it was opened, for messages.
    pub fn shown(&self) -> &Path {
        &self.shown
    }

    /// Returns another descriptor of this directory.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { dir: self.dir.try_clone()?, shown: self.shown.clone() })
    }

    /// Returns when names in it would survive a power cut.
    pub fn sync(&self) -> io::Result<()> {
        File::from(open_beneath(&self.dir, c".", DIRECTORY, Links::Refuse)?).sync_all()
    }

    /// Returns how many bytes ordinary users may still write to its disk, and how many it has.
    pub fn disk_space(&self) -> io::Result<(u64, u64)> {
        let found = rustix::fs::fstatvfs(&self.dir)?;
        let bytes = |units: u64| units.saturating_mul(found.f_frsize);
        Ok((bytes(found.f_bavail), bytes(found.f_blocks)))
    }
}

impl AsFd for OwnDirectory {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

/// Whether two files are one.
pub fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Whether a file belongs to this user.
pub fn is_own(found: &Metadata) -> bool {
    found.uid() == geteuid().as_raw()
}

/// Opens the file at `path` to append to it, and creates it if it is missing. A symbolic link in
/// its place is followed only if it belongs to this user or to root, because the user who made it
/// chose the file that is written.
pub fn open_log(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOCTTY;
    match openat(CWD, path, flags | OFlags::NOFOLLOW, Mode::from(0o666)) {
        Err(Errno::LOOP) => {}
        opened => return Ok(opened?.into()),
    }
    let link = fstat(openat(CWD, path, PLACE, Mode::empty())?)?;
    if !Way::new().is_trusted(link.st_uid) {
        return Err(io::Error::other(format!(
            "a symbolic link of user {}, which is not followed; name the file itself",
            link.st_uid
        )));
    }
    Ok(openat(CWD, path, flags, Mode::from(0o666))?.into())
}

fn c_name(name: &str) -> io::Result<CString> {
    Ok(CString::new(name)?)
}

fn refused(detail: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(Kind::NotPermitted, detail)
}

fn owner(found: &Stat) -> Error {
    refused(format!(
        "it belongs to user {}, who could change what is read or removed there; name a directory \
         of your own",
        found.st_uid
    ))
}

fn modes(found: &Stat) -> Error {
    refused(format!(
        "other users may write to it (mode {:o}), so they could change what is read or removed \
         there; name a directory of your own, or take these rights away (chmod go-w)",
        found.st_mode & 0o7777
    ))
}

/// The users who may change the directories on a way.
struct Way {
    user: u32,
    /// The user that stands for all that a user namespace does not know, among them root.
    unmapped: Option<u32>,
    /// The group of this user alone, which may write where the user may.
    own_group: Option<u32>,
}

impl Way {
    fn new() -> Self {
        let user = geteuid().as_raw();
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let maps_all = |line: &str| line.split_whitespace().eq(["0", "0", "4294967295"]);
        let map = read("/proc/self/uid_map");
        let has_all = map.is_empty() || map.lines().any(maps_all);
        let unmapped = read("/proc/sys/kernel/overflowuid").trim().parse().ok();
        let group = rustix::process::getegid().as_raw();
        let is_alone = |line: &str| {
            let mut fields = line.split(':').skip(2);
            fields.next() == Some(&group.to_string()) && fields.next() == Some("")
        };
        let is_own = group == user && read("/etc/group").lines().any(is_alone);
        Self { user, unmapped: unmapped.filter(|_| !has_all), own_group: is_own.then_some(group) }
    }

    fn is_trusted(&self, user: u32) -> bool {
        user == 0 || user == self.user || Some(user) == self.unmapped
    }

    /// Fails if another user can replace what is in a directory.
    fn check(&self, found: &Stat) -> Result<()> {
        if !self.is_trusted(found.st_uid) {
            return Err(owner(found));
        }
        let by_group = found.st_mode & 0o020 != 0 && Some(found.st_gid) != self.own_group;
        let is_open = by_group || found.st_mode & 0o002 != 0;
        if is_open && found.st_mode & 0o1000 == 0 {
            return Err(modes(found));
        }
        Ok(())
    }

    /// Opens an absolute path, name by name.
    fn walk(&self, path: &Path, missing: Missing) -> Result<OwnedFd> {
        let root = || openat(CWD, c"/", DIRECTORY, Mode::empty()).map_err(Error::from);
        // The directories from the root on, each with its path.
        let mut dirs = vec![(root()?, PathBuf::from("/"))];
        let mut names: VecDeque<OsString> = names_of(path);
        let mut links = 0_usize;
        while let Some(name) = names.pop_front() {
            if name == ".." {
                dirs.truncate(dirs.len().saturating_sub(1).max(1));
                continue;
            }
            let Some((above, shown)) = dirs.last() else { break };
            let shown = shown.join(&name);
            let place = Self::place(above, &name, missing).at(shown.display())?;
            let found = fstat(&place).map_err(Error::from).at(shown.display())?;
            if !rustix::fs::FileType::from_raw_mode(found.st_mode).is_symlink() {
                self.check(&found).at(shown.display())?;
                dirs.push((place, shown));
                continue;
            }
            links = links.saturating_add(1);
            if links > MAX_LINKS {
                return Err(Error::from(Errno::LOOP).at(shown.display()));
            }
            if !self.is_trusted(found.st_uid) {
                let detail = format!(
                    "a symbolic link of user {}, which is not followed; name a directory of your \
                     own",
                    found.st_uid
                );
                return Err(refused(detail).at(shown.display()));
            }
            let text = readlinkat(&place, c"", Vec::new()).map_err(Error::from);
            let target = PathBuf::from(OsString::from_vec(text.at(shown.display())?.into_bytes()));
            if target.is_absolute() {
                dirs.truncate(1);
            }
            for name in names_of(&target).into_iter().rev() {
                names.push_front(name);
            }
        }
        let Some((last, shown)) = dirs.last() else { return root() };
        openat(last, c".", DIRECTORY, Mode::empty()).map_err(Error::from).at(shown.display())
    }

    /// Opens a name in a directory.
    fn place(above: &OwnedFd, name: &OsStr, missing: Missing) -> Result<OwnedFd> {
        let name = CString::new(name.as_bytes()).map_err(|error| Error::os(&error.into()))?;
        match openat(above, &name, PLACE, Mode::empty()) {
            Err(Errno::NOENT) if missing == Missing::Made => {}
            opened => return Ok(opened?),
        }
        match mkdirat(above, &name, Mode::from(0o700)) {
            Ok(()) | Err(Errno::EXIST) => Ok(openat(above, &name, PLACE, Mode::empty())?),
            Err(error) => Err(error.into()),
        }
    }
}

fn names_of(path: &Path) -> VecDeque<OsString> {
    let name = |part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(name).collect()
}

#[cfg(test)]
mod tests;
