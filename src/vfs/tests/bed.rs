//! A hierarchy in memory, in a store that fails on demand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::error::{Error, Kind, Result};
use crate::hierarchy::{self, Hierarchy};
use crate::metadata::{Dialect, Policy};
use crate::store::memory::MemoryStore;
use crate::store::{
    Aside, ByteRange, Capacity, Condition, Entries, Key, Keys, ListableStore, Prefix,
    ReadableStore, Stat, Store, Value, ValuePiece, Version, WritableStore,
};
use crate::vfs::{
    Access, OpenedFile, Ownership, PassthroughOptions, Presence, ROOT, Vfs, VfsOptions, Writeback,
};

/// Bytes of every chunk: two elements of `uint16`.
pub const CHUNK_LEN: usize = 4;

type Hook = Box<dyn FnOnce() + Send>;

/// A [`MemoryStore`] with calls that fail on demand.
#[derive(Default)]
pub struct FaultyStore {
    store: MemoryStore,
    /// Sets so far.
    pub sets: AtomicUsize,
    /// Values whose attributes were asked for so far.
    pub stats: AtomicUsize,
    /// Changes of single values until the store stops: that one and all calls that follow fail; 0
    /// is never.
    pub stop_at: AtomicUsize,
    /// Whether it goes on after the one that fails.
    pub stops_once: AtomicBool,
    is_stopped: AtomicBool,
    /// Sets until one fails with `ENOSPC`; 0 is never.
    pub fail_set: AtomicUsize,
    /// Sets until one fails, and all after it; 0 is never.
    pub broken: AtomicUsize,
    /// The same of erasing.
    pub fail_erase: AtomicUsize,
    /// The same of syncing.
    pub fail_sync: AtomicUsize,
    pub synced: Mutex<Vec<Key>>,
    pub before_set: Mutex<Option<Hook>>,
    pub after_get: Mutex<Option<Hook>>,
}

impl std::fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FaultyStore")
    }
}

fn fails(countdown: &AtomicUsize) -> Result<()> {
    let left =
        countdown.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    if left == Ok(1) {
        return Err(no_space());
    }
    Ok(())
}

fn no_space() -> Error {
    Error::new(Kind::Os(libc::ENOSPC), "no space left on device")
}

impl FaultyStore {
    /// Counts a change of one value. Fails where the store has stopped, as it would for a daemon
    /// that is killed.
    fn change(&self) -> Result<()> {
        let left = self.stop_at.load(Ordering::Relaxed);
        self.stop_at.store(left.saturating_sub(1), Ordering::Relaxed);
        if left == 1 {
            self.is_stopped.store(true, Ordering::Relaxed);
            return Err(Error::new(Kind::Os(libc::ENOSPC), "no space left on device"));
        }
        self.look()
    }

    fn look(&self) -> Result<()> {
        let goes_on = self.stops_once.load(Ordering::Relaxed);
        if self.is_stopped.load(Ordering::Relaxed) && !goes_on {
            return Err(Error::new(Kind::Os(libc::EIO), "the store has stopped"));
        }
        Ok(())
    }

    fn below(&self, prefix: &Prefix) -> Result<Vec<Key>> {
        self.store.list_prefix(prefix)?.collect()
    }

    /// Lets the store go on. Whether it had stopped.
    pub fn restart(&self) -> bool {
        self.stop_at.store(0, Ordering::Relaxed);
        self.is_stopped.swap(false, Ordering::Relaxed)
    }
}

fn run(hook: &Mutex<Option<Hook>>) {
    let hook = hook.lock().take();
    if let Some(hook) = hook {
        hook();
    }
}

impl ReadableStore for FaultyStore {
    fn get_partial_values(&self, ranges: &[(Key, ByteRange)]) -> Result<Vec<Option<Value>>> {
        self.look()?;
        let values = self.store.get_partial_values(ranges);
        run(&self.after_get);
        values
    }

    fn stat(&self, keys: &[Key]) -> Result<Vec<Option<Stat>>> {
        self.look()?;
        self.stats.fetch_add(keys.len(), Ordering::Relaxed);
        self.store.stat(keys)
    }

    fn room(&self) -> Result<Option<Capacity>> {
        self.store.room()
    }
}

impl WritableStore for FaultyStore {
    fn set(&self, key: &Key, pieces: &[ValuePiece], condition: Condition) -> Result<Stat> {
        self.change()?;
        run(&self.before_set);
        fails(&self.fail_set)?;
        match self.broken.load(Ordering::Relaxed) {
            0 => {}
            1 => return Err(no_space()),
            left => self.broken.store(left - 1, Ordering::Relaxed),
        }
        self.sets.fetch_add(1, Ordering::Relaxed);
        self.store.set(key, pieces, condition)
    }

    fn set_partial_values(&self, parts: &[(Key, u64, Bytes)]) -> Result<()> {
        self.change()?;
        self.store.set_partial_values(parts)
    }

    fn erase_values(&self, keys: &[Key]) -> Result<()> {
        self.look()?;
        fails(&self.fail_erase)?;
        for key in keys {
            self.change()?;
            self.store.erase_values(std::slice::from_ref(key))?;
        }
        Ok(())
    }

    fn erase_unchanged(&self, key: &Key, version: Version) -> Result<()> {
        self.change()?;
        fails(&self.fail_erase)?;
        self.store.erase_unchanged(key, version)
    }

    fn erase_prefix(&self, prefix: &Prefix) -> Result<()> {
        self.look()?;
        for key in self.below(prefix)? {
            self.change()?;
            self.store.erase_values(std::slice::from_ref(&key))?;
        }
        Ok(())
    }

    fn erase_empty(&self, prefix: &Prefix) -> Result<()> {
        self.look()?;
        self.store.erase_empty(prefix)
    }

    fn move_to_free(&self, from: &Prefix, to: &Prefix) -> Result<()> {
        self.change()?;
        self.store.move_to_free(from, to)
    }

    fn move_prefix(&self, from: &Prefix, to: &Prefix) -> Result<()> {
        if self.below(to)?.is_empty() {
            self.change()?;
            return self.store.move_prefix(from, to);
        }
        // As in a directory: what does not go as a whole goes one by one.
        for key in self.below(from)? {
            self.change()?;
            let relative = key.as_str().strip_prefix(from.as_str()).unwrap_or_default();
            self.store.move_value(&key, &to.key(relative)?)?;
        }
        Ok(())
    }

    fn set_modified(&self, key: &Key, modified: SystemTime) -> Result<(Version, Version)> {
        self.change()?;
        self.store.set_modified(key, modified)
    }

    fn sync(&self, keys: &[Key]) -> Result<()> {
        fails(&self.fail_sync)?;
        self.synced.lock().extend_from_slice(keys);
        Ok(())
    }

    fn move_value(&self, from: &Key, to: &Key) -> Result<()> {
        self.change()?;
        self.store.move_value(from, to)
    }

    fn aside(&self) -> Result<Aside> {
        self.look()?;
        self.store.aside()
    }

    fn declare(&self, aside: &Aside, text: Bytes) -> Result<()> {
        self.change()?;
        self.store.declare(aside, text)
    }

    fn abandoned(&self) -> Result<Vec<Aside>> {
        self.look()?;
        self.store.abandoned()
    }

    fn release_idle(&self, quiet: Duration) -> Result<()> {
        self.look()?;
        self.store.release_idle(quiet)
    }
}

impl ListableStore for FaultyStore {
    fn list_dir(&self, prefix: &Prefix) -> Result<Entries> {
        self.look()?;
        self.store.list_dir(prefix)
    }

    fn list_prefix(&self, prefix: &Prefix) -> Result<Keys> {
        self.look()?;
        self.store.list_prefix(prefix)
    }
}

/// A group with the arrays `plain` and `sharded`, both of eight elements, and its tree.
pub struct VfsBed {
    pub store: Arc<FaultyStore>,
    pub vfs: Arc<Vfs>,
    dialect: Dialect,
    policy: Policy,
    passthrough: Option<PassthroughOptions>,
    /// Which chunks wait after they were closed.
    pub writeback: Writeback,
}

/// The document of an array of eight `uint16` in chunks of two, as a library writes it.
pub fn new_array() -> String {
    array(BYTES, 2)
}

fn array(codecs: &str, chunk_shape: u64) -> String {
    format!(
        r#"{{"zarr_format":3,"node_type":"array","shape":[8],"data_type":"uint16",
        "chunk_grid":{{"name":"regular","configuration":{{"chunk_shape":[{chunk_shape}]}}}},
        "chunk_key_encoding":{{"name":"default"}},"fill_value":0,"codecs":[{codecs}],
        "attributes":{{"units":"K"}}}}"#
    )
}

const BYTES: &str = r#"{"name":"bytes","configuration":{"endian":"little"}}"#;

/// Nothing waits to be stored for its age alone.
fn at_once() -> VfsOptions {
    VfsOptions { writeback_delay: Duration::ZERO, ..VfsOptions::default() }
}

impl VfsBed {
    pub fn new() -> Self {
        let store = Arc::new(FaultyStore::default());
        let shards = format!(
            r#"{{"name":"sharding_indexed","configuration":{{"chunk_shape":[2],"codecs":[{BYTES}],
            "index_codecs":[{BYTES},{{"name":"crc32c"}}],"index_location":"end"}}}}"#
        );
        let documents = [
            ("zarr.json", r#"{"zarr_format":3,"node_type":"group"}"#.to_owned()),
            ("plain/zarr.json", array(BYTES, 2)),
            ("sharded/zarr.json", array(&shards, 4)),
        ];
        let (dialect, policy) = (Dialect::V3, Policy::default());
        let vfs = Self::mounted(&store, &dialect, policy.clone(), at_once());
        let bed = Self {
            store,
            vfs,
            dialect,
            policy,
            passthrough: None,
            writeback: Writeback::default(),
        };
        for (key, text) in documents {
            bed.put(key, text.into_bytes());
        }
        bed
    }

    /// A hierarchy that holds nothing yet; new arrays are sharded or not.
    pub fn empty(dialect: &Dialect, shards: bool) -> Self {
        let store = Arc::new(FaultyStore::default());
        let shards = Policy::parse_shards(if shards { "16M" } else { "none" }).expect("shards");
        let policy = Policy { shards, ..Policy::default() };
        let vfs = Self::mounted(&store, dialect, policy.clone(), at_once());
        let bed = Self {
            vfs,
            store,
            dialect: dialect.clone(),
            policy,
            passthrough: None,
            writeback: Writeback::default(),
        };
        for (key, text) in dialect.new_root().expect("a root") {
            bed.put(key.as_str(), text.into_bytes());
        }
        bed
    }

    fn mounted(
        store: &Arc<FaultyStore>,
        dialect: &Dialect,
        policy: Policy,
        options: VfsOptions,
    ) -> Arc<Vfs> {
        let defaults = hierarchy::HierarchyOptions::default();
        // What others change is seen at once where the kernel has copies of what is stored.
        let metadata_ttl =
            if options.passthrough.is_some() { Duration::ZERO } else { defaults.metadata_ttl };
        let of_hierarchy =
            hierarchy::HierarchyOptions { metadata_ttl, policy, trusts_encoded: true, ..defaults };
        let store = Store::new(Arc::clone(store));
        let hierarchy = Hierarchy::open(store, Some(dialect.clone()), of_hierarchy).expect("opens");
        Arc::new(Vfs::new(hierarchy, options))
    }

    /// The same, where the kernel reads chunks of any length by itself.
    pub fn passing() -> Self {
        let passthrough = Some(PassthroughOptions { shortest: 1, calm: Duration::ZERO });
        let mut bed = Self { passthrough, ..Self::new() };
        bed.remount();
        bed
    }

    /// The same, where only as many bytes may wait.
    pub fn limited(dirty_limit: u64) -> Self {
        let bed = Self::new();
        let options = hierarchy::HierarchyOptions::default();
        let store = Store::new(Arc::clone(&bed.store));
        let hierarchy = Hierarchy::open(store, Some(Dialect::V3), options).expect("opens");
        let vfs =
            Arc::new(Vfs::new(hierarchy, VfsOptions { dirty_limit, ..VfsOptions::default() }));
        Self { vfs, ..bed }
    }

    /// The same, where chunks that are in no shard wait, too.
    pub fn behind() -> Self {
        let mut bed = Self { writeback: Writeback::All, ..Self::new() };
        bed.remount();
        bed
    }

    /// The same, where nothing is stored for its age alone.
    pub fn patient() -> Self {
        let bed = Self::new();
        let policy = bed.policy.clone();
        let options = VfsOptions { writeback_delay: Duration::MAX, ..VfsOptions::default() };
        Self { vfs: Self::mounted(&bed.store, &bed.dialect, policy, options), ..bed }
    }

    /// How often a value was set since this was asked last.
    pub fn sets(&self) -> usize {
        self.store.sets.swap(0, Ordering::Relaxed)
    }

    /// How many values the store was asked for attributes of since the last call.
    pub fn stats(&self) -> usize {
        self.store.stats.swap(0, Ordering::Relaxed)
    }

    /// Another mount of the same store, where nothing waits.
    pub fn other(&self) -> Self {
        let options = hierarchy::HierarchyOptions {
            policy: self.policy.clone(),
            trusts_encoded: true,
            ..hierarchy::HierarchyOptions::default()
        };
        let store = Store::new(Arc::clone(&self.store));
        let hierarchy = Hierarchy::open(store, Some(self.dialect.clone()), options).expect("opens");
        let options = VfsOptions { writeback: Writeback::Sync, ..VfsOptions::default() };
        Self {
            store: Arc::clone(&self.store),
            vfs: Arc::new(Vfs::new(hierarchy, options)),
            dialect: self.dialect.clone(),
            policy: self.policy.clone(),
            passthrough: None,
            writeback: Writeback::default(),
        }
    }

    /// Adds the array `encoded`.
    pub fn put_encoded(&self) {
        let codecs = format!(r#"{BYTES},{{"name":"crc32c"}}"#);
        self.put("encoded/zarr.json", array(&codecs, 2).into_bytes());
    }

    /// Has the chunk files of `encoded` show encoded bytes, which are not checked.
    pub fn show_encoded(&self) {
        let array = self.find("encoded").expect("there");
        let shown = self.vfs.xattrs().set(array, "user.zarr.shown", b"stored", Presence::Any);
        shown.expect("no file is open");
    }

    /// The same, with a tree that knows nothing of what is not stored.
    pub fn remount(&mut self) {
        let policy = self.policy.clone();
        let (passthrough, writeback) = (self.passthrough, self.writeback);
        let options = VfsOptions { writeback, passthrough, ..at_once() };
        self.vfs = Self::mounted(&self.store, &self.dialect, policy, options);
    }

    /// The same where the one before was killed: what it has in memory is lost, and nothing is
    /// recovered.
    pub fn kill(&mut self) {
        self.store.restart();
        self.remount();
    }

    /// Does what a mount does before it answers.
    pub fn recover(&self) {
        self.writable().recovery().recover();
    }

    /// The hierarchy behind the mount.
    pub fn writable(&self) -> Hierarchy {
        let options = hierarchy::HierarchyOptions::default();
        let store = Store::new(Arc::clone(&self.store));
        Hierarchy::open(store, Some(self.dialect.clone()), options).expect("opens")
    }

    /// The hierarchy as others see it.
    pub fn hierarchy(&self) -> Hierarchy {
        let store = Store::new(Arc::clone(&self.store)).read_only();
        Hierarchy::open(store, Some(self.dialect.clone()), hierarchy::HierarchyOptions::default())
            .expect("opens")
    }

    /// Every value that the store has.
    pub fn values(&self) -> BTreeMap<String, Vec<u8>> {
        let value = |key: String| {
            let bytes = self.stored(&key).unwrap_or_default();
            (key, bytes)
        };
        self.keys().into_iter().map(value).collect()
    }

    /// Every key that the store has.
    pub fn keys(&self) -> Vec<String> {
        let keys = self.store.store.list_prefix(&Prefix::root()).expect("listed");
        let mut keys: Vec<String> = keys.map(|key| key.expect("a key").to_string()).collect();
        keys.sort();
        keys
    }

    /// The bytes that the store has for a key.
    pub fn stored(&self, key: &str) -> Option<Vec<u8>> {
        let range = (Key::parse(key).expect("a key"), ByteRange::first(u64::MAX));
        let value = self.store.store.get_partial_values(&[range]).expect("read").pop().flatten();
        value.map(|value| value.bytes.to_vec())
    }

    /// Puts a value into the store behind the mount.
    pub fn put(&self, key: &str, bytes: Vec<u8>) {
        let key = Key::parse(key).expect("a key");
        self.store.store.set(&key, &[Bytes::from(bytes).into()], Condition::Always).expect("set");
    }

    /// Looks every name of a path up, as the kernel does.
    pub fn find(&self, path: &str) -> Result<u64> {
        let mut number = ROOT;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            number = self.vfs.lookup(number, name)?.number;
        }
        Ok(number)
    }

    fn split(path: &str) -> (&str, &str) {
        path.rsplit_once('/').unwrap_or(("", path))
    }

    /// The directory that a path is in, made if need be, and its last name.
    pub fn place<'a>(&self, path: &'a str) -> (u64, &'a str) {
        let (above, name) = Self::split(path);
        let number = self.find(above).unwrap_or_else(|_| {
            let (parent, name) = self.place(above);
            self.vfs.mkdir(parent, name, Ownership::of_process(0o755)).expect("made").number
        });
        (number, name)
    }

    pub fn open(&self, path: &str, access: Access) -> Result<u64> {
        Ok(self.open_found(path, access)?.1.handle)
    }

    /// Opens a file and says by which number: as the kernel does, which looks a name up again,
    /// once, where what it knew is not there.
    pub fn open_found(&self, path: &str, access: Access) -> Result<(u64, OpenedFile)> {
        let number = self.find(path)?;
        match self.vfs.open(number, access) {
            Err(error) if error.kind() == Kind::NotFound => {
                let number = self.find(path)?;
                Ok((number, self.vfs.open(number, access)?))
            }
            opened => Ok((number, opened?)),
        }
    }

    pub fn create(&self, path: &str) -> Result<u64> {
        let (parent, name) = self.place(path);
        Ok(self
            .vfs
            .create(parent, name, Ownership::of_process(0o644), Access::Truncate, false)?
            .1
            .handle)
    }

    /// As `close` does it: the error is that of the flush.
    pub fn close(&self, handle: u64) -> Result<()> {
        let flushed = self.vfs.flush(handle);
        self.vfs.release(handle);
        flushed
    }

    pub fn write(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let handle = self.create(path)?;
        let written = self.vfs.write(handle, 0, bytes);
        written.and(self.close(handle))
    }

    pub fn read(&self, path: &str) -> Result<Vec<u8>> {
        let handle = self.open(path, Access::Read)?;
        let bytes = self.vfs.read(handle, 0, 1 << 20);
        self.vfs.release(handle);
        Ok(bytes?.to_vec())
    }

    pub fn unlink(&self, path: &str) -> Result<()> {
        let (parent, name) = self.place(path);
        self.vfs.unlink(parent, name)
    }

    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        let ((parent, name), (new_parent, new_name)) = (self.place(from), self.place(to));
        self.vfs.rename(parent, name, new_parent, new_name, crate::vfs::Replace::Yes)
    }

    pub fn names(&self, path: &str) -> Vec<String> {
        let dir = self.vfs.listings().opendir(self.find(path).expect("there")).expect("opened");
        let names = (0..).map_while(|at| self.vfs.listings().readdir(&dir, at).expect("read"));
        names.map(|listed| listed.name.clone()).collect()
    }
}
