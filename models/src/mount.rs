//! A hierarchy in memory, and calls on its tree as the kernel makes them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use shuttle::rand::Rng;

use scheduled::error::{Kind, Result};
use scheduled::hierarchy::{self, Hierarchy};
use scheduled::store::directory::{DirectoryStore, Durability};
use scheduled::store::memory::MemoryStore;
use scheduled::store::{Condition, Key, Store};
use scheduled::vfs::{Access, Ownership, ROOT, Replace, Vfs, VfsOptions};

const GROUP: &str = r#"{"zarr_format":3,"node_type":"group"}"#;
const BYTES: &str = r#"{"name":"bytes","configuration":{"endian":"little"}}"#;

/// The bytes of a chunk: two elements of uint16.
pub const CHUNK_LEN: usize = 4;

/// Returns the metadata of an array of eight `uint16`, in chunks or shards of this many.
fn array(codecs: &str, chunk_len: u64) -> String {
    format!(
        r#"{{"zarr_format":3,"node_type":"array","shape":[8],"data_type":"uint16",
        "chunk_grid":{{"name":"regular","configuration":{{"chunk_shape":[{chunk_len}]}}}},
        "chunk_key_encoding":{{"name":"default"}},"fill_value":0,"codecs":[{codecs}],
        "attributes":{{"units":"K"}}}}"#
    )
}

/// Returns the metadata of an array whose chunks are stored one by one.
pub fn plain() -> String {
    array(BYTES, 2)
}

/// Returns the metadata of an array of two shards, with two chunks each.
pub fn sharded() -> String {
    let codecs = format!(
        r#"{{"name":"sharding_indexed","configuration":{{"chunk_shape":[2],"codecs":[{BYTES}],
        "index_codecs":[{BYTES},{{"name":"crc32c"}}],"index_location":"end"}}}}"#
    );
    array(&codecs, 4)
}

/// Returns one of both, which the seed chooses.
pub fn plain_or_sharded() -> String {
    if one_of_two() { plain() } else { sharded() }
}

/// Whether the seed chooses the first of two things.
pub fn one_of_two() -> bool {
    shuttle::rand::thread_rng().gen_bool(0.5)
}

/// Returns a chunk whose elements have this value.
pub fn chunk(value: u8) -> [u8; CHUNK_LEN] {
    [value, 0, value, 0]
}

/// Returns the value of all elements of a chunk. Fails if they differ.
pub fn value_of(bytes: &[u8]) -> u8 {
    let value = *bytes.first().expect("a chunk has bytes");
    assert_eq!(bytes, chunk(value), "parts of several chunks");
    value
}

/// A mounted hierarchy.
#[derive(Clone)]
pub struct Mount {
    pub vfs: Arc<Vfs>,
    pub store: Store,
}

/// Pending chunks are due at once.
pub fn options() -> VfsOptions {
    VfsOptions { writeback_delay: Duration::ZERO, ..VfsOptions::default() }
}

/// Stores a value as another program would.
fn put(store: &Store, at: &str, bytes: &[u8]) {
    let piece = Bytes::copy_from_slice(bytes).into();
    let key = Key::parse(at).expect("a key");
    store.write().expect("writable").set(&key, &[piece], Condition::Always).expect("stored");
}

fn directories() -> PathBuf {
    Path::new("/dev/shm").join(format!("zarrfs-models-{}", std::process::id()))
}

/// Removes the directories that models have made.
pub fn remove_directories() {
    drop(std::fs::remove_dir_all(directories()));
}

/// Returns a tree that asks the store for newer values each time, or that trusts what it has read
/// for an hour: the seed chooses.
fn tree(store: &Store, options: VfsOptions) -> Arc<Vfs> {
    let metadata_ttl = Duration::from_secs(if one_of_two() { 0 } else { 3600 });
    let of_hierarchy =
        hierarchy::HierarchyOptions { metadata_ttl, ..hierarchy::HierarchyOptions::default() };
    let hierarchy = Hierarchy::open(store.clone(), None, of_hierarchy).expect("a hierarchy");
    Arc::new(Vfs::new(hierarchy, options))
}

impl Mount {
    /// Mounts groups and arrays: the keys of metadata files, and what they contain.
    pub fn with(documents: &[(&str, &str)], options: VfsOptions) -> Self {
        let store = Store::new(Arc::new(MemoryStore::new()));
        for (at, text) in [("zarr.json", GROUP)].iter().chain(documents) {
            put(&store, at, text.as_bytes());
        }
        Self { vfs: tree(&store, options), store }
    }

    /// Mounts a group in a directory, with a file that has the names `p` and `q`.
    /// [`remove_directories`] removes it.
    pub fn of_directory() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = directories().join(number.to_string());
        std::fs::create_dir_all(&path).expect("a directory");
        std::fs::write(path.join("zarr.json"), GROUP).expect("a group");
        std::fs::write(path.join("p"), "outside").expect("a file");
        std::fs::hard_link(path.join("p"), path.join("q")).expect("linked");
        let store = DirectoryStore::open(&path, Durability::Buffered).expect("a store");
        let store = Store::of_files(Arc::new(store.keeping_directories()));
        Self { vfs: tree(&store, options()), store }
    }

    /// Mounts the array `x`.
    pub fn of(array: &str) -> Self {
        Self::with(&[("x/zarr.json", array)], options())
    }

    /// Mounts the array `g/x`.
    pub fn of_group(array: &str) -> Self {
        Self::with(&[("g/zarr.json", GROUP), ("g/x/zarr.json", array)], options())
    }

    /// Mounts the same store again.
    pub fn again(&self) -> Self {
        Self { vfs: tree(&self.store, options()), store: self.store.clone() }
    }

    /// Returns the inode number of a path, and counts the look-ups.
    pub fn find(&self, path: &str) -> Result<u64> {
        path.split('/')
            .filter(|name| !name.is_empty())
            .try_fold(ROOT, |parent, name| self.vfs.lookup(parent, name).map(|attr| attr.number))
    }

    fn place<'p>(&self, path: &'p str) -> Result<(u64, &'p str)> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.find(parent)?, name))
    }

    /// Opens a file, and looks it up again if its name leads to another one by now, as the kernel
    /// does.
    pub fn open(&self, path: &str, access: Access) -> Result<u64> {
        let open = || -> Result<u64> { Ok(self.vfs.open(self.find(path)?, access)?.handle) };
        match open() {
            Err(error) if [Kind::NotFound, Kind::Stale].contains(&error.kind()) => open(),
            opened => opened,
        }
    }

    /// Creates a file, or opens the one that is there, and truncates it.
    pub fn create(&self, path: &str) -> Result<u64> {
        let (parent, name) = self.place(path)?;
        let owner = Ownership::of_process(0o644);
        Ok(self.vfs.create(parent, name, owner, Access::Truncate, false)?.1.handle)
    }

    /// Closes a handle. The error is that of the flush.
    pub fn close(&self, handle: u64) -> Result<()> {
        let flushed = self.vfs.flush(handle);
        self.vfs.release(handle);
        flushed
    }

    /// Creates a file with these bytes.
    pub fn write(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let handle = self.create(path)?;
        let written = self.vfs.write(handle, 0, bytes);
        written.and(self.close(handle))
    }

    /// The same of the first chunk of an array, whose directory is not there yet.
    pub fn write_first(&self, array: &str, bytes: &[u8]) {
        let owner = Ownership::of_process(0o755);
        self.vfs.mkdir(self.find(array).expect("there"), "c", owner).expect("made");
        self.write(&format!("{array}/c/0"), bytes).expect("written");
    }

    /// Writes bytes into a file that is there.
    pub fn update(&self, path: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        let handle = self.open(path, Access::Write)?;
        let written = self.vfs.write(handle, offset, bytes);
        written.and(self.close(handle))
    }

    /// Returns the bytes of a file.
    pub fn read(&self, path: &str) -> Result<Vec<u8>> {
        let handle = self.open(path, Access::Read)?;
        let bytes = self.vfs.read(handle, 0, 1 << 20);
        self.vfs.release(handle);
        Ok(bytes?.to_vec())
    }

    /// Removes a file.
    pub fn unlink(&self, path: &str) -> Result<()> {
        let (parent, name) = self.place(path)?;
        self.vfs.unlink(parent, name)
    }

    /// Renames a file or directory.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        let ((parent, name), (new_parent, new_name)) = (self.place(from)?, self.place(to)?);
        self.vfs.rename(parent, name, new_parent, new_name, Replace::Yes)
    }

    /// Returns a number of `.zarrfs/stats`.
    pub fn stat(&self, name: &str) -> u64 {
        number(&self.vfs.stats(), name)
    }

    /// Nothing is open or unstored any more, after everything was stored.
    pub fn check_idle(&self) {
        self.vfs.sync().expect("synced");
        self.vfs.tick();
        let stats = self.vfs.stats();
        for name in ["unstored_bytes", "open_files"] {
            assert_eq!(number(&stats, name), 0, "{name}");
        }
    }

    /// The mount has noted no error.
    pub fn check_no_errors(&self) {
        assert_eq!(self.vfs.errors(), "", "errors in the journal");
    }

    /// The chunks of an array have these values, here and in a new mount.
    pub fn check_chunks(&self, path: &str, values: &[u8]) {
        self.check_idle();
        for (mount, which) in [(self, "here"), (&self.again(), "in a new mount")] {
            for (at, value) in values.iter().enumerate() {
                let read = mount.read(&format!("{path}/c/{at}")).expect("a chunk");
                assert_eq!(value_of(&read), *value, "chunk {at} {which}");
            }
        }
    }
}

fn number(stats: &str, name: &str) -> u64 {
    let line = format!("zarrfs_{name} ");
    let found = stats.lines().find_map(|text| text.strip_prefix(&line));
    found.and_then(|number| number.parse().ok()).expect("a number")
}

/// The call may fail only because the file, or the name that led to it, has gone.
pub fn check_gone<T>(result: Result<T>) {
    if let Err(error) = result {
        assert!([Kind::NotFound, Kind::Stale].contains(&error.kind()), "{error:?}");
    }
}
