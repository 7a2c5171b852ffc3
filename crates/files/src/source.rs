//! The bytes of a file in a store. They are read in blocks, and the last ones are kept: the parts
//! of a file that describe it are small and lie near each other.

use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use lru::LruCache;
use parking_lot::Mutex;

use crate::described::ChunkFile;
use zarrfs_base::error::{Error, Fault, Kind, Result, WithSubject};
use zarrfs_base::width::{ToU64, ToUsize};
use zarrfs_store::{ByteRange, Key, Stat, Store};

/// The bytes of a block, on this machine and on a server.
const LOCAL_BLOCK_LEN: u64 = 64 << 10;
const REMOTE_BLOCK_LEN: u64 = 1 << 20;

/// The bytes of the blocks that are kept.
const KEPT_LEN: u64 = 16 << 20;

/// A file in a store. Its clones share the blocks.
#[derive(Debug, Clone)]
pub struct SourceFile {
    store: Store,
    key: Key,
    /// The file that others lie beside, if it is not this one: this one is a copy of it.
    home: Option<(Store, Key)>,
    /// How references name the file.
    location: String,
    stat: Stat,
    block_len: u64,
    blocks: Arc<Mutex<LruCache<u64, Bytes>>>,
}

impl SourceFile {
    /// Opens the file at `key`.
    pub fn open(store: &Store, key: &Key) -> Result<Self> {
        Self::located(store, key, key.as_str().to_owned())
    }

    /// Opens the file at `key`, to which references lead by `location`.
    pub fn located(store: &Store, key: &Key, location: String) -> Result<Self> {
        let stat = store.stat(key)?.ok_or_else(Error::not_found).at(key)?;
        let is_remote = store.read().is_remote();
        let block_len = if is_remote { REMOTE_BLOCK_LEN } else { LOCAL_BLOCK_LEN };
        let kept =
            NonZeroUsize::new((KEPT_LEN / block_len).to_usize()).unwrap_or(NonZeroUsize::MIN);
        let blocks = Arc::new(Mutex::new(LruCache::new(kept)));
        Ok(Self {
            store: store.clone(),
            key: key.clone(),
            home: None,
            location,
            stat,
            block_len,
            blocks,
        })
    }

    /// Says that it is a copy of another file, which others lie beside.
    #[must_use]
    pub fn at_home_of(self, other: &Self) -> Self {
        Self { home: Some((other.store.clone(), other.key.clone())), ..self }
    }

    /// Opens a file by a path that begins beside this one; `None` if there is none.
    pub fn beside(&self, path: &str) -> Result<Option<Self>> {
        let path = path.strip_prefix("./").unwrap_or(path);
        let own = (self.store.clone(), self.key.clone());
        let (store, key) = self.home.clone().unwrap_or(own);
        let above = key.as_str().rsplit_once('/').map(|(above, _)| above);
        let whole = above.map_or_else(|| path.to_owned(), |above| format!("{above}/{path}"));
        let Ok(key) = Key::parse(&whole) else {
            return Err(Error::unsupported(format!(
                "the file {path:?} does not lie beside this one"
            )));
        };
        match store.stat(&key)? {
            Some(_) => Self::open(&store, &key).map(Some),
            None => Ok(None),
        }
    }

    /// Returns it as a file that chunks lie in.
    pub fn as_chunk_file(&self) -> ChunkFile {
        let location = self.location.clone();
        ChunkFile { location, len: self.len(), version: self.stat.version }
    }

    /// Returns the location of a file by a path that begins beside this one.
    pub fn location_beside(&self, path: &str) -> String {
        let key = self.home.as_ref().map_or(self.location.as_str(), |(_, key)| key.as_str());
        match key.rsplit_once('/') {
            Some((above, _)) if !path.starts_with('/') && !path.contains("://") => {
                format!("{above}/{path}")
            }
            _ => path.to_owned(),
        }
    }

    /// Returns the store that it lies in.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns its key in the store.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        self.key.name()
    }

    /// Returns how references name it.
    pub fn location(&self) -> &str {
        &self.location
    }

    /// Returns its stat when it was opened.
    pub fn stat(&self) -> &Stat {
        &self.stat
    }

    /// Returns its length in bytes.
    pub fn len(&self) -> u64 {
        self.stat.len
    }

    /// Returns its name without what follows the first dot.
    pub fn stem(&self) -> &str {
        let name = self.key.name();
        let stem = name.split('.').next().unwrap_or(name);
        if stem.is_empty() { "data" } else { stem }
    }

    /// Reads `len` bytes from `offset`, which must be there.
    pub fn read(&self, offset: u64, len: usize) -> Result<Bytes> {
        let found = self.read_up_to(offset, len)?;
        if found.len() < len {
            let end = self.len();
            let detail =
                format!("the file ends at byte {end}: {len} bytes from {offset} are needed");
            return Err(Error::fault(Fault::Length, detail));
        }
        Ok(found)
    }

    /// Reads `len` bytes from `offset`, or those up to the end.
    pub fn read_up_to(&self, offset: u64, len: usize) -> Result<Bytes> {
        let end = offset.saturating_add(len.to_u64()).min(self.len());
        if offset >= end {
            return Ok(Bytes::new());
        }
        let (first, last) = (offset / self.block_len, (end - 1) / self.block_len);
        if last - first > 4 {
            return self.fetch(offset, end - offset);
        }
        let mut all = BytesMut::new();
        for number in first..=last {
            let start = number.saturating_mul(self.block_len);
            let block = self.block(number)?;
            let from = offset.saturating_sub(start).to_usize();
            let to = (end - start).to_usize().min(block.len());
            let part = block.get(from..to).unwrap_or_default();
            if first == last {
                return Ok(block.slice_ref(part));
            }
            all.extend_from_slice(part);
        }
        Ok(all.freeze())
    }

    fn block(&self, number: u64) -> Result<Bytes> {
        if let Some(found) = self.blocks.lock().get(&number) {
            return Ok(found.clone());
        }
        let start = number.saturating_mul(self.block_len);
        let block = self.fetch(start, self.block_len.min(self.len().saturating_sub(start)))?;
        self.blocks.lock().put(number, block.clone());
        Ok(block)
    }

    fn fetch(&self, offset: u64, len: u64) -> Result<Bytes> {
        let range = ByteRange::Span { offset, len };
        let found = self.store.read().get_partial_values(&[(self.key.clone(), range)])?;
        let value = found.into_iter().next().flatten().ok_or_else(Error::not_found)?;
        if !self.stat.version.is_same(value.stat.version) {
            return Err(Error::new(Kind::Stale, "changed while it was read; try again"));
        }
        Ok(value.bytes)
    }
}
