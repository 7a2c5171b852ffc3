//! A store with its capabilities: all can be read, some can be written or listed as well, and some
//! consist of files.

use std::sync::Arc;
use std::time::Instant;

use super::{
    ByteRange, FileStore, Key, ListableStore, Omissions, Prefix, ReadableStore, Stat, Value,
    WritableStore,
};
use zarrfs_base::error::{Error, Kind, Result, WithSubject};

/// A store with its capabilities.
#[derive(Debug, Clone)]
pub struct Store {
    read: Arc<dyn ReadableStore>,
    write: Option<Arc<dyn WritableStore>>,
    list: Option<Arc<dyn ListableStore>>,
    files: Option<Arc<dyn FileStore>>,
    omissions: Omissions,
}

impl Store {
    /// Returns a store with all capabilities.
    pub fn new<S: ReadableStore + WritableStore + ListableStore + 'static>(store: Arc<S>) -> Self {
        let read: Arc<dyn ReadableStore> = Arc::<S>::clone(&store);
        let write: Arc<dyn WritableStore> = Arc::<S>::clone(&store);
        let omissions = store.omissions();
        Self { read, write: Some(write), list: Some(store), files: None, omissions }
    }

    /// Returns a store that cannot be written.
    pub fn reading<S: ReadableStore + ListableStore + 'static>(store: Arc<S>) -> Self {
        let read: Arc<dyn ReadableStore> = Arc::<S>::clone(&store);
        let omissions = store.omissions();
        Self { read, write: None, list: Some(store), files: None, omissions }
    }

    /// Returns a store of files, with all capabilities.
    pub fn of_files<S>(store: Arc<S>) -> Self
    where
        S: ReadableStore + WritableStore + ListableStore + FileStore + 'static,
    {
        let files: Arc<dyn FileStore> = Arc::<S>::clone(&store);
        Self { files: Some(files), ..Self::new(store) }
    }

    /// Makes the store read-only.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.write = None;
        self
    }

    /// Makes the store unlistable.
    #[must_use]
    pub fn unlistable(mut self) -> Self {
        self.list = None;
        self
    }

    /// Returns this store for values in the directory `home`, which it does not recreate
    /// ([`WritableStore::in_directory`]).
    #[must_use]
    pub fn in_directory(&self, home: &Prefix) -> Self {
        let within = self.write.as_ref().and_then(|write| write.in_directory(home));
        let files = self.files.as_ref().map(|files| files.files_in_directory(home));
        Self { write: within.or_else(|| self.write.clone()), files, ..self.clone() }
    }

    /// Whether values can be written.
    pub fn is_writable(&self) -> bool {
        self.write.is_some()
    }

    /// Returns the readable store.
    pub fn read(&self) -> &dyn ReadableStore {
        &*self.read
    }

    /// Returns the writable store; [`Kind::ReadOnly`] if the store or the mount is read-only.
    pub fn write(&self) -> Result<&dyn WritableStore> {
        self.write.as_deref().ok_or_else(|| Error::new(Kind::ReadOnly, "mounted read-only"))
    }

    /// Returns the listable store, if it can list.
    pub fn list(&self) -> Option<&dyn ListableStore> {
        self.list.as_deref().filter(|list| list.can_list())
    }

    /// Returns the account of what was not seen in the store.
    pub fn omissions(&self) -> &Omissions {
        &self.omissions
    }

    /// Returns the files of the store, if it is a directory of files. A caller that changes them
    /// asks [`Self::write`] first whether it may.
    pub fn files(&self) -> Option<&dyn FileStore> {
        self.files.as_deref()
    }

    /// Returns the whole value of `key`; an error if it has more than `limit` bytes.
    pub fn get(&self, key: &Key, limit: u64) -> Result<Option<Value>> {
        let range = ByteRange::first(limit);
        let mut values = self.read.get_partial_values(&[(key.clone(), range)])?;
        match values.pop().flatten() {
            Some(value) if value.stat.len > limit => Err(Error::too_large(format!(
                "{} bytes stored, the limit here is {limit}",
                value.stat.len
            ))
            .at(key)),
            found => Ok(found),
        }
    }

    /// Returns the stat of one value that is not older than `since`.
    pub fn stat_since(&self, key: &Key, since: Instant) -> Result<Option<Stat>> {
        Ok(self.read.stat_since(std::slice::from_ref(key), since)?.pop().flatten())
    }

    /// Returns the stat of one value.
    pub fn stat(&self, key: &Key) -> Result<Option<Stat>> {
        Ok(self.read.stat(std::slice::from_ref(key))?.pop().flatten())
    }
}
