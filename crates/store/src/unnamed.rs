//! Bytes in a file without a name, which is gone with the process: a copy of a value, or a file
//! that a program writes.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use super::{
    ByteRange, Capacity, Entries, Key, Keys, ListableStore, Prefix, ReadableStore, Stat, Store,
    StoreEntry, Value, Version,
};
use zarrfs_base::error::{Error, Kind, Result};
use zarrfs_base::width::{ToU64, ToUsize};

/// Where such files are if the user names no other directory: `/tmp` may be in memory.
const DIRECTORIES: [&str; 2] = ["/var/tmp", "/tmp"];

/// The number of files that were made, which tells their versions apart.
static MADE: AtomicU64 = AtomicU64::new(0);

/// A file without a name that is being filled.
#[derive(Debug)]
pub struct UnnamedFile {
    file: File,
    directory: PathBuf,
    len: u64,
}

impl UnnamedFile {
    /// Makes an empty file in the directory for temporary files.
    pub fn make() -> Result<Self> {
        let named = std::env::var_os("TMPDIR").map(PathBuf::from);
        let mut refused = None;
        for directory in named.into_iter().chain(DIRECTORIES.map(PathBuf::from)) {
            match create_in(&directory) {
                Ok(file) => return Ok(Self { file, directory, len: 0 }),
                Err(error) => {
                    refused.get_or_insert((directory, error));
                }
            }
        }
        let (directory, error) = refused
            .unwrap_or_else(|| (PathBuf::from("/tmp"), io::Error::from(ErrorKind::NotFound)));
        let detail = format!("no temporary file can be made in {}: {error}", directory.display());
        Err(Error::new(Error::os(&error).kind(), detail))
    }

    /// Returns how many bytes it has.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds bytes at its end.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.write(self.len, bytes)
    }

    /// Writes bytes at `offset`. Bytes that are skipped are zero.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_all_at(bytes, offset);
        written.map_err(|error| self.cannot_write(&error))?;
        self.len = self.len.max(offset.saturating_add(bytes.len().to_u64()));
        Ok(())
    }

    /// Truncates it, or extends it with zeros.
    pub fn set_len(&mut self, len: u64) -> Result<()> {
        self.file.set_len(len).map_err(|error| self.cannot_write(&error))?;
        self.len = len;
        Ok(())
    }

    fn cannot_write(&self, error: &io::Error) -> Error {
        let place = self.directory.display();
        let detail = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => format!(
                "no space is left in {place} for a temporary file: set TMPDIR to a directory with \
                 more"
            ),
            _ => format!("a temporary file in {place} cannot be written: {error}"),
        };
        Error::new(Error::os(error).kind(), detail)
    }

    /// Reads up to `len` bytes from `offset`: fewer only at the end.
    pub fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let left = self.len.saturating_sub(offset).to_usize();
        let mut bytes = vec![0; len.min(left)];
        self.file.read_exact_at(&mut bytes, offset).map_err(|error| Error::os(&error))?;
        Ok(bytes)
    }

    /// Returns the read-only store that has the bytes as the value of `key`, as long as the value
    /// of `origin` does not change.
    pub fn into_store(self, key: Key, modified: SystemTime, origin: CopiedValue) -> Store {
        Self::store(self.file, self.len, (key, modified), Some(origin))
    }

    /// Returns the read-only store that has the bytes as they are now as the value of `key`.
    pub fn as_store(&self, key: Key) -> Result<Store> {
        let file = self.file.try_clone().map_err(|error| Error::os(&error))?;
        Ok(Self::store(file, self.len, (key, SystemTime::now()), None))
    }

    fn store(
        file: File,
        len: u64,
        (key, modified): (Key, SystemTime),
        origin: Option<CopiedValue>,
    ) -> Store {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let version = Version::settled([u64::from(std::process::id()), number, len, 0]);
        let stat = Stat { len, modified, version };
        Store::reading(Arc::new(UnnamedStore { file, key, stat, origin }))
    }
}

/// The value that was copied.
#[derive(Debug)]
pub struct CopiedValue {
    /// Its store.
    pub store: Store,
    /// Its key.
    pub key: Key,
    /// Its version when it was copied.
    pub version: Version,
}

/// Creates a file that no name leads to.
fn create_in(directory: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    let unnamed = options.clone().custom_flags(libc::O_TMPFILE).open(directory);
    let has_none = |error: &io::Error| {
        matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL))
    };
    match unnamed {
        Err(error) if has_none(&error) => {
            let number = MADE.fetch_add(1, Ordering::Relaxed);
            let path = directory.join(format!(".zarrfs-{}-{number}", std::process::id()));
            let file = options.create_new(true).open(&path)?;
            std::fs::remove_file(&path)?;
            Ok(file)
        }
        other => other,
    }
}

/// The store of the one value.
#[derive(Debug)]
struct UnnamedStore {
    file: File,
    key: Key,
    stat: Stat,
    /// The value that it is a copy of.
    origin: Option<CopiedValue>,
}

impl UnnamedStore {
    /// Fails if the value that was copied has changed. A server is not asked at each read.
    fn check(&self) -> Result<()> {
        let Some(CopiedValue { store, key, version }) = &self.origin else { return Ok(()) };
        if store.read().is_remote() {
            return Ok(());
        }
        match store.stat(key)? {
            Some(stat) if version.is_same(stat.version) => Ok(()),
            _ => {
                let detail = format!("{key} has changed since it was opened: mount it again");
                Err(Error::new(Kind::Stale, detail))
            }
        }
    }
}

impl ReadableStore for UnnamedStore {
    fn get_partial_values(&self, ranges: &[(Key, ByteRange)]) -> Result<Vec<Option<Value>>> {
        self.check()?;
        let read = |(key, range): &(Key, ByteRange)| {
            if *key != self.key {
                return Ok(None);
            }
            let (offset, len) = range.within(self.stat.len);
            let mut bytes = vec![0; len.to_usize()];
            self.file.read_exact_at(&mut bytes, offset).map_err(|error| Error::os(&error))?;
            Ok(Some(Value { bytes: bytes.into(), stat: self.stat }))
        };
        ranges.iter().map(read).collect()
    }

    fn stat(&self, keys: &[Key]) -> Result<Vec<Option<Stat>>> {
        Ok(keys.iter().map(|key| (*key == self.key).then_some(self.stat)).collect())
    }

    fn room(&self) -> Result<Option<Capacity>> {
        Ok(None)
    }
}

impl ListableStore for UnnamedStore {
    fn list_dir(&self, prefix: &Prefix) -> Result<Entries> {
        let entry = Ok(StoreEntry::Key(self.key.as_str().to_owned()));
        Ok(Box::new(prefix.is_root().then_some(entry).into_iter()))
    }

    fn list_prefix(&self, prefix: &Prefix) -> Result<Keys> {
        let key = self.key.as_str().starts_with(prefix.as_str()).then(|| Ok(self.key.clone()));
        Ok(Box::new(key.into_iter()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Condition;
    use crate::memory::MemoryStore;

    #[test]
    fn a_copy_is_read_as_long_as_its_origin_does_not_change() {
        let (own, key) = (Store::new(Arc::new(MemoryStore::new())), Key::parse("a.gz").unwrap());
        let write = own.write().unwrap();
        let stat = write.set(&key, &[], Condition::Always).unwrap();
        let mut file = UnnamedFile::make().unwrap();
        file.append(b"abc").unwrap();
        file.append(b"def").unwrap();
        let origin = CopiedValue { store: own.clone(), key: key.clone(), version: stat.version };
        let store = file.into_store(Key::parse("a").unwrap(), stat.modified, origin);
        let range = (Key::parse("a").unwrap(), ByteRange::Span { offset: 2, len: 3 });
        let read = || store.read().get_partial_values(std::slice::from_ref(&range));
        assert_eq!(&*read().unwrap()[0].as_ref().unwrap().bytes, b"cde");
        write.set(&key, &[], Condition::Always).unwrap();
        assert_eq!(read().unwrap_err().kind(), Kind::Stale);
    }
}
