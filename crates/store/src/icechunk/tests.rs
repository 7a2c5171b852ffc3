//! Repositories that the library of Icechunk has made (`tests/fixtures/icechunk`). The tests in
//! `tests/peers/test_icechunk.py` compare their elements.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::directory::{DirectoryStore, Durability};
use crate::memory::MemoryStore;
use crate::{Condition, StoreEntry};

/// The length of the header of a file.
const HEADER_LEN: usize = 39;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures/icechunk")
        .join(name)
        .join("repo")
}

fn opened(own: &Store, state: &str) -> Result<Store> {
    open(own, state, Prefix::root(), Duration::from_secs(60), |_| {})
}

fn directory(name: &str) -> Store {
    let store = DirectoryStore::open(&fixture(name), Durability::Buffered).expect("a directory");
    Store::new(Arc::new(store)).read_only()
}

fn keys(store: &Store, prefix: &str) -> Vec<String> {
    let list = store.list().expect("listable");
    let keys = list.list_prefix(&Prefix::parse(prefix).expect("valid")).expect("listed");
    let mut keys: Vec<String> = keys.map(|key| key.expect("a key").to_string()).collect();
    keys.sort();
    keys
}

#[test]
fn a_snapshot_has_a_metadata_file_for_each_node_and_its_chunks() {
    for name in ["library1_spec1", "library2_spec2"] {
        let store = opened(&directory(name), "tag:v1").expect("opened");
        assert!(!store.is_writable());
        let all = keys(&store, "");
        assert_eq!(all.iter().filter(|key| key.ends_with("zarr.json")).count(), 14, "{all:?}");
        assert_eq!(
            keys(&store, "gone"),
            ["gone/x/c/0", "gone/x/c/1", "gone/x/c/2", "gone/x/zarr.json", "gone/zarr.json"]
        );
        assert_eq!(keys(&store, "scalar"), ["scalar/c", "scalar/zarr.json"]);
        assert_eq!(keys(&store, "empty"), ["empty/zarr.json"]);
        assert_eq!(keys(&store, "virtual/c"), ["virtual/c/0", "virtual/c/1", "virtual/c/2"]);
        assert_eq!((keys(&store, "many/c").len(), keys(&store, "split/c").len()), (1500, 40));
        assert!(keys(&store, "none").is_empty() && keys(&store, "a/c/0/0").is_empty());
        let all: Vec<Key> = all.iter().map(|key| Key::parse(key).expect("valid")).collect();
        let stats = store.read().stat(&all).expect("stats");
        assert!(stats.iter().all(Option::is_some), "a listed key has no value");
        for name in ["none/zarr.json", "a/c/9/9", "a/c/0", "a/c/00/0", "a/c/0/0/0", "scalar/c/0"] {
            let key = Key::parse(name).expect("valid");
            assert!(store.stat(&key).expect("a stat").is_none(), "{name}");
        }
    }
}

#[test]
fn other_states_are_below_the_private_prefix_and_unlisted() {
    for (name, count) in [("library1_spec1", 4), ("library2_spec2", 5)] {
        let store = opened(&directory(name), MAIN).expect("opened");
        assert!(store.list().expect("listable").has_states());
        assert!(keys(&store, "").iter().all(|key| !key.starts_with('.')));
        let list = store.list().expect("listable");
        let names = |prefix: &str| {
            let entries = list.list_dir(&Prefix::parse(prefix).expect("valid")).expect("listed");
            let names = entries.filter_map(|entry| match entry.expect("an entry") {
                StoreEntry::Prefix(name) => Some(name),
                StoreEntry::Key(_) => None,
            });
            names.collect::<Vec<String>>()
        };
        assert_eq!(names(".zarrfs/branches"), ["dev", "main"]);
        assert_eq!(names(".zarrfs/tags"), ["v1", "v2.0"]);
        assert_eq!(names(".zarrfs/snapshots").len(), count);
        assert_eq!(
            keys(&store, ".zarrfs/tags/v1").len(),
            keys(&opened(&directory(name), "tag:v1").unwrap(), "").len()
        );
    }
}

/// The files of a fixture without compression, so that a changed byte changes what they say.
fn unpacked(name: &str) -> BTreeMap<String, Vec<u8>> {
    let store = directory(name);
    let mut files = BTreeMap::new();
    for key in store.list().expect("listable").list().expect("listed") {
        let key = key.expect("a key");
        let bytes = store.get(&key, 1 << 20).expect("read").expect("there").bytes;
        let kind = match key.as_str() {
            "repo" => Some(IcechunkFile::Repository),
            text if text.starts_with("snapshots/") => Some(IcechunkFile::Snapshot),
            text if text.starts_with("manifests/") => Some(IcechunkFile::Manifest),
            _ => None,
        };
        let file = match kind {
            Some(kind) => {
                let mut header = bytes[..HEADER_LEN].to_vec();
                header[HEADER_LEN - 1] = 0;
                [header, unpack(&bytes, kind).expect("unpacked").to_vec()].concat()
            }
            None => bytes.to_vec(),
        };
        files.insert(key.to_string(), file);
    }
    files
}

/// Returns a store in memory with these files.
fn stored(files: &BTreeMap<String, Vec<u8>>) -> Store {
    let own = Store::new(Arc::new(MemoryStore::new()));
    for (key, bytes) in files {
        let (key, pieces) = (Key::parse(key).expect("valid"), [Bytes::from(bytes.clone()).into()]);
        own.write().expect("writable").set(&key, &pieces, Condition::Always).expect("set");
    }
    own
}

/// Opens a repository, lists everything and reads everything. Anything may fail.
fn read_all(files: &BTreeMap<String, Vec<u8>>) -> usize {
    let own = stored(files);
    let mut read = 0;
    for state in [MAIN, "tag:v1"] {
        let Ok(store) = opened(&own, state) else { continue };
        let list = store.list().expect("listable");
        for prefix in ["", ".zarrfs/tags", ".zarrfs/snapshots"] {
            let Ok(keys) = list.list_prefix(&Prefix::parse(prefix).expect("valid")) else {
                continue;
            };
            for key in keys.take(5_000).take_while(Result::is_ok).flatten() {
                read += usize::from(store.get(&key, 1 << 20).is_ok());
            }
        }
    }
    read
}

fn cases() -> u32 {
    if std::env::var_os("ZARRFS_LONG").is_some() { 60 } else { 5 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]
    #[test]
    fn a_damaged_repository_is_an_error_and_never_a_panic(
        is_second in any::<bool>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..12),
    ) {
        let mut files = unpacked(if is_second { "library2_spec2" } else { "library1_spec1" });
        for (file, at, byte) in damage {
            let name = file.get(&files.keys().cloned().collect::<Vec<_>>()).clone();
            let bytes = files.get_mut(&name).expect("there");
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        read_all(&files);
    }
}

#[test]
fn a_file_under_the_name_of_another_is_corrupt() {
    for fixture in ["library1_spec1", "library2_spec2"] {
        for kind in ["snapshot", "manifest"] {
            let mut files = unpacked(fixture);
            let directory = format!("{kind}s/");
            let names: Vec<String> =
                files.keys().filter(|key| key.starts_with(&directory)).cloned().collect();
            assert!(names.len() > 1, "{fixture}: {names:?}");
            // Each gets the bytes of the one before it.
            let mut moved = files[&names[names.len() - 1]].clone();
            for name in &names {
                moved = std::mem::replace(files.get_mut(name).expect("there"), moved);
            }
            let read = opened(&stored(&files), MAIN).and_then(|store| {
                let key = Key::parse("many/c/0/0").expect("valid");
                store.get(&key, 1 << 20)
            });
            let error = read.expect_err("refused").to_string();
            let is_named = error.starts_with(&directory);
            assert!(is_named && error.contains(&format!("contains {kind} ")), "{error}");
        }
    }
}

#[test]
fn an_undamaged_repository_without_compression_is_read() {
    let read = read_all(&unpacked("library2_spec2"));
    // Virtual chunks need permission.
    assert!(read > 500, "{read} values were read");
}

#[test]
fn a_repository_of_another_version_is_refused() {
    let mut files = unpacked("library2_spec2");
    files.get_mut("repo").expect("there")[HEADER_LEN - 3] = 3;
    let own = Store::new(Arc::new(MemoryStore::new()));
    let pieces = [Bytes::from(files["repo"].clone()).into()];
    let key = Key::parse("repo").expect("valid");
    own.write().unwrap().set(&key, &pieces, Condition::Always).expect("set");
    let error = opened(&own, MAIN).expect_err("refused").to_string();
    assert!(error.starts_with("repo: version 3 of the Icechunk specification"), "{error}");
}

/// A flatbuffer that is written from its start to its end.
struct FlatbufferWriter(Vec<u8>);

impl FlatbufferWriter {
    /// Adds bytes, and returns where they begin.
    fn add(&mut self, bytes: &[u8]) -> usize {
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self.0.extend(bytes);
        self.0.len() - bytes.len()
    }

    /// Adds a table whose fields have 12 bytes, and returns where it and where they begin.
    fn table<const N: usize>(&mut self, fields: [usize; N]) -> (usize, [usize; N]) {
        let len = fields.iter().max().map_or(0, |last| last + 1);
        let mut vtable = vec![0; 4 + 2 * len];
        vtable[0] = u8::try_from(vtable.len()).unwrap();
        for (at, field) in fields.iter().enumerate() {
            vtable[4 + 2 * field] = u8::try_from(4 + 12 * at).unwrap();
        }
        let vtable = self.add(&vtable);
        let table = self.add(&vec![0; 4 + 12 * N]);
        let distance = u32::try_from(table - vtable).unwrap();
        self.0[table..table + 4].copy_from_slice(&distance.to_le_bytes());
        (table, std::array::from_fn(|at| table + 4 + 12 * at))
    }

    /// Adds a vector of elements of `size` bytes, and returns where its elements begin.
    fn vector(&mut self, field: usize, count: usize, size: usize) -> usize {
        let mut bytes = u32::try_from(count).unwrap().to_le_bytes().to_vec();
        bytes.resize(4 + size * count, b'/');
        let at = self.add(&bytes);
        self.lead(field, at);
        at + 4
    }

    fn lead(&mut self, from: usize, to: usize) {
        let distance = u32::try_from(to - from).unwrap();
        self.0[from..from + 4].copy_from_slice(&distance.to_le_bytes());
    }

    /// Writes the file that a key of a repository has.
    fn put(&self, own: &Store, key: &str, kind: u8) {
        let header = unpacked("library2_spec2")["repo"][..HEADER_LEN - 2].to_vec();
        let pieces = [Bytes::from([&header[..], &[kind, 0], &self.0].concat()).into()];
        let key = Key::parse(key).expect("valid");
        own.write().unwrap().set(&key, &pieces, Condition::Always).expect("set");
    }
}

/// Returns a flatbuffer in which all elements of the list `field` are one table, whose field `name`
/// is a string of `len` slashes.
fn repeated(field: usize, name: usize, count: usize, len: usize) -> FlatbufferWriter {
    let mut written = FlatbufferWriter(vec![0; 4]);
    let (root, [list]) = written.table([field]);
    written.lead(0, root);
    let elements = written.vector(list, count, 4);
    let (table, [string]) = written.table([name]);
    written.vector(string, len, 1);
    (0..count).for_each(|at| written.lead(elements + 4 * at, table));
    written
}

#[test]
fn names_and_paths_that_are_repeated_take_no_time() {
    let own = Store::new(Arc::new(MemoryStore::new()));
    let long = 1 << 20;
    // A minute of copying, if nothing ends it.
    repeated(2, 0, long, long).put(&own, "repo", 6);
    let error = opened(&own, MAIN).expect_err("refused").to_string();
    assert!(error.contains("longer than it") || error.contains("no such snapshot"), "{error}");
    let id = "1CECHNKREP0F1RSTCMT0";
    let ours = format!("{{\"snapshot\": \"{id}\"}}");
    let own = Store::new(Arc::new(MemoryStore::new()));
    let key = Key::parse("refs/branch.main/ref.json").expect("valid");
    let pieces = [Bytes::from(ours).into()];
    own.write().unwrap().set(&key, &pieces, Condition::Always).expect("set");
    for len in [1000, long] {
        repeated(2, 1, 100_000, len).put(&own, &format!("snapshots/{id}"), 1);
        let error = opened(&own, MAIN).expect_err("refused").to_string();
        assert!(error.contains("invalid path") && error.len() < 400, "{error}");
    }
}
