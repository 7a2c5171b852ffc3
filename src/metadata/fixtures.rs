//! Hierarchies that other programs wrote, walked without a store of the module to the left.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value as Json;

use super::*;
use crate::dtype::{DType, FillValue};
use crate::error::Kind;
use crate::metadata::model::{Array, CodecSpec, KeyEncoding, Node, Separator};
use crate::store::{
    ByteRange, Condition, Entries, Keys, ListableStore, Piece, ReadableStore, Room, Stat, Store,
    Value, Version, WritableStore,
};

/// Values in memory, of which nothing can be written.
#[derive(Debug, Default)]
pub(super) struct MapStore(pub(super) BTreeMap<String, Bytes>);

impl MapStore {
    pub(super) fn of(values: &[(&str, &str)]) -> Store {
        let value =
            |(key, text): &(&str, &str)| ((*key).to_owned(), Bytes::from((*text).to_owned()));
        Store::new(Arc::new(Self(values.iter().map(value).collect())))
    }

    fn read_dir(&mut self, dir: &Path, prefix: &str) {
        for entry in fs::read_dir(dir).expect("fixture") {
            let entry = entry.expect("fixture");
            let key = format!("{prefix}{}", entry.file_name().to_str().expect("a key"));
            if entry.path().is_dir() {
                self.read_dir(&entry.path(), &format!("{key}/"));
            } else {
                self.0.insert(key, fs::read(entry.path()).expect("fixture").into());
            }
        }
    }

    fn stat_of(bytes: &Bytes) -> Stat {
        let len = u64::try_from(bytes.len()).expect("small");
        Stat { len, modified: SystemTime::UNIX_EPOCH, version: Version([0; 3]) }
    }
}

impl ReadableStore for MapStore {
    fn get_partial_values(&self, ranges: &[(Key, ByteRange)]) -> Result<Vec<Option<Value>>> {
        let get = |(key, range): &(Key, ByteRange)| {
            let bytes = self.0.get(key.as_str())?;
            let stat = Self::stat_of(bytes);
            let (offset, len) = range.within(stat.len);
            let [offset, len] = [offset, len].map(|n| usize::try_from(n).expect("small"));
            Some(Value { bytes: bytes.slice(offset..offset + len), stat })
        };
        Ok(ranges.iter().map(get).collect())
    }

    fn stat(&self, keys: &[Key]) -> Result<Vec<Option<Stat>>> {
        Ok(keys.iter().map(|key| self.0.get(key.as_str()).map(Self::stat_of)).collect())
    }

    fn room(&self) -> Result<Option<Room>> {
        Ok(None)
    }
}

impl WritableStore for MapStore {
    fn set(&self, _: &Key, _: &[Piece], _: Condition) -> Result<Stat> {
        unreachable!("metadata writes nothing")
    }
    fn set_partial_values(&self, _: &[(Key, u64, Bytes)]) -> Result<()> {
        unreachable!("metadata writes nothing")
    }
    fn erase_values(&self, _: &[Key]) -> Result<()> {
        unreachable!("metadata writes nothing")
    }
    fn erase_unchanged(&self, _: &Key, _: Version) -> Result<()> {
        unreachable!("metadata writes nothing")
    }
    fn erase_prefix(&self, _: &Prefix) -> Result<()> {
        unreachable!("metadata writes nothing")
    }
    fn set_modified(&self, _: &Key, _: SystemTime) -> Result<()> {
        unreachable!("metadata writes nothing")
    }
    fn sync(&self, _: &[Key]) -> Result<()> {
        unreachable!("metadata writes nothing")
    }
}

impl ListableStore for MapStore {
    fn list_dir(&self, prefix: &Prefix) -> Result<Entries> {
        let entries: std::collections::BTreeSet<Entry> = self
            .0
            .keys()
            .filter_map(|key| key.strip_prefix(prefix.as_str()))
            .map(|rest| match rest.split_once('/') {
                Some((name, _)) => Entry::Prefix(name.to_owned()),
                None => Entry::Key(rest.to_owned()),
            })
            .collect();
        Ok(Box::new(entries.into_iter().map(Ok)))
    }

    fn list_prefix(&self, _: &Prefix) -> Result<Keys> {
        unreachable!("metadata lists directories only")
    }
}

/// A hierarchy that another program wrote, and what its generator says of it.
struct Fixture {
    name: String,
    store: Store,
    case: Json,
}

impl Fixture {
    fn all() -> Vec<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let mut cases: Vec<_> = fs::read_dir(root)
            .expect("fixtures")
            .map(|entry| entry.expect("fixture").path())
            .collect();
        cases.sort();
        cases.iter().filter_map(|dir| Self::open(dir)).collect()
    }

    fn named(name: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        Self::open(&root.join(name)).expect("a fixture of these dialects")
    }

    /// None for the dialects that are not here yet.
    fn open(dir: &Path) -> Option<Self> {
        let case: Json =
            serde_json::from_slice(&fs::read(dir.join("case.json")).ok()?).expect("case.json");
        let mut store = MapStore::default();
        store.read_dir(&dir.join("store"), "");
        let name = dir.file_name()?.to_str()?.to_owned();
        let ours = [
            "z3",
            "ts__v3",
            "z218v3",
            "gdal36v3",
            "gdal3103v3",
            "xtensorzarr",
            "zarrita202009",
            "synth__reject",
        ];
        let also = [
            "synth__2020-10_corners",
            "synth__2022-02_shard_spelling",
            "synth__2022-11_suffix_entry",
            "synth__2023-02_to_07",
            "synth__dual_v2_v3",
        ];
        let later = ["v2_mixed", "numcodecs", "dtypes_extension", "rectilinear", "string"];
        let is_ours = (ours.iter().any(|head| name.starts_with(head))
            || also.contains(&name.as_str()))
            && !later.iter().any(|tail| name.contains(tail))
            && name != "ts__v3_dtypes";
        is_ours.then(|| Self { name, store: Store::new(Arc::new(store)), case })
    }

    fn list(&self, member: &str) -> Vec<String> {
        let list = self.case.get(member).and_then(Json::as_array).cloned().unwrap_or_default();
        let mut list: Vec<_> =
            list.iter().filter_map(|path| path.as_str().map(str::to_owned)).collect();
        list.sort();
        list
    }

    fn tree(&self) -> (Dialect, Tree) {
        let dialect = detect(&self.store).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let mut tree = Tree::default();
        tree.walk(&self.store, &dialect, &NodePath::root());
        (dialect, tree)
    }

    fn array(&self, path: &str) -> Array {
        let (_, mut tree) = self.tree();
        let (_, lowered) = tree.arrays.remove(path).expect("an array of that path");
        match lowered.node.unwrap_or_else(|error| panic!("{} {path}: {error}", self.name)) {
            Node::Array(array) => *array,
            Node::Group(_) => panic!("{path} is a group"),
        }
    }
}

/// The nodes of a hierarchy by their paths, with the stored text.
#[derive(Default)]
struct Tree {
    arrays: BTreeMap<String, (Bytes, Lowered)>,
    groups: BTreeMap<String, (Bytes, Lowered)>,
    implicit: Vec<String>,
}

impl Tree {
    /// Whether there is a node at `path`.
    fn walk(&mut self, store: &Store, dialect: &Dialect, path: &NodePath) -> bool {
        let mut explicit = false;
        for (kind, key) in dialect.document_keys(path).expect("keys") {
            let Some(value) = store.get(&key, json::MAX_DOCUMENT_LEN).expect("get") else {
                continue;
            };
            let lowered = dialect.lower(kind, &value.bytes);
            if lowered.kind == NodeKind::Array {
                self.arrays.insert(path.to_string(), (value.bytes, lowered));
                return true;
            }
            self.groups.insert(path.to_string(), (value.bytes, lowered));
            explicit = true;
            break;
        }
        let prefix = dialect.children_prefix(path).expect("prefix");
        let entries = store.list().expect("listable").list_dir(&prefix).expect("list");
        let children: BTreeMap<String, bool> = entries
            .filter_map(|entry| dialect.child(&entry.expect("entry")))
            .map(|child| (child.name, child.certain))
            .collect();
        let mut below = false;
        for name in children.keys() {
            below |= self.walk(store, dialect, &path.child(name).expect("name"));
        }
        if below && !explicit {
            self.implicit.push(path.to_string());
            self.implicit.sort();
        }
        explicit || below
    }
}

/// The type of a typestring of numpy, as case.json has it.
fn expected_dtype(numpy: &str) -> DType {
    types::data_type(&Json::from(numpy)).expect("a type of numpy").0
}

#[test]
fn every_hierarchy_has_the_nodes_that_its_writer_made() {
    let fixtures = Fixture::all();
    assert!(fixtures.len() > 60, "only {} fixtures", fixtures.len());
    for fixture in fixtures.iter().filter(|fixture| fixture.case.get("must_reject").is_none()) {
        let (_, tree) = fixture.tree();
        let expected = fixture.case["arrays"].as_object().expect("arrays");
        let ignored = fixture.list("not_in_arrays");
        let found: Vec<_> = tree.arrays.keys().filter(|path| !ignored.contains(path)).collect();
        let mut paths: Vec<_> = expected.keys().collect();
        paths.sort();
        assert_eq!(found, paths, "arrays of {}", fixture.name);
        for path in fixture.list("groups") {
            assert!(tree.groups.contains_key(&path), "{}: {path} is no group", fixture.name);
        }
        for path in fixture.list("implicit_groups") {
            assert!(tree.implicit.contains(&path), "{}: {path} is no implied group", fixture.name);
        }
        for (path, (_, lowered)) in &tree.groups {
            assert!(lowered.node.is_ok(), "{}: {path}: {:?}", fixture.name, lowered.node);
        }
    }
}

#[test]
fn every_array_has_the_shape_and_type_of_its_truth() {
    for fixture in Fixture::all() {
        if fixture.case.get("must_reject").is_some() {
            continue;
        }
        let (_, tree) = fixture.tree();
        for (path, (_, lowered)) in &tree.arrays {
            let place = format!("{} {path}", fixture.name);
            if place == "z316__fills /M8_nat" {
                let error = lowered.node.as_ref().expect_err("dates are not known yet");
                assert_eq!(error.to_string(), "data type \"numpy.datetime64\" is not known");
                continue;
            }
            let Some(expected) = fixture.case["arrays"].get(path) else {
                continue;
            };
            let array = match &lowered.node {
                Ok(Node::Array(array)) => array,
                other => panic!("{place}: {other:?}"),
            };
            let shape: Vec<u64> = expected["shape"]
                .as_array()
                .map(|lens| lens.iter().filter_map(Json::as_u64).collect())
                .unwrap_or_default();
            assert_eq!(array.shape, shape, "{place}");
            let numpy = expected["numpy_dtype"].as_str().expect("a type");
            assert_eq!(array.dtype, expected_dtype(numpy), "{place}");
            assert_eq!(array.chunk_shape.len(), shape.len(), "{place}");
            assert!(array.chunk_shape.iter().all(|len| *len > 0), "{place}");
        }
    }
}

#[test]
fn what_must_be_refused_is_refused_with_a_sentence() {
    // What is wrong with these is in the chunks, or in a codec's name: that is found where codecs are made.
    let later =
        ["synth__reject_crc32c_bad", "synth__reject_short_chunk", "synth__reject_unknown_codec"];
    let expected = BTreeMap::from([
        ("synth__reject_dtype", "data type \"int33\" is not known"),
        (
            "synth__reject_entry_major_4",
            "zarr.json: version 4.0 of the Zarr core protocol is not supported, only 3",
        ),
        (
            "synth__reject_entry_must_understand",
            "zarr.json: extension \"http://example.org/x\" must be understood and is not",
        ),
        ("synth__reject_grid", "chunk grid \"hexagonal\" is not known"),
        (
            "synth__reject_unknown_member",
            "member \"surprise\" is not known and does not say must_understand false",
        ),
    ]);
    let rejects = Fixture::all().into_iter().filter(|fixture| fixture.name.contains("reject"));
    let mut seen = 0;
    for fixture in rejects {
        let refused = match detect(&fixture.store) {
            Err(error) => Some(error),
            Ok(_) => fixture.tree().1.arrays.into_values().find_map(|(_, found)| found.node.err()),
        };
        if later.contains(&fixture.name.as_str()) {
            assert_eq!(refused, None, "{}", fixture.name);
            continue;
        }
        let refused = refused.unwrap_or_else(|| panic!("{} was taken", fixture.name));
        assert_eq!(Some(&refused.to_string().as_str()), expected.get(fixture.name.as_str()));
        assert_eq!(refused.kind(), Kind::Unsupported);
        seen += 1;
    }
    assert_eq!(seen, expected.len());
}

#[test]
fn the_shown_document_means_the_same_again() {
    for fixture in Fixture::all() {
        let Ok(dialect) = detect(&fixture.store) else {
            continue;
        };
        let (_, tree) = fixture.tree();
        for (path, (stored, lowered)) in tree.arrays.iter().chain(&tree.groups) {
            let place = format!("{} {path}", fixture.name);
            let Ok(node) = &lowered.node else {
                continue;
            };
            let chunk_shape: Vec<u64> = match node {
                Node::Array(array) => array.chunk_shape.clone(),
                Node::Group(_) => Vec::new(),
            };
            let text = match node {
                Node::Array(array) => shown::array(array, &chunk_shape),
                Node::Group(group) => shown::group(group, None),
            };
            serde_json::from_str::<Json>(&text).unwrap_or_else(|error| panic!("{place}: {error}"));
            let again = Dialect::V3.lower(None, text.as_bytes());
            match (node, again.node.unwrap_or_else(|error| panic!("{place}: {error}\n{text}"))) {
                (Node::Group(group), Node::Group(again)) => {
                    assert_eq!(group.attributes, again.attributes, "{place}");
                }
                (Node::Array(array), Node::Array(again)) => {
                    let plain = CodecSpec::from_json(&match array.dtype.component_len() {
                        1 => json!("bytes"),
                        _ => json!({"name": "bytes", "configuration": {"endian": "little"}}),
                    });
                    let expected = Array {
                        codecs: vec![plain.expect("a codec")],
                        key_encoding: KeyEncoding::Default(Separator::Slash),
                        fill: FillValue::parse(&array.fill.to_json(array.dtype), array.dtype)
                            .expect("a value"),
                        ..*array.clone()
                    };
                    assert_eq!(
                        array.fill.item(array.dtype),
                        again.fill.item(array.dtype),
                        "{place}"
                    );
                    assert_eq!(expected, *again, "{place}");
                }
                (_, other) => panic!("{place}: {other:?}"),
            }
            let edit = merge::diff(&text, text.as_bytes(), node, &chunk_shape).expect("the same");
            assert!(edit.is_empty(), "{place}: {edit:?}");
            let stored = std::str::from_utf8(stored).expect("text");
            assert_eq!(
                dialect.edit(lowered.kind, stored, &edit).expect("no edit"),
                stored,
                "{place}"
            );
        }
    }
}

#[test]
fn a_transformer_becomes_shards_whose_bytes_are_the_same() {
    let array = Fixture::named("synth__2022-02_shard_spelling").array("/a");
    assert_eq!(array.chunk_shape, [6, 8]);
    assert_eq!(array.key_encoding, KeyEncoding::Draft(Separator::Slash));
    let little = json!([{"name": "bytes", "configuration": {"endian": "little"}}]);
    let expected = json!({
        "name": "sharding_indexed",
        "configuration": {
            "chunk_shape": [3, 4], "codecs": little, "index_codecs": little, "index_location": "end",
        },
    });
    assert_eq!(array.codecs.iter().map(CodecSpec::to_json).collect::<Json>(), json!([expected]));
}

#[test]
fn hidden_filters_are_codecs_and_no_attribute() {
    let array = Fixture::named("z218v3__filters_in_attributes").array("/delta");
    let names: Vec<_> = array.codecs.iter().map(|codec| codec.name.as_str()).collect();
    assert_eq!(names, ["numcodecs.delta", "bytes", "gzip"]);
    assert_eq!(array.attributes, json!({"user": "x"}).as_object().cloned().expect("an object"));
}

/// The document at `key` of a fixture.
fn document(fixture: &str, key: &str) -> Bytes {
    let store = Fixture::named(fixture).store;
    let key = Key::parse(key).expect("a key");
    store.get(&key, json::MAX_DOCUMENT_LEN).expect("get").expect("a document").bytes
}

proptest! {
    #[test]
    fn no_damage_to_a_real_document_panics(
        which in 0..3usize,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let draft = Dialect::D2020_10 { suffix: ".json".to_owned() };
        let (dialect, stored) = match which {
            0 => (Dialect::V3, document("z316__shard_nested", "zarr.json")),
            1 => (Dialect::V3, document("z316__groups_consolidated", "zarr.json")),
            _ => (draft, document("z218v3__shard_3x1_F_be", "meta/root/arr.array.json")),
        };
        let mut damaged = stored.to_vec();
        for (at, byte) in damage {
            let at = at.index(damaged.len());
            damaged[at] = byte;
        }
        let lowered = dialect.lower(Some(NodeKind::Array), &damaged);
        let _ = shown::not_understood(lowered.kind, &damaged);
        if let Ok(text) = std::str::from_utf8(&damaged) {
            let _ = dialect.edit(lowered.kind, text, &merge::Edit::attribute("a", Some(json!(1))));
            if let Ok(node) = dialect.lower(Some(lowered.kind), &stored).node {
                let _ = merge::diff(text, &stored, &node, &[2, 2]);
                let _ = merge::diff(std::str::from_utf8(&stored).expect("text"), &damaged, &node, &[2, 2]);
            }
        }
    }
}
