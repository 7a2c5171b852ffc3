//! A mount whose caches are always old: between every two of its steps another program may have
//! replaced, grown, shrunk or removed the array, or made another node. The mount then changes the
//! node that it means, or nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::error::Result;
use crate::hierarchy::{self, Hierarchy};
use crate::json::parse_object;
use crate::memory_server::{MadeRequest, MemoryServer};
use crate::metadata::Dialect;
use crate::store::directory::{DirectoryStore, Durability};
use crate::store::memory::MemoryStore;
use crate::store::{ByteRange, Condition, Key, Ownership, Prefix, Presence, Store};
use crate::vfs::{Access, ROOT, Vfs, VfsOptions, Writeback};
use crate::width::ToUsize;

/// Longer than a test.
const LONG: Duration = Duration::from_secs(3600);

/// Where the hierarchy is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum StoreKind {
    Memory,
    Directory,
    Server,
}

pub(super) const KINDS: [StoreKind; 3] =
    [StoreKind::Memory, StoreKind::Directory, StoreKind::Server];

/// A store, as the mount sees it, and as others do.
pub(super) struct BothStores {
    mine: Store,
    theirs: Store,
    pub(super) server: Option<Arc<MemoryServer>>,
    _dir: Option<tempfile::TempDir>,
}

impl BothStores {
    fn new(kind: StoreKind) -> Self {
        match kind {
            StoreKind::Memory => {
                let store = Store::new(Arc::new(MemoryStore::new()));
                Self { mine: store.clone(), theirs: store, server: None, _dir: None }
            }
            StoreKind::Directory => {
                let dir = tempfile::tempdir().expect("a directory");
                let open = || {
                    let store = DirectoryStore::open(dir.path(), Durability::Buffered);
                    Store::of_files(Arc::new(store.expect("opens")))
                };
                Self { mine: open(), theirs: open(), server: None, _dir: Some(dir) }
            }
            StoreKind::Server => {
                let (mine, server) = MemoryServer::new(LONG);
                let theirs = server.store(crate::store::remote::RemoteLimits {
                    ttl: Duration::ZERO,
                    ..crate::store::remote::RemoteLimits::DEFAULT
                });
                Self { mine, theirs, server: Some(server), _dir: None }
            }
        }
    }

    pub(super) fn put(&self, key: &str, text: &str) {
        let (key, bytes) = (key_of(key), Bytes::copy_from_slice(text.as_bytes()));
        let write = self.theirs.write().expect("writable");
        write.set(&key, &[bytes.into()], Condition::Always).expect("set");
    }

    fn erase_below(&self, prefix: &str) {
        let prefix = Prefix::parse(prefix).expect("a prefix");
        self.theirs.write().expect("writable").erase_prefix(&prefix).expect("erased");
    }

    /// Everything that the store has, without what zarrfs keeps for itself.
    pub(super) fn values(&self) -> BTreeMap<String, Vec<u8>> {
        let keys = self.theirs.list().expect("lists").list_prefix(&Prefix::root()).expect("listed");
        let keys = keys.map(|key| key.expect("a key")).filter(|key| !key.as_str().starts_with('.'));
        let value = |key: Key| {
            let range = [(key.clone(), ByteRange::first(u64::MAX))];
            let found =
                self.theirs.read().get_partial_values(&range).expect("read").pop().flatten();
            Some((key.to_string(), found?.bytes.to_vec()))
        };
        keys.filter_map(value).collect()
    }

    fn text(&self, key: &str) -> Option<Value> {
        let text = self.values().remove(key)?;
        Some(Value::Object(parse_object(&text).expect("an object")))
    }
}

fn key_of(key: &str) -> Key {
    Key::parse(key).expect("a key")
}

/// An array that is another one for every `number`.
fn array(number: u64, chunks: u64, is_sharded: bool) -> String {
    let dtype = ["uint8", "uint16", "uint32"][(number % 3).to_usize()];
    let bytes = json!({"name": "bytes", "configuration": {"endian": "little"}});
    let shards = json!({"name": "sharding_indexed", "configuration": {
        "chunk_shape": [2], "codecs": [bytes], "index_location": "end",
        "index_codecs": [bytes, {"name": "crc32c"}],
    }});
    json!({
        "zarr_format": 3, "node_type": "array", "shape": [chunks * 2], "data_type": dtype,
        "chunk_grid": {"name": "regular", "configuration": {
            "chunk_shape": [if is_sharded { 4 } else { 2 }],
        }},
        "chunk_key_encoding": {"name": "default"}, "fill_value": number,
        "codecs": [if is_sharded { shards } else { bytes }],
        "attributes": {},
    })
    .to_string()
}

const GROUP: &str = r#"{"zarr_format":3,"node_type":"group","attributes":{}}"#;

/// What makes a node another one.
fn meaning(document: &Value) -> (Value, Value, Value) {
    let member = |name: &str| document.get(name).cloned().unwrap_or_default();
    (member("node_type"), member("data_type"), member("fill_value"))
}

fn length(document: &Value) -> u64 {
    document["shape"][0].as_u64().unwrap_or_default()
}

pub(super) struct Pair {
    pub(super) place: BothStores,
    pub(super) mine: Arc<Vfs>,
    is_sharded: bool,
    number: u64,
    attribute: u64,
    /// Whether the mount has made a directory where no node was.
    is_made: bool,
}

impl Pair {
    pub(super) fn new(kind: StoreKind, is_sharded: bool, writeback: Writeback) -> Self {
        let place = BothStores::new(kind);
        place.put("zarr.json", GROUP);
        place.put("a/zarr.json", &array(0, 4, is_sharded));
        let options = hierarchy::HierarchyOptions {
            metadata_ttl: LONG,
            ..hierarchy::HierarchyOptions::default()
        };
        let hierarchy =
            Hierarchy::open(place.mine.clone(), Some(Dialect::V3), options).expect("opens");
        let options = VfsOptions { writeback, writeback_delay: LONG, ..VfsOptions::default() };
        let mine = Arc::new(Vfs::new(hierarchy, options));
        let pair = Self { place, mine, is_sharded, number: 0, attribute: 0, is_made: false };
        pair.shown("a").expect("it is cached");
        pair
    }

    pub(super) fn find(&self, path: &str) -> Result<u64> {
        path.split('/').try_fold(ROOT, |number, name| Ok(self.mine.lookup(number, name)?.number))
    }

    fn split<'p>(&self, path: &'p str) -> Result<(u64, &'p str)> {
        match path.rsplit_once('/') {
            Some((above, name)) => Ok((self.find(above)?, name)),
            None => Ok((ROOT, path)),
        }
    }

    /// The metadata file as the mount shows it.
    fn shown(&self, node: &str) -> Result<Value> {
        let handle = self.mine.open(self.find(&format!("{node}/zarr.json"))?, Access::Read)?.handle;
        let bytes = self.mine.read(handle, 0, 1 << 20);
        self.mine.release(handle);
        Ok(Value::Object(parse_object(&bytes?)?))
    }

    /// Writes a file, and has it stored.
    fn write(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let (parent, name) = if let Ok(found) = self.split(path) {
            found
        } else {
            let (above, below) = path.rsplit_once('/').expect("a directory");
            let (parent, name) = self.split(above)?;
            let made = self.mine.mkdir(parent, name, Ownership::of_process(0o755))?;
            (made.number, below)
        };
        let owner = Ownership::of_process(0o644);
        let handle = self.mine.create(parent, name, owner, Access::Truncate, false)?.1.handle;
        let written = self.mine.write(handle, 0, bytes);
        let stored = written.and_then(|()| self.mine.fsync(handle));
        let closed = self.mine.flush(handle);
        self.mine.release(handle);
        stored.and(closed)
    }

    /// Removes a tree, as `rm -r` does.
    fn remove(&self, path: &str) -> Result<()> {
        let number = self.find(path)?;
        let listings = self.mine.listings();
        let dir = listings.opendir(number)?;
        let names = (0..).map_while(|at| listings.readdir(&dir, at).ok().flatten());
        let names: Vec<String> = names.map(|listed| listed.name.clone()).collect();
        for name in names {
            let below = format!("{path}/{name}");
            match self.mine.unlink(number, &name) {
                Err(error) if error.errno() == libc::EISDIR => self.remove(&below)?,
                unlinked => unlinked?,
            }
        }
        let (parent, name) = self.split(path)?;
        self.mine.rmdir(parent, name)
    }
}

#[derive(Debug, Clone)]
enum ReplacedStep {
    /// The mount writes a chunk, or a part of it.
    Write(u64, bool),
    /// It erases a chunk.
    Unlink(u64),
    /// It sets an attribute: by the extended attribute, or by writing the metadata file.
    Attribute(bool),
    /// It writes a metadata file with another shape.
    Resize(u64),
    /// It removes the array, or makes it, or moves it.
    Remove,
    Create,
    Rename,
    /// Another program replaces the array, or the array by a group, or removes it.
    Replace,
    ReplaceByGroup,
    Gone,
    /// It changes the shape, stores a chunk, or makes a node where the mount may move one.
    TheirResize(u64),
    TheirChunk(u64),
    TheirOther,
}

fn step() -> impl Strategy<Value = ReplacedStep> {
    prop_oneof![
        6 => (0..6_u64, any::<bool>()).prop_map(|(chunk, is_part)| ReplacedStep::Write(chunk, is_part)),
        2 => (0..6_u64).prop_map(ReplacedStep::Unlink),
        2 => any::<bool>().prop_map(ReplacedStep::Attribute),
        2 => (1..7_u64).prop_map(ReplacedStep::Resize),
        1 => Just(ReplacedStep::Remove),
        1 => Just(ReplacedStep::Create),
        1 => Just(ReplacedStep::Rename),
        4 => Just(ReplacedStep::Replace),
        1 => Just(ReplacedStep::ReplaceByGroup),
        1 => Just(ReplacedStep::Gone),
        3 => (1..7_u64).prop_map(ReplacedStep::TheirResize),
        2 => (0..6_u64).prop_map(ReplacedStep::TheirChunk),
        1 => Just(ReplacedStep::TheirOther),
    ]
}

type StoreContents = BTreeMap<String, Vec<u8>>;

/// The keys whose values differ.
fn changed(before: &StoreContents, after: &StoreContents) -> Vec<String> {
    let keys = before.keys().chain(after.keys());
    let mut keys: Vec<String> =
        keys.filter(|key| before.get(*key) != after.get(*key)).cloned().collect();
    keys.dedup();
    keys.sort();
    keys.dedup();
    keys
}

impl Pair {
    /// What another program does. It knows the store as it is.
    fn theirs(&mut self, step: &ReplacedStep) {
        let now = self.place.text("a/zarr.json");
        match step {
            ReplacedStep::Replace => {
                self.place.erase_below("a/");
                self.number += 1;
                let new = array(self.number, 1 + self.number % 5, self.is_sharded);
                self.place.put("a/zarr.json", &new);
            }
            ReplacedStep::ReplaceByGroup => {
                self.place.erase_below("a/");
                self.place.put("a/zarr.json", GROUP);
            }
            ReplacedStep::Gone => self.place.erase_below("a/"),
            ReplacedStep::TheirResize(chunks) => {
                let Some(mut now) = now.filter(|now| now["node_type"] == "array") else { return };
                now["shape"] = json!([chunks * 2]);
                self.place.put("a/zarr.json", &now.to_string());
            }
            ReplacedStep::TheirChunk(chunk) if !self.is_sharded => {
                let Some(now) = now.filter(|now| now["node_type"] == "array") else { return };
                let len = 2 * item_len(&now);
                self.place.put(&format!("a/c/{chunk}"), &"t".repeat(len));
            }
            ReplacedStep::TheirOther => self.place.put("b/zarr.json", GROUP),
            _ => {}
        }
    }

    /// Takes a step in the mount, and notes which changes it may make.
    fn mine(&mut self, step: &ReplacedStep) {
        let before = self.place.values();
        let (stored, shown) = (self.place.text("a/zarr.json"), self.shown("a").ok());
        let is_seen = match (&stored, &shown) {
            (Some(stored), Some(shown)) => meaning(stored) == meaning(shown),
            _ => false,
        };
        // What could not be stored before may be stored into the same array with this.
        let waits = !self.mine.unstored().is_empty();
        let (done, mut may_change) = self.attempt(step, shown.as_ref());
        may_change.extend(waits.then(|| "a/c/".to_owned()));
        let after = self.place.values();
        let changes = changed(&before, &after);
        let context = format!("{step:?} {done:?}: {changes:?}\nstored {stored:?}\nshown {shown:?}");
        self.is_made = (self.is_made || stored.is_none()) && !is_seen;
        if stored.is_none() {
            // Files may be made where no node is, and be written again.
            let is_of_others =
                |key: &&String| before.get(*key).is_some_and(|value| value.contains(&b't'));
            let mut old = changes.iter().filter(is_of_others);
            let is_removal = matches!(
                step,
                ReplacedStep::Rename | ReplacedStep::Remove | ReplacedStep::Unlink(_)
            );
            assert!(is_removal || old.next().is_none(), "{context}");
            return;
        }
        if !matches!(step, ReplacedStep::Create | ReplacedStep::Rename) && !is_seen {
            // A group may get files, but keeps what it has.
            let is_group = stored.is_some_and(|stored| stored["node_type"] == "group");
            let is_new = |key: &String| is_group && !before.contains_key(key);
            // `rm -r` and `setxattr` of a directory that this mount has made change a node that
            // another program has put there since (docs/reliability.md).
            if self.is_made && matches!(step, ReplacedStep::Remove | ReplacedStep::Attribute(true))
            {
                return;
            }
            assert!(changes.iter().all(is_new), "it was done to another node: {context}");
            return;
        }
        let is_allowed = |key: &String| may_change.iter().any(|may| key.starts_with(may.as_str()));
        assert!(changes.iter().all(is_allowed), "more has changed: {context}");
        match (step, done) {
            (ReplacedStep::Write(chunk, _), Ok(())) => {
                let stored = stored.expect("seen");
                let is_array = stored["node_type"] == "array";
                assert!(!is_array || chunk * 2 < length(&stored), "it lies outside: {context}");
            }
            (ReplacedStep::Attribute(_), Ok(())) => {
                let now = self.place.text("a/zarr.json").expect("there");
                assert_eq!(now["attributes"]["mine"], json!(self.attribute), "{context}");
                let mut now = now;
                let mut stored = stored.expect("seen");
                (now["attributes"], stored["attributes"]) = (json!({}), json!({}));
                assert_eq!(now, stored, "more than an attribute: {context}");
            }
            (ReplacedStep::Resize(chunks), Ok(()))
                if stored.as_ref().is_some_and(|stored| stored["node_type"] == "array") =>
            {
                let now = length(&self.place.text("a/zarr.json").expect("there"));
                let (stored, shown) =
                    (length(&stored.expect("seen")), length(&shown.expect("seen")));
                let new = chunks * 2;
                let wanted = match (new == shown, stored == shown) {
                    (true, _) => stored,
                    (false, true) => new,
                    (false, false) if new > shown => new.max(stored),
                    (false, false) => new.min(stored),
                };
                assert_eq!(now, wanted, "{context}");
            }
            (ReplacedStep::Remove, Ok(())) => {
                assert!(!after.keys().any(|key| key.starts_with("a/")));
            }
            _ => {}
        }
    }

    /// Returns whether the mount has done it, and the beginnings of the keys that may change.
    fn attempt(&mut self, step: &ReplacedStep, shown: Option<&Value>) -> (Result<()>, Vec<String>) {
        let keys = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
        let chunk_key =
            |chunk: u64| format!("a/c/{}", if self.is_sharded { chunk / 2 } else { chunk });
        match step {
            ReplacedStep::Write(chunk, is_part) => {
                let len = 2 * shown.map_or(1, item_len);
                let path = format!("a/c/{chunk}");
                let written = match self.find(&path).ok().filter(|_| *is_part) {
                    Some(number) => self.write_part(number),
                    None => self.write(&path, &vec![b'm'; len]),
                };
                // A sharded chunk that could not be stored may be stored with the next.
                // One that the mount has made is not sharded.
                (written, vec![chunk_key(*chunk), path])
            }
            ReplacedStep::Unlink(chunk) => {
                let unlinked = self
                    .find("a/c")
                    .and_then(|parent| self.mine.unlink(parent, &chunk.to_string()));
                (unlinked.and_then(|()| self.mine.sync()), keys(&["a/c/"]))
            }
            ReplacedStep::Attribute(is_extended) => {
                self.attribute += 1;
                (self.set_attribute(*is_extended, shown), keys(&["a/zarr.json"]))
            }
            ReplacedStep::Resize(chunks) => {
                let Some(mut shown) = shown.cloned().filter(|shown| shown["node_type"] == "array")
                else {
                    return (Ok(()), Vec::new());
                };
                shown["shape"] = json!([chunks * 2]);
                let text = shown.to_string();
                (self.write("a/zarr.json", text.as_bytes()), keys(&["a/zarr.json"]))
            }
            ReplacedStep::Remove => (self.remove("a"), keys(&["a/"])),
            ReplacedStep::Create => {
                self.number += 1;
                let is_absent = !self.place.values().contains_key("a/zarr.json");
                let text = array(self.number, 4, false).replace("[4]", "[2]");
                let made = match self.split("a") {
                    Ok((parent, name)) => {
                        self.mine.mkdir(parent, name, Ownership::of_process(0o755)).map(drop)
                    }
                    Err(error) => Err(error),
                };
                let made = made.and_then(|()| self.write("a/zarr.json", text.as_bytes()));
                (made, if is_absent { keys(&["a/"]) } else { Vec::new() })
            }
            ReplacedStep::Rename => {
                let is_absent = !self.place.values().contains_key("b/zarr.json");
                let moved = self.mine.rename(ROOT, "a", ROOT, "b", crate::vfs::Replace::Yes);
                (moved, if is_absent { keys(&["a/", "b/"]) } else { Vec::new() })
            }
            _ => (Ok(()), Vec::new()),
        }
    }

    fn write_part(&self, number: u64) -> Result<()> {
        let handle = self.mine.open(number, Access::Write)?.handle;
        let written = self.mine.write(handle, 0, b"p");
        let stored = written.and_then(|()| self.mine.fsync(handle));
        let closed = self.mine.flush(handle);
        self.mine.release(handle);
        stored.and(closed)
    }

    fn set_attribute(&self, is_extended: bool, shown: Option<&Value>) -> Result<()> {
        let number = self.attribute.to_string();
        if is_extended {
            let node = self.find("a")?;
            let name = "user.attrs.mine";
            return self.mine.xattrs().set(node, name, number.as_bytes(), Presence::Any);
        }
        let mut shown = shown.cloned().unwrap_or_else(|| json!({}));
        shown["attributes"] = json!({"mine": self.attribute});
        self.write("a/zarr.json", shown.to_string().as_bytes())
    }
}

fn item_len(document: &Value) -> usize {
    match document["data_type"].as_str() {
        Some("uint16") => 2,
        Some("uint32") => 4,
        _ => 1,
    }
}

fn cases() -> u32 {
    if std::env::var_os("ZARRFS_LONG").is_some() { 5000 } else { 150 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn what_others_have_stored_survives_a_mount_that_knows_only_what_was_there_before(
        kind in 0..3_usize,
        is_sharded in any::<bool>(),
        is_all in any::<bool>(),
        steps in prop::collection::vec(step(), 1..16),
    ) {
        let writeback = if is_all { Writeback::All } else { Writeback::Delay };
        let mut pair = Pair::new(KINDS[kind], is_sharded, writeback);
        for step in &steps {
            pair.theirs(step);
            pair.mine(step);
        }
    }
}

/// The metadata requests among those since the last call, and all of them.
fn requests(server: &MemoryServer) -> (usize, Vec<MadeRequest>) {
    let made = server.take();
    let is_metadata = |made: &&MadeRequest| match made {
        MadeRequest::Get(key, _) | MadeRequest::GetEnd(key, _) => key.ends_with("zarr.json"),
        MadeRequest::List(_) | MadeRequest::Put(_) | MadeRequest::Delete(_) => false,
    };
    (made.iter().filter(is_metadata).count(), made)
}

#[test]
fn a_flush_of_many_shards_asks_a_server_once_for_each_array() {
    let pair = Pair::new(StoreKind::Server, true, Writeback::Delay);
    pair.place.put("a/zarr.json", &array(0, 40, true));
    let server = pair.place.server.as_ref().expect("a server");
    // Its first change also tries out whether the server honours conditions.
    pair.write("a/c/0", b"mm").expect("stored");
    for chunk in (2..40).step_by(2) {
        let parent = pair.find("a/c").expect("there");
        let owner = Ownership::of_process(0o644);
        let name = chunk.to_string();
        let (_, opened) =
            pair.mine.create(parent, &name, owner, Access::Truncate, false).expect("created");
        pair.mine.write(opened.handle, 0, b"mm").expect("written");
        pair.mine.flush(opened.handle).expect("closed");
        pair.mine.release(opened.handle);
    }
    requests(server);
    pair.mine.sync().expect("stored");
    let (of_metadata, made) = requests(server);
    assert_eq!(of_metadata, 1, "{made:?}");
    let puts = made.iter().filter(|made| matches!(made, MadeRequest::Put(_))).count();
    assert_eq!(puts, 19, "{made:?}");
}

#[test]
fn a_chunk_that_is_closed_takes_one_request_more_and_one_of_a_known_array_no_other() {
    let pair = Pair::new(StoreKind::Server, false, Writeback::Delay);
    let server = pair.place.server.as_ref().expect("a server");
    pair.write("a/c/0", b"mm").expect("stored");
    requests(server);
    pair.write("a/c/1", b"mm").expect("stored");
    let (of_metadata, made) = requests(server);
    // `fsync` stores it, and `close` then finds nothing to store.
    assert_eq!(of_metadata, 1, "{made:?}");
}
