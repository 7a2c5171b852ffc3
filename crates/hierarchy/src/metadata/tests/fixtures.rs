//! Reads the metadata files of hierarchies that other programs wrote, one by one.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::super::*;
use crate::metadata::model::{ArrayMetadata, KeyEncoding, NodeMetadata, Separator};
use zarrfs_base::error::Kind;
use zarrfs_base::limits;
use zarrfs_codec::CodecSpec;
use zarrfs_codec::dtype::{DType, FillValue};
use zarrfs_store::directory::{DirectoryStore, Durability};
use zarrfs_store::memory::MemoryStore;
use zarrfs_store::{Condition, Key, Store};

/// Returns a store in memory with these values.
pub(in crate::metadata) fn store_of(values: &[(&str, &str)]) -> Store {
    let store = Store::new(Arc::new(MemoryStore::new()));
    for (key, text) in values {
        let pieces = [Bytes::copy_from_slice(text.as_bytes()).into()];
        let write = store.write().expect("writable");
        write.set(&Key::parse(key).expect("a key"), &pieces, Condition::Always).expect("set");
    }
    store
}

/// A hierarchy that another program wrote, and its description by the generator.
struct Fixture {
    name: String,
    store: Store,
    case: Json,
}

impl Fixture {
    fn all() -> Vec<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
        let mut cases: Vec<_> = fs::read_dir(root)
            .expect("fixtures")
            .map(|entry| entry.expect("fixture").path())
            .collect();
        cases.sort();
        cases.iter().filter_map(|dir| Self::open(dir)).collect()
    }

    fn named(name: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
        Self::open(&root.join(name)).expect("a fixture of these dialects")
    }

    /// `None` if it is no hierarchy.
    fn open(dir: &Path) -> Option<Self> {
        let case: Json =
            serde_json::from_slice(&fs::read(dir.join("case.json")).ok()?).expect("case.json");
        let store = DirectoryStore::open(&dir.join("store"), Durability::Buffered).expect("opens");
        let name = dir.file_name()?.to_str()?.to_owned();
        Some(Self { name, store: Store::new(Arc::new(store)), case })
    }

    fn list(&self, member: &str) -> Vec<String> {
        let list = self.case.get(member).and_then(Json::as_array).cloned().unwrap_or_default();
        let mut list: Vec<_> =
            list.iter().filter_map(|path| path.as_str().map(str::to_owned)).collect();
        list.sort();
        list
    }

    fn tree(&self) -> (Dialect, StoredTexts) {
        let dialect = detect(&self.store).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let mut tree = StoredTexts::default();
        tree.walk(&self.store, &dialect, &NodePath::root());
        (dialect, tree)
    }

    fn array(&self, path: &str) -> ArrayMetadata {
        let (_, mut tree) = self.tree();
        let (_, lowered) = tree.arrays.remove(path).expect("an array of that path");
        match lowered.node.unwrap_or_else(|error| panic!("{} {path}: {error}", self.name)) {
            NodeMetadata::Array(array) => *array,
            NodeMetadata::Group(_) => panic!("{path} is a group"),
        }
    }
}

/// The nodes of a hierarchy by their paths, with the stored text.
#[derive(Default)]
struct StoredTexts {
    arrays: BTreeMap<String, (Bytes, Lowered)>,
    groups: BTreeMap<String, (Bytes, Lowered)>,
    implicit: Vec<String>,
}

impl StoredTexts {
    /// Whether there is a node at `path`.
    fn walk(&mut self, store: &Store, dialect: &Dialect, path: &NodePath) -> bool {
        let mut explicit = false;
        for (kind, key) in dialect.document_keys(path).expect("keys") {
            let Some(value) = store.get(&key, limits::METADATA.get()).expect("get") else {
                continue;
            };
            let attributes = dialect.attributes_key(path).expect("a key");
            let attributes = attributes.and_then(|key| store.get(&key, 1 << 20).expect("get"));
            let attributes =
                attributes.map(|value| String::from_utf8(value.bytes.into()).expect("text"));
            let text = String::from_utf8(value.bytes.into()).expect("text");
            let bytes = Bytes::from(match attributes {
                Some(attributes) => join(&text, Some(&attributes)).expect("joined"),
                None => text,
            });
            let lowered = dialect.lower(kind, &bytes);
            if lowered.kind == NodeKind::Array {
                self.arrays.insert(path.to_string(), (bytes, lowered));
                return true;
            }
            self.groups.insert(path.to_string(), (bytes, lowered));
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

/// Returns the type of a typestring of numpy, as case.json has it.
fn expected_dtype(numpy: &Json) -> DType {
    let text = numpy.as_str().expect("a type");
    // A list of fields is written as Python writes it.
    let list = text.replace('\'', "\"").replace('(', "[").replace(')', "]").replace(",]", "]");
    let value = if text.starts_with('[') {
        serde_json::from_str(&list).expect("a list")
    } else {
        numpy.clone()
    };
    types::data_type(&value).expect("a type of numpy").0
}

#[test]
fn every_hierarchy_has_the_nodes_that_its_writer_made() {
    let fixtures = Fixture::all();
    assert!(fixtures.len() > 60, "only {} fixtures", fixtures.len());
    for fixture in fixtures.iter().filter(|fixture| fixture.case.get("must_reject").is_none()) {
        let (_, tree) = fixture.tree();
        let expected = fixture.case["arrays"].as_object().expect("arrays");
        let no_truth = fixture.case.get("writer_bugs").and_then(Json::as_object);
        let mut ignored = fixture.list("not_in_arrays");
        ignored.extend(no_truth.into_iter().flat_map(|arrays| arrays.keys().cloned()));
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
            let Some(expected) = fixture.case["arrays"].get(path) else {
                continue;
            };
            let array = match &lowered.node {
                Ok(NodeMetadata::Array(array)) => array,
                other => panic!("{place}: {other:?}"),
            };
            let shape: Vec<u64> = expected["shape"]
                .as_array()
                .map(|lens| lens.iter().filter_map(Json::as_u64).collect())
                .unwrap_or_default();
            assert_eq!(array.shape, shape, "{place}");
            let truth = expected_dtype(&expected["numpy_dtype"]);
            let is_other = expected.get("raw_bits_of").is_some() || array.dtype.is_variable();
            assert!(
                is_other || array.dtype == truth,
                "{place}: {:?} is not {truth:?}",
                array.dtype
            );
            assert_eq!(array.chunk_shape.len(), shape.len(), "{place}");
            assert!(array.chunk_shape.iter().all(|len| *len > 0), "{place}");
        }
    }
}

#[test]
fn invalid_fixtures_are_refused_with_a_reason() {
    // The faults of these are in the chunks, or in the name of a codec: they are detected when
    // codecs are built.
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
            "zarr.json: extension \"http://example.org/x\" is not supported",
        ),
        ("synth__reject_grid", "chunk grid \"hexagonal\" is not known"),
        (
            "synth__reject_unknown_member",
            "unknown member \"surprise\" without \"must_understand\": false",
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
                NodeMetadata::Array(array) => array.chunk_shape.clone(),
                NodeMetadata::Group(_) => Vec::new(),
            };
            let text = match node {
                NodeMetadata::Array(array) => {
                    shown::array(array, &shown::ShownChunks::decoded(array, &chunk_shape))
                }
                NodeMetadata::Group(group) => shown::group(group, None),
            };
            serde_json::from_str::<Json>(&text).unwrap_or_else(|error| panic!("{place}: {error}"));
            let again = Dialect::V3.lower(None, text.as_bytes());
            match (node, again.node.unwrap_or_else(|error| panic!("{place}: {error}\n{text}"))) {
                (NodeMetadata::Group(group), NodeMetadata::Group(again)) => {
                    assert_eq!(group.attributes, again.attributes, "{place}");
                }
                (NodeMetadata::Array(array), NodeMetadata::Array(again)) => {
                    if array.dtype != again.dtype {
                        // An array in a structure is shown as its bytes.
                        assert_eq!(array.dtype.item_len(), again.dtype.item_len(), "{place}");
                        continue;
                    }
                    let has_shards = array.codecs.iter().any(|it| it.name == "sharding_indexed");
                    let expected = ArrayMetadata {
                        codecs: vec![codecs::plain(&array.dtype)],
                        // The chunks in shards all have one shape.
                        rectilinear: array.rectilinear.clone().filter(|_| !has_shards),
                        key_encoding: KeyEncoding::Default(Separator::Slash),
                        fill: FillValue::parse(&array.fill.to_json(&array.dtype), &array.dtype)
                            .expect("a value"),
                        ..*array.clone()
                    };
                    assert_eq!(
                        array.fill.item(&array.dtype),
                        again.fill.item(&array.dtype),
                        "{place}"
                    );
                    assert_eq!(expected, *again, "{place}");
                }
                (_, other) => panic!("{place}: {other:?}"),
            }
            let edit = merge::diff(&text, text.as_bytes(), node, &decoded(node, &chunk_shape))
                .expect("the same");
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

/// Returns the policy that would store an array like this one, and the shape of its chunk files;
/// `None` if no policy would.
fn as_policy(array: &ArrayMetadata) -> Option<(Policy, Vec<u64>)> {
    let inner = |codec: &CodecSpec| codec.configuration["codecs"].as_array().cloned();
    let (codecs, shards, chunk_shape) = match array.codecs.as_slice() {
        [codec] if codec.name == "sharding_indexed" => {
            let codecs =
                inner(codec)?.into_iter().map(|codec| CodecSpec::from_json(&codec).expect("codec"));
            let lens = codec.configuration["chunk_shape"].as_array()?;
            let chunk_shape = lens.iter().filter_map(Json::as_u64).collect();
            let shards = match &array.rectilinear {
                Some(runs) => Shards::Rectilinear(runs.clone()),
                None => Shards::Shape(array.chunk_shape.clone()),
            };
            (codecs.collect(), shards, chunk_shape)
        }
        codecs => (codecs.to_vec(), Shards::None, array.chunk_shape.clone()),
    };
    let mixed = |codec: &CodecSpec| {
        codec.name == "n5_default" || codec.configuration.get("endian").is_some_and(Json::is_array)
    };
    let plain = !codecs.iter().any(|codec| codec.name == "sharding_indexed" || mixed(codec));
    plain.then_some((Policy { codecs, shards }, chunk_shape))
}

/// Returns the codecs of a chunk, without those that do nothing.
fn flat(codecs: &[CodecSpec]) -> Vec<CodecSpec> {
    let nested = |codec: &CodecSpec| -> Vec<CodecSpec> {
        let codecs = codec.configuration["codecs"].as_array().expect("codecs");
        flat(
            &codecs
                .iter()
                .map(|codec| CodecSpec::from_json(codec).expect("a codec"))
                .collect::<Vec<_>>(),
        )
    };
    let little = json!({"name": "bytes", "configuration": {"endian": "little"}});
    let identity = json!({"name": "transpose", "configuration": {"order": [0, 1]}});
    let defaults = [little, json!({"name": "bytes"}), identity];
    codecs
        .iter()
        .flat_map(|codec| {
            if codec.name == "sharding_indexed" {
                return nested(codec);
            }
            let mut codec = codec.clone();
            codec.configuration.retain(|name, value| name != "checksum" || *value != json!(false));
            vec![codec]
        })
        .filter(|codec| !defaults.contains(&codec.to_json()))
        .collect()
}

/// Reasons why some dialects refuse arrays that others can express.
const REFUSALS: [&str; 10] = [
    "need a name for every dimension",
    "cannot be expressed in",
    "cannot be written in",
    "cannot be combined in",
    "a NaN with a payload",
    "has no shards",
    "have no shards",
    "has no arrays without dimensions",
    "do not fit this array",
    "comes after a filter that works on bytes",
];

fn decoded(node: &NodeMetadata, chunk_shape: &[u64]) -> shown::ShownChunks {
    match node {
        NodeMetadata::Array(array) => shown::ShownChunks::decoded(array, chunk_shape),
        NodeMetadata::Group(_) => shown::ShownChunks::default(),
    }
}

#[test]
fn every_array_can_be_created_again_from_its_shown_metadata() {
    let dialects = Dialect::all();
    let dialects = dialects.iter().filter(|dialect| dialect.check_makes_nodes().is_ok());
    let dialects: Vec<&Dialect> = dialects.collect();
    let mut made: BTreeMap<&str, usize> = BTreeMap::new();
    for fixture in Fixture::all().iter().filter(|fixture| !fixture.name.contains("reject")) {
        for (path, (_, lowered)) in &fixture.tree().1.arrays {
            let Ok(NodeMetadata::Array(array)) = &lowered.node else {
                continue;
            };
            let Some((policy, chunk_shape)) = as_policy(array) else {
                continue;
            };
            let shown = shown::array(array, &shown::ShownChunks::decoded(array, &chunk_shape));
            for dialect in &dialects {
                let place = format!("{} {path} in {}", fixture.name, dialect.name());
                let path = NodePath::parse(path).expect("a path");
                let found = match dialect.new_document(&path, shown.as_bytes(), &policy) {
                    Ok(NewDocument { node: NodeMetadata::Array(found), .. }) => found,
                    Ok(other) => panic!("{place}: {other:?}"),
                    Err(error) => {
                        let refusal = error.to_string();
                        let known = REFUSALS.iter().any(|known| refusal.contains(known));
                        let own = **dialect == Dialect::V3 && !refusal.contains("do not fit");
                        assert!(
                            known && !own && error.kind() == Kind::Invalid,
                            "{place}: {refusal}"
                        );
                        continue;
                    }
                };
                *made.entry(dialect.name()).or_default() += 1;
                // Structures are little endian there.
                if matches!(dialect, Dialect::V3) && !matches!(array.dtype, DType::Struct(_)) {
                    assert_eq!(flat(&found.codecs), flat(&array.codecs), "{place}");
                }
                let expected = ArrayMetadata {
                    codecs: found.codecs.clone(),
                    key_encoding: found.key_encoding,
                    fill: found.fill.clone(),
                    attributes: found.attributes.clone(),
                    ..array.clone().as_ref().clone()
                };
                if found.dtype.item_len() == array.dtype.item_len() && found.dtype != array.dtype {
                    continue; // An array in a structure is shown as its bytes.
                }
                assert_eq!(*found, expected, "{place}");
                // Zarr 2 has none if xarray would mask it.
                let masks = !found.dimension_names.is_empty() || found.shape.is_empty();
                let has_none = masks
                    && **dialect == Dialect::V2
                    && !array.attributes.contains_key(FILL)
                    && !conventions::is_masked_by_itself(&array.fill, &array.dtype);
                if has_none && !found.fill.is_defined() {
                    continue;
                }
                let fills = [&found.fill, &array.fill].map(|fill| fill.item(&array.dtype));
                assert_eq!(fills[0], fills[1], "{place}");
            }
        }
    }
    let least = [("v3", 300), ("d2020-10", 200), ("v2", 250), ("n5", 100), ("d2019-06", 100)];
    for (name, least) in least {
        assert!(made.get(name).is_some_and(|made| *made > least), "{name}: {made:?}");
    }
}

/// Returns the document at `key` of a fixture.
fn document(fixture: &str, key: &str) -> Bytes {
    let store = Fixture::named(fixture).store;
    let key = Key::parse(key).expect("a key");
    store.get(&key, limits::METADATA.get()).expect("get").expect("a document").bytes
}

proptest! {
    #[test]
    fn no_damage_to_a_real_document_panics(
        which in 0..3usize,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let draft = Dialect::draft(Era::D2020_10, ".json");
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
                let _ = merge::diff(text, &stored, &node, &decoded(&node, &[2, 2]));
                let _ = merge::diff(std::str::from_utf8(&stored).expect("text"), &damaged, &node, &decoded(&node, &[2, 2]));
            }
        }
    }
}
