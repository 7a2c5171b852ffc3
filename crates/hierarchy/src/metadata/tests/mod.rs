pub(super) mod fixtures;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::model::{ArrayMetadata, KeyEncoding, NodeMetadata, Separator};
use super::*;
use zarrfs_base::error::Result;
use zarrfs_codec::CodecSpec;
use zarrfs_codec::dtype::DType;
use zarrfs_store::{Prefix, StoreEntry};

fn draft() -> Dialect {
    Dialect::draft(Era::D2020_10, ".json")
}

/// A v3 metadata file of an array after `changes`, in which null removes a member.
fn v3_with(changes: Value) -> Value {
    with(
        json!({
            "zarr_format": 3, "node_type": "array", "shape": [7, 10], "data_type": "int32",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [3, 4]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0,
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        }),
        changes,
    )
}

fn draft_with(changes: Value) -> Value {
    with(
        json!({
            "shape": [7, 10], "data_type": "<i4",
            "chunk_grid": {"type": "regular", "chunk_shape": [3, 4], "separator": "/"},
            "chunk_memory_layout": "C", "fill_value": 0, "extensions": [], "attributes": {},
        }),
        changes,
    )
}

fn with(mut document: Value, changes: Value) -> Value {
    let members = document.as_object_mut().expect("an object");
    let Value::Object(changes) = changes else {
        unreachable!("changes are an object");
    };
    for (name, value) in changes {
        if value.is_null() {
            members.shift_remove(&name);
        } else {
            members.insert(name, value);
        }
    }
    document
}

fn array(dialect: &Dialect, document: &Value) -> ArrayMetadata {
    let lowered = dialect.lower(Some(NodeKind::Array), document.to_string().as_bytes());
    assert_eq!(lowered.kind, NodeKind::Array);
    match lowered.node.unwrap_or_else(|error| panic!("{error}: {document}")) {
        NodeMetadata::Array(array) => *array,
        NodeMetadata::Group(_) => panic!("a group: {document}"),
    }
}

fn refusal(dialect: &Dialect, document: &Value) -> String {
    let lowered = dialect.lower(Some(NodeKind::Array), document.to_string().as_bytes());
    lowered.node.expect_err("refused").to_string()
}

fn codecs(array: &ArrayMetadata) -> Value {
    array.codecs.iter().map(CodecSpec::to_json).collect()
}

fn little() -> Value {
    json!({"name": "bytes", "configuration": {"endian": "little"}})
}

#[test]
fn bytes_are_little_endian_behind_a_filter_that_names_its_type() {
    let document = |dtype: &str, filter: Value| {
        json!({
            "zarr_format": 2, "shape": [4], "chunks": [4], "dtype": dtype, "compressor": null,
            "fill_value": null, "order": "C", "filters": [filter],
        })
    };
    let last = |dtype: &str, filter: Value| {
        codecs(&array(&Dialect::V2, &document(dtype, filter)))[1].clone()
    };
    assert_eq!(last(">i4", json!({"id": "delta", "dtype": ">i4"})), little());
    let labels = json!({"id": "categorize", "labels": ["a"], "dtype": "|O", "astype": ">i2"});
    assert_eq!(last("|O", labels), little());
    let hidden = json!({
        "shape": [4], "data_type": ">i4", "fill_value": 0, "chunk_memory_layout": "C",
        "chunk_grid": {"type": "regular", "separator": "/", "chunk_shape": [4]}, "extensions": [],
        "attributes": {"filters": [{"id": "delta", "dtype": ">i4"}]},
    });
    assert_eq!(codecs(&array(&draft(), &hidden))[1], little());
}

#[test]
fn a_filter_that_names_no_type_leaves_the_order_of_the_array() {
    let filter = json!({"id": "imagecodecs_quantize", "mode": "bitgroom", "nsd": 3});
    let document = json!({
        "zarr_format": 2, "shape": [4], "chunks": [4], "dtype": ">f4", "compressor": null,
        "fill_value": null, "order": "C", "filters": [filter],
    });
    let found = codecs(&array(&Dialect::V2, &document));
    assert_eq!(found[1], json!({"name": "bytes", "configuration": {"endian": "big"}}));
}

#[test]
fn a_shuffle_of_imagecodecs_is_followed_by_bytes_or_makes_them() {
    let shuffle = json!({"name": "imagecodecs_floatpred", "configuration": {"axis": 0}});
    let list = |rest: &[Value]| {
        let all: Vec<Value> = [&[shuffle.clone()][..], rest].concat();
        v3_with(json!({"codecs": all, "data_type": "float32"}))
    };
    let zstd = json!({"name": "zstd"});
    for rest in [&[little(), zstd.clone()][..], std::slice::from_ref(&zstd)] {
        let found = codecs(&array(&Dialect::V3, &list(rest)));
        assert_eq!(found, json!([shuffle, zstd]));
    }
    let big = json!({"name": "bytes", "configuration": {"endian": "big"}});
    assert!(refusal(&Dialect::V3, &list(&[big])).contains("2 array-to-bytes codecs"));
}

#[test]
fn an_error_names_the_library_of_a_codec_that_zarrfs_does_not_have() {
    let document = json!({
        "zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "|O", "compressor": null,
        "fill_value": null, "order": "C", "filters": [{"id": "vlen-array", "dtype": "<i4"}],
    });
    let refusal = refusal(&Dialect::V2, &document);
    assert!(refusal.contains("\"vlen-array\" of the Python library numcodecs"), "{refusal}");
}

#[test]
fn a_list_of_objects_has_no_order() {
    let names = |id: &str| {
        let document = json!({
            "zarr_format": 2, "shape": [2, 3], "chunks": [2, 3], "dtype": "|O", "compressor": null,
            "fill_value": null, "order": "F", "filters": [{"id": id}],
        });
        let codecs = array(&Dialect::V2, &document).codecs;
        codecs.into_iter().map(|codec| codec.name).collect::<Vec<_>>()
    };
    assert_eq!(names("json2"), ["numcodecs.json2"]);
    assert_eq!(names("msgpack2"), ["numcodecs.msgpack2"]);
    assert_eq!(names("vlen-utf8"), ["transpose", "vlen-utf8"]);
}

#[test]
fn keys_are_those_of_the_dialect() {
    let keys = |dialect: &Dialect, path: &str| -> Vec<String> {
        let path = NodePath::parse(path).expect("a path");
        let keys = dialect.document_keys(&path).expect("keys");
        keys.iter().map(|(_, key)| key.to_string()).collect()
    };
    assert_eq!(keys(&Dialect::V3, "/"), ["zarr.json"]);
    assert_eq!(keys(&Dialect::V3, "/a/b"), ["a/b/zarr.json"]);
    assert_eq!(
        keys(&draft(), "/"),
        [
            "meta/root.array.json",
            "meta/root.group.json",
            "meta/root/.array.json",
            "meta/root/.group.json",
        ]
    );
    assert_eq!(keys(&draft(), "/a/b"), ["meta/root/a/b.array.json", "meta/root/a/b.group.json"]);
    let path = NodePath::parse("/a/b").expect("a path");
    let prefix = |prefix: Result<Prefix>| prefix.expect("a prefix").to_string();
    assert_eq!(prefix(Dialect::V3.chunk_prefix(&path)), "a/b/");
    assert_eq!(prefix(draft().chunk_prefix(&path)), "data/root/a/b/");
    assert_eq!(prefix(draft().chunk_prefix(&NodePath::root())), "data/root/");
    assert_eq!(prefix(Dialect::V3.children_prefix(&NodePath::root())), "");
    assert_eq!(prefix(draft().children_prefix(&path)), "meta/root/a/b/");
}

#[test]
fn a_listing_tells_the_children() {
    let key = |name: &str| StoreEntry::Key(name.to_owned());
    let prefix = |name: &str| StoreEntry::Prefix(name.to_owned());
    let child = |name: &str, certain| Some(Child { name: name.to_owned(), certain });
    for (dialect, entry, expected) in [
        (Dialect::V3, key("zarr.json"), None),
        (Dialect::V3, key("notes.txt"), None),
        (Dialect::V3, prefix("a"), child("a", false)),
        (Dialect::V3, prefix("__x"), child("__x", false)),
        (draft(), key("a.array.json"), child("a", true)),
        (draft(), key("a.group.v1.group.json"), child("a.group.v1", true)),
        (draft(), key(".group.json"), None),
        (draft(), key(".zmetadata"), None),
        (draft(), key("a.array"), None),
        (draft(), key("a.json"), None),
        (draft(), prefix("a"), child("a", false)),
        (Dialect::draft(Era::D2020_10, ""), key("a.array"), child("a", true)),
    ] {
        assert_eq!(dialect.child(&entry), expected, "{entry:?} in {dialect:?}");
    }
}

#[test]
fn the_separator_is_found_wherever_documents_have_had_it() {
    let dot = json!(".");
    let in_grid = |grid: Value| json!({"chunk_grid": grid, "chunk_key_encoding": null});
    for (changes, expected) in [
        (json!({}), KeyEncoding::Default(Separator::Slash)),
        (json!({"chunk_key_encoding": null}), KeyEncoding::Default(Separator::Slash)),
        (json!({"chunk_key_encoding": "default"}), KeyEncoding::Default(Separator::Slash)),
        (json!({"chunk_key_encoding": {"name": "v2"}}), KeyEncoding::V2(Separator::Dot)),
        (
            json!({"chunk_key_encoding": {"name": "default", "configuration": {"separator": dot}}}),
            KeyEncoding::Default(Separator::Dot),
        ),
        (
            json!({"chunk_key_encoding": {"name": "default", "separator": dot}}),
            KeyEncoding::Default(Separator::Dot),
        ),
        (
            in_grid(
                json!({"type": "regular", "configuration": {"chunk_shape": [3, 4], "separator": "."}}),
            ),
            KeyEncoding::Default(Separator::Dot),
        ),
        (
            in_grid(json!({"type": "regular", "chunk_shape": [3, 4], "separator": "."})),
            KeyEncoding::Default(Separator::Dot),
        ),
    ] {
        let document = v3_with(changes);
        assert_eq!(array(&Dialect::V3, &document).key_encoding, expected, "{document}");
    }
    let redundant = draft_with(json!({
        "chunk_grid": {"type": "regular", "chunk_shape": [3, 4]}, "dimension_separator": ".",
    }));
    assert_eq!(array(&draft(), &redundant).key_encoding, KeyEncoding::Draft(Separator::Dot));
}

#[test]
fn codecs_of_spring_2023_come_out_as_released() {
    let transposed =
        |order: [u64; 2]| json!({"name": "transpose", "configuration": {"order": order}});
    let blosc = |shuffle: &str, typesize: u64| json!({"name": "blosc", "configuration": {"shuffle": shuffle, "typesize": typesize}});
    let big = json!({"name": "bytes", "configuration": {"endian": "big"}});
    for (stored, expected) in [
        (json!([]), json!([little()])),
        (json!(["bytes", "crc32c"]), json!([little(), {"name": "crc32c"}])),
        (json!([{"name": "gzip"}]), json!([little(), {"name": "gzip"}])),
        (json!([{"name": "endian", "configuration": {"endian": "big"}}]), json!([big])),
        (
            json!([{"name": "transpose", "configuration": {"order": "F"}}, {"name": "gzip"}]),
            json!([transposed([1, 0]), little(), {"name": "gzip"}]),
        ),
        (
            json!([{"name": "transpose", "configuration": {"order": "C"}}]),
            json!([transposed([0, 1]), little()]),
        ),
        (
            json!([{"type": "https://purl.org/zarr/spec/codecs/zlib/1.0"}]),
            json!([little(), {"name": "numcodecs.zlib"}]),
        ),
        (
            json!([{"name": "blosc", "configuration": {"shuffle": "byte"}}]),
            json!([little(), blosc("shuffle", 4)]),
        ),
        (
            json!([{"name": "blosc", "configuration": {"shuffle": "BIT"}}]),
            json!([little(), blosc("bitshuffle", 4)]),
        ),
        (
            json!([{"name": "blosc", "configuration": {"shuffle": null}}]),
            json!([little(), blosc("noshuffle", 4)]),
        ),
        (
            json!([{"name": "numcodecs.blosc", "configuration": {"shuffle": -1, "typesize": 8}}]),
            json!([little(), blosc("shuffle", 8)]),
        ),
        (
            json!(["bytes", {"name": "x", "must_understand": false}]),
            json!([little(), {"name": "x", "must_understand": false}]),
        ),
    ] {
        let found = codecs(&array(&Dialect::V3, &v3_with(json!({"codecs": stored}))));
        assert_eq!(found, expected, "{stored}");
    }
    let gdal = v3_with(json!({"codecs": null, "fill_value": null}));
    assert_eq!(codecs(&array(&Dialect::V3, &gdal)), json!([little()]));
    let byte = v3_with(json!({"data_type": "uint8", "codecs": ["bytes"]}));
    assert_eq!(codecs(&array(&Dialect::V3, &byte)), json!([{"name": "bytes"}]));
}

#[test]
fn shards_list_their_codecs_but_an_absent_index_pipeline_stays_absent() {
    let sharding = |configuration: Value| {
        v3_with(json!({
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [6, 8]}},
            "codecs": [{"name": "sharding_indexed", "configuration": configuration}],
        }))
    };
    let configuration =
        |document: &Value| codecs(&array(&Dialect::V3, document))[0]["configuration"].clone();
    assert_eq!(
        configuration(&sharding(json!({"chunk_shape": [3, 4.0]}))),
        json!({"chunk_shape": [3, 4], "codecs": [little()], "index_location": "end"})
    );
    assert_eq!(
        configuration(&sharding(json!({
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [3, 4]}},
            "codecs": [{"name": "transpose", "configuration": {"order": "F"}}],
            "index_codecs": ["bytes", "crc32c"], "index_location": "start",
        }))),
        json!({
            "chunk_shape": [3, 4],
            "codecs": [{"name": "transpose", "configuration": {"order": [1, 0]}}, little()],
            "index_codecs": [little(), {"name": "crc32c"}],
            "index_location": "start",
        })
    );
    for wrong in [json!({}), json!({"chunk_shape": [3]}), json!({"chunk_shape": [0, 4]})] {
        refusal(&Dialect::V3, &sharding(wrong));
    }
    let nested = |depth: usize| {
        (1..depth).fold(json!({"chunk_shape": [3, 4]}), |inner, _| {
            json!({"chunk_shape": [3, 4], "codecs": [{"name": "sharding_indexed", "configuration": inner}]})
        })
    };
    array(&Dialect::V3, &sharding(nested(4)));
    assert_eq!(
        refusal(&Dialect::V3, &sharding(nested(5))),
        "shards within shards, the limit is 4 (--limit shard-levels=N)"
    );
}

#[test]
fn metadata_that_v3_forbids_fail() {
    let ones = vec![1; 65];
    for (changes, sentence) in [
        (json!({"x": 1}), "unknown member \"x\" without \"must_understand\": false"),
        (
            json!({"x": {"must_understand": true}}),
            "unknown member \"x\" without \"must_understand\": false",
        ),
        (json!({"extensions": [{"name": "x"}]}), "extension \"x\" is not supported"),
        (
            json!({"storage_transformers": [{"name": "sharding"}]}),
            "storage transformer sharding is not known",
        ),
        (json!({"chunk_grid": {"name": "hexagonal"}}), "chunk grid \"hexagonal\" is not known"),
        (
            json!({"chunk_key_encoding": {"name": "fanout"}}),
            "chunk key encoding \"fanout\" is not known",
        ),
        (
            json!({"chunk_key_encoding": {"name": "v2", "configuration": {"separator": "-"}}}),
            "chunk key separator \"-\" is not supported",
        ),
        (json!({"shape": null}), "shape is missing"),
        (json!({"shape": [7, -10]}), "shape [7, -10] is not a list of integers of at least 0"),
        (json!({"shape": [7, 1.5]}), "shape [7, 1.5] is not a list of integers of at least 0"),
        (json!({"shape": [7]}), "chunk_shape has 2 dimensions, shape has 1"),
        (json!({"shape": ones}), "shape has 65 dimensions, the limit is 64 (--limit dimensions=N)"),
        (
            json!({"shape": [4_294_967_296_u64, 4_294_967_296_u64]}),
            "the array has more than 2^64 bytes",
        ),
        (
            json!({"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0, 4]}}}),
            "chunk_shape contains 0",
        ),
        (
            json!({"dimension_names": ["x"]}),
            "dimension_names [\"x\"] are not names for 2 dimensions",
        ),
        (json!({"attributes": [1]}), "attributes are [1], not an object"),
        (json!({"fill_value": 0.5}), "fill_value 0.5 is not a valid int32"),
        (
            json!({"codecs": vec!["gzip"; 17]}),
            "17 codecs in a list, the limit is 16 (--limit codecs=N)",
        ),
        (json!({"codecs": ["bytes", "bytes"]}), "2 array-to-bytes codecs, only one is allowed"),
        (json!({"codecs": [1]}), "codec 1 has no name"),
        (
            json!({"codecs": [{"name": "transpose", "configuration": {"order": [0, 0]}}]}),
            "transpose order [0, 0] is not a permutation",
        ),
        (
            json!({"codecs": [{"name": "bytes", "configuration": {"endian": "middle"}}]}),
            "byte order \"middle\" is not known",
        ),
        (json!({"zarr_format": 4}), "zarr_format is 4, not 3"),
    ] {
        assert_eq!(refusal(&Dialect::V3, &v3_with(changes)), sentence);
    }
    for taken in [
        json!({"x": {"must_understand": false}}),
        json!({"consolidated_metadata": 1, "extensions": [], "storage_transformers": []}),
        json!({"node_type": null}),
        json!({"shape": [7.0, 1e1]}),
    ] {
        array(&Dialect::V3, &v3_with(taken));
    }
}

#[test]
fn the_kind_is_guessed_where_a_document_is_damaged() {
    let kind = |text: &str| {
        let lowered = Dialect::V3.lower(None, text.as_bytes());
        assert!(lowered.node.is_err(), "{text}");
        lowered.kind
    };
    assert_eq!(kind(r#"{"shape": [1"#), NodeKind::Array);
    assert_eq!(kind("{"), NodeKind::Group);
    assert_eq!(kind(r#"{"zarr_format": 3, "node_type": "array"}"#), NodeKind::Array);
    assert_eq!(kind(r#"{"zarr_format": 3, "node_type": "table"}"#), NodeKind::Group);
}

#[test]
fn a_draft_array_has_the_codecs_of_released_v3() {
    let codec = |uri: &str, configuration: Value| json!({"compressor": {"codec": uri, "configuration": configuration}});
    let named = |name: &str, configuration: Value| json!([little(), {"name": name, "configuration": configuration}]);
    let level = json!({"level": 1});
    for (changes, expected) in [
        (json!({}), json!([little()])),
        (
            codec("https://purl.org/zarr/spec/codec/gzip/1.0", level.clone()),
            named("gzip", level.clone()),
        ),
        (
            codec("http://purl.org/zarr/spec/codecs/zlib", level.clone()),
            named("numcodecs.zlib", level.clone()),
        ),
        (codec("bz2", level.clone()), named("numcodecs.bz2", level.clone())),
        (
            codec("https://purl.org/zarr/spec/codec/blosc/1.0", json!({"shuffle": 2, "clevel": 5})),
            named("blosc", json!({"shuffle": "bitshuffle", "clevel": 5, "typesize": 4})),
        ),
        (
            json!({"chunk_memory_layout": "F", "data_type": ">i4"}),
            json!([
                {"name": "transpose", "configuration": {"order": [1, 0]}},
                {"name": "bytes", "configuration": {"endian": "big"}},
            ]),
        ),
        (
            json!({
                "data_type": "int16",
                "codecs": [{
                    "type": "https://purl.org/zarr/spec/codecs/endian/1.0",
                    "configuration": {"endian": "big"},
                }],
            }),
            json!([{"name": "bytes", "configuration": {"endian": "big"}}]),
        ),
        (
            json!({"attributes": {"filters": [{"id": "delta", "dtype": "<i4"}, {"id": "shuffle"}]}}),
            json!([
                {"name": "numcodecs.delta", "configuration": {"dtype": "<i4"}},
                little(),
                {"name": "numcodecs.shuffle"},
            ]),
        ),
    ] {
        assert_eq!(codecs(&array(&draft(), &draft_with(changes.clone()))), expected, "{changes}");
    }
}

#[test]
fn every_spelling_of_the_transformer_makes_shards() {
    let uri = "https://purl.org/zarr/spec/storage_transformers/sharding/1.0";
    for transformer in [
        json!({"storage_transformer": uri, "configuration": {"format": "indexed", "chunks_per_shard": [2, 3]}}),
        json!({"extension": uri, "type": "indexed", "configuration": {"chunks_per_shard": [2, 3]}}),
        json!({"name": "sharding", "configuration": {"type": "indexed", "chunks_per_shard": [2, 3.0]}}),
    ] {
        let found = array(&draft(), &draft_with(json!({"storage_transformers": [transformer]})));
        assert_eq!(found.chunk_shape, [6, 12]);
        assert_eq!(found.codecs[0].configuration["chunk_shape"], json!([3, 4]));
    }
    for (counts, expected) in [(json!(2), [6, 4]), (json!([5]), [15, 4]), (json!([]), [3, 4])] {
        let transformer =
            json!({"name": "sharding", "configuration": {"chunks_per_shard": counts}});
        let found = array(&draft(), &draft_with(json!({"storage_transformers": [transformer]})));
        assert_eq!(found.chunk_shape, expected);
    }
}

#[test]
fn stacked_transformers_are_nested_shards_the_first_innermost() {
    let transformer = |counts: [u64; 2]| json!({"name": "sharding", "configuration": {"chunks_per_shard": counts}});
    let stacked = json!({"storage_transformers": [transformer([2, 1]), transformer([1, 5])]});
    let found = array(&draft(), &draft_with(stacked));
    assert_eq!(found.chunk_shape, [6, 20]);
    let outer = &found.codecs[0].configuration;
    assert_eq!(outer["chunk_shape"], json!([6, 4]));
    assert_eq!(outer["codecs"][0]["configuration"]["chunk_shape"], json!([3, 4]));
    assert_eq!(outer["codecs"][0]["configuration"]["codecs"], json!([little()]));
}

#[test]
fn ambiguous_metadata_of_a_draft_are_refused() {
    let transformer = |value: Value| json!({"storage_transformers": [value]});
    for (changes, sentence) in [
        (
            transformer(json!({"extension": "https://example.org/x", "type": "y"})),
            "storage transformer \"https://example.org/x\" of type \"y\" is not known",
        ),
        (
            transformer(json!({"name": "sharding", "type": "hashed"})),
            "storage transformer \"sharding\" of type \"hashed\" is not known",
        ),
        (
            transformer(json!({"name": "sharding", "configuration": {"chunks_per_shard": [2, 0]}})),
            "chunks_per_shard [2, 0] do not fit 2 dimensions",
        ),
        (json!({"storage_transformers": {}}), "storage transformer {}"),
        (
            json!({"extensions": [{"extension": "https://example.org/x"}]}),
            "extension \"https://example.org/x\" is not supported",
        ),
        (json!({"chunk_memory_layout": {"type": "Z"}}), "chunk memory layout \"Z\" is not known"),
        (
            json!({"compressor": {"codec": "https://example.org/gzip"}}),
            "codec \"https://example.org/gzip\" is not known",
        ),
        (
            json!({"data_type": {"type": "<M8[eon]", "fallback": null}}),
            "data type \"<M8[eon]\" is not known",
        ),
        (
            json!({"attributes": {"filters": [{"id": "shuffle"}, {"id": "delta"}]}}),
            "filter \"delta\" comes after a filter that works on bytes",
        ),
    ] {
        assert_eq!(refusal(&draft(), &draft_with(changes)), sentence);
    }
    let taken = draft_with(json!({
        "extensions": [{"extension": "x", "must_understand": false}], "anything": 1,
        "attributes": {"filters": ["no codec"]},
    }));
    assert_eq!(array(&draft(), &taken).attributes["filters"], json!(["no codec"]));
}

#[test]
fn a_draft_names_its_dimensions_in_an_attribute() {
    let attributes =
        |names: Value| draft_with(json!({"attributes": {"_ARRAY_DIMENSIONS": names, "a": 1}}));
    let found = array(&draft(), &attributes(json!(["y", "x"])));
    assert_eq!(found.dimension_names, [Some("y".to_owned()), Some("x".to_owned())]);
    assert_eq!(found.attributes.keys().collect::<Vec<_>>(), ["a"]);
    let found = array(&draft(), &attributes(json!(["y"])));
    assert!(found.dimension_names.is_empty() && found.attributes.contains_key("_ARRAY_DIMENSIONS"));
}

#[test]
fn an_array_without_dimensions_is_one_chunk() {
    let scalar = json!({
        "shape": [], "chunk_grid": {"type": "regular", "chunk_shape": []}, "chunk_memory_layout": "F",
        "storage_transformers": [{"name": "sharding", "configuration": {"chunks_per_shard": [1]}}],
    });
    let found = array(&draft(), &draft_with(scalar));
    assert!(found.shape.is_empty() && found.chunk_shape.is_empty());
    assert_eq!(found.codecs[0].configuration["codecs"], json!([little()]));
}

#[test]
fn a_node_that_was_not_understood_is_shown_as_it_is_stored() {
    let stored = br#"{"attributes": {"a": NaN}, "data_type": "int33"}"#;
    let text = shown::not_understood(NodeKind::Array, stored);
    let value: Value = serde_json::from_str(&text).expect("strict JSON");
    assert_eq!(value, json!({"attributes": {"a": "NaN"}, "data_type": "int33"}));
    assert_eq!(shown::not_understood(NodeKind::Group, b"{]"), "{]");
}

#[test]
fn names_are_checked_for_new_nodes() {
    for (dialect, name, allowed) in [
        (Dialect::V3, "é", true),
        (Dialect::V3, "c", true),
        (Dialect::V3, "__x", true),
        (Dialect::V3, "...", false),
        (Dialect::V3, "zarr.json", false),
        (draft(), "a.b-c_D", true),
        (draft(), "é", false),
        (draft(), "a b", false),
    ] {
        assert_eq!(dialect.check_name(name).is_ok(), allowed, "{name} in {}", dialect.name());
    }
    assert!(Dialect::V3.is_reserved("zarr.json") && Dialect::V3.is_reserved("a/zarr.json"));
    assert!(!Dialect::V3.is_reserved("notes") && !draft().is_reserved("zarr.json"));
}

#[test]
fn the_largest_types_fit() {
    let found = array(&Dialect::V3, &v3_with(json!({"data_type": "r24", "fill_value": [1, 2, 3]})));
    assert_eq!(
        (found.dtype.clone(), found.fill.item(&found.dtype).to_vec()),
        (DType::Raw(3), vec![1, 2, 3])
    );
    assert_eq!(codecs(&found), json!([little()]));
}

/// Any value of a member, valid or not.
fn strange() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        Just(json!(0)),
        Just(json!(-1)),
        Just(json!(18_446_744_073_709_551_615_u64)),
        Just(json!(1.5)),
        Just(json!("F")),
        Just(json!("NaN")),
        Just(json!("bytes")),
        Just(json!("sharding")),
        Just(json!("sharding_indexed")),
        Just(json!("regular")),
        Just(json!([])),
        Just(json!([2, 2])),
        any::<i64>().prop_map(Value::from),
    ];
    let name = prop_oneof![
        Just("name"),
        Just("type"),
        Just("configuration"),
        Just("chunk_shape"),
        Just("codecs"),
        Just("order"),
        Just("chunks_per_shard"),
        Just("id"),
        Just("filters"),
        Just("index_codecs"),
        Just("extension"),
        Just("shuffle"),
        Just("fallback"),
        Just("length_bytes"),
        Just("must_understand"),
    ];
    leaf.prop_recursive(4, 16, 3, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec((name.clone().prop_map(str::to_owned), inner), 0..3)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn decoded(node: &NodeMetadata, chunk_shape: &[u64]) -> shown::ShownChunks {
    match node {
        NodeMetadata::Array(array) => shown::ShownChunks::decoded(array, chunk_shape),
        NodeMetadata::Group(_) => shown::ShownChunks::default(),
    }
}

proptest! {
    #[test]
    fn no_document_panics(
        member in prop::sample::select(vec![
            "shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs", "attributes",
            "storage_transformers", "dimension_names", "compressor", "chunk_memory_layout", "extensions",
            "zarr_format", "node_type", "dimension_separator",
        ]),
        value in strange(),
    ) {
        for (dialect, document) in [
            (Dialect::V3, v3_with(json!({member: value.clone()}))),
            (draft(), draft_with(json!({member: value.clone()}))),
        ] {
            let text = document.to_string();
            let lowered = dialect.lower(Some(NodeKind::Array), text.as_bytes());
            if let Ok(NodeMetadata::Array(array)) = &lowered.node {
                let shown = shown::array(array, &shown::ShownChunks::decoded(array, &array.chunk_shape));
                prop_assert!(Dialect::V3.lower(None, shown.as_bytes()).node.is_ok(), "{}", shown);
            }
            let edit = merge::Edit {
                consolidated: None,
                attributes: vec![("a".to_owned(), Some(value.clone()))],
                shape: Some(vec![1, 2]),
                shape_before: Vec::new(),
                dimension_names: Some(vec![None, Some("x".to_owned())]),
                members: vec![("b".to_owned(), None)], has_no_chunks: false,
            };
            let _ = dialect.edit(NodeKind::Array, &text, &edit);
            if let Ok(node) = &lowered.node {
                let _ = merge::diff(&text, text.as_bytes(), node, &decoded(node, &[3, 4]));
            }
            let _ = shown::not_understood(NodeKind::Array, text.as_bytes());
        }
    }

    #[test]
    fn no_bytes_panic(text in prop::collection::vec(any::<u8>(), 0..100)) {
        for dialect in [Dialect::V3, draft()] {
            let _ = dialect.lower(None, &text);
            let _ = dialect.lower(Some(NodeKind::Group), &text);
        }
    }
}
