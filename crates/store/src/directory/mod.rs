//! A directory as a store: a key is a path, a value is a regular file.
//!
//! Only this module opens backing files. It always uses `openat2` with `RESOLVE_BENEATH` and one
//! descriptor of the root, so no name and no link leads out of the root, even if another program
//! creates a link at that moment. It never opens a FIFO, a socket or a device for reading.
//!
//! `set` writes `NAME.__lock` beside the key, while it locks the open file, and renames it onto the
//! key. This is `TensorStore`'s protocol, so all writers of a key on one machine exclude each
//! other. If a writer was killed, the next one takes over its file; listings never show such files.
//!
//! `set` checks its condition under that lock. Two mounts and `TensorStore` therefore never
//! overwrite each other's changes of one shard.
//!
//! The bytes of a value are synced before they take their key, even if no program asks for it
//! (`--durability=fsync` leaves that out). Otherwise a power cut would leave empty files on file
//! systems that delay allocation.

mod circles;
mod files;
mod key_lock;
mod leftovers;
mod listing;
mod names;
mod opening;
mod parents;
mod recover;
mod session;
mod trees;
mod trust;
mod turn;
mod value;
mod version;

use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use rustix::fs::{AtFlags, FileType, OFlags, fstatvfs, renameat, statat, syncfs, unlinkat};
use rustix::io::Errno;

use super::{
    Aside, ByteRange, Capacity, Condition, Entries, Key, Keys, ListableStore, ListedEntry, NewFile,
    Omissions, PRIVATE, Prefix, ReadableStore, Stat, Value, ValuePiece, Version, WasRead,
    WritableStore, WriterFile,
};
use circles::Root;
use key_lock::{KeyLock, LockPlace};
use listing::{DirectoryListing, Follow, KeyWalk};
pub use names::{LOCK_SUFFIX, is_lock_of_key, may_be_of_key};
use names::{c_name, is_lock};
use opening::{kind_of, open_at, open_dir, open_file};
pub use parents::is_of_chunks;
use parents::{Prunes, make_parent, prune};
use recover::recover;
use session::Session;
use trees::{empty, move_tree, remove_empty};
use turn::{KeyTurn, Turns};
use value::{OpenValue, digest_of, keep_owner, read_range, write_all};
use version::Clock;
use zarrfs_base::error::{Error, Kind, Result, WithSubject};
use zarrfs_base::sys::{self, Dir, Links};

/// When new bytes are forced to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Before they take their key: after a power cut the value is either the old one or the new
    /// one.
    Synced,
    /// Only by `sync`: a power cut may leave a torn value on some file systems.
    Buffered,
}

/// A directory of values.
#[derive(Debug, Clone)]
pub struct DirectoryStore {
    root: Arc<Root>,
    /// The directory that no write recreates ([`WritableStore::in_directory`]).
    home: Option<Prefix>,
    durability: Durability,
    clock: Arc<Clock>,
    session: Arc<Session>,
    turns: Arc<Turns>,
    prunes: Prunes,
}

impl DirectoryStore {
    /// Opens the directory at `path`, which must exist.
    pub fn open(path: &Path, durability: Durability) -> Result<Self> {
        let root = File::open(path).map_err(|error| Error::os(&error)).at(path.display())?;
        if !root.metadata()?.is_dir() {
            return Err(Error::new(Kind::NotDirectory, "not a directory").at(path.display()));
        }
        let root = OwnedFd::from(root);
        let session = Arc::new(Session::new(root.try_clone()?));
        let clock = Arc::new(Clock::of(&root)?);
        let prunes = Prunes::All;
        let (root, turns) = (Arc::new(Root::new(root)), Arc::default());
        Ok(Self { root, home: None, durability, clock, session, turns, prunes })
    }

    /// Keeps the directories that are not of chunks when they become empty, as
    /// [`FileStore`](super::FileStore) promises.
    #[must_use]
    pub fn keeping_directories(self) -> Self {
        Self { prunes: Prunes::Chunks, ..self }
    }

    /// Syncs a file or directory, or the whole disk if this process may not read the file.
    fn sync_opened(&self, opened: Result<Option<File>>) -> Result<()> {
        match unless_replaced(opened) {
            Ok(opened) => Ok(opened.map_or(Ok(()), |file| file.sync_all())?),
            Err(error) if error.errno() == libc::EACCES => Ok(syncfs(&*self.root)?),
            Err(error) => Err(error),
        }
    }

    fn stat_one(&self, key: &Key) -> Result<Option<Stat>> {
        let found = open_file(&self.root, key, OFlags::PATH)?;
        Ok(found.map(|(file, metadata)| self.clock.stat(&file, &metadata)))
    }

    /// Opens the regular file of `key` if there is one, and takes its version before anything is
    /// read.
    fn open_value(&self, key: &Key) -> Result<Option<OpenValue>> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let found = open_file(&self.root, key, flags)?;
        Ok(found.map(|(file, metadata)| {
            let stat = self.clock.stat(&file, &metadata);
            OpenValue { file, metadata, stat }
        }))
    }

    /// Removes the empty directories above `key` ([`prune`]).
    fn prune(&self, key: &Key) -> Result<()> {
        prune(&self.root, key, self.prunes, self.home.as_ref())
    }

    fn lock_place(&self) -> LockPlace<'_> {
        LockPlace { root: &self.root, home: self.home.as_ref(), session: &self.session }
    }

    /// Returns the same store, which does not recreate the directory `home`.
    fn in_home(&self, home: &Prefix) -> Self {
        Self { home: Some(home.clone()), ..self.clone() }
    }

    /// Fails if another program has moved or removed the home, in which nothing was at `path`.
    fn check_home(&self, path: &str) -> Result<()> {
        parents::check_home(&self.root, self.home.as_ref(), path).map(drop)
    }

    /// Waits for the lock to erase `key`; `None` if its directory has gone.
    fn lock_to_erase(&self, key: &Key) -> Result<Option<KeyLock>> {
        let parent = key.parent();
        let at = LockPlace { home: Some(&parent), ..self.lock_place() };
        match self.lock_key_in(at, key) {
            Err(error) if error.errno() == libc::ESTALE => {
                self.check_home(key.as_str()).map(|()| None)
            }
            locked => locked.map(Some),
        }
    }

    /// Waits for the lock to write `key`.
    fn lock_key(&self, key: &Key) -> Result<KeyLock> {
        self.lock_key_in(self.lock_place(), key)
    }

    fn lock_key_in(&self, at: LockPlace<'_>, key: &Key) -> Result<KeyLock> {
        match self.turns.lock_of(key) {
            Some(lock) => Ok(lock),
            None => KeyLock::take(at, key).at(key),
        }
    }

    /// Waits for the lock to store a value. If the value must be unchanged, its directory is there,
    /// unless another program has moved it: then it is not recreated.
    fn lock_to_set(&self, key: &Key, condition: Condition) -> Result<KeyLock> {
        let Condition::Unchanged(_) = condition else { return self.lock_key(key) };
        let parent = key.parent();
        let at = LockPlace { home: Some(&parent), ..self.lock_place() };
        self.lock_key_in(at, key).map_err(|error| match error.errno() {
            libc::ESTALE => error.of_kind(Kind::Stale),
            _ => error,
        })
    }

    /// Ends the lock of a change that has failed, unless the thread tries again in its turn.
    fn end_failed(&self, lock: KeyLock, key: &Key, failed: &Error) {
        if let Some(lock) = self.turns.keep(key, lock, failed) {
            lock.end_unused();
            // The first error matters more than an empty directory that stays.
            let pruned = self.prune(key);
            pruned.unwrap_or_else(|error| log::debug!("{error}"));
        }
    }

    /// Writes `pieces` to the locked file, syncs it if required, and renames it onto the key.
    fn replace(
        &self,
        lock: &KeyLock,
        key: &Key,
        pieces: &[ValuePiece],
        condition: Condition,
    ) -> Result<Stat> {
        let file = &lock.file;
        let old = self.value_to_replace(key, condition)?;
        // A killed writer may have left bytes. Truncating an empty file would make ext4 write the
        // new bytes to disk as soon as it is closed.
        if file.metadata()?.len() > 0 {
            file.set_len(0)?;
        }
        write_all(file, pieces, old.as_ref().map(|old| &old.file))?;
        if let Some(old) = &old {
            keep_owner(file, &old.metadata)?;
            // A program that writes values in place ignores the lock, so a kept range may be half
            // written.
            if pieces.iter().any(|piece| matches!(piece, ValuePiece::Kept { .. })) {
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
        renameat(&lock.dir, &lock.lock_name, &lock.dir, &lock.name)?;
        // The rename itself changes the version. After it, other programs may change the file.
        let mut stat = self.clock.stat(file, &file.metadata()?);
        if (stat.len, stat.modified) != (written.len, written.modified) {
            stat.version.is_settled = false;
            return Ok(stat);
        }
        Ok(self.clock.note_own(stat, modified))
    }

    /// Returns the value of a locked key, which is to be replaced on this condition.
    fn value_to_replace(&self, key: &Key, condition: Condition) -> Result<Option<OpenValue>> {
        let old = match self.open_value(key) {
            // Replace the value even if it cannot be opened.
            Err(_) if matches!(condition, Condition::Always) => None,
            old => old?,
        };
        self.check(key, condition, old.as_ref().map(|old| old.stat.version))?;
        Ok(old)
    }

    /// Renames the locked file, which has the new value, onto the key. Programs may have it open
    /// and write again, so only its change time tells versions apart.
    fn take_over(&self, lock: &KeyLock, key: &Key, condition: Condition) -> Result<Stat> {
        let old = self.value_to_replace(key, condition)?;
        if let Some(old) = &old {
            keep_owner(&lock.file, &old.metadata)?;
        }
        if self.durability == Durability::Synced {
            lock.file.sync_all()?;
        }
        renameat(&lock.dir, &lock.lock_name, &lock.dir, &lock.name)?;
        Ok(self.clock.stat(&lock.file, &lock.file.metadata()?))
    }

    /// Checks a condition on a value whose key is locked. If bytes were read while the value could
    /// change unnoticed, they are compared with what is stored.
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
                // After the wait, the caller reads a settled version.
                self.clock.wait();
                Err(stale())
            }
        }
    }
}

impl ReadableStore for DirectoryStore {
    fn get_partial_values(&self, ranges: &[(Key, ByteRange)]) -> Result<Vec<Option<Value>>> {
        let mut values = Vec::with_capacity(ranges.len());
        let mut open: Option<(&Key, Option<OpenValue>)> = None;
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
        // Open a directory once for many keys in it; names of regular files need no path check.
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

    fn room(&self) -> Result<Option<Capacity>> {
        let figures = fstatvfs(&self.root)?;
        Ok(Some(Capacity {
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
    fn in_directory(&self, home: &Prefix) -> Option<Arc<dyn WritableStore>> {
        Some(Arc::new(self.in_home(home)))
    }

    fn set(&self, key: &Key, pieces: &[ValuePiece], condition: Condition) -> Result<Stat> {
        if is_lock(key) {
            return Err(reserved().at(key));
        }
        let lock = self.lock_to_set(key, condition)?;
        let stored = self.replace(&lock, key, pieces, condition);
        if let Err(error) = &stored {
            self.end_failed(lock, key, error);
        }
        stored.at(key)
    }

    fn take_turn(&self, key: &Key) -> Result<Option<Box<dyn fmt::Debug + Send>>> {
        if self.turns.has(key) {
            return Ok(None);
        }
        let lock = KeyLock::take(self.lock_place(), key).at(key)?;
        Ok(Some(Box::new(KeyTurn::begin(self, key, lock))))
    }

    fn new_file(&self, prefix: &Prefix) -> Result<Option<NewFile>> {
        let Some(dir) = open_dir(&self.root, prefix)? else { return Ok(None) };
        match sys::open_beneath(&dir, c".", OFlags::RDWR | OFlags::TMPFILE, Links::Refuse) {
            Ok(file) => Ok(Some(NewFile::new(&file)?)),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => Ok(None),
            Err(error) => Err(Error::from(error).at(prefix)),
        }
    }

    fn set_file(&self, key: &Key, file: &NewFile, condition: Condition) -> Result<Option<Stat>> {
        if is_lock(key) {
            return Err(reserved().at(key));
        }
        let Some(lock) = KeyLock::with(self.lock_place(), key, file).at(key)? else {
            return Ok(None);
        };
        let stored = self.take_over(&lock, key, condition);
        if stored.is_err() {
            lock.end_unused();
            let pruned = self.prune(key);
            pruned.unwrap_or_else(|error| log::debug!("{error}"));
        }
        stored.at(key).map(Some)
    }

    fn set_partial_values(&self, parts: &[(Key, u64, Bytes)]) -> Result<()> {
        for (key, start, bytes) in parts {
            let stat = self.stat(std::slice::from_ref(key))?.pop().flatten();
            let stat = stat.ok_or_else(|| Error::not_found().at(key))?;
            // The kernel copies the rest, because a long value need not fit into memory.
            let pieces = ValuePiece::overlay(stat.len, &[(*start, bytes.clone())]).at(key)?;
            self.set(key, &pieces, Condition::Unchanged(stat.version))?;
        }
        Ok(())
    }

    fn erase_values(&self, keys: &[Key]) -> Result<()> {
        for key in keys.iter().filter(|key| !is_lock(key)) {
            let Some(dir) = open_dir(&self.root, &key.parent())? else {
                self.check_home(key.as_str())?;
                continue;
            };
            let name = c_name(key.name())?;
            let flags = OFlags::PATH | OFlags::NOFOLLOW;
            match sys::open_beneath(&dir, &name, flags, Links::Beneath).map(File::from) {
                // A directory is a prefix, so the key itself has no value.
                Ok(found) if kind_of(&found.metadata()?) == FileType::Directory => continue,
                Err(Errno::NOENT) => continue,
                _ => {}
            }
            // The lock keeps writers from checking their condition before the erasure and storing
            // after it.
            let Some(lock) = self.lock_to_erase(key)? else { continue };
            let erased = match unlinkat(&lock.dir, &lock.name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                Err(error) => Err(Error::from(error)),
            };
            lock.end_unused();
            self.prune(key)?;
            erased.at(key)?;
        }
        Ok(())
    }

    fn erase_unchanged(&self, key: &Key, version: Version) -> Result<()> {
        let Some(lock) = self.lock_to_erase(key)? else {
            return Err(Error::new(Kind::Stale, "another program has removed it").at(key));
        };
        let found = self.stat(std::slice::from_ref(key))?.pop().flatten();
        let found = found.map(|stat| stat.version);
        let checked = self.check(key, Condition::Unchanged(version), found);
        let erased = checked.and_then(|()| Ok(unlinkat(&lock.dir, &lock.name, AtFlags::empty())?));
        if let Err(error) = &erased {
            self.end_failed(lock, key, error);
        } else {
            lock.end_unused();
            self.prune(key)?;
        }
        erased.at(key)
    }

    fn erase_prefix(&self, prefix: &Prefix) -> Result<()> {
        let Some(dir) = open_dir(&self.root, prefix)? else { return Ok(()) };
        empty(dir).at(prefix)?;
        match prefix.as_key() {
            Some(key) => {
                let Some(above) = open_dir(&self.root, &key.parent())? else { return Ok(()) };
                unlinkat(&above, &c_name(key.name())?, AtFlags::REMOVEDIR)
                    .map_err(|e| Error::from(e).at(&key))?;
                self.prune(&key)
            }
            None => Ok(()),
        }
    }

    fn erase_empty(&self, prefix: &Prefix) -> Result<()> {
        let Some(key) = prefix.as_key() else { return Ok(()) };
        let above = open_dir(&self.root, &key.parent())?;
        let (Some(above), Some(dir)) = (above, open_dir(&self.root, prefix)?) else {
            return self.check_home(prefix.as_str());
        };
        match remove_empty(&dir, &above, &c_name(key.name())?) {
            Err(error) if error.kind() == Kind::NotFound && self.home.is_none() => {}
            removed => removed.at(prefix)?,
        }
        self.prune(&key)
    }

    fn move_to_free(&self, from: &Prefix, to: &Prefix) -> Result<()> {
        let (Some(source), Some(target)) = (from.as_key(), to.as_key()) else {
            return Err(Error::new(Kind::Internal, "the root of a store cannot be moved"));
        };
        let Some(above) = open_dir(&self.root, &source.parent())? else {
            return Err(Error::not_found().at(&source));
        };
        let new_above = make_parent(&self.root, self.home.as_ref(), &target)?;
        let (name, new_name) = (c_name(source.name())?, c_name(target.name())?);
        let moved = match renameat(&above, &name, &new_above, &new_name) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST | Errno::NOTDIR) => Err(Errno::NOTEMPTY.into()),
            Err(error) => Err(Error::from(error)),
        };
        self.prune(&target)?;
        self.prune(&source)?;
        moved.at(&source)
    }

    fn move_prefix(&self, from: &Prefix, to: &Prefix) -> Result<()> {
        let Some(source) = from.as_key() else {
            return Err(Error::new(Kind::Internal, "the root of a store cannot be moved"));
        };
        let Some(target) = to.as_key() else {
            let Some(dir) = open_dir(&self.root, from)? else { return Ok(()) };
            for entry in Dir::new(dir.try_clone()?)?.collect::<rustix::io::Result<Vec<_>>>()? {
                move_tree(&dir, entry.file_name(), &self.root, entry.file_name()).at(&source)?;
            }
            return self.erase_prefix(from);
        };
        let Some(above) = open_dir(&self.root, &source.parent())? else { return Ok(()) };
        let (name, new_name) = (c_name(source.name())?, c_name(target.name())?);
        let new_above = make_parent(&self.root, self.home.as_ref(), &target)?;
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
        let new_dir = make_parent(&self.root, self.home.as_ref(), to)?;
        let lock = self.lock_key(from)?;
        let moved = match renameat(&lock.dir, &lock.name, &new_dir, &c_name(to.name())?) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(Error::from(error)),
        };
        lock.end_unused();
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
            let value = self.open_value(key);
            self.sync_opened(value.map(|value| value.map(|value| value.file))).at(key)?;
            let mut above = key.parent();
            while let Some(dir) = above.as_key() {
                dirs.insert(above);
                above = dir.parent();
            }
        }
        for prefix in dirs.iter().rev() {
            let dir = open_dir(&self.root, prefix);
            self.sync_opened(dir.map(|dir| dir.map(File::from))).at(prefix)?;
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
        recover(&self.root, self.prunes)
    }

    fn release_idle(&self, quiet: Duration) -> Result<()> {
        self.session.release_idle(quiet).at(PRIVATE)
    }

    fn remove_lock(&self, path: &str) -> Result<bool> {
        leftovers::remove(&self.root, path)
    }
}

impl ListableStore for DirectoryStore {
    fn list_dir(&self, prefix: &Prefix) -> Result<Entries> {
        Ok(match DirectoryListing::open(&self.root, prefix)? {
            Some(listing) => Box::new(listing.shown()),
            None => Box::new(std::iter::empty()),
        })
    }

    fn list_prefix(&self, prefix: &Prefix) -> Result<Keys> {
        Ok(Box::new(KeyWalk::below(DirectoryListing::open(&self.root, prefix)?, Follow::None)))
    }

    fn list_known(
        &self,
        prefix: &Prefix,
        start: &str,
    ) -> Result<Box<dyn Iterator<Item = Result<ListedEntry>> + Send>> {
        // A program that asks for a chunk by its key finds it behind a link, too.
        let keys = KeyWalk::below(DirectoryListing::open(&self.root, prefix)?, Follow::All);
        let start = format!("{prefix}{start}");
        let keys = keys
            .filter(move |key| key.as_ref().map_or(true, |key| key.as_str().starts_with(&start)));
        Ok(Box::new(keys.map(|key| key.map(ListedEntry::Key))))
    }

    fn omissions(&self) -> Omissions {
        self.root.omissions.clone()
    }

    fn writer_files(&self, prefix: &Prefix) -> Result<Vec<WriterFile>> {
        leftovers::writer_files(&self.root, prefix)
    }
}

fn reserved() -> Error {
    Error::new(Kind::NotPermitted, "this name is reserved for lock files")
}

/// Returns the opened file or directory; `None` if it is a FIFO, or a link that leads to nothing in
/// the store: its directory holds all that there is of it.
fn unless_replaced<T>(found: Result<Option<T>>) -> Result<Option<T>> {
    match found {
        Err(error) if error.kind() == Kind::Corrupt || error.errno() == libc::ELOOP => Ok(None),
        found => found,
    }
}

impl AsFd for DirectoryStore {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.root.as_fd()
    }
}

#[cfg(test)]
mod tests;
