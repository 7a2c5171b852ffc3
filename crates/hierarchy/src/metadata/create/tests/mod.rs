mod random;

use serde_json::json;

use super::*;
use crate::metadata::policy::Shards;

fn draft() -> Dialect {
    Dialect::draft(crate::metadata::Era::D2020_10, ".json")
}

fn path() -> NodePath {
    NodePath::parse("a/x").expect("a path")
}

fn policy(codecs: &str, shards: &str) -> Policy {
    let codecs = Policy::parse_codecs(codecs).expect("codecs");
    Policy { codecs, shards: Policy::parse_shards(shards).expect("shards") }
}

/// An array as a program writes it, after setting the members in `changes`, or removing those that
/// are null.
fn written(changes: &Value) -> Value {
    let mut document = json!({
        "zarr_format": 3,
        "node_type": "array",
        "shape": [7, 10],
        "data_type": "int32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [3, 4]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": {},
    });
    for (name, value) in changes.as_object().expect("an object") {
        let members = document.as_object_mut().expect("an object");
        match value.as_str() {
            Some("(absent)") => members.shift_remove(name),
            _ => members.insert(name.clone(), value.clone()),
        };
    }
    document
}

fn made(dialect: &Dialect, changes: &Value, policy: &Policy) -> Value {
    let written = written(changes).to_string();
    let made = dialect.new_document(&path(), written.as_bytes(), policy);
    let made = made.unwrap_or_else(|error| panic!("{written}: {error}"));
    serde_json::from_str(&made.text).expect("JSON")
}

fn refusal(dialect: &Dialect, changes: &Value, policy: &Policy) -> String {
    let written = written(changes).to_string();
    let error = dialect.new_document(&path(), written.as_bytes(), policy).expect_err(&written);
    assert_eq!(error.kind(), Kind::Invalid, "{error}");
    error.to_string()
}

#[test]
fn metadata_that_describe_no_array_are_refused_with_advice() {
    for (changes, sentence) in [
        (json!({"codecs": ["bytes", "bytes"]}), "2 array-to-bytes codecs, only one is allowed"),
        (json!({"codecs": 3}), "codecs are 3, not a list"),
        (
            json!({"chunk_key_encoding": {"name": "fanout"}}),
            "chunk key encoding \"fanout\" is not known",
        ),
        (
            json!({"chunk_grid": {"name": "hexagonal", "configuration": {}}}),
            "chunk_grid \"hexagonal\" is not known: use a regular grid",
        ),
        (
            json!({"data_type": {"name": "date", "fallback": "int32"}}),
            "data type \"date\" is not known: use bool, int8 to int64, uint8 to uint64, float16 to float64, \
             complex64, complex128, string, bytes, or raw bits like r16",
        ),
        (json!({"data_type": "(absent)"}), "data_type is missing"),
        (json!({"shape": "(absent)"}), "shape is missing"),
        (
            json!({"storage_transformers": [{"name": "x"}]}),
            "storage_transformers are [x]: Zarr 3 defines none, so leave them out",
        ),
        (json!({"surprise": 1}), "unknown member \"surprise\" without \"must_understand\": false"),
        (json!({"fill_value": "x"}), "fill_value \"x\" is not a valid int32"),
        (json!({"zarr_format": 2}), "zarr_format is 2: this mount accepts only Zarr 3 metadata"),
        (
            json!({"zarr_format": "(absent)"}),
            "zarr_format is missing: this mount accepts only Zarr 3 metadata",
        ),
        (
            json!({"node_type": "table"}),
            "node_type is \"table\": it must be \"array\" or \"group\"",
        ),
    ] {
        assert_eq!(refusal(&Dialect::V3, &changes, &Policy::default()), sentence, "{changes}");
    }
    let shards = policy("none", "[4, 6]");
    assert_eq!(
        refusal(&Dialect::V3, &json!({}), &shards),
        "shards of shape [4, 6] (--shards) do not hold whole chunks of shape [3, 4]: choose chunks that \
         divide them"
    );
    let error = Dialect::V3.new_document(&NodePath::root(), b"[", &shards).expect_err("no JSON");
    assert_eq!(error.kind(), Kind::Invalid);
}

#[test]
fn metadata_that_the_2020_draft_cannot_express_are_refused_by_name() {
    let one_of = "use one of blosc, bz2, gzip, lz4, lzma, zlib, zstd";
    let unusual = r#"[{"name": "transpose", "configuration": {"order": [1, 0, 2]}}]"#;
    for (changes, codecs, sentence) in [
        (json!({}), "crc32c", format!("codec \"crc32c\" cannot be expressed in the 2020 draft: {one_of}")),
        (
            json!({"codecs": ["bytes", "lz4_block_stream"]}),
            "none",
            format!("codec \"lz4_block_stream\" cannot be expressed in the 2020 draft: {one_of}"),
        ),
        (
            json!({}),
            "gzip,zstd",
            "codecs gzip and zstd cannot be combined in the 2020 draft: use one of them".into(),
        ),
        (
            json!({"shape": [2, 2, 2], "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, 1, 1]}}}),
            unusual,
            "transpose [1,0,2] cannot be expressed in the 2020 draft, which reverses all \
             dimensions (\"F\") or none: \
             mount with other --codecs"
                .into(),
        ),
        (
            json!({"attributes": {"filters": [{"id": "delta"}]}}),
            "none",
            "the attribute \"filters\" holds the codecs of arrays in the 2020 draft: give it another name"
                .into(),
        ),
        (
            json!({"data_type": "float32", "fill_value": "0x7fc00abc"}),
            "none",
            "fill_value 0x7fc00abc is a NaN with a payload, which readers of the 2020 draft do not accept: use \"NaN\""
                .into(),
        ),
    ] {
        assert_eq!(refusal(&draft(), &changes, &policy(codecs, "none")), sentence, "{changes}");
    }
}

#[test]
fn an_array_with_codecs_of_its_own_is_stored_as_its_maker_wrote_it() {
    let index =
        json!([{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]);
    let sharding = json!({"chunk_shape": [1, 2], "codecs": ["bytes", {"name": "gzip", "configuration": {"level": 2}}],
        "index_codecs": index});
    for codecs in [
        json!([{"name": "bytes", "configuration": {"endian": "big"}}]),
        json!([{"name": "transpose", "configuration": {"order": [1, 0]}}, {"name": "bytes", "configuration": {"endian": "little"}}]),
        json!([{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "zstd", "configuration": {"level": 0}}]),
        json!([{"name": "sharding_indexed", "configuration": sharding}]),
    ] {
        let written = written(&json!({"codecs": codecs}));
        let text = written.to_string();
        let new = Dialect::V3
            .new_document(&path(), text.as_bytes(), &policy("blosc", "none"))
            .expect("made");
        assert_eq!(new.text, text);
        let encoded = new.encoded.expect("encoded chunks");
        assert_eq!(encoded.levels, Levels::Maker);
        let node = Dialect::V3.lower(None, text.as_bytes()).node.expect("an array");
        let NodeMetadata::Array(array) = node else { panic!("a group") };
        let shown = crate::metadata::shown::array(&array, &encoded.shown);
        assert!(crate::metadata::shown::is_equivalent(&text, &shown), "{shown}");
    }
    let plain = written(&json!({})).to_string();
    let new = Dialect::V3.new_document(&path(), plain.as_bytes(), &Policy::default());
    assert_eq!(new.expect("made").encoded, None);
}

#[test]
fn n5_and_zarr_2_refuse_codecs_that_they_cannot_express() {
    let gzip = json!({"codecs": ["bytes", {"name": "gzip", "configuration": {"level": 2}}]});
    assert!(
        refusal(&Dialect::N5, &gzip, &Policy::default())
            .starts_with("N5 stores each chunk with a header")
    );
    let packed = json!({"codecs": ["packbits"]});
    assert!(refusal(&Dialect::V2, &packed, &Policy::default()).contains("\"packbits\""));
    let sharded = json!({"codecs": [{"name": "sharding_indexed", "configuration":
        {"chunk_shape": [1, 2], "codecs": ["bytes"], "index_codecs": ["bytes"]}}]});
    assert!(refusal(&Dialect::V2, &sharded, &Policy::default()).contains("sharding_indexed"));
}

#[test]
fn the_policy_decides_where_the_document_has_nothing_but_bytes() {
    let little = json!({"name": "bytes", "configuration": {"endian": "little"}});
    let zstd = json!({"name": "zstd", "configuration": {"level": 3, "checksum": false}});
    let gzip = json!({"name": "gzip", "configuration": {"level": 1}});
    let made = |changes, policy: &Policy| made(&Dialect::V3, &changes, policy);
    let plain = made(json!({}), &Policy::default());
    assert_eq!(plain, written(&json!({"codecs": [little, zstd]})));
    let asked = made(json!({"codecs": [little, gzip]}), &policy("zstd", "none"));
    assert_eq!(asked, written(&json!({"codecs": [little, gzip]})));
    // The chunks of its maker become inner chunks.
    let asked = made(json!({"codecs": ["bytes", gzip]}), &policy("zstd", "[6, 8]"));
    let inner = asked.pointer("/codecs/0/configuration/codecs");
    assert_eq!(inner, Some(&json!([little, gzip])));
    let sharded = made(json!({}), &policy("none", "[6, 8]"));
    let sharding = json!({
        "chunk_shape": [3, 4],
        "codecs": [little],
        "index_codecs": [little, {"name": "crc32c"}],
        "index_location": "end",
    });
    let expected = json!({
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [6, 8]}},
        "codecs": [{"name": "sharding_indexed", "configuration": sharding}],
    });
    assert_eq!(sharded, written(&expected));
}

#[test]
fn provisional_spellings_become_released_ones() {
    let provisional = json!({
        "zarr_format": 3.0,
        "node_type": "(absent)",
        "shape": [7.0, 10.0],
        "data_type": {"name": "uint8"},
        "chunk_grid": {"type": "regular", "configuration": {"chunk_shape": [3, 4], "separator": "/"}},
        "chunk_key_encoding": "(absent)",
        "fill_value": null,
        "codecs": [{"name": "endian", "configuration": {"endian": "little"}}, {"name": "numcodecs.blosc", "configuration": {"shuffle": 2}}],
        "attributes": "(absent)",
        "extensions": [],
        "dimension_names": null,
        "storage_transformers": null,
        "consolidated_metadata": null,
    });
    let blosc = json!({"shuffle": "bitshuffle", "cname": "lz4", "clevel": 5, "blocksize": 0, "typesize": 1});
    let expected = json!({
        "data_type": "uint8",
        "codecs": [{"name": "bytes"}, {"name": "blosc", "configuration": blosc}],
    });
    assert_eq!(made(&Dialect::V3, &provisional, &Policy::default()), written(&expected));
}

#[test]
fn the_text_of_the_program_stays_where_it_need_not_change() {
    let text = "{\n  \"zarr_format\": 3,\n  \"node_type\": \"array\",\n  \"shape\": [4],\n  \"data_type\": \"float64\",\n  \
                \"chunk_grid\": {\"name\":\"regular\",\"configuration\":{\"chunk_shape\":[ 2 ]}},\n  \
                \"chunk_key_encoding\": {\"name\":\"default\",\"configuration\":{\"separator\":\"/\"}},\n  \
                \"fill_value\": 1.50e0,\n  \"codecs\": [{\"name\": \"bytes\", \"configuration\": {\"endian\": \"little\"}}],\n  \
                \"attributes\": {\"a\": NaN, \"b\": 123456789012345678901234567890, \"c\": 1.0},\n  \
                \"mine\": {\"must_understand\": false, \"x\": [1,2]}\n}";
    let none = policy("none", "none");
    let made = Dialect::V3.new_document(&path(), text.as_bytes(), &none).expect("made");
    assert_eq!(made.text, text);
    let with_mark = format!("\u{feff}{text}");
    let made = Dialect::V3.new_document(&path(), with_mark.as_bytes(), &none).expect("made");
    assert_eq!(made.text, text);
    let made = draft().new_document(&path(), text.as_bytes(), &none).expect("made");
    let stays = "\"attributes\": {\"a\": NaN, \"b\": 123456789012345678901234567890, \"c\": 1.0},\n  \
                 \"mine\": {\"must_understand\": false, \"x\": [1,2]}";
    assert!(
        made.text.contains(stays) && made.text.contains("\"fill_value\": 1.50e0"),
        "{}",
        made.text
    );
}

#[test]
fn fill_values_are_stored_as_their_type_is_spelled() {
    for (dtype, written, v3, in_draft) in [
        ("int8", json!("0x7f"), json!(127), json!(127)),
        ("int16", json!(3.0), json!(3), json!(3)),
        ("uint64", json!(u64::MAX), json!(u64::MAX), json!(u64::MAX)),
        ("bool", json!(1), json!(true), json!(true)),
        ("float32", json!(null), json!(0.0), json!(0.0)),
        ("float32", json!("nan"), json!("NaN"), json!("NaN")),
        ("float32", json!("-inf"), json!("-Infinity"), json!("-Infinity")),
        ("float32", json!("0x3f800000"), json!(1.0), json!(1.0)),
        ("float64", json!(-0.0), json!(-0.0), json!(-0.0)),
        ("complex64", json!([1, "inf"]), json!([1.0, "Infinity"]), json!([1.0, "Infinity"])),
        ("complex64", json!(null), json!([0.0, 0.0]), json!([0.0, 0.0])),
        ("r16", json!([1, 255]), json!([1, 255]), json!("0x01ff")),
    ] {
        let changes = json!({"data_type": dtype, "fill_value": written});
        let none = policy("none", "none");
        assert_eq!(made(&Dialect::V3, &changes, &none)["fill_value"], v3, "{dtype} {written}");
        assert_eq!(made(&draft(), &changes, &none)["fill_value"], in_draft, "{dtype} {written}");
    }
    // JSON has no bare words.
    let text = written(&json!({"data_type": "float64", "fill_value": "NaN"})).to_string();
    let text = text.replace("\"NaN\"", "NaN");
    let made = Dialect::V3.new_document(&path(), text.as_bytes(), &Policy::default());
    assert!(made.expect("made").text.contains("\"fill_value\":\"NaN\""));
    let raw = json!({"name": "raw_bytes", "configuration": {"length_bytes": 3}});
    for dtype in [raw, json!("r24")] {
        let changes = json!({"data_type": dtype, "fill_value": "AQID"});
        let stored = self::made(&Dialect::V3, &changes, &Policy::default());
        assert_eq!((&stored["data_type"], &stored["fill_value"]), (&dtype, &json!("AQID")));
    }
}

#[test]
fn a_draft_document_has_the_form_that_its_readers_know() {
    let blosc = json!({"name": "blosc", "configuration": {"cname": "zstd", "clevel": 1, "shuffle": "bitshuffle", "typesize": 4, "blocksize": 0}});
    let changes = json!({
        "codecs": ["bytes", blosc],
        "attributes": {"units": "K"},
        "dimension_names": ["y", "x"],
        "storage_transformers": [],
    });
    let expected = json!({
        "shape": [7, 10],
        "data_type": "<i4",
        "chunk_grid": {"type": "regular", "chunk_shape": [3, 4], "separator": "/"},
        "fill_value": 0,
        "attributes": {"units": "K", "_ARRAY_DIMENSIONS": ["y", "x"]},
        "chunk_memory_layout": "C",
        "extensions": [],
        "compressor": {
            "codec": "https://purl.org/zarr/spec/codec/blosc/1.0",
            "configuration": {"cname": "zstd", "clevel": 1, "shuffle": 2, "blocksize": 0},
        },
    });
    assert_eq!(made(&draft(), &changes, &Policy::default()), expected);
    let reversed = r#"[{"name": "transpose", "configuration": {"order": "F"}}, {"name": "bytes", "configuration": {"endian": "big"}}, "zstd"]"#;
    let changes = json!({"data_type": "complex128", "fill_value": [0, 0]});
    let expected = json!({
        "shape": [7, 10],
        "data_type": {
            "extension": "https://zarr-specs.readthedocs.io/en/core-protocol-v3.0-dev/protocol/extensions/complex-dtypes/v1.0.html",
            "type": ">c16",
            "fallback": null,
        },
        "chunk_grid": {"type": "regular", "chunk_shape": [3, 4], "separator": "/"},
        "fill_value": [0, 0],
        "attributes": {},
        "chunk_memory_layout": "F",
        "extensions": [],
        "compressor": {
            "codec": "https://purl.org/zarr/spec/codec/zstd/1.0",
            "configuration": {"level": 3},
        },
        "storage_transformers": [{
            "extension": "https://purl.org/zarr/spec/storage_transformers/sharding/1.0",
            "type": "indexed",
            "configuration": {"chunks_per_shard": [2, 3]},
        }],
    });
    assert_eq!(made(&draft(), &changes, &policy(reversed, "[6, 12]")), expected);
}

#[test]
fn names_of_dimensions_are_an_attribute_of_a_draft_unless_it_is_taken() {
    let names = |names: Value, attribute: Value| {
        let attributes = match attribute {
            Value::Null => json!({}),
            attribute => json!({"_ARRAY_DIMENSIONS": attribute}),
        };
        let changes = json!({"attributes": attributes, "dimension_names": names});
        let stored = made(&draft(), &changes, &Policy::default());
        (stored["attributes"]["_ARRAY_DIMENSIONS"].clone(), stored["dimension_names"].clone())
    };
    let (yx, yz) = (json!(["y", "x"]), json!(["y", "z"]));
    assert_eq!(names(yx.clone(), json!(null)), (yx.clone(), json!(null)));
    assert_eq!(names(json!(null), json!(null)), (json!(null), json!(null)));
    assert_eq!(names(json!([null, null]), json!(null)), (json!(null), json!(null)));
    assert_eq!(names(json!([null, "x"]), json!(null)), (json!(null), json!([null, "x"])));
    assert_eq!(names(yx.clone(), yx.clone()), (yx.clone(), json!(null)));
    assert_eq!(names(json!(null), yx.clone()), (yx.clone(), json!(null)));
    assert_eq!(names(yx.clone(), yz.clone()), (yz, yx.clone()));
    assert_eq!(names(yx.clone(), json!(3)), (json!(3), yx));
}

#[test]
fn only_names_for_every_dimension_take_the_fill_value_of_zarr_2() {
    let stored = |names: Value| {
        let changes = json!({"attributes": {"_ARRAY_DIMENSIONS": names}});
        made(&Dialect::V2, &changes, &Policy::default())["fill_value"].clone()
    };
    assert_eq!(stored(json!(["y", "x"])), json!(null));
    for others in [json!(["x"]), json!([]), json!("x"), json!(["y", 2])] {
        assert_eq!(stored(others.clone()), json!(0), "{others}");
    }
}

#[test]
fn a_group_keeps_its_attributes_and_its_wish_for_consolidated_metadata() {
    let text = r#"{"zarr_format": 3, "node_type": "group", "attributes": {"a": NaN}, "consolidated_metadata": {"kind": "inline", "must_understand": false, "metadata": {}}}"#;
    let made = |dialect: Dialect, text: &str| {
        let made = dialect.new_document(&path(), text.as_bytes(), &Policy::default());
        made.unwrap_or_else(|error| panic!("{text}: {error}"))
    };
    let in_v3 = made(Dialect::V3, text);
    assert_eq!(in_v3.text, r#"{"zarr_format": 3, "node_type": "group", "attributes": {"a": NaN}}"#);
    assert_eq!((in_v3.key.as_str(), in_v3.consolidated), ("a/x/zarr.json", true));
    let in_draft = made(draft(), text);
    assert_eq!(in_draft.text, r#"{"attributes": {"a": NaN}}"#);
    assert_eq!(in_draft.key.as_str(), "meta/root/a/x.group.json");
    let bare = r#"{"zarr_format": 3, "consolidated_metadata": null}"#;
    let in_v3 = made(Dialect::V3, bare);
    assert_eq!(in_v3.text, r#"{"zarr_format": 3, "node_type": "group", "attributes": {}}"#);
    assert!(!in_v3.consolidated);
    assert_eq!(made(draft(), bare).text, r#"{"attributes": {}}"#);
}

#[test]
fn a_stored_document_may_have_any_pipeline_of_its_dialect() {
    let sharding = json!({"name": "sharding_indexed", "configuration": {"chunk_shape": [1, 1]}});
    let text = written(&json!({"codecs": [sharding]})).to_string();
    assert!(matches!(Dialect::V3.check_stored(None, text.as_bytes()), Ok(NodeMetadata::Array(_))));
    let error = draft().check_stored(Some(NodeKind::Array), b"{}").expect_err("no array");
    assert_eq!((error.kind(), error.to_string().as_str()), (Kind::Invalid, "shape is missing"));
    let error = Dialect::V3.check_stored(None, b"").expect_err("nothing");
    assert_eq!(error.kind(), Kind::Invalid);
    assert_eq!(Policy::default().shards, Shards::None);
}

/// A convention that depends on the dialect: the members of a node in released v3, and those that
/// each dialect stores in their place. The inverse is the same row, read from right to left.
struct Convention {
    what: &'static str,
    v3: Value,
    v2: Value,
    draft: Value,
}

fn conventions() -> Vec<Convention> {
    let names = json!(["y", "x"]);
    let nan = "AAAAAAAA+H8=";
    vec![
        Convention {
            what: "dimensions without names",
            v3: json!({"data_type": "int16", "fill_value": -1, "attributes": {}}),
            v2: json!({"fill_value": -1, "attributes": {}}),
            draft: json!({"fill_value": -1, "attributes": {}}),
        },
        Convention {
            what: "names, and nothing that is masked",
            v3: json!({"data_type": "int16", "fill_value": 0, "attributes": {}, "dimension_names": names}),
            v2: json!({"fill_value": null, "attributes": {"_ARRAY_DIMENSIONS": names}}),
            draft: json!({"fill_value": 0, "attributes": {"_ARRAY_DIMENSIONS": names}}),
        },
        Convention {
            what: "a masked value that is also the fill value",
            v3: json!({"data_type": "int16", "fill_value": -1, "attributes": {"_FillValue": -1}, "dimension_names": names}),
            v2: json!({"fill_value": -1, "attributes": {"_ARRAY_DIMENSIONS": names}}),
            draft: json!({"fill_value": -1, "attributes": {"_FillValue": -1, "_ARRAY_DIMENSIONS": names}}),
        },
        Convention {
            what: "a masked value beside the fill value zero",
            v3: json!({"data_type": "int16", "fill_value": 0, "attributes": {"_FillValue": -1}, "dimension_names": names}),
            v2: json!({"fill_value": null, "attributes": {"_FillValue": -1, "_ARRAY_DIMENSIONS": names}}),
            draft: json!({"fill_value": 0, "attributes": {"_FillValue": -1, "_ARRAY_DIMENSIONS": names}}),
        },
        Convention {
            what: "a masked float, in base64",
            v3: json!({"data_type": "float32", "fill_value": "NaN", "attributes": {"_FillValue": nan}, "dimension_names": names}),
            v2: json!({"fill_value": "NaN", "attributes": {"_ARRAY_DIMENSIONS": names}}),
            draft: json!({"fill_value": "NaN", "attributes": {"_FillValue": nan, "_ARRAY_DIMENSIONS": names}}),
        },
        Convention {
            what: "attributes that follow no convention",
            v3: json!({"data_type": "int8", "fill_value": 0, "attributes": {"_ARRAY_DIMENSIONS": "none", "ome": 1}}),
            v2: json!({"fill_value": 0, "attributes": {"_ARRAY_DIMENSIONS": "none", "ome": 1}}),
            draft: json!({"fill_value": 0, "attributes": {"_ARRAY_DIMENSIONS": "none", "ome": 1}}),
        },
    ]
}

#[test]
fn each_convention_has_one_form_in_each_dialect_and_that_form_leads_back() {
    let policy = Policy { codecs: Vec::new(), shards: Shards::None };
    let draft = draft();
    for Convention { what, v3, v2, draft: in_draft } in conventions() {
        let mut written = json!({
            "zarr_format": 3, "node_type": "array", "shape": [4, 4],
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 2]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        });
        for (name, value) in v3.as_object().expect("members") {
            written[name] = value.clone();
        }
        for (dialect, own) in [(&Dialect::V3, &v3), (&Dialect::V2, &v2), (&draft, &in_draft)] {
            let place = format!("{what} in {}", dialect.name());
            let made =
                dialect.new_document(&NodePath::root(), written.to_string().as_bytes(), &policy);
            let made = made.unwrap_or_else(|error| panic!("{place}: {error}"));
            let stored: Value = serde_json::from_str(&made.text).expect("JSON");
            for (name, value) in own.as_object().expect("members") {
                assert_eq!(stored[name], *value, "{place}: {name}");
            }
            let lowered = dialect.lower(Some(NodeKind::Array), made.text.as_bytes()).node;
            let Ok(NodeMetadata::Array(array)) = lowered else { panic!("{place}: {lowered:?}") };
            let shown = ShownChunks::decoded(&array, &array.chunk_shape);
            let shown = super::super::shown::array(&array, &shown);
            let shown: Value = serde_json::from_str(&shown).expect("JSON");
            for name in ["shape", "data_type", "fill_value", "attributes", "dimension_names"] {
                assert_eq!(shown.get(name), written.get(name), "{place}: {name} leads back");
            }
        }
    }
}
