//! Encoded bytes of remote values on a local disk, kept over restarts.
//!
//! Each value has a file, whose name is a hash of the name of the value; long values have one for
//! each part. A file has bytes of one version, and contains that version (`file`), so bytes of
//! another version are never read: they are replaced, or removed when they were not used for long
//! (`tidy`). There is no index to load, and any number of processes share a directory: files are
//! appended to, or replaced by renaming.
//!
//! Nothing here is needed. A file that is damaged is removed, and if the disk is full or fails, the
//! bytes come from the server as they would without a cache.
//!
//! The user names a directory, which may have files of others. The cache is a directory of its own
//! in that one, where no other user can write, with a mark that only zarrfs makes
//! ([`OwnDirectory`]):
//!
//! ```text
//! zarrfs-cache/zarrfs-cache.txt   the mark
//! zarrfs-cache/CACHEDIR.TAG       tells programs that make backups to leave it out
//! zarrfs-cache/tidying            the lock of the process that removes files
//! zarrfs-cache/3f/90..            the file of a value: the 32 digits of a hash
//! zarrfs-cache/3f/new-..          one that is being written, with 32 random digits
//! ```
//!
//! Only files of these names are read or removed, by the descriptor of the directory.
//!
//! A file has the ranges that were requested, as records, and not blocks of a fixed length: with
//! blocks, a read of a small inner chunk would fetch a whole block, or its bytes could not be kept.
//! The version is not in the name of the file, so a new version replaces an old one instead of
//! waiting beside it.

mod file;
mod tidy;

use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use parking_lot::Mutex;
use twox_hash::XxHash3_128;

use super::{Stat, unique};
use file::{FileRead, Owner, RecordIndex};
use zarrfs_base::bounded::{Bounded, MapLimits};
use zarrfs_base::error::{Error, Result, WithSubject};
use zarrfs_base::sys::{self, IfTaken, OthersMay, OwnDirectory};
use zarrfs_base::width::{ToU64, ToUsize};

/// The bytes of a value in one file.
const PART_LEN: u64 = 64 << 20;

/// The most memory for the places of bytes in files.
const MOST_INDEXES: u64 = 16 << 20;

/// How often the use of a file is noted.
const NOTED: Duration = Duration::from_secs(3600);

/// The cache is tidied when `1/OFTEN` of its size was written.
const OFTEN: u64 = 16;

/// `1/FREE` of the disk stays free, or `MOST_FREE` bytes of a larger one.
const FREE: u64 = 20;
const MOST_FREE: u64 = 1 << 30;

/// How long a disk that is nearly full is not looked at again.
const PAUSE: Duration = Duration::from_secs(10);

/// How long to try to lock a file that others write, and how long to wait between two tries. Bytes
/// that are not written by then are left out.
const PATIENCE: Duration = Duration::from_millis(200);
const TURN: Duration = Duration::from_millis(2);

/// Files take the disk in units of about so many bytes.
const UNIT: u64 = 4096;

/// How the name of a temporary file begins.
const TEMPORARY: &str = "new-";

/// The directory of the cache.
const DIRECTORY: &str = "zarrfs-cache";

/// The file that says that zarrfs has made the directory.
const MARK: &str = "zarrfs-cache.txt";
const MARK_TEXT: &str = "A disk cache of zarrfs, format 2. It may be removed as a whole.\n";

/// The file that says that the directory is a cache (<https://bford.info/cachedir/>).
const TAG: &str = "CACHEDIR.TAG";
const TAG_TEXT: &str = "Signature: 8a477f597d28d172789f06886806bc55\n\
    # A disk cache of zarrfs: programs that make backups can leave it out.\n";

/// The lock of the process that removes files.
const TIDYING: &str = "tidying";

/// The digits of a hash, and how many of them name the directory.
const DIGITS: usize = 32;
const DIRECTORY_DIGITS: usize = 2;

/// A cache in a directory.
pub struct DiskCache {
    /// The directory of the cache.
    dir: OwnDirectory,
    /// The most bytes in it.
    most: u64,
    /// The bytes that this process has written since it tidied the directory. Held while it does.
    written: Mutex<u64>,
    /// The bytes that threads are writing now.
    being_written: AtomicU64,
    /// The places of bytes in files that were used recently. A leaf lock.
    indexes: Mutex<Bounded<u128, Arc<RecordIndex>>>,
    /// When a disk that is nearly full may be looked at again. A leaf lock.
    full_until: Mutex<Option<Instant>>,
    /// Whether the log has said that the cache cannot be written.
    is_said: AtomicBool,
}

impl fmt::Debug for DiskCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DiskCache({})", self.dir.shown().display())
    }
}

impl DiskCache {
    /// Opens the cache in a directory, which is created if it does not exist. It has at most `most`
    /// bytes.
    pub fn open(directory: &Path, most: u64) -> Result<Self> {
        let above = OwnDirectory::on_safe_way(directory)?;
        let is_new = above.names()?.next().is_none();
        let dir = above.private(DIRECTORY, OthersMay::Read)?;
        dir.mark(MARK, MARK_TEXT, |name| name == TAG || name == TIDYING)?;
        dir.put_text(TAG, TAG_TEXT).at(dir.shown().display())?;
        if is_new {
            // Nothing else is in it.
            above.put_text(TAG, TAG_TEXT).at(above.shown().display())?;
        }
        Ok(Self {
            dir,
            most,
            // The cache may have been larger before, so the first bytes tidy it.
            written: Mutex::new(most),
            being_written: AtomicU64::new(0),
            indexes: Mutex::new(Bounded::new(MapLimits::bytes(MOST_INDEXES))),
            full_until: Mutex::default(),
            is_said: AtomicBool::new(false),
        })
    }

    /// Whether it may have bytes of a value, of any version.
    pub fn may_have(&self, name: &str) -> bool {
        self.dir.metadata(&path_of(hash(name, 0))).is_ok()
    }

    /// Returns the bytes from `start` to `end` of a value, if it has all of them.
    pub fn get(&self, name: &str, stat: Stat, start: u64, end: u64) -> Option<Bytes> {
        if !stat.version.is_settled || start >= end || end > stat.len {
            return None;
        }
        let mut pieces = Vec::new();
        for (part, from, until) in parts(start, end) {
            pieces.push(self.get_part(&Owner::new(name, part, stat), from, until)?);
        }
        Some(match <[Bytes; 1]>::try_from(pieces) {
            Ok([only]) => only,
            Err(pieces) => pieces.concat().into(),
        })
    }

    /// Keeps bytes from `start` on of a value.
    pub fn put(&self, name: &str, stat: Stat, start: u64, bytes: &Bytes) {
        let len = bytes.len().to_u64();
        let end = start.saturating_add(len);
        // A value that fills the cache would only drive out others.
        let is_worth = stat.version.is_settled && len > 0 && len <= self.most / 4;
        if !is_worth || end > stat.len {
            return;
        }
        let Some(_room) = self.room(len) else { return };
        let first = parts(start, end).next().map_or(0, |(part, ..)| part);
        if first > 0 && !self.may_have(name) {
            // Without the first part, `may_have` would not find this value.
            self.note(self.put_part(&Owner::new(name, 0, stat), 0, &[]));
        }
        for (part, from, until) in parts(start, end) {
            let place = |at: u64| at.saturating_sub(start).to_usize();
            let Some(bytes) = bytes.get(place(from)..place(until)) else { return };
            self.note(self.put_part(&Owner::new(name, part, stat), from, bytes));
        }
    }

    /// Logs that something could not be written, for the first time.
    fn note(&self, written: io::Result<()>) {
        if let Err(error) = written {
            self.say(&Error::os(&error));
        }
    }

    /// Logs why the cache takes no bytes, as a warning for the first time.
    fn say(&self, reason: &dyn fmt::Display) {
        let is_said = self.is_said.swap(true, Ordering::Relaxed);
        let level = if is_said { log::Level::Debug } else { log::Level::Warn };
        let shown = self.dir.shown().display();
        log::log!(level, "{shown}: the disk cache cannot be written: {reason}");
    }

    fn get_part(&self, owner: &Owner<'_>, start: u64, end: u64) -> Option<Bytes> {
        let path = path_of(hash(owner.name, owner.part));
        let found = self.read(&path, owner, start, end);
        match found {
            Ok(FileRead::This(bytes)) => return Some(bytes),
            Ok(FileRead::Other) => {}
            Ok(FileRead::Damaged) => {
                log::debug!("{path}: damaged, so it is removed");
                drop(self.dir.remove(&path));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => log::debug!("{path}: {error}"),
        }
        None
    }

    fn read(
        &self,
        path: &str,
        owner: &Owner<'_>,
        start: u64,
        end: u64,
    ) -> io::Result<FileRead<Bytes>> {
        let file = self.dir.open_to_read(path)?;
        let index = match self.index(&file, owner)? {
            FileRead::This(index) => index,
            FileRead::Other => return Ok(FileRead::Other),
            FileRead::Damaged => return Ok(FileRead::Damaged),
        };
        let found = index.bytes(&file, start, end)?;
        if matches!(found, FileRead::This(_)) {
            let used = file.metadata()?.modified()?;
            // A use in the future is one by a clock that was wrong.
            if used.elapsed().map_or(true, |age| age > NOTED) {
                file.set_modified(SystemTime::now())?;
            }
        }
        Ok(found)
    }

    /// Returns the places of bytes in a file.
    fn index(&self, file: &File, owner: &Owner<'_>) -> io::Result<FileRead<Arc<RecordIndex>>> {
        let hash = hash(owner.name, owner.part);
        let known = self.indexes.lock().get(&hash).cloned();
        Ok(match RecordIndex::read(file, owner, known.as_deref())? {
            FileRead::This(index) => {
                let memory = index.memory();
                let index = Arc::new(index);
                drop(self.indexes.lock().put(hash, Arc::clone(&index), memory));
                FileRead::This(index)
            }
            FileRead::Other => FileRead::Other,
            FileRead::Damaged => FileRead::Damaged,
        })
    }

    /// Adds bytes to the file of a part, or replaces a file with bytes of another version.
    fn put_part(&self, owner: &Owner<'_>, start: u64, bytes: &[u8]) -> io::Result<()> {
        let path = path_of(hash(owner.name, owner.part));
        let give_up = Instant::now() + PATIENCE;
        while Instant::now() < give_up {
            let file = match self.dir.open_to_append(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    match self.create(owner, start, bytes, IfTaken::Stays) {
                        // Another thread or process has created it.
                        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                        created => return created,
                    }
                }
                Err(error) => return Err(error),
            };
            // One at a time writes to a file. Its lock ends when it is closed.
            if !sys::try_lock(&file)? {
                thread::sleep(TURN);
            } else if self.dir.is_named(&path, &file)? {
                return self.add(file, owner, start, bytes);
            }
        }
        log::debug!("{path}: others write it");
        Ok(())
    }

    /// Adds bytes to the file of a part, which is locked.
    fn add(&self, mut file: File, owner: &Owner<'_>, start: u64, bytes: &[u8]) -> io::Result<()> {
        let end = start.saturating_add(bytes.len().to_u64());
        match self.index(&file, owner)? {
            FileRead::This(index) if index.is_whole(file.metadata()?.len()) => {
                for (from, until) in index.gaps(start, end) {
                    let at = |at: u64| at.saturating_sub(start).to_usize();
                    let Some(bytes) = bytes.get(at(from)..at(until)) else { return Ok(()) };
                    file::append(&mut file, &[], from, bytes)?;
                }
                Ok(())
            }
            FileRead::This(_) | FileRead::Other | FileRead::Damaged => {
                self.create(owner, start, bytes, IfTaken::Goes)
            }
        }
    }

    /// Makes a new file for a part.
    fn create(
        &self,
        owner: &Owner<'_>,
        start: u64,
        bytes: &[u8],
        taken: IfTaken,
    ) -> io::Result<()> {
        let Some(header) = owner.header() else { return Ok(()) };
        let path = path_of(hash(owner.name, owner.part));
        let Some((above, name)) = path.split_once('/') else { return Ok(()) };
        let above = match self.dir.private(above, OthersMay::Read) {
            Ok(above) => above,
            Err(error) => return Err(io::Error::from_raw_os_error(error.errno())),
        };
        let new = format!("{TEMPORARY}{}", unique::text());
        let mut file = above.create(&new)?;
        let put = file::append(&mut file, &header, start, bytes);
        let put = put.and_then(|()| above.rename(&new, name, taken));
        if put.is_err() {
            drop(above.remove(&new));
        }
        put
    }

    /// Makes room for bytes if the cache or the disk has too many, and returns it if there is some.
    fn room(&self, len: u64) -> Option<WriteReservation<'_>> {
        let (free, total) = self.dir.disk_space().ok()?;
        let least = (total / FREE).min(MOST_FREE);
        if free < least.saturating_add(len) {
            let mut full_until = self.full_until.lock();
            if full_until.is_some_and(|until| Instant::now() < until) {
                return None;
            }
            *full_until = Instant::now().checked_add(PAUSE);
            drop(full_until);
            self.say(&format_args!(
                "{free} bytes of the disk are free, and the cache leaves {least} of them free"
            ));
            let missing = least.saturating_add(len).saturating_sub(free);
            self.tidy(|used| used.saturating_sub(missing.saturating_mul(2)));
            return None;
        }
        let mut written = self.written.lock();
        let room = WriteReservation::new(self, len.next_multiple_of(UNIT).saturating_add(UNIT));
        *written = written.saturating_add(room.len);
        if *written >= self.most / OFTEN {
            // Others wait, so that they do not write faster than this removes.
            *written = 0;
            let coming = self.being_written.load(Ordering::Relaxed);
            let most = self.most.saturating_sub(self.most / OFTEN * 2).saturating_sub(coming);
            self.tidy(|_| most);
        }
        Some(room)
    }

    /// Removes files until those left have as many bytes as `most` says of those there are, unless
    /// another process does so now.
    fn tidy(&self, most: impl Fn(u64) -> u64) {
        let tidied = self.dir.open_or_create(TIDYING).map_err(Error::from).and_then(|file| {
            if !sys::try_lock(&file)? {
                return Ok(());
            }
            tidy::tidy(&self.dir, |used| most(used).min(self.most)).map(drop)
        });
        if let Err(error) = tidied {
            log::debug!("{}: {error}", self.dir.shown().display());
        }
    }
}

/// The room for bytes that a thread is writing.
struct WriteReservation<'c> {
    cache: &'c DiskCache,
    len: u64,
}

impl<'c> WriteReservation<'c> {
    fn new(cache: &'c DiskCache, len: u64) -> Self {
        cache.being_written.fetch_add(len, Ordering::Relaxed);
        Self { cache, len }
    }
}

impl Drop for WriteReservation<'_> {
    fn drop(&mut self) {
        self.cache.being_written.fetch_sub(self.len, Ordering::Relaxed);
    }
}

/// Returns the path of a file in the directory of the cache.
fn path_of(hash: u128) -> String {
    let digits = format!("{hash:032x}");
    let (directory, name) = digits.split_at_checked(DIRECTORY_DIGITS).unwrap_or(("00", &digits));
    format!("{directory}/{name}")
}

/// Returns the hash that names the file of a part of a value.
fn hash(name: &str, part: u64) -> u128 {
    XxHash3_128::oneshot_with_seed(part, name.as_bytes())
}

/// Returns the parts of a value that a range lies in, each with the range in it.
fn parts(start: u64, end: u64) -> impl Iterator<Item = (u64, u64, u64)> {
    (start / PART_LEN..end.div_ceil(PART_LEN)).map(move |part| {
        let first = part.saturating_mul(PART_LEN);
        (part, start.max(first), end.min(first.saturating_add(PART_LEN)))
    })
}

#[cfg(test)]
mod tests;
