//! A directory as a store: a key is a path, a value is a regular file.
//!
//! The only file that opens backing files. Everything goes through `openat2` with
//! `RESOLVE_BENEATH` from one descriptor of the root, so that no name and no link,
//! not even one that is swapped in meanwhile, leads out of it. A FIFO, a socket or a
//! device is never opened for reading.
//!
//! `set` writes `NAME.__lock` beside the key, under a lock of the open file, and
//! renames it onto the key. That is `TensorStore`'s protocol too, so that all writers of
//! a key on one machine take turns; a file that a killed writer left is taken over
//! by the next one, and never shown.
//!
//! `set` checks its condition under that lock. Two mounts and `TensorStore` therefore never
//! overwrite each other's changes of one shard.

mod circles;
mod listing;
mod recover;
mod session;
mod trees;
mod version;

use std::ffi::{CString, OsStr};
use std::fs::{File, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{IoSlice, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, fchown};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, fstat, fstatvfs, mkdirat, renameat, statat, unlinkat,
};
use rustix::io::Errno;

use super::{
    Aside, ByteRange, Condition, Entries, Key, Keys, ListableStore, PRIVATE, Piece, Prefix,
    ReadableStore, Room, Stat, Value, Version, WasRead, WritableStore,
};
use crate::buffer::unset;
use crate::error::{At, Error, Kind, Result};
use crate::sys::{self, Dir, Links};
use circles::Root;
use listing::{Listing, Walk};
use session::{Session, Written};
use trees::{empty, move_tree};
use version::Clock;

/// The end of the names under which values are written before they take their key.
pub const LOCK_SUFFIX: &str = ".__lock";

/// How long a writer waits for another one of the same key.
const LOCK_PATIENCE: Duration = Duration::from_secs(30);

/// How often a directory is made again because others remove it, being empty.
const MAKE_ATTEMPTS: usize = 1000;

/// The longest name that the usual file systems take, in bytes.
const NAME_MAX: usize = 255;

/// Whether new bytes are on the medium before they take their key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// They are: a power cut leaves the old value or the new one.
    Synced,
    /// Only after `sync`: a power cut may leave a new value torn, on file systems that allow it.
    Buffered,
}

/// A directory whose files are the values.
#[derive(Debug)]
pub struct DirectoryStore {
    root: Arc<Root>,
    durability: Durability,
    clock: Clock,
    session: Arc<Session>,
}

impl DirectoryStore {
    fn stat_one(&self, key: &Key) -> Result<Option<Stat>> {
        if is_lock(key) {
            return Ok(None);
        }
        let Some(fd) = open_at(&self.root, key.as_str(), OFlags::PATH).at(key)? else {
            return Ok(None);
        };
        let file = File::from(fd);
        let metadata = file.metadata()?;
        match kind_of(&metadata) {
            FileType::RegularFile => Ok(Some(self.clock.stat(&file, &metadata))),
            FileType::Directory => Ok(None),
            _ => Err(not_a_file().at(key)),
        }
    }

    /// Opens the directory at `path`, which must exist.
    pub fn open(path: &Path, durability: Durability) -> Result<Self> {
        let root = File::open(path).map_err(|error| Error::os(&error)).at(path.display())?;
        if !root.metadata()?.is_dir() {
            return Err(Error::new(Kind::NotDirectory, "not a directory").at(path.display()));
        }
        let root = OwnedFd::from(root);
        let session = Arc::new(Session::new(root.try_clone()?));
        let clock = Clock::of(&root)?;
        Ok(Self { root: Arc::new(Root::new(root)), durability, clock, session })
    }

    /// The regular file of `key`, or none, and its version before anything is read.
    fn open_value(&self, key: &Key) -> Result<Option<Opened>> {
        if is_lock(key) {
            return Ok(None);
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = match open_at(&self.root, key.as_str(), flags) {
            Ok(Some(fd)) => fd,
            Ok(None) => return Ok(None),
            Err(error) => return Err(error.at(key)),
        };
        let file = File::from(fd);
        let metadata = file.metadata()?;
        match kind_of(&metadata) {
            FileType::RegularFile => {
                let stat = self.clock.stat(&file, &metadata);
                Ok(Some(Opened { file, metadata, stat }))
            }
            FileType::Directory => Ok(None),
            _ => Err(not_a_file().at(key)),
        }
    }

    fn open_dir(&self, prefix: &Prefix) -> Result<Option<OwnedFd>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        open_at(&self.root, prefix.as_str(), flags).at(prefix)
    }

    /// The directory that `key` lies in, made with its ancestors where it is missing.
    fn make_parent(&self, key: &Key) -> Result<OwnedFd> {
        let parent = key.parent();
        for _ in 0..MAKE_ATTEMPTS {
            if let Some(dir) = self.open_dir(&parent)? {
                return Ok(dir);
            }
            self.make_dirs(&parent).at(key)?;
        }
        Err(Error::new(
            Kind::Busy,
            "gave up after repeated conflicts: other programs keep \
             removing its directory",
        )
        .at(key))
    }

    /// Makes `prefix` and what is above it, as far as others do not remove that meanwhile ([`Self::prune`]
    /// of another writer): the caller looks whether it is there.
    fn make_dirs(&self, prefix: &Prefix) -> Result<()> {
        let mut above = Prefix::root();
        for component in prefix.as_str().split_terminator('/') {
            let Some(dir) = self.open_dir(&above)? else { return Ok(()) };
            match mkdirat(&dir, &c_name(component)?, Mode::from(0o777)) {
                Err(Errno::NOENT) => return Ok(()),
                Err(Errno::EXIST) => {
                    let key = above.key(component)?;
                    if self.stat(&[key])?.iter().any(Option::is_some) {
                        let detail = "a component of its path is not a directory";
                        return Err(Error::new(Kind::NotDirectory, detail));
                    }
                }
                made => made?,
            }
            above = above.join(component)?;
        }
        Ok(())
    }

    /// Writes `pieces` to the locked file, makes them durable where that is wanted, and gives them the key.
    fn replace(
        &self,
        turn: &Turn<'_>,
        key: &Key,
        pieces: &[Piece],
        condition: Condition,
    ) -> Result<Stat> {
        let file = &turn.file;
        let old = match self.open_value(key) {
            // Whatever it is that cannot be opened, it is replaced.
            Err(_) if matches!(condition, Condition::Always) => None,
            old => old?,
        };
        self.check(key, condition, old.as_ref().map(|old| old.stat.version))?;
        file.set_len(0)?;
        write_all(file, pieces, old.as_ref().map(|old| &old.file))?;
        if let Some(old) = &old {
            keep_owner(file, &old.metadata)?;
            // A program that writes values in place takes no turns: what was kept may be half of its bytes.
            if pieces.iter().any(|piece| matches!(piece, Piece::Kept { .. })) {
                let now = self.clock.stat(&old.file, &old.file.metadata()?);
                condition.check(Some(now.version))?;
            }
        }
        let modified = SystemTime::now();
        file.set_modified(modified)?;
        if self.durability == Durability::Synced {
            file.sync_all()?;
        }
        let written = self.clock.stat(file, &file.metadata()?);
        renameat(&turn.dir, &turn.lock_name, &turn.dir, &turn.name)?;
        // The rename itself changes the version. From here on other programs may change the file.
        let mut stat = self.clock.stat(file, &file.metadata()?);
        if (stat.len, stat.modified) != (written.len, written.modified) {
            stat.version.is_settled = false;
            return Ok(stat);
        }
        Ok(self.clock.note_own(stat, modified))
    }

    /// Checks a condition on a value whose key is locked. If bytes were read while the value could change unnoticed,
    /// they are compared with what is stored.
    fn check(&self, key: &Key, condition: Condition, found: Option<Version>) -> Result<()> {
        condition.check(found)?;
        let Condition::Unchanged(version) = condition else { return Ok(()) };
        let stale = || Error::new(Kind::Stale, "the value may have changed since it was read");
        match version.read {
            _ if version.is_settled => Ok(()),
            WasRead::Nothing => Ok(()),
            WasRead::Whole(digest) => {
                let now = self.open_value(key)?.ok_or_else(stale)?;
                let now = read_range(&now, ByteRange::first(now.stat.len))?;
                if digest_of(&now.bytes) == digest { Ok(()) } else { Err(stale()) }
            }
            WasRead::Part => {
                // Whoever asked reads it again, and finds it settled.
                self.clock.wait();
                Err(stale())
            }
        }
    }

    /// Removes directories above `key` that hold nothing any more; the root stays.
    fn prune(&self, key: &Key) -> Result<()> {
        let mut parent = key.parent();
        while let Some(dir) = parent.as_key() {
            let Some(above) = self.open_dir(&dir.parent())? else { break };
            if unlinkat(&above, &c_name(dir.name())?, AtFlags::REMOVEDIR).is_err() {
                break;
            }
            parent = dir.parent();
        }
        Ok(())
    }
}

impl ReadableStore for DirectoryStore {
    fn get_partial_values(&self, ranges: &[(Key, ByteRange)]) -> Result<Vec<Option<Value>>> {
        let mut values = Vec::with_capacity(ranges.len());
        let mut open: Option<(&Key, Option<Opened>)> = None;
        for (key, range) in ranges {
            let reusable = open.take().filter(|(opened, _)| *opened == key);
            let current = match reusable {
                Some((_, file)) => file,
                None => self.open_value(key)?,
            };
            values.push(match &current {
                Some(value) => Some(read_range(value, *range).at(key)?),
                None => None,
            });
            open = Some((key, current));
        }
        Ok(values)
    }

    fn stat(&self, keys: &[Key]) -> Result<Vec<Option<Stat>>> {
        // Of many in one directory that is opened once: what is a file there is one, and needs no look at its path.
        let mut beside: Option<(Prefix, Option<OwnedFd>)> = None;
        let stat = |key: &Key| {
            let parent = key.parent();
            if keys.len() > 1 && beside.as_ref().is_none_or(|(known, _)| *known != parent) {
                let dir = open_at(&self.root, parent.as_str(), OFlags::PATH | OFlags::DIRECTORY);
                beside = Some((parent, dir.at(key)?));
            }
            let dir = beside.as_ref().and_then(|(_, dir)| dir.as_ref());
            let Some(dir) = dir.filter(|_| !is_lock(key)) else { return self.stat_one(key) };
            let name = c_name(key.name()).at(key)?;
            match statat(dir, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(found) if FileType::from_raw_mode(found.st_mode).is_file() => {
                    Ok(Some(self.clock.stat_at(dir, &name, &found)))
                }
                _ => self.stat_one(key),
            }
        };
        keys.iter().map(stat).collect()
    }

    fn open(&self, key: &Key) -> Result<Option<(OwnedFd, Stat)>> {
        let found = self.open_value(key)?;
        Ok(found.map(|value| (value.file.into(), value.stat)))
    }

    fn room(&self) -> Result<Option<Room>> {
        let figures = fstatvfs(&self.root)?;
        Ok(Some(Room {
            unit_len: u32::try_from(figures.f_frsize).unwrap_or(4096),
            total: figures.f_blocks,
            free: figures.f_bfree,
            available: figures.f_bavail,
            values: figures.f_files,
            values_free: figures.f_ffree,
            name_max: u32::try_from(figures.f_namemax).unwrap_or(255),
        }))
    }
}

impl WritableStore for DirectoryStore {
    fn set(&self, key: &Key, pieces: &[Piece], condition: Condition) -> Result<Stat> {
        if is_lock(key) {
            let detail = "this name is reserved for lock files";
            return Err(Error::new(Kind::NotPermitted, detail).at(key));
        }
        let turn = Turn::take(self, key).at(key)?;
        let stored = self.replace(&turn, key, pieces, condition);
        if stored.is_err() {
            turn.end_unused();
            // Why nothing was stored matters more than a directory that stays.
            let pruned = self.prune(key);
            pruned.unwrap_or_else(|error| log::debug!("{error}"));
        }
        stored.at(key)
    }

    fn set_partial_values(&self, parts: &[(Key, u64, Bytes)]) -> Result<()> {
        for (key, start, bytes) in parts {
            let stat = self.stat(std::slice::from_ref(key))?.pop().flatten();
            let stat = stat.ok_or_else(|| Error::not_found().at(key))?;
            // The rest is copied by the kernel: a long value need not fit into memory.
            let pieces = Piece::overlay(stat.len, &[(*start, bytes.clone())]).at(key)?;
            self.set(key, &pieces, Condition::Unchanged(stat.version))?;
        }
        Ok(())
    }

    fn erase_values(&self, keys: &[Key]) -> Result<()> {
        for key in keys.iter().filter(|key| !is_lock(key)) {
            let Some(dir) = self.open_dir(&key.parent())? else { continue };
            let name = c_name(key.name())?;
            let flags = OFlags::PATH | OFlags::NOFOLLOW;
            match sys::open_beneath(&dir, &name, flags, Links::Beneath).map(File::from) {
                // A directory is a prefix: the key itself has no value.
                Ok(found) if kind_of(&found.metadata()?) == FileType::Directory => continue,
                Err(Errno::NOENT) => continue,
                _ => {}
            }
            // A writer that has checked its condition must not find out that the value went after that.
            let turn = Turn::take(self, key).at(key)?;
            let erased = match unlinkat(&turn.dir, &turn.name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                Err(error) => Err(Error::from(error)),
            };
            turn.end_unused();
            self.prune(key)?;
            erased.at(key)?;
        }
        Ok(())
    }

    fn erase_unchanged(&self, key: &Key, version: Version) -> Result<()> {
        let turn = Turn::take(self, key).at(key)?;
        let found = self.stat(std::slice::from_ref(key))?.pop().flatten();
        let found = found.map(|stat| stat.version);
        let checked = self.check(key, Condition::Unchanged(version), found);
        let erased = checked.and_then(|()| Ok(unlinkat(&turn.dir, &turn.name, AtFlags::empty())?));
        turn.end_unused();
        self.prune(key)?;
        erased.at(key)
    }

    fn erase_prefix(&self, prefix: &Prefix) -> Result<()> {
        let Some(dir) = self.open_dir(prefix)? else { return Ok(()) };
        empty(dir).at(prefix)?;
        match prefix.as_key() {
            Some(key) => {
                let Some(above) = self.open_dir(&key.parent())? else { return Ok(()) };
                unlinkat(&above, &c_name(key.name())?, AtFlags::REMOVEDIR)
                    .map_err(|e| Error::from(e).at(&key))?;
                self.prune(&key)
            }
            None => Ok(()),
        }
    }

    fn move_prefix(&self, from: &Prefix, to: &Prefix) -> Result<()> {
        let Some(source) = from.as_key() else {
            return Err(Error::new(Kind::Internal, "the root of a store cannot be moved"));
        };
        let Some(target) = to.as_key() else {
            let Some(dir) = self.open_dir(from)? else { return Ok(()) };
            for entry in Dir::new(dir.try_clone()?)?.collect::<rustix::io::Result<Vec<_>>>()? {
                move_tree(&dir, entry.file_name(), &self.root, entry.file_name()).at(&source)?;
            }
            return self.erase_prefix(from);
        };
        let Some(above) = self.open_dir(&source.parent())? else { return Ok(()) };
        let (name, new_name) = (c_name(source.name())?, c_name(target.name())?);
        let new_above = self.make_parent(&target)?;
        let moved = match move_tree(&above, &name, &new_above, &new_name) {
            Err(error) if error.kind() == Kind::NotFound => Ok(()),
            moved => moved,
        };
        self.prune(&target)?;
        self.prune(&source)?;
        moved.at(&source)
    }

    fn move_value(&self, from: &Key, to: &Key) -> Result<()> {
        if is_lock(from) || self.stat(std::slice::from_ref(from))?.iter().all(Option::is_none) {
            return Ok(());
        }
        let new_dir = self.make_parent(to)?;
        let turn = Turn::take(self, from).at(from)?;
        let moved = match renameat(&turn.dir, &turn.name, &new_dir, &c_name(to.name())?) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(Error::from(error)),
        };
        turn.end_unused();
        self.prune(from)?;
        self.prune(to)?;
        moved.at(from)
    }

    fn set_modified(&self, key: &Key, modified: SystemTime) -> Result<(Version, Version)> {
        let value = self.open_value(key)?.ok_or_else(|| Error::not_found().at(key))?;
        value.file.set_modified(modified)?;
        let now = self.clock.stat(&value.file, &value.file.metadata()?);
        Ok((value.stat.version, now.version))
    }

    fn sync(&self, keys: &[Key]) -> Result<()> {
        let mut dirs = std::collections::BTreeSet::from([Prefix::root()]);
        for key in keys {
            if let Some(value) = unless_replaced(self.open_value(key))? {
                value.file.sync_all().map_err(|error| Error::os(&error)).at(key)?;
            }
            let mut above = key.parent();
            while let Some(dir) = above.as_key() {
                dirs.insert(above);
                above = dir.parent();
            }
        }
        for prefix in dirs.iter().rev() {
            if let Some(dir) = unless_replaced(self.open_dir(prefix))? {
                File::from(dir).sync_all().map_err(|error| Error::os(&error)).at(prefix)?;
            }
        }
        Ok(())
    }

    fn aside(&self) -> Result<Aside> {
        self.session.aside().at(PRIVATE)
    }

    fn declare(&self, aside: &Aside, text: Bytes) -> Result<()> {
        let key = aside.declaration()?;
        self.set(&key, &[text.into()], Condition::Always)?;
        match self.durability {
            Durability::Synced => self.sync(&[key]),
            Durability::Buffered => Ok(()),
        }
    }

    fn abandoned(&self) -> Result<Vec<Aside>> {
        self.recover()
    }

    fn rest(&self, quiet: Duration) -> Result<()> {
        self.session.rest(quiet).at(PRIVATE)
    }
}

impl ListableStore for DirectoryStore {
    fn list_dir(&self, prefix: &Prefix) -> Result<Entries> {
        Ok(match Listing::open(&self.root, prefix)? {
            Some(listing) => Box::new(listing.shown()),
            None => Box::new(std::iter::empty()),
        })
    }

    fn list_prefix(&self, prefix: &Prefix) -> Result<Keys> {
        Ok(Box::new(Walk::below(Listing::open(&self.root, prefix)?)))
    }
}

/// A value that is open.
#[derive(Debug)]
struct Opened {
    file: File,
    metadata: Metadata,
    /// Its version when it was opened: whatever changes it later gives it another one.
    stat: Stat,
}

/// The right to write one key: its lock file, locked, in the directory of the key.
struct Turn<'s> {
    dir: OwnedFd,
    file: File,
    name: CString,
    lock_name: CString,
    _written: Written<'s>,
}

impl<'s> Turn<'s> {
    /// Removes the lock file of a turn that stored nothing. The lock is still ours, so nobody else is
    /// writing to it.
    fn end_unused(self) {
        let removed = unlinkat(&self.dir, &self.lock_name, AtFlags::empty());
        removed.unwrap_or_else(|error| log::debug!("{:?}: {error}", self.lock_name));
    }

    fn take(store: &'s DirectoryStore, key: &Key) -> Result<Self> {
        let name = c_name(key.name())?;
        let lock_name = c_name(&lock_name(key.name()))?;
        let started = Instant::now();
        let written = store.session.write(key);
        loop {
            let dir = store.make_parent(key)?;
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NONBLOCK;
            let file = match sys::open_beneath(&dir, &lock_name, flags, Links::Refuse) {
                Ok(fd) => File::from(fd),
                // The directory was pruned between the two calls.
                Err(Errno::NOENT) => {
                    check_root(&store.root)?;
                    continue;
                }
                Err(Errno::ISDIR) => {
                    let name = lock_name.to_string_lossy();
                    let detail = format!("a directory has the name of its lock file, {name}");
                    return Err(Error::new(Kind::Os(libc::EISDIR), detail));
                }
                Err(error) => return Err(error.into()),
            };
            let locked = sys::try_lock(&file).inspect_err(|_| {
                drop(recover::remove_dead(&dir, &lock_name)); // Why it cannot be locked matters more.
            })?;
            if locked {
                // The file that was locked may have become the key meanwhile: the writer before us renamed it.
                let named = sys::open_beneath(&dir, &lock_name, OFlags::PATH, Links::Refuse);
                let named = named.ok().map(|fd| File::from(fd).metadata()).transpose()?;
                let ours = file.metadata()?;
                if named.is_some_and(|named| (named.dev(), named.ino()) == (ours.dev(), ours.ino()))
                {
                    if ours.nlink() == 1 {
                        return Ok(Self { dir, file, name, lock_name, _written: written });
                    }
                    // A second name of some other value, which is not to be written over.
                    unlinkat(&dir, &lock_name, AtFlags::empty())?;
                }
            } else if started.elapsed() > LOCK_PATIENCE {
                return Err(Error::new(
                    Kind::Busy,
                    "another program has held its lock file for 30 seconds",
                ));
            } else {
                std::thread::park_timeout(Duration::from_micros(200));
            }
        }
    }
}

/// Opens `path` below the root; none where it or a directory on the way is not there.
fn open_at(root: &Root, path: &str, flags: OFlags) -> Result<Option<OwnedFd>> {
    Ok(open_by(root, path, flags)?.map(|(fd, _)| fd))
}

/// The same, and whether there is a symbolic link on the path.
fn open_by(root: &Root, path: &str, flags: OFlags) -> Result<Option<(OwnedFd, bool)>> {
    let path = if path.is_empty() { "." } else { path.trim_end_matches('/') };
    let name = c_name(path)?;
    let mut opened = sys::open_beneath(root, &name, flags, Links::Refuse);
    let has_link = matches!(opened, Err(Errno::LOOP));
    if has_link {
        root.check(path)?;
        opened = sys::open_beneath(root, &name, flags, Links::Beneath);
    }
    match opened {
        Ok(fd) => Ok(Some((fd, has_link))),
        Err(Errno::NOENT | Errno::NOTDIR) => check_root(root).map(|()| None),
        Err(Errno::XDEV) => Err(Error::corrupt("a symbolic link that leads out of the store")),
        Err(Errno::LOOP) => Err(circles::error()),
        // A socket, or a device without a driver.
        Err(Errno::NXIO) => Err(not_a_file()),
        Err(error) => Err(error.into()),
    }
}

/// Refuses to take a store whose own directory was removed for one that holds nothing.
fn check_root(root: &OwnedFd) -> Result<()> {
    if fstat(root)?.st_nlink == 0 {
        let detail = "the directory of the store was removed: unmount, and mount again";
        return Err(Error::new(Kind::Os(libc::ESTALE), detail));
    }
    Ok(())
}

fn read_range(value: &Opened, range: ByteRange) -> Result<Value> {
    let (offset, len) = range.within(value.stat.len);
    let capacity = usize::try_from(len)
        .map_err(|_| Error::too_large(format!("{len} bytes do not fit into memory")))?;
    let mut bytes = unset(capacity)?;
    let (mut rest, mut at) = (bytes.as_mut_slice(), offset);
    while !rest.is_empty() {
        match value.file.read_at(rest, at) {
            Ok(0) => break, // It has become shorter.
            Ok(read) => {
                rest = rest.get_mut(read..).unwrap_or_default();
                at = at.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    let read = capacity.saturating_sub(rest.len());
    bytes.truncate(read);
    let mut stat = value.stat;
    if !stat.version.is_settled {
        let is_whole = offset == 0 && len == stat.len;
        stat.version.read =
            if is_whole { WasRead::Whole(digest_of(&bytes)) } else { WasRead::Part };
    }
    Ok(Value { bytes: bytes.into(), stat })
}

/// The opened value or directory, `None` if another program has replaced it by a FIFO or by a link
/// that leads out of the store.
fn unless_replaced<T>(found: Result<Option<T>>) -> Result<Option<T>> {
    match found {
        Err(error) if error.kind() == Kind::Corrupt => Ok(None),
        found => found,
    }
}

fn digest_of(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

fn write_all(file: &File, pieces: &[Piece], old: Option<&File>) -> Result<()> {
    let mut new: Vec<IoSlice<'_>> = Vec::new();
    for piece in pieces {
        match piece {
            Piece::New(bytes) => new.push(IoSlice::new(bytes)),
            Piece::Kept { offset, len } => {
                write_slices(file, &mut std::mem::take(&mut new))?;
                copy_range(old, *offset, *len, file)?;
            }
        }
    }
    write_slices(file, &mut new)
}

fn write_slices(mut file: &File, slices: &mut [IoSlice<'_>]) -> Result<()> {
    let mut rest = slices;
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match file.write_vectored(rest) {
            Ok(0) => return Err(Error::new(Kind::Os(libc::EIO), "the disk accepts no more bytes")),
            Ok(written) => IoSlice::advance_slices(&mut rest, written),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Copies a range of `old` to where `file` is; the kernel does it (`copy_file_range`), without our memory.
fn copy_range(old: Option<&File>, offset: u64, len: u64, mut file: &File) -> Result<()> {
    let stale = || Error::new(Kind::Stale, "the file to copy from became shorter");
    let mut old = old.ok_or_else(stale)?;
    old.seek(SeekFrom::Start(offset))?;
    let copied = std::io::copy(&mut old.take(len), &mut file)?;
    if copied == len { Ok(()) } else { Err(stale()) }
}

/// Gives a new file the mode and owner of the one that it replaces, as far as this user may.
fn keep_owner(file: &File, old: &Metadata) -> Result<()> {
    let new = file.metadata()?;
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
        match fchown(file, Some(old.uid()), Some(old.gid())) {
            Err(error) if error.raw_os_error() != Some(libc::EPERM) => return Err(error.into()),
            _ => {}
        }
    }
    if new.mode() & 0o777 != old.mode() & 0o777 {
        file.set_permissions(std::fs::Permissions::from_mode(old.mode() & 0o777))?;
    }
    Ok(())
}

/// Whether the name is that of a lock file, ours or TensorStore's, or of a session. Whoever holds it is writing the
/// value beside it, or some value: it is not listed, has no value, and goes by its holder's hand only.
fn is_lock(key: &Key) -> bool {
    key.name().ends_with(LOCK_SUFFIX) || is_session(&key.parent(), key.name())
}

/// Whether `name` in `dir` is that of a session file.
fn is_session(dir: &Prefix, name: &str) -> bool {
    let is_private = dir.as_str().strip_suffix('/') == Some(PRIVATE);
    is_private && name.starts_with(session::WRITING) && session::session_of(name).is_some()
}

fn lock_name(name: &str) -> String {
    if name.len() + LOCK_SUFFIX.len() <= NAME_MAX {
        return format!("{name}{LOCK_SUFFIX}");
    }
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    format!(".zarrfs-{:016x}{LOCK_SUFFIX}", hasher.finish())
}

fn c_name(name: &str) -> Result<CString> {
    if name.split('/').any(|component| component.len() > NAME_MAX) {
        return Err(Error::new(Kind::Os(libc::ENAMETOOLONG), "the name is longer than 255 bytes"));
    }
    CString::new(OsStr::new(name).as_bytes())
        .map_err(|_| Error::invalid("the name contains a NUL byte"))
}

fn not_a_file() -> Error {
    Error::corrupt("not a regular file (a FIFO, a socket or a device)")
}

fn kind_of(metadata: &Metadata) -> FileType {
    FileType::from_raw_mode(metadata.mode())
}

impl AsFd for DirectoryStore {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.root.as_fd()
    }
}

#[cfg(test)]
mod tests;
