use super::{Policy, *};
use zarrfs_codec::registry;
use zarrfs_codec::table;

fn spelled(text: &str) -> Value {
    let codecs = Policy::parse_codecs(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    codecs.iter().map(CodecSpec::to_json).collect()
}

#[test]
fn names_stand_for_codecs_with_a_whole_configuration() {
    assert_eq!(spelled("none"), json!([]));
    let zstd = json!({"name": "zstd", "configuration": {"level": 3, "checksum": false}});
    assert_eq!(spelled(" zstd "), json!([zstd]));
    assert_eq!(Policy::default().codecs, Policy::parse_codecs("zstd").expect("known"));
    let blosc = json!({"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "blocksize": 0});
    let expected = json!([{"name": "blosc", "configuration": blosc}, {"name": "crc32c"}]);
    assert_eq!(spelled("blosc,crc32c"), expected);
    let zlib = json!([{"name": "numcodecs.zlib", "configuration": {"level": 5}}]);
    assert_eq!((spelled("zlib"), spelled("numcodecs.zlib")), (zlib.clone(), zlib));
    assert_eq!(spelled(r#"["zstd"]"#), json!([zstd]));
    let level = json!({"name": "zstd", "configuration": {"level": 9, "checksum": false}});
    assert_eq!(spelled(r#"[{"name": "zstd", "configuration": {"level": 9}}]"#), json!([level]));
}

#[test]
fn every_plain_name_is_a_codec_that_can_be_built() {
    for name in table::ids(|row| row.is_option) {
        for name in [name.to_owned(), format!("numcodecs.{name}")] {
            if name == "numcodecs.crc32c" {
                continue;
            }
            let policy = Policy {
                codecs: Policy::parse_codecs(&name).expect("known"),
                shards: Shards::None,
            };
            let elements =
                EncodedElements { rank: 1, dtype: DType::Float(8), endian: Endian::Little };
            let chain = policy.chain(&elements).expect("fits");
            let codecs = chain.get(1..).expect("behind bytes");
            registry::bytes_to_bytes(codecs).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}

#[test]
fn codecs_that_fit_no_array_are_refused() {
    let known = table::ids(|row| row.is_option).join(", ");
    let unknown = |name: &str| {
        format!("unknown codec {name:?}: expected none, {known}, or a JSON list of codecs")
    };
    for (text, sentence) in [
        ("zstd,deflate", &*unknown("deflate")),
        ("", &*unknown("")),
        ("[\"zstd\"", "not JSON: `,` or `]` is missing at line 1, column 8"),
        ("[3]", "codec 3 has no name"),
        ("[\"sharding_indexed\"]", "sharding_indexed is not allowed in --codecs: use --shards"),
        (
            "[\"zstd\", \"bytes\"]",
            "codec \"bytes\" works on arrays: it cannot follow a codec that produces bytes",
        ),
        (
            "[\"bytes\", \"bytes\"]",
            "codec \"bytes\" works on arrays: it cannot follow a codec that produces bytes",
        ),
        (
            r#"[{"name": "bytes", "configuration": {"endian": "middle"}}]"#,
            "byte order \"middle\" is not known",
        ),
        (
            r#"[{"name": "transpose", "configuration": {"order": [0, 2]}}]"#,
            "transpose order [0, 2] is not a permutation",
        ),
    ] {
        let error = Policy::parse_codecs(text).expect_err(text);
        assert_eq!(error.to_string(), sentence, "{text}");
        assert_eq!(error.kind(), Kind::Invalid, "{text}");
    }
}

#[test]
fn shards_are_none_a_size_or_a_shape() {
    for (text, shards) in [
        ("none", Shards::None),
        ("16M", Shards::Target(16 << 20)),
        ("[4, 6]", Shards::Shape(vec![4, 6])),
    ] {
        assert_eq!(Policy::parse_shards(text), Ok(shards), "{text}");
    }
    for (text, sentence) in [
        ("big", "expected none, a size such as 16M, or a shape such as [1024, 1024]"),
        ("[]", "[] is not a shard shape: each dimension needs an integer of at least 1"),
        ("[0]", "[0] is not a shard shape: each dimension needs an integer of at least 1"),
        ("[\"a\"]", "the shape of shards [\"a\"] is not a list of integers of at least 0"),
    ] {
        let error = Policy::parse_shards(text).expect_err(text);
        assert_eq!((error.to_string().as_str(), error.kind()), (sentence, Kind::Invalid), "{text}");
    }
}

fn regular(shape: Vec<u64>) -> ShardGrid {
    ShardGrid { shape, rectilinear: None }
}

#[test]
fn shards_of_a_rectilinear_grid_hold_whole_chunks_and_cover_the_array() {
    let runs = vec![vec![(4, 2), (2, 1)], vec![(6, u64::MAX)]];
    let policy = Policy { codecs: Vec::new(), shards: Shards::Rectilinear(runs.clone()) };
    let of = |shape: &[u64], chunks: &[u64]| policy.shard_grid(shape, chunks, &DType::Bool);
    let expected = ShardGrid { shape: vec![4, 6], rectilinear: Some(runs.clone()) };
    assert_eq!(of(&[9, 30], &[2, 3]), Ok(Some(expected)));
    assert_eq!(of(&[9], &[2]), Ok(None), "another number of dimensions");
    let error = of(&[9, 30], &[4, 3]).expect_err("2 elements in chunks of 4").to_string();
    assert!(error.contains("a shard of 2 elements along dimension 0"), "{error}");
    let error = of(&[11, 30], &[2, 3]).expect_err("too long").to_string();
    assert!(error.contains("have 10 elements in all, the array has 11"), "{error}");
}

#[test]
fn a_shard_is_filled_from_the_last_dimension_to_the_first() {
    let uint8 = DType::Uint(1);
    for (target, shape, chunk_shape, expected) in [
        (10, vec![100], vec![1], Some(vec![10])),
        (10, vec![100], vec![3], Some(vec![9])),
        (9, vec![100], vec![10], None),
        (40, vec![8, 8], vec![2, 2], Some(vec![4, 8])),
        (40, vec![8, 0], vec![2, 2], Some(vec![8, 2])),
        (1 << 30, vec![7, 5], vec![2, 2], Some(vec![8, 6])),
        (1 << 30, vec![2, 2], vec![2, 2], None),
        (1 << 30, vec![], vec![], None),
        (0, vec![4], vec![1], None),
        (u64::MAX, vec![u64::MAX], vec![1], Some(vec![MAX_COUNT])),
        (u64::MAX, vec![4], vec![u64::MAX / 2], None),
    ] {
        let policy = Policy { codecs: Vec::new(), shards: Shards::Target(target) };
        let found = policy.shard_grid(&shape, &chunk_shape, &uint8);
        assert_eq!(
            found,
            Ok(expected.map(regular)),
            "{target} bytes, {shape:?} in {chunk_shape:?}"
        );
    }
    let policy = Policy { codecs: Vec::new(), shards: Shards::Target(40) };
    assert_eq!(policy.shard_grid(&[8, 8], &[1, 2], &DType::Uint(8)), Ok(Some(regular(vec![1, 4]))));
}

#[test]
fn a_shape_is_for_arrays_of_as_many_dimensions() {
    let policy = Policy { codecs: Vec::new(), shards: Shards::Shape(vec![4, 6]) };
    let of = |chunk_shape: &[u64]| {
        policy.shard_grid(&vec![9; chunk_shape.len()], chunk_shape, &DType::Bool)
    };
    assert_eq!(of(&[2, 3]), Ok(Some(regular(vec![4, 6]))));
    assert_eq!((of(&[4, 6]), of(&[2]), of(&[])), (Ok(None), Ok(None), Ok(None)));
    assert_eq!(
        of(&[3, 4]).expect_err("not whole").to_string(),
        "shards of shape [4, 6] (--shards) do not hold whole chunks of shape [3, 4]: choose chunks that \
         divide them"
    );
}

#[test]
fn the_array_decides_what_a_codec_leaves_open() {
    let chain = |text: &str, rank: usize, dtype: DType| {
        let policy =
            Policy { codecs: Policy::parse_codecs(text).expect("parses"), shards: Shards::None };
        let elements = EncodedElements { rank, dtype, endian: Endian::Little };
        policy.chain(&elements).map(|chain| chain.iter().map(CodecSpec::to_json).collect::<Value>())
    };
    let bytes = json!({"name": "bytes", "configuration": {"endian": "little"}});
    let shuffle = json!({"name": "numcodecs.shuffle", "configuration": {"elementsize": 2}});
    assert_eq!(chain("shuffle", 1, DType::Int(2)), Ok(json!([bytes, shuffle])));
    let reversed = r#"[{"name": "transpose", "configuration": {"order": "F"}}]"#;
    let transpose = json!({"name": "transpose", "configuration": {"order": [2, 1, 0]}});
    assert_eq!(chain(reversed, 3, DType::Int(2)), Ok(json!([transpose, bytes])));
    assert_eq!(chain(reversed, 1, DType::Int(2)), Ok(json!([bytes])));
    let fixed = r#"[{"name": "transpose", "configuration": {"order": [1, 0]}}]"#;
    assert_eq!(
        chain(fixed, 3, DType::Int(2)).expect_err("another rank").to_string(),
        "the codecs of --codecs do not fit this array: transpose order [1, 0] is not a permutation"
    );
}
